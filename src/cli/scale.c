/* pawl scale: shows how many ranks a running job has, or asks for more or fewer. */
#include "agent/agent.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "ckpt/format/manifest.h"
#include "cli/cli.h"
#include "ipc/link.h"
#include "ipc/socket_path.h"
#include "launch/run.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MAX_S 86400.0

enum option { WAIT, JSON };

static const struct cli_option options[] = {
	[WAIT] = {"--wait", 0, "S", "wait up to S seconds for the wanted number of ranks"},
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

/* The command line. */
struct scale_args {
	const char *job;
	uint64_t wanted; /* number of ranks; 0: only show it */
	int64_t wait_ns;
	bool json;
};

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
			"no job %s of this user runs on this machine; pawl run prints a job's id",
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

static bool take_arg(const struct cli_command *command, const char *value, struct scale_args *args)
{
	if (args->job == NULL) {
		args->job = value;
		return true;
	}
	if (args->wanted != 0) {
		cli_usage(command, "unexpected argument %s", value);
		return false;
	}
	return cli_number(command, "N", value, 1, RUN_WORKERS_MAX, &args->wanted);
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
		if (what == CLI_ARG) {
			good = take_arg(command, reader.value, &args);
		} else if (what == WAIT) {
			good = cli_seconds(command, "--wait", reader.value, WAIT_MAX_S,
				&args.wait_ns);
		} else {
			args.json = true;
		}
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
	rv = ask(args.job, (uint32_t)args.wanted, &now, &err);
	if (rv == 0 && args.wait_ns > 0) {
		rv = await(&args, &now, &err);
	}
	return rv == 0 ? print(&args, &now) : cli_fail(command, &err);
}

const struct cli_command cli_scale = {
	.name = "scale",
	.args = "JOB [N]",
	.summary = "Change the number of ranks of a running job",
	.details =
		"JOB must run under pawl run --elastic, on this machine, as this user. Ranks of\n"
		"pawl.elastic join and leave between two steps, while the others train on. Any\n"
		"other script saves, and starts again with N ranks. Without N, the command\n"
		"prints how many ranks there are.\n",
	.options = options,
	.main = main_scale,
};
