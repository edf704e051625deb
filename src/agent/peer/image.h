/*
 * The image of a host's part of a save: the bytes of its pieces (record.h), one behind the other,
 * by rank, partition and file offset; nothing between them. It is what travels between hosts, and
 * every byte of it is under the checksum of a piece. Pure.
 */
#ifndef AGENT_PEER_IMAGE_H
#define AGENT_PEER_IMAGE_H

#include "ckpt/format/record.h"

#define IMAGE_MARK_PIECES 256u /* pieces from one mark to the next */

/* Where the pieces of one rank's partition lie; at least one byte. */
struct image_part {
	uint32_t rank;      /* index of the rank in the image */
	uint32_t part;      /* index of the partition in the rank's record */
	uint64_t off;       /* offset in the image of the first piece */
	uint64_t len_bytes; /* bytes of all pieces */
	size_t mark;        /* index in image.marks of the first mark of the part */
};

struct image {
	const struct record *const *records; /* the caller's, and must outlive the image */
	uint32_t ranks;                      /* number of records */
	struct image_part *parts; /* owned; in order; partitions without pieces are left out */
	uint32_t parts_n;         /* number of parts */
	/* Owned: offset in the image of every IMAGE_MARK_PIECES-th piece of each part. */
	uint64_t *marks;
	uint64_t size_bytes; /* size of the image */
};

/* A piece of the image. */
struct image_piece {
	uint32_t rank, part, piece; /* indices */
	uint64_t off;               /* offset in the image */
	uint64_t arena_off;         /* offset in the rank's arena */
	uint32_t len_bytes, crc;    /* as in the record */
};

/* A place between two pieces. */
struct image_at {
	uint32_t part;  /* index in image.parts */
	uint32_t piece; /* index in that part; may be past its last one */
	uint64_t off;   /* offset in the image */
};

/* Lists where everything lies. PAWL_ENOMEM; PAWL_ECORRUPT: the sizes overflow. A rank without a
 * part in the save has a zeroed record. */
int image_init(struct image *image, const struct record *const *records, uint32_t ranks,
	struct pawl_err *err);
void image_deinit(struct image *image); /* zeroed is fine */
/* Takes the next piece; false: there is none. A zeroed *at is the beginning. */
bool image_next(const struct image *image, struct image_at *at, struct image_piece *piece);
/* Finds the piece that has the byte at off, below size_bytes. */
void image_find(const struct image *image, uint64_t off, struct image_at *at);
/* Finds the bytes [*off, *end) of the image that hold all pieces with a byte from lo to before hi
 * of the file of a rank's partition; rank and part are indices. Empty if there is none. */
void image_range(const struct image *image, uint32_t rank, uint32_t part, uint64_t lo, uint64_t hi,
	uint64_t *off, uint64_t *end);

#endif
