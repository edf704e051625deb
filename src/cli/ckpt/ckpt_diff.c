/* pawl ckpt diff: what changed from one checkpoint to another, tensor by tensor. */
#include "base/err.h"
#include "ckpt/read.h"
#include "cli/ckpt/ckpt.h"
#include "cli/ckpt/ckpt_pair.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

enum option { JSON, ALL };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[ALL] = {"--all", 0, NULL, "also list what did not change"},
	{NULL},
};

/* The two checkpoints. */
struct diff {
	const char *args[3];        /* ROOT A B, as given */
	bool json;                  /* --json */
	bool all;                   /* --all */
	struct ckpt_root root;      /* ROOT */
	struct manifest sides[2];   /* manifests of A and B, once opened */
	struct pair pair;           /* A and B side by side */
	struct progress progress;   /* progress of reading A and B */
	size_t counts[PAIR_STATES]; /* tensors in each state */
};

/* ---- text ---- */

/* Prints how far a tensor changed: "norm 0.4  relative 0.05  max 0.002  600 of 600 changed". */
static void print_delta(const struct pair_tensor *tensor)
{
	const struct delta *delta = &tensor->delta;

	if (delta_dtype_is_numeric(tensor->dtype)) {
		cli_print(stdout, "  norm %-8.3g  relative %-7.2g  max %-8.3g", delta_norm(delta),
			delta_relative(delta), delta->max);
	}
	cli_print(stdout, "  %llu of %llu changed", (unsigned long long)delta->changed,
		(unsigned long long)(tensor->bytes / delta_dtype_bytes(tensor->dtype)));
	if (delta->undefined > 0) {
		cli_print(stdout, ", %llu to or from values that are not finite",
			(unsigned long long)delta->undefined);
	}
}

static void print_tensor(const struct pair_tensor *tensor)
{
	const struct pawl_tensor *a = tensor->sides[0];
	const struct pawl_tensor *b = tensor->sides[1];
	const struct pawl_tensor *any = a != NULL ? a : b;
	char shape[CKPT_SHAPE_MAX];

	cli_print(stdout, "    %-32s  %-9s %-14s", any->name, any->dtype,
		ckpt_shape(shape, any->shape, any->ndim));
	if (tensor->state == PAIR_CHANGED) {
		print_delta(tensor);
	} else {
		cli_print(stdout, "  %s", pair_words[tensor->state]);
	}
	if (tensor->state == PAIR_RETYPED) {
		cli_print(stdout, " to %s", b->dtype);
	} else if (tensor->state == PAIR_RESHAPED) {
		cli_print(stdout, " to %s", ckpt_shape(shape, b->shape, b->ndim));
	} else if (tensor->why != NULL) {
		cli_print(stdout, ": %s", tensor->why);
	}
	cli_print(stdout, "\n");
}

static void print_part(const struct diff *diff, const struct pair_part *part)
{
	const struct manifest_part *a = part->sides[0];
	const struct manifest_part *b = part->sides[1];
	char size[CLI_TEXT_MAX];
	size_t same = 0;

	cli_print(stdout, "\n  %s, %s", (a != NULL ? a : b)->file,
		cli_size(size, (a != NULL ? a : b)->size_bytes));
	if (a == NULL || b == NULL) {
		cli_print(stdout, ": %s, with %zu tensors\n",
			pair_words[a == NULL ? PAIR_ADDED : PAIR_REMOVED], part->tensors_n);
		return;
	}
	if (a->size_bytes != b->size_bytes) {
		cli_print(stdout, " -> %s", cli_size(size, b->size_bytes));
	}
	cli_print(stdout, "\n");
	for (size_t i = 0; i < part->tensors_n; i++) {
		if (diff->all || part->tensors[i].state != PAIR_SAME) {
			print_tensor(&part->tensors[i]);
		} else {
			same++;
		}
	}
	if (same > 0) {
		cli_print(stdout, "    %zu %s did not change\n", same,
			same == 1 ? "tensor" : "tensors");
	}
	if (part->tensors_n == 0) {
		cli_print(stdout, "    no tensors; the file's bytes %s\n",
			part->others_changed ? "differ" : "are the same");
	} else if (part->others_changed) {
		cli_print(stdout, "    values other than tensors, or places of tensors, differ\n");
	}
}

static void print_text(const struct diff *diff)
{
	cli_print(stdout, "%s -> %s\n", diff->sides[0].tag, diff->sides[1].tag);
	for (size_t i = 0; i < diff->pair.parts_n; i++) {
		print_part(diff, &diff->pair.parts[i]);
	}
	cli_print(stdout,
		"\n%zu changed, %zu same, %zu added, %zu removed, %zu reshaped, %zu retyped, "
		"%zu not comparable\n",
		diff->counts[PAIR_CHANGED], diff->counts[PAIR_SAME], diff->counts[PAIR_ADDED],
		diff->counts[PAIR_REMOVED], diff->counts[PAIR_RESHAPED], diff->counts[PAIR_RETYPED],
		diff->counts[PAIR_UNCLEAR]);
}

/* ---- JSON ---- */

/* Returns null for a value that JSON cannot express. */
static json_t *make_real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static json_t *make_side(const struct pawl_tensor *tensor)
{
	if (tensor == NULL) {
		return json_null();
	}
	return json_pack("{s:s, s:o}", "dtype", tensor->dtype, "shape",
		ckpt_json_shape(tensor->shape, tensor->ndim));
}

