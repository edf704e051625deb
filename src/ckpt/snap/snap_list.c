/* Plans the engine's work for a list of pieces: see snap_list.h for the contract. */
#include "ckpt/snap/snap_list.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/record.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(SNAP_UNIT % CKPT_PAGE == 0, "a unit begins at a page, as the watch requires");
_Static_assert(SNAP_UNIT >= CKPT_CHUNK, "a piece reaches into two units at most");

void snap_list_deinit(struct snap_list *list)
{
	free(list->keys);
	free(list->order);
	free(list->extents);
	free(list->units);
	*list = (struct snap_list){0};
}

bool snap_list_matches(const struct snap_list *list, const struct ckpt_piece *pieces, size_t n)
{
	if (!list->valid || n != list->n) {
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		const struct snap_key *key = &list->keys[i];

		if (key->groups != pieces[i].groups || key->device != pieces[i].device) {
			return false;
		}
		if (key->groups != 0 &&
			(key->src != pieces[i].src || key->len_bytes != pieces[i].len_bytes)) {
			return false;
		}
	}
	return true;
}

static struct snap_range key_range(const struct snap_key *key)
{
	return (struct snap_range){(uintptr_t)key->src, (uintptr_t)key->src + key->len_bytes};
}

/* Returns the pages that a piece touches. Everything else on them is watched with the piece. */
static struct snap_range key_pages(const struct snap_key *key)
{
	struct snap_range range = key_range(key);

	return (struct snap_range){range.lo / CKPT_PAGE * CKPT_PAGE,
		(range.hi + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE};
}

/* Orders pieces: host memory by address, then devices. */
static int by_address(const void *a, const void *b, void *user)
{
	const struct snap_key *keys = user;
	const struct snap_key *x = &keys[*(const uint32_t *)a];
	const struct snap_key *y = &keys[*(const uint32_t *)b];

	if (x->device != y->device) {
		return x->device < y->device ? -1 : 1;
	}
	return (x->src > y->src) - (x->src < y->src);
}

/* Splits the pieces: order[0, guarded_n) may be guarded, order[guarded_n, late_n) lie on devices,
 * and the others follow in their original order. */
static void order_pieces(struct snap_list *list, bool all_eager)
{
	uint32_t *eager = list->order + list->n; /* scratch space */
	size_t eager_n = 0;

	list->guarded_n = 0;
	list->late_n = 0;
	for (size_t i = 0; i < list->n; i++) {
		const struct snap_key *key = &list->keys[i];

		if (all_eager || key->groups == 0) {
			eager[eager_n++] = (uint32_t)i;
		} else {
			list->order[list->late_n++] = (uint32_t)i;
			list->guarded_n += key->device == 0;
		}
	}
	ASSERT(list->guarded_n <= list->late_n && list->late_n + eager_n == list->n);
	memcpy(list->order + list->late_n, eager, eager_n * sizeof(*eager));
	qsort_r(list->order, list->late_n, sizeof(*list->order), by_address, list->keys);
}

/* Finds the extents: each watchable piece extends the last one if it lies in the same range and the
 * gap is small enough, or begins a new one. */
static void find_extents(struct snap_list *list, const struct snap_range *ranges, size_t ranges_n)
{
	struct snap_range *last = NULL;
	size_t r = 0;
	size_t last_r = 0;

	for (size_t i = 0; i < list->guarded_n; i++) {
		struct snap_range piece = key_pages(&list->keys[list->order[i]]);

		while (r < ranges_n && ranges[r].hi <= piece.lo) {
			r++;
		}
		if (r == ranges_n || piece.lo < ranges[r].lo || piece.hi > ranges[r].hi) {
			continue;
		}
		if (last != NULL && r == last_r && piece.lo <= last->hi + SNAP_GAP_MAX) {
			last->hi = piece.hi > last->hi ? piece.hi : last->hi;
			continue;
		}
		last = &list->extents[list->extents_n++];
		last_r = r;
		*last = piece;
	}
	ASSERT(list->extents_n <= list->guarded_n);
}

int snap_list_extents(struct snap_list *list, const struct ckpt_piece *pieces, size_t n,
	const struct snap_range *ranges, size_t ranges_n, struct pawl_err *err)
{
	snap_list_deinit(list);
	if (n > CKPT_PIECES_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "snapshot of %zu pieces, more than %u", n,
			CKPT_PIECES_MAX);
	}
	list->keys = FAULT_MEM("snap.keys", malloc((n + 1) * sizeof(*list->keys)));
	list->order = FAULT_MEM("snap.order", malloc((2 * n + 1) * sizeof(*list->order)));
	list->extents = FAULT_MEM("snap.extents", malloc((n + 1) * sizeof(*list->extents)));
	if (list->keys == NULL || list->order == NULL || list->extents == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to list %zu pieces", n);
	}
	list->n = n;
	for (size_t i = 0; i < n; i++) {
		const struct ckpt_piece *piece = &pieces[i];

		list->keys[i] = (struct snap_key){piece->src, piece->groups, piece->len_bytes,
			piece->device};
	}
	order_pieces(list, ranges == NULL);
	find_extents(list, ranges, ranges_n);
	return 0;
}

