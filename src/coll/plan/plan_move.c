/*
 * Plans that move blocks to their ranks: all-gather, gather, scatter, all-to-all, and
 * reduce-scatter, which also adds them. Pure.
 *
 * In all-gather and reduce-scatter, each byte crosses between two hosts once. Bytes for several
 * ranks of a host go to one of them, which forwards them; bytes that several ranks of a host add
 * are added before they leave it.
 */
#include "base/assert.h"
#include "coll/plan/plan_impl.h"

/* Returns the rank on a host that handles blocks from, or for, the local-th rank of another
 * host. */
static uint32_t partner_of(const struct coll_topo *topo, uint32_t host, uint32_t local)
{
	return plan_rank_at(topo, host, local % coll_topo_locals(topo, host));
}

/* ---- all-gather ---- */

/* Receives the blocks of remote ranks that the local-th rank handles. If this rank is that one, it
 * receives them from their owners and forwards them; else it receives them from that rank. */
static void recv_remote_blocks(struct coll_plan *plan, const struct plan_position *p,
	uint32_t local, uint64_t len_bytes)
{
	const struct coll_topo *topo = p->topo;
	uint32_t from = plan_rank_at(topo, p->host, local);

	for (uint32_t d = 1; d < topo->hosts; d++) {
		uint32_t host = (p->host + topo->hosts - d) % topo->hosts;

		for (uint32_t i = local; i < coll_topo_locals(topo, host); i += p->locals) {
			uint32_t owner = plan_rank_at(topo, host, i);
			bool mine = local == p->local;

			plan_add_recv(plan, mine ? owner : from, COLL_OUT, owner * len_bytes,
				len_bytes);
			for (uint32_t e = 1; e < p->locals && mine; e++) {
				plan_add_send(plan, plan_after(p, e), COLL_OUT, owner * len_bytes,
					len_bytes);
			}
		}
	}
}

int coll_plan_all_gather(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint64_t len_bytes, struct pawl_err *err)
{
	struct plan_position p = plan_find_position(topo, rank);

	plan_reset(plan, true);
	plan_add_copy(plan, rank * len_bytes, 0, len_bytes);
	for (uint32_t d = 1; d < topo->hosts; d++) {
		uint32_t host = (p.host + d) % topo->hosts;

		plan_add_send(plan, partner_of(topo, host, p.local), COLL_IN, 0, len_bytes);
	}
	for (uint32_t d = 1; d < p.locals; d++) {
		plan_add_send(plan, plan_after(&p, d), COLL_IN, 0, len_bytes);
	}
	for (uint32_t d = 1; d < p.locals; d++) {
		uint32_t from = plan_before(&p, d);

		plan_add_recv(plan, from, COLL_OUT, from * len_bytes, len_bytes);
	}
	for (uint32_t d = 0; d < p.locals; d++) {
		recv_remote_blocks(plan, &p, (p.local + p.locals - d) % p.locals, len_bytes);
	}
	return plan_finish(plan, "an all-gather", err);
}

/* ---- reduce-scatter ---- */

/* Sends the local-th rank this rank's part of the blocks that it adds: its own, and the remote
 * blocks that it handles. */
static void send_blocks(struct coll_plan *plan, const struct plan_position *p, uint32_t local,
	uint64_t len_bytes)
{
	const struct coll_topo *topo = p->topo;
	uint32_t to = plan_rank_at(topo, p->host, local);

	plan_add_send(plan, to, COLL_IN, to * len_bytes, len_bytes);
	for (uint32_t d = 1; d < topo->hosts; d++) {
		uint32_t host = (p->host + d) % topo->hosts;

		for (uint32_t i = local; i < coll_topo_locals(topo, host); i += p->locals) {
			plan_add_send(plan, to, COLL_IN, plan_rank_at(topo, host, i) * len_bytes,
				len_bytes);
		}
	}
}

/* Adds the remote blocks that this rank handles, and sends each to its rank. */
static void add_remote_blocks(struct coll_plan *plan, const struct plan_position *p,
	uint64_t len_bytes)
{
	const struct coll_topo *topo = p->topo;

	for (uint32_t d = 1; d < topo->hosts; d++) {
		uint32_t host = (p->host + d) % topo->hosts;

		for (uint32_t i = p->local; i < coll_topo_locals(topo, host); i += p->locals) {
			uint32_t to = plan_rank_at(topo, host, i);
			struct coll_place sum = {COLL_IN, to * len_bytes};

			if (p->locals > 1) {
				sum = (struct coll_place){COLL_TMP, plan_take_tmp(plan, len_bytes)};
				plan_add_locals(plan, p, to * len_bytes, sum, len_bytes);
			}
			plan_add_send(plan, to, sum.area, sum.off_bytes, len_bytes);
		}
	}
}

