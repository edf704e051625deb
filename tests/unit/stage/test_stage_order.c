/* The order of calls: random histories against a slow model that reads as pawl/stage.h does; plans
 * of real schedules; late calls; allocations that fail. */
#include "stage/order.h"

#include "base/fault.h"
#include "base/rng.h"
#include "expect.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define TASKS_MAX 24u
#define CALLS_MAX 300u
#define HISTORIES 400u

static uint64_t first_seed;
static struct pawl_err err;

static struct pawl_pipe_task task_of(uint8_t kind, uint16_t chunk, uint32_t microbatch)
{
	return (struct pawl_pipe_task){.kind = kind, .chunk = chunk, .microbatch = microbatch};
}

static bool same(const struct pawl_pipe_task *a, const struct pawl_pipe_task *b)
{
	return a->kind == b->kind && a->chunk == b->chunk && a->microbatch == b->microbatch;
}

/* ---- the model ---- */

/* A call of a history, as the model sees it. */
struct told {
	struct order_call call; /* the order's part */
	bool done;              /* the call has run */
};

struct model {
	struct pawl_pipe_task tasks[TASKS_MAX]; /* the list, then tasks as calls named them */
	uint32_t list_n, tasks_n;               /* tasks of the list; all */
	struct told calls[CALLS_MAX];           /* in the order of issue */
	uint32_t calls_n;                       /* number of calls */
	bool flushed[2][64];                    /* passes of microbatches that are flushed */
	bool all_flushed;                       /* all are */
	bool passed[TASKS_MAX];                 /* was drained when all before it had been */
	bool passed_back[TASKS_MAX]; /* was drained when all before it were that others wait for */
};

/* Returns the first call of a task that is left, or NULL. */
static struct told *first_of(struct model *m, uint32_t task)
{
	for (uint32_t i = 0; i < m->calls_n; i++) {
		if (!m->calls[i].done && same(&m->calls[i].call.call.task, &m->tasks[task])) {
			return &m->calls[i];
		}
	}
	return NULL;
}

static bool drained(struct model *m, uint32_t task)
{
	const struct pawl_pipe_task *t = &m->tasks[task];

	return !first_of(m, task) &&
		(m->all_flushed || m->flushed[t->kind != PAWL_PIPE_FORWARD][t->microbatch]);
}

static bool may_run(const struct told *call)
{
	return call && call->call.missing == 0 && !call->call.running;
}

/* Returns the lowest microbatch that is not complete. */
static uint32_t lowest(struct model *m)
{
	for (uint32_t microbatch = 0;; microbatch++) {
		bool complete = m->all_flushed ||
			(microbatch < 64 && m->flushed[0][microbatch] && m->flushed[1][microbatch]);

		for (uint32_t i = 0; i < m->calls_n; i++) {
			complete &= m->calls[i].done ||
				m->calls[i].call.call.task.kind == PAWL_PIPE_WEIGHT ||
				m->calls[i].call.call.task.microbatch != microbatch;
		}
		if (!complete || microbatch + 1 == PAWL_PIPE_MICROBATCHES_MAX) {
			return microbatch;
		}
	}
}

/* Notes which tasks of the list are passed: a late call does not undo it. */
static void pass(struct model *m)
{
	bool all = true;
	bool backwards = true;

	for (uint32_t t = 0; t < m->list_n; t++) {
		bool apart = m->tasks[t].kind == PAWL_PIPE_FORWARD ||
			m->tasks[t].kind == PAWL_PIPE_WEIGHT;

		m->passed[t] |= all && drained(m, t);
		m->passed_back[t] |= backwards && (apart || drained(m, t));
		all &= m->passed[t];
		backwards &= m->passed_back[t];
	}
}

/* Returns the call that is next by the words of the header, or NULL. */
static struct told *choose(struct model *m)
{
	uint32_t low = lowest(m);
	bool all = true;       /* all tasks so far are passed */
	bool backwards = true; /* all backward passes so far are */

