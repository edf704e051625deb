/* Manifests: they decode to what was encoded; any other byte string is refused. */
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "ckpt/format/manifest.h"
#include "ckpt/format/merge.h"
#include "ckpt/format/pieces.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define HEADER_BYTES 24u /* magic, version, length, checksum: see docs/format.md */

/* Two ranks: "model" is shared, "rng" is each rank's own. */
struct fixture {
	struct manifest manifest;
	struct manifest_part parts[3];
	uint32_t chunks[3][2];
	uint32_t sums[2];
	struct manifest_place places[2];
	struct manifest_folder folders[3];
	uint8_t table[5];
	struct wire_out out; /* the encoded manifest */
};

static void set_text(char *buf, size_t cap_bytes, const char *text)
{
	assert_true(strlen(text) < cap_bytes);
	memcpy(buf, text, strlen(text) + 1);
}

static void encode(struct fixture *f)
{
	wire_out_reset(&f->out);
	manifest_encode(&f->manifest, &f->out);
	assert_false(f->out.failed);
}

static void make(struct fixture *f)
{
	static const char *const files[] = {"model", "rng-rank0", "rng-rank1"};

	memset(f, 0, sizeof(*f));
	memcpy(f->table, "table", 5);
	for (uint32_t i = 0; i < 3; i++) {
		set_text(f->parts[i].name, sizeof(f->parts[i].name), i == 0 ? "model" : "rng");
		set_text(f->parts[i].file, sizeof(f->parts[i].file), files[i]);
		f->parts[i].rank = i == 0 ? MANIFEST_ALL_RANKS : i - 1;
		f->parts[i].size_bytes = CKPT_CHUNK + 4096;
		f->parts[i].chunks_n = 2;
		f->parts[i].chunks = f->chunks[i];
		f->chunks[i][0] = 10 * i;
		f->chunks[i][1] = 10 * i + 1;
	}
	f->parts[0].tensors_bytes = sizeof(f->table);
	f->parts[0].tensors = f->table;
	f->manifest = (struct manifest){.step = 500,
		.tag = "global_step500",
		.job = "job 7",
		.attempt = 3,
		.world = 2,
		.created_ns = -5,
		.parts_n = 3,
		.parts = f->parts};
	encode(f);
}

/* As make, with second checksums and links for the first file. */
static void make_linked(struct fixture *f)
{
	make(f);
	f->sums[0] = 77;
	f->sums[1] = 78;
	f->places[0] = (struct manifest_place){1, 5};
	f->places[1] = (struct manifest_place){0, 0};
	f->parts[0].sums = f->sums;
	f->parts[0].depth = 3;
	f->parts[0].sources_n = 2;
	f->parts[0].sources[0] = 4096;
	f->parts[0].sources[1] = 6 * CKPT_CHUNK;
	f->parts[0].places = f->places;
	encode(f);
}

/* As make_linked, with files in folders of three saves. */
static void make_objects(struct fixture *f)
{
	static const char *const dirs[] = {"global_step500/save-5f", "a/save-hosts-3-X",
		"b c/save-9"};

	make_linked(f);
	for (uint32_t i = 0; i < 3; i++) {
		set_text(f->folders[i].dir, sizeof(f->folders[i].dir), dirs[i]);
	}
	f->manifest.folders_n = 3;
	f->manifest.folders = f->folders;
	f->parts[0].at[0] = (struct manifest_file){0, false};
	f->parts[0].at[1] = (struct manifest_file){2, true};
	f->parts[1].at[0] = (struct manifest_file){0, true};
	f->parts[2].at[0] = (struct manifest_file){2, true};
	encode(f);
}

static void (*const makers[])(struct fixture *f) = {make, make_linked, make_objects};

#define MAKERS 3

static void drop(struct fixture *f)
{
	wire_out_deinit(&f->out);
}

