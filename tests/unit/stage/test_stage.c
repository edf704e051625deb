/* A stage of one rank: what its calls promise, in one thread and several, in a forked child, and
 * when memory is short. */
#include "pawl/stage.h"

#include "base/fault.h"
#include "expect.h"
#include "within.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define LONG_NS  within_ns(WITHIN_LONG_S)
#define MANY     20000u
#define HELD_MAX 64

static struct pawl_err err;
static struct pawl_stage_event event;
static int held[HELD_MAX]; /* objects of values: how often they were released */

static struct pawl_stage_value value_of(uint64_t id, int object, const void *data, uint64_t len)
{
	return (struct pawl_stage_value){.id = id,
		.data = data,
		.len_bytes = len,
		.held = &held[object]};
}

static void release(void *object)
{
	(*(int *)object)++;
}

static void drain(struct pawl_stage *stage)
{
	void *object;

	while ((object = pawl_stage_released(stage)) != NULL) {
		release(object);
	}
}

static struct pawl_stage *open_one(void)
{
	struct pawl_stage *stage = NULL;

	memset(held, 0, sizeof(held));
	OK(pawl_stage_open(&stage, NULL, &err));
	return stage;
}

static void expect_event(struct pawl_stage *stage, enum pawl_stage_kind kind)
{
	OK(pawl_stage_next(stage, 0, &event, &err));
	assert_int_equal(event.kind, kind);
}

static void a_step_of_one_rank(void **state)
{
	const struct pawl_pipe_task tasks[] = {{0, 0, 0}, {1, 0, 0}};
	const uint64_t needs[] = {1, 10, 1};
	struct pawl_stage *stage = open_one();
	struct pawl_stage_value made[2] = {value_of(10, 1, "ten", 3), value_of(11, 2, NULL, 0)};
	struct pawl_stage_value own = value_of(1, 0, "own", 3);
	struct pawl_stage_stats stats;
	struct pawl_pipe_task task;

	OK(pawl_stage_begin(stage, tasks, 2, &err));
	OK(pawl_stage_call(stage, 0, &(struct pawl_stage_call){.id = 10, .outs = 2}, &err));
	OK(pawl_stage_call(stage, 0,
		&(struct pawl_stage_call){.id = 20,
			.task = tasks[1],
			.needs_n = 3,
			.needs = needs,
			.blob = "blob",
			.blob_len = 4},
		&err));
	OK(pawl_stage_free(stage, 0, 10, &err));
	OK(pawl_stage_watch(stage, 11, &err));
	OK(pawl_stage_flush(stage, PAWL_PIPE_FORWARD, 0, &err));
	OK(pawl_stage_note(stage, 0, "note", 4, &err));
	OK(pawl_stage_put(stage, &own, &err));
	assert_true(pawl_stage_current(stage, &task) && task.kind == 0);
	expect_event(stage, PAWL_STAGE_NOTE);
	assert_memory_equal(event.bytes, "note", 4);
	expect_event(stage, PAWL_STAGE_CALL);
	assert_int_equal(event.call.id, 10);
	expect_event(stage, PAWL_STAGE_NOTHING);
	OK(pawl_stage_done(stage, 10, made, 2, &err));
	expect_event(stage, PAWL_STAGE_ARRIVED);
	assert_ptr_equal(event.values[0]->held, &held[2]);
	assert_ptr_equal(pawl_stage_replace(stage, event.values[0], &held[3]), &held[2]);
	assert_null(
		pawl_stage_keep(stage, event.values[0], &held[4])); /* the value has an object */
	expect_event(stage, PAWL_STAGE_CALL);
	assert_true(pawl_stage_current(stage, &task) && task.kind == 1);
	assert_int_equal(event.call.id, 20);
	assert_memory_equal(event.call.blob, "blob", 4);
	assert_memory_equal(event.values[0]->data, "own", 3);
	assert_memory_equal(event.values[1]->data, "ten", 3);
	assert_ptr_equal(event.values[0], event.values[2]);
	assert_null(pawl_stage_released(stage));
	OK(pawl_stage_done(stage, 20, NULL, 0, &err));
	assert_ptr_equal(pawl_stage_released(stage), &held[1]); /* freed, and not needed any more */
	expect_event(stage, PAWL_STAGE_NOTHING);
	OK(pawl_stage_end(stage, &err));
	expect_event(stage, PAWL_STAGE_END);
	drain(stage);
	assert_true(held[0] == 1 && held[1] == 0 && held[2] == 0 && held[3] == 1 && held[4] == 0);
	assert_false(pawl_stage_current(stage, &task));
	pawl_stage_stats(stage, &stats);
	assert_true(stats.calls_issued == 2 && stats.calls_done == 2 && stats.values_now == 0);
	OK(pawl_stage_begin(stage, tasks, 2, &err));
	pawl_stage_close(stage, release);
}

