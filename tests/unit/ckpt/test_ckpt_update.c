/* Files that share chunks with the one before: random histories in each way that a store allows,
 * read back byte by byte; and files that are written whole all the same. */
#include "base/err.h"
#include "base/rng.h"
#include "ckpt/format/plan.h"
#include "ckpt/read.h"
#include "ckpt/write.h"
#include "seed.h"
#include "store/dirs.h"
#include "store/fault.h"
#include "store/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define CHUNKS  12u /* chunks of the largest payload */
#define SAVES   14u
#define DIR_MAX 8

/* How a store lets files share. */
enum sharing { BYTES, NAMES, SHARINGS };

/* A file as it is saved once: each chunk of the payload is made from a number. */
struct version {
	bool raw;
	uint64_t size_bytes; /* bytes of the payload */
	uint32_t content[CHUNKS];
};

/* A version as it was written. */
struct saved {
	struct version version;
	struct manifest_part part;
};

static struct store *store;
static struct writer *writer;

static uint8_t byte_of(const struct version *version, uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 8) + version->content[i / CKPT_CHUNK] * 37);
}

static void plan_of(struct zip_plan *plan, const struct version *version)
{
	assert_int_equal(version->raw ? zip_plan_init_raw(plan, &version->size_bytes, 1, NULL)
				      : zip_plan_init(plan, &version->size_bytes, 1, 0, NULL),
		0);
}

/* Returns an image of the file with its payload, with room for the padding. */
static uint8_t *make_image(const struct zip_plan *plan, const struct version *version)
{
	size_t room = plan->size_bytes / STORE_ALIGN * STORE_ALIGN + STORE_ALIGN;
	uint8_t *image = aligned_alloc(STORE_ALIGN, room);

	memset(image, 0, room);
	for (uint64_t i = 0; i < version->size_bytes; i++) {
		image[plan->entries[0].data_off + i] = byte_of(version, i);
	}
	return image;
}

static int chunk_of_image(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce,
	uint8_t **bytes, struct pawl_err *err)
{
	*bytes = (uint8_t *)user + off;
	return 0;
}

static void dir_of(char *dir, unsigned number)
{
	char inner[32];

	snprintf(dir, DIR_MAX, "%u", number);
	snprintf(inner, sizeof(inner), "%s/.pawl", dir);
	assert_int_equal(store_mkdir(store, dir, NULL), 0);
	assert_int_equal(store_mkdir(store, inner, NULL), 0);
}

/* Writes a version as file "f" of a directory of its own; base may be NULL. */
static int write_version(struct saved *saved, unsigned number, const struct saved *base)
{
	struct manifest_part *part = &saved->part;
	struct zip_plan plan;
	char dir[DIR_MAX], base_dir[DIR_MAX];
	uint8_t *image;
	int rv;

	plan_of(&plan, &saved->version);
	image = make_image(&plan, &saved->version);
	*part = (struct manifest_part){.file = "f",
		.raw = saved->version.raw,
		.size_bytes = plan.size_bytes,
		.chunks_n = ckpt_chunks(plan.size_bytes)};
	part->chunks = calloc(part->chunks_n + 1u, sizeof(*part->chunks));
	part->sums = calloc(part->chunks_n + 1u, sizeof(*part->sums));
	part->places = calloc(part->chunks_n + 1u, sizeof(*part->places));
	dir_of(dir, number);
	snprintf(base_dir, sizeof(base_dir), "%u", number - 1);
	rv = base ? writer_update(writer, dir, part, &plan,
			    &(struct write_source){chunk_of_image, image}, base_dir, &base->part,
			    NULL)
		  : writer_write(writer, dir, part, &plan,
			    &(struct write_source){chunk_of_image, image}, NULL);
	free(image);
	zip_plan_deinit(&plan);
	return rv;
}

