/* Saved boxes of any shape make up any wanted box: tested against a slow and plain reference, at
 * random. */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/format/reshard.h"
#include "seed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SEEDS    2000
#define SAVED    12 /* boxes saved, at most */
#define EXTENT   7  /* elements along a dimension, at most */
#define DIMS     4
#define ITEM     3 /* bytes of an element: no machine word has this size */
#define ELEMENTS (EXTENT * EXTENT * EXTENT * EXTENT)

static uint64_t first_seed; /* seed of the first of SEEDS random runs */

/* A saved world: every byte of every box differs from all others. */
struct world {
	uint32_t ndim;
	uint64_t global[DIMS];
	struct reshard_box saved[SAVED];
	uint32_t saved_n;
	struct reshard_box want;
	uint32_t bytes[ELEMENTS * ITEM]; /* source of each byte of want: 1 + its box and offset */
	size_t runs;
};

static uint64_t volume(const struct reshard_box *box, uint32_t ndim)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < ndim; d++) {
		n *= box->shape[d];
	}
	return n;
}

static uint32_t token(uint32_t source, uint64_t off)
{
	return 1 + source * ELEMENTS * ITEM + (uint32_t)off;
}

static int record_run(void *user, const struct reshard_run *run)
{
	struct world *w = user;

	assert_true(run->source < w->saved_n && run->len_bytes > 0);
	assert_true(
		run->src_off + run->len_bytes <= volume(&w->saved[run->source], w->ndim) * ITEM);
	assert_true(run->dst_off + run->len_bytes <= volume(&w->want, w->ndim) * ITEM);
	for (uint64_t i = 0; i < run->len_bytes; i++) {
		assert_int_equal(w->bytes[run->dst_off + i], 0); /* written once */
		w->bytes[run->dst_off + i] = token(run->source, run->src_off + i);
	}
	w->runs++;
	return 0;
}

static bool is_in(const struct reshard_box *box, const uint64_t *at, uint32_t ndim, uint64_t *place)
{
	*place = 0;
	for (uint32_t d = 0; d < ndim; d++) {
		if (at[d] < box->start[d] || at[d] - box->start[d] >= box->shape[d]) {
			return false;
		}
		*place = *place * box->shape[d] + (at[d] - box->start[d]);
	}
	return true;
}

/* The reference: each element comes from the first saved box that has it. Returns false if none has
 * one. */
static bool agrees(const struct world *w, bool planned)
{
	for (uint64_t e = 0; e < volume(&w->want, w->ndim); e++) {
		uint64_t at[DIMS] = {0}, place = 0, left = e;
		uint32_t source = 0;

		for (uint32_t d = w->ndim; d-- > 0; left /= w->want.shape[d]) {
			at[d] = w->want.start[d] + left % w->want.shape[d];
		}
		while (source < w->saved_n && !is_in(&w->saved[source], at, w->ndim, &place)) {
			source++;
		}
		if (source == w->saved_n) {
			return false;
		}
		for (uint64_t i = 0; planned && i < ITEM; i++) {
			assert_int_equal(w->bytes[e * ITEM + i], token(source, place * ITEM + i));
		}
	}
	return true;
}

static void random_box(struct world *w, struct reshard_box *box, struct rng *rng)
{
	for (uint32_t d = 0; d < w->ndim; d++) {
		box->start[d] = rng_below(rng, w->global[d] + 1);
		box->shape[d] = rng_below(rng, w->global[d] - box->start[d] + 1);
	}
}

/* Splits the tensor, evenly or not, along up to two dimensions, as a mesh of ranks does; some ranks
 * may get nothing. */
static void split(struct world *w, struct rng *rng)
{
	uint64_t rows = 1 + rng_below(rng, 4), columns = 1 + rng_below(rng, 3);
	uint32_t row_dim = w->ndim == 0 ? 0 : (uint32_t)rng_below(rng, w->ndim);
	uint32_t column_dim = w->ndim == 0 ? 0 : (uint32_t)rng_below(rng, w->ndim);

	w->saved_n = 0;
	for (uint64_t i = 0; i < rows * columns; i++) {
		struct reshard_box *box = &w->saved[w->saved_n++];
		uint64_t at[2] = {i / columns, i % columns}, of[2] = {rows, columns};
		uint32_t dims[2] = {row_dim, column_dim};

		memcpy(box->shape, w->global, sizeof(w->global));
		memset(box->start, 0, sizeof(w->global));
		for (int s = 0; s < 2 && w->ndim > 0; s++) { /* two splits of one dimension nest */
			uint32_t d = dims[s];
			uint64_t each = (box->shape[d] + of[s] - 1) / of[s];
			uint64_t lo = at[s] * each < box->shape[d] ? at[s] * each : box->shape[d];
			uint64_t left = box->shape[d] - lo;

			box->start[d] += lo;
			box->shape[d] = left < each ? left : each;
		}
	}
}

