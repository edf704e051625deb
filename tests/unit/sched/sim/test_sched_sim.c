/* The simulator on its built-in models: the same seed gives the same numbers, what a policy sees is
 * consistent, every job ends, and impossible settings are refused. */
#include "base/err.h"
#include "base/rng.h"
#include "sched/baseline/fill.h"
#include "sched/baseline/oracle.h"
#include "sched/sim/models.h"
#include "sched/sim/sim.h"
#include "sched/sim/sim_job.h"
#include "seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define JOBS 40u

static uint64_t first_seed;

static const struct sched_setting usual = {16, 4, 60, 30, 0, 1, NULL, NULL, NULL};

/* ---- policies that check their views ---- */

/* State of a run: what was observed of each job, by id. */
static struct {
	const struct sched_policy *inner; /* the policy that decides */
	void *memory;                     /* memory of inner */
	double progress[JOBS], attained[JOBS];
	uint32_t restarts[JOBS], epoch[JOBS];
	double last_s;
	bool adapts;
} spy;

static void check_node_room(const struct sched_view *view)
{
	uint32_t taken[64] = {0};

	for (uint32_t j = 0; j < view->jobs_n; j++) {
		for (uint32_t i = 0; i < view->jobs[j].replicas; i++) {
			assert_in_range(view->jobs[j].nodes[i], 0, view->nodes_n - 1);
			taken[view->jobs[j].nodes[i]]++;
		}
	}
	for (uint32_t i = 0; i < view->nodes_n; i++) {
		assert_true(taken[i] <= view->nodes[i].slots);
	}
}

static void check_hints(const struct sched_job *job)
{
	const struct sched_hints *hints = job->hints[0];

	if (!spy.adapts) {
		assert_null(hints);
		return;
	}
	assert_true(hints->progress >= spy.progress[job->id]);
	assert_true(hints->progress < hints->progress_end);
	assert_true(hints->replicas_profiled > 0 || !hints->fitted);
	assert_true(!hints->fitted || (hints->perf.gamma >= 1 && hints->noise.var > 0));
	assert_int_equal(hints->perf.delta_n > 1e-7, 0); /* the paper's model has none */
	spy.progress[job->id] = hints->progress;
}

static int spy_decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	assert_true(view->now_s > spy.last_s);
	spy.last_s = view->now_s;
	check_node_room(view);
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		const struct sched_job *job = &view->jobs[j];
		const struct sched_oracle *oracle = job->oracle;

		assert_true(j == 0 || job->id > view->jobs[j - 1].id);
		assert_true(job->age_s >= 0 && job->age_s <= view->now_s);
		assert_true(job->attained >= spy.attained[job->id]);
		assert_true(job->restarts >= spy.restarts[job->id]);
		assert_true(oracle->epoch >= spy.epoch[job->id]);
		assert_int_equal(grants[j].replicas, 0);
		spy.attained[job->id] = job->attained;
		spy.restarts[job->id] = job->restarts;
		spy.epoch[job->id] = oracle->epoch;
		check_hints(job);
	}
	return spy.inner->decide(spy.memory, view, grants, verdict, err);
}

static void *spy_open(uint64_t seed)
{
	spy.memory = spy.inner->open ? spy.inner->open(seed) : NULL;
	return &spy;
}

static void spy_close(void *self)
{
	if (spy.inner->close) {
		spy.inner->close(spy.memory);
	}
}

/* Grants each job an even share of all slots, as long as they last; keeps no job where it is. */
static int even_decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	struct sched_fill fill;

	assert_int_equal(sched_fill_init(&fill, view, err), 0);
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		uint32_t share = fill.unclaimed / (view->jobs_n - j);

		share = share < view->jobs[j].most ? share : view->jobs[j].most;
		fill.unclaimed -= share;
		sched_fill_put(&fill, SCHED_FILL_ANY, share, &grants[j]);
	}
	sched_fill_deinit(&fill);
	*verdict = (struct sched_verdict){NAN, NAN};
	return 0;
}

static const struct sched_policy even = {.name = "even", .decide = even_decide};

/* ---- runs ---- */

/* Runs a built-in trace of JOBS jobs. */
static int run(struct sched_outcome *outcome, const struct sched_policy_entry *policy,
	uint64_t seed, const struct sched_setting *setting, struct pawl_err *err)
{
	struct sched_apps apps = {0};
	struct sched_workload workload = {0};
	int rv;

	assert_int_equal(sched_models_load(&apps, err), 0);
	assert_int_equal(sched_models_trace(&workload, &apps, JOBS, seed, err), 0);
	rv = sched_sim_run(outcome, policy, &workload, setting, err);
	sched_workload_deinit(&workload);
	sched_apps_deinit(&apps);
	return rv;
}

