/* Fuzzes what a rank of a pipeline gets from others: frames, and the records of a batch. Whatever
 * is accepted is the same after it was encoded, and the state machine takes it, or refuses it with
 * a message. */
#include "fuzz.h"

#include "base/assert.h"
#include "stage/core.h"
#include "stage/frame.h"

#include <stdlib.h>
#include <string.h>

static void try_frame(const uint8_t *bytes)
{
	static uint8_t again[FRAME_BYTES];
	struct stage_frame frame;
	struct stage_frame other;
	struct pawl_err err = {0};

	if (stage_frame_decode(&frame, bytes, &err) != 0) {
		ASSERT(err.code == PAWL_EMISMATCH && err.msg[0] != '\0');
		return;
	}
	stage_frame_encode(again, &frame);
	ASSERT(stage_frame_decode(&other, again, NULL) == 0);
	ASSERT(other.kind == frame.kind && other.len_bytes == frame.len_bytes);
	ASSERT(other.tag == frame.tag && other.value.id == frame.value.id);
}

/* Carries out a record as a rank does. */
static int apply(struct stage_core *core, const struct stage_record *record, struct pawl_err *err)
{
	uint8_t *note;
	int rv;

	switch (record->kind) {
	case RECORD_CALL:
		return stage_core_call(core, &record->call, err);
	case RECORD_PUSH:
		return stage_core_push(core, record->value, record->to, err);
	case RECORD_FREE:
		return stage_core_free(core, record->value, err);
	case RECORD_FLUSH:
		return stage_core_flush(core, record->pass, record->microbatch, err);
	case RECORD_NOTE:
		note = malloc((size_t)record->len_bytes + 1);
		ASSERT(note != NULL);
		memcpy(note, record->bytes, record->len_bytes);
		rv = stage_core_note(core, note, record->len_bytes, err);
		if (rv != 0) {
			free(note);
		}
		return rv;
	default:
		return stage_core_end(core, err);
	}
}

/* Runs what can run; calls make values without bytes. */
static void run(struct stage_core *core)
{
	static struct pawl_stage_value made[PAWL_STAGE_OUTS_MAX];
	struct pawl_stage_event event;
	struct stage_value *value;
	uint32_t to;

	for (;;) {
		while ((value = stage_core_take_push(core, &to)) != NULL) {
			stage_core_sent(core, value);
		}
		stage_core_next(core, &event);
		while ((value = stage_table_take_gone(&core->table)) != NULL) {
			stage_table_recycle(&core->table, value);
		}
		if (event.kind == PAWL_STAGE_NOTHING) {
			return;
		}
		if (event.kind == PAWL_STAGE_CALL) {
			for (uint32_t i = 0; i < event.call.outs; i++) {
				made[i] = (struct pawl_stage_value){.id = event.call.id + i};
			}
			if (stage_core_done(core, event.call.id, made, event.call.outs, NULL) !=
				0) {
				return; /* a value was there already */
			}
		}
	}
}

static void try_batch(const uint8_t *bytes, size_t len_bytes)
{
	const struct pawl_pipe_task tasks[] = {{0, 0, 0}, {1, 0, 0}};
	static uint64_t needs[PAWL_STAGE_NEEDS_MAX];
	struct stage_core core = {0};
	struct stage_record record;
	struct stage_value *value;
	struct pawl_err err = {0};
	struct wire_in in;
	int rv = 0;

	ASSERT(stage_core_begin(&core, tasks, 2, NULL) == 0);
	wire_in_init(&in, bytes, len_bytes);
	while (rv == 0 && wire_in_left(&in) > 0) {
		rv = stage_record_decode(&record, &in, needs, &err);
		rv = rv == 0 ? apply(&core, &record, &err) : rv;
		if (rv == 0) {
			run(&core);
		}
	}
	ASSERT(rv == 0 || err.msg[0] != '\0');
	stage_core_clear(&core);
	while ((value = stage_table_take_gone(&core.table)) != NULL) {
		stage_table_recycle(&core.table, value);
	}
	stage_core_deinit(&core);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	static uint8_t frame[FRAME_BYTES];
	size_t n = len_bytes < FRAME_BYTES ? len_bytes : FRAME_BYTES;

	memset(frame, 0, sizeof(frame));
	if (n > 0) {
		memcpy(frame, bytes, n);
	}
	try_frame(frame);
	try_batch(bytes, len_bytes);
	return 0;
}

/* A batch that uses all records, or the frame around it. */
size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const uint64_t needs[] = {1, 2, 1};
	const struct stage_record records[] = {
		{RECORD_CALL, .call = {.id = 1, .outs = 2, .blob = "blob", .blob_len = 4}},
		{RECORD_CALL, .call = {.id = 5, .outs = 1, .needs_n = 3, .needs = needs}},
		{RECORD_PUSH, .value = 5, .to = 1},
		{RECORD_NOTE, .bytes = "note", .len_bytes = 4},
		{RECORD_FREE, .value = 1},
		{RECORD_FLUSH, .pass = PAWL_PIPE_BACKWARD, .microbatch = 3},
		{RECORD_CALL, .call = {.id = 9, .task = {1, 0, 3}, .needs_n = 1, .needs = needs}},
		{RECORD_END},
	};
	struct stage_frame frame = {.kind = i == 1 ? FRAME_BATCH : FRAME_VALUE, .step = 1};
	struct wire_out out = {0};
	size_t len;

	for (size_t r = 0; r < sizeof(records) / sizeof(*records); r++) {
		stage_record_encode(&out, &records[r]);
	}
	frame.bytes = out.bytes;
	frame.len_bytes = len = out.len_bytes;
	frame.value.meta_len = 3;
	if (i == 0) {
		memcpy(buf, out.bytes, len);
	} else if (i < 3) {
		stage_frame_encode(buf, &frame);
		len = FRAME_BYTES;
	}
	wire_out_deinit(&out);
	return i < 3 ? len : 0;
}
