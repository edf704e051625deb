/* The environment variables of a job's setup and run, under the names that SkyPilot uses. Pure. */
#ifndef SCHED_JOBFILE_VARS_H
#define SCHED_JOBFILE_VARS_H

#include "base/wire.h"
#include "sched/jobfile/spec.h"

#include <stdint.h>

enum vars_phase { VARS_SETUP, VARS_RUN };

/* The node on which a job runs, among all of the job's nodes. All strings stay the caller's. */
struct vars_place {
	uint32_t node;                /* rank of this node */
	uint32_t nodes;               /* number of the job's nodes */
	const char *const *addresses; /* address of each node, in the order of ranks */
	uint32_t gpus;                /* GPUs of the job on each node */
	uint64_t job;                 /* number of the job */
	const char *task;             /* id of the job, the same for all its starts */
	const char *cluster;          /* name of the scheduler */
	const char *engine;           /* engine that runs the job: "local", "slurm" */
};

/*
 * Adds the spec's variables, and those that describe where the job runs, as "NAME=value" strings,
 * each with its NUL, as run_vars_merge of launch/env/run_vars.h takes them. Setup gets SkyPilot's
 * names for setup: SKYPILOT_SETUP_NODE_RANK and so on. If the spec has WANDB_RESUME, and no
 * WANDB_RUN_ID, that becomes the job's id. set fails if memory is short.
 */
void vars_put(struct wire_out *set, const struct sched_spec *spec, const struct vars_place *place,
	enum vars_phase phase);

#endif
