/* What changed from one run of elements to another: how many, and how far. Pure. */
#ifndef CKPT_DELTA_H
#define CKPT_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A type of elements, by torch's name. */
struct delta_dtype;

/* Sums over elements. Zero-initialise; runs may be summed up in any order of cutting, but only one
 * order of merging gives the same bits twice. */
struct delta {
	uint64_t changed;   /* elements whose bits differ */
	uint64_t undefined; /* of them: the difference is no finite number */
	double square;      /* sum of squares of the other differences */
	double base_square; /* of the old values, but those that are not finite */
	double max;         /* largest of the differences, by amount */
};

/* NULL for a name that is not known. Static. */
const struct delta_dtype *delta_dtype_find(const char *name);
uint32_t delta_dtype_bytes(const struct delta_dtype *dtype); /* of an element */
/* false: an element is no real number known here; of its deltas only changed is filled. */
bool delta_dtype_counts(const struct delta_dtype *dtype);

/* Adds n elements at before and after, which need no alignment. */
void delta_add(struct delta *delta, const struct delta_dtype *dtype, const void *before,
	const void *after, size_t n);
void delta_merge(struct delta *delta, const struct delta *more);

/* Euclidean norm of what changed; and divided by that of the old values: infinity if those are all
 * zero, 0 if nothing changed. */
double delta_norm(const struct delta *delta);
double delta_relative(const struct delta *delta);

#endif
