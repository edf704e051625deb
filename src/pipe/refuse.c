/*
 * Why a chain cannot be cut: names the unit, or the stages, that need more memory than there is,
 * and the least caps that would do. Pure.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/text.h"
#include "pipe/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ANY_VALUE   1e300  /* no plan has as much */
#define REMEDY_TEXT 96u    /* bytes of what would do, terminator included */
#define CAP_MOST    9e18   /* bytes of a cap, at most */
#define FACTOR_MOST 1e6    /* factor of the caps, at most */
#define FACTOR_UP   1.0005 /* the factor that is named may be larger by this factor */

/* Formats a size that would do: rounded up, where text_size rounds to the nearest. */
static const char *size_up(char *buf, uint64_t bytes)
{
	double unit = 1;

	while ((double)bytes / unit >= 1024) {
		unit *= 1024;
	}
	return text_size(buf, (uint64_t)ceil(ceil((double)bytes / unit * 10) / 10 * unit));
}

/* Returns a cap times a factor, without overflow. */
static uint64_t scale(uint64_t cap_bytes, double factor)
{
	double scaled = ceil((double)cap_bytes * factor);

	return scaled < CAP_MOST ? (uint64_t)scaled : (uint64_t)CAP_MOST;
}

/* ---- one unit ---- */

/* Returns by how many bytes a unit alone exceeds part k; 0: it fits. */
static uint64_t excess(const struct pipe_chain *chain, uint32_t k, uint32_t position)
{
	uint64_t cap = chain->parts[k].cap_bytes;
	uint64_t bytes = pipe_part_bytes(chain, k, position, position + 1);

	return cap == PAWL_PIPE_NO_CAP || bytes <= cap ? 0 : bytes - cap;
}

/* Returns the part that a unit alone exceeds by the least, of those that may have it. */
static uint32_t find_best_part(const struct pipe_chain *chain, uint32_t position)
{
	uint64_t least = UINT64_MAX;
	uint32_t best = 0;

	for (uint32_t k = 0; k < chain->parts_n; k++) {
		bool allowed = pipe_may_have(chain, k, position) &&
			position < chain->parts[k].end_most &&
			(k == 0 || position >= chain->parts[k - 1].end_least);

		if (allowed && excess(chain, k, position) < least) {
			least = excess(chain, k, position);
			best = k;
		}
	}
	return best;
}

/* Writes what would do if each cap is multiplied by a factor, for the stage of part k. */
static void name_remedy(char *text, size_t cap_bytes, const struct pipe_chain *chain, uint32_t k,
	double factor)
{
	const struct pipe_part *part = &chain->parts[k];
	char each[TEXT_SIZE_MAX] = "no limit";

	if (part->cap_bytes != PAWL_PIPE_NO_CAP) {
		size_up(each, scale(part->cap_bytes, factor));
	}
	snprintf(text, cap_bytes, "%.2f times the memory of each stage would do (stage %u: %s)",
		factor, part->stage, each);
}

/* Names the unit that exceeds all parts by most. Returns whether there is one. */
static bool refuse_unit(const struct pipe_chain *chain, double factor, struct pawl_err *err)
{
	char needs[TEXT_SIZE_MAX];
	char remedy[REMEDY_TEXT];
	char state[TEXT_SIZE_MAX];
	char saved[TEXT_SIZE_MAX];
	char cap[TEXT_SIZE_MAX];
	uint64_t most = 0;
	uint32_t at = 0;
	const struct pipe_part *part;
	uint32_t k;

	for (uint32_t i = 0; i < chain->n; i++) {
		uint64_t bytes = excess(chain, find_best_part(chain, i), i);

		at = bytes > most ? i : at;
		most = bytes > most ? bytes : most;
	}
	if (most == 0) {
		return false;
	}
	k = find_best_part(chain, at);
	part = &chain->parts[k];
	text_size(needs, part->cap_bytes + most);
	text_size(state, chain->state[at + 1] - chain->state[at]);
	text_size(saved, part->live * (chain->saved[at + 1] - chain->saved[at]));
	text_size(cap, part->cap_bytes);
	name_remedy(remedy, sizeof(remedy), chain, k, factor);
	pawl_err_set(err, PAWL_EINVAL,
		"unit %s alone needs %s (%s for parameters and their state, %s for activations of "
		"%u microbatch%s), and stage %u, where it is closest to fitting, gives it %s; %s, "
		"or finer units",
		pipe_chain_name(chain, at), needs, state, saved, part->live,
		part->live == 1 ? "" : "es", part->stage, cap, remedy);
	return true;
}

