/*
 * Fetches units: from a root of objects into the mirrored directory, whole or not at all, every
 * byte verified. Also compares what the directory has with what the root has.
 *
 * A fetch and its root belong to one thread.
 */
#ifndef MIRROR_FETCH_H
#define MIRROR_FETCH_H

#include "ckpt/format/manifest.h"

#include <stdbool.h>
#include <stdint.h>

struct fetch;
struct pawl_err;
struct tags_root;
struct workdir;

/* root and work stay the caller's, and outlive the fetch. stop: asked now and then whether to give
 * up with PAWL_ECANCELED; or NULL. */
int fetch_open(struct fetch **out, struct tags_root *root, const struct workdir *work,
	bool (*stop)(void *user), void *user, struct pawl_err *err);
void fetch_close(struct fetch *fetch); /* NULL is fine */

/* A unit of the directory, compared with its tag. */
enum fetch_local {
	FETCH_SAME,    /* both have the same files */
	FETCH_NEWER,   /* a file was written after the tag was made */
	FETCH_DAMAGED, /* none was, and they differ all the same: a node crashed, or a disk erred */
};

/* Compares the unit at path with its tag: names and sizes and, if asked, every byte. PAWL_ENOENT:
 * the directory has no such unit. */
int fetch_compare(struct fetch *fetch, const char *path, const char *tag, bool bytes,
	enum fetch_local *local, struct pawl_err *err);
/* Downloads the unit of a tag into the folder fetch/ of the mirror's directory, durably. mtime_ns:
 * time that its directory gets. PAWL_ECORRUPT: the tag is damaged. On error nothing is left. */
int fetch_unit(struct fetch *fetch, const char *tag, int64_t mtime_ns, struct pawl_err *err);
/* Returns whether an error of fetch_unit says that the tag is damaged or gone. */
bool fetch_is_damage(int rv);
/* Puts what fetch_unit downloaded in place, durably. PAWL_EEXIST: something is there. Any
 * thread. */
int fetch_place(const struct workdir *work, const char *tag, const char *path,
	struct pawl_err *err);
/* Removes what fetch_unit downloaded. Any thread. */
void fetch_drop(const struct workdir *work, const char *tag);

#endif
