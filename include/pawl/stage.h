/*
 * Stages: the ranks of a pipeline that call each other. Rank 0, the driver, runs the user's program
 * and only issues calls; every rank, the driver too, carries out the calls that are sent to it. A
 * stage keeps the values (tensors) that calls take and make, sends them to the ranks that need
 * them, and says which call comes next. It looks into neither: what a call does, and what a value's
 * meta means, is the caller's business.
 *
 * Words. A value is a run of bytes with a short description (meta), named by a number that the
 * driver chooses. A call takes values (its needs), and makes as many values as it announces, with
 * consecutive numbers from its own number on. Calls belong to a task: a pass of one chunk for one
 * microbatch, as in pawl/pipe.h. A step is the work between pawl_stage_begin and the event
 * PAWL_STAGE_END.
 *
 * Which call comes next. Each rank has the list of its tasks, in the order of the plan. A task is
 * drained once the driver has flushed it and no call of it is left; a late call does not undo that.
 * Calls of one task run in the order in which they were issued. The first call of a task that is
 * left may run, once its needs are there, if
 *   - all tasks before it in the list are drained,
 *   - or it is a backward pass, and all backward passes before it in the list are drained,
 *   - or its microbatch is the lowest at this rank that is not complete (both passes drained).
 * Gradients of parameters alone (PAWL_PIPE_WEIGHT), which nobody waits for, run by the first rule
 * only, and count in no other: else they would delay what others wait for.
 * Of several calls that may run, that of the earliest task does. A task that is not in the list
 * follows all others. The first rule is the plan's order. The others only matter for programs that
 * the plan does not know, in which a stage is visited several times, or a call depends on numbers:
 * a backward pass needs no memory, and the lowest microbatch waits for no other one. So whatever
 * calls a program issues, its lowest microbatch goes on, and no pipeline stands still.
 *
 * How long a value lives. It is there once put, or once its call is done, or once it has arrived
 * from another rank. It goes when the driver has freed it and no call that was issued before needs
 * it, nor a push that was asked for before sends it. The end of a step frees all values. Frames
 * from the driver to one rank keep their order; so a free may follow the call at once, before the
 * value is there.
 *
 * Threads: any thread may call; one thread at a time calls pawl_stage_next. A stage does not work
 * in a forked child: PAWL_ENOTSUP.
 */
#ifndef PAWL_STAGE_H
#define PAWL_STAGE_H

#include "pawl/coll.h"
#include "pawl/err.h"
#include "pawl/pipe.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define PAWL_STAGE_META_MAX  96u         /* bytes of a value's meta */
#define PAWL_STAGE_OUTS_MAX  1024u       /* values that a call makes */
#define PAWL_STAGE_NEEDS_MAX 1024u       /* values that a call takes */
#define PAWL_STAGE_BLOB_MAX  (1u << 20)  /* bytes of a call's blob */
#define PAWL_STAGE_NOTE_MAX  (64u << 20) /* bytes of a note */
#define PAWL_STAGE_LEFT_MAX  (1u << 20)  /* calls that a rank has and has not done */

struct pawl_stage;
/* Memory of a stage with the bytes of a value that has arrived. It stays while it has holders. */
struct pawl_stage_memory;

/* A value at this rank. */
struct pawl_stage_value {
	uint64_t id;                       /* number that the driver gave it */
	uint32_t meta_len;                 /* bytes of meta, at most PAWL_STAGE_META_MAX */
	uint8_t meta[PAWL_STAGE_META_MAX]; /* description; passed on as it is */
	/* The bytes. NULL, and len_bytes is not 0: they are elsewhere, in memory of a device. Calls
	 * of this rank take the value all the same; PAWL_STAGE_WANTED asks for the bytes if it is
	 * to be sent. */
	const void *data;
	uint64_t len_bytes; /* number of bytes; may be 0 */
	/* What keeps data: the caller's object, given with pawl_stage_put, pawl_stage_done or
	 * pawl_stage_keep; NULL: data is memory of the stage, until the value goes. */
	void *held;
};

/* A call: on its way from the driver, and at the rank that carries it out. */
struct pawl_stage_call {
	uint64_t id;                /* number of the call, and of its first value */
	uint32_t outs;              /* values that it makes: id .. id + outs - 1; may be 0 */
	struct pawl_pipe_task task; /* the task it belongs to */
	uint32_t needs_n;           /* number of needs */
	const uint64_t *needs; /* values that it takes, in the caller's order; repeats allowed */
	uint32_t blob_len;     /* bytes of blob */
	const void *blob;      /* bytes that say what the call does, for the owner's program */
};

