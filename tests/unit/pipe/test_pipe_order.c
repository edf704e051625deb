/* Orders of all schedules: none deadlocks, their bubbles are those of the formulas, and tasks are
 * in order of microbatches. As a control, Megatron's order for any number of microbatches
 * deadlocks, which the simulation reports. */
#include "pipe/order.h"
#include "pipe_models.h"

#include <stdlib.h>

#define STAGES_MAX       8u
#define MICROBATCHES_MAX 33u
#define EACH_MAX         4u
#define EXACT            1e-9

/* A schedule of a model with equal units, one for each chunk. */
struct pipeline {
	uint32_t p; /* stages */
	uint32_t m; /* microbatches */
	uint32_t v; /* chunks of a stage */
	struct model model;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
};

/* Each chunk's tasks of one kind are in ascending order of microbatches. */
static void expect_ascending(const struct pawl_pipe_plan *plan)
{
	uint32_t next[STAGES_MAX * EACH_MAX][PAWL_PIPE_KINDS] = {{0}};

	for (uint32_t i = 0; i < plan->first[plan->stages]; i++) {
		const struct pawl_pipe_task *task = &plan->tasks[i];

		assert_int_equal(task->microbatch, next[task->chunk][task->kind]++);
	}
}

static void plan(struct pipeline *line, enum pawl_pipe_schedule schedule)
{
	make_equal(&line->model, line->p * line->v, line->p, line->m);
	line->model.setting.schedule = schedule;
	line->model.setting.each = schedule == PAWL_PIPE_INTERLEAVED ? line->v : 0;
	choose(&line->model, &line->plan, &line->report);
	assert_int_equal(line->plan.schedule, schedule);
	assert_int_equal(line->plan.chunks_n, line->p * line->v);
	assert_true(line->report.finish_s >= line->report.bound_s * (1 - EXACT));
	assert_close(line->report.step_s, line->report.finish_s, EXACT);
	expect_ascending(&line->plan);
}

static void expect_bubble(const struct pipeline *line, double bubble)
{
	if (fabs(line->report.bubble - bubble) > EXACT) {
		fail_msg("%s, %u stages, %u microbatches, %u chunks a stage: bubble %.12g, not "
			 "%.12g",
			pawl_pipe_schedule_name(line->plan.schedule), line->p, line->m, line->v,
			line->report.bubble, bubble);
	}
}

static void expect_live(const struct pipeline *line, uint32_t s, uint32_t live)
{
	assert_int_equal(line->report.stage[s].peak_live, live);
	assert_int_equal(line->report.stage[s].peak_bytes, line->v * 100 + 10 * live);
}

/* Runs a check for all numbers of stages and microbatches. */
static void for_all(void (*check)(struct pipeline *line), uint32_t v)
{
	static struct pipeline line;

	for (line.p = 1; line.p <= STAGES_MAX; line.p++) {
		for (line.m = 1; line.m <= MICROBATCHES_MAX; line.m++) {
			line.v = v;
			check(&line);
		}
	}
}

