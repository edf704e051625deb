/* What the driver says to the ranks, itself included: see pawl/stage.h for the contract. */
#include "base/err.h"
#include "base/fault.h"
#include "stage/stage_impl.h"

#include <stdlib.h>
#include <string.h>

#define ALL_RANKS UINT32_MAX /* every rank, instead of one */

/* Takes lock, if this is the driver, which may issue something for a rank. */
static int lock_driver(struct pawl_stage *stage, uint32_t rank, struct pawl_err *err)
{
	int rv;

	if (stage->rank != 0 || (rank >= stage->ranks && rank != ALL_RANKS)) {
		return pawl_err_set(err, PAWL_EINVAL,
			stage->rank != 0 ? "stage: rank %u is not the driver"
					 : "stage: there is no rank %u",
			stage->rank != 0 ? stage->rank : rank);
	}
	rv = stage_lock(stage, false, err);
	if (rv == 0) {
		rv = stage_core_check_going(&stage->core, err);
		rv = rv == 0 ? 0 : stage_unlock(stage, rv, err);
	}
	return rv;
}

/* Under lock: adds a record to another rank's batch. PAWL_ENOMEM: nothing has changed. */
static int collect(struct pawl_stage *stage, uint32_t rank, const struct stage_record *record,
	struct pawl_err *err)
{
	struct wire_out *batch = &stage->peers[rank].batch;
	size_t before = batch->len_bytes;

	stage_record_encode(batch, record);
	if (batch->failed) {
		batch->len_bytes = before;
		batch->failed = false;
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for frames to rank %u", rank);
	}
	if (batch->len_bytes >= LINK_BATCH_SEND) {
		stage_link_queue_batch(stage, rank); /* without memory it leaves later */
	}
	return 0;
}

int pawl_stage_call(struct pawl_stage *stage, uint32_t rank, const struct pawl_stage_call *call,
	struct pawl_err *err)
{
	int rv = lock_driver(stage, rank, err);

	if (rv != 0) {
		return rv;
	}
	if (rank == stage->rank) {
		rv = stage_core_call(&stage->core, call, err);
	} else {
		rv = stage_core_check_call(call, err);
		rv = rv == 0 ? collect(stage, rank,
				       &(struct stage_record){RECORD_CALL, .call = *call}, err)
			     : rv;
	}
	stage->calls_issued += rv == 0;
	return stage_unlock(stage, rv, err);
}

int pawl_stage_push(struct pawl_stage *stage, uint32_t from, uint64_t value, uint32_t to,
	struct pawl_err *err)
{
	int rv = lock_driver(stage, from, err);

	if (rv != 0) {
		return rv;
	}
	if (to >= stage->ranks || to == from) {
		rv = pawl_err_set(err, PAWL_EINVAL, "no push from rank %u to rank %u", from, to);
	} else if (from == stage->rank) {
		rv = stage_core_push(&stage->core, value, to, err);
	} else {
		rv = collect(stage, from,
			&(struct stage_record){RECORD_PUSH, .value = value, .to = to}, err);
	}
	return stage_unlock(stage, rv, err);
}

int pawl_stage_free(struct pawl_stage *stage, uint32_t rank, uint64_t value, struct pawl_err *err)
{
	int rv = lock_driver(stage, rank, err);

	if (rv != 0) {
		return rv;
	}
	rv = rank == stage->rank
		? stage_core_free(&stage->core, value, err)
		: collect(stage, rank, &(struct stage_record){RECORD_FREE, .value = value}, err);
	return stage_unlock(stage, rv, err);
}

int pawl_stage_flush(struct pawl_stage *stage, enum pawl_pipe_kind kind, uint32_t microbatch,
	struct pawl_err *err)
{
	const struct stage_record record = {RECORD_FLUSH, .pass = kind, .microbatch = microbatch};
	int rv = lock_driver(stage, ALL_RANKS, err);

	if (rv != 0) {
		return rv;
	}
	rv = stage_core_check_flush(kind, microbatch, err);
	for (uint32_t r = 1; r < stage->ranks && rv == 0; r++) {
		rv = collect(stage, r, &record, err);
	}
	rv = rv == 0 ? stage_core_flush(&stage->core, kind, microbatch, err) : rv;
	return stage_unlock(stage, rv, err);
}

/* Under lock: sends a long note as a frame of its own, after what was collected. copy: owned by the
 * stage on success. */
static int note_alone(struct pawl_stage *stage, uint32_t rank, uint8_t *copy, uint32_t len_bytes,
	struct pawl_err *err)
{
	struct stage_frame frame = {.kind = FRAME_NOTE,
		.step = stage->core.step,
		.len_bytes = len_bytes,
		.bytes = copy};

	return stage_link_queue_batch(stage, rank) == 0 &&
			stage_link_queue(stage, rank, &frame, copy, NULL) == 0
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for frames to rank %u", rank);
}

int pawl_stage_note(struct pawl_stage *stage, uint32_t rank, const void *bytes, uint32_t len_bytes,
	struct pawl_err *err)
{
	bool alone = rank == stage->rank || len_bytes >= LINK_NOTE_ALONE;
	uint8_t *copy = NULL;
	int rv;

