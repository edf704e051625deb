/*
 * The copy kernel: see copy.h for the contract.
 *
 * Bytes travel in blocks that fit the first-level cache: a block is loaded once and stored twice,
 * to the destination past the caches and to a buffer on the stack, whose checksum is taken while it
 * is still hot. A full block is four pages that are walked side by side, as glibc's memcpy does for
 * large sizes: the memory then works on several pages at once. Where that makes stores slow, bytes
 * go into the block first, and from there to the destination. bench/snap_bench measures it against
 * memcpy.
 */
#include "ckpt/snap/copy.h"

#include "base/assert.h"
#include "base/crc.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define COPY_LANE  4096u            /* bytes of each of the four parts of a block */
#define COPY_BLOCK (4u * COPY_LANE) /* bytes loaded before they are checksummed */
#define COPY_LINE  64u              /* alignment of dst for a kernel: a cache line */
#define COPY_STEP  128u             /* bytes that a kernel moves at a time */
#define COPY_AHEAD 512u             /* distance of the prefetch in bytes */

_Static_assert(COPY_LANE % COPY_STEP == 0 && COPY_STEP % COPY_LINE == 0, "a lane has whole steps");

/*
 * A kernel moves lanes of lane_bytes, a multiple of COPY_STEP, one behind the other in memory, to
 * dst and to block. The owner of src may be writing to it: the watch finds that out, and
 * ThreadSanitizer must not complain.
 */
typedef void copy_fn(uint8_t *dst, uint8_t *block, const uint8_t *src, size_t lane_bytes,
	size_t lanes);

#if defined(__x86_64__)
#define KERNEL(isa) __attribute__((target(isa), no_sanitize("thread")))

KERNEL("sse2")
static inline void move_16(uint8_t *dst, uint8_t *block, const uint8_t *src)
{
	__m128i v = _mm_loadu_si128((const __m128i *)(const void *)src);

	_mm_storeu_si128((__m128i *)(void *)block, v);
	_mm_stream_si128((__m128i *)(void *)dst, v);
}

KERNEL("sse2")
static void copy_sse2(uint8_t *dst, uint8_t *block, const uint8_t *src, size_t lane_bytes,
	size_t lanes)
{
	for (size_t i = 0; i < lane_bytes; i += COPY_STEP) {
		for (size_t at = i; at < lanes * lane_bytes; at += lane_bytes) {
			__builtin_prefetch(src + at + COPY_AHEAD);
			__builtin_prefetch(src + at + COPY_AHEAD + COPY_LINE);
			for (size_t j = at; j < at + COPY_STEP; j += 16) {
				move_16(dst + j, block + j, src + j);
			}
		}
	}
}

KERNEL("avx2")
static inline void move_32(uint8_t *dst, uint8_t *block, const uint8_t *src)
{
	__m256i v = _mm256_loadu_si256((const __m256i *)(const void *)src);

	_mm256_storeu_si256((__m256i *)(void *)block, v);
	_mm256_stream_si256((__m256i *)(void *)dst, v);
}

KERNEL("avx2")
static void copy_avx2(uint8_t *dst, uint8_t *block, const uint8_t *src, size_t lane_bytes,
	size_t lanes)
{
	for (size_t i = 0; i < lane_bytes; i += COPY_STEP) {
		for (size_t at = i; at < lanes * lane_bytes; at += lane_bytes) {
			__builtin_prefetch(src + at + COPY_AHEAD);
			__builtin_prefetch(src + at + COPY_AHEAD + COPY_LINE);
			move_32(dst + at, block + at, src + at);
			move_32(dst + at + 32, block + at + 32, src + at + 32);
			move_32(dst + at + 64, block + at + 64, src + at + 64);
			move_32(dst + at + 96, block + at + 96, src + at + 96);
		}
	}
}

KERNEL("avx2")
static void copy_avx2_row(uint8_t *dst, uint8_t *block, const uint8_t *src, size_t lane_bytes,
	size_t lanes)
{
	size_t len_bytes = lanes * lane_bytes;

	for (size_t i = 0; i < len_bytes; i += 32) {
		_mm256_storeu_si256((__m256i *)(void *)(block + i),
			_mm256_loadu_si256((const __m256i *)(const void *)(src + i)));
	}
	for (size_t i = 0; i < len_bytes; i += 32) {
		_mm256_stream_si256((__m256i *)(void *)(dst + i),
			_mm256_loadu_si256((const __m256i *)(const void *)(block + i)));
	}
}
#endif

bool copy_has(enum copy_kernel kernel)
{
#if defined(__x86_64__)
	return kernel < COPY_AVX2 || __builtin_cpu_supports("avx2");
#else
	return kernel == COPY_PLAIN;
#endif
}

enum copy_kernel copy_best(void)
{
#if defined(__x86_64__)
	if (!copy_has(COPY_AVX2)) {
		return COPY_SSE2;
	}
	return __builtin_cpu_is("amd") ? COPY_AVX2_ROW : COPY_AVX2;
#else
	return COPY_PLAIN;
#endif
}

static void copy_plain(uint8_t *dst, uint8_t *block, const uint8_t *src, size_t len_bytes)
{
	memcpy(block, src, len_bytes);
	memcpy(dst, block, len_bytes);
}

/* Copies one block. dst is a multiple of COPY_LINE, or len_bytes is less than COPY_LINE. */
static void copy_block(enum copy_kernel kernel, uint8_t *dst, uint8_t *block, const uint8_t *src,
	size_t len_bytes)
{
	size_t moved = 0;

	ASSERT((uintptr_t)dst % COPY_LINE == 0 || len_bytes < COPY_LINE);
#if defined(__x86_64__)
	static copy_fn *const kernels[] =
		{[COPY_SSE2] = copy_sse2, [COPY_AVX2] = copy_avx2, [COPY_AVX2_ROW] = copy_avx2_row};
	copy_fn *copy = kernels[kernel];

	if (kernel != COPY_PLAIN && len_bytes == COPY_BLOCK) {
		moved = len_bytes;
		copy(dst, block, src, COPY_LANE, COPY_BLOCK / COPY_LANE);
	} else if (kernel != COPY_PLAIN && len_bytes >= COPY_STEP) {
		moved = len_bytes - len_bytes % COPY_STEP;
		copy(dst, block, src, moved, 1);
	}
#endif
	copy_plain(dst + moved, block + moved, src + moved, len_bytes - moved);
}

uint32_t copy_crc32c(enum copy_kernel kernel, void *dst, const void *src, size_t len_bytes)
{
	uint8_t block[COPY_BLOCK] __attribute__((aligned(COPY_LINE)));
	const uint8_t *from = src;
	uint8_t *to = dst;
	uint32_t crc = 0;

	if (dst == NULL) {
		return crc32c(0, src, len_bytes);
	}
	while (len_bytes > 0) {
		size_t skew =
			(uintptr_t)to % COPY_LINE; /* the first block ends where lines begin */
		size_t part = skew != 0 ? COPY_LINE - skew : COPY_BLOCK;

		part = part < len_bytes ? part : len_bytes;
		copy_block(kernel, to, block, from, part);
		crc = crc32c(crc, block, part);
		from += part;
		to += part;
		len_bytes -= part;
	}
#if defined(__x86_64__)
	_mm_sfence(); /* non-temporal stores are ordered by nothing else */
#endif
	return crc;
}
