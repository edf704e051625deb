/* A pilot's directory for its jobs' scratch files (disk_tier: best), in the fastest of the given
 * directories of its node. The pilot holds a lock on it while it lives, so the next pilot on the
 * node can find and remove the directories of dead pilots. */
#ifndef ENGINE_SLURM_PILOT_SLURM_SCRATCH_H
#define ENGINE_SLURM_PILOT_SLURM_SCRATCH_H

#include <limits.h>
#include <stdint.h>

struct slurm_scratch {
	char path[PATH_MAX]; /* path of the directory; "": there is none */
	int lock;            /* descriptor that holds the lock; -1: none */
	uint32_t dropped;    /* number of jobs' directories dropped so far */
};

/* Makes a directory in the fastest of n dirs, n at least 1. Logs and skips those that cannot be
 * used; if none can be used, path becomes "". host: Slurm's name of this node. A child process,
 * which may outlive the call, removes the directories that dead pilots of that host have left in
 * dirs. */
void slurm_scratch_open(struct slurm_scratch *scratch, const char *host, const char *const *dirs,
	uint32_t n);
/* Returns the bytes that are free in the directory for this user; 0: none, or no directory. */
uint64_t slurm_scratch_free(const struct slurm_scratch *scratch);
/* Removes a job's directory. Its path is free when this returns; a child process removes the
 * contents, because that may take long and must not delay the report of the job's end. */
void slurm_scratch_drop(struct slurm_scratch *scratch, const char *path);
/* Removes the directory with its contents. */
void slurm_scratch_close(struct slurm_scratch *scratch);

#endif
