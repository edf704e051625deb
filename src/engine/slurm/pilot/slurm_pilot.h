/*
 * The pilot: a job of Slurm's on one node, in which the scheduler's jobs run. It reads want from
 * its directory in the spool (slurm_spool.h), and writes have there.
 *
 * SIGTERM: Slurm ends the pilot. The pilot stops its parts, and kills them before Slurm would.
 * SIGUSR1: notice that SIGTERM will follow. A pilot that cannot read the spool, or cannot write to
 * it, for fence_ns ends at once with all its parts. By then the engine may have given it up, and
 * its jobs may run elsewhere.
 */
#ifndef ENGINE_SLURM_PILOT_SLURM_PILOT_H
#define ENGINE_SLURM_PILOT_SLURM_PILOT_H

#include <stdint.h>

struct pawl_err;

struct slurm_pilot_options {
	const char *spool;          /* path of the spool; the caller's */
	int64_t fence_ns;           /* SLURM_FENCE_LEAST_S to SLURM_FENCE_MOST_S */
	int64_t kill_wait_ns;       /* time from Slurm's SIGTERM to its SIGKILL */
	int64_t notice_ns;          /* time from SIGUSR1 to SIGTERM */
	const char *const *scratch; /* directories for jobs' scratch files (scratch.h) */
	uint32_t scratch_n;         /* number of entries in scratch; 0: TMPDIR, or /tmp */
};

/* Runs the pilot to its end, in the only thread of the process, and handles the process's signals.
 * PAWL_EINVAL: the process is not in a Slurm job, or others can access the spool; PAWL_EIO and
 * other errors of the spool. */
int slurm_pilot_run(const struct slurm_pilot_options *options, struct pawl_err *err);

#endif
