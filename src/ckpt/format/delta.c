/*
 * Differences of tensors: see delta.h for the contract.
 *
 * Each type has one function, which turns a block of elements into old values and differences, as
 * doubles; the sums are the same for all types. Integers are subtracted before they become doubles,
 * so that neighbors above 2^53 differ. The sums run in LANES independent strands, which the
 * compiler can vectorize.
 */
#include "ckpt/format/delta.h"

#include "base/assert.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define BLOCK 512u /* elements converted to doubles at a time */
#define LANES 8u   /* strands of a sum; divides BLOCK */

_Static_assert(BLOCK % LANES == 0, "a block that is padded to lanes fits its arrays");

/* Converts n elements to old values and differences. */
typedef void widen_fn(double *base, double *diff, const uint8_t *before, const uint8_t *after,
	size_t n);

struct delta_dtype {
	const char *name; /* name in torch, without "torch." */
	uint32_t bytes;   /* size of an element */
	widen_fn *widen;  /* NULL: elements are compared as bytes */
};

/* ---- elements to doubles ---- */

static float float16_value(uint16_t half)
{
	uint32_t bits = (uint32_t)(half & 0x7fffu) << 13; /* a float 2^112 times too small */
	float value;

	memcpy(&value, &bits, sizeof(value));
	value *= 0x1p112f;
	if ((half & 0x7c00u) == 0x7c00u) {
		value = (half & 0x03ffu) != 0 ? NAN : INFINITY;
	}
	return (half & 0x8000u) != 0 ? -value : value;
}

static float bfloat16_value(uint16_t brain)
{
	uint32_t bits = (uint32_t)brain << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static double native_value(double value)
{
	return value;
}

/* type is that of an element in memory; value(x) makes it a number. */
#define WIDEN_REAL(name, type, value)                                                              \
	static void name(double *base, double *diff, const uint8_t *before, const uint8_t *after,  \
		size_t n)                                                                          \
	{                                                                                          \
		for (size_t i = 0; i < n; i++) {                                                   \
			type a;                                                                    \
			type b;                                                                    \
                                                                                                   \
			memcpy(&a, before + i * sizeof(a), sizeof(a));                             \
			memcpy(&b, after + i * sizeof(b), sizeof(b));                              \
			base[i] = (double)value(a);                                                \
			diff[i] = (double)value(b) - (double)value(a);                             \
		}                                                                                  \
	}

/* Computes the absolute difference. */
#define WIDEN_INTEGER(name, type)                                                                  \
	static void name(double *base, double *diff, const uint8_t *before, const uint8_t *after,  \
		size_t n)                                                                          \
	{                                                                                          \
		for (size_t i = 0; i < n; i++) {                                                   \
			type a;                                                                    \
			type b;                                                                    \
                                                                                                   \
			memcpy(&a, before + i * sizeof(a), sizeof(a));                             \
			memcpy(&b, after + i * sizeof(b), sizeof(b));                              \
			base[i] = (double)a;                                                       \
			diff[i] = (double)(a < b ? (uint64_t)b - (uint64_t)a                       \
						 : (uint64_t)a - (uint64_t)b);                     \
		}                                                                                  \
	}

WIDEN_REAL(widen_float16, uint16_t, float16_value)
WIDEN_REAL(widen_bfloat16, uint16_t, bfloat16_value)
WIDEN_REAL(widen_float32, float, native_value)
WIDEN_REAL(widen_float64, double, native_value)
WIDEN_INTEGER(widen_int8, int8_t)
WIDEN_INTEGER(widen_int16, int16_t)
WIDEN_INTEGER(widen_int32, int32_t)
WIDEN_INTEGER(widen_int64, int64_t)
WIDEN_INTEGER(widen_uint8, uint8_t)
WIDEN_INTEGER(widen_uint16, uint16_t)
WIDEN_INTEGER(widen_uint32, uint32_t)
WIDEN_INTEGER(widen_uint64, uint64_t)

static const struct delta_dtype dtypes[] = {
	{"bfloat16", 2, widen_bfloat16},
	{"bool", 1, widen_uint8},
	{"complex128", 16, NULL},
	{"complex32", 4, NULL},
	{"complex64", 8, NULL},
	{"float16", 2, widen_float16},
	{"float32", 4, widen_float32},
	{"float64", 8, widen_float64},
	{"float8_e4m3fn", 1, NULL},
	{"float8_e4m3fnuz", 1, NULL},
	{"float8_e5m2", 1, NULL},
	{"float8_e5m2fnuz", 1, NULL},
	{"float8_e8m0fnu", 1, NULL},
	{"int16", 2, widen_int16},
	{"int32", 4, widen_int32},
	{"int64", 8, widen_int64},
	{"int8", 1, widen_int8},
	{"qint32", 4, NULL},
	{"qint8", 1, NULL},
	{"quint8", 1, NULL},
	{"uint16", 2, widen_uint16},
	{"uint32", 4, widen_uint32},
	{"uint64", 8, widen_uint64},
	{"uint8", 1, widen_uint8},
};

const struct delta_dtype *delta_dtype_find(const char *name)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (strcmp(dtypes[i].name, name) == 0) {
			return &dtypes[i];
		}
	}
	return NULL;
}

