/*
 * The folders of a root of objects: those with files that a manifest uses, and removal of the
 * others.
 *
 * A save writes its files into a folder of its own, <tag>/save-<id>. Later saves may go on using
 * them, so a folder is removed only when no manifest names it, neither a tag's nor a quarantined
 * one. The rules for manifests that cannot be read:
 *   of a tag           nothing at all is removed, since any folder could be its own
 *   quarantined        if it is damaged, the folders below its own tag stay; if reading fails, the
 *                      call fails
 * Folders with other names are never removed.
 */
#ifndef CKPT_ROOT_FOLDERS_H
#define CKPT_ROOT_FOLDERS_H

#include "ckpt/root_impl.h"

#define OBJECT_TAGS_DIR ".pawl/tags" /* folder of the manifests */
#define OBJECT_BAD_DIR  ".pawl/bad"  /* folder of quarantined manifests and of their reasons */
#define OBJECT_WHY      ".why"       /* ends the name of a reason */

/* A list of such folders. Zeroed at first. */
struct folders {
	struct manifest_folder *at; /* owned */
	size_t n;                   /* number of folders */
	size_t cap;                 /* folders allocated */
};

void folders_deinit(struct folders *folders);
/* Adds the folders that the manifest at path, one of this tag, uses; if it is damaged, all folders
 * below the tag. Fills etag with the manifest's. PAWL_ENOENT. */
int folders_add_manifest(struct folders *folders, struct tags_root *root, const char *path,
	const char *tag, char etag[STORE_ETAG_MAX], struct pawl_err *err);
/* Removes those of the folders that no manifest uses. */
int folders_remove_unused(const struct folders *folders, struct tags_root *root,
	struct pawl_err *err);
/* Adds all folders of saves in the root that no manifest uses. */
int folders_add_unused(struct folders *folders, struct tags_root *root, struct pawl_err *err);
/* Gets the tag of a quarantined manifest from its name, <tag>.<n>. */
void folders_tag_of_bad(const char *name, char tag[CKPT_TAG_MAX]);
/* Lists the names in a folder as tags_list_names does; a missing folder is empty. */
int folders_list_names(struct tags_root *root, const char *folder, enum store_kind kind,
	bool (*wanted)(struct tag_name *name), struct tag_names *names, struct pawl_err *err);

#endif
