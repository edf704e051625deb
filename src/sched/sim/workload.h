/* Jobs to simulate, in the order of their submission. */
#ifndef SCHED_SIM_WORKLOAD_H
#define SCHED_SIM_WORKLOAD_H

#include "sched/baseline/app.h"

#include <stdint.h>

#define WORKLOAD_NAME 128u /* bytes of a name, terminator included */

struct sched_submission {
	char name[WORKLOAD_NAME];
	const struct sched_app *app;
	double at_s;       /* time of submission; jobs are in this order */
	uint32_t replicas; /* replicas that the user asked for */
	uint32_t batch;    /* samples of a step, as the user chose */
};

/* Zeroed: no jobs. */
struct sched_workload {
	char name[WORKLOAD_NAME]; /* any name, for reports */
	struct sched_submission *jobs;
	uint32_t n;
};

void sched_workload_deinit(struct sched_workload *workload);

#endif
