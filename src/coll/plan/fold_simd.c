/* The kernels for gradients in vector instructions: sums of floats, and conversions between 16-bit
 * and 32-bit floats. The plain kernels process the remainder of a vector, and all other operations.
 * Pure. */
#include "base/assert.h"
#include "coll/plan/fold_impl.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define AVX2    __attribute__((target("avx2,f16c")))
#define AVX512  __attribute__((target("avx512f,avx512bw,avx512vl")))
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* ---- AVX2 ---- */

AVX2 static void add_f32_avx2(void *out, const void *as, const void *bs, size_t n)
{
	const float *a = as;
	const float *b = bs;
	float *o = out;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		_mm256_storeu_ps(o + i,
			_mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
	}
	fold_plain.pair[PAWL_SUM][PAWL_FLOAT32](o + i, a + i, b + i, n - i);
}

AVX2 static void add_f64_avx2(void *out, const void *as, const void *bs, size_t n)
{
	const double *a = as;
	const double *b = bs;
	double *o = out;
	size_t i = 0;

	for (; i + 4 <= n; i += 4) {
		_mm256_storeu_pd(o + i,
			_mm256_add_pd(_mm256_loadu_pd(a + i), _mm256_loadu_pd(b + i)));
	}
	fold_plain.pair[PAWL_SUM][PAWL_FLOAT64](o + i, a + i, b + i, n - i);
}

AVX2 static void load_f16_avx2(float *out, const uint16_t *in, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		_mm256_storeu_ps(out + i,
			_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
	}
	fold_plain.load[0](out + i, in + i, n - i);
}

AVX2 static void store_f16_avx2(uint16_t *out, const float *in, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		_mm_storeu_si128((__m128i *)(void *)(out + i),
			_mm256_cvtps_ph(_mm256_loadu_ps(in + i), NEAREST));
	}
	fold_plain.store[0](out + i, in + i, n - i);
}

AVX2 static void load_bf16_avx2(float *out, const uint16_t *in, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(in + i));

		_mm256_storeu_ps(out + i,
			_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16)));
	}
	fold_plain.load[1](out + i, in + i, n - i);
}

/* Rounds like store_bf16 of fold_plain.c. */
AVX2 static void store_bf16_avx2(uint16_t *out, const float *in, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m256 v = _mm256_loadu_ps(in + i);
		__m256i bits = _mm256_castps_si256(v);
		__m256i high = _mm256_srli_epi32(bits, 16);
		__m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff),
			_mm256_and_si256(high, _mm256_set1_epi32(1)));
		__m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
		__m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
		__m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
		__m256i made = _mm256_blendv_epi8(rounded, quiet, is_nan);

		made = _mm256_permute4x64_epi64(_mm256_packus_epi32(made, made), 0x08);
		_mm_storeu_si128((__m128i *)(void *)(out + i), _mm256_castsi256_si128(made));
	}
	fold_plain.store[1](out + i, in + i, n - i);
}

AVX2 static void squares_avx2(double *lanes, const float *x, size_t n)
{
	__m256d sums[FOLD_LANES / 4];
	size_t i = 0;

	for (size_t l = 0; l < FOLD_LANES / 4; l++) {
		sums[l] = _mm256_loadu_pd(lanes + 4 * l);
	}
	for (; i + FOLD_LANES <= n; i += FOLD_LANES) {
		for (size_t l = 0; l < FOLD_LANES / 4; l++) {
			__m256d v = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * l));

			sums[l] = _mm256_add_pd(sums[l], _mm256_mul_pd(v, v));
		}
	}
	for (size_t l = 0; l < FOLD_LANES / 4; l++) {
		_mm256_storeu_pd(lanes + 4 * l, sums[l]);
	}
	fold_plain.squares(lanes, x + i, n - i);
}

AVX2 static void whiten_avx2(float *out, const float *x, const float *v, size_t n, float by,
	float eps)
{
	__m256 scale = _mm256_set1_ps(by);
	__m256 least = _mm256_set1_ps(eps);
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m256 root = _mm256_sqrt_ps(_mm256_mul_ps(_mm256_loadu_ps(v + i), scale));

		_mm256_storeu_ps(out + i,
			_mm256_div_ps(_mm256_loadu_ps(x + i),
				_mm256_sqrt_ps(_mm256_add_ps(root, least))));
	}
	fold_plain.whiten(out + i, x + i, v + i, n - i, by, eps);
}

/* ---- AVX-512 ---- */

AVX512 static void add_f32_avx512(void *out, const void *as, const void *bs, size_t n)
{
	const float *a = as;
	const float *b = bs;
	float *o = out;
	size_t i = 0;

	for (; i + 16 <= n; i += 16) {
		_mm512_storeu_ps(o + i,
			_mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
	}
	fold_plain.pair[PAWL_SUM][PAWL_FLOAT32](o + i, a + i, b + i, n - i);
}

AVX512 static void add_f64_avx512(void *out, const void *as, const void *bs, size_t n)
{
	const double *a = as;
	const double *b = bs;
	double *o = out;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		_mm512_storeu_pd(o + i,
			_mm512_add_pd(_mm512_loadu_pd(a + i), _mm512_loadu_pd(b + i)));
	}
	fold_plain.pair[PAWL_SUM][PAWL_FLOAT64](o + i, a + i, b + i, n - i);
}

AVX512 static void load_f16_avx512(float *out, const uint16_t *in, size_t n)
{
	size_t i = 0;

	for (; i + 16 <= n; i += 16) {
		_mm512_storeu_ps(out + i,
			_mm512_cvtph_ps(
				_mm256_loadu_si256((const __m256i *)(const void *)(in + i))));
	}
	fold_plain.load[0](out + i, in + i, n - i);
}

