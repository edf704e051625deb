/*
 * Every way that memory can change under a snapshot: a change is seen if it could have reached the
 * copy, with the piece named, and is not reported if it could not. Nothing crashes.
 */
#include "../lib/seed.h"
#include "test_snap_world.h"

#include <fcntl.h>
#include <sys/wait.h>

#define UNITS  6u
#define VICTIM (2 * WORLD_UNIT + 37 * CKPT_PAGE) /* offset of the page that is changed */

static uint64_t seed;

/* Changes the page at at, in one of the ways. */
typedef void change_fn(uint8_t *at);

static void by_store(uint8_t *at)
{
	at[1000] ^= 1;
}

static void by_memset(uint8_t *at)
{
	memset(at, 0x11, CKPT_PAGE);
}

static void by_memcpy(uint8_t *at)
{
	memcpy(at, at + (size_t)8 * CKPT_PAGE, 100);
}

/* Has the kernel write to the page. */
static void by_read(uint8_t *at)
{
	int fds[2];

	ASSERT(pipe2(fds, O_CLOEXEC) == 0 && write(fds[1], "changed", 7) == 7);
	ASSERT(read(fds[0], at + 50, 7) == 7);
	close(fds[0]);
	close(fds[1]);
}

static void by_dropping(uint8_t *at)
{
	ASSERT(madvise(at, CKPT_PAGE, MADV_DONTNEED) == 0);
}

static void by_dropping_all(uint8_t *at)
{
	ASSERT(madvise(at - VICTIM, UNITS * WORLD_UNIT, MADV_DONTNEED) == 0);
}

static void by_unmapping(uint8_t *at)
{
	ASSERT(munmap(at, CKPT_PAGE) == 0);
}

/* Puts other memory at the address, as free and malloc do. */
static void by_replacing(uint8_t *at)
{
	by_unmapping(at);
	ASSERT(mmap(at, CKPT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		       -1, 0) == at);
	memset(at, 0x22, CKPT_PAGE);
}

