/* The kernels in C: the reference for all other kernels. Pure. */
#include "coll/plan/fold_impl.h"

#include <math.h>
#include <string.h>

/* Defines one function per type and operation; a and b are elements. Integers are added and
 * multiplied as unsigned integers, which wrap. */
#define PAIR(verb, type, c_type, made)                                                             \
	static void verb##_##type(void *out, const void *as, const void *bs, size_t n)             \
	{                                                                                          \
		for (size_t i = 0; i < n; i++) {                                                   \
			c_type a = ((const c_type *)as)[i];                                        \
			c_type b = ((const c_type *)bs)[i];                                        \
                                                                                                   \
			((c_type *)out)[i] = (c_type)(made);                                       \
		}                                                                                  \
	}

#define INT_PAIRS(type, c_type, bytes, torch_name)                                                 \
	PAIR(add, type, c_type, (uint64_t)a + (uint64_t)b)                                         \
	PAIR(mul, type, c_type, (uint64_t)a *(uint64_t)b)                                          \
	PAIR(min, type, c_type, a < b ? a : b)                                                     \
	PAIR(max, type, c_type, a > b ? a : b)                                                     \
	PAIR(and, type, c_type, a &b)                                                              \
	PAIR(or, type, c_type, a | b)                                                              \
	PAIR(xor, type, c_type, a ^ b)
#define FLOAT_PAIRS(type, c_type, bytes, torch_name)                                               \
	PAIR(add, type, c_type, a + b)                                                             \
	PAIR(mul, type, c_type, a *b)                                                              \
	PAIR(min, type, c_type, a < b || a != a ? a : b)                                           \
	PAIR(max, type, c_type, a > b || a != a ? a : b)

COLL_INTS(INT_PAIRS)
COLL_FLOATS(FLOAT_PAIRS)

/* ---- 16-bit floats ---- */

static uint32_t bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static void load_bf16(float *out, const uint16_t *in, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		out[i] = float_of((uint32_t)in[i] << 16);
	}
}

static void store_bf16(uint16_t *out, const float *in, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits = bits_of(in[i]);
		/* Half of the last bit that is kept; ties go to even. */
		uint32_t half = 0x7fff + (bits >> 16 & 1);

		out[i] = (uint16_t)(in[i] != in[i] ? bits >> 16 | 0x40 : (bits + half) >> 16);
	}
}

/* Adjusts the exponent by a multiplication: 2^112 is the difference of the two biases. */
static void load_f16(float *out, const uint16_t *in, size_t n)
{
	const float scale = float_of((uint32_t)(127 + 112) << 23);

	for (size_t i = 0; i < n; i++) {
		uint32_t bits = (uint32_t)(in[i] & 0x7fff) << 13;
		uint32_t sign = (uint32_t)(in[i] & 0x8000) << 16;
		float value = float_of(bits) * scale;

		if (bits >= (uint32_t)0x7c00 << 13) { /* infinity, or a NaN, which becomes quiet */
			bits |= 0x7f800000 | (bits > (uint32_t)0x7c00 << 13 ? 0x400000 : 0);
			value = float_of(bits);
		}
		out[i] = float_of(bits_of(value) | sign);
	}
}

static uint16_t round_f16(float f)
{
	const float least = float_of((127 - 14) << 23); /* smallest normal 16-bit float */
	const float unit = float_of((127 - 1) << 23);   /* shares its last bit with subnormals */
	uint32_t bits = bits_of(f) & 0x7fffffff;
	uint32_t value;

	if (f != f) {
		value = 0x7e00 | (bits >> 13 & 0x3ff);
	} else if (float_of(bits) < least) { /* adding unit rounds at the last bit of subnormals */
		value = bits_of(float_of(bits) + unit) - bits_of(unit);
	} else {
		value = bits - (112u << 23);
		value = (value + 0xfff + (value >> 13 & 1)) >> 13;
		value = value < 0x7c00 ? value : 0x7c00;
	}
	return (uint16_t)(value | (bits_of(f) >> 16 & 0x8000));
}

static void store_f16(uint16_t *out, const float *in, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		out[i] = round_f16(in[i]);
	}
}

/* ---- squares ---- */

static void squares(double *lanes, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		lanes[i % FOLD_LANES] += (double)x[i] * x[i];
	}
}

static void whiten(float *out, const float *x, const float *v, size_t n, float by, float eps)
{
	for (size_t i = 0; i < n; i++) {
		out[i] = x[i] / sqrtf(sqrtf(v[i] * by) + eps);
	}
}

#define INT_ROW(type, c_type, bytes, torch_name)                                                   \
	[PAWL_SUM][PAWL_##type] = add_##type, [PAWL_PRODUCT][PAWL_##type] = mul_##type,            \
	[PAWL_MIN][PAWL_##type] = min_##type, [PAWL_MAX][PAWL_##type] = max_##type,                \
	[PAWL_BAND][PAWL_##type] = and_##type, [PAWL_BOR][PAWL_##type] = or_##type,                \
	[PAWL_BXOR][PAWL_##type] = xor_##type,
#define FLOAT_ROW(type, c_type, bytes, torch_name)                                                 \
	[PAWL_SUM][PAWL_##type] = add_##type, [PAWL_PRODUCT][PAWL_##type] = mul_##type,            \
	[PAWL_MIN][PAWL_##type] = min_##type, [PAWL_MAX][PAWL_##type] = max_##type,

const struct fold_kernels fold_plain = {
	.pair = {COLL_INTS(INT_ROW) COLL_FLOATS(FLOAT_ROW)},
	.load = {load_f16, load_bf16},
	.store = {store_f16, store_bf16},
	.squares = squares,
	.whiten = whiten,
};
