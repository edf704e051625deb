/* What `pawl explain` finds in traces that are made up: two ranks, each on a host of its own. */
#include "cli/explain.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS    2
#define STEPS    8
#define STEP_OPS 2
#define MS       1000000LL
#define STEP_NS  (20 * MS)
#define TAKES_NS (1 * MS) /* an operation, once both have begun it */
#define APART_NS (5000 * MS)
#define SLOW     5 /* step to which rank 1 comes late, by LATE_NS */
#define LATE_NS  (7 * MS)
#define RECORDS  (STEPS * STEP_OPS + 1)

static struct trace traces[RANKS];
static struct trace_record records[RANKS][RECORDS];
static int64_t bases_ns[RANKS];

/* Returns when a rank begins operation i, on a clock that both ranks have. Rank 1 is the last to
 * begin each. */
static int64_t begins_ns(uint32_t rank, uint64_t i)
{
	int64_t at_ns = (int64_t)(i / STEP_OPS) * STEP_NS + (int64_t)(i % STEP_OPS) * 2 * MS;

	at_ns += i / STEP_OPS > SLOW ? LATE_NS : 0;
	return 1000 * MS + at_ns + (rank == 1 && i == SLOW * STEP_OPS ? LATE_NS : 0) +
		(i / STEP_OPS == SLOW && i % STEP_OPS > 0 ? LATE_NS : 0);
}

static struct explain_group make_group(void)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		for (uint64_t i = 0; i < STEPS * STEP_OPS; i++) {
			int64_t begun_ns = begins_ns(r, i);
			int64_t all_ns = begins_ns(1, i);

			records[r][i] = (struct trace_record){.kind = PAWL_ALL_REDUCE,
				.dtype = PAWL_FLOAT32,
				.number = i,
				.bytes = 4000 * (1 + i % STEP_OPS),
				.at_ns = {begun_ns, begun_ns, begun_ns, all_ns, all_ns + TAKES_NS,
					all_ns + TAKES_NS},
				.peer = PAWL_ANY_RANK};
		}
		records[r][STEPS * STEP_OPS] = (struct trace_record){.type = TRACE_LINK,
			.peer = 1 - r,
			.bytes = r == 0 ? 1000000 : 400000,
			.at_ns = {0, 0, 0, 0, 0, 20 * MS},
			.busy_ns = 10 * MS};
		traces[r] = (struct trace){.header = {.rank = r,
						   .ranks = RANKS,
						   .peers = RANKS,
						   .host = r,
						   .hosts = RANKS,
						   .hostname = "a"},
			.records = records[r],
			.n = RECORDS,
			.written = RECORDS};
		bases_ns[r] = (int64_t)r * APART_NS;
	}
	return (struct explain_group){.ranks = RANKS,
		.hosts = RANKS,
		.traced_ranks = RANKS,
		.traces = traces,
		.base_ns = bases_ns};
}

/* A clock that is five seconds ahead is corrected, to within the time of an operation. */
static void clocks_are_put_right(void **state)
{
	struct explain_group group = make_group();

	explain_align(&group);
	assert_true(llabs(group.skew_ns - APART_NS) <= TAKES_NS);
	assert_true(llabs(group.base_ns[1] - group.base_ns[0]) <= TAKES_NS);
	explain_align(&group); /* the clocks are right now */
	assert_true(llabs(group.base_ns[1] - group.base_ns[0]) <= TAKES_NS);
}

static void the_slow_step_and_who_was_late_are_found(void **state)
{
	struct explain_group group = make_group();
	struct explain_sum sum;
	size_t slow = 0;

	bases_ns[1] = 0;
	assert_int_equal(explain_sum_init(&sum, &group, NULL), 0);
	assert_int_equal(sum.ops_n, STEPS * STEP_OPS);
	assert_int_equal(sum.step_ops, STEP_OPS);
	assert_int_equal(sum.steps_n, STEPS - 1); /* nothing comes before the first step */
	for (size_t i = 0; i < sum.steps_n; i++) {
		slow = sum.steps[i].ns > sum.steps[slow].ns ? i : slow;
		assert_int_equal(sum.steps[i].ns,
			STEP_NS + (sum.steps[i].first == SLOW * STEP_OPS ? LATE_NS : 0));
	}
	assert_int_equal(sum.steps[slow].first, SLOW * STEP_OPS);
	assert_int_equal(sum.ops[SLOW * STEP_OPS].last, 1);
	assert_int_equal(sum.ops[SLOW * STEP_OPS].late_ns, LATE_NS);
	assert_int_equal(sum.ranks[1].last_n, 1);
	assert_int_equal(sum.ranks[1].late_most_ns, LATE_NS);
	assert_int_equal(sum.ranks[0].last_n, 0);
	assert_true(sum.phase_s[EXPLAIN_LATE] > 0.0069 && sum.phase_s[EXPLAIN_LATE] < 0.0071);
	assert_true(sum.phase_s[EXPLAIN_NETWORK] > 0.0319 && sum.phase_s[EXPLAIN_NETWORK] < 0.0321);
	explain_sum_deinit(&sum);
}

