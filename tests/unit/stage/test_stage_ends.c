/* How stages of several ranks end: ranks fail, leave, are closed in the middle, or send what they
 * must not send. */
#include "base/fault.h"
#include "expect.h"
#include "stage/frame.h"
#include "test_stage_world.h"

static struct pawl_err err;

/* Returns what a rank is told, at once or soon; NOTHING does not count. */
static int await_end(uint32_t rank, struct pawl_stage_event *event)
{
	return IN_TIME(pawl_stage_next(all.stage[rank], LONG_NS, event, &err));
}

static void a_rank_that_fails_tells_all(void **state)
{
	static char text[100000]; /* longer than a frame */
	struct pawl_stage_event event;

	memset(text, 'x', sizeof(text));
	open_stages();
	OK(pawl_stage_begin(all.stage[0], NULL, 0, &err));
	OK(pawl_stage_fail(all.stage[2], text, sizeof(text), &err));
	pawl_stage_leave(all.stage[2]); /* leaves at once; the text still gets through */
	for (uint32_t r = 0; r < RANKS; r++) {
		if (r == 2) {
			FAILS(PAWL_ECANCELED, await_end(r, &event));
			continue;
		}
		for (uint32_t again = 0; again < 2; again++) {
			OK(await_end(r, &event));
			assert_int_equal(event.kind, PAWL_STAGE_FAILED);
			assert_int_equal(event.rank, 2);
			assert_int_equal(event.len_bytes, sizeof(text));
			assert_memory_equal(event.bytes, text, sizeof(text));
		}
	}
	close_stages(NULL);
}

static void *wait_for_end(void *user)
{
	uint32_t rank = (uint32_t)(uintptr_t)user;
	struct pawl_stage_event event;
	struct pawl_err why = {0};

	if (rank == 1) {
		within_pace(0.02);
		pawl_stage_leave(all.stage[1]);
		return NULL;
	}
	if (EXPECT(IN_TIME(pawl_stage_next(all.stage[rank], LONG_NS, &event, &why)) ==
		    PAWL_EPEER)) {
		EXPECT(strstr(why.msg, "rank 1") != NULL);
	}
	return NULL;
}

/* Ranks that wait learn that another has left. */
static void a_rank_that_leaves_is_named(void **state)
{
	struct pawl_stage_call call = {.id = 1};

	open_stages();
	OK(pawl_stage_begin(all.stage[0], NULL, 0, &err));
	run_stages(wait_for_end);
	expect_right();
	FAILS(PAWL_EPEER, pawl_stage_call(all.stage[0], 2, &call, &err));
	assert_non_null(strstr(err.msg, "rank 1"));
	FAILS(PAWL_EPEER, pawl_stage_fail(all.stage[2], "x", 1, &err));
	close_stages(NULL);
}

/* A rank that was ready for the end of its step gets it, though the driver has left since. */
static void what_was_issued_before_leaving_arrives(void **state)
{
	struct pawl_stage_event event;

	open_stages();
	for (uint32_t r = 0; r < RANKS; r++) {
		OK(pawl_stage_begin(all.stage[r], NULL, 0, &err));
	}
	OK(pawl_stage_end(all.stage[0], &err));
	pawl_stage_leave(all.stage[0]);
	for (uint32_t r = 1; r < RANKS; r++) {
		OK(await_end(r, &event));
		assert_int_equal(event.kind, PAWL_STAGE_END);
		FAILS(PAWL_EPEER, await_end(r, &event));
	}
	close_stages(NULL);
}

/* A stage is closed while all is under way. */
static void closing_in_the_middle(void **state)
{
	static uint8_t bytes[3000000];
	struct pawl_stage_value value = {.data = bytes, .len_bytes = sizeof(bytes)};

	for (uint32_t i = 0; i < 5; i++) {
		open_stages();
		for (uint32_t r = 0; r < RANKS; r++) {
			OK(pawl_stage_begin(all.stage[r], NULL, 0, &err));
		}
		for (uint64_t v = 0; v < 8; v++) {
			value.id = v;
			value.held = malloc(1);
			OK(pawl_stage_put(all.stage[0], &value, &err));
			OK(pawl_stage_push(all.stage[0], 0, v, 1 + (uint32_t)v % 3, &err));
			OK(pawl_stage_note(all.stage[0], 1 + (uint32_t)v % 3, bytes, 50000, &err));
		}
		for (uint32_t r = 0; r < i; r++) {
			pawl_stage_leave(all.stage[(r + 2) % RANKS]);
		}
		close_stages(free);
	}
}

/* ---- what must not be sent ---- */

/* Sends a message as no stage does: from the group of a rank whose stage is idle. */
static void send_raw(uint32_t from, uint32_t to, uint32_t tag, const void *bytes, uint64_t len)
{
	const struct pawl_coll_call call = {.kind = PAWL_SEND,
		.dtype = PAWL_UINT8,
		.root = to,
		.tag = tag,
		.len_bytes = len,
		.in = bytes};
	struct pawl_work work;

	OK(pawl_group_submit(all.world.members[from].group, &work, &call, &err));
	IN_TIME(pawl_group_wait(all.world.members[from].group, &work, LONG_NS, &err));
}

