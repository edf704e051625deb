/*
 * pawl ckpt export: verifies a checkpoint and writes it as files that need no Pawl.
 *
 * The torch format copies the files as they are. Other formats are written by their own packages,
 * in Python (convert.h), which reads and verifies the checkpoint itself. Either way the files
 * appear together, when all of them are whole (stage.h).
 */
#include "base/err.h"
#include "base/file.h"
#include "ckpt/read.h"
#include "cli/ckpt/ckpt.h"
#include "cli/ckpt/convert.h"
#include "cli/ckpt/stage.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define WRITE_BYTES (1u << 20) /* bytes of one write; signals are checked in between */

enum option { JSON, TO, PARTITION, FORCE, PYTHON };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[TO] = {"--to", 0, "FORMAT", "format: torch, safetensors or dcp (torch)"},
	[PARTITION] = {"--partition", 0, "NAME", "export only this partition"},
	[FORCE] = {"--force", 0, NULL, "replace files of the same name in DEST"},
	[PYTHON] = {"--python", 0, "PATH", "Python, for safetensors and dcp (the environment's)"},
	{NULL},
};

/* A format. */
struct format {
	const char *name;   /* name, as --to takes it */
	const char *suffix; /* suffix of a partition's file; NULL: one set of files for all */
	const char *last;   /* last file, which makes the others valid; NULL: each is valid alone */
};

static const struct format formats[] = {
	{"torch", "", NULL},
	{"safetensors", ".safetensors", NULL},
	{"dcp", NULL, ".metadata"},
};

/* State of one export. */
struct export
{
	const struct cli_command *command; /* for messages */
	const char *args[3];               /* ROOT TAG DEST; TAG may be NULL */
	const char *partition;             /* partition to export; NULL: all */
	const char *python;                /* interpreter; NULL: the one that is found */
	const struct format *to;           /* --to */
	bool force;                        /* --force */
	bool json;                         /* --json */
	struct ckpt_root root;             /* ROOT */
	struct manifest manifest;          /* manifest of TAG */
	struct stage stage;                /* DEST */
	struct progress progress;          /* progress of the whole export */
	json_t *files;                     /* names of the files written */
};

static bool is_wanted(const struct export *export, const struct manifest_part *part)
{
	return export->partition == NULL || strcmp(part->name, export->partition) == 0;
}

/* ---- as torch's own files ---- */

static int write_all(int fd, const uint8_t *bytes, uint64_t len_bytes, struct pawl_err *err)
{
	while (len_bytes > 0) {
		ssize_t done = write(fd, bytes, len_bytes < WRITE_BYTES ? len_bytes : WRITE_BYTES);

		if (interrupt_check(err) != 0) {
			return PAWL_ECANCELED;
		}
		if (done < 0 && errno != EINTR) {
			return pawl_err_sys(err, "write");
		}
		if (done > 0) {
			bytes += done;
			len_bytes -= (uint64_t)done;
		}
	}
	return 0;
}

static int write_file(const struct export *export, const struct manifest_part *part,
	const uint8_t *image, struct pawl_err *err)
{
	int fd = -1;
	int rv;

	if (file_make_folders(export->stage.fd, part->file, 0777) == 0) {
		fd = openat(export->stage.fd, part->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			0666);
	}
	if (fd < 0) {
		return pawl_err_sys(err, "export %s: create it in %s", part->file,
			export->stage.path);
	}
	rv = write_all(fd, image, part->size_bytes, err);
	close(fd); /* stage_place makes it durable */
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "export %s", part->file);
}

static bool on_arrived(void *user, uint64_t bytes)
{
	progress_add(user, bytes);
	return interrupt_signal() == 0;
}

static int copy_file(struct export *export, struct reader *reader, const struct manifest_part *part,
	struct pawl_err *err)
{
	char size[CLI_TEXT_MAX];
	uint8_t *image = image_alloc(part->size_bytes);
	int rv;

	if (image == NULL) {
		return pawl_err_sys(err, "%s/%s: memory for %s", export->manifest.tag, part->file,
			cli_size(size, part->size_bytes));
	}
	progress_name(&export->progress, "", part->file);
	rv = reader_read(reader, &export->manifest, part, image, err);
	if (rv == 0) {
		rv = write_file(export, part, image, err);
	}
	image_free(image, part->size_bytes);
	return rv;
}

static int copy_files(struct export *export, struct pawl_err *err)
{
	const struct manifest *manifest = &export->manifest;
	struct reader *reader = NULL;
	int rv = reader_open(&reader, tags_root_store(export->root.root), err);

	if (rv == 0) {
		progress_start(&export->progress, "export", manifest_bytes(manifest));
		reader_set_watcher(reader, on_arrived, &export->progress);
	}
	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		const struct manifest_part *part = &manifest->parts[i];

		if (is_wanted(export, part)) {
			rv = copy_file(export, reader, part, err);
			json_array_append_new(export->files, cli_json_text(part->file));
		}
	}
	reader_close(reader);
	return rv;
}

/* ---- in other formats ---- */

/* Returns whether the disk is full: not every package reports that when a write fails. */
static bool is_full(const struct export *export)
{
	struct statvfs fs;

	return fstatvfs(export->stage.fd, &fs) == 0 && fs.f_bavail * fs.f_frsize < WRITE_BYTES;
}