	pass(m);
	for (uint32_t t = 0; t < m->tasks_n; t++) {
		struct told *first = first_of(m, t);
		bool forward = m->tasks[t].kind == PAWL_PIPE_FORWARD;
		bool early = m->tasks[t].kind != PAWL_PIPE_WEIGHT &&
			((!forward && backwards) || m->tasks[t].microbatch == low);

		if (may_run(first) && (all || early)) {
			return first;
		}
		all &= t >= m->list_n || m->passed[t];
		backwards &= t >= m->list_n || m->passed_back[t];
	}
	return NULL;
}

static const struct pawl_pipe_task *current(struct model *m)
{
	pass(m);
	for (uint32_t t = 0; t < m->list_n; t++) {
		if (!m->passed[t]) {
			return &m->tasks[t];
		}
	}
	return NULL;
}

/* ---- random histories ---- */

static void make_tasks(struct model *m, struct rng *rng)
{
	m->list_n = (uint32_t)rng_below(rng, 13);
	while (m->tasks_n < m->list_n) {
		struct pawl_pipe_task task = task_of((uint8_t)rng_below(rng, PAWL_PIPE_KINDS),
			(uint16_t)rng_below(rng, 2), (uint32_t)rng_below(rng, 4));
		bool twice = false;

		for (uint32_t i = 0; i < m->tasks_n; i++) {
			twice |= same(&m->tasks[i], &task);
		}
		m->tasks[m->tasks_n] = task;
		m->tasks_n += !twice;
	}
}

/* Issues a call, sometimes of a task that is not in the list. */
static void issue(struct model *m, struct stage_order *order, struct rng *rng)
{
	struct told *call = &m->calls[m->calls_n];
	uint32_t t = (uint32_t)rng_below(rng, m->tasks_n + 1);

	if (m->calls_n == CALLS_MAX || (t == m->tasks_n && m->tasks_n == TASKS_MAX)) {
		return;
	}
	if (t == m->tasks_n) { /* a chunk that no other task has */
		m->tasks[m->tasks_n++] =
			task_of((uint8_t)rng_below(rng, 2), (uint16_t)(9 + t), t % 4);
	}
	call->call.call.task = m->tasks[t];
	call->call.missing = rng_below(rng, 2) == 0;
	m->calls_n++;
	OK(stage_order_add(order, &call->call));
}

static struct told *pick(struct model *m, struct rng *rng, bool running)
{
	uint32_t n = 0;
	struct told *found = NULL;

	for (uint32_t i = 0; i < m->calls_n; i++) {
		struct told *call = &m->calls[i];
		bool fits = !call->done && (running ? call->call.running : call->call.missing > 0);

		if (fits && rng_below(rng, ++n) == 0) {
			found = call;
		}
	}
	return found;
}

static void expect_next(struct model *m, struct stage_order *order)
{
	struct told *want = choose(m);
	const struct pawl_pipe_task *now = current(m);
	const struct order_task *got = stage_order_current(order);

	assert_true(now ? got && same(&got->task, now) : !got);
	assert_ptr_equal(stage_order_next(order), want ? &want->call : NULL);
}

static void flush(struct model *m, struct stage_order *order, struct rng *rng)
{
	bool backward = rng_below(rng, 2) == 1;
	uint32_t microbatch = (uint32_t)rng_below(rng, 4);

	m->flushed[backward][microbatch] = true;
	stage_order_flush(order, backward ? PAWL_PIPE_BACKWARD : PAWL_PIPE_FORWARD, microbatch);
}

static void act(struct model *m, struct stage_order *order, struct rng *rng)
{
	struct told *call;

	switch (rng_below(rng, 8)) {
	case 0:
	case 1:
		issue(m, order, rng);
		break;
	case 2:
	case 3:
		call = pick(m, rng, false);
		if (call) {
			call->call.missing = 0;
			stage_order_ready(order, &call->call);
		}
		break;
	case 4:
		flush(m, order, rng);
		break;
	case 5:
		call = pick(m, rng, true);
		if (call) {
			call->done = true;
			stage_order_done(order, &call->call);
		}
		break;
	default:
		expect_next(m, order);
		break;
	}
}

