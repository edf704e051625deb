/* Starts an agent for a plain script: see spawn.h. By posix_spawn, since forking a threaded torch
 * by hand is not safe. */
#include "session/spawn.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

extern char **environ;

int spawn_agent(const char *program, const char *job, const char *socket, struct pawl_err *err)
{
	char *argv[] = {(char *)program, (char *)"agent", (char *)"--job", (char *)job,
		(char *)"--socket", (char *)socket, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	pid_t pid;
	int rv;

	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	for (int fd = 0; fd <= 2; fd++) {
		posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
	}
	posix_spawn_file_actions_addclosefrom_np(&files, 3);
	rv = posix_spawn(&pid, program, &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	if (rv != 0) {
		errno = rv;
		return pawl_err_sys(err, "start the agent %s", program);
	}
	return 0;
}

const char *spawn_why_not_detached(void)
{
	if (getpid() == 1) {
		return "this process is PID 1 of its container, which ends with it";
	}
	if (getenv("SLURM_JOB_ID")) {
		return "Slurm ends all processes of a job step with it";
	}
	if (getenv("PAWL_SCHED_JOB")) {
		return "the scheduler ends all processes of a job with it";
	}
	return NULL;
}
