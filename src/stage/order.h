/*
 * The order of a rank's calls: see pawl/stage.h for the rule. Pure.
 *
 * Tasks whose first call can run are in the heap ready, by their place in the list. Three marks
 * only move forward: cursor, the first task that is not drained; backward, the first BACKWARD or
 * INPUT that is not; low, the lowest microbatch that is not complete. A late call of a task behind
 * a mark needs nothing more: its place is before the mark. For low, it moves the mark back.
 */
#ifndef STAGE_ORDER_H
#define STAGE_ORDER_H

#include "stage/table.h"

#include "pawl/pipe.h"
#include "pawl/stage.h"

#include <stddef.h>

struct order_task;

/* A call that is left. Whoever makes it owns it, until stage_order_done. */
struct order_call {
	struct pawl_stage_call call;      /* needs and blob point behind the struct */
	struct pawl_stage_value **values; /* values of the needs; behind the struct */
	struct stage_need *waits;         /* entries of needs that wait; behind the struct */
	struct order_task *task;          /* task that the call belongs to */
	struct order_call *next;          /* next call of the task */
	struct order_call *next_running;  /* next call that runs; for the owner */
	uint32_t missing;                 /* needs that are not present */
	bool running;                     /* stage_order_next has returned it */
};

struct order_task {
	struct pawl_pipe_task task;      /* kind, chunk and microbatch */
	struct order_task *next;         /* next in its bucket */
	struct order_task *next_extra;   /* next task that is not in the list */
	struct order_call *first, *last; /* calls that are left, in the order of issue */
	uint32_t at;                     /* place in the list, or behind it */
	bool queued;                     /* the task is in a heap */
};

/* Tasks, the first place at the top. */
struct order_heap {
	struct order_task **tasks; /* owned */
	uint32_t n, cap;           /* number of tasks; room */
};

struct stage_order {
	struct order_task *list;     /* owned; tasks in the order of the plan */
	uint32_t list_n;             /* number of tasks in the list */
	struct order_task **buckets; /* owned; tasks by kind, chunk and microbatch */
	uint32_t buckets_n;          /* number of buckets; a power of 2, or 0 */
	struct order_task *extra;    /* owned; tasks that are not in the list */
	uint32_t extra_n;            /* number of tasks in extra */
	uint32_t cursor;             /* place of the first task that was not passed */
	uint32_t backward; /* place of the first backward pass, or INPUT, that was not passed */
	uint32_t low;      /* lowest microbatch that may have something left */
	struct order_heap ready; /* tasks whose first call can run */
	uint32_t left;           /* calls that are left */
	uint32_t taking;         /* bucket that stage_order_take_any looks into */
	bool all_flushed;        /* every pass is flushed */
	/* Whether a pass of a microbatch is flushed: bits; forward, then backward passes. */
	uint8_t flushed[2][PAWL_PIPE_MICROBATCHES_MAX / 8];
	/* Calls that are left of each microbatch, but for those of WEIGHT. */
	uint32_t left_of[PAWL_PIPE_MICROBATCHES_MAX];
};

/* A zeroed order has no tasks. Calls that are left stay their owner's. */
void stage_order_deinit(struct stage_order *order);
/* Begins a step with n tasks, copied; no call is left. PAWL_EINVAL: a task is there twice, or is
 * none; PAWL_ENOMEM. On error the step before stays. */
int stage_order_begin(struct stage_order *order, const struct pawl_pipe_task *tasks, uint32_t n,
	struct pawl_err *err);
/* Returns whether a task can be in a list. */
bool stage_order_task_valid(const struct pawl_pipe_task *task);
/* Adds a call, of a valid task. PAWL_ENOMEM: not added. */
int stage_order_add(struct stage_order *order, struct order_call *call);
/* The last missing need of a call has come. */
void stage_order_ready(struct stage_order *order, struct order_call *call);
/* Flushes a pass of a microbatch: backward also stands for INPUT and WEIGHT. */
void stage_order_flush(struct stage_order *order, enum pawl_pipe_kind kind, uint32_t microbatch);
/* Flushes all passes: nothing follows in the step. */
void stage_order_flush_all(struct stage_order *order);
/* Returns the next call that can run, which runs from now on; NULL: none can. */
struct order_call *stage_order_next(struct stage_order *order);
/* Removes a call that runs. */
void stage_order_done(struct stage_order *order, struct order_call *call);
/* Takes any call that is left, for its owner to free; NULL: none is. The order can only be
 * released then. */
struct order_call *stage_order_take_any(struct stage_order *order);
/* Returns the first task of the list that was not passed; NULL: all were. */
const struct order_task *stage_order_current(struct stage_order *order);

#endif
