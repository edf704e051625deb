/* Step times and goodput: pawl/adapt.h has the formulas and their sources. Pure. */
#include "adapt/perf.h"
#include "base/assert.h"

#include <math.h>

#define ROUNDING 1e-8 /* tolerance for a quotient that should be whole */

uint64_t pawl_batch_total(const struct pawl_placement *place, const struct pawl_batch *batch)
{
	return (uint64_t)place->replicas * batch->atomic * (batch->accum + 1u);
}

/* ---- time ---- */

static double grad_s(const struct pawl_perf *perf, uint32_t atomic)
{
	return perf->alpha_c + perf->beta_c * atomic;
}

void adapt_weigh_reduce(const struct pawl_placement *place, double *times)
{
	bool one = place->nodes < 2;
	double more = place->replicas - 2.0;
	uint32_t most = place->max_per_node;

	for (int i = ALPHA_R; i <= DELTA_N; i++) {
		times[i] = 0;
	}
	if (place->replicas < 2) {
		return;
	}
	if (most == 0) {
		most = (place->replicas + place->nodes - 1) / place->nodes;
	}
	times[one ? ALPHA_R : ALPHA_N] = 1;
	times[one ? BETA_R : BETA_N] = more;
	times[DELTA_N] = one ? 0 : most - 1.0;
}

static double reduce_s(const struct pawl_perf *perf, const struct pawl_placement *place)
{
	double times[PARAMETERS];

	adapt_weigh_reduce(place, times);
	return perf->alpha_r * times[ALPHA_R] + perf->beta_r * times[BETA_R] +
		perf->alpha_n * times[ALPHA_N] + perf->beta_n * times[BETA_N] +
		perf->delta_n * times[DELTA_N];
}

/* Returns (a^gamma + b^gamma)^(1 / gamma) without overflow. */
static double overlap(double a, double b, double gamma)
{
	double large = a > b ? a : b;
	double small = a > b ? b : a;

	return small <= 0 ? large : large * pow(1 + pow(small / large, gamma), 1 / gamma);
}

double pawl_step_s(const struct pawl_perf *perf, const struct pawl_placement *place,
	const struct pawl_batch *batch)
{
	double grad = grad_s(perf, batch->atomic);

	return batch->accum * grad + overlap(grad, reduce_s(perf, place), perf->gamma);
}

/* ---- worth ---- */

double pawl_gain(const struct pawl_noise *noise, double scale)
{
	double less = noise->var / scale + noise->sqr;

	return less > 0 ? (noise->var + noise->sqr) / less : 1;
}

double pawl_lr_factor(const struct pawl_lr_rule *rule, const struct pawl_noise *noise, double scale,
	double progress)
{
	double factor = pow(rule->by_gain ? pawl_gain(noise, scale) : scale, rule->power);
	double warmup = rule->warmup * scale;

	return warmup > progress ? factor * progress / warmup : factor;
}

double pawl_goodput(const struct pawl_perf *perf, const struct pawl_noise *noise, uint32_t init,
	const struct pawl_placement *place, const struct pawl_batch *batch)
{
	double scale = (double)pawl_batch_total(place, batch) / init;

	return init * pawl_gain(noise, scale) / pawl_step_s(perf, place, batch);
}

/* ---- choice ---- */

/* Rounds up to a whole number, at least 1. */
static uint32_t round_up(double number)
{
	double up = ceil(number - ROUNDING);

	return up > 1 ? (uint32_t)up : 1;
}

/* Divides about total samples among all replicas. Returns false if the bounds do not allow it. */
static bool divide(const struct pawl_batch_bounds *bounds, const struct pawl_placement *place,
	double total, struct pawl_batch *batch)
{
	double each = total / place->replicas;
	uint32_t parts = bounds->accumulate ? round_up(each / bounds->atomic_max) : 1;
	uint64_t room;

	if (place->replicas == 1 && total > bounds->init) {
		parts = parts < 2 ? 2 : parts;
		if (!bounds->accumulate) {
			return false;
		}
	}
	batch->accum = parts - 1;
	batch->atomic = round_up(each / parts);
	room = bounds->max / ((uint64_t)place->replicas * parts);
	batch->atomic = batch->atomic < room ? batch->atomic : (uint32_t)room;
	batch->atomic = batch->atomic > bounds->atomic_min ? batch->atomic : bounds->atomic_min;
	return batch->atomic <= bounds->atomic_max && batch->atomic <= room;
}

bool pawl_batch_choose(const struct pawl_perf *perf, const struct pawl_noise *noise,
	const struct pawl_batch_bounds *bounds, const struct pawl_placement *place,
	struct pawl_batch *batch, double *goodput)
{
	double least = (double)place->replicas * bounds->atomic_min;
	double total = least > bounds->init ? least : bounds->init;
	double ratio = pow(bounds->max / total, 1.0 / (PAWL_BATCH_CANDIDATES - 1));
	bool found = false;

	ASSERT(bounds->init > 0 && bounds->init <= bounds->max && place->replicas > 0);
	for (int i = 0; i < PAWL_BATCH_CANDIDATES && total <= bounds->max * (1 + ROUNDING); i++) {
		struct pawl_batch one;
		double worth;

		if (divide(bounds, place, total, &one)) {
			worth = pawl_goodput(perf, noise, bounds->init, place, &one);
			if (!found || worth > *goodput) {
				*batch = one;
				*goodput = worth;
				found = true;
			}
		}
		total *= ratio;
	}
	return found;
}
