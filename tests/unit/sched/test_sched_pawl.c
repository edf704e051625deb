/* Pawl's policy: what must hold for any cluster in any round, and what the policy remembers. Also:
 * fifo and tiresias respect types of nodes. */
#include "base/fault.h"
#include "close.h"
#include "each_fault.h"
#include "sched/baseline/policies.h"
#include "seed.h"

#include <string.h>

#define CLUSTERS  2000u
#define ROUNDS    5u
#define NODES_MAX 8u
#define JOBS_MAX  12u
#define SLOTS_MAX 8u
#define ALL_MAX   (NODES_MAX * SLOTS_MAX)
#define TYPES     3u

static uint64_t first_seed;

struct cluster {
	struct sched_view view;
	struct sched_node nodes[NODES_MAX];
	struct sched_job jobs[JOBS_MAX];
	struct sched_hints hints[JOBS_MAX][TYPES];
	uint32_t now[JOBS_MAX][ALL_MAX];
	uint32_t granted[JOBS_MAX][ALL_MAX];
	struct sched_grant grants[JOBS_MAX];
	struct sched_verdict verdict;
	uint64_t last_id; /* the highest id of any job so far */
};

static uint32_t below(struct rng *rng, uint32_t n)
{
	return (uint32_t)rng_below(rng, n);
}

static void make_hints(struct rng *rng, struct sched_hints *hints)
{
	*hints = (struct sched_hints){.fitted = below(rng, 4) > 0,
		.perf = {.alpha_c = log_uniform(rng, 1e-2, 1),
			.beta_c = log_uniform(rng, 1e-4, 1e-2),
			.alpha_r = log_uniform(rng, 1e-4, 1e-1),
			.beta_r = log_uniform(rng, 1e-5, 1e-2),
			.alpha_n = log_uniform(rng, 1e-3, 1),
			.beta_n = log_uniform(rng, 1e-5, 1e-2),
			.gamma = log_uniform(rng, 1, 10)},
		.noise = {1, log_uniform(rng, 1e-2, 1e3)},
		.bounds = {.init = 64, .max = 4096, .atomic_min = 8, .atomic_max = 256},
		.replicas_profiled = below(rng, 8),
		.progress = 1e3 * uniform(rng)};
	hints->bounds.accumulate = below(rng, 2) == 0;
	hints->progress_end = below(rng, 4) > 0 ? 1e3 : 0;
}

static void make_job(struct rng *rng, struct cluster *cluster, uint32_t j, uint64_t id)
{
	struct sched_job *job = &cluster->jobs[j];

	*job = (struct sched_job){.id = id,
		.age_s = below(rng, 3) * 100 * uniform(rng),
		.least = 1 + below(rng, 3) * below(rng, 2),
		.pinned = below(rng, 6) == 0,
		.weight = log_uniform(rng, 0.1, 10),
		.restart_s = 30 * uniform(rng),
		.nodes = cluster->now[j]};
	job->most = job->least + below(rng, 30);
	job->types = below(rng, 3) == 0 ? 1 + below(rng, (1u << TYPES) - 1) : 0;
	for (uint32_t t = 0; t < TYPES; t++) {
		make_hints(rng, &cluster->hints[j][t]);
		job->hints[t] = below(rng, 3) > 0 ? &cluster->hints[j][t] : NULL;
	}
}

static void make_cluster(struct rng *rng, struct cluster *cluster)
{
	uint32_t types = 1 + below(rng, TYPES);
	bool equal = below(rng, 2) == 0;

	memset(cluster, 0, sizeof(*cluster));
	cluster->view = (struct sched_view){.nodes = cluster->nodes,
		.nodes_n = below(rng, NODES_MAX + 1),
		.jobs = cluster->jobs,
		.jobs_n = below(rng, JOBS_MAX + 1)};
	for (uint32_t node = 0; node < cluster->view.nodes_n; node++) {
		cluster->nodes[node] =
			(struct sched_node){.slots = equal ? 4 : below(rng, SLOTS_MAX + 1),
				.type = below(rng, types)};
	}
	for (uint32_t j = 0; j < JOBS_MAX; j++) {
		make_job(rng, cluster, j, ++cluster->last_id);
		cluster->grants[j].nodes = cluster->granted[j];
	}
}

