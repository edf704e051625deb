/* Parts that a host holds, its own and replicas: received, verified, found and read. Damage
 * anywhere is found, failures leave nothing behind. */
#include "agent/peer/held_impl.h"
#include "base/fault.h"
#include "each_fault.h"
#include "seed.h"
#include "test_held_world.h"

/* ---- contents ---- */

static void a_replica_reads_as_it_was_sent(void **state)
{
	struct sent *sent = make(1, 5, 2);

	for (size_t block = 1; block <= IMAGE_BYTES; block += 1 + block / 3) {
		struct held_part *part;

		OK(send_all(sent, &none, block));
		assert_int_equal(count(), 1); /* in place of the one before */
		assert_int_equal(held_used_bytes(held), IMAGE_BYTES);
		part = held_find(held, ROOT, &sent->info.save, 3);
		assert_non_null(part);
		assert_is(part, sent);
		held_release(part);
	}
	drop(sent);
}

static void an_own_part_reads_as_its_arenas_have_it(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct held_part *part;
	uint8_t byte;

	OK(send_all(sent, &none, 100));
	OK(add_own(sent)); /* replaces the replica */
	assert_int_equal(count(), 1);
	OK(send_all(sent, &none, 100)); /* does not replace it */
	assert_int_equal(count(), 2);
	assert_int_equal(held_used_bytes(held), ARENA_BYTES + IMAGE_BYTES);
	part = held_find(held, ROOT, &sent->info.save, 2);
	assert_non_null(part);
	assert_is(part, sent);
	fault_arm("held.read", 1, EIO, false);
	FAILS(PAWL_EIO, held_part_read(part, 0, &byte, 1, &err));
	fault_disarm();
	assert_int_equal(ftruncate(part->ranks[0].held.arena.fd, OFF_BYTES), 0);
	FAILS(PAWL_EIO, held_part_read(part, IMAGE_BYTES - 1, &byte, 1, &err));
	SAYS("step500");
	held_release(part);
	drop(sent);
}

static void parts_are_found_by_root_save_and_rank(void **state)
{
	struct peer_part parts[2];
	struct peer_save save = {.run = 1, .number = 5};

	put(1, 5, 2, &none);
	assert_true(has(1, 5, 2) && has(1, 5, 3));
	assert_false(has(1, 5, 1) || has(1, 5, 4) || has(1, 6, 2) || has(2, 5, 2) || has(0, 0, 2));
	assert_null(held_find(held, ROOT + 1, &save, 2));
	assert_int_equal(held_list(held, ROOT + 1, parts, 2), 0);
	put(1, 5, 4, &none);
	assert_int_equal(held_list(held, ROOT, parts, 1), 1);
	assert_int_equal(held_list(held, ROOT, parts, 2), 2);
	assert_int_equal(parts[0].first_rank + parts[1].first_rank, 6);
	assert_string_equal(parts[0].tag, "step500");
}

/* ---- damage ---- */

