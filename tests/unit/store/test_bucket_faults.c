/* The store in a bucket while the server, the network or the memory fails: what was written comes
 * back, what failed says why, and nothing is left behind. */
#include "../lib/each_fault.h"
#include "../lib/s3_fixture.h"
#include "../lib/s3_weather.h"
#include "../lib/seed.h"
#include "../lib/within.h"

#define BLOCK ((size_t)STORE_ALIGN)

static uint64_t seed;

static void put(const char *path, const char *text)
{
	OK(store_write_small(store, path, text, strlen(text), &err));
}

static void assert_holds(const char *path, const char *text)
{
	void *bytes;
	size_t len_bytes;

	OK(store_read_small(store, path, &bytes, &len_bytes, 1000, &err));
	assert_string_equal(bytes, text);
	free(bytes);
}

/* ---- completing ---- */

/* Writes a file of two parts with Complete spoiled once, and expects it to come back. */
static void complete_spoiled(bool again, struct s3_fault fault)
{
	size_t len = PART + BLOCK;
	uint8_t *bytes = make_bytes(len, 1);
	struct s3_settings as = {.completes_again = again};

	behave(&as);
	spoil(S3_COMPLETE, 1, fault);
	OK(write_file("f", bytes, len));
	assert_true(s3_server_holds(server, "p/f", bytes, len));
	OK(read_file_back("f", bytes, len));
	assert_int_equal(open_uploads(), 0);
	OK(store_remove(store, "f", &err));
	free(bytes);
}

static void uploads_survive_what_happens_to_complete(void **state)
{
	complete_spoiled(false, (struct s3_fault){.kind = S3_LOSE}); /* then NoSuchUpload */
	complete_spoiled(true, (struct s3_fault){.kind = S3_LOSE});  /* then 200 */
	complete_spoiled(false, (struct s3_fault){.kind = S3_RESET_ANSWER, .n = 60});
	complete_spoiled(false,
		(struct s3_fault){.kind = S3_ANSWER, .status = 200, .code = "InternalError"});
	complete_spoiled(false, (struct s3_fault){.kind = S3_ANSWER, .status = 503});
	complete_spoiled(false, (struct s3_fault){.kind = S3_RESET_REQUEST, .n = 50});
}

/* The service has dropped the upload: the writer begins anew, or gives up, but nobody reads it. */
static void uploads_that_vanish_are_named(void **state)
{
	static const enum s3_kind kinds[] = {S3_PART_PUT, S3_COMPLETE};
	const struct s3_fault gone = {.kind = S3_ANSWER, .status = 404, .code = "NoSuchUpload"};
	size_t len = PART + BLOCK;
	uint8_t *bytes = make_bytes(len, 2);

	for (size_t i = 0; i < 2; i++) {
		behave(&(struct s3_settings){.hook = NULL});
		spoil(kinds[i], 1000, gone);
		REFUSES(PAWL_EIO, write_file("f", bytes, len), "upload is gone");
		FAILS(PAWL_ENOENT, store_stat(store, "f", NULL, NULL, &err));
		assert_int_equal(open_uploads(), 0);
	}
	free(bytes);
}

static void refused_uploads_are_dropped(void **state)
{
	static const enum s3_kind kinds[] = {S3_BEGIN, S3_PART_PUT, S3_COMPLETE};
	const struct s3_fault denied = {.kind = S3_ANSWER, .status = 403, .code = "AccessDenied"};
	size_t len = 2 * PART + BLOCK;
	uint8_t *bytes = make_bytes(len, 3);

	for (size_t i = 0; i < 3; i++) {
		behave(&(struct s3_settings){.hook = NULL});
		spoil(kinds[i], 1000, denied);
		REFUSES(PAWL_EIO, write_file("f", bytes, len), "AccessDenied");
		FAILS(PAWL_ENOENT, store_stat(store, "f", NULL, NULL, &err));
		assert_int_equal(open_uploads(), 0);
	}
	free(bytes);
}

/* ---- a caller that wants nothing any more ---- */

/* Says stop from the left-th question on. */
static bool count_down(void *user)
{
	int *left = user;

	return --*left < 0;
}

