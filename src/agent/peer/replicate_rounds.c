/*
 * The thread of a replicator, which takes part in rounds: see replicate.h and rounds.h.
 *
 * The leader announces its newest offer, sends its own part, and waits for what all hosts report.
 * The other hosts ask the leader for the save that is announced, send their parts of it, and report
 * that. A round that fails is repeated with the newest offer of then, which may be the same save:
 * hosts whose peers have their parts of it report so at once.
 *
 * Each call of replicator_set_map begins a new turn: the thread drops everything, its links
 * included, and reads the map.
 */
#include "agent/peer/peer_link.h"
#include "agent/peer/peers.h"
#include "agent/peer/replicate_impl.h"
#include "agent/peer/rounds.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "io/loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPLICATE_NICE  10 /* on a busy machine, the trainer and the loop go first */
#define SUPERSEDED_MANY 5u /* saves in a row that were superseded: users are told */
#define UNREACHED_MANY  2u /* failures in a row to reach the leader: users are told */

/* ---- status ---- */

/* Sets the reason of the last failure; counts it if it is one more failure. */
static void set_why(struct replicator *replicator, bool failed, const char *why)
{
	bool changed;

	pthread_mutex_lock(&replicator->lock);
	changed = failed || strncmp(replicator->status.why, why, PEER_TEXT_MAX - 1) != 0;
	replicator->status.failures += failed;
	snprintf(replicator->status.why, PEER_TEXT_MAX, "%s", why);
	pthread_mutex_unlock(&replicator->lock);
	if (changed) {
		loop_wake(replicator->loop);
	}
}

static void set_global(struct replicator *replicator, const struct peer_save *save)
{
	replicator->turn.global = *save;
	pthread_mutex_lock(&replicator->lock);
	replicator->status.global = *save;
	pthread_mutex_unlock(&replicator->lock);
	loop_wake(replicator->loop);
}

/* Keeps the outcome of a save, after its part was sent or, at the leader, its round has ended. */
static void keep_outcome(struct replicator *replicator, int rv, const struct pawl_err *err)
{
	struct replicate_turn *turn = &replicator->turn;
	char why[PEER_TEXT_MAX];

	if (replicate_interrupted(replicator)) {
		return;
	}
	if (rv != PAWL_ECANCELED) {
		turn->superseded = 0;
		set_why(replicator, rv != 0, rv == 0 ? "" : err->msg);
		return;
	}
	if (turn->superseded_number == turn->announced.number) {
		return; /* tried again meanwhile */
	}
	turn->superseded_number = turn->announced.number;
	turn->superseded++;
	if (turn->superseded >= SUPERSEDED_MANY) {
		snprintf(why, sizeof(why), "saves come faster than they can be replicated (%.200s)",
			err->msg);
		set_why(replicator, turn->superseded == SUPERSEDED_MANY, why);
	}
}

/* ---- a new turn ---- */

/* Writes what a host asks for, as users write it. */
static void name_wish(const struct peer_host *host, char *text, size_t cap_bytes)
{
	snprintf(text, cap_bytes, "rank %" PRIu32 " has replicas=%" PRIu32 ", parity=%s",
		host->first_rank, host->replicas, host->parity ? "True" : "False");
}

/* Checks that all hosts ask for the same. Else parts would wait for others in sums that are never
 * complete, or the leader for hosts that send nothing. */
static bool check_wishes(const struct peer_map *map, struct pawl_err *err)
{
	const struct peer_host *leader = &map->hosts[0];
	char first[64];
	char other[64];

	for (uint32_t i = 1; i < map->n; i++) {
		const struct peer_host *host = &map->hosts[i];

		if (host->replicas != leader->replicas || host->parity != leader->parity) {
			name_wish(leader, first, sizeof(first));
			name_wish(host, other, sizeof(other));
			pawl_err_set(err, PAWL_EMISMATCH,
				"nothing is replicated: %s, and %s: give all ranks' Checkpointers "
				"the same",
				first, other);
			return false;
		}
	}
	return true;
}

/* Returns whether the hosts can replicate. If not, users are told once, by the leader or by the
 * host that it is about. */
