/* The simulator with rented nodes: they cost as long as they are there, no job is on a node that is
 * gone, bounds hold, other pools replace nodes that are taken away, and faster nodes help. */
#include "sched/sim/models.h"
#include "sched/sim/sim.h"
#include "seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define JOBS   40u
#define NODES  4096u
#define HOUR_S 3600.0
#define CLOSE  1e-9 /* relative */

static uint64_t first_seed;
static double good_use; /* good_use of the next runs; 0: the default */

/* A node, as reported. */
struct seen {
	char name[64];
	const char *pool;
	double from_s;
	bool there;
};

/* The reports of changes, and what follows from them. */
struct reported {
	struct seen nodes[NODES];
	uint32_t nodes_n; /* nodes reported so far */
	uint32_t now;     /* nodes there now */
	uint32_t most;    /* most nodes there at once */
	uint32_t firm;    /* nodes of the pool "firm" reported so far */
	double last_s;
	double cost;
	uint32_t over; /* jobs that are over */
};

static struct seen *find(struct reported *reported, const char *name)
{
	for (uint32_t i = reported->nodes_n; i-- > 0;) {
		if (strcmp(reported->nodes[i].name, name) == 0) {
			return &reported->nodes[i];
		}
	}
	return NULL;
}

static void see_node(struct reported *reported, const struct sched_sim_change *change)
{
	struct seen *seen = find(reported, change->node);

	if (change->slots > 0) {
		assert_null(seen);
		assert_true(reported->nodes_n < NODES);
		seen = &reported->nodes[reported->nodes_n++];
		snprintf(seen->name, sizeof(seen->name), "%s", change->node);
		seen->pool = change->pool;
		seen->from_s = change->at_s;
		seen->there = true;
		reported->now++;
		reported->most = reported->now > reported->most ? reported->now : reported->most;
		reported->firm += strcmp(change->pool, "firm") == 0;
		return;
	}
	assert_non_null(seen);
	assert_true(seen->there);
	seen->there = false;
	reported->now--;
	reported->cost += change->price * (change->at_s - seen->from_s) / HOUR_S;
}

static void see(void *user, const struct sched_sim_change *change)
{
	struct reported *reported = user;

	if (change->job == NULL) {
		assert_true(change->at_s >= reported->last_s);
		reported->last_s = change->at_s;
		see_node(reported, change);
		return;
	}
	for (uint32_t i = 0; i < change->replicas; i++) {
		const struct seen *seen = find(reported, change->nodes[i]);

		assert_non_null(seen);
		assert_true(seen->there);
	}
	reported->over += change->over;
}

/* Runs a built-in trace on at most 16 nodes, without boot times, so that the reported time is the
 * time paid. */
