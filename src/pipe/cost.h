/*
 * A model as a chain: units in order of execution, to be cut into parts, one for each chunk. Pure.
 *
 * Units that visit another stage are not in the chain. Their time and memory count for the unit
 * that they visit, and the cuts beside them cost nothing more: what they send is paid in any case.
 */
#ifndef PIPE_COST_H
#define PIPE_COST_H

#include "pawl/pipe.h"

#define PIPE_INFINITE (__builtin_inf())

/* Two units of a tied set with none of it between them: in one part, their parameters count
 * once. */
struct pipe_shared {
	uint32_t before;    /* position of the first of the two */
	uint32_t at;        /* position of the second */
	uint64_t len_bytes; /* state of the shared parameters */
};

/* A run of positions that is to be found: its place and its limits. */
struct pipe_part {
	uint32_t stage;     /* stage that computes the part */
	double speed;       /* speed of the stage */
	uint64_t cap_bytes; /* memory of the part, or PAWL_PIPE_NO_CAP */
	uint32_t live;      /* microbatches whose activations are kept at once */
	uint32_t end_least; /* least position after the part */
	uint32_t end_most;  /* largest position after the part */
};

/* Positions are 0 .. n - 1. An array of n + 1 prefix sums has at i what is before position i. */
struct pipe_chain {
	uint32_t n;          /* number of positions */
	uint32_t *unit;      /* n: index of the unit at each position */
	uint32_t *wanted;    /* n: stage that the unit or one that visits it is wanted on, or any */
	double *cost;        /* n + 1: prefix sums of what a part has of the value */
	double *cut;         /* n + 1: cost for the parts on both sides of a cut */
	double *link;        /* n + 1: least value of a plan that cuts there */
	uint64_t *cut_bytes; /* n + 1: bytes that a cut there sends */
	uint64_t *state;     /* n + 1: prefix sums of bytes of parameters and state */
	uint64_t *saved;     /* n + 1: prefix sums of bytes of one microbatch */
	uint32_t *begins;    /* n + 1: a part that ends there begins before this */
	double cost_max;     /* largest cost of one unit */
	uint64_t cut_bytes_max;             /* largest of cut_bytes */
	bool even;                          /* no cut costs anything, and a part may be any run */
	struct pipe_shared *shared;         /* shared_n entries, ascending by at */
	uint32_t shared_n;                  /* pairs of units that share parameters */
	struct pipe_part *parts;            /* parts_n entries */
	uint32_t parts_n;                   /* number of parts, 1 .. PAWL_PIPE_CHUNKS_MAX */
	const struct pawl_pipe_unit *units; /* the caller's rows, for names */
};

/* How parts are to be made of a model. */
struct pipe_cutting {
	uint32_t parts_n;      /* number of parts */
	const uint32_t *stage; /* stage of each part */
	const uint32_t *live;  /* microbatches that each part keeps activations of */
	uint32_t share;        /* parts that share a stage's cap equally; 0: there are no caps */
	bool visits;           /* tied units run with the first of their set */
};

/* Checks all numbers that a caller gives. PAWL_EINVAL, PAWL_ELIMIT: the message names the unit, or
 * the field of the setting. */
int pipe_check(const struct pawl_pipe_unit *units, uint32_t units_n,
	const struct pawl_pipe_setting *setting, struct pawl_err *err);

/* Makes the chain of a model that pipe_check has passed. Keeps units. PAWL_EINVAL: there are too
 * few units, or pins contradict each other; PAWL_ENOMEM. On error the chain is zeroed. */
int pipe_chain_init(struct pipe_chain *chain, const struct pawl_pipe_unit *units, uint32_t units_n,
	const struct pawl_pipe_setting *setting, const struct pipe_cutting *cutting,
	struct pawl_err *err);
void pipe_chain_deinit(struct pipe_chain *chain);

/* Returns the name of the unit at a position. */
const char *pipe_chain_name(const struct pipe_chain *chain, uint32_t position);

/* Returns the cost of part k if it is [begin, end): what it adds to the value. */
static inline double pipe_part_cost(const struct pipe_chain *chain, uint32_t k, uint32_t begin,
	uint32_t end)
{
	return (chain->cost[end] - chain->cost[begin]) / chain->parts[k].speed + chain->cut[begin] +
		chain->cut[end];
}

/* Returns whether part k may have the unit at a position, by the stage that it is wanted on. */
static inline bool pipe_may_have(const struct pipe_chain *chain, uint32_t k, uint32_t position)
{
	uint32_t wanted = chain->wanted[position];

	return wanted == PAWL_PIPE_ANY_STAGE || wanted == chain->parts[k].stage;
}

/* Returns the bytes that part k needs if it is [begin, end). */
static inline uint64_t pipe_part_bytes(const struct pipe_chain *chain, uint32_t k, uint32_t begin,
	uint32_t end)
{
	uint64_t bytes = chain->state[end] - chain->state[begin] +
		chain->parts[k].live * (chain->saved[end] - chain->saved[begin]);

	for (uint32_t i = 0; i < chain->shared_n; i++) {
		if (chain->shared[i].before >= begin && chain->shared[i].at < end) {
			bytes -= chain->shared[i].len_bytes;
		}
	}
	return bytes;
}

#endif
