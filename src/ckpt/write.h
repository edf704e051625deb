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
 * Writes dir/file whole and syncs it. plan's entry CRCs are filled; chunks[ckpt_chunks(size)] gets
 * the checksums. The last chunk's length is a multiple of STORE_ALIGN because the file's size is.
 * On error the file may be left behind, half written.
 */
int writer_write(struct writer *writer, const char *dir, const char *file, struct zip_plan *plan,
	const struct write_source *source, uint32_t *chunks, struct pawl_err *err);

#endif