/* ---- all of them ---- */

/* Returns whether there is a plan if each cap is factor times as large. parts: room for the
 * parts. */
static bool fits_with(struct pipe_search *search, const struct pipe_part *of, double factor,
	struct pipe_part *parts)
{
	for (uint32_t k = 0; k < search->chain->parts_n; k++) {
		parts[k] = of[k];
		if (of[k].cap_bytes != PAWL_PIPE_NO_CAP) {
			parts[k].cap_bytes = scale(of[k].cap_bytes, factor);
		}
	}
	return pipe_search_probe(search, ANY_VALUE);
}

/* Returns the least factor of the caps that would do, but for rounding up, or 0. Leaves the search
 * as it was, but for the last probe. */
static double find_factor(struct pipe_search *search, struct pipe_part *parts)
{
	struct pipe_chain with = *search->chain;
	const struct pipe_chain *chain = search->chain;
	double low = 1;
	double high = 1;
	bool fits = false;

	with.parts = parts;
	search->chain = &with;
	search->even_from = PIPE_INFINITE; /* caps of that size may forbid single units */
	while (!fits && high < FACTOR_MOST) {
		low = high;
		high *= 2;
		fits = fits_with(search, chain->parts, high, parts);
	}
	while (fits && high > low * FACTOR_UP) {
		double mid = sqrt(low * high);

		if (fits_with(search, chain->parts, mid, parts)) {
			high = mid;
		} else {
			low = mid;
		}
	}
	search->chain = chain;
	return fits ? high : 0;
}

/* Returns the last position at which a part can end, after a probe in which the next part has no
 * end. */
static uint32_t find_reach(const struct pipe_search *search, uint32_t k)
{
	uint32_t end = search->most[k];

	while (end > search->least[k] && !pipe_search_ends(search, k, end)) {
		end--;
	}
	return end;
}

/* Says from which stage on memory does not suffice, after a probe that failed. factor: what the
 * caps must be multiplied by. */
static int refuse_part(const struct pipe_search *search, double factor, struct pawl_err *err)
{
	const struct pipe_chain *chain = search->chain;
	uint32_t k = search->failed;
	uint32_t reach = k > 0 ? find_reach(search, k - 1) : 0;
	char remedy[REMEDY_TEXT];
	char before[80] = "";

	ASSERT(k < chain->parts_n && reach < chain->n);
	if (k > 0) {
		snprintf(before, sizeof(before), "the stages before stage %u hold no more, and ",
			chain->parts[k].stage);
	}
	name_remedy(remedy, sizeof(remedy), chain, k, factor);
	return pawl_err_set(err, PAWL_EINVAL,
		"memory does not suffice from unit %s on: %sstage %u and those behind it cannot "
		"hold the rest; %s, or more stages",
		pipe_chain_name(chain, reach), before, chain->parts[k].stage, remedy);
}

static int refuse_all(struct pipe_search *search, struct pipe_part *parts, struct pawl_err *err)
{
	double factor = find_factor(search, parts);

	if (factor <= 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"no cut has the wanted units on their stages, and a unit with parameters "
			"in each of %u chunks",
			search->chain->parts_n);
	}
	factor = ceil(factor * 100) / 100; /* the message has two digits */
	if (refuse_unit(search->chain, factor, err)) {
		return PAWL_EINVAL;
	}
	pipe_search_probe(search, ANY_VALUE);
	return refuse_part(search, factor, err);
}

int pipe_search_refuse(struct pipe_search *search, struct pawl_err *err)
{
	const struct pipe_chain *chain = search->chain;
	struct pipe_part *parts;
	int rv;

	parts = FAULT_MEM("pipe.refuse", calloc(chain->parts_n, sizeof(*parts)));
	if (!parts) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to find why a cut is impossible");
	}
	rv = refuse_all(search, parts, err);
	free(parts);
	return rv;
}
