/* What a simulator alone knows of a job: for baselines that are told the truth. */
#ifndef SCHED_ORACLE_H
#define SCHED_ORACLE_H

#include "sched/app.h"

#include <stdint.h>

struct sched_oracle {
	const struct sched_app *app; /* the simulator's */
	uint32_t batch;              /* samples of a step that its user chose */
	uint32_t epoch;              /* that it is in, from 0 */
};

#endif
