/*
 * A machine that executes plans in any order that the rules of coll/plan/plan.h allow, on names
 * instead of numbers. The name of a result shows what was added to what, byte by byte.
 */
#ifndef TEST_COLL_MACHINE_H
#define TEST_COLL_MACHINE_H

#include "base/rng.h"
#include "coll/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MACHINE_ALL 128 /* ranks and servers */

/* ---- names: random 64-bit numbers, so that different sums have different names ---- */

static bool names_commute; /* sums have equal names in any order */

static inline uint64_t name_byte(uint32_t rank, uint64_t off)
{
	struct rng rng = {((uint64_t)rank << 40) + off};

	return rng_u64(&rng) | 1; /* never 0, which stands for nothing */
}

static inline uint64_t name_sum(uint64_t left, uint64_t right)
{
	struct rng rng = {left};

	assert_true(left != 0 && right != 0); /* 0: a byte that was never written */
	if (names_commute) {
		return left + right;
	}
	rng.state = rng_u64(&rng) + right;
	return rng_u64(&rng) | 1;
}

static inline uint64_t name_tree(const uint64_t *terms, uint32_t n)
{
	uint32_t left = n > 1 ? coll_tree_left(n) : 0;

	return n == 1 ? terms[0]
		      : name_sum(name_tree(terms, left), name_tree(terms + left, n - left));
}

/* Returns the name of the sum of byte off over all ranks. */
static inline uint64_t name_all(const struct coll_topo *topo, uint64_t off)
{
	uint64_t hosts[MACHINE_ALL];
	uint64_t locals[MACHINE_ALL];

	for (uint32_t h = 0; h < topo->hosts; h++) {
		uint32_t n = coll_topo_locals(topo, h);

		for (uint32_t i = 0; i < n; i++) {
			locals[i] = name_byte(topo->member[topo->start[h] + i], off);
		}
		hosts[h] = name_tree(locals, n);
	}
	return name_tree(hosts, topo->hosts);
}

/* ---- the machine ---- */

struct message {
	uint64_t *bytes; /* owned; a name each */
	uint64_t len;    /* bytes in the message */
};

/* Messages from one rank to another: sent and not yet received. */
struct channel {
	struct message *at; /* owned */
	uint32_t n, taken;  /* number sent; number received */
};

struct machine {
	uint32_t all;  /* ranks and servers */
	bool in_place; /* IN and OUT are one */
	bool narrow;   /* a rank sends one message at a time, into room at its receiver */
	struct coll_plan plans[MACHINE_ALL]; /* owned; one per rank and server */
	uint64_t *areas[MACHINE_ALL][3];     /* owned; one name per byte */
	uint64_t room[MACHINE_ALL][3];       /* bytes of each area */
	bool *done[MACHINE_ALL];             /* owned; one per step */
	size_t left;                         /* steps not yet done */
	struct channel *channels;            /* owned; from * all + to */
};

/* Sets up the areas, once the plans are made. in and out: bytes of each rank's IN and OUT. */
static inline void machine_open(struct machine *m, const uint64_t *in, const uint64_t *out)
{
	m->channels = calloc((size_t)m->all * m->all + 1, sizeof(*m->channels));
	for (uint32_t r = 0; r < m->all; r++) {
		uint64_t both = in[r] > out[r] ? in[r] : out[r];
		uint64_t room[] = {m->in_place ? both : in[r], m->in_place ? both : out[r],
			m->plans[r].tmp_bytes};

		memcpy(m->room[r], room, sizeof(room));
		for (int area = 0; area < 3; area++) {
			m->areas[r][area] = m->in_place && area == COLL_OUT
				? m->areas[r][COLL_IN]
				: calloc(room[area] + 1, sizeof(uint64_t));
		}
		m->done[r] = calloc(m->plans[r].steps_n + 1, sizeof(bool));
		m->left += m->plans[r].steps_n;
		for (uint64_t b = 0; b < in[r]; b++) {
			m->areas[r][COLL_IN][b] = name_byte(r, b);
		}
	}
}