static void every_flipped_bit_of_the_image_is_found(void **state)
{
	struct sent *sent = make(1, 5, 2);

	for (size_t bit = 0; bit < (size_t)IMAGE_BYTES * 8; bit++) {
		sent->image[bit / 8] ^= (uint8_t)(1u << bit % 8);
		FAILS(PAWL_ECORRUPT, send_all(sent, &none, 64));
		SAYS(bit / 8 < 101 ? "partition model of rank 2" : "partition rng of rank 2");
		sent->image[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(count(), 0);
	assert_int_equal(held_used_bytes(held), 0);
	OK(send_all(sent, &none, 64));
	drop(sent);
}

static void every_flipped_bit_of_a_record_is_found(void **state)
{
	struct sent *sent = make(1, 5, 2);
	const uint32_t crc = crc32c(0, sent->blobs[0].bytes, sent->blobs[0].len_bytes);

	for (size_t bit = 0; bit < sent->blobs[0].len_bytes * 8; bit++) {
		struct held_in *in;

		sent->blobs[0].bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
		FAILS(PAWL_ECORRUPT,
			held_in_record(in, 2, ARENA_BYTES, crc, sent->blobs[0].bytes,
				sent->blobs[0].len_bytes, &err));
		held_in_close(in);
		sent->blobs[0].bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	drop(sent);
}

/* Each is what a damaged or hostile sender could do; nothing of it is ever listed. */
static void what_is_out_of_order_is_refused(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct held_in *in;

	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	FAILS(PAWL_ECORRUPT, send_record(in, sent, 1)); /* the second one first */
	FAILS(PAWL_ECORRUPT, send_record(in, sent, 0)); /* too late now */
	SAYS("refused before");
	FAILS(PAWL_ECORRUPT, held_in_end(in, &err));
	held_in_close(in);
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	OK(send_record(in, sent, 0));
	FAILS(PAWL_ECORRUPT, held_in_bytes(in, 0, sent->image, 1, &err));
	SAYS("before the record of rank 3");
	held_in_close(in);
	OK(send_in(&in, sent, &none, IMAGE_BYTES));
	FAILS(PAWL_ECORRUPT, send_record(in, sent, 1)); /* once more */
	held_in_close(in);
	OK(send_in(&in, sent, &none, IMAGE_BYTES));
	FAILS(PAWL_ECORRUPT, held_in_bytes(in, IMAGE_BYTES, sent->image, 1, &err));
	SAYS("more came than the 300 bytes");
	held_in_close(in);
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	OK(send_record(in, sent, 0));
	OK(send_record(in, sent, 1));
	OK(held_in_bytes(in, 0, sent->image, 10, &err));
	OK(held_in_bytes(in, 10, NULL, 0, &err));
	FAILS(PAWL_ECORRUPT, held_in_bytes(in, 11, &sent->image[11], 10, &err));
	held_in_close(in);
	assert_int_equal(count(), 0);
	drop(sent);
}

static void what_is_missing_at_the_end_is_refused(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct held_in *in;

	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	OK(send_record(in, sent, 0));
	FAILS(PAWL_ECORRUPT, held_in_end(in, &err));
	SAYS("1 of 2 records");
	held_in_close(in);
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	OK(send_record(in, sent, 0));
	OK(send_record(in, sent, 1));
	OK(held_in_bytes(in, 0, sent->image, IMAGE_BYTES - 1, &err));
	FAILS(PAWL_ECORRUPT, held_in_end(in, &err));
	SAYS("299 of 300 bytes");
	held_in_close(in);
	assert_int_equal(count(), 0);
	drop(sent);
}

static void assert_record_refused(const struct peer_part *info, const struct sent *sent,
	uint64_t arena_bytes, const char *why)
{
	struct held_in *in;

	OK(held_in_open(&in, held, ROOT, info, &none, IMAGE_BYTES, &err));
	FAILS(PAWL_ECORRUPT,
		held_in_record(in, info->first_rank, arena_bytes,
			crc32c(0, sent->blobs[0].bytes, sent->blobs[0].len_bytes),
			sent->blobs[0].bytes, sent->blobs[0].len_bytes, &err));
	SAYS(why);
	held_in_close(in);
}

static void records_of_something_else_are_refused(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct peer_part info = sent->info;
	struct held_in *in;

	info.first_rank = 0;
	assert_record_refused(&info, sent, ARENA_BYTES, "another rank");
	info = sent->info;
	info.world++;
	assert_record_refused(&info, sent, ARENA_BYTES, "another number of ranks");
	info = sent->info;
	info.step++;
	assert_record_refused(&info, sent, ARENA_BYTES, "another step");
	assert_record_refused(&sent->info, sent, OFF_BYTES + 299, "end of its arena");
	assert_record_refused(&sent->info, sent, OFF_BYTES - 1, "end of its arena");
	sent->blobs[0].bytes[0] ^= 1;
	assert_record_refused(&sent->info, sent, ARENA_BYTES, "not a record");
	sent->blobs[0].bytes[0] ^= 1;
	for (int more = -1; more <= 1; more += 2) {
		OK(held_in_open(&in, held, ROOT, &sent->info, &none, (uint64_t)(IMAGE_BYTES + more),
			&err));
		OK(send_record(in, sent, 0));
		FAILS(PAWL_ECORRUPT, send_record(in, sent, 1));
		SAYS("were promised");
		held_in_close(in);
	}
	drop(sent);
}

static void parts_that_cannot_be_are_refused(void **state)
{
	struct sent *sent = make(1, 5, 2);
	const struct peer_part good = sent->info;
	struct peer_part bad[] = {good, good, good, good, good};
	struct held_in *in;

	bad[0].ranks = 0;
	bad[1].ranks = WORLD + 1;
	bad[2].first_rank = WORLD - 1;
	bad[3].first_rank = UINT32_MAX;
	bad[4].save.run = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		FAILS(PAWL_ECORRUPT, held_in_open(&in, held, ROOT, &bad[i], &none, 1, &err));
	}
	bad[0].ranks = 1u << 30;
	bad[0].world = UINT32_MAX;
	FAILS(PAWL_ECORRUPT, held_in_open(&in, held, ROOT, &bad[0], &none, 1, &err));
	sent->blobs[0].bytes[8] ^= 1; /* the step, of an own part */
	FAILS(PAWL_ECORRUPT, add_own(sent));
	assert_int_equal(count(), 0);
	drop(sent);
}

static void an_empty_part_can_be_held(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct held_part *part;
	struct held_in *in;

	OK(held_in_open(&in, held, ROOT, &sent->info, &none, 0, &err));
	OK(held_in_record(in, 2, 0, 0, NULL, 0, &err));
	OK(held_in_record(in, 3, 0, 0, NULL, 0, &err));
	OK(held_in_end(in, &err));
	held_in_close(in);
	part = held_find(held, ROOT, &sent->info.save, 2);
	assert_non_null(part);
	OK(held_part_read(part, 0, NULL, 0, &err));
	held_release(part);
	drop(sent);
}

/* ---- memory ---- */

static struct tier_limits limits = {.available = UINT64_MAX / 2, .cgroup = UINT64_MAX};

void __wrap_tier_limits_read(struct tier_limits *out);

/* In place of what the system says. */
void __wrap_tier_limits_read(struct tier_limits *out)
{
	*out = limits;
}

/* Whether there is room for another image, with that much memory available. */
static bool has_room(uint64_t available, uint64_t cgroup, uint32_t first_rank)
{
	struct sent *sent = make(1, 6, first_rank);
	struct held_in *in;
	int rv;

	limits.available = available;
	limits.cgroup = cgroup;
	rv = held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err);
	assert_true(rv == 0 || rv == PAWL_ENOMEM);
	held_in_close(rv == 0 ? in : NULL);
	limits = (struct tier_limits){.available = UINT64_MAX / 2, .cgroup = UINT64_MAX};
	drop(sent);
	return rv == 0;
}

/* Replicas may have half of the memory that is available, together with what they have already. */
static void replicas_have_half_of_the_memory(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct held_in *in;

	assert_true(has_room(2 * IMAGE_BYTES, UINT64_MAX, 4));
	assert_false(has_room(2 * IMAGE_BYTES - 2, UINT64_MAX, 4));
	assert_true(has_room(UINT64_MAX, 2 * IMAGE_BYTES, 4));
	assert_false(has_room(UINT64_MAX, 2 * IMAGE_BYTES - 2, 4));
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	/* a replica is promised, and takes no memory yet */
	assert_true(has_room(4 * IMAGE_BYTES, UINT64_MAX, 4));
	assert_false(has_room(4 * IMAGE_BYTES - 2, UINT64_MAX, 4));
	held_in_close(in);
	OK(send_all(sent, &none, IMAGE_BYTES));
	/* the replica has its memory, which is not available any more */
	assert_true(has_room(3 * IMAGE_BYTES, UINT64_MAX, 4));
	assert_false(has_room(3 * IMAGE_BYTES - 2, UINT64_MAX, 4));
	assert_true(has_room(UINT64_MAX, 3 * IMAGE_BYTES, 4));
	assert_false(has_room(UINT64_MAX, 3 * IMAGE_BYTES - 2, 4));
	/* arenas of own parts are about to be free, and are no replicas */
	OK(add_own(sent));
	assert_true(has_room(0, UINT64_MAX, 4));
	drop(sent);
}

/* A sum needs room once, however many parts go into it. */
static void a_sum_needs_the_room_of_its_longest_part(void **state)
{
	struct sent *first = make(1, 5, 0);
	struct sent *second = make(1, 5, 2);
	struct held_in *in[2];

	first->info.parity = (struct peer_parity){.k = 3, .m = 1, .index = 0};
	second->info.parity = (struct peer_parity){.k = 3, .m = 1, .index = 1};
	limits.available = 2 * IMAGE_BYTES;
	OK(held_in_open(&in[0], held, ROOT, &first->info, &none, IMAGE_BYTES, &err));
	FAILS(PAWL_ENOMEM,
		held_in_open(&in[1], held, ROOT, &second->info, &none, IMAGE_BYTES + 1, &err));
	OK(held_in_open(&in[1], held, ROOT, &second->info, &none, IMAGE_BYTES, &err));
	assert_false(has_room(4 * IMAGE_BYTES - 2, UINT64_MAX, 4));
	assert_true(has_room(4 * IMAGE_BYTES, UINT64_MAX, 4));
	held_in_close(in[0]);
	held_in_close(in[1]);
	assert_true(has_room(2 * IMAGE_BYTES, UINT64_MAX, 4)); /* nothing was added: no sum */
	drop(first);
	drop(second);
}

static void more_than_the_memory_is_refused(void **state)
{
	struct sent *sent = make(1, 5, 2);
	struct held_in *in;

	limits.available = 100 << 20;
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, 50 << 20, &err));
	held_in_close(in);
	FAILS(PAWL_ENOMEM, held_in_open(&in, held, ROOT, &sent->info, &none, (50 << 20) + 1, &err));
	SAYS("a replica of 51 MiB does not fit");
	SAYS("may have 50 MiB");
	SAYS("replicas=0");
	FAILS(PAWL_ENOMEM, held_in_open(&in, held, ROOT, &sent->info, &none, UINT64_MAX, &err));
	limits.available = UINT64_MAX / 2;
	assert_int_equal(held_used_bytes(held), 0);
	drop(sent);
}

