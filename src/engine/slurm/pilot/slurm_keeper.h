/*
 * The keeper of a part: a process that runs the part's setup, then its program, and then kills all
 * processes that are left. It is a subreaper and adopts what its programs leave behind, so it also
 * finds processes that left the process group or session.
 *
 * The programs' output goes to the part's log (job_log.h), which only the keeper writes.
 *
 * On SIGTERM, the keeper sends SIGTERM to the program's process group. On SIGUSR2, it sends SIGUSR1
 * to the program, which makes a launcher leave its job. On SIGUSR1, which it also gets when its
 * parent dies, it kills everything at once.
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
 * Starts a keeper. Its exit status is the first of setup's and run's that is not 0, in the form of
 * a shell: 128 + signal; 126 and 127 if the program cannot be executed; 125 if the part was not
 * begun (the log has the reason). *started becomes the non-blocking read end of a pipe, which the
 * caller closes: it gets a byte once run starts, and is at its end once nothing of the part is
 * left. The calling process must have only one thread. scratch: a directory to make, which the
 * keeper does not remove; "": none. PAWL_EIO.
 */
int slurm_keeper_start(const struct slurm_program_view *view, const char *scratch,
	char *const *base_env, pid_t *pid, int *started, struct pawl_err *err);

/* Starts the program's scale command in run's environment, with n appended. *pid becomes its
 * process, which the caller waits for. The command dies with this process, and writes to this
 * process's output. PAWL_EIO, PAWL_ENOMEM. */
int slurm_keeper_scale(const struct slurm_program_view *view, char *const *base_env, uint32_t n,
	pid_t *pid, struct pawl_err *err);

/* Kills all children of this process but those in kept. Returns whether there were any. */
bool slurm_keeper_kill_strays(const pid_t *kept, uint32_t kept_n);

#endif
