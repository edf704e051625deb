/*
 * The worth of replicas to jobs: the best goodput of each size on each type of nodes, remembered
 * from round to round while what a job told of itself stays the same. Pure.
 */
#ifndef SCHED_POLICY_WORTH_H
#define SCHED_POLICY_WORTH_H

#include "pawl/err.h"
#include "sched/policy/policy.h"

#include <stdint.h>

/* Sizes that jobs may have on a type of nodes beside their least and most, ascending: powers of two
 * below its largest node's slots, then whole nodes, from SCHED_NODES_EVERY on each a quarter more
 * than the one before. */
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

/* Whether worth remembers goodputs of a cluster with these sizes, which sched_worth_begin had
 * last. */
bool sched_worth_is_of(const struct sched_worth *worth, const struct sched_sizes *sizes);

/*
 * Begins a round: forgets jobs that are not there any more, and what was remembered of jobs that
 * have changed. sizes: of each type, copied. PAWL_ENOMEM: all is forgotten.
 */
int sched_worth_begin(struct sched_worth *worth, const struct sched_view *view,
	const struct sched_sizes *sizes, struct pawl_err *err);

/* Returns samples a second, in terms of an initial batch's, of the view's job on so many replicas
 * of a type of nodes, as few as hold them; 0: no batch fits, or there is no fit. */
double sched_worth_get(struct sched_worth *worth, uint32_t job, uint32_t type, uint32_t replicas);
/* Returns the goodput on one node, however large: a fair share is measured by it (Pollux's
 * artifact). */
double sched_worth_get_fair(struct sched_worth *worth, uint32_t job, uint32_t type,
	uint32_t replicas);

/* Returns, of the hints that a job told by type, those that count on one type: a fit from there,
 * else the newest fit from elsewhere; if there is none, whatever was told. NULL: nothing was. */
const struct sched_hints *sched_hints_of(const struct sched_hints *const *hints, uint32_t type);
/* Returns the hints that a job told last, those of the most progress. NULL: there are none. */
const struct sched_hints *sched_hints_newest(const struct sched_hints *const *hints);

#endif
