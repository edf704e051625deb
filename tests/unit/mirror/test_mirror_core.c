/* The state of a mirror: when units are sealed, in which order they are shipped, what is removed
 * and when, and that nothing is called committed that is not. Time is made up. */
#include "mirror_dir.h"

/* ---- sealing ---- */

static void a_unit_is_shipped_when_whole_and_settled(void **state)
{
	begin(&usual);
	make_unit(1, 2, false);
	scan();
	now += 100 * NS_PER_S;
	expect_wait(INT64_MAX); /* half: no time makes it whole */
	assert_string_equal(unit(1)->why, "half");
	dir.whole[1] = true;
	make_unit(1, 3, true);
	scan();
	expect_wait(2 * NS_PER_S);
	now += 2 * NS_PER_S;
	pin(1);
	ship(1, true);
	assert_int_equal(unit(1)->state, CORE_COMMITTED);
	assert_true(unit(1)->in_bucket);
	expect_wait(INT64_MAX);
	assert_true(core_is_flushed(&core));
}

static void a_whole_unit_is_recorded_even_without_room(void **state)
{
	static const struct core_options tight = {.settle_ns = NS_PER_S,
		.retry_ns = NS_PER_S,
		.retry_max_ns = NS_PER_S,
		.local_max_bytes = 150};
	int64_t due_ns;

	begin(&tight);
	make_unit(1, 2, true);
	make_unit(2, 2, true);
	scan();
	now += NS_PER_S;
	pin(1);
	assert_int_equal(core_next(&core, now, &due_ns).kind, CORE_RECORD);
	expect(CORE_SHIP, 1);
	assert_true(core.full);
	expect_wait(INT64_MAX); /* once */
	make_unit(2, 3, true);
	scan();
	now += NS_PER_S;
	assert_int_equal(core_next(&core, now, &due_ns).kind, CORE_RECORD);
}

static void a_writer_delays_sealing(void **state)
{
	begin(&usual);
	make_unit(1, 2, true);
	scan();
	now += 2 * NS_PER_S;
	core_pinned(&core, expect(CORE_PIN, 1), false, "open for writing", now);
	expect_wait(NS_PER_S);
	assert_string_equal(unit(1)->why, "open for writing");
	now += NS_PER_S;
	pin(1);
}

static void without_a_last_file_quiet_counts(void **state)
{
	begin(&usual);
	dir.kind = UNIT_QUIET;
	make_unit(1, 2, true);
	scan();
	expect_wait(10 * NS_PER_S);
	core_end(&core, true, now);
	pin(1); /* the program has ended well: it is whole */
	begin(&usual);
	dir.kind = UNIT_QUIET;
	make_unit(1, 2, true);
	scan();
	core_end(&core, false, now);
	now += 100 * NS_PER_S;
	expect_wait(INT64_MAX); /* nobody knows whether it is whole */
	assert_true(core_is_flushed(&core));
}

static void units_are_shipped_in_the_order_of_sealing(void **state)
{
	begin(&usual);
	make_unit(5, 1, true);
	scan();
	now += NS_PER_S;
	make_unit(2, 1, true);
	make_unit(3, 1, true);
	scan();
	now += 3 * NS_PER_S;
	pin(5);
	pin(2);
	pin(3);
	ship(5, false);
	now += NS_PER_S / 2;
	expect_wait(NS_PER_S / 2); /* the others wait for it */
	now += NS_PER_S;
	ship(5, true);
	ship(2, true);
	ship(3, true);
}

static void failures_are_tried_again_and_again(void **state)
{
	static const int64_t waits[] = {1, 2, 4, 8, 8};

	begin(&usual);
	make_unit(1, 1, true);
	scan();
	now += 2 * NS_PER_S;
	pin(1);
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		ship(1, false);
		assert_int_equal(unit(1)->state, CORE_PINNED);
		expect_wait(waits[i] * NS_PER_S);
		now += waits[i] * NS_PER_S;
	}
	ship(1, true);
	assert_int_equal(unit(1)->state, CORE_COMMITTED);
}

/* ---- changes ---- */

static void a_change_while_it_waits_opens_it_again(void **state)
{
	begin(&usual);
	make_unit(1, 2, true);
	scan();
	now += 2 * NS_PER_S;
	pin(1);
	make_unit(1, 3, true);
	scan();
	assert_true(core_must_unpin(&core, unit(1), false, now));
	assert_int_equal(unit(1)->state, CORE_OPEN);
	assert_int_equal(core.pinned_n, 0);
	expect_wait(2 * NS_PER_S);
}

