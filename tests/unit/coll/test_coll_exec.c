/*
 * Plans executed on numbers: all ranks in one process, bytes moved in parts of any size and in any
 * order. All ranks must get the bits of a sum in the fixed order.
 */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "coll/plan/exec.h"
#include "each_fault.h"
#include "seed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS   12
#define ALL     (RANKS + 4)
#define LEN_MAX (300u << 10) /* bytes of a vector */
#define PIPE    (16u << 10)  /* bytes in flight between two ranks, at most */

static uint64_t first_seed;

struct pipe {
	uint8_t bytes[PIPE];
	size_t lo, hi; /* the pipe holds bytes lo to hi */
};

struct world {
	struct coll_topo topo;
	uint32_t all;
	struct coll_plan plans[ALL];
	struct coll_exec execs[ALL];
	uint8_t *in[RANKS], *out[RANKS]; /* owned; the same if in place */
	uint8_t *want;                   /* owned */
	struct pipe *pipes;              /* owned; from * all + to */
};

static void fold_locals(const struct world *w, uint32_t host, enum pawl_reduce_op fold,
	enum pawl_dtype type, uint8_t *dst, size_t n)
{
	const void *terms[RANKS];
	uint32_t locals = coll_topo_locals(&w->topo, host);

	for (uint32_t i = 0; i < locals; i++) {
		terms[i] = w->in[w->topo.member[w->topo.start[host] + i]];
	}
	coll_fold(COLL_PLAIN, fold, type, dst, terms, locals, n);
}

static void make_wanted(struct world *w, enum pawl_reduce_op fold, enum pawl_dtype type, size_t len)
{
	const void *terms[RANKS];
	uint8_t *hosts = malloc(RANKS * len + 1);

	for (uint32_t h = 0; h < w->topo.hosts; h++) {
		fold_locals(w, h, fold, type, hosts + h * len, len / coll_type_bytes(type));
		terms[h] = hosts + h * len;
	}
	w->want = malloc(len + 1);
	coll_fold(COLL_PLAIN, fold, type, w->want, terms, w->topo.hosts,
		len / coll_type_bytes(type));
	free(hosts);
}

/* Numbers whose sum depends on the order, and is finite. */
static void fill(struct rng *rng, enum pawl_dtype type, uint8_t *at, size_t len)
{
	float number;
	double wide;

	for (size_t i = 0; i < len; i += coll_type_bytes(type)) {
		uint64_t bits = rng_u64(rng);

		number = (float)(int32_t)bits / (float)(1 + rng_below(rng, 1000));
		wide = (double)number / 3;
		if (type == PAWL_FLOAT32) {
			memcpy(at + i, &number, sizeof(number));
		} else if (type == PAWL_FLOAT64) {
			memcpy(at + i, &wide, sizeof(wide));
		} else if (type == PAWL_BFLOAT16) { /* the upper half of a float */
			memcpy(at + i, (const uint8_t *)&number + 2, 2);
		} else {
			memcpy(at + i, &bits, coll_type_bytes(type));
		}
	}
}

static struct world *open_world(struct rng *rng, uint32_t servers, enum coll_algorithm algorithm,
	size_t len)
{
	struct world *w = calloc(1, sizeof(*w));
	uint32_t where[RANKS];
	uint32_t ranks = 1 + (uint32_t)rng_below(rng, RANKS);
	uint32_t hosts = 1 + (uint32_t)rng_below(rng, ranks);

	for (uint32_t r = 0; r < ranks; r++) {
		where[r] = (uint32_t)rng_below(rng, hosts);
	}
	assert_int_equal(coll_topo_init(&w->topo, where, ranks, servers, NULL), 0);
	if (!coll_algorithm_fits(algorithm, w->topo.hosts)) {
		algorithm = COLL_DIRECT;
	}
	w->all = ranks + servers;
	w->pipes = calloc((size_t)w->all * w->all, sizeof(*w->pipes));
	for (uint32_t r = 0; r < w->all; r++) {
		assert_int_equal(
			coll_plan_all_reduce(&w->plans[r], &w->topo, r, algorithm, len, NULL), 0);
		assert_int_equal(coll_exec_init(&w->execs[r], &w->plans[r], w->all,
					 coll_kernel_best(), NULL),
			0);
	}
	return w;
}

static void close_world(struct world *w)
{
	for (uint32_t r = 0; r < w->all; r++) {
		coll_exec_deinit(&w->execs[r]);
		coll_plan_deinit(&w->plans[r]);
	}
	coll_topo_deinit(&w->topo);
	free(w->pipes);
	free(w);
}

