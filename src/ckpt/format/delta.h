/* Differences between two runs of elements: how many elements differ, and by how much. Pure. */
#ifndef CKPT_FORMAT_DELTA_H
#define CKPT_FORMAT_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A type of elements, by torch's name. */
struct delta_dtype;

/* Sums over elements. Zero-initialise. Runs may be cut and merged in any order, but only the same
 * order of merging gives the same bits again. */
struct delta {
	uint64_t changed;   /* elements whose bits differ */
	uint64_t undefined; /* changed elements whose difference is not a finite number */
	double square;      /* sum of squares of the other differences */
	double base_square; /* sum of squares of the old values, except those that are not finite */
	double max;         /* largest absolute difference */
};

/* Finds a type by its name; NULL for an unknown name. The result is static. */
const struct delta_dtype *delta_dtype_find(const char *name);
uint32_t delta_dtype_bytes(const struct delta_dtype *dtype); /* size of an element */
/* Returns whether elements are real numbers of a type known here. If not, only changed is set in
 * their deltas. */
bool delta_dtype_is_numeric(const struct delta_dtype *dtype);

/* Adds n elements at before and after, which need no alignment. */
void delta_add(struct delta *delta, const struct delta_dtype *dtype, const void *before,
	const void *after, size_t n);
void delta_merge(struct delta *delta, const struct delta *more);

/* delta_norm is the Euclidean norm of the differences. delta_relative divides it by that of the old
 * values: infinity if all old values are zero, 0 if nothing changed. */
double delta_norm(const struct delta *delta);
double delta_relative(const struct delta *delta);

#endif