static inline void machine_close(struct machine *m)
{
	for (uint32_t r = 0; r < m->all; r++) {
		free(m->areas[r][COLL_IN]);
		if (!m->in_place) {
			free(m->areas[r][COLL_OUT]);
		}
		free(m->areas[r][COLL_TMP]);
		free(m->done[r]);
		coll_plan_deinit(&m->plans[r]);
	}
	for (uint32_t i = 0; i < m->all * m->all; i++) {
		assert_int_equal(m->channels[i].taken, m->channels[i].n);
		free(m->channels[i].at);
	}
	free(m->channels);
	free(m);
}

static inline bool machine_overlap(const struct machine *m, struct coll_place a, uint64_t a_len,
	struct coll_place b, uint64_t b_len)
{
	bool same = a.area == b.area || (m->in_place && a.area != COLL_TMP && b.area != COLL_TMP);

	return same && a.off_bytes < b.off_bytes + b_len && b.off_bytes < a.off_bytes + a_len;
}

static inline bool machine_reads(const struct machine *m, const struct coll_plan *plan,
	const struct coll_step *step, struct coll_place at, uint64_t len)
{
	if (step->op == COLL_SEND) {
		return machine_overlap(m, step->at, step->len_bytes, at, len);
	}
	for (uint32_t i = 0; i < step->terms; i++) {
		if (machine_overlap(m, plan->terms[step->term + i], step->len_bytes, at, len)) {
			return true;
		}
	}
	return false;
}

/* Returns whether b, later in the list, must wait for a. */
static inline bool machine_holds(const struct machine *m, const struct coll_plan *plan,
	const struct coll_step *a, const struct coll_step *b)
{
	if (a->op == b->op && a->op != COLL_SUM && a->peer == b->peer) {
		return true; /* messages keep their order */
	}
	if (a->op != COLL_SEND && machine_reads(m, plan, b, a->at, a->len_bytes)) {
		return true;
	}
	return b->op != COLL_SEND &&
		(machine_reads(m, plan, a, b->at, b->len_bytes) ||
			(a->op != COLL_SEND &&
				machine_overlap(m, a->at, a->len_bytes, b->at, b->len_bytes)));
}

/* Returns whether step s waits for no earlier step. */
static inline bool machine_open_step(const struct machine *m, uint32_t rank, size_t s)
{
	const struct coll_plan *plan = &m->plans[rank];

	for (size_t before = 0; before < s; before++) {
		if (!m->done[rank][before] &&
			machine_holds(m, plan, &plan->steps[before], &plan->steps[s])) {
			return false;
		}
	}
	return true;
}

/* Returns whether the receiver has room for the next message from one rank to another. */
static inline bool machine_has_room(const struct machine *m, uint32_t from, uint32_t to)
{
	const struct channel *channel = &m->channels[from * m->all + to];
	const struct coll_plan *plan = &m->plans[to];
	size_t s = 0;

	while (s < plan->steps_n &&
		(m->done[to][s] || plan->steps[s].op != COLL_RECV || plan->steps[s].peer != from)) {
		s++;
	}
	return channel->taken == channel->n && s < plan->steps_n && machine_open_step(m, to, s);
}

/* Returns whether no earlier send of the rank may begin. */
static inline bool machine_has_turn(const struct machine *m, uint32_t rank, size_t s)
{
	for (size_t before = 0; before < s; before++) {
		if (!m->done[rank][before] && m->plans[rank].steps[before].op == COLL_SEND &&
			machine_open_step(m, rank, before)) {
			return false;
		}
	}
	return true;
}

