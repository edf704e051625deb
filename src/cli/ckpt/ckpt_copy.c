/* pawl ckpt copy: copies checkpoints from one root into another, directories or buckets, the oldest
 * first. What was copied before is skipped, so that a copy that was cut off can be run again. */
#include "base/err.h"
#include "ckpt/copy.h"
#include "cli/ckpt/ckpt.h"
#include "cli/ckpt/ckpt_report.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>

enum option { JSON, DRY, TAKE };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[DRY] = {"--dry-run", 'n', NULL, "only print what would be copied"},
	[TAKE] = CKPT_TAKE,
	{NULL},
};

/* The command line, and the state of the work. */
struct copying {
	const char **names;       /* SRC and DST, then tags or steps */
	size_t names_n;           /* number of entries in names, SRC and DST included */
	struct ckpt_root from;    /* SRC, owned */
	struct ckpt_root to;      /* DST, owned; a dry run opens it for reading, if it is there */
	size_t *tags;             /* numbers of the tags of SRC to copy; owned */
	size_t tags_n;            /* number of entries in tags */
	struct progress progress; /* progress of the whole copy */
	struct report report;     /* tags copied, kept and left alone */
};

/* Fits copy_watch. */
static int go_on(void *user, struct pawl_err *err)
{
	return interrupt_check(err);
}

/* Fits copy_watch. */
static void add_progress(void *user, uint64_t bytes)
{
	progress_add(user, bytes);
}

/* Chooses the tags: those that are named, else all that are complete. */
static int choose(struct copying *copying, struct pawl_err *err)
{
	struct ckpt_root *from = &copying->from;
	size_t cap = from->tags_n + copying->names_n;
	const struct tag_info *tag;
	int rv = 0;

	copying->tags = calloc(cap, sizeof(*copying->tags));
	if (copying->tags == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%zu tags", cap);
	}
	for (size_t i = 2; i < copying->names_n && rv == 0; i++) {
		rv = ckpt_root_pick(from, copying->names[i], &tag, err);
		if (rv == 0) {
			copying->tags[copying->tags_n++] = (size_t)(tag - from->tags);
		}
	}
	for (size_t i = 0; i < from->tags_n && copying->names_n == 2; i++) {
		if (from->tags[i].state == TAG_COMPLETE) {
			copying->tags[copying->tags_n++] = i;
		} else {
			report_add(&copying->report, REPORT_LEAVE, from->tags[i].tag, 0,
				from->tags[i].why);
		}
	}
	return rv;
}

/* Copies one tag. One that vanished since it was listed is an error only if it was named: a job
 * keeps only its newest ones. */
static int copy_tag(struct copying *copying, const struct tag_info *tag, struct pawl_err *err)
{
	const struct copy_watch watch = {go_on, add_progress, &copying->progress};
	bool same = false;
	int rv = 0;

	if (copying->to.root != NULL) {
		rv = tag_is_copied(copying->from.root, tag->tag, copying->to.root, &same, err);
	}
	if (rv == 0 && !same && !copying->report.dry) {
		progress_name(&copying->progress, tag->tag, "");
		rv = tag_copy(copying->from.root, tag->tag, copying->to.root, &watch, err);
		progress_wipe(&copying->progress);
	}
	if (rv == PAWL_ENOENT && copying->names_n == 2) {
		return 0;
	}
	if (rv == 0) {
		report_add(&copying->report, same ? REPORT_KEEP : REPORT_COPY, tag->tag,
			tag->size_bytes, same ? "copied before" : NULL);
	}
	return rv;
}

static int copy_all(struct copying *copying, struct pawl_err *err)
{
	uint64_t total_bytes = 0;
	int rv = 0;

	for (size_t i = 0; i < copying->tags_n; i++) {
		total_bytes += copying->from.tags[copying->tags[i]].size_bytes;
	}
	progress_start(&copying->progress, "copy", total_bytes);
	for (size_t i = 0; i < copying->tags_n && rv == 0; i++) {
		rv = copy_tag(copying, &copying->from.tags[copying->tags[i]], err);
	}
	return rv;
}

/* Opens DST, and makes it if need be. A dry run takes and makes nothing. */
static int open_dst(struct copying *copying, const struct cli_command *command,
	struct pawl_err *err)
{
	const char *path = copying->names[1];
	struct tags_root *made = NULL;
	int rv;

	if (copying->report.dry) {
		rv = ckpt_root_open(&copying->to, path, err);
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	rv = tags_root_open(path, NULL, true, &made, err);
	tags_root_close(made);
	return rv == 0 ? ckpt_root_make(&copying->to, path, command, err) : rv;
}

static int read_line(struct cli_reader *reader, struct copying *copying)
{
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what == CLI_ARG) {
			copying->names[copying->names_n++] = reader->value;
		} else if (what == TAKE) {
			copying->to.take = true;
		} else {
			*(what == DRY ? &copying->report.dry : &copying->report.json) = true;
		}
	}
	if (what == CLI_END && copying->names_n < 2) {
		cli_usage(reader->command, "SRC and DST are needed");
		return CLI_BAD;
	}
	return what;
}

static int main_copy(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct copying copying = {.names = calloc((size_t)argc + 1, sizeof(char *))};
	struct pawl_err err;
	int rv;

	if (copying.names == NULL) {
		cli_print(stderr, "pawl %s: out of memory\n", command->name);
		return CLI_FAILURE;
	}
	rv = read_line(&reader, &copying);
	if (rv != CLI_END) {
		free(copying.names);
		return cli_read_exit_code(rv);
	}
	interrupt_catch();
	rv = ckpt_root_open(&copying.from, copying.names[0], &err);
	rv = rv == 0 ? choose(&copying, &err) : rv;
	rv = rv == 0 ? open_dst(&copying, command, &err) : rv;
	rv = rv == 0 ? copy_all(&copying, &err) : rv;
	rv = rv == 0 ? report_end(&copying.report) : cli_fail(command, &err);
	free(copying.tags);
	ckpt_root_close(&copying.to);
	ckpt_root_close(&copying.from);
	free(copying.names);
	return rv;
}

const struct cli_command cli_ckpt_copy = {
	.name = "ckpt copy",
	.args = "SRC DST [TAG…]",
	.summary = "Copy checkpoints into another root",
	.details =
		"SRC and DST are directories or addresses of buckets. TAG is the name of a\n"
		"checkpoint, or its step (all complete ones). What is in DST already is skipped,\n"
		"and an upload that was cut off is gone on with. A job may be using SRC, but none\n"
		"DST.\n",
	.options = options,
	.main = main_copy,
};
