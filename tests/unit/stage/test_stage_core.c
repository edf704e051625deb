/* A rank's part of a step: random histories against a plain model. Values go exactly when nothing
 * keeps them, the step ends exactly when all is done, and an allocation that fails changes
 * nothing. */
#include "stage/core.h"

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

#define VALUES_MAX 400u
#define CALLS_MAX  200u
#define NEEDS_MAX  4u
#define HISTORIES  1000u
#define ACTIONS    300u

static uint64_t first_seed;
static struct pawl_err err;

/* A value, as the model sees it. */
struct told {
	bool ours;       /* the test puts it; else a call makes it */
	bool present;    /* the bytes are there */
	bool freed;      /* the driver has freed it */
	bool gone;       /* the table has dropped the value */
	uint32_t claims; /* calls, pushes and watches that need it */
	uint32_t place;  /* place of the task that makes it; 0 if the test puts it */
	uint32_t pushes; /* pushes that wait for the value, or for its bytes */
	bool wanted;     /* a push needs the bytes, which are elsewhere */
	bool asked;      /* bytes were asked for, and are not supplied */
};

struct told_call {
	uint64_t id;               /* number, and that of its first value */
	uint32_t outs, needs_n;    /* values it makes; needs */
	uint64_t needs[NEEDS_MAX]; /* values it takes */
	bool running, done;
};

static struct model {
	struct stage_core core;
	struct told values[VALUES_MAX]; /* by number */
	uint64_t values_n;              /* numbers given so far */
	struct told_call calls[CALLS_MAX];
	uint32_t calls_n;
	uint32_t calls_left;               /* calls that are not done */
	uint32_t pushes, watches, notes;   /* asked for, and not taken, reported, reported */
	uint32_t wants;                    /* values whose bytes are wanted, and not asked for */
	struct stage_value *sending[1000]; /* pushes that were taken */
	uint32_t sending_n;
	uint64_t reported;            /* value of the last event; UINT64_MAX: none */
	uint32_t note_next, note_got; /* numbers of notes */
	bool ended;                   /* the driver has ended the step */
	bool over;                    /* the end was reported */
	uint32_t list_n;              /* tasks in the list */
} m;

