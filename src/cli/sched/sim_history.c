/* The history that pawl sim --report keeps of a run, and its picture: docs/format.md describes the
 * rows. */
#include "base/err.h"
#include "cli/cli.h"
#include "cli/sched/sim.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define VERSION 2

struct sim_history {
	FILE *file;
	bool failed; /* a row was not made, or not written */
};

static void write_row(struct sim_history *history, json_t *row)
{
	history->failed |= row == NULL || json_dumpf(row, history->file, JSON_COMPACT) != 0 ||
		fputc('\n', history->file) == EOF;
	json_decref(row);
}

static json_t *count_nodes(const struct sched_sim_change *change)
{
	json_t *at = json_object();

	for (uint32_t i = 0; i < change->replicas; i++) {
		json_t *known = json_object_get(at, change->nodes[i]);

		json_object_set_new(at, change->nodes[i],
			json_integer(json_integer_value(known) + 1));
	}
	return at;
}

void sim_history_add(struct sim_history *history, const struct sched_sim_change *change)
{
	json_t *row;

	if (change->job == NULL) {
		row = json_pack("{s:f,s:s,s:s,s:i,s:f}", "t", change->at_s, "node", change->node,
			"pool", change->pool, "slots", (int)change->slots, "price", change->price);
	} else {
		row = json_pack("{s:f,s:I,s:o,s:s,s:o}", "t", change->at_s, "job",
			(json_int_t)change->id, "name", cli_json_text(change->job->name), "kind",
			change->job->app->name, "at", count_nodes(change));
		if (row && change->over) {
			json_object_set_new(row, "end", json_string("done"));
		}
	}
	write_row(history, row);
}

/* Names the file DIR/WORKLOAD-POLICY.jsonl, with dashes for slashes after DIR/. */
static int name_file(char *path, size_t room, const char *dir, const char *workload,
	const char *policy, struct pawl_err *err)
{
	size_t from = strlen(dir) + 1;

	if (snprintf(path, room, "%s/%s-%s.jsonl", dir, workload, policy) >= (int)room) {
		return pawl_err_set(err, PAWL_EINVAL, "--report %s: the path is too long", dir);
	}
	for (char *c = path + from; *c != '\0'; c++) {
		if (*c == '/') {
			*c = '-';
		}
	}
	return 0;
}

int sim_history_open(struct sim_history **out, char *path, size_t room, const char *dir,
	const char *workload, const char *policy, struct pawl_err *err)
{
	struct sim_history *history;
	char name[WORKLOAD_NAME + 32];
	int rv = name_file(path, room, dir, workload, policy, err);

	if (rv != 0) {
		return rv;
	}
	if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "make %s", dir);
	}
	history = calloc(1, sizeof(*history));
	if (history == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	history->file = fopen(path, "we");
	if (history->file == NULL) {
		rv = pawl_err_sys(err, "write %s", path);
		free(history);
		return rv;
	}
	snprintf(name, sizeof(name), "%s, %s", workload, policy);
	write_row(history,
		json_pack("{s:i,s:o,s:b}", "cluster", VERSION, "name", cli_json_text(name),
			"virtual", 1));
	*out = history;
	return 0;
}

int sim_history_close(struct sim_history *history, const char *path, struct pawl_err *err)
{
	bool failed = history->failed;

	errno = 0;
	failed |= fclose(history->file) != 0;
	free(history);
	return failed ? pawl_err_set(err, PAWL_EIO, "write %s: %s", path,
				errno ? strerror(errno) : "a row was not written")
		      : 0;
}

int sim_history_draw(char paths[][PATH_MAX], uint32_t n, const char *dir, const char *named,
	struct pawl_err *err)
{
	const char *words[7 + 2 * SIM_HISTORIES_MAX + 1] = {NULL, "-m", "pawl.report", "--cluster",
		"--out", dir};
	uint32_t count = 6;

	for (uint32_t i = 1; i < n; i++) {
		words[count++] = "--beside";
		words[count++] = paths[i];
	}
	words[count++] = paths[0];
	return cli_python_become(named, words, err);
}