/* Lets a minute pass: grants take effect, a job ends, nodes come and go, and jobs report more. */
static void pass(struct rng *rng, struct cluster *cluster)
{
	uint32_t end = below(rng, JOBS_MAX);

	for (uint32_t j = 0; j < cluster->view.jobs_n; j++) {
		struct sched_job *job = &cluster->jobs[j];
		const struct sched_grant *grant = &cluster->grants[j];

		job->restarts += job->replicas > 0 && grant->replicas != job->replicas;
		job->replicas = grant->replicas;
		memcpy(cluster->now[j], grant->nodes, grant->replicas * sizeof(uint32_t));
		job->age_s += 60;
		cluster->hints[j][0].replicas_profiled += job->replicas;
		cluster->hints[j][0].noise.var *= below(rng, 2) ? 1 : 1.1;
	}
	if (end < cluster->view.jobs_n) { /* Another job comes. */
		for (uint32_t j = end; j + 1 < cluster->view.jobs_n; j++) {
			cluster->jobs[j] = cluster->jobs[j + 1];
			cluster->jobs[j].nodes = cluster->now[j];
			memcpy(cluster->now[j], cluster->now[j + 1], sizeof(cluster->now[j]));
			memcpy(cluster->hints[j], cluster->hints[j + 1], sizeof(cluster->hints[j]));
			for (uint32_t t = 0; t < TYPES; t++) {
				cluster->jobs[j].hints[t] =
					cluster->jobs[j].hints[t] ? &cluster->hints[j][t] : NULL;
			}
		}
		make_job(rng, cluster, cluster->view.jobs_n - 1, ++cluster->last_id);
	}
	if (cluster->view.nodes_n > 0 && below(rng, 4) == 0) {
		uint32_t node = below(rng, cluster->view.nodes_n);

		cluster->nodes[node].slots = cluster->nodes[node].slots > 0 ? 0 : 4;
	}
}

/* ---- what must hold ---- */

static bool is_kept(const struct cluster *cluster, const struct sched_job *job)
{
	uint32_t used[NODES_MAX] = {0};
	bool kept = job->pinned && job->replicas > 0;

	for (uint32_t i = 0; i < job->replicas && kept; i++) {
		kept = ++used[job->nodes[i]] <= cluster->nodes[job->nodes[i]].slots;
	}
	return kept;
}

static void assert_fits(const struct cluster *cluster)
{
	uint32_t used[NODES_MAX] = {0};

	for (uint32_t j = 0; j < cluster->view.jobs_n; j++) {
		const struct sched_grant *grant = &cluster->grants[j];
		uint32_t types = cluster->jobs[j].types;

		for (uint32_t i = 0; i < grant->replicas; i++) {
			assert_true(types == 0 ||
				(types >> cluster->nodes[grant->nodes[i]].type & 1) != 0);
			used[grant->nodes[i]]++;
		}
	}
	for (uint32_t node = 0; node < cluster->view.nodes_n; node++) {
		assert_true(used[node] <= cluster->nodes[node].slots);
	}
}

