/* What the commands on checkpoints share: opening a root, and choosing a tag of it. */
#ifndef CLI_CKPT_H
#define CLI_CKPT_H

#include "ckpt/tags.h"
#include "cli/cli.h"

struct store;

/* A root and the tags in it. Zero-initialise. */
struct ckpt_root {
	const char *path;      /* as given */
	struct store *store;   /* over it */
	struct tag_info *tags; /* ascending by step, checked but for the payload */
	size_t tags_n;         /* of them */
};

/* PAWL_ENOENT when there is no such directory. The root may hold no tag at all. */
int ckpt_root_open(struct ckpt_root *root, const char *path, struct pawl_err *err);
void ckpt_root_close(struct ckpt_root *root); /* zeroed or half open is fine */

/* The tag of a step, or without one (NULL) the newest, complete ones first. The root's. PAWL_ENOENT
 * if there is none, PAWL_EINVAL if step is no number. */
int ckpt_root_pick(struct ckpt_root *root, const char *step, const struct tag_info **tag,
	struct pawl_err *err);

/* Reads arguments and --json alone; at least least and at most most arguments. Returns CLI_END, or
 * what cli_leave takes. */
int ckpt_read_line(struct cli_reader *reader, const char **args, size_t least, size_t most,
	bool *json);

const char *ckpt_state_word(const struct tag_info *tag); /* "complete" or "broken" */

#endif
