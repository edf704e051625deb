/* What a store in a bucket does beyond the suite of all stores: uploads in parts, runs of reads,
 * conditions, listings. On a server of its own, or on a real one: PAWL_TEST_BUCKET is the address
 * of a bucket on it; test_buckets.py starts such servers. */
#include "../lib/expect.h"
#include "../lib/s3_server.h"
#include "base/err.h"
#include "store/store.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define MIB  ((size_t)1 << 20)
#define PART (16 * MIB) /* as bucket.h has it: what is longer is uploaded in parts */

static struct store *store;
static struct pawl_err err;
static char address[512];
static unsigned opened;
static struct s3_server *server; /* NULL: PAWL_TEST_BUCKET names another */

/* Pages of lists are short on the own server: a real one has 1,000 keys on a page. */
#define OWN_PAGE 100u
static unsigned page_keys = 1000;
static const char *own_address = S3_ADDRESS;

static int start_server(void **state)
{
	const struct s3_settings settings = {.page_max = OWN_PAGE};

	if (getenv("PAWL_TEST_BUCKET") == NULL) {
		server = s3_server_start();
		s3_server_setenv(server);
		s3_server_set(server, &settings);
		page_keys = OWN_PAGE;
	}
	return 0;
}

static int stop_server(void **state)
{
	if (server != NULL) {
		s3_server_stop(server);
	}
	return 0;
}

static int open_bucket(void **state)
{
	const char *bucket = getenv("PAWL_TEST_BUCKET");

	snprintf(address, sizeof(address), "%s/b%d-%u", bucket != NULL ? bucket : own_address,
		(int)getpid(), ++opened);
	return store_bucket_open(address, &store, &err);
}

/* Azure has one list of blocks for each object, and none can be dropped. */
static bool is_azure(void)
{
	return strncmp(address, "azure:", 6) == 0;
}

static int remove_name(void *user, const char *name, enum store_kind kind)
{
	char(*names)[STORE_NAME_MAX] = user;

	for (; (*names)[0] != '\0'; names++) {
	}
	snprintf(*names, sizeof(*names), "%s", name);
	return 0;
}

static int close_bucket(void **state)
{
	char names[64][STORE_NAME_MAX] = {{0}};
	int rv = store_list(store, "", remove_name, names, &err);

	for (unsigned i = 0; rv == 0 && names[i][0] != '\0'; i++) {
		rv = store_remove(store, names[i], &err);
	}
	store_close(store);
	store = NULL;
	return rv;
}

static void put(const char *path, const char *text)
{
	OK(store_write_small(store, path, text, strlen(text), &err));
}

static void assert_holds(const char *path, const char *text)
{
	void *bytes;
	size_t len_bytes;

	OK(store_read_small(store, path, &bytes, &len_bytes, 1000, &err));
	assert_int_equal(len_bytes, strlen(text));
	assert_string_equal(bytes, text);
	free(bytes);
}

/* Returns bytes that differ at every place, and between seeds. */
static uint8_t *make_bytes(size_t len_bytes, uint32_t of)
{
	uint32_t *words = aligned_alloc(STORE_ALIGN, len_bytes);

	assert_non_null(words);
	for (size_t i = 0; i < len_bytes / sizeof(*words); i++) {
		words[i] = (uint32_t)i * 2654435761u + of;
	}
	return (uint8_t *)words;
}

/* Writes or reads [off, off + len) in transfers of piece bytes, as many in flight as possible. */
static int move(struct store_file *file, bool write, uint8_t *bytes, size_t off, size_t len,
	size_t piece)
{
	size_t n = (len + piece - 1) / piece;
	struct store_io *ios = calloc(n, sizeof(*ios));
	size_t in_flight = 0, reaped = 0;
	int rv = 0;

	assert_non_null(ios);
	for (size_t i = 0; i < n || reaped < n;) {
		if (i < n && in_flight < store_depth(store)) {
			ios[i].file = file;
			ios[i].buf = bytes + off + i * piece;
			ios[i].len_bytes = len - i * piece < piece ? len - i * piece : piece;
			ios[i].off_bytes = off + i * piece;
			ios[i].write = write;
			OK(store_submit(store, &ios[i++], &err));
			in_flight++;
		} else {
			struct store_io *io = store_reap(store, -1);

			assert_non_null(io);
			rv = rv == 0 ? io->rv : rv;
			in_flight--;
			reaped++;
		}
	}
	assert_null(store_reap(store, -1));
	free(ios);
	return rv;
}

