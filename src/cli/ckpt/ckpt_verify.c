/*
 * pawl ckpt verify: reads every byte of a checkpoint.
 *
 * Each file is checked against the manifest (CRC-32C of every chunk), and then as torch.load will
 * read it: the zip's structure, and the CRC-32 of every entry.
 */
#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "ckpt/format/zip.h"
#include "ckpt/read.h"
#include "cli/ckpt/ckpt.h"
#include "cli/progress.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKS_MAX 3u /* attempts at a tag that is published anew each time */

enum option { JSON, ALL };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[ALL] = {"--all", 0, NULL, "verify every checkpoint in ROOT"},
	{NULL},
};

/* State and result of one verification. */
struct check {
	const struct cli_command *command; /* for messages */
	struct ckpt_root root;             /* root that is read */
	struct reader *reader;             /* reader of root */
	struct progress progress;          /* progress of reading */
	bool json;                         /* results become rows; false: lines */
	json_t *rows;                      /* one object for each tag */
	size_t damaged;                    /* number of tags that are damaged */
	size_t unread;                     /* number of tags that this user may not read */
};

/* A file in memory. */
struct image {
	const uint8_t *bytes; /* contents of the file */
	uint64_t size_bytes;  /* size of the file */
};

static int read_image(void *user, uint64_t off, void *buf, size_t len_bytes, struct pawl_err *err)
{
	const struct image *image = user;

	if (off > image->size_bytes || len_bytes > image->size_bytes - off) {
		return pawl_err_set(err, PAWL_ECORRUPT, "points beyond the end of the file");
	}
	memcpy(buf, image->bytes + off, len_bytes);
	return 0;
}

static int check_zip(const struct image *image, struct pawl_err *err)
{
	struct zip_plan plan;
	int rv = zip_plan_read(&plan, read_image, (void *)(uintptr_t)image, image->size_bytes, err);

	if (rv != 0) {
		return rv;
	}
	for (uint32_t i = 0; i < plan.entries_n && rv == 0; i++) {
		const struct zip_entry *entry = &plan.entries[i];

		if (crc32_zip(0, image->bytes + entry->data_off, entry->size_bytes) != entry->crc) {
			rv = pawl_err_set(err, PAWL_ECORRUPT,
				"zip entry %u at byte %llu does not match its CRC-32", i,
				(unsigned long long)entry->data_off);
		}
	}
	zip_plan_deinit(&plan);
	return rv;
}

static int check_file(struct reader *reader, const struct manifest *manifest,
	const struct manifest_part *part, struct pawl_err *err)
{
	char size[CLI_TEXT_MAX];
	uint8_t *bytes = image_alloc(part->size_bytes);
	int rv;

	if (bytes == NULL) {
		return pawl_err_sys(err, "%s/%s: memory for %s", manifest->tag, part->file,
			cli_size(size, part->size_bytes));
	}
	rv = reader_read(reader, manifest, part, bytes, err);
	if (rv == 0 && !part->raw) {
		const struct image image = {bytes, part->size_bytes};

		rv = check_zip(&image, err);
		if (rv != 0) {
			rv = pawl_err_prefix(err, rv, "%s/%s", manifest->tag, part->file);
		}
	}
	image_free(bytes, part->size_bytes);
	return rv;
}

static bool on_arrived(void *user, uint64_t bytes)
{
	progress_add(user, bytes);
	return true;
}

int ckpt_verify_files(struct reader *reader, const struct manifest *manifest,
	struct progress *progress, struct pawl_err *err)
{
	int rv = 0;

	reader_set_watcher(reader, on_arrived, progress);
	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		progress_name(progress, manifest->tag, manifest->parts[i].file);
		rv = check_file(reader, manifest, &manifest->parts[i], err);
	}
	progress_wipe(progress);
	return rv;
}

/* Returns whether the tag is still there as it was read. */
static bool is_still(struct tags_root *root, const struct manifest *manifest)
{
	struct manifest now;
	bool same;

	if (tag_open(root, manifest->tag, &now, NULL) != 0) {
		return false;
	}
	same = now.created_ns == manifest->created_ns && now.attempt == manifest->attempt;
	manifest_deinit(&now);
	return same;
}

/* PAWL_ENOENT: the job has removed the tag meanwhile, as retention does. */
static int check_tag(struct check *check, const struct tag_info *tag, struct pawl_err *err)
{
	struct manifest manifest;
	bool again = true;
	int rv = 0;

	for (unsigned i = 0; i < CHECKS_MAX && again; i++) {
		rv = tag_open(check->root.root, tag->tag, &manifest, err);
		if (rv != 0) {
			return rv;
		}
		rv = ckpt_verify_files(check->reader, &manifest, &check->progress, err);
		again = rv != 0 && !is_still(check->root.root, &manifest);
		manifest_deinit(&manifest);
	}
	return rv;
}