/*
 * Opens this rank's end. group: joined, with all ranks of the pipeline, used by nothing else, and
 * open until the stage is closed; NULL: a pipeline of one rank. PAWL_ENOMEM, PAWL_EIO.
 */
int pawl_stage_open(struct pawl_stage **out, struct pawl_group *group, struct pawl_err *err);
/* Leaves the group: the other ranks are notified. All calls at this rank, those under way too,
 * return PAWL_ECANCELED from then on. Before, it waits a limited time until what was issued here is
 * sent. Any thread, any number of times; only the first call waits. */
void pawl_stage_leave(struct pawl_stage *stage);
/* Leaves, frees all values and the stage. No other call may be under way. NULL is fine. What the
 * caller holds must have been taken before (pawl_stage_released), or is handed to release, if not
 * NULL, one by one. */
void pawl_stage_close(struct pawl_stage *stage, void (*release)(void *held));

/*
 * Begins a step; every rank calls it. tasks: n tasks of this rank in the order of the plan, at most
 * PAWL_PIPE_TASKS_MAX; copied. Frames of the step that have arrived earlier are waiting. The driver
 * issues nothing before. PAWL_EINVAL: the step before has not ended here; a task is there twice, or
 * its kind is neither PAWL_PIPE_FORWARD nor PAWL_PIPE_BACKWARD nor another of pawl/pipe.h.
 */
int pawl_stage_begin(struct pawl_stage *stage, const struct pawl_pipe_task *tasks, uint32_t n,
	struct pawl_err *err);

/* Says for how long this rank is busy in a step, by the plan: for the trace that `pawl explain`
 * reads (PAWL_TRACE). 0, as at first: not known. Any thread. */
void pawl_stage_expect(struct pawl_stage *stage, int64_t busy_ns);

/* ---- the driver ---- */

/*
 * The driver's frames to another rank are collected, and leave with pawl_stage_send, or earlier if
 * there are many. Those to itself take effect at once. Numbers of ranks are those of the group.
 * PAWL_EINVAL: this rank is not the driver, or an argument is not valid (the message names it);
 * PAWL_ELIMIT: more than a limit above; PAWL_ENOMEM; after PAWL_EPEER (a rank is lost; the message
 * names it) the stage can only be left.
 */

/* Issues a call for a rank. Copied. */
int pawl_stage_call(struct pawl_stage *stage, uint32_t rank, const struct pawl_stage_call *call,
	struct pawl_err *err);
/* Asks rank from to send a value to rank to, once it is there. Each pair once for a value. */
int pawl_stage_push(struct pawl_stage *stage, uint32_t from, uint64_t value, uint32_t to,
	struct pawl_err *err);
/* Frees a value at a rank at which it is, or will be. Once for each rank. */
int pawl_stage_free(struct pawl_stage *stage, uint32_t rank, uint64_t value, struct pawl_err *err);
/* Says to all ranks that all calls of a microbatch's forward or backward pass that are known so far
 * have been issued. kind: PAWL_PIPE_FORWARD or PAWL_PIPE_BACKWARD (then also INPUT and WEIGHT). */
int pawl_stage_flush(struct pawl_stage *stage, enum pawl_pipe_kind kind, uint32_t microbatch,
	struct pawl_err *err);
/* Sends bytes to a rank's caller, which gets them before any call that was issued later. Copied. */
int pawl_stage_note(struct pawl_stage *stage, uint32_t rank, const void *bytes, uint32_t len_bytes,
	struct pawl_err *err);
/* Says to all ranks that nothing follows in this step, and sends what was collected. */
int pawl_stage_end(struct pawl_stage *stage, struct pawl_err *err);
/* Sends what was collected. Does not wait. Any rank; only the driver collects. */
int pawl_stage_send(struct pawl_stage *stage, struct pawl_err *err);
/* Asks for an event PAWL_STAGE_ARRIVED once a value is at this rank; it is not freed before. Each
 * call asks for one. The step does not end before. */
int pawl_stage_watch(struct pawl_stage *stage, uint64_t value, struct pawl_err *err);

/* ---- every rank ---- */

/* Puts a value of the caller's own at this rank. held: see struct pawl_stage_value; not NULL. */
int pawl_stage_put(struct pawl_stage *stage, const struct pawl_stage_value *value,
	struct pawl_err *err);
/* Gives the bytes of a value that were elsewhere; once, after PAWL_STAGE_WANTED. They stay while
 * the value's held does, and are sent as soon as possible. PAWL_EINVAL: nobody wants such bytes. */
