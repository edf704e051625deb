/*
 * Goes on without ranks that are gone: see pawl_group_shrink.
 *
 * Ranks negotiate by proposals, which they send as notices on the streams of the first group, base.
 * A proposal has the round, the set of ranks that the sender takes as left, and the sender's
 * endpoint for the group of that set. A set only gets smaller: by ranks that are gone, and by ranks
 * that another member of the set leaves out. When all of a set have proposed the same, they are the
 * new group. If one of them is gone before the first barrier of that group is done, they begin
 * again. A rank that got further also comes back to this, on the same streams: the lost rank was in
 * its group too, so it learns of the loss.
 *
 * A proposal whose set lacks its own sender means that the sender has moved to another group: see
 * group_admit.c. A rank that has also joined that group, but does not know that all have, follows:
 * it sends the same, and shrinks that group instead, without its newcomers. So either all remaining
 * ranks follow, or none knows that all have joined: then all of the next set have proposed that
 * set, and none of them can follow any more. A rank that did follow, but was taken for gone, gets a
 * notice of that on the streams of the group that it is in.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/group/group_impl.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SET_BYTES      (COLL_RANKS_MAX / 8) /* bytes of a set; one bit per rank */
#define PROPOSAL_BYTES (4u + SET_BYTES + PAWL_ENDPOINT_MAX)
#define AGAIN          1 /* no error: the set has changed */
#define MOVED          2 /* no error: other ranks have moved to the group with newcomers */

struct shrink {
	struct pawl_group *base; /* first group, whose streams carry the notices; the caller's */
	bool grown; /* we have joined a group with newcomers, and do not know whether all have */
	uint32_t least;                   /* number of ranks that must be left */
	int64_t end_ns;                   /* deadline, monotonic ns */
	uint8_t set[SET_BYTES];           /* bit set of base's ranks that are left */
	char endpoint[PAWL_ENDPOINT_MAX]; /* our endpoint for the next group; empty: none yet */
	bool sent;                        /* set and endpoint have been queued to the other ranks */
};

_Static_assert(PROPOSAL_BYTES <= CONTROL_NOTICE_MAX, "a proposal is too long");

static bool has(const uint8_t *set, uint32_t rank)
{
	return (set[rank / 8] >> rank % 8 & 1) != 0;
}

static uint32_t count(const struct shrink *s)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < s->base->ranks; r++) {
		n += has(s->set, r);
	}
	return n;
}

static void leave_out(struct shrink *s, uint32_t rank)
{
	if (has(s->set, rank)) {
		s->set[rank / 8] &= (uint8_t) ~(1u << rank % 8);
		s->endpoint[0] = '\0';
		s->sent = false;
	}
}

/* Returns the last proposal of a rank, from its set on, and its round; NULL: there is none. */
static const uint8_t *proposal_of(const struct shrink *s, uint32_t rank, uint32_t *round)
{
	size_t len;
	const uint8_t *proposal = coll_control_last_notice(&s->base->control, rank, &len);

	if (!proposal || len != PROPOSAL_BYTES || proposal[PROPOSAL_BYTES - 1] != '\0') {
		return NULL;
	}
	memcpy(round, proposal, 4);
	*round = le32toh(*round);
	return proposal + 4;
}

/* ---- under driving ---- */

static bool is_gone(const struct shrink *s, uint32_t rank)
{
	const struct pawl_group *base = s->base;
	uint64_t number;

	return base->liveness.gone[rank] || base->transport->lost(base->transport, rank) ||
		coll_control_left(&base->control, rank, &number);
}

static int handle_proposal(struct shrink *s, uint32_t rank, struct pawl_err *err)
{
	struct pawl_group *base = s->base;
	uint32_t round = 0;
	const uint8_t *proposal = proposal_of(s, rank, &round);

	if (proposal && !has(proposal, rank) && s->grown) {
		return MOVED;
	}
	if (!proposal || (round < base->lineage.round && has(proposal, rank))) {
		return 0;
	}
	if (!has(proposal, base->rank)) {
		return pawl_err_set(err, PAWL_EPEER,
			"collectives: rank %u goes on without this rank", rank);
	}
	if (round > base->lineage.round) {
		base->lineage.round = round;
		s->sent = false;
	}
	for (uint32_t q = 0; q < base->ranks; q++) {
		if (!has(proposal, q)) {
			leave_out(s, q);
		}
	}
	return 0;
}

