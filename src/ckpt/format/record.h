/*
 * The record by which a rank describes a step it has staged: which bytes of which partition lie
 * where in its arena, and their checksums. Workers send it to the agent, which makes manifest and
 * files from it and sends it back to restoring workers. Pure.
 */
#ifndef CKPT_FORMAT_RECORD_H
#define CKPT_FORMAT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;
struct wire_out;

#define CKPT_NAME_MAX   200u       /* bytes of a partition's name, terminator included */
#define CKPT_PARTS_MAX  4096u      /* partitions of one rank */
#define CKPT_PIECES_MAX (1u << 24) /* pieces of one rank */
/* depth of the folders that a partition may lie in */
#define CKPT_FOLDERS_MAX 8u

/*
 * Returns whether a partition, or its file, may have this name: "model", or, in a folder of the
 * tag's directory, "adapter/model". A valid name is shorter than CKPT_NAME_MAX, has no component
 * that is empty, "." or "..", and is none of the names that a tag's directory uses itself (.pawl,
 * complete.txt, why.txt).
 */
bool ckpt_name_valid(const char *name);
/* Returns whether name lies in folder or in one of its subfolders. */
bool ckpt_name_in_folder(const char *folder, const char *name);
/* Returns whether a file of this kind may have this size. */
bool ckpt_size_valid(bool raw, uint64_t size_bytes);

/* A piece as staged: see plan.h. */
struct record_piece {
	uint64_t file_off;  /* offset in the partition file */
	uint32_t len_bytes; /* length of the piece */
	uint32_t crc;       /* CRC-32C of the bytes */
};

struct record_part {
	/* Name such as "model". If the partition differs by rank, the rank is added when the file
	 * is named. */
	char name[CKPT_NAME_MAX];
	bool shared;           /* equal on all ranks */
	bool raw;              /* no torch zip: storages one behind the other */
	bool exact;            /* the file has the partition's name, whichever rank it belongs to */
	uint64_t size_bytes;   /* size of the file */
	uint64_t pickle_bytes; /* size of data.pkl */
	uint64_t lo, hi;       /* the share of the file that this rank staged */
	uint64_t arena_off;    /* offset in the arena of byte lo; multiple of 4096 */
	uint32_t storages;     /* storages in the file */
	uint64_t *storage_bytes;     /* size of each storage */
	uint32_t pieces_n;           /* pieces of this rank's share, ascending in file_off */
	struct record_piece *pieces; /* payload only; all bytes between pieces are glue */
	/* Number of entries in sums: 0, or storages. */
	uint32_t sums_n;
	uint32_t *sums; /* this rank's CRC-32C of each whole storage, to compare with other ranks */
	uint32_t tensors_bytes; /* length of tensors, may be 0 */
	uint8_t *tensors;       /* encoded tensor table (tensors.h), as it goes into the manifest */
	/* Streamed saves: number of chunks of the file, which is written already; else 0. */
	uint32_t chunks_n;
	uint32_t *chunks; /* checksum of each chunk */
};

struct record {
	uint64_t step;             /* training step */
	uint32_t rank, world;      /* rank that staged the step; number of ranks */
	uint32_t parts_n;          /* number of partitions */
	struct record_part *parts; /* partitions of this rank */
	void *block;               /* the one allocation of decode; NULL if built by hand */
};

/* Appends the encoding to out. Check out->failed afterwards. */
void record_encode(const struct record *record, struct wire_out *out);
/* Decodes a record, and validates everything it can (limits, order, offsets within size, share
 * within file). The record's arrays lie in one block; the input stays the caller's. PAWL_ECORRUPT
 * says what is wrong; PAWL_ENOMEM. */
int record_decode(struct record *record, const void *bytes, size_t len_bytes, struct pawl_err *err);
void record_deinit(struct record *record); /* the record is decoded or zeroed */
/* Returns the shared partition of this name, or NULL. */
const struct record_part *record_find_shared(const struct record *record, const char *name);

#endif
