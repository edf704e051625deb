/* How long the tasks of a plan take, and when what they send arrives. Pure. */
#ifndef PIPE_TIMING_H
#define PIPE_TIMING_H

#include "pawl/pipe.h"

struct pipe_timing {
	const struct pawl_pipe_plan *plan; /* the caller's: chunks, stages and link are used */
	double *took;                      /* PAWL_PIPE_KINDS rows of chunks_n: time of each task */
	double *sent; /* stages x stages, from row to column: end of the last transfer */
};

/* PAWL_ENOMEM. */
int pipe_timing_init(struct pipe_timing *timing, const struct pawl_pipe_plan *plan,
	struct pawl_err *err);
void pipe_timing_deinit(struct pipe_timing *timing);

static inline double pipe_timing_took(const struct pipe_timing *timing, uint8_t kind,
	uint32_t chunk)
{
	return timing->took[kind * timing->plan->chunks_n + chunk];
}

/* Sends what a chunk has computed at time at_s to the chunk before or behind. Returns when it
 * arrives. A stage must send in the order in which it computes. */
double pipe_timing_send(struct pipe_timing *timing, uint32_t from, uint32_t to, double at_s);

#endif
