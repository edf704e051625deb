/* Reading memory that its owner may unmap at any moment, without dying of it. */
#ifndef CKPT_SNAP_GUARD_H
#define CKPT_SNAP_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

/*
 * Installs handlers of SIGSEGV and SIGBUS for the process, once; later calls do nothing. Faults
 * outside of snap_guard go to the handlers that were there before. They stay for good: one cannot
 * know who has chained to them since. PAWL_EIO.
 */
int snap_guard_init(struct pawl_err *err);

/*
 * Calls read(user) and returns true; or false when it touched an address of [lo, hi) that cannot be
 * read: it was then left in the middle, so it may hold nothing that must be given back. Any thread;
 * not nested.
 */
bool snap_guard(void (*read)(void *user), void *user, uintptr_t lo, uintptr_t hi);

#endif
