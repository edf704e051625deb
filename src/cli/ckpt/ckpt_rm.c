/* pawl ckpt rm: removes the checkpoints that are named. It checks all of them before it removes the
 * first. */
#include "base/err.h"
#include "cli/ckpt/ckpt.h"
#include "cli/ckpt/ckpt_report.h"

#include <stdio.h>
#include <stdlib.h>

enum option { JSON, FORCE, DRY, TAKE };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[FORCE] = {"--force", 0, NULL, "also remove pinned ones and the last complete one"},
	[DRY] = {"--dry-run", 'n', NULL, "only print what would be removed"},
	[TAKE] = CKPT_TAKE,
	{NULL},
};

/* The command line, and the state of the work. */
struct removal {
	const char **names;    /* ROOT, then tags or steps */
	size_t names_n;        /* number of entries in names, ROOT included */
	bool force;            /* --force */
	struct ckpt_root root; /* ROOT, owned */
	bool *keep;            /* whether a tag stays, one for each tag of the root */
	struct report report;  /* what was done */
};

static int check_tag(const struct removal *removal, const struct tag_info *tag,
	struct pawl_err *err)
{
	if (tag->pinned && !removal->force) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s is pinned: nothing was removed (--force removes it)", tag->tag);
	}
	return 0;
}

/* Refuses, unless forced, to remove the last complete tag. */
static int check_rest(const struct removal *removal, struct pawl_err *err)
{
	const struct ckpt_root *root = &removal->root;
	const char *last = NULL;

	for (size_t i = 0; i < root->tags_n; i++) {
		if (root->tags[i].state == TAG_COMPLETE && removal->keep[i]) {
			return 0;
		}
		if (root->tags[i].state == TAG_COMPLETE) {
			last = root->tags[i].tag;
		}
	}
	if (last == NULL || removal->force) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"%s is the last complete checkpoint in %s: nothing was removed (--force removes "
		"it)",
		last, root->path);
}

/* Marks the named tags, and refuses those that must not go. */
static int choose(struct removal *removal, struct pawl_err *err)
{
	struct ckpt_root *root = &removal->root;
	const struct tag_info *tag;
	int rv = 0;

	removal->keep = calloc(root->tags_n + 1, sizeof(*removal->keep));
	if (removal->keep == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%zu tags", root->tags_n);
	}
	for (size_t i = 0; i < root->tags_n; i++) {
		removal->keep[i] = true;
	}
	for (size_t i = 1; i < removal->names_n && rv == 0; i++) {
		rv = ckpt_root_pick(root, removal->names[i], &tag, err);
		if (rv == 0) {
			rv = check_tag(removal, tag, err);
		}
		if (rv == 0) {
			removal->keep[tag - root->tags] = false;
		}
	}
	return rv == 0 ? check_rest(removal, err) : rv;
}

/* Unpins the removed tags: a later tag of that step would inherit the pin. */
static int unpin(struct removal *removal, struct pawl_err *err)
{
	const struct ckpt_root *root = &removal->root;
	int rv = 0;

	for (size_t i = 0; i < root->tags_n && rv == 0; i++) {
		if (!removal->keep[i] && root->tags[i].pinned) {
			rv = tag_pin(root->root, root->tags[i].tag, false, err);
		}
	}
	return rv;
}

static int remove_tags(struct removal *removal, struct pawl_err *err)
{
	const struct ckpt_root *root = &removal->root;
	uint64_t *sizes = calloc(root->tags_n + 1, sizeof(*sizes));
	int rv = 0;

	if (sizes == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%zu tags", root->tags_n);
	}
	for (size_t i = 0; i < root->tags_n; i++) {
		sizes[i] = removal->keep[i] ? 0 : tags_root_measure(root->root, root->tags[i].tag);
	}
	if (!removal->report.dry) {
		rv = tags_drop(root->root, root->tags, root->tags_n, removal->keep, err);
		if (rv == 0) {
			rv = unpin(removal, err);
		}
	}
	for (size_t i = 0; i < root->tags_n && rv == 0; i++) {
		if (!removal->keep[i]) {
			report_add(&removal->report, REPORT_REMOVE, root->tags[i].tag, sizes[i],
				NULL);
		}
	}
	free(sizes);
	return rv;
}

static int read_line(struct cli_reader *reader, struct removal *removal)
{
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what == CLI_ARG) {
			removal->names[removal->names_n++] = reader->value;
		} else if (what == FORCE) {
			removal->force = true;
		} else if (what == TAKE) {
			removal->root.take = true;
		} else {
			*(what == DRY ? &removal->report.dry : &removal->report.json) = true;
		}
	}
	if (what == CLI_END && removal->names_n < 2) {
		cli_usage(reader->command, "ROOT and at least one TAG are needed");
		return CLI_BAD;
	}
	return what;
}

static int main_rm(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct removal removal = {.names = calloc((size_t)argc + 1, sizeof(char *))};
	struct pawl_err err;
	int rv;

	if (removal.names == NULL) {
		cli_print(stderr, "pawl %s: out of memory\n", command->name);
		return CLI_FAILURE;
	}
	rv = read_line(&reader, &removal);
	if (rv != CLI_END) {
		free(removal.names);
		return cli_read_exit_code(rv);
	}
	rv = ckpt_root_own(&removal.root, removal.names[0], command, &err);
	if (rv == 0) {
		rv = choose(&removal, &err);
	}
	if (rv == 0) {
		rv = remove_tags(&removal, &err);
	}
	rv = rv == 0 ? report_end(&removal.report) : cli_fail(command, &err);
	ckpt_root_close(&removal.root);
	free(removal.keep);
	free(removal.names);
	return rv;
}

const struct cli_command cli_ckpt_rm = {
	.name = "ckpt rm",
	.args = "ROOT TAG…",
	.summary = "Remove checkpoints",
	.details =
		"TAG is the name of a checkpoint, or its step. Each checkpoint is removed in one\n"
		"instant. If one of them cannot be removed, none is. No job may be using ROOT.\n",
	.options = options,
	.main = main_rm,
};
