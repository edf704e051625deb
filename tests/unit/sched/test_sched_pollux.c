/* The policy pollux: what its operators allow, the best allocations of small clusters against all
 * possible ones, and the effects of a seed, a pin and short memory. */
#include "base/fault.h"
#include "close.h"
#include "each_fault.h"
#include "sched/baseline/policies.h"
#include "sched/baseline/pollux_impl.h"
#include "seed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX 20u
#define JOBS_MAX  12u
#define SLOTS_MAX 400u

static uint64_t first_seed;

/* A cluster, its jobs, and the grants. */
struct world {
	struct sched_node nodes[NODES_MAX];
	struct sched_job jobs[JOBS_MAX];
	struct sched_hints hints[JOBS_MAX];
	uint32_t now[JOBS_MAX][SLOTS_MAX];    /* node of each replica now */
	uint32_t grants[JOBS_MAX][SLOTS_MAX]; /* node of each granted replica */
	struct sched_grant granted[JOBS_MAX];
	struct sched_view view;
	struct sched_verdict verdict;
};

static void make_hints(struct rng *rng, struct sched_hints *h)
{
	*h = (struct sched_hints){.fitted = rng_below(rng, 5) > 0,
		.perf = {.alpha_c = log_uniform(rng, 0.01, 1),
			.beta_c = log_uniform(rng, 1e-4, 1e-2),
			.alpha_r = log_uniform(rng, 1e-3, 0.1),
			.beta_r = log_uniform(rng, 1e-5, 0.01),
			.alpha_n = log_uniform(rng, 1e-3, 0.3),
			.beta_n = log_uniform(rng, 1e-5, 0.03),
			.delta_n = rng_below(rng, 2) ? 0 : log_uniform(rng, 1e-5, 0.03),
			.gamma = 1 + 9 * uniform(rng)},
		.noise = {log_uniform(rng, 1e-3, 1), log_uniform(rng, 1e-3, 100)},
		.bounds = {.init = 64,
			.max = 2048,
			.atomic_min = 16,
			.atomic_max = 128,
			.accumulate = true},
		.replicas_profiled = (uint32_t)rng_below(rng, 5)};
}

static void make_world(struct world *w, struct rng *rng, uint32_t nodes_n, uint32_t jobs_n,
	uint32_t slots)
{
	memset(w, 0, sizeof(*w));
	for (uint32_t n = 0; n < nodes_n; n++) {
		w->nodes[n].slots = slots;
	}
	for (uint32_t j = 0; j < jobs_n; j++) {
		make_hints(rng, &w->hints[j]);
		w->jobs[j] = (struct sched_job){.id = 10 + j,
			.age_s = (double)rng_below(rng, 5000),
			.attained = (double)rng_below(rng, 4) * 1000,
			.restarts = (uint32_t)rng_below(rng, 20),
			.least = 1,
			.most = 64,
			.restart_s = 30,
			.hints = {&w->hints[j]},
			.nodes = w->now[j]};
	}
	w->view = (struct sched_view){.nodes = w->nodes,
		.nodes_n = nodes_n,
		.jobs = w->jobs,
		.jobs_n = jobs_n};
}

static void clear_grants(struct world *w)
{
	for (uint32_t j = 0; j < JOBS_MAX; j++) {
		w->granted[j] = (struct sched_grant){.nodes = w->grants[j]};
	}
}

static void decide(struct world *w, void *pollux)
{
	clear_grants(w);
	assert_int_equal(sched_pollux.decide(pollux, &w->view, w->granted, &w->verdict, NULL), 0);
}

static void accept_grants(struct world *w)
{
	for (uint32_t j = 0; j < w->view.jobs_n; j++) {
		memcpy(w->now[j], w->grants[j], sizeof(w->now[j]));
		w->jobs[j].replicas = w->granted[j].replicas;
	}
}

static void count_grants(const struct world *w, uint8_t (*counts)[NODES_MAX])
{
	memset(counts, 0, (size_t)JOBS_MAX * NODES_MAX);
	for (uint32_t j = 0; j < w->view.jobs_n; j++) {
		for (uint32_t i = 0; i < w->granted[j].replicas; i++) {
			assert_true(w->grants[j][i] < w->view.nodes_n);
			counts[j][w->grants[j][i]]++;
		}
	}
}

/* ---- what is allowed ---- */

struct shape {
	uint32_t nodes;
	uint32_t replicas;
};

static struct shape find_shape(const uint8_t *row)
{
	struct shape shape = {0};

