/* What the commands on checkpoints share: opening a root, and choosing a tag of it. */
#ifndef CLI_CKPT_H
#define CLI_CKPT_H

#include "ckpt/tags.h"
#include "cli/cli.h"

struct pawl_tensor;
struct store;

/* A root and the tags in it. Zero-initialise. */
struct ckpt_root {
	const char *path;      /* as given */
	struct store *store;   /* over it */
	struct tag_info *tags; /* ascending by step, checked but for the payload */
	size_t tags_n;         /* of them */
	bool owned;            /* by ckpt_root_own */
	int lock_fd;           /* holds the lock, if owned */
};

/* Where a root's names that begin with a dot are, and its lock: .<name>.pawl beside it if there is
 * such a directory (docs/format.md), else in it. Returns buf, of PATH_MAX bytes. */
const char *ckpt_hidden_dir(const char *root, char *buf);
/* The store over both. PAWL_ENOENT if there is no root. */
int ckpt_store_open(struct store **store, const char *root, struct pawl_err *err);

/* PAWL_ENOENT when there is no such directory. The root may hold no tag at all. */
int ckpt_root_open(struct ckpt_root *root, const char *path, struct pawl_err *err);
/* The same, taking the root's lock: to change what is in it. PAWL_EBUSY names who has it;
 * PAWL_ENOENT, too, for a directory in which nothing is Pawl's. Nothing hidden is settled yet. */
int ckpt_root_own(struct ckpt_root *root, const char *path, const struct cli_command *command,
	struct pawl_err *err);
/* The same for a directory that is to become a root, and may hold anything. */
int ckpt_root_make(struct ckpt_root *root, const char *path, const struct cli_command *command,
	struct pawl_err *err);
/* Looks at the tags again. */
int ckpt_root_list(struct ckpt_root *root, struct pawl_err *err);
void ckpt_root_close(struct ckpt_root *root); /* zeroed or half open is fine */

/* The tag of that name, else that of the step whose number name is; without one (NULL) the newest,
 * complete ones first. The root's. PAWL_ENOENT if there is none, PAWL_EINVAL if several tags have
 * the step. */
int ckpt_root_pick(struct ckpt_root *root, const char *name, const struct tag_info **tag,
	struct pawl_err *err);

#define CKPT_HOLDER_MAX 512u /* bytes of a holder's name, terminator included */

/* Who wrote itself into the lock file of a root, last: "job gpt (pid 123 on host)". false: nobody
 * ever did. It may be gone since. */
bool ckpt_root_holder(struct store *store, char *buf);
/* Bytes of the file, or of all files in the directory, at path; 0 if there is none. */
uint64_t ckpt_measure(struct store *store, const char *path);

/* Reads all files of a tag and holds them to its manifest and to themselves. PAWL_ECORRUPT names
 * file and place. */
struct reader;
struct progress;
int ckpt_verify_files(struct reader *reader, const struct manifest *manifest,
	struct progress *progress, struct pawl_err *err);

/* Reads arguments and --json alone; at least least and at most most arguments. Returns CLI_END, or
 * what cli_leave takes. */
int ckpt_read_line(struct cli_reader *reader, const char **args, size_t least, size_t most,
	bool *json);

#define CKPT_SHAPE_MAX 512u /* bytes of a shape as text, terminator included */

/* "3 x 4", or "scalar"; cut where it is full. Returns buf, of CKPT_SHAPE_MAX bytes. */
const char *ckpt_shape(char *buf, const uint64_t *shape, uint32_t ndim);
struct json_t *ckpt_json_shape(const uint64_t *shape, uint32_t ndim); /* a list of numbers */

const char *ckpt_state_word(const struct tag_info *tag); /* "complete" or "broken" */

#endif
