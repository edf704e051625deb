/* The torch zip format: laid out, glued and read back over every kind of size and any split;
 * damaged files are refused; files that need zip64 are laid out without a byte of payload in
 * memory. */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/format/zip.h"
#include "sample.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SEEDS        300
#define STORAGES_MAX 12
#define SIZE_MAX_    (1u << 18) /* bytes of a random storage, at most */

static uint64_t first_seed; /* seed of the first of SEEDS random runs */

/* ---- reading from memory ---- */

struct memory_file {
	const uint8_t *bytes;
	uint64_t size_bytes;
};

static int read_memory(void *user, uint64_t off, void *buf, size_t len_bytes, struct pawl_err *err)
{
	const struct memory_file *file = user;

	assert_true(off <= file->size_bytes && len_bytes <= file->size_bytes - off);
	memcpy(buf, file->bytes + off, len_bytes);
	return 0;
}

static int read_plan(struct zip_plan *plan, const uint8_t *bytes, uint64_t size_bytes)
{
	struct memory_file file = {bytes, size_bytes};

	return zip_plan_read(plan, read_memory, &file, size_bytes, NULL);
}

static void assert_same_payloads(const struct zip_plan *a, const struct zip_plan *b)
{
	assert_int_equal(a->storages, b->storages);
	assert_int_equal(a->size_bytes, b->size_bytes);
	assert_int_equal(a->tail_off, b->tail_off);
	for (uint32_t i = 0; i <= a->storages; i++) {
		const struct zip_entry *x = i < a->storages ? &a->entries[i] : zip_plan_pickle(a);
		const struct zip_entry *y = i < b->storages ? &b->entries[i] : zip_plan_pickle(b);

		assert_memory_equal(x, y, sizeof(*x));
	}
}

/* ---- layout ---- */

static void layout_is_aligned(void **state)
{
	for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
		struct rng rng = {seed};
		uint64_t sizes[STORAGES_MAX + 1];
		uint32_t n = sample_sizes(sizes, STORAGES_MAX, SIZE_MAX_, &rng);
		struct zip_plan plan;
		uint64_t end = 0;

		assert_int_equal(zip_plan_init(&plan, sizes, n, sizes[n], NULL), 0);
		for (uint32_t i = 0; i < plan.entries_n; i++) {
			const struct zip_entry *entry = &plan.entries[i];
			uint64_t align = entry->size_bytes >= ZIP_ALIGN_LARGE ? ZIP_ALIGN_LARGE
									      : ZIP_ALIGN_SMALL;

			assert_true(entry->header_off == end);
			assert_true(entry->data_off % align == 0);
			assert_true(entry->data_off > entry->header_off);
			end = entry->data_off + entry->size_bytes + 16;
		}
		assert_true(plan.tail_off >= end);
		assert_int_equal(plan.size_bytes % ZIP_ALIGN_LARGE, 0);
		zip_plan_deinit(&plan);
	}
}

static void longer_pickle_moves_no_storage(void **state)
{
	const uint64_t sizes[] = {70000, 3, 0, 4096};
	struct zip_plan a, b;

	assert_int_equal(zip_plan_init(&a, sizes, 4, 100, NULL), 0);
	assert_int_equal(zip_plan_init(&b, sizes, 4, 1000000, NULL), 0);
	assert_memory_equal(a.entries, b.entries, 4 * sizeof(a.entries[0]));
	zip_plan_deinit(&a);
	zip_plan_deinit(&b);
}

