/*
 * The kernel's watch over memory of this process: which pages were written since they were
 * protected (userfaultfd with WP_ASYNC, PAGEMAP_SCAN; Linux 6.7). Any thread; addresses are
 * multiples of CKPT_PAGE.
 */
#ifndef CKPT_SNAP_WATCH_H
#define CKPT_SNAP_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

/* Addresses [lo, hi). */
struct snap_range {
	uintptr_t lo, hi;
};

/* What it takes to watch. */
struct watch {
	int uffd;    /* userfaultfd, or -1 */
	int pagemap; /* /proc/self/pagemap, or -1 */
};

/* Opens, and tries on a page of its own whether everything works. PAWL_ENOTSUP with why not; then,
 * and when zeroed by {-1, -1}, watch_close is still fine. */
int watch_open(struct watch *watch, struct pawl_err *err);
void watch_close(struct watch *watch);

/* The memory that a watch proves anything about, private and anonymous, ascending, neighbours
 * merged. The caller frees *ranges. PAWL_EIO, PAWL_ENOMEM. */
int watch_ranges(struct snap_range **ranges, size_t *n, struct pawl_err *err);

/* A range must be registered before it is protected; again is fine. Registration costs nothing
 * later, and ends with the memory. false and errno when the kernel refuses. */
bool watch_register(const struct watch *watch, struct snap_range range);
void watch_unregister(const struct watch *watch, struct snap_range range);

/* Starts watching: from now on the first write to a page marks it. false and errno (ENOENT: part of
 * it is not registered, its memory was replaced); then part of it may be protected. */
bool watch_protect(const struct watch *watch, struct snap_range range);
/* Ends watching. What is no longer registered stays as it is: that costs its writers a microsecond
 * a page, once. */
void watch_lift(const struct watch *watch, struct snap_range range);

/* Calls hit for every run of pages of range that is not proven untouched since it was protected:
 * written, dropped, unmapped or replaced. Ascending. */
typedef void watch_hit_fn(void *user, struct snap_range run);
void watch_scan(const struct watch *watch, struct snap_range range, watch_hit_fn *hit, void *user);

#endif
