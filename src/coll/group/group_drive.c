/*
 * Moves the bytes of a group's operations, and detects peers that no longer take part: see
 * group_impl.h for the locks.
 *
 * We always receive what a rank sent before we check whether it is alive. So a rank that names the
 * culprit and then ends is not taken for the culprit.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/group/group_impl.h"

#include <endian.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES           (64u << 10) /* bytes moved at a time: each stream gets its turn */
#define MISSED_HEARTBEATS_MAX 4           /* missed heartbeats after which a peer is lost */

static const char *peer_name(const struct pawl_group *group, uint32_t peer, char *text)
{
	bool rank = peer < group->ranks;

	snprintf(text, PEER_TEXT, "%s %u", rank ? "rank" : "server",
		rank ? peer : peer - group->ranks);
	return text;
}

/* Appends the name of a rank's host, if ranks are on several hosts. */
static void append_hostname(const struct pawl_group *group, uint32_t rank, struct pawl_err *err)
{
	size_t len = strlen(err->msg);

	if (group->hostnames && rank < group->ranks) {
		snprintf(err->msg + len, sizeof(err->msg) - len, "; rank %u is on %s", rank,
			group->hostnames[rank]);
	}
}

/* ---- ends ---- */

void group_push(struct group_queue *queue, struct pawl_work *work)
{
	priv_of(work)->next = NULL;
	if (queue->last) {
		priv_of(queue->last)->next = work;
	} else {
		queue->first = work;
	}
	queue->last = work;
}

static void remove_work(struct group_queue *queue, struct pawl_work *work)
{
	struct pawl_work *before = NULL;

	for (struct pawl_work *w = queue->first; w != work; w = priv_of(w)->next) {
		ASSERT(w != NULL);
		before = w;
	}
	if (before) {
		priv_of(before)->next = priv_of(work)->next;
	} else {
		queue->first = priv_of(work)->next;
	}
	if (queue->last == work) {
		queue->last = before;
	}
}

static struct group_queue *queue_of(struct pawl_group *group, const struct pawl_work *work)
{
	return is_message(&work->call) ? &group->messages
				       : &group->queues.channels[work->number % COLL_CHANNELS];
}

static void push_completion(struct pawl_group *group, struct pawl_work *work)
{
	struct pawl_work *last = group->queues.completions.last;

	priv_of(work)->next_completion = NULL;
	if (group->queues.completions.first) {
		priv_of(last)->next_completion = work;
	} else {
		group->queues.completions.first = work;
	}
	group->queues.completions.last = work;
	pthread_cond_signal(&group->queues.completed);
}

void group_report_done(struct pawl_group *group, struct pawl_work *work)
{
	if (work->watched) {
		push_completion(group, work);
	}
	__atomic_store_n(&work->done, true, __ATOMIC_RELEASE); /* the caller may free it now */
	pthread_cond_broadcast(&group->driver.over);
}

void group_finish(struct pawl_group *group, struct pawl_work *work, int code)
{
	const struct pawl_coll_call *call = &work->call;

	if (code == 0 && call->mean && call->out &&
		(call->kind != PAWL_REDUCE || call->root == group->rank)) {
		coll_divide(call->dtype, call->out, call->len_bytes / coll_type_bytes(call->dtype),
			group->ranks);
	}
	group->now_ns = group_clock_ns(group);
	pthread_mutex_lock(&group->state);
	remove_work(queue_of(group, work), work);
	if (code == 0) {
		group_stats_done(group, work);
	}
	if (!is_message(call) && priv_of(work)->slot) {
		priv_of(work)->slot->busy = false;
	}
	work->code = code;
	group->queues.pending--;
	group_report_done(group, work);
	pthread_mutex_unlock(&group->state);
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

/* ---- messages ---- */

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
			n < CHUNK_BYTES ? n : CHUNK_BYTES);
	}
	if (n > 0) {
		coll_control_sent(&group->control, peer, n);
		moved = true;
	}
	n = coll_control_to_receive(&group->control, peer, &to);
	n = transport->receive(transport, peer, COLL_CONTROL, to,
		n < CHUNK_BYTES ? n : CHUNK_BYTES);
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

/* ---- collectives ---- */

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
			n < CHUNK_BYTES ? n : CHUNK_BYTES);
	}
	if (n > 0) {
		coll_exec_sent(&slot->exec, peer, n);
		group_stats_moved(group, slot, peer);
	}
	return n > 0;
}

