/* A cut becomes a plan's chunks and stages: see layout.h for the contract. Pure. */
#include "pipe/layout.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "pipe/partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct making {
	struct pawl_pipe_plan *plan;
	const struct pawl_pipe_unit *units;
	uint32_t units_n;
	const struct pawl_pipe_setting *setting;
	const struct pipe_cutting *cutting;
	uint32_t *part; /* part that has each unit, or that it visits */
	bool has[PAWL_PIPE_TIED_MAX + 1][PAWL_PIPE_STAGES_MAX]; /* stages that have a tied set */
	uint64_t shared[PAWL_PIPE_TIED_MAX + 1]; /* bytes that the units of a tied set share */
};

/* Sets the part of each unit by the ends of the parts in the chain. */
static void find_parts(struct making *making, const struct pipe_chain *chain, const uint32_t *ends)
{
	uint32_t home[PAWL_PIPE_TIED_MAX + 1]; /* part of the first unit of a tied set */
	uint32_t position = 0;
	uint32_t k = 0;

	memset(home, 0xff, sizeof(home));
	for (uint32_t u = 0; u < making->units_n; u++) {
		uint32_t tied = making->units[u].tied;

		if (making->cutting->visits && tied > 0 && home[tied] != NONE) {
			making->part[u] = home[tied];
			continue;
		}
		ASSERT(position < chain->n && chain->unit[position] == u);
		k += position >= ends[k];
		position++;
		making->part[u] = k;
		home[tied] = tied > 0 ? k : NONE;
	}
	ASSERT(position == chain->n && k + 1 == chain->parts_n);
}

/* ---- chunks ---- */

static bool begins_chunk(const struct making *making, uint32_t u)
{
	return u == 0 || making->part[u] != making->part[u - 1];
}

static void add_to_chunk(const struct making *making, uint32_t u)
{
	const struct pawl_pipe_unit *unit = &making->units[u];
	struct pawl_pipe_plan *plan = making->plan;
	uint32_t stage = making->cutting->stage[making->part[u]];
	double speed = making->setting->speeds ? making->setting->speeds[stage] : 1;
	struct pawl_pipe_chunk *chunk;

	if (begins_chunk(making, u)) {
		plan->chunks[plan->chunks_n] = (struct pawl_pipe_chunk){.stage = stage, .first = u};
		if (u > 0 && plan->chunks[plan->chunks_n - 1].stage != stage) {
			plan->chunks[plan->chunks_n].in_bytes = unit->cut_bytes;
		}
		plan->chunks_n++;
	}
	chunk = &plan->chunks[plan->chunks_n - 1];
	chunk->units++;
	chunk->forward_s += unit->forward_s / speed;
	chunk->backward_s += unit->backward_s / speed;
	chunk->weight_s += unit->weight_s / speed;
	chunk->saved_bytes += unit->saved_bytes;
}

static int add_chunks(const struct making *making, struct pawl_err *err)
{
	struct pawl_pipe_plan *plan = making->plan;
	uint32_t n = 0;

	for (uint32_t u = 0; u < making->units_n; u++) {
		n += begins_chunk(making, u);
	}
	ASSERT(n > 0 && n >= making->cutting->parts_n && n <= PAWL_PIPE_CHUNKS_MAX);
	plan->chunks = FAULT_MEM("pipe.layout", calloc(n, sizeof(*plan->chunks)));
	if (!plan->chunks) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u chunks", n);
	}
	for (uint32_t u = 0; u < making->units_n; u++) {
		add_to_chunk(making, u);
	}
	for (uint32_t c = 0; c < n; c++) { /* sums of both, but for rounding */
		plan->chunks[c].weight_s =
			fmin(plan->chunks[c].weight_s, plan->chunks[c].backward_s);
	}
	return 0;
}

/* ---- stages, and copies of what is tied ---- */

