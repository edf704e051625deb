/* Inside a worker: what this rank reports to the agent of its part of a save: what it has staged,
 * or that nothing will come. See session.h. */
#include "session/session.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/crc.h"

#include <stdio.h>
#include <string.h>

/* Fills the record with what was copied, and with the storages' checksums, combined from those of
 * the pieces in file order. */
static void fill_record(struct pawl_ckpt *ckpt, struct session_part *part, size_t *at)
{
	struct record_part *record = part->record;

	record->pieces = ckpt->layout.record_pieces ? ckpt->layout.record_pieces + *at
						    : NULL; /* a streamed save has none */
	record->pieces_n = 0;
	record->sums_n = ckpt->current.summing && record->shared ? record->storages : 0;
	memset(record->sums, 0, record->storages * sizeof(*record->sums));
	for (size_t i = part->piece_lo; i < part->piece_hi; i++) {
		const struct ckpt_piece *piece = &ckpt->layout.pieces.at[i];

		if (record->sums_n > 0 && piece->storage < record->storages) {
			record->sums[piece->storage] = crc32c_combine(record->sums[piece->storage],
				piece->crc, piece->len_bytes);
		}
		if (piece->dst) {
			/* session_list_part made room for all */
			ASSERT(ckpt->layout.record_pieces != NULL);
			ckpt->layout.record_pieces[(*at)++] = (struct record_piece){piece->file_off,
				piece->len_bytes, piece->crc};
			record->pieces_n++;
		}
	}
}

void session_send_staged(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct record record = {.step = ckpt->current.step,
		.rank = ckpt->options.rank,
		.world = ckpt->options.world,
		.parts_n = ckpt->layout.parts_n,
		.parts = ckpt->layout.records};
	uint64_t took_ns = (uint64_t)(clock_mono_ns() - ckpt->current.begun_ns);
	struct frame_staged staged = {.seq = session_seq(ckpt, id), .stage_ns = took_ns};
	struct pawl_ckpt_status status;
	struct pawl_err err;
	size_t at = 0;

	if (pawl_ckpt_status(ckpt, id, &status, NULL) != 0) {
		return;
	}
	/* until save returns, it stalls the caller all the time */
	staged.stall_ns = status.stall_ns ? status.stall_ns : took_ns;
	for (uint32_t p = 0; p < ckpt->layout.parts_n; p++) {
		fill_record(ckpt, &ckpt->layout.parts[p], &at);
	}
	wire_out_reset(&ckpt->staged.record);
	record_encode(&record, &ckpt->staged.record);
	staged.record = (struct frame_blob){.bytes = ckpt->staged.record.bytes,
		.len_bytes = (uint32_t)ckpt->staged.record.len_bytes};
	session_set_level(ckpt, id, PAWL_CKPT_STAGED);
	if (ckpt->staged.record.failed) {
		session_set_failed(ckpt, id, PAWL_ENOMEM,
			"no memory for the record of what was staged", -1, -1);
	} else if (session_send(ckpt, &ckpt->staged.frame, PROTO_STAGED, &staged, &err) != 0) {
		session_set_failed(ckpt, id, err.code, err.msg, -1, -1);
	}
}

void session_send_fail(struct pawl_ckpt *ckpt, struct wire_out *out, uint64_t id, int code,
	const char *why)
{
	struct frame_fail fail = {.seq = session_seq(ckpt, id), .code = code};

	snprintf(fail.why, sizeof(fail.why), "%s", why);
	snprintf(fail.tag, sizeof(fail.tag), "%s", ckpt->options.named ? ckpt->current.tag : "");
	session_send(ckpt, out, PROTO_FAIL, &fail, NULL);
}
