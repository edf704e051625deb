/* Shared by the files of plans: appending steps, positions, and plans of equal ranks. Pure. */
#ifndef COLL_PLAN_PLAN_IMPL_H
#define COLL_PLAN_PLAN_IMPL_H

#include "coll/plan/plan.h"

/* ---- lists (plan.c) ---- */

/* Empties a plan. apart: IN and OUT are never the same memory. */
void plan_reset(struct coll_plan *plan, bool apart);
/* Returns 0, or PAWL_ENOMEM if a step could not be appended: "no memory for the plan of <what>". */
int plan_finish(const struct coll_plan *plan, const char *what, struct pawl_err *err);
/* Reserves memory of TMP, rounded up to granules. Returns its offset. */
uint64_t plan_take_tmp(struct coll_plan *plan, uint64_t len_bytes);
/* Append a message to, or from, a peer. Do nothing if it has no bytes. */
void plan_add_send(struct coll_plan *plan, uint32_t peer, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes);
void plan_add_recv(struct coll_plan *plan, uint32_t peer, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes);
/* Appends a sum, of at least one byte. The caller then appends all its terms with plan_add_term,
 * before the next step. */
void plan_add_sum(struct coll_plan *plan, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes);
void plan_add_term(struct coll_plan *plan, enum coll_area area, uint64_t off_bytes);
/* Appends a copy from IN to OUT. */
void plan_add_copy(struct coll_plan *plan, uint64_t out_off_bytes, uint64_t in_off_bytes,
	uint64_t len_bytes);

/* ---- position of a rank among the ranks of its host (plan.c) ---- */

struct plan_position {
	const struct coll_topo *topo; /* the caller's */
	uint32_t host;                /* host of the rank */
	uint32_t local;               /* index of the rank on its host */
	uint32_t locals;              /* number of ranks on the host */
};

struct plan_position plan_find_position(const struct coll_topo *topo, uint32_t rank);
/* Returns the local-th rank of a host. */
static inline uint32_t plan_rank_at(const struct coll_topo *topo, uint32_t host, uint32_t local)
{
	return topo->member[topo->start[host] + local];
}
/* Return the d-th rank after this one on its host, and the d-th before it. Loops over d begin with
 * a different rank at each rank. */
static inline uint32_t plan_after(const struct plan_position *p, uint32_t d)
{
	return plan_rank_at(p->topo, p->host, (p->local + d) % p->locals);
}
static inline uint32_t plan_before(const struct plan_position *p, uint32_t d)
{
	return plan_rank_at(p->topo, p->host, (p->local + p->locals - d) % p->locals);
}

/* Appends the steps with which this rank adds the bytes that each rank of its host has at
 * in_off_bytes: it receives them in TMP, and writes their sum to `to`. The others must send
 * them. */
void plan_add_locals(struct coll_plan *plan, const struct plan_position *p, uint64_t in_off_bytes,
	struct coll_place to, uint64_t len_bytes);

/* ---- equal ranks (plan_flat.c) ---- */

/* Members (n ranks that each have the bytes [lo, hi) of a vector), and servers that add for
 * them. */
struct flat {
	struct coll_plan *plan; /* plan of this rank, to which steps are appended */
	const uint32_t *who;    /* ranks of the members, in the order in which they are added */
	uint32_t n;             /* number of members */
	uint32_t me;            /* index of this rank in who; n + i at server i */
	uint32_t servers;       /* servers that only add; in all-reduce by COLL_DIRECT only */
	uint32_t server;        /* rank of the first server */
	uint64_t lo, hi;        /* range of bytes */
	enum coll_area in;      /* area of the input; byte b is at b */
	enum coll_area out;     /* area of the sum; byte b goes to b */
};

/* Appends an all-reduce: all members get the sum. The algorithm fits n. */
void flat_all_reduce(struct flat *flat, enum coll_algorithm algorithm);
/* Appends a reduce: member root gets the sum. The contents of out at the other members are
 * undefined. COLL_DIRECT or COLL_TREE. */
void flat_reduce(struct flat *flat, enum coll_algorithm algorithm, uint32_t root);
/* Appends a broadcast: out of all other members gets the contents of root's in. COLL_DIRECT or
 * COLL_TREE. */
void flat_broadcast(struct flat *flat, enum coll_algorithm algorithm, uint32_t root);

#endif
