/* Starts a program as a worker: in a process group of its own, killed when its parent ends, with no
 * descriptors but the given ones. */
#ifndef LAUNCH_RUN_SPAWN_H
#define LAUNCH_RUN_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

struct pawl_err;

#define RUN_SPAWN_FDS 5 /* descriptors a program can be given */
#define RUN_NICE                                                                                   \
	5 /* niceness of a program beside the training; at 19 it is never ready on a busy host */

struct run_program {
	const char *path;       /* path of the executable */
	char *const *argv;      /* NULL-terminated */
	char *const *env;       /* NULL-terminated */
	int fds[RUN_SPAWN_FDS]; /* become descriptors 0, 1, 2…; stay the caller's */
	int fds_n;              /* number of fds, at least 3 */
	bool nice;              /* start at RUN_NICE */
};

/*
 * Forks and executes. The child is in a process group of its own when this returns, gets SIGKILL
 * when the calling thread ends, and has no signal blocked. If the program cannot be executed, the
 * child prints the reason to its stderr and exits with 127 (not there) or 126. PAWL_EIO when fork
 * fails.
 */
int run_spawn(const struct run_program *program, pid_t *pid, struct pawl_err *err);

/* Whether a process at RUN_NICE can get its priority back (as root, or where RLIMIT_NICE allows
 * it). Forks a child to try. */
bool run_nice_can_return(void);

#endif
