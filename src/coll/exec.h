/*
 * A plan being carried out: which bytes may be sent, where those that come go, and the sums
 * between. It neither sends nor receives; whoever does asks what, and tells how far it came. Pure.
 *
 * All works on parts: what has come of a message is added, and sent on, before the rest of it is
 * there. One thread at a time. Nothing is allocated but in coll_exec_init.
 */
#ifndef COLL_EXEC_H
#define COLL_EXEC_H

#include "coll/fold.h"
#include "coll/plan.h"

struct exec_wait;

/* Zeroed before coll_exec_init. */
struct coll_exec {
	const struct coll_plan *plan; /* the caller's, as it was at init */
	enum coll_kernel kernel;      /* for sums */
	uint64_t *done;               /* owned; bytes of each step that are over */
	uint32_t *next;               /* owned; of each step the next to, or from, its peer; of a
					 SUM the next SUM */
	size_t *waits_at;             /* owned; where each step's waits begin; steps_n + 1 */
	struct exec_wait *waits;      /* owned; what it waits for */
	uint32_t *sends;              /* owned; of each peer the first SEND that is not over */
	uint32_t *recvs;              /* owned; RECV */
	uint64_t *goes, *went;        /* owned; bytes to each peer, all; gone */
	uint64_t *comes;              /* owned; from each peer, all */
	uint32_t peers;               /* of sends and of recvs */
	uint32_t sums;                /* the first SUM that is not over */
	uint8_t *tmp;                 /* owned; the plan's */
	size_t left;                  /* steps that are not over */
	enum pawl_reduce_op fold;     /* of the operation in progress */
	enum pawl_dtype type;         /* of its elements */
	const uint8_t *in;            /* the caller's; may be out */
	uint8_t *out;                 /* the caller's */
};

/* peers: ranks and servers of the group. The plan stays as it is until deinit. PAWL_ENOMEM. */
int coll_exec_init(struct coll_exec *exec, const struct coll_plan *plan, uint32_t peers,
	enum coll_kernel kernel, struct pawl_err *err);
void coll_exec_deinit(struct coll_exec *exec);

/* Begins; the vectors are of as many bytes as the plan's, and whole elements. in and out are the
 * same memory or do not overlap; both stay the caller's, and as they are, until it is done. */
void coll_exec_start(struct coll_exec *exec, enum pawl_reduce_op fold, enum pawl_dtype type,
	const void *in, void *out);
bool coll_exec_done(const struct coll_exec *exec);
/* Whether something is still to come from a peer, or to go to it. */
bool coll_exec_expects(const struct coll_exec *exec, uint32_t peer);
bool coll_exec_owes(const struct coll_exec *exec, uint32_t peer);

/* What may be sent to a peer now; 0: nothing, for now. */
size_t coll_exec_to_send(const struct coll_exec *exec, uint32_t peer, const void **bytes);
/* Of peers that something may be sent to now, the one with the least turn is next; UINT64_MAX: not
 * this one. */
uint64_t coll_exec_turn(const struct coll_exec *exec, uint32_t peer);
void coll_exec_sent(struct coll_exec *exec, uint32_t peer, size_t len_bytes);
/* Where the next bytes of a peer go, and how many have room there; 0: none, for now. */
size_t coll_exec_to_receive(const struct coll_exec *exec, uint32_t peer, void **bytes);
void coll_exec_received(struct coll_exec *exec, uint32_t peer, size_t len_bytes);

#endif
