/* Makes the program of a job's part on a Slurm node from what the user submitted: the same script
 * with the same variables as elsewhere. */
#ifndef ENGINE_SLURM_SLURM_PROGRAM_H
#define ENGINE_SLURM_SLURM_PROGRAM_H

#include "engine/slurm/slurm.h"

/* The part of a launch that is the same on all nodes. Strings stay the caller's. */
struct slurm_launch {
	const struct sched_spec *spec;
	const char *const *args; /* a command in place of spec's run; NULL-terminated; NULL: none */
	const char *const *env;  /* submitter's variables, "NAME=value"; NULL-terminated; or NULL */
	const char *pawl;        /* path of the program on the nodes */
	const char *cwd;         /* working directory: absolute, on all nodes */
	/* Directory that all nodes see: gets log of the first node, log.node1 and so on of the
	 * others. */
	const char *log_directory;
	const char *task;       /* id of the job, the same over all starts */
	const char *cluster;    /* name of the scheduler */
	const char *hints;      /* file into which the job writes its hints; NULL: none */
	const char *supervisor; /* URL of this job at AdaptDL's supervisor; NULL: none */
	const char *space;      /* namespace of the job there */
	uint32_t attempt;       /* number of earlier starts */
	uint32_t retries;       /* restarts on the node itself, of a job with replicas */
	int64_t grace_ns;       /* time from being told to stop to being killed */
};

/*
 * Fills program for a node; its log and door are to be freed. A job with replicas runs under `pawl
 * run`, with as many ranks on each node as it has replicas there; one with nodes runs its script
 * once on each. PAWL_ENOMEM.
 */
int slurm_program_fill(struct slurm_program *program, const struct slurm_launch *launch,
	const struct slurm_start *start, struct pawl_err *err);

#endif