/* The tasks of a step: the first of them are the list. */
static const struct pawl_pipe_task tasks[] = {{0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {1, 0, 1}, {0, 0, 2},
	{1, 0, 2}};

#define TASKS (uint32_t)(sizeof(tasks) / sizeof(*tasks))

/* Expects that exactly the values that nothing keeps have gone. */
static void expect_gone(void)
{
	struct stage_value *value;

	while ((value = stage_table_take_gone(&m.core.table)) != NULL) {
		struct told *told = &m.values[value->value.id];

		if (told->present) {
			assert_true(m.over || (told->freed && told->claims == 0));
			assert_false(told->gone);
			assert_ptr_equal(value->value.held, told);
		}
		told->gone = true;
		stage_table_recycle(&m.core.table, value);
	}
	for (uint64_t i = 0; i < m.values_n; i++) {
		struct told *told = &m.values[i];

		if (told->present && (m.over || (told->freed && told->claims == 0))) {
			assert_true(told->gone);
		}
	}
}

/* Whether a value's bytes are elsewhere until somebody wants them. */
static bool is_elsewhere(uint64_t id)
{
	return id % 3 == 0;
}

static void content_of(struct pawl_stage_value *content, uint64_t id)
{
	*content = (struct pawl_stage_value){.id = id,
		.held = &m.values[id],
		.meta_len = 1,
		.len_bytes = 1};
	content->meta[0] = (uint8_t)id;
	content->data = is_elsewhere(id) ? NULL : &m.values[id];
}

/* Notes that a value is present, or is to be pushed. */
static void update_wanted(uint64_t id)
{
	struct told *told = &m.values[id];

	if (told->present && !is_elsewhere(id)) {
		told->pushes = 0;
	} else if (told->present && told->pushes > 0 && !told->wanted) {
		told->wanted = true;
		told->claims++; /* until somebody was asked for the bytes */
		m.wants++;
	}
}

/* Returns a value that the driver can still name, made by no task behind a place: a task of the
 * list that waited for a later one would wait for ever. */
static bool pick(struct rng *rng, uint32_t place, uint64_t *id)
{
	for (uint32_t tries = 0; tries < 20 && m.values_n > 0; tries++) {
		*id = rng_below(rng, m.values_n);
		if (!m.values[*id].freed && m.values[*id].place <= place) {
			return true;
		}
	}
	return false;
}

/* Arms a failing allocation now and then. */
static void arm(struct rng *rng)
{
	if (rng_below(rng, 4) == 0) {
		fault_arm("stage.", 1 + rng_below(rng, 2), ENOMEM, false);
	}
}

/* Returns whether a call of the core did what it should; else, memory was short. */
static bool did(int rv)
{
	fault_disarm();
	assert_true(rv == 0 || rv == PAWL_ENOMEM);
	return rv == 0;
}

static void issue(struct rng *rng)
{
	struct told_call *call = &m.calls[m.calls_n];
	uint32_t task = (uint32_t)rng_below(rng, TASKS);
	uint32_t place = task < m.list_n ? task : TASKS;
	struct pawl_stage_call c = {.id = m.values_n, .task = tasks[task], .needs = call->needs};

	*call = (struct told_call){.id = m.values_n, .outs = (uint32_t)rng_below(rng, 3)};
	if (m.calls_n + 1 == CALLS_MAX || m.values_n + call->outs + 1 >= VALUES_MAX) {
		return;
	}
	while (call->needs_n < rng_below(rng, NEEDS_MAX) &&
		pick(rng, place, &call->needs[call->needs_n])) {
		call->needs_n++;
	}
	c.outs = call->outs;
	c.needs_n = call->needs_n;
	arm(rng);
	if (!did(stage_core_call(&m.core, &c, &err))) {
		return;
	}
	for (uint32_t i = 0; i < call->outs; i++) {
		m.values[m.values_n++].place = place;
	}
	if (call->outs == 0) { /* the number is only the call's */
		m.values[m.values_n++].freed = true;
	}
	m.calls_n++;
	m.calls_left++;
	for (uint32_t i = 0; i < call->needs_n; i++) {
		m.values[call->needs[i]].claims++;
	}
}

static void put(struct rng *rng, uint64_t id)
{
	struct pawl_stage_value content;

	content_of(&content, id);
	arm(rng);
	if (did(stage_core_put(&m.core, &content, NULL, &err))) {
		m.values[id].present = true;
		update_wanted(id);
	}
}

/* Puts a value of the test's own that is not there yet. */
static void put_any(struct rng *rng)
{
	for (uint64_t i = 0; i < m.values_n; i++) {
		if (m.values[i].ours && !m.values[i].present && rng_below(rng, 3) == 0) {
			put(rng, i);
			return;
		}
	}
	if (m.values_n < VALUES_MAX) {
		m.values[m.values_n++].ours = true;
	}
}

static void say(struct rng *rng)
{
	uint64_t id;
	uint32_t *note;

	if (!pick(rng, TASKS, &id)) {
		return;
	}
	arm(rng);
	switch (rng_below(rng, 4)) {
	case 0:
		if (did(stage_core_free(&m.core, id, &err))) {
			m.values[id].freed = true;
		}
		break;
	case 1:
		if (did(stage_core_push(&m.core, id, (uint32_t)id % 5, &err))) {
			m.values[id].claims++;
			m.values[id].pushes++;
			m.pushes++;
			update_wanted(id);
		}
		break;
	case 2:
		if (did(stage_core_watch(&m.core, id, &err))) {
			m.values[id].claims++;
			m.watches++;
		}
		break;
	default:
		note = malloc(sizeof(*note));
		assert_non_null(note);
		*note = m.note_next;
		if (did(stage_core_note(&m.core, note, sizeof(*note), &err))) {
			m.note_next++;
			m.notes++;
		} else {
			free(note);
		}
		break;
	}
}

static void run_call(const struct pawl_stage_event *event)
{
	for (uint32_t i = 0; i < m.calls_n; i++) {
		struct told_call *call = &m.calls[i];

		if (call->id != event->call.id || call->outs != event->call.outs || call->running ||
			call->done) {
			continue;
		}
		assert_int_equal(event->call.needs_n, call->needs_n);
		for (uint32_t n = 0; n < call->needs_n; n++) {
			assert_int_equal(event->call.needs[n], call->needs[n]);
			assert_int_equal(event->values[n]->id, call->needs[n]);
			assert_int_equal(event->values[n]->meta[0], (uint8_t)call->needs[n]);
			assert_true(m.values[call->needs[n]].present);
			assert_false(m.values[call->needs[n]].gone);
		}
		call->running = true;
		return;
	}
	fail_msg("no call %llu", (unsigned long long)event->call.id);
}

static void next(void)
{
	struct pawl_stage_event event;
	uint32_t number;

	if (m.reported != UINT64_MAX) {
		m.values[m.reported].claims--;
		m.reported = UINT64_MAX;
	}
	stage_core_next(&m.core, &event);
	if (m.notes > 0) {
		assert_int_equal(event.kind, PAWL_STAGE_NOTE);
	} else if (m.wants > 0) {
		assert_int_equal(event.kind, PAWL_STAGE_WANTED);
	}
	switch (event.kind) {
	case PAWL_STAGE_NOTE:
		memcpy(&number, event.bytes, sizeof(number));
		assert_int_equal(number, m.note_got++);
		m.notes--;
		break;
	case PAWL_STAGE_ARRIVED:
		m.reported = event.values[0]->id;
		assert_true(m.values[m.reported].present && !m.values[m.reported].gone);
		m.watches--;
		break;
	case PAWL_STAGE_WANTED:
		m.reported = event.values[0]->id;
		assert_true(m.values[m.reported].wanted && !m.values[m.reported].asked);
		m.values[m.reported].asked = true;
		m.wants--;
		break;
	case PAWL_STAGE_CALL:
		run_call(&event);
		break;
	case PAWL_STAGE_END:
		assert_true(m.ended && m.calls_left == 0 && m.pushes == 0 && m.sending_n == 0 &&
			m.watches == 0);
		m.over = true;
		break;
	default:
		assert_false(m.ended && m.calls_left == 0 && m.pushes == 0 && m.sending_n == 0 &&
			m.watches == 0);
		break;
	}
}

/* Ends a call that runs. */
static void end_call(struct rng *rng, struct told_call *call)
{
	struct pawl_stage_value made[3];

	for (uint32_t i = 0; i < call->outs; i++) {
		content_of(&made[i], call->id + i);
	}
	arm(rng);
	if (!did(stage_core_done(&m.core, call->id, made, call->outs, &err))) {
		return;
	}
	call->running = false;
	call->done = true;
	m.calls_left--;
	for (uint32_t i = 0; i < call->outs; i++) {
		m.values[call->id + i].present = true;
		update_wanted(call->id + i);
	}
	for (uint32_t i = 0; i < call->needs_n; i++) {
		m.values[call->needs[i]].claims--;
	}
}

static void end_any(struct rng *rng)
{
	uint32_t first = (uint32_t)rng_below(rng, m.calls_n + 1);

	for (uint32_t i = 0; i < m.calls_n; i++) {
		struct told_call *call = &m.calls[(first + i) % m.calls_n];

		if (call->running) {
			end_call(rng, call);
			return;
		}
	}
}

static void send_any(struct rng *rng)
{
	struct stage_value *value;
	uint32_t to;
	uint64_t id;

	if (rng_below(rng, 2) == 0 && (value = stage_core_take_push(&m.core, &to)) != NULL) {
		assert_int_equal(to, value->value.id % 5);
		assert_true(m.values[value->value.id].present);
		assert_ptr_equal(value->value.data, &m.values[value->value.id]);
		m.sending[m.sending_n++] = value;
		m.pushes--;
	} else if (m.sending_n > 0) {
		uint32_t i = (uint32_t)rng_below(rng, m.sending_n);

		value = m.sending[i];
		id = value->value.id;
		m.sending[i] = m.sending[--m.sending_n];
		m.values[id].claims--;
		stage_core_sent(&m.core, value);
	}
}

/* Supplies the bytes of a value for which they were asked; those of others are refused. */
static void supply_any(struct rng *rng)
{
	uint64_t id = rng_below(rng, m.values_n + 1);

	for (uint64_t i = 0; i < m.values_n; i++, id = (id + 1) % m.values_n) {
		if (id < m.values_n && m.values[id].asked) {
			OK(stage_core_supply(&m.core, id, &m.values[id], &err));
			m.values[id].asked = false;
			return;
		}
		if (id < m.values_n && !m.values[id].wanted) {
			FAILS(PAWL_EINVAL, stage_core_supply(&m.core, id, &m.values[id], &err));
		}
	}
}

static void act(struct rng *rng)
{
	uint32_t what = (uint32_t)rng_below(rng, 11);

	if (what < 3 && !m.ended) {
		say(rng);
	} else if (what == 3 && !m.ended) {
		issue(rng);
	} else if (what == 4) {
		put_any(rng);
	} else if (what == 5) {
		end_any(rng);
	} else if (what == 6) {
		send_any(rng);
	} else if (what == 7 && !m.ended) {
		OK(stage_core_flush(&m.core,
			rng_below(rng, 2) == 0 ? PAWL_PIPE_FORWARD : PAWL_PIPE_BACKWARD,
			(uint32_t)rng_below(rng, 3), &err));
	} else if (what == 10) {
		supply_any(rng);
	} else {
		next();
	}
	expect_gone();
}

static void begin(struct rng *rng)
{
	struct stage_core core = m.core;

	memset(&m, 0, sizeof(m));
	m.core = core;
	m.reported = UINT64_MAX;
	m.list_n = (uint32_t)rng_below(rng, TASKS + 1);
	OK(stage_core_begin(&m.core, tasks, m.list_n, &err));
}

/* Steps follow each other in one core. */
static void steps_do_what_the_model_does(void **state)
{
	for (uint64_t h = 0; h < HISTORIES; h++) {
		struct rng rng = {first_seed + h};

		begin(&rng);
		for (uint32_t a = 0; a < ACTIONS && !m.over; a++) {
			act(&rng);
		}
		if (!m.ended) {
			m.ended = true;
			OK(stage_core_end(&m.core, &err));
		}
		for (uint32_t a = 0; !m.over; a++) {
			assert_true(a < 1000000);
			act(&rng);
		}
		expect_gone();
		assert_int_equal(m.core.table.present_n, 0);
		FAILS(PAWL_EINVAL, stage_core_end(&m.core, &err));
	}
	stage_core_clear(&m.core);
	stage_core_deinit(&m.core);
}

/* A core can be dropped in any state. */
static void any_state_can_be_dropped(void **state)
{
	struct stage_value *value;

	for (uint64_t h = 0; h < HISTORIES; h++) {
		struct rng rng = {first_seed + h};

		memset(&m, 0, sizeof(m));
		begin(&rng);
		for (uint32_t a = 0; a < rng_below(&rng, ACTIONS); a++) {
			act(&rng);
		}
		stage_core_clear(&m.core);
		while ((value = stage_table_take_gone(&m.core.table)) != NULL) {
			stage_table_recycle(&m.core.table, value);
		}
		stage_core_deinit(&m.core);
	}
	memset(&m, 0, sizeof(m));
}

static void mistakes_are_refused(void **state)
{
	struct pawl_stage_call call = {.id = 1, .outs = 2};
	struct pawl_stage_value made[2] = {{.id = 1, .held = &call}, {.id = 2, .held = &call}};
	struct pawl_stage_event event;
	struct stage_core core = {0};

	FAILS(PAWL_EINVAL, stage_core_call(&core, &call, &err)); /* no step */
	FAILS(PAWL_EINVAL, stage_core_put(&core, made, NULL, &err));
	FAILS(PAWL_EINVAL, stage_core_done(&core, 1, made, 2, &err));
	OK(stage_core_begin(&core, NULL, 0, &err));
	FAILS(PAWL_EINVAL, stage_core_begin(&core, NULL, 0, &err));
	call.outs = PAWL_STAGE_OUTS_MAX + 1;
	FAILS(PAWL_ELIMIT, stage_core_call(&core, &call, &err));
	call.outs = 2;
	call.task.kind = PAWL_PIPE_KINDS;
	FAILS(PAWL_EINVAL, stage_core_call(&core, &call, &err));
	call.task.kind = 0;
	FAILS(PAWL_EINVAL, stage_core_flush(&core, PAWL_PIPE_INPUT, 0, &err));
	FAILS(PAWL_EINVAL,
		stage_core_flush(&core, PAWL_PIPE_FORWARD, PAWL_PIPE_MICROBATCHES_MAX, &err));
	OK(stage_core_call(&core, &call, &err));
	FAILS(PAWL_EINVAL, stage_core_done(&core, 1, made, 2, &err)); /* the call does not run */
	stage_core_next(&core, &event);
	assert_int_equal(event.kind, PAWL_STAGE_CALL);
	FAILS(PAWL_EINVAL, stage_core_done(&core, 1, made, 1, &err));
	FAILS(PAWL_EINVAL, stage_core_done(&core, 1, made + 1, 2, &err));
	FAILS(PAWL_EINVAL, stage_core_done(&core, 2, made, 2, &err));
	OK(stage_core_done(&core, 1, made, 2, &err));
	FAILS(PAWL_EINVAL, stage_core_put(&core, &made[1], NULL, &err)); /* there already */
	OK(stage_core_end(&core, &err));
	FAILS(PAWL_EINVAL, stage_core_free(&core, 1, &err)); /* the step has ended */
	stage_core_next(&core, &event);
	assert_int_equal(event.kind, PAWL_STAGE_END);
	stage_core_next(&core, &event);
	assert_int_equal(event.kind, PAWL_STAGE_NOTHING);
	stage_core_clear(&core);
	stage_core_deinit(&core);
}

static enum pawl_stage_kind next_kind(struct stage_core *core)
{
	struct pawl_stage_event event;

	stage_core_next(core, &event);
	return event.kind;
}

/* The end waits for a value that is to be sent on, until it has come and is sent. */
static void the_end_waits_for_pushes(void **state)
{
	struct pawl_stage_value content = {.id = 3, .held = &err};
	struct stage_core core = {0};
	struct stage_value *value;
	uint32_t to = 0;

	OK(stage_core_begin(&core, NULL, 0, &err));
	OK(stage_core_push(&core, 3, 7, &err));
	OK(stage_core_free(&core, 3, &err));
	OK(stage_core_end(&core, &err));
	assert_int_equal(next_kind(&core), PAWL_STAGE_NOTHING);
	OK(stage_core_put(&core, &content, NULL, &err));
	assert_int_equal(next_kind(&core), PAWL_STAGE_NOTHING);
	value = stage_core_take_push(&core, &to);
	assert_int_equal(to, 7);
	assert_int_equal(next_kind(&core), PAWL_STAGE_NOTHING);
	assert_null(stage_table_take_gone(&core.table));
	stage_core_sent(&core, value);
	assert_ptr_equal(stage_table_take_gone(&core.table), value);
	stage_table_recycle(&core.table, value);
	assert_int_equal(next_kind(&core), PAWL_STAGE_END);
	stage_core_clear(&core);
	stage_core_deinit(&core);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_do_what_the_model_does),
		cmocka_unit_test(any_state_can_be_dropped),
		cmocka_unit_test(mistakes_are_refused),
		cmocka_unit_test(the_end_waits_for_pushes),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
