/*
 * Where the baselines put replicas: jobs that keep what they have stay, others take from the node
 * with most free slots, the lowest on ties (Pollux's simulator). Pure.
 */
#ifndef SCHED_FILL_H
#define SCHED_FILL_H

#include "sched/policy.h"

#include <stdint.h>

/* Slots that are not taken. */
struct sched_fill {
	const struct sched_node *nodes; /* the view's */
	uint32_t *room;                 /* of each; fill's own */
	uint32_t n;                     /* of them */
	uint32_t all;                   /* in all of them, slots that are not spoken for */
};
#define SCHED_FILL_ANY UINT32_MAX /* bits of types: all */

/* Bits of types of nodes that the job may be on. */
uint32_t sched_fill_types(const struct sched_job *job);
/* Slots that are not taken on nodes of these types. */
uint32_t sched_fill_room(const struct sched_fill *fill, uint32_t types);

/* All slots of the view's nodes. PAWL_ENOMEM. */
int sched_fill_init(struct sched_fill *fill, const struct sched_view *view, struct pawl_err *err);
void sched_fill_deinit(struct sched_fill *fill);
/* The job stays where it is, if its nodes still hold it; all goes down. False: they do not. */
bool sched_fill_keep(struct sched_fill *fill, const struct sched_job *job,
	struct sched_grant *grant);
/* Places so many replicas on nodes of these types, which all was lowered by already, and which
 * fit. */
void sched_fill_put(struct sched_fill *fill, uint32_t types, uint32_t replicas,
	struct sched_grant *grant);

#endif