static void a_change_while_it_is_shipped_stops_that(void **state)
{
	begin(&usual);
	make_unit(1, 2, true);
	scan();
	now += 2 * NS_PER_S;
	pin(1);
	expect(CORE_SHIP, 1);
	assert_false(core_must_unpin(&core, unit(1), false, now));
	assert_true(core_must_unpin(&core, unit(1), true, now)); /* a lease was broken */
	assert_int_equal(unit(1)->state, CORE_SHIPPING);
	core_shipped(&core, unit(1), false, true, "changed", now);
	assert_int_equal(unit(1)->state, CORE_OPEN);
	assert_false(unit(1)->in_bucket);
	expect_wait(2 * NS_PER_S);
}

static void what_changed_since_is_not_called_committed(void **state)
{
	begin(&usual);
	make_unit(1, 2, true);
	scan();
	now += 2 * NS_PER_S;
	pin(1);
	expect(CORE_SHIP, 1);
	make_unit(1, 2, true);
	scan();
	core_shipped(&core, unit(1), true, false, "", now); /* the old files were published */
	assert_int_equal(unit(1)->state, CORE_OPEN);
	assert_true(unit(1)->in_bucket);
	assert_false(core_is_flushed(&core));
	now += 2 * NS_PER_S;
	pin(1);
	ship(1, true);
	assert_int_equal(unit(1)->state, CORE_COMMITTED);
}

static void a_unit_that_loses_files_is_not_shipped_over_the_whole_one(void **state)
{
	begin(&usual);
	make_unit(1, 3, true);
	scan();
	now += 2 * NS_PER_S;
	pin(1);
	dir.files_n[1] = 2; /* the program is removing it */
	scan();
	assert_false(core_must_unpin(&core, unit(1), false, now));
	ship(1, true);
	now += 100 * NS_PER_S;
	expect_wait(INT64_MAX);
	assert_int_equal(unit(1)->state, CORE_COMMITTED);
	make_unit(1, 2, true); /* and now it is written anew */
	scan();
	assert_int_equal(unit(1)->state, CORE_OPEN);
}

static void half_removed_units_wait_before_they_are_sealed(void **state)
{
	static const struct core_options tight = {.settle_ns = NS_PER_S,
		.loose_max_ns = 60 * NS_PER_S,
		.retry_ns = NS_PER_S,
		.retry_max_ns = NS_PER_S,
		.local_max_bytes = 150};

	begin(&tight);
	make_unit(1, 2, true);
	scan();
	now += NS_PER_S;
	pin(1);
	make_unit(2, 3, true);
	scan();
	now += NS_PER_S;
	expect(CORE_SHIP, 1);
	assert_true(core.full); /* checkpoint-2 is whole, but there is no room */
	dir.files_n[2] = 2;     /* and the program removes it */
	scan();
	core_shipped(&core, unit(1), true, false, "", now);
	expect_wait(60 * NS_PER_S);
	dir.files_n[2] = 0;
	scan();
	expect_wait(INT64_MAX);
	make_unit(3, 3, true);
	scan();
	now += NS_PER_S;
	core_pinned(&core, expect(CORE_PIN, 3), false, "", now);
	dir.files_n[3] = 2; /* only a lock has gone */
	scan();
	now += 60 * NS_PER_S;
	pin(3);
}

/* ---- removing ---- */

static void commit(uint32_t i)
{
	make_unit(i, 2, true);
	scan();
	now += 2 * NS_PER_S;
	pin(i);
	ship(i, true);
}

static void rotation_waits_for_a_newer_unit(void **state)
{
	begin(&usual);
	commit(1);
	dir.files_n[1] = 0;
	scan();
	expect_wait(INT64_MAX); /* the only one */
	make_unit(2, 1, true);
	scan();
	expect_wait(2 * NS_PER_S);
	now += 2 * NS_PER_S;
	pin(2);
	expect(CORE_SHIP, 2);
	expect_wait(INT64_MAX);
	core_shipped(&core, unit(2), true, false, "", now);
	core_removed(&core, expect(CORE_REMOVE, 1), true, "", now);
	assert_false(unit(1)->in_bucket);
	dir.files_n[2] = 0;
	scan();
	expect_wait(INT64_MAX);
	assert_true(unit(2)->in_bucket);
}