static void assert_sound(const struct cluster *cluster)
{
	uint32_t spread[NODES_MAX] = {0};

	for (uint32_t j = 0; j < cluster->view.jobs_n; j++) {
		const struct sched_job *job = &cluster->jobs[j];
		const struct sched_grant *grant = &cluster->grants[j];
		bool several = false;

		assert_true(grant->replicas == 0 ||
			(grant->replicas >= job->least && grant->replicas <= job->most));
		if (is_kept(cluster, job)) {
			assert_int_equal(grant->replicas, job->replicas);
			assert_memory_equal(grant->nodes, job->nodes,
				grant->replicas * sizeof(uint32_t));
		}
		for (uint32_t i = 0; i < grant->replicas; i++) {
			const struct sched_node *node = &cluster->nodes[grant->nodes[i]];

			several |= grant->nodes[i] != grant->nodes[0];
			assert_int_equal(node->type, cluster->nodes[grant->nodes[0]].type);
		}
		for (uint32_t i = 0; i < grant->replicas && several && !job->pinned; i++) {
			if (i == 0 || grant->nodes[i] != grant->nodes[i - 1]) {
				assert_int_equal(spread[grant->nodes[i]]++, 0);
			}
		}
	}
	assert_fits(cluster);
	assert_true(cluster->verdict.bound <= cluster->verdict.cost * (1 + 1e-12));
}

static int decide(void *policy, struct cluster *cluster)
{
	for (uint32_t j = 0; j < JOBS_MAX; j++) {
		cluster->grants[j].replicas = 0;
	}
	return sched_pawl.decide(policy, &cluster->view, cluster->grants, &cluster->verdict, NULL);
}

/* In any round of any cluster, a policy that remembers decides as one that does not. */
static void any_round_of_any_cluster(void **state)
{
	struct rng rng = {first_seed};
	struct cluster cluster;
	struct cluster again;
	uint64_t granted = 0;

	for (uint32_t i = 0; i < CLUSTERS; i++) {
		void *policy = sched_pawl.open(1);

		assert_non_null(policy);
		make_cluster(&rng, &cluster);
		for (uint32_t round = 0; round < ROUNDS; round++) {
			void *other = sched_pawl.open(2);

			assert_int_equal(decide(policy, &cluster), 0);
			assert_sound(&cluster);
			again = cluster;
			assert_int_equal(sched_pawl.decide(other, &cluster.view, again.grants,
						 &again.verdict, NULL),
				0);
			for (uint32_t j = 0; j < cluster.view.jobs_n; j++) {
				assert_int_equal(again.grants[j].replicas,
					cluster.grants[j].replicas);
				granted += cluster.grants[j].replicas;
			}
			assert_true(again.verdict.cost == cluster.verdict.cost);
			sched_pawl.close(other);
			pass(&rng, &cluster);
		}
		sched_pawl.close(policy);
	}
	printf("%llu replicas were granted\n", (unsigned long long)granted);
	assert_true(granted > CLUSTERS * ROUNDS);
}

static void every_allocation_may_fail(void **state)
{
	struct rng rng = {first_seed};
	struct cluster cluster;
	uint64_t n;

	do {
		make_cluster(&rng, &cluster);
	} while (cluster.view.jobs_n < 3 || cluster.view.nodes_n < 3);
	for (n = 1; each_fault(n); n++) {
		void *policy;
		int rv;

		fault_arm("sched", n, ENOMEM, false);
		policy = sched_pawl.open(1);
		rv = policy ? decide(policy, &cluster) : PAWL_ENOMEM;
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(n)));
		if (policy != NULL) { /* The next round is decided. */
			assert_int_equal(decide(policy, &cluster), 0);
		}
		sched_pawl.close(policy);
	}
	assert_true(n > 21);
}

/* Two jobs on nodes of one slot: one gains by each replica, the other less and less. */
static uint32_t give_useful(double fairness)
{
	struct cluster cluster = {0};
	const double more_s[2] = {1e-4, 0.1}; /* seconds that one more replica adds to reducing */
	void *policy = sched_pawl.open(1);
	uint32_t useful;

	for (uint32_t node = 0; node < NODES_MAX; node++) {
		cluster.nodes[node].slots = 1;
	}
	cluster.view = (struct sched_view){.nodes = cluster.nodes,
		.nodes_n = NODES_MAX,
		.jobs = cluster.jobs,
		.jobs_n = 2,
		.fairness = fairness};
	for (uint32_t j = 0; j < 2; j++) {
		cluster.hints[j][0] = (struct sched_hints){.fitted = true,
			.perf = {.alpha_c = 0.01,
				.beta_c = 0.01,
				.alpha_n = 1e-4,
				.beta_n = more_s[j],
				.gamma = 1},
			.noise = {1, 1000},
			.bounds = {.init = 64, .max = 4096, .atomic_min = 8, .atomic_max = 64},
			.replicas_profiled = 8};
		cluster.jobs[j] = (struct sched_job){.id = j + 1,
			.age_s = 600,
			.least = 1,
			.most = 8,
			.weight = 1,
			.hints = {&cluster.hints[j][0]}};
		cluster.grants[j].nodes = cluster.granted[j];
	}
	assert_int_equal(decide(policy, &cluster), 0);
	useful = cluster.grants[0].replicas;
	sched_pawl.close(policy);
	return useful;
}

