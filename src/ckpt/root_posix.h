/* Roots of directories: what root_posix.c and root_posix_build.c share. Functions named like those
 * of struct tags_root_ops fulfil its contract. */
#ifndef CKPT_ROOT_POSIX_H
#define CKPT_ROOT_POSIX_H

#include "ckpt/root_impl.h"

#define POSIX_BAD_DIR       ".bad" /* folder of the quarantined tags */
#define ROOT_POSIX_OK       "OK"   /* content of complete.txt */
#define ROOT_POSIX_OK_BYTES 2u

/* Writes a hidden name such as ".pawl.global_step5.new". */
void root_posix_hide_name(char name[TAG_NAME_MAX], const char *tag, const char *suffix);
/* Sets *ours: whether a directory of this name exists and contains .pawl. */
int root_posix_is_ours(struct tags_root *root, const char *name, bool *ours, struct pawl_err *err);

/* ---- root_posix_build.c ---- */

int root_posix_begin(struct tags_root *root, struct tag_draft *draft, struct pawl_err *err);
int root_posix_begin_shared(struct tags_root *root, const char *id, struct tag_draft *draft,
	struct pawl_err *err);
int root_posix_draft_manifest(const struct tag_draft *draft, struct manifest *manifest,
	struct pawl_err *err);
int root_posix_sync_files(struct tags_root *root, const struct tag_draft *draft,
	struct pawl_err *err);
int root_posix_keep_part(struct tags_root *root, const struct tag_draft *draft,
	struct manifest *manifest, const struct manifest *from, const struct manifest_part *old,
	struct manifest_part *part, struct pawl_err *err);
int root_posix_adopt(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *ours, struct pawl_err *err);
int root_posix_publish(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *manifest, const struct wire_out *encoded, struct pawl_err *err);
void root_posix_abandon(struct tags_root *root, const struct tag_draft *draft);
int root_posix_seal(struct tags_root *root, const char *tag, struct pawl_err *err);
int root_posix_leftovers(struct tags_root *root, struct tag_leftover **left, size_t *n,
	struct pawl_err *err);
int root_posix_recover(struct tags_root *root, struct pawl_err *err);

#endif