/* The rank's own block is the sum of the sums of all hosts. */
int coll_plan_reduce_scatter(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint64_t len_bytes, struct pawl_err *err)
{
	struct plan_position p = plan_find_position(topo, rank);
	struct coll_place own = {COLL_OUT, 0};
	uint64_t tmp;

	plan_reset(plan, true);
	if (len_bytes == 0) {
		return 0;
	}
	tmp = plan_take_tmp(plan, topo->hosts * len_bytes); /* one sum per host */
	if (topo->hosts > 1) {
		own = (struct coll_place){COLL_TMP, tmp + p.host * len_bytes};
	}
	for (uint32_t d = 1; d < p.locals; d++) {
		send_blocks(plan, &p, (p.local + d) % p.locals, len_bytes);
	}
	plan_add_locals(plan, &p, rank * len_bytes, own, len_bytes);
	if (topo->hosts == 1) {
		return plan_finish(plan, "a reduce-scatter", err);
	}
	add_remote_blocks(plan, &p, len_bytes);
	for (uint32_t d = 1; d < topo->hosts; d++) {
		uint32_t host = (p.host + topo->hosts - d) % topo->hosts;

		plan_add_recv(plan, partner_of(topo, host, p.local), COLL_TMP,
			tmp + host * len_bytes, len_bytes);
	}
	plan_add_sum(plan, COLL_OUT, 0, len_bytes);
	for (uint32_t h = 0; h < topo->hosts; h++) {
		plan_add_term(plan, COLL_TMP, tmp + h * len_bytes);
	}
	return plan_finish(plan, "a reduce-scatter", err);
}

/* ---- all-to-all, gather, scatter ---- */

int coll_plan_all_to_all(struct coll_plan *plan, uint32_t ranks, uint32_t rank,
	const uint64_t *in_at, const uint64_t *out_at, struct pawl_err *err)
{
	ASSERT(rank < ranks);
	plan_reset(plan, true);
	plan_add_copy(plan, out_at[rank], in_at[rank], out_at[rank + 1] - out_at[rank]);
	for (uint32_t d = 1; d < ranks; d++) {
		uint32_t to = (rank + d) % ranks;

		plan_add_send(plan, to, COLL_IN, in_at[to], in_at[to + 1] - in_at[to]);
	}
	for (uint32_t d = 1; d < ranks; d++) {
		uint32_t from = (rank + ranks - d) % ranks;

		plan_add_recv(plan, from, COLL_OUT, out_at[from], out_at[from + 1] - out_at[from]);
	}
	return plan_finish(plan, "an all-to-all", err);
}

int coll_plan_gather(struct coll_plan *plan, uint32_t ranks, uint32_t rank, uint32_t root,
	uint64_t len_bytes, struct pawl_err *err)
{
	ASSERT(rank < ranks && root < ranks);
	plan_reset(plan, true);
	if (rank == root) {
		plan_add_copy(plan, rank * len_bytes, 0, len_bytes);
	} else {
		plan_add_send(plan, root, COLL_IN, 0, len_bytes);
	}
	for (uint32_t d = 1; d < ranks && rank == root; d++) {
		uint32_t from = (root + d) % ranks;

		plan_add_recv(plan, from, COLL_OUT, from * len_bytes, len_bytes);
	}
	return plan_finish(plan, "a gather", err);
}

int coll_plan_scatter(struct coll_plan *plan, uint32_t ranks, uint32_t rank, uint32_t root,
	uint64_t len_bytes, struct pawl_err *err)
{
	ASSERT(rank < ranks && root < ranks);
	plan_reset(plan, true);
	if (rank != root) {
		plan_add_recv(plan, root, COLL_OUT, 0, len_bytes);
	}
	for (uint32_t d = 1; d < ranks && rank == root; d++) {
		uint32_t to = (root + d) % ranks;

		plan_add_send(plan, to, COLL_IN, to * len_bytes, len_bytes);
	}
	if (rank == root) {
		plan_add_copy(plan, 0, rank * len_bytes, len_bytes);
	}
	return plan_finish(plan, "a scatter", err);
}
