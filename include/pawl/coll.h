/*
 * Groups of ranks: collective operations, and messages between ranks.
 *
 * A rank opens its side of the group, publishes its endpoint to all other ranks (through a store, a
 * file, or any other means), and joins with the endpoints of all ranks. Then all ranks submit the
 * same collectives in the same order, and wait for each. Several can be under way at a time. The
 * bits of a sum depend on ranks and hosts alone (docs/decisions/0072), and are the same at all
 * ranks.
 *
 * If a rank dies, freezes, leaves early, or calls something other than the other ranks, the group
 * ends. Every operation of the group, under way or submitted later, then fails with a message that
 * names the rank.
 *
 * Threads: any thread may call, but all ranks must submit collectives in the same order. A thread
 * that waits for one operation carries out all operations of the group. While no thread waits, the
 * group's own thread carries them out. A group does not work in a forked child: PAWL_ENOTSUP.
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
	PAWL_FLOAT16,  /* added as float32; each rank that adds rounds to nearest, ties to even */
	PAWL_BFLOAT16, /* added as float32; each rank that adds rounds to nearest, ties to even */
	PAWL_DTYPES
};

enum pawl_reduce_op {
	PAWL_SUM,     /* integers wrap */
	PAWL_PRODUCT, /* integers wrap */
	PAWL_MIN,     /* NaN if any element is NaN */
	PAWL_MAX,     /* NaN if any element is NaN */
	PAWL_BAND,    /* bitwise and; integers only, as for the next two */
	PAWL_BOR,
	PAWL_BXOR,
	PAWL_REDUCE_OPS
};

/* A divisor of gradients. pawl_squared_norm divides each element by it before it takes the norm.
 * Adam and similar optimizers step by g / d, with d = sqrt(second_moment * bias_correction) + eps.
 * That equals a step of SGD on weights multiplied by sqrt(d), where the gradient is g / sqrt(d). So
 * the divisor is sqrt(d). */
struct pawl_whitening {
	const void *second_moment; /* as many elements as the gradients, and of the same type */
	double bias_correction;    /* 1 / (1 - beta2^t) */
	double eps;                /* the optimizer's eps */
};

/* Returns the squared norm of n floats, added in double. whitening: the divisor, or NULL for none.
 * Floats of 16 and 32 bits are divided in 32 bits. The bits of the result depend on the numbers
 * alone, not on the processor. Any thread. */
double pawl_squared_norm(enum pawl_dtype type, const void *x, uint64_t n,
	const struct pawl_whitening *whitening);

/* The kinds of operation, and what in and out are at each rank. In a vector of blocks, block i is
 * rank i's. */
enum pawl_coll {
	PAWL_ALL_REDUCE, /* out: the reduction of all ranks' in */
	PAWL_REDUCE,     /* root's out: the reduction of all ranks' in; other ranks have no out */
	PAWL_BROADCAST,  /* out of all ranks but root: root's in */
	PAWL_ALL_GATHER, /* out, one block per rank: all ranks' in */
	PAWL_REDUCE_SCATTER, /* out: this rank's block of the reduction of all ranks' in */
	PAWL_GATHER,         /* root's out, one block per rank: all ranks' in */
	PAWL_SCATTER,        /* out: this rank's block of root's in */
	PAWL_ALL_TO_ALL,     /* out: from each rank, the part of its in for this rank */
	PAWL_BARRIER,        /* no in and no out */
	PAWL_SEND,           /* in: a message to the rank root; not a collective */
	PAWL_RECEIVE,        /* out: a message from the rank root, or from any rank */
	PAWL_COLLS
};

#define PAWL_ANY_RANK UINT32_MAX /* root of PAWL_RECEIVE: receive a message from any rank */

/* Describes an operation. All ranks of a collective pass the same values, except in and out. Fields
 * that the kind does not use must be zero. */
