/* Parts that a host drops when others come, or a save is global, and parts that it never drops; and
 * what threads see that send, read and drop at the same time. */
#include "seed.h"
#include "test_held_world.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- what goes, what stays ---- */

static void what_is_older_than_global_goes_first(void **state)
{
	const struct peer_save five = {.run = 1, .number = 5};

	put(1, 4, 2, &none);
	put(1, 4, 4, &none); /* has other ranks: stays */
	put_own(1, 3, 2);
	put(1, 5, 2, &none);
	assert_int_equal(count(), 4);
	put(1, 6, 2, &five);
	assert_true(has(1, 5, 2) && has(1, 6, 2) && has(1, 4, 4));
	assert_false(has(1, 4, 2) || has(1, 3, 2));
	put(1, 7, 2, &five); /* 6 was given up */
	assert_true(has(1, 5, 2) && has(1, 7, 2));
	assert_false(has(1, 6, 2));
	put(1, 8, 2, &(struct peer_save){.run = 1, .number = 7});
	assert_true(has(1, 7, 2) && has(1, 8, 2));
	assert_int_equal(count(), 3);
}

static void the_save_that_a_new_run_began_from_stays(void **state)
{
	const struct peer_save one = {.run = 2, .number = 1};

	put(1, 5, 2, &none); /* whole everywhere: the ranks went on from it */
	put(1, 6, 2, &none); /* was under way when they began anew */
	put(2, 1, 2, &none);
	assert_true(has(1, 5, 2) && has(2, 1, 2));
	assert_false(has(1, 6, 2));
	put(2, 2, 2, &none); /* 1 was given up */
	assert_true(has(1, 5, 2) && has(2, 2, 2));
	assert_false(has(2, 1, 2));
	put(2, 3, 2, &(struct peer_save){.run = 2, .number = 2});
	assert_true(has(2, 2, 2) && has(2, 3, 2));
	assert_int_equal(count(), 2);
	held_drop(held, ROOT, &(struct peer_save){.run = 2, .number = 2});
	put(2, 4, 2, &one);
	assert_true(has(2, 3, 2) && has(2, 4, 2));
	put(1, 5, 4, &none);
	put(2, 4, 4, &one); /* the new run has a save that is global: it needs no other */
	assert_false(has(1, 5, 4));
}

/* The ranks began anew twice. Numbers of different runs say nothing; the older save is more likely
 * to be whole everywhere, unless one is known to be. */
static void saves_of_different_runs_go_by_their_steps(void **state)
{
	const struct peer_save six = {.run = 1, .number = 6};

	put(1, 5, 2, &none);
	put(2, 1, 2, &none);
	put(3, 1, 2, &none);
	assert_true(has(1, 5, 2) && has(3, 1, 2));
	assert_false(has(2, 1, 2));
	put(1, 5, 4, &none);
	put(1, 6, 4, &none);
	put(2, 1, 4, &six); /* this one is known to be at all peers */
	assert_true(has(1, 6, 4) && has(2, 1, 4));
	assert_false(has(1, 5, 4));
	put(2, 2, 4, &six);
	assert_true(has(1, 6, 4) && has(2, 2, 4));
	assert_false(has(2, 1, 4));
}

static void a_part_that_comes_anew_cancels_the_one_under_way(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct held_in *first;
	struct held_in *second;

	OK(send_in(&first, sent, &none, IMAGE_BYTES));
	assert_int_equal(held_used_bytes(held), IMAGE_BYTES);
	OK(held_in_open(&second, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	assert_int_equal(held_used_bytes(held), 0); /* although its thread does not know yet */
	assert_int_equal(map_kib(), mapped_kib + IMAGE_KIB);
	FAILS(PAWL_ECANCELED, held_in_end(first, &err));
	SAYS("rank 2");
	FAILS(PAWL_ECANCELED, held_in_bytes(first, IMAGE_BYTES, NULL, 0, &err));
	OK(send_record(second, sent, 0));
	OK(send_record(second, sent, 1));
	OK(held_in_bytes(second, 0, sent->image, IMAGE_BYTES, &err));
	held_in_close(first);
	OK(held_in_end(second, &err));
	held_in_close(second);
	assert_int_equal(count(), 1);
	drop(sent);
}

/* A save became global, or was restored, while replicas of newer ones are here or on their way. */
static void what_is_newer_in_the_run_outlives_the_others(void **state)
{
	const struct peer_save keep = {.run = 2, .number = 5};
	uint64_t runs[] = {2, 2, 2, 1, 3};
	uint64_t numbers[] = {4, 5, 6, 9, 1};
	bool stays[] = {false, true, true, true, true}; /* what is under way in other runs does */
	struct sent *sent[5];
	struct held_in *in[5];

	put(2, 4, 3, &none);
	put(2, 5, 2, &none);
	put(2, 6, 4, &none);
	put(1, 9, 0, &none);
	put(3, 1, 1, &none);
	put_own(2, 4, 0);
	put_own(2, 5, 0);
	put_own(2, 6, 0);
	for (uint32_t i = 0; i < 5; i++) {
		sent[i] = make(runs[i], numbers[i], i); /* own first ranks: none cancels another */
		OK(held_in_open(&in[i], held, ROOT, &sent[i]->info, &none, IMAGE_BYTES, &err));
	}
	held_drop_others(held, ROOT, &(struct peer_save){.run = 0});
	assert_int_equal(count(), 8);
	held_drop_others(held, ROOT + 1, NULL);
	assert_int_equal(count(), 8);
	held_drop_others(held, ROOT, &keep);
	assert_true(has(2, 5, 2) && has(2, 6, 4) && has(2, 5, 0));
	assert_int_equal(count(), 3);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(send_record(in[i], sent[i], 0), stays[i] ? 0 : PAWL_ECANCELED);
	}
	held_drop_others(held, ROOT, NULL);
	assert_int_equal(count(), 0);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(send_record(in[i], sent[i], 1), PAWL_ECANCELED);
		held_in_close(in[i]);
		drop(sent[i]);
	}
}

