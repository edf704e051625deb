/* What only flat stores do: whole objects, conditional puts, and answers that get lost. On the flat
 * store in memory, by itself and behind the fault store. */
#include "../lib/expect.h"
#include "base/err.h"
#include "store/dirs.h"
#include "store/fault.h"
#include "store/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct store *mem;   /* the flat store */
static struct store *store; /* mem behind a fault store */
static struct pawl_err err;

static int open_both(void **state)
{
	return store_mem_open_flat(&mem, &err) != 0 ||
		store_fault_open(mem, NULL, &store, &err) != 0;
}

static int close_both(void **state)
{
	store_close(store);
	return 0;
}

static void put(const char *path, const char *text)
{
	OK(store_write_small(store, path, text, strlen(text), &err));
}

static void assert_holds(struct store *in, const char *path, const char *text)
{
	void *bytes;
	size_t len_bytes;

	OK(store_read_small(in, path, &bytes, &len_bytes, 1000, &err));
	assert_int_equal(len_bytes, strlen(text));
	assert_string_equal(bytes, text);
	free(bytes);
}

static void assert_absent(struct store *in, const char *path)
{
	FAILS(PAWL_ENOENT, store_stat(in, path, NULL, NULL, &err));
}

/* ---- what a flat store lacks ---- */

static void directories_are_not_needed(void **state)
{
	static const char text[] = "text";
	struct store_file *file;
	const uint8_t *bytes;
	struct store_range range;
	void *read;
	size_t len_bytes;

	assert_true(store_is_flat(store));
	OK(store_mkdir(store, "a", &err));
	OK(store_mkdirs(store, "a/b/c", &err));
	OK(store_sync_dir(store, "a/b", &err));
	assert_absent(store, "a");
	put("a/b/c", "c");
	FAILS(PAWL_ENOTSUP, store_rename(store, "a", "b", STORE_REPLACE, &err));
	FAILS(PAWL_ENOTSUP, store_link(store, "a/b/c", "d", &err));
	FAILS(PAWL_ENOTSUP, store_append_small(store, "a/b/c", text, 4, true, &err));
	OK(store_open(store, "a/b/c", &file, NULL, &err));
	range = (struct store_range){file, 0};
	FAILS(PAWL_ENOTSUP, store_map(store, file, &bytes, &err));
	FAILS(PAWL_ENOTSUP, store_clone(store, &range, &range, STORE_ALIGN, &err));
	store_close_file(store, file);
	FAILS(PAWL_EINVAL, store_read_small(store, "a/b", &read, &len_bytes, 9, &err));
	FAILS(PAWL_EINVAL, store_open(store, "a", &file, NULL, &err));
	FAILS(PAWL_EIO, store_write_small(store, "a/b", text, 4, &err)); /* objects lie below */
	FAILS(PAWL_EIO, store_write_small(store, "a/b/c/d", text, 4, &err));
	FAILS(PAWL_EIO, store_list(store, "a/b/c", NULL, NULL, &err));
}

#define NAMES_MAX 100u

/* Adds a name to a text of NAMES_MAX bytes, with a slash in front if it is a directory. */
#define NAMES_MAX 100u /* bytes */

static int add_name(void *user, const char *name, enum store_kind kind)
{
	char *names = user;
	size_t len = strlen(names);

	snprintf(names + len, NAMES_MAX - len, "%s%s ", kind == STORE_DIR ? "/" : "", name);
	return 0;
}

static void names_are_listed_once(void **state)
{
	char names[NAMES_MAX] = "";
	enum store_kind kind;
	uint64_t size_bytes = 9;

	FAILS(PAWL_ENOENT, store_list(store, "d", add_name, names, &err));
	OK(store_list(store, "", add_name, names, &err));
	assert_string_equal(names, "");
	put("d/e/2", "");
	put("d-", "");
	put("d/e/1", "");
	put("d/f", "four");
	put("d.x/y", "");
	OK(store_list(store, "", add_name, names, &err));
	assert_string_equal(names, "d- /d.x /d ");
	names[0] = '\0';
	OK(store_list(store, "d", add_name, names, &err));
	assert_string_equal(names, "/e f ");
	OK(store_stat(store, "d/e", &kind, &size_bytes, &err));
	assert_int_equal(kind, STORE_DIR);
	assert_int_equal(size_bytes, 0);
	OK(store_stat(store, "d/f", &kind, &size_bytes, &err));
	assert_int_equal(kind, STORE_FILE);
	assert_int_equal(size_bytes, 4);
	OK(store_remove(store, "d", &err));
	assert_absent(store, "d");
	assert_holds(store, "d-", "");
}

/* ---- uploads ---- */