/* Ends a step: all that is left becomes ready and runs. */
static void finish(struct model *m, struct stage_order *order)
{
	m->all_flushed = true;
	stage_order_flush_all(order);
	for (uint32_t i = 0; i < m->calls_n; i++) {
		struct told *call = &m->calls[i];

		if (!call->done && call->call.missing > 0) {
			call->call.missing = 0;
			stage_order_ready(order, &call->call);
		}
		if (!call->done && call->call.running) {
			call->done = true;
			stage_order_done(order, &call->call);
		}
	}
	while (order->left > 0) {
		struct told *next = choose(m);

		assert_non_null(next);
		expect_next(m, order);
		next->done = true;
		stage_order_done(order, &next->call);
	}
	expect_next(m, order);
}

static void random_histories_follow_the_rule(void **state)
{
	static struct model m;
	struct stage_order order = {0};

	for (uint64_t h = 0; h < HISTORIES; h++) {
		struct rng rng = {first_seed + h};
		uint32_t steps = h % 4 == 0 ? 2 : 1; /* a second step with this list */

		memset(&m, 0, sizeof(m));
		make_tasks(&m, &rng);
		for (uint32_t s = 0; s < steps; s++) {
			m.tasks_n = m.list_n;
			m.calls_n = 0;
			memset(m.calls, 0, sizeof(m.calls));
			memset(m.flushed, 0, sizeof(m.flushed));
			memset(m.passed, 0, sizeof(m.passed));
			memset(m.passed_back, 0, sizeof(m.passed_back));
			m.all_flushed = false;
			OK(stage_order_begin(&order, m.tasks, m.list_n, &err));
			for (uint32_t i = 0; i < 250; i++) {
				act(&m, &order, &rng);
			}
			finish(&m, &order);
		}
	}
	stage_order_deinit(&order);
}

/* ---- plans ---- */

#define STAGES       3u
#define MICROBATCHES 7u

/* One call of each task, which becomes ready as the task's data would come. */
struct line {
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct stage_order orders[STAGES];
	struct order_call calls[STAGES * MICROBATCHES * 2];
	uint32_t ran[2][STAGES]; /* forward, then backward passes of each stage that have run */
};

static void make_plan(struct line *line, enum pawl_pipe_schedule schedule)
{
	struct pawl_pipe_unit units[STAGES];
	struct pawl_pipe_setting setting = {.stages = STAGES,
		.microbatches = MICROBATCHES,
		.schedule = schedule,
		.state_factor = 4};

	for (uint32_t u = 0; u < STAGES; u++) {
		units[u] = (struct pawl_pipe_unit){.name = "unit",
			.forward_s = 1,
			.backward_s = 2,
			.param_bytes = 1,
			.stage = PAWL_PIPE_ANY_STAGE};
	}
	OK(pawl_pipe_choose(&line->plan, &line->report, NULL, units, STAGES, &setting, &err));
}

static struct order_call *call_of(struct line *line, uint8_t kind, uint32_t stage,
	uint32_t microbatch)
{
	return &line->calls[(stage * MICROBATCHES + microbatch) * 2 + kind];
}

static void supply(struct line *line, uint8_t kind, uint32_t stage, uint32_t microbatch)
{
	struct order_call *call = call_of(line, kind, stage, microbatch);

	call->missing = 0;
	stage_order_ready(&line->orders[stage], call);
}

/* Carries out a call of a stage: its passes of one kind run in the order of the plan, and no more
 * microbatches live than the plan has. */
static void run_task(struct line *line, uint32_t stage, struct order_call *call)
{
	const struct pawl_pipe_task *task = &call->call.task;

	assert_int_equal(task->microbatch, line->ran[task->kind][stage]);
	line->ran[task->kind][stage]++;
	assert_true(
		line->ran[0][stage] - line->ran[1][stage] <= line->report.stage[stage].peak_live);
	stage_order_done(&line->orders[stage], call);
	if (task->kind == PAWL_PIPE_FORWARD && stage + 1 < STAGES) {
		supply(line, PAWL_PIPE_FORWARD, stage + 1, task->microbatch);
	} else if (task->kind == PAWL_PIPE_FORWARD) {
		supply(line, PAWL_PIPE_BACKWARD, stage, task->microbatch);
	} else if (stage > 0) {
		supply(line, PAWL_PIPE_BACKWARD, stage - 1, task->microbatch);
	}
}