	for (uint32_t n = 0; n < NODES_MAX; n++) {
		shape.nodes += row[n] > 0;
		shape.replicas += row[n];
	}
	return shape;
}

/* Returns whether slots suffice, and no node has two distributed jobs. */
static bool nodes_bear(const struct world *w, uint8_t (*counts)[NODES_MAX])
{
	for (uint32_t n = 0; n < w->view.nodes_n; n++) {
		uint32_t used = 0;
		uint32_t distributed = 0;

		for (uint32_t j = 0; j < w->view.jobs_n; j++) {
			used += counts[j][n];
			distributed += counts[j][n] > 0 && find_shape(counts[j]).nodes > 1;
		}
		if (used > w->nodes[n].slots || distributed > 1) {
			return false;
		}
	}
	return true;
}

static void check_grants(const struct world *w)
{
	uint8_t counts[JOBS_MAX][NODES_MAX];

	count_grants(w, counts);
	assert_true(nodes_bear(w, counts));
	for (uint32_t j = 0; j < w->view.jobs_n; j++) {
		struct shape shape = find_shape(counts[j]);
		uint32_t profiled = w->hints[j].replicas_profiled;
		uint32_t most = profiled > 0 ? 2 * profiled : 1;

		most = most > w->jobs[j].least ? most : w->jobs[j].least;
		most = most < w->jobs[j].most ? most : w->jobs[j].most;
		assert_true(shape.nodes <= POLLUX_NODES_MAX);
		assert_true(shape.replicas == 0 || shape.replicas >= w->jobs[j].least);
		assert_true(shape.replicas <= most);
	}
}

/* Grants are allowed in all rounds of a cluster whose jobs, nodes and hints change. */
static void grants_are_allowed(void **state)
{
	struct rng rng = {first_seed};
	struct world w;

	for (uint32_t i = 0; i < 12; i++) {
		void *pollux = sched_pollux.open(rng_u64(&rng));
		uint32_t jobs_n = 1 + (uint32_t)rng_below(&rng, JOBS_MAX);

		make_world(&w, &rng, 1 + (uint32_t)rng_below(&rng, NODES_MAX), jobs_n,
			1 + (uint32_t)rng_below(&rng, 5));
		for (uint32_t j = 0; j < jobs_n; j++) {
			w.jobs[j].least = 1 + (uint32_t)rng_below(&rng, 3);
			w.hints[j].replicas_profiled = (uint32_t)rng_below(&rng, 30);
		}
		for (uint32_t round = 0; round < 4; round++) {
			decide(&w, pollux);
			check_grants(&w);
			accept_grants(&w);
			w.nodes[rng_below(&rng, w.view.nodes_n)].slots =
				(uint32_t)rng_below(&rng, 6);
			make_hints(&rng, &w.hints[rng_below(&rng, jobs_n)]);
			w.view.jobs_n = 1 + (uint32_t)rng_below(&rng, jobs_n);
			w.jobs[0].id = 1 + round;
		}
		sched_pollux.close(pollux);
	}
}

/* A matrix that mutates beyond recognition is repaired to what is allowed, and stays so. */
static void repairs_hold(void **state)
{
	struct rng rng = {first_seed};
	uint8_t slots[3][24] = {{0}};
	uint8_t base[JOBS_MAX][24] = {{0}};
	uint32_t filled[NODES_MAX];
	struct pollux_row rows[JOBS_MAX];
	struct pollux_round round = {.rows = rows,
		.rows_n = JOBS_MAX,
		.nodes_n = NODES_MAX,
		.row_bytes = 24,
		.slots = slots[0],
		.base = base[0],
		.room = slots[1],
		.taken = slots[2],
		.filled = filled};

	for (uint32_t i = 0; i < 20000; i++) {
		uint8_t matrix[JOBS_MAX][24];
		uint8_t again[JOBS_MAX][24];
		struct world w = {
			.view = {.nodes = w.nodes, .nodes_n = NODES_MAX, .jobs_n = JOBS_MAX}};
		uint8_t counts[JOBS_MAX][NODES_MAX];

		memset(matrix, 0, sizeof(matrix));
		for (uint32_t r = 0; r < JOBS_MAX; r++) {
			rows[r] = (struct pollux_row){.least = 1,
				.most = 1 + (uint32_t)rng_below(&rng, 60)};
			for (uint32_t n = 0; n < NODES_MAX; n++) {
				matrix[r][n] =
					(uint8_t)(rng_u64(&rng) >> 56 >> rng_below(&rng, 12));
			}
		}
		for (uint32_t n = 0; n < NODES_MAX; n++) {
			slots[0][n] = (uint8_t)rng_below(&rng, i % 2 ? 6 : 256);
			w.nodes[n].slots = slots[0][n];
		}
		pollux_mutate(&round, &rng, matrix[0]);
		pollux_repair(&round, &rng, matrix[0]);
		for (uint32_t r = 0; r < JOBS_MAX; r++) {
			memcpy(counts[r], matrix[r], NODES_MAX);
			assert_true(find_shape(counts[r]).replicas <= rows[r].most);
			assert_true(find_shape(counts[r]).nodes <= POLLUX_NODES_MAX);
			assert_true(memcmp(matrix[r] + NODES_MAX, "\0\0\0\0", 4) == 0);
		}
		assert_true(nodes_bear(&w, counts));
		memcpy(again, matrix, sizeof(matrix));
		pollux_repair(&round, &rng, again[0]);
		assert_memory_equal(again, matrix, sizeof(matrix));
	}
}

