/*
 * Collective operations and messages between the ranks of a group, and the group itself.
 *
 * A rank opens its side, hands its card to all others (through a store, a file, whatever there is),
 * and joins with theirs. Then all ranks submit the same collectives in the same order, several
 * under way at a time, and wait for each. The bits of a sum depend on ranks and hosts alone
 * (ARCHITECTURE.md), and are the same at all ranks.
 *
 * A rank that dies, freezes, leaves early, or does something else than the others, ends the group:
 * every operation of it, under way or to come, fails with a message that names the rank.
 *
 * Threads: any, but collectives are submitted in an order that the ranks agree on. After fork, the
 * child's group is dead: PAWL_ENOTSUP. Who waits for an operation carries all of them out; while
 * nobody waits, a thread of the group's does.
 */
#ifndef PAWL_COLL_H
#define PAWL_COLL_H

#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pawl_group;

enum pawl_dtype {
	PAWL_UINT8,
	PAWL_INT8,
	PAWL_INT16,
	PAWL_INT32,
	PAWL_INT64,
	PAWL_FLOAT32,
	PAWL_FLOAT64,
	PAWL_FLOAT16,  /* added as float32, rounded once: to nearest, ties to even */
	PAWL_BFLOAT16, /* the same */
	PAWL_DTYPES
};

enum pawl_reduce_op {
	PAWL_SUM,     /* integers wrap */
	PAWL_PRODUCT, /* the same */
	PAWL_MIN,     /* NaN, if one is NaN */
	PAWL_MAX,     /* the same */
	PAWL_BAND,    /* of bits, as the next two: integers only */
	PAWL_BOR,
	PAWL_BXOR,
	PAWL_REDUCE_OPS
};

/* What gradients g are divided by, element by element, before their norm is taken. Adam and its kin
 * step by g / d, with d = sqrt(second * by) + eps and by = 1 / (1 - beta2^t): as SGD does on
 * weights that are multiplied by sqrt(d), where the gradient is g / sqrt(d). So that is what they
 * are divided by here. */
struct pawl_white {
	const void *second; /* as many elements of the same type */
	double by;
	double eps;
};

/* The squared norm, added in double, of n floats; white: NULL, or as above. Floats of 16 and 32
 * bits are divided in 32. The bits depend on the numbers alone, not on the processor. Any
 * thread. */
double pawl_squares(enum pawl_dtype type, const void *x, uint64_t n,
	const struct pawl_white *white);

/* What each rank's in and out are; of blocks, block i is rank i's. */
enum pawl_coll {
	PAWL_ALL_REDUCE,     /* out: all in, reduced */
	PAWL_REDUCE,         /* root's out: all in, reduced. The others have no out */
	PAWL_BROADCAST,      /* the others' out: root's in */
	PAWL_ALL_GATHER,     /* out, of a block a rank: all in */
	PAWL_REDUCE_SCATTER, /* out: all in's blocks of this rank, reduced */
	PAWL_GATHER,         /* root's out, of a block a rank: all in */
	PAWL_SCATTER,        /* out: this rank's block of root's in */
	PAWL_ALL_TO_ALL,     /* out: of each rank what it has for this one */
	PAWL_BARRIER,        /* neither */
	PAWL_SEND,           /* in, to the rank root. No collective: of two ranks */
	PAWL_RECEIVE,        /* out, from the rank root, or from any */
	PAWL_COLLS
};

#define PAWL_ANY_RANK UINT32_MAX /* root of PAWL_RECEIVE: from whoever sends */

/* What is to be done; of a collective the same at all ranks, but for in and out. Zero what is not
 * of the kind. */
struct pawl_coll_call {
	enum pawl_coll kind;
	enum pawl_reduce_op op; /* of those that reduce */
	enum pawl_dtype dtype;  /* of the elements */
	bool mean;              /* a sum is divided by the number of ranks; floats only */
	uint32_t root;          /* of those that have one */
	uint32_t tag;           /* of messages: the same at both ends */
	uint64_t len_bytes;     /* of the vector, of a block, or of a message */
	const void *in;         /* the caller's, and as it is, until it is done. Collectives whose
				   memory overlaps are as if called one after the other */
	void *out;              /* the same; may be in, or, of those with blocks, be this rank's
				   block of in, or have in as it; not of PAWL_ALL_TO_ALL */
	const uint64_t *in_at;  /* PAWL_ALL_TO_ALL: bytes in_at[i] .. in_at[i + 1] of in are for
				   rank i. The caller's until it is done */
	const uint64_t *out_at; /* the same of out, from rank i */
	int64_t timeout_ns;     /* if it is not done then, the group ends; 0: never */
	bool held;              /* in and out are not ready before pawl_group_release */
};