static int convert_files(struct export *export, struct pawl_err *err)
{
	const char *partition = export->partition != NULL ? export->partition : "";
	const char *const args[] = {"export", export->to->name, export->args[0],
		export->manifest.tag, export->stage.access_path, partition, NULL};
	struct convert convert = {.progress = &export->progress, .command = export->command->name};
	json_t *message = NULL;
	int rv;

	progress_start(&export->progress, "export", 0);
	rv = convert_start(&convert, export->python, args, err);
	while (rv == 0 && (rv = convert_next(&convert, &message, err)) == 0 && message != NULL) {
		json_t *file = json_object_get(message, "file");

		if (file != NULL) {
			json_array_append(export->files, file);
		}
		json_decref(message);
	}
	convert_stop(&convert);
	if (rv == PAWL_EIO && is_full(export)) {
		rv = pawl_err_prefix(err, PAWL_ENOSPC, "%s: no space left", export->args[2]);
	}
	return rv;
}

/* ---- the command ---- */

/* Checks, before any work, that a partition is wanted and that the names are free in DEST. */
static int check_names(const struct export *export, struct pawl_err *err)
{
	const struct manifest *manifest = &export->manifest;
	char name[sizeof(manifest->parts->file) + 16];
	uint32_t wanted = 0;
	int rv = 0;

	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		const struct manifest_part *part = &manifest->parts[i];

		if (!is_wanted(export, part)) {
			continue;
		}
		wanted++;
		if (export->to->suffix != NULL) {
			snprintf(name, sizeof(name), "%s%s", part->file, export->to->suffix);
			rv = stage_check(&export->stage, name, err);
		}
	}
	if (rv == 0 && wanted == 0) {
		rv = pawl_err_set(err, PAWL_ENOENT, "%s has no partition %s", manifest->tag,
			export->partition != NULL ? export->partition : "");
	}
	if (rv == 0 && export->to->last != NULL) {
		rv = stage_check(&export->stage, export->to->last, err);
	}
	return rv;
}

static int export_tag(struct export *export, struct pawl_err *err)
{
	const struct tag_info *tag;
	int rv = ckpt_root_open(&export->root, export->args[0], err);

	if (rv == 0) {
		rv = ckpt_root_pick(&export->root, export->args[1], &tag, err);
	}
	if (rv == 0) {
		rv = tag_open(export->root.root, tag->tag, &export->manifest, err);
	}
	if (rv == 0) {
		rv = stage_open(&export->stage, export->args[2], export->force, err);
	}
	if (rv == 0) {
		rv = check_names(export, err);
	}
	if (rv == 0) {
		rv = export->to == &formats[0] ? copy_files(export, err)
					       : convert_files(export, err);
	}
	if (rv == 0) {
		rv = interrupt_check(err);
	}
	if (rv == 0) {
		rv = stage_place(&export->stage, export->to->last, err);
	}
	progress_wipe(&export->progress);
	return rv;
}

static const struct format *find_format(const struct cli_command *command, const char *name)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		if (strcmp(formats[i].name, name) == 0) {
			return &formats[i];
		}
	}
	cli_usage(command, "--to %s: torch, safetensors or dcp is needed", name);
	return NULL;
}

static int read_line(struct cli_reader *reader, struct export *export)
{
	size_t n = 0;
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what == JSON || what == FORCE) {
			*(what == JSON ? &export->json : &export->force) = true;
		} else if (what == PARTITION || what == PYTHON) {
			*(what == PARTITION ? &export->partition : &export->python) = reader->value;
		} else if (what == TO) {
			export->to = find_format(reader->command, reader->value);
			if (export->to == NULL) {
				return CLI_BAD;
			}
		} else if (n == 3) {
			cli_usage(reader->command, "unexpected argument %s", reader->value);
			return CLI_BAD;
		} else {
			export->args[n++] = reader->value;
		}
	}
	if (what == CLI_END && n < 2) {
		cli_usage(reader->command, "ROOT and DEST are needed");
		return CLI_BAD;
	}
	if (n == 2) { /* TAG is missing */
		export->args[2] = export->args[1];
		export->args[1] = NULL;
	}
	return what;
}

static int print_files(const struct export *export)
{
	if (export->json) {
		return cli_json(json_pack("{s:o, s:s, s:o, s:O}", "tag",
			cli_json_text(export->manifest.tag), "format", export->to->name, "dest",
			cli_json_text(export->args[2]), "files", export->files));
	}
	for (size_t i = 0; i < json_array_size(export->files); i++) {
		cli_print(stdout, "%s/%s\n", export->args[2],
			json_string_value(json_array_get(export->files, i)));
	}
	return CLI_OK;
}

static int main_export(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct export export = {.command = command, .to = &formats[0]};
	struct pawl_err err;
	int rv = read_line(&reader, &export);

	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	interrupt_catch();
	export.files = json_array();
	rv = export_tag(&export, &err);
	rv = rv == 0 ? print_files(&export) : cli_fail(command, &err);
	stage_close(&export.stage);
	manifest_deinit(&export.manifest);
	ckpt_root_close(&export.root);
	json_decref(export.files);
	return rv;
}

const struct cli_command cli_ckpt_export = {
	.name = "ckpt export",
	.args = "ROOT [TAG] DEST",
	.summary = "Verify a checkpoint and write it as files that do not need Pawl",
	.details =
		"TAG is the name of a checkpoint, or its step (the newest). torch writes the\n"
		"files as they are, for torch.load. safetensors writes one file per partition.\n"
		"dcp writes one torch.distributed.checkpoint of everything. DEST is a directory.\n"
		"It appears when all files are written; files in an existing DEST are replaced\n"
		"only with --force.\n",
	.options = options,
	.main = main_export,
};
