/* What the parts of the solver share. */
#ifndef SCHED_SOLVE_IMPL_H
#define SCHED_SOLVE_IMPL_H

#include "sched/solve.h"

/* Prices, and what jobs do at them. */
struct solve_dual {
	double price[SCHED_TYPES_MAX];  /* of a slot, at least 0 */
	double bound;                   /* of the cost, that they prove */
	uint32_t *taken;                /* of each job, its least choice at these prices; owned */
	uint64_t used[SCHED_TYPES_MAX]; /* slots, by those */
};

/* A job that is to take another choice. */
struct solve_move {
	uint32_t job;
	uint32_t choice;
	double score; /* the less the better */
};

struct solve {
	const struct sched_problem *problem;
	uint32_t types;           /* that any choice is of: those below it */
	struct solve_dual best;   /* the highest bound */
	struct solve_dual trial;  /* another one */
	double *reduced;          /* of each choice, cost + price * slots, over its job's least */
	struct solve_move *moves; /* at most one of each job */
};

/* The best prices, in solve->best. */
void solve_prices(struct solve *solve);
/* From what jobs take at the best prices to what fits, and then to what costs less. */
void solve_repair(struct solve *solve, struct sched_solution *solution);
/*
 * The least cost of all choices whose reduced cost is at most within, beside those of solution,
 * which it replaces. *searched: false: that would take more than steps_max, and nothing was done.
 */
int solve_core(struct solve *solve, double within, struct sched_solution *solution, bool *searched,
	struct pawl_err *err);

#endif
