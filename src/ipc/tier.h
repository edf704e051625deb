/*
 * The memory tier: arenas in memfds (not bound by the size of /dev/shm) that the agent owns and
 * workers map, under a hard budget.
 *
 * The worker that first uses an arena populates its pages, so that they are allocated huge where
 * the system allows it, and charged where they are used.
 */
#ifndef IPC_TIER_H
#define IPC_TIER_H

#include "base/pages.h"

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

/* Sizes are multiples of a huge page, and mappings start at one. */
#define ARENA_ALIGN PAGES_HUGE

/* One rank's memory in one slot. Zeroed: none yet. */
struct arena {
	int fd;              /* memfd, owned; valid if size_bytes > 0 */
	uint64_t size_bytes; /* bytes of the arena, a multiple of ARENA_ALIGN */
	/* Unique in this process, from 1; tells a worker's mapping from a newer arena. */
	uint64_t id;
	uint8_t *map; /* this process's mapping, NULL until arena_map */
	bool empty;   /* emptied by arena_empty, and not used since */
};

/* Makes arena at least need_bytes large, to be filled. A smaller arena grows: its bytes stay, also
 * for a process that has mapped it; it gets another id, so that it is mapped again. */
int arena_ensure(struct arena *arena, uint64_t need_bytes, struct pawl_err *err);
/* Returns an arena's pages to the system, also those that workers populated; all of its bytes are 0
 * then. The arena keeps its size and its mappings. Idempotent. */
void arena_empty(struct arena *arena);
/* Returns the bytes that an arena uses, or is about to use. */
uint64_t arena_used_bytes(const struct arena *arena);
/* Maps an arena into this process. Idempotent. */
int arena_map(struct arena *arena, struct pawl_err *err);
void arena_deinit(struct arena *arena);
uint64_t arena_round(uint64_t need_bytes); /* rounds up to ARENA_ALIGN */

/* Maps fd at a huge page's boundary, shared, huge pages advised, not inherited by forks. NULL and
 * errno on failure. Unmap with arena_unmap. */
uint8_t *arena_map_fd(int fd, uint64_t size_bytes);
void arena_unmap(uint8_t *map, uint64_t size_bytes);

/* The bounds of the tier on this node, in bytes. */
struct tier_limits {
	uint64_t asked;     /* bytes that the user allows; 0: not set */
	uint64_t available; /* MemAvailable */
	uint64_t cgroup;    /* what the tightest memory limit of our cgroups leaves; UINT64_MAX: no
			       limit */
};

/* Returns the budget: what the user allows, but never more than half of what is available, nor half
 * of what the cgroup leaves. Pure. */
uint64_t tier_budget(const struct tier_limits *limits);
/* Reads MemAvailable and the limits of the cgroups (version 1 and 2) this process is in. Does not
 * set asked. */
void tier_limits_read(struct tier_limits *limits);

#endif
