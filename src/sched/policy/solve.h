/*
 * Divides slots among jobs at the least cost: the multiple-choice knapsack. Each job takes one of
 * its choices, each choice takes some slots of one type of nodes, and the slots of each type are
 * limited.
 *
 * Small problems are solved exactly, by dynamic programming over the slots that are taken of each
 * type. Large ones are solved by Lagrange multipliers, which are prices of a slot of each type. At
 * any prices, take each job's least cost + price * slots; their sum, less price * capacity, is a
 * bound that no allocation beats (weak duality). Choices within the bound's distance of the best
 * allocation so far may be in a better one. They are then searched exactly, if they are few.
 */
#ifndef SCHED_POLICY_SOLVE_H
#define SCHED_POLICY_SOLVE_H

#include "pawl/err.h"
#include "sched/policy/policy.h"

#include <stdint.h>

struct sched_choice {
	uint32_t type;     /* type of the nodes */
	uint32_t replicas; /* number of slots taken; 0: the job waits */
	double cost;       /* finite */
};

struct sched_problem {
	/* The choices of a job are adjacent: first the one that it waits, then by type, then by
	 * replicas. */
	const struct sched_choice *choices;
	/* Index of each job's first choice; one more: the number of choices. */
	const uint32_t *first;
	uint32_t jobs_n;
	uint32_t capacity[SCHED_TYPES_MAX]; /* slots of each type */
	uint64_t steps_max; /* limit of an exact search: SCHED_STEPS_MAX; a step takes about 1 ns */
};
#define SCHED_STEPS_MAX       (1u << 21)
#define SCHED_CHOICES_MAX     4096u      /* choices of one job, at most */
#define SCHED_CHOICES_MAX_ALL (1u << 30) /* choices of all jobs, at most */

struct sched_solution {
	uint32_t *chosen; /* index of each job's choice in choices; the caller's array */
	double cost;      /* sum of the choices' costs */
	double bound; /* no allocation costs less, rounding of sums aside; cost if that is least */
};

/* Solves problem. PAWL_ENOMEM. */
int sched_solve(const struct sched_problem *problem, struct sched_solution *solution,
	struct pawl_err *err);

#endif