/* The memory of a replica that is dropped is the next one's. */
static void dropped_memory_is_used_again(void **state)
{
	struct sent *sent = make(1, 6, 2);
	struct held_part *part;
	struct held_in *in;

	put(1, 5, 2, &none);
	held_drop_below(held, ROOT, UINT64_MAX);
	assert_int_equal(held_used_bytes(held), 0);
	assert_int_equal(held_memory_spare(held), IMAGE_BYTES);
	assert_int_equal(map_kib(), mapped_kib + IMAGE_KIB);
	OK(send_all(sent, &none, 100));
	assert_int_equal(held_memory_spare(held), 0);
	assert_int_equal(map_kib(), mapped_kib + IMAGE_KIB);
	part = held_find(held, ROOT, &sent->info.save, 2);
	assert_is(part, sent);
	held_release(part);
	sent->info.first_rank = 4; /* there is no spare memory for another host's */
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	assert_int_equal(map_kib(), mapped_kib + 2 * IMAGE_KIB);
	held_in_close(in);
	drop(sent);
}

static void take(uint64_t size_bytes, struct held_memory *memory)
{
	OK(held_memory_take(held, size_bytes, memory, &err));
	assert_int_equal(memory->size_bytes, size_bytes);
	assert_true(memory->present_bytes <= size_bytes);
	memset(memory->map, 1, size_bytes);
	memory->present_bytes = size_bytes;
}

