/* The least value of a cut, by halving: see partition.h for the method. Pure. */
#include "pipe/partition.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "pipe/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GALLOP      1e-3 /* first step above the bound, relative */
#define HALVES_MOST 200  /* probes of one search: more than a double has bits */

/* ---- one plan ---- */

/* Returns the last begin of part k, which ends at end; the probe of value has found that there is
 * one. */
static uint32_t find_begin(const struct pipe_search *search, uint32_t k, uint32_t end, double value)
{
	const struct pipe_chain *chain = search->chain;
	uint32_t begin = chain->begins[end];

	ASSERT(k > 0);
	while (begin-- > search->least[k - 1] && pipe_may_have(chain, k, begin)) {
		uint64_t cap = chain->parts[k].cap_bytes;

		if (pipe_search_ends(search, k - 1, begin) &&
			pipe_part_cost(chain, k, begin, end) <= value &&
			(cap == PAWL_PIPE_NO_CAP || pipe_part_bytes(chain, k, begin, end) <= cap)) {
			break;
		}
	}
	ASSERT(begin < end && begin >= search->least[k - 1]);
	return begin;
}

/* Sets ends to a plan that the probe of value has found. Returns the plan's own value. */
static double find_ends(const struct pipe_search *search, double value, uint32_t *ends)
{
	const struct pipe_chain *chain = search->chain;
	uint32_t end = chain->n;
	double largest = 0;

	for (uint32_t k = chain->parts_n; k-- > 0;) {
		uint32_t begin = k > 0 ? find_begin(search, k, end, value) : 0;

		ends[k] = end;
		largest =
			fmax(largest, fmax(chain->link[end], pipe_part_cost(chain, k, begin, end)));
		end = begin;
	}
	ASSERT(largest <= value);
	return largest;
}

/* ---- the search ---- */

/* Returns a value that no plan can be below. */
static double first_bound(const struct pipe_search *search)
{
	const struct pipe_chain *chain = search->chain;
	double fastest = 0;

	for (uint32_t k = 0; k < chain->parts_n; k++) {
		fastest = fmax(fastest, chain->parts[k].speed);
	}
	return fmax(chain->cost[chain->n] / search->speeds[chain->parts_n],
		chain->cost_max / fastest);
}

/* Finds a first plan, at values that grow from the bound on. Returns false if there is none. */
static bool gallop(struct pipe_search *search, struct pipe_optimum *optimum, uint32_t *ends)
{
	double start = optimum->bound > 0 ? optimum->bound : 1e-9;
	double value = optimum->bound;
	double step = GALLOP;

	while (!pipe_search_probe(search, value)) {
		if (isinf(search->next)) {
			return false;
		}
		optimum->bound = search->next;
		value = fmax(start * (1 + step), search->next);
		step *= 2;
	}
	optimum->value = find_ends(search, value, ends);
	return true;
}

static void halve(struct pipe_search *search, struct pipe_optimum *optimum, uint32_t *ends)
{
	for (int i = 0;
		i < HALVES_MOST && optimum->value - optimum->bound > PIPE_ROUNDING * optimum->value;
		i++) {
		double value = optimum->bound + (optimum->value - optimum->bound) / 2;

		if (pipe_search_probe(search, value)) {
			optimum->value = find_ends(search, value, ends);
		} else {
			optimum->bound = search->next;
		}
	}
	optimum->bound = fmin(optimum->bound, optimum->value);
	if (pipe_search_probe(search,
		    optimum->value)) { /* but for rounding, it finds the plan again */
		pipe_search_prefer(search, optimum->value, ends);
	}
}

int pipe_partition(const struct pipe_chain *chain, uint32_t *ends, struct pipe_optimum *optimum,
	struct pawl_err *err)
{
	struct pipe_search search;
	int rv = pipe_search_init(&search, chain, err);

	if (rv != 0) {
		return rv;
	}
	*optimum = (struct pipe_optimum){.bound = first_bound(&search)};
	if (gallop(&search, optimum, ends)) {
		halve(&search, optimum, ends);
		ASSERT(ends[chain->parts_n - 1] == chain->n);
	} else {
		rv = pipe_search_refuse(&search, err);
	}
	pipe_search_deinit(&search);
	return rv;
}
