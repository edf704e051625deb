/*
 * Resharding: see reshard.h for the contract.
 *
 * The wanted elements are a list of boxes, at first one box. For each saved box in turn, the
 * elements that it shares with each of them become runs. The elements around those stay wanted, as
 * at most two boxes per dimension. So no element is in two runs, and what is left in the end was
 * never saved.
 */
#include "ckpt/format/reshard.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ELEMENT_TEXT 128u /* bytes of an element's index as text, for messages */

/* A growing list of boxes. */
struct boxes {
	struct reshard_box *at; /* owned */
	size_t n;               /* number of boxes */
	size_t cap;             /* boxes allocated */
};

/* Constants of a plan. */
struct plan {
	const struct reshard_box *want; /* the whole box that is wanted */
	uint32_t ndim;                  /* dimensions of all boxes */
	uint32_t item_bytes;            /* size of an element */
	reshard_run_fn *each;           /* the caller's */
	void *user;                     /* passed to each */
};

static int push_box(struct boxes *boxes, const struct reshard_box *box, struct pawl_err *err)
{
	if (boxes->n == boxes->cap) {
		size_t cap = boxes->cap * 2 + 4;
		struct reshard_box *at =
			FAULT_MEM("reshard.plan", realloc(boxes->at, cap * sizeof(*at)));

		if (at == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "reshard: no memory for %zu boxes",
				cap);
		}
		boxes->at = at;
		boxes->cap = cap;
	}
	boxes->at[boxes->n++] = *box;
	return 0;
}

/* Computes the intersection in *both. Returns false if the boxes share no element. */
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

/* Adds the elements of box around hole, which lies in box: before and behind the hole in the first
 * dimension, then in the second within the hole's extent of the first, and so on. */
static int push_remainder(struct boxes *boxes, const struct reshard_box *box,
	const struct reshard_box *hole, uint32_t ndim, struct pawl_err *err)
{
	struct reshard_box core = *box;
	int rv = 0;

	for (uint32_t d = 0; d < ndim && rv == 0; d++) {
		uint64_t end = core.start[d] + core.shape[d];
		uint64_t hole_end = hole->start[d] + hole->shape[d];

		ASSERT(core.start[d] <= hole->start[d] && hole_end <= end);
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

/* Returns the number of elements from the beginning of box to the element at index of part, which
 * lies in box. */
static uint64_t place_in(const struct reshard_box *box, const struct reshard_box *part,
	const uint64_t *index, uint32_t ndim)
{
	uint64_t place = 0;

	for (uint32_t d = 0; d < ndim; d++) {
		place = place * box->shape[d] + (part->start[d] - box->start[d]) + index[d];
	}
	return place;
}

/* Steps to the next index below shape, the last of ndim dimensions running fastest. Returns false
 * behind the end. */
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

/* Calls each for the runs of part, which lies in the wanted box and in saved. */
static int emit_runs(const struct plan *plan, const struct reshard_box *saved, uint32_t source,
	const struct reshard_box *part)
{
	uint64_t index[PAWL_TENSOR_DIMS_MAX] = {0};
	struct reshard_run run = {.source = source, .len_bytes = plan->item_bytes};
	uint32_t outer = plan->ndim; /* dimensions with one run for each index */
	int rv;

	/* A run spans the last dimension, and earlier ones as long as all dimensions behind them
	 * are whole. */
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

/* Removes the elements of saved from left, and calls each for their runs. */
static int take_from(const struct plan *plan, struct boxes *left, const struct reshard_box *saved,
	uint32_t source, struct pawl_err *err)
{
	size_t n = left->n; /* boxes added below share nothing with saved */
	int rv = 0;

	for (size_t i = n; i-- > 0 && rv == 0;) {
		struct reshard_box box = left->at[i];
		struct reshard_box part;

		ASSERT(i < left->n);
		if (intersect(&box, saved, plan->ndim, &part)) {
			left->at[i] = left->at[--left->n];
			rv = push_remainder(left, &box, &part, plan->ndim, err);
			rv = rv == 0 ? emit_runs(plan, saved, source, &part) : rv;
		}
	}
	return rv;
}

static int missing_error(const struct reshard_box *box, uint32_t ndim, struct pawl_err *err)
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

	ASSERT(ndim <= PAWL_TENSOR_DIMS_MAX);
	if (!is_empty(want, ndim)) {
		rv = push_box(&left, want, err);
	}
	for (uint32_t i = 0; i < saved_n && rv == 0 && left.n > 0; i++) {
		rv = take_from(&plan, &left, &saved[i], i, err);
	}
	if (rv == 0 && left.n > 0) {
		rv = missing_error(&left.at[0], ndim, err);
	}
	free(left.at);
	return rv;
}