static void units_that_were_never_here_stay(void **state)
{
	begin(&usual);
	assert_int_equal(core_add_tag(&core, "checkpoint-1", 1, NULL), 0);
	commit(2);
	expect_wait(INT64_MAX);
	assert_true(unit(1)->in_bucket);
}

static void with_the_directory_gone_nothing_is_removed(void **state)
{
	begin(&usual);
	assert_int_equal(core_have_loose(&core, "log", 7, NULL), 0);
	commit(1);
	commit(2);
	dir.files_n[1] = dir.files_n[2] = 0;
	core.gone = true;
	scan();
	now += 100 * NS_PER_S;
	expect_wait(INT64_MAX);
	core.gone = false;
	expect(CORE_REMOVE, 1);
}

static void what_can_never_be_shipped_ends_a_flush(void **state)
{
	struct core_left left;
	struct core_job job;

	begin(&usual);
	make_unit(1, 2, true);
	dir.loose[0] = 7;
	scan();
	core.flush_ns = now;
	now += 2 * NS_PER_S;
	core_pinned(&core, expect(CORE_PIN, 1), false, "may not be read", now);
	core_refuse_unit(unit(1), "may not be read");
	job = next();
	assert_int_equal(job.kind, CORE_SHIP_LOOSE);
	core_skip_loose(&core, job.loose);
	now += 100 * NS_PER_S;
	expect_wait(INT64_MAX);
	assert_true(core_is_flushed(&core));
	core_count_left(&core, &left);
	assert_int_equal(left.units, 1);
	assert_int_equal(left.loose, 1);
	make_unit(1, 2, true); /* others now */
	dir.loose[0] = 8;
	scan();
	assert_false(core_is_flushed(&core));
}

static void a_damaged_tag_does_not_count_as_newer(void **state)
{
	begin(&usual);
	assert_int_equal(core_add_tag(&core, "checkpoint-5", 5, NULL), 0);
	core_lose_tag(&core, "checkpoint-5");
	commit(2);
	dir.files_n[2] = 0;
	scan();
	expect_wait(INT64_MAX);
	assert_true(unit(2)->in_bucket);
}

static void keep_remote_keeps_the_newest_and_the_best(void **state)
{
	static struct core_options two;

	two = usual;
	two.keep_remote = 2;
	begin(&two);
	commit(1);
	commit(2);
	snprintf(unit(2)->best, sizeof(unit(2)->best), "checkpoint-1");
	expect_wait(INT64_MAX);
	make_unit(3, 2, true);
	scan();
	snprintf(unit(3)->best, sizeof(unit(3)->best), "checkpoint-1");
	now += 2 * NS_PER_S;
	pin(3);
	ship(3, true);
	expect_wait(INT64_MAX); /* checkpoint-1 is the best */
	make_unit(4, 2, true);
	scan();
	snprintf(unit(4)->best, sizeof(unit(4)->best), "checkpoint-1");
	now += 2 * NS_PER_S;
	pin(4);
	ship(4, true);
	core_removed(&core, expect(CORE_REMOVE, 2), true, "", now);
	scan();
	now += 100 * NS_PER_S;
	expect_wait(INT64_MAX); /* the directory still has it: it is not shipped again */
	assert_true(core_is_flushed(&core));
}

/* ---- the bound ---- */

static void pins_are_bounded(void **state)
{
	static const struct core_options tight = {.settle_ns = NS_PER_S,
		.retry_ns = NS_PER_S,
		.retry_max_ns = NS_PER_S,
		.local_max_bytes = 250};

	begin(&tight);
	for (uint32_t i = 1; i <= 3; i++) {
		make_unit(i, 1, true);
	}
	scan();
	now += NS_PER_S;
	pin(1);
	pin(2);
	expect(CORE_SHIP, 1);
	assert_true(core.full);
	assert_int_equal(core.pinned_bytes, 200);
	core_shipped(&core, unit(1), true, false, "", now);
	pin(3);
	assert_int_equal(core.pinned_bytes, 200);
}

static void a_unit_above_the_bound_is_dropped_with_its_names(void **state)
{
	static const struct core_options tiny = {.settle_ns = NS_PER_S,
		.retry_ns = NS_PER_S,
		.retry_max_ns = NS_PER_S,
		.local_max_bytes = 50};

	begin(&tiny);
	make_unit(1, 2, true);
	scan();
	now += NS_PER_S;
	pin(1);
	expect(CORE_SHIP, 1);
	assert_false(core_must_unpin(&core, unit(1), false, now));
	dir.files_n[1] = 1;
	scan();
	assert_true(core_must_unpin(&core, unit(1), false, now));
	core_shipped(&core, unit(1), false, true, "", now);
	assert_int_equal(core.pinned_bytes, 0);
}

