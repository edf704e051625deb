/* The table of policies: see policies.h. Pure. */
#include "sched/baseline/policies.h"

#include <string.h>

static const struct sched_policy_entry rows[] = {
	{.policy = &sched_fifo},
	{.policy = &sched_tiresias},
	{.policy = &sched_optimus, .needs_oracle = true},
	{.policy = &sched_pawl, .adapts = true},
	{.policy = &sched_pollux, .adapts = true, .paper_model = true},
};

const struct sched_policy_entry *sched_policy_row(uint32_t i)
{
	return i < sizeof(rows) / sizeof(*rows) ? &rows[i] : NULL;
}

const struct sched_policy_entry *sched_policy_find(const char *name)
{
	const struct sched_policy_entry *row;

	for (uint32_t i = 0; (row = sched_policy_row(i)) != NULL; i++) {
		if (strcmp(row->policy->name, name) == 0) {
			return row;
		}
	}
	return NULL;
}