/* ---- what is best ---- */

/* Returns the negative fitness, straight from the paper, with a speedup over a fair share on one
 * node. */
static double find_cost(const struct world *w, uint8_t (*counts)[NODES_MAX])
{
	uint32_t slots = 0;
	double inverse = 0;

	for (uint32_t n = 0; n < w->view.nodes_n; n++) {
		slots += w->nodes[n].slots;
	}
	for (uint32_t j = 0; j < w->view.jobs_n; j++) {
		const struct sched_hints *h = &w->hints[j];
		const struct sched_job *job = &w->jobs[j];
		uint8_t now[NODES_MAX] = {0};
		struct shape shape = find_shape(counts[j]);
		struct pawl_placement place = {shape.nodes, shape.replicas, 1};
		struct pawl_placement fair = {1, (slots + w->view.jobs_n - 1) / w->view.jobs_n, 1};
		struct pawl_batch batch;
		double speedup = (double)shape.replicas / fair.replicas;
		double base;

		if (h->fitted && shape.replicas > 0) {
			assert_true(pawl_batch_choose(&h->perf, &h->noise, &h->bounds, &place,
				&batch, &speedup));
			assert_true(pawl_batch_choose(&h->perf, &h->noise, &h->bounds, &fair,
				&batch, &base));
			speedup /= base;
		}
		for (uint32_t i = 0; i < job->replicas; i++) {
			now[job->nodes[i]]++;
		}
		if (memcmp(now, counts[j], sizeof(now)) != 0) {
			speedup *= fmax(job->age_s - 30.0 * job->restarts, 0) / (job->age_s + 30);
		}
		inverse += 1 / (speedup * w->view.nodes_n / slots + 1e-3);
	}
	return -(w->view.jobs_n / inverse);
}

/* Returns the least cost of all allocations that there are. */
static double find_least_cost(const struct world *w)
{
	uint8_t counts[JOBS_MAX][NODES_MAX] = {{0}};
	uint32_t cells = w->view.jobs_n * w->view.nodes_n;
	double least = 0;
	uint32_t at;

	do {
		bool allowed = nodes_bear(w, counts);

		for (uint32_t j = 0; j < w->view.jobs_n && allowed; j++) {
			uint32_t profiled = w->hints[j].replicas_profiled;

			allowed = find_shape(counts[j]).replicas <= (profiled ? 2 * profiled : 1);
		}
		least = allowed ? fmin(least, find_cost(w, counts)) : least;
		for (at = 0; at < cells; at++) {
			uint8_t *cell = &counts[at / w->view.nodes_n][at % w->view.nodes_n];

			*cell = *cell < w->nodes[0].slots ? *cell + 1 : 0;
			if (*cell != 0) {
				break;
			}
		}
	} while (at < cells);
	return least;
}

static void small_clusters_are_solved(void **state)
{
	struct rng rng = {first_seed};
	uint32_t best = 0;
	struct world w;

	for (uint32_t i = 0; i < 40; i++) {
		static const uint32_t shapes[][3] = {{2, 3, 3}, {2, 4, 2}, {3, 3, 2}, {1, 4, 4}};
		const uint32_t *shape = shapes[i % 4];
		void *pollux = sched_pollux.open(rng_u64(&rng));
		uint8_t counts[JOBS_MAX][NODES_MAX];
		double least;

		make_world(&w, &rng, shape[0], shape[1], shape[2]);
		decide(&w, pollux);
		accept_grants(&w); /* jobs then have replicas, which may change */
		make_hints(&rng, &w.hints[0]);
		w.jobs[1].age_s += 4000;
		least = find_least_cost(&w);
		decide(&w, pollux);
		count_grants(&w, counts);
		assert_close(w.verdict.cost, find_cost(&w, counts), 1e-12);
		assert_true(w.verdict.cost >= least * (1 + 1e-12));
		assert_true(isnan(w.verdict.bound));
		best += w.verdict.cost <= least * (1 - 1e-9);
		sched_pollux.close(pollux);
	}
	assert_in_range(best, 39, 40);
}