/* With more fairness, the job that makes best use of replicas gets fewer; 0 counts as 1. */
static void fairness_takes_from_those_who_gain_most(void **state)
{
	uint32_t least = give_useful(0.01);
	uint32_t most = give_useful(SCHED_FAIRNESS_MAX);

	printf("%u of 8 replicas, %u as usual, %u with the most fairness\n", least, give_useful(1),
		most);
	assert_true(least > most);
	assert_in_range(give_useful(1), most, least);
	assert_int_equal(give_useful(0), give_useful(1));
}

/* Makes a job that gains by each replica, and is on the first node. */
static void make_useful(struct cluster *cluster, uint32_t j, uint32_t most)
{
	static uint32_t first;

	cluster->hints[j][0] = (struct sched_hints){.fitted = true,
		.perf = {.alpha_c = 0.01,
			.beta_c = 0.01,
			.alpha_n = 1e-4,
			.beta_n = 1e-4,
			.gamma = 1},
		.noise = {1, 1000},
		.bounds = {.init = 64, .max = 4096, .atomic_min = 8, .atomic_max = 64},
		.replicas_profiled = 4,
		.progress_end = 1e9};
	cluster->jobs[j] = (struct sched_job){.id = j + 1,
		.age_s = 600,
		.least = 1,
		.most = most,
		.weight = 1,
		.hints = {&cluster->hints[j][0]},
		.nodes = &first,
		.replicas = 1};
	cluster->grants[j].nodes = cluster->granted[j];
}

/* Two equal jobs on the nodes of one type; one of them may be on those of the other, too. */
static void who_may_be_elsewhere_makes_room(void **state)
{
	for (uint32_t bound = 0; bound < 2; bound++) {
		struct cluster cluster = {.nodes = {{.slots = 4}, {.slots = 4, .type = 1}}};
		void *policy = sched_pawl.open(1);

		cluster.view = (struct sched_view){.nodes = cluster.nodes,
			.nodes_n = 2,
			.jobs = cluster.jobs,
			.jobs_n = 2};
		make_useful(&cluster, 0, 4);
		make_useful(&cluster, 1, 4);
		cluster.jobs[bound].types = 1;
		assert_int_equal(decide(policy, &cluster), 0);
		assert_sound(&cluster);
		assert_int_equal(cluster.grants[0].replicas, 4);
		assert_int_equal(cluster.grants[1].replicas, 4);
		assert_true(cluster.verdict.bound >= cluster.verdict.cost * (1 - 1e-12));
		sched_pawl.close(policy);
	}
}

/* One job, alone, whose most is no power of two and no number of whole nodes. */
static void all_sizes_up_to_its_most_are_tried(void **state)
{
	const struct {
		uint32_t nodes, slots, most;
	} cases[] = {{1, 4, 3}, {1, 16, 12}, {4, 4, 7}, {2, 8, 16}, {2, 8, 15}, {3, 3, 8},
		{1, 5, 9}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct cluster cluster = {0};
		void *policy = sched_pawl.open(1);
		uint32_t all = cases[i].nodes * cases[i].slots;

		for (uint32_t node = 0; node < cases[i].nodes; node++) {
			cluster.nodes[node].slots = cases[i].slots;
		}
		cluster.view = (struct sched_view){.nodes = cluster.nodes,
			.nodes_n = cases[i].nodes,
			.jobs = cluster.jobs,
			.jobs_n = 1};
		make_useful(&cluster, 0, cases[i].most);
		assert_int_equal(decide(policy, &cluster), 0);
		assert_sound(&cluster);
		assert_int_equal(cluster.grants[0].replicas,
			cases[i].most < all ? cases[i].most : all);
		sched_pawl.close(policy);
	}
}