static uint32_t less(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* ---- one chunk a stage ---- */

static void check_simple(struct pipeline *line)
{
	plan(line, PAWL_PIPE_SIMPLE);
	expect_bubble(line, (line->p - 1.0) / line->m);
	for (uint32_t s = 0; s < line->p; s++) {
		expect_live(line, s, line->m);
	}
	release(&line->plan, &line->report);
}

static void simple_is_gpipe_s_formula(void **state)
{
	for_all(check_simple, 1);
}

static void check_1f1b(struct pipeline *line)
{
	plan(line, PAWL_PIPE_1F1B);
	expect_bubble(line, (line->p - 1.0) / line->m);
	for (uint32_t s = 0; s < line->p; s++) {
		expect_live(line, s, less(line->m, line->p - s));
	}
	release(&line->plan, &line->report);
}

static void one_f_one_b_keeps_few_activations(void **state)
{
	for_all(check_1f1b, 1);
}

static void check_zero_bubble(struct pipeline *line)
{
	plan(line, PAWL_PIPE_ZERO_BUBBLE);
	if (line->m >= line->p) {
		expect_bubble(line, (line->p - 1.0) / (3.0 * line->m));
	}
	for (uint32_t s = 0; s < line->p; s++) {
		expect_live(line, s, less(line->m, line->p + 1));
	}
	release(&line->plan, &line->report);
}

static void zero_bubble_is_a_third_of_1f1b(void **state)
{
	for_all(check_zero_bubble, 1);
}

static void check_listed(struct pipeline *line)
{
	plan(line, PAWL_PIPE_LISTED);
	expect_bubble(line, (line->p - 1.0) / line->m);
	assert_true(line->plan.inflight > 0);
	release(&line->plan, &line->report);
}

static void listed_orders_of_equal_chunks_are_as_fast(void **state)
{
	for_all(check_listed, 1);
}

/* ---- several chunks a stage ---- */

static void check_interleaved(struct pipeline *line)
{
	if (line->p == 1) {
		return;
	}
	plan(line, PAWL_PIPE_INTERLEAVED);
	if (line->m >= line->p) {
		expect_bubble(line, (line->p - 1.0) / (line->v * line->m));
	}
	for (uint32_t s = 0; s < line->p && line->m % line->p == 0; s++) {
		expect_live(line, s,
			less(line->m * line->v,
				2 * (line->p - s - 1) + (line->v - 1) * line->p + 1));
	}
	release(&line->plan, &line->report);
}

static void interleaved_is_exact_for_ragged_microbatches_too(void **state)
{
	for (uint32_t v = 2; v <= EACH_MAX; v++) {
		for_all(check_interleaved, v);
	}
}

/* No order can have less than (p - 1) / (6 m): the last stage waits for its first input. */
static void check_zbv(struct pipeline *line)
{
	if (line->p == 1) {
		return;
	}
	plan(line, PAWL_PIPE_ZBV);
	if (line->m >= line->p) {
		expect_bubble(line, (line->p - 1.0) / (6.0 * line->m));
	}
	for (uint32_t s = 0; s < line->p; s++) {
		assert_true(line->report.stage[s].peak_live <= 2 * line->p + 4);
	}
	release(&line->plan, &line->report);
}

static void zbv_is_a_sixth_of_1f1b(void **state)
{
	for_all(check_zbv, 2);
}

/* ---- Megatron's own rule, as a control ---- */

/* Returns the chunk and microbatch of the n-th turn, in groups of p microbatches. */
static struct pawl_pipe_task find_turn(const struct pipeline *line, uint32_t stage, bool forward,
	uint32_t n)
{
	uint32_t group = n / (line->p * line->v);
	uint32_t size = less(line->p, line->m - group * line->p);
	uint32_t left = n - group * line->p * line->v;
	uint32_t turn = forward ? left / size : line->v - 1 - left / size;

	return (struct pawl_pipe_task){forward ? PAWL_PIPE_FORWARD : PAWL_PIPE_BACKWARD,
		(uint16_t)(turn * line->p + stage), group * line->p + left % size};
}

/* Replaces the plan's order by Megatron's, with a short last group. */
static void order_as_megatron(struct pipeline *line)
{
	uint32_t all = line->m * line->v;
	uint32_t n = 0;

	for (uint32_t s = 0; s < line->p; s++) {
		uint32_t ahead = less(all, 2 * (line->p - s - 1) + (line->v - 1) * line->p);

		assert_int_equal(line->plan.first[s], n);
		for (uint32_t i = 0; i < ahead; i++) {
			line->plan.tasks[n++] = find_turn(line, s, true, i);
		}
		for (uint32_t i = 0; i < all; i++) {
			if (i + ahead < all) {
				line->plan.tasks[n++] = find_turn(line, s, true, i + ahead);
			}
			line->plan.tasks[n++] = find_turn(line, s, false, i);
		}
	}
}

/* Each stage of a cycle has its task next, and needs one of the next stage's. */
static void check_cycle(const struct pipeline *line, const struct pawl_pipe_report *report)
{
	assert_true(report->waits_n > 0 && report->waits_n <= line->p);
	for (uint32_t i = 0; i < report->waits_n; i++) {
		const struct pawl_pipe_wait *wait = &report->waits[i];
		const struct pawl_pipe_wait *next = &report->waits[(i + 1) % report->waits_n];

		assert_int_equal(line->plan.chunks[wait->task.chunk].stage, wait->stage);
		assert_int_equal(line->plan.chunks[wait->needs.chunk].stage, next->stage);
		assert_int_equal(wait->task.microbatch, wait->needs.microbatch);
	}
}

/* Returns whether Megatron's order of a pipeline deadlocks. */
static bool deadlocks(struct pipeline *line, struct pawl_err *err)
{
	struct pawl_pipe_report report;
	int rv;

	plan(line, PAWL_PIPE_INTERLEAVED);
	order_as_megatron(line);
	rv = pawl_pipe_verify(&report, &line->plan, err);
	if (rv != 0) {
		assert_int_equal(rv, PAWL_EINVAL);
		check_cycle(line, &report);
	} else if (line->m >= line->p) {
		assert_true(report.bubble >= line->report.bubble - EXACT);
	}
	pawl_pipe_report_deinit(&report);
	release(&line->plan, &line->report);
	return rv != 0;
}

static void megatron_s_order_of_5_microbatches_is_reported_as_a_cycle(void **state)
{
	static struct pipeline line = {.p = 4, .m = 5, .v = 3};
	struct pawl_err err;

	assert_true(deadlocks(&line, &err));
	print_message("%s\n", err.msg);
	assert_non_null(strstr(err.msg, "wait for each other for ever: stage "));
	assert_non_null(strstr(err.msg, "of chunk "));
	line.m = 4;
	assert_false(deadlocks(&line, &err));
	line = (struct pipeline){.p = 5, .m = 7, .v = 2};
	assert_true(deadlocks(&line, &err));
}

static void megatron_s_order_deadlocks_in_167_of_768_plans(void **state)
{
	static struct pipeline line;
	struct pawl_err err;
	uint32_t found = 0;

	for (line.p = 2; line.p <= STAGES_MAX; line.p++) {
		for (line.m = 1; line.m < MICROBATCHES_MAX; line.m++) {
			for (line.v = 2; line.v <= EACH_MAX; line.v++) {
				found += deadlocks(&line, &err);
			}
		}
	}
	assert_int_equal(found, 167);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(simple_is_gpipe_s_formula),
		cmocka_unit_test(one_f_one_b_keeps_few_activations),
		cmocka_unit_test(zero_bubble_is_a_third_of_1f1b),
		cmocka_unit_test(listed_orders_of_equal_chunks_are_as_fast),
		cmocka_unit_test(interleaved_is_exact_for_ragged_microbatches_too),
		cmocka_unit_test(zbv_is_a_sixth_of_1f1b),
		cmocka_unit_test(megatron_s_order_of_5_microbatches_is_reported_as_a_cycle),
		cmocka_unit_test(megatron_s_order_deadlocks_in_167_of_768_plans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
