/*
 * A cluster, its jobs and a policy in virtual time, as Pollux's simulator has them (branch
 * osdi21-artifact of petuum/adaptdl): the published numbers come out of it to the last digit.
 * Pure: time spent is measured by a clock that the caller gives.
 *
 * A round, of nodes that are there: each job steps for interval_s with what it has; then the policy
 * is asked. A job whose list of nodes changed stands still for restart_s, then goes on where it
 * was. Nodes are alike. With pools time goes from event to event.
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

/*
 * Nodes of one kind that can be rented, setting.slots of slots each. Paid is from when they are
 * asked for until they are given back, or taken away.
 */
struct sched_pool {
	const char *name;     /* of at most SIM_POOL_NAME bytes, terminator included */
	uint32_t least, most; /* of them at once */
	double price;         /* of a node, an hour */
	double speed;         /* of steps, to what was measured; over 0 */
	double boot_s;        /* from being asked for to being there */
	bool spot;            /* they are taken away: */
	double life_s;        /* after so long, on average (exponentially); 0: never */
	double notice_s;      /* announced so long before */
	double gap_s;         /* and for so long after there is none to be had */
};
#define SIM_POOLS_MAX 8u
#define SIM_POOL_NAME 32u

/* Something that has changed: of a node, if job is NULL; else of a job, told first as it is
 * submitted. Times need not ascend: that, and an end, are
 * told when the round is over. */
struct sched_note {
	double at_s;
	const char *node; /* its name */
	const char *pool; /* its name; "": none */
	uint32_t slots;   /* of it; 0: it is gone */
	double price;     /* of it, an hour */
	const struct sched_submission *job;
	uint64_t id;              /* of the job, from 1, in the order of submission */
	const char *const *nodes; /* of each of its replicas, the name of the node */
	uint32_t replicas;        /* 0: it waits, or is over */
	bool over;
};

struct sched_setting {
	uint32_t nodes;      /* at least 1; of pools, the most at once, of all together */
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
	/* Nodes are rented from these, as jobs make use of them: who decides is the scheduler's
	 * core, with the policy, as in production. pools_n 0: nodes are there, and stay. */
	const struct sched_pool *pools;
	uint32_t pools_n; /* at most SIM_POOLS_MAX */
	double good_use;  /* see core_options */
	/* Called as something changes; NULL: not. What note points to is good until it returns. */
	void (*note)(void *user, const struct sched_note *note);
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
	double cost;          /* of nodes: their price; 1 an hour where there are no pools */
	double nodes_avg;     /* that were paid for, until the makespan */
	double spot_share;    /* of those, that could be taken away */
	double reclaims;      /* nodes that were */
	double solve_p50_s, solve_p99_s, solve_max_s; /* of a round's decision; 0: not measured */
	/* What a round's decision may have cost over the least, as a part of its cost: on average,
	 * and at most; NaN: the policy does not say. */
	double gap_avg, gap_max;
	uint32_t rounds;  /* that the policy decided */
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
