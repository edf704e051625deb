/* pawl version: prints the version. Opens and starts nothing. */
#include "cli/cli.h"

#include <jansson.h>
#include <stdio.h>

static const struct cli_option options[] = {
	{"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

static int main_version(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	bool json = false;
	int what;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_ARG) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		if (what < 0) {
			return cli_read_exit_code(what);
		}
		json = true;
	}
	if (json) {
		return cli_json(json_pack("{s:s}", "version", PAWL_VERSION));
	}
	printf("pawl %s\n", PAWL_VERSION);
	return CLI_OK;
}

const struct cli_command cli_version = {
	.name = "version",
	.args = "",
	.summary = "Print the version",
	.options = options,
	.main = main_version,
};
