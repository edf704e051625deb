/* The fault store misbehaves as planned: each misbehaviour, at the n-th operation, once and for
 * good. test_store.c shows that it behaves well otherwise. */
#include "base/clock.h"
#include "base/err.h"
#include "store/dirs.h"
#include "store/fault.h"
#include "store/mem.h"
#include "within.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define BYTES (2 * STORE_ALIGN)

static struct store *store;
static struct store_file *file;
static struct pawl_err err;
static char *buf;

/* Opens the store, with one file, "f", of BYTES 'a's, open. */
static int open_fault(void **state)
{
	struct store *inner;
	struct store_io io;

	if (store_mem_open(&inner, &err) != 0 || store_fault_open(inner, NULL, &store, &err) != 0 ||
		store_create(store, "f", BYTES, &file, &err) != 0) {
		return -1;
	}
	buf = aligned_alloc(STORE_ALIGN, BYTES);
	memset(buf, 'a', BYTES);
	io = (struct store_io){.file = file, .buf = buf, .len_bytes = BYTES, .write = true};
	return store_submit(store, &io, &err) != 0 || store_reap(store, -1) != &io || io.rv != 0;
}

static int close_fault(void **state)
{
	store_close_file(store, file);
	store_close(store);
	free(buf);
	return 0;
}

static void set_plan(enum store_fault what, uint64_t nth, bool forever, int code, uint32_t arg_ms)
{
	const struct store_fault_plan plan = {.what = what,
		.nth = nth,
		.forever = forever,
		.code = code,
		.arg_ms = arg_ms};

	store_fault_set(store, &plan);
}

static int transfer(bool write)
{
	struct store_io io = {.file = file, .buf = buf, .len_bytes = BYTES, .write = write};

	assert_int_equal(store_submit(store, &io, &err), 0);
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_null(store_reap(store, -1));
	assert_int_equal(io.len_bytes, BYTES); /* unchanged */
	return io.rv;
}

/* Expects the file's halves to be full of first, and of second. */
static void assert_halves(char first, char second)
{
	store_fault_set(store, NULL);
	memset(buf, '?', BYTES);
	assert_int_equal(transfer(false), 0);
	for (size_t i = 0; i < BYTES; i++) {
		assert_int_equal(buf[i], i < BYTES / 2 ? first : second);
	}
}

static int stop_list(void *user, const char *name, enum store_kind kind)
{
	return 1;
}

/* Does each operation of the interface once. Returns how many failed with code. */
static unsigned do_everything(int code)
{
	struct store_file *other = NULL;
	void *bytes = NULL;
	size_t len;
	unsigned n = 0;

	n += store_mkdir(store, "d", &err) == code;
	n += store_create(store, "g", 0, &other, &err) == code;
	store_close_file(store, other);
	other = NULL;
	n += store_open(store, "f", &other, NULL, &err) == code;
	store_close_file(store, other);
	n += transfer(false) == code;
	n += store_sync(store, file, &err) == code;
	n += store_sync_dir(store, "", &err) == code;
	n += store_write_small(store, "s", "x", 1, &err) == code;
	n += store_read_small(store, "s", &bytes, &len, 9, &err) == code;
	free(bytes);
	n += store_append_small(store, "s", "y", 1, true, &err) == code;
	n += store_stat(store, "s", NULL, NULL, &err) == code;
	n += store_list(store, "", stop_list, NULL, &err) == code;
	n += store_rename(store, "s", "t", STORE_REPLACE, &err) == code;
	n += store_remove(store, "t", &err) == code;
	return n;
}

#define OPS_N 13u /* number of operations in do_everything */