/* Expects the object to hold these bytes, read in pieces. */
static void assert_file(const char *path, const uint8_t *bytes, size_t len, size_t piece)
{
	size_t whole = (len + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN;
	uint8_t *got = aligned_alloc(STORE_ALIGN, whole);
	struct store_file *file;
	uint64_t size_bytes;

	assert_non_null(got);
	OK(store_open(store, path, &file, &size_bytes, &err));
	assert_int_equal(size_bytes, len);
	assert_int_equal(move(file, false, got, 0, whole, piece), 0);
	assert_memory_equal(got, bytes, len);
	store_close_file(store, file);
	free(got);
}

/* ---- uploads ---- */

/* Writes a file of len bytes, whose last block is padded, in order. */
static void write_file(const char *path, uint8_t *bytes, size_t len, size_t piece)
{
	size_t whole = (len + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN;
	struct store_file *file;

	OK(store_create(store, path, len, &file, &err));
	assert_int_equal(move(file, true, bytes, 0, whole, piece), 0);
	OK(store_resize(store, file, len, &err));
	FAILS(PAWL_ENOENT, store_stat(store, path, NULL, NULL, &err));
	OK(store_sync(store, file, &err));
	OK(store_sync(store, file, &err)); /* nothing is left to do */
	store_close_file(store, file);
}

static void files_of_any_length_come_back(void **state)
{
	static const size_t lengths[] = {1, STORE_ALIGN, PART - 1, PART, PART + 1, 2 * PART,
		2 * PART + 5000, 3 * PART - 17};
	uint8_t *bytes;
	char path[32];

	bytes = make_bytes(3 * PART, 1);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		snprintf(path, sizeof(path), "d/%zu", i);
		write_file(path, bytes, lengths[i], MIB);
		assert_file(path, bytes, lengths[i], MIB);
	}
	assert_file("d/5", bytes, lengths[5], 3 * STORE_ALIGN); /* runs end where they must */
	free(bytes);
}

static void order_and_gaps_do_not_matter(void **state)
{
	size_t len = 2 * PART + 4 * MIB;
	uint8_t *bytes, *zeros;
	struct store_file *file;

	bytes = make_bytes(len, 2);
	zeros = calloc(1, MIB);
	OK(store_create(store, "f", len, &file, &err));
	assert_int_equal(move(file, true, bytes, 2 * PART, 4 * MIB, MIB), 0);
	/* This one crosses the border of two parts. */
	assert_int_equal(move(file, true, bytes, PART - MIB, 2 * MIB, 2 * MIB), 0);
	assert_int_equal(move(file, true, bytes, MIB, PART - 2 * MIB, MIB), 0);
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	memset(bytes, 0, MIB);
	memset(bytes + PART + MIB, 0, PART - MIB);
	assert_file("f", bytes, len, MIB);
	free(zeros);
	free(bytes);
}

static void files_grow_and_are_cut(void **state)
{
	uint8_t *bytes;
	struct store_file *file;

	bytes = make_bytes(3 * PART, 3);
	OK(store_create(store, "grows", 0, &file, &err));
	assert_int_equal(move(file, true, bytes, 0, 2 * PART + MIB, MIB), 0);
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	assert_file("grows", bytes, 2 * PART + MIB, MIB);
	/* The last part has been uploaded when it is cut, extended, and written to. */
	OK(store_create(store, "cut", 2 * PART, &file, &err));
	assert_int_equal(move(file, true, bytes, 0, 2 * PART, MIB), 0);
	OK(store_resize(store, file, PART + 2 * MIB, &err));
	OK(store_resize(store, file, PART + 4 * MIB, &err));
	assert_int_equal(move(file, true, bytes, PART + 3 * MIB, MIB, MIB), 0);
	FAILS(PAWL_ENOTSUP, store_resize(store, file, PART - MIB, &err));
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	memset(bytes + PART + 2 * MIB, 0, MIB);
	assert_file("cut", bytes, PART + 4 * MIB, MIB);
	free(bytes);
}

static void dropped_uploads_leave_nothing(void **state)
{
	uint8_t *bytes;
	struct store_file *file;

	bytes = make_bytes(2 * PART, 4);
	put("f", "old");
	OK(store_create(store, "f", 2 * PART, &file, &err));
	assert_int_equal(move(file, true, bytes, 0, PART + MIB, MIB), 0);
	store_close_file(store, file);
	assert_holds("f", "old");
	OK(store_sweep(store, &err));
	assert_holds("f", "old");
	free(bytes);
}

static void a_swept_upload_cannot_be_completed(void **state)
{
	uint8_t *bytes;
	struct store_file *file;
	struct store *other;

	bytes = make_bytes(2 * PART, 5);
	OK(store_create(store, "d/f", 2 * PART, &file, &err));
	assert_int_equal(move(file, true, bytes, 0, 2 * PART, MIB), 0);
	OK(store_bucket_open(address, &other, &err));
	OK(store_sweep(other, &err));
	store_close(other);
	if (is_azure()) {
		OK(store_sync(store, file, &err));
	} else {
		FAILS(PAWL_EIO, store_sync(store, file, &err));
		FAILS(PAWL_EIO, store_sync(store, file, &err));
		FAILS(PAWL_ENOENT, store_stat(store, "d/f", NULL, NULL, &err));
	}
	store_close_file(store, file);
	free(bytes);
}

static void uploads_of_one_path_are_apart(void **state)
{
	uint8_t *one, *two;
	struct store_file *first, *second;

	one = make_bytes(2 * PART, 6);
	two = make_bytes(2 * PART, 7);
	OK(store_create(store, "f", 2 * PART, &first, &err));
	OK(store_create(store, "f", 2 * PART, &second, &err));
	assert_int_equal(move(first, true, one, 0, 2 * PART, MIB), 0);
	assert_int_equal(move(second, true, two, 0, 2 * PART, MIB), 0);
	OK(store_sync(store, second, &err));
	assert_file("f", two, 2 * PART, MIB);
	if (is_azure()) {
		FAILS(PAWL_EIO, store_sync(store, first, &err));
		assert_file("f", two, 2 * PART, MIB);
	} else {
		OK(store_sync(store, first, &err));
		assert_file("f", one, 2 * PART, MIB);
	}
	store_close_file(store, first);
	store_close_file(store, second);
	free(one);
	free(two);
}

/* ---- reads ---- */

static void replaced_objects_are_not_mixed(void **state)
{
	uint8_t *bytes;
	struct store_file *file;

	bytes = make_bytes(2 * MIB, 8);
	write_file("f", bytes, 2 * MIB, MIB);
	OK(store_open(store, "f", &file, NULL, &err));
	assert_int_equal(move(file, false, bytes, 0, MIB, MIB), 0);
	put("f", "new");
	assert_int_equal(move(file, false, bytes, MIB, MIB, MIB), PAWL_ECORRUPT);
	OK(store_remove(store, "f", &err));
	assert_int_equal(move(file, false, bytes, 0, MIB, MIB), PAWL_ECORRUPT);
	store_close_file(store, file);
	free(bytes);
}

static void limits_of_small_reads_hold(void **state)
{
	void *bytes = NULL;
	size_t len_bytes = 7;

	put("f", "12345");
	put("empty", "");
	assert_holds("empty", "");
	FAILS(PAWL_ELIMIT, store_read_small(store, "f", &bytes, &len_bytes, 4, &err));
	FAILS(PAWL_ENOENT, store_read_small(store, "none", &bytes, &len_bytes, 4, &err));
	assert_null(bytes);
	assert_int_equal(len_bytes, 7);
	OK(store_read_small(store, "f", &bytes, &len_bytes, 5, &err));
	free(bytes);
}

/* ---- conditions ---- */

static void one_of_two_writers_wins(void **state)
{
	char first[STORE_ETAG_MAX];
	char second[STORE_ETAG_MAX];
	char found[STORE_ETAG_MAX];
	void *bytes;
	size_t len_bytes;

	OK(store_put_if(store, "f", "one", 3, NULL, first, &err));
	FAILS(PAWL_EEXIST, store_put_if(store, "f", "two", 3, "", second, &err));
	assert_holds("f", "one");
	OK(store_read_etag(store, "f", &bytes, &len_bytes, 10, found, &err));
	assert_string_equal(found, first);
	free(bytes);
	OK(store_put_if(store, "f", "two", 3, first, second, &err));
	assert_string_not_equal(first, second);
	FAILS(PAWL_EMISMATCH, store_put_if(store, "f", "three", 5, first, found, &err));
	assert_holds("f", "two");
	OK(store_remove(store, "f", &err));
	FAILS(PAWL_EMISMATCH, store_put_if(store, "f", "three", 5, second, found, &err));
	FAILS(PAWL_ENOENT, store_stat(store, "f", NULL, NULL, &err));
}

/* ---- names ---- */

#define NAMES_MAX 200u /* bytes */

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
	put("d/e/1", "");
	put("d/f", "four");
	put("d x/\xe2\x82\xac+=&%41", "odd");
	OK(store_list(store, "d", add_name, names, &err));
	assert_true(strcmp(names, "f /e ") == 0 || strcmp(names, "/e f ") == 0);
	names[0] = '\0';
	OK(store_list(store, "d x", add_name, names, &err));
	assert_string_equal(names, "\xe2\x82\xac+=&%41 ");
	assert_holds("d x/\xe2\x82\xac+=&%41", "odd");
	OK(store_stat(store, "d/e", &kind, &size_bytes, &err));
	assert_int_equal(kind, STORE_DIR);
	assert_int_equal(size_bytes, 0);
	OK(store_stat(store, "d/f", &kind, &size_bytes, &err));
	assert_int_equal(kind, STORE_FILE);
	assert_int_equal(size_bytes, 4);
	FAILS(PAWL_EIO, store_list(store, "d/f", add_name, names, &err));
	OK(store_remove(store, "d", &err));
	FAILS(PAWL_ENOENT, store_stat(store, "d", NULL, NULL, &err));
	assert_holds("d x/\xe2\x82\xac+=&%41", "odd");
}