/* Whatever the stage has of the caller's, close hands out. */
static void close_hands_out_all(void **state)
{
	struct pawl_stage *stage = open_one();
	struct pawl_stage_value values[4] = {value_of(0, 0, "a", 1), value_of(1, 1, "b", 1),
		value_of(2, 2, "c", 1), value_of(3, 3, "d", 1)};

	OK(pawl_stage_begin(stage, NULL, 0, &err));
	for (uint32_t i = 0; i < 4; i++) {
		OK(pawl_stage_put(stage, &values[i], &err));
	}
	OK(pawl_stage_free(stage, 0, 1, &err)); /* released, and not taken */
	OK(pawl_stage_watch(stage, 2, &err));
	OK(pawl_stage_call(stage, 0,
		&(struct pawl_stage_call){.id = 9, .outs = 1, .needs_n = 1, .needs = &values[3].id},
		&err));
	expect_event(stage, PAWL_STAGE_ARRIVED);
	expect_event(stage, PAWL_STAGE_CALL);
	OK(pawl_stage_note(stage, 0, "note", 4, &err));
	pawl_stage_leave(stage);
	pawl_stage_leave(stage);
	FAILS(PAWL_ECANCELED, pawl_stage_done(stage, 9, NULL, 0, &err));
	pawl_stage_close(stage, release);
	assert_true(held[0] == 1 && held[1] == 1 && held[2] == 1 && held[3] == 1);
	pawl_stage_close(NULL, release);
}

static void arguments_are_checked(void **state)
{
	struct pawl_stage *stage = open_one();
	struct pawl_stage_value bad = value_of(1, 0, NULL, 5);
	char byte = 0;

	FAILS(PAWL_EINVAL, pawl_stage_note(stage, 0, "", 0, &err)); /* no step */
	FAILS(PAWL_EINVAL, pawl_stage_end(stage, &err));
	OK(pawl_stage_begin(stage, NULL, 0, &err));
	FAILS(PAWL_EINVAL, pawl_stage_begin(stage, NULL, 0, &err));
	FAILS(PAWL_EINVAL, pawl_stage_call(stage, 1, &(struct pawl_stage_call){.id = 1}, &err));
	FAILS(PAWL_EINVAL, pawl_stage_push(stage, 0, 1, 0, &err));
	FAILS(PAWL_EINVAL, pawl_stage_push(stage, 0, 1, 1, &err));
	FAILS(PAWL_EINVAL, pawl_stage_supply(stage, 1, &byte, &err)); /* no such value */
	bad.held = NULL;
	FAILS(PAWL_EINVAL, pawl_stage_put(stage, &bad, &err)); /* no object */
	bad.held = &byte;
	bad.meta_len = PAWL_STAGE_META_MAX + 1;
	FAILS(PAWL_ELIMIT, pawl_stage_put(stage, &bad, &err));
	FAILS(PAWL_ELIMIT, pawl_stage_note(stage, 0, &byte, PAWL_STAGE_NOTE_MAX + 1, &err));
	FAILS(PAWL_ELIMIT, pawl_stage_fail(stage, &byte, PAWL_STAGE_NOTE_MAX + 1, &err));
	assert_int_equal(pawl_stage_note(stage, 0, NULL, 0, NULL), 0);
	assert_int_equal(pawl_stage_call(stage, 1, &(struct pawl_stage_call){.id = 1}, NULL),
		PAWL_EINVAL);
	pawl_stage_close(stage, NULL);
}

