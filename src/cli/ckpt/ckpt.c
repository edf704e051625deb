/* Shared by the commands on checkpoints: see ckpt.h. */
#include "cli/ckpt/ckpt.h"

#include "base/err.h"
#include "cli/interrupt.h"
#include "pawl/inspect.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int ckpt_root_list(struct ckpt_root *root, struct pawl_err *err)
{
	free(root->tags);
	root->tags = NULL;
	root->tags_n = 0;
	return tags_list(root->root, &interrupt_stop, &root->tags, &root->tags_n, err);
}

const char *ckpt_hidden_dir(const char *root, char *buf)
{
	char path[PATH_MAX];
	const char *name;
	struct stat st;

	if (realpath(root, path) == NULL) {
		snprintf(buf, PATH_MAX, "%s", root);
		return buf;
	}
	name = strrchr(path, '/') + 1;
	if ((size_t)snprintf(buf, PATH_MAX, "%.*s.%s.pawl", (int)(name - path), path, name) >=
			PATH_MAX ||
		stat(buf, &st) != 0 || !S_ISDIR(st.st_mode)) {
		memcpy(buf, path, sizeof(path));
	}
	return buf;
}

int ckpt_open(struct tags_root **root, const char *path, struct pawl_err *err)
{
	char hidden[PATH_MAX];

	return tags_root_open(path, ckpt_hidden_dir(path, hidden), false, root, err);
}

int ckpt_root_open(struct ckpt_root *root, const char *path, struct pawl_err *err)
{
	int rv;

	root->path = path;
	rv = ckpt_open(&root->root, path, err);
	return rv == 0 ? ckpt_root_list(root, err) : rv;
}

/* Takes the lock, and lists the tags again: they may have changed before it was taken. */
static int take_root(struct ckpt_root *root, const struct cli_command *command,
	struct pawl_err *err)
{
	char holder[ROOT_HOLDER_MAX];
	char job[CKPT_JOB_MAX];
	int rv;

	snprintf(job, sizeof(job), "pawl %s", command->name);
	if (!root->take && tags_root_held(root->root)) {
		return pawl_err_set(err, PAWL_EBUSY,
			"%s is in use by %s: wait until that has ended, or add --take if it is "
			"gone; "
			"it could save nothing more",
			root->path, tags_root_holder(root->root, holder) ? holder : "a job");
	}
	rv = tags_root_lock(root->root, job, true, err);
	if (rv == PAWL_EBUSY) {
		return pawl_err_set(err, rv, "%s is in use by %s: wait until that has ended",
			root->path, tags_root_holder(root->root, holder) ? holder : "a job");
	}
	return rv == 0 ? ckpt_root_list(root, err) : rv;
}

/* Returns whether Pawl ever used this root. */
static bool is_root(const struct ckpt_root *root)
{
	return root->tags_n > 0 || tags_root_used(root->root);
}

int ckpt_root_own(struct ckpt_root *root, const char *path, const struct cli_command *command,
	struct pawl_err *err)
{
	int rv = ckpt_root_open(root, path, err);

	if (rv == 0 && !is_root(root)) {
		rv = pawl_err_set(err, PAWL_ENOENT, "no checkpoint in %s", path);
	}
	return rv == 0 ? take_root(root, command, err) : rv;
}

int ckpt_root_make(struct ckpt_root *root, const char *path, const struct cli_command *command,
	struct pawl_err *err)
{
	int rv = ckpt_root_open(root, path, err);

	return rv == 0 ? take_root(root, command, err) : rv;
}

void ckpt_root_close(struct ckpt_root *root)
{
	free(root->tags);
	tags_root_close(root->root);
}

static const struct tag_info *find_newest(const struct ckpt_root *root)
{
	for (size_t i = root->tags_n; i-- > 0;) {
		if (root->tags[i].state == TAG_COMPLETE) {
			return &root->tags[i];
		}
	}
	return root->tags_n > 0 ? &root->tags[root->tags_n - 1] : NULL;
}

/* Finds the one tag of a step, given in decimal. PAWL_ENOENT if there is none. */
static int find_step(const struct ckpt_root *root, const char *text, const struct tag_info **tag,
	struct pawl_err *err)
{
	const struct tag_info *found = NULL;
	char *end;
	unsigned long long step;

	errno = 0;
	step = strtoull(text, &end, 10);
	for (size_t i = 0; i < root->tags_n; i++) {
		if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' ||
			root->tags[i].step != step) {
			continue;
		}
		if (found != NULL) {
			return pawl_err_set(err, PAWL_EINVAL,
				"step %s has two checkpoints, %s and %s: name one of them", text,
				found->tag, root->tags[i].tag);
		}
		found = &root->tags[i];
	}
	if (found == NULL) {
		return pawl_err_set(err, PAWL_ENOENT, "no checkpoint %s%s in %s",
			*end == '\0' ? "of step " : "", text, root->path);
	}
	*tag = found;
	return 0;
}

int ckpt_root_pick(struct ckpt_root *root, const char *name, const struct tag_info **tag,
	struct pawl_err *err)
{
	if (name == NULL) {
		*tag = find_newest(root);
		return *tag != NULL
			? 0
			: pawl_err_set(err, PAWL_ENOENT, "no checkpoint in %s", root->path);
	}
	for (size_t i = 0; i < root->tags_n; i++) {
		if (strcmp(root->tags[i].tag, name) == 0) {
			*tag = &root->tags[i];
			return 0;
		}
	}
	return find_step(root, name, tag, err);
}

int ckpt_read_line(struct cli_reader *reader, const char **args, size_t least, size_t most,
	bool *json)
{
	size_t n = 0;
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what != CLI_ARG) {
			*json = true;
		} else if (n == most) {
			cli_usage(reader->command, "unexpected argument %s", reader->value);
			return CLI_BAD;
		} else {
			args[n++] = reader->value;
		}
	}
	if (what == CLI_END && n < least) {
		cli_usage(reader->command, "%s needs %s", reader->command->name,
			reader->command->args);
		return CLI_BAD;
	}
	return what;
}

const char *ckpt_shape(char *buf, const uint64_t *shape, uint32_t ndim)
{
	size_t used = 0;

	snprintf(buf, CKPT_SHAPE_MAX, "scalar");
	for (uint32_t i = 0; i < ndim && used < CKPT_SHAPE_MAX; i++) {
		used += (size_t)snprintf(buf + used, CKPT_SHAPE_MAX - used, "%s%llu",
			i > 0 ? " x " : "", (unsigned long long)shape[i]);
	}
	return buf;
}

json_t *ckpt_json_shape(const uint64_t *shape, uint32_t ndim)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < ndim; i++) {
		json_array_append_new(list, json_integer((json_int_t)shape[i]));
	}
	return list;
}

const char *ckpt_state_word(const struct tag_info *tag)
{
	return tag->state == TAG_COMPLETE ? "complete" : "broken";
}
