/* After the first snapshot of the same memory none allocates: 1,000 of them, in any thread. */
#include "../lib/count_alloc.h"
#include "test_snap_world.h"

#define SNAPSHOTS 1000u

#ifndef SANITIZED

static atomic_ulong allocations;

static void count_call(void)
{
	allocations++;
}

static void run_snapshots(bool watch, uint64_t groups)
{
	struct world w;
	unsigned long before;

	world_open(&w, 2, 2, 1);
	for (size_t at = 64; at + (300u << 10) < w.mem_bytes; at += 300u << 10) {
		world_cut(&w, at, 299u << 10, groups, at);
	}
	world_cut(&w, 0, 2000, 0, 0);
	world_begin(&w, watch);
	assert_int_equal(world_finish(&w), 0);
	before = allocations;
	assert_true(before > 0);
	for (unsigned i = 0; i < SNAPSHOTS; i++) {
		/* A pickle or a counter lies elsewhere each time, and has another length. */
		w.pieces[w.n - 1].src = w.mem + i;
		w.pieces[w.n - 1].len_bytes = 100 + i;
		world_begin(&w, watch);
		snap_fence(w.snap, 1);
		assert_int_equal(world_finish(&w), 0);
	}
	assert_int_equal(allocations, before);
	world_check(&w, false);
	world_close(&w);
}

static void watched_snapshots_do_not_allocate(void **state)
{
	run_snapshots(true, 3);
}

static void copied_snapshots_do_not_allocate(void **state)
{
	run_snapshots(false, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(watched_snapshots_do_not_allocate),
		cmocka_unit_test(copied_snapshots_do_not_allocate),
	};

	world_keep_handlers();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
