/*
 * Copies memory that its owner goes on using: what pawl_ckpt_save does with a state, for bytes that
 * go wherever the caller wants them.
 *
 * Threads: one begins copies and closes; any number may ask, fence and wait meanwhile. After fork,
 * the child's copier is dead: PAWL_ENOTSUP, and nothing is waited for.
 */
#ifndef PAWL_COPIER_H
#define PAWL_COPIER_H

#include "pawl/ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pawl_copier;

/* watch: let copies begin before they are made, where the kernel can prove that nothing changed.
 * PAWL_ENOMEM, PAWL_EIO. */
int pawl_copier_open(struct pawl_copier **out, bool watch, struct pawl_err *err);
void pawl_copier_close(struct pawl_copier *copier); /* waits for the copy; NULL is fine */

/*
 * Starts copying from[i] to to[i], n of them, once the copy before is over. What has groups is
 * copied while the caller goes on, under the terms of pawl_ckpt_save: until pawl_copier_fence it
 * must not be written to, and until the copy is over both sides must stay allocated. The rest is
 * copied on return. *proof gets what shows that nothing changed. PAWL_ENOMEM, PAWL_ELIMIT,
 * PAWL_EINVAL (device), PAWL_ENOTSUP and PAWL_EIO (of its driver): nothing was started.
 */
int pawl_copier_begin(struct pawl_copier *copier, const struct pawl_ckpt_span *from,
	void *const *to, uint32_t n, enum pawl_ckpt_proof *proof, struct pawl_err *err);
/* Whether a copy is under way. */
bool pawl_copier_busy(const struct pawl_copier *copier);
/* Returns when every span with one of these groups is copied. */
void pawl_copier_fence(struct pawl_copier *copier, uint64_t groups);
/* Returns when the copy is over. 0; PAWL_ECHANGED, and in *span the first one that was written to
 * before it was copied; PAWL_EIO, PAWL_ENOMEM: the one that could not be copied from its device. */
int pawl_copier_wait(struct pawl_copier *copier, uint32_t *span);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
