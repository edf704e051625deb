/*
 * Histories for test_coll_sim.c: what a group of simulated ranks does, and what befalls it, made
 * from a seed; and the right result of each operation.
 */
#ifndef TEST_COLL_STORY_H
#define TEST_COLL_STORY_H

#include "base/assert.h"
#include "base/clock.h"
#include "base/rng.h"
#include "coll/plan/fold.h"
#include "coll/plan/topo.h"
#include "sim.h"

#include "pawl/coll.h"

#include <stdlib.h>
#include <string.h>

#define RANKS   12
#define SERVERS 2
#define PEERS   (RANKS + SERVERS)
#define OPS     12

enum fate {
	FATE_NOTHING,
	/* Fates for which nobody may be blamed. */
	FATE_PAUSE, /* a rank stops for less than it may be silent */
	FATE_CUT,   /* the network parts for less than a rank may be silent */
	FATE_SLOW,  /* a host's network is slow, and far away */
	/* Fates that end the group. */
	FATE_CLOSED,
	FATE_RESET,
	FATE_SILENT, /* a host is gone */
	FATE_FREEZE, /* a rank stops for longer than it may be silent, or for ever */
	FATE_PART,   /* the network parts for longer, or for ever; both ways, or one */
	FATE_ODD,    /* a rank calls something else */
	FATE_SKIP,   /* a rank leaves an operation out */
	FATE_EARLY,  /* a rank leaves the group */
	FATE_LATE,   /* a rank comes after its time is up */
	FATES
};

/* An operation, equal at all ranks; a message concerns only two of them. */
struct op {
	struct pawl_coll_call call;   /* the call, but for the memory */
	uint32_t from;                /* sender of a message to call.root */
	bool last;                    /* all works begun so far are waited for */
	int64_t pause_ns[RANKS];      /* pause of each rank before the operation */
	uint64_t parts[RANKS][RANKS]; /* bytes from one rank to another in an all-to-all */
};

struct story {
	uint64_t seed;                 /* seed that the story is made from */
	uint32_t ranks, servers;       /* number of ranks; number of servers */
	uint32_t peers;                /* ranks and servers */
	uint32_t hosts;                /* hosts of ranks; each server has one more */
	uint32_t host_of[PEERS];       /* host of each peer */
	struct sim_net net;            /* network between the hosts */
	int64_t heartbeat_interval_ns; /* heartbeat interval */
	struct op ops[OPS];            /* operations; the first ops_n are used */
	uint32_t ops_n;                /* number of operations */
	enum fate fate;                /* accident of the group, if any */
	uint32_t victim;               /* peer that the fate befalls, or whose host it befalls */
	uint32_t teller, at; /* the fate strikes when rank teller comes to operation at … */
	int64_t after_ns;    /* … and after_ns later */
	/* Duration; SIM_NEVER: for ever; FATE_SLOW: 4 times the added delay. */
	int64_t for_ns;
	bool one_way;          /* a parted network loses only what the victim's side sends */
	uint32_t side[PEERS];  /* side of each host in a parted network */
	double slow;           /* factor by which a slow network is slower */
	struct coll_topo topo; /* owned */
	uint8_t *want[OPS];    /* owned; see story_want */
};

/* Returns a size from 1 to 2^bits, most of them small. */
static inline uint64_t story_size(struct rng *rng, uint32_t bits)
{
	return 1 + rng_below(rng, 1ULL << rng_below(rng, bits + 1));
}

/* ---- what comes out ---- */

/* Fills in rank's vector of an operation; the sum is finite, and depends on the order. */
static inline void story_fill(const struct story *s, uint32_t i, uint32_t rank, uint8_t *at,
	uint64_t len)
{
	enum pawl_dtype type = s->ops[i].call.dtype;
	struct rng rng = {s->seed * 1000003 + i * 1009 + rank};

	for (uint64_t b = 0; b < len; b += coll_type_bytes(type)) {
		uint64_t bits = rng_u64(&rng);
		float number = (float)(int32_t)bits / (float)(1 + (bits >> 32) % 1000);
		double wide = (double)number / 3;

		if (type == PAWL_FLOAT32) {
			memcpy(at + b, &number, sizeof(number));
		} else if (type == PAWL_FLOAT64) {
			memcpy(at + b, &wide, sizeof(wide));
		} else if (type == PAWL_BFLOAT16) { /* the upper half of a float */
			memcpy(at + b, (const uint8_t *)&number + 2, 2);
		} else {
			memcpy(at + b, &bits, coll_type_bytes(type));
		}
	}
}