static void fails_any_operation(void **state)
{
	for (unsigned nth = 1; nth <= OPS_N + 1; nth++) {
		set_plan(STORE_FAULT_FAIL, nth, false, PAWL_ENOSPC, 0);
		assert_int_equal(do_everything(PAWL_ENOSPC), nth <= OPS_N);
		assert_int_equal(store_fault_ops(store), OPS_N);
		set_plan(STORE_FAULT_FAIL, nth, true, PAWL_EIO, 0);
		assert_int_equal(do_everything(PAWL_EIO), OPS_N + 1 - nth);
	}
	store_fault_set(store, NULL);
	assert_int_equal(do_everything(PAWL_EIO), 0);
}

static void failed_write_does_nothing(void **state)
{
	set_plan(STORE_FAULT_FAIL, 1, false, PAWL_EIO, 0);
	memset(buf, 'b', BYTES);
	assert_int_equal(transfer(true), PAWL_EIO);
	assert_halves('a', 'a');
}

static void torn_write_does_half(void **state)
{
	void *bytes;
	size_t len;

	set_plan(STORE_FAULT_TEAR, 1, false, PAWL_EIO, 0);
	memset(buf, 'b', BYTES);
	assert_int_equal(transfer(true), PAWL_EIO);
	assert_halves('b', 'a');
	set_plan(STORE_FAULT_TEAR, 1, false, PAWL_ENOSPC, 0);
	assert_int_equal(store_write_small(store, "s", "1234", 4, &err), PAWL_ENOSPC);
	set_plan(STORE_FAULT_TEAR, 1, false, PAWL_EIO, 0);
	assert_int_equal(store_append_small(store, "s", "abcd", 4, true, &err), PAWL_EIO);
	assert_int_equal(store_read_small(store, "s", &bytes, &len, 9, &err), 0);
	assert_string_equal(bytes, "12ab");
	free(bytes);
}

static void short_read_lies(void **state)
{
	void *bytes;
	size_t len;

	set_plan(STORE_FAULT_SHORT, 1, true, 0, 0);
	assert_int_equal(transfer(false), 0);
	assert_int_equal(buf[BYTES / 2 - 1], 'a');
	assert_int_equal(buf[BYTES / 2], 0);
	assert_int_equal(buf[BYTES - 1], 0);
	memset(buf, 'c', BYTES);
	assert_int_equal(transfer(true), 0); /* a write is not harmed */
	assert_int_equal(store_write_small(store, "s", "1234", 4, &err), 0);
	assert_int_equal(store_read_small(store, "s", &bytes, &len, 9, &err), 0);
	assert_int_equal(len, 4);
	assert_memory_equal(bytes, "12\0\0", 4);
	free(bytes);
	assert_halves('c', 'c');
}

/* Operations that fail, and have happened. */
static void unanswered_operation_has_happened(void **state)
{
	struct store_file *other = NULL;

	set_plan(STORE_FAULT_UNANSWERED, 1, true, PAWL_EIO, 0);
	memset(buf, 'b', BYTES);
	assert_int_equal(transfer(true), PAWL_EIO);
	assert_int_equal(store_mkdir(store, "d", &err), PAWL_EIO);
	assert_int_equal(store_write_small(store, "s", "1", 1, &err), PAWL_EIO);
	assert_int_equal(store_append_small(store, "s", "2", 1, true, &err), PAWL_EIO);
	assert_int_equal(store_link(store, "s", "d/s", &err), PAWL_EIO);
	assert_int_equal(store_create(store, "g", 0, &other, &err), PAWL_EIO);
	assert_null(other); /* set only on success */
	assert_int_equal(store_stat(store, "g", NULL, NULL, &err), 0);
	assert_int_equal(store_rename(store, "s", "t", STORE_REPLACE, &err), PAWL_EIO);
	assert_int_equal(store_stat(store, "t", NULL, NULL, &err), 0); /* changes nothing */
	assert_int_equal(store_rename(store, "s", "u", STORE_REPLACE, &err), PAWL_ENOENT);
	assert_int_equal(store_remove(store, "d", &err), PAWL_EIO);
	assert_int_equal(store_stat(store, "d", NULL, NULL, &err), PAWL_ENOENT);
	assert_halves('b', 'b');
}

