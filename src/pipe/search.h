/* The state of a search for the best cut, and its probes: see partition.h. Pure. */
#ifndef PIPE_SEARCH_H
#define PIPE_SEARCH_H

#include "pipe/cost.h"

#include <stddef.h>

/* What a probe leaves: the positions at which each part can end if no part exceeds a value. */
struct pipe_search {
	const struct pipe_chain *chain; /* the caller's */
	uint32_t *least;                /* parts_n: first position at which a part can end */
	uint32_t *most;                 /* parts_n: last such position */
	bool all;                       /* each position from least to most can end its part */
	uint8_t *rows;    /* parts_n rows of n + 1: whether a part can end there, unless all */
	uint32_t *window; /* n + 1: begins that may be the best, in ascending order */
	double *key;      /* n + 1: what each begin in the window has to offer */
	double *speeds;   /* parts_n + 1: sums of the speeds of the parts so far */
	double even_from; /* from this value on, a chain without cut costs is probed by intervals */
	double next;      /* no value below this is possible, after a probe that failed */
	uint32_t failed;  /* part that has no end, after such a probe */
};

int pipe_search_init(struct pipe_search *search, const struct pipe_chain *chain,
	struct pawl_err *err);
void pipe_search_deinit(struct pipe_search *search);

/* Returns whether the chain can be cut so that no part and no link exceeds value. If not, next is
 * over value, or infinite if no value is large enough. */
bool pipe_search_probe(struct pipe_search *search, double value);

/* Returns whether part k can end at a position, by the last probe. */
static inline bool pipe_search_ends(const struct pipe_search *search, uint32_t k, uint32_t position)
{
	return position >= search->least[k] && position <= search->most[k] &&
		(search->all || search->rows[(size_t)k * (search->chain->n + 1) + position] != 0);
}

/* After a successful probe of value: sets ends to the best of the plans of that value, by what
 * they send and how even they are. If that is too much work, or there is no memory for it, ends
 * stays. */
void pipe_search_prefer(const struct pipe_search *search, double value, uint32_t *ends);

/* Sets err to the reason why no value is large enough for the chain. Returns PAWL_EINVAL. */
int pipe_search_refuse(struct pipe_search *search, struct pawl_err *err);

#endif
