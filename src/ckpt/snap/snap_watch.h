/*
 * The kernel's watch over memory of this process: finds the pages that were written since they were
 * protected (userfaultfd with WP_ASYNC, PAGEMAP_SCAN; Linux 6.7). Any thread; addresses are
 * multiples of CKPT_PAGE.
 */
#ifndef CKPT_SNAP_SNAP_WATCH_H
#define CKPT_SNAP_SNAP_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

/* Addresses [lo, hi). */
struct snap_range {
	uintptr_t lo, hi;
};

/* The descriptors of a watch. */
struct watch {
	int uffd;    /* userfaultfd, or -1 */
	int pagemap; /* /proc/self/pagemap, or -1 */
};

/* Opens a watch, and tests on its own pages whether everything works. PAWL_ENOTSUP says why not.
 * watch_close is fine after a failure, and on a watch of {-1, -1}. */
int watch_open(struct watch *watch, struct pawl_err *err);
void watch_close(struct watch *watch);

/* Lists the memory that a watch can prove anything about: private and anonymous, ascending,
 * neighbours merged. The caller frees *ranges. PAWL_EIO, PAWL_ENOMEM. */
int watch_ranges(struct snap_range **ranges, size_t *n, struct pawl_err *err);

/* Registers a range, which must be done before it is protected; again is fine. Registration costs
 * nothing later, and ends with the memory. Returns false and errno if the kernel refuses. */
bool watch_register(const struct watch *watch, struct snap_range range);
void watch_unregister(const struct watch *watch, struct snap_range range);

/* Starts watching: from now on the first write to a page drops its protection, and a page that is
 * still protected was not written. Returns false and errno (ENOENT: part of the range is not
 * registered, because its memory was replaced); part of it may then be protected. */
bool watch_protect(const struct watch *watch, struct snap_range range);
/* Ends watching. Memory that is no longer registered stays protected, which costs its writers a
 * microsecond per page, once. */
void watch_lift(const struct watch *watch, struct snap_range range);

/* Calls hit for every run of pages of range that are not proven untouched since they were
 * protected: written, dropped, unmapped or replaced. Runs are ascending. */
typedef void watch_hit_fn(void *user, struct snap_range run);
void watch_scan(const struct watch *watch, struct snap_range range, watch_hit_fn *hit, void *user);

#endif
