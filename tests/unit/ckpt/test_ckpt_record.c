/* Records decode to what was sent; cut short anywhere they are refused, and with any bit flipped
 * they are refused or stay within every limit. */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "base/wire.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/record.h"
#include "ckpt/format/tensors.h"
#include "ckpt/format/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* A record as a rank of two would send it: a shared partition and one of its own. */
struct fixture {
	struct record record;
	struct record_part parts[2];
	uint64_t storage_bytes[3];
	struct record_piece pieces[4];
	uint32_t sums[3];
	uint32_t chunks[3];
	struct wire_out table; /* tensors of both partitions */
	struct wire_out out;   /* the encoded record */
};

static void encode(struct fixture *f)
{
	wire_out_reset(&f->out);
	record_encode(&f->record, &f->out);
	assert_false(f->out.failed);
}

static void make(struct fixture *f)
{
	struct pawl_tensor tensor = {.name = "a.weight",
		.dtype = "float32",
		.storage = 2,
		.ndim = 2,
		.shape = {3, 4}};

	memset(f, 0, sizeof(*f));
	tensor_encode(&tensor, &f->table);
	f->storage_bytes[0] = CKPT_CHUNK;
	f->storage_bytes[2] = 5000;
	f->pieces[0] = (struct record_piece){CKPT_CHUNK, CKPT_CHUNK, 1};
	f->pieces[1] = (struct record_piece){2 * CKPT_CHUNK, 10, 2};
	f->pieces[2] = (struct record_piece){2 * CKPT_CHUNK + 10, 4000, 3};
	f->pieces[3] = (struct record_piece){3 * CKPT_CHUNK - 1, 1, 4};
	f->sums[1] = 77;
	f->chunks[2] = 78;
	f->parts[0] = (struct record_part){.name = "model",
		.shared = true,
		.size_bytes = 3 * CKPT_CHUNK,
		.pickle_bytes = 100,
		.lo = CKPT_CHUNK,
		.hi = 3 * CKPT_CHUNK,
		.arena_off = 8192,
		.storages = 3,
		.storage_bytes = f->storage_bytes,
		.pieces_n = 4,
		.pieces = f->pieces,
		.sums_n = 3,
		.sums = f->sums,
		.tensors_bytes = (uint32_t)f->table.len_bytes,
		.tensors = f->table.bytes,
		.chunks_n = 3,
		.chunks = f->chunks};
	f->parts[1] = (struct record_part){.name = "rng", .size_bytes = 4096, .hi = 4096};
	f->record =
		(struct record){.step = 12, .rank = 1, .world = 2, .parts_n = 2, .parts = f->parts};
	encode(f);
}

static void drop(struct fixture *f)
{
	wire_out_deinit(&f->table);
	wire_out_deinit(&f->out);
}

/* Encoding a decoded record gives the same bytes: nothing was lost or made up. */
static void assert_round_trip(const struct wire_out *sent)
{
	struct record record;
	struct wire_out again = {0};

	assert_int_equal(record_decode(&record, sent->bytes, sent->len_bytes, NULL), 0);
	record_encode(&record, &again);
	assert_int_equal(again.len_bytes, sent->len_bytes);
	assert_memory_equal(again.bytes, sent->bytes, sent->len_bytes);
	wire_out_deinit(&again);
	record_deinit(&record);
}

static void round_trip(void **state)
{
	struct fixture f;
	struct record record;

	make(&f);
	assert_round_trip(&f.out);
	assert_int_equal(record_decode(&record, f.out.bytes, f.out.len_bytes, NULL), 0);
	assert_int_equal(record.step, 12);
	assert_int_equal(record.parts[0].pieces[3].file_off, 3 * CKPT_CHUNK - 1);
	assert_int_equal(record.parts[0].sums[1], 77);
	assert_int_equal(record.parts[0].chunks[2], 78);
	assert_string_equal(record.parts[1].name, "rng");
	assert_false(record.parts[1].shared);
	record_deinit(&record);
	f.record.parts_n = 0;
	encode(&f);
	assert_round_trip(&f.out);
	drop(&f);
}

static int decode_copy(const void *bytes, size_t len_bytes, struct record *record)
{
	uint8_t *copy = malloc(len_bytes + !len_bytes); /* exact, so that ASan sees a byte beyond */
	int rv;

	memcpy(copy, bytes, len_bytes);
	rv = record_decode(record, copy, len_bytes, NULL);
	free(copy);
	return rv;
}

static void cut_short_is_refused(void **state)
{
	struct fixture f;
	struct record record;

	make(&f);
	for (size_t n = 0; n < f.out.len_bytes; n++) {
		assert_int_equal(decode_copy(f.out.bytes, n, &record), PAWL_ECORRUPT);
	}
	wire_put_u8(&f.out, 0);
	assert_int_equal(decode_copy(f.out.bytes, f.out.len_bytes, &record), PAWL_ECORRUPT);
	drop(&f);
}

/* Reads everything that the record points to, under ASan. */
static void assert_usable(const struct record *record)
{
	struct wire_out out = {0};

	assert_true(record->rank < record->world);
	for (uint32_t i = 0; i < record->parts_n; i++) {
		const struct record_part *part = &record->parts[i];
		uint64_t at = part->lo;

		assert_true(ckpt_name_valid(part->name));
		assert_true(part->lo <= part->hi && part->hi <= part->size_bytes);
		for (uint32_t p = 0; p < part->pieces_n; p++) {
			assert_true(part->pieces[p].file_off >= at);
			at = part->pieces[p].file_off + part->pieces[p].len_bytes;
		}
		assert_true(at <= part->hi);
	}
	record_encode(record, &out);
	wire_out_deinit(&out);
}