/* An operation under way. Caller's memory from submit until done. */
struct pawl_work {
	struct pawl_coll_call call; /* as submitted */
	uint64_t number;            /* of the group's collectives, or of its messages; from 0 */
	uint32_t from;              /* PAWL_RECEIVE: whose message it was */
	int code;                   /* atomic: 0 or what it failed with, once done */
	bool held;                  /* atomic: not begun before pawl_group_release */
	bool done;                  /* atomic */
	bool told;                  /* pawl_group_tell was asked for it */
	void *priv[12];             /* the group's */
};

#define PAWL_CARD_MAX 352u /* bytes of a card, terminator included */

/* toward: a host or address that all ranks know; on the interface that leads there, or that
 * PAWL_IFNAME names, others will reach this rank. NULL: all ranks are on one host. PAWL_ELIMIT,
 * PAWL_ENOMEM, PAWL_EIO, PAWL_EINVAL (PAWL_HEARTBEAT, PAWL_IFNAME,
 * PAWL_LINK, PAWL_CONGESTION). */
int pawl_group_open(struct pawl_group **out, uint32_t rank, uint32_t ranks, const char *toward,
	char *card, struct pawl_err *err);
/* cards[r]: rank r's; once, before anything is submitted. PAWL_EPEER: a rank is gone, or cannot be
 * reached in time; PAWL_EINVAL: a card is none; PAWL_ENOTSUP: ranks are on several hosts, and one
 * has no address; PAWL_ENOMEM, PAWL_EIO. The group can only be closed then. */
int pawl_group_join(struct pawl_group *group, const char *const *cards, int64_t timeout_ns,
	struct pawl_err *err);
/* Ends it here, and tells the others: what is under way fails with PAWL_ECANCELED, and so does what
 * is to come. Any thread, any number of times; nothing happens in a fork. */
void pawl_group_leave(struct pawl_group *group);
/* Leaves, and frees. Nobody is in another call. NULL is fine. */
void pawl_group_close(struct pawl_group *group);

/*
 * Goes on without the ranks that are gone. Those that are left all call it, agree on who they are,
 * and join a group of their own, with ranks in the same order: ranks[i] is what its rank i was in
 * group, *n are how many; ranks has room for all of group. Servers are left behind. group, whose
 * operations all fail from then on, stays open until *out is closed; both can be shrunk again.
 * least: of ranks, or it is not done; more than half of them, and no two parts of a network that
 * has parted can both go on. PAWL_EPEER: too few are left, or the others go on without this one;
 * PAWL_ETIMEDOUT: a rank has not come; what open and join return. After an admission that failed
 * in group and not at all ranks, *out is also of those that are in the other group and shrink that;
 * newcomers are left out of it.
 */
int pawl_group_shrink(struct pawl_group **out, struct pawl_group *group, uint32_t least,
	uint32_t *ranks, uint32_t *n, int64_t timeout_ns, struct pawl_err *err);

/*
 * Grows a running group. A rank has a door (any may, also several), whose name newcomers are told
 * by whoever starts them; who knows it may become a rank. At times all ranks call admit, at the
 * same place in their collectives; it costs one all-gather of 4 bytes a rank while nobody waits.
 */
struct pawl_door;

#define PAWL_DOOR_NAME 96u /* bytes of a name, terminator included: "10.0.0.1:4567:3f0c…" */

/* Listens; toward: as of pawl_group_open (NULL: for newcomers on this host). A door is no group's,
 * and can be used for one after the other. PAWL_ENOMEM, PAWL_EIO, PAWL_EINVAL. */
int pawl_door_open(struct pawl_door **out, const char *toward, char *name, struct pawl_err *err);
/* How many have knocked, and wait; 0 of NULL. Not while ranks are admitted at it. */
uint32_t pawl_door_waiting(struct pawl_door *door);
/* Who waits is sent away. NULL is fine. */
void pawl_door_close(struct pawl_door *door);
/* door: this rank's, or NULL. *out: a new group of all ranks, with the same numbers, and of
 * newcomers behind them, at most `most` in all; group can be closed then. NULL: nobody waits, or it
 * did not succeed (which is logged, and the newcomers are sent away): group goes on as it was. What
 * collectives of group return, if that fails; PAWL_ENOMEM, which ends group here. */
