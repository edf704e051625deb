/*
 * Copies a tag into another root, of either kind: files, checksums and manifest, every byte
 * verified. A tag of objects whose copy was cut off is gone on with (put.h). Files that share bytes
 * with those of other tags are copied whole.
 *
 * For one thread; the caller owns the root that is copied to (tags_root_lock).
 */
#ifndef CKPT_COPY_H
#define CKPT_COPY_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;
struct tags_root;

/* Watches a copy; either function may be NULL. */
struct copy_watch {
	/* Asked before each piece of 1 MiB: an error ends the copy, and is its result. */
	int (*go_on)(void *user, struct pawl_err *err);
	/* Called as bytes are handed to the store, or found to be there already. */
	void (*progress)(void *user, uint64_t bytes);
	void *user;
};

/*
 * Copies a tag, in place of one of that name; does nothing if that has the same files. Returns 0
 * once the copy is durable. PAWL_ENOENT: there is no such tag; PAWL_ECORRUPT: it is damaged.
 * PAWL_EBUSY: another process has taken the root that is copied to, or has just published the tag.
 * After an error the tag there is as it was before.
 */
int tag_copy(struct tags_root *from, const char *tag, struct tags_root *to,
	const struct copy_watch *watch, struct pawl_err *err);
/* Sets *same: whether both roots have the tag, with the same files. */
int tag_is_copied(struct tags_root *from, const char *tag, struct tags_root *to, bool *same,
	struct pawl_err *err);

#endif