static void check_outcome(const struct sched_outcome *outcome)
{
	const struct sched_metrics *m = &outcome->metrics;

	for (uint32_t j = 0; j < JOBS; j++) {
		const struct sched_job_result *result = &outcome->results[j];

		assert_true(result->jct_s > 0 && result->end_s >= result->jct_s);
		assert_true(result->rho > 0 && isfinite(result->rho));
		assert_true(result->lost >= 0 && result->lost < result->attained);
	}
	assert_true(m->jct_p50_s <= m->jct_p99_s && m->jct_p99_s <= m->makespan_s);
	assert_true(m->utilisation > 0 && m->utilisation <= 1);
	assert_true(fabs(m->cost_h / (m->utilisation * m->makespan_s * 64 / 3600) - 1) < 1e-9);
	assert_int_equal(m->outside, 0);
}

static void all_adds_up(void **state)
{
	const struct sched_policy spying = {"spy", spy_open, spy_close, spy_decide};
	struct sched_policy_entry entry = {&spying, false, true};
	struct pawl_err err;

	for (uint32_t i = 0;; i++) {
		const struct sched_policy_entry *row = sched_policy_row(i);
		struct sched_outcome outcome = {0};

		if (row && row->policy == &sched_pollux && getenv("PAWL_LONG") == NULL) {
			continue; /* Pollux takes half a minute, and test_sched_pollux tests it. */
		}
		memset(&spy, 0, sizeof(spy));
		spy.inner = row ? row->policy : &even;
		spy.adapts = entry.adapts = row == NULL || row->adapts;
		if (run(&outcome, &entry, first_seed + i, &usual, &err) != 0) {
			fail_msg("%s: %s", spy.inner->name, err.msg);
		}
		check_outcome(&outcome);
		sched_outcome_deinit(&outcome);
		if (row == NULL) {
			break;
		}
	}
}

/* Leaves out the padding behind each result. */
static bool same_results(const struct sched_outcome *a, const struct sched_outcome *b)
{
	size_t n = offsetof(struct sched_job_result, restarts) + sizeof(a->results->restarts);
	bool same = true;

	for (uint32_t j = 0; j < JOBS; j++) {
		same = same && memcmp(&a->results[j], &b->results[j], n) == 0;
	}
	return same;
}

static void a_seed_gives_the_same_numbers(void **state)
{
	const struct sched_policy_entry entry = {&even, true, false};
	struct pawl_err err;

	for (uint32_t i = 0; i < 2; i++) {
		const struct sched_policy_entry *policy = i ? &entry : sched_policy_find("optimus");
		struct sched_outcome first = {0};
		struct sched_outcome again = {0};
		struct sched_outcome other = {0};

		assert_int_equal(run(&first, policy, first_seed, &usual, &err), 0);
		assert_int_equal(run(&again, policy, first_seed, &usual, &err), 0);
		assert_int_equal(run(&other, policy, first_seed + 1, &usual, &err), 0);
		assert_true(same_results(&first, &again));
		assert_false(same_results(&first, &other));
		assert_memory_equal(&first.metrics, &again.metrics,
			offsetof(struct sched_metrics, rounds));
		assert_int_equal(first.metrics.rounds, again.metrics.rounds);
		assert_int_equal(first.metrics.outside, again.metrics.outside);
		sched_outcome_deinit(&first);
		sched_outcome_deinit(&again);
		sched_outcome_deinit(&other);
	}
}

/* ---- jobs by themselves ---- */

/* Runs so many jobs of one application, all from the beginning. */
static void run_alike(struct sched_outcome *outcome, const char *policy, const char *app,
	uint32_t jobs, uint32_t replicas, uint32_t batch, const struct sched_setting *setting)
{
	struct sched_apps apps = {0};
	struct sched_submission submitted[4] = {0};
	struct sched_workload workload = {.jobs = submitted, .n = jobs};
	struct pawl_err err;

	assert_int_equal(sched_models_load(&apps, &err), 0);
	for (uint32_t j = 0; j < jobs; j++) {
		submitted[j].app = sched_apps_find(&apps, app);
		submitted[j].replicas = replicas;
		submitted[j].batch = batch;
	}
	assert_int_equal(
		sched_sim_run(outcome, sched_policy_find(policy), &workload, setting, &err), 0);
	sched_apps_deinit(&apps);
}

