/* Sums over the parts of several hosts, as a host receives and holds them: whatever order the bytes
 * come in, and however often a part is sent anew, the sum is what gives back any of its parts. */
#include "agent/peer/parity.h"
#include "base/fault.h"
#include "each_fault.h"
#include "seed.h"
#include "test_held_world.h"

#include <pthread.h>
#include <stdatomic.h>

#define K 3u /* parts of a sum */
#define M 2u /* sums */

static struct sent *parts[K];

/* Makes the parts of a save, as they are sent for a row. */
static void make_parts(uint64_t run, uint64_t number, uint32_t row)
{
	for (uint32_t i = 0; i < K; i++) {
		parts[i] = make(run, number, i * RANKS);
		parts[i]->info.parity =
			(struct peer_parity){.k = K, .m = M, .row = row, .index = i};
	}
}

static void drop_parts(void)
{
	for (uint32_t i = 0; i < K; i++) {
		drop(parts[i]);
	}
}

static struct held_part *find(uint32_t index)
{
	const struct peer_part *info = &parts[index]->info;

	return held_find_sum(held, ROOT, &info->save, &info->parity, info->first_rank);
}

/* Computes the image of one part from the sum and the images of the others. */
static void rebuild(const struct held_part *part, uint32_t lost, uint8_t out[IMAGE_BYTES])
{
	struct parity code;
	uint8_t sum[IMAGE_BYTES];
	const uint8_t *rows[K];
	uint32_t have[K];

	OK(parity_init(&code, K, M, &err));
	assert_int_equal(held_part_size(part), IMAGE_BYTES);
	OK(held_part_read(part, 0, sum, IMAGE_BYTES, &err));
	for (uint32_t i = 0; i < K; i++) {
		have[i] = i == lost ? K + parts[i]->info.parity.row : i;
		rows[i] = i == lost ? sum : parts[i]->image;
	}
	OK(parity_rebuild(&code, have, rows, lost, IMAGE_BYTES, out, &err));
	parity_deinit(&code);
}

/* The sum of parts is complete, and right. */
static void assert_sum(void)
{
	for (uint32_t i = 0; i < K; i++) {
		struct held_part *part = find(i);
		uint8_t image[IMAGE_BYTES];
		uint64_t arena_bytes;
		uint32_t blob_bytes;
		const uint8_t *blob;

		assert_non_null(part);
		rebuild(part, i, image);
		assert_memory_equal(image, parts[i]->image, IMAGE_BYTES);
		held_part_record(part, parts[i]->info.first_rank, &blob, &blob_bytes, &arena_bytes);
		assert_int_equal(blob_bytes, parts[i]->blobs[0].len_bytes);
		assert_memory_equal(blob, parts[i]->blobs[0].bytes, blob_bytes);
		assert_int_equal(arena_bytes, ARENA_BYTES);
		FAILS(PAWL_EINVAL, held_part_read(part, 0, image, IMAGE_BYTES + 1, &err));
		held_release(part);
	}
}

static void send_parts(const struct peer_save *global)
{
	for (uint32_t i = 0; i < K; i++) {
		OK(send_all(parts[i], global, 1 + rng_below(&rng, IMAGE_BYTES)));
	}
}

/* Makes and sends all parts of another save; parts stays. */
static void put_sum(uint64_t run, uint64_t number, const struct peer_save *global)
{
	struct sent *stay[K];

	memcpy(stay, parts, sizeof(stay));
	make_parts(run, number, 0);
	send_parts(global);
	drop_parts();
	memcpy(parts, stay, sizeof(stay));
}

static bool has_sum(uint64_t run, uint64_t number)
{
	const struct peer_save save = {.run = run, .number = number};
	const struct peer_parity parity = {.k = K, .m = M};
	struct held_part *part = held_find_sum(held, ROOT, &save, &parity, 2);

	held_release(part);
	return part != NULL;
}

/* ---- contents ---- */

