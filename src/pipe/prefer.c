/*
 * Prefers one of the plans of a value: the one whose cuts send least and are nearest to even parts.
 * Both are sums over the cuts: what a cut sends, relative to the largest, and how far the cost
 * before it is from that of even parts, relative to the value. So the best plan is found part by
 * part: the best cut behind part k follows from the best cuts behind part k - 1. Pure.
 */
#include "base/assert.h"
#include "base/fault.h"
#include "pipe/search.h"

#include <math.h>
#include <stdlib.h>

#define CELLS_MOST (1u << 22) /* parts x positions; with more, the first plan is good enough */
#define STEPS_MOST (1u << 24) /* begins that are looked at; the same holds */

struct preference {
	const struct pipe_search *search;
	double value;
	uint32_t *from; /* parts x (n + 1): best begin of a part with that end */
	double *bad;    /* n + 1: badness of the best cuts up to an end of part k */
	double *before; /* n + 1: the same for part k - 1 */
	uint64_t steps; /* begins that have been looked at */
};

/* Returns how bad a cut behind part k is. */
static double judge(const struct preference *preference, uint32_t k, uint32_t position)
{
	const struct pipe_search *search = preference->search;
	const struct pipe_chain *chain = search->chain;
	double even =
		chain->cost[chain->n] * search->speeds[k + 1] / search->speeds[chain->parts_n];
	double uneven =
		preference->value > 0 ? fabs(chain->cost[position] - even) / preference->value : 0;

	return uneven +
		(chain->cut_bytes_max > 0
				? (double)chain->cut_bytes[position] / (double)chain->cut_bytes_max
				: 0);
}

/* Finds the best begin of part k with a given end; the probe has found that there is one. */
static void prefer_begin(struct preference *preference, uint32_t k, uint32_t end)
{
	const struct pipe_search *search = preference->search;
	const struct pipe_chain *chain = search->chain;
	const struct pipe_part *part = &chain->parts[k];
	uint32_t first = k > 0 ? search->least[k - 1] : 0;
	double least = PIPE_INFINITE;

	for (uint32_t begin = chain->begins[end]; begin-- > first;) {
		double bare =
			(chain->cost[end] - chain->cost[begin]) / part->speed + chain->cut[end];

		preference->steps++;
		if (bare > preference->value || !pipe_may_have(chain, k, begin) ||
			(part->cap_bytes != PAWL_PIPE_NO_CAP &&
				pipe_part_bytes(chain, k, begin, end) > part->cap_bytes)) {
			break;
		}
		if ((k == 0 ? begin == 0 : pipe_search_ends(search, k - 1, begin)) &&
			pipe_part_cost(chain, k, begin, end) <= preference->value &&
			preference->before[begin] < least) {
			least = preference->before[begin];
			preference->from[(size_t)k * (chain->n + 1) + end] = begin;
		}
	}
	preference->bad[end] = least + judge(preference, k, end);
}

/* Finds the best begins of all parts. Returns false if that is too much work. */
static bool prefer_begins(struct preference *preference)
{
	const struct pipe_search *search = preference->search;
	const struct pipe_chain *chain = search->chain;

	preference->before[0] = 0;
	for (uint32_t k = 0; k < chain->parts_n; k++) {
		double *swap = preference->before;

		for (uint32_t end = search->least[k]; end <= search->most[k]; end++) {
			if (pipe_search_ends(search, k, end)) {
				prefer_begin(preference, k, end);
			}
			if (preference->steps > STEPS_MOST) {
				return false;
			}
		}
		preference->before = preference->bad;
		preference->bad = swap;
	}
	return true;
}

void pipe_search_prefer(const struct pipe_search *search, double value, uint32_t *ends)
{
	const struct pipe_chain *chain = search->chain;
	size_t n = (size_t)chain->n + 1;
	struct preference preference = {.search = search, .value = value};

	if (chain->parts_n * n > CELLS_MOST) {
		return;
	}
	preference.from = FAULT_MEM("pipe.prefer", malloc(chain->parts_n * n * sizeof(uint32_t)));
	preference.bad = FAULT_MEM("pipe.prefer", malloc(n * sizeof(double)));
	preference.before = FAULT_MEM("pipe.prefer", malloc(n * sizeof(double)));
	if (preference.from && preference.bad && preference.before && prefer_begins(&preference)) {
		uint32_t end = chain->n;

		for (uint32_t k = chain->parts_n; k-- > 0;) {
			ends[k] = end;
			end = preference.from[k * n + end];
			ASSERT(end < ends[k]);
		}
	}
	free(preference.from);
	free(preference.bad);
	free(preference.before);
}
