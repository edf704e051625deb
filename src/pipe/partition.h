/*
 * Cuts a chain into parts: the least possible value, which is the largest cost of a part, or of a
 * link if that is more. Pure.
 *
 * The search halves an interval between a proven bound and the value of the best plan so far. A
 * probe of a value t computes which positions can end part k at all if no part exceeds t. It looks
 * only at positions that can be on a plan: what is before them must fit into the parts so far, and
 * what is behind them into the rest. If cuts cost nothing, the positions are an interval, whose
 * ends are found by binary search. Otherwise, the best begin of a part with a given end is the
 * maximum of a sliding window. A probe that fails knows the least larger value at which it could
 * have gone otherwise: that is the new bound. So the search ends with a bound that the plan meets,
 * or misses by rounding (PIPE_ROUNDING).
 */
#ifndef PIPE_PARTITION_H
#define PIPE_PARTITION_H

#include "pipe/cost.h"

#define PIPE_ROUNDING 1e-12 /* relative difference below which two values are the same */

struct pipe_optimum {
	double value; /* value of the plan */
	double bound; /* proven: no plan has less */
};

/*
 * Finds the position after each part. ends: the caller's array of parts_n entries. Among plans of
 * the same value it prefers cuts that send little, and parts that are even. PAWL_EINVAL: there is
 * no plan, since memory does not suffice; the message says where, and what would do. PAWL_ENOMEM.
 * On error ends is undefined.
 */
int pipe_partition(const struct pipe_chain *chain, uint32_t *ends, struct pipe_optimum *optimum,
	struct pawl_err *err);

#endif
