/*
 * A collective operation as lists of steps, one a rank: who sends which bytes to whom, and who adds
 * what to what. Pure.
 *
 * A list is complete: whoever carries it out needs to know nothing of the algorithm. A step may be
 * begun, for a part of its bytes, too, as soon as no earlier one of the list still has to write
 * what it reads, read what it writes, or write what it writes. Of the messages between two
 * ranks the n-th one sent is the n-th one received, and what is sent may be overwritten
 * when it is on its way.
 */
#ifndef COLL_PLAN_H
#define COLL_PLAN_H

#include "coll/topo.h"

#include <stdbool.h>
#include <stddef.h>

/* How ranks that are one a host, or one each of a host, add what they have. */
enum coll_way {
	COLL_DIRECT,   /* each is the server of an equal share, and the servers that only add are of
			  theirs: two hops. The share sizes of BytePS (Jiang et al. 2020, Theorem 1)
			*/
	COLL_DOUBLING, /* log2(n) exchanges of everything: for few bytes */
	COLL_HALVING,  /* of halves, and back: as many bytes as direct, log2(n) messages. Powers of
			  two only */
	COLL_TREE,     /* to the first and back: for few bytes and many ranks */
	COLL_RING,     /* to the next, 2(n - 1) times. For comparison: the order of addition depends
			  on the offset, so that it is no way of ours */
	COLL_WAYS
};

enum coll_area {
	COLL_IN, /* what the rank brings; may be the same memory as OUT, unless the plan says not */
	COLL_OUT, /* what it gets */
	COLL_TMP, /* memory of the plan's */
};

struct coll_place {
	enum coll_area area; /* which memory */
	uint64_t off_bytes;  /* in it */
};

enum coll_op {
	COLL_SEND, /* to peer, from at */
	COLL_RECV, /* from peer, to at */
	COLL_SUM,  /* at = terms[term .. term + terms), added in the order of topo.h */
};

struct coll_step {
	enum coll_op op;
	uint32_t peer;        /* SEND, RECV: rank */
	struct coll_place at; /* see coll_op */
	uint64_t len_bytes;   /* at least 1 */
	uint32_t term;        /* SUM: index of the first */
	uint32_t terms;       /* SUM: how many */
};

/* Zero-initialise; may be made again and again, keeping its memory. */
struct coll_plan {
	struct coll_step *steps;  /* owned */
	size_t steps_n;           /* of them */
	size_t steps_cap;         /* allocated */
	struct coll_place *terms; /* owned */
	size_t terms_n;           /* of them */
	size_t terms_cap;         /* allocated */
	uint64_t tmp_bytes;       /* of TMP */
	bool apart;               /* IN and OUT are not the same memory */
	bool even;                /* better all peers' bytes at one pace than each message whole */
	bool failed;              /* no memory */
};

void coll_plan_deinit(struct coll_plan *plan);

/* Share i of n of a vector: equal to a granule. */
void coll_share(uint64_t len_bytes, uint32_t n, uint32_t i, uint64_t *lo, uint64_t *hi);
/* Whether a way is for so many. */
bool coll_way_fits(enum coll_way way, uint32_t n);

/*
 * What rank does in each. Of blocks, block i of a vector is rank i's. Servers (ranks from
 * topo->ranks on) take part in all-reduce only, by COLL_DIRECT. reduce and broadcast go by
 * COLL_DIRECT (many bytes) or COLL_TREE (few). PAWL_EINVAL: the way does not fit; PAWL_ENOMEM.
 */

/* OUT: the sum of all IN. Ranks of one host add first, each some of the bytes, and the hosts' sums
 * are added by way; by the ways for few bytes, ranks that are on one host add all for
 * themselves. */
int coll_plan_all_reduce(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	enum coll_way way, uint64_t len_bytes, struct pawl_err *err);
/* root's OUT: the sum of all IN. The others have no OUT. */
int coll_plan_reduce(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint32_t root, enum coll_way way, uint64_t len_bytes, struct pawl_err *err);
/* The others' OUT: root's IN. */
int coll_plan_broadcast(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint32_t root, enum coll_way way, uint64_t len_bytes, struct pawl_err *err);
/* OUT, of a block a rank: all IN. */
int coll_plan_all_gather(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint64_t len_bytes, struct pawl_err *err);
/* OUT: the sum of all IN's blocks of this rank. */
int coll_plan_reduce_scatter(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint64_t len_bytes, struct pawl_err *err);
/* in_at[i] .. in_at[i + 1]: the bytes of IN for rank i; out_at[i] .. out_at[i + 1]: of OUT, from
 * rank i. */
int coll_plan_all_to_all(struct coll_plan *plan, uint32_t ranks, uint32_t rank,
	const uint64_t *in_at, const uint64_t *out_at, struct pawl_err *err);
/* root's OUT, of a block a rank: all IN. */
int coll_plan_gather(struct coll_plan *plan, uint32_t ranks, uint32_t rank, uint32_t root,
	uint64_t len_bytes, struct pawl_err *err);
/* OUT: this rank's block of root's IN. */
int coll_plan_scatter(struct coll_plan *plan, uint32_t ranks, uint32_t rank, uint32_t root,
	uint64_t len_bytes, struct pawl_err *err);

#endif
