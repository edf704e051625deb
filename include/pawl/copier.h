/*
 * Copies memory that stays in use, as pawl_ckpt_save copies a state, to memory of the caller.
 *
 * Threads: one thread begins copies, and closes the copier. Meanwhile any number of threads may
 * call the other functions. A copier does not work in a forked child: PAWL_ENOTSUP, without
 * waiting.
 */
#ifndef PAWL_COPIER_H
#define PAWL_COPIER_H

#include "pawl/ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pawl_copier;

/* Opens a copier. watch: pawl_copier_begin may return before the bytes are copied, if the kernel
 * can prove that nothing changed. PAWL_ENOMEM, PAWL_EIO. */
int pawl_copier_open(struct pawl_copier **out, bool watch, struct pawl_err *err);
/* Waits for the copy under way, and frees the copier. NULL is fine. */
void pawl_copier_close(struct pawl_copier *copier);

/*
 * Starts copying n spans, from[i] to to[i], once the previous copy is over. Spans with groups are
 * copied while the caller continues, under the terms of pawl_ckpt_save: they must not be written to
 * before pawl_copier_fence has returned, and both sides must stay allocated until the copy is over.
 * The other spans are copied before the call returns. *proof gets the evidence that nothing
 * changed. PAWL_ENOMEM, PAWL_ELIMIT, PAWL_EINVAL (device), PAWL_ENOTSUP and PAWL_EIO (of the
 * device's driver): nothing was started.
 */
int pawl_copier_begin(struct pawl_copier *copier, const struct pawl_ckpt_span *from,
	void *const *to, uint32_t n, enum pawl_ckpt_proof *proof, struct pawl_err *err);
/* Returns whether a copy is under way. */
bool pawl_copier_busy(const struct pawl_copier *copier);
/* Waits until every span with one of these groups is copied. */
void pawl_copier_fence(struct pawl_copier *copier, uint64_t groups);
/* Waits until the copy is over. Returns 0; PAWL_ECHANGED, with *span the index of the first span
 * that was written to before it was copied; or PAWL_EIO or PAWL_ENOMEM, with *span the index of the
 * one that could not be copied from its device. */
int pawl_copier_wait(struct pawl_copier *copier, uint32_t *span);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