static void waits_end_when_they_are_not_wanted(void **state)
{
	static const struct s3_fault ways[] = {{.kind = S3_STALL},
		{.kind = S3_ANSWER, .status = 503}};
	static const enum s3_kind kinds[] = {S3_PUT, S3_PART_PUT};
	size_t len = 3 * PART + BLOCK;
	uint8_t *bytes = make_bytes(len, 4);

	for (size_t i = 0; i < 4; i++) {
		int left = 2;

		behave(&(struct s3_settings){.hook = NULL});
		spoil(kinds[i % 2], 1000, ways[i / 2]);
		store_on_stop(store, count_down, &left);
		REFUSES(PAWL_ECANCELED,
			i % 2 == 0 ? store_write_small(store, "f", "x", 1, &err)
				   : write_file("f", bytes, len),
			"not wanted any more");
		behave(&(struct s3_settings){.hook = NULL});
		store_on_stop(store, NULL, NULL);
		FAILS(PAWL_ENOENT, store_stat(store, "f", NULL, NULL, &err));
		OK(write_file("f", bytes, len));
		OK(read_file_back("f", bytes, len));
		OK(store_remove(store, "f", &err));
		OK(store_sweep(store, &err)); /* uploads that were cut off */
		assert_int_equal(open_uploads(), 0);
	}
	free(bytes);
}

/* ---- a file that is closed while its last part is somewhere ---- */

/* Begins a file, and writes its last block, which is a part: it ends before it is uploaded. */
static struct store_file *begin_tail(const char *path, uint8_t *bytes)
{
	struct store_file *file;
	struct store_io io = {.buf = bytes, .len_bytes = BLOCK, .off_bytes = PART, .write = true};

	OK(store_create(store, path, PART + BLOCK, &file, &err));
	io.file = file;
	OK(store_submit(store, &io, &err));
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(io.rv, 0);
	return file;
}

/* The last part is cut, or written to, while it is uploaded with the checksum of its old bytes. */
static void files_may_change_while_they_are_uploaded(void **state)
{
	uint8_t *bytes = make_bytes(BLOCK, 5);
	uint8_t *whole = calloc(1, PART + BLOCK);
	struct store_io io = {.buf = bytes, .len_bytes = BLOCK, .off_bytes = PART, .write = true};

	assert_non_null(whole);
	memcpy(whole + PART, bytes, BLOCK);
	spoil(S3_PART_PUT, 1, (struct s3_fault){.kind = S3_STALL});
	io.file = begin_tail("f", bytes);
	OK(store_resize(store, io.file, PART + 100, &err));
	OK(store_sync(store, io.file, &err));
	store_close_file(store, io.file);
	assert_true(s3_server_holds(server, "p/f", whole, PART + 100));
	behave(&(struct s3_settings){.hook = NULL});
	spoil(S3_PART_PUT, 1, (struct s3_fault){.kind = S3_STALL});
	io.file = begin_tail("f", bytes);
	memset(bytes, 'x', BLOCK);
	memset(whole + PART, 'x', BLOCK);
	OK(store_submit(store, &io, &err));
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(io.rv, 0);
	OK(store_sync(store, io.file, &err));
	store_close_file(store, io.file);
	assert_true(s3_server_holds(server, "p/f", whole, PART + BLOCK));
	assert_int_equal(open_uploads(), 0);
	free(whole);
	free(bytes);
}

static void files_may_be_closed_at_any_time(void **state)
{
	uint8_t *bytes = make_bytes(BLOCK, 4);
	struct store_file *file;

	put("old/a", "a");
	/* The part has been uploaded, which the file has not learned. */
	file = begin_tail("f", bytes);
	WITHIN(WITHIN_LONG_S,
		store_stat(store, "old", NULL, NULL, &err) == 0 && count(S3_PART_PUT) == 1);
	for (unsigned i = 0; i < 3; i++) {
		OK(store_stat(store, "old/a", NULL, NULL, &err));
	}
	store_close_file(store, file);
	OK(store_stat(store, "old/a", NULL, NULL, &err));
	assert_int_equal(open_uploads(), 0);
	/* The part waits for its turn, since the server wants less. */
	behave(&(struct s3_settings){.hook = NULL});
	spoil(S3_PART_PUT, 1,
		(struct s3_fault){.kind = S3_ANSWER,
			.status = 503,
			.headers = "Retry-After: 1\r\n"});
	file = begin_tail("f", bytes);
	OK(store_stat(store, "old/a", NULL, NULL, &err));
	store_close_file(store, file);
	/* The part is being uploaded. */
	behave(&(struct s3_settings){.hook = NULL});
	spoil(S3_PART_PUT, 1, (struct s3_fault){.kind = S3_STALL});
	file = begin_tail("f", bytes);
	store_close_file(store, file);
	assert_holds("old/a", "a");
	free(bytes);
}