/* Adds up what each stage keeps: of a tied set, shared parameters once. */
static void add_states(struct making *making)
{
	for (uint32_t u = 0; u < making->units_n; u++) {
		const struct pawl_pipe_unit *unit = &making->units[u];
		uint32_t stage = making->cutting->stage[making->part[u]];
		bool again = unit->tied > 0 && making->has[unit->tied][stage];
		uint64_t params = unit->param_bytes - (again ? unit->tied_bytes : 0);

		making->plan->stage[stage].state_bytes +=
			(uint64_t)ceil((double)params * making->setting->state_factor);
		making->has[unit->tied][stage] = true;
		making->shared[unit->tied] = unit->tied_bytes;
	}
}

/* Lists the stages that have copies of a tied set; a set on one stage leaves no entry. */
static void add_copies(const struct making *making, uint32_t tied, uint32_t *holders_n)
{
	struct pawl_pipe_plan *plan = making->plan;
	struct pawl_pipe_copies copies = {.tied = tied,
		.first = *holders_n,
		.len_bytes = making->shared[tied]};

	for (uint32_t s = 0; s < plan->stages; s++) {
		if (making->has[tied][s]) {
			ASSERT(*holders_n < PAWL_PIPE_HOLDERS_MAX);
			plan->holders[(*holders_n)++] = s;
			copies.stages++;
		}
	}
	if (copies.stages > 1) {
		plan->copies[plan->copies_n++] = copies;
	} else {
		*holders_n = copies.first;
	}
}

static int add_stages(struct making *making, struct pawl_err *err)
{
	struct pawl_pipe_plan *plan = making->plan;
	const uint64_t *caps = making->setting->caps_bytes;
	uint32_t holders_n = 0;

	plan->stage = FAULT_MEM("pipe.layout", calloc(plan->stages, sizeof(*plan->stage)));
	plan->copies = FAULT_MEM("pipe.layout", calloc(PAWL_PIPE_TIED_MAX, sizeof(*plan->copies)));
	plan->holders =
		FAULT_MEM("pipe.layout", calloc(PAWL_PIPE_HOLDERS_MAX, sizeof(*plan->holders)));
	if (!plan->stage || !plan->copies || !plan->holders) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u stages", plan->stages);
	}
	for (uint32_t s = 0; s < plan->stages; s++) {
		plan->stage[s].cap_bytes = caps ? caps[s] : PAWL_PIPE_NO_CAP;
	}
	add_states(making);
	for (uint32_t tied = 1; tied <= PAWL_PIPE_TIED_MAX; tied++) {
		add_copies(making, tied, &holders_n);
	}
	return 0;
}

/* ---- all ---- */

static int lay_out(struct making *making, const struct pipe_chain *chain, const uint32_t *ends,
	struct pawl_err *err)
{
	int rv;

	making->part = FAULT_MEM("pipe.layout", calloc(making->units_n, sizeof(*making->part)));
	if (!making->part) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u units", making->units_n);
	}
	find_parts(making, chain, ends);
	rv = add_chunks(making, err);
	rv = rv ? rv : add_stages(making, err);
	free(making->part);
	return rv;
}

int pipe_layout(struct pawl_pipe_plan *plan, const struct pawl_pipe_unit *units, uint32_t units_n,
	const struct pawl_pipe_setting *setting, const struct pipe_cutting *cutting,
	struct pawl_err *err)
{
	struct making making = {.plan = plan,
		.units = units,
		.units_n = units_n,
		.setting = setting,
		.cutting = cutting};
	struct pipe_optimum optimum = {0};
	struct pipe_chain chain;
	uint32_t ends[PAWL_PIPE_CHUNKS_MAX];
	int rv = pipe_chain_init(&chain, units, units_n, setting, cutting, err);

	ASSERT(!plan->chunks && plan->stages == setting->stages);
	if (rv != 0) {
		return rv;
	}
	rv = pipe_partition(&chain, ends, &optimum, err);
	rv = rv ? rv : lay_out(&making, &chain, ends, err);
	plan->value = optimum.value;
	plan->bound = optimum.bound;
	plan->link = setting->link;
	pipe_chain_deinit(&chain);
	return rv;
}
