/* pawl ls and pawl show: the jobs of a scheduler. */
#include "cli/sched/jobs.h"

#include "base/err.h"
#include "cli/sched/log_end.h"
#include "daemon/sched_msg_json.h"
#include "engine/local/shepherd.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDED_MAX 1000u /* jobs that are over, in a list */

/* ---- requests ---- */

int jobs_open(struct sched_client **client, const char *root, struct pawl_err *err)
{
	char path[PATH_MAX];
	int rv = sched_find_root(root, path, err);

	return rv == 0 ? sched_client_open(client, path, err) : rv;
}

int jobs_select(struct sched_msg_selector *selector, const char *job, struct pawl_err *err)
{
	return snprintf(selector->job, sizeof(selector->job), "%s", job) <
			(int)sizeof(selector->job)
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "JOB is too long: give a job's number or name");
}

int jobs_show(struct sched_client *client, const char *job, struct sched_msg_shown *shown,
	struct pawl_err *err)
{
	struct sched_msg_selector request;
	int rv = jobs_select(&request, job, err);

	return rv == 0 ? sched_client_call(client, SCHED_MSG_SHOW, &request, SCHED_MSG_SHOWN, shown,
				 sizeof(*shown), err)
		       : rv;
}

int jobs_runner(const struct sched_client *client, const struct sched_msg_shown *shown,
	uint32_t *uid, struct pawl_err *err)
{
	int rv = sched_client_peer_uid(client, uid, err);

	if (rv == 0 && *uid == 0) {
		*uid = shown->job.owner;
	}
	return rv;
}

int jobs_list(struct sched_client *client, bool ended, struct jobs_list *list, struct pawl_err *err)
{
	struct sched_msg_list request = {.ended = ended, .most = ENDED_MAX};
	struct sched_msg_jobs reply;
	uint32_t n;
	int rv = sched_client_call(client, SCHED_MSG_LIST, &request, SCHED_MSG_JOBS, &reply,
		sizeof(reply), err);

	if (rv != 0) {
		return rv;
	}
	n = reply.jobs.n;
	*list = (struct jobs_list){.n = n, .left_out = reply.left_out};
	list->jobs = n <= 2 * SCHED_MSG_JOBS_MAX ? calloc(n + 1, sizeof(*list->jobs)) : NULL;
	if (!list->jobs) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u jobs", n);
	}
	frame_rows_read(&reply.jobs, &sched_msg_job_layout, list->jobs);
	snprintf(list->remark, sizeof(list->remark), "%s", reply.remark);
	return 0;
}

int jobs_nodes(struct sched_client *client, struct sched_msg_node **nodes, uint32_t *n,
	struct pawl_err *err)
{
	struct sched_msg_nodes reply;
	int rv = sched_client_call(client, SCHED_MSG_NODES, NULL, SCHED_MSG_NODE_ROWS, &reply,
		sizeof(reply), err);

	if (rv != 0) {
		return rv;
	}
	*n = reply.nodes.n;
	*nodes = *n <= CORE_NODES_MAX ? calloc(*n + 1, sizeof(**nodes)) : NULL;
	if (!*nodes) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u nodes", *n);
	}
	frame_rows_read(&reply.nodes, &sched_msg_node_layout, *nodes);
	return 0;
}

/* ---- pawl ls ---- */

enum ls_option { LS_ALL, LS_JSON, LS_ROOT };

static const struct cli_option ls_options[] = {
	[LS_ALL] = {"--all", 'a', NULL, "include finished jobs, the newest 1000 of them"},
	[LS_JSON] = {"--json", 0, NULL, "print one JSON document"},
	[LS_ROOT] = JOBS_ROOT_OPTION,
	{NULL},
};

/* What the user asked `pawl ls` for. */
struct ls_request {
	const char *root; /* directory of the scheduler; NULL: not given */
	bool all;         /* finished jobs, too */
	bool json;        /* as one JSON document */
};