static void files_may_be_removed_while_one_is_written(void **state)
{
	uint8_t *bytes = make_bytes(BLOCK, 5);
	struct store_file *file;

	put("old/a", "a");
	put("old/b", "b");
	file = begin_tail("f", bytes);
	OK(store_remove(store, "old", &err));
	FAILS(PAWL_ENOENT, store_stat(store, "old", NULL, NULL, &err));
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	OK(store_stat(store, "f", NULL, NULL, &err));
	free(bytes);
}

/* ---- conditions ---- */

static void ignored_conditions_are_refused(void **state)
{
	struct store *single;
	char etag[STORE_ETAG_MAX];

	behave(&(struct s3_settings){.ignores_conditions = true});
	REFUSES(PAWL_ENOTSUP, store_put_if(store, "f", "x", 1, NULL, etag, &err),
		"?single_writer=1");
	REFUSES(PAWL_ENOTSUP, store_put_if(store, "f", "x", 1, NULL, etag, &err), "ignores If-");
	FAILS(PAWL_ENOENT, store_stat(store, "f", NULL, NULL, &err));
	FAILS(PAWL_ENOENT, store_stat(store, ".pawl", NULL, NULL, &err)); /* the probe */
	OK(store_bucket_open(S3_ADDRESS "/p?single_writer=1", &single, &err));
	OK(store_put_if(single, "f", "x", 1, NULL, etag, &err));
	store_close(single);
	assert_holds("f", "x");
}

static void etags_without_quotes_are_found_out(void **state)
{
	char etag[STORE_ETAG_MAX], next[STORE_ETAG_MAX];

	behave(&(struct s3_settings){.bare_etags = true});
	OK(store_put_if(store, "f", "one", 3, NULL, etag, &err));
	OK(store_put_if(store, "f", "two", 3, etag, next, &err));
	behave(&settings);
	OK(store_put_if(store, "f", "three", 5, next, next, &err));
	assert_int_equal(count(ANY_KIND), 1); /* the client knows by now */
	FAILS(PAWL_EMISMATCH, store_put_if(store, "f", "four", 4, etag, next, &err));
	assert_holds("f", "three");
}

/* The second attempt finds what the first one has written: the caller reads it to find out. */
static void lost_answers_to_conditions_leave_the_bytes(void **state)
{
	char etag[STORE_ETAG_MAX], next[STORE_ETAG_MAX];

	OK(store_put_if(store, "f", "one", 3, NULL, etag, &err));
	behave(&settings);
	spoil(S3_PUT, 1, (struct s3_fault){.kind = S3_LOSE});
	FAILS(PAWL_EMISMATCH, store_put_if(store, "f", "two", 3, etag, next, &err));
	assert_holds("f", "two");
	spoil(S3_PUT, 1, (struct s3_fault){.kind = S3_LOSE});
	FAILS(PAWL_EEXIST, store_put_if(store, "g", "one", 3, NULL, etag, &err));
	assert_holds("g", "one");
	/* Had it not been carried out, the second would have been the first. */
	behave(&(struct s3_settings){.hook = NULL});
	spoil(S3_PUT, 1, (struct s3_fault){.kind = S3_RESET_REQUEST, .n = 1});
	OK(store_put_if(store, "h", "one", 3, NULL, etag, &err));
}

static void a_bucket_that_is_not_there_is_no_empty_one(void **state)
{
	const struct s3_fault gone = {.kind = S3_ANSWER, .status = 404, .code = "NoSuchBucket"};
	void *bytes;
	size_t len_bytes;

	spoil(ANY_KIND, 1000, gone);
	FAILS(PAWL_EIO, store_read_small(store, "f", &bytes, &len_bytes, 10, &err));
	SAYS("NoSuchBucket");
	FAILS(PAWL_EIO, store_stat(store, "f", NULL, NULL, &err)); /* HEAD has no text, LIST has */
	FAILS(PAWL_EIO, store_remove(store, "f", &err));
}

/* ---- everything at once ---- */

