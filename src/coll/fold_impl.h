/* The kernels under coll/fold.h. Pure. */
#ifndef COLL_FOLD_IMPL_H
#define COLL_FOLD_IMPL_H

#include "coll/fold.h"

/* out[i] = a[i] with b[i]; out may be a or b */
typedef void fold_pair_fn(void *out, const void *a, const void *b, size_t n);
/* 16 bit floats from and to 32 bit ones; nothing overlaps */
typedef void fold_load_fn(float *out, const uint16_t *in, size_t n);
typedef void fold_store_fn(uint16_t *out, const float *in, size_t n);

struct fold_kernels {
	fold_pair_fn *pair[PAWL_REDUCE_OPS][PAWL_DTYPES]; /* NULL: the plain one's */
	fold_load_fn *load[2];                            /* F16, BF16 */
	fold_store_fn *store[2];                          /* the same */
};

extern const struct fold_kernels fold_plain;

/* The kernel's own, or the plain one. */
fold_pair_fn *fold_pair_of(enum coll_kernel kernel, enum pawl_reduce_op fold, enum pawl_dtype type);
const struct fold_kernels *fold_kernels_of(enum coll_kernel kernel); /* for load and store */

#endif
