/*
 * The copy kernel: moves bytes past the caches into the arena and checksums them on the way.
 * Every source byte is read once, so that the checksum is that of the bytes stored even when
 * somebody writes to the source meanwhile.
 */
#ifndef CKPT_SNAP_COPY_H
#define CKPT_SNAP_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ways to move bytes; all give the same result. */
enum copy_kernel {
	COPY_PLAIN, /* memcpy: the reference, and what other processors than x86-64 use */
	COPY_SSE2,  /* 16 byte non-temporal stores */
	COPY_AVX2,  /* 32 byte non-temporal stores, to four pages side by side */
	/* 32 byte non-temporal stores, page after page: faster on AMD's processors
	 * (bench/snap_bench). */
	COPY_AVX2_ROW,
};

bool copy_has(enum copy_kernel kernel); /* whether this processor supports the kernel */
enum copy_kernel copy_best(void);       /* the fastest kernel that this processor supports */

/*
 * Copies len_bytes from src to dst (NULL: checksum only; else the two may not overlap) and returns
 * their CRC-32C. Any alignment. A thread that sees a later store of this thread also sees these
 * stores. Any thread.
 */
uint32_t copy_crc32c(enum copy_kernel kernel, void *dst, const void *src, size_t len_bytes);

#endif
