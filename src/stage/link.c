/* Sends frames and values to other ranks: see stage_impl.h. */
#include "base/err.h"
#include "base/fault.h"
#include "stage/stage_impl.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void stage_link_fail(struct pawl_stage *stage, const struct pawl_err *why)
{
	if (stage->failure.code == 0) {
		stage->failure = *why;
	}
	pthread_cond_broadcast(&stage->wake);
	pthread_cond_broadcast(&stage->sent);
}

void stage_link_cut(struct pawl_stage *stage, const struct pawl_err *why)
{
	stage->cut = true;
	stage_link_fail(stage, why);
}

/* ---- items ---- */

static struct stage_item *make_item(struct pawl_stage *stage)
{
	struct stage_outbox *outbox = &stage->outbox;
	struct stage_item *item = outbox->spare;

	if (item) {
		outbox->spare = item->next;
		return item;
	}
	item = FAULT_MEM("stage.link", calloc(1, sizeof(*item)));
	if (item) {
		item->next_all = outbox->all;
		outbox->all = item;
	}
	return item;
}

/* Returns the tag of the next body to a rank: never 0, which is that of frames. */
static uint32_t next_tag(struct stage_peer *peer)
{
	peer->tag = peer->tag == UINT32_MAX ? 1 : peer->tag + 1;
	return peer->tag;
}

int stage_link_queue(struct pawl_stage *stage, uint32_t to, struct stage_frame *frame,
	uint8_t *owned, struct stage_value *value)
{
	struct stage_peer *peer = &stage->peers[to];
	struct stage_item *item = make_item(stage);
	bool fits = stage_frame_fits(frame->kind, frame->len_bytes);

	if (!item) {
		return PAWL_ENOMEM;
	}
	frame->tag = fits ? 0 : next_tag(peer);
	stage_frame_encode(item->bytes, frame);
	item->tag = frame->tag;
	item->frame_op.kind = OP_SEND_FRAME;
	item->body_op.kind = OP_SEND_BODY;
	item->frame_op.peer = item->body_op.peer = to;
	item->body = fits ? NULL : frame->bytes;
	item->body_len = fits ? 0 : frame->len_bytes;
	item->owned = owned;
	item->value = value;
	item->ops_left = fits ? 1 : 2;
	item->frame_taken = false;
	item->next = NULL;
	if (peer->first) {
		peer->last->next = item;
	} else {
		peer->first = item;
	}
	peer->last = item;
	stage->outbox.items_n++;
	stage->outbox.frames++;
	stage->outbox.frames_bytes +=
		FRAME_BYTES + (frame->kind == FRAME_VALUE ? 0 : item->body_len);
	return 0;
}

int stage_link_queue_batch(struct pawl_stage *stage, uint32_t to)
{
	struct wire_out *batch = &stage->peers[to].batch;
	struct stage_frame frame = {.kind = FRAME_BATCH,
		.step = stage->core.step,
		.len_bytes = batch->len_bytes,
		.bytes = batch->bytes};
	bool fits = stage_frame_fits(frame.kind, frame.len_bytes);
	int rv = batch->len_bytes > 0
		? stage_link_queue(stage, to, &frame, fits ? NULL : batch->bytes, NULL)
		: 0;

	if (rv == 0 && fits) {
		wire_out_reset(batch);
	} else if (rv == 0) {
		*batch = (struct wire_out){0}; /* the item owns the bytes */
	}
	return rv;
}

/* Queues a value for a rank. */
static int queue_value(struct pawl_stage *stage, struct stage_value *value, uint32_t to)
{
	struct stage_frame frame = {.kind = FRAME_VALUE,
		.step = stage->core.step,
		.len_bytes = value->value.len_bytes,
		.bytes = value->value.data,
		.value = value->value};
	bool fits = stage_frame_fits(FRAME_VALUE, frame.len_bytes);
	int rv = stage_link_queue(stage, to, &frame, NULL, fits ? NULL : value);

	if (rv == 0) {
		stage->outbox.values++;
		stage->outbox.values_bytes += frame.len_bytes;
	}
	if (rv == 0 && fits) {
		stage_core_sent(&stage->core, value); /* the frame has a copy */
	}
	return rv;
}

/* ---- submitting ---- */

