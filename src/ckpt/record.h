/*
 * What one rank says about a step it has staged: which bytes of which partition lie where in its
 * arena, and their checksums. Travels from worker to agent and back to a restoring worker; the
 * agent makes manifest and files from it. Pure.
 */
#ifndef CKPT_RECORD_H
#define CKPT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;
struct wire_out;

#define CKPT_NAME_MAX   200u       /* bytes of a partition's name, terminator included */
#define CKPT_PARTS_MAX  4096u      /* partitions of one rank */
#define CKPT_PIECES_MAX (1u << 24) /* pieces of one rank */
/* Folders in folders that a partition may lie in. */
#define CKPT_FOLDERS_MAX 8u

/*
 * Whether a partition, or the file it makes, may be called so: "model", or in a folder of the tag's
 * directory "adapter/model". Shorter than CKPT_NAME_MAX, no part of it empty, "." or "..", and none
 * of the names that a tag's directory uses itself (.pawl, complete.txt, why.txt).
 */
bool ckpt_name_valid(const char *name);
/* Whether name lies in folder, or in one that lies in it. */
bool ckpt_name_above(const char *folder, const char *name);
/* Whether a file of this kind may be so large. */
bool ckpt_size_valid(bool raw, uint64_t size_bytes);

/* A piece as staged: see plan.h. */
struct record_piece {
	uint64_t file_off;  /* in the partition file */
	uint32_t len_bytes; /* of it */
	uint32_t crc;       /* CRC-32C of the bytes */
};

struct record_part {
	char name[CKPT_NAME_MAX];    /* "model"; for what differs by rank the rank is added when the
					file is named */
	bool shared;                 /* held alike by all ranks */
	bool raw;                    /* no torch zip: storages one behind the other */
	bool exact;                  /* the file has the partition's name, whoever's it is */
	uint64_t size_bytes;         /* of the file */
	uint64_t pickle_bytes;       /* size of data.pkl */
	uint64_t lo, hi;             /* the share of the file that this rank staged */
	uint64_t arena_off;          /* where byte lo lies in the arena, multiple of 4096 */
	uint32_t storages;           /* of the file */
	uint64_t *storage_bytes;     /* one a storage */
	uint32_t pieces_n;           /* of this rank's share, ascending in file_off */
	struct record_piece *pieces; /* payload only; all between is glue */
	uint32_t sums_n;        /* 0, or storages: this rank's CRC-32C of each whole storage, for
				   comparison with the others */
	uint32_t *sums;         /* sums_n of them */
	uint32_t tensors_bytes; /* of the encoded tensor table (tensors.h), 0 allowed */
	uint8_t *tensors;       /* the table, as it goes into the manifest */
	uint32_t chunks_n;      /* streamed saves: checksums of the file's chunks, which is written
				   already; else 0 */
	uint32_t *chunks;       /* chunks_n of them */
};

struct record {
	uint64_t step;             /* training step */
	uint32_t rank, world;      /* who, of how many */
	uint32_t parts_n;          /* partitions */
	struct record_part *parts; /* of this rank */
	void *block;               /* what decode allocated, all in one; NULL if built by hand */
};

/* Appends the encoding to out (check out->failed after). */
void record_encode(const struct record *record, struct wire_out *out);
/* Validates everything it can (limits, order, offsets within size, share within file); points into
 * one block. Input stays the caller's. PAWL_ECORRUPT with what is wrong, PAWL_ENOMEM. */
int record_decode(struct record *record, const void *bytes, size_t len_bytes, struct pawl_err *err);
void record_deinit(struct record *record); /* of a decoded or zeroed one */
/* The shared partition of this name, or NULL. */
const struct record_part *record_find_shared(const struct record *record, const char *name);

#endif