static void any_flipped_bit_is_refused_or_harmless(void **state)
{
	struct fixture f;
	unsigned refused = 0;

	make(&f);
	for (size_t bit = 0; bit < f.out.len_bytes * 8; bit++) {
		struct record record;

		f.out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		if (decode_copy(f.out.bytes, f.out.len_bytes, &record) == 0) {
			assert_usable(&record);
			record_deinit(&record);
		} else {
			refused++;
		}
		f.out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	assert_true(refused > f.out.len_bytes * 4);
	drop(&f);
}

/* Encodes the fixture as it is now, and expects a refusal whose message contains why. */
static void assert_refused(struct fixture *f, const char *why)
{
	struct record record;
	struct pawl_err err;

	encode(f);
	assert_int_equal(record_decode(&record, f->out.bytes, f->out.len_bytes, &err),
		PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, why));
	drop(f);
	make(f);
}

static void what_cannot_be_is_refused(void **state)
{
	struct fixture f;

	make(&f);
	f.record.rank = 2;
	assert_refused(&f, "head");
	f.parts[0].size_bytes = 3 * CKPT_CHUNK - 1;
	assert_refused(&f, "size of the file");
	f.parts[0].pickle_bytes = 3 * CKPT_CHUNK;
	assert_refused(&f, "storages larger");
	f.storage_bytes[1] = UINT64_MAX;
	assert_refused(&f, "storages larger");
	f.parts[0].hi = 4 * CKPT_CHUNK;
	assert_refused(&f, "share outside");
	f.parts[0].lo = 4096;
	assert_refused(&f, "share not at chunks");
	f.parts[0].arena_off = UINT64_MAX - 4095;
	assert_refused(&f, "arena");
	f.pieces[0].file_off = 0;
	assert_refused(&f, "out of order");
	f.pieces[2].file_off = 2 * CKPT_CHUNK + 9;
	assert_refused(&f, "out of order");
	f.pieces[3].len_bytes = 2;
	assert_refused(&f, "piece longer");
	f.pieces[2].len_bytes = CKPT_CHUNK;
	assert_refused(&f, "piece longer");
	f.parts[0].pieces_n = 1;
	f.pieces[0].file_off = CKPT_CHUNK + 5; /* reaches into the next chunk */
	assert_refused(&f, "piece longer");
	f.pieces[1].len_bytes = 0;
	assert_refused(&f, "piece longer");
	f.parts[0].sums_n = 2;
	assert_refused(&f, "of storages");
	f.parts[0].chunks_n = 2;
	assert_refused(&f, "of chunks");
	f.parts[0].tensors_bytes--;
	assert_refused(&f, "tensor table");
	f.storage_bytes[2] = 0;
	f.parts[0].storages = 2;
	f.parts[0].sums_n = 0;
	assert_refused(&f, "tensor outside");
	memcpy(f.parts[1].name, "model", sizeof("model"));
	assert_refused(&f, "listed twice");
	memcpy(f.parts[1].name, "model/x", sizeof("model/x"));
	assert_refused(&f, "a file and a folder");
	memcpy(f.parts[1].name, "../x", sizeof("../x"));
	assert_refused(&f, "name");
	drop(&f);
}

static void names(void **state)
{
	char name[CKPT_NAME_MAX + 1];

	assert_true(ckpt_name_valid("model"));
	assert_true(ckpt_name_valid("a b\n\xc3\xbc.pt"));
	assert_false(ckpt_name_valid(""));
	assert_false(ckpt_name_valid(".pawl"));
	assert_false(ckpt_name_valid(".."));
	assert_false(ckpt_name_valid("."));
	assert_true(ckpt_name_valid("a/b"));
	assert_true(ckpt_name_valid(".a/.pawl"));
	assert_true(ckpt_name_valid("a/complete.txt"));
	assert_false(ckpt_name_valid(".pawl/a"));
	assert_false(ckpt_name_valid("why.txt/a"));
	assert_false(ckpt_name_valid("/a"));
	assert_false(ckpt_name_valid("a/"));
	assert_false(ckpt_name_valid("a//b"));
	assert_false(ckpt_name_valid("a/../b"));
	assert_false(ckpt_name_valid("a/."));
	assert_true(ckpt_name_valid("1/2/3/4/5/6/7/8/a"));
	assert_false(ckpt_name_valid("1/2/3/4/5/6/7/8/9/a"));
	assert_false(ckpt_name_valid("complete.txt"));
	assert_false(ckpt_name_valid("why.txt"));
	memset(name, 'a', sizeof(name));
	name[CKPT_NAME_MAX] = '\0';
	assert_false(ckpt_name_valid(name));
	name[CKPT_NAME_MAX - 1] = '\0';
	assert_true(ckpt_name_valid(name));
}

static void allocation_may_fail(void **state)
{
	struct fixture f;
	struct record record;

	make(&f);
	fault_arm("record.decode", 1, ENOMEM, false);
	assert_int_equal(record_decode(&record, f.out.bytes, f.out.len_bytes, NULL), PAWL_ENOMEM);
	fault_disarm();
	drop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(cut_short_is_refused),
		cmocka_unit_test(any_flipped_bit_is_refused_or_harmless),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(names),
		cmocka_unit_test(allocation_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