/* ---- loose files ---- */

static void loose_files_are_shipped_when_quiet(void **state)
{
	struct core_job job;

	begin(&usual);
	dir.loose[0] = 7;
	scan();
	expect_wait(10 * NS_PER_S);
	now += 10 * NS_PER_S;
	job = next();
	assert_int_equal(job.kind, CORE_SHIP_LOOSE);
	assert_false(job.forced);
	core_loose_done(&core, job.loose, true, false, 7, now);
	expect_wait(INT64_MAX);
	dir.loose[0] = 0;
	scan();
	expect_wait(10 * NS_PER_S);
	now += 10 * NS_PER_S;
	job = next();
	assert_int_equal(job.kind, CORE_REMOVE_LOOSE);
	core_loose_done(&core, job.loose, true, false, 0, now);
	expect_wait(INT64_MAX);
}

static void a_log_that_never_rests_is_shipped_now_and_then(void **state)
{
	struct core_job job = {CORE_NOTHING};
	uint32_t shipped = 0;

	begin(&usual);
	for (uint64_t i = 1; i <= 600; i++) { /* ten minutes */
		dir.loose[0] = i;
		scan();
		job = next();
		if (job.kind == CORE_SHIP_LOOSE) {
			assert_true(job.forced);
			core_loose_done(&core, job.loose, true, false, i, now);
			shipped++;
		}
		now += NS_PER_S;
	}
	assert_in_range(shipped, 9, 10);
}

static void a_crash_removes_no_loose_files(void **state)
{
	begin(&usual);
	assert_int_equal(core_have_loose(&core, "log", 7, NULL), 0);
	scan(); /* gone: perhaps it was about to be written anew */
	core_end(&core, false, now);
	now += 100 * NS_PER_S;
	expect_wait(INT64_MAX);
}

static void a_flush_does_not_wait_for_quiet(void **state)
{
	struct core_job job;

	begin(&usual);
	dir.loose[0] = 7;
	scan();
	assert_int_equal(next().kind, CORE_NOTHING);
	core.flush_ns = now;
	assert_false(core_is_flushed(&core));
	job = next();
	assert_true(job.kind == CORE_SHIP_LOOSE && job.forced);
	now += NS_PER_S;
	dir.loose[0] = 8; /* the file goes on changing */
	scan();
	core_loose_done(&core, job.loose, true, false, 7, now);
	assert_true(core_is_flushed(&core));
}

static int end(void **state)
{
	core_deinit(&core);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_unit_is_shipped_when_whole_and_settled),
		cmocka_unit_test(a_whole_unit_is_recorded_even_without_room),
		cmocka_unit_test(a_writer_delays_sealing),
		cmocka_unit_test(without_a_last_file_quiet_counts),
		cmocka_unit_test(units_are_shipped_in_the_order_of_sealing),
		cmocka_unit_test(failures_are_tried_again_and_again),
		cmocka_unit_test(a_change_while_it_waits_opens_it_again),
		cmocka_unit_test(a_change_while_it_is_shipped_stops_that),
		cmocka_unit_test(what_changed_since_is_not_called_committed),
		cmocka_unit_test(a_unit_that_loses_files_is_not_shipped_over_the_whole_one),
		cmocka_unit_test(half_removed_units_wait_before_they_are_sealed),
		cmocka_unit_test(rotation_waits_for_a_newer_unit),
		cmocka_unit_test(units_that_were_never_here_stay),
		cmocka_unit_test(with_the_directory_gone_nothing_is_removed),
		cmocka_unit_test(what_can_never_be_shipped_ends_a_flush),
		cmocka_unit_test(a_damaged_tag_does_not_count_as_newer),
		cmocka_unit_test(keep_remote_keeps_the_newest_and_the_best),
		cmocka_unit_test(pins_are_bounded),
		cmocka_unit_test(a_unit_above_the_bound_is_dropped_with_its_names),
		cmocka_unit_test(loose_files_are_shipped_when_quiet),
		cmocka_unit_test(a_log_that_never_rests_is_shipped_now_and_then),
		cmocka_unit_test(a_crash_removes_no_loose_files),
		cmocka_unit_test(a_flush_does_not_wait_for_quiet),
	};

	return cmocka_run_group_tests(tests, NULL, end);
}
