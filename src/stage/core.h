/*
 * A rank's part of a pipeline's steps: takes what the driver says and what arrives, and decides
 * what happens next and which values go to which ranks. Pure; one thread at a time.
 *
 * What comes out is taken by the caller, after each call: pushes that can be sent
 * (stage_core_take_push), values that have gone (stage_table_take_gone of the core's table).
 */
#ifndef STAGE_CORE_H
#define STAGE_CORE_H

#include "stage/order.h"
#include "stage/table.h"

#include "pawl/stage.h"

/* A value that is to be sent to a rank. */
struct stage_push {
	struct stage_push *next;   /* next push of the value, or that can be sent */
	struct stage_value *value; /* the value; claimed */
	uint32_t to;               /* rank that it is sent to */
};

/* A note that waits for stage_core_next. */
struct core_note {
	struct core_note *next; /* next note */
	void *bytes;            /* owned */
	uint32_t len_bytes;     /* length of bytes */
};

struct stage_core {
	struct stage_table table;
	struct stage_order order;
	uint64_t step;      /* steps begun so far */
	bool open;          /* a step has begun, and its end is not reported */
	bool ended;         /* nothing follows in the step */
	uint32_t waiting_n; /* pushes whose value is not present, or has its bytes elsewhere */
	uint32_t sending_n; /* pushes taken, and not sent */
	uint32_t watches_n; /* watches that are not reported */
	struct stage_push *pushes_first, *pushes_last; /* pushes that can be sent */
	struct stage_push *spare;                      /* owned; pushes that are not in use */
	struct core_note *notes_first, *notes_last;    /* owned; notes that are not reported */
	struct core_note *note;                        /* owned; note of the last event, or NULL */
	struct stage_value *watched_first, *watched_last; /* present values that are watched */
	struct stage_value *wanted_first,
		*wanted_last;                      /* claimed; values that are to be supplied */
	struct stage_value *reported;              /* value of the last event, claimed, or NULL */
	struct pawl_stage_value *reported_list[1]; /* values of that event */
	struct order_call *running;                /* calls that run */
};

/* A zeroed core has begun no step. Frees all; values are in the table's gone after
 * stage_core_clear. */
void stage_core_deinit(struct stage_core *core);
/* Drops all calls, pushes, notes and values, whatever the state: before stage_core_deinit. */
void stage_core_clear(struct stage_core *core);

/* Begins a step. PAWL_EINVAL: the step before has not ended, or tasks are not valid; PAWL_ENOMEM.
 * All others but stage_core_sent are PAWL_EINVAL outside of a step. */
int stage_core_begin(struct stage_core *core, const struct pawl_pipe_task *tasks, uint32_t n,
	struct pawl_err *err);
/* What the driver says. PAWL_EINVAL: a number is not valid, or the step has ended; PAWL_ELIMIT;
 * PAWL_ENOMEM. On error nothing has changed. */
int stage_core_call(struct stage_core *core, const struct pawl_stage_call *call,
	struct pawl_err *err);
int stage_core_push(struct stage_core *core, uint64_t value, uint32_t to, struct pawl_err *err);
int stage_core_free(struct stage_core *core, uint64_t value, struct pawl_err *err);
int stage_core_flush(struct stage_core *core, enum pawl_pipe_kind kind, uint32_t microbatch,
	struct pawl_err *err);
/* Takes ownership of bytes, which malloc gave, on success. */
int stage_core_note(struct stage_core *core, void *bytes, uint32_t len_bytes, struct pawl_err *err);
int stage_core_end(struct stage_core *core, struct pawl_err *err);
int stage_core_watch(struct stage_core *core, uint64_t value, struct pawl_err *err);
/* A value is here. memory: see stage_table_place. PAWL_EINVAL: it was here before; PAWL_ENOMEM. */
int stage_core_put(struct stage_core *core, const struct pawl_stage_value *value,
	struct pawl_stage_memory *memory, struct pawl_err *err);
/* The bytes of a value that was wanted. PAWL_EINVAL: it was not. */
int stage_core_supply(struct stage_core *core, uint64_t value, const void *data,
	struct pawl_err *err);
/* A call has run. PAWL_EINVAL: it does not run, or the values are not those that it makes, in
 * order; PAWL_ENOMEM. On error nothing has changed. */
int stage_core_done(struct stage_core *core, uint64_t id, const struct pawl_stage_value *values,
	uint32_t n, struct pawl_err *err);

/* Releases what the last event referred to, except for a call; then reports what is next, never
 * FAILED. */
void stage_core_next(struct stage_core *core, struct pawl_stage_event *event);
/* Takes a value to be sent, and the rank; NULL: there is none. */
struct stage_value *stage_core_take_push(struct stage_core *core, uint32_t *to);
/* A value that stage_core_take_push returned has been sent. */
void stage_core_sent(struct stage_core *core, struct stage_value *value);

/* Returns the memory of the stage with a value's bytes; NULL: the value has none. value: one that
 * an event named. */
struct pawl_stage_memory *stage_core_memory(struct pawl_stage_value *value);
/* Returns whether all of the step that has begun is done, except for its end. */
bool stage_core_is_over(const struct stage_core *core);
/* Returns 0 if the driver may go on with the step; PAWL_EINVAL. */
int stage_core_check_going(const struct stage_core *core, struct pawl_err *err);
/* Checks a call as far as that needs no state: PAWL_EINVAL, PAWL_ELIMIT. */
int stage_core_check_call(const struct pawl_stage_call *call, struct pawl_err *err);
int stage_core_check_flush(enum pawl_pipe_kind kind, uint32_t microbatch, struct pawl_err *err);

#endif
