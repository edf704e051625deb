/*
 * Finds which bytes of which saved shards make up the part of a tensor that a rank wants. Pure.
 *
 * A shard is a box of a global tensor, its elements in row-major order. The boxes may come from any
 * number of ranks laid out in any way: only the elements they hold count.
 */
#ifndef CKPT_FORMAT_RESHARD_H
#define CKPT_FORMAT_RESHARD_H

#include "pawl/inspect.h"

struct reshard_box {
	uint64_t start[PAWL_TENSOR_DIMS_MAX]; /* index of the first element */
	uint64_t shape[PAWL_TENSOR_DIMS_MAX]; /* elements per dimension; empty if one is 0 */
};

/* Bytes that are contiguous both in a saved box and in the wanted one. */
struct reshard_run {
	uint32_t source;    /* index of the saved box */
	uint64_t src_off;   /* bytes from the beginning of the saved box */
	uint64_t dst_off;   /* bytes from the beginning of the wanted box */
	uint64_t len_bytes; /* more than 0 */
};

/* Called for each run. A nonzero result stops the plan, which returns it. */
typedef int reshard_run_fn(void *user, const struct reshard_run *run);

/*
 * Calls each for runs that together cover every byte of want exactly once. Where saved boxes
 * overlap, the first one is used. start + shape of a box must not overflow, nor its size in bytes.
 * PAWL_EMISMATCH names an element that is in no saved box; PAWL_ENOMEM. On error each may have been
 * called for some runs.
 */
int reshard_plan(const struct reshard_box *want, const struct reshard_box *saved, uint32_t saved_n,
	uint32_t ndim, uint32_t item_bytes, reshard_run_fn *each, void *user, struct pawl_err *err);

#endif
