/* pawl cancel, pause, resume and drain: requests to change a job or a node. */
#include "cli/sched/jobs.h"

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum option { JSON, ROOT, UNDO };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[ROOT] = JOBS_ROOT_OPTION,
	{NULL},
};

static const struct cli_option drain_options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[ROOT] = JOBS_ROOT_OPTION,
	[UNDO] = {"--undo", 0, NULL, "let the node take jobs again"},
	{NULL},
};

/* The command line. */
struct control_args {
	const char *what; /* the job, or node */
	const char *root;
	bool json;
	bool undo;
};

/* Sends the request of a command. *job: the number of its job. */
static int send_request(struct sched_client *client, const struct control_args *args,
	enum sched_msg_type type, uint64_t *job, struct pawl_err *err)
{
	union sched_msg_request request = {0};
	struct sched_msg_drain *drain = &request.drain;
	struct sched_msg_done done;
	int rv = 0;

	if (type != SCHED_MSG_DRAIN) {
		rv = jobs_select(&request.selector, args->what, err);
	} else if (snprintf(drain->node, sizeof(drain->node), "%s", args->what) >=
		(int)sizeof(drain->node)) {
		rv = pawl_err_set(err, PAWL_EINVAL, "node %s: a name has at most %u bytes",
			args->what, CORE_NAME_MAX - 1);
	} else {
		drain->drained = !args->undo;
	}
	rv = rv == 0 ? sched_client_call(client, type, &request, SCHED_MSG_DONE, &done,
			       sizeof(done), err)
		     : rv;
	if (rv == 0) {
		*job = done.job;
	}
	return rv;
}

static int control(const struct cli_command *command, const struct control_args *args,
	enum sched_msg_type type)
{
	struct sched_client *client = NULL;
	struct pawl_err err;
	uint64_t id = 0;
	int rv = jobs_open(&client, args->root, &err);

	rv = rv == 0 ? send_request(client, args, type, &id, &err) : rv;
	sched_client_close(client);
	if (rv != 0) {
		return cli_fail(command, &err);
	}
	if (args->json) {
		return cli_json(type == SCHED_MSG_DRAIN
				? json_pack("{s:o, s:b}", "node", cli_json_text(args->what),
					  "drained", (int)!args->undo)
				: json_pack("{s:I}", "id", (json_int_t)id));
	}
	return CLI_OK;
}

static int run(const struct cli_command *command, int argc, char **argv, enum sched_msg_type type)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct control_args args = {NULL};
	int what;

	while ((what = cli_read(&reader)) >= CLI_ARG) {
		if (what == CLI_ARG && args.what) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		args.what = what == CLI_ARG ? reader.value : args.what;
		args.root = what == ROOT ? reader.value : args.root;
		args.json = args.json || what == JSON;
		args.undo = args.undo || what == UNDO;
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	if (!args.what) {
		return cli_usage(command, "%s is needed", command->args);
	}
	return control(command, &args, type);
}

static int main_cancel(const struct cli_command *command, int argc, char **argv)
{
	return run(command, argc, argv, SCHED_MSG_CANCEL);
}

static int main_pause(const struct cli_command *command, int argc, char **argv)
{
	return run(command, argc, argv, SCHED_MSG_PAUSE);
}

static int main_resume(const struct cli_command *command, int argc, char **argv)
{
	return run(command, argc, argv, SCHED_MSG_RESUME);
}

static int main_drain(const struct cli_command *command, int argc, char **argv)
{
	return run(command, argc, argv, SCHED_MSG_DRAIN);
}

const struct cli_command cli_cancel = {
	.name = "cancel",
	.args = "JOB",
	.summary = "Stop a job for good",
	.details = "The job is told to save and exit (SIGTERM), and killed when its grace period\n"
		   "ends. The command returns at once; pawl show reports progress.\n",
	.options = options,
	.main = main_cancel,
};

const struct cli_command cli_pause = {
	.name = "pause",
	.args = "JOB",
	.summary = "Stop a job until it is resumed",
	.details = "The job is told to save and exit, and other jobs get its slots.\n",
	.options = options,
	.main = main_pause,
};

const struct cli_command cli_resume = {
	.name = "resume",
	.args = "JOB",
	.summary = "Let a paused job run again",
	.details = NULL,
	.options = options,
	.main = main_resume,
};

const struct cli_command cli_drain = {
	.name = "drain",
	.args = "NODE",
	.summary = "Move jobs off a node, and start no more there",
	.details = "Jobs that must not be moved (preemptible: false) stay until they end.\n",
	.options = drain_options,
	.main = main_drain,
};