struct pawl_coll_call {
	enum pawl_coll kind;
	enum pawl_reduce_op op; /* reduction; only for kinds that reduce */
	enum pawl_dtype dtype;  /* type of the elements */
	bool mean;              /* divide the sum by the number of ranks; floats only */
	uint32_t root;          /* root rank, or the other rank of a message */
	uint32_t tag;           /* messages: a number that must be equal at both ends */
	uint64_t len_bytes;     /* size of the vector, of one block, or of the message */
	/* Input. The caller's, and must not change until the operation is done. Collectives with
	 * overlapping memory take effect as if called one after another. */
	const void *in;
	/* Output. The caller's, and must not be touched until the operation is done. May equal in,
	 * or, for kinds with blocks, be this rank's block of in, or contain in as this rank's
	 * block; not for PAWL_ALL_TO_ALL. */
	void *out;
	/* PAWL_ALL_TO_ALL: bytes in_at[i] .. in_at[i + 1] of in, whole elements, are for rank i.
	 * The caller's until the operation is done. */
	const uint64_t *in_at;
	/* PAWL_ALL_TO_ALL: bytes out_at[i] .. out_at[i + 1] of out, whole elements, come from rank
	 * i. The caller's until the operation is done. */
	const uint64_t *out_at;
	int64_t timeout_ns; /* the group ends if the operation takes longer; 0: no limit */
	bool deferred;      /* do not begin before pawl_group_release */
};

/* An operation under way. The memory is the caller's, and must stay valid from submit until
 * done. */
struct pawl_work {
	struct pawl_coll_call call; /* the call as submitted */
	uint64_t number; /* position among the group's collectives, or its messages; from 0 */
	uint32_t from;   /* PAWL_RECEIVE: the rank that sent the message */
	int code;        /* atomic: 0 or the operation's error, valid once done */
	bool deferred;   /* atomic: waits for pawl_group_release before it begins */
	bool done;       /* atomic: the operation is over */
	bool watched;    /* pawl_group_watch asked for this work */
	void *priv[12];  /* private to the group */
};

/* An endpoint is one line of text that describes how a rank is reached; see docs/protocol.md. */
#define PAWL_ENDPOINT_MAX 352u /* bytes of an endpoint, terminator included */

/* Opens this rank's side of a group. route_hint: a host or address that all ranks know. Other ranks
 * reach this rank on the interface with the route to it, or on the one that PAWL_IFNAME names.
 * NULL: all ranks are on one host. endpoint: PAWL_ENDPOINT_MAX bytes, filled with this rank's
 * endpoint. PAWL_ELIMIT, PAWL_ENOMEM, PAWL_EIO, PAWL_EINVAL (also for a bad PAWL_HEARTBEAT,
 * PAWL_IFNAME, PAWL_LINK, PAWL_CONGESTION, PAWL_TRANSPORT or PAWL_SERVERS), PAWL_ENOTSUP
 * (PAWL_TRANSPORT). */
int pawl_group_open(struct pawl_group **out, uint32_t rank, uint32_t ranks, const char *route_hint,
	char *endpoint, struct pawl_err *err);
/* Joins the other ranks. Call it once, before anything is submitted. endpoints[r]: the endpoint of
 * rank r. PAWL_EPEER: a rank is gone, or cannot be reached in time; PAWL_EINVAL: an endpoint is
 * malformed, or has other settings; PAWL_ENOTSUP: ranks are on several hosts, and one has no
 * address; PAWL_ENOMEM, PAWL_EIO. After an error the group can only be closed. */
int pawl_group_join(struct pawl_group *group, const char *const *endpoints, int64_t timeout_ns,
	struct pawl_err *err);
/* Ends the group at this rank, and notifies the other ranks. Operations under way, and any
 * submitted later, fail with PAWL_ECANCELED. Any thread, any number of times; does nothing in a
 * forked child. */
void pawl_group_leave(struct pawl_group *group);
/* Leaves the group, and frees it. No other call on the group may be under way. NULL is fine. */
void pawl_group_close(struct pawl_group *group);

