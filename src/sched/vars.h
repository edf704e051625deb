/* What a job's setup and run find in their environment, under the names that SkyPilot gives them.
 * Pure. */
#ifndef SCHED_VARS_H
#define SCHED_VARS_H

#include "base/wire.h"
#include "sched/spec.h"

#include <stdint.h>

enum vars_phase { VARS_SETUP, VARS_RUN };

/* Where on what a job runs. All strings stay the caller's. */
struct vars_place {
	uint32_t node;                /* rank of this one */
	uint32_t nodes;               /* of the job */
	const char *const *addresses; /* of each node, in the order of ranks */
	uint32_t gpus;                /* on each node */
	uint64_t job;                 /* number of it */
	const char *task;             /* its id, the same over all its starts */
	const char *cluster;          /* what the scheduler calls itself */
	const char *engine;           /* what runs the job there: "local", "slurm" */
};

/*
 * Adds the spec's variables, and those that say where it runs, as "NAME=value" strings, each with
 * its NUL: what run_vars_merge of agent/run_vars.h takes. Setup's are those that SkyPilot gives to
 * setup: SKYPILOT_SETUP_NODE_RANK and so on. set fails if memory is short.
 */
void vars_put(struct wire_out *set, const struct sched_spec *spec, const struct vars_place *place,
	enum vars_phase phase);

#endif