/* One job alone with all slots, or two with a half each, take as long as each would alone on its
 * share. The end of an epoch is a whole second. */
static void fair_shares_have_rho_1(void **state)
{
	const struct sched_setting setting = {2, 4, 60, 30, 0, 1, NULL, NULL, NULL};

	for (uint32_t jobs = 1; jobs <= 2; jobs++) {
		struct sched_outcome outcome = {0};

		run_alike(&outcome, "fifo", "cifar10", jobs, 8 / jobs, 2048, &setting);
		for (uint32_t j = 0; j < jobs; j++) {
			assert_true(fabs(outcome.results[j].rho - 1) < 0.02);
		}
		sched_outcome_deinit(&outcome);
	}
}

/* Two jobs on the same two nodes slow each other down. */
static void neighbours_interfere(void **state)
{
	struct sched_setting setting = {2, 4, 60, 30, 0, 1, NULL, NULL, NULL};
	struct sched_outcome alone = {0};
	struct sched_outcome both = {0};

	run_alike(&alone, "fifo", "cifar10", 2, 3, 2048, &setting);
	setting.interference = 0.5;
	run_alike(&both, "fifo", "cifar10", 2, 3, 2048, &setting);
	assert_true(both.results[0].end_s == alone.results[0].end_s); /* on one node */
	sched_outcome_deinit(&alone);
	sched_outcome_deinit(&both);
	setting.interference = 0;
	setting.nodes = 3;
	run_alike(&alone, "fifo", "cifar10", 2, 6, 2048, &setting);
	setting.interference = 0.5;
	run_alike(&both, "fifo", "cifar10", 2, 6, 2048, &setting);
	assert_true(both.results[0].end_s > 1.8 * alone.results[0].end_s);
	sched_outcome_deinit(&alone);
	sched_outcome_deinit(&both);
}

static void batches_are_split(void **state)
{
	static const struct {
		const char *app;
		uint32_t replicas, total, atomic, accum;
	} splits[] = {
		{"cifar10", 1, 128, 128, 0},   /* one gradient */
		{"cifar10", 1, 512, 256, 1},   /* two, for the noise */
		{"cifar10", 6, 2048, 342, 0},  /* rounded up */
		{"cifar10", 3, 4096, 682, 1},  /* 683 would be over the largest total */
		{"imagenet", 8, 6400, 200, 3}, /* as few as hold them */
	};
	struct sched_apps apps = {0};
	struct pawl_err err;

	assert_int_equal(sched_models_load(&apps, &err), 0);
	for (size_t i = 0; i < sizeof(splits) / sizeof(*splits); i++) {
		struct pawl_batch batch;

		sched_app_split(sched_apps_find(&apps, splits[i].app), splits[i].replicas,
			splits[i].total, &batch);
		assert_int_equal(batch.atomic, splits[i].atomic);
		assert_int_equal(batch.accum, splits[i].accum);
	}
	sched_apps_deinit(&apps);
}

/* ---- wrong hints ---- */

#define ERRORS 2000u

/* Hints have errors of at most the given size, and come close to it. */
static void hints_are_wrong_by_so_much(void **state)
{
	const struct pawl_placement places[] = {{1, 1, 1}, {1, 4, 4}, {4, 16, 4}};
	const struct pawl_batch batch = {64, 0};
	struct sched_apps apps = {0};
	struct sched_submission of = {.name = "job"};
	double speeds[2] = {1, 1};
	double noises[2] = {1, 1};
	struct pawl_err err;

	assert_int_equal(sched_models_load(&apps, &err), 0);
	of.app = sched_apps_find(&apps, "cifar10");
	for (uint32_t i = 0; i < ERRORS; i++) {
		struct sim_job job = {.submission = &of};
		double ratio;

		job.measured.hints = (struct sched_hints){.fitted = true,
			.perf = of.app->perf,
			.noise = {1, 10}};
		sim_job_draw_errors(&job, 0.3, 3, first_seed + i);
		assert_int_equal(sim_job_update_hints(&job, &err), 0);
		ratio = pawl_step_s(&of.app->perf, &places[i % 3], &batch) /
			pawl_step_s(&job.reported.perf, &places[i % 3], &batch);
		speeds[0] = fmin(speeds[0], ratio);
		speeds[1] = fmax(speeds[1], ratio);
		ratio = job.reported.noise.var / 10;
		noises[0] = fmin(noises[0], ratio);
		noises[1] = fmax(noises[1], ratio);
	}
	/* Parts of a step, each with an error of its own. */
	assert_true(speeds[0] >= 0.7 && speeds[0] < 0.8);
	assert_true(speeds[1] <= 1.3 && speeds[1] > 1.2);
	assert_true(noises[0] >= 1 / 3.0 && noises[0] < 0.34);
	assert_true(noises[1] <= 3 && noises[1] > 2.95);
	sched_apps_deinit(&apps);
}

