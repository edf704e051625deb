/* Images: where the pieces of all ranks lie, compared with a plain walk over records made at
 * random. */
#include "agent/peer/image.h"
#include "base/fault.h"
#include "base/rng.h"
#include "each_fault.h"
#include "expect.h"
#include "pawl/err.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the standard headers above. */
#include <cmocka.h>

#define RANKS      4u
#define PARTS      3u
#define PIECES_MAX 600u /* more than two marks of a partition */

static struct rng rng;
static struct pawl_err err;

static struct record records[RANKS];
static const struct record *list[RANKS];
static struct record_part parts[RANKS][PARTS];
static struct record_piece pieces[RANKS][PARTS][PIECES_MAX];
static struct image image;

/* Makes a partition of n pieces with gaps between them. */
static void make_part(struct record_part *part, struct record_piece *at, uint32_t n)
{
	uint64_t off = 4096 * (1 + rng_below(&rng, 3));

	*part = (struct record_part){.lo = off, .arena_off = 4096 * rng_below(&rng, 100)};
	for (uint32_t i = 0; i < n; i++) {
		off += rng_below(&rng, 3);
		at[i] = (struct record_piece){.file_off = off,
			.len_bytes = (uint32_t)(1 + rng_below(&rng, 5)),
			.crc = (uint32_t)rng_u64(&rng)};
		off += at[i].len_bytes;
	}
	part->pieces = at;
	part->pieces_n = n;
	part->hi = off + rng_below(&rng, 3);
}

static void make(void)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		/* one in four has no part in the save */
		records[r] = (struct record){.parts = parts[r],
			.parts_n = rng_below(&rng, 4) == 0 ? 0 : PARTS};
		list[r] = &records[r];
		for (uint32_t p = 0; p < PARTS; p++) {
			uint32_t most = rng_below(&rng, 2) ? PIECES_MAX : 3;

			make_part(&parts[r][p], pieces[r][p], (uint32_t)rng_below(&rng, most + 1));
		}
	}
	OK(image_init(&image, list, RANKS, &err));
}

/* ---- a plain walk ---- */

static bool plain_next(struct image_piece *at, bool first)
{
	at->off += first ? 0 : at->len_bytes;
	at->piece += first ? 0 : 1;
	for (; at->rank < RANKS; at->rank++, at->part = 0) {
		for (; at->part < records[at->rank].parts_n; at->part++, at->piece = 0) {
			const struct record_part *part = &parts[at->rank][at->part];

			if (at->piece < part->pieces_n) {
				at->arena_off = part->arena_off + part->pieces[at->piece].file_off -
					part->lo;
				at->len_bytes = part->pieces[at->piece].len_bytes;
				at->crc = part->pieces[at->piece].crc;
				return true;
			}
		}
	}
	return false;
}

static void assert_same_piece(const struct image_piece *a, const struct image_piece *b)
{
	assert_int_equal(a->rank, b->rank);
	assert_int_equal(a->part, b->part);
	assert_int_equal(a->piece, b->piece);
	assert_int_equal(a->off, b->off);
	assert_int_equal(a->arena_off, b->arena_off);
	assert_int_equal(a->len_bytes, b->len_bytes);
	assert_int_equal(a->crc, b->crc);
}

/* ---- tests ---- */

static void pieces_lie_one_behind_the_other(void **state)
{
	for (int round = 0; round < 50; round++) {
		struct image_piece expected = {0};
		struct image_at at = {0};
		struct image_piece piece;
		bool first = true;

		make();
		for (; plain_next(&expected, first); first = false) {
			assert_true(image_next(&image, &at, &piece));
			assert_same_piece(&piece, &expected);
		}
		assert_false(image_next(&image, &at, &piece));
		assert_false(image_next(&image, &at, &piece));
		assert_int_equal(image.size_bytes, expected.off);
		image_deinit(&image);
	}
}

static void every_byte_is_found(void **state)
{
	for (int round = 0; round < 20; round++) {
		struct image_piece expected = {0};
		bool first = true;

		make();
		for (; plain_next(&expected, first); first = false) {
			for (uint32_t i = 0; i < expected.len_bytes; i++) {
				struct image_at at;
				struct image_piece piece;

				image_find(&image, expected.off + i, &at);
				assert_int_equal(at.off, expected.off);
				assert_true(image_next(&image, &at, &piece));
				assert_same_piece(&piece, &expected);
			}
		}
		image_deinit(&image);
	}
}

static void assert_range(uint32_t rank, uint32_t part, uint64_t lo, uint64_t hi)
{
	struct image_piece piece = {0};
	uint64_t first = UINT64_MAX;
	uint64_t last = 0;
	uint64_t off;
	uint64_t end;

	for (bool begin = true; plain_next(&piece, begin); begin = false) {
		const struct record_piece *at = &parts[piece.rank][piece.part].pieces[piece.piece];

		if (piece.rank == rank && piece.part == part && lo < hi && at->file_off < hi &&
			at->file_off + at->len_bytes > lo) {
			first = piece.off < first ? piece.off : first;
			last = piece.off + piece.len_bytes;
		}
	}
	image_range(&image, rank, part, lo, hi, &off, &end);
	if (last == 0) {
		assert_true(off == end);
	} else {
		assert_int_equal(off, first);
		assert_int_equal(end, last);
	}
}

static void ranges_hold_the_pieces_that_touch_them(void **state)
{
	for (int round = 0; round < 200; round++) {
		make();
		for (int i = 0; i < 20; i++) {
			uint32_t rank = (uint32_t)rng_below(&rng, RANKS);
			uint32_t part = (uint32_t)rng_below(&rng, PARTS);
			uint64_t lo = 4096 + rng_below(&rng, 12000);

			assert_range(rank, part, lo, lo + rng_below(&rng, 30));
		}
		assert_range(0, 0, 0, UINT64_MAX);
		assert_range(RANKS - 1, PARTS - 1, 0, UINT64_MAX);
		assert_range(1, 1, 9000, 8000);
		assert_range(1, PARTS, 0, UINT64_MAX);
		assert_range(RANKS, 0, 0, UINT64_MAX);
		image_deinit(&image);
	}
}

static void an_image_of_nothing(void **state)
{
	struct image_at at = {0};
	struct image_piece piece;
	uint64_t off;
	uint64_t end;

	memset(records, 0, sizeof(records));
	for (uint32_t r = 0; r < RANKS; r++) {
		list[r] = &records[r];
	}
	OK(image_init(&image, list, RANKS, &err));
	assert_int_equal(image.size_bytes, 0);
	assert_false(image_next(&image, &at, &piece));
	image_range(&image, 0, 0, 0, UINT64_MAX, &off, &end);
	assert_int_equal(off, end);
	image_deinit(&image);
	image_deinit(&image);
}

static void no_memory(void **state)
{
	make();
	image_deinit(&image);
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("image.", nth, ENOMEM, false);
		rv = image_init(&image, list, RANKS, &err);
		fault_disarm();
		assert_int_equal(rv, fault_reached(nth) ? PAWL_ENOMEM : 0);
		assert_true(rv == 0 || image.parts == NULL);
	}
	image_deinit(&image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_lie_one_behind_the_other),
		cmocka_unit_test(every_byte_is_found),
		cmocka_unit_test(ranges_hold_the_pieces_that_touch_them),
		cmocka_unit_test(an_image_of_nothing),
		cmocka_unit_test(no_memory),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