#define FILES_N 12u
#define OPS_N   300u
#define ALONE_N 60u /* operations while requests go wrong in one way */
#define BIG_N   16u /* one write in so many is an upload in parts */

static struct s3_weather weather; /* guarded by the server's lock */

/* What a file holds, as far as the test knows. */
struct known {
	size_t len; /* 0: there is none */
	uint32_t number;
};

static void write_known(const char *path, struct known *known, struct rng *rng)
{
	static const size_t lengths[] = {BLOCK, 5 * BLOCK, MIB, 3 * MIB};
	size_t len = rng_below(rng, BIG_N) == 0 ? PART + BLOCK : lengths[rng_below(rng, 4)];
	uint32_t number = (uint32_t)rng_u64(rng);
	uint8_t *bytes = make_bytes(len, number);

	OK(write_file(path, bytes, len));
	free(bytes);
	*known = (struct known){len, number};
}

/* Puts an object under a condition as the layer above does. */
static void put_known(const char *path, struct known *known, struct rng *rng)
{
	uint32_t number = (uint32_t)rng_u64(rng);
	uint8_t *bytes = make_bytes(BLOCK, number);
	char etag[STORE_ETAG_MAX] = "";
	char next[STORE_ETAG_MAX];
	void *found = NULL;
	size_t found_bytes;
	int rv;

	if (known->len > 0) {
		OK(store_read_etag(store, path, &found, &found_bytes, 2 * PART, etag, &err));
		assert_int_equal(found_bytes, known->len);
		free(found);
	}
	rv = store_put_if(store, path, bytes, BLOCK, etag, next, &err);
	assert_true(rv == 0 || rv == PAWL_EEXIST || rv == PAWL_EMISMATCH);
	OK(store_read_etag(store, path, &found, &found_bytes, BLOCK, next, &err));
	assert_int_equal(found_bytes, BLOCK);
	assert_memory_equal(found, bytes, BLOCK); /* there is no other writer: it was ours */
	free(found);
	free(bytes);
	*known = (struct known){BLOCK, number};
}

static void check_known(const char *path, const struct known *known)
{
	uint64_t size_bytes = 0;
	uint8_t *bytes;

	if (known->len == 0) {
		FAILS(PAWL_ENOENT, store_stat(store, path, NULL, &size_bytes, &err));
		return;
	}
	bytes = make_bytes(known->len, known->number);
	OK(store_stat(store, path, NULL, &size_bytes, &err));
	assert_int_equal(size_bytes, known->len);
	OK(read_file_back(path, bytes, known->len));
	free(bytes);
}

/* Fits store_list_fn. */
static int count_name(void *user, const char *name, enum store_kind kind)
{
	unsigned *n = user;

	++*n;
	return 0;
}

static void check_list(const struct known *known)
{
	unsigned n = 0, want = 0;

	for (unsigned i = 0; i < FILES_N; i++) {
		want += known[i].len > 0;
	}
	if (want > 0) {
		OK(store_list(store, "d", count_name, &n, &err));
	}
	assert_int_equal(n, want);
}

/* Works on files while requests go wrong, and expects each to be as it was left. */
static void work_in_weather(const struct s3_weather_way *way, unsigned ops_n)
{
	struct known known[FILES_N] = {{0}};
	struct rng rng = {seed};

	weather = (struct s3_weather){{seed + 1}, way, 20};
	behave(&(struct s3_settings){.hook = s3_weather_blow, .user = &weather, .page_max = 5});
	for (unsigned i = 0; i < ops_n; i++) {
		unsigned file = (unsigned)rng_below(&rng, FILES_N);
		char path[32];

		snprintf(path, sizeof(path), "d/%u", file);
		switch (rng_below(&rng, 6)) {
		case 0:
		case 1:
			write_known(path, &known[file], &rng);
			break;
		case 2:
			put_known(path, &known[file], &rng);
			break;
		case 3:
			OK(store_remove(store, path, &err));
			known[file].len = 0;
			break;
		case 4:
			check_list(known);
			break;
		default:
			check_known(path, &known[file]);
		}
	}
	behave(&(struct s3_settings){.hook = NULL});
	for (unsigned i = 0; i < FILES_N; i++) {
		char path[32];

		snprintf(path, sizeof(path), "d/%u", i);
		check_known(path, &known[i]);
	}
	OK(store_sweep(store, &err)); /* drops uploads whose first answer was lost */
	assert_int_equal(open_uploads(), 0);
}

