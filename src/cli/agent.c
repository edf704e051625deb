/* pawl agent: the agent alone, as the library starts it for a script that `pawl run` does not
 * supervise. The process that starts it creates its session; this file opens its log. */
#include "agent/agent.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "cli/cli.h"
#include "io/loop.h"
#include "ipc/socket_path.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDLE_MAX_S    86400.0
#define LOG_MAX_BYTES (1 << 20) /* a larger log is truncated at start */

enum option { JOB, SOCKET, IDLE };

static const struct cli_option options[] = {
	[JOB] = {"--job", 0, "ID", "id of the job; required"},
	[SOCKET] = {"--socket", 0, "PATH", "socket to listen on (derived from the id)"},
	[IDLE] = {"--idle", 0, "S", "seconds without workers until it exits (60; 0: never)"},
	{NULL},
};

/* State of the agent's process. */
struct alone {
	struct loop *loop;   /* event loop of the main thread; all other threads are the agent's */
	struct agent *agent; /* the job's agent; owned */
	struct loop_source signals; /* a signalfd */
	struct loop_timer deadline; /* limit for making everything durable, set by a signal */
	int status;                 /* exit code */
};

static void on_drained(void *user, bool ok)
{
	struct alone *alone = user;

	(void)ok; /* the agent has logged what failed */
	loop_stop(alone->loop);
}

static void on_deadline(struct loop_timer *timer)
{
	struct alone *alone = timer->user;

	log_line(LOG_ERROR, "not all that was committed is durable");
	loop_stop(alone->loop);
}

static void on_signal(struct loop_source *source, uint32_t events)
{
	struct alone *alone = source->user;
	int signal = loop_read_signal(source);

	if (signal == 0) {
		return;
	}
	if (alone->status != CLI_OK) {
		loop_stop(alone->loop); /* a second signal */
		return;
	}
	alone->status = 128 + signal;
	loop_timer_start(alone->loop, &alone->deadline,
		clock_mono_ns() + times_ns(TIME_AGENT_STOP));
	agent_drain(alone->agent, on_drained, alone);
}

/* Redirects stdout and stderr to <socket without .sock>.log. */
static int open_log(const char *socket, struct pawl_err *err)
{
	int stem = (int)strlen(socket);
	char path[PATH_MAX];
	struct stat st;
	int fd;

	if (stem > 5 && strcmp(socket + stem - 5, ".sock") == 0) {
		stem -= 5;
	}
	if ((size_t)snprintf(path, sizeof(path), "%.*s.log", stem, socket) >= sizeof(path)) {
		return pawl_err_set(err, PAWL_EINVAL, "socket %s: path too long", socket);
	}
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		return pawl_err_sys(err, "log %s", path);
	}
	if (fstat(fd, &st) == 0 && st.st_size > LOG_MAX_BYTES && ftruncate(fd, 0) != 0) {
		log_line(LOG_WARNING, "log %s cannot be truncated, and grows", path);
	}
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	close(fd);
	return 0;
}

static int take_signals(struct alone *alone, struct pawl_err *err)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	sigaction(SIGPIPE, &ignore, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	return loop_add_signals(alone->loop, &alone->signals, &set, err);
}

/* Runs the agent until it is idle, or a signal stops it. */
static int serve(const struct agent_options *with, struct alone *alone, struct pawl_err *err)
{
	char summary[1024];
	int rv = loop_open(&alone->loop, err);

	if (rv == 0) {
		rv = take_signals(alone, err); /* before threads, which inherit the mask */
	}
	if (rv == 0) {
		rv = agent_open(&alone->agent, alone->loop, with, err);
	}
	if (rv == 0) {
		log_line(LOG_INFO, "job %s: listening on %s", with->job, with->socket);
		rv = loop_run(alone->loop, err);
		log_line(LOG_INFO, "job %s: leaving: %s", with->job,
			agent_summary(alone->agent, summary, sizeof(summary)));
	}
	agent_close(alone->agent);
	if (alone->signals.fd >= 0) {
		close(alone->signals.fd);
	}
	loop_close(alone->loop);
	return rv;
}

static int read_line(struct cli_reader *reader, struct agent_options *with)
{
	int what;

	while ((what = cli_read(reader)) >= 0) {
		if (what == JOB) {
			with->job = reader->value;
		} else if (what == SOCKET) {
			with->socket = reader->value;
		} else if (!cli_seconds(reader->command, "--idle", reader->value, IDLE_MAX_S,
				   &with->idle_exit_ns)) {
			return CLI_BAD;
		}
	}
	if (what == CLI_ARG) {
		cli_usage(reader->command, "unexpected argument %s", reader->value);
		return CLI_BAD;
	}
	if (what == CLI_END && with->job == NULL) {
		cli_usage(reader->command, "--job ID is needed");
		return CLI_BAD;
	}
	return what;
}

static int main_agent(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct agent_options with = {.any_attempt = true,
		.idle_exit_ns = times_ns(TIME_AGENT_IDLE)};
	struct alone alone = {
		.signals = {-1, on_signal, &alone},
		.deadline = {.fired = on_deadline, .user = &alone},
	};
	char socket[PATH_MAX];
	struct pawl_err err;
	int rv = read_line(&reader, &with);

	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	rv = 0;
	if (with.socket == NULL) {
		rv = agent_socket_path(with.job, socket, sizeof(socket), &err);
		with.socket = socket;
	}
	if (rv == 0) {
		rv = open_log(with.socket, &err);
	}
	if (rv == 0) {
		rv = serve(&with, &alone, &err);
	}
	return rv == 0 ? alone.status : cli_fail(command, &err);
}

const struct cli_command cli_agent = {
	.name = "agent",
	.args = "",
	.summary = "Run the agent of a job (the library starts it for plain scripts)",
	.details = "The agent holds checkpoints in memory and writes them out, even after the\n"
		   "script has died. It writes its log beside the socket.\n",
	.options = options,
	.main = main_agent,
};