static int decode_copy(const void *bytes, size_t len_bytes, struct pawl_err *err)
{
	uint8_t *copy = malloc(len_bytes + !len_bytes); /* exact, so that ASan sees a byte beyond */
	struct manifest m;
	int rv;

	memcpy(copy, bytes, len_bytes);
	rv = manifest_decode(&m, copy, len_bytes, err);
	free(copy);
	if (rv == 0) {
		manifest_deinit(&m);
	}
	return rv;
}

static void round_trip(void **state)
{
	struct fixture f;
	struct manifest m;
	struct wire_out again = {0};

	make(&f);
	assert_int_equal(manifest_decode(&m, f.out.bytes, f.out.len_bytes, NULL), 0);
	assert_int_equal(m.step, 500);
	assert_string_equal(m.tag, "global_step500");
	assert_string_equal(m.job, "job 7");
	assert_int_equal(m.attempt, 3);
	assert_int_equal(m.world, 2);
	assert_true(m.created_ns == -5);
	assert_int_equal(m.parts[2].chunks[1], 21);
	assert_memory_equal(m.parts[0].tensors, "table", 5);
	manifest_encode(&m, &again);
	assert_int_equal(again.len_bytes, f.out.len_bytes);
	assert_memory_equal(again.bytes, f.out.bytes, again.len_bytes);
	manifest_deinit(&m);
	wire_out_deinit(&again);
	drop(&f);
}

/* A release without folders reports that, and does not report the manifest as damaged. */
static void what_is_new_has_a_newer_version(void **state)
{
	static const char *const names[] = {"a/b", ".a", "a/.b"};
	struct fixture f;

	make(&f);
	assert_int_equal(f.out.bytes[8], 2);
	for (int i = 0; i < 3; i++) {
		set_text(f.parts[0].name, sizeof(f.parts[0].name), names[i]);
		set_text(f.parts[0].file, sizeof(f.parts[0].file), names[i]);
		encode(&f);
		assert_int_equal(f.out.bytes[8], 4);
		assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, NULL), 0);
	}
	drop(&f);
}

static void a_linked_file_is_recorded(void **state)
{
	struct fixture f;
	struct manifest m;
	struct wire_out again = {0};
	char path[STORE_PATH_MAX];

	make_linked(&f);
	assert_int_equal(f.out.bytes[8], 3);
	assert_int_equal(manifest_decode(&m, f.out.bytes, f.out.len_bytes, NULL), 0);
	assert_int_equal(m.parts[0].depth, 3);
	assert_int_equal(m.parts[0].sums[1], 78);
	assert_int_equal(manifest_files_n(&m.parts[0]), 2);
	assert_int_equal(manifest_file_bytes(&m.parts[0], 1), 6 * CKPT_CHUNK);
	assert_int_equal(manifest_place(&m.parts[0], 0).source, 1);
	assert_int_equal(manifest_place(&m.parts[0], 0).chunk, 5);
	manifest_file_path(path, sizeof(path), "dir", &m.parts[0], 1);
	assert_string_equal(path, "dir/.pawl/model.1");
	assert_int_equal(manifest_files_n(&m.parts[1]), 1);
	assert_int_equal(manifest_place(&m.parts[1], 1).chunk, 1);
	manifest_file_path(path, sizeof(path), "dir", &m.parts[1], 0);
	assert_string_equal(path, "dir/rng-rank0");
	manifest_encode(&m, &again);
	assert_int_equal(again.len_bytes, f.out.len_bytes);
	assert_memory_equal(again.bytes, f.out.bytes, again.len_bytes);
	manifest_deinit(&m);
	wire_out_deinit(&again);
	drop(&f);
}

static void any_cut_or_addition_is_refused(void **state)
{
	for (unsigned i = 0; i < MAKERS; i++) {
		struct fixture f;

		makers[i](&f);
		for (size_t n = 0; n < f.out.len_bytes; n++) {
			assert_int_equal(decode_copy(f.out.bytes, n, NULL), PAWL_ECORRUPT);
		}
		wire_put_u8(&f.out, 0);
		assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, NULL), PAWL_ECORRUPT);
		drop(&f);
	}
}

/* Puts the checksum that a writer of the manifest's version would, so that the fields are checked
 * on their own. */
