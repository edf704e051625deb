/* The policy pawl on Pollux's six workloads at load 1, beside the published results of Pollux:
 * average time to completion, its 99 %, and makespan. Skipped without the published profiles, which
 * PAWL_PROFILES names. */
#include "profiles.h"
#include "sched/sim/profile.h"
#include "sched/sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define WORKLOADS 6u

/* Means of the six (Pollux's artifact, branch osdi21-artifact of petuum/adaptdl). */
static const struct sched_metrics pollux = {.jct_avg_s = 2573.5,
	.jct_p99_s = 41802,
	.makespan_s = 57501};

/* A job that cannot use two replicas is not counted: most of these end within two rounds, and a
 * wait of one round doubles their time. */
static double find_worst_rho(const struct sched_workload *workload,
	const struct sched_job_result *results)
{
	double worst = 0;

	for (uint32_t j = 0; j < workload->n; j++) {
		if (workload->jobs[j].app->replicas_most > 1 && results[j].rho > worst) {
			worst = results[j].rho;
		}
	}
	return worst;
}

static void add_workload(const struct sched_apps *apps, uint32_t number, struct sched_metrics *mean)
{
	const struct sched_setting setting = {16, 4, 60, 30, 0, 1, NULL, NULL, NULL};
	struct sched_workload workload = {0};
	struct sched_outcome outcome = {0};
	struct pawl_err err;
	double rho;
	char path[2048];

	snprintf(path, sizeof(path), "%s/workloads/workload-%u.csv", test_profiles(), number);
	assert_int_equal(sched_workload_load(&workload, apps, path, &err), 0);
	assert_int_equal(
		sched_sim_run(&outcome, sched_policy_find("pawl"), &workload, &setting, &err), 0);
	rho = find_worst_rho(&workload, outcome.results);
	mean->jct_avg_s += outcome.metrics.jct_avg_s / WORKLOADS;
	mean->jct_p99_s += outcome.metrics.jct_p99_s / WORKLOADS;
	mean->makespan_s += outcome.metrics.makespan_s / WORKLOADS;
	mean->rho_max = rho > mean->rho_max ? rho : mean->rho_max;
	sched_outcome_deinit(&outcome);
	sched_workload_deinit(&workload);
}

static void goals_are_met(void **state)
{
	struct sched_metrics mean = {0};
	struct sched_apps apps = {0};
	struct pawl_err err;

	assert_int_equal(sched_profiles_load(&apps, test_profiles(), &err), 0);
	for (uint32_t w = 1; w <= WORKLOADS; w++) {
		add_workload(&apps, w, &mean);
	}
	sched_apps_deinit(&apps);
	printf("average %.0f s (%.3f of Pollux's), 99 %% %.0f s (%.3f), makespan %.0f s (%.3f), "
	       "worst rho %.2f\n",
		mean.jct_avg_s, mean.jct_avg_s / pollux.jct_avg_s, mean.jct_p99_s,
		mean.jct_p99_s / pollux.jct_p99_s, mean.makespan_s,
		mean.makespan_s / pollux.makespan_s, mean.rho_max);
	assert_true(mean.jct_avg_s <= 0.93 * pollux.jct_avg_s);
	assert_true(mean.jct_p99_s <= 1.03 * pollux.jct_p99_s);
	assert_true(mean.makespan_s <= 1.06 * pollux.makespan_s);
	assert_true(mean.rho_max < 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goals_are_met),
	};

	if (test_profiles() == NULL) {
		printf("skipped: no published profiles: PAWL_PROFILES names none\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
