/* Rank and job of this process, resolved from the environment that a launcher set. Pure. */
#ifndef PAWL_ENV_H
#define PAWL_ENV_H

#include "pawl/err.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define PAWL_JOB_MAX 128 /* bytes of a job id, terminator included */

struct pawl_env {
	uint32_t rank, world;             /* rank in the job, and number of ranks */
	uint32_t local_rank, local_world; /* rank on this node, and number of ranks on it */
	uint32_t node_rank, nodes;        /* number of this node in the job, and number of nodes */
	uint32_t attempt;                 /* starts of the whole group so far, from 0 */
	char job[PAWL_JOB_MAX];           /* job id; "" if no source names one */
	/* Launcher whose variables state the ranks: "pawl" "torchrun" "skypilot" "slurm"
	 * "kubernetes" "openmpi" "none" (rank 0 of 1). */
	char source[16];
	char job_source[24]; /* variable that named the job; "" if none */
};

/* Looks up a variable, as getenv does. */
typedef const char *pawl_getenv_fn(void *user, const char *name);

/*
 * Resolves the environment. Precedence: PAWL_*, torchrun (RANK …), SkyPilot, Slurm, Kubernetes
 * indexed jobs, Open MPI. The job id and the attempt are each looked up independently, in the same
 * order. Three exceptions: Slurm's variables in a batch script itself, or under mpirun, do not make
 * a task. A Kubernetes index counts only beside PAWL_NNODES. A TORCHELASTIC_RUN_ID of "none" counts
 * as unset; one that is a UUID, which torchrun makes up for each start, is the last resort.
 *
 * PAWL_EINVAL: a variable is no number, or variables contradict each other (rank >= world). The
 * message names variable and value, and *env is unchanged. get NULL: the process's own
 * environment.
 */
int pawl_env_resolve(pawl_getenv_fn *get, void *user, struct pawl_env *env, struct pawl_err *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