/* Sends a frame to rank 2, which then fails, and names the sender. */
static void expect_refused(uint32_t from, int code, const uint8_t *frame, const char *text)
{
	struct pawl_stage_event event;
	char name[16];

	open_stages();
	OK(pawl_stage_begin(all.stage[2], NULL, 0, &err));
	send_raw(from, 2, 0, frame, FRAME_BYTES);
	FAILS(code, await_end(2, &event));
	snprintf(name, sizeof(name), "rank %u", from);
	if (!strstr(err.msg, name) || !strstr(err.msg, text)) {
		fail_msg("%s", err.msg);
	}
	FAILS(code, await_end(2, &event)); /* for good */
	FAILS(code, pawl_stage_done(all.stage[2], 1, NULL, 0, &err));
	OK(pawl_stage_fail(all.stage[2], "text", 4, &err)); /* others can be told */
	OK(await_end((from + 1) % 2, &event));
	assert_int_equal(event.kind, PAWL_STAGE_FAILED);
	assert_int_equal(event.rank, 2);
	close_stages(NULL);
}

/* Writes a frame with the failure of a rank. */
static void failure_of(uint8_t *bytes, uint32_t rank)
{
	stage_frame_encode(bytes,
		&(struct stage_frame){.kind = FRAME_FAIL,
			.rank = rank,
			.len_bytes = 4,
			.bytes = (const uint8_t *)"text"});
}

/* Rank 0 tells rank 2 alone that it has failed: rank 1 hears it from rank 2, which leaves. */
static void a_failure_is_relayed_before_leaving(void **state)
{
	struct pawl_stage_event event;
	uint8_t frame[FRAME_BYTES];

	open_stages();
	failure_of(frame, 0);
	send_raw(0, 2, 0, frame, FRAME_BYTES);
	OK(await_end(2, &event));
	pawl_stage_leave(all.stage[2]);
	OK(await_end(1, &event));
	assert_int_equal(event.kind, PAWL_STAGE_FAILED);
	assert_int_equal(event.rank, 0);
	assert_int_equal(event.len_bytes, 4);
	assert_memory_equal(event.bytes, "text", 4);
	close_stages(NULL);
}

static void failures_of_nobody_end_the_stage(void **state)
{
	uint8_t frame[FRAME_BYTES];

	failure_of(frame, RANKS);
	expect_refused(1, PAWL_EMISMATCH, frame, "a failure of rank 4");
	failure_of(frame, 2);
	expect_refused(1, PAWL_EMISMATCH, frame, "a failure of rank 2");
}

/* A batch with one record. */
static void batch_of(uint8_t *bytes, const struct stage_record *record, uint64_t step)
{
	struct wire_out out = {0};

	stage_record_encode(&out, record);
	assert_false(out.failed);
	stage_frame_encode(bytes,
		&(struct stage_frame){.kind = FRAME_BATCH,
			.step = step,
			.len_bytes = out.len_bytes,
			.bytes = out.bytes});
	wire_out_deinit(&out);
}

static void malformed_frames_end_the_stage(void **state)
{
	const struct stage_record to_itself = {RECORD_PUSH, .value = 1, .to = 2};
	const struct stage_record to_nobody = {RECORD_PUSH, .value = 1, .to = RANKS};
	const struct stage_record end = {RECORD_END};
	uint8_t bytes[FRAME_BYTES];

	memset(bytes, 0x55, sizeof(bytes));
	expect_refused(1, PAWL_EMISMATCH, bytes, "no frame of a stage");
	batch_of(bytes, &end, 1);
	expect_refused(1, PAWL_EMISMATCH, bytes, "not the driver");
	expect_refused(3, PAWL_EMISMATCH, bytes, "not the driver");
	batch_of(bytes, &to_itself, 1);
	expect_refused(0, PAWL_EMISMATCH, bytes, "push to rank 2");
	batch_of(bytes, &to_nobody, 1);
	expect_refused(0, PAWL_EMISMATCH, bytes, "push to rank 4");
	batch_of(bytes, &end, 0); /* a step that is over */
	expect_refused(0, PAWL_EMISMATCH, bytes, "step 0");
	batch_of(bytes, &end, 1);
	bytes[FRAME_HEADER] = RECORD_KINDS;
	expect_refused(0, PAWL_EMISMATCH, bytes, "malformed record");
	batch_of(bytes, &(struct stage_record){RECORD_FLUSH, .pass = PAWL_PIPE_KINDS}, 1);
	expect_refused(0, PAWL_EINVAL, bytes, "pass");
	batch_of(bytes, &(struct stage_record){RECORD_CALL, .call = {.outs = UINT32_MAX}}, 1);
	expect_refused(0, PAWL_ELIMIT, bytes, "outs");
}

