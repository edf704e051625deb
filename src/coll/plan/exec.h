/*
 * The execution of a plan: which bytes may be sent, where received bytes go, and the sums between.
 * This code neither sends nor receives. The caller asks what to move, and reports how many bytes it
 * moved. Pure.
 *
 * Messages are processed in parts: the bytes received so far are added, and forwarded, before the
 * rest arrives. One thread at a time. Only coll_exec_init allocates memory.
 */
#ifndef COLL_PLAN_EXEC_H
#define COLL_PLAN_EXEC_H

#include "coll/plan/fold.h"
#include "coll/plan/plan.h"

struct exec_wait;

/* State of an execution. Zero it before coll_exec_init. */
struct coll_exec {
	const struct coll_plan *plan; /* the caller's; must not change until deinit */
	enum coll_kernel kernel;      /* kernel that computes sums */
	uint64_t *done;               /* owned; per step, the bytes that are done */
	/* Owned; per step, the next step to or from the same peer; for a SUM, the next SUM. */
	uint32_t *next;
	size_t *waits_at;           /* owned; per step, index of its first wait; steps_n + 1 */
	struct exec_wait *waits;    /* owned; the waits of all steps */
	uint32_t *sends;            /* owned; per peer, the first SEND that is not done */
	uint32_t *recvs;            /* owned; per peer, the first RECV that is not done */
	uint64_t *send_total_bytes; /* owned; per peer, bytes to send in all */
	uint64_t *sent_bytes;       /* part of send_total_bytes; per peer, bytes sent so far */
	/* Part of send_total_bytes; per peer, bytes to receive in all. */
	uint64_t *recv_total_bytes;
	uint32_t peers;           /* number of ranks and servers */
	uint32_t sums;            /* the first SUM that is not done */
	uint8_t *tmp;             /* owned; memory of COLL_TMP */
	size_t left;              /* number of steps that are not done */
	enum pawl_reduce_op fold; /* reduction of the operation in progress */
	enum pawl_dtype type;     /* element type of the operation in progress */
	const uint8_t *in;        /* the caller's; may be the same as out */
	uint8_t *out;             /* the caller's */
};

/* Prepares a plan, which must not change until deinit. peers: ranks and servers of the group.
 * PAWL_ENOMEM. */
int coll_exec_init(struct coll_exec *exec, const struct coll_plan *plan, uint32_t peers,
	enum coll_kernel kernel, struct pawl_err *err);
void coll_exec_deinit(struct coll_exec *exec);

/* Begins an operation. The vectors have the plan's size, which is a whole number of elements. in
 * and out are the same memory or do not overlap. Both stay the caller's, and must not change until
 * the operation is done. */
void coll_exec_start(struct coll_exec *exec, enum pawl_reduce_op fold, enum pawl_dtype type,
	const void *in, void *out);
bool coll_exec_done(const struct coll_exec *exec);
/* Return whether bytes are still to be received from a peer, or sent to it. */
bool coll_exec_recv_pending(const struct coll_exec *exec, uint32_t peer);
bool coll_exec_send_pending(const struct coll_exec *exec, uint32_t peer);

/* Returns how many bytes may be sent to a peer now, and where they are; 0: none for now. */
size_t coll_exec_to_send(const struct coll_exec *exec, uint32_t peer, const void **bytes);
/* Returns a peer's position in the order of sending: send next to the peer with the lowest one.
 * UINT64_MAX: nothing may be sent to this peer now. */
uint64_t coll_exec_turn(const struct coll_exec *exec, uint32_t peer);
void coll_exec_sent(struct coll_exec *exec, uint32_t peer, size_t len_bytes);
/* Returns how many bytes may be received from a peer now, and where they go; 0: none for now. */
size_t coll_exec_to_receive(const struct coll_exec *exec, uint32_t peer, void **bytes);
void coll_exec_received(struct coll_exec *exec, uint32_t peer, size_t len_bytes);

#endif
