/*
 * pawl compat: reads its command line and becomes `python -m pawl.compat`.
 *
 * Only the interpreter knows which package provides a name: that depends on its path, and on its
 * installed packages.
 */
#include "base/err.h"
#include "cli/cli.h"
#include "launch/run_plan.h"

#include <limits.h>
#include <stdbool.h>
#include <unistd.h>

#define ARGS_MAX 3 /* arguments, at most: use NAME CHOICE */

enum option { JSON, PYTHON };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[PYTHON] = {"--python", 0, "PATH", "Python interpreter (the environment's)"},
	{NULL},
};

/* Becomes the interpreter. Returns an exit code if it could not be executed. */
static int exec_python(const struct cli_command *command, const char *python, const char **args,
	size_t args_n, bool json)
{
	char path[PATH_MAX];
	const char *argv[5 + ARGS_MAX] = {path, "-m", "pawl.compat"};
	size_t n = 3;
	struct pawl_err err;

	if (run_python_find(path, sizeof(path), python, &err) != 0) {
		return cli_fail(command, &err);
	}
	if (json) {
		argv[n++] = "--json";
	}
	for (size_t i = 0; i < args_n; i++) {
		argv[n++] = args[i];
	}
	execv(path, (char **)(uintptr_t)argv);
	pawl_err_sys(&err, "execute %s", path);
	return cli_fail(command, &err);
}

static int main_compat(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	const char *args[ARGS_MAX];
	const char *python = NULL;
	size_t args_n = 0;
	bool json = false;
	int what;

	while ((what = cli_read(&reader)) >= CLI_ARG) {
		if (what == PYTHON) {
			python = reader.value;
		} else if (what == JSON) {
			json = true;
		} else if (args_n == ARGS_MAX) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		} else {
			args[args_n++] = reader.value;
		}
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	return exec_python(command, python, args, args_n, json);
}

const struct cli_command cli_compat = {
	.name = "compat",
	.args = "[use NAME pawl|other|off]",
	.summary = "List drop-in names and who provides them, or switch a name",
	.details =
		"A drop-in name (adaptdl, nebulaml, smdistributed, torch_nebula) can be imported\n"
		"without `import pawl`.\n"
		"  pawl   Pawl provides it, whatever else is installed under that name\n"
		"  other  another package provides it, or Pawl if there is none (default)\n"
		"  off    Pawl never provides it\n"
		"The choice is kept beside the package. PAWL_COMPAT=NAME=CHOICE,… overrides it.\n",
	.options = options,
	.main = main_compat,
};
