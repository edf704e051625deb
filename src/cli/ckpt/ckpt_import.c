/*
 * pawl ckpt import: makes a checkpoint from files that other programs wrote.
 *
 * Python reads the files (convert.h) and sends each partition as a message with its sizes, followed
 * by its tensor table, its storages and its pickle. The command writes the partitions as a rank's,
 * into the draft of a new tag, and publishes the tag when all have come. A failure leaves nothing,
 * and removes a root that the command created.
 *
 *   {"partition": name, "table": bytes, "storages": [bytes, …], "pickle": bytes}
 */
#include "agent/persist/history.h"
#include "base/clock.h"
#include "base/err.h"
#include "ckpt/format/pieces.h"
#include "ckpt/write.h"
#include "cli/ckpt/ckpt.h"
#include "cli/ckpt/convert.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "store/store.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOB_NAME  "import"     /* job in the manifest */
#define RANKS_MAX 65536u       /* numbers of ranks are below this */
#define TABLE_MAX (256u << 20) /* bytes of a tensor table */

enum option { JSON, STEP, TAG, FROM, PARTITION, SPLIT, TRUST, FORCE, PYTHON, TAKE };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[STEP] = {"--step", 0, "N", "step of the new checkpoint; required"},
	[TAG] = {"--tag", 0, "NAME", "name of the new checkpoint (global_step<N>)"},
	[FROM] = {"--from", 0, "FORMAT", "format: torch, safetensors or dcp (detected from SRC)"},
	[PARTITION] = {"--partition", 0, "NAME", "import everything as one partition of this name"},
	[SPLIT] = {"--split", 0, NULL, "make a partition of each key of a torch file"},
	[TRUST] = {"--trust", 0, NULL, "allow pickles in SRC to run code"},
	[FORCE] = {"--force", 0, NULL, "replace an existing checkpoint of that step"},
	[PYTHON] = {"--python", 0, "PATH", "Python interpreter (the environment's)"},
	[TAKE] = CKPT_TAKE,
	{NULL},
};

/* State of one import. */
struct import {
	const struct cli_command *command; /* for messages */
	const char *args[2];               /* SRC ROOT */
	const char *from;                  /* format; "": detected from SRC */
	const char *partition;             /* name of the only partition; "": as SRC has them */
	const char *tag;                   /* name of the checkpoint; NULL: derived from the step */
	const char *python;                /* interpreter; NULL: the one that is found */
	uint64_t step;                     /* --step */
	bool has_step;                     /* --step was given */
	bool split, trust, force, json;    /* the options of these names */
	struct convert convert;            /* the Python process that reads SRC */
	struct progress progress;          /* progress of the whole import */
	bool made_root;                    /* this command created ROOT */
	struct ckpt_root root;             /* ROOT, owned */
	struct tag_draft draft;            /* the tag being built; zeroed: none */
	struct writer *writer;             /* writes into the draft */
	struct manifest manifest;          /* grows with each partition; freed by release */
	uint32_t parts_cap;                /* allocated entries of manifest.parts */
};

/* ---- a partition ---- */

/* A partition that Python sends, until it is in its file. */
struct incoming {
	struct import *import; /* the command */
	struct zip_plan plan;  /* layout of the file */
	uint32_t entry; /* index of the entry that comes next: a storage, or the pickle after all */
};

/* Reads the payload of a chunk from Python. The writer asks for chunks in ascending order, and
 * Python sends payloads in the order of the file. */
static int receive_chunk(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce,
	uint8_t **bytes, struct pawl_err *err)
{
	struct incoming *in = user;
	const struct zip_plan *plan = &in->plan;
	uint64_t hi = off + len_bytes;
	int rv = interrupt_check(err);

	while (rv == 0 && in->entry <= plan->storages) {
		const struct zip_entry *entry = in->entry < plan->storages
			? &plan->entries[in->entry]
			: zip_plan_pickle(plan);
		uint64_t end = entry->data_off + entry->size_bytes;
		uint64_t from = entry->data_off > off ? entry->data_off : off;
		uint64_t to = end < hi ? end : hi;

		if (from < to) {
			rv = convert_read(&in->import->convert, bounce + (from - off), to - from,
				err);
			progress_add(&in->import->progress, to - from);
		}
		if (end > hi) {
			break;
		}
		in->entry++;
	}
	*bytes = bounce;
	return rv;
}

