/*
 * Who takes how much, at the least cost: the multiple-choice knapsack. Each job takes one of its
 * choices, each choice some slots of one type of nodes, and each type has so many.
 *
 * Small problems are solved exactly, by dynamic programming over what is taken of each type. Large
 * ones by Lagrange multipliers, prices of a slot of each type: at any prices, the sum over the jobs
 * of the least of cost + price * slots, less price * capacity, is a bound that no allocation beats
 * (weak duality). What is within the bound's distance of the best allocation so far, and so may be
 * in a better one, is then searched exactly if that is small.
 */
#ifndef SCHED_SOLVE_H
#define SCHED_SOLVE_H

#include "pawl/err.h"
#include "sched/policy.h"

#include <stdint.h>

struct sched_choice {
	uint32_t type;     /* of nodes */
	uint32_t replicas; /* slots of them; 0: the job waits */
	double cost;       /* finite */
};

struct sched_problem {
	/* A job's stand together: first that it waits, then by type, then by replicas. */
	const struct sched_choice *choices;
	const uint32_t *first; /* of each job its first choice; one more, the number of choices */
	uint32_t jobs_n;
	uint32_t capacity[SCHED_TYPES_MAX]; /* slots */
	uint64_t steps_max; /* of an exact search, about 1 ns each: SCHED_STEPS_MAX */
};
#define SCHED_STEPS_MAX       (1u << 21)
#define SCHED_CHOICES_MAX     4096u      /* of a job */
#define SCHED_CHOICES_MAX_ALL (1u << 30) /* of all */

struct sched_solution {
	uint32_t *chosen; /* of each job, its choice's place in choices; the caller's */
	double cost;      /* of them */
	double bound; /* no allocation costs less, sums' rounding aside; cost if that is least */
};

/* PAWL_ENOMEM. */
int sched_solve(const struct sched_problem *problem, struct sched_solution *solution,
	struct pawl_err *err);

#endif