/* Returns the bytes that a rank brings or, if gets is set, gets. */
static inline uint64_t story_bytes(const struct story *s, uint32_t i, uint32_t rank, bool gets)
{
	const struct op *op = &s->ops[i];
	enum pawl_coll kind = op->call.kind;
	bool blocks = gets ? kind == PAWL_ALL_GATHER || kind == PAWL_GATHER
			   : kind == PAWL_REDUCE_SCATTER || kind == PAWL_SCATTER;
	uint64_t len = op->call.len_bytes * (blocks ? s->ranks : 1);

	if (kind == PAWL_ALL_TO_ALL) {
		len = 0;
		for (uint32_t r = 0; r < s->ranks; r++) {
			len += gets ? op->parts[r][rank] : op->parts[rank][r];
		}
	}
	return len;
}

/* Folds all ranks' vectors into one, in the one order. */
static inline void story_fold(const struct story *s, uint32_t i, uint8_t *to, uint64_t len)
{
	const struct pawl_coll_call *call = &s->ops[i].call;
	uint64_t n = len / coll_type_bytes(call->dtype);
	size_t room = (len + sizeof(double)) / sizeof(double) * sizeof(double); /* aligned */
	uint8_t *all = malloc((RANKS + RANKS) * room);
	uint8_t *hosts = all + RANKS * room;
	const void *terms[RANKS];

	for (uint32_t h = 0; h < s->topo.hosts; h++) {
		uint32_t locals = coll_topo_locals(&s->topo, h);

		for (uint32_t l = 0; l < locals; l++) {
			story_fill(s, i, s->topo.member[s->topo.start[h] + l], all + l * len, len);
			terms[l] = all + l * len;
		}
		coll_fold(COLL_PLAIN, call->op, call->dtype, hosts + h * len, terms, locals, n);
	}
	for (uint32_t h = 0; h < s->topo.hosts; h++) {
		terms[h] = hosts + h * len;
	}
	coll_fold(COLL_PLAIN, call->op, call->dtype, to, terms, s->topo.hosts, n);
	if (call->mean) {
		coll_divide(call->dtype, to, n, s->ranks);
	}
	free(all);
}

/* Returns what rank's OUT must be; made once for all ranks, except in an all-to-all. */
static inline const uint8_t *story_want(struct story *s, uint32_t i, uint32_t rank)
{
	const struct op *op = &s->ops[i];
	const struct pawl_coll_call *call = &op->call;
	uint64_t len = call->len_bytes;
	uint64_t room = len * s->ranks + 1;
	uint8_t *want = s->want[i];
	uint32_t block = 0;

	if (call->kind == PAWL_ALL_TO_ALL) {
		room = 1;
		for (uint32_t r = 0; r < s->ranks; r++) {
			room += story_bytes(s, i, r, false);
		}
	} else if (want) {
		block = call->kind == PAWL_REDUCE_SCATTER || call->kind == PAWL_SCATTER ? rank : 0;
		return want + block * len;
	}
	want = s->want[i] = realloc(want, room);
	switch (call->kind) {
	case PAWL_ALL_REDUCE:
	case PAWL_REDUCE:
		story_fold(s, i, want, len);
		break;
	case PAWL_REDUCE_SCATTER:
		story_fold(s, i, want, len * s->ranks);
		return want + rank * len;
	case PAWL_SCATTER:
		story_fill(s, i, call->root, want, len * s->ranks);
		return want + rank * len;
	case PAWL_ALL_GATHER:
	case PAWL_GATHER:
		for (uint32_t r = 0; r < s->ranks; r++) {
			story_fill(s, i, r, want + r * len, len);
		}
		break;
	case PAWL_ALL_TO_ALL:
		for (uint32_t r = 0, at = 0; r < s->ranks; at += op->parts[r++][rank]) {
			uint8_t *theirs = malloc(story_bytes(s, i, r, false) + 1);
			uint64_t from = 0;

			for (uint32_t q = 0; q < rank; q++) {
				from += op->parts[r][q];
			}
			story_fill(s, i, r, theirs, story_bytes(s, i, r, false));
			memcpy(want + at, theirs + from, op->parts[r][rank]);
			free(theirs);
		}
		break;
	default:
		story_fill(s, i, call->kind == PAWL_BROADCAST ? call->root : op->from, want, len);
		break;
	}
	return want;
}