/*
 * Continues without the ranks that are gone. All remaining ranks call it, agree on the set that
 * remains, and join a new group, in the same order. ranks[i] gets the number that rank i of the new
 * group had in group, and *n the number of ranks; the array ranks has room for all ranks of group.
 * Servers do not join the new group. All operations of group fail from then on. group stays open
 * until *out is closed; both can be shrunk again.
 *
 * least: the fewest ranks to continue with. If it is more than half of the ranks, the two sides of
 * a network partition cannot both continue.
 *
 * PAWL_EPEER: fewer than least ranks remain, or the others continue without this one;
 * PAWL_ETIMEDOUT: a rank has not called; PAWL_EINVAL: group is closed, not joined, or of one rank;
 * also the errors of pawl_group_open and pawl_group_join.
 *
 * After an admission that failed at some ranks only, the other ranks shrink the group that they
 * admitted newcomers to. *out then also has these ranks, without the newcomers.
 */
int pawl_group_shrink(struct pawl_group **out, struct pawl_group *group, uint32_t least,
	uint32_t *ranks, uint32_t *n, int64_t timeout_ns, struct pawl_err *err);

/*
 * Growing a running group. One or several ranks open a join listener. Whatever starts newcomers
 * passes them its name; a process that knows the name may become a rank. From time to time all
 * ranks call pawl_group_admit, at the same position in their order of collectives. While no
 * newcomer waits, the call costs one all-gather of 4 bytes per rank.
 */
struct pawl_join_listener;

/* Bytes of a join listener's name, terminator included: "10.0.0.1:4567:3f0c…" */
#define PAWL_JOIN_LISTENER_NAME 96u

/* Opens a join listener. route_hint: as for pawl_group_open; NULL: newcomers are on this host.
 * name: PAWL_JOIN_LISTENER_NAME bytes, filled with the listener's name. A listener belongs to no
 * group, and can serve one group after another. PAWL_ENOMEM, PAWL_EIO, PAWL_EINVAL. */
int pawl_join_listener_open(struct pawl_join_listener **out, const char *route_hint, char *name,
	struct pawl_err *err);
/* One thread at a time may use a listener: while pawl_group_admit runs with it, no other thread may
 * call pawl_group_admit, pawl_join_listener_waiting or pawl_join_listener_close with it. */
/* Returns how many newcomers have asked to join and wait; 0 for NULL. */
uint32_t pawl_join_listener_waiting(struct pawl_join_listener *listener);
/* Rejects every waiting newcomer, and frees the listener. NULL is fine. */
void pawl_join_listener_close(struct pawl_join_listener *listener);
/* Admits newcomers; all ranks call it. listener: this rank's join listener, or NULL. *out: a new
 * group of all ranks, with the same numbers, followed by the newcomers, with at most `most` ranks;
 * group can then be closed. *out is NULL if no newcomer waits, or if the admission failed; then
 * group continues unchanged. A failed admission is logged, and its newcomers are rejected. Returns
 * the error of a collective of group if one fails; PAWL_ENOMEM, which ends group at this rank. */
int pawl_group_admit(struct pawl_group **out, struct pawl_group *group,
	struct pawl_join_listener *listener, uint32_t most, int64_t timeout_ns,
	struct pawl_err *err);
/* Joins a running group as a newcomer, at the join listener with this name. Waits until the ranks
 * admit it. PAWL_EINVAL: name is not a listener's; PAWL_EPEER: the listener cannot be reached or is
 * closed, or the ranks could not join; PAWL_ETIMEDOUT; also the errors of pawl_group_open and
 * pawl_group_join. */
int pawl_group_request_join(struct pawl_group **out, const char *name, int64_t timeout_ns,
	struct pawl_err *err);
/* Return the number of this rank, and the number of ranks. */
uint32_t pawl_group_rank(const struct pawl_group *group);
uint32_t pawl_group_ranks(const struct pawl_group *group);

/* Submits an operation. PAWL_EINVAL, PAWL_ENOTSUP (forked child); PAWL_EPEER and others: the group
 * has ended. On error nothing has begun. */
int pawl_group_submit(struct pawl_group *group, struct pawl_work *work,
	const struct pawl_coll_call *call, struct pawl_err *err);
