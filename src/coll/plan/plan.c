/* Lists of steps: see plan.h for the contract. Pure. */
#include "coll/plan/plan.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "coll/plan/plan_impl.h"

#include <stdlib.h>

#define CAP_FIRST 64u /* initial capacity, of steps and of terms */

void coll_plan_deinit(struct coll_plan *plan)
{
	free(plan->steps);
	free(plan->terms);
	*plan = (struct coll_plan){0};
}

/* ---- appending ---- */

/* Returns the array, grown if it has no room for one more element of size bytes; NULL: out of
 * memory. */
static void *grow(struct coll_plan *plan, void *at, size_t n, size_t *cap, size_t size)
{
	size_t wanted = *cap > 0 ? 2 * *cap : CAP_FIRST;
	void *grown;

	ASSERT(n <= *cap);
	if (n < *cap) {
		return at;
	}
	grown = FAULT_MEM("coll.plan", realloc(at, wanted * size));
	if (grown == NULL) {
		plan->failed = true;
		return NULL;
	}
	*cap = wanted;
	return grown;
}

static void add_step(struct coll_plan *plan, struct coll_step step)
{
	struct coll_step *steps;

	if (step.len_bytes == 0 || plan->failed) {
		return;
	}
	ASSERT(step.peer < COLL_RANKS_MAX); /* 0 in a sum */
	/* A sum has all its terms before the next step. */
	ASSERT(plan->steps_n == 0 || plan->steps[plan->steps_n - 1].op != COLL_SUM ||
		plan->steps[plan->steps_n - 1].terms > 0);
	steps = grow(plan, plan->steps, plan->steps_n, &plan->steps_cap, sizeof(*steps));
	if (steps) {
		plan->steps = steps;
		steps[plan->steps_n++] = step;
	}
}

uint64_t plan_take_tmp(struct coll_plan *plan, uint64_t len_bytes)
{
	uint64_t at = plan->tmp_bytes;

	ASSERT(at % COLL_GRANULE == 0);
	plan->tmp_bytes += (len_bytes + COLL_GRANULE - 1) / COLL_GRANULE * COLL_GRANULE;
	return at;
}

void plan_add_send(struct coll_plan *plan, uint32_t peer, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes)
{
	add_step(plan,
		(struct coll_step){.op = COLL_SEND,
			.peer = peer,
			.at = {area, off_bytes},
			.len_bytes = len_bytes});
}

void plan_add_recv(struct coll_plan *plan, uint32_t peer, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes)
{
	add_step(plan,
		(struct coll_step){.op = COLL_RECV,
			.peer = peer,
			.at = {area, off_bytes},
			.len_bytes = len_bytes});
}

void plan_add_sum(struct coll_plan *plan, enum coll_area area, uint64_t off_bytes,
	uint64_t len_bytes)
{
	add_step(plan,
		(struct coll_step){.op = COLL_SUM,
			.at = {area, off_bytes},
			.len_bytes = len_bytes,
			.term = (uint32_t)plan->terms_n});
}

void plan_add_term(struct coll_plan *plan, enum coll_area area, uint64_t off_bytes)
{
	struct coll_place *terms;

	if (plan->failed) {
		return;
	}
	ASSERT(plan->steps_n > 0 && plan->steps[plan->steps_n - 1].op == COLL_SUM);
	ASSERT(plan->steps[plan->steps_n - 1].term + plan->steps[plan->steps_n - 1].terms ==
		plan->terms_n);
	terms = grow(plan, plan->terms, plan->terms_n, &plan->terms_cap, sizeof(*terms));
	if (terms) {
		plan->terms = terms;
		terms[plan->terms_n++] = (struct coll_place){area, off_bytes};
		plan->steps[plan->steps_n - 1].terms++;
	}
}

void plan_add_copy(struct coll_plan *plan, uint64_t out_off_bytes, uint64_t in_off_bytes,
	uint64_t len_bytes)
{
	if (len_bytes > 0) {
		plan_add_sum(plan, COLL_OUT, out_off_bytes, len_bytes);
		plan_add_term(plan, COLL_IN, in_off_bytes);
	}
}

void plan_reset(struct coll_plan *plan, bool apart)
{
	plan->steps_n = plan->terms_n = 0;
	plan->tmp_bytes = 0;
	plan->apart = apart;
	plan->interleave = false;
	plan->failed = false;
}

int plan_finish(const struct coll_plan *plan, const char *what, struct pawl_err *err)
{
	return plan->failed ? pawl_err_set(err, PAWL_ENOMEM, "no memory for the plan of %s", what)
			    : 0;
}

/* ---- cutting ---- */

void coll_share(uint64_t len_bytes, uint32_t n, uint32_t i, uint64_t *lo, uint64_t *hi)
{
	uint64_t granules = (len_bytes + COLL_GRANULE - 1) / COLL_GRANULE;

	ASSERT(i < n);
	*lo = granules * i / n * COLL_GRANULE;
	*hi = granules * (i + 1) / n * COLL_GRANULE;
	*lo = *lo < len_bytes ? *lo : len_bytes;
	*hi = *hi < len_bytes ? *hi : len_bytes;
}

bool coll_algorithm_fits(enum coll_algorithm algorithm, uint32_t n)
{
	return algorithm < COLL_ALGORITHMS && (algorithm != COLL_HALVING || (n & (n - 1)) == 0);
}

/* ---- ranks of a host ---- */

struct plan_position plan_find_position(const struct coll_topo *topo, uint32_t rank)
{
	struct plan_position p = {.topo = topo};

	ASSERT(rank < topo->ranks); /* servers have no position */
	p.host = topo->host_of[rank];
	p.locals = coll_topo_locals(topo, p.host);
	while (plan_rank_at(topo, p.host, p.local) != rank) {
		p.local++;
		ASSERT(p.local < p.locals); /* the host lists the rank */
	}
	return p;
}

void plan_add_locals(struct coll_plan *plan, const struct plan_position *p, uint64_t in_off_bytes,
	struct coll_place to, uint64_t len_bytes)
{
	uint64_t tmp = plan_take_tmp(plan, p->locals * len_bytes);

	ASSERT(p->local < p->locals);
	if (len_bytes == 0) {
		return;
	}
	for (uint32_t d = 1; d < p->locals; d++) {
		uint32_t i = (p->local + p->locals - d) % p->locals;

		plan_add_recv(plan, plan_before(p, d), COLL_TMP, tmp + i * len_bytes, len_bytes);
	}
	plan_add_sum(plan, to.area, to.off_bytes, len_bytes);
	for (uint32_t i = 0; i < p->locals; i++) {
		bool own = i == p->local;

		plan_add_term(plan, own ? COLL_IN : COLL_TMP,
			own ? in_off_bytes : tmp + i * len_bytes);
	}
}
