/*
 * The keeper of a part: a process that runs the part's setup, then its program, and lets nothing
 * outlive it. The keeper adopts what its programs leave behind (it is a subreaper), so it also ends
 * processes that have left the process group or made a session.
 *
 * The programs' output goes to the part's log (job_log.h), which the keeper alone writes.
 *
 * SIGTERM is passed on to the program. On SIGUSR2 the program gets SIGUSR1, by which a launcher
 * leaves its job. SIGUSR1, which also comes when the keeper's parent dies, ends all now.
 */
#ifndef ENGINE_SLURM_PILOT_SLURM_KEEPER_H
#define ENGINE_SLURM_PILOT_SLURM_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SLURM_EXIT_NOT_BEGUN 125 /* exit status of a part that cannot be started */

struct pawl_err;
struct slurm_program_view;

/*
 * Starts a keeper. Its exit status is the first one of setup and run that is not 0, as a shell has
 * it (128 + signal; 126, 127: it cannot be run; 125: the part was not begun; the log says why).
 * *started becomes the read end of a pipe, not blocking: a byte comes once run does, the end when
 * nothing of the part is left. The calling process has one thread. scratch: a directory that is
 * made, empty, and left behind; "": none. PAWL_EIO.
 */
int slurm_keeper_start(const struct slurm_program_view *view, const char *scratch,
	char *const *base_env, pid_t *pid, int *started, struct pawl_err *err);

/* Starts the program's scale command, with n appended, in run's environment; the exit status is the
 * command's own. The command dies with this process and writes to this process's output. PAWL_EIO,
 * PAWL_ENOMEM. */
int slurm_keeper_scale(const struct slurm_program_view *view, char *const *base_env, uint32_t n,
	pid_t *pid, struct pawl_err *err);

/* Kills all children of this process but those in kept; returns whether there were any. */
bool slurm_keeper_kill_strays(const pid_t *kept, uint32_t kept_n);

#endif
