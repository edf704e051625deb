/*
 * A part of a job on a node: a process that runs its setup, then its program, and lets nothing of
 * it outlive it. It adopts what its programs leave behind (it is a subreaper), so who has left the
 * process group, or has made a session, is ended, too.
 *
 * What its programs print goes to its log (job_log.h), which it alone writes.
 *
 * SIGTERM is passed on to the program. SIGUSR2: the program gets SIGUSR1, by which a launcher
 * leaves its job. SIGUSR1: all ends now. That also comes when its parent dies.
 */
#ifndef SCHED_SLURM_KEEP_H
#define SCHED_SLURM_KEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SLURM_EXIT_NOT_BEGUN 125 /* of one that cannot be started */

struct pawl_err;
struct slurm_words;

/*
 * Starts it. Its exit status is the first one of setup and run that is not 0, as a shell has it
 * (128 + signal; 126, 127: it cannot be run; 125: it was not begun; which the log says). *started
 * becomes the read end of a pipe, not blocking: a byte comes once run does, the end when nothing of
 * it is left. The calling process has one thread. scratch: a directory that is made, empty, and
 * left; "": none. PAWL_EIO.
 */
int slurm_keep(const struct slurm_words *words, const char *scratch, char *const *base_env,
	pid_t *pid, int *started, struct pawl_err *err);

/* Starts the program's scale, with n behind it, in run's environment: the exit status is scale's
 * own. It dies with this process, and its output is this process's. PAWL_EIO, PAWL_ENOMEM. */
int slurm_keep_scale(const struct slurm_words *words, char *const *base_env, uint32_t n, pid_t *pid,
	struct pawl_err *err);

/* Ends all children of this process but those that are kept; returns whether there were any. */
bool slurm_keep_strays(const pid_t *kept, uint32_t kept_n);

#endif
