/*
 * The worth of replicas to jobs: the best goodput of each size on each type of nodes. It is
 * remembered from round to round while a job's hints stay the same. Pure.
 */
#ifndef SCHED_POLICY_WORTH_H
#define SCHED_POLICY_WORTH_H

#include "pawl/err.h"
#include "sched/policy/policy.h"

#include <stdint.h>

/* Sizes that jobs may have on a type of nodes beside their least and most, ascending: powers of two
 * below its largest node's slots, then whole nodes. From SCHED_NODES_EVERY nodes on, each size is a
 * quarter larger than the one before. */
struct sched_sizes {
	uint32_t n;
	uint32_t replicas[64];
	uint32_t slots; /* slots of the type's largest node */
	uint32_t all;   /* slots of the type; 0: there are none */
};
#define SCHED_NODES_EVERY 16u

void sched_sizes_fill(struct sched_sizes *sizes, uint32_t slots, uint32_t all);

struct sched_worth; /* goodputs that are remembered */

struct sched_worth *sched_worth_open(void); /* NULL: no memory */
void sched_worth_close(struct sched_worth *worth);

/* Whether the goodputs in worth are of a cluster with these sizes: those of the last
 * sched_worth_begin. */
bool sched_worth_is_of(const struct sched_worth *worth, const struct sched_sizes *sizes);

/*
 * Begins a round: forgets jobs that are gone, and the goodputs of jobs whose hints have changed.
 * sizes: of each type, copied. PAWL_ENOMEM: all is forgotten.
 */
int sched_worth_begin(struct sched_worth *worth, const struct sched_view *view,
	const struct sched_sizes *sizes, struct pawl_err *err);

/* Returns the goodput, in samples a second of an initial batch, of the view's job on so many
 * replicas of a type of nodes, as few as hold them; 0: no batch fits, or there is no fit. */
double sched_worth_get(struct sched_worth *worth, uint32_t job, uint32_t type, uint32_t replicas);
/* Returns the goodput on one node, however large: Pollux's artifact measures a fair share by it. */
double sched_worth_get_fair(struct sched_worth *worth, uint32_t job, uint32_t type,
	uint32_t replicas);

/* Returns which of a job's hints by type hold for one type: a fit from there, else the
	 * newest fit * from another type; if there is no fit, any hints. NULL: none were
	 * reported. */
const struct sched_hints *sched_hints_of(const struct sched_hints *const *hints, uint32_t type);
/* Returns the job's newest hints: those of the most progress. NULL: there are none. */
const struct sched_hints *sched_hints_newest(const struct sched_hints *const *hints);

#endif