static void limits_are_refused(void **state)
{
	uint64_t sizes[] = {ZIP_FILE_MAX, ZIP_FILE_MAX, UINT64_MAX};
	uint64_t *many = calloc(ZIP_STORAGES_MAX + 1, sizeof(*many));
	struct zip_plan plan;

	assert_int_equal(zip_plan_init(&plan, sizes, 1, 1, NULL), PAWL_ELIMIT);
	assert_int_equal(zip_plan_init(&plan, sizes, 2, 1, NULL), PAWL_ELIMIT);
	assert_int_equal(zip_plan_init(&plan, sizes + 2, 1, 1, NULL), PAWL_ELIMIT);
	assert_int_equal(zip_plan_init(&plan, sizes, 0, ZIP_FILE_MAX, NULL), PAWL_ELIMIT);
	assert_int_equal(zip_plan_init(&plan, sizes, 0, UINT64_MAX, NULL), PAWL_ELIMIT);
	assert_int_equal(zip_plan_init(&plan, many, ZIP_STORAGES_MAX + 1, 1, NULL), PAWL_ELIMIT);
	free(many);
}

/* ---- glue ---- */

/* Any split gives the bytes of the whole file, and the payload is never touched. */
static void any_split_gives_the_same_file(void **state)
{
	for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
		struct rng rng = {seed};
		uint64_t sizes[STORAGES_MAX + 1];
		uint32_t n = sample_sizes(sizes, STORAGES_MAX, SIZE_MAX_, &rng);
		struct sample_part part;
		uint8_t *image;
		uint64_t lo = 0;

		sample_part_init(&part, "model", sizes, n, &rng);
		image = malloc(part.plan.size_bytes);
		memset(image, 0x55, part.plan.size_bytes);
		for (uint32_t i = 0; i <= n; i++) {
			const struct zip_entry *entry =
				i < n ? &part.plan.entries[i] : zip_plan_pickle(&part.plan);

			memcpy(image + entry->data_off, part.payloads[i], entry->size_bytes);
		}
		while (lo < part.plan.size_bytes) {
			uint64_t left = part.plan.size_bytes - lo;
			uint64_t step = 1 + rng_below(&rng, 1 + (left >> rng_below(&rng, 12)));
			uint64_t hi = step < left ? lo + step : part.plan.size_bytes;

			zip_glue(&part.plan, lo, hi, image + lo);
			lo = hi;
		}
		assert_memory_equal(image, part.image, part.plan.size_bytes);
		free(image);
		sample_part_deinit(&part);
	}
}

static void file_is_read_back(void **state)
{
	for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
		struct rng rng = {seed};
		uint64_t sizes[STORAGES_MAX + 1];
		uint32_t n = sample_sizes(sizes, STORAGES_MAX, SIZE_MAX_, &rng);
		struct sample_part part;
		struct zip_plan found;

		sample_part_init(&part, "model", sizes, n, &rng);
		assert_int_equal(read_plan(&found, part.image, part.plan.size_bytes), 0);
		assert_same_payloads(&part.plan, &found);
		zip_plan_deinit(&found);
		sample_part_deinit(&part);
	}
}

/* The end of a file suffices to find its pickle and the sizes of its storages. */
static void tail_locates_the_pickle(void **state)
{
	for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
		struct rng rng = {seed};
		uint64_t sizes[STORAGES_MAX + 1];
		uint32_t n = sample_sizes(sizes, STORAGES_MAX, SIZE_MAX_, &rng);
		struct sample_part part;
		struct zip_plan found;
		struct memory_file file;
		uint64_t storages_end;

		sample_part_init(&part, "model", sizes, n, &rng);
		storages_end = part.plan.entries[n].header_off;
		memset(part.image, 0xee, storages_end);
		file = (struct memory_file){part.image, part.plan.size_bytes};
		assert_int_equal(
			zip_plan_read_tail(&found, read_memory, &file, file.size_bytes, NULL), 0);
		assert_int_equal(found.storages, n);
		for (uint32_t i = 0; i < n; i++) {
			assert_true(found.entries[i].size_bytes == sizes[i]);
			assert_true(found.entries[i].data_off <= part.plan.entries[i].data_off);
		}
		assert_memory_equal(zip_plan_pickle(&found), zip_plan_pickle(&part.plan),
			sizeof(struct zip_entry));
		zip_plan_deinit(&found);
		sample_part_deinit(&part);
	}
}

/* ---- files larger than memory: the payload is zeros, the rest is glue ---- */