/* store_list_fn */
static int count_name(void *user, const char *name, enum store_kind kind)
{
	unsigned *n = user;

	return ++*n == page_keys + 1;
}

static void long_lists_have_pages(void **state)
{
	char path[32];
	unsigned n = 0;

	for (unsigned i = 0; i < page_keys + 3; i++) {
		snprintf(path, sizeof(path), "many/%04u", i);
		put(path, "");
	}
	OK(store_list(store, "many", count_name, &n, &err));
	assert_int_equal(n, page_keys + 1); /* count_name has stopped it */
	n = 2000;
	OK(store_list(store, "many", count_name, &n, &err));
	assert_int_equal(n, 2000 + page_keys + 3);
	OK(store_remove(store, "many", &err));
	FAILS(PAWL_ENOENT, store_stat(store, "many", NULL, NULL, &err));
}

/* ---- what cannot be opened ---- */

/* Fills in the address of a bucket that is not there. */
static void name_missing(char missing[512])
{
	snprintf(missing, 512, "%.*s://no-such-bucket-here/x", (int)strcspn(address, ":"), address);
	if (is_azure()) {
		snprintf(missing, 512, "%.*s/no-such-bucket-here/x",
			(int)(strlen("azure://") + strcspn(address + strlen("azure://"), "/")),
			address);
	}
}

