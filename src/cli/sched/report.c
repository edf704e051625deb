/* pawl report: becomes python -m pawl.report, which draws the pictures. With --cluster, it first
 * finds the scheduler's history, and whether the scheduler runs. */
#include "base/err.h"
#include "cli/cli.h"
#include "cli/sched/jobs.h"

#include <limits.h>

enum option { OUT, BESIDE, CLUSTER, ROOT, SINCE, JSON, PYTHON };

/* runs drawn beside another one, at most: a picture cannot distinguish more */
#define BESIDE_MAX 16

static const struct cli_option options[] = {
	[OUT] = {"--out", 'o', "DIR", "directory for report.html and plots, made if missing"},
	[BESIDE] = {"--beside", 0, "ROOT", "another run to draw for comparison; repeatable"},
	[CLUSTER] = {"--cluster", 0, NULL,
		"draw jobs on nodes over time (the scheduler's history)"},
	[ROOT] = {"--root", 0, "DIR", "with --cluster: the scheduler's directory"},
	[SINCE] = {"--since", 0, "TIME",
		"with --cluster: start, e.g. 2d, 12h, 90m or 2026-11-20T12:00"},
	[JSON] = {"--json", 0, NULL, "with --cluster: print figures; draw only with --out"},
	[PYTHON] = {"--python", 0, "PATH", "Python interpreter that has pawl and matplotlib"},
	{NULL},
};

/* The command line. */
struct line {
	const char *root;               /* ROOT */
	const char *out;                /* --out */
	const char *python;             /* --python; NULL: as pawl run finds it */
	const char *sched;              /* --root */
	const char *since;              /* --since */
	const char *beside[BESIDE_MAX]; /* --beside */
	int beside_n;
	bool cluster; /* --cluster */
	bool json;    /* --json */
	bool live;    /* the scheduler answers */
};

/* Checks for options that contradict each other, or are missing. */
static int check_line(const struct cli_command *command, const struct line *line)
{
	if (!line->cluster && (line->sched || line->since || line->json)) {
		return cli_usage(command, "%s is for --cluster",
			line->sched           ? "--root"
				: line->since ? "--since"
					      : "--json");
	}
	if (line->sched && line->root) {
		return cli_usage(command, "--root and %s: give only one of them", line->root);
	}
	if (!line->cluster && (line->root == NULL || line->out == NULL)) {
		return cli_usage(command, "%s is missing",
			line->root == NULL ? "ROOT" : "--out DIR");
	}
	return CLI_END;
}

static bool take_text(struct line *line, int what, const char *text)
{
	switch (what) {
	case OUT:
		line->out = text;
		return true;
	case PYTHON:
		line->python = text;
		return true;
	case ROOT:
		line->sched = text;
		return true;
	case SINCE:
		line->since = text;
		return true;
	default:
		return false;
	}
}

static int read_line(struct cli_reader *reader, struct line *line)
{
	int what;

	while ((what = cli_read(reader)) != CLI_END) {
		if (what < CLI_ARG) {
			return cli_read_exit_code(what);
		}
		if (take_text(line, what, reader->value)) {
			continue;
		}
		if (what == BESIDE) {
			if (line->beside_n == BESIDE_MAX) {
				return cli_usage(reader->command, "--beside %s: at most %d of them",
					reader->value, BESIDE_MAX);
			}
			line->beside[line->beside_n++] = reader->value;
		} else if (what == CLUSTER) {
			line->cluster = true;
		} else if (what == JSON) {
			line->json = true;
		} else if (line->root != NULL) {
			return cli_usage(reader->command, "unexpected argument %s", reader->value);
		} else {
			line->root = reader->value;
		}
	}
	return check_line(reader->command, line);
}

/* Finds the scheduler's history, in path, and whether the scheduler answers. */
static int find_history(struct line *line, char path[PATH_MAX], struct pawl_err *err)
{
	struct sched_client *client = NULL;
	int rv = jobs_history_dir(line->sched, path, err);

	if (rv == 0) {
		line->live = jobs_open(&client, line->sched, NULL) == 0;
		sched_client_close(client);
		line->root = path;
	}
	return rv;
}

/* Becomes the interpreter. Returns only if it cannot be run. */
static int become_python(const struct line *line, struct pawl_err *err)
{
	const char *words[12 + 2 * BESIDE_MAX + 3] = {NULL, "-m", "pawl.report"};
	int n = 3;

	if (line->out) {
		words[n++] = "--out";
		words[n++] = line->out;
	}
	if (line->since) {
		words[n++] = "--since";
		words[n++] = line->since;
	}
	if (line->cluster) {
		words[n++] = "--cluster";
	}
	if (line->live) {
		words[n++] = "--live";
	}
	if (line->json) {
		words[n++] = "--json";
	}
	for (int i = 0; i < line->beside_n; i++) {
		words[n++] = "--beside";
		words[n++] = line->beside[i];
	}
	words[n++] = "--";
	words[n++] = line->root;
	return cli_python_become(line->python, words, err);
}

static int main_report(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct line line = {NULL};
	char history[PATH_MAX];
	struct pawl_err err;
	int rv = read_line(&reader, &line);

	if (rv != CLI_END) {
		return rv;
	}
	if (line.cluster && line.root == NULL && find_history(&line, history, &err) != 0) {
		return cli_fail(command, &err);
	}
	become_python(&line, &err);
	return cli_fail(command, &err);
}

const struct cli_command cli_report = {
	.name = "report",
	.args = "ROOT --out DIR | --cluster [HISTORY]",
	.summary = "Draw a job's checkpoint costs and elastic training, or a cluster",
	.details = "The command reads the history of ROOT, and writes report.html, saves.png and\n"
		   "interval.png. They show stall, throughput, size and level over time, the work\n"
		   "lost at each failure, and the interval between saves that would have cost\n"
		   "least. For an elastic job, training.png shows batch, noise scale, goodput and\n"
		   "ranks over time. The command needs matplotlib.\n"
		   "\n"
		   "--cluster draws the history in the directory of pawl sched, or a file of pawl\n"
		   "sim --report DIR (DIR/*.jsonl). cluster.png and report.html show nodes over\n"
		   "time, coloured by job, and how many jobs run and wait. They go to\n"
		   "cluster-report if --out is not given. --json prints times to completion,\n"
		   "utilisation, cost and restarts, under the names of pawl sim --json.\n",
	.options = options,
	.main = main_report,
};