static void put_checksum(struct wire_out *out)
{
	uint8_t version = out->bytes[8];
	uint32_t seed = version > 2 ? crc32c(0, &version, 1) : 0;

	wire_patch_u32(out, 20,
		crc32c(seed, out->bytes + HEADER_BYTES, out->len_bytes - HEADER_BYTES));
}

static void any_cut_under_a_right_checksum_is_refused(void **state)
{
	for (unsigned i = 0; i < MAKERS; i++) {
		struct fixture f;

		makers[i](&f);
		while (f.out.len_bytes > HEADER_BYTES) {
			f.out.len_bytes--;
			wire_patch_u32(&f.out, 12, (uint32_t)(f.out.len_bytes - HEADER_BYTES));
			put_checksum(&f.out);
			assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, NULL),
				PAWL_ECORRUPT);
		}
		drop(&f);
	}
}

static void any_flipped_bit_is_refused(void **state)
{
	for (unsigned i = 0; i < MAKERS; i++) {
		struct fixture f;

		makers[i](&f);
		for (size_t bit = 0; bit < f.out.len_bytes * 8; bit++) {
			f.out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
			assert_int_not_equal(decode_copy(f.out.bytes, f.out.len_bytes, NULL), 0);
			f.out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		}
		drop(&f);
	}
}

static void flips_under_a_right_checksum_stay_within_limits(void **state)
{
	for (unsigned i = 0; i < MAKERS; i++) {
		struct fixture f;
		unsigned refused = 0;

		makers[i](&f);
		for (size_t bit = HEADER_BYTES * 8; bit < f.out.len_bytes * 8; bit++) {
			f.out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
			put_checksum(&f.out);
			refused += decode_copy(f.out.bytes, f.out.len_bytes, NULL) != 0;
			f.out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		}
		assert_true(refused > f.out.len_bytes * 2);
		drop(&f);
	}
}

/* One byte beyond the limit, in pages that are never touched but for the first. */
static void a_manifest_beyond_its_limit_is_named(void **state)
{
	size_t len_bytes = (size_t)MANIFEST_MAX_BYTES + 1;
	struct fixture f;
	struct manifest m;
	struct pawl_err err;
	void *bytes = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(bytes, MAP_FAILED);
	make(&f);
	memcpy(bytes, f.out.bytes, f.out.len_bytes);
	assert_int_equal(manifest_decode(&m, bytes, len_bytes, &err), PAWL_ECORRUPT);
	assert_string_equal(err.msg, "manifest: it has 1073741825 bytes, 1073741824 at most");
	munmap(bytes, len_bytes);
	drop(&f);
}

static void newer_versions_are_named(void **state)
{
	struct fixture f;
	struct pawl_err err;

	make(&f);
	f.out.bytes[8] = 6;
	assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, &err), PAWL_ENOTSUP);
	assert_non_null(strstr(err.msg, "version 6"));
	assert_non_null(strstr(err.msg, "version 5"));
	drop(&f);
}

/* Expects both the check and, if the manifest is encoded all the same, the decoder to refuse it. */
static void assert_refused(struct fixture *f, const char *why)
{
	struct pawl_err err;

	assert_int_equal(manifest_check(&f->manifest, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, why));
	encode(f);
	assert_int_equal(decode_copy(f->out.bytes, f->out.len_bytes, &err), PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, why));
	drop(f);
	make(f);
}

