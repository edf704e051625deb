/* Pawl's policy: see policy_pawl.c. */
#ifndef SCHED_POLICY_PAWL_H
#define SCHED_POLICY_PAWL_H

#include "sched/policy.h"

extern const struct sched_policy sched_pawl;

#endif