static int print_list(const struct jobs_list *list, bool json)
{
	json_t *all;

	if (json) {
		all = json_array();
		for (uint32_t i = 0; i < list->n; i++) {
			json_array_append_new(all, sched_msg_job_json(&list->jobs[i]));
		}
		return cli_json(all);
	}
	jobs_print(stdout, list->jobs, list->n);
	if (list->left_out > 0) {
		cli_print(stdout, "… and %u jobs that ended before these\n", list->left_out);
	}
	cli_print_lines(stdout, list->remark);
	return fflush(stdout) == 0 ? CLI_OK : CLI_FAILURE;
}

static int list(const struct cli_command *command, const struct ls_request *request)
{
	struct sched_client *client = NULL;
	struct jobs_list jobs = {0};
	struct pawl_err err;
	int rv = jobs_open(&client, request->root, &err);

	rv = rv == 0 ? jobs_list(client, request->all, &jobs, &err) : rv;
	sched_client_close(client);
	rv = rv == 0 ? print_list(&jobs, request->json) : cli_fail(command, &err);
	free(jobs.jobs);
	return rv;
}

static int main_ls(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct ls_request request = {NULL};
	int what;

	while ((what = cli_read(&reader)) >= 0) {
		request.all = request.all || what == LS_ALL;
		request.json = request.json || what == LS_JSON;
		request.root = what == LS_ROOT ? reader.value : request.root;
	}
	if (what == CLI_ARG) {
		return cli_usage(command, "unexpected argument %s", reader.value);
	}
	return what == CLI_END ? list(command, &request) : cli_read_exit_code(what);
}

const struct cli_command cli_ls = {
	.name = "ls",
	.args = "",
	.summary = "List the scheduler's jobs",
	.details =
		"Each line shows a job's state, the replicas that it has and may have, and its\n"
		"run time. It also shows the time left, if the job reports it, and where the job\n"
		"runs or why it waits.\n",
	.options = ls_options,
	.main = main_ls,
};

/* ---- pawl show ---- */

enum show_option { SHOW_JSON, SHOW_ROOT };

static const struct cli_option show_options[] = {
	[SHOW_JSON] = {"--json", 0, NULL, "print one JSON document"},
	[SHOW_ROOT] = JOBS_ROOT_OPTION,
	{NULL},
};

/* Returns whether the job's last start failed and no other one runs. */
static bool has_failed(const struct sched_msg_job *job)
{
	return strcmp(job->state, "failed") == 0 ||
		(!job->over && job->replicas == 0 && job->failures > 0);
}

/* Returns the name of the signal; NULL: the exit code is not that of a signal. */
static const char *name_signal(int exit_code)
{
	return exit_code > 128 ? sigabbrev_np(exit_code - 128) : NULL;
}

/* Formats an exit code, with what it means to people and shells. */
static const char *explain_exit(char text[CLI_TEXT_MAX], int exit_code)
{
	const char *signal = name_signal(exit_code);

	if (signal) {
		snprintf(text, CLI_TEXT_MAX, "%d (SIG%s)", exit_code, signal);
	} else {
		snprintf(text, CLI_TEXT_MAX, "%d%s", exit_code,
			exit_code == SHEPHERD_EXIT_START ? " (it could not be started)"
				: exit_code == 126       ? " (a command could not be executed)"
				: exit_code == 127       ? " (a command was not found)"
							 : "");
	}
	return text;
}

static int show_json(const struct sched_msg_shown *shown, const char *root, const char *log_end)
{
	const char *signal = name_signal(shown->job.exit_code);
	json_t *all = sched_msg_shown_json(shown);

	json_object_set_new(all, "signal", signal ? json_sprintf("SIG%s", signal) : json_null());
	json_object_set_new(all, "log_end", sched_msg_lines_json(log_end));
	json_object_set_new(all, "history", jobs_history_json(root, shown->job.id));
	return cli_json(all);
}

