/*
 * What dividing slots among jobs takes, on one core, and how far it may be from the least cost. A
 * line each: jobs, types, slots of all types, choices, median milliseconds, the longest, relative
 * gap; up to so many slots, if they are given. For bench/solve.py. Jobs are made up: speedups that
 * fall behind linear, by Amdahl's and by a power law, weights over two orders of magnitude, some
 * types faster than others.
 */
#include "base/clock.h"
#include "base/rng.h"
#include "sched/solve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZES_MAX 20u /* of a job on one type: 1, 2, 4, 8, 12 and so on to 64 */
#define TIMES_MAX 21
#define SEED      1u

static double uniform(struct rng *rng)
{
	return (double)(rng_u64(rng) >> 11) / 9007199254740992.0;
}

/* As of src/sched/policy_pawl.c: the inverse of what it gains, on nodes of 4. */
static void make_job(struct rng *rng, struct sched_choice *choices, uint32_t *n, uint32_t types)
{
	double weight = pow(10, 2 * uniform(rng) - 1);
	double serial = pow(10, -4 + 3 * uniform(rng));
	double power = 0.4 + 0.6 * uniform(rng);

	choices[(*n)++] = (struct sched_choice){0, 0, weight * 1e3};
	for (uint32_t t = 0; t < types; t++) {
		double faster = pow(4, uniform(rng));

		for (uint32_t r = 1; r <= 64; r += r < 4 ? r : 4) {
			double speedup = faster * pow(r / (1 + serial * (r - 1)), power);

			choices[(*n)++] =
				(struct sched_choice){t, r, weight / (0.25 * speedup + 1e-3)};
		}
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

static int do_size(uint32_t jobs, uint32_t types, uint32_t slots)
{
	struct rng rng = {SEED};
	struct sched_choice *choices = malloc((1ull + SIZES_MAX * types) * jobs * sizeof(*choices));
	uint32_t *first = malloc((jobs + 1ull) * sizeof(*first));
	struct sched_problem problem = {choices, first, jobs, {0}, SCHED_STEPS_MAX};
	struct sched_solution solution = {.chosen = malloc(jobs * sizeof(uint32_t))};
	double ms[TIMES_MAX];
	uint32_t n = 0;
	int rv = choices && first && solution.chosen ? 0 : PAWL_ENOMEM;

	for (uint32_t job = 0; job < jobs && rv == 0; job++) {
		first[job] = n;
		make_job(&rng, choices, &n, types);
		first[job + 1] = n;
	}
	for (uint32_t t = 0; t < types; t++) {
		problem.capacity[t] = slots / types;
	}
	for (int i = 0; i < TIMES_MAX && rv == 0; i++) {
		int64_t begin_ns = clock_mono_ns();

		rv = sched_solve(&problem, &solution, NULL);
		ms[i] = (double)(clock_mono_ns() - begin_ns) / 1e6;
	}
	if (rv == 0) {
		qsort(ms, TIMES_MAX, sizeof(*ms), compare);
		printf("%u %u %u %u %.3f %.3f %.3g\n", jobs, types, slots, n, ms[TIMES_MAX / 2],
			ms[TIMES_MAX - 1], (solution.cost - solution.bound) / solution.bound);
	}
	free(choices);
	free(first);
	free(solution.chosen);
	return rv;
}

int main(int argc, char **argv)
{
	uint32_t slots_max = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : UINT32_MAX;
	const uint32_t sizes[][3] = {{40, 1, 64}, {160, 1, 64}, {160, 3, 66}, {160, 1, 256},
		{160, 3, 258}, {320, 1, 512}, {1000, 1, 2048}, {1000, 3, 2049}, {2500, 1, 2500},
		{5000, 1, 5000}, {10000, 1, 10000}, {10000, 3, 9999}, {10000, 8, 10000},
		{10000, 1, 2500}, {20000, 1, 20000}, {40000, 1, 40000}, {300, 8, 512}};
	int rv = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes) && rv == 0; i++) {
		if (sizes[i][2] <= slots_max) {
			rv = do_size(sizes[i][0], sizes[i][1], sizes[i][2]);
		}
	}
	return rv != 0;
}
