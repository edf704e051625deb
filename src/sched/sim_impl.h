/* What the simulator's clusters have in common, of nodes that are there and of nodes that are
 * rented: their jobs, and what came of them. Pure. */
#ifndef SCHED_SIM_IMPL_H
#define SCHED_SIM_IMPL_H

#include "sched/sim.h"
#include "sched/sim_job.h"

/* A run that is over, or was never begun. */
struct sim_run {
	const struct sched_named *policy;
	const struct sched_workload *workload;
	const struct sched_setting *setting;
	struct sim_job *jobs; /* all, in the order of submission; owned */
	double *solves_s;     /* that decisions took; owned */
	uint32_t rounds, solves_room;
	double gap_sum, gap_max; /* of so many decisions, of which it is known */
	uint32_t gaps;
	/* of all nodes: seconds, those of spot ones; slots times seconds; their price */
	double node_s, spot_s, slot_s, cost;
	uint32_t reclaims; /* nodes that were taken away */
};

/* PAWL_ENOMEM; sim_run_deinit in any case. */
int sim_run_init(struct sim_run *run, struct pawl_err *err);
void sim_run_deinit(struct sim_run *run);
/* Notes what a decision took, and its gap; NaN: not known. PAWL_ENOMEM. */
int sim_run_solved(struct sim_run *run, double seconds, double gap, struct pawl_err *err);
/* Fills lives and metrics. PAWL_ENOMEM. */
int sim_run_sum(struct sim_run *run, struct sched_outcome *outcome, struct pawl_err *err);
/* Tells what the job has now, and whether it is over, if anybody listens. nodes: the names of its
 * replicas' nodes. */
void sim_run_note(const struct sim_run *run, const struct sim_job *job, const char *const *nodes,
	double now_s);

/* Cluster of rented nodes: setting->pools. As sched_sim_run, which checks before. */
int sim_pools_run(struct sim_run *run, struct pawl_err *err);

#endif
