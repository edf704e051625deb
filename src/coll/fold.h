/*
 * Vectors made one, element by element: sums and their like, in the one order of coll/topo.h. Pure.
 *
 * 16 bit floats are added as 32 bit ones and rounded once, at the end, to nearest, ties to even.
 * Integers wrap. Of floats a NaN among the elements gives a NaN, for MIN and MAX too.
 */
#ifndef COLL_FOLD_H
#define COLL_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, C type that is added, bytes of an element, what torch calls it */
#define COLL_INTS(X)                                                                               \
	X(U8, uint8_t, 1, "uint8")                                                                 \
	X(I8, int8_t, 1, "int8")                                                                   \
	X(I16, int16_t, 2, "int16")                                                                \
	X(I32, int32_t, 4, "int32")                                                                \
	X(I64, int64_t, 8, "int64")
#define COLL_FLOATS(X)                                                                             \
	X(F32, float, 4, "float32")                                                                \
	X(F64, double, 8, "float64")
#define COLL_HALVES(X)                                                                             \
	X(F16, float, 2, "float16")                                                                \
	X(BF16, float, 2, "bfloat16")
#define COLL_TYPES(X) COLL_INTS(X) COLL_FLOATS(X) COLL_HALVES(X)

enum coll_type {
#define X(name, c_type, bytes, torch_name) COLL_##name,
	COLL_TYPES(X)
#undef X
		COLL_TYPES_N
};

enum coll_fold {
	COLL_ADD,
	COLL_MUL,
	COLL_MIN,
	COLL_MAX,
	COLL_AND, /* of bits, as the next two: integers only */
	COLL_OR,
	COLL_XOR,
	COLL_FOLDS
};

/* How it is computed; all give the same bits. */
enum coll_kernel {
	COLL_PLAIN,  /* C: the reference, and what other processors than x86-64 use */
	COLL_AVX2,   /* with F16C */
	COLL_AVX512, /* F, BW and VL */
	COLL_KERNELS
};

bool coll_kernel_has(enum coll_kernel kernel); /* whether this processor can */
enum coll_kernel coll_kernel_best(void);       /* for this processor */

size_t coll_type_bytes(enum coll_type type); /* of an element */
/* Whether there is such an operation on such elements. */
bool coll_fold_fits(enum coll_fold fold, enum coll_type type);

/* dst = the terms made one: n elements, terms_n terms, at least 1. dst may be one of the terms, and
 * overlaps none otherwise. The operation fits the type. Pointers need no alignment beyond
 * that of an element. */
void coll_fold(enum coll_kernel kernel, enum coll_fold fold, enum coll_type type, void *dst,
	const void *const *terms, uint32_t terms_n, size_t n);

#endif
