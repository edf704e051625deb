/*
 * Placement for the baselines: jobs that keep their replicas stay; others take from the node with
 * most free slots, the lowest on ties (as in Pollux's simulator). Pure.
 */
#ifndef SCHED_BASELINE_FILL_H
#define SCHED_BASELINE_FILL_H

#include "sched/policy/policy.h"

#include <stdint.h>

/* The slots that are not taken. */
struct sched_fill {
	const struct sched_node *nodes; /* the view's */
	uint32_t *room;                 /* slots of each node that are not taken; owned */
	uint32_t n;                     /* number of nodes */
	uint32_t unclaimed;             /* slots of all nodes that no kept job has */
};
#define SCHED_FILL_ANY UINT32_MAX /* any type of nodes */

/* Returns the types of nodes that the job may be on, a bit each. */
uint32_t sched_fill_types(const struct sched_job *job);
/* Returns the slots that are not taken on nodes of these types. */
uint32_t sched_fill_room(const struct sched_fill *fill, uint32_t types);

/* Begins with all slots of the view's nodes. PAWL_ENOMEM. */
int sched_fill_init(struct sched_fill *fill, const struct sched_view *view, struct pawl_err *err);
void sched_fill_deinit(struct sched_fill *fill);
/* Keeps the job where it is, if its nodes still have room for it, and lowers unclaimed. Returns
 * false if they have not. */
bool sched_fill_keep(struct sched_fill *fill, const struct sched_job *job,
	struct sched_grant *grant);
/* Places so many replicas, which must fit, on nodes of these types. Does not change unclaimed. */
void sched_fill_put(struct sched_fill *fill, uint32_t types, uint32_t replicas,
	struct sched_grant *grant);

#endif
