/*
 * The engine in want of privilege, of lockable memory, of descriptors, or of whatever the n-th call
 * into the system asks for. It fails with an error or does its work, and leaks nothing.
 */
#include "../lib/seed.h"
#include "base/fault.h"
#include "test_snap_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define NOBODY     65534
#define FAULTS_MAX 200u /* calls into the system of one snapshot, at most */

static uint64_t seed;

/* Returns 0 if a snapshot is right and a change is seen. Runs in a child, whose failed asserts
 * cmocka would not report. */
static int try_watch(void)
{
	struct world w;
	const char *why;
	int rv;

	world_open(&w, 3, 1, seed);
	if (snap_best(w.snap, &why) != SNAP_WATCHED) {
		fprintf(stderr, "not watched: %s\n", why);
		return 77;
	}
	world_cut(&w, 0, w.mem_bytes, 1, 0);
	world_begin(&w, true);
	rv = world_finish(&w);
	world_check(&w, false);
	gate_arm(SNAP_UNIT_TAKEN, w.mem);
	world_begin(&w, true);
	gate_reach();
	w.mem[WORLD_UNIT] ^= 1;
	gate_open();
	rv |= world_finish(&w) == PAWL_ECHANGED ? 0 : 1;
	world_close(&w);
	return rv;
}

static int run_in_child(void (*prepare)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		prepare();
		_exit(try_watch());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void limit_locked_memory(void)
{
	const struct rlimit little = {CKPT_PAGE, CKPT_PAGE};

	ASSERT(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
}

static void become_nobody(void)
{
	limit_locked_memory();
	ASSERT(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	ASSERT(prctl(PR_SET_DUMPABLE, 1) == 0); /* as after exec; otherwise /proc/self is root's */
}

static void little_lockable_memory(void **state)
{
	assert_int_equal(run_in_child(limit_locked_memory), 0);
}

static void ordinary_user(void **state)
{
	if (getuid() != 0) {
		print_message("skipped: it is one already\n");
		skip();
	}
	assert_int_equal(run_in_child(become_nobody), 0);
}

/* Opens, takes two snapshots, closes; whatever reported success must have worked. Returns the code
 * that failed, or 0. */
static int run_engine_once(struct world *w)
{
	const struct snap_options options = {.threads = 2, .watch = true};
	int rv = snap_open(&w->snap, &options, NULL);

	for (int i = 0; rv == 0 && i < 2; i++) {
		enum snap_proof proof;

		memset(w->arena, 0xee, w->arena_used);
		w->calls = 0;
		rv = snap_begin(w->snap, w->pieces, w->n, true, world_done, w, &proof, NULL);
		if (rv == 0) {
			rv = world_finish(w);
		}
		if (rv == 0) {
			world_check(w, false);
		}
		assert_true(rv != 0 || w->calls == 1);
	}
	snap_close(w->snap);
	w->snap = NULL;
	return rv;
}

/* Fails the n-th call into the system, once or for good, for all n. */
static void every_call_fails(void **state)
{
	struct world w;
	int lowest = dup(0);
	unsigned nth[2];
	int fd;

	close(lowest);
	world_open(&w, 2, 1, seed);
	snap_close(w.snap);
	w.snap = NULL;
	world_cut(&w, 100, 3 * WORLD_UNIT / 2, 1, 0);
	memcpy(w.before, w.mem, w.mem_bytes);
	for (int forever = 0; forever < 2; forever++) {
		uint64_t passed = 0;

		for (nth[forever] = 1; nth[forever] <= FAULTS_MAX; nth[forever]++) {
			int rv;

			fault_arm("", nth[forever], ENOMEM, forever != 0);
			rv = run_engine_once(&w);
			passed = fault_count();
			fault_disarm();
			assert_true(rv == 0 || rv == PAWL_ENOMEM || rv == PAWL_EIO ||
				rv == PAWL_ECHANGED);
			if (passed < nth[forever]) {
				break; /* nothing failed any more */
			}
		}
		assert_in_range(nth[forever], 20, FAULTS_MAX);
	}
	assert_int_equal(run_engine_once(&w), 0);
	fd = dup(0);
	close(fd);
	assert_int_equal(fd, lowest);
	world_close(&w);
}

/* The kernel refuses to protect, half-way and again: everything is copied, and nothing stays
 * watched. */
static void refused_protection(void **state)
{
	struct watch other;
	struct world w;

	assert_int_equal(watch_open(&other, NULL), 0);
	world_open(&w, 4, 1, seed);
	world_cut(&w, 0, WORLD_UNIT, 1, 0);
	world_cut(&w, 2 * WORLD_UNIT, WORLD_UNIT, 1, 0);
	fault_arm("watch.protect", 2, EIO, true);
	assert_int_equal(world_begin(&w, true), SNAP_COPIED);
	fault_disarm();
	memset(w.mem, 0, w.mem_bytes);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	/* Nobody else could register the memory if it were still registered. */
	assert_true(watch_register(&other,
		(struct snap_range){(uintptr_t)w.mem, (uintptr_t)w.mem + w.mem_bytes}));
	watch_close(&other);
	assert_int_equal(world_begin(&w, true), SNAP_WATCHED);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_close(&w);
}

/* Opening /proc/self/maps fails, userfaultfd does not: everything is copied, and next time
 * watched. */
static void no_descriptors_left(void **state)
{
	struct rlimit few, before;
	struct world w;
	int fd;

	world_open(&w, 2, 1, seed);
	world_cut(&w, 0, w.mem_bytes, 1, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	fd = dup(0);
	close(fd);
	few = (struct rlimit){(rlim_t)fd, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(world_begin(&w, true), SNAP_COPIED);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	memset(w.mem, 0, w.mem_bytes);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	assert_int_equal(world_begin(&w, true), SNAP_WATCHED);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(little_lockable_memory),
		cmocka_unit_test(ordinary_user),
		cmocka_unit_test(every_call_fails),
		cmocka_unit_test(refused_protection),
		cmocka_unit_test(no_descriptors_left),
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
