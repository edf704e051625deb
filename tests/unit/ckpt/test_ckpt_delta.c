/* Differences of tensors equal a slow reference, which takes one element at a time in long
 * double. */
#include "../lib/seed.h"
#include "base/rng.h"
#include "ckpt/format/delta.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define ELEMENTS_MAX 3000u /* elements of a random run: several blocks, and a part of one */
#define RUNS         40u   /* random runs of each type */

/* Returns an element as a number, the slow and plain way. */
static long double value_of(const char *dtype, const uint8_t *at)
{
	uint64_t bits = 0;
	float f;
	double d;

	if (strstr(dtype, "int") != NULL || strcmp(dtype, "bool") == 0) {
		bool is_signed = strncmp(dtype, "int", 3) == 0;
		uint32_t bytes = delta_dtype_bytes(delta_dtype_find(dtype));

		memcpy(&bits, at, bytes);
		if (is_signed && bytes < 8 && (bits >> (8 * bytes - 1)) != 0) {
			bits |= ~0ull << (8 * bytes);
		}
		return is_signed ? (long double)(int64_t)bits : (long double)bits;
	}
	if (strcmp(dtype, "float64") == 0) {
		memcpy(&d, at, sizeof(d));
		return d;
	}
	if (strcmp(dtype, "float32") == 0) {
		memcpy(&f, at, sizeof(f));
		return f;
	}
	memcpy(&bits, at, 2);
	int mantissa_bits = strcmp(dtype, "float16") == 0 ? 10 : 7;
	int exponent_max = (1 << (15 - mantissa_bits)) - 1;
	int exponent = (int)(bits >> mantissa_bits) & exponent_max;
	long double mantissa = (long double)(bits & ((1u << mantissa_bits) - 1));
	long double value;

	if (exponent == exponent_max) {
		value = mantissa != 0 ? NAN : INFINITY;
	} else if (exponent == 0) {
		value = ldexpl(mantissa, 2 - (1 << (14 - mantissa_bits)) - mantissa_bits);
	} else {
		value = ldexpl(mantissa + (1 << mantissa_bits),
			exponent - ((1 << (14 - mantissa_bits)) - 1) - mantissa_bits);
	}
	return (bits >> 15) != 0 ? -value : value;
}

static struct delta slow_delta(const char *dtype, const uint8_t *a, const uint8_t *b, size_t n)
{
	uint32_t size = delta_dtype_bytes(delta_dtype_find(dtype));
	long double square = 0;
	long double base_square = 0;
	long double max = 0;
	struct delta delta = {0};

	for (size_t i = 0; i < n; i++) {
		long double old = value_of(dtype, a + i * size);
		long double by = fabsl(value_of(dtype, b + i * size) - old);
		bool changed = memcmp(a + i * size, b + i * size, size) != 0;

		delta.changed += changed;
		if (isfinite(by)) {
			square += by * by;
			max = by > max ? by : max;
		} else {
			delta.undefined += changed;
		}
		base_square += isfinite(old) ? old * old : 0;
	}
	delta.square = (double)square;
	delta.base_square = (double)base_square;
	delta.max = (double)max;
	return delta;
}

static void assert_close(double a, double b)
{
	if (!(fabs(a - b) <= 1e-12 * fabs(b))) {
		fail_msg("%.17g is not %.17g", a, b);
	}
}

static void assert_same(const char *dtype, const uint8_t *a, const uint8_t *b, size_t n)
{
	struct delta slow = slow_delta(dtype, a, b, n);
	struct delta fast = {0};

	delta_add(&fast, delta_dtype_find(dtype), a, b, n);
	assert_int_equal(fast.changed, slow.changed);
	assert_int_equal(fast.undefined, slow.undefined);
	assert_close(fast.square, slow.square);
	assert_close(fast.base_square, slow.base_square);
	assert_close(fast.max, slow.max);
}

static const char *const numbers[] = {"bfloat16", "bool", "float16", "float32", "float64", "int16",
	"int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8"};

/* Fills with random numbers. Random bits of a float would be huge: most get an exponent near that
 * of 1. */
