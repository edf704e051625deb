/* Encodes and decodes the bodies of frames by tables of their fields: see frames.h. */
#include "ipc/frames.h"

#include "base/assert.h"

#include <stddef.h>
#include <string.h>

/* ---- tables ---- */

#define FIELD(frame, kind, name)                                                                   \
	{                                                                                          \
		FRAME_##kind, offsetof(struct frame, name), sizeof(((struct frame *)NULL)->name),  \
			0, 0, NULL                                                                 \
	}
/* count: the field with the number of entries in the array items, each laid out as layout. */
#define LIST(frame, count, array, layout)                                                          \
	{                                                                                          \
		FRAME_LIST, offsetof(struct frame, count), sizeof(uint32_t),                       \
			offsetof(struct frame, array),                                             \
			sizeof(((struct frame *)NULL)->array) /                                    \
			sizeof(((struct frame *)NULL)->array[0]),                                  \
			&layout                                                                    \
	}
#define LAYOUT(frame)                                                                              \
	{                                                                                          \
		frame##_fields, sizeof(frame##_fields) / sizeof(frame##_fields[0]),                \
			sizeof(struct frame)                                                       \
	}

static const struct frame_field frame_hello_fields[] = {
	FIELD(frame_hello, U16, version),
	FIELD(frame_hello, TEXT, job),
	FIELD(frame_hello, TEXT, root),
	FIELD(frame_hello, U32, rank),
	FIELD(frame_hello, U32, world),
	FIELD(frame_hello, U32, attempt),
	FIELD(frame_hello, U32, keep),
	FIELD(frame_hello, U64, keep_every),
	FIELD(frame_hello, U64, persist_every_ms),
	FIELD(frame_hello, U64, memory_bytes),
	FIELD(frame_hello, BOOL, named),
	FIELD(frame_hello, TEXT, hidden),
	FIELD(frame_hello, U32, full_every),
	FIELD(frame_hello, U32, first),
	FIELD(frame_hello, U32, ranks),
	FIELD(frame_hello, U64, seq),
};

static const struct frame_field frame_begin_fields[] = {
	FIELD(frame_begin, U64, seq),
	FIELD(frame_begin, U64, step),
	FIELD(frame_begin, U64, need_bytes),
	FIELD(frame_begin, TEXT, tag),
	FIELD(frame_begin, U8, flags),
	FIELD(frame_begin, U64, since_ns),
};

static const struct frame_field frame_staged_fields[] = {
	FIELD(frame_staged, U64, seq),
	FIELD(frame_staged, U64, stall_ns),
	FIELD(frame_staged, U64, stage_ns),
	FIELD(frame_staged, BLOB, record),
};

static const struct frame_field frame_fail_fields[] = {
	FIELD(frame_fail, U64, seq),
	FIELD(frame_fail, CODE, code),
	FIELD(frame_fail, TEXT, why),
	FIELD(frame_fail, TEXT, tag),
};

static const struct frame_field frame_flush_fields[] = {
	FIELD(frame_flush, U64, seq),
};

static const struct frame_field frame_restore_fields[] = {
	FIELD(frame_restore, BOOL, has_step),
	FIELD(frame_restore, U64, step),
};

static const struct frame_field frame_vote_fields[] = {
	FIELD(frame_vote, U8, verdict),
	FIELD(frame_vote, TEXT, why),
};

static const struct frame_field frame_pin_fields[] = {
	FIELD(frame_pin, TEXT, tag),
	FIELD(frame_pin, BOOL, pinned),
};

static const struct frame_field frame_imports_fields[] = {
	FIELD(frame_imports, BLOB, names),
};

static const struct frame_field frame_bye_fields[] = {
	FIELD(frame_bye, BOOL, clean),
	FIELD(frame_bye, TEXT, why),
	FIELD(frame_bye, BOOL, not_durable),
};

