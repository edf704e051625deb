/*
 * A cluster, its jobs and a policy in virtual time, as Pollux's simulator has them (branch
 * osdi21-artifact of petuum/adaptdl): the published numbers come out of it to the last digit.
 * Pure: time spent is measured by a clock that the caller gives.
 *
 * A round: each job steps for interval_s with what it has; then the policy is asked. A job whose
 * list of nodes changed stands still for restart_s, then goes on where it was. Nodes are alike.
 */
#ifndef SCHED_SIM_H
#define SCHED_SIM_H

#include "pawl/err.h"
#include "sched/policies.h"
#include "sched/workload.h"

#include <stdint.h>

#define SIM_SLOTS_MAX (1u << 20)           /* of a cluster */
#define SIM_IDLE_S    (7 * 86400.0)        /* that jobs may wait while nobody runs */
#define SIM_LAST_S    (10 * 365 * 86400.0) /* of virtual time */

struct sched_setting {
	uint32_t nodes;      /* at least 1 */
	uint32_t slots;      /* of each, at least 1 */
	double interval_s;   /* of a round, over 0 */
	double restart_s;    /* that a change costs a job */
	double interference; /* share of its speed that a job on several nodes loses while another
				such one is on one of them; from 0, below 1 */
	uint64_t seed;       /* of the policy, and of what hints are wrong by */
	int64_t (*clock_ns)(void); /* NULL: how long a policy takes is not measured */
	/* Called each simulated hour, with the number of jobs that are done; NULL: not. */
	void (*say)(void *user, double now_s, uint32_t done);
	void *user;
	double fairness; /* that the policy is told: see sched_view */
	/* What jobs tell of themselves is wrong, all their lives: each part of a step's time, so
	 * that the throughput told is between (1 - speed_error) and (1 + speed_error) times what it
	 * is, from 0, below 1; and the noise scale, by a factor of up to noise_error, or one to it;
	 * 0: not. */
	double speed_error, noise_error;
};

/* What came of a job. */
struct sched_life {
	double end_s;      /* when it was complete */
	double jct_s;      /* since it was submitted */
	double rho;        /* finish-time fairness: see docs/sim.md */
	double attained;   /* slots times seconds, those standing still included */
	double lost;       /* of those, standing still */
	uint32_t restarts; /* changes of its replicas after its first start */
};

/* What came of all of them. */
struct sched_metrics {
	double jct_avg_s, jct_p50_s, jct_p99_s; /* p99: element floor(0.99 n) of n, ascending */
	double makespan_s;                      /* until the last is complete, from time 0 */
	double rho_avg, rho_p99, rho_max;
	double rho_over_2; /* share of jobs whose rho is over 2 */
	double restarts_per_job;
	double restart_share; /* of the slots' time that jobs had, standing still */
	double utilisation;   /* share of all slots' time until the makespan that jobs had */
	double cost_h;        /* hours of a slot that jobs had */
	double solve_p50_s, solve_p99_s, solve_max_s; /* of a round's decision; 0: not measured */
	uint32_t rounds;                              /* that the policy decided */
	uint64_t outside; /* steps' times that were asked for outside of what was measured */
};

/* Zeroed, and deinitialised by the caller in any case. */
struct sched_outcome {
	struct sched_life *lives; /* one a job, in the workload's order */
	struct sched_metrics metrics;
};

/*
 * PAWL_ENOMEM; PAWL_ENOTSUP: applications were not measured on such nodes; PAWL_EINVAL: a job asks
 * for more than the cluster has, or the policy gave what is not there; PAWL_ELIMIT: jobs wait for
 * ever; or what the policy fails with.
 */
int sched_sim_run(struct sched_outcome *outcome, const struct sched_named *policy,
	const struct sched_workload *workload, const struct sched_setting *setting,
	struct pawl_err *err);
void sched_outcome_deinit(struct sched_outcome *outcome);

#endif
