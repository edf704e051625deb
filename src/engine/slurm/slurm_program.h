/* Makes the program of a job's part on a Slurm node from the user's submission. Script and
 * variables are the same as in the engine local. */
#ifndef ENGINE_SLURM_SLURM_PROGRAM_H
#define ENGINE_SLURM_SLURM_PROGRAM_H

#include "engine/slurm/slurm.h"

/* What is the same on all nodes of a job. The caller owns the strings. */
struct slurm_launch {
	const struct sched_spec *spec;
	const char *const *args; /* a command in place of spec's run; NULL-terminated; NULL: none */
	const char *const *env;  /* submitter's variables, "NAME=value"; NULL-terminated; or NULL */
	const char *pawl;        /* path of the program on the nodes */
	const char *home;        /* home directory of the job's user there; NULL: not known */
	const char *cwd;         /* working directory: absolute, on all nodes */
	/* Directory that all nodes see. Gets the file log of the first node, log.node1 and so on of
	 * the others. */
	const char *log_directory;
	const char *task;       /* id of the job, the same over all starts */
	const char *cluster;    /* name of the scheduler */
	const char *hints;      /* file to which the job writes its hints; NULL: none */
	const char *supervisor; /* URL of this job at the scheduler, for AdaptDL; NULL: none */
	const char *space;      /* namespace of the job at supervisor */
	uint32_t attempt;       /* number of earlier starts */
	uint32_t retries;       /* restarts by `pawl run` on the node, for a job with replicas */
	int64_t grace_ns;       /* time from SIGTERM to SIGKILL */
};

/*
 * Fills program for a node. The caller frees its log, its membership_path and its lists. A job with
 * replicas runs under `pawl run`, with one rank per replica of the node. A job with num_nodes runs
 * its script once per node. PAWL_ENOMEM.
 */
int slurm_program_fill(struct slurm_program *program, const struct slurm_launch *launch,
	const struct slurm_start *start, struct pawl_err *err);

#endif
