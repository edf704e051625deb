/*
 * The execution of a plan: see exec.h for the contract. Pure.
 *
 * Every step processes its bytes from the first to the last. A step waits for each earlier step
 * that touches the same memory, if at least one of the two writes. It may advance as far in that
 * memory as the earlier step has. So the rules of coll/plan/plan.h become one comparison per wait.
 */
#include "coll/plan/exec.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>

#define NONE             UINT32_MAX
#define FOLD_MIN         8192u /* least bytes to add at a time, unless they are the last */
#define INTERLEAVE_PARTS 4096u /* resolution of a peer's progress, to compare peers */

/* A step may advance to byte ahead_bytes + (bytes of before that are done). Once before is done, it
 * may advance to its end. */
struct exec_wait {
	uint32_t before;     /* index of the earlier step */
	int64_t ahead_bytes; /* offset of step before, less that of this step */
};

/* A list of waits that grows. */
struct waits {
	struct exec_wait *at; /* owned until the exec takes it */
	size_t n, cap;        /* number of waits; capacity in waits */
	bool failed;          /* out of memory */
};

static void add_wait(struct waits *waits, uint32_t before, uint64_t begins, uint64_t here)
{
	if (waits->n == waits->cap) {
		size_t cap = waits->cap > 0 ? 2 * waits->cap : 64;
		struct exec_wait *at =
			FAULT_MEM("coll.exec", realloc(waits->at, cap * sizeof(*at)));

		if (at == NULL) {
			waits->failed = true;
			return;
		}
		waits->at = at;
		waits->cap = cap;
	}
	waits->at[waits->n++] = (struct exec_wait){before, (int64_t)begins - (int64_t)here};
}

/* Returns whether two places overlap. IN and OUT count as the same memory unless apart is set. */
static bool overlap(const struct coll_plan *plan, struct coll_place a, uint64_t a_len,
	struct coll_place b, uint64_t b_len)
{
	bool same = a.area == b.area || (!plan->apart && a.area != COLL_TMP && b.area != COLL_TMP);

	return same && a.off_bytes < b.off_bytes + b_len && b.off_bytes < a.off_bytes + a_len;
}

/* Appends a wait for each earlier step that touches place, which step s reads or writes, if at
 * least one of the two writes. */
static void find_waits(struct waits *waits, const struct coll_plan *plan, uint32_t s,
	struct coll_place place, bool writes)
{
	const struct coll_step *step = &plan->steps[s];

	for (uint32_t e = 0; e < s; e++) {
		const struct coll_step *before = &plan->steps[e];
		uint64_t len = before->len_bytes;

		if ((before->op != COLL_SEND || writes) &&
			overlap(plan, before->at, len, place, step->len_bytes)) {
			add_wait(waits, e, before->at.off_bytes, place.off_bytes);
		}
		for (uint32_t t = 0; t < before->terms && writes; t++) {
			struct coll_place term = plan->terms[before->term + t];

			if (overlap(plan, term, len, place, step->len_bytes)) {
				add_wait(waits, e, term.off_bytes, place.off_bytes);
			}
		}
	}
}

static int list_waits(struct coll_exec *exec)
{
	const struct coll_plan *plan = exec->plan;
	struct waits waits = {0};

	for (uint32_t s = 0; s < plan->steps_n; s++) {
		const struct coll_step *step = &plan->steps[s];

		ASSERT((step->op == COLL_SUM) == (step->terms > 0) &&
			step->terms <= COLL_RANKS_MAX);
		ASSERT(step->terms == 0 || (size_t)step->term + step->terms <= plan->terms_n);
		exec->waits_at[s] = waits.n;
		find_waits(&waits, plan, s, step->at, step->op != COLL_SEND);
		for (uint32_t t = 0; t < step->terms; t++) {
			find_waits(&waits, plan, s, plan->terms[step->term + t], false);
		}
	}
	exec->waits_at[plan->steps_n] = waits.n;
	exec->waits = waits.at;
	return waits.failed ? PAWL_ENOMEM : 0;
}

int coll_exec_init(struct coll_exec *exec, const struct coll_plan *plan, uint32_t peers,
	enum coll_kernel kernel, struct pawl_err *err)
{
	size_t n = plan->steps_n;

