/* See command.h. A program has a process group of its own, by which its children are killed. */
#include "io/command.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

int command_collect(int fd, size_t text_max, int64_t end_ns, char **text, struct pawl_err *err)
{
	char *bytes = FAULT_MEM("command.text", malloc(text_max + 2));
	size_t n = 0;
	int rv = 0;

	if (bytes == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu bytes", text_max);
	}
	while (rv == 0 && n <= text_max) {
		struct pollfd poller = {fd, POLLIN, 0};
		int64_t left_ns = end_ns - clock_mono_ns();
		ssize_t got;

		if (end_ns != INT64_MAX &&
			(left_ns <= 0 || poll(&poller, 1, (int)(left_ns / NS_PER_MS) + 1) == 0)) {
			rv = pawl_err_set(err, PAWL_ETIMEDOUT, "it did not end in time");
			continue;
		}
		got = FAULT_SYS("command.read", read(fd, bytes + n, text_max + 1 - n));
		if (got < 0 && errno != EINTR) {
			rv = pawl_err_sys(err, "read");
		} else if (got == 0) {
			break;
		}
		n += got > 0 ? (size_t)got : 0;
	}
	if (rv == 0 && n > text_max) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "more than %zu bytes", text_max);
	}
	if (rv != 0) {
		explicit_bzero(bytes, n);
		free(bytes);
		return rv;
	}
	bytes[n] = '\0';
	*text = bytes;
	return 0;
}

/* Starts a program with its standard output in fd. Returns 0 or an errno. */
static int start(const struct command *command, int fd, pid_t *pid)
{
	char *const *env = command->env != NULL ? (char *const *)command->env : environ;
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int sys;

	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	sys = posix_spawnp(pid, command->argv[0], &actions, &attr, (char *const *)command->argv,
		env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return sys;
}

/* Waits until a program has ended, and kills it and its children at end_ns. Returns its status. */
static int await(pid_t pid, int64_t end_ns)
{
	const struct timespec pause = {0, 10 * NS_PER_MS};
	int status = 0;
	pid_t got;

	while ((got = waitpid(pid, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
		if (clock_mono_ns() >= end_ns) {
			kill(-pid, SIGKILL);
		}
		nanosleep(&pause, NULL);
	}
	return status;
}

int command_run(const struct command *command, char **text, struct pawl_err *err)
{
	int64_t end_ns = clock_mono_ns() + command->limit_ns;
	int fds[2];
	int status;
	pid_t pid;
	int rv;

	if (FAULT_SYS("command.pipe", pipe2(fds, O_CLOEXEC)) != 0) {
		return pawl_err_sys(err, "make a pipe");
	}
	errno = start(command, fds[1], &pid);
	close(fds[1]);
	if (errno != 0) {
		rv = pawl_err_sys(err, "run %s", command->argv[0]);
		close(fds[0]);
		return rv;
	}
	rv = command_collect(fds[0], command->text_max, end_ns, text, err);
	close(fds[0]);
	if (rv != 0) {
		kill(-pid, SIGKILL); /* also children of one that has ended */
	}
	status = await(pid, end_ns);
	if (rv == 0 && status != 0) {
		explicit_bzero(*text, strlen(*text));
		free(*text);
		*text = NULL;
		rv = pawl_err_set(err, PAWL_EIO, "it failed with %s %d",
			WIFSIGNALED(status) ? "signal" : "status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	return rv;
}
