/* What the commands on checkpoints share: see ckpt.h.
 */
#include "cli/ckpt.h"

#include "base/err.h"
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ckpt_root_open(struct ckpt_root *root, const char *path, struct pawl_err *err)
{
	int rv;

	root->path = path;
	rv = store_posix_open(path, false, &root->store, err);
	if (rv == 0) {
		rv = tags_list(root->store, true, &root->tags, &root->tags_n, err);
	}
	return rv;
}

void ckpt_root_close(struct ckpt_root *root)
{
	free(root->tags);
	store_close(root->store);
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

int ckpt_root_pick(struct ckpt_root *root, const char *step, const struct tag_info **tag,
	struct pawl_err *err)
{
	unsigned long long number;
	char *end;

	if (step == NULL) {
		*tag = find_newest(root);
		return *tag != NULL
			? 0
			: pawl_err_set(err, PAWL_ENOENT, "no checkpoint in %s", root->path);
	}
	errno = 0;
	number = strtoull(step, &end, 10);
	if (step[0] < '0' || step[0] > '9' || *end != '\0' || errno != 0) {
		return pawl_err_set(err, PAWL_EINVAL, "step %s is not a number", step);
	}
	for (size_t i = 0; i < root->tags_n; i++) {
		if (root->tags[i].step == number) {
			*tag = &root->tags[i];
			return 0;
		}
	}
	return pawl_err_set(err, PAWL_ENOENT, "no checkpoint of step %s in %s", step, root->path);
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

const char *ckpt_state_word(const struct tag_info *tag)
{
	return tag->state == TAG_COMPLETE ? "complete" : "broken";
}
