/*
 * Declarations that the files of the policy pollux share: the worth of replicas to a job, and a
 * round as the genetic algorithm sees it.
 *
 * A solution is a matrix of bytes, replicas by job (row) and node (column); rows are filled up with
 * zeros to whole words. Qiao: A. Qiao and others, Pollux: Co-adaptive Cluster Scheduling for
 * Goodput-Optimized Deep Learning, OSDI 2021.
 */
#ifndef SCHED_BASELINE_POLLUX_IMPL_H
#define SCHED_BASELINE_POLLUX_IMPL_H

#include "sched/baseline/nsga.h"
#include "sched/policy/policy.h"

#define POLLUX_NODES_MAX 16u  /* nodes that a job is on, at most */
#define POLLUX_SLOTS_MAX 255u /* slots of a node that are used, at most: a byte's */

/* ---- worth ---- */

/* The best goodputs of a job, each computed at its first use. All zero at first. */
struct pollux_worth {
	uint64_t id;              /* id of the job */
	struct sched_hints hints; /* hints that the goodputs are for */
	uint32_t replicas_max;    /* replicas that goodputs has room for */
	uint32_t fair;            /* replicas that fair_goodput is for; 0: not known */
	double fair_goodput; /* goodput of fair replicas on one node, as in the authors' code */
	/* Owned; by number of replicas, on one node and on several, which are alike in Qiao (10).
	 * Below 0: not computed yet; NULL: none is. */
	double *goodputs;
};

/* Sets the hints, or none (NULL), and the most replicas. Drops goodputs of other hints.
 * PAWL_ENOMEM: nothing is known. */
int pollux_worth_set(struct pollux_worth *worth, const struct sched_hints *hints,
	uint32_t replicas_max, struct pawl_err *err);
void pollux_worth_deinit(struct pollux_worth *worth);
/* Returns the goodput of 1 to replicas_max replicas on one node, or on several; without a fit, the
 * number of replicas. */
double pollux_worth_goodput(struct pollux_worth *worth, bool several, uint32_t replicas);
/* Returns the goodput of a fair share of so many replicas; 0: the job can run nowhere. */
double pollux_worth_fair(struct pollux_worth *worth, uint32_t replicas);

/* ---- a round ---- */

struct pollux_row {
	const struct sched_job *job;
	struct pollux_worth *worth;
	uint32_t least, most; /* replicas, if any */
	bool pinned;          /* the job keeps what it has */
	double per_goodput;   /* 1 / the goodput of the fair share: makes a speedup of a goodput */
	double factor;        /* factor on the speedup, if the job's replicas change */
};

struct pollux_round {
	struct pollux_row *rows; /* owned; in the order in which they are served */
	uint32_t rows_n;
	uint32_t nodes_n;   /* nodes in a row */
	uint32_t row_bytes; /* nodes_n, and zeros up to a whole word */
	double scale;       /* factor on speedups that makes the speedup of a whole node count 1 */
	uint8_t *slots;     /* owned; slots by node */
	uint8_t *base;      /* owned; the present allocation, as a matrix */
	uint8_t *room;      /* scratch in slots; by node: slots that are left */
	uint8_t *taken;     /* scratch in slots; by node: whether a distributed job is on it */
	uint32_t *filled;   /* owned, scratch: nodes of a row */
};

/* The operators of struct nsga_problem; of is a struct pollux_round. */
void pollux_mutate(void *of, struct rng *rng, uint8_t *matrix);
void pollux_repair(void *of, struct rng *rng, uint8_t *matrix);
void pollux_evaluate(void *of, const uint8_t *matrix, double *costs);

#endif
