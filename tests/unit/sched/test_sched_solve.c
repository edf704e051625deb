/* Dividing slots: the solver against all possible allocations, and its bound against the best of
 * them, on small clusters of several types; large ones against their own bound. */
#include "base/fault.h"
#include "close.h"
#include "each_fault.h"
#include "sched/policy/solve.h"
#include "seed.h"
#include "try_all.h"

#include <string.h>

#define CLUSTERS    1000u
#define JOBS_MAX    6u
#define CHOICES_MAX 64u
#define CLOSE       1e-9 /* relative difference of sums that counts as none */

static uint64_t first_seed;

/* A problem and its arrays. */
struct small {
	struct sched_problem problem;
	struct sched_choice choices[JOBS_MAX * CHOICES_MAX];
	uint32_t first[JOBS_MAX + 1];
	uint32_t types;
};

/* Makes any cost, or one as from goodput: falling, less and less. */
static double make_cost(struct rng *rng, bool falling, uint32_t replicas, double scale)
{
	if (!falling) {
		return scale * (uniform(rng) - 0.2);
	}
	return scale / (1e-3 + pow(replicas, 0.7) * (0.9 + 0.2 * uniform(rng)));
}

static void make_small(struct rng *rng, struct small *small)
{
	struct sched_problem *problem = &small->problem;
	uint32_t n = 0;

	*problem = (struct sched_problem){.choices = small->choices,
		.first = small->first,
		.jobs_n = (uint32_t)rng_below(rng, JOBS_MAX + 1)};
	small->types = 1 + (uint32_t)rng_below(rng, 3);
	for (uint32_t t = 0; t < small->types; t++) {
		problem->capacity[t] = (uint32_t)rng_below(rng, 10);
	}
	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		bool falling = rng_below(rng, 2) == 0;
		double scale = log_uniform(rng, 1e-2, 1e2);

		small->first[job] = n;
		small->choices[n++] =
			(struct sched_choice){0, 0, make_cost(rng, falling, 0, scale)};
		for (uint32_t t = 0; t < small->types; t++) {
			bool may = rng_below(rng, 4) > 0; /* the job may be on nodes of the type */

			for (uint32_t r = 1; r <= 9 && may; r += 1 + (uint32_t)rng_below(rng, 4)) {
				small->choices[n++] = (struct sched_choice){t, r,
					make_cost(rng, falling, r, scale)};
			}
		}
	}
	small->first[problem->jobs_n] = n;
}

/* Checks that the solution has a choice of each job, fits, and has the cost that it states. */
static void assert_sound(const struct sched_problem *problem, const struct sched_solution *solution)
{
	uint64_t used[SCHED_TYPES_MAX] = {0};
	double cost = 0;
	double size = 0;

	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		const struct sched_choice *choice = &problem->choices[solution->chosen[job]];

		assert_in_range(solution->chosen[job], problem->first[job],
			problem->first[job + 1] - 1);
		used[choice->type] += choice->replicas;
		cost += choice->cost;
		size += fabs(choice->cost);
	}
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		assert_true(used[t] <= problem->capacity[t]);
	}
	assert_true(fabs(cost - solution->cost) <= CLOSE * size);
	assert_true(solution->bound <= solution->cost);
}

static void assert_at_most(double a, double b)
{
	if (!(a <= b + CLOSE * fabs(b))) {
		fail_msg("%.15g is over %.15g", a, b);
	}
}

/* Solves exactly, by prices alone, and by prices and a search of the rest. */
static void small_clusters_beside_all_allocations(void **state)
{
	const uint64_t steps[] = {SCHED_STEPS_MAX, 0, 64, 512};
	struct rng rng = {first_seed};
	double gaps[4] = {0};
	struct small small;

	for (uint32_t i = 0; i < CLUSTERS; i++) {
		uint32_t chosen[JOBS_MAX];
		struct sched_solution solution = {.chosen = chosen};
		double best;

		make_small(&rng, &small);
		best = try_all(&small.problem, 0, small.problem.capacity);
		for (size_t s = 0; s < sizeof(steps) / sizeof(*steps); s++) {
			small.problem.steps_max = steps[s];
			assert_int_equal(sched_solve(&small.problem, &solution, NULL), 0);
			assert_sound(&small.problem, &solution);
			assert_at_most(solution.bound, best);
			assert_at_most(best, solution.cost);
			gaps[s] += solution.cost - best;
			if (s == 0) {
				assert_at_most(solution.cost, solution.bound);
			}
		}
	}
	printf("over the least cost, on average: %g exactly, %g by prices, %g and %g with a "
	       "search\n",
		gaps[0] / CLUSTERS, gaps[1] / CLUSTERS, gaps[2] / CLUSTERS, gaps[3] / CLUSTERS);
}

/* ---- large ones ---- */