/* On nodes of a type where it never was, a job is assumed to gain as much as where it is. */
static void hints_of_one_type_count_for_others(void **state)
{
	for (uint32_t fitted = 0; fitted < 2; fitted++) {
		struct cluster cluster = {.nodes = {{.slots = 1, .type = 1}, {.slots = 8}}};
		/* Hints of a start on that type. */
		struct sched_hints bounds = {.bounds = {.init = 64}};
		void *policy = sched_pawl.open(1);

		cluster.view = (struct sched_view){.nodes = cluster.nodes,
			.nodes_n = 2,
			.jobs = cluster.jobs,
			.jobs_n = 1};
		make_useful(&cluster, 0, 8);
		cluster.jobs[0].hints[1] = cluster.jobs[0].hints[0];
		cluster.jobs[0].hints[0] = fitted ? &bounds : NULL;
		assert_int_equal(decide(policy, &cluster), 0);
		assert_sound(&cluster);
		assert_int_equal(cluster.grants[0].replicas, 8);
		sched_pawl.close(policy);
	}
}

/* Two equal jobs: one has done half on nodes of another type, and is nearly done here. */
static void nearly_done_jobs_are_known_by_their_newest_hints(void **state)
{
	for (uint32_t done = 0; done < 2; done++) {
		struct cluster cluster = {.nodes = {{.slots = 3, .type = 1}}};
		void *policy = sched_pawl.open(1);

		cluster.view = (struct sched_view){.nodes = cluster.nodes,
			.nodes_n = 1,
			.jobs = cluster.jobs,
			.jobs_n = 2};
		for (uint32_t j = 0; j < 2; j++) {
			make_useful(&cluster, j, 3);
			cluster.hints[j][0].progress = 5e8;
			cluster.hints[j][1] = cluster.hints[j][0];
			cluster.jobs[j].hints[1] = &cluster.hints[j][1];
		}
		cluster.hints[done][1].progress = 9.9e8;
		assert_int_equal(decide(policy, &cluster), 0);
		assert_sound(&cluster);
		assert_int_equal(cluster.grants[done].replicas, 2);
		assert_int_equal(cluster.grants[1 - done].replicas, 1);
		sched_pawl.close(policy);
	}
}

/* Policies that do not choose sizes grant what users asked for, or nothing, on nodes of the types
 * that jobs may be on. */
static void policies_that_choose_no_sizes_keep_to_types(void **state)
{
	const struct sched_policy *const policies[] = {&sched_fifo, &sched_tiresias};
	struct rng rng = {first_seed};
	struct cluster c;

	for (uint32_t i = 0; i < CLUSTERS; i++) {
		const struct sched_policy *policy = policies[i % 2];
		void *self = policy->open ? policy->open(1) : NULL;

		make_cluster(&rng, &c);
		for (uint32_t round = 0; round < 2; round++) {
			for (uint32_t j = 0; j < JOBS_MAX; j++) {
				c.grants[j].replicas = 0;
				c.jobs[j].pinned = false;
				c.jobs[j].wanted = (c.jobs[j].least + c.jobs[j].most) / 2;
			}
			assert_int_equal(policy->decide(self, &c.view, c.grants, &c.verdict, NULL),
				0);
			for (uint32_t j = 0; j < c.view.jobs_n; j++) {
				assert_true(c.grants[j].replicas == 0 ||
					c.grants[j].replicas == c.jobs[j].wanted);
			}
			assert_fits(&c);
			for (uint32_t j = 0; j < c.view.jobs_n; j++) {
				c.jobs[j].replicas = c.grants[j].replicas;
				memcpy(c.now[j], c.granted[j], sizeof(c.now[j]));
			}
		}
		if (policy->close) {
			policy->close(self);
		}
	}
}

