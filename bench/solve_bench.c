/*
 * Measures how long it takes to divide slots among jobs, in time of one core, and how far the
 * result may be from the least cost. The first argument, if given, bounds the slots of the
 * problems. For bench/solve.py.
 *
 * Each line that begins with "solve" has: jobs, types, slots of all types, median milliseconds,
 * longest milliseconds, relative gap. A line that begins with "round" has the same numbers for a
 * whole round of the policy pawl, and at the end the milliseconds of its first round, which has
 * nothing to remember. Between two rounds a hundredth of the jobs is replaced by others, and
 * another hundredth reports another noise.
 *
 * A second argument asks for that many small clusters instead, of which all allocations are tried.
 * Two numbers are printed: for how many clusters the solver found the best cost, and for how many
 * the best cost lies inside the proven gap. Every second cluster is solved as large ones are.
 *
 * Jobs are made up: speedups that fall behind linear, by Amdahl's law and by a power law, weights
 * over two orders of magnitude, some types faster than others; or step times and noise as in
 * Pollux.
 */
#include "base/rng.h"
#include "sched/baseline/policies.h"
#include "sched/policy/solve.h"
#include "shared/cpu_times.h"
#include "try_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES_MAX 20u /* sizes of a job on one type: 1, 2, 4, 8, 12 and so on to 64 */
#define SEED      1u

static double uniform(struct rng *rng)
{
	return (double)(rng_u64(rng) >> 11) / 9007199254740992.0;
}

/* Makes a job as src/sched/policy/policy_pawl.c does: its cost is the inverse of its speedup, on
 * nodes of 4 slots. */
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

/* ---- the solver ---- */

static int do_size(uint32_t jobs, uint32_t types, uint32_t slots)
{
	struct rng rng = {SEED};
	struct sched_choice *choices = malloc((1ull + SIZES_MAX * types) * jobs * sizeof(*choices));
	uint32_t *first = malloc((jobs + 1ull) * sizeof(*first));
	struct sched_problem problem = {choices, first, jobs, {0}, SCHED_STEPS_MAX};
	struct sched_solution solution = {.chosen = malloc(jobs * sizeof(uint32_t))};
	double ms[CPU_TIMES_MAX];
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
	for (int i = 0; i < CPU_TIMES_MAX && rv == 0; i++) {
		int64_t begin_ns = cpu_ns();

		rv = sched_solve(&problem, &solution, NULL);
		ms[i] = cpu_ms_since(begin_ns);
	}
	if (rv == 0) {
		cpu_times_print("solve", (const uint32_t[]){jobs, types, slots}, 3, ms,
			(solution.cost - solution.bound) / solution.bound);
		printf("\n");
	}
	free(choices);
	free(first);
	free(solution.chosen);
	return rv;
}

/* ---- rounds ---- */

struct cluster {
	struct sched_view view;
	struct sched_node *nodes; /* owned, as are the other arrays */
	struct sched_job *jobs;
	struct sched_hints *hints;
	uint32_t *now;     /* EACH entries per job: the nodes it runs on */
	uint32_t *granted; /* EACH entries per job: the nodes it is granted */
	struct sched_grant *grants;
	uint64_t ids; /* id of the last job made */
};
#define NODE_SLOTS 4u
#define EACH       64u /* replicas of a job, at most */

static double log_uniform(struct rng *rng, double least, double most)
{
	return least * pow(most / least, uniform(rng));
}

static void renew_job(struct cluster *cluster, uint32_t j, struct rng *rng)
{
	cluster->hints[j] = (struct sched_hints){.fitted = true,
		.perf = {.alpha_c = log_uniform(rng, 0.01, 0.3),
			.beta_c = log_uniform(rng, 1e-4, 1e-2),
			.alpha_r = log_uniform(rng, 1e-3, 0.1),
			.beta_r = log_uniform(rng, 1e-4, 1e-2),
			.alpha_n = log_uniform(rng, 1e-2, 0.3),
			.beta_n = log_uniform(rng, 1e-4, 1e-2),
			.gamma = log_uniform(rng, 1, 10)},
		.noise = {1, log_uniform(rng, 1, 100)},
		.bounds = {.init = 128,
			.max = 4096,
			.atomic_min = 16,
			.atomic_max = 256,
			.accumulate = true},
		.replicas_profiled = EACH,
		.progress_end = log_uniform(rng, 1e3, 1e6)};
	cluster->jobs[j] = (struct sched_job){.id = ++cluster->ids,
		.age_s = 3600 * uniform(rng),
		.least = 1,
		.most = EACH,
		.weight = 1,
		.restart_s = 30,
		.hints = {&cluster->hints[j]},
		.nodes = cluster->now + (size_t)j * EACH};
}