/* Returns whether submitting came back before the transfer was done. */
static bool submit_delayed(void)
{
	struct store_io io = {.file = file, .buf = buf, .len_bytes = BYTES};
	int64_t start_ns = clock_mono_ns();
	struct store_io *done;
	bool quick;

	set_plan(STORE_FAULT_DELAY, 1, false, 0, 30);
	assert_int_equal(store_submit(store, &io, &err), 0);
	quick = clock_mono_ns() - start_ns < 30 * NS_PER_MS;
	done = store_reap(store, 0);
	done = done ? done : store_reap(store, 5);
	assert_true(!done || clock_mono_ns() - start_ns >= 30 * NS_PER_MS);
	done = done ? done : store_reap(store, -1);
	assert_ptr_equal(done, &io);
	assert_int_equal(io.rv, 0);
	assert_true(clock_mono_ns() - start_ns >= 30 * NS_PER_MS);
	return quick;
}

static void delay_takes_longer(void **state)
{
	bool quick = false;
	int64_t start_ns;

	for (int i = 0; i < 20 && !quick; i++) { /* Other programs run here, too. */
		quick = submit_delayed();
	}
	if (!quick) {
		FAIL_LATE("a call of store_submit that is back before the delay is over, of 20");
	}
	set_plan(STORE_FAULT_DELAY, 1, false, 0, 20);
	start_ns = clock_mono_ns();
	assert_int_equal(store_sync(store, file, &err), 0);
	assert_true(clock_mono_ns() - start_ns >= 20 * NS_PER_MS);
}

static void *release_later(void *user)
{
	within_pace(0.03);
	store_fault_release(store);
	return NULL;
}

static void hang_ends_with_release(void **state)
{
	struct store_io hung = {.file = file, .buf = buf, .len_bytes = BYTES};
	struct store_io other = {.file = file, .buf = buf, .len_bytes = BYTES};
	int64_t start_ns = clock_mono_ns();
	pthread_t thread;

	set_plan(STORE_FAULT_HANG, 1, false, 0, 0);
	assert_int_equal(store_submit(store, &hung, &err), 0);
	assert_int_equal(store_submit(store, &other, &err), 0);
	assert_ptr_equal(store_reap(store, -1), &other); /* others pass it */
	assert_null(store_reap(store, 5));
	assert_int_equal(pthread_create(&thread, NULL, release_later, NULL), 0);
	set_plan(STORE_FAULT_HANG, 1, false, 0, 0);
	assert_int_equal(store_sync(store, file, &err), 0);
	assert_true(clock_mono_ns() - start_ns >= 30 * NS_PER_MS);
	pthread_join(thread, NULL);
	assert_ptr_equal(store_reap(store, -1), &hung);
	assert_int_equal(hung.rv, 0);
}

static void full_queue_misbehaves(void **state)
{
	struct store_io ios[STORE_DEPTH];

	set_plan(STORE_FAULT_DELAY, 1, true, 0, 1);
	for (unsigned i = 0; i < STORE_DEPTH; i++) {
		ios[i] = (struct store_io){.file = file, .buf = buf, .len_bytes = BYTES};
		assert_int_equal(store_submit(store, &ios[i], &err), 0);
	}
	for (unsigned i = 0; i < STORE_DEPTH; i++) {
		assert_non_null(store_reap(store, -1));
	}
	assert_null(store_reap(store, -1));
}

#define FAULT_TEST(f) cmocka_unit_test_setup_teardown(f, open_fault, close_fault)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(fails_any_operation),
		FAULT_TEST(failed_write_does_nothing),
		FAULT_TEST(torn_write_does_half),
		FAULT_TEST(short_read_lies),
		FAULT_TEST(unanswered_operation_has_happened),
		FAULT_TEST(delay_takes_longer),
		FAULT_TEST(hang_ends_with_release),
		FAULT_TEST(full_queue_misbehaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
