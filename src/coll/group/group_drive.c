/*
 * One round of driving: moves the bytes of a group's operations, and has its peers checked. See
 * group_impl.h for the locks.
 */
#include "base/times.h"
#include "coll/group/group_impl.h"

#include <string.h>

/* Sends our header to a peer, then the bytes. Returns whether any were sent. */
static bool send_some(struct pawl_group *group, struct pawl_work *work, uint32_t peer)
{
	struct group_slot *slot = priv_of(work)->slot;
	struct group_header *header = &slot->headers[peer];
	uint32_t channel = work->number % COLL_CHANNELS;
	struct coll_transport *transport = group->transport;
	uint8_t ours[GROUP_HEADER_BYTES];
	const void *from;
	size_t n;

	if (header->outgoing && header->sent < GROUP_HEADER_BYTES) {
		memcpy(ours, slot->header, sizeof(ours));
		group_header_address(ours, &work->call, peer);
		n = transport->send(transport, peer, channel, ours + header->sent,
			GROUP_HEADER_BYTES - header->sent);
		header->sent = (uint8_t)(header->sent + n);
		slot->headers_left -= header->sent == GROUP_HEADER_BYTES;
		return n > 0;
	}
	if (group_is_remote(group, peer) &&
		(group->turn.number != work->number || group->turn.peer != peer)) {
		return false;
	}
	n = coll_exec_to_send(&slot->exec, peer, &from);
	if (n > 0) {
		n = transport->send(transport, peer, channel, from,
			n < GROUP_CHUNK_BYTES ? n : GROUP_CHUNK_BYTES);
	}
	if (n > 0) {
		coll_exec_sent(&slot->exec, peer, n);
		group_stats_moved(group, slot, peer);
	}
	return n > 0;
}

/* Checks a peer's header against ours. A server carries out what the first rank asked for. If we
 * called something else, the server receives our header too before it sends more, and then reports
 * to all ranks who called what. The peer may be at an earlier collective, done here without it: its
 * header is then checked against the prefix, if that is still kept. */
static void check_header(struct pawl_group *group, struct pawl_work *work, uint32_t peer)
{
	const struct group_slot *slot = priv_of(work)->slot;
	const uint8_t *header = slot->headers[peer].bytes;
	uint64_t number = group_header_number(header);
	const uint8_t *ours = number < work->number ? group_header_prefix(group, number) : NULL;
	uint32_t caller = priv_of(work)->caller;
	struct pawl_err err;
	int rv = ours ? group_prefix_check(header, ours, caller, peer, &err) : 0;

	if (rv == 0) {
		rv = group_header_check(header, slot->header, &work->call, caller, peer, &err);
	}
	if (rv != 0 && (rv != PAWL_EMISMATCH || peer < group->ranks)) {
		group_fail_mismatch(group, caller, peer, &err);
	}
}

/* Receives a peer's header and checks it, then the bytes. Returns whether any came. */
static bool receive_some(struct pawl_group *group, struct pawl_work *work, uint32_t peer)
{
	struct group_slot *slot = priv_of(work)->slot;
	struct group_header *header = &slot->headers[peer];
	uint32_t channel = work->number % COLL_CHANNELS;
	struct coll_transport *transport = group->transport;
	void *to;
	size_t n;

	if (header->incoming && header->got < GROUP_HEADER_BYTES) {
		n = transport->receive(transport, peer, channel, header->bytes + header->got,
			GROUP_HEADER_BYTES - header->got);
		header->got = (uint8_t)(header->got + n);
		if (n > 0 && header->got == GROUP_HEADER_BYTES) {
			slot->headers_left--;
			group_stats_header(group, slot, peer);
			check_header(group, work, peer);
		}
		return n > 0;
	}
	n = coll_exec_to_receive(&slot->exec, peer, &to);
	if (n > 0) {
		n = transport->receive(transport, peer, channel, to,
			n < GROUP_CHUNK_BYTES ? n : GROUP_CHUNK_BYTES);
	}
	if (n > 0) {
		group_stats_add(group, slot, peer, n);
		group_stats_moved(group, slot, peer);
		group->liveness.last_received_ns[peer] = group->now_ns;
	}
	return n > 0;
}

