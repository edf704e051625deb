/*
 * Publishes a tag whose bytes the caller reads: files of another program, or of a tag in another
 * root. In a root of objects, an upload that an earlier process left unfinished is gone on with:
 * what the service has already, with the bytes that the caller reads now, is not sent again.
 *
 * For one thread, which waits for the storage; the caller owns the root (tags_root_lock).
 */
#ifndef CKPT_PUT_H
#define CKPT_PUT_H

#include "ckpt/format/manifest.h"

struct pawl_err;
struct tags_root;

/* Where the bytes of the files come from. */
struct put_source {
	/* Begins to read the i-th file. */
	int (*open)(void *user, uint32_t i, struct pawl_err *err);
	/* Reads bytes of the open file, in ascending order and without gaps, at most CKPT_CHUNK of
	 * them; off is a multiple of that. A file may be read twice. */
	int (*read)(void *user, uint64_t off, void *bytes, size_t len_bytes, struct pawl_err *err);
	void (*close)(void *user); /* also after an error of read */
	void *user;
	/* Asked once all bytes were read, before the tag is published: an error gives it up. NULL:
	 * the bytes are good. */
	int (*confirm)(void *user, struct pawl_err *err);
};

/*
 * Writes the files of a manifest and publishes it as its tag, in place of one of that name. The
 * manifest was built by hand: its parts have names, ranks, sizes and room for chunks, which are
 * filled; folders and places are ignored.
 *
 * fingerprint, of a root of objects: files with another fingerprint are other files. That it proves
 * no bytes: these are compared. Returns 0 once the tag is durable. PAWL_EBUSY: another process has
 * taken the root, or has just published the tag. Any other error, also of the source: the tag is as
 * it was before, and the call may be tried again; objects that were uploaded are then used.
 */
int tag_put(struct tags_root *root, const struct manifest *manifest, uint64_t fingerprint,
	const struct put_source *source, struct pawl_err *err);

#endif
