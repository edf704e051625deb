/* Both kinds of aio keep the contract: each request comes back exactly once, with what a pread or
 * pwrite would have given. */
#include "../lib/seed.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "io/aio.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define DEPTH  16u
#define BLOCK  4096u
#define BLOCKS 512u

static uint64_t seed;

static struct aio *open_kind(enum aio_kind kind)
{
	struct aio *aio;
	struct pawl_err err;

	if (aio_open(&aio, kind, DEPTH, &err) != 0) {
		print_message("skipped: %s\n", err.msg);
		skip();
	}
	assert_string_equal(aio_name(aio), kind == AIO_URING ? "io_uring" : "threads");
	return aio;
}

static int temp_file(void)
{
	char path[] = "/tmp/pawl_aio_XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	return fd;
}

/* Random transfers of a file's blocks with random depth; each slot must come back as often as it
 * went out, and the file must hold what was written last. */
static void exactly_once(void **state)
{
	struct aio *aio = open_kind(*(enum aio_kind *)*state);
	struct rng rng = {seed};
	int fd = temp_file();
	static uint8_t bufs[DEPTH][BLOCK];
	static uint8_t want[BLOCKS]; /* byte that fills each block */
	struct aio_req reqs[DEPTH] = {0};
	bool busy[DEPTH] = {false};
	bool in_flight[BLOCKS] = {false}; /* a transfer of the block is in flight */
	unsigned done = 0;

	assert_int_equal(ftruncate(fd, (off_t)BLOCKS * BLOCK), 0);
	memset(want, 0, sizeof(want));
	for (unsigned sent = 0; done < 5000;) {
		unsigned i = (unsigned)rng_below(&rng, DEPTH);
		unsigned block = (unsigned)rng_below(&rng, BLOCKS);
		struct aio_req *req;

		if (sent < 5000 && !busy[i] && !in_flight[block]) {
			bool write = rng_below(&rng, 2) == 0;

			want[block] = write ? (uint8_t)rng_u64(&rng) : want[block];
			memset(bufs[i], write ? want[block] : 0xee, BLOCK);
			reqs[i] = (struct aio_req){.buf = bufs[i],
				.len_bytes = BLOCK,
				.off_bytes = (uint64_t)block * BLOCK,
				.fd = fd,
				.write = write,
				.res = -12345};
			assert_int_equal(aio_submit(aio, &reqs[i], NULL), 0);
			busy[i] = in_flight[block] = true;
			sent++;
			continue;
		}
		req = aio_reap(aio, rng_below(&rng, 2) == 0 ? -1 : (int)rng_below(&rng, 3));
		if (req == NULL) {
			continue;
		}
		i = (unsigned)(req - reqs);
		block = (unsigned)(req->off_bytes / BLOCK);
		assert_true(i < DEPTH && busy[i]);
		assert_int_equal(req->res, BLOCK);
		assert_int_equal(bufs[i][0], want[block]);
		assert_int_equal(bufs[i][BLOCK - 1], want[block]);
		busy[i] = in_flight[block] = false;
		done++;
	}
	assert_int_equal(aio_in_flight(aio), 0);
	assert_null(aio_reap(aio, -1)); /* does not wait, as none is in flight */
	aio_close(aio);
	close(fd);
}

static void results_are_those_of_pread(void **state)
{
	struct aio *aio = open_kind(*(enum aio_kind *)*state);
	int fd = temp_file();
	char buf[16] = "";
	struct aio_req at_end = {.buf = buf, .len_bytes = sizeof(buf), .off_bytes = 3, .fd = fd};
	struct aio_req bad_fd = {.buf = buf, .len_bytes = sizeof(buf), .fd = -1};
	int64_t res[2];

	assert_int_equal(write(fd, "hello", 5), 5);
	assert_int_equal(aio_submit(aio, &at_end, NULL), 0);
	assert_ptr_equal(aio_reap(aio, -1), &at_end);
	res[0] = at_end.res;
	assert_int_equal(aio_submit(aio, &bad_fd, NULL), 0);
	assert_ptr_equal(aio_reap(aio, 10000), &bad_fd);
	res[1] = bad_fd.res;
	assert_int_equal(res[0], 2); /* a short read is returned as it is */
	assert_memory_equal(buf, "lo", 2);
	assert_int_equal(res[1], -EBADF);
	aio_close(aio);
	close(fd);
}

