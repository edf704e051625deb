/* Indices of the parameters of struct pawl_perf, in its order, for code that handles all of them in
 * the same way. */
#ifndef ADAPT_PERF_H
#define ADAPT_PERF_H

#include "pawl/adapt.h"

#include <stddef.h>

enum { ALPHA_C, BETA_C, ALPHA_R, BETA_R, ALPHA_N, BETA_N, DELTA_N, GAMMA, PARAMETERS };

_Static_assert(sizeof(struct pawl_perf) == PARAMETERS * sizeof(double), "one index each");
_Static_assert(offsetof(struct pawl_perf, beta_c) == BETA_C * sizeof(double), "in order");
_Static_assert(offsetof(struct pawl_perf, alpha_r) == ALPHA_R * sizeof(double), "in order");
_Static_assert(offsetof(struct pawl_perf, alpha_n) == ALPHA_N * sizeof(double), "in order");
_Static_assert(offsetof(struct pawl_perf, delta_n) == DELTA_N * sizeof(double), "in order");
_Static_assert(offsetof(struct pawl_perf, gamma) == GAMMA * sizeof(double), "in order");

/* Sets how often each of ALPHA_R to DELTA_N counts in the time to reduce on a placement. Leaves the
 * other entries of times unchanged. */
void adapt_weigh_reduce(const struct pawl_placement *place, double *times);

#endif
