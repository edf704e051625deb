/* Units that are shipped to a bucket: what was uploaded by a call that ended early is used by the
 * next one, and nothing else is. The calls are those of one process; tests/python/bucket kills
 * processes. */
#include "../lib/s3_fixture.h"
#include "base/clock.h"
#include "ckpt/read.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "mirror/ship.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 3u

static struct tags_root *root;
static struct ship_file files[FILES];
static struct ship_unit unit;
static struct manifest published; /* manifest of the tag, as check_unit found it */

/* Where a call of ship_unit is to end. */
static uint64_t limit_bytes; /* bytes that may be read before it */
static uint64_t read_bytes;

static int count_or_end(void *user, struct pawl_err *why)
{
	return read_bytes < limit_bytes ? 0 : pawl_err_set(why, PAWL_ECANCELED, "enough");
}

static void add_read(void *user, uint64_t bytes)
{
	read_bytes += bytes;
}

static int ship(uint64_t limit)
{
	const struct copy_watch watch = {count_or_end, add_read, NULL};

	read_bytes = 0;
	limit_bytes = limit;
	return ship_unit(root, &unit, &watch, &err);
}

/* ---- files ---- */

/* Writes bytes that depend on the file, their place and the seed. */
static void fill(const struct ship_file *file, uint32_t seed)
{
	uint32_t *bytes =
		mmap(NULL, file->size_bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);

	assert_ptr_not_equal(bytes, MAP_FAILED);
	for (uint64_t i = 0; i < file->size_bytes / 4; i++) {
		bytes[i] = (uint32_t)(i * 2654435761u) ^ seed ^ (uint32_t)file->fd << 20;
	}
	munmap(bytes, file->size_bytes + 1);
}

static void make_file(unsigned i, const char *name, uint64_t size_bytes)
{
	snprintf(files[i].name, sizeof(files[i].name), "%s", name);
	files[i].size_bytes = size_bytes;
	files[i].fd = memfd_create(name, MFD_CLOEXEC);
	assert_true(files[i].fd >= 0);
	assert_int_equal(ftruncate(files[i].fd, (off_t)size_bytes), 0);
	fill(&files[i], 1);
}

/* Changes bytes of a file, which then looks as before. */
static void change_unseen(const struct ship_file *file, uint64_t off)
{
	struct stat st;
	struct timespec times[2];

	assert_int_equal(fstat(file->fd, &st), 0);
	assert_int_equal(pwrite(file->fd, "changed", 7, (off_t)off), 7);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	assert_int_equal(futimens(file->fd, times), 0);
}

/* How a server tells what it has. */
struct telling {
	const char *address; /* address of the root, whose scheme chooses the API */
	struct s3_settings settings;
};

#define ROOT S3_ADDRESS "/p"

/* A server that tells CRCs, one that tells MD5s by its etags, Google, which tells MD5s of parts and
 * CRCs of objects, and Azure, where CRCs are in names and metadata. */
static const struct telling tellings[] = {{ROOT, {.tells_md5 = false}}, {ROOT, {.tells_md5 = true}},
	{GS_ADDRESS "/p", {.tells_md5 = false}}, {AZURE_ADDRESS "/p", {.tells_md5 = false}}};
#define TELLINGS_N (sizeof(tellings) / sizeof(tellings[0]))

static const char *address; /* address of the root */

static void open_root(void)
{
	OK(tags_root_open(address, NULL, true, &root, &err));
	OK(tags_root_lock(root, "test", false, &err));
}

static int begin(void **state)
{
	s3_server_setenv(server);
	s3_server_clear(server);
	behave(&(struct s3_settings){.hook = NULL});
	address = ROOT;
	open_root();
	make_file(0, "deep/er/weights", 3 * PART + 5);
	make_file(1, "model", PART + MIB + 123);
	make_file(2, "state.json", 999);
	unit = (struct ship_unit){.tag = "checkpoint-7",
		.step = 7,
		.job = "foreign",
		.files = files,
		.files_n = FILES};
	return 0;
}

