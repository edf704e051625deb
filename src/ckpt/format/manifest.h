/* The manifest of a tag: its files, their sizes, a CRC-32C per chunk, and their content. Contains
 * its own checksum. Pure. docs/format.md has the bytes. */
#ifndef CKPT_FORMAT_MANIFEST_H
#define CKPT_FORMAT_MANIFEST_H

#include "ckpt/format/record.h"

#define MANIFEST_MAX_BYTES   (1u << 30) /* size of an encoded manifest, at most */
#define MANIFEST_PARTS_MAX   (1u << 20) /* files of one tag */
#define CKPT_TAG_MAX         128u       /* bytes of a tag, terminator included */
#define CKPT_JOB_MAX         128u       /* bytes of a job id, terminator included */
#define MANIFEST_ALL_RANKS   UINT32_MAX
#define MANIFEST_SOURCES     8u    /* files over which a linked partition is spread, at most */
#define MANIFEST_FOLDERS_MAX 4096u /* folders that hold a tag's files, at most */
#define MANIFEST_FOLDER_MAX  224u  /* bytes of the path of such a folder, terminator included */

/* The place of a chunk of a linked partition: a chunk in one of its sources. */
struct manifest_place {
	uint32_t source;
	uint32_t chunk;
};

/* A folder of the store into which one save wrote files. Objects cannot be linked, so a tag also
 * uses files in the folders of earlier saves. */
struct manifest_folder {
	char dir[MANIFEST_FOLDER_MAX]; /* "<tag>/save-<id>" */
};

/* The place of a file of a part, in a manifest with folders. */
struct manifest_file {
	uint32_t folder; /* folder, by its number in folders */
	bool own_name;   /* true: <folder>/<file>; false: changed chunks, <folder>/.pawl/<file>.0 */
};

struct manifest_part {
	char name[CKPT_NAME_MAX]; /* name in the state: "model" */
	/* File name: "model"; or "rng-rank1" for a partition that differs by rank in a world of
	 * several and was not named file by file. */
	char file[CKPT_NAME_MAX + 16];
	uint32_t rank;       /* the rank it belongs to, or MANIFEST_ALL_RANKS */
	bool raw;            /* no torch zip: the caller's own bytes, of any size */
	uint64_t size_bytes; /* size of the file */
	uint32_t chunks_n;   /* ckpt_chunks(size_bytes) */
	uint32_t *chunks;    /* CRC-32C of each chunk of the file, over every byte */
	/* CRC-32 of each chunk as well, by which the next save finds unchanged chunks; NULL: it
	 * writes everything. */
	uint32_t *sums;
	/* Consecutive saves that shared bytes with the previous one, up to this one; 0: everything
	 * was written. */
	uint32_t depth;
	/* 0: the bytes are in file. Else the part is linked: there is no such file, but this many
	 * sources in .pawl. */
	uint32_t sources_n;
	uint64_t sources[MANIFEST_SOURCES]; /* size of each source in bytes */
	struct manifest_place *places;      /* if linked: the place of each chunk */
	struct manifest_file
		at[MANIFEST_SOURCES]; /* with folders: the place of each file, else 0 */
	uint32_t tensors_bytes;       /* length of tensors */
	uint8_t *tensors;             /* tensor table, see tensors.h */
};

struct manifest {
	uint64_t step;               /* training step */
	char tag[CKPT_TAG_MAX];      /* name of the tag */
	char job[CKPT_JOB_MAX];      /* id of the job that wrote it */
	uint32_t attempt;            /* attempt of the job */
	uint32_t world;              /* number of ranks that saved */
	int64_t created_ns;          /* wall clock, since 1970 */
	uint32_t parts_n;            /* number of files */
	struct manifest_part *parts; /* sorted by file */
	uint32_t folders_n;          /* number of folders; 0 in a root of directories */
	/* Folders that hold the files, no two equal; [0] is the folder of this save. In block; of a
	 * manifest that was built by hand, the builder's, who frees it. */
	struct manifest_folder *folders;
	void *block; /* memory that decode allocated; NULL if built by hand */
};

/* Appends the encoding of a manifest that passes manifest_check. Check out->failed afterwards. */
void manifest_encode(const struct manifest *manifest, struct wire_out *out);
/* Checks what a decoder requires: names, order and ranks of the parts, sizes, checksums per chunk.
 * PAWL_EINVAL. */
int manifest_check(const struct manifest *manifest, struct pawl_err *err);
/* Decodes a manifest. PAWL_ECORRUPT says what is wrong; PAWL_ENOTSUP for a newer version names both
 * versions; PAWL_ENOMEM. */
int manifest_decode(struct manifest *manifest, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
/* Frees what decode allocated. Lists of a manifest that was built by hand stay the builder's. */
void manifest_deinit(struct manifest *manifest);
uint64_t manifest_bytes(const struct manifest *manifest); /* total size of all its files */
/* Sorts the parts as a manifest requires. */
void manifest_sort(struct manifest *manifest);
/* Returns the part in a file, or NULL. The parts must be in order. */
const struct manifest_part *manifest_find_file(const struct manifest *manifest, const char *file);

/* Returns the part that rank restores for name: its own file, else the shared one; NULL if there is
 * none. */
const struct manifest_part *manifest_find_part(const struct manifest *manifest, const char *name,
	uint32_t rank);

/* ---- the files of a part, linked or not; only their places differ ---- */

/* Returns the number of files: one, or its sources. */
uint32_t manifest_files_n(const struct manifest_part *part);
uint64_t manifest_file_bytes(const struct manifest_part *part, uint32_t i);
/* Writes the path of the i-th file in the store to buf. */
void manifest_path(char *buf, size_t cap_bytes, const struct manifest *manifest,
	const struct manifest_part *part, uint32_t i);
/* Writes to buf the path of the i-th file of a part that lies wholly in dir: in a directory, or
 * where a writer puts it. manifest_path is for a tag's files. */
void manifest_file_path(char *buf, size_t cap_bytes, const char *dir,
	const struct manifest_part *part, uint32_t i);
struct manifest_place manifest_place(const struct manifest_part *part, uint32_t chunk);

/* ---- the folders of a manifest's files ---- */

/* Returns the number of a folder in folders; UINT32_MAX if it is not there. */
uint32_t manifest_find_folder(const struct manifest *manifest, const char *dir);
/* Appends those of from's folders that are missing, to a manifest that was built by hand: the
 * numbers of its own folders stay. The caller frees manifest->folders, also after a failure, which
 * changes nothing. PAWL_ELIMIT above MANIFEST_FOLDERS_MAX, PAWL_ENOMEM. */
int manifest_add_folders(struct manifest *manifest, const struct manifest *from,
	struct pawl_err *err);
/* Drops the folders that no part uses, all but [0], and renumbers the others in the parts. */
void manifest_prune_folders(struct manifest *manifest);

/* Writes the file name of a partition to buf: name, or name-rank<r> if it is not shared and world >
 * 1. */
void manifest_file_name(char *buf, size_t cap_bytes, const char *name, bool shared, uint32_t rank,
	uint32_t world);

#endif