	ASSERT(!plan->failed && n < NONE);
	exec->plan = plan;
	exec->peers = peers;
	exec->kernel = kernel;
	exec->done = FAULT_MEM("coll.exec", calloc(n + 1, sizeof(*exec->done)));
	exec->next = FAULT_MEM("coll.exec", calloc(n + 1, sizeof(*exec->next)));
	exec->waits_at = FAULT_MEM("coll.exec", calloc(n + 1, sizeof(*exec->waits_at)));
	exec->sends = FAULT_MEM("coll.exec", calloc(2 * (size_t)peers, sizeof(*exec->sends)));
	exec->tmp = FAULT_MEM("coll.exec", malloc(plan->tmp_bytes + 1));
	exec->send_total_bytes =
		FAULT_MEM("coll.exec", calloc(3 * (size_t)peers, sizeof(*exec->send_total_bytes)));
	if (!exec->send_total_bytes || !exec->done || !exec->next || !exec->waits_at ||
		!exec->sends || !exec->tmp || list_waits(exec) != 0) {
		coll_exec_deinit(exec);
		return pawl_err_set(err, PAWL_ENOMEM,
			"no memory for a collective of %zu steps and %llu bytes", n,
			(unsigned long long)plan->tmp_bytes);
	}
	exec->recvs = exec->sends + peers;
	exec->sent_bytes = exec->send_total_bytes + peers;
	exec->recv_total_bytes = exec->sent_bytes + peers;
	for (size_t s = 0; s < n; s++) {
		const struct coll_step *step = &plan->steps[s];

		ASSERT(step->peer < peers);
		exec->send_total_bytes[step->peer] += step->op == COLL_SEND ? step->len_bytes : 0;
		exec->recv_total_bytes[step->peer] += step->op == COLL_RECV ? step->len_bytes : 0;
	}
	return 0;
}

void coll_exec_deinit(struct coll_exec *exec)
{
	free(exec->done);
	free(exec->next);
	free(exec->waits_at);
	free(exec->waits);
	free(exec->sends);
	free(exec->send_total_bytes);
	free(exec->tmp);
	*exec = (struct coll_exec){0};
}

/* ---- progress ---- */

/* Returns the byte up to which a step may advance now. */
static uint64_t limit_of(const struct coll_exec *exec, uint32_t s)
{
	const struct coll_plan *plan = exec->plan;
	uint64_t limit = plan->steps[s].len_bytes;

	for (size_t w = exec->waits_at[s]; w < exec->waits_at[s + 1]; w++) {
		const struct exec_wait *wait = &exec->waits[w];
		uint64_t done = exec->done[wait->before];
		int64_t to = wait->ahead_bytes + (int64_t)done;

		if (done == plan->steps[wait->before].len_bytes) {
			continue;
		}
		to = to > 0 ? to : 0;
		limit = (uint64_t)to < limit ? (uint64_t)to : limit;
	}
	return limit;
}

static const uint8_t *address(const struct coll_exec *exec, struct coll_place place, uint64_t off)
{
	const uint8_t *area = place.area == COLL_TMP ? exec->tmp
		: place.area == COLL_IN              ? exec->in
						     : exec->out;

	return area + place.off_bytes + off;
}

/* Returns the address that a step writes to. */
static uint8_t *target(const struct coll_exec *exec, const struct coll_step *step, uint64_t off)
{
	uint8_t *area = step->at.area == COLL_TMP ? exec->tmp : exec->out;

	ASSERT(step->at.area != COLL_IN);
	return area + step->at.off_bytes + off;
}

static void advance(struct coll_exec *exec, uint32_t s, uint64_t len_bytes)
{
	exec->done[s] += len_bytes;
	ASSERT(exec->done[s] <= exec->plan->steps[s].len_bytes);
	if (exec->done[s] == exec->plan->steps[s].len_bytes) {
		ASSERT(exec->left > 0);
		exec->left--;
	}
}

/* Adds the bytes of a sum whose terms are ready. */
static void advance_sum(struct coll_exec *exec, uint32_t s)
{
	const struct coll_step *step = &exec->plan->steps[s];
	size_t size = coll_type_bytes(exec->type);
	const void *terms[COLL_RANKS_MAX];
	uint64_t from = exec->done[s];
	uint64_t to = limit_of(exec, s) / size * size;

	if (from == step->len_bytes || to <= from ||
		(to - from < FOLD_MIN && to < step->len_bytes)) {
		return;
	}
	for (uint32_t t = 0; t < step->terms; t++) {
		terms[t] = address(exec, exec->plan->terms[step->term + t], from);
	}
	coll_fold(exec->kernel, exec->fold, exec->type, target(exec, step, from), terms,
		step->terms, (to - from) / size);
	advance(exec, s, to - from);
}

