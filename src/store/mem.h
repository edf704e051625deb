/*
 * A store in memory that can lose power: the crash simulator is just another backend.
 *
 * Every write, create, rename, mkdir, sync, and removal of one name is one operation, counted from
 * 1. The store can be stopped at operation n (power is cut before the operation takes effect) and
 * then be turned into what a disk might hold afterwards.
 *
 * A transfer takes effect, and is counted, when it is reaped; transfers are reaped newest first.
 * Synced data is durable; of the rest any part may survive without any other, with one exception:
 * the two halves of a rename survive or vanish together until the sync of one of its directories
 * makes its half certain. So a file may have its name and not its bytes, may be removed and come
 * back, and may have two names or none when only one of two directories was synced. Memory is not
 * freed before close, a file has at most 1 GiB, and running out of memory aborts.
 *
 * A second kind is flat (see store_is_flat), as a bucket is. Its operations are each transfer that
 * writes, each upload that is completed (the sync of a file), each small write and conditional put,
 * and the removal of each object. All but the transfers are durable at once and never torn; uploads
 * that were not completed vanish with the power. A path is not both an object and a directory:
 * writing one then fails with PAWL_EIO.
 */
#ifndef STORE_MEM_H
#define STORE_MEM_H

#include "store/store.h"

struct rng;

/* The fate of each thing not synced when power is lost. */
enum mem_crash {
	MEM_KEEP, /* all unsynced writes and names survive */
	MEM_LOSE, /* none survive */
	/* Each unsynced write by itself is kept, lost, or torn at a random 512-byte boundary; each
	 * name is kept or lost. */
	MEM_TEAR,
};

int store_mem_open(struct store **store, struct pawl_err *err);
int store_mem_open_flat(struct store **store, struct pawl_err *err);
/* Sets whether files of a store of directories can share bytes (at first false). */
void store_mem_clones(struct store *store, bool clones);
/* Cuts power at operation n (0: never): from then on every operation, and every read, fails with
 * PAWL_EIO "power lost". */
void store_mem_cut_at(struct store *store, uint64_t n);
uint64_t store_mem_ops(const struct store *store); /* operations so far */
/* Makes a new store of the same kind, without a cut, from the disk after power loss; the old store
 * stays as it is.
 * Synced data and synced names survive. rng is for MEM_TEAR, which its seed reproduces; otherwise
 * it may be NULL. */
int store_mem_after_crash(const struct store *store, enum mem_crash how, struct rng *rng,
	struct store **after, struct pawl_err *err);
/* Flips one bit of a file, for corruption tests; PAWL_EINVAL if the file is shorter. */
int store_mem_flip(struct store *store, const char *path, uint64_t bit, struct pawl_err *err);
/* Returns the operations that took effect, one per line, for tests of order: mkdir PATH, create
 * PATH, write PATH OFF+LEN, sync PATH, sync_dir PATH, clone PATH OFF+LEN, rename FROM TO, exchange
 * FROM TO, remove PATH; of a flat store: write PATH OFF+LEN, complete PATH, put PATH, remove PATH.
 * Owned by the store, valid until its next operation. */
const char *store_mem_trace(const struct store *store);

#endif
