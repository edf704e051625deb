/* Shared by the commands on checkpoints: opening a root, and choosing a tag of it. */
#ifndef CLI_CKPT_CKPT_H
#define CLI_CKPT_CKPT_H

#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "cli/cli.h"

struct pawl_tensor;

/* Row of the options of a command that changes a root. */
#define CKPT_TAKE                                                                                  \
	{                                                                                          \
		"--take", 0, NULL, "take a root in a bucket from a job that has died"              \
	}

/* A root and the tags in it. Zero-initialise. */
struct ckpt_root {
	const char *path;       /* path of the root, as given */
	bool take;              /* --take: take a root in a bucket although a job may have it */
	struct tags_root *root; /* locked by ckpt_root_own and ckpt_root_make */
	struct tag_info *tags;  /* ascending by step; all is checked but the contents of files */
	size_t tags_n;          /* number of entries in tags */
};

/* Finds the directory of a root's lock and of its names that begin with a dot: .<name>.pawl beside
 * the root if there is such a directory (docs/format.md), else the root. Returns buf, of PATH_MAX
 * bytes. */
const char *ckpt_hidden_dir(const char *root, char *buf);
/* Opens a root with its hidden directory, without listing it. PAWL_ENOENT if there is no root. */
int ckpt_open(struct tags_root **root, const char *path, struct pawl_err *err);

/* Opens a root, which may hold no tag at all. PAWL_ENOENT if there is no such directory. */
int ckpt_root_open(struct ckpt_root *root, const char *path, struct pawl_err *err);
/* Opens a root and takes its lock, for a command that changes it. Does not settle hidden names.
 * PAWL_EBUSY names the holder; PAWL_ENOENT if the directory is missing or Pawl never used it. */
int ckpt_root_own(struct ckpt_root *root, const char *path, const struct cli_command *command,
	struct pawl_err *err);
/* Opens a root as ckpt_root_own does, or any other directory, which becomes a root. */
int ckpt_root_make(struct ckpt_root *root, const char *path, const struct cli_command *command,
	struct pawl_err *err);
/* Lists the tags again. */
int ckpt_root_list(struct ckpt_root *root, struct pawl_err *err);
void ckpt_root_close(struct ckpt_root *root); /* zeroed or half open is fine */

/* Finds the tag called name, or else the tag whose step is name in decimal; NULL: the newest tag,
 * complete ones first. The root owns *tag. PAWL_ENOENT if there is none, PAWL_EINVAL if several
 * tags have the step. */
int ckpt_root_pick(struct ckpt_root *root, const char *name, const struct tag_info **tag,
	struct pawl_err *err);

/* Reads all files of a tag. Checks each against the manifest, and its own structure and sums.
 * PAWL_ECORRUPT names file and place. */
struct reader;
struct progress;
int ckpt_verify_files(struct reader *reader, const struct manifest *manifest,
	struct progress *progress, struct pawl_err *err);

/* Reads a command line of least to most arguments, where --json is the only option. Returns
 * CLI_END, or a value for cli_read_exit_code. */
int ckpt_read_line(struct cli_reader *reader, const char **args, size_t least, size_t most,
	bool *json);

#define CKPT_SHAPE_MAX 512u /* bytes of a shape as text, terminator included */

/* Formats a shape: "3 x 4", or "scalar"; cuts what does not fit. Returns buf, of CKPT_SHAPE_MAX
 * bytes. */
const char *ckpt_shape(char *buf, const uint64_t *shape, uint32_t ndim);
struct json_t *ckpt_json_shape(const uint64_t *shape, uint32_t ndim); /* a list of numbers */

const char *ckpt_state_word(const struct tag_info *tag); /* "complete" or "broken" */

#endif