/* Moves pieces in host memory outside of all extents behind those on devices, to the eager ones. */
static void drop_unguarded(struct snap_list *list)
{
	uint32_t *dropped = list->order + list->n; /* scratch space */
	size_t devices_n = list->late_n - list->guarded_n;
	size_t kept = 0;
	size_t dropped_n = 0;
	size_t e = 0;

	for (size_t i = 0; i < list->guarded_n; i++) {
		struct snap_range piece = key_pages(&list->keys[list->order[i]]);

		while (e < list->extents_n && list->extents[e].hi <= piece.lo) {
			e++;
		}
		if (e < list->extents_n && list->extents[e].lo <= piece.lo &&
			piece.hi <= list->extents[e].hi) {
			list->order[kept++] = list->order[i];
		} else {
			dropped[dropped_n++] = list->order[i];
		}
	}
	memmove(list->order + kept, list->order + list->guarded_n,
		devices_n * sizeof(*list->order));
	memcpy(list->order + kept + devices_n, dropped, dropped_n * sizeof(*dropped));
	list->guarded_n = kept;
	list->late_n = kept + devices_n;
}

/* Adds units of whole pieces, order[from, to). Returns their bytes. */
static uint64_t add_whole_units(struct snap_list *list, size_t from, size_t to, enum snap_kind kind)
{
	struct snap_unit *unit = NULL;
	uint64_t unit_bytes = 0;
	uint64_t bytes = 0;

	for (size_t i = from; i < to; i++) {
		const struct snap_key *key = &list->keys[list->order[i]];

		if (unit == NULL || unit_bytes + key->len_bytes > SNAP_UNIT) {
			unit = &list->units[list->units_n++];
			*unit = (struct snap_unit){.kind = kind,
				.first = (uint32_t)i,
				.end = (uint32_t)i};
			unit_bytes = 0;
		}
		unit->end++;
		unit->groups |= kind == SNAP_EAGER ? 0 : key->groups;
		unit_bytes += key->len_bytes;
		bytes += key->len_bytes;
	}
	return bytes;
}

/* Cuts an extent into units at multiples of SNAP_UNIT. *at is the first guarded piece that may
 * reach into it; pieces reach into two units at most. */
static void add_guarded_units(struct snap_list *list, struct snap_range extent, size_t *at)
{
	for (uintptr_t lo = extent.lo; lo < extent.hi;) {
		uintptr_t next = (lo / SNAP_UNIT + 1) * SNAP_UNIT;
		struct snap_unit *unit = &list->units[list->units_n++];

		*unit = (struct snap_unit){.range = {lo, next < extent.hi ? next : extent.hi},
			.kind = SNAP_GUARDED};
		while (key_range(&list->keys[list->order[*at]]).hi <= lo) {
			(*at)++;
			ASSERT(*at < list->guarded_n); /* a piece ends on an extent's last page */
		}
		unit->first = unit->end = (uint32_t)*at;
		while (unit->end < list->guarded_n &&
			key_range(&list->keys[list->order[unit->end]]).lo < unit->range.hi) {
			unit->groups |= list->keys[list->order[unit->end++]].groups;
		}
		lo = unit->range.hi;
	}
}

static size_t count_units_max(const struct snap_list *list)
{
	size_t units = list->n + 1; /* eager and device units: at most one per piece */

	for (size_t e = 0; e < list->extents_n; e++) {
		units += (list->extents[e].hi - list->extents[e].lo) / SNAP_UNIT + 2;
	}
	return units;
}

int snap_list_units(struct snap_list *list, struct pawl_err *err)
{
	size_t units_max = count_units_max(list);
	size_t at = 0;

	ASSERT(list->units == NULL && list->units_n == 0); /* the first half has just been made */
	list->units = FAULT_MEM("snap.units", malloc(units_max * sizeof(*list->units)));
	if (list->units == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to list the units of %zu pieces",
			list->n);
	}
	drop_unguarded(list);
	list->eager_bytes = add_whole_units(list, list->late_n, list->n, SNAP_EAGER);
	list->eager_n = list->units_n;
	for (size_t e = 0; e < list->extents_n; e++) {
		add_guarded_units(list, list->extents[e], &at);
	}
	(void)add_whole_units(list, list->guarded_n, list->late_n, SNAP_DEVICE);
	ASSERT(list->units_n <= units_max);
	list->valid = true;
	return 0;
}
