/*
 * pawl ckpt repair: repairs a root after a crash or an accident, and reports each change.
 *
 * 1. Hidden names are settled, as the next job would settle them (docs/format.md).
 * 2. A tag whose complete.txt is missing or wrong is verified to the last byte. It gets the file
 *    back if every byte is what was written.
 * 3. Complete tags without a row in checkpointHistories.csv get one.
 * Damaged tags stay as they are, and are reported with a remedy: the command removes no data.
 */
#include "agent/persist/history.h"
#include "base/err.h"
#include "ckpt/read.h"
#include "cli/ckpt/ckpt.h"
#include "cli/ckpt/ckpt_report.h"
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option { JSON, DRY, TAKE };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[DRY] = {"--dry-run", 'n', NULL, "only print what would be done"},
	[TAKE] = CKPT_TAKE,
	{NULL},
};

#define HISTORY_FILE "checkpointHistories.csv"

/* State of one repair. */
struct repair {
	const char *path;         /* ROOT */
	struct ckpt_root root;    /* ROOT, owned */
	struct reader *reader;    /* reader of root */
	struct progress progress; /* progress of verifying */
	struct report report;     /* what was done */
};

static int settle(struct repair *repair, struct pawl_err *err)
{
	struct tags_root *root = repair->root.root;
	struct tag_leftover *left;
	size_t n;
	int rv = tags_leftovers(root, &left, &n, err);

	if (rv != 0) {
		return rv;
	}
	for (size_t i = 0; i < n; i++) {
		report_add(&repair->report, left[i].put_back ? REPORT_PUT_BACK : REPORT_REMOVE,
			left[i].put_back ? left[i].tag : left[i].name,
			tags_root_measure(root, left[i].name),
			left[i].put_back ? "a crash interrupted its replacement"
					 : "a crash left it");
	}
	free(left);
	return repair->report.dry || n == 0 ? 0 : tags_recover(root, err);
}

static void report_unrepaired(struct repair *repair, const char *name, const char *why,
	const char *remedy)
{
	char text[PAWL_ERR_MSG_MAX + 128];
	size_t len = strlen(name);

	/* A message about a tag begins with its name, which the report prints anyway. */
	if (strncmp(why, name, len) == 0 && strncmp(why + len, ": ", 2) == 0) {
		why += len + 2;
	}
	snprintf(text, sizeof(text), "%s; %s", why, remedy);
	report_add(&repair->report, REPORT_LEAVE, name, 0, text);
}

/* Gives a broken tag its complete.txt back if nothing else is wrong with it. */
static int mend_tag(struct repair *repair, struct tag_info *tag, struct pawl_err *err)
{
	struct tags_root *root = repair->root.root;
	struct manifest manifest;
	struct pawl_err why;
	int rv = tag_open_unsealed(root, tag->tag, &manifest, &why);

	if (rv == 0) {
		progress_start(&repair->progress, "verify", manifest_bytes(&manifest));
		rv = ckpt_verify_files(repair->reader, &manifest, &repair->progress, &why);
		manifest_deinit(&manifest);
	}
	if (rv != 0) {
		report_unrepaired(repair, tag->tag, why.msg, "pawl ckpt rm removes it");
		return 0;
	}
	if (!repair->report.dry) {
		rv = tag_seal(root, tag->tag, err);
	}
	if (rv == 0) {
		tag->state = TAG_COMPLETE;
		report_add(&repair->report, REPORT_COMPLETE, tag->tag, 0,
			"every byte is what was written; only complete.txt was wrong");
	}
	return rv;
}

static int mend_tags(struct repair *repair, struct pawl_err *err)
{
	struct ckpt_root *root = &repair->root;
	struct pawl_err why;
	int rv = ckpt_root_list(root, err);

	if (rv == 0) {
		rv = reader_open(&repair->reader, tags_root_store(root->root), err);
	}
	for (size_t i = 0; i < root->tags_n && rv == 0; i++) {
		if (root->tags[i].state == TAG_BROKEN) {
			rv = mend_tag(repair, &root->tags[i], err);
		}
	}
	if (rv == 0 && tags_check_pins(root->root, &why) != 0) {
		report_unrepaired(repair, ".pins", why.msg,
			"every checkpoint counts as pinned until you repair or remove .pins");
	}
	return rv;
}

/* Returns the number of complete tags that no line of the history names. */
static size_t count_rowless(const struct ckpt_root *root)
{
	char field[CKPT_TAG_MAX + 2];
	void *text = NULL;
	size_t len_bytes;
	size_t rowless = 0;

	store_read_small(tags_root_store(root->root), HISTORY_FILE, &text, &len_bytes,
		ROWS_FILE_MAX, NULL);
	for (size_t i = 0; i < root->tags_n; i++) {
		snprintf(field, sizeof(field), ",%s,", root->tags[i].tag);
		rowless += root->tags[i].state == TAG_COMPLETE &&
			(text == NULL || strstr(text, field) == NULL);
	}
	free(text);
	return rowless;
}

static void mend_history(struct repair *repair)
{
	size_t rowless = count_rowless(&repair->root);
	char what[sizeof(HISTORY_FILE) + 64];
	struct pawl_err why;

	if (!repair->report.dry && history_mend(repair->root.root, &why) != 0) {
		report_unrepaired(repair, HISTORY_FILE, why.msg,
			"move it away, and the next save begins a new one");
	} else if (rowless > 0) {
		snprintf(what, sizeof(what), "%zu %s to " HISTORY_FILE, rowless,
			rowless == 1 ? "row" : "rows");
		report_add(&repair->report, REPORT_ADD, what, 0, NULL);
	}
}

static int repair_root(struct repair *repair, const struct cli_command *command,
	struct pawl_err *err)
{
	int rv = ckpt_root_own(&repair->root, repair->path, command, err);

	if (rv == 0) {
		rv = settle(repair, err);
	}
	if (rv == 0) {
		rv = mend_tags(repair, err);
	}
	if (rv == 0) {
		mend_history(repair);
	}
	reader_close(repair->reader);
	return rv;
}

static int main_repair(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct repair repair = {NULL};
	struct pawl_err err;
	int rv;

	while ((rv = cli_read(&reader)) >= CLI_ARG) {
		if (rv == CLI_ARG && repair.path != NULL) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		} else if (rv == CLI_ARG) {
			repair.path = reader.value;
		} else if (rv == TAKE) {
			repair.root.take = true;
		} else {
			*(rv == DRY ? &repair.report.dry : &repair.report.json) = true;
		}
	}
	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	if (repair.path == NULL) {
		return cli_usage(command, "ROOT is needed");
	}
	rv = repair_root(&repair, command, &err);
	rv = rv == 0 ? report_end(&repair.report) : cli_fail(command, &err);
	ckpt_root_close(&repair.root);
	return rv;
}

const struct cli_command cli_ckpt_repair = {
	.name = "ckpt repair",
	.args = "ROOT",
	.summary = "Repair ROOT after a crash, and print what was done",
	.details =
		"A checkpoint without complete.txt gets it back if every byte is verified.\n"
		"Damaged data is left in place and named, with exit code 4. No job may be using\n"
		"ROOT. A dry run does not verify what would be restored.\n",
	.options = options,
	.main = main_repair,
};