/* A read of an empty pipe stays in flight; only io_uring reads one, pread refuses. */
static void times_out_and_closes_in_flight(void **state)
{
	struct aio *aio = open_kind(*(enum aio_kind *)*state);
	int fds[2];
	char buf[1];
	struct aio_req req = {.buf = buf, .len_bytes = 1};
	int64_t before_ns;

	assert_int_equal(pipe(fds), 0);
	req.fd = fds[0];
	req.off_bytes = (uint64_t)-1; /* a pipe has no position */
	assert_int_equal(aio_submit(aio, &req, NULL), 0);
	assert_null(aio_reap(aio, 0));
	before_ns = clock_mono_ns();
	assert_null(aio_reap(aio, 30));
	assert_true(clock_mono_ns() - before_ns >= 29 * NS_PER_MS);
	assert_int_equal(write(fds[1], "x", 1), 1);
	aio_close(aio); /* waits for the request in flight */
	assert_int_equal(req.res, 1);
	close(fds[0]);
	close(fds[1]);
}

/* A submission that failed never comes back, and the next one works. */
static void failed_submission_is_forgotten(void **state)
{
	struct aio *aio = open_kind(*(enum aio_kind *)*state);
	int fd = temp_file();
	char refused[] = "bad!";
	char taken[] = "good";
	char got[5] = "";
	struct aio_req bad = {.buf = refused, .len_bytes = 4, .fd = fd, .write = true};
	struct aio_req good = {.buf = taken, .len_bytes = 4, .fd = fd, .write = true};
	struct pawl_err err;

	for (int i = 0; i < 40; i++) {
		fault_arm("aio.submit", 1, EAGAIN, false);
		assert_int_equal(aio_submit(aio, &bad, &err), PAWL_EIO);
		fault_disarm();
		assert_int_equal(aio_in_flight(aio), 0);
		if (i % 3 == 0) { /* Otherwise refused ones gather. */
			assert_int_equal(aio_submit(aio, &good, &err), 0);
			assert_ptr_equal(aio_reap(aio, -1), &good);
		}
	}
	assert_int_equal(aio_submit(aio, &good, &err), 0);
	assert_ptr_equal(aio_reap(aio, -1), &good);
	assert_int_equal(pread(fd, got, 4, 0), 4);
	assert_string_equal(got, "good");
	aio_close(aio);
	close(fd);
}

static void auto_falls_back_to_threads(void **state)
{
	static const int refusals[] = {EPERM, ENOSYS, ENOMEM};
	struct aio *aio;
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		fault_arm("aio.uring", 1, refusals[i], false);
		assert_int_equal(aio_open(&aio, AIO_AUTO, 4, &err), 0);
		fault_disarm();
		assert_string_equal(aio_name(aio), "threads");
		aio_close(aio);
	}
	setenv("PAWL_NO_URING", "1", 1);
	assert_int_equal(aio_open(&aio, AIO_AUTO, 4, &err), 0);
	assert_string_equal(aio_name(aio), "threads");
	aio_close(aio);
	unsetenv("PAWL_NO_URING");
}

static void failed_open_leaves_nothing(void **state)
{
	struct aio *aio = NULL;
	struct pawl_err err;

	fault_arm("aio.uring", 1, EPERM, true);
	assert_int_equal(aio_open(&aio, AIO_URING, 4, &err), PAWL_EIO);
	assert_int_equal(err.sys, EPERM);
	for (unsigned n = 1; n <= 5; n++) {
		int want = n <= 4 ? PAWL_EIO : 0; /* four threads */

		fault_arm("aio.thread", n, EAGAIN, false);
		assert_int_equal(aio_open(&aio, AIO_THREADS, 4, &err), want);
	}
	fault_arm("aio.alloc", 1, ENOMEM, true);
	aio_close(aio);
	aio = NULL;
	assert_int_equal(aio_open(&aio, AIO_URING, 4, &err), PAWL_ENOMEM);
	assert_int_equal(aio_open(&aio, AIO_THREADS, 4, &err), PAWL_ENOMEM);
	assert_null(aio);
	fault_disarm();
	aio_close(NULL);
}

int main(void)
{
	static enum aio_kind uring = AIO_URING;
	static enum aio_kind threads = AIO_THREADS;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(exactly_once, &uring),
		cmocka_unit_test_prestate(exactly_once, &threads),
		cmocka_unit_test_prestate(results_are_those_of_pread, &uring),
		cmocka_unit_test_prestate(results_are_those_of_pread, &threads),
		cmocka_unit_test_prestate(times_out_and_closes_in_flight, &uring),
		cmocka_unit_test_prestate(failed_submission_is_forgotten, &uring),
		cmocka_unit_test_prestate(failed_submission_is_forgotten, &threads),
		cmocka_unit_test(auto_falls_back_to_threads),
		cmocka_unit_test(failed_open_leaves_nothing),
	};

	seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
