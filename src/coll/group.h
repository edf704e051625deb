/*
 * A group of ranks that do collectives: operations in, in the same order at all ranks, and out
 * again when they are done, several under way at a time.
 *
 * Who waits for an operation carries it out, and all others under way; while nobody waits a thread
 * of the group's does. So a small operation costs no switch between threads, and a large one goes
 * on beside the caller's work.
 *
 * What one rank alone fails at (no memory for a plan) it does not tell the others yet, nor is it
 * found when ranks do not do the same operations: they wait until their time is over.
 */
#ifndef COLL_GROUP_H
#define COLL_GROUP_H

#include "coll/exec.h"
#include "coll/port.h"

struct coll_group;

enum coll_kind {
	COLL_ALL_REDUCE,
	COLL_REDUCE,
	COLL_BROADCAST,
	COLL_ALL_GATHER,
	COLL_REDUCE_SCATTER,
	COLL_GATHER,
	COLL_SCATTER,
};

/* What is to be done; the same at all ranks but for in and out. */
struct coll_call {
	enum coll_kind kind; /* see plan.h for each */
	enum coll_way way;   /* of all-reduce, reduce and broadcast */
	enum coll_fold fold; /* of those that add; else COLL_ADD */
	enum coll_type type; /* of the elements; bytes for those that do not add: COLL_U8 */
	uint32_t root;       /* of those that have one; else 0 */
	uint64_t len_bytes;  /* of the vector, or of a block */
	const void *in;      /* the caller's, until it is done; as it is until then */
	void *out;           /* the same; may be in unless the plan says not */
};

/* An operation under way. Caller's memory, from submit until wait returned 0 or an error that is
 * not PAWL_ETIMEDOUT. */
struct coll_work {
	struct coll_call call;   /* as submitted */
	uint64_t number;         /* of those of the group, from 0 */
	struct group_slot *slot; /* the group's; NULL: waits for its channel */
	struct coll_work *next;  /* on its channel */
	int code;                /* atomic: 0 or what it failed with, once done */
	bool done;               /* atomic */
};

/* Takes the port, also when it fails; topo stays the caller's until close. PAWL_ENOMEM, PAWL_EIO.
 */
int coll_group_open(struct coll_group **out, const struct coll_topo *topo, uint32_t rank,
	struct coll_port *port, struct pawl_err *err);
/* What is under way is given up: PAWL_ECANCELED to whoever waits. */
void coll_group_close(struct coll_group *group);
/* From one thread, or in an order that the ranks agree on. PAWL_EINVAL, PAWL_ENOMEM, PAWL_EPEER: it
 * is not begun. */
int coll_group_submit(struct coll_group *group, struct coll_work *work,
	const struct coll_call *call, struct pawl_err *err);
/* 0: it is done. PAWL_ETIMEDOUT: not yet; may be waited for again. PAWL_EPEER: a rank is lost,
 * which the message names; so are all other operations, and the group. */
int coll_group_wait(struct coll_group *group, struct coll_work *work, int64_t timeout_ns,
	struct pawl_err *err);

#endif