static void write_block(struct store_file *file, char fill)
{
	void *block = aligned_alloc(STORE_ALIGN, STORE_ALIGN);
	struct store_io io = {.file = file, .buf = block, .len_bytes = STORE_ALIGN, .write = true};

	assert_non_null(block);
	memset(block, fill, STORE_ALIGN);
	OK(store_submit(store, &io, &err));
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(io.rv, 0);
	free(block);
}

static void uploads_are_seen_once_they_are_complete(void **state)
{
	struct store_file *file;
	uint64_t size_bytes;

	put("f", "old");
	OK(store_create(store, "f", STORE_ALIGN, &file, &err));
	write_block(file, 'x');
	assert_holds(store, "f", "old");
	store_close_file(store, file);
	assert_holds(store, "f", "old"); /* dropped */
	OK(store_create(store, "f", 0, &file, &err));
	write_block(file, 'x');
	OK(store_resize(store, file, 3, &err));
	OK(store_sync(store, file, &err));
	assert_holds(store, "f", "xxx");
	OK(store_stat(store, "f", NULL, &size_bytes, &err));
	assert_int_equal(size_bytes, 3);
	OK(store_sync(store, file, &err)); /* nothing is left to do */
	store_close_file(store, file);
	assert_holds(store, "f", "xxx");
}

/* A file has its size and zeros from the start, as in a store of directories, for its writer. */
static void uploads_can_be_read_back(void **state)
{
	char *block = aligned_alloc(STORE_ALIGN, STORE_ALIGN);
	struct store_io io = {.buf = block, .len_bytes = STORE_ALIGN};

	assert_non_null(block);
	memset(block, 'x', STORE_ALIGN);
	OK(store_create(store, "f", STORE_ALIGN, &io.file, &err));
	OK(store_submit(store, &io, &err));
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(io.rv, 0);
	assert_int_equal(block[0], 0);
	assert_int_equal(block[STORE_ALIGN - 1], 0);
	write_block(io.file, 'y');
	OK(store_submit(store, &io, &err));
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(block[STORE_ALIGN - 1], 'y');
	assert_absent(store, "f");
	store_close_file(store, io.file);
	free(block);
}

/* Two uploads of one path do not disturb each other: the one completed last has the path. */
static void uploads_of_one_path_are_apart(void **state)
{
	struct store_file *first;
	struct store_file *second;

	OK(store_create(store, "f", 0, &first, &err));
	OK(store_create(store, "f", 0, &second, &err));
	write_block(first, '1');
	write_block(second, '2');
	OK(store_resize(store, first, 1, &err));
	OK(store_resize(store, second, 2, &err));
	OK(store_sync(store, second, &err));
	assert_holds(store, "f", "22");
	OK(store_sync(store, first, &err));
	assert_holds(store, "f", "1");
	store_close_file(store, first);
	store_close_file(store, second);
	assert_holds(store, "f", "1");
}

/* An upload that could not be completed stays lost, however often it is tried. */
static void failed_uploads_stay_failed(void **state)
{
	struct store_file *file;

	OK(store_create(store, "d", 0, &file, &err));
	put("d/f", "in the way");
	FAILS(PAWL_EIO, store_sync(store, file, &err));
	OK(store_remove(store, "d", &err));
	FAILS(PAWL_EIO, store_sync(store, file, &err));
	store_close_file(store, file);
	assert_absent(store, "d");
}

/* A reader never gets bytes of two versions. */
static void replaced_objects_are_not_mixed(void **state)
{
	void *block = aligned_alloc(STORE_ALIGN, STORE_ALIGN);
	struct store_io io = {.buf = block, .len_bytes = STORE_ALIGN};

	assert_non_null(block);
	put("f", "old");
	OK(store_open(store, "f", &io.file, NULL, &err));
	put("f", "new");
	OK(store_submit(store, &io, &err));
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(io.rv, PAWL_ECORRUPT);
	store_close_file(store, io.file);
	free(block);
}

/* ---- conditional puts ---- */

static void one_of_two_writers_wins(void **state)
{
	char first[STORE_ETAG_MAX];
	char second[STORE_ETAG_MAX];
	char found[STORE_ETAG_MAX];
	void *bytes;
	size_t len_bytes;

	OK(store_put_if(store, "f", "one", 3, NULL, first, &err));
	FAILS(PAWL_EEXIST, store_put_if(store, "f", "two", 3, "", second, &err));
	assert_holds(store, "f", "one");
	OK(store_read_etag(store, "f", &bytes, &len_bytes, 10, found, &err));
	assert_string_equal(found, first);
	assert_int_equal(len_bytes, 3);
	free(bytes);
	OK(store_put_if(store, "f", "two", 3, first, second, &err));
	assert_string_not_equal(first, second);
	FAILS(PAWL_EMISMATCH, store_put_if(store, "f", "three", 5, first, found, &err));
	assert_holds(store, "f", "two");
	OK(store_remove(store, "f", &err));
	FAILS(PAWL_EMISMATCH, store_put_if(store, "f", "three", 5, second, found, &err));
	OK(store_put_if(store, "f", "one", 3, NULL, found, &err));
	assert_string_not_equal(found, first); /* the bytes are the same, the version is not */
}

