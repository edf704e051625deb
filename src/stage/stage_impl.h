/*
 * Shared by the parts of a stage: see pawl/stage.h for the contract.
 *
 * Each file calls only those below it:
 * - stage_driver.c: what the driver calls.
 * - stage.c: life cycle, and what every rank calls.
 * - receive.c: the stage's thread, which takes what comes from other ranks.
 * - link.c: sends frames and values to other ranks.
 * - core.c and below: what all of it means. Pure. memory.c: memory of values that arrive.
 *
 * How a value goes to another rank: stage_core_take_push names it. An item is made of it: a frame,
 * and the value's own bytes as a body if they do not fit the frame. The items of a rank are a
 * queue. Whoever has the lock and finds that nobody else submits, submits items to the group, each
 * without the lock, until there are none: so the order of a queue is that of its messages, and
 * nobody waits. The value stays claimed until the group has sent its body.
 *
 * How frames are taken: LINK_RECEIVES receives are posted for each rank, in turn, so frames of one
 * rank are taken in order. A frame whose content follows as a body has the receive of that body
 * posted at once. Later frames of the rank wait for it, unless it is a value's: the order of values
 * does not matter.
 *
 * Failures: the first operation that ends with an error makes the stage fail; all later calls
 * return it, but for pawl_stage_fail: others can be told as long as the group works. The group
 * fails as a whole if a rank dies or leaves, since receives from all ranks are posted.
 *
 * Locks: lock guards all that is said to be under it. Then come the pool's, and the group's own; no
 * lock of a stage is taken while one of the group's is held. No thread waits for anything but the
 * condition variables while it holds lock.
 */
#ifndef STAGE_STAGE_IMPL_H
#define STAGE_STAGE_IMPL_H

#include "base/wire.h"
#include "stage/core.h"
#include "stage/frame.h"
#include "stage/memory.h"

#include "pawl/coll.h"
#include "pawl/stage.h"

#include <pthread.h>
#include <sys/types.h>

#define LINK_RECEIVES   4u          /* receives of frames that are posted for each rank */
#define LINK_SENDS_MAX  64u         /* messages to one rank that are under way; others wait */
#define LINK_BATCH_SEND (16u << 10) /* bytes of a batch at which it is sent unasked */
/* Bytes of a note from which on it is a frame of its own. */
#define LINK_NOTE_ALONE (4u << 10)
#define STAGE_EARLY_MAX (1u << 20) /* frames that wait for their step; one more is a failure */

enum op_kind {
	OP_FRAME,      /* receives a frame */
	OP_BODY,       /* receives the content of a frame */
	OP_SEND_FRAME, /* sends a frame */
	OP_SEND_BODY   /* sends the content of a frame */
};

/* A message of the group. */
struct stage_op {
	struct pawl_work work;
	enum op_kind kind;
	uint32_t peer;         /* the other rank */
	bool under_way;        /* submitted, and its end was not handled */
	struct stage_op *next; /* next message that was done before it was watched */
};

/* A posted receive of a frame. */
struct stage_slot {
	struct stage_op op;
	bool done;                  /* the frame is there */
	uint8_t bytes[FRAME_BYTES]; /* the frame */
};

/* A frame's content: being received, or waiting for its step. */
struct stage_body {
	struct stage_op op;
	struct stage_frame frame;         /* the frame; its bytes are NULL */
	uint8_t *bytes;                   /* owned; content of a frame that is no value's */
	struct pawl_stage_memory *memory; /* owned; content of a value's frame */
	struct stage_body *next;          /* next that is not in use, or that waits for its step */
	struct stage_body *next_all;      /* next of all */
	bool known;                       /* the list of all has it */
};

/* A frame that is sent, with its content. */
struct stage_item {
	struct stage_op frame_op;
	struct stage_op body_op;   /* used if body is not NULL */
	const void *body;          /* content that does not fit the frame, or NULL */
	uint64_t body_len;         /* bytes of body */
	uint32_t tag;              /* tag of the message with body */
	uint8_t *owned;            /* owned; memory of body, if the stage has copied it, or NULL */
	struct stage_value *value; /* value that has body, claimed, or NULL */
	uint32_t ops_left;         /* messages that are not done */
	bool frame_taken;          /* the frame has been submitted */
	struct stage_item *next;   /* next in a rank's queue, or in spare */
	struct stage_item *next_all; /* next of all */
	uint8_t bytes[FRAME_BYTES];  /* the frame */
};

/* Another rank. */
struct stage_peer {
	/* Under lock: what is sent to the rank. */
	struct wire_out batch;           /* records that were collected */
	struct stage_item *first, *last; /* items that are not submitted */
	uint32_t under_way;              /* messages to the rank that are not done */
	uint32_t tag;                    /* tag of the last body */
	/* The stage's thread only: what comes from the rank. */
	struct stage_slot slots[LINK_RECEIVES]; /* posted in turn */
	uint32_t head;                          /* slot whose frame is next */
	struct stage_body *body;                /* body that later frames wait for, or NULL */
};

