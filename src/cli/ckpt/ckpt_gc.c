/*
 * pawl ckpt gc: removes names that a crash left in a root. On request, it also removes data put
 * aside as damaged, and tags that a retention rule does not keep.
 *
 * The command reads the root once to decide what to remove. A dry run decides the same way.
 */
#include "base/err.h"
#include "ckpt/format/retain.h"
#include "cli/ckpt/ckpt.h"
#include "cli/ckpt/ckpt_report.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option { JSON, BAD, KEEP, KEEP_EVERY, DRY, TAKE };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[BAD] = {"--bad", 0, NULL, "also remove data put aside as damaged"},
	[KEEP] = {"--keep", 0, "N", "also remove all but the N newest complete checkpoints"},
	[KEEP_EVERY] = {"--keep-every", 0, "K",
		"but keep checkpoints whose step is a multiple of K"},
	[DRY] = {"--dry-run", 'n', NULL, "only print what would be removed"},
	[TAKE] = CKPT_TAKE,
	{NULL},
};

/* The command line, and the state of the work. */
struct cleaning {
	const char *path;        /* ROOT */
	bool bad;                /* --bad */
	struct retain_rule rule; /* --keep, --keep-every */
	struct ckpt_root root;   /* ROOT, owned */
	struct report report;    /* what was done */
};

/* ---- leftovers ---- */

static int clean_leftovers(struct cleaning *cleaning, struct pawl_err *err)
{
	struct tags_root *root = cleaning->root.root;
	struct tag_leftover *left;
	size_t n;
	int rv = tags_leftovers(root, &left, &n, err);

	if (rv != 0) {
		return rv;
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		if (left[i].put_back) {
			rv = pawl_err_set(err, PAWL_EINVAL,
				"%s holds the only copy of %s: run pawl ckpt repair first",
				left[i].name, left[i].tag);
		}
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		uint64_t bytes = tags_root_measure(root, left[i].name);

		if (!cleaning->report.dry) {
			rv = store_remove(tags_root_store(root), left[i].name, err);
		}
		if (rv == 0) {
			report_add(&cleaning->report, REPORT_REMOVE, left[i].name, bytes,
				"a crash left it");
		}
	}
	free(left);
	return rv;
}

/* ---- data put aside ---- */

static int clean_bad(struct cleaning *cleaning, struct pawl_err *err)
{
	struct tags_root *root = cleaning->root.root;
	char **paths;
	size_t n;
	int rv = tags_list_bad(root, &paths, &n, err);

	if (rv != 0) {
		return rv;
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		uint64_t bytes = tags_root_measure(root, paths[i]);

		if (!cleaning->report.dry) {
			rv = store_remove(tags_root_store(root), paths[i], err);
		}
		if (rv == 0) {
			report_add(&cleaning->report, REPORT_REMOVE, paths[i], bytes,
				"put aside as damaged");
		}
	}
	tags_free_paths(paths, n);
	return rv;
}

/* ---- the retention rule ---- */

static int clean_old(struct cleaning *cleaning, struct pawl_err *err)
{
	const struct ckpt_root *root = &cleaning->root;
	bool *keep = calloc(root->tags_n + 1, sizeof(*keep));
	uint64_t *sizes = calloc(root->tags_n + 1, sizeof(*sizes));
	int rv = 0;

	if (keep == NULL || sizes == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "%zu tags", root->tags_n);
	} else {
		rv = tags_plan_retain(root->root, &cleaning->rule, root->tags, root->tags_n, keep,
			err);
	}
	for (size_t i = 0; i < root->tags_n && rv == 0; i++) {
		sizes[i] = keep[i] ? 0 : tags_root_measure(root->root, root->tags[i].tag);
	}
	if (rv == 0 && !cleaning->report.dry) {
		rv = tags_drop(root->root, root->tags, root->tags_n, keep, err);
	}
	for (size_t i = 0; i < root->tags_n && rv == 0; i++) {
		if (!keep[i]) {
			report_add(&cleaning->report, REPORT_REMOVE, root->tags[i].tag, sizes[i],
				"--keep does not keep it");
		}
	}
	free(keep);
	free(sizes);
	return rv;
}

/* ---- the command ---- */

static int clean(struct cleaning *cleaning, const struct cli_command *command, struct pawl_err *err)
{
	int rv = ckpt_root_own(&cleaning->root, cleaning->path, command, err);

	if (rv == 0) {
		rv = clean_leftovers(cleaning, err);
	}
	if (rv == 0 && cleaning->bad) {
		rv = clean_bad(cleaning, err);
	}
	if (rv == 0 && cleaning->rule.keep_last > 0) {
		rv = clean_old(cleaning, err);
	}
	return rv;
}

static int read_option(struct cli_reader *reader, struct cleaning *cleaning, int what)
{
	uint64_t keep;

	switch (what) {
	case KEEP:
		if (!cli_number(reader->command, "--keep", reader->value, 1, UINT32_MAX, &keep)) {
			return CLI_BAD;
		}
		cleaning->rule.keep_last = (uint32_t)keep;
		return 0;
	case KEEP_EVERY:
		return cli_number(reader->command, "--keep-every", reader->value, 1, UINT64_MAX,
			       &cleaning->rule.keep_every)
			? 0
			: CLI_BAD;
	case BAD:
		cleaning->bad = true;
		return 0;
	default:
		*(what == DRY                  ? &cleaning->report.dry
				: what == TAKE ? &cleaning->root.take
					       : &cleaning->report.json) = true;
		return 0;
	}
}

static int read_line(struct cli_reader *reader, struct cleaning *cleaning)
{
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what == CLI_ARG && cleaning->path != NULL) {
			cli_usage(reader->command, "unexpected argument %s", reader->value);
			return CLI_BAD;
		}
		if (what == CLI_ARG) {
			cleaning->path = reader->value;
		} else if (read_option(reader, cleaning, what) != 0) {
			return CLI_BAD;
		}
	}
	if (what == CLI_END && cleaning->path == NULL) {
		cli_usage(reader->command, "ROOT is needed");
		return CLI_BAD;
	}
	if (what == CLI_END && cleaning->rule.keep_every != 0 && cleaning->rule.keep_last == 0) {
		cli_usage(reader->command, "--keep-every needs --keep N");
		return CLI_BAD;
	}
	return what;
}

static int main_gc(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct cleaning cleaning = {NULL};
	struct pawl_err err;
	int rv = read_line(&reader, &cleaning);

	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	rv = clean(&cleaning, command, &err);
	rv = rv == 0 ? report_end(&cleaning.report) : cli_fail(command, &err);
	ckpt_root_close(&cleaning.root);
	return rv;
}

const struct cli_command cli_ckpt_gc = {
	.name = "ckpt gc",
	.args = "ROOT",
	.summary = "Remove what a crash left, and old checkpoints by --keep",
	.details =
		"Without --keep, no checkpoint is removed. Pinned checkpoints, incomplete ones,\n"
		"and the newest complete one are always kept. No job may be using ROOT.\n",
	.options = options,
	.main = main_gc,
};