int pawl_stage_supply(struct pawl_stage *stage, uint64_t value, const void *data,
	struct pawl_err *err);

enum pawl_stage_kind {
	PAWL_STAGE_NOTHING, /* the time is over */
	PAWL_STAGE_CALL,    /* carry out call, then pawl_stage_done */
	PAWL_STAGE_NOTE,    /* bytes came from the driver */
	PAWL_STAGE_ARRIVED, /* a watched value is there: values[0] */
	PAWL_STAGE_WANTED,  /* values[0] is to be sent, and its bytes are elsewhere: supply them */
	PAWL_STAGE_END,     /* the step has ended, and all its values are freed */
	PAWL_STAGE_FAILED   /* a rank has called pawl_stage_fail: its text; again and again */
};

/* An event. Its memory is the stage's: a call's until pawl_stage_done, others' until the next
 * pawl_stage_next. */
struct pawl_stage_event {
	enum pawl_stage_kind kind;
	struct pawl_stage_call call; /* CALL */
	/* CALL: needs_n values, as the needs name them. ARRIVED, WANTED: one. Stay until the call
	 * is done, or the next pawl_stage_next. */
	struct pawl_stage_value *const *values;
	uint32_t rank;      /* FAILED: rank that has failed */
	const void *bytes;  /* NOTE, FAILED */
	uint32_t len_bytes; /* NOTE, FAILED */
};

/*
 * Waits for what is to be done next: FAILED first, then notes, then values that are wanted, then
 * values that have arrived, then calls, then the end of the step, when all calls are done and all
 * values sent. timeout_ns: 0 does not wait; below 0: no limit. PAWL_EPEER: a rank is lost, unless
 * all of the step was done before; PAWL_ECANCELED: this rank has left; PAWL_EMISMATCH, PAWL_EINVAL,
 * PAWL_ELIMIT: another rank sent what it must not send; PAWL_ENOMEM.
 */
int pawl_stage_next(struct pawl_stage *stage, int64_t timeout_ns, struct pawl_stage_event *event,
	struct pawl_err *err);
/* Ends the call with this number: values are the outs values that it has made, in order, with
 * ids, each with held. */
int pawl_stage_done(struct pawl_stage *stage, uint64_t call, const struct pawl_stage_value *values,
	uint32_t n, struct pawl_err *err);
/* Gives the caller's object for a value whose held is NULL (from an event): it is kept as long as
 * the value, and later uses of the value have it. Returns the memory with the value's bytes, of
 * which the object becomes a holder: the bytes stay until pawl_stage_memory_release, even after the
 * value and the stage. NULL: there are no bytes, or held was not NULL and stays. */
struct pawl_stage_memory *pawl_stage_keep(struct pawl_stage *stage, struct pawl_stage_value *value,
	void *held);
/* Gives another object for a value of an event that has one. Returns the object before, which is
 * the caller's again. */
void *pawl_stage_replace(struct pawl_stage *stage, struct pawl_stage_value *value, void *held);
/* Ends a hold on memory. Any thread, also after the stage is closed. NULL is fine. Does nothing in
 * a forked child. */
void pawl_stage_memory_release(struct pawl_stage_memory *memory);
/* Tells all ranks that this one has failed: text for people, at most PAWL_STAGE_NOTE_MAX bytes. The
 * first one counts. Works after other calls have failed, unless a rank is lost. */
int pawl_stage_fail(struct pawl_stage *stage, const void *text, uint32_t len_bytes,
	struct pawl_err *err);
/* Takes an object that the stage no longer needs; NULL: there is none. */
void *pawl_stage_released(struct pawl_stage *stage);
/* Sets *task to the first task of the list that was never drained while all before it were; returns
 * false if there is none. */
bool pawl_stage_current(struct pawl_stage *stage, struct pawl_pipe_task *task);

/* Totals since the stage was opened. */
struct pawl_stage_stats {
	uint64_t calls_issued; /* calls issued by this rank, which is the driver */
	uint64_t calls_done;   /* calls carried out at this rank */
	uint64_t values_sent;  /* values sent to other ranks */
	uint64_t values_bytes; /* bytes of these */
	uint64_t frames_sent;  /* frames of control sent to other ranks */
	uint64_t frames_bytes; /* bytes of these */
	uint64_t values_now;   /* values at this rank */
	uint64_t bytes_now;    /* bytes of those whose memory is the stage's */
	uint64_t bytes_most;   /* most of bytes_now so far */
};
/* Any thread. */
void pawl_stage_stats(struct pawl_stage *stage, struct pawl_stage_stats *stats);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