static void spare_memory_fits_any_size(void **state)
{
	static const uint64_t sizes[] = {5000, 3 << 20, 4 << 20, 100, (4 << 20) + 1};
	struct held_memory memory = {0};
	struct held_memory other;

	held_memory_give(held, &memory);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		take(sizes[s], &memory);
		/* Pages from there on are made present, which begins where one begins. */
		assert_true(
			memory.present_bytes == sizes[s] || memory.present_bytes % PAGES_HUGE == 0);
		held_memory_give(held, &memory);
		assert_null(memory.map);
		assert_int_equal(held_memory_spare(held), sizes[s]);
	}
	take(sizes[4], &memory);
	take(5000, &other);
	held_memory_give(held, &other);
	held_memory_give(held, &memory);
	take(5000, &other); /* the one of this size, not the newest */
	assert_int_equal(held_memory_spare(held), sizes[4]);
	held_memory_give(held, &other);
	fault_arm("held.create", 1, ENOMEM, false);
	FAILS(PAWL_ENOMEM, held_memory_take(held, 6 << 20, &memory, &err));
	fault_disarm();
}

static void spare_memory_is_bounded(void **state)
{
	struct held_memory memory[HELD_SPARES_MAX + 1];

	for (uint32_t i = 0; i <= HELD_SPARES_MAX; i++) {
		take(1000, &memory[i]);
	}
	for (uint32_t i = 0; i <= HELD_SPARES_MAX; i++) {
		held_memory_give(held, &memory[i]);
	}
	assert_int_equal(held_memory_spare(held), HELD_SPARES_MAX * 1000);
	assert_false(held_trim(held, HELD_SPARES_MAX * 1000));
	assert_true(held_trim(held, 2500));
	assert_int_equal(held_memory_spare(held), 2000);
}

