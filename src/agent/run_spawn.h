/* Starts a program as a worker: its own process group, dead when its parent is, nothing inherited
 * but what is named. */
#ifndef AGENT_RUN_SPAWN_H
#define AGENT_RUN_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

struct pawl_err;

#define RUN_SPAWN_FDS 5 /* descriptors a program can be given */
#define RUN_NICE                                                                                   \
	5 /* of a program that runs beside the training: at 19 it would never be ready on a busy   \
	     machine */

struct run_program {
	const char *path;       /* of the executable */
	char *const *argv;      /* NULL-terminated */
	char *const *env;       /* NULL-terminated */
	int fds[RUN_SPAWN_FDS]; /* become its 0, 1, 2…; stay the caller's */
	int fds_n;              /* of them, at least 3 */
	bool nice;              /* start at RUN_NICE */
};

/*
 * Forks and executes. The child is in a process group of its own when this returns, gets SIGKILL
 * when the calling thread ends, and has no signal blocked. If the program cannot be executed the
 * child says why on its stderr and exits 127 (not there) or 126. PAWL_EIO when fork fails.
 */
int run_spawn(const struct run_program *program, pid_t *pid, struct pawl_err *err);

/* Whether a process made nice may be made as it was again (by root, or where RLIMIT_NICE allows
 * it): forks a child to try. */
bool run_nice_can_return(void);

#endif