static json_t *make_tensor(const struct pair_tensor *tensor)
{
	const struct pawl_tensor *any =
		tensor->sides[0] != NULL ? tensor->sides[0] : tensor->sides[1];
	const struct delta *delta = &tensor->delta;
	json_t *row = json_pack("{s:o, s:s, s:o, s:o, s:s?}", "name", cli_json_text(any->name),
		"change", pair_words[tensor->state], "before", make_side(tensor->sides[0]), "after",
		make_side(tensor->sides[1]), "why", tensor->why);

	if (tensor->state == PAIR_SAME || tensor->state == PAIR_CHANGED) {
		bool counts = delta_dtype_is_numeric(tensor->dtype);

		json_object_set_new(row, "elements",
			json_integer(
				(json_int_t)(tensor->bytes / delta_dtype_bytes(tensor->dtype))));
		json_object_set_new(row, "changed", json_integer((json_int_t)delta->changed));
		json_object_set_new(row, "not_finite", json_integer((json_int_t)delta->undefined));
		json_object_set_new(row, "norm",
			counts ? make_real(delta_norm(delta)) : json_null());
		json_object_set_new(row, "relative",
			counts ? make_real(delta_relative(delta)) : json_null());
		json_object_set_new(row, "max", counts ? make_real(delta->max) : json_null());
	}
	return row;
}

static json_t *make_part(const struct pair_part *part)
{
	const struct manifest_part *a = part->sides[0];
	const struct manifest_part *b = part->sides[1];
	json_t *tensors = json_array();

	for (size_t i = 0; i < part->tensors_n; i++) {
		json_array_append_new(tensors, make_tensor(&part->tensors[i]));
	}
	return json_pack("{s:o, s:s?, s:o, s:o, s:b, s:o}", "file",
		cli_json_text((a != NULL ? a : b)->file), "change",
		a == NULL           ? pair_words[PAIR_ADDED]
			: b == NULL ? pair_words[PAIR_REMOVED]
				    : NULL,
		"bytes_before", a != NULL ? json_integer((json_int_t)a->size_bytes) : json_null(),
		"bytes_after", b != NULL ? json_integer((json_int_t)b->size_bytes) : json_null(),
		"others_changed", (int)part->others_changed, "tensors", tensors);
}

static json_t *make_document(const struct diff *diff)
{
	json_t *parts = json_array();
	json_t *counts = json_object();

	for (size_t i = 0; i < diff->pair.parts_n; i++) {
		json_array_append_new(parts, make_part(&diff->pair.parts[i]));
	}
	for (size_t i = 0; i < PAIR_STATES; i++) {
		json_object_set_new(counts, pair_words[i],
			json_integer((json_int_t)diff->counts[i]));
	}
	return json_pack("{s:o, s:o, s:o, s:o}", "before", cli_json_text(diff->sides[0].tag),
		"after", cli_json_text(diff->sides[1].tag), "tensors", counts, "files", parts);
}

/* ---- the command ---- */

static void count_states(struct diff *diff)
{
	for (size_t i = 0; i < diff->pair.parts_n; i++) {
		const struct pair_part *part = &diff->pair.parts[i];

		for (size_t t = 0; t < part->tensors_n; t++) {
			diff->counts[part->tensors[t].state]++;
		}
	}
}

static int compare(struct diff *diff, struct pawl_err *err)
{
	const struct manifest *const sides[2] = {&diff->sides[0], &diff->sides[1]};
	struct reader *reader = NULL;
	int rv = pair_init(&diff->pair, &diff->sides[0], &diff->sides[1], err);

	if (rv == 0) {
		rv = reader_open(&reader, tags_root_store(diff->root.root), err);
	}
	if (rv == 0) {
		progress_start(&diff->progress, "diff", pair_bytes(&diff->pair));
		rv = pair_compare(&diff->pair, reader, sides, &diff->progress, err);
	}
	reader_close(reader);
	return rv;
}

static int open_sides(struct diff *diff, struct pawl_err *err)
{
	const struct tag_info *tag;
	int rv = ckpt_root_open(&diff->root, diff->args[0], err);

	for (int i = 0; i < 2 && rv == 0; i++) {
		rv = ckpt_root_pick(&diff->root, diff->args[1 + i], &tag, err);
		if (rv == 0) {
			rv = tag_open(diff->root.root, tag->tag, &diff->sides[i], err);
		}
	}
	return rv;
}

static int main_diff(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct diff diff = {{NULL}};
	struct pawl_err err;
	size_t n = 0;
	int rv;

	while ((rv = cli_read(&reader)) >= CLI_ARG) {
		if (rv == CLI_ARG && n == 3) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		} else if (rv == CLI_ARG) {
			diff.args[n++] = reader.value;
		} else {
			*(rv == ALL ? &diff.all : &diff.json) = true;
		}
	}
	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	if (n < 3) {
		return cli_usage(command, "ROOT and two checkpoints are needed");
	}
	rv = open_sides(&diff, &err);
	if (rv == 0) {
		rv = compare(&diff, &err);
	}
	if (rv != 0) {
		rv = cli_fail(command, &err);
	} else {
		count_states(&diff);
		if (diff.json) {
			rv = cli_json(make_document(&diff));
		} else {
			print_text(&diff);
		}
	}
	pair_deinit(&diff.pair);
	manifest_deinit(&diff.sides[0]);
	manifest_deinit(&diff.sides[1]);
	ckpt_root_close(&diff.root);
	return rv;
}

const struct cli_command cli_ckpt_diff = {
	.name = "ckpt diff",
	.args = "ROOT A B",
	.summary = "Show what changed from checkpoint A to checkpoint B",
	.details =
		"All data that is compared is read and verified. Norms are Euclidean, of B - A.\n"
		"relative is that norm divided by the norm of A; max is the largest change of one\n"
		"element. Values that are not finite are counted, and left out of the norms.\n",
	.options = options,
	.main = main_diff,
};