static inline bool machine_ready(const struct machine *m, uint32_t rank, size_t s)
{
	const struct coll_step *step = &m->plans[rank].steps[s];
	const struct channel *channel = &m->channels[step->peer * m->all + rank];

	if (step->op == COLL_RECV && channel->taken == channel->n) {
		return false;
	}
	if (step->op == COLL_SEND && m->narrow &&
		(!machine_has_turn(m, rank, s) || !machine_has_room(m, rank, step->peer))) {
		return false;
	}
	return machine_open_step(m, rank, s);
}

static inline void machine_check(const struct machine *m, uint32_t rank,
	const struct coll_step *step)
{
	assert_true(step->len_bytes > 0);
	assert_true(step->at.off_bytes + step->len_bytes <= m->room[rank][step->at.area]);
	assert_true(step->op == COLL_SUM || (step->peer < m->all && step->peer != rank));
	assert_true(step->op != COLL_SUM || step->terms > 0);
	for (uint32_t i = 0; i < step->terms; i++) {
		struct coll_place term = m->plans[rank].terms[step->term + i];

		assert_true(term.off_bytes + step->len_bytes <= m->room[rank][term.area]);
	}
}

static inline void machine_send(struct machine *m, uint32_t rank, const struct coll_step *step)
{
	struct channel *channel = &m->channels[rank * m->all + step->peer];
	size_t size = step->len_bytes * sizeof(uint64_t);
	uint64_t *bytes = malloc(size + 1);

	memcpy(bytes, m->areas[rank][step->at.area] + step->at.off_bytes, size);
	channel->at = realloc(channel->at, (channel->n + 1) * sizeof(*channel->at));
	channel->at[channel->n++] = (struct message){bytes, step->len_bytes};
}

static inline void machine_receive(struct machine *m, uint32_t rank, const struct coll_step *step)
{
	struct channel *channel = &m->channels[step->peer * m->all + rank];
	struct message *message = &channel->at[channel->taken++];

	assert_int_equal(message->len, step->len_bytes);
	memcpy(m->areas[rank][step->at.area] + step->at.off_bytes, message->bytes,
		message->len * sizeof(uint64_t));
	free(message->bytes);
}

static inline void machine_add(struct machine *m, uint32_t rank, const struct coll_step *step)
{
	const struct coll_place *terms = &m->plans[rank].terms[step->term];
	uint64_t at[MACHINE_ALL];

	for (uint64_t b = 0; b < step->len_bytes; b++) {
		for (uint32_t i = 0; i < step->terms; i++) {
			at[i] = m->areas[rank][terms[i].area][terms[i].off_bytes + b];
		}
		m->areas[rank][step->at.area][step->at.off_bytes + b] = name_tree(at, step->terms);
	}
}

/* Executes one step of a rank: the first that is ready, from a random one on. Returns false if none
 * is. */
static inline bool machine_step(struct machine *m, uint32_t rank, struct rng *rng)
{
	size_t n = m->plans[rank].steps_n;
	size_t from = n > 0 ? rng_below(rng, n) : 0;

	for (size_t j = 0; j < n; j++) {
		size_t s = (from + j) % n;
		const struct coll_step *step = &m->plans[rank].steps[s];

		if (m->done[rank][s] || !machine_ready(m, rank, s)) {
			continue;
		}
		machine_check(m, rank, step);
		switch (step->op) {
		case COLL_SEND:
			machine_send(m, rank, step);
			break;
		case COLL_RECV:
			machine_receive(m, rank, step);
			break;
		case COLL_SUM:
			machine_add(m, rank, step);
			break;
		}
		m->done[rank][s] = true;
		m->left--;
		return true;
	}
	return false;
}

/* Executes the plans completely. */
static inline void machine_run(struct machine *m, struct rng *rng)
{
	while (m->left > 0) {
		uint32_t first = (uint32_t)rng_below(rng, m->all);
		bool moved = false;

		for (uint32_t i = 0; i < m->all && !moved; i++) {
			moved = machine_step(m, (first + i) % m->all, rng);
		}
		assert_true(moved); /* otherwise ranks wait for each other */
	}
}

#endif
