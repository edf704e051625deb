/* Rows of a model become a chain: see cost.h for the contract. Pure. */
#include "pipe/cost.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <math.h>
#include <stdlib.h>

#define NOWHERE UINT32_MAX /* a tied set of which no unit has been seen */

/* A model while its chain is made. */
struct making {
	struct pipe_chain *chain;
	const struct pawl_pipe_unit *units;
	uint32_t units_n;
	const struct pawl_pipe_setting *setting;
	const struct pipe_cutting *cutting;
	double per_second; /* cost of a second */
	double per_byte; /* cost of a byte of parameters or activations; 0 without memory_weight */
	uint32_t before; /* position at which the unit before runs */
	bool before_visits;                   /* the unit before is not in the chain */
	uint32_t set[PAWL_PIPE_TIED_MAX + 1]; /* position of each set's last unit in the chain */
};

const char *pipe_chain_name(const struct pipe_chain *chain, uint32_t position)
{
	ASSERT(position < chain->n);
	return chain->units[chain->unit[position]].name;
}

void pipe_chain_deinit(struct pipe_chain *chain)
{
	free(chain->unit);
	free(chain->wanted);
	free(chain->cost);
	free(chain->cut);
	free(chain->link);
	free(chain->cut_bytes);
	free(chain->state);
	free(chain->saved);
	free(chain->begins);
	free(chain->shared);
	free(chain->parts);
	*chain = (struct pipe_chain){0};
}

static int allocate(struct pipe_chain *chain, uint32_t units_n, uint32_t parts_n,
	struct pawl_err *err)
{
	size_t n = (size_t)units_n + 1;

	chain->unit = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->unit)));
	chain->wanted = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->wanted)));
	chain->cost = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->cost)));
	chain->cut = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->cut)));
	chain->link = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->link)));
	chain->cut_bytes = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->cut_bytes)));
	chain->state = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->state)));
	chain->saved = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->saved)));
	chain->begins = FAULT_MEM("pipe.chain", calloc(n, sizeof(*chain->begins)));
	chain->shared =
		FAULT_MEM("pipe.chain", calloc(PAWL_PIPE_HOLDERS_MAX, sizeof(*chain->shared)));
	chain->parts = FAULT_MEM("pipe.chain", calloc(parts_n, sizeof(*chain->parts)));
	if (chain->unit && chain->wanted && chain->cost && chain->cut && chain->link &&
		chain->cut_bytes && chain->state && chain->saved && chain->begins &&
		chain->shared && chain->parts) {
		return 0;
	}
	return pawl_err_set(err, PAWL_ENOMEM, "no memory to cut %u units into %u parts", units_n,
		parts_n);
}

/* ---- units ---- */

/* Sets how much seconds and bytes cost. SMP: both are shares of the whole model's. */
static void weigh(struct making *making)
{
	double weight = making->setting->memory_weight;
	double time_s = 0;
	double bytes = 0;

	making->per_second = 1;
	if (weight <= 0) {
		return;
	}
	for (uint32_t u = 0; u < making->units_n; u++) {
		const struct pawl_pipe_unit *unit = &making->units[u];

		time_s += unit->forward_s + unit->backward_s;
		bytes += (double)unit->param_bytes + (double)unit->saved_bytes;
	}
	ASSERT(time_s > 0);
	making->per_second = (1 - weight) / time_s;
	making->per_byte = bytes > 0 ? weight / bytes : 0;
}

/* Returns the cost, for each of two stages, of sending bytes forward and their gradient back. */
static double transfer_cost(const struct making *making, uint64_t bytes)
{
	const struct pawl_pipe_link *link = &making->setting->link;
	bool free_of_cost = !link->busy || link->bytes_per_s <= 0;

	return free_of_cost ? 0 : 2 * (double)bytes / link->bytes_per_s * making->per_second;
}

/* Sets what a cut before a unit costs, or, where a visit makes sending needed anyway, adds that to
 * both ends. where: position at which the unit runs. */
static void add_cut(struct making *making, const struct pawl_pipe_unit *unit, uint32_t where,
	bool visits)
{
	const struct pawl_pipe_link *link = &making->setting->link;
	struct pipe_chain *chain = making->chain;
	double cost = transfer_cost(making, unit->cut_bytes);

	if (!visits && !making->before_visits) {
		chain->cut[where] = cost;
		chain->cut_bytes[where] = unit->cut_bytes;
		if (!link->busy && link->bytes_per_s > 0 && making->setting->memory_weight <= 0) {
			chain->link[where] = (double)unit->cut_bytes / link->bytes_per_s;
		}
	} else if (where != making->before) {
		chain->cost[where + 1] += cost;
		chain->cost[making->before + 1] += cost;
	}
}