/* Fails the group: two ranks have not called the same. */
static void fail_mismatch(struct pawl_group *group, uint32_t rank, uint32_t peer,
	struct pawl_err *err)
{
	append_hostname(group, rank, err);
	append_hostname(group, peer, err);
	group_fail(group, err);
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
		fail_mismatch(group, caller, peer, &err);
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
			n < CHUNK_BYTES ? n : CHUNK_BYTES);
	}
	if (n > 0) {
		group_stats_add(group, slot, peer, n);
		group_stats_moved(group, slot, peer);
		group->liveness.last_received_ns[peer] = group->now_ns;
	}
	return n > 0;
}

static struct pawl_work *first_of(struct pawl_group *group, uint32_t channel)
{
	struct pawl_work *work;

	pthread_mutex_lock(&group->state);
	work = group->queues.channels[channel].first;
	pthread_mutex_unlock(&group->state);
	return work;
}

/* Returns whose turn it is: of the collectives under way, the first with bytes for another host,
 * and of its messages to other hosts the first in its list. The lists of the ranks begin with
 * different hosts. So at any time one host sends to each host, and senders do not compete for its
 * network. */
static struct group_turn find_turn(struct pawl_group *group)
{
	struct group_turn turn = {UINT64_MAX, group->rank};

	for (uint32_t c = 0; c < COLL_CHANNELS && group->topo.hosts > 1; c++) {
		struct pawl_work *work = first_of(group, c);
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
	struct pawl_work *work = first_of(group, channel);
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

/* ---- peers that no longer take part ---- */

/* Fails the group. The text names the work, and the culprit's host; PAWL_ANY_RANK: there is no
 * culprit. */
static void fail_work(struct pawl_group *group, const struct pawl_work *work, int code,
	uint32_t culprit, const char *why)
{
	char name[GROUP_CALL_TEXT];
	struct pawl_err err;

	group_call_name(&work->call, name);
	pawl_err_set(&err, code, "%s: %s", name, why);
	append_hostname(group, culprit, &err);
	group_fail(group, &err);
}

/* Returns whether a work needs a peer that has left: a collective that the peer left before, or a
 * message to or from it. */
static bool needs_left_peer(struct pawl_group *group, const struct pawl_work *work, uint32_t peer)
{
	uint64_t number;

	if (!coll_control_left(&group->control, peer, &number)) {
		return false;
	}
	return is_message(&work->call) ? work->call.root == peer : work->number >= number;
}

/* Fails the group if a work needs a peer that has left. Returns whether it did. */
static bool fail_left(struct pawl_group *group, const struct pawl_work *work)
{
	char why[64];
	char name[PEER_TEXT];

	for (uint32_t p = 0; p < group->peers && work; p++) {
		if (needs_left_peer(group, work, p)) {
			group->liveness.gone[p] = true;
			snprintf(why, sizeof(why), "%s has left the group",
				peer_name(group, p, name));
			fail_work(group, work, PAWL_EPEER, p, why);
			return true;
		}
	}
	return false;
}

/* Returns whether a peer had not begun that collective at its last heartbeat. */
static bool is_behind(const struct pawl_group *group, uint32_t peer, uint64_t number)
{
	size_t len;
	const uint8_t *status = coll_control_status(&group->control, peer, &len);
	bool behind = status != NULL;

	for (size_t at = 0; at + GROUP_PREFIX_BYTES <= len && behind; at += GROUP_PREFIX_BYTES) {
		uint64_t reported = group_header_number(status + at);

		behind = reported < number || reported == UINT64_MAX;
	}
	return behind;
}

/* Returns a rank that a collective still waits for, PAWL_ANY_RANK if there is none, and whether
 * that rank has begun it. In this order: a peer whose header we lack; any rank that has not begun
 * it, since others wait for that one; a peer whose bytes we lack. */
static uint32_t find_late(const struct pawl_group *group, struct pawl_work *work, bool *begun)
{
	const struct group_slot *slot = is_message(&work->call) ? NULL : priv_of(work)->slot;
	uint32_t late = PAWL_ANY_RANK;
	uint32_t behind = PAWL_ANY_RANK;

	*begun = false;
	for (uint32_t p = 0; slot && p < group->peers; p++) {
		if (slot->headers[p].incoming && slot->headers[p].got < GROUP_HEADER_BYTES) {
			return p;
		}
		if (behind == PAWL_ANY_RANK && p < group->ranks && p != group->rank &&
			is_behind(group, p, work->number)) {
			behind = p;
		}
		if (late == PAWL_ANY_RANK && coll_exec_recv_pending(&slot->exec, p)) {
			late = p;
		}
	}
	*begun = behind == PAWL_ANY_RANK;
	return *begun ? late : behind;
}

static void fail_late(struct pawl_group *group, struct pawl_work *work)
{
	char name[PEER_TEXT];
	char why[128];
	int n = snprintf(why, sizeof(why), "not done within the timeout of %.1f s at rank %u",
		(double)work->call.timeout_ns / NS_PER_S, priv_of(work)->caller);
	bool begun;
	uint32_t late = find_late(group, work, &begun);

	if (group_work_deferred(work)) {
		snprintf(why + n, sizeof(why) - (size_t)n, ": this rank's data is not ready");
	} else if (late != PAWL_ANY_RANK) {
		snprintf(why + n, sizeof(why) - (size_t)n, ": %s has %s",
			peer_name(group, late, name), begun ? "not gone on" : "not begun it");
	}
	fail_work(group, work, PAWL_ETIMEDOUT, late, why);
}

/* Fails the group if a work in a queue is stalled: it needs a peer that has left, or its deadline
 * has passed. Returns whether it did. */
static bool fail_queue(struct pawl_group *group, struct pawl_work *first)
{
	for (struct pawl_work *w = first; w; w = priv_of(w)->next) {
		if (fail_left(group, w)) {
			return true;
		}
		if (group->now_ns >= priv_of(w)->deadline_ns) {
			fail_late(group, w);
			return true;
		}
		if (!is_message(&w->call)) {
			break; /* the collectives behind it have not begun */
		}
	}
	return false;
}

static void fail_stalled(struct pawl_group *group)
{
	struct pawl_work *deferred;

	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		if (fail_queue(group, first_of(group, c))) {
			return;
		}
	}
	pthread_mutex_lock(&group->state);
	deferred = group->queues.inbox.first;
	pthread_mutex_unlock(&group->state);
	if (!fail_queue(group, group->messages.first) && deferred &&
		group->now_ns >= priv_of(deferred)->deadline_ns) {
		fail_late(group, deferred);
	}
}

/* Returns whether a collective before that number still expects bytes of a peer. */
static bool waits_for(struct pawl_group *group, uint32_t peer, uint64_t number)
{
	bool waits = false;
	void *to;

	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		struct pawl_work *work = first_of(group, c);
		struct group_slot *slot = work ? priv_of(work)->slot : NULL;

		waits |= slot && work->number < number &&
			((slot->headers[peer].incoming &&
				 slot->headers[peer].got < GROUP_HEADER_BYTES) ||
				coll_exec_to_receive(&slot->exec, peer, &to) > 0);
	}
	return waits;
}

