/* Memory that is saved again becomes huge pages in idle time, stays so over snapshots, and is
 * watched as well as before. */
#include "../lib/seed.h"
#include "base/fault.h"
#include "test_snap_world.h"

#include <inttypes.h>

#define UNITS     16u
#define BUSY_RUNS 40u
#define TRIES     20 /* khugepaged works for a moment every ten seconds */

static uint64_t seed;

/* Returns the bytes of huge pages in the mapping that begins at or holds at. */
static size_t huge_bytes_at(const uint8_t *at)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	bool inside = false;
	size_t kib = 0;
	size_t sum = 0;
	uintptr_t lo, hi;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &lo, &hi) == 2) {
			inside = lo <= (uintptr_t)at && (uintptr_t)at < hi;
		} else if (inside && sscanf(line, "AnonHugePages: %zu", &kib) == 1) {
			sum += kib << 10;
		}
	}
	fclose(file);
	return sum;
}

/* Returns the number of huge pages that khugepaged has made on this machine. It could make those of
 * this test, too. */
static uint64_t made_by_khugepaged(void)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed", "re");
	uint64_t n = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%" SCNu64, &n), 1);
	fclose(file);
	return n;
}

static void snapshot(struct world *w)
{
	assert_int_equal(world_begin(w, true), SNAP_WATCHED);
	assert_int_equal(world_finish(w), 0);
	world_check(w, false);
}

static void open_small_pages(struct world *w)
{
	struct rng rng = {seed};

	world_open(w, UNITS, 1, seed);
	assert_int_equal(madvise(w->mem, w->mem_bytes, MADV_NOHUGEPAGE), 0);
	assert_int_equal(madvise(w->mem, w->mem_bytes, MADV_DONTNEED), 0);
	world_fill(w, &rng);
	assert_int_equal(huge_bytes_at(w->mem + w->mem_bytes / 2), 0);
}

/* Saves memory twice, which becomes huge. Returns false if khugepaged has made huge pages
 * meanwhile, of this memory or of other processes', so that nothing is known. */
static bool becomes_huge(struct world *w)
{
	uint64_t khugepaged_n;

	open_small_pages(w);
	/* 4 KiB of head and tail; the first and last huge page are not whole */
	world_cut(w, CKPT_PAGE, w->mem_bytes - 2 * CKPT_PAGE, 1, 0);
	snapshot(w);
	within_quiet(0.05);
	assert_int_equal(huge_bytes_at(w->mem + w->mem_bytes / 2),
		0); /* saved once: not worth it */
	khugepaged_n = made_by_khugepaged();
	snapshot(w);
	WITHIN_DOING(WITHIN_LONG_S,
		huge_bytes_at(w->mem + w->mem_bytes / 2) >= (UNITS - 2) * WORLD_UNIT,
		within_pace(0.01));
	return made_by_khugepaged() == khugepaged_n;
}

static void becomes_and_stays_huge(void **state)
{
	struct world w;

	for (int tries = 1; !becomes_huge(&w); tries++) {
		world_close(&w);
		if (tries == TRIES) {
			FAIL_LATE("huge pages that khugepaged has not made");
		}
	}
	for (int i = 0; i < 3; i++) {
		snapshot(&w);
		memset(w.mem, i, w.mem_bytes); /* no longer watched: splits nothing */
		assert_int_equal(huge_bytes_at(w.mem + w.mem_bytes / 2), (UNITS - 2) * WORLD_UNIT);
	}
	gate_arm(SNAP_UNIT_TAKEN, w.mem + CKPT_PAGE);
	world_begin(&w, true);
	gate_reach();
	w.mem[5 * WORLD_UNIT + 12345] ^= 1;
	gate_open();
	assert_int_equal(world_finish(&w), PAWL_ECHANGED);
	assert_true(w.pieces[w.piece].src <= w.mem + 5 * WORLD_UNIT + 12345 &&
		w.mem + 5 * WORLD_UNIT + 12345 <
			w.pieces[w.piece].src + w.pieces[w.piece].len_bytes);
	world_close(&w);
}

static void goes_on_after_a_snapshot_that_could_not_begin(void **state)
{
	struct ckpt_piece other;
	enum snap_proof proof;
	struct world w;

	open_small_pages(&w);
	world_cut(&w, CKPT_PAGE, w.mem_bytes - 2 * CKPT_PAGE, 1, 0);
	snapshot(&w);
	other = w.pieces[0]; /* needs another list, for which there is no memory */
	other.len_bytes = CKPT_PAGE;
	snapshot(&w); /* from now on huge pages are being made */
	fault_arm("snap.keys", 1, ENOMEM, true);
	assert_int_equal(snap_begin(w.snap, &other, 1, true, world_done, &w, &proof, NULL),
		PAWL_ENOMEM);
	fault_disarm();
	WITHIN_DOING(WITHIN_LONG_S,
		huge_bytes_at(w.mem + w.mem_bytes / 2) >= (UNITS - 2) * WORLD_UNIT,
		within_pace(0.01));
	world_close(&w);
}

/* Snapshots, changes of the list and the end all come in the middle of making huge pages. */
static void snapshots_do_not_wait_for_it(void **state)
{
	struct rng rng = {seed};
	struct world w;

	open_small_pages(&w);
	for (unsigned i = 0; i < BUSY_RUNS; i++) {
		if (i % 8 == 0) {
			w.n = 0;
			w.arena_used = 0;
			world_cut(&w, i * CKPT_PAGE, w.mem_bytes - i * CKPT_PAGE, 1, 0);
		}
		snapshot(&w);
		within_pace((double)rng_below(&rng, 10000) / 1e6);
	}
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(becomes_and_stays_huge),
		cmocka_unit_test(goes_on_after_a_snapshot_that_could_not_begin),
		cmocka_unit_test(snapshots_do_not_wait_for_it),
	};
	struct watch watch;
	struct pawl_err err;

	if (watch_open(&watch, &err) != 0) {
		printf("skipped: %s\n", err.msg);
		return 77;
	}
	watch_close(&watch);
	if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0) {
		printf("skipped: no transparent huge pages\n");
		return 77;
	}
	world_keep_handlers();
	seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