/* Moves some bytes from a into the pipe to b, and out of it. Returns whether any moved. */
static bool move(struct world *w, struct rng *rng, uint32_t a, uint32_t b)
{
	struct pipe *pipe = &w->pipes[a * w->all + b];
	const void *from;
	void *to;
	size_t n = coll_exec_to_send(&w->execs[a], b, &from);
	bool moved = false;

	if (pipe->lo == pipe->hi) {
		pipe->lo = pipe->hi = 0;
	}
	n = n < PIPE - pipe->hi ? n : PIPE - pipe->hi;
	if (n > 0) {
		n = 1 + rng_below(rng, n);
		memcpy(pipe->bytes + pipe->hi, from, n);
		pipe->hi += n;
		coll_exec_sent(&w->execs[a], b, n);
		moved = true;
	}
	n = coll_exec_to_receive(&w->execs[b], a, &to);
	n = n < pipe->hi - pipe->lo ? n : pipe->hi - pipe->lo;
	if (n > 0) {
		n = 1 + rng_below(rng, n);
		memcpy(to, pipe->bytes + pipe->lo, n);
		pipe->lo += n;
		coll_exec_received(&w->execs[b], a, n);
		moved = true;
	}
	return moved;
}

static bool all_done(const struct world *w)
{
	for (uint32_t r = 0; r < w->all; r++) {
		if (!coll_exec_done(&w->execs[r])) {
			return false;
		}
	}
	return true;
}

static void move_all(struct world *w, struct rng *rng)
{
	assert_true(w->all > 0);
	while (!all_done(w)) {
		uint32_t pairs = w->all * w->all;
		uint32_t first = (uint32_t)rng_below(rng, pairs);
		bool moved = false;

		for (uint32_t i = 0; i < pairs; i++) {
			uint32_t pair = (first + i) % pairs;

			moved |= move(w, rng, pair / w->all, pair % w->all);
		}
		assert_true(moved); /* otherwise ranks wait for each other */
	}
}

/* Executes one operation; a world may execute many. */
static void try_one(struct world *w, struct rng *rng, enum pawl_reduce_op fold,
	enum pawl_dtype type, size_t len)
{
	bool in_place = rng_below(rng, 2) == 1;

	for (uint32_t r = 0; r < w->topo.ranks; r++) {
		w->in[r] = malloc(len + 1);
		w->out[r] = in_place ? w->in[r] : malloc(len + 1);
		fill(rng, type, w->in[r], len);
	}
	make_wanted(w, fold, type, len);
	for (uint32_t r = 0; r < w->all; r++) {
		bool server = r >= w->topo.ranks;

		coll_exec_start(&w->execs[r], fold, type, server ? NULL : w->in[r],
			server ? NULL : w->out[r]);
	}
	move_all(w, rng);
	for (uint32_t r = 0; r < w->topo.ranks; r++) {
		assert_memory_equal(w->out[r], w->want, len);
		free(w->in[r]);
		if (!in_place) {
			free(w->out[r]);
		}
	}
	free(w->want);
}

/* Every algorithm gives the same bits, in whatever order bytes arrive. */
static void bits_depend_on_ranks_and_hosts_alone(void **state)
{
	struct rng rng = {first_seed};

	for (int i = 0; i < 150; i++) {
		enum coll_algorithm algorithm = (enum coll_algorithm)rng_below(&rng, COLL_RING);
		enum pawl_dtype type = rng_below(&rng, 2) == 1 ? PAWL_FLOAT32 : PAWL_FLOAT64;
		uint32_t servers = algorithm == COLL_DIRECT ? (uint32_t)rng_below(&rng, 5) : 0;
		size_t len = rng_below(&rng, i % 10 == 0 ? LEN_MAX : 3000) / 8 * 8;
		struct world *w = open_world(&rng, servers, algorithm, len);

		try_one(w, &rng, PAWL_SUM, type, len);
		try_one(w, &rng, PAWL_SUM, type, len);
		close_world(w);
	}
}

/* Integers, by all algorithms and operations; 16-bit floats, which each host rounds, and the server
 * after them. */
static void all_types(void **state)
{
	struct rng rng = {first_seed + 1};

	for (int i = 0; i < 60; i++) {
		enum pawl_reduce_op fold = (enum pawl_reduce_op)rng_below(&rng, PAWL_REDUCE_OPS);
		enum pawl_dtype type = (enum pawl_dtype)rng_below(&rng, PAWL_INT64 + 1);
		size_t len = rng_below(&rng, 5000) / 8 * 8;
		struct world *w = open_world(&rng, 0,
			(enum coll_algorithm)rng_below(&rng, COLL_ALGORITHMS), len);

		try_one(w, &rng, fold, type, len);
		close_world(w);
		w = open_world(&rng, (uint32_t)rng_below(&rng, 3), COLL_DIRECT, len);
		try_one(w, &rng, PAWL_SUM, PAWL_BFLOAT16, len);
		close_world(w);
	}
}

/* Any allocation may fail. */
static void no_memory(void **state)
{
	struct rng rng = {first_seed + 2};
	struct world *w = open_world(&rng, 2, COLL_DIRECT, 40000);
	struct coll_exec exec = {0};
	struct pawl_err err;
	uint64_t nth;

	for (nth = 1; each_fault(nth); nth++) {
		int rv;

		coll_exec_deinit(&exec); /* made in spite of the fault before */
		fault_arm("coll.exec", nth, ENOMEM, false);
		rv = coll_exec_init(&exec, &w->plans[0], w->all, COLL_PLAIN, &err);
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(nth)));
	}
	assert_true(nth > 5);
	coll_exec_deinit(&exec);
	close_world(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_depend_on_ranks_and_hosts_alone),
		cmocka_unit_test(all_types),
		cmocka_unit_test(no_memory),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
