/*
 * Policies decide which job gets which replicas: a policy's view of a cluster and its jobs, and the
 * policy's answer.
 *
 * The same policies decide in the simulator and in production, and none knows where it runs. They
 * are pure: their memory between two rounds is what open() returned, randomness comes from the
 * seed, and time is an argument. A replica takes one slot (a GPU, or what a node counts instead).
 */
#ifndef SCHED_POLICY_POLICY_H
#define SCHED_POLICY_POLICY_H

#include "pawl/adapt.h"
#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

/* A node that replicas can be on. */
struct sched_node {
	uint32_t slots; /* replicas that the node can hold; 0: none now (drained, lost, going) */
	uint32_t type; /* type of the devices: nodes of one type are alike; below SCHED_TYPES_MAX */
	double price;  /* price per hour, in any unit; 0: not known */
};
#define SCHED_TYPES_MAX 8u

/* A job's report about itself, on one type of nodes: see pawl/adapt.h. */
struct sched_hints {
	bool fitted;           /* perf and noise are known; else only bounds hold */
	struct pawl_perf perf; /* times of the job's steps */
	struct pawl_noise noise;
	struct pawl_batch_bounds bounds;
	uint32_t replicas_profiled; /* most replicas that were measured; 0: none */
	double progress;            /* steps done so far, as steps of an initial batch */
	double progress_end;        /* progress at the end of the job; 0: not known */
};

/* A job that was submitted and is not over. */
struct sched_job {
	uint64_t id;       /* ascending in the order of submission */
	double age_s;      /* seconds since submission */
	double attained;   /* slots times seconds that the job has had */
	uint32_t restarts; /* changes of replicas since the first start */
	uint32_t least;    /* replicas below which the job does not run, at least 1 */
	uint32_t most;     /* replicas of the job, at most; at least least */
	uint32_t wanted;   /* replicas that the user asked for, for policies that do not choose */
	bool pinned;       /* the job keeps what it has while it runs */
	double weight;     /* weight of the job's queue or user, 1 mostly */
	double restart_s;  /* seconds that a change of replicas costs */
	/* By type; NULL: none reported, and those of other types count. */
	const struct sched_hints *hints[SCHED_TYPES_MAX];
	const uint32_t *nodes; /* index of the node of each replica, as it is now */
	uint32_t replicas;     /* entries in nodes; 0: the job waits */
	uint32_t types;        /* bit t: the job may be on nodes of type t; 0: on any */
	const void *oracle;    /* facts that only a simulator knows, for baselines; NULL: none */
};

struct sched_view {
	double now_s;
	const struct sched_node *nodes;
	uint32_t nodes_n;
	const struct sched_job *jobs; /* in the order of submission */
	uint32_t jobs_n;
	/* Weight of fairness, for policies that have one: the negative exponent of the mean of
	 * speedups. With a higher value, a job falls behind less. Over 0, at most
	 * SCHED_FAIRNESS_MAX; 0 counts as 1, the value of Pollux. */
	double fairness;
};
#define SCHED_FAIRNESS_MAX 16.0

/* The replicas that a job is to have. */
struct sched_grant {
	uint32_t *nodes;   /* index of the node of each replica; the caller's, room for all slots */
	uint32_t replicas; /* entries in nodes; 0: the job waits */
};

/* The worth of a decision. */
struct sched_verdict {
	double cost; /* cost by the policy's own objective, less is better; NaN: it has none */
	/* Lower bound of the cost. It holds for all allocations in which each job is on one type of
	 * nodes, with a size that the policy considers (of pawl: sched/policy/worth.h). NaN: not
	 * known. */
	double bound;
};

struct sched_policy {
	const char *name;
	/* Makes the policy's memory, which is empty before the first round. Returns NULL if memory
	 * is short. If open itself is NULL, the policy keeps no memory. */
	void *(*open)(uint64_t seed);
	void (*close)(void *self);
	/*
	 * Decides a round. grants: one for each job, in the view's order, zeroed; the answer fits
	 * the nodes' slots, and each job's least and most. PAWL_ENOMEM: nothing was decided.
	 */
	int (*decide)(void *self, const struct sched_view *view, struct sched_grant *grants,
		struct sched_verdict *verdict, struct pawl_err *err);
	bool run_to_completion; /* running jobs are never stopped for others */
	bool chooses_sizes; /* the policy chooses each job's replicas, on types that it may use */
};

/* Returns by how much a decision's cost may exceed the least, as a part of its cost; NaN: not
 * known. */
double sched_verdict_gap(const struct sched_verdict *verdict);

extern const struct sched_policy sched_pawl; /* policy_pawl.c */

#endif
