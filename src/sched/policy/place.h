/*
 * Placement: where replicas go, once it is decided how many of which type of nodes each job takes.
 *
 * Jobs that keep their number of replicas stay where they are, the largest first. Others are placed
 * in falling order of size. A job that is as large as a node, or larger, takes whole nodes and at
 * most one part of another. A smaller one takes the node where it leaves the least room. No node
 * has two jobs that are on several nodes, since they would slow each other's messages (Pollux,
 * 4.2.1). While a job finds no place, the fewest of the smallest jobs that stay are placed anew
 * too. If that does not help, a job without a place takes its next smaller choice, and waits in the
 * end. So placing never fails.
 */
#ifndef SCHED_POLICY_PLACE_H
#define SCHED_POLICY_PLACE_H

#include "pawl/err.h"
#include "sched/policy/policy.h"
#include "sched/policy/solve.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Finds the jobs that keep their replicas whatever is chosen: pinned jobs that run, if their nodes
 * have room for them; earlier ones first. room: slots of each node that are left.
 */
void sched_place_keep(const struct sched_view *view, bool *kept, uint32_t *room);

/* Sums up slots by type: of all nodes of the type, and of the largest one. */
void sched_place_sum(const struct sched_view *view, const uint32_t *room, uint32_t *all,
	uint32_t *largest);

/*
 * Fills grants with what was chosen, which fits room. Kept jobs stay on their nodes; in the problem
 * they wait. chosen: a job's choice may become an earlier one, as described above. PAWL_ENOMEM.
 */
int sched_place(const struct sched_view *view, const bool *kept, const uint32_t *room,
	const struct sched_problem *problem, uint32_t *chosen, struct sched_grant *grants,
	struct pawl_err *err);

#endif