static int make_cluster(struct cluster *cluster, uint32_t jobs, uint32_t nodes, struct rng *rng)
{
	*cluster = (struct cluster){0};
	cluster->nodes = calloc(nodes, sizeof(struct sched_node));
	cluster->jobs = calloc(jobs, sizeof(struct sched_job));
	cluster->hints = calloc(jobs, sizeof(struct sched_hints));
	cluster->now = calloc((size_t)jobs * EACH, sizeof(uint32_t));
	cluster->granted = calloc((size_t)jobs * EACH, sizeof(uint32_t));
	cluster->grants = calloc(jobs, sizeof(struct sched_grant));
	cluster->view = (struct sched_view){0, cluster->nodes, nodes, cluster->jobs, jobs};
	if (!cluster->nodes || !cluster->jobs || !cluster->hints || !cluster->now ||
		!cluster->granted || !cluster->grants) {
		return PAWL_ENOMEM;
	}
	for (uint32_t node = 0; node < nodes; node++) {
		cluster->nodes[node].slots = NODE_SLOTS;
	}
	for (uint32_t j = 0; j < jobs; j++) {
		renew_job(cluster, j, rng);
	}
	return 0;
}

static void free_cluster(struct cluster *cluster)
{
	free(cluster->nodes);
	free(cluster->jobs);
	free(cluster->hints);
	free(cluster->now);
	free(cluster->granted);
	free(cluster->grants);
}

/* Passes on to the next round: every job gets what it was granted, some jobs end and as many new
 * ones come behind them, and some report another noise. */
static void pass(struct cluster *cluster, struct rng *rng)
{
	uint32_t n = cluster->view.jobs_n;

	for (uint32_t j = 0; j < n; j++) {
		struct sched_job *job = &cluster->jobs[j];

		job->replicas = cluster->grants[j].replicas;
		memcpy(cluster->now + (size_t)j * EACH, cluster->grants[j].nodes,
			job->replicas * sizeof(uint32_t));
		job->age_s += 60;
	}
	for (uint32_t i = 0; i < n / 100; i++) {
		cluster->hints[rng_below(rng, n)].noise.var *= 1.1;
	}
	for (uint32_t j = n - n / 100; j < n; j++) {
		renew_job(cluster, j, rng);
	}
}

static int decide(void *policy, struct cluster *cluster, double *ms, double *gap)
{
	struct sched_verdict verdict;
	int64_t begin_ns;
	int rv;

	for (uint32_t j = 0; j < cluster->view.jobs_n; j++) {
		cluster->grants[j] =
			(struct sched_grant){.nodes = cluster->granted + (size_t)j * EACH};
	}
	begin_ns = cpu_ns();
	rv = sched_pawl.decide(policy, &cluster->view, cluster->grants, &verdict, NULL);
	*ms = cpu_ms_since(begin_ns);
	*gap = verdict.cost / verdict.bound - 1;
	return rv;
}

static int do_rounds(uint32_t jobs, uint32_t slots)
{
	struct rng rng = {SEED};
	struct cluster cluster;
	void *policy = sched_pawl.open(SEED);
	int rv = make_cluster(&cluster, jobs, slots / NODE_SLOTS, &rng);
	double ms[CPU_TIMES_MAX];
	double first_ms;
	double gap;

	rv = rv == 0 && policy ? decide(policy, &cluster, &first_ms, &gap) : PAWL_ENOMEM;
	for (int i = 0; i < CPU_TIMES_MAX && rv == 0; i++) {
		pass(&cluster, &rng);
		rv = decide(policy, &cluster, &ms[i], &gap);
	}
	if (rv == 0) {
		cpu_times_print("round", (const uint32_t[]){jobs, 1, slots}, 3, ms, gap);
		printf(" %.3f\n", first_ms);
	}
	sched_pawl.close(policy);
	free_cluster(&cluster);
	return rv;
}