/* Reports the result rv of one tag. Returns 0 if the tag is sound, damaged or not readable for this
 * user, because other tags may be sound; else reading failed, and it returns rv. */
static int report_result(struct check *check, const struct tag_info *tag, int rv, int64_t took_ns,
	const struct pawl_err *err)
{
	double seconds = (double)took_ns / NS_PER_S;
	char size[CLI_TEXT_MAX];

	if (rv != 0 && rv != PAWL_ECORRUPT && !tag_access_denied(err)) {
		return rv;
	}
	check->damaged += rv == PAWL_ECORRUPT;
	check->unread += rv != 0 && rv != PAWL_ECORRUPT;
	if (check->json) {
		json_array_append_new(check->rows,
			json_pack("{s:I, s:o, s:b, s:I, s:f, s:o}", "step", (json_int_t)tag->step,
				"tag", cli_json_text(tag->tag), "ok", rv == 0, "bytes",
				(json_int_t)tag->size_bytes, "seconds", seconds, "why",
				rv == 0 ? json_null() : cli_json_text(err->msg)));
	} else if (rv == 0) {
		cli_print(stdout, "%s: ok, %s in %.2f s\n", tag->tag,
			cli_size(size, tag->size_bytes), seconds);
	} else {
		cli_print(stdout, "%s: %s: %s\n", tag->tag,
			rv == PAWL_ECORRUPT ? "damaged" : "not read", err->msg);
	}
	return 0;
}

static int verify(struct check *check, const char *name, bool all, struct pawl_err *err)
{
	const struct tag_info *first;
	size_t n = all ? check->root.tags_n : 1;
	uint64_t total_bytes = 0;
	int rv = ckpt_root_pick(&check->root, name, &first, err);

	if (rv == 0) {
		rv = reader_open(&check->reader, tags_root_store(check->root.root), err);
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		total_bytes += all ? check->root.tags[i].size_bytes : first->size_bytes;
	}
	progress_start(&check->progress, "verify", total_bytes);
	for (size_t i = 0; i < n && rv == 0; i++) {
		const struct tag_info *tag = all ? &check->root.tags[i] : first;
		int64_t began_ns = clock_mono_ns();

		rv = check_tag(check, tag, err);
		if (rv == PAWL_ENOENT && all) {
			cli_print(stderr, "%s: removed meanwhile\n", tag->tag);
			rv = 0;
			continue;
		}
		rv = report_result(check, tag, rv, clock_mono_ns() - began_ns, err);
	}
	reader_close(check->reader);
	return rv;
}

/* Reads the command line, with ROOT and TAG into args. */
static int read_line(struct cli_reader *reader, const char **args, bool *all, bool *json)
{
	size_t n = 0;
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what == CLI_ARG && n == 2) {
			cli_usage(reader->command, "unexpected argument %s", reader->value);
			return CLI_BAD;
		} else if (what == CLI_ARG) {
			args[n++] = reader->value;
		} else {
			*(what == ALL ? all : json) = true;
		}
	}
	if (what == CLI_END && (n == 0 || (n == 2 && *all))) {
		cli_usage(reader->command, "ROOT is needed, with TAG or --all at most");
		return CLI_BAD;
	}
	return what;
}

static int main_verify(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct check check = {.command = command};
	const char *args[2] = {NULL, NULL};
	struct pawl_err err;
	bool all = false;
	int rv = read_line(&reader, args, &all, &check.json);

	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	check.rows = json_array();
	rv = ckpt_root_open(&check.root, args[0], &err);
	if (rv == 0) {
		rv = verify(&check, args[1], all, &err);
	}
	rv = rv == 0 ? CLI_OK : cli_fail(command, &err);
	if (rv == CLI_OK && check.json) {
		rv = cli_json(json_incref(check.rows));
	}
	if (rv == CLI_OK && check.damaged + check.unread > 0) {
		rv = check.damaged > 0 ? CLI_DAMAGED : CLI_FAILURE;
	}
	json_decref(check.rows);
	ckpt_root_close(&check.root);
	return rv;
}

const struct cli_command cli_ckpt_verify = {
	.name = "ckpt verify",
	.args = "ROOT [TAG]",
	.summary = "Read every byte of a checkpoint and check it",
	.details = "TAG is the name of a checkpoint, or its step (the newest). Each file is read\n"
		   "into memory as a whole. Exit code 4 means that something is damaged.\n",
	.options = options,
	.main = main_verify,
};
