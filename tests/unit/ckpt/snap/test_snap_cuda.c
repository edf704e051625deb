/* Pieces on CUDA devices, by a driver made of host memory (tests/lib/fakecuda.h): what is copied,
 * when, and what happens when the driver fails. */
#include "../lib/fakecuda.h"
#include "../lib/seed.h"
#include "base/fault.h"
#include "test_snap_world.h"

#include <errno.h>
#include <pthread.h>

static uint64_t seed;

/* Puts the second half of the memory on device 0, and the last quarter on device 1. */
static void cut_devices(struct world *w)
{
	size_t half = w->mem_bytes / 2;
	size_t quarter = w->mem_bytes / 4;
	size_t n;

	world_cut(w, 0, half, 1, 7777);
	n = w->n;
	world_cut(w, half, quarter, 2, 0);
	world_cut(w, half + quarter, quarter - 100000, 4, 4096);
	world_cut(w, w->mem_bytes - 100000, 100000, 0, 0);
	for (size_t i = n; i < w->n; i++) {
		w->pieces[i].device = w->pieces[i].src < w->mem + half + quarter ? 1 : 2;
	}
	w->pieces[n + 1].dst = NULL;
}

/* Opens the engine again with one thread for host memory, and so many for devices. */
static void open_again(struct world *w, unsigned device_threads)
{
	const struct snap_options options = {.threads = 1,
		.device_threads = device_threads,
		.watch = true};

	snap_close(w->snap);
	assert_int_equal(snap_open(&w->snap, &options, NULL), 0);
}

static void content_is_right(void **state)
{
	for (unsigned threads = 1; threads <= 8; threads++) {
		struct world w;

		world_open(&w, 8, threads, seed);
		cut_devices(&w);
		if (threads > 3) {
			open_again(&w, threads);
		}
		for (int i = 0; i < 3; i++) {
			bool watch = i != 1;
			enum snap_proof proof = world_begin(&w, watch);

			if (watch && snap_best(w.snap, NULL) == SNAP_WATCHED) {
				assert_int_equal(proof, SNAP_FENCED);
				snap_fence(w.snap, i == 0 ? 2 | 4 : 7);
				memset(w.mem + w.mem_bytes / 2, i, w.mem_bytes / 2);
			} else {
				assert_int_equal(proof, SNAP_COPIED);
				memset(w.mem, i, w.mem_bytes);
			}
			assert_int_equal(world_finish(&w), 0);
			world_check(&w, false);
		}
		world_close(&w);
		assert_int_equal(fakecuda_live_objects(), 0);
	}
}

static atomic_bool fence_back;

static void *fence_devices(void *user)
{
	struct world *w = user;

	snap_fence(w->snap, 2 | 4);
	fence_back = true;
	return NULL;
}

/* The program has queued work, saves, and goes on: the snapshot shows the memory after that
 * work. */
static void copies_come_after_queued_work(void **state)
{
	struct world w;
	pthread_t thread;

	world_open(&w, 8, 1, seed);
	cut_devices(&w);
	for (size_t i = 0; i < w.n; i++) {
		w.pieces[i].groups = w.pieces[i].device == 0 ? 0 : w.pieces[i].device * 2;
	}
	fakecuda_busy(0, true);
	fakecuda_busy(1, true);
	fence_back = false;
	world_begin(&w, true);
	pthread_create(&thread, NULL, fence_devices, &w);
	within_quiet(0.03);
	assert_false(fence_back);
	for (size_t i = w.mem_bytes / 2; i < w.mem_bytes; i++) {
		w.before[i] = ++w.mem[i]; /* the work */
	}
	fakecuda_busy(0, false);
	fakecuda_busy(1, false);
	pthread_join(thread, NULL);
	fakecuda_busy(0, true); /* what is queued later is not waited for */
	memset(w.mem, 0, w.mem_bytes);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	fakecuda_busy(0, false);
	world_close(&w);
}

/* Fails the n-th driver call, for all n: begin or the callback reports it. With several threads,
 * one may do the work of another that has no buffer. */
static void fail_every_driver_call(unsigned device_threads)
{
	unsigned nth = 0;
	unsigned called = 0;

	do {
		enum snap_proof proof;
		struct world w;
		int rv;

		world_open(&w, 4, 1, seed);
		cut_devices(&w);
		open_again(&w, device_threads);
		memcpy(w.before, w.mem, w.mem_bytes);
		fakecuda_fail(++nth);
		rv = snap_begin(w.snap, w.pieces, w.n, true, world_done, &w, &proof, NULL);
		if (rv == 0) {
			rv = world_finish(&w);
			assert_true(rv == 0 || w.pieces[w.piece].device != 0);
		}
		called = fakecuda_fail(0);
		assert_true(rv == PAWL_ENOTSUP || rv == PAWL_EINVAL || rv == PAWL_EIO ||
			rv == PAWL_ENOMEM || (rv == 0 && (called < nth || device_threads > 0)));
		world_begin(&w, true); /* next time it works */
		assert_int_equal(world_finish(&w), 0);
		world_check(&w, false);
		world_close(&w);
		assert_int_equal(fakecuda_live_objects(), 0);
	} while (called >= nth);
	assert_true(nth > 20);
}

static void every_driver_call_fails(void **state)
{
	fail_every_driver_call(0);
	fail_every_driver_call(4);
}

/* Page-locked memory suffices for one thread of four: the others wait for it. */
static void who_has_no_buffer_waits_for_one(void **state)
{
	struct world w;

	world_open(&w, 32, 1, seed);
	cut_devices(&w);
	open_again(&w, 4);
	for (size_t i = 0; i < w.n; i++) {
		w.pieces[i].device = w.pieces[i].device > 0 ? 1 : 0;
		w.pieces[i].groups = w.pieces[i].device > 0 ? 2 : 0; /* none is copied at once */
	}
	fakecuda_most_buffers(1);
	fakecuda_busy(0, true);
	world_begin(&w, true);
	within_quiet(0.03); /* all threads are there, and one has the buffer */
	fakecuda_busy(0, false);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	fakecuda_most_buffers(-1);
	world_close(&w);
}

static void no_driver_or_device(void **state)
{
	enum snap_proof proof;
	struct pawl_err err;
	struct world w;

	world_open(&w, 4, 1, seed);
	cut_devices(&w);
	fault_arm("cuda.open", 1, ENOENT, false);
	assert_int_equal(snap_begin(w.snap, w.pieces, w.n, true, world_done, &w, &proof, &err),
		PAWL_ENOTSUP);
	fault_disarm();
	assert_string_equal(err.msg, "CUDA: libcuda.so.1 cannot be loaded");
	w.pieces[w.n - 1].device = FAKECUDA_DEVICES + 1;
	assert_int_equal(snap_begin(w.snap, w.pieces, w.n, true, world_done, &w, &proof, &err),
		PAWL_EINVAL);
	assert_int_equal(w.calls, 0);
	w.pieces[w.n - 1].device = 1;
	world_begin(&w, true);
	assert_int_equal(world_finish(&w), 0);
	world_check(&w, false);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(content_is_right),
		cmocka_unit_test(copies_come_after_queued_work),
		cmocka_unit_test(every_driver_call_fails),
		cmocka_unit_test(who_has_no_buffer_waits_for_one),
		cmocka_unit_test(no_driver_or_device),
	};

	world_keep_handlers();
	seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