static int read_virtual(void *user, uint64_t off, void *buf, size_t len_bytes, struct pawl_err *err)
{
	memset(buf, 0, len_bytes);
	zip_glue(user, off, off + len_bytes, buf);
	return 0;
}

static void assert_virtual(const uint64_t *sizes, uint32_t n, uint64_t pickle_bytes)
{
	struct zip_plan plan, found;

	assert_int_equal(zip_plan_init(&plan, sizes, n, pickle_bytes, NULL), 0);
	for (uint32_t i = 0; i < n; i++) {
		plan.entries[i].crc = 0x01020304u + i;
	}
	assert_int_equal(zip_plan_read(&found, read_virtual, &plan, plan.size_bytes, NULL), 0);
	assert_same_payloads(&plan, &found);
	zip_plan_deinit(&plan);
	zip_plan_deinit(&found);
}

#define GIB (1ull << 30)

static void zip64_is_used_where_needed(void **state)
{
	const uint64_t large[] = {3, 5 * GIB, 10, 4 * GIB, 70000};
	const uint64_t edge[] = {0xfffffffe, 0xffffffff, 1};
	const uint64_t far[] = {3 * GIB, 3 * GIB, 7};
	uint64_t *many = calloc(70000, sizeof(*many));

	assert_virtual(large, 5, 1000);
	assert_virtual(edge, 3, 1000);
	assert_virtual(far, 3, 1000);
	assert_virtual(far, 1, 5 * GIB);
	assert_virtual(many, 70000, 10);
	/* 0xffff entries are the first that do not fit: that number itself means "zip64". */
	for (uint32_t n = 0xffff - 8; n < 0xffff; n++) {
		assert_virtual(many, n, 10);
	}
	free(many);
}

/* The tail begins just below and above 4 GiB, where the end records decide their own place. */
static void zip64_begins_where_the_tail_does(void **state)
{
	for (uint64_t less = 0; less < 6 * ZIP_ALIGN_LARGE; less += ZIP_ALIGN_LARGE / 2) {
		const uint64_t sizes[] = {4 * GIB - 3 * ZIP_ALIGN_LARGE - less};

		assert_virtual(sizes, 1, 100);
	}
}

/* ---- damage ---- */

/* A plan made from damaged bytes must still be safe to use: nothing in it leaves the file. */
static void assert_within(const struct zip_plan *plan, uint64_t size_bytes)
{
	for (uint32_t i = 0; i < plan->entries_n; i++) {
		assert_true(plan->entries[i].data_off <= size_bytes);
		assert_true(plan->entries[i].size_bytes <= size_bytes - plan->entries[i].data_off);
	}
}

static void small_part(struct sample_part *part)
{
	const uint64_t sizes[] = {10, 0, 100, 200};
	struct rng rng = {1};

	sample_part_init(part, "model", sizes, 3, &rng);
}

static void cut_off_files_are_refused(void **state)
{
	struct sample_part part;
	struct zip_plan plan;

	small_part(&part);
	for (uint64_t n = 0; n < part.plan.size_bytes; n++) {
		uint8_t *copy = malloc(n + 1);

		memcpy(copy, part.image, n);
		assert_int_equal(read_plan(&plan, copy, n), PAWL_ECORRUPT);
		free(copy);
	}
	sample_part_deinit(&part);
}

