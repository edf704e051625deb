/* Facts about a job that only a simulator knows: for baselines that use an oracle. */
#ifndef SCHED_BASELINE_ORACLE_H
#define SCHED_BASELINE_ORACLE_H

#include "sched/baseline/app.h"

#include <stdint.h>

struct sched_oracle {
	const struct sched_app *app; /* the simulator's */
	uint32_t batch;              /* batch size that the user chose: samples of a step */
	uint32_t epoch;              /* epoch that the job is in, from 0 */
};

#endif