uint32_t delta_dtype_bytes(const struct delta_dtype *dtype)
{
	return dtype->bytes;
}

bool delta_dtype_is_numeric(const struct delta_dtype *dtype)
{
	return dtype->widen != NULL;
}

/* ---- sums ---- */

/* Counts the elements whose bits differ. size, in bytes of an element, is a constant where this is
 * inlined. */
static inline size_t count_differing(const uint8_t *a, const uint8_t *b, size_t n, size_t size)
{
	size_t differing = 0;

	for (size_t i = 0; i < n; i++) {
		differing += memcmp(a + i * size, b + i * size, size) != 0;
	}
	return differing;
}

static size_t count_changed(const uint8_t *a, const uint8_t *b, size_t n, uint32_t size)
{
	switch (size) {
	case 1:
		return count_differing(a, b, n, 1);
	case 2:
		return count_differing(a, b, n, 2);
	case 4:
		return count_differing(a, b, n, 4);
	case 8:
		return count_differing(a, b, n, 8);
	default:
		return count_differing(a, b, n, size);
	}
}

/* Sets values that are not finite to 0, and returns the number of undefined differences. Infinity
 * minus itself is not a number, but also not a change. */
static uint64_t drop_undefined(double *base, double *diff, size_t n, const uint8_t *a,
	const uint8_t *b, uint32_t size)
{
	uint64_t undefined = 0;

	for (size_t i = 0; i < n; i++) {
		if (!isfinite(diff[i])) {
			diff[i] = 0;
			undefined += memcmp(a + i * size, b + i * size, size) != 0;
		}
		if (!isfinite(base[i])) {
			base[i] = 0;
		}
	}
	return undefined;
}

/* Sums up n values, at most BLOCK, and sets the rest of both arrays to 0. All must be finite, or
 * the sums are not. */
static void sum_block(struct delta *sum, double *base, double *diff, size_t n)
{
	double square[LANES] = {0};
	double base_square[LANES] = {0};
	double max[LANES] = {0};

	while (n % LANES != 0) {
		base[n] = 0;
		diff[n++] = 0;
	}
	for (size_t i = 0; i < n; i += LANES) {
		for (size_t lane = 0; lane < LANES; lane++) {
			double d = fabs(diff[i + lane]);

			square[lane] += d * d;
			base_square[lane] += base[i + lane] * base[i + lane];
			max[lane] = d > max[lane] ? d : max[lane];
		}
	}
	*sum = (struct delta){0};
	for (size_t lane = 0; lane < LANES; lane++) {
		sum->square += square[lane];
		sum->base_square += base_square[lane];
		sum->max = max[lane] > sum->max ? max[lane] : sum->max;
	}
}

static void add_block(struct delta *delta, const struct delta_dtype *dtype, const uint8_t *before,
	const uint8_t *after, size_t n)
{
	double base[BLOCK];
	double diff[BLOCK];
	struct delta sum;

	dtype->widen(base, diff, before, after, n);
	sum_block(&sum, base, diff, n);
	if (!isfinite(sum.square) || !isfinite(sum.base_square)) {
		delta->undefined += drop_undefined(base, diff, n, before, after, dtype->bytes);
		sum_block(&sum, base, diff, n);
	}
	delta_merge(delta, &sum);
}

void delta_add(struct delta *delta, const struct delta_dtype *dtype, const void *before,
	const void *after, size_t n)
{
	const uint8_t *a = before;
	const uint8_t *b = after;

	if (memcmp(a, b, n * dtype->bytes) != 0) {
		delta->changed += count_changed(a, b, n, dtype->bytes);
	}
	while (dtype->widen != NULL && n > 0) {
		size_t now = n < BLOCK ? n : BLOCK;

		add_block(delta, dtype, a, b, now);
		a += now * dtype->bytes;
		b += now * dtype->bytes;
		n -= now;
	}
	ASSERT(delta->undefined <= delta->changed);
}

void delta_merge(struct delta *delta, const struct delta *more)
{
	delta->changed += more->changed;
	delta->undefined += more->undefined;
	delta->square += more->square;
	delta->base_square += more->base_square;
	delta->max = more->max > delta->max ? more->max : delta->max;
}

double delta_norm(const struct delta *delta)
{
	return sqrt(delta->square);
}

double delta_relative(const struct delta *delta)
{
	if (delta->square == 0) {
		return 0;
	}
	return sqrt(delta->square) / sqrt(delta->base_square);
}
