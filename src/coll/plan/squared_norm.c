/* The squared norm of gradients: see pawl/coll.h. Pure. */
#include "base/assert.h"
#include "coll/plan/fold_impl.h"

#include <math.h>

#define BLOCK 512u /* elements; a multiple of FOLD_LANES */

_Static_assert(BLOCK % FOLD_LANES == 0, "each block begins with the first lane");

/* 64-bit floats are rare, so their only kernel is this one in C. */
static double squared_norm_f64(const double *x, size_t n, const struct pawl_whitening *whitening)
{
	const double *second = whitening ? whitening->second_moment : NULL;
	double by = whitening ? whitening->bias_correction : 1;
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		double v = whitening ? x[i] / sqrt(sqrt(second[i] * by) + whitening->eps) : x[i];

		sum += v * v;
	}
	return sum;
}

/* Returns n elements from index at on, as 32-bit floats: a part of x, or a copy in floats. */
static const float *load(const struct fold_kernels *k, enum pawl_dtype type, const void *x,
	size_t at, size_t n, float *floats)
{
	if (type == PAWL_FLOAT32) {
		return (const float *)x + at;
	}
	k->load[type - PAWL_FLOAT16](floats, (const uint16_t *)x + at, n);
	return floats;
}

double coll_squared_norm(enum coll_kernel kernel, enum pawl_dtype type, const void *x, size_t n,
	const struct pawl_whitening *whitening)
{
	const struct fold_kernels *k = fold_kernels_of(kernel);
	double lanes[FOLD_LANES] = {0};
	float values[BLOCK];
	float seconds[BLOCK];
	size_t block = type == PAWL_FLOAT32 && !whitening ? n : BLOCK;
	double sum = 0;

	ASSERT(coll_type_is_float(type));
	if (type == PAWL_FLOAT64) {
		return squared_norm_f64(x, n, whitening);
	}
	for (size_t i = 0; i < n; i += block) {
		size_t m = n - i < block ? n - i : block;
		const float *from = load(k, type, x, i, m, values);

		if (whitening) {
			k->whiten(values, from,
				load(k, type, whitening->second_moment, i, m, seconds), m,
				(float)whitening->bias_correction, (float)whitening->eps);
			from = values;
		}
		k->squares(lanes, from, m);
	}
	for (size_t l = 0; l < FOLD_LANES; l++) {
		sum += lanes[l];
	}
	return sum;
}

double pawl_squared_norm(enum pawl_dtype type, const void *x, uint64_t n,
	const struct pawl_whitening *whitening)
{
	return coll_squared_norm(coll_kernel_best(), type, x, n, whitening);
}
