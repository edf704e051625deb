/* The steps of the solver: see solve.h. Pure. */
#include "sched/policy/solve.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "sched/policy/solve_impl.h"

#include <math.h>
#include <stdlib.h>

#define SHRINK    0.5 /* factor of the reduced cost after a search that is too long */
#define TRIES_MAX 40

static void check(struct solve *solve)
{
	const struct sched_problem *problem = solve->problem;

	ASSERT(problem->first[problem->jobs_n] <= SCHED_CHOICES_MAX_ALL);
	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		uint32_t begin = problem->first[job];
		uint32_t end = problem->first[job + 1];

		ASSERT(begin < end && end - begin <= SCHED_CHOICES_MAX);
		ASSERT(problem->choices[begin].replicas == 0);
		for (uint32_t c = begin; c < end; c++) {
			const struct sched_choice *choice = &problem->choices[c];

			ASSERT(choice->type < SCHED_TYPES_MAX && isfinite(choice->cost));
			ASSERT(c == begin || choice->replicas > 0);
			solve->types =
				choice->type < solve->types ? solve->types : choice->type + 1;
		}
	}
}

/* Checks that each job has one of its choices, and that all fit. */
static void check_fits(const struct sched_problem *problem, const uint32_t *chosen)
{
	uint64_t used[SCHED_TYPES_MAX] = {0};

	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		const struct sched_choice *choice = &problem->choices[chosen[job]];

		ASSERT(chosen[job] >= problem->first[job] && chosen[job] < problem->first[job + 1]);
		used[choice->type] += choice->replicas;
	}
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		ASSERT(used[t] <= problem->capacity[t]);
	}
}

static double add_up(const struct sched_problem *problem, const uint32_t *chosen)
{
	double sum = 0;

	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		sum += problem->choices[chosen[job]].cost;
	}
	return sum;
}

/* Computes the reduced costs of all choices by the best prices. */
static void reduce(struct solve *solve)
{
	const struct sched_problem *problem = solve->problem;
	const double *price = solve->best.price;

	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		const struct sched_choice *least = &problem->choices[solve->best.taken[job]];
		double value = least->cost + price[least->type] * least->replicas;

		for (uint32_t c = problem->first[job]; c < problem->first[job + 1]; c++) {
			const struct sched_choice *choice = &problem->choices[c];

			solve->reduced[c] =
				choice->cost + price[choice->type] * choice->replicas - value;
		}
	}
}

/*
 * Any allocation with a choice whose reduced cost is x costs at least the bound plus x. So an
 * allocation that costs less than solution has no choice over the gap. And after a search of all
 * choices up to within, an allocation that was left out costs at least the bound plus within.
 */
static int search(struct solve *solve, struct sched_solution *solution, struct pawl_err *err)
{
	double gap = solution->cost - solution->bound;
	double within = gap;
	bool searched = false;
	int rv = 0;

	for (int i = 0; i < TRIES_MAX && gap > 0 && !searched && rv == 0; i++) {
		rv = solve_remainder(solve, within, solution, &searched, err);
		within = searched ? within : within * SHRINK;
	}
	if (rv == 0 && searched) {
		solution->cost = add_up(solve->problem, solution->chosen);
		solution->bound += within;
	}
	return rv;
}

static int solve_large(struct solve *solve, struct sched_solution *solution, struct pawl_err *err)
{
	solve_prices(solve);
	reduce(solve);
	solve_repair(solve, solution);
	solution->cost = add_up(solve->problem, solution->chosen);
	solution->bound = solve->best.bound;
	return search(solve, solution, err);
}

int sched_solve(const struct sched_problem *problem, struct sched_solution *solution,
	struct pawl_err *err)
{
	size_t jobs = problem->jobs_n + 1ull;
	struct solve solve = {.problem = problem, .types = 1};
	bool searched;
	int rv;

	check(&solve);
	solve.reduced = FAULT_MEM("sched.solve",
		calloc(problem->first[problem->jobs_n] + 1ull, sizeof(*solve.reduced)));
	solve.best.taken = FAULT_MEM("sched.solve", malloc(jobs * sizeof(uint32_t)));
	solve.trial.taken = FAULT_MEM("sched.solve", malloc(jobs * sizeof(uint32_t)));
	solve.moves = FAULT_MEM("sched.solve", malloc(jobs * sizeof(*solve.moves)));
	if (!solve.reduced || !solve.best.taken || !solve.trial.taken || !solve.moves) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to divide slots among %u jobs",
			problem->jobs_n);
		goto out;
	}
	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		solution->chosen[job] = problem->first[job];
	}
	rv = solve_remainder(&solve, INFINITY, solution, &searched, err);
	solution->cost = add_up(problem, solution->chosen);
	solution->bound = solution->cost;
	if (rv == 0 && !searched) {
		rv = solve_large(&solve, solution, err);
	}
	if (solution->bound > solution->cost) {
		solution->bound = solution->cost;
	}
	check_fits(problem, solution->chosen);
out:
	free(solve.reduced);
	free(solve.best.taken);
	free(solve.trial.taken);
	free(solve.moves);
	return rv;
}
