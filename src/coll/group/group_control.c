/*
 * The control channel of a group: messages, heartbeats, and the failure of the group, which the
 * peers learn through it. See control.h for what the channel carries, group_impl.h for the locks.
 */
#include "base/fault.h"
#include "coll/group/group_impl.h"

#include <stddef.h>

void group_take_inbox(struct pawl_group *group)
{
	bool failed = group->control.failure.code != 0;
	struct pawl_work *next;
	struct pawl_work *end;

	pthread_mutex_lock(&group->state);
	end = group->queues.inbox.first;
	while (end && (failed || !group_work_deferred(end))) {
		end = priv_of(end)->next;
	}
	next = group->queues.inbox.first;
	group->queues.inbox =
		end ? (struct group_queue){end, group->queues.inbox.last} : (struct group_queue){0};
	pthread_mutex_unlock(&group->state);
	while (next != end) {
		struct pawl_work *work = next;
		const struct pawl_coll_call *call = &work->call;
		bool receive = call->kind == PAWL_RECEIVE;

		next = priv_of(work)->next;
		group_push(&group->messages, work);
		priv_of(work)->message = (struct coll_message){
			.bytes = receive ? call->out : (uint8_t *)(uintptr_t)call->in,
			.len_bytes = call->len_bytes,
			.peer = call->root,
			.tag = call->tag,
			.receive = receive};
		coll_control_post(&group->control, &priv_of(work)->message);
	}
}

static struct pawl_work *work_of(struct coll_message *message)
{
	uint8_t *priv = (uint8_t *)message - offsetof(struct group_work, message);

	return (struct pawl_work *)(void *)(priv - offsetof(struct pawl_work, priv));
}

/* Moves bytes of the control channel to and from one peer. */
static bool move_control(struct pawl_group *group, uint32_t peer)
{
	struct coll_transport *transport = group->transport;
	const void *from;
	void *to;
	size_t n = coll_control_to_send(&group->control, peer, &from);
	bool moved = false;

	if (n > 0) {
		n = transport->send(transport, peer, COLL_CONTROL, from,
			n < GROUP_CHUNK_BYTES ? n : GROUP_CHUNK_BYTES);
	}
	if (n > 0) {
		coll_control_sent(&group->control, peer, n);
		moved = true;
	}
	n = coll_control_to_receive(&group->control, peer, &to);
	n = transport->receive(transport, peer, COLL_CONTROL, to,
		n < GROUP_CHUNK_BYTES ? n : GROUP_CHUNK_BYTES);
	if (n > 0) {
		coll_control_received(&group->control, peer, n);
		group->liveness.last_received_ns[peer] = group->now_ns;
		moved = true;
	}
	return moved;
}

bool group_move_control(struct pawl_group *group)
{
	struct coll_message *message;
	bool moved = false;

	for (uint32_t p = 0; p < group->peers; p++) {
		while (group_connects_to(group, p) && move_control(group, p)) {
			moved = true;
		}
	}
	while ((message = coll_control_take(&group->control)) != NULL) {
		work_of(message)->from = message->peer;
		group_finish(group, work_of(message), 0);
	}
	return moved;
}

void group_heartbeat(struct pawl_group *group)
{
	coll_control_heartbeat(&group->control, group->prefixes, sizeof(group->prefixes));
}

void group_fail(struct pawl_group *group, const struct pawl_err *why)
{
	coll_control_fail(&group->control, why);
	group_take_inbox(group);
	while (coll_control_give_up(&group->control) != NULL) {
	}
	pthread_mutex_lock(&group->state);
	if (group->failure.code == 0) {
		group->failure = *why;
	}
	pthread_mutex_unlock(&group->state);
	/* Notify the peers first: a thread that waits here may end the process. */
	group_move_control(group);
	while (group->messages.first) {
		group_finish(group, group->messages.first, group->failure.code);
	}
	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		while (group->queues.channels[c].first) {
			group_finish(group, group->queues.channels[c].first, group->failure.code);
		}
	}
	FAULT_CRASH("coll.failed");
}