static void nothing_is_lost_in_bad_weather(void **state)
{
	unsigned fds;

	store_close(store);
	s3_server_wait_idle(server);
	fds = count_fds();
	OK(store_bucket_open(S3_ADDRESS "/p", &store, &err));
	work_in_weather(NULL, OPS_N);
	store_close(store);
	store = NULL;
	s3_server_wait_idle(server);
	assert_int_equal(count_fds(), fds);
}

static void nothing_is_lost_in_any_weather_alone(void **state)
{
	const struct s3_weather_way *way;

	for (unsigned i = 0; (way = s3_weather_way(i)) != NULL; i++) {
		if (!way->named_only) {
			printf("%s\n", way->name);
			fflush(stdout);
			work_in_weather(way, ALONE_N);
			OK(store_remove(store, "d", &err));
		}
	}
}

/* ---- fault points ---- */

/* Does a bit of everything. */
static int do_all(uint8_t *bytes)
{
	char etag[STORE_ETAG_MAX];
	void *found = NULL;
	size_t len_bytes;
	unsigned n = 0;
	int rv;

	store = NULL;
	rv = store_bucket_open(S3_ADDRESS "/p", &store, &err);

	rv = rv == 0 ? store_write_small(store, "d/a", "text", 4, &err) : rv;
	rv = rv == 0 ? store_read_small(store, "d/a", &found, &len_bytes, 10, &err) : rv;
	free(found);
	rv = rv == 0 ? store_put_if(store, "d/b", "text", 4, NULL, etag, &err) : rv;
	rv = rv == 0 ? write_file("d/c", bytes, PART + BLOCK) : rv;
	rv = rv == 0 ? write_file("d/e", bytes, BLOCK) : rv;
	rv = rv == 0 ? read_file_back("d/e", bytes, BLOCK) : rv;
	rv = rv == 0 ? store_list(store, "d", count_name, &n, &err) : rv;
	rv = rv == 0 && n != 4 ? PAWL_ECORRUPT : rv;
	rv = rv == 0 ? store_sweep(store, &err) : rv;
	rv = rv == 0 ? store_remove(store, "d", &err) : rv;
	store_close(store);
	store = NULL;
	return rv;
}

/* Lets each call fail, once or from then on. */
static void fail_each(uint8_t *bytes, bool forever)
{
	unsigned failed = 0;
	unsigned fds = count_fds();

	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		memset(&err, 0, sizeof(err));
		fault_arm("", nth, ENOMEM, forever);
		rv = do_all(bytes);
		fault_disarm();
		assert_true(rv == 0 || fault_reached(nth));
		assert_true(rv == 0 || rv == PAWL_ENOMEM);
		assert_true(rv == 0 || (err.code == rv && err.msg[0] != '\0'));
		assert_null(strstr(err.msg, "hush"));
		failed += rv != 0;
		s3_server_wait_idle(server);
		assert_int_equal(count_fds(), fds);
		s3_server_clear(server);
	}
	printf("%u of the calls were needed\n", failed);
	assert_true(failed > 50);
}

static void every_call_may_fail(void **state)
{
	uint8_t *bytes = make_bytes(PART + BLOCK, 6);

	store_close(store);
	store = NULL;
	s3_server_wait_idle(server);
	fail_each(bytes, false);
	fail_each(bytes, true);
	free(bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_store, end_store)
	const struct CMUnitTest tests[] = {
		TEST(uploads_survive_what_happens_to_complete),
		TEST(uploads_that_vanish_are_named),
		TEST(refused_uploads_are_dropped),
		TEST(waits_end_when_they_are_not_wanted),
		TEST(files_may_change_while_they_are_uploaded),
		TEST(files_may_be_closed_at_any_time),
		TEST(files_may_be_removed_while_one_is_written),
		TEST(ignored_conditions_are_refused),
		TEST(etags_without_quotes_are_found_out),
		TEST(lost_answers_to_conditions_leave_the_bytes),
		TEST(a_bucket_that_is_not_there_is_no_empty_one),
		TEST(nothing_is_lost_in_bad_weather),
		TEST(nothing_is_lost_in_any_weather_alone),
		TEST(every_call_may_fail),
	};

	test_times("bucket_patience=100,bucket_connect=10,bucket_stall=10");
	seed = test_seed();
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