/* ---- what is done ---- */

static inline void story_make_op(struct story *s, struct rng *rng, uint32_t i, uint32_t bits)
{
	static const enum pawl_dtype types[] = {PAWL_FLOAT32, PAWL_FLOAT32, PAWL_FLOAT64,
		PAWL_INT32, PAWL_INT8, PAWL_BFLOAT16};
	struct op *op = &s->ops[i];
	struct pawl_coll_call *call = &op->call;
	bool reduces;
	uint64_t n;

	call->kind =
		rng_below(rng, 2) ? PAWL_ALL_REDUCE : (enum pawl_coll)rng_below(rng, PAWL_SEND + 1);
	if (call->kind == PAWL_BARRIER && i > 0 && s->ops[i - 1].call.kind == PAWL_BARRIER) {
		call->kind = PAWL_ALL_GATHER; /* one of two barriers would not be missed */
	}
	reduces = call->kind == PAWL_ALL_REDUCE || call->kind == PAWL_REDUCE ||
		call->kind == PAWL_REDUCE_SCATTER;
	call->dtype = reduces ? types[rng_below(rng, sizeof(types) / sizeof(*types))] : PAWL_UINT8;
	call->op = reduces && rng_below(rng, 4) == 0 ? PAWL_MAX : PAWL_SUM;
	call->mean = call->dtype == PAWL_FLOAT32 && call->op == PAWL_SUM && rng_below(rng, 3) == 0;
	call->root = (uint32_t)rng_below(rng, s->ranks);
	call->tag = i;
	if (call->kind != PAWL_ALL_REDUCE && call->kind != PAWL_REDUCE &&
		call->kind != PAWL_BROADCAST && call->kind != PAWL_SEND) {
		bits -= 4; /* len_bytes is one rank's block */
	}
	n = 2 * story_size(rng, bits) - i % 2; /* neighbours differ in length */
	n = rng_below(rng, 8) == 0 && (i == 0 || s->ops[i - 1].call.len_bytes > 0) ? 0 : n;
	call->len_bytes = call->kind == PAWL_BARRIER || call->kind == PAWL_ALL_TO_ALL
		? 0
		: n * coll_type_bytes(call->dtype);
	ASSERT(s->ranks > 1);
	op->from = (call->root + 1 + (uint32_t)rng_below(rng, s->ranks - 1)) % s->ranks;
	op->last = i + 1 == s->ops_n || rng_below(rng, 3) == 0;
	for (uint32_t r = 0; r < s->ranks; r++) {
		op->pause_ns[r] = rng_below(rng, 4) ? 0 : (int64_t)rng_below(rng, 5 * NS_PER_MS);
		for (uint32_t q = 0; q < s->ranks; q++) {
			op->parts[r][q] = rng_below(rng, 3) * story_size(rng, bits);
		}
	}
}

static inline void story_make_net(struct story *s, struct rng *rng)
{
	static const int64_t intervals_ms[] = {50, 100, 500};
	bool ends = s->fate >= FATE_CLOSED;

	s->heartbeat_interval_ns = intervals_ms[rng_below(rng, 3)] * NS_PER_MS;
	s->net = (struct sim_net){.bytes_per_s = 5e7 * (double)story_size(rng, 8),
		.latency_ns = (int64_t)(story_size(rng, ends ? 8 : 11) * 1000),
		.loss_ppm = (uint32_t)(rng_below(rng, 3) * rng_below(rng, 20000)),
		.loss_ns = (int64_t)rng_below(rng, 20 * NS_PER_MS),
		.window_bytes = 2048 + story_size(rng, 18),
		.turn_ns = (int64_t)(5000 + rng_below(rng, 50000))};
	s->net.jitter_ns = (int64_t)rng_below(rng, (uint64_t)s->net.latency_ns + 1);
	if (ends) {
		s->net.bytes_per_s += 1e9;
		s->net.window_bytes += 32u << 10;
	}
}

/* Returns the longest time until bytes that are sent now have left, after all that streams hold. */
static inline int64_t story_queue_ns(const struct story *s)
{
	double queued_bytes = (double)(s->peers * s->peers * COLL_STREAMS * s->net.window_bytes);

	return (int64_t)(2 * queued_bytes / s->net.bytes_per_s * 1e9);
}

