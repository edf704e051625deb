/* Writes the partition files of a tag being built: chunk by chunk, several in flight, and computes
 * their checksums. */
#ifndef CKPT_WRITE_H
#define CKPT_WRITE_H

#include "ckpt/format/manifest.h"
#include "ckpt/format/zip.h"

struct store;

/* The source of a file's bytes. */
struct write_source {
	/*
	 * Returns the payload of file bytes [off, off + len) in *bytes: a STORE_ALIGN aligned,
	 * writable image of that range in which only the payload is set. The writer adds the glue.
	 * *bytes is memory of the source, valid until everything is written, or bounce, which has
	 * room for CKPT_CHUNK.
	 */
	int (*chunk)(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
		struct pawl_err *err);
	void *user; /* passed to chunk */
};

struct writer; /* buffers and requests, reused from file to file; one thread */

/* Opens a writer. bounce: whether sources need bounce buffers; CKPT_CHUNK bytes for each transfer
 * that the store takes (store_depth) are then allocated, only here. */
int writer_open(struct writer **writer, struct store *store, bool bounce, struct pawl_err *err);
void writer_close(struct writer *writer); /* NULL is fine */
/* Lets files be created by store_resume, in a flat store. */
void writer_resume(struct writer *writer);

/*
 * Writes dir/part->file whole and syncs it. plan's entry CRCs are filled; part->chunks gets the
 * checksums, and part->sums if there is room for them; part->at[0] is the file, for a manifest
 * whose folders[0] is dir. The last chunk of a raw file is padded to a multiple of STORE_ALIGN, and
 * the padding is cut off again. On error a half-written file may be left behind.
 */
int writer_write(struct writer *writer, const char *dir, struct manifest_part *part,
	struct zip_plan *plan, const struct write_source *source, struct pawl_err *err);

struct writing; /* a file whose bytes were taken, and may be on their way */

/*
 * writer_write in two steps, between which the next file may be begun, so that storage has work to
 * do while a file ends. writer_begin returns once all bytes were taken: plan and source.chunk are
 * not used any more, but memory of the source is until writer_end. Each file that was begun must be
 * ended, after a failure of others, too, before the writer is closed. writer_end frees writing.
 */
int writer_begin(struct writer *writer, const char *dir, struct manifest_part *part,
	struct zip_plan *plan, const struct write_source *source, struct writing **out,
	struct pawl_err *err);
int writer_end(struct writing *writing, struct pawl_err *err);

/* What an update can share. */
struct write_base {
	const struct manifest *manifest;  /* a durable tag's, of the same store */
	const struct manifest_part *part; /* one of the manifest's parts, with sums */
	const struct manifest *into;      /* manifest being made; NULL: without folders */
};

/*
 * Writes a part as writer_write does, except for chunks that are unchanged from those of the base.
 * A chunk counts as unchanged if it has the same length, CRC-32C and CRC-32: together they miss one
 * change in 2^64. source must yield its own memory. Three ways, by what the store can do:
 *   - Files share bytes (store_clone): the file is whole all the same.
 *   - Hard links: if nothing changed, the file is a link to the base's. Else it is linked: the
 *     changed chunks go to a source of their own, the other sources are links, and part's sources
 *     and places (room for one per chunk) say where each chunk is.
 *   - The base has folders: the part is linked in this way, but nothing is made besides the source
 *     with the changed chunks. part->at names the base's own files, by their number in the folders
 *     of into, which has those of the base (manifest_add_folders).
 * The file is written whole if none is possible: raw files, which others read; more than
 * MANIFEST_SOURCES sources; stores without hard links; a file of the base that is gone or has
 * another name.
 */
int writer_update(struct writer *writer, const char *dir, struct manifest_part *part,
	struct zip_plan *plan, const struct write_source *source, const struct write_base *base,
	struct pawl_err *err);

#endif
