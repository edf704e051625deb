/* What the files of plans share: appending steps, places, and what equals do. Pure. */
#ifndef COLL_PLAN_IMPL_H
#define COLL_PLAN_IMPL_H

#include "coll/plan.h"

/* ---- lists (plan.c) ---- */

/* Empties a plan. apart: IN and OUT are never the same memory. */
void plan_reset(struct coll_plan *plan, bool apart);
/* 0, or PAWL_ENOMEM if a step could not be appended: "no memory for the plan of <what>". */
int plan_finish(const struct coll_plan *plan, const char *what, struct pawl_err *err);
uint64_t plan_take_tmp(struct coll_plan *plan, uint64_t len_bytes); /* its place in TMP */
/* Steps of no bytes are left out. */
void plan_add_send(struct coll_plan *plan, uint32_t peer, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes);
void plan_add_recv(struct coll_plan *plan, uint32_t peer, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes);
/* A sum, of more than no bytes, of what plan_add_term adds next, all of it before the next step. */
void plan_add_sum(struct coll_plan *plan, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes);
void plan_add_term(struct coll_plan *plan, enum coll_area area, uint64_t off_bytes);
/* From IN to OUT. */
void plan_add_copy(struct coll_plan *plan, uint64_t out_off_bytes, uint64_t in_off_bytes,
	uint64_t len_bytes);

/* ---- a rank among those of its host (plan.c) ---- */

struct plan_place {
	const struct coll_topo *topo; /* the caller's */
	uint32_t host;                /* of the rank */
	uint32_t local;               /* its index there */
	uint32_t locals;              /* ranks there */
};

struct plan_place plan_find_place(const struct coll_topo *topo, uint32_t rank);
/* The local-th rank of a host. */
static inline uint32_t plan_rank_at(const struct coll_topo *topo, uint32_t host, uint32_t local)
{
	return topo->member[topo->start[host] + local];
}
/* The d-th rank after this one on its host, and the d-th before it: so that not all begin
 * with the same one. */
static inline uint32_t plan_after(const struct plan_place *p, uint32_t d)
{
	return plan_rank_at(p->topo, p->host, (p->local + d) % p->locals);
}
static inline uint32_t plan_before(const struct plan_place *p, uint32_t d)
{
	return plan_rank_at(p->topo, p->host, (p->local + p->locals - d) % p->locals);
}

/* What each rank of the host has at in_off_bytes comes to TMP, and is added in to: this rank's
 * part. The others send it. */
void plan_add_locals(struct coll_plan *plan, const struct plan_place *p, uint64_t in_off_bytes,
	struct coll_place to, uint64_t len_bytes);

/* ---- equals (plan_flat.c) ---- */

/* n ranks that have the bytes [lo, hi) of a vector each, and servers that add for them. */
struct flat {
	struct coll_plan *plan; /* of the rank, appended to */
	const uint32_t *who;    /* its ranks, in the order in which they are added */
	uint32_t n;             /* of them */
	uint32_t me;            /* index in who; n + i: server i */
	uint32_t servers;       /* that only add; all-reduce by COLL_DIRECT only */
	uint32_t server;        /* rank of the first */
	uint64_t lo, hi;        /* the bytes */
	enum coll_area in;      /* where they are; byte b at b */
	enum coll_area out;     /* where the sum goes; byte b at b */
};

/* To have the sum at all of them. The way fits n. */
void flat_all_reduce(struct flat *flat, enum coll_way way);
/* At one of them, and anything in out at the others; COLL_DIRECT or COLL_TREE. */
void flat_reduce(struct flat *flat, enum coll_way way, uint32_t root);
/* To have in out what root has in in; COLL_DIRECT or COLL_TREE. */
void flat_broadcast(struct flat *flat, enum coll_way way, uint32_t root);

#endif
