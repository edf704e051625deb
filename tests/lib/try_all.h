/* Finds the optimum of a small problem of the solver by trying all allocations. */
#ifndef TEST_TRY_ALL_H
#define TEST_TRY_ALL_H

#include "sched/policy/solve.h"

#include <math.h>

/* Returns the least cost of the jobs from job on, of all allocations of the slots left of each
 * type. */
static inline double try_all(const struct sched_problem *problem, uint32_t job, uint32_t *left)
{
	double best = INFINITY;

	if (job == problem->jobs_n) {
		return 0;
	}
	for (uint32_t c = problem->first[job]; c < problem->first[job + 1]; c++) {
		const struct sched_choice *choice = &problem->choices[c];

		if (choice->replicas <= left[choice->type]) {
			left[choice->type] -= choice->replicas;
			best = fmin(best, choice->cost + try_all(problem, job + 1, left));
			left[choice->type] += choice->replicas;
		}
	}
	return best;
}

#endif