static void assert_reads(const struct saved *saved, unsigned number)
{
	struct reader *reader;
	struct zip_plan plan;
	uint8_t *image = image_alloc(saved->part.size_bytes + STORE_ALIGN);
	char dir[DIR_MAX];

	snprintf(dir, sizeof(dir), "%u", number);
	plan_of(&plan, &saved->version);
	assert_int_equal(reader_open(&reader, store, NULL), 0);
	assert_int_equal(reader_read(reader, dir, &saved->part, image, NULL), 0);
	for (uint64_t i = 0; i < saved->version.size_bytes; i++) {
		if (image[plan.entries[0].data_off + i] != byte_of(&saved->version, i)) {
			fail_msg("save %u, byte %" PRIu64, number, i);
		}
	}
	reader_close(reader);
	zip_plan_deinit(&plan);
	image_free(image, saved->part.size_bytes + STORE_ALIGN);
}

static void saved_deinit(struct saved *saved)
{
	free(saved->part.chunks);
	free(saved->part.sums);
	free(saved->part.places);
}

static void open_store(enum sharing sharing)
{
	assert_int_equal(store_mem_open(&store, NULL), 0);
	store_mem_clones(store, sharing == BYTES);
	assert_int_equal(writer_open(&writer, store, false, NULL), 0);
}

static void close_store(void)
{
	writer_close(writer);
	store_close(store);
}

/* Makes the next version: some chunks change, and seldom the size. */
static void change(struct version *version, struct rng *rng)
{
	for (uint32_t i = 0; i < CHUNKS; i++) {
		version->content[i] += rng_below(rng, 3) == 0;
	}
	if (rng_below(rng, 4) == 0) {
		version->size_bytes = rng_below(rng, CHUNKS) * CKPT_CHUNK +
			rng_below(rng, 2) * rng_below(rng, CKPT_CHUNK);
	}
}

/* Older directories are deleted at random: files do not depend on them. */
static void run_history(enum sharing sharing, struct rng *rng)
{
	struct saved saved[SAVES] = {0};

	open_store(sharing);
	saved[0].version.raw = rng_below(rng, 4) == 0;
	saved[0].version.size_bytes = 5 * CKPT_CHUNK + rng_below(rng, CKPT_CHUNK);
	for (unsigned i = 0; i < SAVES; i++) {
		char dir[DIR_MAX];

		if (i > 0) {
			saved[i].version = saved[i - 1].version;
			change(&saved[i].version, rng);
		}
		assert_int_equal(write_version(&saved[i], i, i > 0 ? &saved[i - 1] : NULL), 0);
		assert_true(saved[i].part.sources_n <= MANIFEST_SOURCES);
		assert_true(sharing == NAMES || saved[i].part.sources_n == 0);
		assert_true(saved[i].part.depth <= i);
		assert_reads(&saved[i], i);
		if (i > 0 && rng_below(rng, 2)) {
			snprintf(dir, sizeof(dir), "%u", i - 1);
			assert_int_equal(store_remove(store, dir, NULL), 0);
			assert_reads(&saved[i], i);
		}
	}
	for (unsigned i = 0; i < SAVES; i++) {
		saved_deinit(&saved[i]);
	}
	close_store();
}

static void any_history_reads_back(void **state)
{
	struct rng rng = {test_seed()};

	for (unsigned i = 0; i < 8; i++) {
		run_history(i % 2 == 0 ? BYTES : NAMES, &rng);
	}
}

/* Returns the number of bytes written to files of a directory. */
static uint64_t count_written(const char *dir)
{
	uint64_t sum = 0;
	char start[32];

	snprintf(start, sizeof(start), "\nwrite %s/", dir);
	for (const char *at = store_mem_trace(store); (at = strstr(at, start)) != NULL; at++) {
		const char *plus = strchr(at + 1, '+');

		sum += strtoull(plus + 1, NULL, 10);
	}
	return sum;
}

