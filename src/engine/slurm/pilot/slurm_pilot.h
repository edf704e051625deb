/*
 * The pilot: a job of Slurm's on one node, in which the scheduler's jobs run. It reads what is
 * wanted from its directory in the spool (slurm_spool.h), and writes there what is.
 *
 * SIGTERM: Slurm ends the pilot; its parts are told, and killed before Slurm would do it. SIGUSR1:
 * notice that this will come. A pilot that cannot see the spool, or cannot write to it, for
 * fence_ns ends at once with all that it runs: by then the engine may have given it up, and its
 * jobs may run elsewhere.
 */
#ifndef ENGINE_SLURM_PILOT_SLURM_PILOT_H
#define ENGINE_SLURM_PILOT_SLURM_PILOT_H

#include <stdint.h>

struct pawl_err;

struct slurm_pilot_options {
	const char *spool;          /* path of the spool; the caller's */
	int64_t fence_ns;           /* SLURM_FENCE_LEAST_S to SLURM_FENCE_MOST_S */
	int64_t kill_wait_ns;       /* time from Slurm's SIGTERM to its SIGKILL */
	int64_t notice_ns;          /* time from SIGUSR1 to the end */
	const char *const *scratch; /* directories for jobs' scratch files: see scratch.h */
	uint32_t scratch_n;         /* number of entries in scratch; 0: TMPDIR, or /tmp */
};

/* Runs the pilot until it has left, in the process's only thread, whose signals it takes.
 * PAWL_EINVAL: the process is not in a Slurm job, or the spool is not this user's; PAWL_EIO and its
 * like: the spool. */
int slurm_pilot_run(const struct slurm_pilot_options *options, struct pawl_err *err);

#endif