/* Sends all parts at the same time, their blocks in random order. */
static void send_mixed(void)
{
	struct held_in *in[K];
	uint64_t off[K] = {0};
	uint32_t left = K;

	for (uint32_t i = 0; i < K; i++) {
		OK(held_in_open(&in[i], held, ROOT, &parts[i]->info, &none, IMAGE_BYTES, &err));
		OK(send_record(in[i], parts[i], 0));
		OK(send_record(in[i], parts[i], 1));
	}
	while (left > 0) {
		uint32_t i = (uint32_t)rng_below(&rng, K);
		size_t n = 1 + rng_below(&rng, 150);

		n = n < IMAGE_BYTES - off[i] ? n : IMAGE_BYTES - off[i];
		if (in[i] == NULL) {
			continue;
		}
		OK(held_in_bytes(in[i], off[i], &parts[i]->image[off[i]], n, &err));
		off[i] += n;
		if (off[i] == IMAGE_BYTES) {
			assert_null(find(i));
			OK(held_in_end(in[i], &err));
			held_in_close(in[i]);
			in[i] = NULL;
			left--;
		}
	}
}

static void a_sum_gives_back_any_part(void **state)
{
	for (unsigned round = 0; round < 100; round++) {
		make_parts(1, 5 + round, round % M);
		send_mixed();
		assert_sum();
		assert_false(has(1, 5 + round, 2)); /* the part itself is not here */
		held_drop(held, ROOT, &parts[0]->info.save);
		assert_int_equal(count(), 0);
		assert_int_equal(held_used_bytes(held), 0);
		drop_parts();
	}
}

/* A sum takes the memory of one part, not of k. */
static void sums_are_listed_and_counted(void **state)
{
	struct peer_part listed[2 * K];
	struct sent *own;

	for (uint32_t row = 0; row < M; row++) {
		make_parts(1, 5, row);
		send_parts(&none);
		assert_sum();
		drop_parts();
	}
	assert_int_equal(held_used_bytes(held), M * IMAGE_BYTES);
	assert_int_equal(held_list(held, ROOT, listed, 2 * K), M * K);
	for (uint32_t i = 0; i < M * K; i++) {
		assert_int_equal(listed[i].first_rank, listed[i].parity.index * RANKS);
		assert_int_equal(listed[i].parity.k, K);
		assert_int_equal(listed[i].parity.m, M);
		assert_int_equal(listed[i].parity.row, i < K ? 1 : 0);
	}
	own = make(1, 5, 2); /* replaces no part of a sum */
	OK(send_all(own, &none, 100));
	OK(add_own(own));
	assert_int_equal(count(), M * K + 1);
	assert_true(has(1, 5, 2));
	drop(own);
}

/* Images may have any lengths; behind their ends they are zeros. */
static void parts_may_be_of_different_sizes(void **state)
{
	struct held_part *part;
	struct held_in *in;
	uint8_t sum[IMAGE_BYTES];
	uint8_t expected[IMAGE_BYTES] = {0};
	struct parity code;

	make_parts(1, 5, 1);
	OK(held_in_open(&in, held, ROOT, &parts[0]->info, &none, 0, &err));
	OK(held_in_record(in, 0, 0, 0, NULL, 0, &err));
	OK(held_in_record(in, 1, 0, 0, NULL, 0, &err));
	OK(held_in_end(in, &err));
	held_in_close(in);
	OK(send_all(parts[1], &none, 100));
	assert_int_equal(held_used_bytes(held), IMAGE_BYTES);
	OK(send_all(parts[2], &none, 100));
	part = find(1);
	assert_int_equal(held_part_size(part), IMAGE_BYTES);
	OK(held_part_read(part, 0, sum, IMAGE_BYTES, &err));
	OK(parity_init(&code, K, M, &err));
	parity_add_row(&code, 1, 1, parts[1]->image, IMAGE_BYTES, expected);
	parity_add_row(&code, 1, 2, parts[2]->image, IMAGE_BYTES, expected);
	assert_memory_equal(sum, expected, IMAGE_BYTES);
	parity_deinit(&code);
	held_release(part);
	drop_parts();
}

/* ---- parts that are sent again ---- */

/* Begins to send a part, and ends after this many bytes. */
static void send_torn(uint32_t index, uint64_t len_bytes, size_t block_bytes)
{
	struct held_in *in;

	OK(held_in_open(&in, held, ROOT, &parts[index]->info, &none, IMAGE_BYTES, &err));
	OK(send_record(in, parts[index], 0));
	OK(send_record(in, parts[index], 1));
	for (uint64_t off = 0; off < len_bytes; off += block_bytes) {
		size_t n = len_bytes - off < block_bytes ? len_bytes - off : block_bytes;

		OK(held_in_bytes(in, off, &parts[index]->image[off], n, &err));
	}
	if (len_bytes < IMAGE_BYTES) {
		FAILS(PAWL_ECORRUPT, held_in_end(in, &err));
	}
	held_in_close(in);
}

