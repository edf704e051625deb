/* The table of policies, by name. */
#ifndef SCHED_BASELINE_POLICIES_H
#define SCHED_BASELINE_POLICIES_H

#include "sched/policy/policy.h"

#include <stdbool.h>
#include <stdint.h>

extern const struct sched_policy sched_fifo;
extern const struct sched_policy sched_optimus;
extern const struct sched_policy sched_pollux;
extern const struct sched_policy sched_tiresias;

struct sched_policy_entry {
	const struct sched_policy *policy;
	/* Jobs choose their batches and report hints; else they have what their users asked for,
	 * and there are no hints. */
	bool adapts;
	/* Step times are reported by the paper's seven parameters, in which the number of replicas
	 * on the fullest node does not count. */
	bool paper_model;
	/* The policy needs facts that only a simulator knows: not for a real scheduler. */
	bool needs_oracle;
};

/* Returns row i of the table; NULL: there are no more. */
const struct sched_policy_entry *sched_policy_row(uint32_t i);
/* Returns the policy of that name; NULL: there is none. */
const struct sched_policy_entry *sched_policy_find(const char *name);

#endif