static bool can_replicate(struct replicator *replicator)
{
	const struct replicate_turn *turn = &replicator->turn;
	struct pawl_err err = {0};

	if (turn->peers_n == 0) {
		pawl_err_set(&err, PAWL_ENOTSUP,
			"no other host can hold the replicas of rank %" PRIu32
			"'s host: no agent of another host accepts links",
			turn->map.hosts[turn->map.own].first_rank);
	}
	for (uint32_t i = 0; turn->way == REPLICATE_LEAD && err.code == 0 && i < turn->map.n; i++) {
		if (turn->map.hosts[i].address[0] == '\0') {
			pawl_err_set(&err, PAWL_ENOTSUP,
				"nothing is replicated: the agent of rank %" PRIu32
				"'s host has no links to other hosts",
				turn->map.hosts[i].first_rank);
		}
	}
	if (err.code != 0) {
		set_why(replicator, true, err.msg);
	}
	return err.code == 0;
}

/* Chooses the hosts that this one sends its part to. */
static void choose_peers(struct replicator *replicator)
{
	struct replicate_turn *turn = &replicator->turn;
	const struct peer_host *own = &turn->map.hosts[turn->map.own];
	bool parity = own->parity;
	struct place_group group;

	if (parity && place_parity(&turn->map, turn->map.own, own->replicas, &group)) {
		turn->parity = group.parity;
		turn->peers_n = group.parity.m;
		memcpy(turn->peers, group.holders, sizeof(turn->peers));
		return;
	}
	turn->peers_n = place_replicas(&turn->map, turn->map.own, own->replicas, turn->peers);
	if (parity && turn->way == REPLICATE_LEAD && turn->peers_n > 0 && !replicator->noted) {
		replicator->noted = true;
		log_line(LOG_WARNING,
			"parity=True has no effect with fewer than %u hosts: whole replicas are "
			"kept",
			PLACE_PARITY_HOSTS);
	}
}

static void begin_turn(struct replicator *replicator)
{
	struct replicate_turn *turn = &replicator->turn;
	struct pawl_err err;
	bool leads;

	for (uint32_t i = 0; i < REPLICATE_LINKS; i++) {
		replicate_unlink(replicator, i);
	}
	memset(turn, 0, sizeof(*turn));
	pthread_mutex_lock(&replicator->lock);
	turn->epoch = replicator->epoch;
	turn->map = replicator->map;
	leads = replicator->leads;
	pthread_mutex_unlock(&replicator->lock);
	if (turn->map.run == 0 || turn->map.n < 2) {
		return;
	}
	if (!check_wishes(&turn->map, &err)) {
		if (leads) {
			set_why(replicator, true, err.msg);
		}
		return;
	}
	if (turn->map.hosts[0].replicas == 0) {
		return;
	}
	turn->way = leads ? REPLICATE_LEAD : REPLICATE_FOLLOW;
	choose_peers(replicator);
	if (!can_replicate(replicator) && leads) {
		turn->way = REPLICATE_IDLE;
	}
}

/* ---- this host's part ---- */

/* Sends this host's part, unless its peers have it already. */
static int send_part(struct replicator *replicator, const struct offer *offer, struct pawl_err *err)
{
	struct replicate_turn *turn = &replicator->turn;
	int rv;

	if (peer_save_is(&turn->sent, &offer->part.save)) {
		return 0;
	}
	rv = replicate_send(replicator, offer, err);
	if (rv == 0) {
		turn->sent = offer->part.save;
	}
	return rv;
}

/* ---- the leader ---- */

/* Waits for the end of a round. A big save takes any time: the leader waits as long as no host has
 * failed. A host that is lost ends the run. */
static int await_round(struct replicator *replicator, const struct peer_save *save,
	struct pawl_err *err)
{
	int rv;

	do {
		rv = rounds_await(peers_rounds(replicator->peers), replicator->root, save,
			times_ns(TIME_PEER_ANSWER), err);
	} while (rv == PAWL_ETIMEDOUT && !replicate_interrupted(replicator));
	return rv;
}

static int lead_save(struct replicator *replicator, const struct offer *offer, struct pawl_err *err)
{
	struct rounds *rounds = peers_rounds(replicator->peers);
	const struct peer_save *save = &offer->part.save;
	int rv = rounds_announce(rounds, replicator->root, &offer->part, &replicator->turn.global,
		err);

	if (rv != 0) {
		return rv;
	}
	rv = send_part(replicator, offer, err);
	rounds_done(rounds, replicator->root, &offer->part, rv, rv == 0 ? "" : err->msg);
	return rv == 0 ? await_round(replicator, save, err) : rv;
}

