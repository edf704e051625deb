/* The manifest of a tag: which files, how large, a CRC-32C a chunk, what is in them.
 * Self-checksummed. Pure. docs/format.md has the bytes. */
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H

#include "ckpt/record.h"

#define MANIFEST_MAX_BYTES (1u << 30) /* of an encoded manifest */
#define MANIFEST_PARTS_MAX (1u << 20) /* files of one tag */
#define CKPT_TAG_MAX       128u       /* bytes of a tag, terminator included */
#define CKPT_JOB_MAX       128u       /* bytes of a job id, terminator included */
#define MANIFEST_ALL_RANKS UINT32_MAX
#define MANIFEST_SOURCES   8u /* files that a linked partition is spread over */

/* Where a chunk of a linked partition is: a chunk of one of its sources. */
struct manifest_place {
	uint32_t source;
	uint32_t chunk;
};

struct manifest_part {
	char name[CKPT_NAME_MAX];      /* the name in state: "model" */
	char file[CKPT_NAME_MAX + 16]; /* "model", or "rng-rank1" for what differs by rank in a
					  world of several and was not named file by file */
	uint32_t rank;                 /* whose it is, or MANIFEST_ALL_RANKS */
	bool raw;                      /* no torch zip: bytes of the caller's own, and any size */
	uint64_t size_bytes;           /* of the file */
	uint32_t chunks_n;             /* ckpt_chunks(size_bytes) */
	uint32_t *chunks;   /* CRC-32C of each chunk of the file, every byte of it included */
	uint32_t *sums;     /* CRC-32 of each too, to tell what the next save need not write
			       again; NULL: it writes all */
	uint32_t depth;     /* saves in a row that shared bytes with the one before them, up to
			       this one; 0: all of it was written */
	uint32_t sources_n; /* 0: its bytes are in file. Else it is linked: there is no such file,
			       but so many sources in .pawl */
	uint64_t sources[MANIFEST_SOURCES]; /* bytes of each */
	struct manifest_place *places;      /* linked: one a chunk */
	uint32_t tensors_bytes;             /* of tensors */
	uint8_t *tensors;                   /* table, see tensors.h */
};

struct manifest {
	uint64_t step;               /* training step */
	char tag[CKPT_TAG_MAX];      /* the directory's name */
	char job[CKPT_JOB_MAX];      /* who wrote it */
	uint32_t attempt;            /* of the job */
	uint32_t world;              /* ranks that saved */
	int64_t created_ns;          /* wall clock, since 1970 */
	uint32_t parts_n;            /* files */
	struct manifest_part *parts; /* sorted by file */
	void *block;                 /* what decode allocated; NULL if built by hand */
};

/* Appends the encoding of a manifest that passes manifest_check (check out->failed after). */
void manifest_encode(const struct manifest *manifest, struct wire_out *out);
/* PAWL_EINVAL if a decoder would refuse it: names, order and ranks of the parts, sizes, checksums a
 * chunk. */
int manifest_check(const struct manifest *manifest, struct pawl_err *err);
/* PAWL_ECORRUPT with what is wrong; PAWL_ENOTSUP for a newer version, naming both; PAWL_ENOMEM. */
int manifest_decode(struct manifest *manifest, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
void manifest_deinit(struct manifest *manifest);
uint64_t manifest_bytes(const struct manifest *manifest); /* of all its files */
/* Puts the parts into the order that they must have. */
void manifest_sort(struct manifest *manifest);
/* The part in a file, or NULL. The parts must be in order. */
const struct manifest_part *manifest_file(const struct manifest *manifest, const char *file);

/* The part that rank restores for name: its own file, else the shared one; NULL when there is
 * none. */
const struct manifest_part *manifest_find(const struct manifest *manifest, const char *name,
	uint32_t rank);
/* ---- the files of a part, linked or not: what differs is only where they are ---- */

uint32_t manifest_files(const struct manifest_part *part); /* how many: one, or its sources */
uint64_t manifest_file_bytes(const struct manifest_part *part, uint32_t i);
/* The path of the i-th in dir. */
void manifest_file_path(char *buf, size_t cap_bytes, const char *dir,
	const struct manifest_part *part, uint32_t i);
struct manifest_place manifest_place(const struct manifest_part *part, uint32_t chunk);

/* File name of a partition: name, or name-rank<r> when it is not shared and world > 1. */
void manifest_file_name(char *buf, size_t cap_bytes, const char *name, bool shared, uint32_t rank,
	uint32_t world);

#endif
