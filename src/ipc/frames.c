/* Encodes and decodes the bodies of frames by tables of their fields: see frames.h. */
#include "ipc/frames.h"

#include "base/assert.h"
#include "ipc/frame_macros.h"

/* ---- tables ---- */

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
	FIELD(frame_hello, U32, replicas),
	FIELD(frame_hello, BOOL, parity),
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

static const struct frame_field frame_preempt_fields[] = {
	FIELD(frame_preempt, TEXT, job),
	FIELD(frame_preempt, U32, left_ms),
};

static const struct frame_field frame_fetch_fields[] = {
	FIELD(frame_fetch, U32, rank),
	FIELD(frame_fetch, U32, part),
	FIELD(frame_fetch, U64, lo),
	FIELD(frame_fetch, U64, hi),
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

static const struct frame_field frame_peer_share_fields[] = {
	FIELD(frame_peer_share, U64, off),
	FIELD(frame_peer_share, U64, size_bytes),
	FIELD(frame_peer_share, BLOB, record),
};

const struct frame_layout frame_peer_share_layout = LAYOUT(frame_peer_share);

static const struct frame_field frame_from_peers_fields[] = {
	FIELD(frame_from_peers, U64, step),
	FIELD(frame_from_peers, TEXT, tag),
	FIELD(frame_from_peers, U64, memory_bytes),
	ROWS(frame_from_peers, shares, frame_peer_share_layout),
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

static const struct frame_field frame_preempted_fields[] = {
	FIELD(frame_preempted, TEXT, job),
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
	[PROTO_PREEMPT] = LAYOUT(frame_preempt),
	[PROTO_FETCH] = LAYOUT(frame_fetch),
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
	[PROTO_PREEMPTED] = LAYOUT(frame_preempted),
	[PROTO_FROM_PEERS] = LAYOUT(frame_from_peers),
	[PROTO_LEVEL] = LAYOUT(frame_level),
	[PROTO_DIVERGED] = LAYOUT(frame_diverged),
	[PROTO_HOLD] = LAYOUT(frame_hold),
	[PROTO_YES_AT] = LAYOUT(frame_yes_at),
	[PROTO_NOTIFICATION] = LAYOUT(frame_notification),
};

_Static_assert(sizeof(layouts) / sizeof(layouts[0]) == PROTO_NOTIFICATION + 1,
	"each type has a row");
_Static_assert(sizeof(struct frame_hello) <= UINT16_MAX &&
		sizeof(struct frame_from_memory) <= UINT16_MAX,
	"the offset of a field has 16 bits");

static bool is_type(uint16_t type)
{
	return (type >= PROTO_HELLO && type <= PROTO_FETCH) ||
		(type >= PROTO_WELCOME && type <= PROTO_FROM_PEERS) ||
		(type >= PROTO_LEVEL && type <= PROTO_NOTIFICATION);
}

const struct frame_layout *frame_layout_of(uint16_t type)
{
	return is_type(type) ? &layouts[type] : NULL;
}

void frame_encode(struct wire_out *out, enum proto_type type, const void *body)
{
	ASSERT(is_type((uint16_t)type));
	ASSERT(body != NULL || layouts[type].fields_n == 0);
	frame_layout_encode(out, &layouts[type], body);
}

bool frame_decode(struct wire_in *in, uint16_t type, void *body, size_t size_bytes)
{
	const struct frame_layout *layout = frame_layout_of(type);

	return layout && frame_layout_decode(in, layout, body, size_bytes);
}

uint16_t frame_hello_version(struct wire_in in)
{
	return wire_get_u16(&in);
}
