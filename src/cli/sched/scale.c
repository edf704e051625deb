/* pawl scale: shows how many ranks a job of pawl run has, or asks for more or fewer; changes the
 * bounds and the priority of a job of the scheduler. */
#include "agent/agent.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "ckpt/format/manifest.h"
#include "cli/sched/jobs.h"
#include "ipc/link.h"
#include "ipc/socket_path.h"
#include "launch/run.h"
#include "sched/jobfile/spec.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MAX_S 86400.0

enum option { WAIT, PRIORITY, ROOT, JSON };

static const struct cli_option options[] = {
	[WAIT] = {"--wait", 0, "S", "with N: wait up to S seconds until so many ranks run"},
	[PRIORITY] = {"--priority", 0, "P", "priority of a scheduler's job; higher runs sooner"},
	[ROOT] = JOBS_ROOT_OPTION,
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

/* The command line. */
struct scale_args {
	const char *job;
	const char *root; /* directory of the scheduler; NULL: not given */
	uint64_t wanted;  /* number of ranks of a pawl run; 0: only show it */
	int64_t wait_ns;
	bool json;
	struct sched_msg_scale scale; /* for a job of the scheduler, if anything in it counts */
};

/* ---- a job of pawl run ---- */

/* Ignores events: if the agent goes away, link_call returns the error. */
static void on_event(void *user, struct link *link, uint16_t type, const union frame_event *event)
{
}

static int ask(const char *job, uint32_t wanted, struct agent_scale *now, struct pawl_err *err)
{
	struct link_reply reply = {0};
	struct wire_out out = {NULL};
	struct frame_scale request = {.wanted = wanted};
	struct frame_scaled answer;
	char socket[PATH_MAX];
	struct link *link;
	int rv = agent_socket_path(job, socket, sizeof(socket), err);

	if (rv != 0) {
		return rv;
	}
	if (access(socket, F_OK) != 0) {
		return pawl_err_set(err, PAWL_ENOENT,
			"no job %s of this user runs on this machine; pawl run prints a job's id. "
			"For a job of the scheduler, give MIN:MAX",
			job);
	}
	rv = link_open(&link, socket, on_event, NULL, err);
	if (rv != 0) {
		return rv;
	}
	snprintf(request.job, sizeof(request.job), "%s", job);
	rv = link_call(link, &out, PROTO_SCALE, &request, times_ms(TIME_SCALE_ANSWER), &reply, err);
	if (rv == 0) {
		rv = link_reply_get(&reply, PROTO_SCALED, &answer, sizeof(answer), err);
	}
	if (rv == 0) {
		*now = (struct agent_scale){.alive = answer.alive,
			.wanted = answer.wanted,
			.least = answer.least,
			.most = answer.most};
	}
	link_reply_deinit(&reply);
	wire_out_deinit(&out);
	link_close(link);
	return rv;
}

/* Waits until the wanted number of ranks runs. Ranks join and leave between two steps. */
static int await(const struct scale_args *args, struct agent_scale *now, struct pawl_err *err)
{
	int64_t due_ns = clock_mono_ns() + args->wait_ns;
	int rv = 0;

	while (rv == 0 && now->alive != now->wanted) {
		if (clock_mono_ns() >= due_ns) {
			return pawl_err_set(err, PAWL_ETIMEDOUT,
				"job %s: %u ranks run after %.3g s, %u are wanted", args->job,
				now->alive, (double)args->wait_ns / NS_PER_S, now->wanted);
		}
		times_sleep(TIME_SCALE_LOOK);
		rv = ask(args->job, 0, now, err);
	}
	return rv;
}

static int print(const struct scale_args *args, const struct agent_scale *now)
{
	if (args->json) {
		return cli_json(json_pack("{s:o, s:i, s:i, s:i, s:i}", "job",
			cli_json_text(args->job), "ranks", (int)now->alive, "wanted",
			(int)now->wanted, "least", (int)now->least, "most", (int)now->most));
	}
	cli_print(stdout, "%s: %u rank%s, %u wanted, from %u to %u\n", args->job, now->alive,
		now->alive == 1 ? "" : "s", now->wanted, now->least, now->most);
	return CLI_OK;
}

/* ---- a job of the scheduler ---- */

static int print_job(const struct scale_args *args, const struct sched_msg_job *job)
{
	if (args->json) {
		return cli_json(json_pack("{s:I, s:o, s:s, s:i, s:i, s:i, s:i}", "id",
			(json_int_t)job->id, "name", cli_json_text(job->name), "state", job->state,
			"replicas", (int)job->replicas, "least", (int)job->least, "most",
			(int)job->most, "priority", (int)job->priority));
	}
	cli_print(stdout, "%llu %s: %s, %u replica%s, from %u to %u, priority %d\n",
		(unsigned long long)job->id, job->name, job->state, job->replicas,
		job->replicas == 1 ? "" : "s", job->least, job->most, job->priority);
	return CLI_OK;
}

/* Changes the job, and gets what it is then. */
static int change(const struct scale_args *args, struct sched_msg_shown *shown,
	struct pawl_err *err)
{
	struct sched_client *client = NULL;
	struct sched_msg_selector selector;
	struct sched_msg_scale request = args->scale;
	struct sched_msg_done done;
	int rv = jobs_select(&selector, args->job, err);

	rv = rv == 0 ? jobs_open(&client, args->root, err) : rv;
	if (rv == 0) {
		memcpy(request.job, selector.job, sizeof(request.job));
		rv = sched_client_call(client, SCHED_MSG_SCALE, &request, SCHED_MSG_DONE, &done,
			sizeof(done), err);
	}
	if (rv == 0) { /* a number, since there may be a newer job of that name */
		snprintf(selector.job, sizeof(selector.job), "%llu", (unsigned long long)done.job);
		rv = jobs_show(client, selector.job, shown, err);
	}
	sched_client_close(client);
	return rv;
}

static int scale_job(const struct cli_command *command, const struct scale_args *args)
{
	struct sched_msg_shown shown;
	struct pawl_err err;
	int rv;

	if (args->wait_ns > 0 || args->wanted != 0) {
		return cli_usage(command,
			args->wanted != 0 ? "a job of the scheduler has MIN:MAX, two numbers"
					  : "--wait is for jobs of pawl run");
	}
	rv = change(args, &shown, &err);
	return rv == 0 ? print_job(args, &shown.job) : cli_fail(command, &err);
}

/* ---- the command line ---- */

/* Reads MIN:MAX. */
static bool take_range(const struct cli_command *command, const char *value,
	struct sched_msg_scale *scale)
{
	size_t len = strcspn(value, ":");
	uint64_t least;
	uint64_t most;
	char min[16];

	if (len >= sizeof(min)) {
		cli_usage(command, "MIN:MAX %s: two numbers are needed", value);
		return false;
	}
	snprintf(min, sizeof(min), "%.*s", (int)len, value);
	if (!cli_number(command, "MIN", min, 1, CORE_MOST_MAX, &least) ||
		!cli_number(command, "MAX", value + len + 1, least, CORE_MOST_MAX, &most)) {
		return false;
	}
	scale->sized = true;
	scale->least = (uint32_t)least;
	scale->most = (uint32_t)most;
	return true;
}

static bool take_priority(const struct cli_command *command, const char *value,
	struct sched_msg_scale *scale)
{
	char *end;
	long number = strtol(value, &end, 10); /* an overflow is far out of range */

	if (end == value || *end != '\0' || number < -SPEC_PRIORITY_MAX ||
		number > SPEC_PRIORITY_MAX) {
		cli_usage(command, "--priority %s: a whole number from -%d to %d is needed", value,
			SPEC_PRIORITY_MAX, SPEC_PRIORITY_MAX);
		return false;
	}
	scale->prioritized = true;
	scale->priority = (int32_t)number;
	return true;
}

static bool take_arg(const struct cli_command *command, const char *value, struct scale_args *args)
{
	if (args->job == NULL) {
		args->job = value;
		return true;
	}
	if (args->wanted != 0 || args->scale.sized) {
		cli_usage(command, "unexpected argument %s", value);
		return false;
	}
	if (strchr(value, ':')) {
		return take_range(command, value, &args->scale);
	}
	return cli_number(command, "N", value, 1, RUN_WORKERS_MAX, &args->wanted);
}

static bool take(const struct cli_command *command, int what, const char *value,
	struct scale_args *args)
{
	switch (what) {
	case CLI_ARG:
		return take_arg(command, value, args);
	case WAIT:
		return cli_seconds(command, "--wait", value, WAIT_MAX_S, &args->wait_ns);
	case PRIORITY:
		return take_priority(command, value, &args->scale);
	case ROOT:
		args->root = value;
		return true;
	default:
		args->json = true;
		return true;
	}
}

static int main_scale(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct agent_scale now = {0};
	struct pawl_err err;
	struct scale_args args = {NULL};
	bool good = true;
	int what;
	int rv;

	while (good && (what = cli_read(&reader)) >= CLI_ARG) {
		good = take(command, what, reader.value, &args);
	}
	if (!good) {
		return CLI_USAGE;
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	if (args.job == NULL) {
		return cli_usage(command, "JOB is needed");
	}
	if (args.scale.sized || args.scale.prioritized) {
		return scale_job(command, &args);
	}
	if (args.root) {
		return cli_usage(command, "--root is for MIN:MAX and --priority");
	}
	rv = ask(args.job, (uint32_t)args.wanted, &now, &err);
	if (rv == 0 && args.wait_ns > 0) {
		rv = await(&args, &now, &err);
	}
	return rv == 0 ? print(&args, &now) : cli_fail(command, &err);
}

const struct cli_command cli_scale = {
	.name = "scale",
	.args = "JOB [N | MIN:MAX]",
	.summary = "Change the number of ranks of a job, or the bounds of a scheduler's",
	.details =
		"With N, JOB must run under pawl run --elastic, on this machine, as this user.\n"
		"Ranks of pawl.elastic join and leave between two steps, while the others train\n"
		"on. Any other script saves, and starts again with N ranks. Without N, the\n"
		"command prints how many ranks there are.\n"
		"\n"
		"With MIN:MAX or --priority, JOB is the number or name of a job of the scheduler\n"
		"(pawl ls) that is not over. Its next decision follows the new bounds: a job\n"
		"with more than MAX replicas gives some up, one with fewer than MIN gets more,\n"
		"or waits for them. MIN:MAX needs a job that was submitted with replicas.\n",
	.options = options,
	.main = main_scale,
};
