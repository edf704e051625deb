/*
 * The memory tier: arenas in memfds (not bound by the size of /dev/shm) that the agent owns and
 * workers map, under a hard budget.
 *
 * Pages are put in by the worker that uses an arena first, so that they are allocated huge where
 * the system allows it and charged where they are used.
 */
#ifndef AGENT_TIER_H
#define AGENT_TIER_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

#define ARENA_ALIGN                                                                                \
	(2u << 20) /* bytes: a huge page; sizes are multiples, mappings start at one               \
		    */

/* One rank's memory in one slot. Zeroed: none yet. */
struct arena {
	int fd;              /* memfd, owned; valid if size_bytes > 0 */
	uint64_t size_bytes; /* of it, multiple of ARENA_ALIGN */
	uint64_t id;  /* unique in this process, from 1; tells a worker's mapping from a newer arena
		       */
	uint8_t *map; /* this process's mapping, NULL until arena_map */
	bool empty;   /* arena_empty was the last that happened to it */
};

/* Makes arena at least need_bytes large, to be filled. What is in a smaller one stays, also for who
 * has mapped it; it gets another id, so that it is mapped anew. */
int arena_ensure(struct arena *arena, uint64_t need_bytes, struct pawl_err *err);
/* Gives its pages back to the system, also those that workers put in; all of its bytes are 0 then.
 * It stays as large as it is, and mapped. Idempotent. */
void arena_empty(struct arena *arena);
/* Bytes that it takes, or is about to. */
uint64_t arena_held(const struct arena *arena);
/* Maps it into this process. Idempotent. */
int arena_map(struct arena *arena, struct pawl_err *err);
void arena_deinit(struct arena *arena);
uint64_t arena_round(uint64_t need_bytes); /* up to ARENA_ALIGN */

/* Maps fd at a huge page's boundary, shared, huge pages advised, not inherited by forks. NULL and
 * errno on failure. Unmap with arena_unmap. */
uint8_t *arena_map_fd(int fd, uint64_t size_bytes);
void arena_unmap(uint8_t *map, uint64_t size_bytes);

/* What bounds the tier on this node, in bytes. */
struct tier_limits {
	uint64_t asked;     /* by the user; 0: nothing asked */
	uint64_t available; /* MemAvailable */
	uint64_t cgroup;    /* what the tightest memory limit of our cgroups leaves; UINT64_MAX: no
			       limit */
};

/* The budget: what was asked, but never more than half of what is available and half of what the
 * cgroup leaves. Pure. */
uint64_t tier_budget(const struct tier_limits *limits);
/* Reads MemAvailable and the limits of the cgroups (version 1 and 2) this process is in. asked is
 * left alone. */
void tier_limits_read(struct tier_limits *limits);

#endif
