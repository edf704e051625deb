/* What a store in a container of Azure's does otherwise than one in a bucket of S3's: all who write
 * a blob share one list of blocks, and the service checks another sum. On a server of the test's
 * own; test_store and test_store_bucket run there, too. */
#include "../lib/s3_fixture.h"

#define ROOT AZURE_ADDRESS "/p"

static int begin(void **state)
{
	struct object_options options = make_options(60);
	struct object_url url;

	s3_server_setenv(server);
	s3_server_clear(server);
	behave(&(struct s3_settings){.hook = NULL});
	OK(object_url_parse(ROOT, &url, &err));
	OK(object_open(&url, &options, &client, &err));
	return store_bucket_open(ROOT, &store, &err);
}

static int end(void **state)
{
	object_close(client);
	client = NULL;
	return end_store(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* ---- operations ---- */

static size_t read_user(void *user, uint64_t off, void *bytes, size_t size)
{
	memcpy(bytes, (const uint8_t *)user + off, size);
	return size;
}

/* Puts a part of p/f; the text is all of it. */
static int put_part(uint32_t number, const char *text)
{
	return do_op((struct object_op){.verb = OBJECT_PART,
		.key = "p/f",
		.upload = "blocks",
		.part = number,
		.body_bytes = strlen(text),
		.read = read_user,
		.crc = crc32c(0, text, strlen(text)),
		.user = (void *)text});
}

/* Makes p/f of two parts. */
static int complete(const char *first, const char *second)
{
	const struct object_part parts[2] = {{"", crc32c(0, first, strlen(first))},
		{"", crc32c(0, second, strlen(second))}};

	return do_op((struct object_op){.verb = OBJECT_COMPLETE,
		.key = "p/f",
		.upload = "blocks",
		.parts = parts,
		.parts_n = 2});
}

/* Fits store_bytes_fn. */
static int read_bytes(void *user, uint64_t off, void *bytes, size_t len_bytes, struct pawl_err *why)
{
	memcpy(bytes, (const uint8_t *)user + off, len_bytes);
	return 0;
}

/* ---- tests ---- */

/* A request that was given up may arrive when its part has been sent again, with other bytes. */
static void a_late_part_does_no_harm(void **state)
{
	OK(put_part(1, "old"));
	OK(put_part(1, "new"));
	OK(put_part(2, "end"));
	OK(put_part(1, "old"));
	OK(complete("new", "end"));
	assert_true(s3_server_holds(server, "p/f", "newend", 6));
	assert_int_equal(open_blocks(), 0);
	OK(put_part(1, "old"));
	OK(complete("new", "end"));
	assert_true(s3_server_holds(server, "p/f", "newend", 6));
}

/* The service refuses them, and they are sent again. */
static void bytes_that_flip_on_their_way_are_noticed(void **state)
{
	static const struct s3_fault flip = {.kind = S3_FLIP_REQUEST, .n = 2};
	uint8_t *bytes = make_bytes(2 * PART, 1);

	spoil(S3_PART_PUT, 1, flip);
	OK(write_file("f", bytes, 2 * PART));
	assert_int_equal(count(S3_PART_PUT), 3);
	assert_true(s3_server_holds(server, "p/f", bytes, 2 * PART));
	spoil(S3_PUT, 1, flip);
	OK(store_write_small(store, "small", "hello", 5, &err));
	assert_int_equal(count(S3_PUT), 2);
	assert_true(s3_server_holds(server, "p/small", "hello", 5));
	free(bytes);
}

/* Azurite does not know them by default, and is for trying things out. */
static void a_server_may_refuse_checksums(void **state)
{
	uint8_t *bytes = make_bytes(4 * PART, 1);

	settings.refuses_sums = true;
	behave(&settings);
	OK(write_file("f", bytes, 4 * PART));
	assert_true(s3_server_holds(server, "p/f", bytes, 4 * PART));
	assert_in_range(count(S3_PART_PUT), 5, 8); /* the first ones were refused */
	s3_server_reset(server);
	OK(store_write_small(store, "small", "hello", 5, &err));
	assert_int_equal(count(S3_PUT), 1);
	spoil(S3_PUT, 9,
		(struct s3_fault){.kind = S3_ANSWER, .status = 500, .code = "FeatureNotSupported"});
	FAILS(PAWL_EIO, store_write_small(store, "small", "hello", 5, &err));
	SAYS("FeatureNotSupported");
	free(bytes);
}

static void an_upload_ends_though_its_answer_was_lost(void **state)
{
	uint8_t *bytes = make_bytes(2 * PART, 1);

	spoil(S3_COMPLETE, 1, (struct s3_fault){.kind = S3_LOSE});
	OK(write_file("f", bytes, 2 * PART));
	assert_int_equal(count(S3_COMPLETE), 2);
	assert_true(s3_server_holds(server, "p/f", bytes, 2 * PART));
	free(bytes);
}

/* One that was cut off, but lives, and the one that goes on with its upload. */
static void writers_of_the_same_bytes_share_blocks(void **state)
{
	uint8_t *bytes = make_bytes(3 * PART, 1);
	struct store_file *first, *second;

	OK(store_resume(store, "f", 3 * PART, &first, &err));
	OK(move_file(first, true, bytes, 2 * PART));
	assert_int_equal(open_blocks(), 2);
	s3_server_reset(server);
	OK(store_resume(store, "f", 3 * PART, &second, &err));
	OK(move_file(second, true, bytes, 3 * PART));
	OK(store_sync(store, second, &err));
	assert_int_equal(count(S3_PART_PUT), 1);
	OK(store_resize(store, first, 2 * PART, &err));
	OK(store_sync(store, first, &err)); /* the other one has put its blocks into the blob */
	assert_true(s3_server_holds(server, "p/f", bytes, 2 * PART));
	store_close_file(store, first);
	store_close_file(store, second);
	free(bytes);
}

/* The first one to end drops the blocks of all others. */
static void a_writer_of_other_bytes_takes_the_blocks_away(void **state)
{
	uint8_t *bytes = make_bytes(2 * PART, 1);
	uint8_t *others = make_bytes(2 * PART, 2);
	struct store_file *file;

	OK(store_resume(store, "f", 2 * PART, &file, &err));
	OK(move_file(file, true, bytes, 2 * PART));
	OK(write_file("f", others, 2 * PART));
	FAILS(PAWL_EIO, store_sync(store, file, &err));
	SAYS("InvalidBlockList");
	store_close_file(store, file);
	assert_true(s3_server_holds(server, "p/f", others, 2 * PART));
	OK(store_resume(store, "f", 2 * PART, &file, &err));
	OK(move_file(file, true, bytes, 2 * PART));
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	assert_true(s3_server_holds(server, "p/f", bytes, 2 * PART));
	free(bytes);
	free(others);
}

/* Only the parts whose bytes have changed since are sent, and only their new bytes are used. */
static void blocks_of_changed_bytes_are_not_used(void **state)
{
	uint8_t *bytes = make_bytes(3 * PART, 1);
	struct store_file *file;

	OK(store_resume(store, "f", 3 * PART, &file, &err));
	OK(move_file(file, true, bytes, 2 * PART));
	store_close_file(store, file);
	assert_int_equal(open_blocks(), 2);
	bytes[PART + 7] ^= 1;
	s3_server_reset(server);
	OK(store_resume(store, "f", 3 * PART, &file, &err));
	OK(move_file(file, true, bytes, 3 * PART));
	OK(store_sync(store, file, &err));
	store_close_file(store, file);
	assert_int_equal(count(S3_PART_PUT), 2); /* the changed one, and the last */
	assert_int_equal(open_blocks(), 0);
	assert_true(s3_server_holds(server, "p/f", bytes, 3 * PART));
	free(bytes);
}

static void objects_of_others_have_no_sum(void **state)
{
	char hello[] = "hello", hullo[] = "hullo";
	bool has = true;

	OK(store_write_small(store, "f", "hello", 5, &err));
	OK(store_has(store, "f", 5, read_bytes, hello, &has, &err));
	assert_true(has);
	OK(store_has(store, "f", 5, read_bytes, hullo, &has, &err));
	assert_false(has);
	s3_server_clear(server);
	s3_server_put(server, "p/f", "hello", 5);
	OK(store_has(store, "f", 5, read_bytes, hello, &has, &err));
	assert_false(has);
}

/* Nobody can drop blocks, and so nobody tries. */
static void a_sweep_asks_nothing(void **state)
{
	OK(put_part(1, "old"));
	s3_server_reset(server);
	OK(store_sweep(store, &err));
	assert_int_equal(count(ANY_KIND), 0);
	assert_int_equal(open_blocks(), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_late_part_does_no_harm),
		TEST(bytes_that_flip_on_their_way_are_noticed),
		TEST(a_server_may_refuse_checksums),
		TEST(an_upload_ends_though_its_answer_was_lost),
		TEST(writers_of_the_same_bytes_share_blocks),
		TEST(a_writer_of_other_bytes_takes_the_blocks_away),
		TEST(blocks_of_changed_bytes_are_not_used),
		TEST(objects_of_others_have_no_sum),
		TEST(a_sweep_asks_nothing),
	};

	test_times("bucket_patience=20");
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
