/* The list of units covers every byte of every piece exactly once, whatever the pieces. */
#include "../lib/seed.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/snap/snap_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PIECES_MAX 200u
#define RANGES_MAX 20u
#define ROUNDS     400u
#define BASE       ((uintptr_t)1 << 40) /* addresses are only compared */

static uint64_t seed;

/* A random case: pieces anywhere in and outside of ranges, overlapping ones included. */
struct scene {
	struct ckpt_piece pieces[PIECES_MAX];
	size_t n;
	struct snap_range ranges[RANGES_MAX];
	size_t ranges_n;
};

static void make_scene(struct scene *scene, struct rng *rng)
{
	uintptr_t at = BASE + rng_below(rng, 600) * CKPT_PAGE;
	uintptr_t lo = BASE;

	*scene = (struct scene){.n = rng_below(rng, PIECES_MAX + 1)};
	for (size_t i = 0; i < scene->n; i++) {
		uint32_t pages = 1 + (uint32_t)rng_below(rng, CKPT_CHUNK / CKPT_PAGE);
		struct ckpt_piece *piece = &scene->pieces[i];

		piece->groups = rng_below(rng, 4);
		piece->device = rng_below(rng, 10) == 0 ? 1 + (int)rng_below(rng, 2) : 0;
		piece->src = (const uint8_t *)at + rng_below(rng, 64);
		piece->len_bytes = pages * CKPT_PAGE - (uint32_t)rng_below(rng, 64);
		/* Otherwise the next piece begins at the same address. */
		if (rng_below(rng, 8) != 0) {
			at += (pages + (rng_below(rng, 3) == 0 ? rng_below(rng, 40) : 0)) *
				CKPT_PAGE;
		}
	}
	for (size_t i = scene->n; i > 1; i--) {
		size_t j = rng_below(rng, i);
		struct ckpt_piece swap = scene->pieces[i - 1];

		scene->pieces[i - 1] = scene->pieces[j];
		scene->pieces[j] = swap;
	}
	for (; scene->ranges_n < rng_below(rng, RANGES_MAX + 1); scene->ranges_n++) {
		uintptr_t hi = lo + (1 + rng_below(rng, 3000)) * CKPT_PAGE;

		scene->ranges[scene->ranges_n] = (struct snap_range){lo, hi};
		lo = hi + (1 + rng_below(rng, 30)) * CKPT_PAGE;
	}
}

static struct snap_range piece_range(const struct ckpt_piece *piece)
{
	return (struct snap_range){(uintptr_t)piece->src, (uintptr_t)piece->src + piece->len_bytes};
}

static struct snap_range piece_pages(const struct ckpt_piece *piece)
{
	struct snap_range range = piece_range(piece);