static void what_cannot_be_is_refused(void **state)
{
	struct fixture f;
	struct manifest_part part;

	make(&f);
	assert_int_equal(manifest_check(&f.manifest, NULL), 0);
	set_text(f.manifest.tag, sizeof(f.manifest.tag), "../x");
	assert_refused(&f, "not a tag");
	f.manifest.world = 0;
	assert_refused(&f, "0 ranks");
	set_text(f.parts[0].file, sizeof(f.parts[0].file), "other");
	assert_refused(&f, "cannot hold");
	set_text(f.parts[0].name, sizeof(f.parts[0].name), "a/../b");
	set_text(f.parts[0].file, sizeof(f.parts[0].file), "a/../b");
	assert_refused(&f, "cannot hold");
	set_text(f.parts[0].name, sizeof(f.parts[0].name), "a/b");
	set_text(f.parts[0].file, sizeof(f.parts[0].file), "a/b");
	assert_int_equal(manifest_check(&f.manifest, NULL), 0);
	set_text(f.parts[1].name, sizeof(f.parts[1].name), "a/b/c");
	set_text(f.parts[1].file, sizeof(f.parts[1].file), "a/b/c");
	f.parts[1].rank = MANIFEST_ALL_RANKS;
	assert_refused(&f, "a/b is a file, and a folder of a/b/c");
	f.parts[2].rank = 2;
	set_text(f.parts[2].file, sizeof(f.parts[2].file), "rng-rank2");
	assert_refused(&f, "cannot hold");
	part = f.parts[1];
	f.parts[1] = f.parts[2];
	f.parts[2] = part;
	assert_refused(&f, "out of order");
	f.parts[2] = f.parts[1];
	assert_refused(&f, "twice");
	f.parts[1].size_bytes += 1;
	assert_refused(&f, "checksums");
	f.parts[1].size_bytes = 4096;
	assert_refused(&f, "checksums");
	f.parts[1].size_bytes = 0;
	f.parts[1].chunks_n = 0;
	assert_refused(&f, "checksums");
	/* A partition is named like another partition's file of rank 0. */
	set_text(f.parts[1].name, sizeof(f.parts[1].name), "rng-rank0");
	f.parts[1].rank = MANIFEST_ALL_RANKS;
	assert_int_equal(manifest_check(&f.manifest, NULL), 0);
	assert_null(manifest_find_part(&f.manifest, "rng", 0));
	drop(&f);
}

static void what_cannot_be_linked_is_refused(void **state)
{
	static const struct manifest_place bad[] = {{2, 0}, {0, 1}, {1, 6}, {1, UINT32_MAX}};
	struct fixture f;

	make_linked(&f);
	f.parts[0].raw = true;
	assert_refused(&f, "sources");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		drop(&f);
		make_linked(&f);
		f.places[0] = bad[i];
		assert_refused(&f, "chunk 0 is in no source");
	}
	drop(&f);
}

/* ---- folders of saves ---- */

static void files_of_several_folders_are_recorded(void **state)
{
	struct fixture f;
	struct manifest m;
	struct wire_out again = {0};
	char path[STORE_PATH_MAX];

	make_objects(&f);
	assert_int_equal(f.out.bytes[8], 5);
	assert_int_equal(manifest_decode(&m, f.out.bytes, f.out.len_bytes, NULL), 0);
	assert_int_equal(m.folders_n, 3);
	assert_string_equal(m.folders[1].dir, "a/save-hosts-3-X");
	manifest_path(path, sizeof(path), &m, &m.parts[0], 0);
	assert_string_equal(path, "global_step500/save-5f/.pawl/model.0");
	manifest_path(path, sizeof(path), &m, &m.parts[0], 1);
	assert_string_equal(path, "b c/save-9/model");
	manifest_path(path, sizeof(path), &m, &m.parts[1], 0);
	assert_string_equal(path, "global_step500/save-5f/rng-rank0");
	assert_int_equal(m.parts[2].at[0].folder, 2);
	assert_true(m.parts[2].at[0].own_name);
	manifest_encode(&m, &again);
	assert_int_equal(again.len_bytes, f.out.len_bytes);
	assert_memory_equal(again.bytes, f.out.bytes, again.len_bytes);
	manifest_deinit(&m);
	wire_out_deinit(&again);
	drop(&f);
	/* Without folders of saves, files are in the tag's directory. */
	make_linked(&f);
	manifest_path(path, sizeof(path), &f.manifest, &f.parts[0], 1);
	assert_string_equal(path, "global_step500/.pawl/model.1");
	manifest_path(path, sizeof(path), &f.manifest, &f.parts[1], 0);
	assert_string_equal(path, "global_step500/rng-rank0");
	drop(&f);
}

