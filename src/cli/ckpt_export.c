/*
 * pawl ckpt export: copies a checkpoint's files, verified, to where torch.load can have them.
 *
 * A file appears in DEST under its name when it is whole and synced, and never in place of another:
 * it is written as .<name>.export and then linked, which fails where the name is taken.
 */
#include "base/err.h"
#include "ckpt/read.h"
#include "cli/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum option { JSON, PARTITION };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "one JSON document"},
	[PARTITION] = {"--partition", 0, "NAME", "only the files of this partition"},
	{NULL},
};

/* The command line. */
struct line {
	const char *args[3];   /* ROOT STEP DEST */
	const char *partition; /* NULL: all */
	bool json;             /* --json */
};

/* Where files go. */
struct dest {
	const char *path; /* as given */
	int fd;           /* of the directory */
	json_t *rows;     /* one a file */
};

static int write_all(int fd, const uint8_t *bytes, uint64_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t done = write(fd, bytes, len_bytes);

		if (done < 0 && errno != EINTR) {
			return -1;
		}
		if (done > 0) {
			bytes += done;
			len_bytes -= (uint64_t)done;
		}
	}
	return 0;
}

static int put_file(const struct dest *dest, const struct manifest_part *part, const uint8_t *image,
	struct pawl_err *err)
{
	char temp[CKPT_NAME_MAX + 32];
	int rv = 0;
	int fd;

	snprintf(temp, sizeof(temp), ".%s.export", part->file);
	fd = openat(dest->fd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0) {
		return pawl_err_sys(err, "export %s: create %s/%s", part->file, dest->path, temp);
	}
	if (write_all(fd, image, part->size_bytes) != 0 || fsync(fd) != 0) {
		rv = pawl_err_sys(err, "export %s: write", part->file);
	} else if (linkat(dest->fd, temp, dest->fd, part->file, 0) != 0) {
		rv = pawl_err_sys(err, "export %s to %s", part->file, dest->path);
	}
	close(fd);
	unlinkat(dest->fd, temp, 0);
	return rv;
}

static int export_file(struct dest *dest, struct reader *reader, const char *tag,
	const struct manifest_part *part, struct pawl_err *err)
{
	char size[CLI_TEXT_MAX];
	uint8_t *image = image_alloc(part->size_bytes);
	int rv;

	if (image == NULL) {
		return pawl_err_sys(err, "%s/%s: memory for %s", tag, part->file,
			cli_size(size, part->size_bytes));
	}
	rv = reader_read(reader, tag, part, image, err);
	if (rv == 0) {
		rv = put_file(dest, part, image, err);
	}
	if (rv == 0) {
		json_array_append_new(dest->rows, cli_json_text(part->file));
	}
	image_free(image, part->size_bytes);
	return rv;
}

static bool is_wanted(const struct manifest_part *part, const char *partition)
{
	return partition == NULL || strcmp(part->name, partition) == 0;
}

/* Nothing is copied if a name is taken, or if there is nothing to copy. */
static int check_names(const struct dest *dest, const struct manifest *manifest,
	const char *partition, struct pawl_err *err)
{
	uint32_t wanted = 0;
	struct stat st;

	for (uint32_t i = 0; i < manifest->parts_n; i++) {
		const struct manifest_part *part = &manifest->parts[i];

		if (!is_wanted(part, partition)) {
			continue;
		}
		wanted++;
		if (fstatat(dest->fd, part->file, &st, AT_SYMLINK_NOFOLLOW) == 0) {
			return pawl_err_set(err, PAWL_EEXIST,
				"%s/%s exists already: nothing was exported", dest->path,
				part->file);
		}
	}
	return wanted > 0 ? 0
			  : pawl_err_set(err, PAWL_ENOENT, "%s has no partition %s", manifest->tag,
				    partition);
}

static int export_files(struct dest *dest, struct ckpt_root *root, const struct manifest *manifest,
	const char *partition, struct pawl_err *err)
{
	struct reader *reader = NULL;
	int rv = check_names(dest, manifest, partition, err);

	if (rv == 0) {
		rv = reader_open(&reader, root->store, err);
	}
	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		if (is_wanted(&manifest->parts[i], partition)) {
			rv = export_file(dest, reader, manifest->tag, &manifest->parts[i], err);
		}
	}
	if (rv == 0 && fsync(dest->fd) != 0) {
		rv = pawl_err_sys(err, "export to %s: sync directory", dest->path);
	}
	reader_close(reader);
	return rv;
}

static int open_dest(struct dest *dest, const char *path, struct pawl_err *err)
{
	dest->path = path;
	if (mkdir(path, 0777) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "export: make %s", path);
	}
	dest->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dest->fd >= 0 ? 0 : pawl_err_sys(err, "export: open %s", path);
}

static int export(struct dest *dest, const struct line *line, struct pawl_err *err)
{
	struct ckpt_root root = {NULL};
	const struct tag_info *tag;
	struct manifest manifest;
	int rv = ckpt_root_open(&root, line->args[0], err);

	if (rv == 0) {
		rv = ckpt_root_pick(&root, line->args[1], &tag, err);
	}
	if (rv == 0) {
		rv = tag_open(root.store, tag->tag, &manifest, err);
	}
	if (rv == 0) {
		rv = open_dest(dest, line->args[2], err);
		if (rv == 0) {
			rv = export_files(dest, &root, &manifest, line->partition, err);
			close(dest->fd);
		}
		manifest_deinit(&manifest);
	}
	ckpt_root_close(&root);
	return rv;
}

static int read_line(struct cli_reader *reader, struct line *line)
{
	size_t n = 0;
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what == JSON) {
			line->json = true;
		} else if (what == PARTITION) {
			line->partition = reader->value;
		} else if (n == 3) {
			cli_usage(reader->command, "unexpected argument %s", reader->value);
			return CLI_BAD;
		} else {
			line->args[n++] = reader->value;
		}
	}
	if (what == CLI_END && n < 3) {
		cli_usage(reader->command, "ROOT, STEP and DEST are needed");
		return CLI_BAD;
	}
	return what;
}

static int main_export(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct line line = {{NULL}};
	struct dest dest = {.fd = -1};
	struct pawl_err err;
	int rv = read_line(&reader, &line);

	if (rv != CLI_END) {
		return cli_leave(rv);
	}
	dest.rows = json_array();
	rv = export(&dest, &line, &err) == 0 ? CLI_OK : cli_fail(command, &err);
	if (rv == CLI_OK && line.json) {
		rv = cli_json(json_pack("{s:o, s:O}", "dest", cli_json_text(dest.path), "files",
			dest.rows));
	} else if (rv == CLI_OK) {
		for (size_t i = 0; i < json_array_size(dest.rows); i++) {
			printf("%s/%s\n", dest.path,
				json_string_value(json_array_get(dest.rows, i)));
		}
	}
	json_decref(dest.rows);
	return rv;
}

const struct cli_command cli_ckpt_export = {
	.name = "ckpt export",
	.args = "ROOT STEP DEST",
	.summary = "Copy a checkpoint's files, verified, into a directory",
	.details = "The files are what torch.load reads; Pawl is not needed to read them.\n"
		   "Nothing in DEST is ever overwritten.\n",
	.options = options,
	.main = main_export,
};