/* Spare memory counts as memory that replicas may have, and goes where they may not have it. */
static void spare_memory_is_part_of_the_budget(void **state)
{
	struct sent *sent = make(1, 6, 0);
	struct held_in *in;

	put(1, 5, 2, &none);
	put(1, 5, 4, &none);
	held_drop_below(held, ROOT, UINT64_MAX);
	limits.available =
		2 * IMAGE_BYTES; /* with the spare memory, four images: half may be used */
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	assert_int_equal(held_memory_spare(held), IMAGE_BYTES);
	held_in_close(in);
	assert_int_equal(held_memory_spare(held), 2 * IMAGE_BYTES);
	limits.available = IMAGE_BYTES;
	OK(held_in_open(&in, held, ROOT, &sent->info, &none, IMAGE_BYTES, &err));
	assert_int_equal(held_memory_spare(held), 0);
	held_in_close(in);
	limits.available = UINT64_MAX / 2;
	drop(sent);
}

static void any_failure_leaves_nothing(void **state)
{
	struct sent *sent = make(1, 5, 2);
	const char *points[] = {"held.", "image.", "record.", "tier."};

	for (size_t p = 0; p < sizeof(points) / sizeof(points[0]); p++) {
		for (uint64_t nth = 1; each_fault(nth); nth++) {
			int rv;
			int rv_own;

			fault_arm(points[p], nth, ENOMEM, false);
			rv = send_all(sent, &none, 128);
			rv_own = rv == 0 ? add_own(sent) : 0;
			fault_disarm();
			assert_true((rv == 0 && rv_own == 0) != fault_reached(nth));
			assert_true(rv == 0 || (rv == PAWL_ENOMEM && count() == 0));
			held_drop(held, ROOT, &sent->info.save);
			assert_int_equal(count(), 0);
			assert_int_equal(held_used_bytes(held), 0);
			assert_int_equal(count_descriptors(), descriptors);
			held_trim(held, 0);
			assert_int_equal(map_kib(), mapped_kib);
		}
	}
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		struct held *other = NULL;

		fault_arm("held.open", nth, ENOMEM, false);
		assert_int_equal(held_open(&other, &err), nth == 1 ? PAWL_ENOMEM : 0);
		fault_disarm();
		held_close(other);
	}
	drop(sent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_replica_reads_as_it_was_sent, begin, end),
		cmocka_unit_test_setup_teardown(an_own_part_reads_as_its_arenas_have_it, begin,
			end),
		cmocka_unit_test_setup_teardown(parts_are_found_by_root_save_and_rank, begin, end),
		cmocka_unit_test_setup_teardown(every_flipped_bit_of_the_image_is_found, begin,
			end),
		cmocka_unit_test_setup_teardown(every_flipped_bit_of_a_record_is_found, begin, end),
		cmocka_unit_test_setup_teardown(what_is_out_of_order_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(what_is_missing_at_the_end_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(records_of_something_else_are_refused, begin, end),
		cmocka_unit_test_setup_teardown(parts_that_cannot_be_are_refused, begin, end),
		cmocka_unit_test_setup_teardown(an_empty_part_can_be_held, begin, end),
		cmocka_unit_test_setup_teardown(more_than_the_memory_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(a_sum_needs_the_room_of_its_longest_part, begin,
			end),
		cmocka_unit_test_setup_teardown(replicas_have_half_of_the_memory, begin, end),
		cmocka_unit_test_setup_teardown(dropped_memory_is_used_again, begin, end),
		cmocka_unit_test_setup_teardown(spare_memory_fits_any_size, begin, end),
		cmocka_unit_test_setup_teardown(spare_memory_is_bounded, begin, end),
		cmocka_unit_test_setup_teardown(spare_memory_is_part_of_the_budget, begin, end),
		cmocka_unit_test_setup_teardown(any_failure_leaves_nothing, begin, end),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