static void what_is_no_folder_of_a_save_is_refused(void **state)
{
	static const char *const bad[] = {"", "a", "a/b", "a/save-", "/save-1", ".a/save-1",
		"a/b/save-1", "a/save-1/", "a/save-1.2", "a/save-..", "a/Save-1", "a\n/save-1",
		"a\x7f/save-1", "../save-1"};
	char longest[CKPT_TAG_MAX + 1];
	struct fixture f;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		make_objects(&f);
		set_text(f.folders[1].dir, sizeof(f.folders[1].dir), bad[i]);
		assert_refused(&f, "is no folder of a save");
		drop(&f);
	}
	make_objects(&f);
	memset(longest, 'x', sizeof(longest));
	snprintf(f.folders[1].dir, sizeof(f.folders[1].dir), "%.*s/save-1", (int)CKPT_TAG_MAX - 1,
		longest);
	assert_int_equal(manifest_check(&f.manifest, NULL), 0);
	snprintf(f.folders[1].dir, sizeof(f.folders[1].dir), "%.*s/save-1", (int)CKPT_TAG_MAX,
		longest);
	assert_refused(&f, "is no folder of a save");
	drop(&f);
	make_objects(&f);
	f.folders[2] = f.folders[0];
	assert_refused(&f, "is listed twice");
	drop(&f);
}

static void what_is_in_no_folder_is_refused(void **state)
{
	static const struct manifest_file bad[] = {{3, true}, {UINT32_MAX, false}, {2, true}};
	struct fixture f;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		make_objects(&f);
		f.parts[0].at[0] = bad[i]; /* the last one is the place of the other source */
		assert_refused(&f, "cannot be in folder");
		drop(&f);
	}
	make_objects(&f);
	f.parts[0].at[0] = (struct manifest_file){2, false};
	assert_int_equal(manifest_check(&f.manifest, NULL), 0);
	f.parts[1].at[0].own_name = false; /* not linked */
	assert_refused(&f, "cannot be in folder");
	drop(&f);
}

/* Decoders take no number of folders on trust. */
static void impossible_numbers_of_folders_are_refused(void **state)
{
	static const uint32_t bad[] = {0, MANIFEST_FOLDERS_MAX, MANIFEST_FOLDERS_MAX + 1,
		UINT32_MAX};
	struct fixture f;
	struct pawl_err err;
	size_t off;

	make_objects(&f);
	/* step, tag, job, attempt, world, created, files */
	off = HEADER_BYTES + 8 + 4 + strlen("global_step500") + 4 + strlen("job 7") + 4 + 4 + 8 + 4;
	assert_int_equal(f.out.bytes[off], 3);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		wire_patch_u32(&f.out, off, bad[i]);
		put_checksum(&f.out);
		assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, &err), PAWL_ECORRUPT);
		assert_non_null(strstr(err.msg, "first fields"));
	}
	/* One too many is refused before there is memory for them, also in a long input. */
	wire_patch_u32(&f.out, off, MANIFEST_FOLDERS_MAX + 1);
	for (uint32_t i = 0; i < MANIFEST_FOLDERS_MAX; i++) {
		wire_put_u64(&f.out, 0);
	}
	wire_patch_u32(&f.out, 12, (uint32_t)(f.out.len_bytes - HEADER_BYTES));
	put_checksum(&f.out);
	fault_arm("manifest.decode", 1, ENOMEM, false);
	assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, NULL), PAWL_ECORRUPT);
	fault_disarm();
	drop(&f);
}

static void a_flag_of_a_place_has_two_values(void **state)
{
	struct fixture f, other;
	size_t off = HEADER_BYTES;

	make_objects(&f);
	make_objects(&other);
	other.parts[0].at[0].own_name = true;
	encode(&other);
	while (f.out.bytes[off] == other.out.bytes[off]) {
		off++;
	}
	for (unsigned flag = 0; flag < 256; flag++) {
		f.out.bytes[off] = (uint8_t)flag;
		put_checksum(&f.out);
		assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, NULL),
			flag < 2 ? 0 : PAWL_ECORRUPT);
	}
	drop(&f);
	drop(&other);
}

