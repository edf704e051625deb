/* pawl ckpt ls: the checkpoints of a root, one a line. */
#include "cli/ckpt/ckpt.h"
#include "pawl/err.h"

#include <jansson.h>
#include <stdio.h>

static const struct cli_option options[] = {
	{"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

static int print_json(const struct ckpt_root *root)
{
	json_t *list = json_array();
	char when[CLI_TEXT_MAX];

	for (size_t i = 0; i < root->tags_n; i++) {
		const struct tag_info *tag = &root->tags[i];
		bool complete = tag->state == TAG_COMPLETE;
		json_t *row = json_pack("{s:I, s:o, s:s, s:I, s:i, s:i, s:s?, s:b, s:o}", "step",
			(json_int_t)tag->step, "tag", cli_json_text(tag->tag), "state",
			ckpt_state_word(tag), "bytes", (json_int_t)tag->size_bytes, "files",
			(int)tag->files, "ranks", (int)tag->world, "created",
			complete ? cli_time(when, tag->created_ns) : NULL, "pinned",
			(int)tag->pinned, "why", complete ? json_null() : cli_json_text(tag->why));

		if (json_array_append_new(list, row) != 0) {
			json_decref(list);
			list = NULL;
			break;
		}
	}
	return cli_json(list);
}

static void print_table(const struct ckpt_root *root)
{
	char size[CLI_TEXT_MAX];
	char when[CLI_TEXT_MAX];

	cli_print(stdout, "%12s  %-8s  %10s  %5s  %5s  %-20s  %-6s  %s\n", "STEP", "STATE", "SIZE",
		"FILES", "RANKS", "WHEN", "PINNED", "TAG");
	for (size_t i = 0; i < root->tags_n; i++) {
		const struct tag_info *tag = &root->tags[i];
		bool complete = tag->state == TAG_COMPLETE;

		cli_print(stdout, "%12llu  %-8s  %10s  %5u  %5u  %-20s  %-6s  %s%s%s\n",
			(unsigned long long)tag->step, ckpt_state_word(tag),
			complete ? cli_size(size, tag->size_bytes) : "-", tag->files, tag->world,
			complete ? cli_time(when, tag->created_ns) : "-",
			tag->pinned ? "yes" : "no", tag->tag, complete ? "" : ": ",
			complete ? "" : tag->why);
	}
}

static int main_ls(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct ckpt_root root = {NULL};
	struct pawl_err err;
	const char *path;
	bool json = false;
	int rv = ckpt_read_line(&reader, &path, 1, 1, &json);

	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	if (ckpt_root_open(&root, path, &err) != 0) {
		rv = cli_fail(command, &err);
	} else if (json) {
		rv = print_json(&root);
	} else if (root.tags_n > 0) {
		print_table(&root);
		rv = CLI_OK;
	} else {
		cli_print(stderr, "pawl %s: no checkpoint in %s\n", command->name, path);
		rv = CLI_OK;
	}
	if (rv == CLI_OK && root.tags_n == 0) {
		rv = CLI_NOTHING;
	}
	ckpt_root_close(&root);
	return rv;
}

const struct cli_command cli_ckpt_ls = {
	.name = "ckpt ls",
	.args = "ROOT",
	.summary = "List the checkpoints in ROOT",
	.details =
		"A complete checkpoint has all its files, with the right sizes. pawl ckpt verify\n"
		"also checks what is in them.\n",
	.options = options,
	.main = main_ls,
};
