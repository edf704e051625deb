/*
 * Starts a program by fork and exec: see run_spawn.h.
 *
 * The caller has threads: between fork and exec only async-signal-safe calls are made.
 */
#include "launch/run_spawn.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "launch/run_warm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NOT_EXECUTABLE 126 /* the codes that shells use */
#define EXIT_NOT_FOUND      127
#define FD_ASIDE            16 /* descriptors are moved here first, so that none is overwritten */

_Static_assert(FD_ASIDE >= RUN_SPAWN_FDS, "no descriptor that was moved aside is overwritten");

static void write_stderr(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0) {
		return; /* nowhere left to report it */
	}
}

static _Noreturn void give_up(const char *what, const char *path)
{
	int sys = errno;

	write_stderr("pawl: ");
	write_stderr(what);
	write_stderr(" ");
	write_stderr(path);
	write_stderr(": ");
	write_stderr(strerrordesc_np(sys));
	write_stderr("\n");
	_exit(sys == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static void place_fds(const struct run_program *program)
{
	int aside[RUN_SPAWN_FDS];

	for (int i = 0; i < program->fds_n; i++) {
		aside[i] = fcntl(program->fds[i], F_DUPFD_CLOEXEC, FD_ASIDE);
	}
	for (int i = 0; i < program->fds_n; i++) {
		if (aside[i] < 0 || dup2(aside[i], i) < 0) {
			give_up("give descriptors to", program->path);
		}
	}
	close_range((unsigned)program->fds_n, ~0u, 0);
}

static _Noreturn void exec_program(const struct run_program *program, pid_t parent)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};
	sigset_t none;

	sigemptyset(&none);
	sigaction(SIGPIPE, &plain, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) {
		_exit(EXIT_NOT_EXECUTABLE); /* the parent died before PR_SET_PDEATHSIG was set */
	}
	if (program->nice) {
		setpriority(PRIO_PROCESS, 0, RUN_NICE);
	}
	place_fds(program);
	execve(program->path, program->argv, program->env);
	give_up("run", program->path);
}

int run_spawn(const struct run_program *program, pid_t *pid, struct pawl_err *err)
{
	pid_t parent = getpid();
	pid_t child;

	ASSERT(program->fds_n >= 3 && program->fds_n <= RUN_SPAWN_FDS);
	if (run_warm_spawn(program, pid)) {
		return 0;
	}
	child = FAULT_SYS("run.fork", fork());
	if (child < 0) {
		return pawl_err_sys(err, "start %s: fork", program->path);
	}
	if (child == 0) {
		exec_program(program, parent);
	}
	/* Both parent and child do this, in either order. Fails once the child has executed. */
	setpgid(child, child);
	*pid = child;
	return 0;
}

bool run_nice_can_return(void)
{
	int before = getpriority(PRIO_PROCESS, 0);
	pid_t child = fork();
	int status;

	if (child == 0) {
		setpriority(PRIO_PROCESS, 0, RUN_NICE);
		_exit(setpriority(PRIO_PROCESS, 0, before) == 0 ? 0 : 1);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
		WEXITSTATUS(status) == 0;
}
