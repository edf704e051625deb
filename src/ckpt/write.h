/* Writes partition files of a tag being built: chunk by chunk, several in flight, checksummed on
 * the way. */
#ifndef CKPT_WRITE_H
#define CKPT_WRITE_H

#include "ckpt/manifest.h"
#include "ckpt/zip.h"

struct store;

/* Where the bytes of a file come from. */
struct write_source {
	/*
	 * Yields the payload of file bytes [off, off + len) in *bytes: a STORE_ALIGN aligned,
	 * writable image of that range in which only the payload is set; the writer lays the glue
	 * over it. Either memory of the source's own (valid until all is written), or bounce, which
	 * has room for CKPT_CHUNK.
	 */
	int (*chunk)(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
		struct pawl_err *err);
	void *user; /* passed to chunk */
};

struct writer; /* buffers and requests, reused from file to file; one thread */

/* bounce: whether sources need bounce buffers (STORE_DEPTH x CKPT_CHUNK are then allocated, here
 * and only here). */
int writer_open(struct writer **writer, struct store *store, bool bounce, struct pawl_err *err);
void writer_close(struct writer *writer); /* NULL is fine */

/*
 * Writes dir/part->file whole and syncs it. plan's entry CRCs are filled; part->chunks gets the
 * checksums, and part->sums if there is room for them. The last chunk's length is a multiple of
 * STORE_ALIGN because the file's size is. On error the file may be left behind, half written.
 */
int writer_write(struct writer *writer, const char *dir, struct manifest_part *part,
	struct zip_plan *plan, const struct write_source *source, struct pawl_err *err);

/*
 * The same, but chunks that are what they are in base, a part with sums of a durable tag of the
 * same store, are not written again. A chunk counts as unchanged if it has the same length, CRC-32C
 * and CRC-32: together they miss one change in 2^64. Where files can share bytes (store_clone) the
 * file is whole all the same. Else, if all is unchanged, it is a second name of the base's file.
 * Else it is linked: what changed is written to a source of its own, the rest has second names, and
 * part's sources and places (room for one a chunk) say where. What can be neither is written whole:
 * raw files, that others read; what would have more than MANIFEST_SOURCES; where there are no
 * second names. source must have memory of its own.
 */
int writer_update(struct writer *writer, const char *dir, struct manifest_part *part,
	struct zip_plan *plan, const struct write_source *source, const char *base_tag,
	const struct manifest_part *base, struct pawl_err *err);

#endif