/* Returns how long a rank may be silent, without the time that the network takes. Of the heartbeats
 * that may be missed, one was about to be sent when the silence began, and the next one waits for
 * all bytes before it. */
static inline int64_t story_spare_ns(const struct story *s)
{
	return 3 * s->heartbeat_interval_ns - story_queue_ns(s) -
		4 * (s->net.latency_ns + s->net.jitter_ns) - s->net.loss_ns - 10 * NS_PER_MS;
}

static inline void story_make_fate(struct story *s, struct rng *rng)
{
	int64_t spare_ns = story_spare_ns(s);
	bool net = s->fate == FATE_CUT || s->fate == FATE_SLOW || s->fate == FATE_SILENT ||
		s->fate == FATE_PART;
	bool alone = false; /* the fate does not matter to other ranks */
	bool anybody = net || s->fate == FATE_PAUSE || s->fate == FATE_CLOSED ||
		s->fate == FATE_RESET || s->fate == FATE_FREEZE;

	s->victim = (uint32_t)rng_below(rng, anybody ? s->peers : s->ranks);
	s->teller = (uint32_t)rng_below(rng, s->ranks);
	s->at = (uint32_t)rng_below(rng, s->ops_n);
	s->after_ns = (int64_t)story_size(rng, 23); /* up to 8 ms */
	s->one_way = rng_below(rng, 3) == 0;
	for (uint32_t h = 0; h < s->hosts + s->servers; h++) {
		s->side[h] = (uint32_t)rng_below(rng, 2);
	}
	s->side[s->host_of[s->victim]] = 1;
	s->side[s->host_of[s->victim] == 0] = 0;
	if (s->fate >= FATE_ODD) {
		s->teller = s->victim;
		s->after_ns = 0;
		alone = s->ops[s->at].call.kind == PAWL_SEND && s->fate < FATE_EARLY;
	}
	if ((net && s->hosts == 1) || alone ||
		(s->fate <= FATE_SLOW && spare_ns < 10 * NS_PER_MS)) {
		s->fate = FATE_NOTHING;
	} else if (s->fate <= FATE_SLOW) {
		s->for_ns = (int64_t)rng_below(rng, (uint64_t)spare_ns / 4 * 3);
		s->slow = 1 + (double)spare_ns / 4 / (double)(story_queue_ns(s) + 1);
	} else {
		s->for_ns = rng_below(rng, 2)
			? SIM_NEVER
			: 5 * s->heartbeat_interval_ns + (int64_t)rng_below(rng, 2 * NS_PER_S);
	}
}

static inline void story_make(struct story *s, uint64_t seed, uint32_t bits)
{
	struct rng rng = {seed};

	*s = (struct story){.seed = seed};
	rng_u64(&rng);
	s->fate = rng_below(&rng, 3) ? (enum fate)rng_below(&rng, FATES) : FATE_NOTHING;
	s->ranks = 2 + (uint32_t)rng_below(&rng, RANKS - 1);
	s->hosts = 1 + (uint32_t)rng_below(&rng, s->ranks < 6 ? s->ranks : 6);
	for (uint32_t r = 0; r < s->ranks; r++) { /* Each host has at least one rank. */
		s->host_of[r] = r < s->hosts ? r : (uint32_t)rng_below(&rng, s->hosts);
	}
	s->servers = s->hosts > 1 ? (uint32_t)rng_below(&rng, SERVERS + 1) : 0;
	s->peers = s->ranks + s->servers;
	for (uint32_t p = s->ranks; p < s->peers; p++) {
		s->host_of[p] = s->hosts + p - s->ranks;
	}
	coll_topo_init(&s->topo, s->host_of, s->ranks, s->servers, NULL);
	s->ops_n = 1 + (uint32_t)rng_below(&rng, OPS);
	story_make_net(s, &rng);
	for (uint32_t i = 0; i < s->ops_n; i++) {
		story_make_op(s, &rng, i, s->fate >= FATE_CLOSED ? bits - 2 : bits);
	}
	story_make_fate(s, &rng);
}

static inline void story_drop(struct story *s)
{
	coll_topo_deinit(&s->topo);
	for (uint32_t i = 0; i < OPS; i++) {
		free(s->want[i]);
	}
}

#endif
