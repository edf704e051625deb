/* Reductions of vectors: every kernel gives the bits of adding element by element in the order of
 * the tree. 16-bit floats are rounded to nearest. */
#include "base/rng.h"
#include "coll/plan/fold.h"
#include "coll/plan/topo.h"
#include "seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define TERMS 17
#define N_MAX 2100 /* elements: several blocks of the smallest size */
#define SHIFT 3    /* elements by which vectors are misaligned */

static uint64_t first_seed;

/* An element widened to an integer or a double. */
union number {
	uint64_t i;
	double d;
};

static bool is_float(enum pawl_dtype type)
{
	return type > PAWL_INT64;
}

/* ---- 16-bit floats, by their definition ---- */

static double value_of(enum pawl_dtype type, uint16_t bits)
{
	int fraction_bits = type == PAWL_FLOAT16 ? 10 : 7;
	int bias = type == PAWL_FLOAT16 ? 15 : 127;
	int exponent = (bits & 0x7fff) >> fraction_bits;
	int fraction = bits & ((1 << fraction_bits) - 1);
	double value = exponent == 0
		? ldexp(fraction, 1 - bias - fraction_bits)
		: ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);

	if (exponent == (type == PAWL_FLOAT16 ? 31 : 255)) {
		value = fraction != 0 ? (double)NAN : (double)INFINITY;
	}
	return (bits & 0x8000) != 0 ? -value : value;
}

/* Returns the nearest value, by trial: the largest one not above, or the next one. */
static uint16_t nearest(enum pawl_dtype type, double value)
{
	uint16_t infinite = type == PAWL_FLOAT16 ? 0x7c00 : 0x7f80;
	uint16_t lo = 0;
	uint16_t hi = infinite;
	double up;

	if (isnan(value)) {
		return (uint16_t)(infinite + 1);
	}
	if (isinf(value)) {
		return infinite;
	}
	while (hi - lo > 1) {
		uint16_t mid = (uint16_t)((lo + hi) / 2);

		if (value_of(type, mid) <= value) {
			lo = mid;
		} else {
			hi = mid;
		}
	}
	/* Infinity is as far from the largest number as the next number would be. */
	up = hi == infinite ? 2 * value_of(type, lo) - value_of(type, (uint16_t)(lo - 1))
			    : value_of(type, hi);
	if (value - value_of(type, lo) == up - value) {
		return (lo & 1) == 0 ? lo : hi;
	}
	return value - value_of(type, lo) < up - value ? lo : hi;
}

/* ---- the reference ---- */

static union number get(enum pawl_dtype type, const uint8_t *at)
{
	union number v = {0};
	uint16_t half;
	float f;

	switch (type) {
	case PAWL_UINT8:
		v.i = *at;
		break;
	case PAWL_INT8:
		v.i = (uint64_t)(int64_t) * (const int8_t *)at;
		break;
	case PAWL_INT16: {
		int16_t i;
		memcpy(&i, at, sizeof(i));
		v.i = (uint64_t)(int64_t)i;
		break;
	}
	case PAWL_INT32: {
		int32_t i;
		memcpy(&i, at, sizeof(i));
		v.i = (uint64_t)(int64_t)i;
		break;
	}
	case PAWL_FLOAT32:
		memcpy(&f, at, sizeof(f));
		v.d = f;
		break;
	case PAWL_FLOAT16:
	case PAWL_BFLOAT16:
		memcpy(&half, at, sizeof(half));
		v.d = value_of(type, half);
		break;
	default:
		memcpy(&v, at, sizeof(v));
	}
	return v;
}

/* Combines a with b; floats are added in double, and rounded to the type of sums. */
static union number combine(enum pawl_reduce_op fold, enum pawl_dtype type, union number a,
	union number b)
{
	union number v = {0};
	bool nan = is_float(type) && (isnan(a.d) || isnan(b.d));
	bool less = is_float(type) ? a.d < b.d : (int64_t)a.i < (int64_t)b.i;

	switch (fold) {
	case PAWL_SUM:
		v = is_float(type) ? (union number){.d = a.d + b.d} : (union number){a.i + b.i};
		break;
	case PAWL_PRODUCT:
		v = is_float(type) ? (union number){.d = a.d * b.d} : (union number){a.i * b.i};
		break;
	case PAWL_MIN:
		v = less ? a : b;
		break;
	case PAWL_MAX:
		v = less ? b : a;
		break;
	case PAWL_BAND:
		v.i = a.i & b.i;
		break;
	case PAWL_BOR:
		v.i = a.i | b.i;
		break;
	default:
		v.i = a.i ^ b.i;
	}
	if (is_float(type)) {
		v.d = nan ? (double)NAN : type == PAWL_FLOAT64 ? v.d : (double)(float)v.d;
	}
	return v;
}

