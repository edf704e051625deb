/* Finish-time fairness (Mahajan and others, Themis, NSDI 2020): see docs/sim.md. Pure. */
#ifndef SCHED_SIM_FAIR_H
#define SCHED_SIM_FAIR_H

#include "sched/sim/sim.h"

/*
 * Fills rho of results whose end_s and jct_s are set: jct_s over the time that the job would have
 * taken alone on its fair share of the slots. The share is 1 / the average number of jobs that were
 * there while it was. PAWL_ENOMEM.
 */
int sched_fair_fill(struct sched_job_result *results, const struct sched_workload *workload,
	const struct sched_setting *setting, bool adapts, struct pawl_err *err);

#endif
