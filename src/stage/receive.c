/*
 * Takes what comes from other ranks: see stage_impl.h. All but stage_receive_early runs on the
 * stage's thread.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "stage/stage_impl.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The stage fails: what a rank sent is not right. */
static void fail_peer(struct pawl_stage *stage, uint32_t peer, struct pawl_err *err)
{
	pawl_err_prefix(err, err->code, "stage: rank %u", peer);
	stage_link_fail(stage, err);
}

/* ---- messages ---- */

struct stage_op *stage_receive_op(struct pawl_work *work)
{
	return (struct stage_op *)(void *)((uint8_t *)work - offsetof(struct stage_op, work));
}

/* Submits a receive. On error the stage fails. */
static void submit(struct pawl_stage *stage, struct stage_op *op, uint32_t tag, void *to,
	uint64_t len_bytes)
{
	const struct pawl_coll_call call = {.kind = PAWL_RECEIVE,
		.dtype = PAWL_UINT8,
		.root = op->peer,
		.tag = tag,
		.len_bytes = len_bytes,
		.out = to};
	struct pawl_err err;

	op->under_way = true;
	if (pawl_group_submit(stage->group, &op->work, &call, &err) != 0) {
		op->under_way = false;
		pthread_mutex_lock(&stage->lock);
		stage_link_cut(stage, &err);
		pthread_mutex_unlock(&stage->lock);
	} else if (!pawl_group_watch(stage->group, &op->work)) {
		op->next = stage->inbox.ready;
		stage->inbox.ready = op;
	}
}

/* ---- bodies ---- */

/* Makes a body for the content of a frame. NULL: no memory; the stage has failed. */
static struct stage_body *make_body(struct pawl_stage *stage, uint32_t peer,
	const struct stage_frame *frame)
{
	struct stage_body *body;
	struct pawl_err err;
	bool value = frame->kind == FRAME_VALUE;

	pthread_mutex_lock(&stage->lock);
	body = stage->inbox.spare;
	stage->inbox.spare = body ? body->next : NULL;
	pthread_mutex_unlock(&stage->lock);
	if (!body) {
		body = FAULT_MEM("stage.receive", calloc(1, sizeof(*body)));
	}
	if (body && !body->known) {
		body->known = true;
		body->next_all = stage->inbox.all;
		stage->inbox.all = body;
	}
	if (body && value && frame->len_bytes > 0) {
		body->memory = stage_memory_take(stage->pool, frame->len_bytes);
	} else if (body && !value) {
		body->bytes = FAULT_MEM("stage.receive", malloc(frame->len_bytes + 1));
	}
	if (!body || (!body->memory && !body->bytes && (!value || frame->len_bytes > 0))) {
		pawl_err_set(&err, PAWL_ENOMEM, "stage: no memory for %llu bytes from rank %u",
			(unsigned long long)frame->len_bytes, peer);
		pthread_mutex_lock(&stage->lock);
		stage_link_fail(stage, &err);
		pthread_mutex_unlock(&stage->lock);
		return NULL;
	}
	body->op.kind = OP_BODY;
	body->op.peer = peer;
	body->frame = *frame;
	body->frame.bytes = NULL;
	return body;
}

static void *content_of(struct stage_body *body)
{
	return body->memory ? stage_memory_bytes(body->memory) : body->bytes;
}

/* Under lock: a body is not in use any more. */
static void recycle_body(struct pawl_stage *stage, struct stage_body *body)
{
	free(body->bytes);
	pawl_stage_memory_release(body->memory);
	body->bytes = NULL;
	body->memory = NULL;
	body->next = stage->inbox.spare;
	stage->inbox.spare = body;
}

/* ---- contents ---- */

/* Under lock: carries out a record of the driver. */
static int apply_record(struct pawl_stage *stage, const struct stage_record *record,
	struct pawl_err *err)
{
	struct stage_core *core = &stage->core;
	uint8_t *copy;
	int rv;

	switch (record->kind) {
	case RECORD_CALL:
		return stage_core_call(core, &record->call, err);
	case RECORD_PUSH:
		return record->to < stage->ranks && record->to != stage->rank
			? stage_core_push(core, record->value, record->to, err)
			: pawl_err_set(err, PAWL_EMISMATCH, "it asks for a push to rank %u",
				  record->to);
	case RECORD_FREE:
		return stage_core_free(core, record->value, err);
	case RECORD_FLUSH:
		return stage_core_flush(core, record->pass, record->microbatch, err);
	case RECORD_NOTE:
		copy = FAULT_MEM("stage.receive", malloc((size_t)record->len_bytes + 1));
		if (!copy) {
			return pawl_err_set(err, PAWL_ENOMEM, "no memory for a note");
		}
		memcpy(copy, record->bytes, record->len_bytes);
		rv = stage_core_note(core, copy, record->len_bytes, err);
		if (rv != 0) {
			free(copy);
		}
		return rv;
	default:
		return stage_core_end(core, err);
	}
}

