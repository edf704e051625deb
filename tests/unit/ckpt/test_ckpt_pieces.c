/* Shares cover a file without overlap for every world; pieces, copied, and glue make the file. */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "sample.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SEEDS     100
#define WORLD_MAX 16u

static uint64_t first_seed; /* seed of the first of SEEDS random runs */

/* ---- shares ---- */

static void assert_shares(uint64_t size_bytes, uint32_t world)
{
	uint64_t chunks_min = ckpt_chunks(size_bytes) / world;
	uint64_t at = 0;

	/* In the order of the file: ranks 1, 2, ..., 0. */
	for (uint32_t i = 1; i <= world; i++) {
		uint64_t lo, hi;

		ckpt_share(size_bytes, i % world, world, &lo, &hi);
		assert_true(lo == at && hi >= lo);
		assert_true(lo % CKPT_CHUNK == 0 || lo == size_bytes);
		assert_true(hi % CKPT_CHUNK == 0 || hi == size_bytes);
		assert_in_range(ckpt_chunks(hi - lo), chunks_min, chunks_min + 1);
		at = hi;
		assert_true(i < world || size_bytes == 0 || lo < hi); /* rank 0 has the tail */
	}
	assert_true(at == size_bytes);
}

static void shares_cover_and_are_disjoint(void **state)
{
	struct rng rng = {7};

	for (uint32_t world = 1; world <= WORLD_MAX; world++) {
		for (uint64_t chunks = 0; chunks <= 40; chunks++) {
			assert_shares(chunks * CKPT_CHUNK, world);
			assert_shares(chunks * CKPT_CHUNK + CKPT_PAGE, world);
			assert_shares(chunks * CKPT_CHUNK + CKPT_CHUNK - CKPT_PAGE, world);
		}
		for (int i = 0; i < 100; i++) {
			assert_shares(rng_below(&rng, ZIP_FILE_MAX), world);
		}
	}
	assert_shares(ZIP_FILE_MAX, 4096);
}

/* ---- pieces ---- */

/* Checks the rules that hold for every piece, whatever it was cut from. */
static void assert_piece(const struct ckpt_piece *piece, const struct ckpt_span *spans)
{
	const struct ckpt_span *span = &spans[piece->storage];
	const uint8_t *from = span->addr;

	assert_in_range(piece->len_bytes, 1, CKPT_CHUNK);
	assert_true(piece->file_off / CKPT_CHUNK ==
		(piece->file_off + piece->len_bytes - 1) / CKPT_CHUNK);
	assert_true(piece->src >= from && piece->src + piece->len_bytes <= from + span->size_bytes);
	if (piece->groups != 0) {
		assert_true(piece->groups == span->groups);
		assert_true(span->size_bytes >= CKPT_WATCH_MIN);
		assert_true((uintptr_t)piece->src / CKPT_PAGE * CKPT_PAGE >= (uintptr_t)from);
		assert_true(((uintptr_t)piece->src + piece->len_bytes + CKPT_PAGE - 1) / CKPT_PAGE *
				CKPT_PAGE <=
			(uintptr_t)from + span->size_bytes);
	}
}

/* Copies the pieces of [lo, hi) into image; image[0] is the byte at lo. */
static void stage(const struct sample_part *part, const struct ckpt_span *spans, uint64_t lo,
	uint64_t hi, uint8_t *image)
{
	struct ckpt_pieces pieces = {0};
	uint64_t at = lo;

	assert_int_equal(ckpt_pieces_add(&pieces, &part->plan, spans, 3, lo, hi, image, NULL), 0);
	for (size_t i = 0; i < pieces.n; i++) {
		const struct ckpt_piece *piece = &pieces.at[i];

		assert_piece(piece, spans);
		assert_int_equal(piece->part, 3);
		assert_true(piece->file_off >= at && piece->file_off + piece->len_bytes <= hi);
		assert_ptr_equal(piece->dst, image + (piece->file_off - lo));
		at = piece->file_off + piece->len_bytes;
		memcpy(piece->dst, piece->src, piece->len_bytes);
	}
	ckpt_pieces_deinit(&pieces);
}

/* Places the payloads at random offsets in their pages, as a training process has them. */
static uint8_t *scatter(const struct sample_part *part, struct ckpt_span *spans, struct rng *rng)
{
	uint64_t sum_bytes = 0;
	uint8_t *memory;
	uint8_t *at;

	for (uint32_t i = 0; i <= part->storages; i++) {
		sum_bytes += part->sizes[i] + CKPT_PAGE;
	}
	at = memory = malloc(sum_bytes);
	for (uint32_t i = 0; i <= part->storages; i++) {
		at += rng_below(rng, CKPT_PAGE);
		memcpy(at, part->payloads[i], part->sizes[i]);
		spans[i] = (struct ckpt_span){at, part->sizes[i], rng_below(rng, 3), 0};
		at += part->sizes[i];
	}
	return memory;
}

static void pieces_and_glue_make_the_file(void **state)
{
	for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
		struct rng rng = {seed};
		uint64_t sizes[13];
		struct ckpt_span spans[13];
		uint32_t n = sample_sizes(sizes, 12, 3u << 19, &rng);
		uint32_t world = 1 + (uint32_t)rng_below(&rng, WORLD_MAX);
		struct sample_part part;
		uint8_t *memory, *image;

		sample_part_init(&part, "model", sizes, n, &rng);
		memory = scatter(&part, spans, &rng);
		image = malloc(part.plan.size_bytes);
		memset(image, 0x55, part.plan.size_bytes);
		for (uint32_t rank = 0; rank < world; rank++) {
			uint64_t lo, hi;

			ckpt_share(part.plan.size_bytes, rank, world, &lo, &hi);
			stage(&part, spans, lo, hi, image + lo);
		}
		zip_glue(&part.plan, 0, part.plan.size_bytes, image);
		assert_memory_equal(image, part.image, part.plan.size_bytes);
		free(image);
		free(memory);
		sample_part_deinit(&part);
	}
}