int64_t group_peer_timeout_ns(const struct pawl_group *group)
{
	return MISSED_HEARTBEATS_MAX * group->liveness.heartbeat_interval_ns;
}

/* Returns whether a peer has sent nothing for too long. The timeout ends a part of an interval
 * early, so that all ranks name the peer when its heartbeat would have come. A peer that has left
 * sends nothing more, which is fine unless we still expect its bytes: a network that was cut may
 * have lost them. */
static bool is_silent(struct pawl_group *group, uint32_t peer)
{
	int64_t most_ns = group_peer_timeout_ns(group) - group->liveness.heartbeat_interval_ns / 16;
	uint64_t number;

	return group_connects_to(group, peer) && group->liveness.heartbeat_interval_ns > 0 &&
		group->now_ns - group->liveness.last_received_ns[peer] > most_ns &&
		(!coll_control_left(&group->control, peer, &number) ||
			waits_for(group, peer, number));
}

/* Fails the group for the first silent peer. Marks the others as gone, for a rank that shrinks the
 * group. */
static void fail_silent(struct pawl_group *group)
{
	char name[PEER_TEXT];
	struct pawl_err err;

	for (uint32_t p = 0; p < group->peers; p++) {
		if (!is_silent(group, p)) {
			continue;
		}
		group->liveness.gone[p] = true;
		if (group->failure.code == 0) {
			pawl_err_set(&err, PAWL_EPEER,
				"%s is lost: not a sign of it for %.1f s: is its process "
				"stopped, or its host?",
				peer_name(group, p, name),
				(double)(group->now_ns - group->liveness.last_received_ns[p]) /
					NS_PER_S);
			append_hostname(group, p, &err);
			group_fail(group, &err);
		}
	}
}

/* Fails the group if a peer is dead. Returns whether the group has failed, for that or another
 * reason. */