/* Takes the next message that can be submitted; NULL: there is none. The ranks take turns. */
static struct stage_op *take_op(struct pawl_stage *stage, struct pawl_coll_call *call)
{
	struct stage_outbox *outbox = &stage->outbox;

	for (uint32_t i = 0; i < stage->ranks; i++) {
		uint32_t to = (outbox->turn + i) % stage->ranks;
		struct stage_peer *peer = &stage->peers[to];
		struct stage_item *item = peer->first;
		bool body;

		if (!item || peer->under_way >= LINK_SENDS_MAX) {
			continue;
		}
		body = item->frame_taken;
		if (body || !item->body) {
			peer->first = item->next;
			outbox->turn = to + 1;
		}
		*call = (struct pawl_coll_call){.kind = PAWL_SEND,
			.dtype = PAWL_UINT8,
			.root = to,
			.tag = body ? item->tag : 0,
			.len_bytes = body ? item->body_len : FRAME_BYTES,
			.in = body ? item->body : item->bytes};
		item->frame_taken = true;
		peer->under_way++;
		return body ? &item->body_op : &item->frame_op;
	}
	return NULL;
}

static struct stage_item *item_of(struct stage_op *op)
{
	size_t at = op->kind == OP_SEND_FRAME ? offsetof(struct stage_item, frame_op)
					      : offsetof(struct stage_item, body_op);

	return (struct stage_item *)(void *)((uint8_t *)op - at);
}

void stage_link_done(struct pawl_stage *stage, struct stage_op *op)
{
	struct stage_item *item = item_of(op);

	op->under_way = false;
	stage->peers[op->peer].under_way--;
	item->ops_left--;
	if (item->ops_left > 0) {
		return;
	}
	free(item->owned);
	item->owned = NULL;
	if (item->value) {
		stage_core_sent(&stage->core, item->value);
		item->value = NULL;
	}
	item->next = stage->outbox.spare;
	stage->outbox.spare = item;
	stage->outbox.items_n--;
	if (stage->outbox.items_n == 0) {
		pthread_cond_broadcast(&stage->sent);
	}
}

/* Submits what is queued, unless a thread does that already: it finds ours as well. */
static void submit_items(struct pawl_stage *stage)
{
	struct pawl_coll_call call;
	struct stage_op *op;
	struct pawl_err err;

	if (stage->outbox.submitting || !stage->peers) {
		return;
	}
	stage->outbox.submitting = true;
	while (!stage->cut && (op = take_op(stage, &call)) != NULL) {
		bool watched = true;
		int rv;

		op->under_way = true;
		pthread_mutex_unlock(&stage->lock);
		rv = pawl_group_submit(stage->group, &op->work, &call, &err);
		if (rv == 0) {
			watched = pawl_group_watch(stage->group, &op->work);
		}
		pthread_mutex_lock(&stage->lock);
		if (rv != 0) {
			op->under_way = false;
			stage_link_cut(stage, &err);
		} else if (!watched && op->work.code == 0) {
			stage_link_done(stage, op);
		} else if (!watched) {
			op->under_way = false; /* receives fail, too, and say why */
		}
	}
	stage->outbox.submitting = false;
}

/* ---- after each change ---- */

void stage_link_take_gone(struct pawl_stage *stage)
{
	struct stage_value *value;

	while ((value = stage_table_take_gone(&stage->core.table)) != NULL) {
		pawl_stage_memory_release(value->memory);
		value->memory = NULL;
		if (!value->value.held) {
			stage_table_recycle(&stage->core.table, value);
			continue;
		}
		value->next = NULL;
		if (stage->released_last) {
			stage->released_last->next = value;
		} else {
			stage->released_first = value;
		}
		stage->released_last = value;
	}
}

void stage_link_settle(struct pawl_stage *stage)
{
	struct stage_value *value;
	struct pawl_err err;
	uint32_t to;

	while (stage->failure.code == 0 &&
		(value = stage_core_take_push(&stage->core, &to)) != NULL) {
		if (queue_value(stage, value, to) != 0) {
			pawl_err_set(&err, PAWL_ENOMEM, "no memory to send value %llu to rank %u",
				(unsigned long long)value->value.id, to);
			stage_link_fail(stage, &err);
		}
	}
	submit_items(stage);
	stage_link_take_gone(stage);
	if (stage->waiters > 0) {
		pthread_cond_broadcast(&stage->wake);
	}
}