/* Begins a deferred operation; call it once for each. Until then the operation only has its
 * position in the order, for example while a device still computes its data. Any thread. work->done
 * may already be true (the group has ended), but its memory must still be valid. */
void pawl_group_release(struct pawl_group *group, struct pawl_work *work);
/* Waits for an operation. 0: it is done. PAWL_ETIMEDOUT with work->done false: it is not done yet;
 * the caller may wait again. Other codes are the error of the operation: PAWL_EPEER (a rank is
 * lost), PAWL_EMISMATCH (ranks called different operations), PAWL_ETIMEDOUT (its own timeout has
 * passed), PAWL_ECANCELED (the group is closed), PAWL_ENOMEM. timeout_ns below 0: no limit. */
int pawl_group_wait(struct pawl_group *group, struct pawl_work *work, int64_t timeout_ns,
	struct pawl_err *err);
/* Returns whether an operation is over. Any thread. */
bool pawl_work_done(const struct pawl_work *work);
/* Returns the last collective that is not done and reads or writes any of these bytes; NULL: there
 * is none, or this is a forked child. Any thread, while no other frees works of the group. */
struct pawl_work *pawl_group_find_using(struct pawl_group *group, const void *memory,
	uint64_t len_bytes);
/* Marks work as watched: pawl_group_next_completion will return it once it is done. Returns false,
 * and does nothing, if it is done already. */
bool pawl_group_watch(struct pawl_group *group, struct pawl_work *work);
/* Waits until a watched work is done, and returns it; each work once. NULL: the group is being
 * closed. */
struct pawl_work *pawl_group_next_completion(struct pawl_group *group);

/* ---- where the time went ---- */

/* How the time of a collective is spent, from submit until done. One phase follows another, so
 * their sum is the whole time. */
enum pawl_phase {
	PAWL_PHASE_QUEUED, /* earlier operations occupy its channel */
	/* No thread moves bytes: none waits and the group's own sleeps, or the operation is
	 * deferred. */
	PAWL_PHASE_IDLE,
	PAWL_PHASE_LATE,    /* until all ranks that this one exchanges bytes with have begun */
	PAWL_PHASE_NETWORK, /* then until the last byte from or to another host, minus adding */
	PAWL_PHASE_MEMORY,  /* then until it is done, minus adding */
	/* Adding of 16 KiB or more at a time, once all ranks have begun. Smaller parts count in the
	 * two phases before. */
	PAWL_PHASE_ADDING,
	PAWL_PHASES
};

/* Totals of one kind of operation. Only those that have succeeded count, except for blocked_ns. */
struct pawl_kind_stats {
	uint64_t count;      /* number of operations */
	uint64_t bytes;      /* sum of len_bytes; for an all-to-all, the size of in */
	uint64_t blocked_ns; /* time that threads spent in pawl_group_wait */
	/* Time in each phase. Messages have only PAWL_PHASE_NETWORK or PAWL_PHASE_MEMORY, which
	 * includes waiting for the other rank. */
	uint64_t phase_ns[PAWL_PHASES];
};

/* Totals between this rank and another rank, or a server. */
struct pawl_peer_stats {
	uint64_t sent_bytes;     /* bytes sent, of operations that are done */
	uint64_t received_bytes; /* bytes received, of operations that are done */
	uint64_t sending_ns;     /* time in which bytes were sent to this peer; 0 on this host */
	uint64_t last_n;         /* collectives that this peer was the last of our peers to begin */
	uint64_t late_ns; /* time that this rank, once it had begun, waited for it in those */
};

struct pawl_stats {
	int64_t now_ns; /* CLOCK_MONOTONIC; all other figures count from the group's start */
	struct pawl_kind_stats kinds[PAWL_COLLS];
};

/* Fills *stats and peers[0 .. n-1]: ranks first, then servers; zeros for this rank. Returns the
 * number of peers. In a forked child it fills in zeros, and returns 0. Any thread. */
uint32_t pawl_group_stats(struct pawl_group *group, struct pawl_stats *stats,
	struct pawl_peer_stats *peers, uint32_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
