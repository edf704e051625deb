/* Shared by the parts of the solver. */
#ifndef SCHED_POLICY_SOLVE_IMPL_H
#define SCHED_POLICY_SOLVE_IMPL_H

#include "sched/policy/solve.h"

/* Prices, and what jobs take at them. */
struct solve_dual {
	double price[SCHED_TYPES_MAX]; /* price of a slot of each type, at least 0 */
	double bound;                  /* bound of the cost that the prices prove */
	uint32_t *taken;               /* index of each job's least choice at these prices; owned */
	uint64_t used[SCHED_TYPES_MAX]; /* slots of each type that these choices take */
};

/* A job that is to take another choice. */
struct solve_move {
	uint32_t job;
	uint32_t choice;
	double score; /* lower is better */
};

struct solve {
	const struct sched_problem *problem;
	uint32_t types;           /* types with choices are below this one */
	struct solve_dual best;   /* prices with the highest bound */
	struct solve_dual trial;  /* prices that are tried */
	double *reduced;          /* by choice: cost + price * slots, less the least of its job */
	struct solve_move *moves; /* room for one move of each job */
};

/* Finds the best prices, in solve->best. */
void solve_prices(struct solve *solve);
/* Turns what jobs take at the best prices into a solution that fits, and then into a cheaper
 * one. */
void solve_repair(struct solve *solve, struct sched_solution *solution);
/*
 * Finds the least cost of all choices whose reduced cost is at most within, beside those of
 * solution, which it replaces. *searched: false: that would take more than steps_max, and nothing
 * was done. PAWL_ENOMEM.
 */
int solve_remainder(struct solve *solve, double within, struct sched_solution *solution,
	bool *searched, struct pawl_err *err);

#endif