/* Advances all sums in the order of the list, so that terms are ready before the sums that use
 * them. */
static void advance_sums(struct coll_exec *exec)
{
	uint32_t *first = &exec->sums;

	for (uint32_t s = *first; s != NONE; s = exec->next[s]) {
		advance_sum(exec, s);
		if (s == *first && exec->done[s] == exec->plan->steps[s].len_bytes) {
			*first = exec->next[s];
		}
	}
}

/* Returns the head of the list that a step belongs to: sends to a peer, receives from it, or
 * sums. */
static uint32_t *first_like(struct coll_exec *exec, const struct coll_step *step)
{
	switch (step->op) {
	case COLL_SEND:
		return &exec->sends[step->peer];
	case COLL_RECV:
		return &exec->recvs[step->peer];
	default:
		return &exec->sums;
	}
}

void coll_exec_start(struct coll_exec *exec, enum pawl_reduce_op fold, enum pawl_dtype type,
	const void *in, void *out)
{
	const struct coll_plan *plan = exec->plan;

	ASSERT(coll_fold_fits(fold, type));
	exec->fold = fold;
	exec->type = type;
	exec->in = in;
	exec->out = out;
	exec->left = plan->steps_n;
	exec->sums = NONE;
	for (uint32_t p = 0; p < exec->peers; p++) {
		exec->sends[p] = exec->recvs[p] = NONE;
		exec->sent_bytes[p] = 0;
	}
	for (uint32_t s = (uint32_t)plan->steps_n; s-- > 0;) {
		uint32_t *first = first_like(exec, &plan->steps[s]);

		exec->done[s] = 0;
		exec->next[s] = *first;
		*first = s;
	}
	advance_sums(exec);
}

bool coll_exec_done(const struct coll_exec *exec)
{
	return exec->left == 0;
}

bool coll_exec_recv_pending(const struct coll_exec *exec, uint32_t peer)
{
	return exec->recvs[peer] != NONE;
}

bool coll_exec_send_pending(const struct coll_exec *exec, uint32_t peer)
{
	return exec->sends[peer] != NONE;
}

/* Returns by how many bytes a step may advance now; 0 for NONE. */
static size_t ready_bytes(const struct coll_exec *exec, uint32_t s)
{
	uint64_t limit = s != NONE ? limit_of(exec, s) : 0;

	return s != NONE && limit > exec->done[s] ? limit - exec->done[s] : 0;
}

/* Advances the first step in a peer's list, and the sums that it makes ready. */
static void advance_first(struct coll_exec *exec, uint32_t *first, size_t len_bytes)
{
	uint32_t s = *first;

	ASSERT(s != NONE);
	advance(exec, s, len_bytes);
	if (exec->done[s] == exec->plan->steps[s].len_bytes) {
		*first = exec->next[s];
	}
	advance_sums(exec);
}

size_t coll_exec_to_send(const struct coll_exec *exec, uint32_t peer, const void **bytes)
{
	uint32_t s = exec->sends[peer];
	size_t n = ready_bytes(exec, s);

	if (n > 0) {
		*bytes = address(exec, exec->plan->steps[s].at, exec->done[s]);
	}
	return n;
}

uint64_t coll_exec_turn(const struct coll_exec *exec, uint32_t peer)
{
	uint32_t s = exec->sends[peer];
	uint64_t before = 0;

	if (ready_bytes(exec, s) == 0) {
		return UINT64_MAX;
	}
	if (exec->plan->interleave) {
		ASSERT(exec->sent_bytes[peer] < exec->send_total_bytes[peer]);
		before = exec->sent_bytes[peer] * INTERLEAVE_PARTS / exec->send_total_bytes[peer];
	}
	return before << 32 | s;
}

void coll_exec_sent(struct coll_exec *exec, uint32_t peer, size_t len_bytes)
{
	exec->sent_bytes[peer] += len_bytes;
	advance_first(exec, &exec->sends[peer], len_bytes);
}

size_t coll_exec_to_receive(const struct coll_exec *exec, uint32_t peer, void **bytes)
{
	uint32_t s = exec->recvs[peer];
	size_t n = ready_bytes(exec, s);

	if (n > 0) {
		*bytes = target(exec, &exec->plan->steps[s], exec->done[s]);
	}
	return n;
}

void coll_exec_received(struct coll_exec *exec, uint32_t peer, size_t len_bytes)
{
	advance_first(exec, &exec->recvs[peer], len_bytes);
}