static void the_slower_link_comes_first(void **state)
{
	struct explain_group group = make_group();
	struct explain_sum sum;

	assert_int_equal(explain_sum_init(&sum, &group, NULL), 0);
	assert_int_equal(sum.links_n, 2);
	assert_int_equal(sum.links[0].from, 1);
	assert_int_equal(sum.links[0].to, 0);
	assert_true(sum.links[0].bytes / sum.links[0].s < 41e6);
	assert_int_equal(sum.links[1].from, 0);
	explain_sum_deinit(&sum);
}

/* ---- pipelines ---- */

#define STAGES 4

/* Three steps of four stages, of which one is busy for more. */
static struct explain_group make_pipeline(uint32_t slow, int64_t busy_ns, int64_t planned_ns)
{
	static struct trace stage[STAGES];
	static struct trace_record steps[STAGES][3];

	for (uint32_t s = 0; s < STAGES; s++) {
		for (uint64_t i = 0; i < 3; i++) {
			steps[s][i] = (struct trace_record){.type = TRACE_STEP,
				.number = i,
				.peer = PAWL_ANY_RANK,
				.at_ns = {0, 0, 0, 0, 0, 100 * MS},
				/* the first step is unlike the others */
				.busy_ns = i == 0   ? 90 * MS
					: s == slow ? busy_ns
						    : 50 * MS,
				.bytes = (uint64_t)(s == slow ? planned_ns : 40 * MS)};
		}
		stage[s] = (struct trace){.header = {.rank = s, .ranks = STAGES},
			.records = steps[s],
			.n = 3};
	}
	return (struct explain_group){.ranks = STAGES, .hosts = 1, .traces = stage};
}

static struct explain_verdict judge(uint32_t slow, int64_t busy_ns, int64_t planned_ns)
{
	struct explain_group group = make_pipeline(slow, busy_ns, planned_ns);
	struct explain_stages stages;
	struct explain_verdict verdict;

	assert_int_equal(explain_stages_init(&stages, &group, NULL), 0);
	assert_int_equal(stages.steps, 3);
	assert_int_equal(stages.length_ns, 100 * MS);
	assert_int_equal(stages.at[slow].busy_ns, busy_ns);
	verdict = explain_stages_judge(&stages);
	explain_stages_deinit(&stages);
	return verdict;
}

static void the_slow_stage_is_found(void **state)
{
	struct explain_verdict verdict = judge(2, 80 * MS, 64 * MS);

	assert_int_equal(verdict.kind, EXPLAIN_LARGE); /* all take 1.25 times their plan */
	assert_int_equal(verdict.stage, 2);
	assert_float_equal(verdict.more, 0.6, 1e-9);
	verdict = judge(0, 80 * MS, 40 * MS);
	assert_int_equal(verdict.kind, EXPLAIN_DELAYED);
	assert_int_equal(verdict.stage, 0);
	assert_float_equal(verdict.more, 0.6, 1e-9);
	verdict = judge(3, 80 * MS, 0); /* without a plan */
	assert_int_equal(verdict.kind, EXPLAIN_LARGE);
	assert_int_equal(verdict.stage, 3);
	assert_int_equal(judge(1, 52 * MS, 40 * MS).kind, EXPLAIN_EVEN);
}

static void a_group_without_steps_is_no_pipeline(void **state)
{
	struct explain_group group = make_group();
	struct explain_stages stages;

	assert_int_equal(explain_stages_init(&stages, &group, NULL), 0);
	assert_int_equal(stages.steps, 0);
	explain_stages_deinit(&stages);
}

/* One of two links has 40 MB/s, and one 100: without a third link, neither is slow. */
static void of_two_links_none_is_slow(void **state)
{
	struct explain_group group = make_group();
	struct explain_sum sum;

	assert_int_equal(explain_sum_init(&sum, &group, NULL), 0);
	assert_int_equal(sum.links_n, 2);
	assert_false(explain_link_slow(&sum, 0));
	assert_false(explain_link_slow(&sum, 1));
	explain_sum_deinit(&sum);
}

static void half_as_fast_as_the_median_is_slow(void **state)
{
	struct explain_link links[] = {{0, 1, 49e6, 1}, {1, 0, 51e6, 1}, {1, 2, 100e6, 1},
		{2, 1, 900e6, 1}, {0, 2, 900e6, 1}};
	const struct explain_sum sum = {.links = links, .links_n = 5};

	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(explain_link_slow(&sum, i), i == 0);
	}
}

/* Operations that one rank has no records of are left out. */
static void what_one_rank_has_not_is_left_out(void **state)
{
	struct explain_group group = make_group();
	struct explain_sum sum;

	traces[0].records += 3;
	traces[0].n -= 3;
	assert_int_equal(explain_sum_init(&sum, &group, NULL), 0);
	assert_int_equal(sum.ops_n, STEPS * STEP_OPS - 3);
	assert_int_equal(sum.ops[0].record->number, 3);
	explain_sum_deinit(&sum);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clocks_are_put_right),
		cmocka_unit_test(the_slow_step_and_who_was_late_are_found),
		cmocka_unit_test(the_slower_link_comes_first),
		cmocka_unit_test(of_two_links_none_is_slow),
		cmocka_unit_test(the_slow_stage_is_found),
		cmocka_unit_test(a_group_without_steps_is_no_pipeline),
		cmocka_unit_test(half_as_fast_as_the_median_is_slow),
		cmocka_unit_test(what_one_rank_has_not_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
