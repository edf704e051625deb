/* pawl top: shows nodes and jobs of a scheduler, and updates them. */
#include "cli/sched/jobs.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "daemon/sched_msg_json.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_MAX_S 86400.0
#define UPDATES_MAX    1000000000u

enum option { DELAY, COUNT, JSON, ROOT };

static const struct cli_option options[] = {
	[DELAY] = {"--delay", 'd', "S", "seconds between updates (2)"},
	[COUNT] = {"--count", 'n', "N", "updates, at most (no limit; 1 without a terminal)"},
	[JSON] = {"--json", 0, NULL, "print one JSON document per update, each on one line"},
	[ROOT] = JOBS_ROOT_OPTION,
	{NULL},
};

/* The command line. */
struct top_args {
	const char *root;
	int64_t interval_ns;
	uint64_t updates; /* number of updates; 0: no limit */
	bool json;
};

static void print_json(const struct sched_msg_node *nodes, uint32_t nodes_n,
	const struct jobs_list *jobs)
{
	json_t *node_list = json_array();
	json_t *job_list = json_array();
	json_t *all;

	for (uint32_t i = 0; i < nodes_n; i++) {
		json_array_append_new(node_list, sched_msg_node_json(&nodes[i]));
	}
	for (uint32_t i = 0; i < jobs->n; i++) {
		json_array_append_new(job_list, sched_msg_job_json(&jobs->jobs[i]));
	}
	all = json_pack("{s:f, s:o, s:o}", "time", (double)clock_wall_ns() / NS_PER_S, "nodes",
		node_list, "jobs", job_list);
	json_dumpf(all, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(all);
	cli_print(stdout, "\n");
}

static void print_text(FILE *to, const struct sched_msg_node *nodes, uint32_t nodes_n,
	const struct jobs_list *jobs)
{
	char when[CLI_TEXT_MAX];
	uint32_t slots = 0;
	uint32_t used = 0;
	uint32_t waiting = 0;
	double goodput = 0;

	for (uint32_t i = 0; i < nodes_n; i++) {
		slots += nodes[i].slots;
		used += nodes[i].used;
	}
	for (uint32_t i = 0; i < jobs->n; i++) {
		waiting += strcmp(jobs->jobs[i].state, "queued") == 0;
		goodput += jobs->jobs[i].goodput;
	}
	cli_print(to, "%s  %u of %u slots used, %u job%s, %u waiting, %.4g samples/s\n\n",
		cli_time(when, clock_wall_ns()), used, slots, jobs->n, jobs->n == 1 ? "" : "s",
		waiting, goodput);
	jobs_print_nodes(to, nodes, nodes_n);
	cli_print(to, "\n");
	jobs_print(to, jobs->jobs, jobs->n);
	cli_print_lines(to, jobs->remark);
}

static uint32_t count_lines(const char *text)
{
	uint32_t n = 0;

	for (const char *end = strchr(text, '\n'); end; end = strchr(end + 1, '\n')) {
		n++;
	}
	return n;
}

/* Returns the bytes of those characters of a line that fit into columns; each counts as one column
 * wide. */
static size_t cut(const char *line, uint32_t columns)
{
	size_t len = 0;

	for (; line[len] != '\0' && line[len] != '\n'; len++) {
		bool begins = ((unsigned char)line[len] & 0xc0) != 0x80;

		if (begins && columns-- == 0) {
			break;
		}
	}
	return len;
}

/* Prints the lines that fit on the terminal, whose last line stays empty. */
static void print_screen(const char *text, const struct winsize *size)
{
	uint32_t lines = count_lines(text);
	uint32_t rows = size->ws_row > 2 ? size->ws_row - 1u : 2;
	uint32_t shown = lines <= rows ? lines : rows - 1;

	printf("\033[H\033[J"); /* go home, and clear the screen */
	for (uint32_t i = 0; i < shown; i++) {
		printf("%.*s\n", (int)cut(text, size->ws_col), text); /* escaped by cli_print */
		text = strchr(text, '\n') + 1;
	}
	if (shown < lines) {
		cli_print(stdout, "… and %u more\n", lines - shown);
	}
}

/* Prints one screen on a terminal. Prints everything elsewhere, and on a terminal of unknown
 * size. */
static int show(const struct sched_msg_node *nodes, uint32_t nodes_n, const struct jobs_list *jobs,
	struct pawl_err *err)
{
	struct winsize size = {0};
	char *text = NULL;
	size_t len_bytes = 0;
	FILE *to;

	if (!isatty(STDOUT_FILENO)) {
		print_text(stdout, nodes, nodes_n, jobs);
		return 0;
	}
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) {
		size.ws_row = USHRT_MAX;
	}
	size.ws_col = size.ws_col > 0 ? size.ws_col : USHRT_MAX;
	to = open_memstream(&text, &len_bytes);
	if (!to) {
		return pawl_err_sys(err, "print");
	}
	print_text(to, nodes, nodes_n, jobs);
	if (fclose(to) != 0) {
		free(text);
		return pawl_err_sys(err, "print");
	}
	print_screen(text, &size);
	free(text);
	return 0;
}

static int print_update(struct sched_client *client, bool json, struct pawl_err *err)
{
	struct sched_msg_node *nodes = NULL;
	struct jobs_list jobs = {0};
	uint32_t nodes_n = 0;
	int rv = jobs_nodes(client, &nodes, &nodes_n, err);

	rv = rv == 0 ? jobs_list(client, false, &jobs, err) : rv;
	if (rv == 0 && json) {
		print_json(nodes, nodes_n, &jobs);
	} else if (rv == 0) {
		rv = show(nodes, nodes_n, &jobs, err);
	}
	if (rv == 0 && fflush(stdout) != 0) {
		rv = pawl_err_sys(err, "write");
	}
	free(nodes);
	free(jobs.jobs);
	return rv;
}

static int watch(const struct cli_command *command, const struct top_args *args)
{
	const struct timespec pause = {args->interval_ns / NS_PER_S, args->interval_ns % NS_PER_S};
	struct sched_client *client = NULL;
	struct pawl_err err;
	int rv = jobs_open(&client, args->root, &err);

	for (uint64_t i = 0; rv == 0 && (args->updates == 0 || i < args->updates); i++) {
		if (i > 0) {
			nanosleep(&pause, NULL);
		}
		rv = print_update(client, args->json, &err);
	}
	sched_client_close(client);
	return rv == 0 ? CLI_OK : cli_fail(command, &err);
}

static int main_top(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct top_args args = {.interval_ns = times_ns(TIME_TOP_EVERY)};
	bool counted = false;
	bool good = true;
	int what;

	while (good && (what = cli_read(&reader)) >= 0) {
		if (what == DELAY) {
			good = cli_seconds(command, "-d", reader.value, INTERVAL_MAX_S,
				&args.interval_ns);
		} else if (what == COUNT) {
			good = cli_number(command, "-n", reader.value, 1, UPDATES_MAX,
				&args.updates);
			counted = true;
		} else if (what == JSON) {
			args.json = true;
		} else {
			args.root = reader.value;
		}
	}
	if (!good) {
		return CLI_USAGE;
	}
	if (what == CLI_ARG) {
		return cli_usage(command, "unexpected argument %s", reader.value);
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	args.updates = counted || isatty(STDOUT_FILENO) ? args.updates : 1;
	return watch(command, &args);
}

const struct cli_command cli_top = {
	.name = "top",
	.args = "",
	.summary = "Watch the scheduler's nodes and jobs",
	.details = NULL,
	.options = options,
	.main = main_top,
};
