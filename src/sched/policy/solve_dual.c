/* Finds the solver's prices: those with the highest bound. Pure. */
#include "base/assert.h"
#include "sched/policy/solve_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define CUTS_MAX        64    /* evaluations along a line, at most */
#define LINES_MAX       10    /* lines for each type, in all prices together, at most */
#define LINE_GAIN_MIN   1e-9  /* share of the bound that a line should add */
#define SPACE_SHRINK    0.5   /* factor of a space's size, applied where slopes changed */
#define BOUND_TOLERANCE 1e-12 /* share of the bound that is not worth another evaluation */

/*
 * Finds what each job takes at trial's prices (the first of equal choices), and the bound. Sums are
 * of doubles: what rounding may have added is subtracted (n terms, each sum exact to half an
 * epsilon).
 */
static void evaluate(struct solve *solve)
{
	const struct sched_problem *problem = solve->problem;
	struct solve_dual *dual = &solve->trial;
	double sum = 0;
	double size = 0;

	memset(dual->used, 0, sizeof(dual->used));
	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		uint32_t least = problem->first[job];
		double value = problem->choices[least].cost;

		for (uint32_t c = least + 1; c < problem->first[job + 1]; c++) {
			const struct sched_choice *choice = &problem->choices[c];
			double one = choice->cost + dual->price[choice->type] * choice->replicas;

			least = one < value ? c : least;
			value = one < value ? one : value;
		}
		dual->taken[job] = least;
		dual->used[problem->choices[least].type] += problem->choices[least].replicas;
		sum += value;
		size += fabs(value);
	}
	for (uint32_t t = 0; t < solve->types; t++) {
		sum -= dual->price[t] * problem->capacity[t];
		size += dual->price[t] * problem->capacity[t];
	}
	dual->bound = sum - size * DBL_EPSILON * (problem->jobs_n + solve->types);
}

/* Returns a price at which no job takes any slot. */
static double find_highest(const struct solve *solve)
{
	const struct sched_problem *problem = solve->problem;
	double highest = 0;

	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		double waits = problem->choices[problem->first[job]].cost;

		for (uint32_t c = problem->first[job] + 1; c < problem->first[job + 1]; c++) {
			double worth = waits - problem->choices[c].cost;

			if (worth > highest * problem->choices[c].replicas) {
				highest = worth / problem->choices[c].replicas;
			}
		}
	}
	return highest;
}

/* Computes the bound's slope by each price: slots that are taken less the type's slots. 0 where a
 * price would fall below 0. */
static void slope_of(const struct solve *solve, const struct solve_dual *dual, double *slope)
{
	for (uint32_t t = 0; t < solve->types; t++) {
		slope[t] = (double)dual->used[t] - solve->problem->capacity[t];
		slope[t] = dual->price[t] <= 0 && slope[t] < 0 ? 0 : slope[t];
	}
}

/* A point on a line through the best prices, with the bound's value and slope there. Along the line
 * the bound is concave. */
struct cut {
	double at; /* steps along the line */
	double bound;
	double slope;
	double slopes[SCHED_TYPES_MAX]; /* slope by each price */
};

static struct cut cut_of(const struct solve *solve, const struct solve_dual *dual,
	const double *direction, double at)
{
	struct cut cut = {.at = at, .bound = dual->bound};

	slope_of(solve, dual, cut.slopes);
	for (uint32_t t = 0; t < solve->types; t++) {
		cut.slope += cut.slopes[t] * direction[t];
	}
	return cut;
}

/* Evaluates the point at so many steps along the line from base, and stores its prices in best if
 * their bound is the highest so far. */
static struct cut cut_at(struct solve *solve, const double *base, const double *direction,
	double at)
{
	struct cut cut;

	for (uint32_t t = 0; t < solve->types; t++) {
		double price = base[t] + at * direction[t];

		solve->trial.price[t] = price > 0 ? price : 0;
	}
	evaluate(solve);
	cut = cut_of(solve, &solve->trial, direction, at);
	if (solve->trial.bound > solve->best.bound) {
		struct solve_dual swap = solve->best;

		solve->best = solve->trial;
		solve->trial = swap;
	}
	return cut;
}

/* Returns the most steps along a line before the first of the falling prices is below 0. */
static double find_limit(const struct solve *solve, const double *base, const double *direction)
{
	double limit = INFINITY;

	for (uint32_t t = 0; t < solve->types; t++) {
		if (direction[t] < 0 && base[t] < limit * -direction[t]) {
			limit = base[t] / -direction[t];
		}
	}
	ASSERT(limit >= 0); /* no price is below 0 */
	return limit;
}

/*
 * Finds the best prices along a line on which the bound rises at the best prices so far. first:
 * steps to the first point. The tangents before and behind the maximum meet above it. The point
 * where they meet is evaluated next, until the bound there is as high as the tangents. slopes:
 * those behind the maximum.
 */
