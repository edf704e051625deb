/*
 * Reduces several vectors to one, element by element, in the fixed order of coll/plan/topo.h. Pure.
 *
 * 16-bit floats are added as 32-bit floats and rounded once, at the end: to nearest, ties to even.
 * Integers wrap. If any term is NaN, the result is NaN, for MIN and MAX too.
 */
#ifndef COLL_PLAN_FOLD_H
#define COLL_PLAN_FOLD_H

#include "pawl/coll.h"

#include <stddef.h>

/* name (PAWL_...), C type that is added, bytes of an element, name in torch */
#define COLL_INTS(X)                                                                               \
	X(UINT8, uint8_t, 1, "uint8")                                                              \
	X(INT8, int8_t, 1, "int8")                                                                 \
	X(INT16, int16_t, 2, "int16")                                                              \
	X(INT32, int32_t, 4, "int32")                                                              \
	X(INT64, int64_t, 8, "int64")
#define COLL_FLOATS(X)                                                                             \
	X(FLOAT32, float, 4, "float32")                                                            \
	X(FLOAT64, double, 8, "float64")
#define COLL_HALVES(X)                                                                             \
	X(FLOAT16, float, 2, "float16")                                                            \
	X(BFLOAT16, float, 2, "bfloat16")
#define COLL_TYPES(X) COLL_INTS(X) COLL_FLOATS(X) COLL_HALVES(X)

/* Implementations; all of them give the same bits. */
enum coll_kernel {
	COLL_PLAIN,  /* C: the reference, and the only kernel on processors other than x86-64 */
	COLL_AVX2,   /* AVX2 with F16C */
	COLL_AVX512, /* AVX-512 F, BW and VL */
	COLL_KERNELS
};

bool coll_kernel_has(enum coll_kernel kernel); /* whether this processor can run it */
enum coll_kernel coll_kernel_best(void);       /* the fastest for this processor */

size_t coll_type_bytes(enum pawl_dtype type);     /* bytes of an element */
const char *coll_type_name(enum pawl_dtype type); /* "float32" */
bool coll_type_is_float(enum pawl_dtype type);
/* Returns whether an operation applies to elements of a type. */
bool coll_fold_fits(enum pawl_reduce_op fold, enum pawl_dtype type);

/* Reduces terms_n terms, at least 1, of n elements each, to dst. dst may be one of the terms, but
 * must not overlap them otherwise. The operation must fit the type. Pointers need no alignment
 * beyond that of an element. */
void coll_fold(enum coll_kernel kernel, enum pawl_reduce_op fold, enum pawl_dtype type, void *dst,
	const void *const *terms, uint32_t terms_n, size_t n);
/* Computes pawl_squared_norm with a given kernel. */
double coll_squared_norm(enum coll_kernel kernel, enum pawl_dtype type, const void *x, size_t n,
	const struct pawl_whitening *whitening);
/* Divides n elements, which must be floats, in place. */
void coll_divide(enum pawl_dtype type, void *numbers, size_t n, uint32_t by);

#endif
