/* Snapshots hold the memory as it was when begin was called, whatever the pieces, the proof and the
 * number of threads; fences wait for what they must and for nothing else. */
#include "../lib/seed.h"
#include "test_snap_world.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

#define ROUNDS 12u

static uint64_t seed;

/* Cuts tensors of every size, in no order, with gaps; some bytes are in two pieces, some only
 * checksummed. */
static void cut_random(struct world *w, struct rng *rng)
{
	size_t at = rng_below(rng, 3 * CKPT_PAGE);

	w->n = 0;
	w->arena_used = 0;
	while (at < w->mem_bytes) {
		size_t len = 1 + rng_below(rng, rng_below(rng, 3) == 0 ? 3u << 20 : 200u << 10);
		uint64_t groups = len < CKPT_WATCH_MIN ? 0 : 1ull << rng_below(rng, 64);

		len = len < w->mem_bytes - at ? len : w->mem_bytes - at;
		world_cut(w, at, len, groups, rng_below(rng, CKPT_CHUNK));
		if (rng_below(rng, 10) == 0 && w->arena_used + len < w->mem_bytes) {
			world_cut(w, at, len, groups, rng_below(rng, CKPT_CHUNK));
		}
		at += len + rng_below(rng, rng_below(rng, 4) == 0 ? 1u << 20 : 2 * CKPT_PAGE);
	}
	for (size_t i = 0; i < w->n; i++) {
		size_t j = i + rng_below(rng, w->n - i);
		struct ckpt_piece swap = w->pieces[i];

		w->pieces[i] = w->pieces[j];
		w->pieces[j] = swap;
		w->pieces[i].dst = rng_below(rng, 8) == 0 ? NULL : w->pieces[i].dst;
	}
}

static void random_pieces(void **state)
{
	struct rng rng = {seed};
	struct world w;

	for (unsigned round = 0; round < ROUNDS; round++) {
		bool watch = rng_below(&rng, 4) != 0;
		enum snap_proof best;

		world_open(&w, 1 + rng_below(&rng, 4), 1 + (unsigned)rng_below(&rng, 3), seed);
		best = snap_best(w.snap, NULL);
		cut_random(&w, &rng);
		for (int again = 0; again < 3; again++) { /* the list is kept, then another */
			enum snap_proof proof = world_begin(&w, watch);

			assert_true(proof == SNAP_COPIED || (watch && best == SNAP_WATCHED));
			if (proof == SNAP_COPIED) {
				memset(w.mem, again, w.mem_bytes);
			} else if (rng_below(&rng, 2) == 0) {
				snap_fence(w.snap, UINT64_MAX);
				memset(w.mem, again, w.mem_bytes);
			}
			assert_int_equal(world_finish(&w), 0);
			world_check(&w, true);
			world_fill(&w, &rng);
			if (again == 1) {
				cut_random(&w, &rng);
			}
		}
		world_close(&w);
	}
}

static void no_pieces_at_all(void **state)
{
	struct world w;

	world_open(&w, 1, 1, seed);
	assert_int_equal(world_begin(&w, true), SNAP_COPIED);
	assert_int_equal(world_finish(&w), 0);
	snap_fence(w.snap, UINT64_MAX);
	world_close(&w);
}

static void why_not(void **state)
{
	const struct snap_options options = {.watch = false};
	struct snap *snap;
	const char *why;

	setenv("PAWL_NO_UFFD", "1", 1);
	assert_int_equal(snap_open(&snap, &options, NULL), 0);
	unsetenv("PAWL_NO_UFFD");
	assert_int_equal(snap_best(snap, &why), SNAP_COPIED);
	assert_string_equal(why, "turned off by the caller");
	snap_close(snap);
	snap_close(NULL);
}

/* Without userfaultfd the same promises hold, and the proof of a snapshot is SNAP_COPIED. */
static void without_userfaultfd(void **state)
{
	struct rng rng = {seed};
	struct world w;
	const char *why;

	setenv("PAWL_NO_UFFD", "1", 1);
	world_open(&w, 8, 2, seed);
	unsetenv("PAWL_NO_UFFD");
	assert_int_equal(snap_best(w.snap, &why), SNAP_COPIED);
	assert_string_equal(why, "PAWL_NO_UFFD is set");
	cut_random(&w, &rng);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(world_begin(&w, true), SNAP_COPIED);
		memset(w.mem, i, w.mem_bytes);
		assert_int_equal(world_finish(&w), 0);
		world_check(&w, false);
		world_fill(&w, &rng);
	}
	world_close(&w);
}

