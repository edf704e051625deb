/*
 * The ranks of a group, and the hosts they run on. Pure.
 *
 * Order of addition. Every sum has one association, which depends on ranks and hosts alone, never
 * on the offset, the size or the way the bytes take: the ranks of a host are added in a tree, then
 * the hosts in a tree. The tree over n terms is coll_tree_left's: the largest power of two below n
 * on the left, the rest on the right, and so on in each half. That is the order in which recursive
 * doubling adds, so that it and a server that has all terms at hand agree bit by bit; and its
 * rounding error grows with log2(n), not n (Higham 1993, pairwise summation). 16 bit floats are
 * rounded by every rank that adds, so for them the bits depend on the way, too.
 */
#ifndef COLL_PLAN_TOPO_H
#define COLL_PLAN_TOPO_H

#include <stdint.h>

struct pawl_err;

#define COLL_RANKS_MAX 4096u /* ranks of a group, servers included, at most */
#define COLL_GRANULE   64u   /* bytes; vectors are cut at multiples of it: a cache line */

/* Ranks 0..ranks-1 have vectors; servers ranks..ranks+servers-1 only add, each on a host of its
 * own. Hosts are numbered by their least rank. */
struct coll_topo {
	uint32_t ranks;    /* ranks with vectors; at least 1 */
	uint32_t servers;  /* servers, without vectors */
	uint32_t hosts;    /* hosts of ranks; those of servers not counted */
	uint32_t *start;   /* owned; host h has start[h] .. start[h + 1] - 1 of member */
	uint32_t *member;  /* part of start; ranks by host, ascending in each */
	uint32_t *host_of; /* part of start; host of each rank */
};

/* Numbers hosts. where[r]: any number that says which host rank r is on. PAWL_EINVAL, PAWL_ELIMIT,
 * PAWL_ENOMEM. */
int coll_topo_init(struct coll_topo *topo, const uint32_t *where, uint32_t ranks, uint32_t servers,
	struct pawl_err *err);
void coll_topo_deinit(struct coll_topo *topo);
static inline uint32_t coll_topo_locals(const struct coll_topo *topo, uint32_t host)
{
	return topo->start[host + 1] - topo->start[host];
}
/* Returns the number of ranks of the host that has most. */
uint32_t coll_topo_locals_max(const struct coll_topo *topo);

/* Returns how many terms of a sum of n are on the left; n > 1. */
static inline uint32_t coll_tree_left(uint32_t n)
{
	return 1u << (31 - __builtin_clz(n - 1));
}

#endif