/* A value that comes twice; one whose bytes do not come as announced; one that is too large. */
static void values_are_checked(void **state)
{
	struct stage_frame frame = {.kind = FRAME_VALUE, .step = 1, .value = {.id = 8}};
	struct pawl_stage_event event;
	uint8_t bytes[FRAME_BYTES];

	open_stages();
	OK(pawl_stage_begin(all.stage[2], NULL, 0, &err));
	stage_frame_encode(bytes, &frame);
	send_raw(1, 2, 0, bytes, FRAME_BYTES);
	send_raw(1, 2, 0, bytes, FRAME_BYTES);
	FAILS(PAWL_EINVAL, await_end(2, &event));
	assert_non_null(strstr(err.msg, "rank 1: value 8 is there already"));
	close_stages(NULL);
	open_stages();
	OK(pawl_stage_begin(all.stage[2], NULL, 0, &err));
	frame.len_bytes = 100000;
	frame.tag = 77;
	stage_frame_encode(bytes, &frame);
	send_raw(1, 2, 0, bytes, FRAME_BYTES);
	send_raw(1, 2, 77, bytes, 3);
	FAILS(PAWL_EMISMATCH, await_end(2, &event));
	close_stages(NULL);
	open_stages();
	OK(pawl_stage_begin(all.stage[2], NULL, 0, &err));
	fault_arm("stage.memory", 1, ENOMEM, false);
	send_raw(1, 2, 0, bytes, FRAME_BYTES);
	FAILS(PAWL_ENOMEM, await_end(2, &event));
	fault_disarm();
	assert_non_null(strstr(err.msg, "from rank 1"));
	close_stages(NULL);
}

/* ---- no memory ---- */

/* Issues a little of everything for rank 1. Returns the first error. */
static int issue_some(void)
{
	static uint8_t bytes[20000];
	const uint64_t need = 1;
	const struct pawl_stage_value value = {.id = need,
		.data = bytes,
		.len_bytes = sizeof(bytes),
		.held = bytes};
	const struct pawl_stage_call call = {.id = 2, .outs = 1, .needs_n = 1, .needs = &need};
	struct pawl_stage *stage = all.stage[0];
	int rv = pawl_stage_put(stage, &value, &err);

	rv = rv == 0 ? pawl_stage_push(stage, 0, need, 1, &err) : rv;
	rv = rv == 0 ? pawl_stage_note(stage, 1, bytes, sizeof(bytes), &err) : rv;
	rv = rv == 0 ? pawl_stage_note(stage, 1, bytes, 10, &err) : rv;
	rv = rv == 0 ? pawl_stage_call(stage, 1, &call, &err) : rv;
	rv = rv == 0 ? pawl_stage_push(stage, 1, 2, 0, &err) : rv;
	rv = rv == 0 ? pawl_stage_watch(stage, 2, &err) : rv;
	return rv == 0 ? pawl_stage_end(stage, &err) : rv;
}

/* Carries out events of a rank until its step ends. Returns 1, or the first error. */
static int take_events(uint32_t rank)
{
	static uint8_t made[3];
	const struct pawl_stage_value value = {.id = 2,
		.data = made,
		.len_bytes = sizeof(made),
		.held = made};
	struct pawl_stage_event event;
	int rv = pawl_stage_next(all.stage[rank], NS_PER_MS, &event, &err);

	if (rv == 0 && event.kind == PAWL_STAGE_CALL) {
		rv = pawl_stage_done(all.stage[rank], 2, &value, 1, &err);
	}
	return rv != 0 ? rv : event.kind == PAWL_STAGE_END;
}

/* Each allocation of any rank fails in turn: some call says so, and all can be closed. */
static void memory_may_be_short(void **state)
{
	uint64_t nth = 0;
	uint32_t failed = 0;
	bool passed = false;

	while (!passed) {
		int ends[2] = {0};
		int rv;

		open_stages();
		for (uint32_t r = 0; r < 2; r++) {
			OK(pawl_stage_begin(all.stage[r], NULL, 0, &err));
		}
		fault_arm("stage.", ++nth, ENOMEM, false);
		rv = issue_some();
		for (uint32_t i = 0; rv == 0 && (ends[0] == 0 || ends[1] == 0); i++) {
			assert_true(i < 100000);
			for (uint32_t r = 0; r < 2 && rv == 0; r++) {
				ends[r] = ends[r] == 0 ? take_events(r) : ends[r];
				rv = ends[r] < 0 ? ends[r] : 0;
			}
		}
		passed = fault_count() < nth;
		fault_disarm();
		assert_true(rv == 0 || rv == PAWL_ENOMEM);
		failed += rv != 0;
		close_stages(NULL);
	}
	assert_true(failed > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_fails_tells_all),
		cmocka_unit_test(a_failure_is_relayed_before_leaving),
		cmocka_unit_test(failures_of_nobody_end_the_stage),
		cmocka_unit_test(a_rank_that_leaves_is_named),
		cmocka_unit_test(what_was_issued_before_leaving_arrives),
		cmocka_unit_test(closing_in_the_middle),
		cmocka_unit_test(malformed_frames_end_the_stage),
		cmocka_unit_test(values_are_checked),
		cmocka_unit_test(memory_may_be_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
