/*
 * Which bytes of which saved shards make up the part of a tensor that a rank wants. Pure.
 *
 * A shard is a box of a global tensor, its elements in row-major order. Any boxes will do, of any
 * number of ranks laid out in any way: what counts is which elements they hold.
 */
#ifndef CKPT_RESHARD_H
#define CKPT_RESHARD_H

#include "pawl/inspect.h"

struct reshard_box {
	uint64_t start[PAWL_TENSOR_DIMS_MAX]; /* its first element */
	uint64_t shape[PAWL_TENSOR_DIMS_MAX]; /* elements; empty if one is 0 */
};

/* Bytes that lie one behind the other both in a saved box and in the wanted one. */
struct reshard_run {
	uint32_t source;    /* index of the saved box */
	uint64_t src_off;   /* bytes from the beginning of that box */
	uint64_t dst_off;   /* bytes from the beginning of the wanted one */
	uint64_t len_bytes; /* more than 0 */
};

/* Nonzero stops the plan, and is returned by it. */
typedef int reshard_run_fn(void *user, const struct reshard_run *run);

/*
 * Calls each for runs that together are every byte of want exactly once. Where saved boxes overlap,
 * the first has it. start + shape of a box must not overflow, nor the bytes of one.
 * PAWL_EMISMATCH names an element that is in no saved box; PAWL_ENOMEM. Runs may have been given
 * then.
 */
int reshard_plan(const struct reshard_box *want, const struct reshard_box *saved, uint32_t saved_n,
	uint32_t ndim, uint32_t item_bytes, reshard_run_fn *each, void *user, struct pawl_err *err);

#endif
