/*
 * The copy kernel: see copy.h for the contract.
 *
 * Bytes travel in blocks that fit the first-level cache: a block is loaded once and stored twice,
 * to the destination past the caches and to a buffer on the stack, whose checksum is taken while it
 * is still hot. bench/snap_bench measures it against memcpy.
 */
#include "ckpt/copy.h"

#include "base/crc.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define COPY_BLOCK 8192u /* bytes loaded before they are checksummed; multiple of COPY_LINE */
#define COPY_LINE  64u   /* bytes of a cache line: what a kernel moves per round */
#define COPY_AHEAD 1024u /* distance of the prefetch; the processor's own stops at page ends */

/*
 * Kernels move len_bytes, a multiple of COPY_LINE, to dst, a multiple of COPY_LINE, and to block.
 * They read memory that its owner may be writing: that is what the watch is for, and why
 * ThreadSanitizer must not look.
 */
#define KERNEL(isa) __attribute__((target(isa), no_sanitize("thread")))

#if defined(__x86_64__)
KERNEL("sse2")
static void copy_sse2(uint8_t *dst, uint8_t *block, const uint8_t *src, size_t len_bytes)
{
	for (size_t i = 0; i < len_bytes; i += COPY_LINE) {
		__builtin_prefetch(src + i + COPY_AHEAD);
		for (size_t j = i; j < i + COPY_LINE; j += sizeof(__m128i)) {
			__m128i v = _mm_loadu_si128((const __m128i *)(const void *)(src + j));

			_mm_storeu_si128((__m128i *)(void *)(block + j), v);
			_mm_stream_si128((__m128i *)(void *)(dst + j), v);
		}
	}
}

KERNEL("avx2")
static void copy_avx2(uint8_t *dst, uint8_t *block, const uint8_t *src, size_t len_bytes)
{
	for (size_t i = 0; i < len_bytes; i += COPY_LINE) {
		__builtin_prefetch(src + i + COPY_AHEAD);
		for (size_t j = i; j < i + COPY_LINE; j += sizeof(__m256i)) {
			__m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(src + j));

			_mm256_storeu_si256((__m256i *)(void *)(block + j), v);
			_mm256_stream_si256((__m256i *)(void *)(dst + j), v);
		}
	}
}
#endif

bool copy_has(enum copy_kernel kernel)
{
#if defined(__x86_64__)
	return kernel != COPY_AVX2 || __builtin_cpu_supports("avx2");
#else
	return kernel == COPY_PLAIN;
#endif
}

enum copy_kernel copy_best(void)
{
	enum copy_kernel kernel = COPY_AVX2;

	while (!copy_has(kernel)) {
		kernel--;
	}
	return kernel;
}

static void copy_plain(uint8_t *dst, uint8_t *block, const uint8_t *src, size_t len_bytes)
{
	memcpy(block, src, len_bytes);
	memcpy(dst, block, len_bytes);
}

/* dst is a multiple of COPY_LINE, or len_bytes less than that. */
static void copy_block(enum copy_kernel kernel, uint8_t *dst, uint8_t *block, const uint8_t *src,
	size_t len_bytes)
{
	size_t lines_bytes = 0;

#if defined(__x86_64__)
	if (kernel != COPY_PLAIN) {
		lines_bytes = len_bytes - len_bytes % COPY_LINE;
		(kernel == COPY_AVX2 ? copy_avx2 : copy_sse2)(dst, block, src, lines_bytes);
	}
#endif
	copy_plain(dst + lines_bytes, block + lines_bytes, src + lines_bytes,
		len_bytes - lines_bytes);
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