/* Adds the stage that a unit is wanted on to its position's, which it may visit. */
static int want(const struct making *making, const struct pawl_pipe_unit *unit, uint32_t where,
	struct pawl_err *err)
{
	uint32_t *wanted = &making->chain->wanted[where];

	if (unit->stage == PAWL_PIPE_ANY_STAGE || unit->stage == *wanted) {
		return 0;
	}
	if (*wanted != PAWL_PIPE_ANY_STAGE) {
		return pawl_err_set(err, PAWL_EINVAL,
			"unit %s is wanted on stage %u, but it visits %s, which it is tied to, on "
			"stage %u: replicate them instead",
			unit->name, unit->stage, pipe_chain_name(making->chain, where), *wanted);
	}
	*wanted = unit->stage;
	return 0;
}

/* Adds a unit at the chain's end, or to the unit that it visits. */
static int add_unit(struct making *making, uint32_t u, struct pawl_err *err)
{
	const struct pawl_pipe_unit *unit = &making->units[u];
	struct pipe_chain *chain = making->chain;
	uint32_t *set = &making->set[unit->tied];
	bool seen = unit->tied > 0 && *set != NOWHERE;
	bool visits = seen && making->cutting->visits;
	uint32_t where = visits ? *set : chain->n;
	uint64_t params = unit->param_bytes - (visits ? unit->tied_bytes : 0);

	ASSERT(where <= chain->n && chain->n < making->units_n);
	if (seen && !visits) {
		chain->shared[chain->shared_n++] = (struct pipe_shared){*set, where,
			(uint64_t)((double)unit->tied_bytes * making->setting->state_factor)};
	}
	if (unit->tied > 0) {
		*set = where;
	}
	if (!visits) {
		chain->wanted[where] = PAWL_PIPE_ANY_STAGE;
		chain->unit[chain->n++] = u;
	}
	chain->cost[where + 1] += (unit->forward_s + unit->backward_s) * making->per_second +
		(double)(unit->param_bytes + unit->saved_bytes) * making->per_byte;
	chain->state[where + 1] += (uint64_t)ceil((double)params * making->setting->state_factor);
	chain->saved[where + 1] += unit->saved_bytes;
	if (u > 0) {
		add_cut(making, unit, where, visits);
	}
	making->before = where;
	making->before_visits = visits;
	return want(making, unit, where, err);
}

/* ---- where parts may begin ---- */

/* Sets how late a part may begin to have a unit, and one with parameters if any unit has. Returns
 * how many parts there can be at most. */
static uint32_t limit_begins(struct pipe_chain *chain)
{
	bool trains = chain->state[chain->n] > 0;
	uint32_t most = 0;

	for (uint32_t i = 1; i <= chain->n; i++) {
		bool counts = !trains || chain->state[i] > chain->state[i - 1];

		chain->begins[i] = counts ? i : chain->begins[i - 1];
		most += counts;
	}
	return most;
}

static int check_room(const struct pipe_chain *chain, uint32_t most, const char *what,
	struct pawl_err *err)
{
	if (most >= chain->parts_n) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"%u %s cannot fill %u chunks, of which each needs one: ask for at most %u, or list "
		"finer units",
		most, what, chain->parts_n, most);
}

/* ---- parts ---- */

static void fill_parts(const struct making *making)
{
	const struct pawl_pipe_setting *setting = making->setting;
	const struct pipe_cutting *cutting = making->cutting;
	struct pipe_chain *chain = making->chain;
	bool speeds = setting->speeds && setting->memory_weight <= 0;

	for (uint32_t k = 0; k < cutting->parts_n; k++) {
		uint32_t stage = cutting->stage[k];
		uint64_t cap = setting->caps_bytes && cutting->share > 0
			? setting->caps_bytes[stage]
			: PAWL_PIPE_NO_CAP;

		ASSERT(stage < setting->stages);
		chain->parts[k] = (struct pipe_part){.stage = stage,
			.speed = speeds ? setting->speeds[stage] : 1,
			.cap_bytes = cap == PAWL_PIPE_NO_CAP ? cap : cap / cutting->share,
			.live = cutting->live[k],
			.end_least = k + 1,
			.end_most = chain->n - (cutting->parts_n - 1 - k)};
	}
	chain->parts[cutting->parts_n - 1].end_least = chain->n;
}

