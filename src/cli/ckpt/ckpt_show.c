/* pawl ckpt show: lists the files of a checkpoint, and the tensors in them. */
#include "ckpt/format/tensors.h"
#include "cli/ckpt/ckpt.h"
#include "pawl/err.h"

#include <jansson.h>
#include <stdio.h>

static const struct cli_option options[] = {
	{"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

static int print_tensors(const struct manifest_part *part, struct pawl_err *err)
{
	struct pawl_tensor tensor;
	char shape[CKPT_SHAPE_MAX];
	size_t off = 0;
	int rv;

	while ((rv = pawl_tensor_decode(part->tensors, part->tensors_bytes, &off, &tensor, err)) ==
		1) {
		cli_print(stdout, "    %-48s %-10s %s", tensor.name, tensor.dtype,
			ckpt_shape(shape, tensor.shape, tensor.ndim));
		if (tensor.sharded) {
			cli_print(stdout, ", of %s", ckpt_shape(shape, tensor.global, tensor.ndim));
		}
		putchar('\n');
	}
	return rv;
}

static int print_text(const struct tag_info *tag, const struct manifest *manifest,
	struct pawl_err *err)
{
	char text[CLI_TEXT_MAX];
	int rv = 0;

	cli_print(stdout, "tag      %s\n", manifest->tag);
	cli_print(stdout, "step     %llu\n", (unsigned long long)manifest->step);
	cli_print(stdout, "job      %s, attempt %u\n", manifest->job, manifest->attempt);
	cli_print(stdout, "ranks    %u\n", manifest->world);
	cli_print(stdout, "created  %s\n", cli_time(text, manifest->created_ns));
	cli_print(stdout, "size     %s\n", cli_size(text, tag->size_bytes));
	cli_print(stdout, "pinned   %s\n", tag->pinned ? "yes" : "no");
	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		const struct manifest_part *part = &manifest->parts[i];

		cli_print(stdout, "\n  %s, %s", part->file, cli_size(text, part->size_bytes));
		if (part->rank == MANIFEST_ALL_RANKS) {
			cli_print(stdout, ", of all ranks");
		} else {
			cli_print(stdout, ", of rank %u", part->rank);
		}
		cli_print(stdout, "%s\n",
			part->sources_n > 0 ? ", linked (export makes it one file)" : "");
		rv = print_tensors(part, err);
	}
	return rv;
}

/* Returns NULL, with err filled, if the table is damaged. */
static json_t *make_tensors(const struct manifest_part *part, struct pawl_err *err)
{
	json_t *list = json_array();
	struct pawl_tensor tensor;
	size_t off = 0;
	int rv;

	while ((rv = pawl_tensor_decode(part->tensors, part->tensors_bytes, &off, &tensor, err)) ==
		1) {
		json_t *row;

		row = json_pack("{s:o, s:s, s:o, s:i, s:I}", "name", cli_json_text(tensor.name),
			"dtype", tensor.dtype, "shape", ckpt_json_shape(tensor.shape, tensor.ndim),
			"storage", (int)tensor.storage, "offset_bytes",
			(json_int_t)tensor.offset_bytes);
		if (tensor.sharded) {
			json_object_set_new(row, "global",
				ckpt_json_shape(tensor.global, tensor.ndim));
			json_object_set_new(row, "start",
				ckpt_json_shape(tensor.start, tensor.ndim));
		}
		json_array_append_new(list, row);
	}
	if (rv < 0) {
		json_decref(list);
		return NULL;
	}
	return list;
}

static json_t *make_files(const struct manifest *manifest, struct pawl_err *err)
{
	json_t *files = json_array();

	for (uint32_t i = 0; i < manifest->parts_n; i++) {
		const struct manifest_part *part = &manifest->parts[i];
		bool shared = part->rank == MANIFEST_ALL_RANKS;
		json_t *tensors = make_tensors(part, err);

		if (tensors == NULL) {
			json_decref(files);
			return NULL;
		}
		json_array_append_new(files,
			json_pack("{s:o, s:o, s:o, s:I, s:b, s:o}", "file",
				cli_json_text(part->file), "name", cli_json_text(part->name),
				"rank", shared ? json_null() : json_integer(part->rank), "bytes",
				(json_int_t)part->size_bytes, "linked", part->sources_n > 0,
				"tensors", tensors));
	}
	return files;
}

static json_t *make_document(const struct tag_info *tag, const struct manifest *manifest,
	json_t *files)
{
	char when[CLI_TEXT_MAX];

	return json_pack("{s:o, s:I, s:s, s:o, s:i, s:i, s:s, s:I, s:b, s:o}", "tag",
		cli_json_text(manifest->tag), "step", (json_int_t)manifest->step, "state",
		ckpt_state_word(tag), "job", cli_json_text(manifest->job), "attempt",
		(int)manifest->attempt, "ranks", (int)manifest->world, "created",
		cli_time(when, manifest->created_ns), "bytes", (json_int_t)tag->size_bytes,
		"pinned", (int)tag->pinned, "files", files);
}

/* Returns an exit code. */
static int show(const struct cli_command *command, struct ckpt_root *root, const char *name,
	bool json)
{
	const struct tag_info *tag;
	struct manifest manifest;
	struct pawl_err err;
	int code = CLI_OK;

	if (ckpt_root_pick(root, name, &tag, &err) != 0 ||
		tag_open(root->root, tag->tag, &manifest, &err) != 0) {
		return cli_fail(command, &err);
	}
	if (json) {
		json_t *files = make_files(&manifest, &err);

		code = files != NULL ? cli_json(make_document(tag, &manifest, files))
				     : cli_fail(command, &err);
	} else if (print_text(tag, &manifest, &err) != 0) {
		code = cli_fail(command, &err);
	}
	manifest_deinit(&manifest);
	return code;
}

static int main_show(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	const char *args[2] = {NULL, NULL};
	struct ckpt_root root = {NULL};
	struct pawl_err err;
	bool json = false;
	int rv = ckpt_read_line(&reader, args, 1, 2, &json);

	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	rv = ckpt_root_open(&root, args[0], &err) == 0 ? show(command, &root, args[1], json)
						       : cli_fail(command, &err);
	ckpt_root_close(&root);
	return rv;
}

const struct cli_command cli_ckpt_show = {
	.name = "ckpt show",
	.args = "ROOT [TAG]",
	.summary = "Show the files and tensors of a checkpoint",
	.details = "TAG is the name of a checkpoint, or its step (the newest).\n",
	.options = options,
	.main = main_show,
};