static void stores_of_directories_have_no_etags(void **state)
{
	char etag[STORE_ETAG_MAX];
	struct store *dirs;
	void *bytes;
	size_t len_bytes;

	OK(store_mem_open(&dirs, &err));
	assert_false(store_is_flat(dirs));
	FAILS(PAWL_ENOTSUP, store_put_if(dirs, "f", "x", 1, NULL, etag, &err));
	FAILS(PAWL_ENOTSUP, store_read_etag(dirs, "f", &bytes, &len_bytes, 9, etag, &err));
	store_close(dirs);
}

/* The answer of a put is lost: an error, but the object may be the new one. */
static void an_answer_can_be_lost(void **state)
{
	const struct store_fault_plan plan = {.what = STORE_FAULT_UNANSWERED,
		.nth = 1,
		.code = PAWL_EIO};
	char etag[STORE_ETAG_MAX];
	char found[STORE_ETAG_MAX];
	void *bytes;
	size_t len_bytes;

	store_fault_set(store, &plan);
	FAILS(PAWL_EIO, store_put_if(store, "f", "one", 3, NULL, etag, &err));
	assert_holds(store, "f", "one");
	store_fault_set(store, &plan);
	OK(store_read_etag(store, "f", &bytes, &len_bytes, 9, found, &err)); /* changes nothing */
	free(bytes);
	store_fault_set(store, &plan);
	FAILS(PAWL_EIO, store_remove(store, "f", &err));
	assert_absent(store, "f");
	store_fault_set(store, &plan);
	FAILS(PAWL_EIO, store_write_small(store, "f", "two", 3, &err));
	assert_holds(store, "f", "two");
}

/* The answer is lost of an upload that is completed, and of a write to it: both have happened. */
static void answers_of_uploads_can_be_lost(void **state)
{
	const struct store_fault_plan plan = {.what = STORE_FAULT_UNANSWERED,
		.nth = 1,
		.code = PAWL_EIO};
	void *block = aligned_alloc(STORE_ALIGN, STORE_ALIGN);
	struct store_io io = {.buf = block, .len_bytes = STORE_ALIGN, .write = true};

	assert_non_null(block);
	memset(block, 'x', STORE_ALIGN);
	OK(store_create(store, "f", 0, &io.file, &err));
	store_fault_set(store, &plan);
	OK(store_submit(store, &io, &err));
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(io.rv, PAWL_EIO);
	OK(store_resize(store, io.file, 2, &err));
	store_fault_set(store, &plan);
	FAILS(PAWL_EIO, store_sync(store, io.file, &err));
	assert_holds(store, "f", "xx");
	store_close_file(store, io.file);
	assert_holds(store, "f", "xx");
	free(block);
}

/* A read with an etag can lie as any other read can. */
static void short_read_lies(void **state)
{
	const struct store_fault_plan plan = {.what = STORE_FAULT_SHORT, .nth = 1};
	char etag[STORE_ETAG_MAX];
	void *bytes;
	size_t len_bytes;

	put("f", "1234");
	store_fault_set(store, &plan);
	OK(store_read_etag(store, "f", &bytes, &len_bytes, 9, etag, &err));
	assert_int_equal(len_bytes, 4);
	assert_memory_equal(bytes, "12\0\0", 4);
	free(bytes);
}

/* A put is never torn: it happens, or it does not. */
static void puts_are_not_torn(void **state)
{
	const struct store_fault_plan plan = {.what = STORE_FAULT_TEAR,
		.nth = 1,
		.code = PAWL_ENOSPC};
	char etag[STORE_ETAG_MAX];

	put("f", "old");
	store_fault_set(store, &plan);
	FAILS(PAWL_ENOSPC, store_write_small(store, "f", "new bytes", 9, &err));
	assert_holds(store, "f", "old");
	store_fault_set(store, &plan);
	FAILS(PAWL_ENOSPC, store_put_if(store, "g", "new bytes", 9, NULL, etag, &err));
	assert_absent(store, "g");
}

/* ---- power ---- */

/* Operations in their order, until one fails. */
static int write_three(void)
{
	struct store_file *file;
	char etag[STORE_ETAG_MAX];
	int rv = store_create(mem, "up", 0, &file, &err);

	if (rv == 0) {
		rv = store_resize(mem, file, 2, &err);
		rv = rv == 0 ? store_sync(mem, file, &err) : rv;
		store_close_file(mem, file);
	}
	rv = rv == 0 ? store_put_if(mem, "put", "p", 1, NULL, etag, &err) : rv;
	return rv == 0 ? store_remove(mem, "up", &err) : rv;
}