static void saves_are_dropped_by_name_and_by_step(void **state)
{
	struct sent *sent = make(1, 5, 0);
	struct held_in *in;

	put(1, 4, 2, &none);
	put(1, 5, 2, &none);
	put(1, 5, 4, &none);
	put_own(1, 6, 2);
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	held_drop_below(held, ROOT, 401);
	assert_false(has(1, 4, 2));
	assert_int_equal(count(), 3);
	OK(send_record(in, sent, 0));
	held_drop(held, ROOT, &sent->info.save);
	assert_false(has(1, 5, 2) || has(1, 5, 4));
	FAILS(PAWL_ECANCELED, send_record(in, sent, 1));
	held_in_close(in);
	assert_true(has(1, 6, 2));
	held_drop_below(held, ROOT, 600);
	assert_true(has(1, 6, 2));
	held_drop_below(held, ROOT, 601);
	assert_int_equal(count(), 0);
	drop(sent);
}

static void a_part_in_use_outlives_its_drop(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct held_part *part;
	struct held_part *again;

	OK(send_all(sent, &none, 100));
	part = held_find(held, ROOT, &sent->info.save, 2);
	again = held_find(held, ROOT, &sent->info.save, 2);
	held_drop(held, ROOT, &sent->info.save);
	assert_int_equal(count(), 0);
	assert_null(held_find(held, ROOT, &sent->info.save, 2));
	held_release(again);
	assert_is(part, sent);
	assert_false(held_trim(held, 0));
	assert_int_equal(map_kib(), mapped_kib + IMAGE_KIB);
	held_release(part);
	assert_true(held_trim(held, 0));
	assert_int_equal(map_kib(), mapped_kib);
	drop(sent);
}

/* ---- threads ---- */

#define THREAD_ROUNDS 200

static const char *_Atomic wrong; /* what a thread found; NULL: nothing */

static void *send_often(void *user)
{
	const struct sent *sent = user;

	for (int i = 0; i < THREAD_ROUNDS; i++) {
		struct pawl_err own_err;
		struct held_in *in;
		int rv = held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &own_err);

		if (rv != 0) {
			atomic_store(&wrong, "cannot open");
			return NULL;
		}
		for (uint32_t r = 0; r < RANKS && rv == 0; r++) {
			const struct wire_out *blob = &sent->blobs[r];

			rv = held_in_record(in, sent->info.first_rank + r, r == 0 ? ARENA_BYTES : 0,
				crc32c(0, blob->bytes, blob->len_bytes), blob->bytes,
				blob->len_bytes, &own_err);
		}
		for (uint64_t off = 0; off < IMAGE_BYTES && rv == 0; off += 50) {
			rv = held_in_bytes(in, off, &sent->image[off], 50, &own_err);
		}
		rv = rv != 0 ? rv : held_in_end(in, &own_err);
		held_in_close(in);
		if (rv != 0 && rv != PAWL_ECANCELED) {
			atomic_store(&wrong, "failed");
			return NULL;
		}
	}
	return NULL;
}

static void *read_often(void *user)
{
	const struct sent *sent = user;

	for (int i = 0; i < THREAD_ROUNDS * 4; i++) {
		struct held_part *part = held_find(held, ROOT, &sent->info.save, 3);
		uint8_t bytes[IMAGE_BYTES];

		if (part != NULL &&
			(held_part_read(part, 0, bytes, IMAGE_BYTES, NULL) != 0 ||
				memcmp(bytes, sent->image, IMAGE_BYTES) != 0)) {
			atomic_store(&wrong, "read something else");
			return NULL;
		}
		held_release(part);
		held_used_bytes(held);
		if (i % 16 == 0) {
			held_drop_others(held, ROOT, NULL);
		}
	}
	return NULL;
}

static void threads_get_whole_parts_or_none(void **state)
{
	struct sent *sent = make(1, 5, 2);
	void *(*work[])(void *) = {send_often, send_often, read_often};
	pthread_t threads[3];

	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, work[i], sent), 0);
	}
	for (size_t i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
	}
	if (wrong != NULL) {
		fail_msg("%s", wrong);
	}
	drop(sent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_older_than_global_goes_first, begin, end),
		cmocka_unit_test_setup_teardown(the_save_that_a_new_run_began_from_stays, begin,
			end),
		cmocka_unit_test_setup_teardown(saves_of_different_runs_go_by_their_steps, begin,
			end),
		cmocka_unit_test_setup_teardown(a_part_that_comes_anew_cancels_the_one_under_way,
			begin, end),
		cmocka_unit_test_setup_teardown(what_is_newer_in_the_run_outlives_the_others, begin,
			end),
		cmocka_unit_test_setup_teardown(saves_are_dropped_by_name_and_by_step, begin, end),
		cmocka_unit_test_setup_teardown(a_part_in_use_outlives_its_drop, begin, end),
		cmocka_unit_test_setup_teardown(threads_get_whole_parts_or_none, begin, end),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
