/* The tasks of each stage, in the order in which it runs them: the schedules that are fixed rules.
 * pawl/pipe.h has their sources. Pure. */
#ifndef PIPE_ORDER_H
#define PIPE_ORDER_H

#include "pawl/pipe.h"

/* Tasks of all stages; they lie one stage behind the other. */
struct pipe_order {
	uint32_t stages;              /* number of stages */
	uint32_t n;                   /* number of tasks that have been added */
	uint32_t *first;              /* stages + 1: index of each stage's first task */
	struct pawl_pipe_task *tasks; /* room for all tasks */
};

/* Allocates room for tasks_n tasks. PAWL_ELIMIT: these are more than PAWL_PIPE_TASKS_MAX;
 * PAWL_ENOMEM. */
int pipe_order_init(struct pipe_order *order, uint32_t stages, uint64_t tasks_n,
	struct pawl_err *err);
void pipe_order_deinit(struct pipe_order *order);

/*
 * Makes the order of SIMPLE, 1F1B, ZERO_BUBBLE (each has one chunk a stage) or INTERLEAVED, whose
 * chunk c is on stage c % stages. each: chunks of a stage. PAWL_ELIMIT, PAWL_ENOMEM.
 */
int pipe_order_fixed(struct pipe_order *order, enum pawl_pipe_schedule schedule, uint32_t stages,
	uint32_t each, uint32_t microbatches, struct pawl_err *err);

/* Returns the lesser of two numbers. */
static inline uint32_t pipe_lesser(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Returns whether a kind of tasks gives back the activations of its chunk and microbatch. */
static inline bool pipe_kind_ends(uint8_t kind)
{
	return kind == PAWL_PIPE_BACKWARD || kind == PAWL_PIPE_WEIGHT;
}

/* Sets live to the most microbatches of which each of chunks_n chunks has activations at once. */
void pipe_order_live(const struct pipe_order *order, uint32_t chunks_n, uint32_t *live);

#endif
