/* Roots of objects: what root_object.c and root_object_build.c share. Functions named like those of
 * struct tags_root_ops fulfil its contract. */
#ifndef CKPT_ROOT_OBJECT_H
#define CKPT_ROOT_OBJECT_H

#include "ckpt/root_folders.h"

#include <inttypes.h>

/* ---- root_object.c ---- */

/* Writes the path of a tag's manifest. */
void object_tag_path(char path[TAG_PATH_MAX], const char *tag);
/* Checks that nobody has taken the root since it was locked, if it was. PAWL_EBUSY. */
int object_check_owner(struct tags_root *root, struct pawl_err *err);

/* ---- root_object_build.c ---- */

/* Gets a random number, by which a name or an object is unlike any other. */
int object_get_random(uint64_t *number, struct pawl_err *err);
/* Reads the etag of an object; "" if there is none. */
int object_read_etag(struct store *store, const char *path, size_t max_bytes,
	char etag[STORE_ETAG_MAX], struct pawl_err *err);
/* Puts an object as store_put_if does, with bytes that no other process puts, and finds out what
 * happened if the answer is lost. */
int object_put_own(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	const char *match, char etag[STORE_ETAG_MAX], struct pawl_err *err);
/* Returns whether a conditional PUT failed because another process was faster. */
bool object_is_lost_race(int rv);

int object_begin(struct tags_root *root, struct tag_draft *draft, struct pawl_err *err);
int object_begin_shared(struct tags_root *root, const char *id, struct tag_draft *draft,
	struct pawl_err *err);
int object_draft_manifest(const struct tag_draft *draft, struct manifest *manifest,
	struct pawl_err *err);
int object_sync_files(struct tags_root *root, const struct tag_draft *draft, struct pawl_err *err);
int object_keep_part(struct tags_root *root, const struct tag_draft *draft,
	struct manifest *manifest, const struct manifest *from, const struct manifest_part *old,
	struct manifest_part *part, struct pawl_err *err);
int object_adopt(struct tags_root *root, const struct tag_draft *draft, const struct manifest *ours,
	struct pawl_err *err);
int object_publish(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *manifest, const struct wire_out *encoded, struct pawl_err *err);
void object_abandon(struct tags_root *root, const struct tag_draft *draft);

#endif
