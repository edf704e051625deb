/* pawl scale: how many ranks a job that runs has, and is to have.
 */
#include "agent/agent.h"
#include "agent/link.h"
#include "agent/run.h"
#include "base/err.h"
#include "ckpt/manifest.h"
#include "cli/cli.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS 10000

static const struct cli_option options[] = {{NULL}};

/* An agent that goes away answers nothing, which link_call says. */
static void on_event(void *user, struct proto_frame *frame)
{
}

static int ask(const char *job, uint32_t wanted, struct agent_scale *now, struct pawl_err *err)
{
	struct link_reply reply = {0};
	struct wire_out out = {NULL};
	struct wire_in in;
	char socket[PATH_MAX];
	struct link *link;
	size_t start;
	int rv = agent_socket_path(job, socket, sizeof(socket), err);

	if (rv != 0) {
		return rv;
	}
	if (access(socket, F_OK) != 0) {
		return pawl_err_set(err, PAWL_ENOENT,
			"job %s does not run here, as this user; a job's id is in the lines of its "
			"pawl run",
			job);
	}
	rv = link_open(&link, socket, on_event, NULL, err);
	if (rv != 0) {
		return rv;
	}
	start = link_start(link, &out, PROTO_SCALE);
	wire_put_str(&out, job);
	wire_put_u32(&out, wanted);
	rv = link_call(link, &out, start, ANSWER_MS, &reply, &in, err);
	if (rv == 0) {
		now->alive = wire_get_u32(&in);
		now->wanted = wire_get_u32(&in);
		now->least = wire_get_u32(&in);
		now->most = wire_get_u32(&in);
		rv = wire_in_done(&in) ? 0
				       : pawl_err_set(err, PAWL_ECORRUPT,
						 "job %s: its agent speaks otherwise", job);
	}
	link_reply_deinit(&reply);
	wire_out_deinit(&out);
	link_close(link);
	return rv;
}

static int main_scale(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct agent_scale now = {0};
	struct pawl_err err;
	const char *job = NULL;
	uint64_t wanted = 0;
	bool asked = false;
	int what;

	while ((what = cli_read(&reader)) == CLI_ARG) {
		if (job == NULL) {
			job = reader.value;
		} else if (asked) {
			return cli_usage(command, "%s: one job and one number", reader.value);
		} else if (!cli_number(command, "N", reader.value, 1, RUN_WORKERS_MAX, &wanted)) {
			return CLI_USAGE;
		}
		asked = wanted != 0;
	}
	if (what != CLI_END) {
		return cli_leave(what);
	}
	if (job == NULL) {
		return cli_usage(command, "of which job?");
	}
	if (ask(job, (uint32_t)wanted, &now, &err) != 0) {
		return cli_fail(command, &err);
	}
	printf("%s: %u rank%s, %u wanted, from %u to %u\n", job, now.alive,
		now.alive == 1 ? "" : "s", now.wanted, now.least, now.most);
	return CLI_OK;
}

const struct cli_command cli_scale = {
	.name = "scale",
	.args = "JOB [N]",
	.summary = "Give a job that runs more ranks, or fewer",
	.details = "JOB is one of pawl run --elastic, on this machine, of this user. Ranks of\n"
		   "pawl.elastic join and leave between two steps, while the others train on; "
		   "another\n"
		   "script saves, and starts again with N ranks. Without N it says how many there "
		   "are.\n",
	.options = options,
	.main = main_scale,
};
