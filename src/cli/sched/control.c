/* pawl cancel, pause, resume and drain: requests that a scheduler grants or refuses. */
#include "cli/sched/jobs.h"

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
struct pool_request {
	const char *what; /* the job, or node */
	const char *root;
	bool json;
	bool undo;
};

static int ask(const struct cli_command *command, const struct pool_request *asked,
	enum sched_msg_type type)
{
	struct sched_client *client = NULL;
	struct wire_out *out;
	struct wire_in in;
	struct pawl_err err;
	uint64_t id = 0;
	int rv = jobs_open(&client, asked->root, &err);

	if (rv == 0) {
		out = sched_client_begin(client, type);
		wire_put_str(out, asked->what);
		if (type == SCHED_MSG_DRAIN) {
			wire_put_u8(out, !asked->undo);
		}
		rv = sched_client_end(client, SCHED_MSG_DONE, &in, &err);
		id = rv == 0 ? wire_get_u64(&in) : 0;
	}
	sched_client_close(client);
	if (rv != 0) {
		return cli_fail(command, &err);
	}
	if (asked->json) {
		return cli_json(type == SCHED_MSG_DRAIN
				? json_pack("{s:o, s:b}", "node", cli_json_text(asked->what),
					  "drained", (int)!asked->undo)
				: json_pack("{s:I}", "id", (json_int_t)id));
	}
	return CLI_OK;
}

static int run(const struct cli_command *command, int argc, char **argv, enum sched_msg_type type)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct pool_request asked = {NULL};
	int what;

	while ((what = cli_read(&reader)) >= CLI_ARG) {
		if (what == CLI_ARG && asked.what) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		asked.what = what == CLI_ARG ? reader.value : asked.what;
		asked.root = what == ROOT ? reader.value : asked.root;
		asked.json = asked.json || what == JSON;
		asked.undo = asked.undo || what == UNDO;
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	if (!asked.what) {
		return cli_usage(command, "which %s?", command->args);
	}
	return ask(command, &asked, type);
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
