/* Turns watched memory into huge pages while no snapshot is in progress, which makes protecting it
 * much faster. Best effort: nothing here can fail once it is open. */
#ifndef CKPT_SNAP_SNAP_HUGE_H
#define CKPT_SNAP_SNAP_HUGE_H

#include "ckpt/snap/snap_watch.h"

struct pawl_err;
struct huge; /* a thread of low priority */

int huge_open(struct huge **huge, struct pawl_err *err); /* PAWL_ENOMEM, PAWL_EIO */
void huge_close(struct huge *huge);                      /* NULL is fine */

/* Sets the memory to work on; extents are copied. If they are the same as before nothing changes.
 * Without memory for the copy there is nothing to work on. */
void huge_set(struct huge *huge, const struct snap_range *extents, size_t n);
/* Reports how long protecting all of the memory took; call it every time. Decides whether a round
 * is due. */
void huge_protected(struct huge *huge, int64_t took_ns);
/* Lets the thread work, or not. false does not wait: a step in progress (a huge page, milliseconds)
 * is finished. Starts as false. */
void huge_allow(struct huge *huge, bool allowed);

#endif