static int end(void **state)
{
	manifest_deinit(&published);
	published = (struct manifest){.step = 0};
	tags_root_close(root);
	root = NULL;
	for (unsigned i = 0; i < FILES; i++) {
		close(files[i].fd);
	}
	s3_server_wait_idle(server);
	return 0;
}

/* ---- what must be there ---- */

/* Expects the tag to have exactly the files as they are. */
static void check_unit(void)
{
	struct reader *reader;

	manifest_deinit(&published);
	OK(tag_open(root, unit.tag, &published, &err));
	assert_int_equal(published.step, 7);
	assert_int_equal(published.parts_n, FILES);
	OK(reader_open(&reader, tags_root_store(root), &err));
	for (unsigned i = 0; i < FILES; i++) {
		const struct manifest_part *part = manifest_find_file(&published, files[i].name);
		uint8_t *image = image_alloc(files[i].size_bytes);
		uint8_t *bytes = malloc(files[i].size_bytes);

		assert_non_null(part);
		assert_true(part->raw);
		assert_int_equal(part->size_bytes, files[i].size_bytes);
		OK(reader_read(reader, &published, part, image, &err));
		assert_int_equal(pread(files[i].fd, bytes, files[i].size_bytes, 0),
			files[i].size_bytes);
		assert_memory_equal(image, bytes, files[i].size_bytes);
		image_free(image, files[i].size_bytes);
		free(bytes);
	}
	reader_close(reader);
	assert_int_equal(open_uploads(), 0);
	assert_int_equal(open_blocks(), 0);
}

static void expect_no_tag(void)
{
	struct manifest manifest;

	FAILS(PAWL_ENOENT, tag_open(root, unit.tag, &manifest, &err));
}

/* ---- tests ---- */

static void a_unit_is_shipped_whole(void **state)
{
	OK(ship(UINT64_MAX));
	check_unit();
	assert_int_equal(count(S3_PART_PUT), 4 + 2);
	assert_int_equal(read_bytes, 4 * PART + MIB + 5 + 123 + 999);
}

static void a_change_after_the_last_read_is_not_published(void **state)
{
	FAILS(PAWL_ECANCELED, ship(4 * PART + MIB + 5 + 123 + 999)); /* all was read by then */
	expect_no_tag();
	OK(ship(UINT64_MAX));
	check_unit();
}

/* Notes the number of the request that began the second upload, and of that which completed the
 * first. Fits s3_hook_fn. */
static void note_order(void *user, const struct s3_ask *ask, struct s3_fault *fault)
{
	unsigned *nths = user;

	if (ask->kind == S3_BEGIN && ask->nth_of_kind == 2) {
		nths[0] = ask->nth;
	}
	if (ask->kind == S3_COMPLETE && ask->nth_of_kind == 1) {
		nths[1] = ask->nth;
	}
}

static void a_file_ends_while_the_next_one_is_sent(void **state)
{
	unsigned nths[2] = {0, 0};

	behave(&(struct s3_settings){.hook = note_order, .user = nths});
	OK(ship(UINT64_MAX));
	check_unit();
	assert_int_not_equal(nths[0], 0);
	assert_true(nths[0] < nths[1]);
}

static void a_file_that_cannot_end_is_named(void **state)
{
	spoil(S3_COMPLETE, 1,
		(struct s3_fault){.kind = S3_ANSWER, .status = 403, .code = "AccessDenied"});
	FAILS(PAWL_EIO, ship(UINT64_MAX));
	SAYS("deep/er/weights");
	expect_no_tag();
	s3_server_reset(server);
	OK(ship(UINT64_MAX));
	check_unit();
	assert_int_equal(count(S3_PART_PUT), 4); /* the second file had been sent */
}

/* Opens the root anew, on an empty server. */
static void begin_telling(const struct telling *telling)
{
	tags_root_close(root);
	s3_server_clear(server);
	behave(&telling->settings);
	address = telling->address;
	open_root();
}