static void make_world(struct world *w, struct rng *rng)
{
	memset(w, 0, sizeof(*w));
	w->ndim = (uint32_t)rng_below(rng, DIMS + 1);
	for (uint32_t d = 0; d < w->ndim; d++) {
		w->global[d] = rng_below(rng, EXTENT) + (rng_below(rng, 10) > 0);
	}
	if (rng_below(rng, 2) == 0) {
		split(w, rng);
	} else {
		w->saved_n = (uint32_t)rng_below(rng, SAVED + 1);
		for (uint32_t i = 0; i < w->saved_n; i++) {
			random_box(w, &w->saved[i], rng);
		}
	}
	for (uint32_t d = 0; d < w->ndim; d++) { /* The wanted box is seldom empty. */
		w->want.shape[d] = w->global[d] - rng_below(rng, w->global[d] + 1) / 2;
		w->want.start[d] = rng_below(rng, w->global[d] - w->want.shape[d] + 1);
	}
}

static void any_boxes_make_up_any_box(void **state)
{
	struct world *w = malloc(sizeof(*w));
	unsigned covered = 0;

	for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
		struct rng rng = {seed};
		struct pawl_err err;
		int rv;

		make_world(w, &rng);
		rv = reshard_plan(&w->want, w->saved, w->saved_n, w->ndim, ITEM, record_run, w,
			&err);
		assert_int_equal(rv, agrees(w, rv == 0) ? 0 : PAWL_EMISMATCH);
		covered += rv == 0;
	}
	assert_in_range(covered, SEEDS / 4, SEEDS - SEEDS / 20); /* both outcomes occur */
	free(w);
}

static void what_is_whole_is_one_run(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	w->ndim = 3;
	w->saved_n = 1;
	w->saved[0] = (struct reshard_box){.start = {2, 0, 0}, .shape = {4, 5, 6}};
	w->want = (struct reshard_box){.start = {3, 0, 0}, .shape = {2, 5, 6}};
	assert_int_equal(reshard_plan(&w->want, w->saved, 1, 3, ITEM, record_run, w, NULL), 0);
	assert_int_equal(w->runs, 1);
	assert_int_equal(w->bytes[0], token(0, 1 * 5 * 6 * ITEM));
	free(w);
}

static void the_missing_element_is_named(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct pawl_err err;

	w->ndim = 2;
	w->saved_n = 1;
	w->saved[0] = (struct reshard_box){.shape = {3, 4}};
	w->want = (struct reshard_box){.shape = {5, 4}};
	assert_int_equal(reshard_plan(&w->want, w->saved, 1, 2, ITEM, record_run, w, &err),
		PAWL_EMISMATCH);
	assert_string_equal(err.msg, "element [3, 0] is in no saved shard");
	free(w);
}

static int refuse(void *user, const struct reshard_run *run)
{
	++*(int *)user;
	return PAWL_ELIMIT;
}

static void a_run_that_is_refused_ends_the_plan(void **state)
{
	struct reshard_box box = {.shape = {3, 2}};
	struct reshard_box want = {.shape = {3, 1}};
	int calls = 0;

	assert_int_equal(reshard_plan(&want, &box, 1, 2, ITEM, refuse, &calls, NULL), PAWL_ELIMIT);
	assert_int_equal(calls, 1);
}

static void allocation_may_fail(void **state)
{
	struct reshard_box box = {.shape = {3}};
	int calls = 0;

	fault_arm("reshard.plan", 1, ENOMEM, false);
	assert_int_equal(reshard_plan(&box, &box, 1, 1, ITEM, refuse, &calls, NULL), PAWL_ENOMEM);
	fault_disarm();
	assert_int_equal(calls, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_boxes_make_up_any_box),
		cmocka_unit_test(what_is_whole_is_one_run),
		cmocka_unit_test(the_missing_element_is_named),
		cmocka_unit_test(a_run_that_is_refused_ends_the_plan),
		cmocka_unit_test(allocation_may_fail),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
