/* One suite that every store passes: what store.h promises, and no more. Run against posix
 * (io_uring and threads), mem, and the fault store while it behaves; the flat stores pass what does
 * not need directories (test_store_flat.c has what only they do). The bucket is on a server of the
 * test's own, or on a real one: PAWL_TEST_BUCKET is the address of a bucket on it; test_buckets.py
 * starts such servers. */
#include "../lib/expect.h"
#include "../lib/s3_server.h"
#include "../lib/seed.h"
#include "base/assert.h"
#include "base/err.h"
#include "base/rng.h"
#include "store/dirs.h"
#include "store/fault.h"
#include "store/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t seed;
static struct store *store;
static struct pawl_err err;
static char root[64];            /* root of a posix store */
static uint64_t buckets;         /* opened so far */
static struct s3_server *server; /* has the buckets, but for one that PAWL_TEST_BUCKET names */
static char address[512];        /* address of the bucket that is open */

/* ---- the stores ---- */

static int open_posix(void **state)
{
	snprintf(root, sizeof(root), "/tmp/pawl store\n\xc3\xa9 XXXXXX");
	assert_non_null(mkdtemp(root));
	return store_posix_open(root, true, &store, &err);
}

static int open_posix_uring(void **state)
{
	unsetenv("PAWL_NO_URING");
	return open_posix(state);
}

static int open_posix_threads(void **state)
{
	setenv("PAWL_NO_URING", "1", 1);
	return open_posix(state);
}

/* Names that begin with a dot are in another directory. */
static int open_posix_split(void **state)
{
	char hidden[128];

	unsetenv("PAWL_NO_URING");
	snprintf(root, sizeof(root), "/tmp/pawl split XXXXXX");
	assert_non_null(mkdtemp(root));
	snprintf(hidden, sizeof(hidden), "%s.hidden", root);
	return store_posix_open_split(root, hidden, true, &store, &err);
}

static int empty_dir(void *user, const char *name, enum store_kind kind)
{
	char(*names)[STORE_NAME_MAX] = user;

	for (; (*names)[0] != '\0'; names++) {
	}
	snprintf(*names, sizeof(*names), "%s", name);
	return 0;
}

static int close_posix(void **state)
{
	char names[64][STORE_NAME_MAX] = {{0}};

	store_list(store, "", empty_dir, names, NULL);
	for (unsigned i = 0; names[i][0] != '\0'; i++) {
		store_remove(store, names[i], NULL);
	}
	store_close(store);
	return rmdir(root);
}

static int close_split(void **state)
{
	char hidden[128];

	snprintf(hidden, sizeof(hidden), "%s.hidden", root);
	return close_posix(state) | rmdir(hidden);
}

static int open_mem(void **state)
{
	return store_mem_open(&store, &err);
}

static int open_fault(void **state)
{
	struct store *inner;

	return store_mem_open(&inner, &err) != 0 ||
		store_fault_open(inner, NULL, &store, &err) != 0;
}

static int open_flat(void **state)
{
	return store_mem_open_flat(&store, &err);
}

static int open_flat_fault(void **state)
{
	struct store *inner;

	return store_mem_open_flat(&inner, &err) != 0 ||
		store_fault_open(inner, NULL, &store, &err) != 0;
}

static int open_bucket(void **state)
{
	const char *bucket = getenv("PAWL_TEST_BUCKET");

	snprintf(address, sizeof(address), "%s/%d-%" PRIu64, bucket != NULL ? bucket : S3_ADDRESS,
		(int)getpid(), ++buckets);
	return store_bucket_open(address, &store, &err);
}

/* On the own server, whatever PAWL_TEST_BUCKET names. */
static int open_own_bucket(const char *bucket)
{
	s3_server_setenv(server);
	snprintf(address, sizeof(address), "%s/%" PRIu64, bucket, ++buckets);
	return store_bucket_open(address, &store, &err);
}

static int open_gs_bucket(void **state)
{
	return open_own_bucket(GS_ADDRESS);
}

static int open_azure_bucket(void **state)
{
	return open_own_bucket(AZURE_ADDRESS);
}

static int close_bucket(void **state)
{
	char names[64][STORE_NAME_MAX] = {{0}};
	int rv = store_list(store, "", empty_dir, names, &err);

	for (unsigned i = 0; rv == 0 && names[i][0] != '\0'; i++) {
		rv = store_remove(store, names[i], &err);
	}
	store_close(store);
	return rv;
}