/* A job that finds no room on nodes of its type takes none from nodes of another one. */
static void who_waits_for_one_type_keeps_nobody_from_another(void **state)
{
	const struct sched_policy *const policies[] = {&sched_fifo, &sched_tiresias};

	for (uint32_t i = 0; i < 2; i++) {
		struct cluster c = {.nodes = {{.slots = 1}, {.slots = 4, .type = 1}}};
		void *self = policies[i]->open ? policies[i]->open(1) : NULL;

		c.view = (struct sched_view){.nodes = c.nodes,
			.nodes_n = 2,
			.jobs = c.jobs,
			.jobs_n = 2};
		for (uint32_t j = 0; j < 2; j++) {
			c.jobs[j] = (struct sched_job){.id = j + 1,
				.least = 1,
				.most = 4,
				.wanted = 4,
				.weight = 1,
				.types = 1u << j};
			c.grants[j].nodes = c.granted[j];
		}
		assert_int_equal(policies[i]->decide(self, &c.view, c.grants, &c.verdict, NULL), 0);
		assert_int_equal(c.grants[0].replicas, 0);
		assert_int_equal(c.grants[1].replicas, 4);
		assert_fits(&c);
		if (policies[i]->close) {
			policies[i]->close(self);
		}
	}
}

/* A job of one replica, and of up to 8, that reports nothing, on 4 nodes of 2 slots beside an equal
 * one. Returns the replicas granted to each. */
static uint32_t give_silent(double attained, uint32_t profiled)
{
	struct cluster cluster = {0};
	struct sched_hints unfitted = {.replicas_profiled = profiled};
	uint32_t node = 0;
	void *policy = sched_pawl.open(1);
	uint32_t given;

	for (uint32_t n = 0; n < 4; n++) {
		cluster.nodes[n].slots = 2;
	}
	cluster.view = (struct sched_view){.nodes = cluster.nodes,
		.nodes_n = 4,
		.jobs = cluster.jobs,
		.jobs_n = 2};
	for (uint32_t j = 0; j < 2; j++) {
		cluster.jobs[j] = (struct sched_job){.id = j + 1,
			.age_s = attained,
			.attained = attained,
			.least = 1,
			.most = 8,
			.weight = 1,
			.restart_s = 30,
			.nodes = &node,
			.replicas = 1,
			.hints = {profiled > 0 ? &unfitted : NULL}};
		cluster.grants[j].nodes = cluster.granted[j];
	}
	assert_int_equal(decide(policy, &cluster), 0);
	assert_sound(&cluster);
	given = cluster.grants[0].replicas;
	assert_int_equal(given, cluster.grants[1].replicas);
	sched_pawl.close(policy);
	return given;
}

static void silent_jobs_use_what_is_free(void **state)
{
	assert_int_equal(give_silent(59, 0), 1);  /* the job may still report something */
	assert_int_equal(give_silent(600, 0), 4); /* all slots are in use */
	/* A job that reports has up to 4 times as many, too. */
	assert_int_equal(give_silent(600, 1), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_jobs_use_what_is_free),
		cmocka_unit_test(who_may_be_elsewhere_makes_room),
		cmocka_unit_test(hints_of_one_type_count_for_others),
		cmocka_unit_test(nearly_done_jobs_are_known_by_their_newest_hints),
		cmocka_unit_test(all_sizes_up_to_its_most_are_tried),
		cmocka_unit_test(policies_that_choose_no_sizes_keep_to_types),
		cmocka_unit_test(who_waits_for_one_type_keeps_nobody_from_another),
		cmocka_unit_test(any_round_of_any_cluster),
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(fairness_takes_from_those_who_gain_most),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