static void by_moving(uint8_t *at)
{
	uint8_t *away = mmap(NULL, CKPT_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT(mremap(at, CKPT_PAGE, CKPT_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
	munmap(away, CKPT_PAGE);
}

static void by_forbidding(uint8_t *at)
{
	ASSERT(mprotect(at, CKPT_PAGE, PROT_NONE) == 0);
}

static void by_fork_and_store(uint8_t *at)
{
	pid_t pid = fork();

	if (pid == 0) {
		_exit(0);
	}
	ASSERT(pid > 0 && waitpid(pid, NULL, 0) == pid);
	by_store(at);
}

/* Makes the page usable again, as the program would before it saves once more. */
static void repair(struct world *w)
{
	ASSERT(mmap(w->mem + VICTIM, CKPT_PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	memset(w->mem + VICTIM, 0x33, CKPT_PAGE);
}

static void open_all_watched(struct world *w)
{
	world_open(w, UNITS, 1, seed);
	world_cut(w, 0, w->mem_bytes, 1, 54321);
}

static bool holds_victim(const struct world *w, size_t piece)
{
	const uint8_t *src = w->pieces[piece].src;

	return src <= w->mem + VICTIM && w->mem + VICTIM < src + w->pieces[piece].len_bytes;
}

/* Stops the engine at stage of the unit at stop, and changes the page then. */
static int change_at(struct world *w, enum snap_stage stage, size_t stop, change_fn *change)
{
	gate_arm(stage, w->mem + stop);
	assert_int_equal(world_begin(w, true), SNAP_WATCHED);
	gate_reach();
	change(w->mem + VICTIM);
	gate_open();
	return world_finish(w);
}

static change_fn *const changes[] = {by_store, by_memset, by_memcpy, by_read, by_dropping,
	by_dropping_all, by_unmapping, by_replacing, by_moving, by_forbidding, by_fork_and_store};

#define CHANGES_N (sizeof(changes) / sizeof(changes[0]))

/* The change comes before the copy: while the unit waits, while the page before it is copied, or
 * between copy and scan. The snapshot after it is good again. */
static void seen_before_the_copy(void **state)
{
	const size_t stops[] = {0, VICTIM, VICTIM};
	const enum snap_stage stages[] = {SNAP_UNIT_TAKEN, SNAP_UNIT_TAKEN, SNAP_UNIT_COPIED};

	for (size_t i = 0; i < CHANGES_N * 3; i++) {
		struct world w;

		if (changes[i / 3] == by_forbidding && stages[i % 3] == SNAP_UNIT_COPIED) {
			continue; /* what was read was right */
		}
		open_all_watched(&w);
		assert_int_equal(change_at(&w, stages[i % 3], stops[i % 3], changes[i / 3]),
			PAWL_ECHANGED);
		assert_true(changes[i / 3] == by_dropping_all || holds_victim(&w, w.piece));
		repair(&w);
		world_begin(&w, true);
		assert_int_equal(world_finish(&w), 0);
		world_check(&w, false);
		assert_int_equal(change_at(&w, SNAP_UNIT_TAKEN, VICTIM, by_store), PAWL_ECHANGED);
		world_close(&w);
	}
}

/* Once a unit is copied it is the program's again, even if others are not yet copied. */
static void not_reported_after_the_copy(void **state)
{
	for (size_t i = 0; i < CHANGES_N; i++) {
		struct world w;

		if (changes[i] == by_dropping_all) {
			continue; /* this drops more than one unit */
		}
		open_all_watched(&w);
		assert_int_equal(change_at(&w, SNAP_UNIT_LIFTED, VICTIM, changes[i]), 0);
		world_check(&w, false);
		repair(&w);
		world_begin(&w, true);
		assert_int_equal(world_finish(&w), 0);
		world_check(&w, false);
		world_close(&w);
	}
}

/* A page that belongs to a tensor's head or tail, or to something else between two, changes at
 * will; one page further is the tensor's. */
static void only_whole_pages_count(void **state)
{
	struct world w;
	size_t first;

	world_open(&w, 2, 1, seed);
	world_cut(&w, 100, WORLD_UNIT / 2, 1, 0);
	first = w.n;
	world_cut(&w, WORLD_UNIT / 2 + 5 * CKPT_PAGE, WORLD_UNIT, 1, 0);
	assert_true(first > 2);
	gate_arm(SNAP_UNIT_TAKEN, w.mem + CKPT_PAGE);
	assert_int_equal(world_begin(&w, true), SNAP_WATCHED);
	gate_reach();
	by_store(w.mem);                                           /* head */
	by_store(w.mem + WORLD_UNIT / 2);                          /* tail */
	by_memset(w.mem + WORLD_UNIT / 2 + (size_t)2 * CKPT_PAGE); /* nobody's */
	gate_open();
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	gate_arm(SNAP_UNIT_TAKEN, w.mem + CKPT_PAGE);
	world_begin(&w, true);
	gate_reach();
	by_store(w.mem + WORLD_UNIT / 2 + (size_t)5 * CKPT_PAGE);
	gate_open();
	assert_int_equal(world_finish(&w), PAWL_ECHANGED);
	assert_int_equal(w.piece, first);
	world_close(&w);
}

/* The first of several changed pieces is named, even if it is behind the others in memory. */
static void names_the_first(void **state)
{
	struct world w;

	world_open(&w, 1, 1, seed);
	world_cut(&w, WORLD_UNIT / 2, WORLD_UNIT / 2, 1, 0);
	world_cut(&w, 0, WORLD_UNIT / 2, 1, 0);
	gate_arm(SNAP_UNIT_TAKEN, w.mem);
	world_begin(&w, true);
	gate_reach();
	memset(w.mem, 0, w.mem_bytes);
	gate_open();
	assert_int_equal(world_finish(&w), PAWL_ECHANGED);
	assert_int_equal(w.piece, 0);
	world_close(&w);
}

static void names_the_first_of_all_units(void **state)
{
	struct world w;

	open_all_watched(&w);
	gate_arm(SNAP_UNIT_TAKEN, w.mem);
	world_begin(&w, true);
	gate_reach();
	by_store(w.mem + 5 * WORLD_UNIT);
	by_store(w.mem + VICTIM);
	by_store(w.mem + 4 * WORLD_UNIT);
	gate_open();
	assert_int_equal(world_finish(&w), PAWL_ECHANGED);
	assert_true(holds_victim(&w, w.piece));
	world_close(&w);
}

/* Pages are write-protected for a forked child, too: neither that nor its writes are a change. */
static void a_fork_is_no_change(void **state)
{
	struct world w;
	pid_t pid;

	open_all_watched(&w);
	gate_arm(SNAP_UNIT_TAKEN, w.mem);
	world_begin(&w, true);
	gate_reach();
	pid = fork();
	if (pid == 0) {
		memset(w.mem, 0x77, w.mem_bytes);
		_exit(0);
	}
	ASSERT(pid > 0 && waitpid(pid, NULL, 0) == pid);
	gate_open();
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_close(&w);
}

/* Neither reading nor writing outside the snapshot is a change. */
static void reading_is_no_change(void **state)
{
	struct world w;
	uint64_t sum = 0;

	open_all_watched(&w);
	gate_arm(SNAP_UNIT_TAKEN, w.mem);
	world_begin(&w, true);
	gate_reach();
	for (size_t i = 0; i < w.mem_bytes; i += 64) {
		sum += w.mem[i];
	}
	assert_true(sum != 0);
	gate_open();
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_close(&w);
}

/* The whole memory goes away between two snapshots, and other memory comes: both snapshots are
 * right. */
static void memory_goes_and_comes(void **state)
{
	const int fixed = MAP_ANONYMOUS | MAP_FIXED;
	struct world w;

	open_all_watched(&w);
	world_begin(&w, true);
	assert_int_equal(world_finish(&w), 0);
	for (int i = 0; i < 4; i++) {
		int flags = i % 2 == 0 ? fixed | MAP_PRIVATE : fixed | MAP_SHARED;

		/* Half of the memory is other memory now, once watchable and once not. */
		assert_true(mmap(w.mem, w.mem_bytes / 2, PROT_READ | PROT_WRITE, flags, -1, 0) ==
			w.mem);
		memset(w.mem, 10 + i, w.mem_bytes / 2);
		assert_int_equal(world_begin(&w, true), SNAP_WATCHED);
		if (i > 0) {
			memset(w.mem, 0, w.mem_bytes / 2); /* was copied before begin returned */
		}
		assert_int_equal(world_finish(&w), 0);
		world_check(&w, false);
		if (i == 0) { /* Later it stays among the pieces copied at once. */
			assert_int_equal(change_at(&w, SNAP_UNIT_TAKEN, VICTIM, by_store),
				PAWL_ECHANGED);
		}
	}
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seen_before_the_copy),
		cmocka_unit_test(not_reported_after_the_copy),
		cmocka_unit_test(only_whole_pages_count),
		cmocka_unit_test(names_the_first),
		cmocka_unit_test(names_the_first_of_all_units),
		cmocka_unit_test(a_fork_is_no_change),
		cmocka_unit_test(reading_is_no_change),
		cmocka_unit_test(memory_goes_and_comes),
	};
	struct watch watch;
	struct pawl_err err;

	if (watch_open(&watch, &err) != 0) {
		printf("skipped: %s\n", err.msg);
		return 77;
	}
	watch_close(&watch);
	world_keep_handlers();
	seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