static void print_end(const struct sched_msg_job *job)
{
	char text[CLI_TEXT_MAX];
	bool itself = strcmp(job->reason, "it ended by itself") == 0;

	cli_print(stdout, "%s: %s%s%s\n", job->state, job->reason, itself ? " with " : "",
		itself ? explain_exit(text, job->exit_code) : "");
}

static void print_log(const struct sched_msg_shown *shown, const char *log_end)
{
	cli_print(stdout, "logs: %s/log%s\n", shown->log_dir,
		log_end[0] != '\0' ? "; the last lines:" : "");
	while (*log_end != '\0') {
		size_t len = strcspn(log_end, "\n");

		cli_print(stdout, "  %.*s\n", (int)len, log_end);
		log_end += len + (log_end[len] == '\n');
	}
}

static int show_text(const struct sched_msg_shown *shown, const char *root, const char *log_end)
{
	const struct sched_msg_job *job = &shown->job;
	char text[CLI_TEXT_MAX];

	cli_print(stdout, "job %llu %s, queue %s, priority %d\n", (unsigned long long)job->id,
		job->name, job->queue[0] != '\0' ? job->queue : "default", job->priority);
	if (job->over) {
		print_end(job);
	} else {
		cli_print_lines(stdout, shown->explanation);
		cli_print_lines(stdout, shown->remark);
		cli_print(stdout, "replicas: %u, of %u to %u\n", job->replicas, job->least,
			job->most);
	}
	if (job->submitted_ns > 0) {
		cli_print(stdout, "submitted: %s\n", cli_time(text, job->submitted_ns));
	}
	cli_print(stdout, "ran: %s", jobs_span(text, job->ran_s));
	cli_print(stdout, ", %u change%s of its replicas, %u failure%s\n", job->restarts,
		job->restarts == 1 ? "" : "s", job->failures, job->failures == 1 ? "" : "s");
	if (has_failed(job) && !job->over) {
		cli_print(stdout, "the last start ended with %s\n",
			explain_exit(text, job->exit_code));
	}
	print_log(shown, log_end);
	jobs_history_print(root, job->id);
	return fflush(stdout) == 0 ? CLI_OK : CLI_FAILURE;
}

static int show(const struct cli_command *command, const char *root, const char *job, bool json)
{
	static struct sched_msg_shown shown;
	char log_end[LOG_END_BYTES + 1] = "";
	struct sched_client *client = NULL;
	struct pawl_err err;
	uint32_t uid = 0;
	int rv = jobs_open(&client, root, &err);

	rv = rv == 0 ? jobs_show(client, job, &shown, &err) : rv;
	if (rv == 0 && has_failed(&shown.job) && jobs_runner(client, &shown, &uid, NULL) == 0) {
		log_end_read(shown.log_dir, uid, log_end, NULL); /* "" if it may not be read */
	}
	sched_client_close(client);
	if (rv != 0) {
		return cli_fail(command, &err);
	}
	return json ? show_json(&shown, root, log_end) : show_text(&shown, root, log_end);
}

static int main_show(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	const char *root = NULL;
	const char *job = NULL;
	bool json = false;
	int what;

	while ((what = cli_read(&reader)) >= CLI_ARG) {
		if (what == CLI_ARG && job) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		job = what == CLI_ARG ? reader.value : job;
		json = json || what == SHOW_JSON;
		root = what == SHOW_ROOT ? reader.value : root;
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	return job ? show(command, root, job, json) : cli_usage(command, "JOB is needed");
}

const struct cli_command cli_show = {
	.name = "show",
	.args = "JOB",
	.summary = "Explain a job's state: where it runs, or why it waits",
	.details =
		"JOB is a number, or a name: the newest job of that name. The output shows the\n"
		"constraint that binds, and the goodput with one replica more or fewer. It also\n"
		"shows the expected end, as far as the job reports it, and the newest changes.\n"
		"For a failed job, it shows the exit code or signal, and the last lines of the\n"
		"log.\n",
	.options = show_options,
	.main = main_show,
};
