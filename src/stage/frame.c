/* Frames between the ranks of a pipeline: see frame.h for the contract. Pure. */
#include "stage/frame.h"

#include "base/assert.h"
#include "base/err.h"

#include <endian.h>
#include <string.h>

#define FRAME_MAGIC 0x31535750u /* "PWS1" */

/* ---- frames ---- */

static size_t before_content(enum stage_frame_kind kind)
{
	return kind == FRAME_VALUE ? FRAME_HEADER + FRAME_VALUE_HEADER : FRAME_HEADER;
}

bool stage_frame_fits(enum stage_frame_kind kind, uint64_t len_bytes)
{
	return len_bytes <= FRAME_BYTES - before_content(kind);
}

/* Longest content of a kind. */
static uint64_t content_max(enum stage_frame_kind kind)
{
	return kind == FRAME_VALUE    ? FRAME_VALUE_MAX
		: kind == FRAME_BATCH ? FRAME_BATCH_MAX
				      : PAWL_STAGE_NOTE_MAX;
}

void stage_frame_encode(uint8_t *bytes, const struct stage_frame *frame)
{
	uint32_t words[4] = {htole32(FRAME_MAGIC), htole32((uint32_t)frame->kind),
		htole32(frame->tag), htole32(frame->rank)};
	uint64_t longs[2] = {htole64(frame->step), htole64(frame->len_bytes)};
	size_t at = before_content(frame->kind);

	ASSERT((frame->tag == 0) == stage_frame_fits(frame->kind, frame->len_bytes));
	memset(bytes, 0, FRAME_BYTES);
	memcpy(bytes, words, sizeof(words));
	memcpy(bytes + 16, longs, sizeof(longs));
	if (frame->kind == FRAME_VALUE) {
		uint64_t id = htole64(frame->value.id);
		uint32_t meta_len = htole32(frame->value.meta_len);

		memcpy(bytes + FRAME_HEADER, &id, 8);
		memcpy(bytes + FRAME_HEADER + 8, &meta_len, 4);
		memcpy(bytes + FRAME_HEADER + 12, frame->value.meta, frame->value.meta_len);
	}
	if (frame->tag == 0 && frame->len_bytes > 0) {
		memcpy(bytes + at, frame->bytes, frame->len_bytes);
	}
}

int stage_frame_decode(struct stage_frame *frame, const uint8_t *bytes, struct pawl_err *err)
{
	struct wire_in in;
	uint32_t magic;
	uint32_t kind;

	wire_in_init(&in, bytes, FRAME_BYTES);
	magic = wire_get_u32(&in);
	kind = wire_get_u32(&in);
	*frame =
		(struct stage_frame){.kind = (enum stage_frame_kind)kind, .tag = wire_get_u32(&in)};
	frame->rank = wire_get_u32(&in);
	frame->step = wire_get_u64(&in);
	frame->len_bytes = wire_get_u64(&in);
	if (magic != FRAME_MAGIC || kind == 0 || kind >= FRAME_KINDS) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"it sent no frame of a stage: is it another version of Pawl?");
	}
	if (frame->len_bytes > content_max(frame->kind) ||
		(frame->tag == 0) != stage_frame_fits(frame->kind, frame->len_bytes)) {
		return pawl_err_set(err, PAWL_EMISMATCH, "it sent a frame with %llu bytes",
			(unsigned long long)frame->len_bytes);
	}
	if (frame->kind == FRAME_VALUE) {
		frame->value.id = wire_get_u64(&in);
		frame->value.meta_len = wire_get_u32(&in);
		frame->value.len_bytes = frame->len_bytes;
		memcpy(frame->value.meta, wire_get_raw(&in, PAWL_STAGE_META_MAX),
			PAWL_STAGE_META_MAX);
	}
	if (frame->value.meta_len > PAWL_STAGE_META_MAX) {
		return pawl_err_set(err, PAWL_EMISMATCH, "it sent a value with a meta of %u bytes",
			frame->value.meta_len);
	}
	frame->bytes = frame->tag == 0 ? bytes + before_content(frame->kind) : NULL;
	return 0;
}

/* ---- records ---- */

static void encode_call(struct wire_out *out, const struct pawl_stage_call *call)
{
	wire_put_u64(out, call->id);
	wire_put_u32(out, call->outs);
	wire_put_u8(out, call->task.kind);
	wire_put_u16(out, call->task.chunk);
	wire_put_u32(out, call->task.microbatch);
	wire_put_u32(out, call->needs_n);
	for (uint32_t i = 0; i < call->needs_n; i++) {
		wire_put_u64(out, call->needs[i]);
	}
	wire_put_blob(out, call->blob, call->blob_len);
}

void stage_record_encode(struct wire_out *out, const struct stage_record *record)
{
	wire_put_u8(out, (uint8_t)record->kind);
	switch (record->kind) {
	case RECORD_CALL:
		encode_call(out, &record->call);
		break;
	case RECORD_PUSH:
		wire_put_u64(out, record->value);
		wire_put_u32(out, record->to);
		break;
	case RECORD_FREE:
		wire_put_u64(out, record->value);
		break;
	case RECORD_FLUSH:
		wire_put_u8(out, (uint8_t)record->pass);
		wire_put_u32(out, record->microbatch);
		break;
	case RECORD_NOTE:
		wire_put_blob(out, record->bytes, record->len_bytes);
		break;
	case RECORD_END:
	case RECORD_KINDS:
		break;
	}
}

static void decode_call(struct pawl_stage_call *call, struct wire_in *in, uint64_t *needs)
{
	call->id = wire_get_u64(in);
	call->outs = wire_get_u32(in);
	call->task.kind = wire_get_u8(in);
	call->task.chunk = wire_get_u16(in);
	call->task.microbatch = wire_get_u32(in);
	call->needs_n = wire_get_u32(in);
	call->needs = needs;
	if (call->needs_n > PAWL_STAGE_NEEDS_MAX) {
		in->failed = true;
		return;
	}
	for (uint32_t i = 0; i < call->needs_n; i++) {
		needs[i] = wire_get_u64(in);
	}
	call->blob = wire_get_blob(in, &call->blob_len);
}

int stage_record_decode(struct stage_record *record, struct wire_in *in, uint64_t *needs,
	struct pawl_err *err)
{
	*record = (struct stage_record){.kind = (enum stage_record_kind)wire_get_u8(in)};
	switch (record->kind) {
	case RECORD_CALL:
		decode_call(&record->call, in, needs);
		break;
	case RECORD_PUSH:
		record->value = wire_get_u64(in);
		record->to = wire_get_u32(in);
		break;
	case RECORD_FREE:
		record->value = wire_get_u64(in);
		break;
	case RECORD_FLUSH:
		record->pass = (enum pawl_pipe_kind)wire_get_u8(in);
		record->microbatch = wire_get_u32(in);
		break;
	case RECORD_NOTE:
		record->bytes = wire_get_blob(in, &record->len_bytes);
		break;
	case RECORD_END:
		break;
	default:
		in->failed = true;
		break;
	}
	return in->failed ? pawl_err_set(err, PAWL_EMISMATCH,
				    "it sent a malformed record (kind %d)", (int)record->kind)
			  : 0;
}