static int close_any(void **state)
{
	store_close(store);
	return 0;
}

/* ---- helpers ---- */

static void *aligned(size_t len_bytes)
{
	void *p = aligned_alloc(STORE_ALIGN, len_bytes);

	assert_non_null(p);
	memset(p, 0, len_bytes);
	return p;
}

/* Does one transfer, start to end. */
static int transfer(struct store_file *file, bool write, void *buf, size_t len, uint64_t off)
{
	struct store_io io = {.file = file,
		.buf = buf,
		.len_bytes = len,
		.off_bytes = off,
		.write = write};

	OK(store_submit(store, &io, &err));
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_null(store_reap(store, -1));
	return io.rv;
}

static void put(const char *path, const char *text)
{
	OK(store_write_small(store, path, text, strlen(text), &err));
}

/* Expects the file to hold exactly text. */
static void assert_holds(const char *path, const char *text)
{
	void *bytes;
	size_t len;

	OK(store_read_small(store, path, &bytes, &len, 1 << 20, &err));
	assert_int_equal(len, strlen(text));
	assert_string_equal(bytes, text); /* a NUL is behind it */
	free(bytes);
}

static void assert_absent(const char *path)
{
	FAILS(PAWL_ENOENT, store_stat(store, path, NULL, NULL, &err));
}

/* ---- small files ---- */

static void small_files(void **state)
{
	void *bytes = NULL;
	size_t len = 7;

	put("a", "one");
	assert_holds("a", "one");
	put("a", "2");
	assert_holds("a", "2");
	put("a", "");
	assert_holds("a", "");
	OK(store_append_small(store, "log", "x,", 2, true, &err));
	OK(store_append_small(store, "log", "y", 1, true, &err));
	assert_holds("log", "x,y");
	FAILS(PAWL_ELIMIT, store_read_small(store, "log", &bytes, &len, 2, &err));
	FAILS(PAWL_ENOENT, store_read_small(store, "none", &bytes, &len, 100, &err));
	OK(store_mkdir(store, "d", &err));
	FAILS(PAWL_EINVAL, store_read_small(store, "d", &bytes, &len, 100, &err));
	assert_null(bytes); /* set only on success */
	assert_int_equal(len, 7);
	FAILS(PAWL_ENOENT, store_write_small(store, "no/a", "x", 1, &err));
	FAILS(PAWL_EIO, store_write_small(store, "d", "x", 1, &err));
	OK(store_read_small(store, "log", &bytes, &len, 3, &err));
	free(bytes);
}

static void publish_replaces(void **state)
{
	OK(store_mkdir(store, "tag", &err));
	OK(store_publish(store, "tag/complete.txt", "OK", 2, &err));
	assert_holds("tag/complete.txt", "OK");
	OK(store_publish(store, "tag/complete.txt", "again", 5, &err));
	assert_holds("tag/complete.txt", "again");
	assert_absent("tag/complete.txt.new");
	OK(store_publish(store, "top", "", 0, &err));
	assert_holds("top", "");
	FAILS(PAWL_ENOENT, store_publish(store, "none/x", "OK", 2, &err));
	assert_memory_equal(err.msg, "publish none/x: ", 16);
}

/* ---- names ---- */

static void directories(void **state)
{
	enum store_kind kind = STORE_FILE;
	uint64_t size = 1;

	OK(store_mkdir(store, "d", &err));
	OK(store_mkdir(store, "d", &err)); /* exists already */
	OK(store_mkdir(store, "d/e", &err));
	FAILS(PAWL_ENOENT, store_mkdir(store, "x/y", &err));
	put("f", "12345");
	FAILS(PAWL_EEXIST, store_mkdir(store, "f", &err));
	OK(store_stat(store, "d/e", &kind, &size, &err));
	assert_int_equal(kind, STORE_DIR);
	assert_int_equal(size, 0);
	OK(store_stat(store, "f", &kind, &size, &err));
	assert_int_equal(kind, STORE_FILE);
	assert_int_equal(size, 5);
	OK(store_stat(store, "", &kind, NULL, &err));
	assert_int_equal(kind, STORE_DIR);
	assert_absent("g");
	OK(store_sync_dir(store, "", &err));
	OK(store_sync_dir(store, "d/e", &err));
	FAILS(PAWL_ENOENT, store_sync_dir(store, "g", &err));
	FAILS(PAWL_EIO, store_sync_dir(store, "f", &err));
}