	return (struct snap_range){range.lo / CKPT_PAGE * CKPT_PAGE,
		(range.hi + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE};
}

static bool is_inside(struct snap_range inner, const struct snap_range *ranges, size_t ranges_n)
{
	for (size_t i = 0; i < ranges_n; i++) {
		if (ranges[i].lo <= inner.lo && inner.hi <= ranges[i].hi) {
			return true;
		}
	}
	return false;
}

static void check_extents(const struct snap_list *list, const struct scene *scene)
{
	for (size_t e = 0; e < list->extents_n; e++) {
		assert_true(list->extents[e].lo < list->extents[e].hi);
		assert_true(list->extents[e].lo % CKPT_PAGE == 0);
		assert_true(list->extents[e].hi % CKPT_PAGE == 0);
		assert_true(e == 0 || list->extents[e - 1].hi < list->extents[e].lo);
		assert_true(is_inside(list->extents[e], scene->ranges, scene->ranges_n));
	}
	for (size_t i = 0; i < scene->n; i++) {
		struct snap_range range = piece_pages(&scene->pieces[i]);
		bool watchable = scene->pieces[i].groups != 0 && scene->pieces[i].device == 0 &&
			is_inside(range, scene->ranges, scene->ranges_n);

		assert_true(!watchable || is_inside(range, list->extents, list->extents_n));
	}
}

/* Adds what a unit copies of each piece to copied[]. */
static void check_unit(const struct snap_list *list, const struct scene *scene, size_t u,
	uint64_t *copied)
{
	const struct snap_unit *unit = &list->units[u];
	uint64_t groups = 0;

	assert_true((unit->kind == SNAP_EAGER) == (u < list->eager_n));
	assert_true(unit->kind != SNAP_GUARDED ||
		unit->range.lo / SNAP_UNIT == (unit->range.hi - 1) / SNAP_UNIT);
	assert_true(unit->kind != SNAP_GUARDED ||
		is_inside(unit->range, list->extents, list->extents_n));
	for (size_t i = unit->first; i < unit->end; i++) {
		uint32_t index = list->order[i];
		struct snap_range range = piece_range(&scene->pieces[index]);

		if (unit->kind == SNAP_GUARDED) {
			range.lo = range.lo > unit->range.lo ? range.lo : unit->range.lo;
			range.hi = range.hi < unit->range.hi ? range.hi : unit->range.hi;
			if (range.lo >= range.hi) {
				continue;
			}
		}
		groups |= unit->kind == SNAP_EAGER ? 0 : scene->pieces[index].groups;
		assert_true((scene->pieces[index].device != 0) == (unit->kind == SNAP_DEVICE) ||
			unit->kind == SNAP_EAGER);
		copied[index] += range.hi - range.lo;
	}
	assert_true((groups & ~unit->groups) == 0);
}

static void check_list(const struct snap_list *list, const struct scene *scene)
{
	uint64_t copied[PIECES_MAX] = {0};
	bool eager[PIECES_MAX] = {false};

	for (size_t u = 0; u < list->units_n; u++) {
		check_unit(list, scene, u, copied);
		for (size_t i = list->units[u].first; u < list->eager_n && i < list->units[u].end;
			i++) {
			eager[list->order[i]] = true;
		}
		assert_true(u <= list->eager_n || list->units[u].kind == SNAP_DEVICE ||
			list->units[u - 1].range.hi <= list->units[u].range.lo);
	}
	for (size_t i = 0; i < scene->n; i++) {
		bool inside =
			is_inside(piece_range(&scene->pieces[i]), list->extents, list->extents_n);

		assert_int_equal(copied[i], scene->pieces[i].len_bytes);
		inside = inside || scene->pieces[i].device != 0;
		assert_true(eager[i] == (scene->pieces[i].groups == 0 || !inside));
	}
}

static void covers_every_byte_once(void **state)
{
	struct rng rng = {seed};
	struct snap_list list = {0};
	static struct scene scene;

	for (unsigned round = 0; round < ROUNDS; round++) {
		make_scene(&scene, &rng);
		assert_int_equal(snap_list_extents(&list, scene.pieces, scene.n, scene.ranges,
					 scene.ranges_n, NULL),
			0);
		assert_false(snap_list_matches(&list, scene.pieces, scene.n));
		check_extents(&list, &scene);
		/* The kernel has refused one extent. */
		if (list.extents_n > 0 && rng_below(&rng, 3) == 0) {
			size_t e = rng_below(&rng, list.extents_n);

			memmove(&list.extents[e], &list.extents[e + 1],
				(--list.extents_n - e) * sizeof(list.extents[0]));
		}
		assert_int_equal(snap_list_units(&list, NULL), 0);
		check_list(&list, &scene);
		assert_true(snap_list_matches(&list, scene.pieces, scene.n));
	}
	snap_list_deinit(&list);
}

/* Tensors that lie one after the other become one extent, in spite of their heads and tails. */
static void merges_over_small_gaps(void **state)
{
	struct snap_range range = {BASE, BASE + ((uintptr_t)64 << 20)};
	struct ckpt_piece pieces[4] = {0};
	struct snap_list list = {0};
	uintptr_t at = BASE;

	for (unsigned i = 0; i < 4; i++) {
		pieces[i] = (struct ckpt_piece){.src = (const uint8_t *)at,
			.len_bytes = CKPT_CHUNK,
			.groups = 1};
		at += CKPT_CHUNK + (i == 2 ? SNAP_GAP_MAX + CKPT_PAGE : SNAP_GAP_MAX);
	}
	assert_int_equal(snap_list_extents(&list, pieces, 4, &range, 1, NULL), 0);
	assert_int_equal(list.extents_n, 2);
	assert_int_equal(snap_list_units(&list, NULL), 0);
	assert_int_equal(list.eager_n, 0);
	snap_list_deinit(&list);
}

static void detects_changed_pieces(void **state)
{
	struct ckpt_piece pieces[2] = {
		{.src = (const uint8_t *)BASE, .len_bytes = CKPT_PAGE, .groups = 1},
		{.src = (const uint8_t *)BASE + CKPT_PAGE, .len_bytes = CKPT_PAGE},
	};
	struct snap_list list = {0};

	assert_int_equal(snap_list_extents(&list, pieces, 2, NULL, 0, NULL), 0);
	assert_int_equal(snap_list_units(&list, NULL), 0);
	assert_true(snap_list_matches(&list, pieces, 2));
	assert_false(snap_list_matches(&list, pieces, 1));
	pieces[1].groups = 1;
	assert_false(snap_list_matches(&list, pieces, 2));
	pieces[1].groups = 0;
	pieces[1].src++; /* a piece that is not watched may lie anywhere, and have any length */
	pieces[1].len_bytes++;
	assert_true(snap_list_matches(&list, pieces, 2));
	pieces[0].len_bytes *= 2;
	assert_false(snap_list_matches(&list, pieces, 2));
	pieces[0].len_bytes /= 2;
	pieces[0].src += CKPT_PAGE;
	assert_false(snap_list_matches(&list, pieces, 2));
	snap_list_deinit(&list);
}

static void survives_want_of_memory(void **state)
{
	struct ckpt_piece piece = {.src = (const uint8_t *)BASE,
		.len_bytes = CKPT_PAGE,
		.groups = 1};
	struct snap_list list = {0};
	struct pawl_err err;

	for (uint64_t nth = 1; nth <= 3; nth++) {
		fault_arm("snap.", nth, ENOMEM, false);
		assert_int_equal(snap_list_extents(&list, &piece, 1, NULL, 0, &err), PAWL_ENOMEM);
		fault_disarm();
		assert_false(snap_list_matches(&list, &piece, 1));
	}
	assert_int_equal(snap_list_extents(&list, &piece, 1, NULL, 0, &err), 0);
	fault_arm("snap.units", 1, ENOMEM, false);
	assert_int_equal(snap_list_units(&list, &err), PAWL_ENOMEM);
	fault_disarm();
	assert_false(snap_list_matches(&list, &piece, 1));
	snap_list_deinit(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(covers_every_byte_once),
		cmocka_unit_test(merges_over_small_gaps),
		cmocka_unit_test(detects_changed_pieces),
		cmocka_unit_test(survives_want_of_memory),
	};

	seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
