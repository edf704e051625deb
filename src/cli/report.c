/* pawl report: becomes python -m pawl.report, since pictures are Python's.
 */
#include "agent/run_plan.h"
#include "base/err.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <unistd.h>

enum option { OUT, BESIDE, CLUSTER, PYTHON };

/* Runs that are drawn beside another one: more than a picture can tell apart. */
#define BESIDE_MAX 16

static const struct cli_option options[] = {
	[OUT] = {"--out", 'o', "DIR", "where report.html and the pictures go; made if missing"},
	[BESIDE] = {"--beside", 0, "ROOT", "another run, drawn beside it; may be given again"},
	[CLUSTER] = {"--cluster", 0, NULL,
		"ROOT is the history of a cluster: who was on which node"},
	[PYTHON] = {"--python", 0, "PATH", "the interpreter that has pawl and matplotlib"},
	{NULL},
};

/* The command line. */
struct line {
	const char *root;               /* ROOT */
	const char *out;                /* --out */
	const char *python;             /* --python; NULL: as pawl run finds it */
	const char *beside[BESIDE_MAX]; /* --beside */
	int beside_n;
	bool cluster; /* --cluster */
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
		} else if (what == BESIDE) {
			if (line->beside_n == BESIDE_MAX) {
				return cli_usage(reader->command, "--beside %s: at most %d of them",
					reader->value, BESIDE_MAX);
			}
			line->beside[line->beside_n++] = reader->value;
		} else if (what == CLUSTER) {
			line->cluster = true;
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

/* Returns only if the interpreter can't be run. */
static void become(const char *python, const struct line *line)
{
	const char *words[7 + 2 * BESIDE_MAX + 2] = {python, "-m", "pawl.report", "--out",
		line->out};
	int n = 5;

	if (line->cluster) {
		words[n++] = "--cluster";
	}
	for (int i = 0; i < line->beside_n; i++) {
		words[n++] = "--beside";
		words[n++] = line->beside[i];
	}
	words[n++] = "--";
	words[n++] = line->root;
	execv(python, (char *const *)words);
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
	become(python, &line);
	pawl_err_sys(&err, "run %s", python);
	return cli_fail(command, &err);
}

const struct cli_command cli_report = {
	.name = "report",
	.args = "ROOT --out DIR",
	.summary = "Draw what a job's checkpoints cost, and what its elastic training did",
	.details =
		"Writes report.html, saves.png and interval.png from the history of ROOT: stall,\n"
		"throughput, size and level over time, the work lost at each failure, and the\n"
		"interval between saves that would have cost least; and training.png, of an "
		"elastic\n"
		"job: batch, noise scale, goodput and ranks over time. Needs matplotlib.\n"
		"\n"
		"--cluster draws what pawl sim --report DIR keeps, DIR/*.jsonl: cluster.png and\n"
		"report.html, nodes over time coloured by job, and how many jobs run and wait.\n",
	.options = options,
	.main = main_report,
};