/* Finds out which ranks are gone, and handles the proposals of all in the set. We read those of
 * ranks that are gone too: they may have gone on without us while we were stopped, and be finished.
 * Returns 0; PAWL_EPEER: they leave us out; or MOVED. */
static int poll_peers(struct shrink *s, struct pawl_err *err)
{
	struct pawl_group *base = s->base;
	int rv = 0;

	group_move_control(base); /* receives what they sent last */
	for (uint32_t r = 0; r < base->ranks && rv == 0; r++) {
		if (r == base->rank || !has(s->set, r)) {
			continue;
		}
		rv = handle_proposal(s, r, err);
		if (is_gone(s, r)) {
			leave_out(s, r);
		}
	}
	return rv;
}

/* Sends a proposal to all ranks, also to those that seem gone: they may only have been stopped. */
static int send_proposal(struct pawl_group *base, const uint8_t *set, const char *endpoint,
	struct pawl_err *err)
{
	uint8_t proposal[PROPOSAL_BYTES] = {0};
	uint32_t round = htole32(base->lineage.round);
	int rv = 0;

	memcpy(proposal, &round, 4);
	memcpy(proposal + 4, set, SET_BYTES);
	memcpy(proposal + 4 + SET_BYTES, endpoint, PAWL_ENDPOINT_MAX);
	for (uint32_t r = 0; r < base->ranks && rv == 0; r++) {
		if (r != base->rank) {
			rv = coll_control_send_notice(&base->control, r, proposal, sizeof(proposal),
				err);
		}
	}
	return rv;
}

static int propose(struct shrink *s, struct pawl_err *err)
{
	int rv = send_proposal(s->base, s->set, s->endpoint, err);

	s->sent = rv == 0;
	return rv;
}

/* Returns the first rank of the set that has not proposed the same, with an endpoint if we have
 * one; base->ranks: there is none. */
static uint32_t find_disagreeing(const struct shrink *s)
{
	uint32_t r = 0;

	for (; r < s->base->ranks; r++) {
		uint32_t round;
		const uint8_t *proposal =
			r == s->base->rank || !has(s->set, r) ? NULL : proposal_of(s, r, &round);

		if (r == s->base->rank || !has(s->set, r)) {
			continue;
		}
		if (!proposal || round != s->base->lineage.round ||
			memcmp(proposal, s->set, SET_BYTES) != 0 ||
			(s->endpoint[0] != '\0' && proposal[SET_BYTES] == '\0')) {
			break;
		}
	}
	return r;
}

/* Returns whether our proposal has been sent to all of the set. */
static bool is_sent(const struct shrink *s)
{
	bool sent = s->sent;

	for (uint32_t r = 0; r < s->base->ranks; r++) {
		sent &= r == s->base->rank || !has(s->set, r) ||
			!coll_control_pending(&s->base->control, r);
	}
	return sent;
}

/* Waits until all of the set have proposed the same, with endpoints if we have one. Returns 0;
 * AGAIN: the set has changed, and our endpoint is no longer valid; MOVED; or an error. */
static int agree(struct shrink *s, struct pawl_err *err)
{
	struct pawl_group *base = s->base;
	bool with_endpoints = s->endpoint[0] != '\0';
	uint32_t other = 0;

	while (other < base->ranks || !is_sent(s)) {
		int rv = poll_peers(s, err);

		if (rv == 0 && !s->sent) {
			rv = propose(s, err);
		}
		if (rv != 0) {
			return rv;
		}
		if (with_endpoints && s->endpoint[0] == '\0') {
			return AGAIN;
		}
		group_drive(base, times_ns(TIME_GROUP_WAIT));
		other = find_disagreeing(s);
		if (other < base->ranks && clock_mono_ns() >= s->end_ns) {
			return pawl_err_set(err, PAWL_ETIMEDOUT,
				"collectives: rank %u did not agree to shrink the group in time",
				other);
		}
	}
	return 0;
}

static void begin_turn(struct pawl_group *group)
{
	pthread_mutex_lock(&group->state);
	while (group->driver.driven) {
		pthread_cond_wait(&group->driver.over, &group->state);
	}
	group_begin_turn(group);
}

static void end_turn(struct pawl_group *group)
{
	group_end_turn(group);
	pthread_mutex_unlock(&group->state);
}

/* ---- the new group ---- */

/* Opens the next group, as each rank of the set does, and exchanges endpoints. May return AGAIN or
 * MOVED. */
