/* The two kinds of roots, for the files of this room alone: see root.h. */
#ifndef CKPT_ROOT_IMPL_H
#define CKPT_ROOT_IMPL_H

#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "ckpt/tags_names.h"

#include <sys/types.h>

struct wire_out;

/* What differs between the kinds. A function that is named like one of root.h or tags.h fulfils its
 * contract; arguments were checked. */
struct tags_root_ops {
	const char *owner_file; /* path of the file that names the last owner in its first line */
	const char *bad_dir;    /* folder of the quarantined tags */
	/* Lists the names of all tags, ascending by number, as tags_list_names does. */
	int (*list)(struct tags_root *root, struct tag_names *names, struct pawl_err *err);
	/* Sets *has: whether something has the name of the tag, ours or not. */
	int (*has_name)(struct tags_root *root, const char *tag, bool *has, struct pawl_err *err);
	/* Sets *is_ours: whether Pawl published a tag of this name, whole or not. */
	int (*is_ours)(struct tags_root *root, const char *tag, bool *is_ours,
		struct pawl_err *err);
	/* Checks what a tag needs beside its manifest: its directory, and if sealed complete.txt;
	 * objects need nothing. PAWL_ENOENT, PAWL_ECORRUPT. */
	int (*check_place)(struct tags_root *root, const char *tag, bool sealed,
		struct pawl_err *err);
	/* Reads the bytes of the tag's manifest, which the caller frees. PAWL_ENOENT: there is no
	 * such tag; PAWL_ECORRUPT: it has no manifest that can be one. */
	int (*read_manifest)(struct tags_root *root, const char *tag, void **bytes,
		size_t *len_bytes, struct pawl_err *err);

	int (*begin)(struct tags_root *root, struct tag_draft *draft, struct pawl_err *err);
	int (*begin_shared)(struct tags_root *root, const char *id, struct tag_draft *draft,
		struct pawl_err *err);
	int (*draft_manifest)(const struct tag_draft *draft, struct manifest *manifest,
		struct pawl_err *err);
	int (*sync_files)(struct tags_root *root, const struct tag_draft *draft,
		struct pawl_err *err);
	int (*keep_part)(struct tags_root *root, const struct tag_draft *draft,
		struct manifest *manifest, const struct manifest *from,
		const struct manifest_part *old, struct manifest_part *part, struct pawl_err *err);
	int (*adopt)(struct tags_root *root, const struct tag_draft *draft,
		const struct manifest *ours, struct pawl_err *err);
	int (*publish)(struct tags_root *root, const struct tag_draft *draft,
		const struct manifest *manifest, const struct wire_out *encoded,
		struct pawl_err *err);
	void (*abandon)(struct tags_root *root, const struct tag_draft *draft);
	int (*seal)(struct tags_root *root, const char *tag, struct pawl_err *err);

	int (*quarantine)(struct tags_root *root, const char *tag, const char *why,
		struct pawl_err *err);
	int (*drop)(struct tags_root *root, const struct tag_info *tags, size_t n, const bool *keep,
		struct pawl_err *err);
	int (*leftovers)(struct tags_root *root, struct tag_leftover **left, size_t *n,
		struct pawl_err *err);
	int (*recover)(struct tags_root *root, struct pawl_err *err);

	int (*lock)(struct tags_root *root, const char *job, bool wait, struct pawl_err *err);
	/* At close, before the store is closed, and after; NULL: nothing to do. */
	void (*release)(struct tags_root *root);
	void (*unlock)(struct tags_root *root);
	/* As tags_root_held; NULL: the lock tells. */
	bool (*held)(struct tags_root *root);
	bool (*holds)(struct tags_root *root);
	int (*append)(struct tags_root *root, const char *file, const void *bytes, size_t len_bytes,
		bool sync, struct pawl_err *err);
	int (*put_aside)(struct tags_root *root, const char *file, const char *aside,
		struct pawl_err *err);
	int (*make_folder)(struct tags_root *root, const char *folder,
		struct pawl_err *err); /* NULL: nothing to do */
	int (*clear)(struct tags_root *root, const char *folder, const char *old,
		struct pawl_err *err);
};

struct tags_root {
	const struct tags_root_ops *ops;
	struct store *store; /* owned */
	char *path;          /* directories: owned copy; NULL: opened by tags_root_over */
	char *lock_dir;      /* directories: where the lock file lies, owned; NULL as path is */
	int lock_fd;         /* directories: holds the lock; -1: not locked */
	dev_t dev;           /* directories, locked: device of the directory that store holds */
	ino_t ino;           /* directories, locked: inode of that directory */
	char owner[STORE_ETAG_MAX]; /* objects, locked: etag of the owner object as we wrote it;
				     * else "" */
};

/* Returns whether tag_begin_shared takes this id. */
bool root_is_shared_id(const char *id);

extern const struct tags_root_ops root_posix_ops;
extern const struct tags_root_ops root_object_ops;

#endif
