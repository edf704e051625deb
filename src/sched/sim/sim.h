/*
 * A cluster, its jobs and a policy in virtual time, as Pollux's simulator has them (branch
 * osdi21-artifact of petuum/adaptdl): the published numbers come out of it to the last digit.
 * Pure: time spent is measured by a clock that the caller gives.
 *
 * A round on a fixed cluster: each job steps for interval_s with what it has; then the policy is
 * asked. A job whose list of nodes changed stands still for restart_s, then goes on where it was.
 * Nodes are alike. With pools, time goes from event to event.
 */
#ifndef SCHED_SIM_SIM_H
#define SCHED_SIM_SIM_H

#include "pawl/err.h"
#include "sched/baseline/policies.h"
#include "sched/sim/workload.h"

#include <stdint.h>

#define SIM_SLOTS_MAX (1u << 20)           /* slots of a cluster, at most */
#define SIM_IDLE_S    (7 * 86400.0)        /* seconds that jobs may wait while no job runs */
#define SIM_LAST_S    (10 * 365 * 86400.0) /* seconds of virtual time, at most */

/*
 * A pool: nodes of one kind that can be rented, of setting.slots slots each. A node is paid for
 * from the time when it is asked for until it is given back, or taken away.
 */
struct sched_pool {
	const char *name;     /* at most SIM_POOL_NAME bytes, terminator included */
	uint32_t least, most; /* nodes at once, at least and at most */
	double price;         /* price of a node, per hour */
	double speed;         /* speed of steps, relative to what was measured; over 0 */
	double boot_s;        /* seconds from being asked for to being there */
	bool spot;            /* nodes are taken away, as the next three fields say */
	double life_s;        /* average seconds until taken away (exponentially); 0: never */
	double notice_s;      /* seconds from the announcement until the node is taken away */
	double gap_s;         /* seconds after that in which no node is to be had */
};
#define SIM_POOLS_MAX 8u
#define SIM_POOL_NAME 32u

/* A change: of a node, if job is NULL; else of a job, first reported when it is submitted. Times
 * need not ascend: submissions and ends are reported when the round is over. */
struct sched_sim_change {
	double at_s;
	const char *node; /* name of the node */
	const char *pool; /* name of the node's pool; "": none */
	uint32_t slots;   /* slots of the node; 0: the node is gone */
	double price;     /* price of the node, per hour */
	const struct sched_submission *job;
	uint64_t id;              /* number of the job, from 1, in the order of submission */
	const char *const *nodes; /* name of the node of each of the job's replicas */
	uint32_t replicas;        /* entries in nodes; 0: the job waits, or is over */
	bool over;
};

struct sched_setting {
	uint32_t nodes;    /* at least 1; with pools: the most at once, of all together */
	uint32_t slots;    /* slots of each node, at least 1 */
	double interval_s; /* seconds of a round, over 0 */
	double restart_s;  /* seconds that a change costs a job */
	/* Part of the speed that a job on several nodes loses while another such job is on one of
	 * them; from 0, below 1. */
	double interference;
	uint64_t seed;             /* seed of the policy, and of the errors of hints */
	int64_t (*clock_ns)(void); /* NULL: how long a policy takes is not measured */
	/* Called each simulated hour, with the number of jobs that are done; NULL: not called. */
	void (*on_progress)(void *user, double now_s, uint32_t done);
	void *user;
	double fairness; /* fairness in the policy's view: see sched_view */
	/* Errors in what jobs report, for all their lives. Each part of a step's time is wrong, so
	 * that the throughput reported is between (1 - speed_error) and (1 + speed_error) times the
	 * true one; from 0, below 1. The noise scale is wrong by a factor of up to noise_error, or
	 * one over it. 0: no error. */
	double speed_error, noise_error;
	/* Pools that nodes are rented from, as jobs make use of them: the scheduler's core decides,
	 * with the policy, as in production. pools_n 0: nodes are there, and stay. */
	const struct sched_pool *pools;
	uint32_t pools_n; /* at most SIM_POOLS_MAX */
	double good_use;  /* see core_options */
	/* Called as something changes; NULL: not called. What note points to is good until the call
	 * returns. */
	void (*on_change)(void *user, const struct sched_sim_change *change);
};

/* The results of one job. */
struct sched_job_result {
	double end_s;      /* time at which the job was complete */
	double jct_s;      /* seconds from submission to end_s */
	double rho;        /* finish-time fairness: see docs/sim.md */
	double attained;   /* slots times seconds, time standing still included */
	double lost;       /* part of attained, standing still */
	uint32_t restarts; /* changes of replicas after the first start */
};

/* The results of all jobs. */
struct sched_metrics {
	double jct_avg_s, jct_p50_s, jct_p99_s; /* p99: element floor(0.99 n) of n, ascending */
	double makespan_s;                      /* time from 0 until the last job is complete */
	double rho_avg, rho_p99, rho_max;
	double rho_over_2; /* share of jobs whose rho is over 2 */
	double restarts_per_job;
	double restart_share; /* share of the slots' time that jobs had, standing still */
	double utilisation;   /* share of all slots' time until the makespan that jobs had */
	double cost_h;        /* hours of a slot that jobs had */
	double cost;          /* price of nodes; 1 an hour each where there are no pools */
	double nodes_avg;     /* nodes that were paid for, on average until the makespan */
	double spot_share;    /* share of the nodes paid for that could be taken away */
	double reclaims;      /* nodes that were taken away */
	double solve_p50_s, solve_p99_s, solve_max_s; /* time of a decision; 0: not measured */
	/* Part of its cost that a round's decision may have cost over the least: on average, and at
	 * most; NaN: the policy does not say. */
	double gap_avg, gap_max;
	uint32_t rounds;  /* rounds that the policy decided */
	uint64_t outside; /* times of steps that were asked for outside of what was measured */
};

/* The results of a run. Zeroed, and deinitialised by the caller in any case. */
struct sched_outcome {
	struct sched_job_result *results; /* one for each job, in the workload's order */
	struct sched_metrics metrics;
};

/*
 * Runs the workload. PAWL_ENOMEM; PAWL_ENOTSUP: applications were not measured on such nodes;
 * PAWL_EINVAL: a job asks for more than the cluster has, or the policy gave what is not there;
 * PAWL_ELIMIT: jobs wait for ever; or what the policy fails with.
 */
int sched_sim_run(struct sched_outcome *outcome, const struct sched_policy_entry *policy,
	const struct sched_workload *workload, const struct sched_setting *setting,
	struct pawl_err *err);
void sched_outcome_deinit(struct sched_outcome *outcome);

#endif