AVX512 static void store_f16_avx512(uint16_t *out, const float *in, size_t n)
{
	size_t i = 0;

	for (; i + 16 <= n; i += 16) {
		_mm256_storeu_si256((__m256i *)(void *)(out + i),
			_mm512_cvtps_ph(_mm512_loadu_ps(in + i), NEAREST));
	}
	fold_plain.store[0](out + i, in + i, n - i);
}

AVX512 static void load_bf16_avx512(float *out, const uint16_t *in, size_t n)
{
	size_t i = 0;

	for (; i + 16 <= n; i += 16) {
		__m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));

		_mm512_storeu_ps(out + i,
			_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16)));
	}
	fold_plain.load[1](out + i, in + i, n - i);
}

/* Rounds like store_bf16 of fold_plain.c. */
AVX512 static void store_bf16_avx512(uint16_t *out, const float *in, size_t n)
{
	size_t i = 0;

	for (; i + 16 <= n; i += 16) {
		__m512 v = _mm512_loadu_ps(in + i);
		__m512i bits = _mm512_castps_si512(v);
		__m512i high = _mm512_srli_epi32(bits, 16);
		__m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff),
			_mm512_and_si512(high, _mm512_set1_epi32(1)));
		__m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
		__mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
		__m512i made = _mm512_mask_or_epi32(rounded, is_nan, high, _mm512_set1_epi32(0x40));

		_mm256_storeu_si256((__m256i *)(void *)(out + i), _mm512_cvtepi32_epi16(made));
	}
	fold_plain.store[1](out + i, in + i, n - i);
}

AVX512 static void squares_avx512(double *lanes, const float *x, size_t n)
{
	__m512d low = _mm512_loadu_pd(lanes);
	__m512d high = _mm512_loadu_pd(lanes + 8);
	size_t i = 0;

	for (; i + FOLD_LANES <= n; i += FOLD_LANES) {
		__m512d v = _mm512_cvtps_pd(_mm256_loadu_ps(x + i));
		__m512d w = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));

		low = _mm512_add_pd(low, _mm512_mul_pd(v, v));
		high = _mm512_add_pd(high, _mm512_mul_pd(w, w));
	}
	_mm512_storeu_pd(lanes, low);
	_mm512_storeu_pd(lanes + 8, high);
	fold_plain.squares(lanes, x + i, n - i);
}

AVX512 static void whiten_avx512(float *out, const float *x, const float *v, size_t n, float by,
	float eps)
{
	__m512 scale = _mm512_set1_ps(by);
	__m512 least = _mm512_set1_ps(eps);
	size_t i = 0;

	for (; i + 16 <= n; i += 16) {
		__m512 root = _mm512_sqrt_ps(_mm512_mul_ps(_mm512_loadu_ps(v + i), scale));

		_mm512_storeu_ps(out + i,
			_mm512_div_ps(_mm512_loadu_ps(x + i),
				_mm512_sqrt_ps(_mm512_add_ps(root, least))));
	}
	fold_plain.whiten(out + i, x + i, v + i, n - i, by, eps);
}

static const struct fold_kernels avx2 = {
	.pair = {[PAWL_SUM] = {[PAWL_FLOAT32] = add_f32_avx2, [PAWL_FLOAT64] = add_f64_avx2}},
	.load = {load_f16_avx2, load_bf16_avx2},
	.store = {store_f16_avx2, store_bf16_avx2},
	.squares = squares_avx2,
	.whiten = whiten_avx2,
};
static const struct fold_kernels avx512 = {
	.pair = {[PAWL_SUM] = {[PAWL_FLOAT32] = add_f32_avx512, [PAWL_FLOAT64] = add_f64_avx512}},
	.load = {load_f16_avx512, load_bf16_avx512},
	.store = {store_f16_avx512, store_bf16_avx512},
	.squares = squares_avx512,
	.whiten = whiten_avx512,
};

/* clang's __builtin_cpu_supports does not know F16C. */
static bool has_f16c(void)
{
	unsigned int eax;
	unsigned int ebx;
	unsigned int ecx;
	unsigned int edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool coll_kernel_has(enum coll_kernel kernel)
{
	switch (kernel) {
	case COLL_AVX2:
		return __builtin_cpu_supports("avx2") && has_f16c();
	case COLL_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
			__builtin_cpu_supports("avx512vl");
	default:
		return kernel == COLL_PLAIN;
	}
}

static const struct fold_kernels *const kernels[COLL_KERNELS] = {&fold_plain, &avx2, &avx512};

#else

bool coll_kernel_has(enum coll_kernel kernel)
{
	return kernel == COLL_PLAIN;
}

static const struct fold_kernels *const kernels[COLL_KERNELS] = {&fold_plain};
#endif

enum coll_kernel coll_kernel_best(void)
{
	enum coll_kernel kernel = COLL_AVX512;

	while (!coll_kernel_has(kernel)) {
		kernel--;
	}
	return kernel;
}

fold_pair_fn *fold_pair_of(enum coll_kernel kernel, enum pawl_reduce_op fold, enum pawl_dtype type)
{
	fold_pair_fn *pair = kernels[kernel]->pair[fold][type];

	return pair != NULL ? pair : fold_plain.pair[fold][type];
}

const struct fold_kernels *fold_kernels_of(enum coll_kernel kernel)
{
	ASSERT(kernel < COLL_KERNELS && kernels[kernel] != NULL);
	return kernels[kernel];
}
