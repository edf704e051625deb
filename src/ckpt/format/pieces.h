/*
 * Divides the bytes of a checkpoint into shares, for the ranks that stage them, and into pieces,
 * for the copy. The layout of a file, struct zip_plan, is in zip.h. Pure.
 *
 * A partition file is cut into chunks of CKPT_CHUNK bytes. A partition that is equal on all ranks
 * ("shared") is written once: each rank stages a contiguous run of chunks, and rank 0 the last one,
 * with the pickle and the central directory. A partition that differs by rank is staged whole by
 * its rank.
 */
#ifndef CKPT_FORMAT_PIECES_H
#define CKPT_FORMAT_PIECES_H

#include "ckpt/format/zip.h"

#include <stdbool.h>

#define CKPT_CHUNK                                                                                 \
	(1u << 20) /* bytes of a file under one checksum; a file's last chunk may be shorter */
#define CKPT_PAGE      4096u       /* bytes; unit of write tracking */
#define CKPT_WATCH_MIN (64u << 10) /* smaller storages are copied at once, never watched */

/* Computes the share [lo, hi) that a rank of world stages of a file of size_bytes; empty (lo == hi)
 * for some ranks if there are fewer chunks than ranks. */
void ckpt_share(uint64_t size_bytes, uint32_t rank, uint32_t world, uint64_t *lo, uint64_t *hi);

static inline uint32_t ckpt_chunks(uint64_t size_bytes)
{
	return (uint32_t)((size_bytes + CKPT_CHUNK - 1) / CKPT_CHUNK);
}

/* One storage (or the pickle) in the memory of the rank. */
struct ckpt_span {
	const void *addr;    /* first byte; may be NULL when size_bytes is 0 */
	uint64_t size_bytes; /* number of bytes at addr */
	/* Bit set of the fences that wait for the span; 0: copied at once, never watched. */
	uint64_t groups;
	int device; /* 0: host memory; n: CUDA device n - 1 */
};

/* A run of bytes that is copied and checksummed as a unit: it lies within one storage and one
 * chunk, and is watched as a whole or not at all. */
struct ckpt_piece {
	const uint8_t *src; /* address in the rank's memory */
	uint8_t *dst;       /* address in the arena; NULL: checksum only */
	uint64_t file_off;  /* offset of the piece in the partition file */
	uint32_t len_bytes; /* at most CKPT_CHUNK */
	uint32_t crc;       /* CRC-32C, filled by the copy */
	uint32_t part;      /* index of the partition */
	uint32_t storage; /* index of the storage in the partition; one past the last: the pickle */
	int device;       /* 0: host memory; n: src is on CUDA device n - 1 */
	/* The groups of the span; 0: copied at once. Otherwise, in host memory, no page of the
	 * piece has bytes of another storage. */
	uint64_t groups;
};

/* A growing list of pieces. Zero-initialise. */
struct ckpt_pieces {
	struct ckpt_piece *at; /* owned */
	size_t n;              /* number of pieces */
	size_t cap;            /* pieces allocated */
};

/*
 * Appends the pieces of [lo, hi) of one partition: spans[0..plan->storages) are its storages and
 * spans[plan->storages] its pickle, in the order of plan->entries (storages, …, pickle). Byte lo of
 * the file goes to image[0] (NULL: checksum only). A span with groups != 0 and at least
 * CKPT_WATCH_MIN bytes is cut at the first and the last page that it has to itself: the bytes
 * between keep its groups, head and tail get groups 0. Spans on devices are cut at chunks only.
 * PAWL_ENOMEM.
 */
int ckpt_pieces_add(struct ckpt_pieces *pieces, const struct zip_plan *plan,
	const struct ckpt_span *spans, uint32_t part, uint64_t lo, uint64_t hi, uint8_t *image,
	struct pawl_err *err);
/* Appends the pieces of one span of partition 0, to be copied to dst; cut as above. PAWL_ENOMEM. */
int ckpt_pieces_add_span(struct ckpt_pieces *pieces, const struct ckpt_span *span, uint32_t storage,
	uint8_t *dst, struct pawl_err *err);
void ckpt_pieces_deinit(struct ckpt_pieces *pieces);

#endif