static void flipped_bits_never_lead_outside(void **state)
{
	struct sample_part part;
	unsigned refused = 0;

	small_part(&part);
	for (uint64_t bit = 0; bit < part.plan.size_bytes * 8; bit++) {
		struct zip_plan plan;

		part.image[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		if (read_plan(&plan, part.image, part.plan.size_bytes) == 0) {
			assert_within(&plan, part.plan.size_bytes);
			zip_plan_deinit(&plan);
		} else {
			refused++;
		}
		part.image[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	assert_true(refused > 1000);
	sample_part_deinit(&part);
}

/* Replaces the first occurrence of from in the file, at or after off. */
static void patch(struct sample_part *part, const char *from, const char *to, uint64_t off)
{
	uint8_t *at = memmem(part->image + off, part->plan.size_bytes - off, from, strlen(from));

	assert_non_null(at);
	memcpy(at, to, strlen(to));
}

static void assert_refused(const char *from, const char *to, bool local_too, int code)
{
	struct sample_part part;
	struct zip_plan plan;

	small_part(&part);
	patch(&part, from, to, part.plan.tail_off);
	if (local_too) {
		patch(&part, from, to, 0);
	}
	assert_int_equal(read_plan(&plan, part.image, part.plan.size_bytes), code);
	sample_part_deinit(&part);
}

static void what_is_not_a_torch_file_is_refused(void **state)
{
	assert_refused("data/1", "data/7", true, PAWL_ECORRUPT); /* a gap */
	assert_refused("data/1", "data/3", true, PAWL_ECORRUPT); /* a gap at the end */
	assert_refused("data/1", "data/0", true, PAWL_ECORRUPT); /* a number twice */
	assert_refused("data/1", "data/x", true, PAWL_ECORRUPT); /* not a number */
	/* Differs from its local header. */
	assert_refused("data/1", "data/7", false, PAWL_ECORRUPT);
	assert_refused("data.pkl", "data.pkx", false, PAWL_ECORRUPT);
	assert_refused("data.pkl", "data.pkx", true, PAWL_ECORRUPT);
	assert_refused("archive/data/0", "elsewhe/data/0", true, PAWL_ECORRUPT);
	assert_refused("archive/data/0", "archive.data.0", true, PAWL_ECORRUPT);
}

static void compressed_and_big_endian_files_are_named(void **state)
{
	struct sample_part part;
	struct pawl_err err;
	struct memory_file file;
	struct zip_plan plan;

	small_part(&part);
	file = (struct memory_file){part.image, part.plan.size_bytes};
	part.image[part.plan.tail_off + 10] = 8; /* method of the first record: deflate */
	assert_int_equal(zip_plan_read(&plan, read_memory, &file, file.size_bytes, &err),
		PAWL_ENOTSUP);
	assert_non_null(strstr(err.msg, "archive/data/0 is compressed"));
	part.image[part.plan.tail_off + 10] = 0;
	patch(&part, "little", "biggie", 0);
	assert_int_equal(zip_plan_read(&plan, read_memory, &file, file.size_bytes, &err),
		PAWL_ENOTSUP);
	assert_non_null(strstr(err.msg, "byte order"));
	sample_part_deinit(&part);
}

/* Returns the directory record of an entry. */
static uint8_t *find_record(struct sample_part *part, const char *name)
{
	uint64_t tail = part->plan.tail_off;
	uint8_t *at = memmem(part->image + tail, part->plan.size_bytes - tail, name, strlen(name));

	assert_non_null(at);
	return at - 46;
}

/* Two records that share bytes: the second is given the first one's place and size. */
static void overlapping_entries_are_refused(void **state)
{
	struct sample_part part;
	struct zip_plan plan;
	struct zip_entry *second;
	uint8_t *record;

	small_part(&part);
	second = &part.plan.entries[2];
	record = find_record(&part, "archive/data/2");
	assert_int_equal(record[20], 100);
	record[20] = record[24] = 200; /* both sizes: it now runs into the next header */
	assert_true(second->data_off + 200 > part.plan.entries[3].header_off);
	assert_int_equal(read_plan(&plan, part.image, part.plan.size_bytes), PAWL_ECORRUPT);
	sample_part_deinit(&part);
}

/* The last entry has no neighbour to overlap, only the directory. */
static void payload_in_the_directory_is_refused(void **state)
{
	struct sample_part part;
	struct zip_plan plan;
	uint8_t *record;

	small_part(&part);
	record = find_record(&part, "archive/data.pkl");
	record[21] = record[25] = 0xff; /* both sizes, second byte: 65280 more */
	assert_int_equal(read_plan(&plan, part.image, part.plan.size_bytes), PAWL_ECORRUPT);
	sample_part_deinit(&part);
}

/* The local header alone has another name. */
static void a_header_of_another_entry_is_refused(void **state)
{
	struct sample_part part;
	struct zip_plan plan;

	small_part(&part);
	patch(&part, "archive/data/1", "archive/data/2", 0);
	assert_int_equal(read_plan(&plan, part.image, part.plan.size_bytes), PAWL_ECORRUPT);
	sample_part_deinit(&part);
}

/* End records that claim a directory of 2^60 bytes are refused before any memory is allocated. */
static void a_directory_larger_than_the_file_is_refused(void **state)
{
	uint8_t bytes[56 + 20 + 22] = {'P', 'K', 6, 6};
	struct zip_plan plan;

	bytes[24] = 1;      /* entries */
	bytes[40 + 7] = 16; /* bytes of the directory: 2^60 */
	memcpy(bytes + 56, "PK\6\7", 4);
	memcpy(bytes + 76, "PK\5\6", 4);
	assert_int_equal(read_plan(&plan, bytes, sizeof(bytes)), PAWL_ECORRUPT);
}

/* A local header, a directory record and an end record with a name of n bytes. */
static void names_have_a_limit(void **state)
{
	for (size_t n = 500; n < 600; n++) {
		uint8_t bytes[30 + 600 + 46 + 600 + 22] = {'P', 'K', 3, 4};
		uint8_t *record = bytes + 30 + n;
		uint8_t *end = record + 46 + n;
		struct zip_plan plan;

		memset(bytes + 30, 'n', n);
		bytes[30 + 10] = '/';
		bytes[26] = record[28] = (uint8_t)n;
		bytes[27] = record[29] = (uint8_t)(n >> 8);
		memcpy(record, "PK\1\2", 4);
		memcpy(record + 46, bytes + 30, n);
		memcpy(end, "PK\5\6", 4);
		end[8] = end[10] = 1;
		end[12] = (uint8_t)(46 + n);
		end[13] = (uint8_t)((46 + n) >> 8);
		end[16] = (uint8_t)(30 + n);
		end[17] = (uint8_t)((30 + n) >> 8);
		/* The file has no data.pkl in any case. */
		assert_int_equal(read_plan(&plan, bytes, (uint64_t)(end + 22 - bytes)),
			PAWL_ECORRUPT);
	}
}

static void allocations_may_fail(void **state)
{
	struct sample_part part;

	small_part(&part);
	for (uint64_t nth = 1; nth <= 3; nth++) {
		struct zip_plan plan;

		fault_arm("zip.read", nth, ENOMEM, false);
		assert_int_equal(read_plan(&plan, part.image, part.plan.size_bytes), PAWL_ENOMEM);
		fault_arm("zip.plan", 1, ENOMEM, false);
		assert_int_equal(zip_plan_init(&plan, part.sizes, 3, 1, NULL), PAWL_ENOMEM);
		fault_disarm();
	}
	sample_part_deinit(&part);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout_is_aligned),
		cmocka_unit_test(longer_pickle_moves_no_storage),
		cmocka_unit_test(limits_are_refused),
		cmocka_unit_test(any_split_gives_the_same_file),
		cmocka_unit_test(file_is_read_back),
		cmocka_unit_test(tail_locates_the_pickle),
		cmocka_unit_test(zip64_is_used_where_needed),
		cmocka_unit_test(zip64_begins_where_the_tail_does),
		cmocka_unit_test(cut_off_files_are_refused),
		cmocka_unit_test(flipped_bits_never_lead_outside),
		cmocka_unit_test(what_is_not_a_torch_file_is_refused),
		cmocka_unit_test(compressed_and_big_endian_files_are_named),
		cmocka_unit_test(overlapping_entries_are_refused),
		cmocka_unit_test(payload_in_the_directory_is_refused),
		cmocka_unit_test(a_header_of_another_entry_is_refused),
		cmocka_unit_test(a_directory_larger_than_the_file_is_refused),
		cmocka_unit_test(names_have_a_limit),
		cmocka_unit_test(allocations_may_fail),
	};
	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
