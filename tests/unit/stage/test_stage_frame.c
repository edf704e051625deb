/* Frames between ranks: they come back as they were, and malformed ones are refused. */
#include "stage/frame.h"

#include "base/fault.h"
#include "base/rng.h"
#include "expect.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static uint64_t first_seed;
static struct pawl_err err;

static void fill(struct rng *rng, uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bytes[i] = (uint8_t)rng_u64(rng);
	}
}

static void frames_come_back(void **state)
{
	struct rng rng = {first_seed};
	uint8_t content[FRAME_BYTES];
	uint8_t bytes[FRAME_BYTES];

	fill(&rng, content, sizeof(content));
	for (uint32_t i = 0; i < 4000; i++) {
		enum stage_frame_kind kind = (enum stage_frame_kind)(1 + i % (FRAME_KINDS - 1));
		uint64_t len = rng_below(&rng, 2 * FRAME_BYTES);
		struct stage_frame in = {.kind = kind,
			.step = rng_u64(&rng),
			.len_bytes = len,
			.tag = stage_frame_fits(kind, len) ? 0 : 1 + (uint32_t)rng_below(&rng, 99),
			.bytes = content};
		struct stage_frame out;

		if (kind == FRAME_VALUE) {
			in.value.id = rng_u64(&rng);
			in.value.meta_len = (uint32_t)rng_below(&rng, PAWL_STAGE_META_MAX + 1);
			fill(&rng, in.value.meta, in.value.meta_len);
		}
		stage_frame_encode(bytes, &in);
		OK(stage_frame_decode(&out, bytes, &err));
		assert_int_equal(out.kind, in.kind);
		assert_int_equal(out.step, in.step);
		assert_int_equal(out.len_bytes, len);
		assert_int_equal(out.tag, in.tag);
		assert_int_equal(out.bytes != NULL, in.tag == 0);
		if (out.bytes) {
			assert_memory_equal(out.bytes, content, len);
		}
		assert_int_equal(out.value.id, in.value.id);
		assert_int_equal(out.value.meta_len, in.value.meta_len);
		assert_memory_equal(out.value.meta, in.value.meta, PAWL_STAGE_META_MAX);
	}
}

static void malformed_frames_are_refused(void **state)
{
	const struct stage_frame good = {.kind = FRAME_VALUE,
		.len_bytes = 5,
		.bytes = (void *)"value"};
	uint8_t bytes[FRAME_BYTES];
	struct stage_frame out;

	stage_frame_encode(bytes, &good);
	bytes[0] ^= 1; /* magic */
	FAILS(PAWL_EMISMATCH, stage_frame_decode(&out, bytes, &err));
	stage_frame_encode(bytes, &good);
	bytes[4] = 0; /* kind */
	FAILS(PAWL_EMISMATCH, stage_frame_decode(&out, bytes, &err));
	bytes[4] = FRAME_KINDS;
	FAILS(PAWL_EMISMATCH, stage_frame_decode(&out, bytes, &err));
	stage_frame_encode(bytes, &good);
	bytes[8] = 1; /* a tag, though the value fits */
	FAILS(PAWL_EMISMATCH, stage_frame_decode(&out, bytes, &err));
	bytes[8] = 0;
	bytes[26] = 1; /* 64 KiB, without a tag */
	FAILS(PAWL_EMISMATCH, stage_frame_decode(&out, bytes, &err));
	bytes[8] = 1;
	OK(stage_frame_decode(&out, bytes, &err));
	bytes[31] = 1; /* more than any value has */
	FAILS(PAWL_EMISMATCH, stage_frame_decode(&out, bytes, &err));
	stage_frame_encode(bytes, &good);
	bytes[40] = PAWL_STAGE_META_MAX + 1; /* meta */
	FAILS(PAWL_EMISMATCH, stage_frame_decode(&out, bytes, &err));
}

