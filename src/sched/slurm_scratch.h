/* A pilot's directory for what its jobs write for a while (disk_tier: best), on the fastest of some
 * of its node's. It is locked while the pilot lives: so the next pilot on the node knows which of
 * those that it finds are of dead ones. */
#ifndef SCHED_SLURM_SCRATCH_H
#define SCHED_SLURM_SCRATCH_H

#include <limits.h>
#include <stdint.h>

struct slurm_scratch {
	char path[PATH_MAX]; /* "": there is none */
	int lock;            /* descriptor of it; -1 */
	uint32_t dropped;    /* how many jobs' were */
};

/* Of dirs, n at least 1, those that cannot be used are left out, which is said; all of them: there
 * is none. host: Slurm's name of this node. What dead pilots of that name have left in dirs is
 * removed by a process of its own, a child, which may outlast the call. */
void slurm_scratch_open(struct slurm_scratch *scratch, const char *host, const char *const *dirs,
	uint32_t n);
/* Bytes that are free there, for this user; 0: none, or there is no directory. */
uint64_t slurm_scratch_free(const struct slurm_scratch *scratch);
/* A job's in it, by its path, is not there any more when this returns. What it holds is removed by
 * a process of its own, a child: that may take long, and the job's end is to be told. */
void slurm_scratch_drop(struct slurm_scratch *scratch, const char *path);
/* Removes it. */
void slurm_scratch_close(struct slurm_scratch *scratch);

#endif