/* Heads, tails and small pieces belong to the program again as soon as begin returns. */
static void eager_pieces_are_free_at_once(void **state)
{
	const size_t len = 3 * WORLD_UNIT / 2 + 100;
	struct world w;

	world_open(&w, 4, 1, seed);
	world_cut(&w, 64, len, 1, 12345);
	world_cut(&w, 2 * WORLD_UNIT, 1000, 0, 0);
	gate_arm(SNAP_UNIT_TAKEN, w.mem + CKPT_PAGE);
	assert_int_equal(world_begin(&w, true), SNAP_WATCHED);
	memset(w.mem + 2 * WORLD_UNIT, 0, 1000);
	for (size_t i = 0; i < w.n; i++) {
		if (w.pieces[i].groups == 0) {
			memset((uint8_t *)(uintptr_t)w.pieces[i].src, 0, w.pieces[i].len_bytes);
		}
	}
	gate_open();
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_close(&w);
}

/* Another process could write there, or the file could: such memory is copied before begin
 * returns. */
static void shared_and_file_memory_is_copied(void **state)
{
	struct world w;
	int fd = memfd_create("test", MFD_CLOEXEC);

	world_open(&w, 4, 2, seed);
	assert_int_equal(ftruncate(fd, (off_t)w.mem_bytes), 0);
	assert_true(mmap(w.mem, WORLD_UNIT, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	assert_true(mmap(w.mem + WORLD_UNIT, WORLD_UNIT, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED);
	memset(w.mem, 3, 2 * WORLD_UNIT);
	world_cut(&w, 0, 2 * WORLD_UNIT, 1, 0);
	assert_int_equal(world_begin(&w, true), SNAP_COPIED);
	memset(w.mem, 4, 2 * WORLD_UNIT);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_cut(&w, 2 * WORLD_UNIT, WORLD_UNIT, 1, 0); /* the rest is watched all the same */
	assert_int_equal(world_begin(&w, true), SNAP_WATCHED);
	memset(w.mem, 5, 2 * WORLD_UNIT);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	close(fd);
	world_close(&w);
}

static void one_at_a_time(void **state)
{
	enum snap_proof proof;
	struct pawl_err err;
	struct world w;

	world_open(&w, 2, 1, seed);
	world_cut(&w, 0, w.mem_bytes, 1, 0);
	gate_arm(SNAP_UNIT_TAKEN, w.mem);
	world_begin(&w, true);
	assert_int_equal(snap_begin(w.snap, w.pieces, w.n, true, world_done, &w, &proof, &err),
		PAWL_EBUSY);
	assert_int_equal(err.code, PAWL_EBUSY);
	gate_open();
	assert_int_equal(world_finish(&w), 0);
	world_begin(&w, true);
	assert_int_equal(world_finish(&w), 0);
	world_close(&w);
}

/* The engine's only thread is stuck: a fence copies the pieces that it waits for itself, and no
 * others. */
static void fence_copies_what_it_waits_for(void **state)
{
	struct world w;

	world_open(&w, 6, 1, seed);
	world_cut(&w, 0, WORLD_UNIT, 1, 0);
	world_cut(&w, WORLD_UNIT, WORLD_UNIT, 16, 0);
	world_cut(&w, 2 * WORLD_UNIT, WORLD_UNIT, 1, 0);
	world_cut(&w, 3 * WORLD_UNIT, 2 * WORLD_UNIT, 2, 0);
	world_cut(&w, 5 * WORLD_UNIT, WORLD_UNIT, 4, 0);
	gate_arm(SNAP_UNIT_TAKEN, w.mem);
	world_begin(&w, true);
	gate_reach();
	snap_fence(w.snap, 8); /* a group without pieces */
	snap_fence(w.snap, 2);
	for (size_t i = 0; i < w.n; i++) {
		bool copied = memcmp(w.pieces[i].dst, world_wanted(&w, &w.pieces[i]),
				      w.pieces[i].len_bytes) == 0;

		assert_true(copied == (w.pieces[i].groups == 2));
	}
	/* The fence has copied these, so they may be written. */
	memset(w.mem + 3 * WORLD_UNIT, 0, 2 * WORLD_UNIT);
	snap_fence(w.snap, 4);
	snap_fence(w.snap, 16); /* lies before the pieces of the other fences */
	memset(w.mem + WORLD_UNIT, 0, WORLD_UNIT);
	gate_open();
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_close(&w);
}

static atomic_bool fence_back;

static void *fence_all(void *user)
{
	struct world *w = user;

	snap_fence(w->snap, 1);
	fence_back = true;
	return NULL;
}

static atomic_int policy;

static void record_policy(enum snap_stage stage, struct snap_range range)
{
	policy = sched_getscheduler(0);
}

/* Where no core is free, begin returns before the engine takes its own. */
static void engine_does_not_push(void **state)
{
	struct world w;

	world_open(&w, 2, 1, seed);
	world_cut(&w, 0, w.mem_bytes, 1, 0);
	snap_hook = record_policy;
	world_begin(&w, true);
	assert_int_equal(world_finish(&w), 0);
	assert_int_equal(policy, SCHED_BATCH);
	world_close(&w);
}

/* A fence waits for a unit that another thread copies, until the unit is no longer watched. */
static void fence_waits_for_others(void **state)
{
	struct world w;
	pthread_t threads[2];

	for (enum snap_stage stage = SNAP_UNIT_TAKEN; stage <= SNAP_UNIT_LIFTED; stage++) {
		world_open(&w, 3, 2, seed);
		world_cut(&w, 0, w.mem_bytes, 1, 0);
		gate_arm(stage, w.mem + WORLD_UNIT);
		fence_back = false;
		world_begin(&w, true);
		gate_reach();
		pthread_create(&threads[0], NULL, fence_all, &w);
		pthread_create(&threads[1], NULL, fence_all, &w);
		within_quiet(0.03);
		assert_false(fence_back);
		gate_open();
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
		memset(w.mem, 0, w.mem_bytes);
		assert_int_equal(world_finish(&w), 0);
		world_check(&w, false);
		world_close(&w);
	}
}

static void close_waits(void **state)
{
	struct world w;

	world_open(&w, 4, 1, seed);
	world_cut(&w, 0, w.mem_bytes, 1, 0);
	world_begin(&w, true);
	snap_close(w.snap);
	assert_int_equal(w.calls, 1);
	assert_int_equal(w.rv, 0);
	world_check(&w, false);
	w.snap = NULL;
	world_close(&w);
}

/* In a forked child every call returns, and begin reports why it cannot take a snapshot. */
static void dead_in_the_child(void **state)
{
	struct world w;
	int status = 0;
	pid_t pid;

	world_open(&w, 2, 1, seed);
	world_cut(&w, 0, w.mem_bytes, 1, 0);
	gate_arm(SNAP_UNIT_TAKEN, w.mem);
	world_begin(&w, true);
	gate_reach();
	pid = fork();
	if (pid == 0) {
		enum snap_proof proof;
		int rv;

		snap_fence(w.snap, 1);
		snap_wait(w.snap);
		rv = snap_begin(w.snap, w.pieces, w.n, true, world_done, &w, &proof, NULL);
		snap_close(w.snap);
		_exit(rv == PAWL_ENOTSUP ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	gate_open();
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest always[] = {
		cmocka_unit_test(random_pieces),
		cmocka_unit_test(no_pieces_at_all),
		cmocka_unit_test(why_not),
		cmocka_unit_test(without_userfaultfd),
		cmocka_unit_test(close_waits),
	};
	const struct CMUnitTest watched[] = {
		cmocka_unit_test(eager_pieces_are_free_at_once),
		cmocka_unit_test(shared_and_file_memory_is_copied),
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(fence_copies_what_it_waits_for),
		cmocka_unit_test(fence_waits_for_others),
		cmocka_unit_test(engine_does_not_push),
		cmocka_unit_test(dead_in_the_child),
	};
	struct watch watch;
	struct pawl_err err;
	int rv;

	world_keep_handlers();
	seed = test_seed();
	rv = cmocka_run_group_tests_name("always", always, NULL, NULL);
	if (watch_open(&watch, &err) != 0) {
		printf("what needs the kernel's watch is skipped: %s\n", err.msg);
		return rv;
	}
	watch_close(&watch);
	return rv + cmocka_run_group_tests_name("watched", watched, NULL, NULL);
}