static void parts_that_are_there_are_not_sent_again(void **state)
{
	for (size_t i = 0; i < TELLINGS_N; i++) {
		begin_telling(&tellings[i]);
		settings.page_max = 2;
		behave(&settings);
		FAILS(PAWL_ECANCELED, ship(2 * PART + MIB));
		expect_no_tag();
		assert_true(open_uploads() + open_blocks() >= 1);
		assert_true(count(S3_PART_PUT) >= 1);
		s3_server_reset(server);
		OK(ship(UINT64_MAX));
		check_unit();
		assert_in_range(count(S3_PART_PUT), 2 + 2, 3 + 2);
		/* For the second file; Azure's need no beginning. */
		assert_int_equal(count(S3_BEGIN), strncmp(address, "azure:", 6) != 0);
	}
}

static void files_that_are_there_are_not_sent_again(void **state)
{
	for (size_t i = 0; i < TELLINGS_N; i++) {
		begin_telling(&tellings[i]);
		FAILS(PAWL_ECANCELED, ship(4 * PART + MIB + 5 + 123));
		expect_no_tag();
		assert_int_equal(open_uploads(), 0);
		s3_server_reset(server);
		OK(ship(UINT64_MAX));
		check_unit();
		assert_int_equal(count(S3_PART_PUT), 0);
		assert_int_equal(count(S3_PUT), 2); /* the small file and the manifest */
	}
}

static void what_no_checksum_shows_is_sent_again(void **state)
{
	behave(&(struct s3_settings){.tells_nothing = true});
	FAILS(PAWL_ECANCELED, ship(4 * PART + MIB + 5 + 123));
	s3_server_reset(server);
	OK(ship(UINT64_MAX));
	check_unit();
	assert_int_equal(count(S3_PART_PUT), 4 + 2);
}

static void other_bytes_are_never_taken_for_ours(void **state)
{
	for (size_t i = 0; i < TELLINGS_N; i++) {
		begin_telling(&tellings[i]);
		FAILS(PAWL_ECANCELED, ship(2 * PART + MIB));
		change_unseen(&files[0], 17);
		OK(ship(UINT64_MAX));
		check_unit();

		s3_server_clear(server);
		tags_root_close(root);
		open_root();
		FAILS(PAWL_ECANCELED, ship(4 * PART + MIB + 5 + 123));
		change_unseen(&files[0], PART + 3);
		change_unseen(&files[1], 1);
		OK(ship(UINT64_MAX));
		check_unit();
	}
}

static void published_files_are_never_overwritten(void **state)
{
	char dir[MANIFEST_FOLDER_MAX];

	OK(ship(UINT64_MAX));
	check_unit();
	snprintf(dir, sizeof(dir), "%s", published.folders[0].dir);
	change_unseen(&files[0], 0);
	s3_server_reset(server);
	OK(ship(UINT64_MAX));
	check_unit();
	assert_string_not_equal(published.folders[0].dir, dir);
}

/* The service may drop an upload, by a rule of the bucket, while it is gone on with. */
static void an_upload_that_was_dropped_begins_anew(void **state)
{
	FAILS(PAWL_ECANCELED, ship(2 * PART + MIB));
	OK(ship_recover(root, NULL, 0, &err));
	assert_int_equal(open_uploads(), 0);
	OK(ship(UINT64_MAX));
	check_unit();

	s3_server_clear(server);
	tags_root_close(root);
	open_root();
	FAILS(PAWL_ECANCELED, ship(2 * PART + MIB));
	spoil(S3_PARTS, 1,
		(struct s3_fault){.kind = S3_ANSWER, .status = 404, .code = "NoSuchUpload"});
	OK(ship(UINT64_MAX));
	OK(ship_recover(root, NULL, 0, &err));
	check_unit();
}

static void who_may_not_list_uploads_begins_anew(void **state)
{
	FAILS(PAWL_ECANCELED, ship(2 * PART + MIB));
	spoil(S3_UPLOADS, 2,
		(struct s3_fault){.kind = S3_ANSWER, .status = 403, .code = "AccessDenied"});
	OK(ship(UINT64_MAX));
	OK(ship_recover(root, NULL, 0, &err));
	check_unit();
}

