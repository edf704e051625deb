/*
 * Detects peers that no longer take part, works that are stalled, and ranks that call different
 * collectives; each fails the group. See group_impl.h for the locks.
 *
 * We always receive what a rank sent before we check whether it is alive. So a rank that names the
 * culprit and then ends is not taken for the culprit.
 */
#include "base/err.h"
#include "base/times.h"
#include "coll/group/group_impl.h"

#include <stdio.h>
#include <string.h>

#define PEER_TEXT             24u /* bytes for the name of a peer: "server 4294967295" */
#define MISSED_HEARTBEATS_MAX 4   /* missed heartbeats after which a peer is lost */

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

/* ---- stalled works ---- */

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
		if (fail_queue(group, group_first(group, c))) {
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

/* ---- silent and dead peers ---- */

/* Returns whether a collective before that number still expects bytes of a peer. */
static bool waits_for(struct pawl_group *group, uint32_t peer, uint64_t number)
{
	bool waits = false;
	void *to;

	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		struct pawl_work *work = group_first(group, c);
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

/* Restarts the timeouts of all peers: this process was stopped, as no thread of it drove for
 * long. */
static void reset_last_received(struct pawl_group *group)
{
	for (uint32_t p = 0; p < group->peers; p++) {
		group->liveness.last_received_ns[p] = group->now_ns;
	}
}

void group_keep_alive(struct pawl_group *group, int64_t before_ns)
{
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
}

/* ---- different calls ---- */

void group_fail_mismatch(struct pawl_group *group, uint32_t rank, uint32_t peer,
	struct pawl_err *err)
{
	append_hostname(group, rank, err);
	append_hostname(group, peer, err);
	group_fail(group, err);
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

void group_fail_different(struct pawl_group *group)
{
	struct pawl_err err;

	for (uint32_t p = 0; p < group->ranks && group->failure.code == 0; p++) {
		const uint8_t *theirs = find_different(group, p);
		const uint8_t *ours =
			theirs ? group_header_prefix(group, group_header_number(theirs)) : NULL;

		if (ours && group_prefix_check(theirs, ours, group->rank, p, &err) != 0) {
			group_fail_mismatch(group, group->rank, p, &err);
		}
	}
}

/* ---- all of these ---- */

void group_check_liveness(struct pawl_group *group)
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
		group_fail_different(group);
	}
	if (group->failure.code == 0) {
		fail_stalled(group);
	}
}