/* Under lock: carries out a batch. */
static int apply_batch(struct pawl_stage *stage, const uint8_t *bytes, uint64_t len_bytes,
	struct pawl_err *err)
{
	struct stage_record record;
	struct wire_in in;
	int rv = 0;

	wire_in_init(&in, bytes, len_bytes);
	while (rv == 0 && wire_in_left(&in) > 0) {
		rv = stage_record_decode(&record, &in, stage->inbox.needs, err);
		rv = rv == 0 ? apply_record(stage, &record, err) : rv;
	}
	return rv;
}

/* Under lock: keeps the text of the first rank that has failed, and relays it: this rank leaves for
 * it, and whoever sees that first must know why. What cannot be relayed comes from the rank itself,
 * maybe later. */
static int apply_fail(struct pawl_stage *stage, struct stage_body *body, struct pawl_err *err)
{
	const struct stage_frame *frame = &body->frame;
	uint32_t len_bytes = (uint32_t)frame->len_bytes;

	if (frame->rank >= stage->ranks || frame->rank == stage->rank) {
		return pawl_err_set(err, PAWL_EMISMATCH, "it tells of a failure of rank %u",
			frame->rank);
	}
	if (stage->failed) {
		return 0;
	}
	stage_queue_failure(stage, frame->rank, body->op.peer, body->bytes, len_bytes);
	stage->failed = true;
	stage->failed_rank = frame->rank;
	stage->failed_text = body->bytes;
	stage->failed_len = len_bytes;
	body->bytes = NULL;
	pthread_cond_broadcast(&stage->wake);
	return 0;
}

/* Under lock: carries out a frame of the step that has begun, or of none. */
static int apply(struct pawl_stage *stage, struct stage_body *body, struct pawl_err *err)
{
	const struct stage_frame *frame = &body->frame;
	struct pawl_stage_value value;
	int rv;

	switch (frame->kind) {
	case FRAME_BATCH:
		return apply_batch(stage, body->bytes, frame->len_bytes, err);
	case FRAME_NOTE:
		rv = stage_core_note(&stage->core, body->bytes, (uint32_t)frame->len_bytes, err);
		body->bytes = rv == 0 ? NULL : body->bytes;
		return rv;
	case FRAME_VALUE:
		value = frame->value;
		value.data = content_of(body);
		value.held = NULL;
		rv = stage_core_put(&stage->core, &value, body->memory, err);
		body->memory = rv == 0 ? NULL : body->memory;
		return rv;
	default:
		return apply_fail(stage, body, err);
	}
}

/* Under lock: keeps a frame for its step. */
static int keep_early(struct pawl_stage *stage, struct stage_body *body, struct pawl_err *err)
{
	struct stage_inbox *inbox = &stage->inbox;

	if (inbox->early_n >= STAGE_EARLY_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%u frames wait for a step already",
			inbox->early_n);
	}
	inbox->early_n++;
	body->next = NULL;
	if (inbox->early_last) {
		inbox->early_last->next = body;
	} else {
		inbox->early_first = body;
	}
	inbox->early_last = body;
	return 0;
}

/* Under lock: carries out a frame whose content is there, or keeps it for its step. A value of a
 * step that is over is of no use; of the driver, nothing can follow the end of a step. */
static void take(struct pawl_stage *stage, struct stage_body *body)
{
	const struct stage_frame *frame = &body->frame;
	struct stage_core *core = &stage->core;
	bool now = frame->kind == FRAME_FAIL || (frame->step == core->step && core->open);
	struct pawl_err err;
	int rv = 0;

	if (frame->kind != FRAME_FAIL && frame->step > core->step) {
		rv = keep_early(stage, body, &err);
		if (rv == 0) {
			return;
		}
	} else if (now) {
		rv = apply(stage, body, &err);
	} else if (frame->kind != FRAME_VALUE) {
		rv = pawl_err_set(&err, PAWL_EMISMATCH,
			"it goes on with step %llu, which has ended",
			(unsigned long long)frame->step);
	}
	if (rv != 0) {
		fail_peer(stage, body->op.peer, &err);
	}
	recycle_body(stage, body);
}

void stage_receive_early(struct pawl_stage *stage)
{
	struct stage_body *body = stage->inbox.early_first;

	stage->inbox.early_first = stage->inbox.early_last = NULL;
	stage->inbox.early_n = 0;
	while (body) {
		struct stage_body *next = body->next;

		take(stage, body);
		body = next;
	}
}

/* ---- frames ---- */

/* Takes the content of a frame that is there. */
static void finish_body(struct pawl_stage *stage, struct stage_body *body)
{
	pthread_mutex_lock(&stage->lock);
	take(stage, body);
	stage_link_settle(stage);
	pthread_mutex_unlock(&stage->lock);
}

