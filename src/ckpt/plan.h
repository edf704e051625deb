/*
 * Who stages which bytes of a checkpoint, and in which pieces. Pure.
 *
 * A partition file is cut into chunks of CKPT_CHUNK bytes. What all ranks hold alike ("shared") is
 * written once: each rank stages a contiguous run of chunks, rank 0 the last one (the pickle and
 * the central directory are its). What differs is staged whole by its rank.
 */
#ifndef CKPT_PLAN_H
#define CKPT_PLAN_H

#include "ckpt/zip.h"

#include <stdbool.h>

#define CKPT_CHUNK                                                                                 \
	(1u << 20) /* bytes of a file under one checksum; a file's last chunk may be shorter */
#define CKPT_PAGE      4096u       /* unit of write tracking */
#define CKPT_WATCH_MIN (64u << 10) /* storages below this are never watched, but copied at once */

/* The share [lo, hi) of a file of size_bytes that rank of world stages; empty (lo == hi) when there
 * are fewer chunks than ranks. */
void ckpt_share(uint64_t size_bytes, uint32_t rank, uint32_t world, uint64_t *lo, uint64_t *hi);

static inline uint32_t ckpt_chunks(uint64_t size_bytes)
{
	return (uint32_t)((size_bytes + CKPT_CHUNK - 1) / CKPT_CHUNK);
}

/* One storage (or the pickle) in the memory of the rank. */
struct ckpt_span {
	const void *addr;    /* first byte; may be NULL when bytes is 0 */
	uint64_t size_bytes; /* of it */
	uint64_t groups; /* bit set of the fences that wait for it; 0: copied at once, never watched
			  */
	int device;      /* 0: host memory; n: CUDA device n - 1 */
};

/* A run of bytes that is copied and checksummed as one: within one storage and one chunk, and
 * watched as a whole or not at all. */
struct ckpt_piece {
	const uint8_t *src; /* in the rank's memory */
	uint8_t *dst;       /* in the arena; NULL: checksum only */
	uint64_t file_off;  /* of the piece in the partition file */
	uint32_t len_bytes; /* at most CKPT_CHUNK */
	uint32_t crc;       /* CRC-32C, filled by the copy */
	uint32_t part;      /* index of the partition */
	uint32_t storage;   /* index of the storage in it; storages count = the pickle */
	int device;         /* 0: host memory; n: src is of CUDA device n - 1 */
	uint64_t groups;    /* as in the span; 0: copied at once. Otherwise, in host memory, no
			       page of it has bytes of another storage */
};

/* A growing list of pieces. Zero-initialise. */
struct ckpt_pieces {
	struct ckpt_piece *at; /* owned */
	size_t n;              /* pieces in it */
	size_t cap;            /* allocated */
};

/*
 * Appends the pieces of [lo, hi) of one partition: spans[0..plan->storages) are its storages and
 * spans[plan->storages] its pickle, in the order of plan->entries (storages, …, pickle). image is
 * where byte lo goes (NULL: checksum only). Spans with groups != 0 and at least CKPT_WATCH_MIN
 * bytes are cut where their first page and their last begin to be theirs alone: what lies between
 * keeps its groups, head and tail get groups 0. Spans on devices are cut at chunks only.
 * PAWL_ENOMEM.
 */
int ckpt_pieces_add(struct ckpt_pieces *pieces, const struct zip_plan *plan,
	const struct ckpt_span *spans, uint32_t part, uint64_t lo, uint64_t hi, uint8_t *image,
	struct pawl_err *err);
/* Appends the pieces of one span, of partition 0, which goes to dst; cut as above. PAWL_ENOMEM. */
int ckpt_pieces_add_span(struct ckpt_pieces *pieces, const struct ckpt_span *span, uint32_t storage,
	uint8_t *dst, struct pawl_err *err);
void ckpt_pieces_deinit(struct ckpt_pieces *pieces);

#endif