static void failing_is_said_again_and_again(void **state)
{
	struct pawl_stage *stage = open_one();

	OK(pawl_stage_begin(stage, NULL, 0, &err));
	OK(pawl_stage_note(stage, 0, "note", 4, &err));
	OK(pawl_stage_fail(stage, "first", 5, &err));
	OK(pawl_stage_fail(stage, "second", 6, &err));
	for (int i = 0; i < 3; i++) {
		expect_event(stage, PAWL_STAGE_FAILED);
		assert_int_equal(event.rank, 0);
		assert_int_equal(event.len_bytes, 5);
		assert_memory_equal(event.bytes, "first", 5);
	}
	pawl_stage_close(stage, NULL);
}

/* ---- threads ---- */

static void *wait_for_leave(void *user)
{
	struct pawl_stage_event got;
	struct pawl_err why;
	int rv = IN_TIME(pawl_stage_next(user, LONG_NS, &got, &why));

	return (void *)(intptr_t)(rv == 0 && got.kind == PAWL_STAGE_NOTHING ? PAWL_ETIMEDOUT : rv);
}

static void leaving_wakes_who_waits(void **state)
{
	struct pawl_stage *stage = open_one();
	pthread_t thread;
	void *rv;

	pthread_create(&thread, NULL, wait_for_leave, stage);
	within_pace(0.01);
	pawl_stage_leave(stage);
	pthread_join(thread, &rv);
	assert_int_equal((intptr_t)rv, PAWL_ECANCELED);
	FAILS(PAWL_ECANCELED, pawl_stage_begin(stage, NULL, 0, &err));
	FAILS(PAWL_ECANCELED, pawl_stage_next(stage, 0, &event, &err));
	pawl_stage_close(stage, NULL);
}

static void *issue_many(void *user)
{
	struct pawl_err why;
	int rv = 0;

	for (uint64_t i = 0; i < MANY && rv == 0; i++) {
		rv = pawl_stage_call(user, 0,
			&(struct pawl_stage_call){.id = i * 2, .outs = 1, .task = {0, 0, i % 3}},
			&why);
		rv = rv == 0 ? pawl_stage_free(user, 0, i * 2, &why) : rv;
	}
	return (void *)(intptr_t)(rv == 0 ? pawl_stage_end(user, &why) : rv);
}

/* The waiting thread misses nothing: with each call it may fall asleep. */
static void no_wake_up_is_lost(void **state)
{
	struct pawl_stage *stage = open_one();
	uint64_t next[3] = {0, 2, 4};
	uint32_t calls = 0;
	pthread_t thread;
	void *rv;

	OK(pawl_stage_begin(stage, NULL, 0, &err));
	pthread_create(&thread, NULL, issue_many, stage);
	for (;;) {
		struct pawl_stage_value made;

		OK(IN_TIME(pawl_stage_next(stage, LONG_NS, &event, &err)));
		if (event.kind != PAWL_STAGE_CALL) {
			break;
		}
		assert_int_equal(event.call.id, next[event.call.task.microbatch]);
		next[event.call.task.microbatch] += 6;
		made = value_of(event.call.id, 0, NULL, 0);
		OK(pawl_stage_done(stage, event.call.id, &made, 1, &err));
		calls++;
		drain(stage);
	}
	assert_int_equal(event.kind, PAWL_STAGE_END);
	assert_int_equal(calls, MANY);
	pthread_join(thread, &rv);
	assert_null(rv);
	drain(stage);
	assert_int_equal(held[0], MANY);
	pawl_stage_close(stage, NULL);
}

/* ---- a forked child ---- */