int pawl_group_admit(struct pawl_group **out, struct pawl_group *group, struct pawl_door *door,
	uint32_t most, int64_t timeout_ns, struct pawl_err *err);
/* A newcomer's side: waits until it is admitted. PAWL_EINVAL: name is none; PAWL_EPEER: the door
 * cannot be reached, is closed, or the others could not join; PAWL_ETIMEDOUT; what open and join
 * return. */
int pawl_group_knock(struct pawl_group **out, const char *name, int64_t timeout_ns,
	struct pawl_err *err);
/* Which rank of how many. */
uint32_t pawl_group_rank(const struct pawl_group *group);
uint32_t pawl_group_ranks(const struct pawl_group *group);

/* PAWL_EINVAL, PAWL_ENOTSUP; PAWL_EPEER and others: the group has ended. Then nothing was begun. */
int pawl_group_submit(struct pawl_group *group, struct pawl_work *work,
	const struct pawl_coll_call *call, struct pawl_err *err);
/* Once each, for those that were submitted held: they have their place in the order, as what a
 * device is still to deliver, and begin now. Any thread; work->done may be true already (the group
 * has ended), but its memory must be there. */
void pawl_group_release(struct pawl_group *group, struct pawl_work *work);
/* 0: it is done. PAWL_ETIMEDOUT with work->done false: not yet; may be waited for again. Else what
 * it failed with: PAWL_EPEER (a rank is lost), PAWL_EMISMATCH (ranks disagree), PAWL_ETIMEDOUT (its
 * own time is over), PAWL_ECANCELED (closed), PAWL_ENOMEM. timeout_ns below 0: for ever. */
int pawl_group_wait(struct pawl_group *group, struct pawl_work *work, int64_t timeout_ns,
	struct pawl_err *err);
bool pawl_work_done(const struct pawl_work *work); /* whether it is; any thread */
/* The last collective that is not done and reads or writes any of these bytes; NULL: none does, or
 * in a fork. Any thread, while nobody else frees works of the group. */
struct pawl_work *pawl_group_using(struct pawl_group *group, const void *memory,
	uint64_t len_bytes);
/* Has it given out by pawl_group_next once it is done. False: it is done already. */
bool pawl_group_tell(struct pawl_group *group, struct pawl_work *work);
/* The next of those, once each; waits for one. NULL: the group is being closed. */
struct pawl_work *pawl_group_next(struct pawl_group *group);

/* ---- where the time went ---- */

/* What the time of a collective goes for, from submit until it is done: one after another, so that
 * their sum is the whole. */
enum pawl_phase {
	PAWL_QUEUED,  /* others before it on its channel */
	PAWL_IDLE,    /* nobody moved bytes: nobody waited, and the group's thread slept; or it was
			 held */
	PAWL_LATE,    /* until the last rank that it exchanges bytes with had begun it */
	PAWL_NETWORK, /* then until the last byte from or to another host; less adding */
	PAWL_MEMORY,  /* then until it was done; less adding */
	PAWL_ADDING,  /* of parts of at least 16 KiB, once all had begun; the rest is moving */
	PAWL_PHASES
};

/* Operations of a kind that are done, and well. */
struct pawl_kind_stats {
	uint64_t count;                 /* of them */
	uint64_t bytes;                 /* sum of len_bytes; of an all-to-all, what in has */
	uint64_t blocked_ns;            /* that threads spent in pawl_group_wait for them */
	uint64_t phase_ns[PAWL_PHASES]; /* of messages only PAWL_NETWORK or PAWL_MEMORY, which is
					    then waiting for the other one, too */
};

/* Between us and another rank, or server. */
struct pawl_peer_stats {
	uint64_t sent_bytes;     /* of operations that are done */
	uint64_t received_bytes; /* the same */
	uint64_t sending_ns;     /* that it was this peer's turn to be sent to; of other hosts */
	uint64_t last_n;         /* collectives for which it was the last to begin, of our peers */
	uint64_t late_ns;        /* that we waited then, since we had begun ourselves */
};

struct pawl_stats {
	int64_t now_ns; /* CLOCK_MONOTONIC; all others count from the group's beginning */
	struct pawl_kind_stats kinds[PAWL_COLLS];
};

/* Any thread. peers[0 .. n-1] are filled, ranks first, then servers, this rank's own with zeros;
 * how many there are is returned. In a fork: zeros, and 0. */
uint32_t pawl_group_stats(struct pawl_group *group, struct pawl_stats *stats,
	struct pawl_peer_stats *peers, uint32_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