/* A batch with one record of each kind. */
static void encode_batch(struct wire_out *out)
{
	static const uint64_t needs[] = {7, 1ull << 60, 7};
	const struct stage_record records[] = {
		{RECORD_CALL,
			.call = {.id = 99,
				.outs = 3,
				.task = {.kind = 1, .chunk = 300, .microbatch = 9},
				.needs_n = 3,
				.needs = needs,
				.blob_len = 4,
				.blob = "blob"}},
		{RECORD_CALL, .call = {.id = 5}},
		{RECORD_PUSH, .value = 12, .to = 3},
		{RECORD_FREE, .value = 13},
		{RECORD_FLUSH, .pass = PAWL_PIPE_BACKWARD, .microbatch = 17},
		{RECORD_NOTE, .bytes = "a note", .len_bytes = 6},
		{RECORD_END},
	};

	for (size_t i = 0; i < sizeof(records) / sizeof(*records); i++) {
		stage_record_encode(out, &records[i]);
	}
}

static void records_come_back(void **state)
{
	uint64_t needs[PAWL_STAGE_NEEDS_MAX];
	struct stage_record record;
	struct wire_out out = {0};
	struct wire_in in;

	encode_batch(&out);
	assert_false(out.failed);
	wire_in_init(&in, out.bytes, out.len_bytes);
	OK(stage_record_decode(&record, &in, needs, &err));
	assert_int_equal(record.kind, RECORD_CALL);
	assert_int_equal(record.call.id, 99);
	assert_int_equal(record.call.outs, 3);
	assert_int_equal(record.call.task.kind, 1);
	assert_int_equal(record.call.task.chunk, 300);
	assert_int_equal(record.call.task.microbatch, 9);
	assert_int_equal(record.call.needs_n, 3);
	assert_true(record.call.needs[1] == 1ull << 60 && record.call.needs[2] == 7);
	assert_int_equal(record.call.blob_len, 4);
	assert_memory_equal(record.call.blob, "blob", 4);
	OK(stage_record_decode(&record, &in, needs, &err));
	assert_int_equal(record.call.needs_n, 0);
	OK(stage_record_decode(&record, &in, needs, &err));
	assert_true(record.kind == RECORD_PUSH && record.value == 12 && record.to == 3);
	OK(stage_record_decode(&record, &in, needs, &err));
	assert_true(record.kind == RECORD_FREE && record.value == 13);
	OK(stage_record_decode(&record, &in, needs, &err));
	assert_true(record.kind == RECORD_FLUSH && record.pass == PAWL_PIPE_BACKWARD &&
		record.microbatch == 17);
	OK(stage_record_decode(&record, &in, needs, &err));
	assert_true(record.kind == RECORD_NOTE && record.len_bytes == 6);
	assert_memory_equal(record.bytes, "a note", 6);
	OK(stage_record_decode(&record, &in, needs, &err));
	assert_int_equal(record.kind, RECORD_END);
	assert_true(wire_in_done(&in));
	wire_out_deinit(&out);
}

/* A batch that is cut anywhere, or has changed anywhere, never reads beyond its end. */
static void malformed_batches_are_refused(void **state)
{
	struct rng rng = {first_seed};
	uint64_t needs[PAWL_STAGE_NEEDS_MAX];
	struct stage_record record;
	struct wire_out out = {0};
	uint32_t refused = 0;

	encode_batch(&out);
	for (uint32_t i = 0; i < 3000; i++) {
		size_t len = (size_t)rng_below(&rng, out.len_bytes + 1);
		uint8_t *copy = malloc(len + 1); /* a sanitizer guards the end */
		struct wire_in in;
		int rv = 0;

		assert_non_null(copy);
		memcpy(copy, out.bytes, len);
		if (i % 2 == 0 && len > 0) {
			copy[rng_below(&rng, len)] = (uint8_t)rng_u64(&rng);
		}
		wire_in_init(&in, copy, len);
		while (rv == 0 && wire_in_left(&in) > 0) {
			rv = stage_record_decode(&record, &in, needs, &err);
			assert_true(rv == 0 || rv == PAWL_EMISMATCH);
		}
		refused += rv != 0;
		free(copy);
	}
	assert_true(refused > 1000);
	wire_out_deinit(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_come_back),
		cmocka_unit_test(malformed_frames_are_refused),
		cmocka_unit_test(records_come_back),
		cmocka_unit_test(malformed_batches_are_refused),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