/* Says why pins leave part k no room. pinned: position of a pin that makes it so. */
static int refuse_pins(const struct pipe_chain *chain, uint32_t pinned, uint32_t before,
	struct pawl_err *err)
{
	if (before == NOWHERE) {
		return pawl_err_set(err, PAWL_EINVAL,
			"unit %s is wanted on stage %u, but then some stages before or behind it "
			"get no unit",
			pipe_chain_name(chain, pinned), chain->wanted[pinned]);
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"unit %s is wanted on stage %u, and %s, behind it, on stage %u: units of a chain "
		"cannot go back, and each stage between needs a unit",
		pipe_chain_name(chain, before), chain->wanted[before],
		pipe_chain_name(chain, pinned), chain->wanted[pinned]);
}

/* Limits where parts can end by the stages that units are wanted on. With several chunks a stage,
 * a unit may be in each of them: the search looks at every part (pipe_may_have). */
static int pin(struct pipe_chain *chain, struct pawl_err *err)
{
	bool several = chain->parts[chain->parts_n - 1].stage != chain->parts_n - 1;
	uint32_t before = NOWHERE; /* the pinned position before */

	for (uint32_t at = 0; at < chain->n; at++) {
		uint32_t k = chain->wanted[at];
		uint32_t from = before == NOWHERE ? 0 : chain->wanted[before];

		if (k == PAWL_PIPE_ANY_STAGE) {
			continue;
		}
		if (several) {
			chain->even = false;
			continue;
		}
		if (k < from || at < k || chain->n - at < chain->parts_n - k ||
			(before != NOWHERE && at - before < k - from)) {
			return refuse_pins(chain, at, before, err);
		}
		if (k > 0 && chain->parts[k - 1].end_most > at) {
			chain->parts[k - 1].end_most = at;
		}
		if (chain->parts[k].end_least < at + 1) {
			chain->parts[k].end_least = at + 1;
		}
		before = at;
	}
	return 0;
}

/* ---- all ---- */

/* Makes sums of what each position has, and finds the largest of the figures. */
static void sum_up(struct pipe_chain *chain)
{
	chain->even = true;
	for (uint32_t i = 1; i <= chain->n; i++) {
		chain->cost_max = fmax(chain->cost_max, chain->cost[i]);
		chain->even = chain->even && chain->cut[i] <= 0;
		if (chain->cut_bytes[i] > chain->cut_bytes_max) {
			chain->cut_bytes_max = chain->cut_bytes[i];
		}
		chain->cost[i] += chain->cost[i - 1];
		chain->state[i] += chain->state[i - 1];
		chain->saved[i] += chain->saved[i - 1];
	}
}

static int make(struct making *making, struct pawl_err *err)
{
	struct pipe_chain *chain = making->chain;
	uint32_t most;
	int rv = 0;

	weigh(making);
	for (uint32_t i = 0; i <= PAWL_PIPE_TIED_MAX; i++) {
		making->set[i] = NOWHERE;
	}
	for (uint32_t u = 0; u < making->units_n && rv == 0; u++) {
		rv = add_unit(making, u, err);
	}
	rv = rv ? rv : check_room(chain, chain->n, "units", err);
	if (rv != 0) {
		return rv;
	}
	sum_up(chain);
	most = limit_begins(chain);
	chain->even = chain->even && most == chain->n;
	rv = check_room(chain, most, "units with parameters", err);
	if (rv != 0) {
		return rv;
	}
	fill_parts(making);
	return pin(chain, err);
}

int pipe_chain_init(struct pipe_chain *chain, const struct pawl_pipe_unit *units, uint32_t units_n,
	const struct pawl_pipe_setting *setting, const struct pipe_cutting *cutting,
	struct pawl_err *err)
{
	struct making making = {.chain = chain,
		.units = units,
		.units_n = units_n,
		.setting = setting,
		.cutting = cutting};
	int rv;

	ASSERT(cutting->parts_n >= 1 && cutting->parts_n <= PAWL_PIPE_CHUNKS_MAX);
	*chain = (struct pipe_chain){.units = units, .parts_n = cutting->parts_n};
	rv = allocate(chain, units_n, cutting->parts_n, err);
	rv = rv ? rv : make(&making, err);
	if (rv != 0) {
		pipe_chain_deinit(chain);
	}
	return rv;
}