static const struct frame_field frame_poll_count_fields[] = {
	FIELD(frame_poll_count, U8, question),
	FIELD(frame_poll_count, U64, polls),
};

static const struct frame_field frame_damaged_fields[] = {
	FIELD(frame_damaged, BOOL, memory),
	FIELD(frame_damaged, TEXT, tag),
	FIELD(frame_damaged, TEXT, why),
};

static const struct frame_field frame_tag_fields[] = {
	FIELD(frame_tag, TEXT, tag),
};

static const struct frame_field frame_scale_fields[] = {
	FIELD(frame_scale, TEXT, job),
	FIELD(frame_scale, U32, wanted),
};

static const struct frame_field frame_state_fields[] = {
	FIELD(frame_state, TEXT, job),
	FIELD(frame_state, TEXT, root),
};

static const struct frame_field frame_welcome_fields[] = {
	FIELD(frame_welcome, U32, pid),
};

static const struct frame_field frame_error_fields[] = {
	FIELD(frame_error, CODE, code),
	FIELD(frame_error, U32, sys),
	FIELD(frame_error, TEXT, text),
};

static const struct frame_field frame_arena_fields[] = {
	FIELD(frame_arena, U8, slot),
	FIELD(frame_arena, U64, size_bytes),
};

static const struct frame_layout frame_arena_layout = LAYOUT(frame_arena);

static const struct frame_field frame_grant_fields[] = {
	FIELD(frame_grant, U8, slot),
	FIELD(frame_grant, BOOL, streamed),
	FIELD(frame_grant, U64, seq),
	LIST(frame_grant, arenas_n, arenas, frame_arena_layout),
	FIELD(frame_grant, TEXT, dir),
};

static const struct frame_field frame_from_nothing_fields[] = {
	FIELD(frame_from_nothing, U32, rounds),
};

static const struct frame_field frame_share_fields[] = {
	FIELD(frame_share, U64, size_bytes),
	FIELD(frame_share, BLOB, record),
};

static const struct frame_layout frame_share_layout = LAYOUT(frame_share);

static const struct frame_field frame_from_memory_fields[] = {
	FIELD(frame_from_memory, U64, step),
	FIELD(frame_from_memory, TEXT, tag),
	LIST(frame_from_memory, shares_n, shares, frame_share_layout),
};

static const struct frame_field frame_verdict_fields[] = {
	FIELD(frame_verdict, U8, verdict),
	FIELD(frame_verdict, TEXT, why),
	FIELD(frame_verdict, U32, rounds),
};

static const struct frame_field frame_pending_fields[] = {
	FIELD(frame_pending, U64, step),
	FIELD(frame_pending, TEXT, tag),
};

static const struct frame_layout frame_pending_layout = LAYOUT(frame_pending);

static const struct frame_field frame_listed_fields[] = {
	LIST(frame_listed, pending_n, pending, frame_pending_layout),
};

static const struct frame_field frame_scaled_fields[] = {
	FIELD(frame_scaled, U32, alive),
	FIELD(frame_scaled, U32, wanted),
	FIELD(frame_scaled, U32, least),
	FIELD(frame_scaled, U32, most),
};

static const struct frame_field frame_stated_fields[] = {
	FIELD(frame_stated, U32, ranks),
	FIELD(frame_stated, TEXT, tag),
	FIELD(frame_stated, U32, key),
	FIELD(frame_stated, TEXT, text),
};

static const struct frame_field frame_level_fields[] = {
	FIELD(frame_level, U64, seq),
	FIELD(frame_level, U8, level),
	FIELD(frame_level, CODE, code),
	FIELD(frame_level, TEXT, why),
};

static const struct frame_field frame_diverged_fields[] = {
	FIELD(frame_diverged, TEXT, part),
};

static const struct frame_field frame_hold_fields[] = {
	FIELD(frame_hold, U8, question),
	FIELD(frame_hold, U64, seq),
};