/* Takes a frame: its content is in it, or is received now. */
static void take_frame(struct pawl_stage *stage, uint32_t peer, const uint8_t *bytes)
{
	struct stage_body *body;
	struct stage_frame frame;
	struct pawl_err err;
	int rv = stage_frame_decode(&frame, bytes, &err);

	if (rv == 0 && peer != 0 && (frame.kind == FRAME_BATCH || frame.kind == FRAME_NOTE)) {
		rv = pawl_err_set(&err, PAWL_EMISMATCH, "it issues calls, and is not the driver");
	}
	if (rv != 0) {
		pthread_mutex_lock(&stage->lock);
		fail_peer(stage, peer, &err);
		pthread_mutex_unlock(&stage->lock);
		return;
	}
	body = make_body(stage, peer, &frame);
	if (!body) {
		return;
	}
	if (frame.bytes) {
		if (frame.len_bytes > 0) {
			memcpy(content_of(body), frame.bytes, frame.len_bytes);
		}
		finish_body(stage, body);
		return;
	}
	if (frame.kind != FRAME_VALUE) {
		stage->peers[peer].body = body;
	}
	submit(stage, &body->op, frame.tag, content_of(body), frame.len_bytes);
}

/* Takes the frames of a rank that are there, in order, up to one whose body is awaited. */
static void take_frames(struct pawl_stage *stage, uint32_t rank)
{
	struct stage_peer *peer = &stage->peers[rank];

	while (!peer->body && peer->slots[peer->head].done) {
		struct stage_slot *slot = &peer->slots[peer->head];

		take_frame(stage, rank, slot->bytes);
		slot->done = false;
		submit(stage, &slot->op, 0, slot->bytes, FRAME_BYTES);
		peer->head = (peer->head + 1) % LINK_RECEIVES;
	}
}

static struct stage_slot *slot_of(struct stage_op *op)
{
	return (struct stage_slot *)(void *)((uint8_t *)op - offsetof(struct stage_slot, op));
}

static struct stage_body *body_of(struct stage_op *op)
{
	return (struct stage_body *)(void *)((uint8_t *)op - offsetof(struct stage_body, op));
}

/* A message has failed, and with it the group. Submitting says why: what failed first. */
static void fail_group(struct pawl_stage *stage, struct stage_op *op)
{
	const struct pawl_coll_call call = {.kind = PAWL_SEND,
		.dtype = PAWL_UINT8,
		.root = op->peer};
	struct pawl_work work;
	struct pawl_err err;

	int rv = pawl_group_submit(stage->group, &work, &call, &err);

	ASSERT(rv != 0); /* a message fails only with its group, which stays so */
	pthread_mutex_lock(&stage->lock);
	op->under_way = false;
	stage_link_cut(stage, &err);
	pthread_mutex_unlock(&stage->lock);
}

static void handle(struct pawl_stage *stage, struct stage_op *op)
{
	if (op->work.code != 0) {
		fail_group(stage, op);
		return;
	}
	if (op->kind == OP_FRAME) {
		op->under_way = false;
		slot_of(op)->done = true;
		take_frames(stage, op->peer);
	} else if (op->kind == OP_BODY) {
		struct stage_body *body = body_of(op);
		struct stage_peer *peer = &stage->peers[op->peer];

		op->under_way = false;
		peer->body = peer->body == body ? NULL : peer->body;
		finish_body(stage, body);
		take_frames(stage, op->peer);
	} else {
		pthread_mutex_lock(&stage->lock);
		stage_link_done(stage, op);
		stage_link_settle(stage);
		pthread_mutex_unlock(&stage->lock);
	}
}

/* Returns the next message that is done; NULL: the group has been left. */
static struct stage_op *next_op(struct pawl_stage *stage)
{
	struct stage_op *op = stage->inbox.ready;
	struct pawl_work *work;

	if (op) {
		stage->inbox.ready = op->next;
		return op;
	}
	work = pawl_group_next_completion(stage->group);
	return work ? stage_receive_op(work) : NULL;
}

void *stage_receive_run(void *user)
{
	struct pawl_stage *stage = user;
	struct stage_op *op;
	struct pawl_err err;

	for (uint32_t r = 0; r < stage->ranks; r++) {
		for (uint32_t i = 0; i < LINK_RECEIVES && r != stage->rank; i++) {
			struct stage_slot *slot = &stage->peers[r].slots[i];

			slot->op.kind = OP_FRAME;
			slot->op.peer = r;
			submit(stage, &slot->op, 0, slot->bytes, FRAME_BYTES);
		}
	}
	while ((op = next_op(stage)) != NULL) {
		handle(stage, op);
	}
	pawl_err_set(&err, PAWL_ECANCELED, "stage: the group was left");
	pthread_mutex_lock(&stage->lock);
	stage_link_cut(stage, &err);
	pthread_mutex_unlock(&stage->lock);
	return NULL;
}