static void issue_all(struct line *line)
{
	for (uint32_t s = 0; s < STAGES; s++) {
		OK(stage_order_begin(&line->orders[s], line->plan.tasks + line->plan.first[s],
			line->plan.first[s + 1] - line->plan.first[s], &err));
	}
	for (uint32_t m = 0; m < MICROBATCHES; m++) { /* the driver issues in its own order */
		for (uint8_t kind = 0; kind < 2; kind++) {
			for (uint32_t s = 0; s < STAGES; s++) {
				struct order_call *call = call_of(line, kind, s, m);

				call->call.task = task_of(kind, (uint16_t)s, m);
				call->missing = kind == PAWL_PIPE_BACKWARD || s > 0;
				OK(stage_order_add(&line->orders[s], call));
				stage_order_flush(&line->orders[s], (enum pawl_pipe_kind)kind, m);
			}
		}
	}
}

/* All ranks follow the plan, whatever rank is faster. */
static void ranks_follow_the_plan(void **state)
{
	static const enum pawl_pipe_schedule schedules[] = {PAWL_PIPE_1F1B, PAWL_PIPE_SIMPLE,
		PAWL_PIPE_LISTED};
	struct rng rng = {first_seed};

	for (uint32_t i = 0; i < 3; i++) {
		struct line *line = calloc(1, sizeof(*line));
		uint32_t left = STAGES * MICROBATCHES * 2;

		assert_non_null(line);
		make_plan(line, schedules[i]);
		issue_all(line);
		for (uint32_t tries = 0; left > 0; tries++) {
			uint32_t s = (uint32_t)rng_below(&rng, STAGES);
			struct order_call *call = stage_order_next(&line->orders[s]);

			assert_true(tries < 100000);
			if (call) {
				run_task(line, s, call);
				left--;
			}
		}
		for (uint32_t s = 0; s < STAGES; s++) {
			assert_null(stage_order_current(&line->orders[s]));
			stage_order_deinit(&line->orders[s]);
		}
		pawl_pipe_plan_deinit(&line->plan);
		pawl_pipe_report_deinit(&line->report);
		free(line);
	}
}

/* ---- single rules ---- */

/* A late call of a task that was drained runs before all later tasks, and holds up none. */
static void late_call_goes_first(void **state)
{
	const struct pawl_pipe_task list[] = {task_of(0, 0, 0), task_of(0, 0, 1), task_of(0, 0, 2)};
	struct order_call later = {.call.task = list[1]};
	struct order_call last = {.call.task = list[1]};
	struct order_call late = {.call.task = list[0], .missing = 1};
	struct stage_order order = {0};

	OK(stage_order_begin(&order, list, 3, &err));
	stage_order_flush(&order, PAWL_PIPE_FORWARD, 0);
	OK(stage_order_add(&order, &later));
	OK(stage_order_add(&order, &last));
	assert_int_equal(stage_order_current(&order)->at, 1);
	OK(stage_order_add(&order, &late));
	assert_ptr_equal(stage_order_next(&order), &later);
	assert_null(stage_order_next(&order)); /* one call of a task at a time */
	stage_order_done(&order, &later);
	late.missing = 0;
	stage_order_ready(&order, &late);
	assert_ptr_equal(stage_order_next(&order), &late);
	stage_order_done(&order, &late);
	assert_ptr_equal(stage_order_next(&order), &last);
	stage_order_done(&order, &last);
	stage_order_deinit(&order);
}

/* T5's embedding on the last stage: the first microbatch comes there a second time, behind passes
 * that wait for it. A backward pass need not wait for a forward pass, and the lowest microbatch
 * waits for none. */