static const struct frame_field frame_yes_at_fields[] = {
	FIELD(frame_yes_at, U8, question),
	FIELD(frame_yes_at, U64, polls),
};

static const struct frame_field frame_notification_fields[] = {
	FIELD(frame_notification, TEXT, text),
};

/* By type. A row without fields has no body; is_type knows which rows are types. */
static const struct frame_layout layouts[] = {
	[PROTO_HELLO] = LAYOUT(frame_hello),
	[PROTO_BEGIN] = LAYOUT(frame_begin),
	[PROTO_STAGED] = LAYOUT(frame_staged),
	[PROTO_FAIL] = LAYOUT(frame_fail),
	[PROTO_FLUSH] = LAYOUT(frame_flush),
	[PROTO_RESTORE] = LAYOUT(frame_restore),
	[PROTO_VOTE] = LAYOUT(frame_vote),
	[PROTO_RESTORED] = {NULL, 0, 0},
	[PROTO_LIST] = {NULL, 0, 0},
	[PROTO_PIN] = LAYOUT(frame_pin),
	[PROTO_IMPORTS] = LAYOUT(frame_imports),
	[PROTO_BYE] = LAYOUT(frame_bye),
	[PROTO_NOTICE] = {NULL, 0, 0},
	[PROTO_POLL_COUNT] = LAYOUT(frame_poll_count),
	[PROTO_DONE] = {NULL, 0, 0},
	[PROTO_DAMAGED] = LAYOUT(frame_damaged),
	[PROTO_REMOVE] = LAYOUT(frame_tag),
	[PROTO_FIND] = LAYOUT(frame_tag),
	[PROTO_SCALE] = LAYOUT(frame_scale),
	[PROTO_STATE] = LAYOUT(frame_state),
	[PROTO_WELCOME] = LAYOUT(frame_welcome),
	[PROTO_ERROR] = LAYOUT(frame_error),
	[PROTO_OK] = {NULL, 0, 0},
	[PROTO_GRANT] = LAYOUT(frame_grant),
	[PROTO_FROM_NOTHING] = LAYOUT(frame_from_nothing),
	[PROTO_FROM_MEMORY] = LAYOUT(frame_from_memory),
	[PROTO_FROM_STORE] = LAYOUT(frame_tag),
	[PROTO_VERDICT] = LAYOUT(frame_verdict),
	[PROTO_LISTED] = LAYOUT(frame_listed),
	[PROTO_SCALED] = LAYOUT(frame_scaled),
	[PROTO_STATED] = LAYOUT(frame_stated),
	[PROTO_LEVEL] = LAYOUT(frame_level),
	[PROTO_DIVERGED] = LAYOUT(frame_diverged),
	[PROTO_HOLD] = LAYOUT(frame_hold),
	[PROTO_YES_AT] = LAYOUT(frame_yes_at),
	[PROTO_NOTIFICATION] = LAYOUT(frame_notification),
};

static bool is_type(uint16_t type)
{
	return (type >= PROTO_HELLO && type <= PROTO_STATE) ||
		(type >= PROTO_WELCOME && type <= PROTO_STATED) ||
		(type >= PROTO_LEVEL && type <= PROTO_NOTIFICATION);
}

const struct frame_layout *frame_layout_of(uint16_t type)
{
	return is_type(type) ? &layouts[type] : NULL;
}

/* ---- by the tables ---- */

static void encode(struct wire_out *out, const struct frame_layout *layout, const uint8_t *body);
static void decode(struct wire_in *in, const struct frame_layout *layout, uint8_t *body);

/* Copies a field out of a struct, whose type is not known here: no pointer is converted. */
#define READ(type, at) (*(type *)memcpy(&(type){0}, (at), sizeof(type)))

static void encode_list(struct wire_out *out, const struct frame_field *field, const uint8_t *body)
{
	uint32_t n = READ(uint32_t, body + field->at);

	ASSERT(n <= field->items_max);
	wire_put_u32(out, n);
	for (uint32_t i = 0; i < n; i++) {
		encode(out, field->items,
			body + field->items_at + (size_t)i * field->items->size_bytes);
	}
}

