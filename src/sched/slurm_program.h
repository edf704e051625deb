/* What a job's part on a Slurm node runs, of what its user submitted: the same script with the same
 * variables as elsewhere. */
#ifndef SCHED_SLURM_PROGRAM_H
#define SCHED_SLURM_PROGRAM_H

#include "sched/slurm.h"

/* What is the same on all nodes. Strings stay the caller's. */
struct slurm_launch {
	const struct sched_spec *spec;
	const char *const
		*words;         /* a command in place of spec's run; NULL-terminated; NULL: none */
	const char *const *env; /* "NAME=value" of the submitter's; NULL-terminated; or NULL */
	const char *pawl;       /* path of the program on the nodes */
	const char *cwd;        /* where it starts: absolute, on all nodes */
	const char *log_directory; /* that all nodes see: log, of others log.node1 … */
	const char *task;          /* id of the job, the same over all starts */
	const char *cluster;       /* what the scheduler calls itself */
	const char *hints;         /* file into which it tells of itself; NULL: none */
	const char *supervisor;    /* what AdaptDL calls so: a URL for this job; NULL: none */
	const char *space;         /* namespace of the job there */
	uint32_t attempt;          /* how often it was started before */
	uint32_t retries;          /* of a job with replicas: starts more on the node itself */
	int64_t grace_ns;          /* from being told to stop to being killed */
};

/*
 * Fills program, whose log and door are to be freed, for a node. A job with replicas runs under
 * `pawl run`, with as many ranks on each node as it has replicas there; one with nodes runs its
 * script once on each. PAWL_ENOMEM.
 */
int slurm_program_fill(struct slurm_program *program, const struct slurm_launch *launch,
	const struct slurm_start *start, struct pawl_err *err);

#endif
