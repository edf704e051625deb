/* Reads memory that its owner may unmap at any moment, and survives the fault. */
#ifndef CKPT_SNAP_SNAP_GUARD_H
#define CKPT_SNAP_SNAP_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

/*
 * Installs handlers of SIGSEGV and SIGBUS for the process, once; later calls do nothing. Faults
 * outside of snap_guard go to the handlers that were there before. The handlers are never removed:
 * other code may have chained to them since. PAWL_EIO.
 */
int snap_guard_init(struct pawl_err *err);

/*
 * Calls read(user) and returns true; or returns false if it touched an address of [lo, hi) that
 * cannot be read. In that case read was left in the middle, so it must hold no resource that has to
 * be released. Any thread; not nested.
 */
bool snap_guard(void (*read)(void *user), void *user, uintptr_t lo, uintptr_t hi);

#endif
