/*
 * List scheduling: finds an order by simulating stages that take, whenever they are free, the most
 * urgent of the tasks that are ready. It works for any placement of chunks, any number of
 * microbatches, and any times. Each chunk takes microbatches in ascending order. Pure.
 */
#ifndef PIPE_LIST_H
#define PIPE_LIST_H

#include "pipe/order.h"

/* What is urgent. A stage's first chunk takes new microbatches; its other chunks are visits. */
enum pipe_urgency {
	PIPE_BACKWARD_FIRST, /* backwards, visits' forwards, new microbatches, W */
	PIPE_VISIT_FIRST,    /* visits' forwards, backwards, new microbatches, W */
	PIPE_FORWARD_FIRST,  /* visits' forwards, new microbatches, backwards, W */
	PIPE_URGENCIES
};

struct pipe_policy {
	enum pipe_urgency urgency;
	bool split;        /* backwards are divided into I and W */
	uint32_t inflight; /* microbatches that have begun and not ended, at most; at least 1 */
	uint32_t live; /* activations (one chunk, one microbatch) on a stage from which on its first
			  chunk takes no new microbatch; at least the chunks of a stage */
};

/* Makes an order for a plan's chunks; the plan's tasks are not used. PAWL_EINVAL: the policy comes
 * to a standstill; PAWL_ELIMIT; PAWL_ENOMEM. */
int pipe_order_list(struct pipe_order *order, const struct pawl_pipe_plan *plan,
	const struct pipe_policy *policy, struct pawl_err *err);

#endif