/* Each operation has happened or not, whatever the crash does to what is not synced. */
static void operations_are_durable_at_once(void **state)
{
	static const bool up[] = {false, true, true, false};
	struct store *after;

	for (uint64_t done = 0; done <= 3; done++) {
		assert_int_equal(open_both(state), 0);
		store_mem_cut_at(mem, done + 1);
		assert_int_equal(write_three() == 0, done == 3);
		assert_int_equal(store_mem_after_crash(mem, MEM_LOSE, NULL, &after, &err), 0);
		assert_true(store_is_flat(after));
		assert_int_equal(store_stat(after, "up", NULL, NULL, NULL) == 0, up[done]);
		assert_int_equal(store_stat(after, "put", NULL, NULL, NULL) == 0, done >= 2);
		store_close(after);
		assert_int_equal(close_both(state), 0);
	}
}

/* A removal of many objects can stop between any two of them. */
static void each_object_is_removed_by_itself(void **state)
{
	static const char *const paths[] = {"d", "e/1", "e/2/x", "e/3"};
	struct store *after;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		put(paths[i], "");
	}
	store_mem_cut_at(mem, store_mem_ops(mem) + 3);
	FAILS(PAWL_EIO, store_remove(store, "e", &err));
	FAILS(PAWL_EIO, store_stat(store, "d", NULL, NULL, &err)); /* reads fail, too */
	FAILS(PAWL_EIO, store_list(store, "", NULL, NULL, &err));
	OK(store_mem_after_crash(mem, MEM_LOSE, NULL, &after, &err));
	assert_holds(after, "d", "");
	assert_absent(after, "e/1");
	assert_absent(after, "e/2");
	assert_holds(after, "e/3", "");
	store_close(after);
}

static void a_publish_is_one_put(void **state)
{
	OK(store_publish(store, "d/f", "old", 3, &err));
	OK(store_publish(store, "d/f", "new", 3, &err));
	assert_string_equal(store_mem_trace(mem), "put d/f\nput d/f\n");
	assert_holds(store, "d/f", "new");
}

static void etags_do_not_repeat_after_a_crash(void **state)
{
	char first[STORE_ETAG_MAX];
	char second[STORE_ETAG_MAX];
	struct store *after;

	OK(store_put_if(store, "f", "one", 3, NULL, first, &err));
	OK(store_remove(store, "f", &err));
	OK(store_mem_after_crash(mem, MEM_LOSE, NULL, &after, &err));
	OK(store_put_if(after, "f", "one", 3, NULL, second, &err));
	assert_string_not_equal(first, second);
	store_close(after);
}

static void the_trace_names_each_operation(void **state)
{
	assert_int_equal(write_three(), 0);
	assert_string_equal(store_mem_trace(mem), "complete up\nput put\nremove up\n");
	assert_int_equal(store_mem_ops(mem), 3);
	put("f", "a");
	OK(store_mem_flip(mem, "f", 1, &err));
	assert_holds(store, "f", "c");
	FAILS(PAWL_EINVAL, store_mem_flip(mem, "f", 8, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(directories_are_not_needed, open_both, close_both),
		cmocka_unit_test_setup_teardown(names_are_listed_once, open_both, close_both),
		cmocka_unit_test_setup_teardown(uploads_are_seen_once_they_are_complete, open_both,
			close_both),
		cmocka_unit_test_setup_teardown(uploads_can_be_read_back, open_both, close_both),
		cmocka_unit_test_setup_teardown(uploads_of_one_path_are_apart, open_both,
			close_both),
		cmocka_unit_test_setup_teardown(failed_uploads_stay_failed, open_both, close_both),
		cmocka_unit_test_setup_teardown(replaced_objects_are_not_mixed, open_both,
			close_both),
		cmocka_unit_test_setup_teardown(one_of_two_writers_wins, open_both, close_both),
		cmocka_unit_test_setup_teardown(stores_of_directories_have_no_etags, open_both,
			close_both),
		cmocka_unit_test_setup_teardown(an_answer_can_be_lost, open_both, close_both),
		cmocka_unit_test_setup_teardown(answers_of_uploads_can_be_lost, open_both,
			close_both),
		cmocka_unit_test_setup_teardown(short_read_lies, open_both, close_both),
		cmocka_unit_test_setup_teardown(puts_are_not_torn, open_both, close_both),
		cmocka_unit_test(operations_are_durable_at_once),
		cmocka_unit_test_setup_teardown(each_object_is_removed_by_itself, open_both,
			close_both),
		cmocka_unit_test_setup_teardown(a_publish_is_one_put, open_both, close_both),
		cmocka_unit_test_setup_teardown(etags_do_not_repeat_after_a_crash, open_both,
			close_both),
		cmocka_unit_test_setup_teardown(the_trace_names_each_operation, open_both,
			close_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