/* Until a save of this run is global, one of an earlier run may be known to be. */
static void find_before(struct replicator *replicator)
{
	struct replicate_turn *turn = &replicator->turn;

	if (turn->global.run != turn->map.run) {
		pthread_mutex_lock(&replicator->lock);
		turn->global = replicator->before;
		pthread_mutex_unlock(&replicator->lock);
	}
}

/* Leads one round. */
static void lead(struct replicator *replicator)
{
	struct replicate_turn *turn = &replicator->turn;
	struct pawl_err err = {0};
	struct offer *offer;
	int rv;

	offer = replicate_take_newest(replicator, turn->announced.number,
		turn->again ? times_ns(TIME_PEER_RETRY) : INT64_MAX);
	if (!offer) {
		return;
	}
	turn->announced = offer->part.save;
	find_before(replicator);
	rv = lead_save(replicator, offer, &err);
	replicate_release(replicator, offer);
	turn->again = rv != 0 && rv != PAWL_ENOTSUP && rv != PAWL_EMISMATCH;
	keep_outcome(replicator, rv, &err);
	if (rv == 0 && !replicate_interrupted(replicator)) {
		set_global(replicator, &turn->announced);
	}
}

/* ---- other hosts ---- */

/* Sends a message to the leader and receives the answer. */
static int ask_leader(struct replicator *replicator, const struct peer_msg *msg,
	enum peer_kind answer, struct peer_msg *reply, struct pawl_err *err)
{
	char address[PEER_ADDRESS_MAX];
	struct peer_link *link;
	bool fresh;
	int rv = peers_leader(replicator->peers, address, err);

	rv = rv == 0 ? replicate_link(replicator, REPLICATE_LEADER, address, &link, &fresh, err)
		     : rv;
	rv = rv == 0 ? peer_link_call(link, msg, answer, reply, err) : rv;
	if (rv != 0) {
		replicate_unlink(replicator, REPLICATE_LEADER);
		return pawl_err_prefix(err, rv, "rank 0's host");
	}
	return 0;
}

/* Sends the report that the leader has not taken yet, if there is one. */
static int send_report(struct replicator *replicator, struct pawl_err *err)
{
	struct replicate_turn *turn = &replicator->turn;
	struct peer_msg reply;
	int rv;

	if (turn->report.kind != PEER_DONE) {
		return 0;
	}
	rv = ask_leader(replicator, &turn->report, PEER_OK, &reply, err);
	if (rv == 0) {
		turn->report = (struct peer_msg){0};
		if (turn->again) {
			replicate_pause(replicator, times_ns(TIME_PEER_RETRY));
		}
	}
	return rv;
}

/* Asks the leader for a save that is announced, or global, and newer than what this host knows. A
 * part that failed is sent again if its save is still the one announced. */
static int ask_next(struct replicator *replicator, struct peer_msg *reply, struct pawl_err *err)
{
	const struct replicate_turn *turn = &replicator->turn;
	struct peer_msg next = {.kind = PEER_NEXT,
		.root = replicator->root,
		.global = turn->global};

	if (!turn->again) {
		next.save = turn->announced;
	}
	return ask_leader(replicator, &next, PEER_ROUND, reply, err);
}

/* Fills in this host's part of a save that is not offered, as far as a report needs it. */
static void name_part(const struct peer_map *map, const struct peer_save *save,
	struct peer_part *part)
{
	*part = (struct peer_part){.save = *save,
		.first_rank = map->hosts[map->own].first_rank,
		.ranks = map->hosts[map->own].ranks};
	for (uint32_t i = 0; i < map->n; i++) {
		part->world += map->hosts[i].ranks;
	}
	/* A part has a tag. Nobody here knows that of the save. */
	snprintf(part->tag, sizeof(part->tag), "save-%" PRIu64, save->number);
}

