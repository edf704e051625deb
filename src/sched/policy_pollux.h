/* Pollux, as it was published: see policy_pollux.c. */
#ifndef SCHED_POLICY_POLLUX_H
#define SCHED_POLICY_POLLUX_H

#include "sched/policy.h"

extern const struct sched_policy sched_pollux;

#endif