struct large {
	struct sched_problem problem;
	struct sched_choice *choices; /* owned, as are the others */
	uint32_t *first;
	uint32_t *chosen;
};

/* Makes sizes of 1, 2, 4, 8, 12 and so on, as a policy has them. */
static void make_large(struct rng *rng, struct large *large, uint32_t jobs, uint32_t types,
	uint32_t capacity, bool falling)
{
	uint32_t n = 0;

	*large = (struct large){
		.choices = calloc(jobs * (1 + 20ull * types), sizeof(struct sched_choice)),
		.first = calloc(jobs + 1, sizeof(uint32_t)),
		.chosen = calloc(jobs, sizeof(uint32_t))};
	assert_non_null(large->choices);
	assert_non_null(large->first);
	assert_non_null(large->chosen);
	for (uint32_t job = 0; job < jobs; job++) {
		double scale = log_uniform(rng, 0.1, 10);

		large->first[job] = n;
		large->choices[n++] =
			(struct sched_choice){0, 0, make_cost(rng, falling, 0, scale)};
		for (uint32_t t = 0; t < types; t++) {
			double faster = log_uniform(rng, 1, 4);

			for (uint32_t r = 1; r <= 64; r += r < 4 ? r : 4) {
				large->choices[n++] = (struct sched_choice){t, r,
					make_cost(rng, falling, r, scale) / faster};
			}
		}
	}
	large->first[jobs] = n;
	large->problem = (struct sched_problem){.choices = large->choices,
		.first = large->first,
		.jobs_n = jobs,
		.steps_max = SCHED_STEPS_MAX};
	for (uint32_t t = 0; t < types; t++) {
		large->problem.capacity[t] = capacity;
	}
}

static void free_large(struct large *large)
{
	free(large->choices);
	free(large->first);
	free(large->chosen);
}

static void large_clusters_beside_their_bound(void **state)
{
	const struct {
		uint32_t jobs, types, capacity;
		bool falling;
		double gap; /* relative, at most */
	} cases[] = {
		{160, 1, 64, true, 0},
		{160, 3, 21, true, 0.01},
		{1000, 1, 2048, true, 1e-3},
		{1000, 4, 500, true, 1e-3},
		{3000, 1, 1000, true, 1e-3},
		{2000, 2, 4000, false, 1},
		{300, 8, 64, true, 1e-2},
	};
	struct rng rng = {first_seed};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct large large;
		struct sched_solution solution;

		make_large(&rng, &large, cases[i].jobs, cases[i].types, cases[i].capacity,
			cases[i].falling);
		solution = (struct sched_solution){.chosen = large.chosen};
		assert_int_equal(sched_solve(&large.problem, &solution, NULL), 0);
		assert_sound(&large.problem, &solution);
		printf("%u jobs, %u types of %u slots: cost %g, gap %g\n", cases[i].jobs,
			cases[i].types, cases[i].capacity, solution.cost,
			(solution.cost - solution.bound) / fabs(solution.bound));
		assert_true(solution.cost - solution.bound <= cases[i].gap * fabs(solution.bound));
		free_large(&large);
	}
}

/* All jobs are equal, so that every price is a tie. */
static void jobs_that_are_alike(void **state)
{
	struct rng rng = {first_seed};
	struct sched_solution solution;
	struct large large;

	make_large(&rng, &large, 2000, 1, 3001, true);
	for (uint32_t job = 1; job < large.problem.jobs_n; job++) {
		memcpy(&large.choices[large.first[job]], large.choices,
			(large.first[1]) * sizeof(*large.choices));
	}
	solution = (struct sched_solution){.chosen = large.chosen};
	assert_int_equal(sched_solve(&large.problem, &solution, NULL), 0);
	assert_sound(&large.problem, &solution);
	printf("alike: gap %g\n", (solution.cost - solution.bound) / solution.bound);
	assert_true(solution.cost - solution.bound <= 1e-3 * solution.bound);
	free_large(&large);
}

/* ---- no memory ---- */

static void every_allocation_may_fail(void **state)
{
	struct rng rng = {first_seed};
	struct sched_solution solution;
	struct large large;
	uint64_t n;

	make_large(&rng, &large, 200, 2, 64, true);
	solution = (struct sched_solution){.chosen = large.chosen};
	for (n = 1; each_fault(n); n++) {
		struct pawl_err err;
		int rv;

		fault_arm("sched.solve", n, ENOMEM, false);
		rv = sched_solve(&large.problem, &solution, &err);
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(n)));
	}
	assert_true(n > 5);
	free_large(&large);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_clusters_beside_all_allocations),
		cmocka_unit_test(large_clusters_beside_their_bound),
		cmocka_unit_test(jobs_that_are_alike),
		cmocka_unit_test(every_allocation_may_fail),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
