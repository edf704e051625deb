/* The kernel's watch reports exactly the pages that were written, dropped, unmapped or replaced. */
#include "../lib/seed.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "ckpt/snap/snap_watch.h"
#include "each_fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define PAGES      2048u
#define BYTES      ((size_t)PAGES * CKPT_PAGE)
#define ROUNDS     20u
#define FAULTS_MIN 6u /* places where opening can fail, at least */

static uint64_t seed;
static struct watch watch = {-1, -1};

/* The result of a scan, page by page. */
struct hits {
	uint8_t *pages; /* address of the first page */
	bool at[PAGES]; /* whether the page was reported */
	uintptr_t last; /* end of the run before: runs ascend and do not touch */
};

static void record_hit(void *user, struct snap_range run)
{
	struct hits *hits = user;

	assert_true(run.lo > hits->last && run.hi > run.lo);
	hits->last = run.hi;
	for (uintptr_t at = run.lo; at < run.hi; at += CKPT_PAGE) {
		hits->at[(at - (uintptr_t)hits->pages) / CKPT_PAGE] = true;
	}
}

static struct snap_range range_of(uint8_t *pages)
{
	return (struct snap_range){(uintptr_t)pages, (uintptr_t)pages + BYTES};
}

static struct hits scan(uint8_t *pages)
{
	struct hits hits = {.pages = pages};

	watch_scan(&watch, range_of(pages), record_hit, &hits);
	return hits;
}

static size_t count(const struct hits *hits)
{
	size_t n = 0;

	for (size_t i = 0; i < PAGES; i++) {
		n += hits->at[i];
	}
	return n;
}

static uint8_t *map_watched(int advice)
{
	uint8_t *pages =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(pages != MAP_FAILED);
	(void)madvise(pages, BYTES, advice);
	memset(pages, 1, BYTES / 2); /* the other half was never touched */
	assert_true(watch_register(&watch, range_of(pages)));
	assert_true(watch_protect(&watch, range_of(pages)));
	return pages;
}

/* Writes random pages, among 4 KiB pages and within huge ones; the runs are more than one call
 * fetches. */