static void what_cannot_be_opened_is_named(void **state)
{
	char missing[512];
	struct store *other;

	name_missing(missing);
	FAILS(PAWL_EIO, store_bucket_open(missing, &other, &err));
	assert_non_null(strstr(err.msg, "no-such-bucket-here"));
	FAILS(PAWL_EINVAL, store_bucket_open("s3://", &other, &err));
	FAILS(PAWL_EINVAL, store_bucket_open("s3://b/../x", &other, &err));
}

/* A bucket that is opened without a request is as good as any. A wrong one is found out late. */
static void the_first_use_may_be_the_first_request(void **state)
{
	char missing[512];
	struct store *other;
	size_t len_bytes;
	void *bytes;

	OK(store_write_small(store, "early", "x", 1, &err));
	OK(store_bucket_open_unasked(address, &other, &err));
	OK(store_read_small(other, "early", &bytes, &len_bytes, 64, &err));
	assert_int_equal(len_bytes, 1);
	free(bytes);
	store_close(other);
	FAILS(PAWL_EINVAL, store_bucket_open_unasked("s3://b/../x", &other, &err));
	if (getenv("PAWL_TEST_BUCKET") != NULL) {
		return; /* SeaweedFS makes a bucket that is written to */
	}
	name_missing(missing);
	OK(store_bucket_open_unasked(missing, &other, &err));
	assert_int_not_equal(store_write_small(other, "early", "x", 1, &err), 0);
	assert_non_null(strstr(err.msg, "early"));
	store_close(other);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_bucket, close_bucket)
	const struct CMUnitTest tests[] = {
		TEST(files_of_any_length_come_back),
		TEST(order_and_gaps_do_not_matter),
		TEST(files_grow_and_are_cut),
		TEST(dropped_uploads_leave_nothing),
		TEST(a_swept_upload_cannot_be_completed),
		TEST(uploads_of_one_path_are_apart),
		TEST(replaced_objects_are_not_mixed),
		TEST(limits_of_small_reads_hold),
		TEST(one_of_two_writers_wins),
		TEST(names_are_listed_once),
		TEST(long_lists_have_pages),
		TEST(what_cannot_be_opened_is_named),
		TEST(the_first_use_may_be_the_first_request),
	};
	int failed;

	failed = cmocka_run_group_tests(tests, start_server, stop_server);
	if (getenv("PAWL_TEST_BUCKET") == NULL) {
		own_address = GS_ADDRESS;
		failed += cmocka_run_group_tests_name("Google's API", tests, start_server,
			stop_server);
		own_address = AZURE_ADDRESS;
		failed += cmocka_run_group_tests_name("Azure's API", tests, start_server,
			stop_server);
	}
	return failed;
}
