/*
 * Brings a save that the hosts hold in memory to this host, as far as its ranks read it. There is
 * an arena for each rank of the job, laid out as that rank's record says, and filled piece by piece
 * on request. All arenas lie in one memfd, of which only what was filled takes memory. Every piece
 * is verified as it comes; one that is damaged, or whose host is gone, is fetched from the next
 * host that holds it, and rebuilt from sums (parity.h) if none is left. Hosts that failed are asked
 * once more after TIME_PEER_RETRY before a request fails: else one failure would cost all hosts the
 * save.
 *
 * What is brought takes at most seven eighths of the memory that is available when the fetch
 * begins. It fails with PAWL_ENOMEM, and names both sizes, before it takes more: at once if what
 * the ranks here have staged does not fit, else at the request that does not.
 *
 * A thread does the work. Functions are for the loop's thread and never block.
 */
#ifndef AGENT_PEER_FETCH_H
#define AGENT_PEER_FETCH_H

#include "agent/peer/place.h"
#include "agent/peer/recover.h"

#include "pawl/err.h"

struct peer_fetch;
struct loop;
struct peers;

enum peer_fetch_state {
	FETCH_OPENING, /* gets the records of all ranks */
	FETCH_READY,   /* ranks can be offered */
	FETCH_FAILED,  /* err of peer_fetch_state says why */
};

/* One rank of the save. Valid until peer_fetch_close. */
struct peer_fetch_rank {
	const uint8_t *blob; /* encoded record; NULL: the rank has no part in the save */
	uint32_t blob_bytes;
	uint64_t off; /* offset of the arena in the fetch's memory; multiple of ARENA_ALIGN */
	uint64_t arena_bytes; /* size of the arena; filled only where it was asked for */
};

/* A request that has ended. */
struct peer_fetch_done {
	void *user; /* as given with the request */
	int rv;     /* 0, or PAWL_E code: no host has the bytes as they were, or they do not fit */
	struct pawl_err err; /* filled if rv != 0 */
};

/* Starts to fetch the plan's save, of world ranks. The hosts' addresses are in map. Wakes the loop
 * when the state has changed or a request has ended. */
int peer_fetch_open(struct peer_fetch **out, struct peers *peers, struct loop *loop, uint64_t root,
	const struct recover_plan *plan, uint32_t world, const struct peer_map *map,
	struct pawl_err *err);
/* Ends the thread and frees the arenas; workers' mappings stay. NULL is fine. */
void peer_fetch_close(struct peer_fetch *fetch);
enum peer_fetch_state peer_fetch_state(struct peer_fetch *fetch, struct pawl_err *err);
/* Gives the memory in which all arenas lie, one behind the other: a memfd, mapped by workers. Only
 * when ready. */
void peer_fetch_memory(struct peer_fetch *fetch, int *fd, uint64_t *size_bytes);
/* Gives a rank, below world; only when ready. */
void peer_fetch_rank(struct peer_fetch *fetch, uint32_t rank, struct peer_fetch_rank *out);
/* Requests the pieces of a rank's partition that have a byte from lo to before hi of its file.
 * PAWL_EINVAL: there is no such rank or partition. Else peer_fetch_reap returns the request
 * once. */
int peer_fetch_ask(struct peer_fetch *fetch, uint32_t rank, uint32_t part, uint64_t lo, uint64_t hi,
	void *user, struct pawl_err *err);
/* Takes a request that has ended; false: there is none. */
bool peer_fetch_reap(struct peer_fetch *fetch, struct peer_fetch_done *done);
/* Forgets the requests of user: they will not be returned. */
void peer_fetch_forget(struct peer_fetch *fetch, const void *user);

#endif