/* Names a partition. "rng-rank3" becomes rank 3's "rng", as files of a checkpoint are named; a
 * partition of any other name belongs to all ranks. */
static void name_part(struct manifest_part *part, const char *name)
{
	const char *suffix = NULL;
	unsigned long rank;

	for (const char *at = name; (at = strstr(at, "-rank")) != NULL; at++) {
		suffix = at;
	}
	rank = suffix != NULL ? strtoul(suffix + strlen("-rank"), NULL, 10) : RANKS_MAX;
	*part = (struct manifest_part){.rank = (uint32_t)rank};
	if (rank < RANKS_MAX) {
		snprintf(part->name, sizeof(part->name), "%.*s", (int)(suffix - name), name);
		manifest_file_name(part->file, sizeof(part->file), part->name, false, part->rank,
			RANKS_MAX);
	}
	if (rank >= RANKS_MAX || strcmp(part->file, name) != 0) {
		part->rank = MANIFEST_ALL_RANKS;
		snprintf(part->name, sizeof(part->name), "%s", name);
		snprintf(part->file, sizeof(part->file), "%s", name);
	}
}

/* Appends a partition of that name to the manifest. */
static int add_part(struct import *import, const char *name, struct pawl_err *err)
{
	struct manifest *manifest = &import->manifest;
	struct manifest_part *part;

	if (!ckpt_name_valid(name)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s is no valid name for a partition", name);
	}
	if (manifest->parts_n == import->parts_cap) {
		uint32_t cap = import->parts_cap == 0 ? 16 : 2 * import->parts_cap;

		part = realloc(manifest->parts, cap * sizeof(*part));
		if (part == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "%u partitions", cap);
		}
		manifest->parts = part;
		import->parts_cap = cap;
	}
	part = &manifest->parts[manifest->parts_n++];
	name_part(part, name);
	if (part->rank != MANIFEST_ALL_RANKS && part->rank >= manifest->world) {
		manifest->world = part->rank + 1;
	}
	return 0;
}

static int receive_table(struct import *import, struct manifest_part *part, json_t *message,
	struct pawl_err *err)
{
	json_int_t bytes = json_integer_value(json_object_get(message, "table"));

	if (bytes < 0 || bytes > TABLE_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%s: the tensor table has more than %u bytes",
			part->file, TABLE_MAX);
	}
	part->tensors = malloc((size_t)bytes + 1);
	if (part->tensors == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for its tensor table",
			part->file);
	}
	part->tensors_bytes = (uint32_t)bytes;
	return convert_read(&import->convert, part->tensors, (size_t)bytes, err);
}

static int lay_out(struct zip_plan *plan, json_t *message, struct pawl_err *err)
{
	json_t *storages = json_object_get(message, "storages");
	json_int_t pickle = json_integer_value(json_object_get(message, "pickle"));
	size_t n = json_array_size(storages);
	uint64_t *sizes = calloc(n + 1, sizeof(*sizes));
	int rv;

	if (sizes == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%zu storages", n);
	}
	for (size_t i = 0; i < n; i++) {
		sizes[i] = (uint64_t)json_integer_value(json_array_get(storages, i));
	}
	rv = zip_plan_init(plan, sizes, (uint32_t)n, (uint64_t)pickle, err);
	free(sizes);
	return rv;
}

static int receive_part(struct import *import, json_t *message, struct pawl_err *err)
{
	const char *name = json_string_value(json_object_get(message, "partition"));
	struct incoming in = {.import = import};
	const struct write_source source = {.chunk = receive_chunk, .user = &in};
	struct manifest_part *part;
	int rv;

	if (name == NULL) {
		return pawl_err_set(err, PAWL_EIO, "Python sent a malformed message");
	}
	rv = add_part(import, name, err);
	if (rv != 0) {
		return rv;
	}
	part = &import->manifest.parts[import->manifest.parts_n - 1];
	progress_name(&import->progress, "", name);
	rv = receive_table(import, part, message, err);
	if (rv == 0) {
		rv = lay_out(&in.plan, message, err);
	}
	if (rv == 0) {
		part->size_bytes = in.plan.size_bytes;
		part->chunks_n = ckpt_chunks(in.plan.size_bytes);
		part->chunks = calloc(part->chunks_n + 1u, sizeof(*part->chunks));
		rv = part->chunks != NULL ? writer_write(import->writer, import->draft.dir, part,
						    &in.plan, &source, err)
					  : pawl_err_set(err, PAWL_ENOMEM, "%s", name);
	}
	zip_plan_deinit(&in.plan);
	return rv;
}