static void parts_of_another_size_are_dropped(void **state)
{
	struct store *bucket = tags_root_store(root);
	struct store_file *file;
	struct store_io io = {.len_bytes = 4096, .write = true};
	uint8_t *block = aligned_alloc(STORE_ALIGN, PART);
	uint8_t *bytes;

	memset(block, 'x', PART);
	OK(store_resume(bucket, "d/f", 3 * PART, &file, &err));
	for (unsigned i = 0; i < 2; i++) {
		io = (struct store_io){.file = file,
			.buf = block,
			.len_bytes = PART,
			.off_bytes = (i + 1) * PART,
			.write = true};
		OK(store_submit(bucket, &io, &err));
		assert_ptr_equal(store_reap(bucket, -1), &io);
		assert_int_equal(io.rv, 0);
	}
	store_close_file(bucket, file);
	assert_int_equal(open_uploads(), 1);
	OK(store_resume(bucket, "d/f", 2 * PART + 1, &file,
		&err)); /* the third part does not fit */
	for (unsigned i = 0; i < 3; i++) {
		io = (struct store_io){.file = file,
			.buf = block,
			.len_bytes = i < 2 ? PART : 4096,
			.off_bytes = i * PART,
			.write = true};
		OK(store_submit(bucket, &io, &err));
		assert_ptr_equal(store_reap(bucket, -1), &io);
		assert_int_equal(io.rv, 0);
	}
	OK(store_sync(bucket, file, &err));
	store_close_file(bucket, file);
	bytes = malloc(2 * PART + 1);
	memset(bytes, 'x', 2 * PART + 1);
	assert_true(s3_server_holds(server, "p/d/f", bytes, 2 * PART + 1));
	free(bytes);
	free(block);
	OK(store_sweep(bucket, &err));
	assert_int_equal(open_uploads(), 0);
}

static void a_file_that_got_shorter_is_named(void **state)
{
	assert_int_equal(ftruncate(files[1].fd, PART), 0);
	FAILS(PAWL_EMISMATCH, ship(UINT64_MAX));
	SAYS("model: cut to less than");
	expect_no_tag();
}

static void only_other_units_are_removed(void **state)
{
	FAILS(PAWL_ECANCELED, ship(4 * PART + MIB + 5 + 123));
	snprintf(unit.tag, sizeof(unit.tag), "checkpoint-8");
	FAILS(PAWL_ECANCELED, ship(4 * PART + MIB + 5 + 123));
	OK(ship_recover(root, (const char *const[]){"checkpoint-7"}, 1, &err));
	s3_server_reset(server);
	snprintf(unit.tag, sizeof(unit.tag), "checkpoint-7");
	OK(ship(UINT64_MAX));
	assert_int_equal(count(S3_PART_PUT), 0);
	snprintf(unit.tag, sizeof(unit.tag), "checkpoint-8");
	OK(ship(UINT64_MAX));
	assert_int_equal(count(S3_PART_PUT), 4 + 2);
	check_unit();
}

static void who_has_lost_the_root_publishes_nothing(void **state)
{
	struct tags_root *other;

	OK(tags_root_open(S3_ADDRESS "/p", NULL, true, &other, &err));
	OK(tags_root_lock(other, "newer", false, &err));
	FAILS(PAWL_EBUSY, ship(UINT64_MAX));
	SAYS("another job has taken the root");
	expect_no_tag();
	tags_root_close(other);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_unit_is_shipped_whole),
		TEST(a_change_after_the_last_read_is_not_published),
		TEST(a_file_ends_while_the_next_one_is_sent),
		TEST(a_file_that_cannot_end_is_named),
		TEST(parts_that_are_there_are_not_sent_again),
		TEST(files_that_are_there_are_not_sent_again),
		TEST(what_no_checksum_shows_is_sent_again),
		TEST(other_bytes_are_never_taken_for_ours),
		TEST(published_files_are_never_overwritten),
		TEST(an_upload_that_was_dropped_begins_anew),
		TEST(who_may_not_list_uploads_begins_anew),
		TEST(parts_of_another_size_are_dropped),
		TEST(a_file_that_got_shorter_is_named),
		TEST(only_other_units_are_removed),
		TEST(who_has_lost_the_root_publishes_nothing),
	};

	test_times("bucket_patience=20");
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