static void put(enum pawl_dtype type, union number v, uint8_t *at)
{
	float f = (float)v.d;
	uint16_t half;

	switch (type) {
	case PAWL_FLOAT32:
		memcpy(at, &f, sizeof(f));
		break;
	case PAWL_FLOAT16:
	case PAWL_BFLOAT16:
		half = nearest(type, fabs(v.d));
		half |= signbit(v.d) ? 0x8000 : 0;
		memcpy(at, &half, sizeof(half));
		break;
	default:
		memcpy(at, &v, coll_type_bytes(type)); /* little endian */
	}
}

/* Reduces an integer to what its type holds. */
static union number wrap(enum pawl_dtype type, union number v)
{
	uint8_t bytes[8];

	if (is_float(type)) {
		return v;
	}
	memcpy(bytes, &v, sizeof(bytes));
	return get(type, bytes);
}

static union number fold_tree(enum pawl_reduce_op fold, enum pawl_dtype type,
	const union number *terms, uint32_t n)
{
	uint32_t left = n > 1 ? coll_tree_left(n) : 0;

	return n == 1 ? terms[0]
		      : wrap(type,
				combine(fold, type, fold_tree(fold, type, terms, left),
					fold_tree(fold, type, terms + left, n - left)));
}

/* ---- tests ---- */

/* Fills with numbers of all sizes; some floats are special values. */
static void fill(struct rng *rng, enum pawl_dtype type, uint8_t *at, size_t n)
{
	size_t size = coll_type_bytes(type);

	for (size_t i = 0; i < n; i++) {
		uint64_t bits = rng_u64(rng);
		union number v = {.d = ldexp((double)(int32_t)bits, (int)rng_below(rng, 12) - 40)};

		if (is_float(type) && rng_below(rng, 50) > 0) {
			put(type, v, at + i * size);
		} else {
			memcpy(at + i * size, &bits, size);
		}
	}
}

static void check_equal(enum pawl_dtype type, const uint8_t *got, const uint8_t *want)
{
	union number g = get(type, got);
	union number w = get(type, want);

	if (is_float(type) && isnan(w.d)) {
		assert_true(isnan(g.d)); /* any NaN will do */
	} else {
		assert_memory_equal(got, want, coll_type_bytes(type));
	}
}

static uint8_t vectors[TERMS + 1][(N_MAX + SHIFT) * 8];

static void try_one(struct rng *rng, enum pawl_reduce_op fold, enum pawl_dtype type,
	uint32_t terms_n, size_t n)
{
	const void *terms[TERMS];
	uint8_t *at[TERMS];
	size_t size = coll_type_bytes(type);
	static uint8_t want[N_MAX * 8];
	static uint8_t kept[N_MAX * 8];
	uint8_t *dst = vectors[TERMS] + rng_below(rng, SHIFT) * size;
	/* Reduces in place if this is the index of a term. */
	uint32_t own = (uint32_t)rng_below(rng, 2 * terms_n);

	for (uint32_t t = 0; t < terms_n; t++) {
		terms[t] = at[t] = vectors[t] + rng_below(rng, SHIFT) * size;
		fill(rng, type, at[t], n);
	}
	for (size_t i = 0; i < n; i++) {
		union number numbers[TERMS];

		for (uint32_t t = 0; t < terms_n; t++) {
			numbers[t] = get(type, at[t] + i * size);
		}
		put(type, fold_tree(fold, type, numbers, terms_n), want + i * size);
	}
	if (own < terms_n) {
		dst = at[own];
		memcpy(kept, dst, n * size);
	}
	for (enum coll_kernel kernel = COLL_PLAIN; kernel < COLL_KERNELS; kernel++) {
		if (!coll_kernel_has(kernel)) {
			continue;
		}
		coll_fold(kernel, fold, type, dst, terms, terms_n, n);
		for (size_t i = 0; i < n; i++) {
			check_equal(type, dst + i * size, want + i * size);
		}
		if (own < terms_n) {
			memcpy(dst, kept, n * size);
		}
	}
}

/* Tries all operations that fit the type, on at most `most` elements. */
static void try_all(struct rng *rng, enum pawl_dtype type, size_t most)
{
	for (enum pawl_reduce_op fold = 0; fold < PAWL_REDUCE_OPS; fold++) {
		if (coll_fold_fits(fold, type)) {
			try_one(rng, fold, type, 1 + (uint32_t)rng_below(rng, TERMS),
				rng_below(rng, most));
		}
	}
}

static void kernels_agree_with_the_definition(void **state)
{
	struct rng rng = {first_seed};

	for (enum pawl_dtype type = 0; type < PAWL_DTYPES; type++) {
		try_all(&rng, type, 2);
		try_all(&rng, type, 20);
		try_all(&rng, type, 300);
		try_all(&rng, type, N_MAX);
	}
	for (uint32_t terms = 1; terms <= TERMS; terms++) {
		try_one(&rng, PAWL_SUM, PAWL_FLOAT32, terms, 600);
		try_one(&rng, PAWL_SUM, PAWL_BFLOAT16, terms, 600);
	}
}