struct listing {
	unsigned files;
	unsigned dirs;
	unsigned stop_after; /* 0: never */
	char last[STORE_NAME_MAX];
};

static int count_name(void *user, const char *name, enum store_kind kind)
{
	struct listing *l = user;

	assert_string_not_equal(name, ".");
	assert_string_not_equal(name, "..");
	l->files += kind == STORE_FILE;
	l->dirs += kind == STORE_DIR;
	snprintf(l->last, sizeof(l->last), "%s", name);
	return l->stop_after != 0 && l->files + l->dirs == l->stop_after;
}

static void lists(void **state)
{
	struct listing all = {0};
	struct listing two = {.stop_after = 2};
	struct listing one = {0};
	struct listing none = {0};

	put("a", "");
	put("b", "");
	OK(store_mkdir(store, "d", &err));
	put("d/with space\n\xc3\xbc", "");
	OK(store_mkdir(store, "d2", &err));
	OK(store_list(store, "", count_name, &all, &err));
	assert_int_equal(all.files, 2);
	assert_int_equal(all.dirs, 2);
	OK(store_list(store, "", count_name, &two, &err));
	assert_int_equal(two.files + two.dirs, 2);
	OK(store_list(store, "d", count_name, &one, &err));
	assert_string_equal(one.last, "with space\n\xc3\xbc");
	assert_holds("d/with space\n\xc3\xbc", "");
	OK(store_list(store, "d2", count_name, &none, &err));
	assert_int_equal(none.files + none.dirs, 0);
	FAILS(PAWL_ENOENT, store_list(store, "x", count_name, &none, &err));
	FAILS(PAWL_EIO, store_list(store, "a", count_name, &none, &err));
	OK(store_refresh_dir(store, "", &err));
	OK(store_refresh_dir(store, "d", &err));
	FAILS(PAWL_ENOENT, store_refresh_dir(store, "x", &err));
}

static void renames(void **state)
{
	OK(store_mkdir(store, "d", &err));
	OK(store_mkdir(store, "e", &err));
	put("d/a", "A");
	put("b", "B");
	OK(store_rename(store, "d/a", "b", STORE_REPLACE, &err)); /* across, onto a file */
	assert_holds("b", "A");
	assert_absent("d/a");
	OK(store_rename(store, "d", "e", STORE_REPLACE, &err)); /* onto an empty directory */
	assert_absent("d");
	put("e/x", "X");
	OK(store_mkdir(store, "full", &err));
	put("full/y", "Y");
	FAILS(PAWL_EEXIST, store_rename(store, "e", "full", STORE_REPLACE, &err));
	assert_holds("e/x", "X"); /* unchanged */
	assert_holds("full/y", "Y");
	OK(store_rename(store, "e", "full/e", STORE_REPLACE, &err)); /* moves all that is beneath */
	assert_holds("full/e/x", "X");
	FAILS(PAWL_ENOENT, store_rename(store, "none", "z", STORE_REPLACE, &err));
	FAILS(PAWL_ENOENT, store_rename(store, "b", "none/z", STORE_REPLACE, &err));
	FAILS(PAWL_EIO, store_rename(store, "b", "full", STORE_REPLACE, &err));
	FAILS(PAWL_EIO, store_rename(store, "full", "b", STORE_REPLACE, &err));
	FAILS(PAWL_EIO, store_rename(store, "full", "full/e/f", STORE_REPLACE, &err));
	OK(store_rename(store, "b", "b", STORE_REPLACE, &err));
	assert_holds("b", "A");
}

static void exchanges(void **state)
{
	OK(store_mkdir(store, "d", &err));
	OK(store_mkdir(store, "d.new", &err));
	put("d/v", "old");
	put("d.new/v", "new");
	put("f", "file");
	if (store_rename(store, "d", "d.new", STORE_EXCHANGE, &err) == PAWL_ENOTSUP) {
		printf("skipped: %s\n", err.msg);
		skip();
	}
	assert_holds("d/v", "new");
	assert_holds("d.new/v", "old");
	OK(store_rename(store, "f", "d/v", STORE_EXCHANGE, &err));
	assert_holds("f", "new");
	assert_holds("d/v", "file");
	FAILS(PAWL_ENOENT, store_rename(store, "f", "none", STORE_EXCHANGE, &err));
	FAILS(PAWL_ENOENT, store_rename(store, "none", "f", STORE_EXCHANGE, &err));
	assert_holds("f", "new");
}