/* ---- seeds, pins, memory ---- */

static void seeds_repeat_decisions(void **state)
{
	struct rng rng = {first_seed};
	struct world one;
	struct world other;
	uint32_t unlike = 0;

	for (uint32_t i = 0; i < 8; i++) {
		void *pollux[2] = {sched_pollux.open(i), sched_pollux.open(i / 4 ? i : i + 100)};

		make_world(&one, &rng, 16, 8, 4);
		for (uint32_t j = 0; j < 8; j++) {
			one.hints[j].replicas_profiled = 20;
		}
		other = one;
		decide(&one, pollux[0]);
		clear_grants(&other);
		assert_int_equal(sched_pollux.decide(pollux[1], &one.view, other.granted,
					 &other.verdict, NULL),
			0);
		if (i / 4) {
			assert_true(one.verdict.cost == other.verdict.cost);
			assert_memory_equal(one.grants, other.grants, sizeof(one.grants));
		}
		unlike += memcmp(one.grants, other.grants, sizeof(one.grants)) != 0;
		sched_pollux.close(pollux[0]);
		sched_pollux.close(pollux[1]);
	}
	assert_in_range(unlike, 3, 4);
}

/* A pinned job stays as it is, in the order of its replicas, though others get less of the cluster
 * for it. It does not stay if its node is gone. */
static void pinned_jobs_stay(void **state)
{
	struct rng rng = {first_seed};
	void *pollux = sched_pollux.open(first_seed);
	struct world w;
	const uint32_t on[] = {1, 0, 1, 0, 1};

	make_world(&w, &rng, 2, 5, 3);
	memcpy(w.now[4], on, sizeof(on));
	w.jobs[4].replicas = 5;
	w.jobs[4].pinned = true;
	w.jobs[4].attained = 1e9;
	decide(&w, pollux);
	assert_int_equal(w.granted[4].replicas, 5);
	assert_memory_equal(w.grants[4], on, sizeof(on));
	w.nodes[1].slots = 2;
	decide(&w, pollux);
	check_grants(&w);
	sched_pollux.close(pollux);
}

static void nothing_is_decided_of_nothing(void **state)
{
	struct rng rng = {first_seed};
	void *pollux = sched_pollux.open(1);
	struct world w;

	make_world(&w, &rng, 3, 4, 0); /* all drained */
	decide(&w, pollux);
	for (uint32_t j = 0; j < 4; j++) {
		assert_int_equal(w.granted[j].replicas, 0);
	}
	w.view.jobs_n = 0;
	decide(&w, pollux);
	assert_true(isnan(w.verdict.cost));
	sched_pollux.close(pollux);
}

static void memory_may_be_short(void **state)
{
	struct rng rng = {first_seed};
	void *pollux;
	struct world w;
	uint64_t nth;

	make_world(&w, &rng, 3, 4, 2);
	fault_arm("sched.", 1, ENOMEM, false);
	assert_null(sched_pollux.open(1));
	fault_disarm();
	pollux = sched_pollux.open(1);
	decide(&w, pollux);
	for (nth = 1; each_fault(nth); nth++) {
		struct pawl_err err = {0};
		int rv;

		w.hints[0].noise.var += 1; /* forces a new allocation */
		clear_grants(&w);
		fault_arm("sched.", nth, ENOMEM, false);
		rv = sched_pollux.decide(pollux, &w.view, w.granted, &w.verdict, &err);
		fault_disarm();
		assert_true(rv == 0 || (fault_reached(nth) && rv == PAWL_ENOMEM && err.code == rv));
		for (uint32_t j = 0; j < 4 && rv != 0; j++) {
			assert_int_equal(w.granted[j].replicas, 0);
		}
	}
	assert_in_range(nth, 9, 16);
	decide(&w, pollux);
	check_grants(&w);
	sched_pollux.close(pollux);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grants_are_allowed),
		cmocka_unit_test(repairs_hold),
		cmocka_unit_test(small_clusters_are_solved),
		cmocka_unit_test(seeds_repeat_decisions),
		cmocka_unit_test(pinned_jobs_stay),
		cmocka_unit_test(nothing_is_decided_of_nothing),
		cmocka_unit_test(memory_may_be_short),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