static void a_torn_part_is_added_once(void **state)
{
	for (uint64_t len = 0; len <= IMAGE_BYTES; len += 7) {
		make_parts(1, 5, 0);
		OK(send_all(parts[0], &none, 77));
		send_torn(1, len, 1 + rng_below(&rng, 120));
		OK(send_all(parts[2], &none, 77));
		send_torn(1, IMAGE_BYTES - len, 1 + rng_below(&rng, 120));
		OK(send_all(parts[0], &none, 50)); /* has ended before */
		assert_int_equal(count(), 0);
		OK(send_all(parts[1], &none, 77));
		assert_sum();
		OK(send_all(parts[1], &none, 77)); /* is complete */
		assert_sum();
		assert_int_equal(count(), K);
		assert_int_equal(held_used_bytes(held), IMAGE_BYTES);
		held_drop(held, ROOT, &parts[0]->info.save);
		drop_parts();
	}
}

static void a_part_that_begins_again_cancels_what_is_under_way(void **state)
{
	struct held_in *old;
	struct held_in *other;

	make_parts(1, 5, 0);
	OK(send_in(&old, parts[0], &none, 100));
	OK(send_in(&other, parts[1], &none, 100));
	OK(send_all(parts[0], &none, 100));
	FAILS(PAWL_ECANCELED, held_in_end(old, &err));
	OK(held_in_end(other, &err));
	held_in_close(old);
	held_in_close(other);
	OK(send_all(parts[2], &none, 100));
	assert_sum();
	drop_parts();
}

