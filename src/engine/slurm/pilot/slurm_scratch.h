/* A pilot's directory for its jobs' scratch files (disk_tier: best), in the fastest of some
 * directories of its node. The pilot locks it while it lives, so the next pilot on the node knows
 * which directories belong to dead ones. */
#ifndef ENGINE_SLURM_PILOT_SLURM_SCRATCH_H
#define ENGINE_SLURM_PILOT_SLURM_SCRATCH_H

#include <limits.h>
#include <stdint.h>

struct slurm_scratch {
	char path[PATH_MAX]; /* path of the directory; "": there is none */
	int lock;            /* descriptor that holds the lock; -1: none */
	uint32_t dropped;    /* number of jobs' directories that were dropped */
};

/* Makes a directory in the fastest of dirs, n at least 1. Those that cannot be used are left out,
 * which is logged; if none can, there is no directory. host: Slurm's name of this node. A child
 * process, which may outlast the call, removes what dead pilots of that name have left in dirs. */
void slurm_scratch_open(struct slurm_scratch *scratch, const char *host, const char *const *dirs,
	uint32_t n);
/* Returns the bytes that are free there for this user; 0: none, or there is no directory. */
uint64_t slurm_scratch_free(const struct slurm_scratch *scratch);
/* Removes a job's directory by its path, which is gone when this returns. A child process removes
 * the content: that may take long, and the job's end is to be told. */
void slurm_scratch_drop(struct slurm_scratch *scratch, const char *path);
/* Removes the directory. */
void slurm_scratch_close(struct slurm_scratch *scratch);

#endif
