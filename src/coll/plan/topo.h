/*
 * The ranks of a group, and the hosts they run on. Pure.
 *
 * Order of addition. Every sum has one association. It depends on ranks and hosts alone, never on
 * the offset, the size or the algorithm. The ranks of a host are added in a tree, then the hosts in
 * a tree. The tree over n terms is that of coll_tree_left: the largest power of two below n on the
 * left, the rest on the right, and so on in each half.
 *
 * Recursive doubling adds in this order, so its result equals, bit by bit, that of a server that
 * has all terms. The rounding error grows with log2(n), not n (Higham 1993, pairwise summation).
 * 16-bit floats are rounded by every rank that adds, so for them the bits also depend on the
 * algorithm.
 */
#ifndef COLL_PLAN_TOPO_H
#define COLL_PLAN_TOPO_H

#include <stdint.h>

struct pawl_err;

/* Ranks of a topology, servers included, at most. A group has fewer ranks: COLL_SHM_RANKS_MAX. */
#define COLL_RANKS_MAX 4096u
#define COLL_GRANULE   64u /* bytes; vectors are cut at multiples of it: a cache line */

/* Ranks 0..ranks-1 have vectors. Servers ranks..ranks+servers-1 only add, each on a host of its
 * own. Hosts are numbered in the order of their lowest ranks. */
struct coll_topo {
	uint32_t ranks;    /* ranks with vectors; at least 1 */
	uint32_t servers;  /* servers, without vectors */
	uint32_t hosts;    /* hosts of ranks, without those of servers */
	uint32_t *start;   /* owned; host h has start[h] .. start[h + 1] - 1 of member */
	uint32_t *member;  /* part of start; ranks by host, ascending in each */
	uint32_t *host_of; /* part of start; host of each rank */
};

/* Groups ranks by host. where[r]: any number that is equal for the ranks of one host, and differs
 * between hosts. PAWL_EINVAL, PAWL_ELIMIT, PAWL_ENOMEM. */
int coll_topo_init(struct coll_topo *topo, const uint32_t *where, uint32_t ranks, uint32_t servers,
	struct pawl_err *err);
void coll_topo_deinit(struct coll_topo *topo);
static inline uint32_t coll_topo_locals(const struct coll_topo *topo, uint32_t host)
{
	return topo->start[host + 1] - topo->start[host];
}
/* Returns the number of ranks of the host that has the most. */
uint32_t coll_topo_locals_max(const struct coll_topo *topo);

/* Returns how many terms of a sum of n are in the left half of the tree; n > 1. */
static inline uint32_t coll_tree_left(uint32_t n)
{
	return 1u << (31 - __builtin_clz(n - 1));
}

#endif