static void visits_do_not_stand_still(void **state)
{
	const struct pawl_pipe_task list[] = {task_of(0, 0, 0), task_of(0, 0, 1), task_of(1, 0, 0),
		task_of(0, 1, 0)};
	struct order_call stuck = {.call.task = list[1], .missing = 1};
	struct order_call back = {.call.task = list[2]};
	struct order_call visit = {.call.task = list[3]};
	struct stage_order order = {0};

	OK(stage_order_begin(&order, list, 4, &err));
	stage_order_flush(&order, PAWL_PIPE_FORWARD, 0);
	OK(stage_order_add(&order, &stuck));
	OK(stage_order_add(&order, &visit));
	OK(stage_order_add(&order, &back));
	assert_int_equal(stage_order_current(&order)->at, 1);
	assert_ptr_equal(stage_order_next(&order), &back);
	stage_order_done(&order, &back);
	assert_ptr_equal(stage_order_next(&order), &visit);
	stage_order_done(&order, &visit);
	assert_null(stage_order_next(&order));
	stuck.missing = 0;
	stage_order_ready(&order, &stuck);
	assert_ptr_equal(stage_order_next(&order), &stuck);
	stage_order_done(&order, &stuck);
	stage_order_deinit(&order);
}

static void lists_are_checked(void **state)
{
	const struct pawl_pipe_task twice[] = {task_of(0, 0, 0), task_of(1, 0, 0),
		task_of(0, 0, 0)};
	const struct pawl_pipe_task kinds[] = {task_of(PAWL_PIPE_KINDS, 0, 0)};
	const struct pawl_pipe_task far[] = {task_of(0, 0, PAWL_PIPE_MICROBATCHES_MAX)};
	struct stage_order order = {0};

	FAILS(PAWL_EINVAL, stage_order_begin(&order, twice, 3, &err));
	assert_non_null(strstr(err.msg, "task 2 "));
	FAILS(PAWL_EINVAL, stage_order_begin(&order, kinds, 1, &err));
	FAILS(PAWL_EINVAL, stage_order_begin(&order, far, 1, &err));
	FAILS(PAWL_EINVAL, stage_order_begin(&order, twice, PAWL_PIPE_TASKS_MAX + 1, &err));
	OK(stage_order_begin(&order, twice, 2, &err));
	FAILS(PAWL_EINVAL, stage_order_begin(&order, twice, 3, &err));
	assert_int_equal(order.list_n, 2); /* the list before stays */
	stage_order_deinit(&order);
}

/* Each allocation fails in turn; what failed has changed nothing. */
static void no_memory(void **state)
{
	struct pawl_pipe_task list[40];
	struct stage_order order = {0};
	struct order_call calls[60];
	uint32_t added = 0;

	for (uint32_t i = 0; i < 40; i++) {
		list[i] = task_of(0, 0, i);
	}
	fault_arm("stage.order", 1, ENOMEM, false);
	FAILS(PAWL_ENOMEM, stage_order_begin(&order, list, 40, &err));
	fault_arm("stage.order", 2, ENOMEM, false);
	FAILS(PAWL_ENOMEM, stage_order_begin(&order, list, 40, &err));
	fault_disarm();
	OK(stage_order_begin(&order, list, 40, &err));
	stage_order_flush_all(&order);
	assert_null(stage_order_current(&order));
	memset(calls, 0, sizeof(calls));
	for (uint32_t i = 0; added < 60;) { /* late calls and tasks that are not in the list */
		calls[added].call.task = added < 20 ? list[added] : task_of(1, 1, added);
		fault_arm("stage.order", ++i, ENOMEM, false);
		if (stage_order_add(&order, &calls[added]) == 0) {
			added++;
			i = 0;
		}
		fault_disarm();
		assert_int_equal(order.left, added);
	}
	for (uint32_t i = 0; i < 60; i++) {
		assert_ptr_equal(stage_order_next(&order), &calls[i]);
		stage_order_done(&order, &calls[i]);
	}
	OK(stage_order_add(&order, &calls[3]));
	assert_ptr_equal(stage_order_take_any(&order), &calls[3]);
	assert_null(stage_order_take_any(&order));
	stage_order_deinit(&order);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_histories_follow_the_rule),
		cmocka_unit_test(ranks_follow_the_plan),
		cmocka_unit_test(late_call_goes_first),
		cmocka_unit_test(visits_do_not_stand_still),
		cmocka_unit_test(lists_are_checked),
		cmocka_unit_test(no_memory),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