/* Exits with the number of the first call that did not refuse. */
static void use_in_child(struct pawl_stage *stage, struct pawl_stage_memory *memory)
{
	struct pawl_stage_value v = value_of(5, 0, NULL, 0);
	struct pawl_stage_stats stats;
	struct pawl_pipe_task task;
	int code[] = {pawl_stage_begin(stage, NULL, 0, &err),
		pawl_stage_call(stage, 0, &(struct pawl_stage_call){.id = 7}, &err),
		pawl_stage_push(stage, 0, 1, 1, &err), pawl_stage_free(stage, 0, 1, &err),
		pawl_stage_flush(stage, PAWL_PIPE_FORWARD, 0, &err),
		pawl_stage_note(stage, 0, "x", 1, &err), pawl_stage_end(stage, &err),
		pawl_stage_send(stage, &err), pawl_stage_watch(stage, 1, &err),
		pawl_stage_put(stage, &v, &err), pawl_stage_next(stage, -1, &event, &err),
		pawl_stage_done(stage, 1, NULL, 0, &err), pawl_stage_fail(stage, "x", 1, &err)};

	for (size_t i = 0; i < sizeof(code) / sizeof(*code); i++) {
		/* there is no rank 1 to push to, in any process */
		if (code[i] != PAWL_ENOTSUP && !(i == 2 && code[i] == PAWL_EINVAL)) {
			_exit(1 + (int)i);
		}
	}
	pawl_stage_stats(stage, &stats);
	if (stats.calls_issued != 0 || pawl_stage_current(stage, &task) ||
		pawl_stage_released(stage) || pawl_stage_keep(stage, &v, &v)) {
		_exit(20);
	}
	pawl_stage_memory_release(memory);
	pawl_stage_leave(stage);
	pawl_stage_close(stage, release);
	_exit(0);
}

/* A fork may be taken while another thread has the lock. */
static void *hold_lock(void *user)
{
	struct pawl_stage_stats stats;
	atomic_bool *stop = ((void **)user)[1];

	while (!atomic_load(stop)) {
		pawl_stage_stats(((void **)user)[0], &stats);
	}
	return NULL;
}

static void a_forked_child_is_refused(void **state)
{
	struct pawl_stage *stage = open_one();
	atomic_bool stop = false;
	void *user[2] = {stage, &stop};
	struct pawl_stage_value own = value_of(1, 0, "own", 3);
	pthread_t thread;

	OK(pawl_stage_begin(stage, NULL, 0, &err));
	OK(pawl_stage_put(stage, &own, &err));
	OK(pawl_stage_call(stage, 0, &(struct pawl_stage_call){.id = 3}, &err));
	pthread_create(&thread, NULL, hold_lock, user);
	for (int i = 0; i < 5; i++) {
		pid_t child = fork();
		int status;

		assert_true(child >= 0);
		if (child == 0) {
			use_in_child(stage, NULL);
		}
		status = WITHIN_CHILD(child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	expect_event(stage, PAWL_STAGE_CALL); /* the parent goes on */
	pawl_stage_close(stage, release);
	assert_int_equal(held[0], 1);
}

/* ---- no memory ---- */

static void memory_may_be_short(void **state)
{
	struct pawl_stage *stage = NULL;
	struct pawl_stage_value own = value_of(1, 0, "own", 3);
	uint64_t nth = 1;
	int rv;

	do {
		fault_arm("stage.", nth++, ENOMEM, false);
		rv = pawl_stage_open(&stage, NULL, &err);
		fault_disarm();
		assert_true(rv == 0 || rv == PAWL_ENOMEM);
	} while (rv != 0);
	assert_true(nth > 3);
	OK(pawl_stage_begin(stage, NULL, 0, &err));
	fault_arm("stage.", 1, ENOMEM, true);
	FAILS(PAWL_ENOMEM, pawl_stage_put(stage, &own, &err));
	FAILS(PAWL_ENOMEM, pawl_stage_watch(stage, 1, &err));
	FAILS(PAWL_ENOMEM, pawl_stage_free(stage, 0, 1, &err));
	FAILS(PAWL_ENOMEM, pawl_stage_note(stage, 0, "x", 1, &err));
	FAILS(PAWL_ENOMEM, pawl_stage_call(stage, 0, &(struct pawl_stage_call){.id = 3}, &err));
	FAILS(PAWL_ENOMEM, pawl_stage_fail(stage, "x", 1, &err));
	fault_disarm();
	OK(pawl_stage_end(stage, &err)); /* none of it has happened */
	expect_event(stage, PAWL_STAGE_END);
	pawl_stage_close(stage, release);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_of_one_rank),
		cmocka_unit_test(close_hands_out_all),
		cmocka_unit_test(arguments_are_checked),
		cmocka_unit_test(failing_is_said_again_and_again),
		cmocka_unit_test(leaving_wakes_who_waits),
		cmocka_unit_test(no_wake_up_is_lost),
		cmocka_unit_test(a_forked_child_is_refused),
		cmocka_unit_test(memory_may_be_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