static void wrong_hints_change_what_is_decided(void **state)
{
	struct sched_setting setting = usual;
	struct sched_outcome right = {0};
	struct sched_outcome wrong = {0};
	struct pawl_err err;

	assert_int_equal(run(&right, sched_policy_find("pawl"), first_seed, &setting, &err), 0);
	setting.speed_error = 0.3;
	setting.noise_error = 3;
	assert_int_equal(run(&wrong, sched_policy_find("pawl"), first_seed, &setting, &err), 0);
	assert_memory_not_equal(right.results, wrong.results, JOBS * sizeof(*right.results));
	assert_true(wrong.metrics.jct_avg_s < 1.5 * right.metrics.jct_avg_s);
	sched_outcome_deinit(&right);
	sched_outcome_deinit(&wrong);
}

/* ---- what cannot be ---- */

static int greedy_decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	for (uint32_t i = 0; i < view->nodes[0].slots + 1; i++) {
		grants[0].nodes[grants[0].replicas++] = 0;
	}
	return 0;
}

static int idle_decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	return 0;
}

static int failing_decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOMEM, "no memory here");
}

static void nonsense_is_refused(void **state)
{
	static const struct {
		struct sched_policy policy;
		int code;
		const char *expected;
	} bad[] = {
		{{.name = "greedy", .decide = greedy_decide}, PAWL_EINVAL, "policy greedy at "},
		{{.name = "idle", .decide = idle_decide}, PAWL_ELIMIT, "are not done after "},
		{{.name = "failing", .decide = failing_decide}, PAWL_ENOMEM, "no memory here"},
	};
	struct sched_setting small = usual;
	struct sched_outcome outcome = {0};
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const struct sched_policy_entry entry = {&bad[i].policy, i == 0, false};

		assert_int_equal(run(&outcome, &entry, 1, &usual, &err), bad[i].code);
		assert_non_null(strstr(err.msg, bad[i].expected));
		sched_outcome_deinit(&outcome);
	}
	small.nodes = 1;
	assert_int_equal(run(&outcome, sched_policy_find("fifo"), 1, &small, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "there are 4 slots"));
	assert_null(sched_policy_find("nobody"));
}

/* Only jobs that are not done when time is up are an error. */
static void a_round_may_end_when_time_is_up(void **state)
{
	const struct sched_policy_entry *fifo = sched_policy_find("fifo");
	struct sched_setting years = usual;
	struct sched_outcome outcome = {0};
	struct sched_apps apps = {0};
	struct sched_workload workload = {0};
	struct pawl_err err;

	years.interval_s = 0.7 * SIM_LAST_S;
	assert_int_equal(sched_models_load(&apps, &err), 0);
	assert_int_equal(sched_models_trace(&workload, &apps, 1, first_seed, &err), 0);
	assert_int_equal(sched_sim_run(&outcome, fifo, &workload, &years, &err), 0);
	assert_true(outcome.results[0].end_s < SIM_LAST_S);
	sched_outcome_deinit(&outcome);
	workload.jobs[0].at_s = 3 * SIM_LAST_S;
	assert_int_equal(sched_sim_run(&outcome, fifo, &workload, &years, &err), PAWL_ELIMIT);
	assert_non_null(strstr(err.msg, workload.jobs[0].name));
	assert_non_null(strstr(err.msg, "and 0 more are not done after "));
	sched_outcome_deinit(&outcome);
	sched_workload_deinit(&workload);
	sched_apps_deinit(&apps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_adds_up),
		cmocka_unit_test(a_seed_gives_the_same_numbers),
		cmocka_unit_test(fair_shares_have_rho_1),
		cmocka_unit_test(neighbours_interfere),
		cmocka_unit_test(batches_are_split),
		cmocka_unit_test(hints_are_wrong_by_so_much),
		cmocka_unit_test(wrong_hints_change_what_is_decided),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(a_round_may_end_when_time_is_up),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
