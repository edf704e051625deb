/*
 * A collective operation as lists of steps, one list per rank: which bytes it sends and receives,
 * and what it adds. Pure.
 *
 * A list is complete: to execute it needs no knowledge of the algorithm. A step, or a part of its
 * bytes, may begin as soon as no earlier step of the list still has to write what it reads, read
 * what it writes, or write what it writes. Messages between two ranks are received in the order in
 * which they are sent. Bytes may be overwritten once they are sent.
 */
#ifndef COLL_PLAN_PLAN_H
#define COLL_PLAN_PLAN_H

#include "coll/plan/topo.h"

#include <stdbool.h>
#include <stddef.h>

/* How the ranks of one host, or one rank of each host, add their vectors. */
enum coll_algorithm {
	/* Each rank adds one equal share, and each server that only adds has a share, too: two
	 * hops. The sizes of shares are those of BytePS (Jiang et al. 2020, Theorem 1). */
	COLL_DIRECT,
	COLL_DOUBLING, /* log2(n) exchanges of the whole vector: for few bytes */
	/* Exchanges of halves, and back: as many bytes as direct, in 2 log2(n) messages. Powers of
	 * two only. */
	COLL_HALVING,
	COLL_TREE, /* to the first rank and back: for few bytes and many ranks */
	/* To the next rank, 2(n - 1) times. For comparison only: the order of addition depends on
	 * the offset, so Pawl never chooses this algorithm. */
	COLL_RING,
	COLL_ALGORITHMS
};

enum coll_area {
	COLL_IN,  /* input of the rank; may be the same memory as OUT, unless apart is set */
	COLL_OUT, /* output of the rank */
	COLL_TMP, /* temporary memory of the plan */
};

struct coll_place {
	enum coll_area area; /* area of memory */
	uint64_t off_bytes;  /* offset in that area */
};

enum coll_op {
	COLL_SEND, /* send to peer, from `at` */
	COLL_RECV, /* receive from peer, to `at` */
	COLL_SUM,  /* at = terms[term .. term + terms), added in the order of topo.h */
};

struct coll_step {
	enum coll_op op;
	uint32_t peer;        /* SEND, RECV: rank */
	struct coll_place at; /* see enum coll_op */
	uint64_t len_bytes;   /* at least 1 */
	uint32_t term;        /* SUM: index of the first term */
	uint32_t terms;       /* SUM: number of terms */
};

/* Zero it before first use. A plan can be rebuilt any number of times; it keeps its memory. */
struct coll_plan {
	struct coll_step *steps;  /* owned; in order */
	size_t steps_n;           /* number of steps */
	size_t steps_cap;         /* capacity of steps */
	struct coll_place *terms; /* owned; the terms of all sums */
	size_t terms_n;           /* number of terms */
	size_t terms_cap;         /* capacity of terms */
	uint64_t tmp_bytes;       /* size of TMP */
	bool apart;               /* IN and OUT are not the same memory */
	bool interleave;          /* interleave the bytes to all peers, instead of whole messages */
	bool failed;              /* out of memory */
};

void coll_plan_deinit(struct coll_plan *plan);

/* Sets *lo and *hi to the limits of share i of n of a vector. Shares differ by one granule at
 * most. */
void coll_share(uint64_t len_bytes, uint32_t n, uint32_t i, uint64_t *lo, uint64_t *hi);
/* Returns whether n ranks can add by an algorithm. */
bool coll_algorithm_fits(enum coll_algorithm algorithm, uint32_t n);

/*
 * Each function plans what rank does in one operation. Where a vector has blocks, block i belongs
 * to rank i. Servers (ranks from topo->ranks on) take part in all-reduce only, by COLL_DIRECT.
 * reduce and broadcast use COLL_DIRECT (many bytes) or COLL_TREE (few). PAWL_EINVAL: the algorithm
 * does not fit; PAWL_ENOMEM.
 */

/* All-reduce. OUT: the sum of all IN. The ranks of each host add first, each some of the bytes;
 * then the algorithm adds the sums of the hosts. With an algorithm for few bytes, if all ranks are
 * on one host, each rank adds the whole vector itself. */
int coll_plan_all_reduce(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	enum coll_algorithm algorithm, uint64_t len_bytes, struct pawl_err *err);
/* Reduce. root's OUT: the sum of all IN; the others have no OUT. */
int coll_plan_reduce(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint32_t root, enum coll_algorithm algorithm, uint64_t len_bytes, struct pawl_err *err);
/* Broadcast. OUT of all ranks but root: root's IN. */
int coll_plan_broadcast(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint32_t root, enum coll_algorithm algorithm, uint64_t len_bytes, struct pawl_err *err);
/* All-gather. OUT, one block per rank: all IN. */
int coll_plan_all_gather(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint64_t len_bytes, struct pawl_err *err);
/* Reduce-scatter. OUT: the sum of this rank's blocks of all IN. */
int coll_plan_reduce_scatter(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint64_t len_bytes, struct pawl_err *err);
/* All-to-all. Bytes in_at[i] .. in_at[i + 1] of IN are for rank i; bytes out_at[i] .. out_at[i + 1]
 * of OUT are from rank i. */
int coll_plan_all_to_all(struct coll_plan *plan, uint32_t ranks, uint32_t rank,
	const uint64_t *in_at, const uint64_t *out_at, struct pawl_err *err);
/* Gather. root's OUT, one block per rank: all IN. */
int coll_plan_gather(struct coll_plan *plan, uint32_t ranks, uint32_t rank, uint32_t root,
	uint64_t len_bytes, struct pawl_err *err);
/* Scatter. OUT: this rank's block of root's IN. */
int coll_plan_scatter(struct coll_plan *plan, uint32_t ranks, uint32_t rank, uint32_t root,
	uint64_t len_bytes, struct pawl_err *err);

#endif