/* ---- the tag ---- */

/* Takes the root's lock, creating the root if need be, and begins the tag. */
static int begin(struct import *import, struct pawl_err *err)
{
	char *tag = import->manifest.tag;
	struct tags_root *made;
	bool there = access(import->args[1], F_OK) == 0;
	bool exists = false;
	int rv = tags_root_open(import->args[1], NULL, true, &made, err);

	if (rv != 0) {
		return rv;
	}
	tags_root_close(made);
	import->made_root = !there;
	rv = ckpt_root_make(&import->root, import->args[1], import->command, err);
	if (rv != 0) {
		return rv;
	}
	tag_of_step(tag, sizeof(import->manifest.tag), import->step);
	if (import->tag != NULL) {
		snprintf(tag, sizeof(import->manifest.tag), "%s", import->tag);
	}
	if (!import->force) {
		rv = tag_has_name(import->root.root, tag, &exists, err);
	}
	if (exists) {
		return pawl_err_set(err, PAWL_EEXIST,
			"%s/%s exists already: nothing was imported (--force replaces it)",
			import->args[1], tag);
	}
	if (rv == 0) {
		rv = writer_open(&import->writer, tags_root_store(import->root.root), true, err);
	}
	if (rv == 0) {
		rv = tag_begin(import->root.root, tag, &import->draft, err);
	}
	return rv == 0
		? tag_draft_manifest(import->root.root, &import->draft, &import->manifest, err)
		: rv;
}

/* Publishes the tag. With one rank only, each partition belongs to all ranks. */
static int publish(struct import *import, struct pawl_err *err)
{
	struct manifest *manifest = &import->manifest;
	int rv = 0;

	if (manifest->parts_n == 0) {
		return pawl_err_set(err, PAWL_ENOENT, "nothing to import in %s", import->args[0]);
	}
	manifest_sort(manifest);
	manifest->step = import->step;
	manifest->created_ns = clock_wall_ns();
	snprintf(manifest->job, sizeof(manifest->job), JOB_NAME);
	if (manifest->world < 2) {
		manifest->world = 1;
		for (uint32_t i = 0; i < manifest->parts_n; i++) {
			struct manifest_part *part = &manifest->parts[i];

			snprintf(part->name, sizeof(part->name), "%.*s",
				(int)sizeof(part->name) - 1, part->file);
			part->rank = MANIFEST_ALL_RANKS;
		}
	}
	rv = interrupt_check(err);
	if (rv == 0) {
		rv = tag_publish(import->root.root, &import->draft, manifest, err);
	}
	if (rv == 0) {
		import->draft = (struct tag_draft){.tag = ""};
		history_mend(import->root.root, NULL); /* a later run can add the row, too */
	}
	return rv;
}

static int import_all(struct import *import, struct pawl_err *err)
{
	const char *const args[] = {"import", import->from, import->args[0], import->partition,
		import->split ? "split" : "", import->trust ? "trust" : "", NULL};
	json_t *message = NULL;
	int rv;

	import->convert.progress = &import->progress;
	import->convert.command = import->command->name;
	progress_start(&import->progress, "import", 0);
	rv = convert_start(&import->convert, import->python, args, err);
	while (rv == 0 && (rv = convert_next(&import->convert, &message, err)) == 0 &&
		message != NULL) {
		json_t *total = json_object_get(message, "total");

		if (total != NULL) {
			import->progress.total_bytes = (uint64_t)json_integer_value(total);
		} else {
			rv = import->draft.tag[0] != '\0' ? 0 : begin(import, err);
			rv = rv == 0 ? receive_part(import, message, err) : rv;
		}
		json_decref(message);
	}
	if (rv == 0) {
		rv = publish(import, err);
	}
	progress_wipe(&import->progress);
	return rv;
}

/* ---- the command ---- */

