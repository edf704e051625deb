/*
 * Resharding: see reshard.h for the contract.
 *
 * What is still wanted is a list of boxes, at first one. Each saved box in turn gives what it has
 * of each of them, and what lies around that stays wanted: at most two boxes a dimension. So no
 * element is given twice, and what is left in the end was never saved.
 */
#include "ckpt/reshard.h"

#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ELEMENT_TEXT 128u /* bytes of an element's place, for messages */

/* A growing list of boxes. */
struct boxes {
	struct reshard_box *at; /* owned */
	size_t n;               /* in it */
	size_t cap;             /* allocated */
};

/* What does not change during a plan. */
struct plan {
	const struct reshard_box *want; /* the whole of it */
	uint32_t ndim;                  /* of all boxes */
	uint32_t item_bytes;            /* of an element */
	reshard_run_fn *each;           /* the caller's */
	void *user;                     /* for each */
};

static int push_box(struct boxes *boxes, const struct reshard_box *box, struct pawl_err *err)
{
	if (boxes->n == boxes->cap) {
		size_t cap = boxes->cap * 2 + 4;
		struct reshard_box *at =
			FAULT_MEM("reshard.plan", realloc(boxes->at, cap * sizeof(*at)));

		if (at == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "reshard: %zu boxes", cap);
		}
		boxes->at = at;
		boxes->cap = cap;
	}
	boxes->at[boxes->n++] = *box;
	return 0;
}

/* False if they share no element. */
static bool intersect(const struct reshard_box *a, const struct reshard_box *b, uint32_t ndim,
	struct reshard_box *both)
{
	for (uint32_t d = 0; d < ndim; d++) {
		uint64_t a_end = a->start[d] + a->shape[d];
		uint64_t b_end = b->start[d] + b->shape[d];
		uint64_t lo = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
		uint64_t hi = a_end < b_end ? a_end : b_end;

		if (lo >= hi) {
			return false;
		}
		both->start[d] = lo;
		both->shape[d] = hi - lo;
	}
	return true;
}

/* Adds what lies in box around hole, which is in it: before and behind it in the first dimension,
 * then in the second within the hole's extent of the first, and so on. */
static int push_around(struct boxes *boxes, const struct reshard_box *box,
	const struct reshard_box *hole, uint32_t ndim, struct pawl_err *err)
{
	struct reshard_box core = *box;
	int rv = 0;

	for (uint32_t d = 0; d < ndim && rv == 0; d++) {
		uint64_t end = core.start[d] + core.shape[d];
		uint64_t hole_end = hole->start[d] + hole->shape[d];

		if (core.start[d] < hole->start[d]) {
			core.shape[d] = hole->start[d] - core.start[d];
			rv = push_box(boxes, &core, err);
		}
		if (hole_end < end && rv == 0) {
			core.start[d] = hole_end;
			core.shape[d] = end - hole_end;
			rv = push_box(boxes, &core, err);
		}
		core.start[d] = hole->start[d];
		core.shape[d] = hole->shape[d];
	}
	return rv;
}

/* Elements from the beginning of box to the one at index of part, which lies in box. */
static uint64_t place_in(const struct reshard_box *box, const struct reshard_box *part,
	const uint64_t *index, uint32_t ndim)
{
	uint64_t place = 0;

	for (uint32_t d = 0; d < ndim; d++) {
		place = place * box->shape[d] + (part->start[d] - box->start[d]) + index[d];
	}
	return place;
}

/* The next index below shape, the last of ndim dimensions running fastest; false behind the end. */
static bool advance(uint64_t *index, const uint64_t *shape, uint32_t ndim)
{
	for (uint32_t d = ndim; d-- > 0;) {
		if (++index[d] < shape[d]) {
			return true;
		}
		index[d] = 0;
	}
	return false;
}

/* Gives the runs of part, which lies in the wanted box and in saved. */
static int give_runs(const struct plan *plan, const struct reshard_box *saved, uint32_t source,
	const struct reshard_box *part)
{
	uint64_t index[PAWL_TENSOR_DIMS_MAX] = {0};
	struct reshard_run run = {.source = source, .len_bytes = plan->item_bytes};
	uint32_t outer = plan->ndim; /* dimensions that are counted through */
	int rv;

	/* A run has the last dimension, and those before as long as what is behind them is
	 * whole. */
	while (outer > 0) {
		outer--;
		run.len_bytes *= part->shape[outer];
		if (part->shape[outer] != saved->shape[outer] ||
			part->shape[outer] != plan->want->shape[outer]) {
			break;
		}
	}
	do {
		run.src_off = place_in(saved, part, index, plan->ndim) * plan->item_bytes;
		run.dst_off = place_in(plan->want, part, index, plan->ndim) * plan->item_bytes;
		rv = plan->each(plan->user, &run);
	} while (rv == 0 && advance(index, part->shape, outer));
	return rv;
}

/* Takes from left what saved has. */
static int take_from(const struct plan *plan, struct boxes *left, const struct reshard_box *saved,
	uint32_t source, struct pawl_err *err)
{
	size_t n = left->n; /* what is added now has nothing of saved */
	int rv = 0;

	for (size_t i = n; i-- > 0 && rv == 0;) {
		struct reshard_box box = left->at[i];
		struct reshard_box part;

		if (intersect(&box, saved, plan->ndim, &part)) {
			left->at[i] = left->at[--left->n];
			rv = push_around(left, &box, &part, plan->ndim, err);
			rv = rv == 0 ? give_runs(plan, saved, source, &part) : rv;
		}
	}
	return rv;
}

static int blame_missing(const struct reshard_box *box, uint32_t ndim, struct pawl_err *err)
{
	char text[ELEMENT_TEXT] = "";
	size_t used = 0;

	for (uint32_t d = 0; d < ndim && used < sizeof(text); d++) {
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRIu64,
			d > 0 ? ", " : "", box->start[d]);
	}
	return pawl_err_set(err, PAWL_EMISMATCH, "element [%s] is in no saved shard", text);
}

static bool is_empty(const struct reshard_box *box, uint32_t ndim)
{
	for (uint32_t d = 0; d < ndim; d++) {
		if (box->shape[d] == 0) {
			return true;
		}
	}
	return false;
}

int reshard_plan(const struct reshard_box *want, const struct reshard_box *saved, uint32_t saved_n,
	uint32_t ndim, uint32_t item_bytes, reshard_run_fn *each, void *user, struct pawl_err *err)
{
	const struct plan plan = {want, ndim, item_bytes, each, user};
	struct boxes left = {0};
	int rv = 0;

	if (!is_empty(want, ndim)) {
		rv = push_box(&left, want, err);
	}
	for (uint32_t i = 0; i < saved_n && rv == 0 && left.n > 0; i++) {
		rv = take_from(&plan, &left, &saved[i], i, err);
	}
	if (rv == 0 && left.n > 0) {
		rv = blame_missing(&left.at[0], ndim, err);
	}
	free(left.at);
	return rv;
}
