/* How often to save: see advice.h. Pure. */
#include "agent/ledger/advice.h"

#include "base/assert.h"
#include "pawl/adapt.h"

#define NS            1e9   /* nanoseconds in a second */
#define COST_LEAST_S  1e-6  /* least cost of a save, seconds */
#define LINE_POINTS   4.0   /* points that a line needs, at least */
#define LINE_VARIANCE 0.01  /* variance of x that a line needs: below, all points coincide */
#define LINE_KEEP     0.97  /* weight that older points keep when one is added: some 30 count */
#define MEAN_SHARE    0.125 /* weight of the newest value in a mean: some 8 count */

static const struct pawl_rate_prior prior = {ADVICE_PRIOR_FAILURES, ADVICE_PRIOR_S};

void advice_init(struct advice *advice, const struct advice_bounds *bounds, uint64_t failures,
	uint64_t losses, double run_s)
{
	*advice = (struct advice){.bounds = *bounds,
		.failures = failures,
		.losses = losses,
		.run_s = run_s};
}

void advice_run(struct advice *advice, bool running, int64_t now_ns)
{
	if (advice->running) {
		advice->run_s += (double)(now_ns - advice->since_ns) / NS;
	}
	advice->running = running;
	advice->since_ns = now_ns;
}

void advice_failed(struct advice *advice)
{
	advice->failures++;
}

/* Returns a mean in which older values fade; mean 0: newest is the first value. */
static double update_mean(double mean, double newest)
{
	return mean > 0 ? mean + (newest - mean) * MEAN_SHARE : newest;
}

static void add_point(struct advice_line *line, double x, double y)
{
	line->n = line->n * LINE_KEEP + 1;
	line->x = line->x * LINE_KEEP + x;
	line->y = line->y * LINE_KEEP + y;
	line->xx = line->xx * LINE_KEEP + x * x;
	line->xy = line->xy * LINE_KEEP + x * y;
}

static double written_s(const struct advice *advice, int64_t now_ns)
{
	return advice->written_s +
		(advice->writing ? (double)(now_ns - advice->writing_ns) / NS : 0);
}

void advice_begin(struct advice *advice, uint64_t step, int64_t now_ns)
{
	double written = written_s(advice, now_ns);
	double took_s = (double)(now_ns - advice->begun_ns) / NS - advice->begun_stall_s;
	double share = took_s > 0 ? (written - advice->begun_written_s) / took_s : 0;

	if (advice->begun && step > advice->begun_step && took_s > 0) {
		add_point(&advice->line, share < 1 ? share : 1,
			(double)(step - advice->begun_step) / took_s);
	}
	advice->begun = true;
	advice->begun_ns = now_ns;
	advice->begun_step = step;
	advice->begun_written_s = written;
	advice->begun_stall_s = 0;
}

void advice_saved(struct advice *advice, double stall_s)
{
	advice->cost_s = update_mean(advice->cost_s, stall_s);
	advice->begun_stall_s = stall_s;
}

void advice_writing(struct advice *advice, int64_t now_ns)
{
	ASSERT(!advice->writing); /* one save at a time */
	advice->writing = true;
	advice->writing_ns = now_ns;
}

void advice_written(struct advice *advice, bool ok, int64_t now_ns)
{
	double took_s = (double)(now_ns - advice->writing_ns) / NS;

	ASSERT(advice->writing);
	advice->writing = false;
	advice->written_s += took_s;
	if (ok) {
		advice->persist_s = update_mean(advice->persist_s, took_s);
	}
}

double advice_slowdown(const struct advice *advice)
{
	const struct advice_line *line = &advice->line;
	double variance;
	double slope;
	double base;

	if (line->n < LINE_POINTS) {
		return ADVICE_SLOWDOWN;
	}
	variance = (line->xx - line->x * line->x / line->n) / line->n;
	if (variance < LINE_VARIANCE) {
		return ADVICE_SLOWDOWN;
	}
	slope = (line->xy - line->x * line->y / line->n) / line->n / variance;
	base = (line->y - slope * line->x) / line->n;
	return slope >= 0 ? 0 : -slope < base ? -slope / base : 1;
}

static double clamp(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

/* Returns the best interval, in seconds, for this cost and this many failures. */
static double best_s(const struct advice *advice, double cost_s, uint64_t failures)
{
	return pawl_interval_daly(cost_s > COST_LEAST_S ? cost_s : COST_LEAST_S,
		1 / pawl_rate_mean(&prior, failures, advice->run_s));
}

double advice_save_s(const struct advice *advice)
{
	const struct advice_bounds *in = &advice->bounds;
	double cost_s = advice->cost_s > 0 ? advice->cost_s : ADVICE_COST_S;
	double least_s = clamp(cost_s * ADVICE_SAVE_RATIO_MIN, in->save_min_s, in->save_max_s);

	return clamp(best_s(advice, cost_s, advice->failures), least_s, in->save_max_s);
}

double advice_persist_s(const struct advice *advice)
{
	const struct advice_bounds *in = &advice->bounds;
	double cost_s =
		advice->persist_s > 0 ? advice->persist_s * advice_slowdown(advice) : ADVICE_COST_S;
	double least_s = clamp(advice->persist_s * ADVICE_PERSIST_RATIO_MIN, in->persist_min_s,
		in->persist_max_s);

	return clamp(best_s(advice, cost_s, advice->losses), least_s, in->persist_max_s);
}
