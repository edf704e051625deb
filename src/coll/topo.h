/*
 * Who is where: the ranks of a group and the hosts they run on. Pure.
 *
 * Order of addition. Every sum of ours has one association, which depends on ranks and hosts alone,
 * never on the offset, the size or the way the bytes take: the ranks of a host are added in a
 * tree, then the hosts in a tree. The tree over n terms is coll_tree_left's: the largest power of
 * two below n on the left, the rest on the right, and so on in each half. That is the order in
 * which recursive doubling adds, so that it and a server that has all terms at hand agree bit by
 * bit; and its rounding error grows with log2(n), not n (Higham 1993, pairwise summation). 16 bit
 * floats are rounded by every rank that adds, so for them the bits depend on the way, too.
 */
#ifndef COLL_TOPO_H
#define COLL_TOPO_H

#include <stdint.h>

struct pawl_err;

#define COLL_RANKS_MAX 4096u /* of a group, servers included */
#define COLL_GRANULE   64u   /* bytes; vectors are cut at multiples of it: a cache line */

/* Ranks 0..ranks-1 have vectors; servers ranks..ranks+servers-1 only add, each on a host of its
 * own. Hosts are numbered by their least rank. */
struct coll_topo {
	uint32_t ranks;    /* with vectors; at least 1 */
	uint32_t servers;  /* without */
	uint32_t hosts;    /* of ranks; those of servers not counted */
	uint32_t *start;   /* owned; start[h]..start[h + 1]: of host h, in member */
	uint32_t *member;  /* owned; ranks by host, ascending in each */
	uint32_t *host_of; /* owned; of each rank */
};

/* where[r]: any number that says which host rank r is on. PAWL_EINVAL, PAWL_ELIMIT, PAWL_ENOMEM. */
int coll_topo_init(struct coll_topo *topo, const uint32_t *where, uint32_t ranks, uint32_t servers,
	struct pawl_err *err);
void coll_topo_deinit(struct coll_topo *topo);
static inline uint32_t coll_topo_locals(const struct coll_topo *topo, uint32_t host)
{
	return topo->start[host + 1] - topo->start[host];
}
/* Ranks of the host that has most. */
uint32_t coll_topo_locals_max(const struct coll_topo *topo);

/* Terms on the left of a sum of n, n > 1. */
static inline uint32_t coll_tree_left(uint32_t n)
{
	return 1u << (31 - __builtin_clz(n - 1));
}

#endif