static void encode(struct wire_out *out, const struct frame_layout *layout, const uint8_t *body)
{
	for (uint32_t f = 0; f < layout->fields_n; f++) {
		const struct frame_field *field = &layout->fields[f];
		const uint8_t *at = body + field->at;
		struct frame_blob blob;

		switch (field->kind) {
		case FRAME_U8:
			wire_put_u8(out, *at);
			break;
		case FRAME_BOOL:
			wire_put_u8(out, READ(bool, at));
			break;
		case FRAME_U16:
			wire_put_u16(out, READ(uint16_t, at));
			break;
		case FRAME_U32:
			wire_put_u32(out, READ(uint32_t, at));
			break;
		case FRAME_U64:
			wire_put_u64(out, READ(uint64_t, at));
			break;
		case FRAME_CODE:
			wire_put_u32(out, (uint32_t)-READ(int, at));
			break;
		case FRAME_TEXT:
			ASSERT(memchr(at, '\0', field->size_bytes) != NULL);
			wire_put_str(out, (const char *)at);
			break;
		case FRAME_BLOB:
			memcpy(&blob, at, sizeof(blob));
			wire_put_blob(out, blob.bytes, blob.len_bytes);
			break;
		case FRAME_LIST:
			encode_list(out, field, body);
			break;
		}
	}
}

static void decode_list(struct wire_in *in, const struct frame_field *field, uint8_t *body)
{
	uint32_t n = wire_get_u32(in);

	if (n > field->items_max) {
		in->failed = true;
		return;
	}
	memcpy(body + field->at, &n, sizeof(n));
	for (uint32_t i = 0; i < n; i++) {
		decode(in, field->items,
			body + field->items_at + (size_t)i * field->items->size_bytes);
	}
}

#define WRITE(type, at, value) memcpy((at), &(type){value}, sizeof(type))

static void decode(struct wire_in *in, const struct frame_layout *layout, uint8_t *body)
{
	for (uint32_t f = 0; f < layout->fields_n; f++) {
		const struct frame_field *field = &layout->fields[f];
		uint8_t *at = body + field->at;
		struct frame_blob blob;

		switch (field->kind) {
		case FRAME_U8:
			*at = wire_get_u8(in);
			break;
		case FRAME_BOOL:
			WRITE(bool, at, wire_get_u8(in) != 0);
			break;
		case FRAME_U16:
			WRITE(uint16_t, at, wire_get_u16(in));
			break;
		case FRAME_U32:
			WRITE(uint32_t, at, wire_get_u32(in));
			break;
		case FRAME_U64:
			WRITE(uint64_t, at, wire_get_u64(in));
			break;
		case FRAME_CODE:
			WRITE(int, at, -(int)(wire_get_u32(in) & 0xff));
			break;
		case FRAME_TEXT:
			wire_get_str(in, (char *)at, field->size_bytes);
			break;
		case FRAME_BLOB:
			blob.bytes = wire_get_blob(in, &blob.len_bytes);
			memcpy(at, &blob, sizeof(blob));
			break;
		case FRAME_LIST:
			decode_list(in, field, body);
			break;
		}
	}
}

void frame_encode(struct wire_out *out, enum proto_type type, const void *body)
{
	ASSERT(is_type((uint16_t)type));
	encode(out, &layouts[type], body);
}

bool frame_decode(struct wire_in *in, uint16_t type, void *body, size_t size_bytes)
{
	const struct frame_layout *layout = frame_layout_of(type);

	if (!layout || layout->size_bytes > size_bytes) {
		return false;
	}
	memset(body, 0, layout->size_bytes);
	decode(in, layout, body);
	return wire_in_done(in);
}

uint16_t frame_hello_version(struct wire_in in)
{
	return wire_get_u16(&in);
}