static void removes(void **state)
{
	char path[STORE_PATH_MAX] = "deep";

	OK(store_remove(store, "none", &err));
	OK(store_remove(store, "none/none", &err));
	put("f", "x");
	OK(store_remove(store, "f", &err));
	assert_absent("f");
	OK(store_mkdir(store, path, &err));
	for (unsigned i = 1; i < STORE_NEST_MAX; i++) {
		char file[STORE_PATH_MAX];
		size_t len;

		snprintf(file, sizeof(file), "%.900s/file", path);
		put(file, "x");
		len = strlen(path);
		snprintf(path + len, sizeof(path) - len, "/d");
		OK(store_mkdir(store, path, &err));
	}
	OK(store_remove(store, "deep", &err));
	assert_absent("deep");
}

/* Returns whether this is a store in Azure, which cuts the dots at the end of a name. */
static bool is_azure(void)
{
	return strcmp(store->ops->name, "bucket") == 0 && strncmp(address, "azure:", 6) == 0;
}

static void bad_paths_are_refused(void **state)
{
	static const char *const bad[] = {"", "/", "/etc/x", "..", "../x", "a/..", "a/../b", ".",
		"./a", "a//b", "a/"};
	struct store_file *file;
	char name[STORE_PATH_MAX + 2];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		FAILS(PAWL_EINVAL, store_mkdir(store, bad[i], &err));
		FAILS(PAWL_EINVAL, store_write_small(store, bad[i], "x", 1, &err));
		FAILS(PAWL_EINVAL, store_append_small(store, bad[i], "x", 1, true, &err));
		FAILS(PAWL_EINVAL, store_create(store, bad[i], 0, &file, &err));
		FAILS(PAWL_EINVAL, store_open(store, bad[i], &file, NULL, &err));
		FAILS(PAWL_EINVAL, store_remove(store, bad[i], &err));
		FAILS(PAWL_EINVAL, store_rename(store, bad[i], "x", STORE_REPLACE, &err));
		FAILS(PAWL_EINVAL, store_rename(store, "x", bad[i], STORE_REPLACE, &err));
		FAILS(PAWL_EINVAL, store_publish(store, bad[i], "x", 1, &err));
	}
	OK(store_write_small(store, "..a", "x", 1, &err)); /* only begins with two dots */
	if (is_azure()) {
		FAILS(PAWL_EINVAL, store_write_small(store, "...", "x", 1, &err));
	} else {
		OK(store_write_small(store, "...", "x", 1, &err));
	}
	memset(name, 'n', sizeof(name));
	name[STORE_NAME_MAX - 1] = '\0';
	OK(store_write_small(store, name, "x", 1, &err));
	name[STORE_NAME_MAX - 1] = 'n';
	name[STORE_NAME_MAX] = '\0';
	FAILS(PAWL_ELIMIT, store_write_small(store, name, "x", 1, &err));
	name[STORE_NAME_MAX] = 'n';
	for (unsigned i = 200; i < sizeof(name); i += 200) {
		name[i] = '/';
	}
	name[STORE_PATH_MAX] = '\0';
	FAILS(PAWL_ELIMIT, store_stat(store, name, NULL, NULL, &err));
	for (unsigned i = 0; i < 2 * STORE_NEST_MAX + 1; i++) {
		name[i] = i % 2 == 0 ? 'd' : '/';
	}
	name[2 * STORE_NEST_MAX + 1] = '\0';
	FAILS(PAWL_ELIMIT, store_stat(store, name, NULL, NULL, &err));
}

/* ---- transfers ---- */