/* All 16-bit floats stay unchanged if they are widened and rounded again. */
static void check_halves(enum pawl_dtype type, enum coll_kernel kernel)
{
	static uint16_t in[1 << 16];
	static uint16_t out[1 << 16];
	const void *terms[] = {in};

	for (uint32_t bits = 0; bits < 1 << 16; bits++) {
		in[bits] = (uint16_t)bits;
	}
	coll_fold(kernel, PAWL_SUM, type, out, terms, 1, 1 << 16);
	for (uint32_t bits = 0; bits < 1 << 16; bits++) {
		check_equal(type, (uint8_t *)&out[bits], (uint8_t *)&in[bits]);
	}
}

static void halves_are_rounded_to_the_nearest(void **state)
{
	static const enum pawl_dtype types[] = {PAWL_FLOAT16, PAWL_BFLOAT16};
	struct rng rng = {first_seed + 1};

	for (size_t t = 0; t < 2; t++) {
		for (enum coll_kernel k = COLL_PLAIN; k < COLL_KERNELS; k++) {
			if (coll_kernel_has(k)) {
				check_halves(types[t], k);
			}
		}
		for (int i = 0; i < 3000; i++) {
			try_one(&rng, PAWL_SUM, types[t], 2, 16);
			try_one(&rng, PAWL_PRODUCT, types[t], 2, 17);
		}
	}
}

/* Returns the sum of squares by its definition. The terms give the tolerance for a result. */
static double sum_squares(enum pawl_dtype type, const uint8_t *x, size_t n,
	const struct pawl_whitening *whitening)
{
	size_t size = coll_type_bytes(type);
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		double v = get(type, x + i * size).d;
		const uint8_t *second =
			whitening ? (const uint8_t *)whitening->second_moment + i * size : NULL;

		v /= whitening ? sqrt(sqrt(get(type, second).d * whitening->bias_correction) +
					 whitening->eps)
			       : 1;
		sum += v * v;
	}
	return sum;
}

static void try_squares(struct rng *rng, enum pawl_dtype type, size_t n, bool by_second)
{
	size_t size = coll_type_bytes(type);
	uint8_t *x = vectors[0] + rng_below(rng, SHIFT) * size;
	uint8_t *second = vectors[1] + rng_below(rng, SHIFT) * size;
	struct pawl_whitening whitening = {second, 1 / (1 - 0.999), 1e-8};
	double want;
	double first;

	for (size_t i = 0; i < n; i++) {
		double v = ldexp((double)(int32_t)rng_u64(rng), -31);

		put(type, (union number){.d = v}, x + i * size);
		v = ldexp((double)(uint32_t)rng_u64(rng), -42);
		put(type, (union number){.d = v}, second + i * size);
	}
	want = sum_squares(type, x, n, by_second ? &whitening : NULL);
	first = coll_squared_norm(COLL_PLAIN, type, x, n, by_second ? &whitening : NULL);
	if (fabs(first - want) > (by_second ? 1e-5 : 1e-13) * want) {
		fail_msg("%s: %g for %g", coll_type_name(type), first, want);
	}
	for (enum coll_kernel k = COLL_PLAIN + 1; k < COLL_KERNELS; k++) {
		if (coll_kernel_has(k)) {
			double got =
				coll_squared_norm(k, type, x, n, by_second ? &whitening : NULL);

			assert_memory_equal(&got, &first, sizeof(got));
		}
	}
}

static void squares_are_what_they_are_by_definition(void **state)
{
	struct rng rng = {first_seed + 2};

	for (enum pawl_dtype type = PAWL_FLOAT32; type < PAWL_DTYPES; type++) {
		for (int i = 0; i < 50; i++) {
			try_squares(&rng, type, rng_below(&rng, i < 25 ? 40 : N_MAX), i % 2 == 0);
		}
	}
}

static void squares_of_what_is_no_number(void **state)
{
	float x[] = {1, INFINITY, 2, 3e38f, 1e-30f};

	assert_true(isinf(pawl_squared_norm(PAWL_FLOAT32, x, 3, NULL)));
	x[1] = NAN;
	assert_true(isnan(pawl_squared_norm(PAWL_FLOAT32, x, 3, NULL)));
	assert_true(pawl_squared_norm(PAWL_FLOAT32, x + 3, 1, NULL) > 8.9e76); /* fits in double */
	assert_true(pawl_squared_norm(PAWL_FLOAT32, x + 4, 1, NULL) > 0);
	assert_true(pawl_squared_norm(PAWL_FLOAT32, x, 0, NULL) == 0);
}

static void what_fits(void **state)
{
	assert_true(coll_fold_fits(PAWL_BXOR, PAWL_INT64));
	assert_false(coll_fold_fits(PAWL_BAND, PAWL_FLOAT32));
	assert_false(coll_fold_fits(PAWL_SUM, PAWL_DTYPES));
	assert_true(coll_kernel_has(coll_kernel_best()));
	assert_true(coll_kernel_has(COLL_PLAIN));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_agree_with_the_definition),
		cmocka_unit_test(halves_are_rounded_to_the_nearest),
		cmocka_unit_test(squares_are_what_they_are_by_definition),
		cmocka_unit_test(squares_of_what_is_no_number),
		cmocka_unit_test(what_fits),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
