/* pawl pipe draw: becomes python -m pawl.report, which draws traces of pipelines. */
#include "cli/pipe/draw.h"

#include "base/err.h"

#include <string.h>

enum option { OUT, PYTHON };

static const struct cli_option options[] = {
	[OUT] = {"--out", 'o', "FILE", "picture to write; its name ends in .png or .svg"},
	[PYTHON] = {"--python", 0, "PATH", "Python interpreter that has pawl and matplotlib"},
	{NULL},
};

bool pipe_draw_check(const struct cli_command *command, const char *option, const char *picture)
{
	size_t len = strlen(picture);

	if (len > 4 &&
		(strcmp(picture + len - 4, ".png") == 0 ||
			strcmp(picture + len - 4, ".svg") == 0)) {
		return true;
	}
	cli_usage(command, "%s %s: a name that ends in .png or .svg is needed", option, picture);
	return false;
}

int pipe_draw_become(const char *const *traces, uint32_t n, const char *picture, const char *python,
	struct pawl_err *err)
{
	const char *words[7 + 2 * DRAW_TRACES_MAX + 1] = {NULL, "-m", "pawl.report", "--pipeline",
		"--out", picture};
	uint32_t count = 6;

	for (uint32_t i = 1; i < n; i++) {
		words[count++] = "--beside";
		words[count++] = traces[i];
	}
	words[count++] = "--";
	words[count++] = traces[0];
	return cli_python_become(python, words, err);
}

static int main_draw(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	const char *traces[DRAW_TRACES_MAX];
	const char *python = NULL;
	const char *out = NULL;
	struct pawl_err err;
	uint32_t n = 0;
	int what;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_HELP || what == CLI_BAD) {
			return cli_read_exit_code(what);
		}
		if (what == OUT) {
			out = reader.value;
		} else if (what == PYTHON) {
			python = reader.value;
		} else if (n == DRAW_TRACES_MAX) {
			return cli_usage(command, "%s: at most %u traces in a picture",
				reader.value, DRAW_TRACES_MAX);
		} else {
			traces[n++] = reader.value;
		}
	}
	if (n == 0 || !out) {
		return cli_usage(command, "%s is missing", n == 0 ? "TRACE.json" : "--out FILE");
	}
	if (!pipe_draw_check(command, "--out", out)) {
		return CLI_USAGE;
	}
	pipe_draw_become(traces, n, out, python, &err);
	return cli_fail(command, &err);
}

const struct cli_command cli_pipe_draw = {
	.name = "pipe draw",
	.args = "TRACE.json … --out FILE",
	.summary = "Draw what the stages of pipelines do over time",
	.details =
		"TRACE.json is what pawl pipe show --trace writes. Each trace is a panel, and all\n"
		"have one time axis, so that a predicted step can be compared with a measured\n"
		"one. A row is a stage. Blue bars are forwards, orange ones backwards; with\n"
		"zero bubble, gradients of inputs are yellow and those of parameters green.\n"
		"Numbers are microbatches, and white is idle time. At the right is the memory\n"
		"of each stage, if the trace has it. The command needs matplotlib.\n",
	.options = options,
	.main = main_draw,
};