static void created_file_has_its_size(void **state)
{
	struct store_file *file;
	uint64_t size;
	char *buf = aligned(2 * STORE_ALIGN);
	static const char zeros[2 * STORE_ALIGN];

	put("f", "what was there before");
	OK(store_create(store, "f", 2 * STORE_ALIGN, &file, &err));
	OK(store_stat(store, "f", NULL, &size, &err));
	assert_int_equal(size, 2 * STORE_ALIGN);
	memset(buf, 'x', 2 * STORE_ALIGN);
	assert_int_equal(transfer(file, false, buf, 2 * STORE_ALIGN, 0), 0);
	assert_memory_equal(buf, zeros, 2 * STORE_ALIGN);
	store_close_file(store, file);
	OK(store_create(store, "f", 0, &file, &err));
	OK(store_stat(store, "f", NULL, &size, &err));
	assert_int_equal(size, 0);
	assert_int_equal(transfer(file, true, buf, STORE_ALIGN, STORE_ALIGN), 0); /* extends */
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	OK(store_open(store, "f", &file, &size, &err));
	assert_int_equal(size, 2 * STORE_ALIGN);
	store_close_file(store, file);
	store_close_file(store, NULL);
	free(buf);
}

static void opens_fail_by_name(void **state)
{
	struct store_file *file = NULL;

	FAILS(PAWL_ENOENT, store_open(store, "none", &file, NULL, &err));
	OK(store_mkdir(store, "d", &err));
	FAILS(PAWL_EINVAL, store_open(store, "d", &file, NULL, &err));
	FAILS(PAWL_EIO, store_create(store, "d", 0, &file, &err));
	FAILS(PAWL_ENOENT, store_create(store, "none/f", 0, &file, &err));
	assert_null(file);
}

static void read_past_the_end_is_corrupt(void **state)
{
	struct store_file *file;
	char *buf = aligned(2 * STORE_ALIGN);

	OK(store_create(store, "f", STORE_ALIGN, &file, &err));
	assert_int_equal(transfer(file, true, buf, STORE_ALIGN, 0), 0);
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	put("odd", "not a multiple of anything");
	OK(store_open(store, "f", &file, NULL, &err));
	assert_int_equal(transfer(file, false, buf, STORE_ALIGN, 0), 0);
	assert_int_equal(transfer(file, false, buf, 2 * STORE_ALIGN, 0), PAWL_ECORRUPT);
	assert_int_equal(transfer(file, false, buf, STORE_ALIGN, STORE_ALIGN), PAWL_ECORRUPT);
	assert_int_equal(transfer(file, false, buf, STORE_ALIGN, 1 << 20), PAWL_ECORRUPT);
	store_close_file(store, file);
	/* The last block of a file need not be whole. */
	OK(store_open(store, "odd", &file, NULL, &err));
	assert_int_equal(transfer(file, false, buf, STORE_ALIGN, 0), 0);
	assert_memory_equal(buf, "not a multiple of anything", 26);
	assert_int_equal(transfer(file, false, buf, 2 * STORE_ALIGN, 0), PAWL_ECORRUPT);
	assert_int_equal(transfer(file, false, buf, STORE_ALIGN, STORE_ALIGN), PAWL_ECORRUPT);
	store_close_file(store, file);
	free(buf);
}

static void resized_file_has_its_size(void **state)
{
	struct store_file *file;
	uint64_t size = 0;
	char *buf = aligned(2 * STORE_ALIGN);

	OK(store_create(store, "f", STORE_ALIGN + 10, &file, &err));
	memset(buf, 'r', 2 * STORE_ALIGN);
	assert_int_equal(transfer(file, true, buf, 2 * STORE_ALIGN, 0), 0);
	OK(store_resize(store, file, STORE_ALIGN + 10, &err));
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	OK(store_open(store, "f", &file, &size, &err));
	assert_int_equal(size, STORE_ALIGN + 10);
	memset(buf, 0, 2 * STORE_ALIGN);
	assert_int_equal(transfer(file, false, buf, 2 * STORE_ALIGN, 0), 0);
	for (size_t i = 0; i < size; i++) {
		assert_int_equal(buf[i], 'r');
	}
	store_close_file(store, file);
	free(buf);
}

static void links(void **state)
{
	put("f", "the same");
	OK(store_mkdir(store, ".d", &err));
	OK(store_link(store, "f", ".d/g", &err));
	FAILS(PAWL_EEXIST, store_link(store, "f", ".d/g", &err));
	FAILS(PAWL_ENOENT, store_link(store, "none", "h", &err));
	FAILS(PAWL_ENOENT, store_link(store, "f", "none/h", &err));
	FAILS(PAWL_EINVAL, store_link(store, "f", "../h", &err));
	assert_true(store_link(store, ".d", "h", &err) < 0); /* a directory */
	OK(store_remove(store, "f", &err));
	assert_holds(".d/g", "the same");
	OK(store_rename(store, ".d", "d", STORE_REPLACE, &err));
	assert_holds("d/g", "the same");
}