static bool fail_dead(struct pawl_group *group, uint32_t peer)
{
	const char *why = group->transport->lost(group->transport, peer);
	char name[PEER_TEXT];
	struct pawl_err err;
	uint64_t number;

	if (!why) {
		return false;
	}
	group_move_control(group); /* receives what the peer sent last */
	if (group->control.failure.code == 0 &&
		!coll_control_left(&group->control, peer, &number)) {
		group->liveness.gone[peer] = true;
		pawl_err_set(&err, PAWL_EPEER, "%s is lost: %s", peer_name(group, peer, name), why);
		append_hostname(group, peer, &err);
		group_fail(group, &err);
	}
	return group->control.failure.code != 0;
}

void group_heartbeat(struct pawl_group *group)
{
	coll_control_heartbeat(&group->control, group->prefixes, sizeof(group->prefixes));
}

/* Returns the prefix of the first collective in a peer's status that differs from our prefix; NULL:
 * none does. */
static const uint8_t *find_different(const struct pawl_group *group, uint32_t peer)
{
	const uint8_t *found = NULL;
	size_t len;
	const uint8_t *status = coll_control_status(&group->control, peer, &len);

	for (size_t at = 0; at + GROUP_PREFIX_BYTES <= len; at += GROUP_PREFIX_BYTES) {
		uint64_t number = group_header_number(status + at);
		const uint8_t *ours = group_header_prefix(group, number);

		if (ours && memcmp(ours, status + at, GROUP_PREFIX_BYTES) != 0 &&
			(!found || number < group_header_number(found))) {
			found = status + at;
		}
	}
	return found;
}

/* Fails the group if ranks call different collectives. They may wait for each other, or go on
 * without each other, and exchange nothing but heartbeats. */
static void fail_different(struct pawl_group *group)
{
	struct pawl_err err;

	for (uint32_t p = 0; p < group->ranks && group->failure.code == 0; p++) {
		const uint8_t *theirs = find_different(group, p);
		const uint8_t *ours =
			theirs ? group_header_prefix(group, group_header_number(theirs)) : NULL;

		if (ours && group_prefix_check(theirs, ours, group->rank, p, &err) != 0) {
			fail_mismatch(group, group->rank, p, &err);
		}
	}
}

/* Checks peers and works while nothing moves, once per TIME_GROUP_WAIT at most. */
static void check_liveness(struct pawl_group *group)
{
	if (group->now_ns - group->liveness.checked_ns < times_ns(TIME_GROUP_WAIT)) {
		return;
	}
	group->liveness.checked_ns = group->now_ns;
	for (uint32_t p = 0; p < group->peers && group->failure.code == 0; p++) {
		if (group_connects_to(group, p) && fail_dead(group, p)) {
			return;
		}
	}
	fail_silent(group);
	if (group->failure.code == 0) {
		fail_different(group);
	}
	if (group->failure.code == 0) {
		fail_stalled(group);
	}
}

/* Restarts the timeouts of all peers: this process was stopped, as no thread of it drove for
 * long. */
static void reset_last_received(struct pawl_group *group)
{
	for (uint32_t p = 0; p < group->peers; p++) {
		group->liveness.last_received_ns[p] = group->now_ns;
	}
}

void group_drive(struct pawl_group *group, int64_t wait_ns)
{
	struct coll_transport *transport = group->transport;
	uint32_t seen = transport->poll(transport);
	int64_t before_ns = group->now_ns;
	int64_t most_ns = times_ns(TIME_GROUP_WAIT);
	bool moved;

	group->now_ns = group_clock_ns(group);
	if (group->now_ns - before_ns >
		MISSED_HEARTBEATS_MAX / 2 * group->liveness.heartbeat_interval_ns) {
		reset_last_received(group);
	}
	if (group->liveness.heartbeat_interval_ns > 0 &&
		group->now_ns - group->liveness.last_heartbeat_ns >=
			group->liveness.heartbeat_interval_ns) {
		group->liveness.last_heartbeat_ns = group->now_ns;
		group_heartbeat(group);
	}
	group_take_inbox(group);
	moved = group_move_control(group);
	if (group->control.status_received) {
		group->control.status_received = false;
		fail_different(group);
	}
	moved |= group->server_state && group_server_receive(group);
	if (group->turn.number != UINT64_MAX) {
		group_stats_turn(group, first_of(group, group->turn.number % COLL_CHANNELS),
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
	check_liveness(group);
	if (wait_ns > 0) {
		transport->wait(transport, seen, wait_ns < most_ns ? wait_ns : most_ns);
	}
}