/* Whatever came damaged is not in the sum. */
static void damage_is_never_added(void **state)
{
	make_parts(1, 5, 1);
	OK(send_all(parts[0], &none, 100));
	for (size_t bit = 0; bit < (size_t)IMAGE_BYTES * 8; bit += 5) {
		parts[1]->image[bit / 8] ^= (uint8_t)(1u << bit % 8);
		FAILS(PAWL_ECORRUPT, send_all(parts[1], &none, 64));
		parts[1]->image[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	OK(send_all(parts[1], &none, 64));
	OK(send_all(parts[2], &none, 64));
	assert_sum();
	drop_parts();
}

static void other_bytes_than_before_are_refused(void **state)
{
	struct sent *other;
	struct peer_part info;
	struct held_in *in;

	make_parts(1, 5, 0);
	OK(send_all(parts[0], &none, 100));
	send_torn(1, 150, 150);
	other = make(1, 5, RANKS);
	other->info = parts[1]->info;
	FAILS(PAWL_ECORRUPT, send_all(other, &none, 100));
	SAYS("other records came");
	drop(other);
	info = parts[1]->info;
	info.parity.k = K + 1;
	FAILS(PAWL_ECORRUPT, held_in_open(&in, held, ROOT, &info, &none, IMAGE_BYTES, &err));
	SAYS("3 + 2");
	info.parity.k = PARITY_DATA_MAX + 1;
	FAILS(PAWL_ECORRUPT, held_in_open(&in, held, ROOT, &info, &none, IMAGE_BYTES, &err));
	info.parity = (struct peer_parity){.k = K, .m = M, .index = K};
	FAILS(PAWL_ECORRUPT, held_in_open(&in, held, ROOT, &info, &none, IMAGE_BYTES, &err));
	info.parity = (struct peer_parity){.k = K, .m = M, .row = M};
	FAILS(PAWL_ECORRUPT, held_in_open(&in, held, ROOT, &info, &none, IMAGE_BYTES, &err));
	OK(send_all(parts[1], &none, 100));
	OK(send_all(parts[2], &none, 100));
	assert_sum();
	drop_parts();
}

/* ---- saves ---- */

static void a_save_that_was_given_up_makes_room(void **state)
{
	struct held_in *late;

	make_parts(1, 5, 0);
	OK(send_all(parts[0], &none, 100));
	OK(send_in(&late, parts[1], &none, 100));
	put_sum(1, 6, &none);
	FAILS(PAWL_ECANCELED, held_in_end(late, &err));
	held_in_close(late);
	FAILS(PAWL_ECANCELED, send_all(parts[2], &none, 100));
	SAYS("newer save");
	assert_int_equal(held_used_bytes(held), IMAGE_BYTES);
	put_sum(1, 7, &none);
	assert_true(has_sum(1, 6) && has_sum(1, 7));
	put_sum(1, 8, &none);
	assert_false(has_sum(1, 6));
	assert_true(has_sum(1, 7) && has_sum(1, 8));
	put_sum(1, 9, &(struct peer_save){.run = 1, .number = 7});
	assert_true(has_sum(1, 7) && has_sum(1, 9)); /* all of 7 is somewhere */
	put_sum(1, 10, &(struct peer_save){.run = 1, .number = 9});
	assert_true(has_sum(1, 9) && has_sum(1, 10));
	assert_int_equal(count(), 2 * K);
	assert_int_equal(held_used_bytes(held), 2 * IMAGE_BYTES);
	drop_parts();
}

/* A part of an earlier run that comes late does not end what the new run has begun. */
static void runs_do_not_disturb_each_other(void **state)
{
	struct sent *late = make(1, 9, 0);

	late->info.parity = (struct peer_parity){.k = K, .m = M};
	make_parts(2, 1, 0);
	OK(send_all(parts[0], &none, 100));
	OK(send_all(late, &none, 100));
	OK(send_all(parts[1], &none, 100));
	OK(send_all(parts[2], &none, 100));
	assert_sum();
	drop_parts();
	late->info.save.run = 3;
	OK(send_all(late, &none, 100));
	assert_int_equal(held_used_bytes(held), 3 * IMAGE_BYTES);
	late->info.save.run = 4;
	OK(send_all(late, &none, 100)); /* one begun sum of another run stays */
	assert_int_equal(held_used_bytes(held), 3 * IMAGE_BYTES);
	drop(late);
}

static void sums_are_dropped_with_their_save(void **state)
{
	const struct peer_save save = {.run = 1, .number = 6};
	struct held_part *used;
	struct held_in *in;
	uint8_t byte;

	put_sum(1, 5, &none);
	put_sum(1, 6, &none);
	held_drop_below(held, ROOT, 501);
	assert_false(has_sum(1, 5));
	make_parts(1, 7, 0);
	OK(send_all(parts[0], &none, 100));
	OK(send_in(&in, parts[1], &none, 100));
	held_drop_others(held, ROOT, &save);
	assert_true(has_sum(1, 6));
	held_drop(held, ROOT, &parts[0]->info.save);
	FAILS(PAWL_ECANCELED, held_in_end(in, &err));
	held_in_close(in);
	assert_int_equal(held_used_bytes(held), IMAGE_BYTES);
	used = held_find_sum(held, ROOT, &save, &parts[0]->info.parity, 4);
	held_drop(held, ROOT, &save);
	assert_int_equal(count(), 0);
	OK(held_part_read(used, IMAGE_BYTES - 1, &byte, 1, &err));
	drop_parts();
	make_parts(1, 6, 0);
	OK(send_all(parts[0], &none, 100)); /* a sum of its own */
	assert_int_equal(count(), 0);
	held_release(used);
	held_drop_others(held, ROOT, NULL);
	assert_int_equal(held_used_bytes(held), 0);
	drop_parts();
}

/* ---- failures ---- */

static void after_any_failure_it_can_be_sent_again(void **state)
{
	const char *points[] = {"held.", "image.", "record.", "parity."};

	for (size_t p = 0; p < sizeof(points) / sizeof(points[0]); p++) {
		for (uint64_t nth = 1; each_fault(nth); nth++) {
			int rv = 0;

			make_parts(1, 5, 0);
			fault_arm(points[p], nth, ENOMEM, false);
			for (uint32_t i = 0; i < K; i++) {
				int one = send_all(parts[i], &none, 128);

				assert_true(one == 0 || one == PAWL_ENOMEM);
				rv = one != 0 ? one : rv;
			}
			fault_disarm();
			assert_true((rv == 0) != fault_reached(nth));
			send_parts(&none);
			assert_sum();
			held_drop(held, ROOT, &parts[0]->info.save);
			assert_int_equal(held_used_bytes(held), 0);
			assert_int_equal(map_kib(), mapped_kib);
			drop_parts();
		}
	}
}

#define THREAD_ROUNDS 150

static _Atomic(const char *) wrong;

/* Sends a part, torn at first, until it is in the sum. */
static void *send_often(void *user)
{
	const struct sent *sent = user;

	for (uint64_t round = 0; round < THREAD_ROUNDS; round++) {
		uint64_t end = (round * 61 + sent->info.first_rank * 17) % IMAGE_BYTES;

		for (unsigned turn = 0; turn < 2; turn++) {
			struct pawl_err own_err;
			struct held_in *in;
			int rv = held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES,
				&own_err);

			for (uint32_t r = 0; r < RANKS && rv == 0; r++) {
				const struct wire_out *blob = &sent->blobs[r];

				rv = held_in_record(in, sent->info.first_rank + r,
					r == 0 ? ARENA_BYTES : 0,
					crc32c(0, blob->bytes, blob->len_bytes), blob->bytes,
					blob->len_bytes, &own_err);
			}
			rv = rv == 0 ? held_in_bytes(in, 0, sent->image, end, &own_err) : rv;
			if (rv == 0 && turn == 1) {
				rv = held_in_bytes(in, end, &sent->image[end], IMAGE_BYTES - end,
					&own_err);
				rv = rv == 0 ? held_in_end(in, &own_err) : rv;
			}
			held_in_close(in);
			if (rv != 0 && rv != PAWL_ECANCELED) {
				atomic_store(&wrong, "failed");
			}
		}
	}
	return NULL;
}

static void *drop_often(void *user)
{
	const struct sent *sent = user;

	for (int i = 0; i < THREAD_ROUNDS; i++) {
		struct held_part *part = held_find_sum(held, ROOT, &sent->info.save,
			&sent->info.parity, sent->info.first_rank);

		if (part != NULL) {
			uint8_t image[IMAGE_BYTES];

			rebuild(part, 0, image);
			if (memcmp(image, parts[0]->image, IMAGE_BYTES) != 0) {
				atomic_store(&wrong, "read something else");
			}
			held_release(part);
			held_drop(held, ROOT, &sent->info.save);
		}
		held_used_bytes(held);
		if (i % 16 == 0) {
			held_drop_others(held, ROOT, NULL);
		}
	}
	return NULL;
}

static void threads_get_whole_sums_or_none(void **state)
{
	pthread_t threads[K + 1];

	make_parts(1, 5, 0);
	for (uint32_t i = 0; i < K; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, send_often, parts[i]), 0);
	}
	assert_int_equal(pthread_create(&threads[K], NULL, drop_often, parts[0]), 0);
	for (uint32_t i = 0; i <= K; i++) {
		pthread_join(threads[i], NULL);
	}
	if (wrong != NULL) {
		fail_msg("%s", wrong);
	}
	send_parts(&none);
	assert_sum();
	drop_parts();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_sum_gives_back_any_part, begin, end),
		cmocka_unit_test_setup_teardown(sums_are_listed_and_counted, begin, end),
		cmocka_unit_test_setup_teardown(parts_may_be_of_different_sizes, begin, end),
		cmocka_unit_test_setup_teardown(a_torn_part_is_added_once, begin, end),
		cmocka_unit_test_setup_teardown(a_part_that_begins_again_cancels_what_is_under_way,
			begin, end),
		cmocka_unit_test_setup_teardown(damage_is_never_added, begin, end),
		cmocka_unit_test_setup_teardown(other_bytes_than_before_are_refused, begin, end),
		cmocka_unit_test_setup_teardown(a_save_that_was_given_up_makes_room, begin, end),
		cmocka_unit_test_setup_teardown(runs_do_not_disturb_each_other, begin, end),
		cmocka_unit_test_setup_teardown(sums_are_dropped_with_their_save, begin, end),
		cmocka_unit_test_setup_teardown(after_any_failure_it_can_be_sent_again, begin, end),
		cmocka_unit_test_setup_teardown(threads_get_whole_sums_or_none, begin, end),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
