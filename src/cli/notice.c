/* pawl notice: tells jobs of this machine that it goes away. */
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "ckpt/format/manifest.h"
#include "cli/cli.h"
#include "ipc/link.h"
#include "ipc/socket_path.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IN_DEFAULT_NS (30 * NS_PER_S) /* the shortest notice that a cloud promises */
#define IN_MAX_S      86400.0
#define JOBS_MAX      64u /* jobs of one user on a machine; others get no notice */

enum option { IN, WAIT };

static const struct cli_option options[] = {
	[IN] = {"--in", 0, "S", "seconds until the machine is gone (30)"},
	[WAIT] = {"--wait", 0, NULL, "until the jobs have ended, or the time is over"},
	{NULL},
};

/* A job that was told. */
struct notified {
	struct link *link;
	char job[CKPT_JOB_MAX];
};

/* The command line, and what was done. */
struct notice_args {
	const char *job; /* NULL: all jobs of this user on this machine */
	int64_t in_ns;   /* time until the machine is gone */
	bool wait;       /* --wait */
	struct notified notified[JOBS_MAX];
	uint32_t notified_n; /* entries in notified */
};

/* Ignores events: link_alive tells whether the job's agent lives. */
static void on_event(void *user, struct link *link, uint16_t type, const union frame_event *event)
{
}

/* Tells the job behind a socket. job: the one that it must be; NULL: any. */
static int notify(struct notice_args *args, const char *socket, const char *job,
	struct pawl_err *err)
{
	struct notified *notified = &args->notified[args->notified_n];
	struct frame_preempt preempt = {.left_ms = (uint32_t)(args->in_ns / NS_PER_MS)};
	struct frame_preempted answer;
	struct link_reply reply = {0};
	struct wire_out out = {NULL};
	int rv = link_open(&notified->link, socket, on_event, NULL, err);

	if (rv != 0) {
		return rv;
	}
	snprintf(preempt.job, sizeof(preempt.job), "%s", job != NULL ? job : "");
	rv = link_call(notified->link, &out, PROTO_PREEMPT, &preempt, times_ms(TIME_NOTICE_REPLY),
		&reply, err);
	if (rv == 0) {
		rv = link_reply_get(&reply, PROTO_PREEMPTED, &answer, sizeof(answer), err);
	}
	if (rv == 0) {
		memcpy(notified->job, answer.job, sizeof(notified->job));
		args->notified_n++;
	} else {
		link_close(notified->link);
	}
	link_reply_deinit(&reply);
	wire_out_deinit(&out);
	return rv;
}

static int notify_one(struct notice_args *args, struct pawl_err *err)
{
	char socket[PATH_MAX];
	int rv = agent_socket_path(args->job, socket, sizeof(socket), err);

	if (rv != 0) {
		return rv;
	}
	if (access(socket, F_OK) != 0) {
		return pawl_err_set(err, PAWL_ENOENT,
			"no job %s of this user runs on this machine; pawl run prints a job's id",
			args->job);
	}
	return notify(args, socket, args->job, err);
}

/* Tells the jobs whose sockets lie in a directory. Agents that were killed have left theirs there,
 * so a socket where nobody answers is none. Returns the last other error. */
static int notify_dir(struct notice_args *args, const char *dir, struct pawl_err *err)
{
	char path[PATH_MAX + NAME_MAX + 2];
	const struct dirent *entry;
	DIR *list = opendir(dir);
	int rv = 0;

	if (list == NULL) {
		return pawl_err_sys(err, "%s", dir);
	}
	while (args->notified_n < JOBS_MAX && (entry = readdir(list)) != NULL) {
		size_t len = strlen(entry->d_name);
		struct pawl_err why;

		if (len < 5 || strcmp(entry->d_name + len - 5, ".sock") != 0) {
			continue;
		}
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (notify(args, path, NULL, &why) != 0 && why.code != PAWL_ENOENT) {
			*err = why;
			rv = why.code;
		}
	}
	closedir(list);
	return rv;
}

static int notify_all(struct notice_args *args, struct pawl_err *err)
{
	char dir[PATH_MAX];
	int rv = agent_socket_path("", dir, sizeof(dir), err);

	if (rv != 0) {
		return rv;
	}
	*strrchr(dir, '/') = '\0';
	rv = notify_dir(args, dir, err);
	if (rv == 0 && args->notified_n == 0) {
		rv = pawl_err_set(err, PAWL_ENOENT, "no job of this user runs on this machine");
	}
	return rv;
}

/* Waits until the jobs have ended. */
static int await(const struct notice_args *args, struct pawl_err *err)
{
	int64_t due_ns = clock_mono_ns() + args->in_ns;

	for (uint32_t i = 0; i < args->notified_n;) {
		if (!link_alive(args->notified[i].link)) {
			i++;
		} else if (clock_mono_ns() >= due_ns) {
			return pawl_err_set(err, PAWL_ETIMEDOUT, "job %s has not ended",
				args->notified[i].job);
		} else {
			times_sleep(TIME_NOTICE_LOOK);
		}
	}
	return 0;
}

static int main_notice(const struct cli_command *command, int argc, char **argv)
{
	static struct notice_args args = {.in_ns = IN_DEFAULT_NS};
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct pawl_err err;
	int waited = 0;
	int what;
	int rv;

	while ((what = cli_read(&reader)) >= CLI_ARG) {
		if (what == IN &&
			!cli_seconds(command, "--in", reader.value, IN_MAX_S, &args.in_ns)) {
			return CLI_USAGE;
		}
		if (what == CLI_ARG && args.job != NULL) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		args.wait = args.wait || what == WAIT;
		args.job = what == CLI_ARG ? reader.value : args.job;
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	rv = args.job != NULL ? notify_one(&args, &err) : notify_all(&args, &err);
	for (uint32_t i = 0; i < args.notified_n; i++) {
		cli_print(stdout, "%s: saves and ends, within %.3g s\n", args.notified[i].job,
			(double)args.in_ns / NS_PER_S);
	}
	if (args.wait) { /* even if one of the jobs gave no answer */
		waited = await(&args, rv == 0 ? &err : NULL);
	}
	for (uint32_t i = 0; i < args.notified_n; i++) {
		link_close(args.notified[i].link);
	}
	return rv == 0 && waited == 0 ? CLI_OK : cli_fail(command, &err);
}

const struct cli_command cli_notice = {
	.name = "notice",
	.args = "[JOB]",
	.summary = "Tell jobs on this machine that it goes away: they save, and end",
	.details =
		"For hooks, for clouds that pawl run --notice does not ask, and for tests. JOB\n"
		"finishes its step, saves, makes that durable, and ends, as after a notice of the\n"
		"cloud: pawl run exits 3 s before the machine is gone, with --preempted-code if\n"
		"it has one. Without JOB, all jobs of this user on this machine do so. Jobs that\n"
		"pawl run did not start are told to save and stop, too.\n",
	.options = options,
	.main = main_notice,
};
