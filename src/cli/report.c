/* pawl report: becomes python -m pawl.report, since pictures are Python's.
 */
#include "agent/run_plan.h"
#include "base/err.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <unistd.h>

enum option { OUT, PYTHON };

static const struct cli_option options[] = {
	[OUT] = {"--out", 'o', "DIR", "where report.html and the pictures go; made if missing"},
	[PYTHON] = {"--python", 0, "PATH", "the interpreter that has pawl and matplotlib"},
	{NULL},
};

/* The command line. */
struct line {
	const char *root;   /* ROOT */
	const char *out;    /* --out */
	const char *python; /* --python; NULL: as pawl run finds it */
};

static int read_line(struct cli_reader *reader, struct line *line)
{
	int what;

	while ((what = cli_read(reader)) != CLI_END) {
		if (what < CLI_ARG) {
			return cli_leave(what);
		}
		if (what == OUT) {
			line->out = reader->value;
		} else if (what == PYTHON) {
			line->python = reader->value;
		} else if (line->root != NULL) {
			return cli_usage(reader->command, "unexpected argument %s", reader->value);
		} else {
			line->root = reader->value;
		}
	}
	if (line->root == NULL || line->out == NULL) {
		return cli_usage(reader->command, "%s is missing",
			line->root == NULL ? "ROOT" : "--out DIR");
	}
	return CLI_END;
}

static int main_report(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct line line = {NULL};
	char python[PATH_MAX];
	struct pawl_err err;
	int rv = read_line(&reader, &line);

	if (rv != CLI_END) {
		return rv;
	}
	if (run_python_find(python, sizeof(python), line.python, &err) != 0) {
		return cli_fail(command, &err);
	}
	setenv("PYTHONSAFEPATH", "1", 1); /* no pawl.py or torch.py of the working directory */
	execl(python, python, "-m", "pawl.report", "--out", line.out, "--", line.root,
		(char *)NULL);
	pawl_err_sys(&err, "run %s", python);
	return cli_fail(command, &err);
}

const struct cli_command cli_report = {
	.name = "report",
	.args = "ROOT --out DIR",
	.summary = "Draw what a job's checkpoints cost, and how often it should save",
	.details =
		"Writes report.html, saves.png and interval.png from the history of ROOT: stall,\n"
		"throughput, size and level over time, the work lost at each failure, and the\n"
		"interval between saves that would have cost least. Needs matplotlib.\n",
	.options = options,
	.main = main_report,
};