static void folders_are_added_once(void **state)
{
	struct manifest m = {.tag = "t"};
	struct fixture f;
	struct pawl_err err;

	make_objects(&f);
	m.folders = calloc(1, sizeof(*m.folders));
	m.folders_n = 1;
	m.folders[0] = f.folders[1];
	fault_arm("manifest.folders", 1, ENOMEM, false);
	assert_int_equal(manifest_add_folders(&m, &f.manifest, NULL), PAWL_ENOMEM);
	fault_disarm();
	assert_int_equal(m.folders_n, 1);
	assert_int_equal(manifest_add_folders(&m, &f.manifest, NULL), 0);
	assert_int_equal(m.folders_n, 3);
	assert_int_equal(manifest_find_folder(&m, f.folders[1].dir), 0);
	assert_int_equal(manifest_find_folder(&m, f.folders[0].dir), 1);
	assert_int_equal(manifest_find_folder(&m, f.folders[2].dir), 2);
	assert_int_equal(manifest_find_folder(&m, "c/save-1"), UINT32_MAX);
	assert_int_equal(manifest_add_folders(&m, &f.manifest, NULL), 0);
	assert_int_equal(m.folders_n, 3);
	/* at most MANIFEST_FOLDERS_MAX */
	m.folders = realloc(m.folders, MANIFEST_FOLDERS_MAX * sizeof(*m.folders));
	for (m.folders_n = 0; m.folders_n < MANIFEST_FOLDERS_MAX; m.folders_n++) {
		snprintf(m.folders[m.folders_n].dir, sizeof(m.folders->dir), "t/save-%u",
			m.folders_n);
	}
	assert_int_equal(manifest_add_folders(&m, &f.manifest, &err), PAWL_ELIMIT);
	assert_non_null(strstr(err.msg, "4099 folders"));
	assert_int_equal(m.folders_n, MANIFEST_FOLDERS_MAX);
	free(m.folders);
	drop(&f);
}

static void unused_folders_are_dropped(void **state)
{
	struct fixture f;

	make_objects(&f);
	manifest_prune_folders(&f.manifest); /* nobody uses [1] */
	assert_int_equal(f.manifest.folders_n, 2);
	assert_string_equal(f.folders[1].dir, "b c/save-9");
	assert_int_equal(f.parts[0].at[1].folder, 1);
	assert_int_equal(f.parts[2].at[0].folder, 1);
	assert_int_equal(f.parts[1].at[0].folder, 0);
	assert_int_equal(manifest_check(&f.manifest, NULL), 0);
	f.manifest.parts_n = 0;
	manifest_prune_folders(&f.manifest); /* the folder of the save itself stays */
	assert_int_equal(f.manifest.folders_n, 1);
	assert_string_equal(f.folders[0].dir, "global_step500/save-5f");
	drop(&f);
	make(&f);
	manifest_prune_folders(&f.manifest);
	assert_int_equal(f.manifest.folders_n, 0);
	drop(&f);
}

static void hosts_use_the_same_folders(void **state)
{
	struct fixture f;
	struct manifest_folder other[3];
	struct manifest second, merged;
	struct pawl_err err;

	make_objects(&f);
	memcpy(other, f.folders, sizeof(other));
	second = f.manifest;
	second.folders = other;
	second.parts = &f.parts[2];
	second.parts_n = 1;
	f.manifest.parts_n = 2;
	assert_int_equal(manifest_merge((struct merge_host[]){{&f.manifest, 0, 1}, {&second, 1, 1}},
				 2, &merged, NULL),
		0);
	assert_int_equal(merged.folders_n, 3);
	assert_memory_equal(merged.folders, f.folders, sizeof(f.folders));
	assert_int_equal(merged.parts[2].at[0].folder, 2);
	assert_int_equal(manifest_check(&merged, NULL), 0);
	free(merged.parts);
	free(merged.folders);
	other[2].dir[0] = 'z';
	assert_int_equal(manifest_merge((struct merge_host[]){{&f.manifest, 0, 1}, {&second, 1, 1}},
				 2, &merged, &err),
		PAWL_EMISMATCH);
	assert_non_null(strstr(err.msg, "rank 1 and rank 0 save on top of different"));
	second.folders_n = 2;
	assert_int_equal(manifest_merge((struct merge_host[]){{&f.manifest, 0, 1}, {&second, 1, 1}},
				 2, &merged, NULL),
		PAWL_EMISMATCH);
	drop(&f);
}

