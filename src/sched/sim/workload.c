/* Jobs to simulate: see workload.h. Pure. */
#include "sched/sim/workload.h"

#include <stdlib.h>

void sched_workload_deinit(struct sched_workload *workload)
{
	free(workload->jobs);
	*workload = (struct sched_workload){0};
}
