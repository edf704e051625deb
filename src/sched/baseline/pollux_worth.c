/* The worth of replicas to a job: a table of goodputs, each computed at its first use. Pure. */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "sched/baseline/pollux_impl.h"

#include <stdlib.h>

#define UNKNOWN (-1.0)

static bool perf_same(const struct pawl_perf *a, const struct pawl_perf *b)
{
	return a->alpha_c == b->alpha_c && a->beta_c == b->beta_c && a->alpha_r == b->alpha_r &&
		a->beta_r == b->beta_r && a->alpha_n == b->alpha_n && a->beta_n == b->beta_n &&
		a->delta_n == b->delta_n && a->gamma == b->gamma;
}

/* Whether both hints give the same goodputs; progress has no part in them. */
static bool hints_same(const struct sched_hints *a, const struct sched_hints *b)
{
	if (a->fitted != b->fitted) {
		return false;
	}
	return !a->fitted ||
		(perf_same(&a->perf, &b->perf) && a->noise.sqr == b->noise.sqr &&
			a->noise.var == b->noise.var && a->bounds.init == b->bounds.init &&
			a->bounds.max == b->bounds.max &&
			a->bounds.atomic_min == b->bounds.atomic_min &&
			a->bounds.atomic_max == b->bounds.atomic_max &&
			a->bounds.accumulate == b->bounds.accumulate);
}

int pollux_worth_set(struct pollux_worth *worth, const struct sched_hints *hints,
	uint32_t replicas_max, struct pawl_err *err)
{
	static const struct sched_hints none;
	size_t n = 2 * ((size_t)replicas_max + 1);

	hints = hints ? hints : &none;
	if (worth->goodputs && worth->replicas_max == replicas_max &&
		hints_same(&worth->hints, hints)) {
		return 0;
	}
	pollux_worth_deinit(worth);
	worth->goodputs = FAULT_MEM("sched.pollux", malloc(n * sizeof(*worth->goodputs)));
	if (!worth->goodputs) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for goodputs of %u replicas",
			replicas_max);
	}
	worth->hints = *hints;
	worth->replicas_max = replicas_max;
	worth->fair = 0;
	for (size_t i = 0; i < n; i++) {
		worth->goodputs[i] = UNKNOWN;
	}
	return 0;
}

void pollux_worth_deinit(struct pollux_worth *worth)
{
	free(worth->goodputs);
	worth->goodputs = NULL;
}

/* Returns the best goodput by Qiao's throughput model, in which the number of replicas on the
 * fullest node does not count. */
static double choose(const struct pollux_worth *worth, uint32_t nodes, uint32_t replicas)
{
	const struct sched_hints *hints = &worth->hints;
	struct pawl_placement place = {.nodes = nodes, .replicas = replicas, .max_per_node = 1};
	struct pawl_batch batch;
	double goodput;

	if (!hints->fitted) {
		return replicas;
	}
	return pawl_batch_choose(&hints->perf, &hints->noise, &hints->bounds, &place, &batch,
		       &goodput)
		? goodput
		: 0;
}

double pollux_worth_goodput(struct pollux_worth *worth, bool several, uint32_t replicas)
{
	double *goodput = &worth->goodputs[2 * replicas + several];

	ASSERT(replicas > 0 && replicas <= worth->replicas_max);
	if (*goodput < 0) {
		*goodput = choose(worth, several ? 2 : 1, replicas);
	}
	return *goodput;
}

double pollux_worth_fair(struct pollux_worth *worth, uint32_t replicas)
{
	const struct pawl_batch_bounds *bounds = &worth->hints.bounds;

	if (worth->hints.fitted && bounds->atomic_min > 0 &&
		replicas > bounds->max / bounds->atomic_min) {
		replicas =
			bounds->max / bounds->atomic_min; /* for more replicas there is no batch */
	}
	replicas = replicas > 0 ? replicas : 1;
	if (worth->fair != replicas) {
		worth->fair_goodput = choose(worth, 1, replicas);
		worth->fair = replicas;
	}
	return worth->fair_goodput;
}