	if (len_bytes > PAWL_STAGE_NOTE_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "stage: a note of %u bytes, at most %u",
			len_bytes, PAWL_STAGE_NOTE_MAX);
	}
	if (alone) {
		copy = FAULT_MEM("stage.note", malloc((size_t)len_bytes + 1));
		if (!copy) {
			return pawl_err_set(err, PAWL_ENOMEM, "stage: no memory for a note");
		}
		if (len_bytes > 0) {
			memcpy(copy, bytes, len_bytes);
		}
	}
	rv = lock_driver(stage, rank, err);
	if (rv != 0) {
		free(copy);
		return rv;
	}
	if (rank == stage->rank) {
		rv = stage_core_note(&stage->core, copy, len_bytes, err);
	} else if (alone) {
		rv = note_alone(stage, rank, copy, len_bytes, err);
	} else {
		rv = collect(stage, rank,
			&(struct stage_record){RECORD_NOTE, .bytes = bytes, .len_bytes = len_bytes},
			err);
	}
	if (rv != 0) {
		free(copy);
	}
	return stage_unlock(stage, rv, err);
}

/* Under lock: queues all batches. */
static int queue_batches(struct pawl_stage *stage, struct pawl_err *err)
{
	for (uint32_t r = 1; r < stage->ranks; r++) {
		if (stage_link_queue_batch(stage, r) != 0) {
			return pawl_err_set(err, PAWL_ENOMEM, "no memory for frames to rank %u", r);
		}
	}
	return 0;
}

int pawl_stage_end(struct pawl_stage *stage, struct pawl_err *err)
{
	const struct stage_record record = {RECORD_END};
	struct pawl_err why;
	int rv = lock_driver(stage, ALL_RANKS, err);

	err = err ? err : &why;
	if (rv != 0) {
		return rv;
	}
	for (uint32_t r = 1; r < stage->ranks && rv == 0; r++) {
		rv = collect(stage, r, &record, err);
	}
	rv = rv == 0 ? queue_batches(stage, err) : rv;
	rv = rv == 0 ? stage_core_end(&stage->core, err) : rv;
	if (rv != 0) {
		stage_link_fail(stage, err); /* some ranks may get the end, others not */
	}
	return stage_unlock(stage, rv, err);
}

int pawl_stage_send(struct pawl_stage *stage, struct pawl_err *err)
{
	int rv = stage_lock(stage, false, err);

	if (rv == 0) {
		rv = stage_unlock(stage, queue_batches(stage, err), err);
	}
	return rv;
}

int pawl_stage_watch(struct pawl_stage *stage, uint64_t value, struct pawl_err *err)
{
	int rv = lock_driver(stage, ALL_RANKS, err);

	return rv == 0 ? stage_unlock(stage, stage_core_watch(&stage->core, value, err), err) : rv;
}

int stage_queue_failure(struct pawl_stage *stage, uint32_t failed, uint32_t from, const void *text,
	uint32_t len_bytes)
{
	int rv = 0;

	for (uint32_t r = 0; r < stage->ranks && rv == 0; r++) {
		bool fits = stage_frame_fits(FRAME_FAIL, len_bytes);
		uint8_t *copy = NULL;

		if (r == stage->rank || r == failed || r == from) {
			continue;
		}
		copy = fits ? NULL : FAULT_MEM("stage.fail", malloc((size_t)len_bytes + 1));
		if (copy) {
			memcpy(copy, text, len_bytes);
		}
		rv = fits || copy ? stage_link_queue(stage, r,
					    &(struct stage_frame){.kind = FRAME_FAIL,
						    .rank = failed,
						    .len_bytes = len_bytes,
						    .bytes = fits ? text : copy},
					    copy, NULL)
				  : PAWL_ENOMEM;
		if (rv != 0) {
			free(copy);
		}
	}
	return rv;
}

int pawl_stage_fail(struct pawl_stage *stage, const void *text, uint32_t len_bytes,
	struct pawl_err *err)
{
	uint8_t *copy;
	int rv;

	if (len_bytes > PAWL_STAGE_NOTE_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "stage: a text of %u bytes, at most %u",
			len_bytes, PAWL_STAGE_NOTE_MAX);
	}
	copy = FAULT_MEM("stage.fail", malloc((size_t)len_bytes + 1));
	if (!copy) {
		return pawl_err_set(err, PAWL_ENOMEM, "stage: no memory for the text of a failure");
	}
	if (len_bytes > 0) {
		memcpy(copy, text, len_bytes);
	}
	rv = stage_lock(stage, true, err);
	if (rv == 0) {
		rv = stage_queue_failure(stage, stage->rank, stage->rank, text, len_bytes) == 0
			? 0
			: pawl_err_set(err, PAWL_ENOMEM, "no memory for the text of a failure");
		if (rv == 0 && !stage->failed) {
			stage->failed = true;
			stage->failed_rank = stage->rank;
			stage->failed_text = copy;
			stage->failed_len = len_bytes;
			copy = NULL;
		}
		rv = stage_unlock(stage, rv, err);
	}
	free(copy);
	return rv;
}
