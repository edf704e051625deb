/* Manifests and tensor tables: they decode to what was encoded; any other byte string is
 * refused. */
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "base/wire.h"
#include "ckpt/format/manifest.h"
#include "ckpt/format/plan.h"
#include "ckpt/format/tensors.h"
#include "seed.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SEEDS        100
#define HEADER_BYTES 24u /* magic, version, length, checksum: see docs/format.md */

static uint64_t first_seed; /* seed of the first of SEEDS random runs */

/* Two ranks: "model" is shared, "rng" is each rank's own. */
struct fixture {
	struct manifest manifest;
	struct manifest_part parts[3];
	uint32_t chunks[3][2];
	uint32_t sums[2];
	struct manifest_place places[2];
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

static void (*const makers[])(struct fixture *f) = {make, make_linked};

#define MAKERS 2

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

/* Puts the checksum that a writer of the manifest's version would, so that the fields are checked
 * on their own. */
static void put_checksum(struct wire_out *out)
{
	uint8_t version = out->bytes[8];
	uint32_t seed = version > 2 ? crc32c(0, &version, 1) : 0;

	wire_patch_u32(out, 20,
		crc32c(seed, out->bytes + HEADER_BYTES, out->len_bytes - HEADER_BYTES));
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

static void newer_versions_are_named(void **state)
{
	struct fixture f;
	struct pawl_err err;

	make(&f);
	f.out.bytes[8] = 5;
	assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, &err), PAWL_ENOTSUP);
	assert_non_null(strstr(err.msg, "version 5"));
	assert_non_null(strstr(err.msg, "version 4"));
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

/* ---- tensor tables ---- */

static void random_tensor(struct pawl_tensor *tensor, struct rng *rng)
{
	memset(tensor, 0, sizeof(*tensor));
	memset(tensor->name, 'n', rng_below(rng, PAWL_TENSOR_NAME_MAX));
	memset(tensor->dtype, 'd', rng_below(rng, PAWL_TENSOR_DTYPE_MAX));
	tensor->storage = (uint32_t)rng_u64(rng);
	tensor->offset_bytes = rng_u64(rng);
	tensor->ndim = (uint32_t)rng_below(rng, PAWL_TENSOR_DIMS_MAX + 1);
	for (uint32_t d = 0; d < tensor->ndim; d++) {
		tensor->shape[d] = rng_u64(rng);
	}
	tensor->sharded = rng_below(rng, 2) == 1;
	for (uint32_t d = 0; d < tensor->ndim && tensor->sharded; d++) {
		tensor->start[d] = rng_below(rng, UINT64_MAX - tensor->shape[d]);
		tensor->global[d] = tensor->start[d] + tensor->shape[d];
	}
}

static void tensors_come_back(void **state)
{
	for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
		struct rng rng = {seed}, again = {seed};
		struct pawl_tensor put, got;
		struct wire_out out = {0};
		size_t off = 0;

		for (int i = 0; i < 5; i++) {
			random_tensor(&put, &rng);
			tensor_encode(&put, &out);
		}
		for (int i = 0; i < 5; i++) {
			random_tensor(&put, &again);
			memset(&got, 0, sizeof(got));
			assert_int_equal(
				pawl_tensor_decode(out.bytes, out.len_bytes, &off, &got, NULL), 1);
			assert_string_equal(got.name, put.name);
			assert_string_equal(got.dtype, put.dtype);
			assert_int_equal(got.storage, put.storage);
			assert_true(got.offset_bytes == put.offset_bytes);
			assert_int_equal(got.ndim, put.ndim);
			assert_memory_equal(got.shape, put.shape, put.ndim * sizeof(put.shape[0]));
			assert_true(got.sharded == put.sharded);
			assert_memory_equal(got.global, put.global,
				put.ndim * sizeof(put.global[0]));
			assert_memory_equal(got.start, put.start, put.ndim * sizeof(put.start[0]));
		}
		assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &got, NULL), 0);
		wire_out_deinit(&out);
	}
}

static void damaged_tables_are_refused_or_within_limits(void **state)
{
	struct pawl_tensor tensor = {.name = "w", .dtype = "int8", .ndim = 3, .shape = {1, 2, 3}};
	struct wire_out out = {0};

	tensor_encode(&tensor, &out);
	for (size_t n = 1; n < out.len_bytes; n++) {
		uint8_t *copy = malloc(n);
		size_t off = 0;

		memcpy(copy, out.bytes, n);
		assert_int_equal(pawl_tensor_decode(copy, n, &off, &tensor, NULL), PAWL_ECORRUPT);
		assert_int_equal(off, 0);
		free(copy);
	}
	for (size_t bit = 0; bit < out.len_bytes * 8; bit++) {
		size_t off = 0;

		out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		while (pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL) > 0) {
			assert_true(tensor.ndim <= PAWL_TENSOR_DIMS_MAX && off <= out.len_bytes);
		}
		out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	wire_out_deinit(&out);
}

static void a_shard_lies_in_its_tensor(void **state)
{
	struct pawl_tensor tensor = {.name = "w",
		.dtype = "int8",
		.ndim = 2,
		.shape = {1, 2},
		.sharded = true,
		.global = {4, 2},
		.start = {4, 0}};
	struct wire_out out = {0};
	size_t off = 0;

	tensor_encode(&tensor, &out);
	assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL),
		PAWL_ECORRUPT);
	wire_out_reset(&out);
	tensor.shape[0] = 0; /* ranks at the end may have nothing */
	tensor_encode(&tensor, &out);
	assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL), 1);
	wire_out_deinit(&out);
}

static void tensors_have_a_limit_of_dimensions(void **state)
{
	struct pawl_tensor tensor = {.name = "w", .dtype = "int8", .ndim = PAWL_TENSOR_DIMS_MAX};
	struct wire_out out = {0};
	size_t off = 0;
	size_t ndim_off;

	tensor_encode(&tensor, &out);
	assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL), 1);
	ndim_off = out.len_bytes - PAWL_TENSOR_DIMS_MAX * sizeof(uint64_t) - sizeof(uint32_t);
	wire_patch_u32(&out, ndim_off, PAWL_TENSOR_DIMS_MAX + 1);
	wire_put_u64(&out, 1);
	off = 0;
	assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL),
		PAWL_ECORRUPT);
	wire_out_deinit(&out);
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
		cmocka_unit_test(any_flipped_bit_is_refused),
		cmocka_unit_test(flips_under_a_right_checksum_stay_within_limits),
		cmocka_unit_test(newer_versions_are_named),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(what_cannot_be_linked_is_refused),
		cmocka_unit_test(parts_are_found),
		cmocka_unit_test(files_are_named),
		cmocka_unit_test(tensors_come_back),
		cmocka_unit_test(damaged_tables_are_refused_or_within_limits),
		cmocka_unit_test(a_shard_lies_in_its_tensor),
		cmocka_unit_test(tensors_have_a_limit_of_dimensions),
		cmocka_unit_test(allocation_may_fail),
	};
	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
