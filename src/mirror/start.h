/*
 * What a mirror does before the program starts: brings the newest whole units, those that they call
 * the best, and the loose files into the directory; and moves units that a crash left unfinished
 * out of it. All else is left to behind.h.
 *
 * For one thread, which waits for the network.
 */
#ifndef MIRROR_START_H
#define MIRROR_START_H

#include "mirror/core.h"

struct fetch;
struct pawl_err;
struct scan;
struct tags_root;
struct workdir;

/* A unit of the bucket or of the directory. */
struct start_item {
	char path[CKPT_TAG_MAX]; /* path in the directory */
	char tag[CKPT_TAG_MAX];  /* tag of the unit */
	uint64_t step;           /* step, which orders the items */
	int64_t mtime_ns;        /* time that its directory gets */
	bool in_bucket;          /* a complete tag is there, so far as is known */
	bool local;              /* the directory has it */
	bool same;    /* the directory has it as it is in the bucket, to the size at least */
	bool settled; /* nothing is left to do */
};

/* What was found, in the caller's memory. */
struct start {
	struct tags_root *root;         /* the caller's */
	struct fetch *fetch;            /* the caller's */
	struct workdir *work;           /* the caller's */
	struct core *core;              /* the caller's; filled */
	struct scan *scan;              /* the caller's */
	const struct unit_globs *globs; /* the caller's */
	bool whole; /* objects count that lie in what would be a unit: nothing is mirrored back */
	struct start_item *items; /* sorted by step, ascending; owned */
	uint32_t items_n;         /* number of items */
	uint32_t fetched;         /* units fetched */
	uint32_t kept;            /* units that were there */
	uint32_t loose;           /* loose files fetched */
};

/* The caller has set the first seven fields, and all others are 0. On error the program must not
 * start: the directory may be without what is in the bucket. */
int start_run(struct start *start, struct pawl_err *err);
void start_deinit(struct start *start);

#endif