static void run(struct sched_outcome *outcome, struct reported *reported,
	const struct sched_pool *pools, uint32_t pools_n, uint64_t seed)
{
	const struct sched_setting setting = {.nodes = 16,
		.slots = 4,
		.interval_s = 60,
		.restart_s = 30,
		.seed = seed,
		.good_use = good_use,
		.pools = pools,
		.pools_n = pools_n,
		.on_change = see,
		.user = reported};
	struct sched_apps apps = {0};
	struct sched_workload workload = {0};
	struct pawl_err err;

	memset(reported, 0, sizeof(*reported));
	assert_int_equal(sched_models_load(&apps, &err), 0);
	assert_int_equal(sched_models_trace(&workload, &apps, JOBS, seed, &err), 0);
	if (sched_sim_run(outcome, sched_policy_find("pawl"), &workload, &setting, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	assert_int_equal(reported->over, JOBS);
	assert_int_equal(reported->now, 0);
	sched_workload_deinit(&workload);
	sched_apps_deinit(&apps);
}

static void costs_are_of_nodes_that_were_there(void **state)
{
	const struct sched_pool pools[] = {
		{.name = "spot",
			.most = 16,
			.price = 0.3,
			.speed = 1,
			.spot = true,
			.life_s = 2 * HOUR_S,
			.notice_s = 120,
			.gap_s = 600},
		{.name = "firm", .least = 1, .most = 8, .price = 1, .speed = 1},
	};
	static struct reported reported;

	for (uint32_t i = 0; i < 3; i++) {
		struct sched_outcome outcome = {0};
		const struct sched_metrics *m = &outcome.metrics;

		run(&outcome, &reported, pools, 2, first_seed + i);
		assert_true(fabs(reported.cost / m->cost - 1) < CLOSE);
		assert_true(m->reclaims > 0 && m->spot_share > 0.3 && m->spot_share < 1);
		assert_true(m->utilisation > 0.3 && m->utilisation <= 1);
		for (uint32_t j = 0; j < JOBS; j++) {
			assert_true(outcome.results[j].jct_s > 0);
		}
		sched_outcome_deinit(&outcome);
	}
}

/* A replacement may be there for a while beside the node that it replaced. */
static void others_stand_in_and_bounds_hold(void **state)
{
	struct sched_pool pools[] = {
		{.name = "spot", .most = 16, .price = 0.3, .speed = 1, .spot = true},
		{.name = "firm", .most = 16, .price = 1, .speed = 1},
	};
	struct sched_outcome outcome = {0};
	static struct reported reported;

	run(&outcome, &reported, pools, 2, first_seed);
	assert_int_equal(reported.firm, 0);
	assert_true(reported.most <= 16);
	assert_true(outcome.metrics.spot_share == 1);
	sched_outcome_deinit(&outcome);
	pools[0].life_s = HOUR_S;
	pools[0].notice_s = 120;
	pools[0].gap_s = 1200;
	run(&outcome, &reported, pools, 2, first_seed);
	assert_true(reported.firm > 0);
	sched_outcome_deinit(&outcome);
	pools[1].most = 3;
	run(&outcome, &reported, &pools[1], 1, first_seed);
	assert_int_equal(reported.most, 3);
	sched_outcome_deinit(&outcome);
}

static void a_seed_gives_the_same_numbers(void **state)
{
	const struct sched_pool pools[] = {
		{.name = "spot",
			.most = 16,
			.price = 0.3,
			.speed = 1,
			.spot = true,
			.life_s = HOUR_S,
			.notice_s = 60},
	};
	struct sched_outcome first = {0};
	struct sched_outcome again = {0};
	static struct reported reported;

	run(&first, &reported, pools, 1, first_seed);
	run(&again, &reported, pools, 1, first_seed);
	assert_memory_equal(first.results, again.results, JOBS * sizeof(*first.results));
	assert_memory_equal(&first.metrics, &again.metrics, sizeof(first.metrics));
	sched_outcome_deinit(&first);
	sched_outcome_deinit(&again);
}

/* Two types in one optimum: better than as many nodes of the slower type, and not better than of
 * the faster one. */
static void faster_nodes_are_made_use_of(void **state)
{
	struct sched_pool pools[] = {
		{.name = "slow", .least = 4, .most = 4, .price = 1, .speed = 1},
		{.name = "fast", .least = 4, .most = 4, .price = 2, .speed = 3},
	};
	const double speeds[][2] = {{1, 1.0001}, {1, 3}, {3, 3.0001}};
	double averages[3];
	static struct reported reported;

	for (uint32_t i = 0; i < 3; i++) {
		struct sched_outcome outcome = {0};

		pools[0].speed = speeds[i][0];
		pools[1].speed = speeds[i][1];
		run(&outcome, &reported, pools, 2, first_seed);
		assert_int_equal(reported.most, 8);
		averages[i] = outcome.metrics.jct_avg_s;
		sched_outcome_deinit(&outcome);
	}
	print_message("all slow %.0f s, mixed %.0f, all fast %.0f\n", averages[0], averages[1],
		averages[2]);
	assert_true(averages[1] < 0.9 * averages[0]);
	assert_true(averages[2] < averages[1]);
}

static void better_use_takes_fewer_nodes(void **state)
{
	const struct sched_pool pool = {.name = "firm", .most = 16, .price = 1, .speed = 1};
	const double uses[] = {0.1, 0, 0.9};
	struct sched_metrics m[3];
	static struct reported reported;

	for (uint32_t i = 0; i < 3; i++) {
		struct sched_outcome outcome = {0};

		good_use = uses[i];
		run(&outcome, &reported, &pool, 1, first_seed);
		m[i] = outcome.metrics;
		sched_outcome_deinit(&outcome);
	}
	good_use = 0;
	assert_true(m[0].cost > m[1].cost && m[1].cost > m[2].cost);
	assert_true(m[0].jct_avg_s < m[1].jct_avg_s && m[1].jct_avg_s < m[2].jct_avg_s);
}

static void policies_that_do_not_choose_are_refused(void **state)
{
	const struct sched_pool pool = {.name = "firm", .most = 16, .price = 1, .speed = 1};
	const struct sched_setting setting = {.nodes = 16,
		.slots = 4,
		.interval_s = 60,
		.pools = &pool,
		.pools_n = 1};
	const struct sched_workload workload = {0};
	struct sched_outcome outcome = {0};
	struct pawl_err err;

	assert_int_equal(
		sched_sim_run(&outcome, sched_policy_find("fifo"), &workload, &setting, &err),
		PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "policy fifo cannot use pools: its jobs do not choose"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(costs_are_of_nodes_that_were_there),
		cmocka_unit_test(others_stand_in_and_bounds_hold),
		cmocka_unit_test(a_seed_gives_the_same_numbers),
		cmocka_unit_test(faster_nodes_are_made_use_of),
		cmocka_unit_test(better_use_takes_fewer_nodes),
		cmocka_unit_test(policies_that_do_not_choose_are_refused),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