static int open_next(struct shrink *s, struct pawl_group **next, struct pawl_err *err)
{
	uint32_t rank = 0;
	int rv;

	for (uint32_t r = 0; r < s->base->rank; r++) {
		rank += has(s->set, r);
	}
	if (count(s) < s->least) {
		return pawl_err_set(err, PAWL_EPEER,
			"collectives: %u of %u ranks are left; at least %u must be", count(s),
			s->base->ranks, s->least);
	}
	rv = group_open(next, rank, count(s), 0, s->base->route_hint, s->endpoint, err);
	if (rv != 0) {
		return rv;
	}
	s->sent = false;
	begin_turn(s->base);
	rv = agree(s, err);
	end_turn(s->base);
	return rv;
}

/* Copies the endpoint that each rank of the set has proposed, in order, and its number in base. We
 * copy since a rank may propose another endpoint as soon as it begins again. */
static void copy_endpoints(struct shrink *s, char (*endpoints)[PAWL_ENDPOINT_MAX],
	uint32_t *base_rank)
{
	uint32_t n = 0;

	begin_turn(s->base);
	for (uint32_t r = 0; r < s->base->ranks; r++) {
		uint32_t round;

		if (has(s->set, r)) {
			const uint8_t *proposal =
				r == s->base->rank ? NULL : proposal_of(s, r, &round);

			snprintf(endpoints[n], PAWL_ENDPOINT_MAX, "%s",
				proposal ? (const char *)proposal + SET_BYTES : s->endpoint);
			base_rank[n++] = r;
		}
	}
	end_turn(s->base);
}

static int join_next(struct shrink *s, struct pawl_group *next, struct pawl_err *err)
{
	const char **endpoints = FAULT_MEM("coll.group", calloc(next->ranks, sizeof(*endpoints)));
	char(*copies)[PAWL_ENDPOINT_MAX] =
		FAULT_MEM("coll.group", calloc(next->ranks, sizeof(*copies)));
	int rv;

	next->lineage.base_rank =
		FAULT_MEM("coll.group", calloc(next->ranks, sizeof(*next->lineage.base_rank)));
	if (endpoints && copies && next->lineage.base_rank) {
		copy_endpoints(s, copies, next->lineage.base_rank);
		for (uint32_t r = 0; r < next->ranks; r++) {
			endpoints[r] = copies[r];
		}
		next->lineage.base = s->base;
		rv = group_join_barrier(next, endpoints, times_ns(TIME_SHRINK_JOIN), err);
	} else {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", next->ranks);
	}
	free(copies);
	free(endpoints);
	return rv;
}

/* Handles a join that failed with rv and err. AGAIN if a rank is gone since, or another rank has
 * begun again; MOVED or PAWL_EPEER as poll_peers returns it; else rv. */
static int join_failed(struct shrink *s, int rv, struct pawl_err *err)
{
	int64_t end_ns =
		clock_mono_ns() + group_peer_timeout_ns(s->base) + times_ns(TIME_SHRINK_GONE);
	uint32_t before = count(s);
	struct pawl_err reason;
	uint32_t round;
	int outcome = 0;

	s->endpoint[0] = '\0';
	s->sent = false;
	begin_turn(s->base);
	round = ++s->base->lineage.round;
	while (outcome == 0 && clock_mono_ns() < end_ns) {
		outcome = poll_peers(s, &reason);
		if (outcome == 0 && (count(s) < before || s->base->lineage.round > round)) {
			outcome = AGAIN;
		}
		group_drive(s->base, times_ns(TIME_GROUP_WAIT));
	}
	end_turn(s->base);
	if (outcome == PAWL_EPEER) {
		return pawl_err_set(err, outcome, "%s", reason.msg);
	}
	return outcome != 0 ? outcome : rv;
}

/* Marks in base the ranks that are gone in the group. */
static void mark_gone_in_base(struct pawl_group *group)
{
	struct pawl_group *base = group->lineage.base;

	for (uint32_t p = 0; p < group->ranks && base; p++) {
		uint64_t number;

		if (p != group->rank &&
			(group->liveness.gone[p] || group->transport->lost(group->transport, p) ||
				coll_control_left(&group->control, p, &number))) {
			base->liveness.gone[group->lineage.base_rank[p]] = true;
		}
	}
}

/* Fails all operations of a group; from now on it carries only notices and heartbeats. */
static void end_group(struct pawl_group *group)
{
	struct pawl_err why;

	begin_turn(group);
	pawl_err_set(&why, PAWL_ECANCELED, "rank %u shrinks the group", group->rank);
	group_fail(group, &why);
	mark_gone_in_base(group);
	end_turn(group);
}

