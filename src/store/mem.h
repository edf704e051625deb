/*
 * A store in memory that can lose power: the crash simulator is just another backend.
 *
 * Every write, create, rename, mkdir, sync, and removal of one name is one operation, counted from
 * 1. The store can be stopped at operation n ("power is cut before it takes effect") and then be
 * turned into what a disk might hold afterwards.
 *
 * A transfer takes effect, and is counted, when it is reaped; transfers are reaped newest first.
 * What was synced is durable; of the rest any part may survive without any other, with one
 * exception: the two halves of a rename stand or fall together until the sync of one of its
 * directories makes its half certain. So a file may have its name and not its bytes, may be removed
 * and come back, and may be at two names or at none when only one of two directories was synced.
 * Memory is not given back before close, a file has at most 1 GiB, and running out of memory
 * aborts.
 */
#ifndef STORE_MEM_H
#define STORE_MEM_H

#include "store/store.h"

struct rng;

/* What becomes of each thing not synced when power is lost. */
enum mem_crash {
	MEM_KEEP, /* all unsynced writes and names made it */
	MEM_LOSE, /* none did */
	MEM_TEAR, /* each unsynced write by itself: kept, lost, or torn at a random 512-byte
		     boundary; each name kept or lost */
};

int store_mem_open(struct store **store, struct pawl_err *err);
/* Whether files may share bytes, at first not. */
void store_mem_clones(struct store *store, bool clones);
/* From operation n on (0: never) every operation fails with PAWL_EIO "power lost", as does every
 * read. */
void store_mem_cut_at(struct store *store, uint64_t n);
uint64_t store_mem_ops(const struct store *store); /* operations so far */
/* The disk after power loss, as a new store without a cut; the old one stays as it is. Respects:
 * synced data stays, synced names stay. rng: for MEM_TEAR, which is reproduced by its seed; else
 * may be NULL. */
int store_mem_after_crash(const struct store *store, enum mem_crash how, struct rng *rng,
	struct store **after, struct pawl_err *err);
/* Flips one bit of a file, for corruption tests; PAWL_EINVAL if the file is shorter. */
int store_mem_flip(struct store *store, const char *path, uint64_t bit, struct pawl_err *err);
/* The operations that took effect, a line each, for tests of order: mkdir PATH, create PATH, write
 * PATH OFF+LEN, sync PATH, sync_dir PATH, clone PATH OFF+LEN, rename FROM TO, exchange FROM TO,
 * remove PATH. Owned by the store, until its next operation. */
const char *store_mem_trace(const struct store *store);

#endif