static void only_what_changed_is_written(void **state)
{
	for (enum sharing sharing = BYTES; sharing < SHARINGS; sharing++) {
		struct saved a = {.version = {.size_bytes = 10 * CKPT_CHUNK}};
		struct saved b = a;
		struct saved c = a;

		open_store(sharing);
		assert_int_equal(write_version(&a, 0, NULL), 0);
		b.version.content[4]++;
		assert_int_equal(write_version(&b, 1, &a), 0);
		/* The payload begins in the first chunk, so two chunks of the file change; and the
		 * last one does, which has its CRC. */
		assert_int_equal(count_written("1"),
			2 * CKPT_CHUNK + b.part.size_bytes % CKPT_CHUNK);
		assert_int_equal(b.part.sources_n, sharing == NAMES ? 2 : 0);
		c.version = b.version;
		assert_int_equal(write_version(&c, 2, &b), 0);
		assert_int_equal(count_written("2"), 0);
		assert_int_equal(c.part.depth, 2);
		assert_reads(&c, 2);
		saved_deinit(&a);
		saved_deinit(&b);
		saved_deinit(&c);
		close_store();
	}
}

/* A file that has not changed gets a second name, raw or not. */
static void an_unchanged_file_gets_a_second_name(void **state)
{
	struct saved a = {.version = {.raw = true, .size_bytes = CKPT_CHUNK + 77}};
	struct saved b = a;

	open_store(NAMES);
	assert_int_equal(write_version(&a, 0, NULL), 0);
	assert_int_equal(write_version(&b, 1, &a), 0);
	assert_int_equal(b.part.sources_n, 0);
	assert_non_null(strstr(store_mem_trace(store), "link 0/f 1/f\n"));
	assert_reads(&b, 1);
	saved_deinit(&a);
	saved_deinit(&b);
	close_store();
}

/* The chunks change one after the other, so that each save adds a source. */
static void too_many_sources_end_in_a_whole_file(void **state)
{
	struct saved saved[CHUNKS] = {0};
	bool whole = false;

	open_store(NAMES);
	saved[0].version.size_bytes = CHUNKS * CKPT_CHUNK;
	for (unsigned i = 0; i < CHUNKS; i++) {
		if (i > 0) {
			saved[i].version = saved[i - 1].version;
			saved[i].version.content[i]++;
		}
		assert_int_equal(write_version(&saved[i], i, i > 0 ? &saved[i - 1] : NULL), 0);
		assert_reads(&saved[i], i);
		whole = whole || (i > 0 && saved[i].part.depth == 0);
		assert_true(saved[i].part.depth == 0 || saved[i].part.sources_n > 0);
	}
	assert_true(whole);
	for (unsigned i = 0; i < CHUNKS; i++) {
		saved_deinit(&saved[i]);
	}
	close_store();
}

/* If files cannot share or the base is gone, the file is written whole; any other error is
 * returned. */
static void what_cannot_share_is_whole(void **state)
{
	static const int codes[] = {PAWL_ENOTSUP, PAWL_ENOENT, PAWL_EIO};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct saved a = {.version = {.size_bytes = 3 * CKPT_CHUNK}};
		struct saved b = a;
		struct store_fault_plan plan = {STORE_FAULT_FAIL, .code = codes[i]};
		struct store *mem;
		uint64_t ops;

		assert_int_equal(store_mem_open(&mem, NULL), 0);
		assert_int_equal(store_fault_open(mem, NULL, &store, NULL), 0);
		assert_int_equal(writer_open(&writer, store, false, NULL), 0);
		assert_int_equal(write_version(&a, 0, NULL), 0);
		b.version.content[0]++;
		store_fault_set(store, NULL);
		/* Operations: mkdir twice, open, create, resize, clone, remove; then the link,
		 * which fails. */
		plan.nth = 8;
		store_fault_set(store, &plan);
		assert_int_equal(write_version(&b, 1, &a), codes[i] == PAWL_EIO ? PAWL_EIO : 0);
		ops = store_fault_ops(store);
		assert_true(ops >= 8);
		if (codes[i] != PAWL_EIO) {
			assert_int_equal(b.part.sources_n, 0);
			assert_int_equal(b.part.depth, 0);
			assert_reads(&b, 1);
		}
		saved_deinit(&a);
		saved_deinit(&b);
		close_store();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_history_reads_back),
		cmocka_unit_test(only_what_changed_is_written),
		cmocka_unit_test(an_unchanged_file_gets_a_second_name),
		cmocka_unit_test(too_many_sources_end_in_a_whole_file),
		cmocka_unit_test(what_cannot_share_is_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
