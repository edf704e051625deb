/* The simulator reproduces the published numbers of Tiresias and Optimus to the last digit: average
 * time to completion, makespan and 99 % of six workloads, tuned and not; and roughly those of
 * Pollux. Skipped without the published profiles, which PAWL_PROFILES names. */
#include "profiles.h"
#include "sched/sim/profile.h"
#include "sched/sim/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define CLOSE 1e-6 /* relative */
#define ABOUT 0.03 /* relative, for Pollux */

struct golden {
	double jct_avg_s, makespan_s, jct_p99_s;
};

/* Published numbers of a policy, for workloads 1 to 6. */
struct column {
	const char *policy;
	const char *folder;
	struct golden workloads[6];
};

static const struct column columns[] = {
	{"tiresias", "workloads",
		{{2473.65, 83751, 48124}, {5144.9625, 85625, 68331}, {3876.25625, 55541, 26605},
			{3280.2625, 98885, 70434}, {3501.0125, 93281, 67770},
			{3469.69375, 78609, 52573}}},
	{"optimus", "workloads",
		{{4087.0625, 72422, 47705}, {6913.875, 64224, 61149}, {3944.00625, 45299, 20126},
			{5967.75, 68486, 61036}, {5656.25, 70339, 59941},
			{5301.875, 66299, 48185}}},
	{"tiresias", "workloads-realistic",
		{{6565.31875, 106956, 80170}, {8054.99375, 104546, 87252}, {7297.225, 61705, 34059},
			{7364.90625, 107432, 85132}, {7028.38125, 103425, 88266},
			{7731.0875, 102101, 82501}}},
	{"optimus", "workloads-realistic",
		{{5635.325, 74925, 51854}, {8131.85, 84640, 68942}, {8100.3375, 104999, 79060},
			{7026.43125, 106199, 61933}, {6423.31875, 70552, 60799},
			{6685.275, 72274, 52011}}},
};
#define COLUMNS_N (sizeof(columns) / sizeof(*columns))

static void check_close(const char *what, double is, double should)
{
	if (fabs(is / should - 1) > CLOSE) {
		fail_msg("%s: %.10g, not %.10g", what, is, should);
	}
}

static void numbers_are_the_published_ones(void **state)
{
	const struct sched_setting setting = {16, 4, 60, 30, 0, 0};
	struct sched_apps apps = {0};
	struct pawl_err err;

	if (sched_profiles_load(&apps, test_profiles(), &err) != 0) {
		fail_msg("%s", err.msg);
	}
	for (size_t c = 0; c < COLUMNS_N; c++) {
		const struct sched_policy_entry *policy = sched_policy_find(columns[c].policy);

		for (int w = 0; w < 6; w++) {
			const struct golden *golden = &columns[c].workloads[w];
			struct sched_workload workload = {0};
			struct sched_outcome outcome = {0};
			char path[2048];

			snprintf(path, sizeof(path), "%s/%s/workload-%d.csv", test_profiles(),
				columns[c].folder, w + 1);
			printf("%s %s\n", columns[c].policy, path);
			assert_int_equal(sched_workload_load(&workload, &apps, path, &err), 0);
			assert_int_equal(sched_sim_run(&outcome, policy, &workload, &setting, &err),
				0);
			check_close("average", outcome.metrics.jct_avg_s, golden->jct_avg_s);
			check_close("makespan", outcome.metrics.makespan_s, golden->makespan_s);
			check_close("99 %", outcome.metrics.jct_p99_s, golden->jct_p99_s);
			assert_int_equal(outcome.metrics.outside, 0);
			sched_outcome_deinit(&outcome);
			sched_workload_deinit(&workload);
		}
	}
	sched_apps_deinit(&apps);
}

/* Pollux is random: only one of its six workloads, to save time. */
static void pollux_is_about_as_published(void **state)
{
	const struct sched_setting setting = {16, 4, 60, 30, 0, 1};
	struct sched_workload workload = {0};
	struct sched_outcome outcome = {0};
	struct sched_apps apps = {0};
	struct pawl_err err;
	char path[2048];

	if (getenv("PAWL_LONG") == NULL) {
		printf("skipped: half a minute of drawing lots: make test-long\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/workloads/workload-6.csv", test_profiles());
	assert_int_equal(sched_profiles_load(&apps, test_profiles(), &err), 0);
	assert_int_equal(sched_workload_load(&workload, &apps, path, &err), 0);
	assert_int_equal(
		sched_sim_run(&outcome, sched_policy_find("pollux"), &workload, &setting, &err), 0);
	assert_true(fabs(outcome.metrics.jct_avg_s / 2446.13 - 1) < ABOUT);
	sched_outcome_deinit(&outcome);
	sched_workload_deinit(&workload);
	sched_apps_deinit(&apps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_the_published_ones),
		cmocka_unit_test(pollux_is_about_as_published),
	};

	if (test_profiles() == NULL) {
		printf("skipped: no published profiles: PAWL_PROFILES names none\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