/* The store maps the file or refuses, as it likes: the bytes are the same, also once the name is
 * gone, and transfers work as before. */
static void maps_or_refuses(void **state)
{
	struct store_file *file;
	const uint8_t *mapped = NULL;
	char *buf = aligned(2 * STORE_ALIGN);
	char text[2 * STORE_ALIGN + 1];
	int rv;

	memset(text, 'm', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	put("f", text);
	OK(store_open(store, "f", &file, NULL, &err));
	rv = store_map(store, file, &mapped, &err);
	if (rv != 0) {
		assert_int_equal(rv, PAWL_ENOTSUP);
		assert_int_equal(err.code, PAWL_ENOTSUP);
		assert_null(mapped);
	}
	OK(store_remove(store, "f", &err));
	put("f", "another file");
	assert_true(rv != 0 || memcmp(mapped, text, 2 * STORE_ALIGN) == 0);
	assert_int_equal(transfer(file, false, buf, 2 * STORE_ALIGN, 0), 0);
	assert_memory_equal(buf, text, 2 * STORE_ALIGN);
	store_close_file(store, file);
	free(buf);
}

#define BLOCKS 200u

static void fill_block(uint64_t *block, unsigned number)
{
	struct rng r = {seed + number};

	for (size_t i = 0; i < STORE_ALIGN / sizeof(*block); i++) {
		block[i] = rng_u64(&r);
	}
}

/* Moves every block of the file once, in random order, with the queue as full as it may be. */
static void move_all(struct store_file *file, bool write, unsigned char *area, unsigned *order)
{
	struct store_io ios[STORE_DEPTH] = {{0}};
	struct store_io *idle[STORE_DEPTH];
	unsigned idle_n = STORE_DEPTH;
	unsigned seen[BLOCKS] = {0};
	unsigned sent = 0;

	for (unsigned i = 0; i < STORE_DEPTH; i++) {
		idle[i] = &ios[i];
	}
	for (unsigned done = 0; done < BLOCKS; done++) {
		struct store_io *io;

		while (sent < BLOCKS && idle_n > 0) {
			uint64_t off = (uint64_t)order[sent++] * STORE_ALIGN;

			io = idle[--idle_n];
			*io = (struct store_io){.file = file,
				.buf = area + off,
				.len_bytes = STORE_ALIGN,
				.off_bytes = off,
				.write = write,
				.rv = -99,
				.user = &seen[off / STORE_ALIGN]};
			OK(store_submit(store, io, &err));
		}
		io = store_reap(store, -1);
		assert_non_null(io);
		assert_int_equal(io->rv, 0);
		++*(unsigned *)io->user;
		idle[idle_n++] = io;
	}
	assert_null(store_reap(store, 0));
	for (unsigned i = 0; i < BLOCKS; i++) {
		assert_int_equal(seen[i], 1);
	}
}

static void shuffle(struct rng *rng, unsigned *order)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		unsigned j = (unsigned)rng_below(rng, i + 1);

		order[i] = order[j];
		order[j] = i;
	}
}

static void full_queue_exactly_once(void **state)
{
	struct rng rng = {seed};
	unsigned order[BLOCKS];
	unsigned char *area = aligned(BLOCKS * STORE_ALIGN);
	unsigned char *back = aligned(BLOCKS * STORE_ALIGN);
	struct store_file *file;
	uint64_t size;

	for (unsigned i = 0; i < BLOCKS; i++) {
		fill_block((uint64_t *)(area + i * STORE_ALIGN), i);
	}
	for (unsigned reserve = 0; reserve <= 1; reserve++) {
		OK(store_create(store, "f", reserve * BLOCKS * STORE_ALIGN, &file, &err));
		shuffle(&rng, order);
		move_all(file, true, area, order);
		OK(store_sync(store, file, &err));
		store_close_file(store, file);
		OK(store_sync_dir(store, "", &err));
		OK(store_open(store, "f", &file, &size, &err));
		assert_int_equal(size, BLOCKS * STORE_ALIGN);
		shuffle(&rng, order);
		memset(back, 0, BLOCKS * STORE_ALIGN);
		move_all(file, false, back, order);
		store_close_file(store, file);
		assert_memory_equal(area, back, BLOCKS * STORE_ALIGN);
	}
	free(area);
	free(back);
}

