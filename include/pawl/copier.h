/*
 * Copies memory that its owner goes on using, as pawl_ckpt_save does with a state, to wherever the
 * caller wants.
 *
 * Threads: one begins copies and closes; any number may ask, fence and wait meanwhile. In a forked
 * child the copier is dead: PAWL_ENOTSUP, and nothing is waited for.
 */
#ifndef PAWL_COPIER_H
#define PAWL_COPIER_H

#include "pawl/ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pawl_copier;

/* Opens a copier. watch: let copies return before they are made, where the kernel can prove that
 * nothing changed. PAWL_ENOMEM, PAWL_EIO. */
int pawl_copier_open(struct pawl_copier **out, bool watch, struct pawl_err *err);
void pawl_copier_close(struct pawl_copier *copier); /* waits for the copy; NULL is fine */

/*
 * Starts copying n spans, from[i] to to[i], once the copy before is over. Spans with groups are
 * copied while the caller goes on, under the terms of pawl_ckpt_save: they must not be written to
 * before pawl_copier_fence has returned, and both sides must stay allocated until the copy is over.
 * The others are copied on return. *proof gets the evidence that nothing changed. PAWL_ENOMEM,
 * PAWL_ELIMIT, PAWL_EINVAL (device), PAWL_ENOTSUP and PAWL_EIO (of the device's driver): nothing
 * was started.
 */
int pawl_copier_begin(struct pawl_copier *copier, const struct pawl_ckpt_span *from,
	void *const *to, uint32_t n, enum pawl_ckpt_proof *proof, struct pawl_err *err);
/* Returns whether a copy is under way. */
bool pawl_copier_busy(const struct pawl_copier *copier);
/* Returns when every span with one of these groups is copied. */
void pawl_copier_fence(struct pawl_copier *copier, uint64_t groups);
/* Returns when the copy is over: 0; PAWL_ECHANGED, with *span the first span that was written to
 * before it was copied; PAWL_EIO or PAWL_ENOMEM, with *span the one that could not be copied from
 * its device. */
int pawl_copier_wait(struct pawl_copier *copier, uint32_t *span);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