static void release(struct import *import, bool failed)
{
	struct manifest *manifest = &import->manifest;
	convert_stop(&import->convert);
	tag_abandon(import->root.root, &import->draft);
	if (import->made_root && failed) {
		tags_root_unmake(import->args[1]);
	}
	writer_close(import->writer);
	ckpt_root_close(&import->root);
	for (uint32_t i = 0; i < manifest->parts_n; i++) {
		free(manifest->parts[i].chunks);
		free(manifest->parts[i].tensors);
	}
	free(manifest->parts);
	free(manifest->folders);
}

static int print_result(const struct import *import)
{
	const struct manifest *manifest = &import->manifest;
	char size[CLI_TEXT_MAX];
	json_t *files;

	if (!import->json) {
		cli_print(stdout, "%s/%s: %u %s, %s\n", import->args[1], manifest->tag,
			manifest->parts_n, manifest->parts_n == 1 ? "partition" : "partitions",
			cli_size(size, manifest_bytes(manifest)));
		return CLI_OK;
	}
	files = json_array();
	for (uint32_t i = 0; i < manifest->parts_n; i++) {
		json_array_append_new(files, cli_json_text(manifest->parts[i].file));
	}
	return cli_json(
		json_pack("{s:o, s:o, s:I, s:I, s:o}", "root", cli_json_text(import->args[1]),
			"tag", cli_json_text(manifest->tag), "step", (json_int_t)manifest->step,
			"bytes", (json_int_t)manifest_bytes(manifest), "files", files));
}

static bool is_format(const char *name)
{
	return strcmp(name, "torch") == 0 || strcmp(name, "safetensors") == 0 ||
		strcmp(name, "dcp") == 0;
}

/* Returns 0 or CLI_BAD. */
static int read_option(struct import *import, struct cli_reader *reader, int what)
{
	const char *value = reader->value;

	switch (what) {
	case STEP:
		import->has_step =
			cli_number(reader->command, "--step", value, 0, INT64_MAX, &import->step);
		return import->has_step ? 0 : CLI_BAD;
	case FROM:
		import->from = value;
		if (!is_format(value)) {
			cli_usage(reader->command, "--from %s: torch, safetensors or dcp is needed",
				value);
			return CLI_BAD;
		}
		return 0;
	case PARTITION:
		import->partition = value;
		return 0;
	case TAG:
		import->tag = value;
		if (!tag_valid(value)) {
			cli_usage(reader->command, "--tag %s is no valid name for a checkpoint",
				value);
			return CLI_BAD;
		}
		return 0;
	case PYTHON:
		import->python = value;
		return 0;
	case SPLIT:
		import->split = true;
		return 0;
	case TRUST:
		import->trust = true;
		return 0;
	case TAKE:
		import->root.take = true;
		return 0;
	default:
		*(what == FORCE ? &import->force : &import->json) = true;
		return 0;
	}
}

static int read_line(struct cli_reader *reader, struct import *import)
{
	size_t n = 0;
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what == CLI_ARG && n == 2) {
			cli_usage(reader->command, "unexpected argument %s", reader->value);
			return CLI_BAD;
		} else if (what == CLI_ARG) {
			import->args[n++] = reader->value;
		} else if (read_option(import, reader, what) != 0) {
			return CLI_BAD;
		}
	}
	if (what == CLI_END && (n < 2 || !import->has_step)) {
		cli_usage(reader->command, "SRC, ROOT and --step are needed");
		return CLI_BAD;
	}
	if (what == CLI_END && import->split && import->partition[0] != '\0') {
		cli_usage(reader->command, "--split cannot be used with --partition");
		return CLI_BAD;
	}
	return what;
}

static int main_import(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct import import = {.command = command, .from = "", .partition = ""};
	struct pawl_err err;
	int rv = read_line(&reader, &import);

	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	interrupt_catch();
	rv = import_all(&import, &err) == 0 ? CLI_OK : cli_fail(command, &err);
	if (rv == CLI_OK) {
		rv = print_result(&import);
		release(&import, false);
	} else {
		release(&import, true);
	}
	return rv;
}

const struct cli_command cli_ckpt_import = {
	.name = "ckpt import",
	.args = "SRC ROOT",
	.summary = "Make a checkpoint from torch.save, safetensors or DCP files",
	.details =
		"SRC is a file or a directory of files; each file becomes a partition of its\n"
		"name. Each key at the top of a DCP becomes a partition. What export wrote is\n"
		"restored as it was. The checkpoint appears in one instant. No job may be using\n"
		"ROOT.\n",
	.options = options,
	.main = main_import,
};