/* ---- names ---- */

static void parts_are_found(void **state)
{
	struct fixture f;

	make(&f);
	assert_ptr_equal(manifest_find_part(&f.manifest, "model", 0), &f.parts[0]);
	assert_ptr_equal(manifest_find_part(&f.manifest, "model", 7), &f.parts[0]);
	assert_ptr_equal(manifest_find_part(&f.manifest, "rng", 0), &f.parts[1]);
	assert_ptr_equal(manifest_find_part(&f.manifest, "rng", 1), &f.parts[2]);
	assert_null(manifest_find_part(&f.manifest, "rng", 2));
	assert_null(manifest_find_part(&f.manifest, "optim", 0));
	assert_null(manifest_find_part(&f.manifest, "rng-rank0", 0));
	/* In a world of one, a rank's own file has the name of a shared one. */
	f.manifest.world = 1;
	f.parts[0].rank = 0;
	assert_ptr_equal(manifest_find_part(&f.manifest, "model", 0), &f.parts[0]);
	assert_null(manifest_find_part(&f.manifest, "model", 1));
	f.manifest.parts_n = 0;
	assert_null(manifest_find_part(&f.manifest, "model", 0));
	drop(&f);
}

static void files_are_named(void **state)
{
	char file[CKPT_NAME_MAX + 16];
	char name[CKPT_NAME_MAX];

	manifest_file_name(file, sizeof(file), "rng", false, 3, 4);
	assert_string_equal(file, "rng-rank3");
	manifest_file_name(file, sizeof(file), "rng", true, 3, 4);
	assert_string_equal(file, "rng");
	manifest_file_name(file, sizeof(file), "rng", false, 0, 1);
	assert_string_equal(file, "rng");
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	manifest_file_name(file, sizeof(file), name, false, UINT32_MAX - 1, UINT32_MAX);
	assert_int_equal(strlen(file), strlen(name) + strlen("-rank4294967294"));
}

static void allocation_may_fail(void **state)
{
	struct fixture f;

	make(&f);
	fault_arm("manifest.decode", 1, ENOMEM, false);
	assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, NULL), PAWL_ENOMEM);
	fault_disarm();
	drop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(what_is_new_has_a_newer_version),
		cmocka_unit_test(a_linked_file_is_recorded),
		cmocka_unit_test(any_cut_or_addition_is_refused),
		cmocka_unit_test(any_cut_under_a_right_checksum_is_refused),
		cmocka_unit_test(any_flipped_bit_is_refused),
		cmocka_unit_test(flips_under_a_right_checksum_stay_within_limits),
		cmocka_unit_test(a_manifest_beyond_its_limit_is_named),
		cmocka_unit_test(newer_versions_are_named),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(what_cannot_be_linked_is_refused),
		cmocka_unit_test(files_of_several_folders_are_recorded),
		cmocka_unit_test(what_is_no_folder_of_a_save_is_refused),
		cmocka_unit_test(what_is_in_no_folder_is_refused),
		cmocka_unit_test(impossible_numbers_of_folders_are_refused),
		cmocka_unit_test(a_flag_of_a_place_has_two_values),
		cmocka_unit_test(folders_are_added_once),
		cmocka_unit_test(unused_folders_are_dropped),
		cmocka_unit_test(hosts_use_the_same_folders),
		cmocka_unit_test(parts_are_found),
		cmocka_unit_test(files_are_named),
		cmocka_unit_test(allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