/* Only the parts of a large, watched storage that share a page with others are copied at once. */
static void only_partial_pages_are_eager(void **state)
{
	const uint64_t sizes[] = {4 * CKPT_CHUNK, CKPT_WATCH_MIN, CKPT_WATCH_MIN - 1, 10};
	uint8_t *memory = aligned_alloc(CKPT_PAGE, 5 * CKPT_CHUNK);
	struct ckpt_span spans[] = {{memory + 64, sizes[0], 1}, {memory, sizes[1], 2},
		{memory, sizes[2], 4}, {memory, 10, 1}};
	uint64_t eager[4] = {0}, watched[4] = {0};
	struct ckpt_pieces pieces = {0};
	struct zip_plan plan;

	assert_int_equal(zip_plan_init(&plan, sizes, 3, sizes[3], NULL), 0);
	assert_int_equal(ckpt_pieces_add(&pieces, &plan, spans, 0, 0, plan.size_bytes, NULL, NULL),
		0);
	for (size_t i = 0; i < pieces.n; i++) {
		assert_piece(&pieces.at[i], spans);
		assert_null(pieces.at[i].dst);
		*(pieces.at[i].groups != 0 ? &watched[pieces.at[i].storage]
					   : &eager[pieces.at[i].storage]) +=
			pieces.at[i].len_bytes;
	}
	assert_int_equal(eager[0], CKPT_PAGE); /* both partial pages together */
	assert_int_equal(eager[0] + watched[0], sizes[0]);
	assert_int_equal(watched[1], CKPT_WATCH_MIN);
	assert_int_equal(eager[2], CKPT_WATCH_MIN - 1);
	assert_int_equal(eager[3], 10);
	ckpt_pieces_deinit(&pieces);
	zip_plan_deinit(&plan);
	free(memory);
}

/* A storage on a device has no pages of ours: it is cut at chunks, and all of it keeps its groups,
 * however small and wherever it begins. */
static void devices_are_cut_at_chunks_only(void **state)
{
	const uint64_t sizes[] = {3 * CKPT_CHUNK + 5, CKPT_WATCH_MIN - 1, 1, 10};
	uint8_t *memory = aligned_alloc(CKPT_PAGE, 4 * CKPT_CHUNK);
	const struct ckpt_span spans[] = {{memory + 64, sizes[0], 1, 1},
		{memory + 1, sizes[1], 2, 2}, {memory, 1, 0, 2}, {memory, 10, 0, 0}};
	struct ckpt_pieces pieces = {0};
	uint64_t bytes[4] = {0};
	struct zip_plan plan;

	assert_int_equal(zip_plan_init(&plan, sizes, 3, sizes[3], NULL), 0);
	assert_int_equal(ckpt_pieces_add(&pieces, &plan, spans, 0, 0, plan.size_bytes, NULL, NULL),
		0);
	for (size_t i = 0; i < pieces.n; i++) {
		const struct ckpt_piece *piece = &pieces.at[i];
		const struct ckpt_span *span = &spans[piece->storage];
		uint64_t end = piece->file_off + piece->len_bytes;

		assert_ptr_equal(piece->src, (const uint8_t *)span->addr + bytes[piece->storage]);
		assert_int_equal(piece->device, span->device);
		assert_true(piece->groups == span->groups);
		bytes[piece->storage] += piece->len_bytes;
		assert_true(end % CKPT_CHUNK == 0 ||
			bytes[piece->storage] == span->size_bytes); /* no other cut */
	}
	assert_memory_equal(bytes, sizes, sizeof(sizes));
	ckpt_pieces_deinit(&pieces);
	zip_plan_deinit(&plan);
	free(memory);
}

/* When memory runs out, the list stays as it was. */
static void failure_leaves_the_list_alone(void **state)
{
	const uint64_t sizes[] = {2000 * (uint64_t)CKPT_CHUNK, 1};
	const struct ckpt_span spans[] = {{(void *)CKPT_PAGE, sizes[0], 0}, {sizes, 1, 0}};
	struct ckpt_pieces pieces = {0};
	struct zip_plan plan;

	assert_int_equal(zip_plan_init(&plan, sizes, 1, 1, NULL), 0);
	assert_int_equal(ckpt_pieces_add(&pieces, &plan, spans, 0, 0, CKPT_CHUNK, NULL, NULL), 0);
	assert_int_equal(pieces.n, 1);
	for (uint64_t nth = 1; nth <= 2; nth++) {
		struct ckpt_pieces more = pieces;

		more.at = malloc(pieces.cap * sizeof(*more.at));
		memcpy(more.at, pieces.at, pieces.n * sizeof(*more.at));
		fault_arm("plan.pieces", nth, ENOMEM, false);
		assert_int_equal(
			ckpt_pieces_add(&more, &plan, spans, 0, 0, plan.size_bytes, NULL, NULL),
			nth == 1 ? PAWL_ENOMEM : 0);
		fault_disarm();
		assert_int_equal(more.n, nth == 1 ? 1 : 1 + 2001 + 1);
		ckpt_pieces_deinit(&more);
	}
	ckpt_pieces_deinit(&pieces);
	zip_plan_deinit(&plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_cover_and_are_disjoint),
		cmocka_unit_test(pieces_and_glue_make_the_file),
		cmocka_unit_test(only_partial_pages_are_eager),
		cmocka_unit_test(devices_are_cut_at_chunks_only),
		cmocka_unit_test(failure_leaves_the_list_alone),
	};
	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