static void file_survives_its_name(void **state)
{
	struct store_file *file;
	char *buf = aligned(STORE_ALIGN);

	OK(store_create(store, "f.new", STORE_ALIGN, &file, &err));
	OK(store_rename(store, "f.new", "f", STORE_REPLACE, &err));
	memset(buf, 'q', STORE_ALIGN);
	assert_int_equal(transfer(file, true, buf, STORE_ALIGN, 0), 0);
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	OK(store_open(store, "f", &file, NULL, &err));
	OK(store_remove(store, "f", &err));
	memset(buf, 0, STORE_ALIGN);
	assert_int_equal(transfer(file, false, buf, STORE_ALIGN, 0), 0);
	assert_int_equal(buf[STORE_ALIGN - 1], 'q');
	store_close_file(store, file);
	free(buf);
}

/* ---- every behaviour with every store ---- */

struct behaviour {
	const char *name;
	CMUnitTestFunction check;
};

struct kind {
	const char *name;
	CMFixtureFunction open;
	CMFixtureFunction close;
};

static const struct behaviour behaviours[] = {
	{"removes", removes},
	{"bad_paths_are_refused", bad_paths_are_refused},
	{"read_past_the_end_is_corrupt", read_past_the_end_is_corrupt},
	{"resized_file_has_its_size", resized_file_has_its_size},
	{"full_queue_exactly_once", full_queue_exactly_once},
	/* The first FLAT_N need no directories. */
	{"small_files", small_files},
	{"publish_replaces", publish_replaces},
	{"directories", directories},
	{"lists", lists},
	{"renames", renames},
	{"exchanges", exchanges},
	{"created_file_has_its_size", created_file_has_its_size},
	{"opens_fail_by_name", opens_fail_by_name},
	{"links", links},
	{"maps_or_refuses", maps_or_refuses},
	{"file_survives_its_name", file_survives_its_name},
};

static const struct kind kinds[] = {
	{"posix io_uring", open_posix_uring, close_posix},
	{"posix threads", open_posix_threads, close_posix},
	{"posix split", open_posix_split, close_split},
	{"mem", open_mem, close_any},
	{"fault", open_fault, close_any},
	{"flat mem", open_flat, close_any},
	{"flat fault", open_flat_fault, close_any},
	{"bucket", open_bucket, close_bucket},
	/* The last ones set variables. */
	{"bucket of Google's", open_gs_bucket, close_bucket},
	{"container of Azure's", open_azure_bucket, close_bucket},
};

#define BEHAVIOURS_N (sizeof(behaviours) / sizeof(behaviours[0]))
#define KINDS_N      (sizeof(kinds) / sizeof(kinds[0]))
#define FLAT_N       5u /* behaviours that need no directories */
#define FLAT_KINDS_N 5u

static char names[KINDS_N][BEHAVIOURS_N][64];

/* Makes a test of each of the first n behaviours with the k-th kind of store. */
static void list_tests(struct CMUnitTest *tests, size_t n, size_t k)
{
	for (size_t b = 0; b < n; b++) {
		snprintf(names[k][b], sizeof(names[k][b]), "%s: %s", kinds[k].name,
			behaviours[b].name);
		tests[b] = (struct CMUnitTest){names[k][b], behaviours[b].check, kinds[k].open,
			kinds[k].close, NULL};
	}
}

static int start_server(void **state)
{
	server = s3_server_start();
	if (getenv("PAWL_TEST_BUCKET") == NULL) {
		s3_server_setenv(server);
	}
	return 0;
}

static int stop_server(void **state)
{
	s3_server_stop(server);
	return 0;
}

int main(void)
{
	struct CMUnitTest tests[(KINDS_N - FLAT_KINDS_N) * BEHAVIOURS_N + FLAT_KINDS_N * FLAT_N];
	size_t n = 0;

	for (size_t k = 0; k < KINDS_N; k++) {
		size_t of_kind = k < KINDS_N - FLAT_KINDS_N ? BEHAVIOURS_N : FLAT_N;

		list_tests(tests + n, of_kind, k);
		n += of_kind;
	}
	seed = test_seed();
	ASSERT(n == sizeof(tests) / sizeof(tests[0]));
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
