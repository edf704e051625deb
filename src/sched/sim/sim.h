/*
 * A cluster, its jobs and a policy in virtual time, like Pollux's simulator (branch osdi21-artifact
 * of petuum/adaptdl): it reproduces the published numbers to the last digit. Pure: it measures time
 * by a clock that the caller gives.
 *
 * A round on a fixed cluster: each job steps for interval_s with the replicas that it has; then the
 * policy decides. A job whose list of nodes changes pauses for restart_s, then resumes. All nodes
 * are alike. With pools, time goes from event to event.
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
 * from the request until it is returned, or taken away.
 */
struct sched_pool {
	const char *name;     /* at most SIM_POOL_NAME bytes, terminator included */
	uint32_t least, most; /* nodes at once, at least and at most */
	double price;         /* price of a node, per hour */
	double speed;         /* speed of steps, relative to what was measured; over 0 */
	double boot_s;        /* seconds from the request until the node is there */
	bool spot;            /* nodes are taken away, by the next three fields */
	double life_s;        /* average seconds until taken away (exponentially); 0: never */
	double notice_s;      /* seconds from the announcement until the node is taken away */
	double gap_s;         /* seconds after that in which the pool has no nodes */
};
#define SIM_POOLS_MAX 8u
#define SIM_POOL_NAME 32u

/* A change: of a node, if job is NULL; else of a job, first reported when it is submitted. Times
 * need not ascend: submissions and ends are reported at the end of the round. */
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
	int64_t (*clock_ns)(void); /* measures how long the policy takes; NULL: not measured */
	/* Called each simulated hour, with the number of jobs that are complete; NULL: not
	 * called. */
	void (*on_progress)(void *user, double now_s, uint32_t done);
	void *user;
	double fairness; /* fairness in the policy's view: see sched_view */
	/* Errors in what jobs report, constant for each job. Each part of a step's time has an
	 * error, so that the reported throughput is between (1 - speed_error) and (1 + speed_error)
	 * times the true one; from 0, below 1. The noise scale has an error of a factor of up to
	 * noise_error, or one over it. 0: no error. */
	double speed_error, noise_error;
	/* Pools from which nodes are rented, as jobs can use them. The scheduler's core decides,
	 * with the policy, as in production. pools_n 0: the cluster is fixed. */
	const struct sched_pool *pools;
	uint32_t pools_n; /* at most SIM_POOLS_MAX */
	double good_use;  /* see core_options */
	/* Called for each change; NULL: not called. What change points to is valid until the call
	 * returns. */
	void (*on_change)(void *user, const struct sched_sim_change *change);
};

/* The results of one job. */
struct sched_job_result {
	double end_s;      /* time at which the job was complete */
	double jct_s;      /* seconds from submission to end_s */
	double rho;        /* finish-time fairness: see docs/sim.md */
	double attained;   /* slots times seconds, pauses included */
	double lost;       /* part of attained that was spent in pauses */
	uint32_t restarts; /* changes of replicas after the first start */
};

/* The results of all jobs. */
struct sched_metrics {
	double jct_avg_s, jct_p50_s, jct_p99_s; /* p99: element floor(0.99 n) of n, ascending */
	double makespan_s;                      /* time from 0 until the last job is complete */
	double rho_avg, rho_p99, rho_max;
	double rho_over_2; /* share of jobs whose rho is over 2 */
	double restarts_per_job;
	double restart_share; /* share of the jobs' slot time that was spent in pauses */
	double utilisation;   /* share of all slot time until the makespan that jobs had */
	double cost_h;        /* hours of a slot that jobs had */
	double cost;          /* price of nodes; without pools, 1 an hour each */
	double nodes_avg;     /* nodes paid for, on average until the makespan */
	double spot_share;    /* share of the nodes paid for that could be taken away */
	double reclaims;      /* nodes that were taken away */
	double solve_p50_s, solve_p99_s, solve_max_s; /* time of a decision; 0: not measured */
	/* By how much a decision's cost may exceed the least, as a part of it: on average, and at
	 * most; NaN: the policy does not report it. */
	double gap_avg, gap_max;
	uint32_t rounds;  /* rounds that the policy decided */
	uint64_t outside; /* step times that were needed outside of what was measured */
};

/* The results of a run. Zeroed before; sched_outcome_deinit must follow in any case. */
struct sched_outcome {
	struct sched_job_result *results; /* one for each job, in the workload's order */
	struct sched_metrics metrics;
};

/*
 * Runs the workload. PAWL_ENOMEM; PAWL_ENOTSUP: an application was not measured on such nodes;
 * PAWL_EINVAL: a job asks for more than the cluster has, or the policy granted nodes or slots that
 * do not exist; PAWL_ELIMIT: jobs wait for ever; or an error of the policy.
 */
int sched_sim_run(struct sched_outcome *outcome, const struct sched_policy_entry *policy,
	const struct sched_workload *workload, const struct sched_setting *setting,
	struct pawl_err *err);
void sched_outcome_deinit(struct sched_outcome *outcome);

#endif