/* Sends this host's part of an announced save, and makes the report. */
static void follow_save(struct replicator *replicator, const struct peer_save *save)
{
	struct replicate_turn *turn = &replicator->turn;
	struct pawl_err err = {0};
	struct peer_part part;
	struct offer *offer;
	int rv;

	turn->announced = *save;
	name_part(&turn->map, save, &part);
	offer = replicate_take(replicator, save, times_ns(TIME_PEER_COMMIT));
	if (turn->peers_n == 0) {
		rv = pawl_err_set(&err, PAWL_ENOTSUP,
			"no other host can hold the replicas of rank %" PRIu32 "'s host",
			part.first_rank);
	} else if (offer) {
		part = offer->part;
		rv = send_part(replicator, offer, &err);
	} else {
		rv = pawl_err_set(&err, PAWL_ECANCELED,
			"save %" PRIu64 " was not committed at rank %" PRIu32
			"'s host, or a newer one has taken its place",
			save->number, part.first_rank);
	}
	if (offer) {
		replicate_release(replicator, offer);
	}
	turn->again = rv != 0 && rv != PAWL_ENOTSUP;
	turn->report = (struct peer_msg){.kind = PEER_DONE,
		.root = replicator->root,
		.part = part,
		.code = rv};
	snprintf(turn->report.text, sizeof(turn->report.text), "%.255s", err.msg);
	if (rv != PAWL_ENOTSUP) { /* users know it since the turn began */
		keep_outcome(replicator, rv, &err);
	}
}

/* Handles that the leader cannot be reached. Users are told from the second failure on: the first
 * may be the end of the leader's agent, which ends the run, too. */
static void keep_unreached(struct replicator *replicator, const struct pawl_err *err)
{
	struct replicate_turn *turn = &replicator->turn;

	if (replicate_interrupted(replicator)) {
		return;
	}
	turn->leader_failures++;
	if (turn->leader_failures == UNREACHED_MANY) {
		set_why(replicator, true, err->msg);
	}
	replicate_pause(replicator, times_ns(TIME_PEER_RETRY));
}

/* Takes the newest global save that the leader knows. */
static void take_global(struct replicator *replicator, const struct peer_save *global)
{
	struct replicate_turn *turn = &replicator->turn;
	bool has_one = turn->global.run == turn->map.run;

	if (global->run == turn->map.run) {
		if (!has_one || global->number > turn->global.number) {
			set_global(replicator, global);
		}
	} else if (global->run != 0 && !has_one) {
		turn->global = *global; /* an earlier run's */
	}
}

/* Asks the leader once, and does what its answer asks for. */
static void follow(struct replicator *replicator)
{
	struct replicate_turn *turn = &replicator->turn;
	struct peer_msg reply = {0};
	struct pawl_err err;
	int rv = send_report(replicator, &err);

	rv = rv == 0 ? ask_next(replicator, &reply, &err) : rv;
	if (rv != 0) {
		keep_unreached(replicator, &err);
		return;
	}
	if (turn->leader_failures >= UNREACHED_MANY) {
		set_why(replicator, false, "");
	}
	turn->leader_failures = 0;
	take_global(replicator, &reply.global);
	if (reply.save.run != turn->map.run && reply.save.run != 0) {
		/* The leader is in the run before, or ahead. */
		replicate_pause(replicator, times_ns(TIME_PEER_RETRY));
	} else if (reply.save.run != 0 &&
		(turn->again || reply.save.number > turn->announced.number)) {
		follow_save(replicator, &reply.save);
	}
}

/* ---- the thread ---- */

/* Waits for a new turn. Returns false if the thread is to end. */
static bool await_turn(struct replicator *replicator)
{
	bool go_on;

	pthread_mutex_lock(&replicator->lock);
	while (!replicator->stop && replicator->turn.way == REPLICATE_IDLE &&
		replicator->turn.epoch == replicator->epoch) {
		pthread_cond_wait(&replicator->changed, &replicator->lock);
	}
	go_on = !replicator->stop;
	pthread_mutex_unlock(&replicator->lock);
	return go_on;
}

void *replicate_run(void *user)
{
	struct replicator *replicator = user;

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), REPLICATE_NICE);
	while (await_turn(replicator)) {
		if (replicate_interrupted(replicator)) {
			begin_turn(replicator);
		} else if (replicator->turn.way == REPLICATE_LEAD) {
			lead(replicator);
		} else {
			follow(replicator);
		}
	}
	for (uint32_t i = 0; i < REPLICATE_LINKS; i++) {
		replicate_unlink(replicator, i);
	}
	return NULL;
}