static void search_line(struct solve *solve, const double *direction, double first, double *slopes)
{
	double base[SCHED_TYPES_MAX];
	struct cut low = cut_of(solve, &solve->best, direction, 0);
	struct cut high = low;
	double limit;
	int cuts = 0;

	memcpy(base, solve->best.price, sizeof(base));
	limit = find_limit(solve, base, direction);
	for (double at = first; high.slope > 0 && high.at < limit && cuts < CUTS_MAX; at *= 4) {
		low = high;
		high = cut_at(solve, base, direction, at < limit ? at : limit);
		cuts++;
	}
	while (low.slope > 0 && high.slope < 0 && cuts < CUTS_MAX) {
		double rise = high.bound - low.bound - high.slope * (high.at - low.at);
		double at = low.at + rise / (low.slope - high.slope);
		double meet = low.bound + low.slope * (at - low.at);
		struct cut next;

		if (!(at > low.at && at < high.at)) {
			break;
		}
		next = cut_at(solve, base, direction, at);
		cuts++;
		*(next.slope > 0 ? &low : &high) = next;
		if (meet - next.bound <= BOUND_TOLERANCE * fabs(meet)) {
			break;
		}
	}
	memcpy(slopes, high.slopes, sizeof(high.slopes));
}

/* ---- all prices together ---- */

/* The space in which lines are searched: a matrix that is stretched where the bound has a ridge. */
struct space {
	double axis[SCHED_TYPES_MAX][SCHED_TYPES_MAX];
};

static double multiply(const struct solve *solve, const struct space *space, bool transposed,
	const double *in, double *out)
{
	double square = 0;

	for (uint32_t i = 0; i < solve->types; i++) {
		out[i] = 0;
		for (uint32_t j = 0; j < solve->types; j++) {
			out[i] += (transposed ? space->axis[j][i] : space->axis[i][j]) * in[j];
		}
		square += out[i] * out[i];
	}
	return sqrt(square);
}

/* Shrinks the space by SPACE_SHRINK in the direction in which the slopes before and behind the
 * line's maximum differ. */
static void stretch(const struct solve *solve, struct space *space, const double *before,
	const double *behind)
{
	double change[SCHED_TYPES_MAX];
	double along[SCHED_TYPES_MAX];
	double moved[SCHED_TYPES_MAX];
	double size;

	for (uint32_t t = 0; t < solve->types; t++) {
		change[t] = behind[t] - before[t];
	}
	size = multiply(solve, space, true, change, along);
	if (!(size > 0)) {
		return;
	}
	multiply(solve, space, false, along, moved);
	for (uint32_t i = 0; i < solve->types; i++) {
		for (uint32_t j = 0; j < solve->types; j++) {
			space->axis[i][j] +=
				(SPACE_SHRINK - 1) * moved[i] * along[j] / (size * size);
		}
	}
}

/*
 * Shor's r-algorithm (N. Z. Shor, Minimization Methods for Non-Differentiable Functions, 1985): the
 * steepest line in a space that shrinks across ridges, which are where jobs change from one type
 * to another.
 */
static void search_all(struct solve *solve)
{
	struct space space = {0};
	double before[SCHED_TYPES_MAX];
	uint32_t idle = 0; /* number of consecutive lines that gained nothing */

	for (uint32_t t = 0; t < solve->types; t++) {
		space.axis[t][t] = 1;
	}
	slope_of(solve, &solve->best, before);
	for (uint32_t i = 0; i < LINES_MAX * solve->types && idle <= solve->types; i++) {
		double behind[SCHED_TYPES_MAX];
		double along[SCHED_TYPES_MAX];
		double line[SCHED_TYPES_MAX] = {0};
		double was = solve->best.bound;
		double size = multiply(solve, &space, true, before, along);

		if (!(size > 0)) {
			return;
		}
		multiply(solve, &space, false, along, line);
		search_line(solve, line, 1e-3 / size, behind);
		stretch(solve, &space, before, behind);
		memcpy(before, behind, sizeof(before));
		idle = solve->best.bound - was > LINE_GAIN_MIN * fabs(was) ? 0 : idle + 1;
	}
}

void solve_prices(struct solve *solve)
{
	double one[SCHED_TYPES_MAX];
	double slopes[SCHED_TYPES_MAX];

	ASSERT(solve->types > 0 && solve->types <= SCHED_TYPES_MAX);
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		one[t] = 1;
	}
	memset(solve->trial.price, 0, sizeof(solve->trial.price));
	memset(solve->best.price, 0, sizeof(solve->best.price));
	solve->best.bound = -INFINITY;
	cut_at(solve, solve->best.price, one, 0);
	search_line(solve, one, find_highest(solve), slopes);
	if (solve->types > 1) {
		search_all(solve);
	}
}
