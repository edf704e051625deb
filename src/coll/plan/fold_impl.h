/* The kernels that implement coll/plan/fold.h. Pure. */
#ifndef COLL_PLAN_FOLD_IMPL_H
#define COLL_PLAN_FOLD_IMPL_H

#include "coll/plan/fold.h"

/* out[i] = a[i] combined with b[i]; out may be a or b */
typedef void fold_pair_fn(void *out, const void *a, const void *b, size_t n);
/* Convert 16-bit floats to 32-bit floats, and back; nothing overlaps. */
typedef void fold_load_fn(float *out, const uint16_t *in, size_t n);
typedef void fold_store_fn(uint16_t *out, const float *in, size_t n);

/* Number of partial sums of squares: element i of x is added to lanes[i % FOLD_LANES]. Squares of
 * 32-bit floats are exact in double, so all kernels give the same bits. */
#define FOLD_LANES 16u
typedef void fold_squares_fn(double *lanes, const float *x, size_t n);
/* out[i] = x[i] / sqrt(sqrt(v[i] * by) + eps); out may be x */
typedef void fold_whiten_fn(float *out, const float *x, const float *v, size_t n, float by,
	float eps);

struct fold_kernels {
	fold_pair_fn *pair[PAWL_REDUCE_OPS][PAWL_DTYPES]; /* NULL: use the plain kernel's */
	fold_load_fn *load[2];                            /* from F16, BF16 */
	fold_store_fn *store[2];                          /* to F16, BF16 */
	fold_squares_fn *squares;
	fold_whiten_fn *whiten;
};

extern const struct fold_kernels fold_plain;

/* Returns the kernel's own function, or the plain kernel's if it has none. */
fold_pair_fn *fold_pair_of(enum coll_kernel kernel, enum pawl_reduce_op fold, enum pawl_dtype type);
/* Returns the functions of a kernel. Use fold_pair_of for pair. */
const struct fold_kernels *fold_kernels_of(enum coll_kernel kernel);

#endif
