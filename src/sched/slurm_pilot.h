/*
 * The pilot: a job of Slurm's on one node, in which the scheduler's jobs run. It looks into its
 * directory of the spool (slurm_spool.h) for what is wanted, and says there what is.
 *
 * SIGTERM: Slurm ends it; its parts are told, and killed before Slurm would do it. SIGUSR1: notice
 * that this will come. A pilot that cannot see the spool, or not write to it, for fence_ns ends at
 * once with all that it runs: by then it may have been given up, and its jobs run elsewhere.
 */
#ifndef SCHED_SLURM_PILOT_H
#define SCHED_SLURM_PILOT_H

#include <stdint.h>

struct pawl_err;

#define SLURM_FENCE_LEAST_S 2u
#define SLURM_FENCE_MOST_S  3600u

struct slurm_pilot_options {
	const char *spool;          /* the directory; the caller's */
	int64_t fence_ns;           /* SLURM_FENCE_LEAST_S to SLURM_FENCE_MOST_S */
	int64_t kill_wait_ns;       /* from Slurm's SIGTERM to its SIGKILL */
	int64_t notice_ns;          /* from SIGUSR1 to the end */
	const char *const *scratch; /* directories for what jobs write for a while: see scratch.h */
	uint32_t scratch_n;         /* 0: TMPDIR, or /tmp */
};

/* Runs until it has left; in the process's only thread, whose signals it takes. PAWL_EINVAL: it is
 * not in a Slurm job, or the spool is not this user's; PAWL_EIO and its like: the spool. */
int slurm_pilot_run(const struct slurm_pilot_options *options, struct pawl_err *err);

#endif