/* ---- small clusters ---- */

#define SMALL_JOBS  6u
#define SMALL_TYPES 3u
#define SMALL_SLOTS 10u  /* slots of a type are fewer than this */
#define CLOSE       1e-9 /* relative error allowed between two sums */

static void make_small(struct rng *rng, struct sched_problem *problem, struct sched_choice *choices,
	uint32_t *first)
{
	uint32_t types = 1 + (uint32_t)rng_below(rng, SMALL_TYPES);
	uint32_t n = 0;

	*problem = (struct sched_problem){choices, first, 1 + (uint32_t)rng_below(rng, SMALL_JOBS),
		{0}, SCHED_STEPS_MAX};
	for (uint32_t t = 0; t < types; t++) {
		problem->capacity[t] = (uint32_t)rng_below(rng, SMALL_SLOTS);
	}
	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		double weight = pow(10, 2 * uniform(rng) - 1);

		first[job] = n;
		choices[n++] = (struct sched_choice){0, 0, weight * 1e3};
		for (uint32_t t = 0; t < types; t++) {
			double faster = pow(4, uniform(rng));

			for (uint32_t r = 1; r < SMALL_SLOTS;
				r += 1 + (uint32_t)rng_below(rng, 4)) {
				double speedup = faster * pow(r, 0.7) * (0.9 + 0.2 * uniform(rng));

				choices[n++] = (struct sched_choice){t, r,
					weight / (0.25 * speedup + 1e-3)};
			}
		}
	}
	first[problem->jobs_n] = n;
}

/* Prints for how many clusters the solver found the best cost, and for how many the best cost lies
 * inside the proven gap. */
static int do_optima(uint32_t clusters)
{
	struct rng rng = {SEED};
	struct sched_choice choices[SMALL_JOBS * (1 + SMALL_TYPES * SMALL_SLOTS)];
	uint32_t first[SMALL_JOBS + 1];
	uint32_t chosen[SMALL_JOBS];
	uint32_t equal = 0;
	uint32_t inside = 0;
	int rv = 0;

	for (uint32_t i = 0; i < clusters && rv == 0; i++) {
		struct sched_problem problem;
		struct sched_solution solution = {.chosen = chosen};
		uint32_t left[SCHED_TYPES_MAX];
		double best;

		make_small(&rng, &problem, choices, first);
		if (i % 2 == 1) {
			problem.steps_max = 0; /* solve by prices, as large problems are */
		}
		memcpy(left, problem.capacity, sizeof(left));
		best = try_all(&problem, 0, left);
		rv = sched_solve(&problem, &solution, NULL);
		equal += fabs(solution.cost - best) <= CLOSE * best;
		inside +=
			solution.cost >= best * (1 - CLOSE) && solution.bound <= best * (1 + CLOSE);
	}
	printf("%u %u\n", equal, inside);
	return rv;
}

int main(int argc, char **argv)
{
	uint32_t slots_max = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : UINT32_MAX;
	const uint32_t sizes[][3] = {{40, 1, 64}, {160, 1, 64}, {160, 3, 66}, {160, 1, 256},
		{160, 3, 258}, {320, 1, 512}, {1000, 1, 2048}, {1000, 3, 2049}, {2500, 1, 2500},
		{5000, 1, 5000}, {10000, 1, 10000}, {10000, 3, 9999}, {10000, 8, 10000},
		{10000, 1, 2500}, {20000, 1, 20000}, {40000, 1, 40000}, {300, 8, 512}};
	const uint32_t rounds[][2] = {{160, 64}, {1000, 2048}, {10000, 10000}};
	int rv = 0;

	if (argc > 2) {
		return do_optima((uint32_t)strtoul(argv[2], NULL, 10)) != 0;
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes) && rv == 0; i++) {
		if (sizes[i][2] <= slots_max) {
			rv = do_size(sizes[i][0], sizes[i][1], sizes[i][2]);
		}
	}
	for (size_t i = 0; i < sizeof(rounds) / sizeof(*rounds) && rv == 0; i++) {
		rv = do_rounds(rounds[i][0], rounds[i][1]);
	}
	return rv != 0;
}
