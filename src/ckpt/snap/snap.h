/*
 * The snapshot engine: copies a list of pieces out of live memory while the owner goes on
 * computing, and proves that they did not change.
 *
 * Happy path: begin copies the eager pieces (groups 0), write-protects the pages of all others in
 * one go (userfaultfd, WP_ASYNC: the kernel lets a writer through and drops the page's protection;
 * a page that is still protected was not written), and returns. Threads of the engine then copy and
 * checksum unit by unit (2 MiB), ask the kernel which pages were written (PAGEMAP_SCAN) and lift
 * the protection. fence waits for the pieces that a writer is about to change, and helps to copy
 * them. done is called once, from an engine thread, when all is copied. While no snapshot is in
 * progress, a thread of low priority turns memory that was saved twice into huge pages, which makes
 * begin fast.
 *
 * Failure modes: a page written, dropped (MADV_DONTNEED), unmapped, moved or replaced before it was
 * copied -> done with PAWL_ECHANGED and the piece; handlers of SIGSEGV and SIGBUS let the copy
 * survive memory that vanishes, and pass on all other faults. A write in the instant between the
 * copy of a unit and the lifting of its protection counts as one before the copy. No kernel support
 * -> begin copies everything before it returns (proof SNAP_COPIED). Memory that is not private and
 * anonymous (file-backed, shared) or that the kernel refuses -> those pieces alone are copied
 * before begin returns. Not seen by the kernel's proof: DMA, and mappings of the same memory made
 * by tricks (CUDA, RDMA). Such memory must come with groups 0.
 */
#ifndef CKPT_SNAP_SNAP_H
#define CKPT_SNAP_SNAP_H

#include "ckpt/format/pieces.h"
#include "pawl/ckpt.h"

#define SNAP_THREADS_MAX 64u /* engine threads */

struct snap;

enum snap_proof {
	SNAP_COPIED,  /* everything was copied before begin returned */
	SNAP_WATCHED, /* the kernel watched the memory that was copied later */
	SNAP_FENCED,  /* some memory lay on CUDA devices, where only fences protect it */
};

enum pawl_ckpt_proof snap_public_proof(enum snap_proof proof); /* name in the public API */

struct snap_options {
	unsigned threads; /* engine threads, at most SNAP_THREADS_MAX; 0: one */
	/* Engine threads once a piece lies on a device, at most SNAP_THREADS_MAX: its copies are
	 * limited by what cores can take in, not by the link. */
	unsigned device_threads;
	bool watch; /* false: never watch (copy="now") */
};

/* Called once per snapshot, maybe before begin has returned. rv: 0; or PAWL_ECHANGED, and piece is
 * the index of the first one that changed; or the error of a device's driver, and its piece. Runs
 * on an engine thread; must not call into the engine. */
typedef void snap_done_fn(void *user, int rv, size_t piece);

/* Returns device_threads for each of so many processes (at least 1) of this host that save at the
 * same time: half of the cores per process, since the other half computes. */
unsigned snap_device_threads(uint32_t processes);
/* Opens the engine. PAWL_ENOMEM, PAWL_EIO, PAWL_EINVAL. PAWL_NO_UFFD=1 in the environment turns
 * watching off. */
int snap_open(struct snap **snap, const struct snap_options *options, struct pawl_err *err);
void snap_close(struct snap *snap); /* waits for a snapshot in progress; NULL is fine */
/* Returns the strongest proof that this system allows, determined at open; *why_not says why no
 * stronger one is possible ("userfaultfd: Operation not permitted"). */
enum snap_proof snap_best(const struct snap *snap, const char **why_not);

/*
 * Starts a snapshot; the one before must be done (PAWL_EBUSY). pieces stay the caller's and must
 * not move until done was called; crc is filled in each. watch=false copies everything before
 * returning, for this snapshot. *proof is set to the proof of this snapshot. A watched piece need
 * not consist of whole pages, but any change on its pages counts as a change of the piece. Memory
 * on a device is copied as it is when all work queued on its default stream so far is done.
 *
 * After the first call with the same watched pieces nothing is allocated; the other pieces may
 * differ. PAWL_ENOMEM, PAWL_ELIMIT (CKPT_PIECES_MAX), PAWL_ENOTSUP (in a forked child; pieces on a
 * device and no driver), PAWL_EINVAL and PAWL_EIO (of the driver): nothing was started, and done is
 * not called.
 */
int snap_begin(struct snap *snap, struct ckpt_piece *pieces, size_t n, bool watch,
	snap_done_fn *done, void *user, enum snap_proof *proof, struct pawl_err *err);
/* Waits until every piece with a group in groups is copied and no longer watched; returns at once
 * if no snapshot is in progress. Any thread but the engine's; not while begin runs in another. */
void snap_fence(struct snap *snap, uint64_t groups);
/* Waits until the snapshot in progress is done and its callback has returned. NULL is fine: a
 * session that was never opened. */
void snap_wait(struct snap *snap);
/* After the process forked, the engine is dead in the child; all calls return at once and free
 * nothing. The parent's engine goes on, and the child's writes do not affect it. */

#endif