static void fill(const char *dtype, uint8_t *at, size_t n, struct rng *rng)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t bits = rng_u64(rng);
		double d = (double)(int64_t)bits * 0x1p-60;
		float f = (float)d;

		if (strcmp(dtype, "float64") == 0) {
			memcpy(at + i * 8, &d, 8);
		} else if (strcmp(dtype, "float32") == 0) {
			memcpy(at + i * 4, &f, 4);
		} else { /* Any bits, infinities and NaNs too. */
			uint32_t size = delta_dtype_bytes(delta_dtype_find(dtype));

			memcpy(at + i * size, &bits, size);
			at[i * size] &= strcmp(dtype, "bool") == 0 ? 1 : 0xff;
		}
	}
}

static void equals_the_reference(void **state)
{
	static uint8_t a[8 * ELEMENTS_MAX + 1];
	static uint8_t b[8 * ELEMENTS_MAX + 1];
	struct rng rng = {test_seed()};

	for (size_t t = 0; t < sizeof(numbers) / sizeof(numbers[0]); t++) {
		uint32_t size = delta_dtype_bytes(delta_dtype_find(numbers[t]));

		assert_true(delta_dtype_is_numeric(delta_dtype_find(numbers[t])));
		for (uint32_t run = 0; run < RUNS; run++) {
			size_t n = rng_u64(&rng) % (ELEMENTS_MAX + 1);
			size_t shift = run % 2; /* unaligned every other time */
			size_t kept = rng_u64(&rng) % (n + 1);

			fill(numbers[t], a + shift, n, &rng);
			fill(numbers[t], b + shift, n, &rng);
			memcpy(b + shift, a + shift, kept * size);
			assert_same(numbers[t], a + shift, b + shift, n);
		}
	}
}

static void every_half_is_read_right(void **state)
{
	uint16_t zero = 0;

	for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
		uint16_t half = (uint16_t)bits;

		assert_same("float16", (uint8_t *)&zero, (uint8_t *)&half, 1);
		assert_same("bfloat16", (uint8_t *)&half, (uint8_t *)&zero, 1);
	}
}

static void what_is_not_finite_is_counted_and_left_out(void **state)
{
	const float before[] = {1, INFINITY, INFINITY, NAN, 2, 3, -0.0f};
	const float after[] = {1, INFINITY, 5, NAN, NAN, 7, 0.0f};
	struct delta delta = {0};

	delta_add(&delta, delta_dtype_find("float32"), before, after, 7);
	assert_int_equal(delta.changed, 4);
	assert_int_equal(delta.undefined, 2);
	assert_true(delta_norm(&delta) == 4 && delta.max == 4);
	assert_close(delta_relative(&delta), 4 / sqrt(1 + 4 + 9));
}

static void neighbours_above_2_to_53_are_told_apart(void **state)
{
	const int64_t before[] = {INT64_MIN, (1ll << 60) + 1, -1};
	const int64_t after[] = {INT64_MIN, 1ll << 60, 0};
	const int64_t far[] = {INT64_MAX, 0, 0};
	struct delta delta = {0};

	delta_add(&delta, delta_dtype_find("int64"), before, after, 3);
	assert_true(delta.changed == 2 && delta.square == 2 && delta.max == 1);
	delta = (struct delta){0};
	delta_add(&delta, delta_dtype_find("int64"), before, far, 1);
	assert_true(delta.max == 0x1p64);
}

static void others_are_compared_as_bytes(void **state)
{
	const double before[] = {1, 2, 3, 4};
	const double after[] = {1, 2, 3, 5};
	struct delta delta = {0};

	assert_null(delta_dtype_find("float7"));
	assert_false(delta_dtype_is_numeric(delta_dtype_find("complex128")));
	delta_add(&delta, delta_dtype_find("complex128"), before, after, 2);
	assert_true(delta.changed == 1 && delta.square == 0 && delta.base_square == 0);
}

static void relative_to_nothing(void **state)
{
	const float zeros[] = {0, 0};
	const float ones[] = {0, 1};
	struct delta delta = {0};

	assert_true(delta_norm(&delta) == 0 && delta_relative(&delta) == 0);
	delta_add(&delta, delta_dtype_find("float32"), zeros, ones, 2);
	assert_true(isinf(delta_relative(&delta)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equals_the_reference),
		cmocka_unit_test(every_half_is_read_right),
		cmocka_unit_test(what_is_not_finite_is_counted_and_left_out),
		cmocka_unit_test(neighbours_above_2_to_53_are_told_apart),
		cmocka_unit_test(others_are_compared_as_bytes),
		cmocka_unit_test(relative_to_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