/* Under lock: what is sent. */
struct stage_outbox {
	struct stage_item *all;   /* owned; all items */
	struct stage_item *spare; /* items that are not in use */
	uint32_t items_n;         /* items that are not done */
	uint32_t turn;            /* rank whose queue is looked at next */
	bool submitting;          /* a thread submits items */
	uint64_t values;          /* values sent so far */
	uint64_t values_bytes;    /* bytes of these */
	uint64_t frames;          /* frames sent so far */
	uint64_t frames_bytes;    /* bytes of these, with their contents except for values */
};

/* What comes in. */
struct stage_inbox {
	struct stage_body *all;   /* owned; all bodies; the stage's thread only */
	struct stage_body *spare; /* under lock: bodies that are not in use */
	struct stage_op *ready;   /* done before watched; the stage's thread only */
	uint64_t *needs;          /* owned, under lock: room for the needs of a call */
	struct stage_body *early_first,
		*early_last; /* under lock: frames that wait for their step */
	uint32_t early_n;    /* under lock: number of these */
};

struct pawl_stage {
	struct pawl_group *group; /* the caller's; NULL: one rank */
	uint32_t rank, ranks;     /* number of this rank; number of ranks */
	pid_t pid;                /* process that the stage belongs to */
	struct stage_pool *pool;  /* owned; memory of values that arrive */
	pthread_t thread;         /* takes what comes; only with several ranks */
	bool threaded;            /* thread has begun */
	struct stage_inbox inbox;

	pthread_mutex_t lock; /* guards all fields from here on */
	pthread_cond_t wake;  /* something may be next, or the stage has left or failed */
	pthread_cond_t sent;  /* no item is left, or the stage has failed */
	uint32_t waiters;     /* threads that wait for wake */
	struct stage_core core;
	struct stage_outbox outbox;
	struct stage_peer *peers; /* owned; one a rank; NULL with one rank */
	struct stage_value *released_first, *released_last; /* values gone whose held is released */
	struct pawl_err failure; /* why the stage failed; code 0: it has not */
	bool cut;                /* the group has failed, or was left: nothing can be sent */
	bool left;               /* pawl_stage_leave was called */
	bool failed;             /* a rank has called pawl_stage_fail */
	uint32_t failed_rank;    /* rank that did so first */
	uint8_t *failed_text;    /* owned; its text, or NULL */
	uint32_t failed_len;     /* bytes of failed_text */
	uint64_t calls_issued;   /* calls that this rank has issued */
	uint64_t calls_done;     /* calls that this rank has carried out */
	uint64_t steps;          /* steps begun so far */
	int64_t begun_ns;        /* when the step began; CLOCK_MONOTONIC */
	int64_t waited_ns;       /* time in this step in which pawl_stage_next has waited */
	int64_t planned_ns;      /* time in which this rank is busy in a step, by the plan; or 0 */
};

/* stage.c */

/* Under lock: returns 0 if the stage works, else sets err. */
int stage_check(const struct pawl_stage *stage, struct pawl_err *err);
/* Takes lock, unless this is a forked child, or the stage does not work. anyhow: it may have
 * failed, as long as its group works. */
int stage_lock(struct pawl_stage *stage, bool anyhow, struct pawl_err *err);

/* Gives lock back after a call that returned rv: settles what it changed, or names the stage in
 * err. Returns rv. */
int stage_unlock(struct pawl_stage *stage, int rv, struct pawl_err *err);

/* stage_driver.c */

/* Under lock: queues the text of a rank that has failed for all ranks but that one, this one, and
 * the one that it came from. PAWL_ENOMEM. */
int stage_queue_failure(struct pawl_stage *stage, uint32_t failed, uint32_t from, const void *text,
	uint32_t len_bytes);

/* link.c; all under lock */

/* The stage fails, unless it has before. */
void stage_link_fail(struct pawl_stage *stage, const struct pawl_err *why);
/* The stage fails with its group: nothing can be sent any more. */
void stage_link_cut(struct pawl_stage *stage, const struct pawl_err *why);

/* Queues a frame to a rank. bytes: the content; owned by the item if it does not fit the frame and
 * value is NULL. value: the value that has the content, claimed until it is sent, or NULL.
 * PAWL_ENOMEM: bytes stay the caller's. */
int stage_link_queue(struct pawl_stage *stage, uint32_t to, struct stage_frame *frame,
	uint8_t *owned, struct stage_value *value);
/* Queues a rank's batch, if it has records. PAWL_ENOMEM. */
int stage_link_queue_batch(struct pawl_stage *stage, uint32_t to);
/* After each change of the core: releases values that have gone, queues values that are to be sent,
 * submits items, and wakes pawl_stage_next. May unlock lock meanwhile. */
void stage_link_settle(struct pawl_stage *stage);
/* A message of an item is done. */
void stage_link_done(struct pawl_stage *stage, struct stage_op *op);
/* Takes the values that have gone: releases their memory, or keeps what is held for
 * pawl_stage_released. */
void stage_link_take_gone(struct pawl_stage *stage);

/* receive.c */

/* The stage's thread: runs until the group is left. user: the stage. */
void *stage_receive_run(void *user);
/* Under lock: carries out the frames that have waited for the step that has just begun. */
void stage_receive_early(struct pawl_stage *stage);
/* Returns the message of the group that a work is. */
struct stage_op *stage_receive_op(struct pawl_work *work);

#endif