/* Lists the ranks of the new group, by their numbers in the old group. */
static void list_ranks(const struct pawl_group *next, const struct pawl_group *group,
	uint32_t *ranks)
{
	for (uint32_t i = 0, r = 0; i < next->ranks; i++) {
		while (group->lineage.base &&
			group->lineage.base_rank[r] != next->lineage.base_rank[i]) {
			r++;
		}
		ranks[i] = group->lineage.base ? r : next->lineage.base_rank[i];
	}
}

/* Makes the next group, of those of the group's first `ranks` ranks that are left. May return
 * MOVED. */
static int make_next(struct pawl_group **next, struct pawl_group *group, uint32_t ranks,
	uint32_t least, int64_t end_ns, struct pawl_err *err)
{
	struct shrink s = {.base = group->lineage.base ? group->lineage.base : group,
		.grown = group->lineage.grown != NULL,
		.least = least,
		.end_ns = end_ns};
	int rv = AGAIN;

	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t at = group->lineage.base ? group->lineage.base_rank[r] : r;

		s.set[at / 8] |= (uint8_t)(1u << at % 8);
	}
	end_group(group);
	begin_turn(s.base);
	s.base->lineage.round++;
	end_turn(s.base);
	while (rv == AGAIN) {
		begin_turn(s.base);
		rv = agree(&s, err);
		end_turn(s.base);
		rv = rv == 0 ? open_next(&s, next, err) : rv;
		if (rv == 0) {
			rv = join_next(&s, *next, err);
			rv = rv == 0 ? 0 : join_failed(&s, rv, err);
		}
		if (rv != 0) {
			pawl_group_close(*next);
			*next = NULL;
		}
	}
	return rv;
}

int group_notify_moved(struct pawl_group *group, struct pawl_err *err)
{
	static const uint8_t nobody[SET_BYTES];
	static const char no_endpoint[PAWL_ENDPOINT_MAX];
	struct pawl_group *base = group->lineage.base ? group->lineage.base : group;
	int rv;

	if (base->ranks == 1) {
		return 0;
	}
	begin_turn(base);
	rv = send_proposal(base, nobody, no_endpoint, err);
	group_move_control(base);
	end_turn(base);
	return rv;
}

/* Gives up the group with newcomers, in which no rank goes on: a rank that is in it, and was taken
 * for gone, ends. PAWL_EPEER: that group goes on without us, since we were the ones that were
 * stopped. */
static int give_up_grown(struct pawl_group *group, struct pawl_err *err)
{
	struct pawl_group *grown = group->lineage.grown;
	struct shrink s = {.base = grown};
	int rv = group_notify_moved(grown, err);

	begin_turn(grown);
	for (uint32_t r = 0; r < grown->ranks && rv == 0; r++) {
		uint32_t round;
		const uint8_t *proposal = r == grown->rank ? NULL : proposal_of(&s, r, &round);

		rv = proposal && has(proposal, r) ? handle_proposal(&s, r, err)
						  : 0; /* else rank r gives it up too */
	}
	end_turn(grown);
	pawl_group_close(grown);
	group->lineage.grown = NULL;
	return rv;
}

int pawl_group_shrink(struct pawl_group **out, struct pawl_group *group, uint32_t least,
	uint32_t *ranks, uint32_t *n, int64_t timeout_ns, struct pawl_err *err)
{
	int64_t end_ns = clock_add_ns(clock_mono_ns(), timeout_ns);
	struct pawl_group *from = group;
	struct pawl_group *next = NULL;
	int rv;

	if (!group->started || group->closing ||
		(group->lineage.base && group->lineage.base->closing) || group->ranks == 1 ||
		group->pid != getpid()) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: a group that is closed, not joined, or of one rank cannot be "
			"shrunk");
	}
	rv = make_next(&next, group, group->ranks, least, end_ns, err);
	if (rv == MOVED) {
		from = group->lineage.grown;
		rv = group_notify_moved(group, err);
		rv = rv == 0 ? make_next(&next, from, group->ranks, least, end_ns, err) : rv;
	} else if (rv == 0 && group->lineage.grown) {
		rv = give_up_grown(group, err);
	}
	if (rv != 0) {
		pawl_group_close(next);
		return rv;
	}
	list_ranks(next, from, ranks);
	*n = next->ranks;
	*out = next;
	return 0;
}
