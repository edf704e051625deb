/*
 * Who gets which replicas: what a policy is told of a cluster and its jobs, and what it answers.
 *
 * The same policies decide in the simulator and in production; neither knows which it is in. They
 * are pure: what they remember between two rounds is in what open() gave, randomness comes of its
 * seed, and time is told. A replica takes one slot (a GPU, or what a node counts in its place).
 */
#ifndef SCHED_POLICY_H
#define SCHED_POLICY_H

#include "pawl/adapt.h"
#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

/* A node that replicas can be on. */
struct sched_node {
	uint32_t slots; /* replicas that it holds; 0: none now (drained, lost, about to go) */
	uint32_t type;  /* of its devices: nodes of one type are alike, below SCHED_TYPES_MAX */
	double price;   /* an hour, in any unit; 0: not known */
};
#define SCHED_TYPES_MAX 8u

/* What a job has told of itself, on one type of nodes: see pawl/adapt.h. */
struct sched_hints {
	bool fitted;           /* perf and noise were told; else only bounds hold */
	struct pawl_perf perf; /* what its steps take */
	struct pawl_noise noise;
	struct pawl_batch_bounds bounds;
	uint32_t replicas_profiled; /* the most that were measured; 0: none */
	double progress;            /* steps of an initial batch that were made */
	double progress_end;        /* and that there will have been at its end; 0: not known */
};

/* A job that is there: submitted, and not over. */
struct sched_job {
	uint64_t id;       /* ascending in the order of submission */
	double age_s;      /* since it was submitted */
	double attained;   /* slots times seconds that it had */
	uint32_t restarts; /* changes of its replicas since its first start */
	uint32_t least;    /* replicas below which it does not run, at least 1 */
	uint32_t most;     /* of its replicas, at least least */
	uint32_t wanted;   /* replicas that its user asked for, for policies that do not choose */
	bool pinned;       /* it keeps what it has while it runs */
	double weight;     /* of its queue or user, 1 mostly */
	double restart_s;  /* what a change of its replicas costs it */
	const struct sched_hints
		*hints[SCHED_TYPES_MAX]; /* by type; NULL: it told none: as on others */
	const uint32_t *nodes;           /* of each replica the node's index, as it is now */
	uint32_t replicas;               /* in nodes; 0: it waits */
	uint32_t types;                  /* bit t: it may be on nodes of type t; 0: on any */
	const void *oracle; /* what only a simulator knows, for baselines that are given it; NULL */
};

struct sched_view {
	double now_s;
	const struct sched_node *nodes;
	uint32_t nodes_n;
	const struct sched_job *jobs; /* in the order of submission */
	uint32_t jobs_n;
	/* How much it counts that nobody has little, for policies that weigh it: the exponent,
	 * with its sign changed, of the mean of speedups. Over 0, at most SCHED_FAIRNESS_MAX; 0
	 * counts as 1, which is Pollux's. */
	double fairness;
};
#define SCHED_FAIRNESS_MAX 16.0

/* What a job is to have. */
struct sched_grant {
	uint32_t *nodes;   /* of each replica the node's index; the caller's, room for all slots */
	uint32_t replicas; /* 0: it waits */
};

/* What a decision was worth. */
struct sched_verdict {
	double cost; /* of the policy's own objective, the less the better; NaN: it has none */
	/* No allocation costs less, of those whose jobs have sizes that the policy looks at (of
	 * pawl: sched/worth.h) on one type of nodes each; NaN: not known. */
	double bound;
};

struct sched_policy {
	const char *name;
	/* NULL: no memory. The policy has none before its first round. */
	void *(*open)(uint64_t seed);
	void (*close)(void *self);
	/*
	 * Decides a round. grants: one a job, in the view's order, zeroed; they fit the nodes'
	 * slots, and each job's least and most. PAWL_ENOMEM: nothing was decided.
	 */
	int (*decide)(void *self, const struct sched_view *view, struct sched_grant *grants,
		struct sched_verdict *verdict, struct pawl_err *err);
	bool keeps; /* who runs does so until it ends, however long others wait */
	bool sizes; /* it chooses how many each has, of types that the job may be on */
};

#endif