static void reports_what_was_written(void **state)
{
	struct rng rng = {seed};

	for (unsigned round = 0; round < ROUNDS; round++) {
		uint8_t *pages = map_watched(round % 2 == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		uint64_t sparse = 1 + rng_below(&rng, 20);
		struct hits hits = scan(pages);
		bool written[PAGES];

		assert_int_equal(count(&hits), 0);
		for (size_t i = 0; i < PAGES; i++) {
			volatile uint8_t *at = pages + i * CKPT_PAGE + rng_below(&rng, CKPT_PAGE);

			written[i] = rng_below(&rng, sparse) == 0;
			if (written[i]) {
				*at = 7;
			} else {
				(void)*at; /* reading is no change */
			}
		}
		hits = scan(pages);
		assert_memory_equal(hits.at, written, sizeof(written));
		assert_true(watch_protect(&watch, range_of(pages)));
		hits = scan(pages);
		assert_int_equal(count(&hits), 0);
		watch_lift(&watch, range_of(pages));
		hits = scan(pages);
		assert_int_equal(count(&hits), PAGES); /* nothing is proven any more */
		munmap(pages, BYTES);
	}
}

static void check_one_run(uint8_t *pages, size_t first, size_t n)
{
	struct hits hits = scan(pages);

	for (size_t i = 0; i < PAGES; i++) {
		assert_true(hits.at[i] == (i >= first && i < first + n));
	}
}

static void reports_what_was_dropped(void **state)
{
	uint8_t *pages = map_watched(MADV_NOHUGEPAGE);
	volatile uint8_t sink;

	assert_int_equal(
		madvise(pages + (size_t)5 * CKPT_PAGE, (size_t)3 * CKPT_PAGE, MADV_DONTNEED), 0);
	check_one_run(pages, 5, 3);
	sink = pages[5 * CKPT_PAGE]; /* now it is there again, as zeros */
	(void)sink;
	check_one_run(pages, 5, 3);
	munmap(pages, BYTES);
	pages = map_watched(MADV_NOHUGEPAGE);
	assert_int_equal(madvise(pages, BYTES, MADV_DONTNEED), 0);
	check_one_run(pages, 0, PAGES);
	munmap(pages, BYTES);
}

static void reports_what_was_unmapped_or_replaced(void **state)
{
	const size_t off = (size_t)100 * CKPT_PAGE;
	const size_t bytes = (size_t)50 * CKPT_PAGE;
	uint8_t *pages = map_watched(MADV_NOHUGEPAGE);

	assert_int_equal(munmap(pages + off, bytes), 0);
	check_one_run(pages, 100, 50);
	assert_true(mmap(pages + off, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	check_one_run(pages, 100, 50);
	memset(pages + off, 1, bytes);
	check_one_run(pages, 100, 50);
	assert_false(watch_protect(&watch, range_of(pages)));
	assert_true(watch_register(&watch, range_of(pages)));
	assert_true(watch_protect(&watch, range_of(pages)));
	check_one_run(pages, 0, 0);
	munmap(pages, BYTES);
}

static void reports_what_was_moved(void **state)
{
	const size_t bytes = (size_t)50 * CKPT_PAGE;
	uint8_t *pages = map_watched(MADV_NOHUGEPAGE);
	uint8_t *away = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
	check_one_run(pages, 0, 50);
	munmap(pages, BYTES);
	munmap(away, bytes);
}

/* A scan that the kernel does not answer proves nothing. */
static void failed_scan_proves_nothing(void **state)
{
	uint8_t *pages = map_watched(MADV_NOHUGEPAGE);
	struct hits hits;

	fault_arm("watch.scan", 1, EIO, false);
	hits = scan(pages);
	fault_disarm();
	assert_int_equal(count(&hits), PAGES);
	munmap(pages, BYTES);
}

static bool is_listed(const void *at, size_t bytes)
{
	struct snap_range *ranges;
	bool listed = false;
	size_t n;

	assert_int_equal(watch_ranges(&ranges, &n, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		assert_true(ranges[i].lo < ranges[i].hi);
		assert_true(i == 0 || ranges[i - 1].hi < ranges[i].lo);
		listed |= ranges[i].lo <= (uintptr_t)at && (uintptr_t)at + bytes <= ranges[i].hi;
	}
	free(ranges);
	return listed;
}

static void lists_private_anonymous_memory(void **state)
{
	const int rw = PROT_READ | PROT_WRITE;
	int fd = memfd_create("test", MFD_CLOEXEC);
	void *anon = mmap(NULL, BYTES, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *shared = mmap(NULL, BYTES, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *file_shared, *file_private;
	void *heap = malloc(100);

	assert_int_equal(ftruncate(fd, BYTES), 0);
	file_shared = mmap(NULL, BYTES, rw, MAP_SHARED, fd, 0);
	file_private = mmap(NULL, BYTES, rw, MAP_PRIVATE, fd, 0);
	/* The pages are anonymous now, though the mapping is a file's. */
	memset(file_private, 1, BYTES);
	assert_true(is_listed(anon, BYTES));
	assert_true(is_listed(heap, 100));
	assert_false(is_listed(shared, CKPT_PAGE));
	assert_false(is_listed(file_shared, CKPT_PAGE));
	assert_false(is_listed(file_private, CKPT_PAGE));
	free(heap);
	munmap(anon, BYTES);
	munmap(shared, BYTES);
	munmap(file_shared, BYTES);
	munmap(file_private, BYTES);
	close(fd);
}

/* Whatever fails in opening is reported, and nothing stays open. */
static void failed_open_leaves_nothing(void **state)
{
	int before = dup(0);
	uint64_t nth;
	struct pawl_err err;
	struct watch other;
	int after;

	close(before);
	for (nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("watch.", nth, EPERM, false);
		rv = watch_open(&other, &err);
		fault_disarm();
		if (rv == 0) {
			watch_close(&other);
			continue;
		}
		assert_true(rv == PAWL_ENOTSUP && fault_reached(nth));
		assert_true(err.msg[0] != '\0');
		assert_int_equal(other.uffd, -1);
		assert_int_equal(other.pagemap, -1);
	}
	assert_true(nth > FAULTS_MIN);
	after = dup(0);
	close(after);
	assert_int_equal(after, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reports_what_was_written),
		cmocka_unit_test(reports_what_was_dropped),
		cmocka_unit_test(reports_what_was_unmapped_or_replaced),
		cmocka_unit_test(reports_what_was_moved),
		cmocka_unit_test(failed_scan_proves_nothing),
		cmocka_unit_test(lists_private_anonymous_memory),
		cmocka_unit_test(failed_open_leaves_nothing),
	};
	struct pawl_err err;
	int rv;

	if (watch_open(&watch, &err) != 0) {
		printf("skipped: %s\n", err.msg);
		return 77;
	}
	seed = test_seed();
	rv = cmocka_run_group_tests(tests, NULL, NULL);
	watch_close(&watch);
	return rv;
}
