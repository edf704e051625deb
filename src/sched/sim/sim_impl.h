/* Shared by the simulator's two kinds of clusters, of fixed and of rented nodes: a run's jobs and
 * results. Pure. */
#ifndef SCHED_SIM_SIM_IMPL_H
#define SCHED_SIM_SIM_IMPL_H

#include "sched/sim/sim.h"
#include "sched/sim/sim_job.h"

/* State and totals of one simulated run. */
struct sim_run {
	const struct sched_policy_entry *policy;
	const struct sched_workload *workload;
	const struct sched_setting *setting;
	struct sim_job *jobs; /* all jobs, in order of submission; owned */
	double *solves_s;     /* seconds that each decision took, rounds entries; owned */
	uint32_t rounds, solves_room;
	double gap_sum, gap_max; /* sum and maximum of the known gaps */
	uint32_t gaps;           /* number of decisions whose gap is known */
	/* Totals over all nodes: seconds, seconds of spot nodes, slots times seconds, price. */
	double node_s, spot_s, slot_s, cost;
	uint32_t reclaims; /* nodes that were taken away */
};

/* Sets up the jobs. PAWL_ENOMEM. sim_run_deinit must follow in any case. */
int sim_run_init(struct sim_run *run, struct pawl_err *err);
void sim_run_deinit(struct sim_run *run);
/* Records how long a decision took, and its gap (NaN: not known). PAWL_ENOMEM. */
int sim_run_solved(struct sim_run *run, double seconds, double gap, struct pawl_err *err);
/* Fills results and metrics. PAWL_ENOMEM. */
int sim_run_sum(struct sim_run *run, struct sched_outcome *outcome, struct pawl_err *err);
/* Calls setting->on_change, if there is one, with the job's present replicas and whether it is
 * over. nodes: the names of its replicas' nodes. */
void sim_run_report(const struct sim_run *run, const struct sim_job *job, const char *const *nodes,
	double now_s);

/* Runs the simulation on rented nodes (setting->pools). sched_sim_run has checked the setting. */
int sim_pools_run(struct sim_run *run, struct pawl_err *err);

#endif