/* Returns whose turn it is: of the collectives under way, the first with bytes for another host,
 * and of its messages to other hosts the first in its list. The lists of the ranks begin with
 * different hosts. So at any time one host sends to each host, and senders do not compete for its
 * network. */
static struct group_turn find_turn(struct pawl_group *group)
{
	struct group_turn turn = {UINT64_MAX, group->rank};

	for (uint32_t c = 0; c < COLL_CHANNELS && group->topo.hosts > 1; c++) {
		struct pawl_work *work = group_first(group, c);
		const struct group_slot *slot = work ? priv_of(work)->slot : NULL;
		uint64_t first = UINT64_MAX;

		if (!slot || work->number > turn.number) {
			continue;
		}
		for (uint32_t p = 0; p < group->peers; p++) {
			uint64_t at = group_is_remote(group, p) ? coll_exec_turn(&slot->exec, p)
								: UINT64_MAX;

			if (at < first) {
				first = at;
				turn = (struct group_turn){work->number, p};
			}
		}
	}
	return turn;
}

/* Returns whether a collective that has not begun uses memory of an earlier one that is not done,
 * and one of the two writes it. It begins when the earlier one is done, as if they had been called
 * one after the other. Other ranks may begin it sooner. This cannot deadlock: the earliest
 * collective that is not done waits for no memory at any rank. */
static bool waits_for_memory(struct pawl_group *group, const struct pawl_work *work)
{
	struct group_memory ours = group_call_memory(&work->call, group->rank, group->ranks);
	bool waits = false;

	pthread_mutex_lock(&group->state);
	for (uint32_t c = 0; c < COLL_CHANNELS && !waits; c++) {
		struct pawl_work *before = group->queues.channels[c].first;

		while (before && before->number < work->number && !waits) {
			struct group_memory theirs =
				group_call_memory(&before->call, group->rank, group->ranks);

			waits = group_memory_conflicts(&ours, &theirs);
			before = priv_of(before)->next;
		}
	}
	pthread_mutex_unlock(&group->state);
	return waits;
}

static bool move_channel(struct pawl_group *group, uint32_t channel)
{
	struct pawl_work *work = group_first(group, channel);
	struct group_slot *slot;
	struct pawl_err err;
	bool moved = false;

	if (work == NULL || group_work_deferred(work) ||
		(priv_of(work)->slot == NULL && waits_for_memory(group, work))) {
		return false;
	}
	if (priv_of(work)->slot == NULL && group_slot_take(group, work, &err) != 0) {
		group_fail(group, &err);
		return true;
	}
	slot = priv_of(work)->slot;
	for (uint32_t peer = 0; peer < slot->exec.peers; peer++) {
		moved |= send_some(group, work, peer);
		moved |= receive_some(group, work, peer);
		if (group->failure.code != 0) {
			return true; /* the work may be its caller's again */
		}
	}
	if (slot->headers_left == 0 && coll_exec_done(&slot->exec)) {
		group_finish(group, work, 0);
		moved = true;
	}
	return moved;
}

void group_drive(struct pawl_group *group, int64_t wait_ns)
{
	struct coll_transport *transport = group->transport;
	uint32_t seen = transport->poll(transport);
	int64_t before_ns = group->now_ns;
	int64_t most_ns = times_ns(TIME_GROUP_WAIT);
	bool moved;

	group->now_ns = group_clock_ns(group);
	group_keep_alive(group, before_ns);
	group_take_inbox(group);
	moved = group_move_control(group);
	if (group->control.status_received) {
		group->control.status_received = false;
		group_fail_different(group);
	}
	moved |= group->server_state && group_server_receive(group);
	if (group->turn.number != UINT64_MAX) {
		group_stats_turn(group, group_first(group, group->turn.number % COLL_CHANNELS),
			before_ns);
	}
	group->turn = find_turn(group);
	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		moved |= move_channel(group, c);
	}
	if (group->control.failure.code != 0 && group->failure.code == 0) {
		group_fail(group, &group->control.failure);
		return;
	}
	if (moved) {
		return;
	}
	group_check_liveness(group);
	if (wait_ns > 0) {
		transport->wait(transport, seen, wait_ns < most_ns ? wait_ns : most_ns);
	}
}
