/* Files that share chunks with the one before: random histories in each way that a store allows,
 * read back byte by byte; files that are written whole all the same; and a manifest that is too
 * large. */
#include "base/err.h"
#include "base/rng.h"
#include "base/wire.h"
#include "ckpt/format/pieces.h"
#include "ckpt/read.h"
#include "ckpt/root.h"
#include "ckpt/write.h"
#include "sample.h"
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
#define DIR_MAX 32

/* How a store lets files share. */
enum sharing { BYTES, NAMES, OBJECTS, SHARINGS };

/* A file as it is saved once: each chunk of the payload is made from a number. */
struct version {
	bool raw;
	uint64_t size_bytes; /* bytes of the payload */
	uint32_t content[CHUNKS];
};

/* A version as it was written: the one file of a tag. */
struct saved {
	struct version version;
	struct manifest manifest; /* folders are owned */
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

/* Prepares manifest and directory of a tag that is named by a number. base may be NULL. */
static void begin(struct saved *saved, unsigned number, const struct saved *base, char *dir)
{
	struct manifest *manifest = &saved->manifest;
	char inner[DIR_MAX + 8];

	*manifest = (struct manifest){.world = 1, .parts_n = 1, .parts = &saved->part};
	snprintf(manifest->tag, sizeof(manifest->tag), "%u", number);
	if (store_is_flat(store)) {
		manifest->folders = calloc(1, sizeof(*manifest->folders));
		manifest->folders_n = 1;
		snprintf(dir, DIR_MAX, "%u/save-x%u", number, number);
		memcpy(manifest->folders[0].dir, dir, strlen(dir) + 1);
		assert_int_equal(base ? manifest_add_folders(manifest, &base->manifest, NULL) : 0,
			0);
		return;
	}
	snprintf(dir, DIR_MAX, "%u", number);
	snprintf(inner, sizeof(inner), "%s/.pawl", dir);
	assert_int_equal(store_mkdir(store, dir, NULL), 0);
	assert_int_equal(store_mkdir(store, inner, NULL), 0);
}

/* Writes a version as the file of a tag; base may be NULL. */
static int write_named(struct saved *saved, const char *file, unsigned number,
	const struct saved *base)
{
	struct manifest_part *part = &saved->part;
	struct write_source source = {.chunk = chunk_of_image};
	struct zip_plan plan;
	char dir[DIR_MAX];
	int rv;

	plan_of(&plan, &saved->version);
	source.user = make_image(&plan, &saved->version);
	*part = (struct manifest_part){.rank = MANIFEST_ALL_RANKS,
		.raw = saved->version.raw,
		.size_bytes = plan.size_bytes,
		.chunks_n = ckpt_chunks(plan.size_bytes)};
	snprintf(part->name, sizeof(part->name), "%s", file);
	snprintf(part->file, sizeof(part->file), "%s", file);
	part->chunks = calloc(part->chunks_n + 1u, sizeof(*part->chunks));
	part->sums = calloc(part->chunks_n + 1u, sizeof(*part->sums));
	part->places = calloc(part->chunks_n + 1u, sizeof(*part->places));
	begin(saved, number, base, dir);
	rv = base ? writer_update(writer, dir, part, &plan, &source,
			    &(const struct write_base){&base->manifest, &base->part,
				    &saved->manifest},
			    NULL)
		  : writer_write(writer, dir, part, &plan, &source, NULL);
	if (rv == 0) {
		manifest_prune_folders(&saved->manifest);
		assert_int_equal(manifest_check(&saved->manifest, NULL), 0);
	}
	free(source.user);
	zip_plan_deinit(&plan);
	return rv;
}

static int write_version(struct saved *saved, unsigned number, const struct saved *base)
{
	return write_named(saved, "f", number, base);
}

static void assert_reads(const struct saved *saved, unsigned number)
{
	struct reader *reader;
	struct zip_plan plan;
	uint8_t *image = image_alloc(saved->part.size_bytes + STORE_ALIGN);

	plan_of(&plan, &saved->version);
	assert_int_equal(reader_open(&reader, store, NULL), 0);
	assert_int_equal(reader_read(reader, &saved->manifest, &saved->part, image, NULL), 0);
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
	free(saved->manifest.folders);
}

static void open_store(enum sharing sharing)
{
	if (sharing == OBJECTS) {
		assert_int_equal(store_mem_open_flat(&store, NULL), 0);
	} else {
		assert_int_equal(store_mem_open(&store, NULL), 0);
		store_mem_clones(store, sharing == BYTES);
	}
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

/* Removes a tag. In a flat store, the folders that a later manifest lists stay; no other one may be
 * needed. */
static void remove_tag(const struct saved *saved, const struct saved *later)
{
	const struct manifest *manifest = &saved->manifest;

	if (manifest->folders_n == 0) {
		assert_int_equal(store_remove(store, manifest->tag, NULL), 0);
	}
	for (uint32_t i = 0; i < manifest->folders_n; i++) {
		if (manifest_find_folder(&later->manifest, manifest->folders[i].dir) ==
			UINT32_MAX) {
			assert_int_equal(store_remove(store, manifest->folders[i].dir, NULL), 0);
		}
	}
}

/* Older tags are removed at random: files do not depend on them. */
static void run_history(enum sharing sharing, struct rng *rng)
{
	struct saved saved[SAVES] = {0};

	open_store(sharing);
	saved[0].version.raw = rng_below(rng, 4) == 0;
	saved[0].version.size_bytes = 5 * CKPT_CHUNK + rng_below(rng, CKPT_CHUNK);
	for (unsigned i = 0; i < SAVES; i++) {
		if (i > 0) {
			saved[i].version = saved[i - 1].version;
			change(&saved[i].version, rng);
		}
		assert_int_equal(write_version(&saved[i], i, i > 0 ? &saved[i - 1] : NULL), 0);
		assert_true(saved[i].part.sources_n <= MANIFEST_SOURCES);
		assert_true(sharing != BYTES || saved[i].part.sources_n == 0);
		assert_true(saved[i].part.depth <= i);
		assert_reads(&saved[i], i);
		if (i > 0 && rng_below(rng, 2)) {
			remove_tag(&saved[i - 1], &saved[i]);
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

	for (unsigned i = 0; i < 3 * SHARINGS; i++) {
		run_history(i % SHARINGS, &rng);
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
		assert_int_equal(b.part.sources_n, sharing == BYTES ? 0 : 2);
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

/* The changed chunks are all that is put, and the manifest says where the others are. */
static void objects_are_used_where_they_are(void **state)
{
	struct saved a = {.version = {.size_bytes = 10 * CKPT_CHUNK}};
	struct saved b = a;
	struct saved c = a;
	char path[STORE_PATH_MAX];

	open_store(OBJECTS);
	assert_int_equal(write_version(&a, 0, NULL), 0);
	b.version.content[4]++;
	assert_int_equal(write_version(&b, 1, &a), 0);
	manifest_path(path, sizeof(path), &b.manifest, &b.part, 0);
	assert_string_equal(path, "1/save-x1/.pawl/f.0");
	manifest_path(path, sizeof(path), &b.manifest, &b.part, 1);
	assert_string_equal(path, "0/save-x0/f");
	assert_int_equal(store_stat(store, "1/save-x1/f", NULL, NULL, NULL), PAWL_ENOENT);
	/* An unchanged file with the same sources has nothing of its own. */
	c.version = b.version;
	assert_int_equal(write_version(&c, 2, &b), 0);
	assert_int_equal(c.part.sources_n, 2);
	assert_int_equal(c.manifest.folders_n, 3);
	assert_int_equal(store_stat(store, "2", NULL, NULL, NULL), PAWL_ENOENT);
	assert_reads(&c, 2);
	saved_deinit(&a);
	saved_deinit(&b);
	saved_deinit(&c);
	close_store();
}

/* An unchanged file, raw or not, stays where it is. */
static void an_unchanged_object_is_used_again(void **state)
{
	struct saved a = {.version = {.raw = true, .size_bytes = CKPT_CHUNK + 77}};
	struct saved b = a;
	char path[STORE_PATH_MAX];

	open_store(OBJECTS);
	assert_int_equal(write_version(&a, 0, NULL), 0);
	assert_int_equal(write_version(&b, 1, &a), 0);
	assert_int_equal(b.part.sources_n, 0);
	assert_int_equal(b.part.depth, 1);
	manifest_path(path, sizeof(path), &b.manifest, &b.part, 0);
	assert_string_equal(path, "0/save-x0/f");
	assert_int_equal(count_written("1"), 0);
	assert_reads(&b, 1);
	saved_deinit(&a);
	saved_deinit(&b);
	close_store();
}

/* An object of the base that is gone, or not what the base's manifest describes, or has another
 * name, is not used. */
static void a_doubtful_base_is_not_used(void **state)
{
	enum doubt { GONE, REPLACED, RENAMED, DOUBTS };

	for (enum doubt doubt = GONE; doubt < DOUBTS; doubt++) {
		for (uint32_t changes = 0; changes < 2; changes++) {
			struct saved a = {.version = {.size_bytes = 3 * CKPT_CHUNK}};
			struct saved b = a;

			open_store(OBJECTS);
			assert_int_equal(write_version(&a, 0, NULL), 0);
			b.version.content[2] += changes;
			if (doubt == GONE) {
				assert_int_equal(store_remove(store, "0", NULL), 0);
			} else if (doubt == REPLACED) {
				assert_int_equal(
					store_write_small(store, "0/save-x0/f", "x", 1, NULL), 0);
			}
			assert_int_equal(write_named(&b, doubt == RENAMED ? "g" : "f", 1, &a), 0);
			assert_int_equal(b.part.sources_n, 0);
			assert_int_equal(b.part.depth, 0);
			assert_int_equal(b.part.at[0].folder, 0);
			assert_int_equal(b.manifest.folders_n, 1);
			assert_reads(&b, 1);
			saved_deinit(&a);
			saved_deinit(&b);
			close_store();
		}
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
static void add_sources(enum sharing sharing)
{
	struct saved saved[CHUNKS] = {0};
	bool whole = false;

	open_store(sharing);
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

static void too_many_sources_end_in_a_whole_file(void **state)
{
	add_sources(NAMES);
	add_sources(OBJECTS);
}

/* If files cannot share or the base is gone, the file is written whole; any other error is
 * returned. Operations of directories: mkdir twice, open, create, resize, clone, remove; then the
 * link, which fails. Of a flat store: the stat of the base's file, which fails. */
static void sharing_fails(bool flat)
{
	static const int codes[] = {PAWL_ENOTSUP, PAWL_ENOENT, PAWL_EIO};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct saved a = {.version = {.size_bytes = 3 * CKPT_CHUNK}};
		struct saved b = a;
		struct store_fault_plan plan = {STORE_FAULT_FAIL, .code = codes[i]};
		struct store *mem;
		uint64_t ops;

		assert_int_equal(
			flat ? store_mem_open_flat(&mem, NULL) : store_mem_open(&mem, NULL), 0);
		assert_int_equal(store_fault_open(mem, NULL, &store, NULL), 0);
		assert_int_equal(writer_open(&writer, store, false, NULL), 0);
		assert_int_equal(write_version(&a, 0, NULL), 0);
		b.version.content[0]++;
		plan.nth = flat ? 1 : 8;
		store_fault_set(store, &plan);
		assert_int_equal(write_version(&b, 1, &a), codes[i] == PAWL_EIO ? PAWL_EIO : 0);
		ops = store_fault_ops(store);
		assert_true(ops >= plan.nth);
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

static void what_cannot_share_is_whole(void **state)
{
	sharing_fails(false);
	sharing_fails(true);
}

/* ---- a manifest that is too large ---- */

static bool encodes_too_much; /* each manifest gets 1 GiB more */

void __real_manifest_encode(const struct manifest *manifest, struct wire_out *out);
void __wrap_manifest_encode(const struct manifest *manifest, struct wire_out *out);

void __wrap_manifest_encode(const struct manifest *manifest, struct wire_out *out)
{
	__real_manifest_encode(manifest, out);
	if (encodes_too_much) {
		wire_put_raw(out, NULL, MANIFEST_MAX_BYTES);
	}
}

static void a_manifest_beyond_its_limit_is_refused_as_that(void **state)
{
	struct tags_root *root;
	struct pawl_err err;

	assert_int_equal(store_mem_open(&store, NULL), 0);
	assert_int_equal(tags_root_over(store, &root, NULL), 0);
	encodes_too_much = true;
	assert_int_equal(sample_save(sample_get(1, 0), root, &err), PAWL_ELIMIT);
	assert_string_equal(err.msg,
		"publish global_step1: the manifest is larger than 1073741824 bytes");
	encodes_too_much = false;
	assert_int_equal(sample_save(sample_get(1, 0), root, &err), 0);
	tags_root_close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_history_reads_back),
		cmocka_unit_test(only_what_changed_is_written),
		cmocka_unit_test(objects_are_used_where_they_are),
		cmocka_unit_test(an_unchanged_object_is_used_again),
		cmocka_unit_test(a_doubtful_base_is_not_used),
		cmocka_unit_test(an_unchanged_file_gets_a_second_name),
		cmocka_unit_test(too_many_sources_end_in_a_whole_file),
		cmocka_unit_test(what_cannot_share_is_whole),
		cmocka_unit_test(a_manifest_beyond_its_limit_is_refused_as_that),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
