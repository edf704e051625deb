/*
 * Sends this host's parts of committed saves to the hosts that hold its replicas, or the sums in
 * which they are: a thread for each root. The rounds (rounds.h) say which save; the leader
 * announces its newest committed one.
 *
 * Functions are for the loop's thread; none blocks for longer than a copy of one record.
 */
#ifndef AGENT_PEER_REPLICATE_H
#define AGENT_PEER_REPLICATE_H

#include "agent/peer/place.h"
#include "ipc/tier.h"

struct loop;
struct peers;
struct replicator;

/* One rank of a committed save. The caller keeps all of it; the replicator duplicates descriptors
 * and copies records. */
struct replicate_rank {
	const void *blob; /* encoded record; NULL: the rank has no part */
	uint32_t blob_bytes;
	int fd;               /* the arena */
	uint64_t arena_bytes; /* size of the arena */
};

struct replicate_status {
	struct peer_save
		global;    /* newest save of which all parts are at their peers; run 0: none */
	uint64_t failures; /* counts the failures so far */
	char why[PEER_TEXT_MAX]; /* reason of the last one, for users; "": it is over */
	uint64_t sent_bytes;     /* bytes sent so far */
};

/* Starts the thread. It calls loop_wake(loop) when the status has changed. */
int replicator_start(struct replicator **out, struct peers *peers, struct loop *loop, uint64_t root,
	struct pawl_err *err);
/* Ends the thread; the loop may be closed. NULL is fine. */
void replicator_stop(struct replicator *replicator);
/* The hosts of the run that is in force; NULL: there is none. What was offered before is forgotten.
 * If not all hosts ask for the same number of replicas, or sums, nothing is sent in the run, and
 * the leader's status says which hosts differ. */
int replicator_set_map(struct replicator *replicator, const struct peer_map *map,
	struct pawl_err *err);
/* The newest save of earlier runs that is known to be at all peers, and of which the ranks have
 * lost nothing since; run 0: none is known, as after each replicator_set_map. Other hosts learn it
 * from the leader, and keep their replicas of it until a save of the run in force is global. */
void replicator_set_before(struct replicator *replicator, const struct peer_save *before);
/* A save of the run in force is committed here, in this slot; ranks has part->ranks entries. */
int replicator_offer(struct replicator *replicator, int slot, const struct peer_part *part,
	const struct replicate_rank *ranks, struct pawl_err *err);
/* The memory of a slot is about to be written to: no byte that is read from then on is sent. The
 * save in it is given up if it is being sent. Does nothing if the slot holds no offer. */
void replicator_withdraw(struct replicator *replicator, int slot);
void replicator_status(struct replicator *replicator, struct replicate_status *status);

#endif
