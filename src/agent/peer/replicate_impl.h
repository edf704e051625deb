/* Shared by the parts of a replicator: replicate.c has what the loop calls and the offers,
 * replicate_rounds.c the thread, which takes part in rounds, and replicate_send.c sends a part. See
 * replicate.h. */
#ifndef AGENT_PEER_REPLICATE_IMPL_H
#define AGENT_PEER_REPLICATE_IMPL_H

#include "agent/peer/replicate.h"
#include "ipc/tier_slots.h"

#include <pthread.h>

struct peer_link;

#define REPLICATE_LEADER 0u /* index of the link to the leader */
#define REPLICATE_PEER   1u /* index of the link to the first peer */
#define REPLICATE_LINKS  (REPLICATE_PEER + PLACE_REPLICAS_MAX)

/* One rank of an offered save. */
struct offer_rank {
	uint8_t *blob;        /* encoded record, owned; NULL: the rank has no part */
	uint32_t blob_bytes;  /* length of blob */
	int fd;               /* descriptor of the arena, owned; -1: the rank has no part */
	uint64_t arena_bytes; /* size of the arena */
};

/* A save that is committed here. Freed when it has left its slot and the thread does not use it. */
struct offer {
	struct peer_part part;    /* constant */
	struct offer_rank *ranks; /* constant; part.ranks entries */
	bool in_use;              /* lock: the thread uses it */
	bool withdrawn;           /* lock: no byte that is read from now on may be sent */
};

/* What this host does in the run in force. */
enum replicate_way {
	REPLICATE_IDLE,   /* nothing */
	REPLICATE_LEAD,   /* announces saves, and sends its own part */
	REPLICATE_FOLLOW, /* waits for announced saves, sends its part and reports it */
};

/* What the thread has in mind of the run in force. */
struct replicate_turn {
	uint64_t epoch;         /* number of the set_map that began it */
	enum replicate_way way; /* what this host does */
	struct peer_map map;    /* hosts of the run */
	/* Indices of the hosts that hold this host's replicas, nearest first; or sums, by row. */
	uint32_t peers[PLACE_REPLICAS_MAX];
	uint32_t peers_n;           /* entries in peers */
	struct peer_parity parity;  /* place in the first sum; k 0: replicas are held */
	struct peer_save announced; /* newest announced save that this host knows */
	struct peer_save sent;      /* newest save of which all peers have this host's part */
	/* Newest global save of the run; of an earlier one until there is one; run 0: none. */
	struct peer_save global;
	bool again;                 /* the announced save failed, and may be announced again */
	struct peer_msg report;     /* PEER_DONE that the leader has not taken yet; kind 0: none */
	uint64_t superseded_number; /* number of the last save that a newer one has stopped */
	uint32_t superseded;        /* saves in a row that a newer one has stopped */
	uint32_t leader_failures;   /* failures in a row to reach the leader */
};

struct replicator {
	struct peers *peers; /* constant, like the next two */
	struct loop *loop;
	uint64_t root;
	pthread_t thread;
	pthread_mutex_t lock;    /* guards what is marked "lock", and the fields of offers */
	pthread_cond_t changed;  /* stop, epoch or offers changed */
	bool stop;               /* lock: the thread is to end */
	uint64_t epoch;          /* lock: counts calls of replicator_set_map */
	bool leads;              /* lock: this host is the leader of the run in force */
	struct peer_map map;     /* lock: hosts of the run in force; run 0: none */
	struct peer_save before; /* lock: see replicator_set_before */
	struct offer *offers[ARENA_SLOTS]; /* lock: saves of that run by slot; NULL: none */
	uint64_t newest;                   /* lock: number of the newest save offered in it */
	struct replicate_status status;    /* lock */
	/* lock: links that the thread uses; it alone sets them, and frees them. */
	struct peer_link *links[REPLICATE_LINKS];
	struct replicate_turn turn; /* thread's */
	bool noted;                 /* thread's: users know that there are too few hosts for sums */
	uint8_t *block;             /* thread's: PEER_BLOCK bytes, owned */
};

/* ---- replicate.c; none may be called with the lock held ---- */

/* Whether the thread is to drop what it does: the run is another, or the replicator ends. */
bool replicate_interrupted(struct replicator *replicator);
/* Waits for a time. Returns false, at once, if the thread is interrupted. */
bool replicate_pause(struct replicator *replicator, int64_t pause_ns);
/* Waits for an offer of the run with a higher number than this, or, once again_ns are over, with
 * this number; takes the newest. NULL: the thread is interrupted. To be released. */
struct offer *replicate_take_newest(struct replicator *replicator, uint64_t number,
	int64_t again_ns);
/* Takes the offer of a save; waits until it is there, will never come, or for timeout_ns. NULL:
 * there is none. To be released. */
struct offer *replicate_take(struct replicator *replicator, const struct peer_save *save,
	int64_t timeout_ns);
void replicate_release(struct replicator *replicator, struct offer *offer);
/* Counts bytes that were read from an offer and are to be sent. Returns false if they must not be:
 * the offer was withdrawn, or the thread is interrupted. */
bool replicate_may_send(struct replicator *replicator, const struct offer *offer,
	uint32_t len_bytes);
/* Returns an open link, which stays open for the next call; *fresh: this call has opened it. */
int replicate_link(struct replicator *replicator, uint32_t index, const char *address,
	struct peer_link **link, bool *fresh, struct pawl_err *err);
void replicate_unlink(struct replicator *replicator, uint32_t index);

/* ---- replicate_rounds.c ---- */

/* The thread of a replicator, user. Runs until stop is set. */
void *replicate_run(void *user);

/* ---- replicate_send.c ---- */

/* Sends this host's part of a save to all its peers. PAWL_ECANCELED: it was withdrawn, or the
 * thread is interrupted. */
int replicate_send(struct replicator *replicator, const struct offer *offer, struct pawl_err *err);

#endif
