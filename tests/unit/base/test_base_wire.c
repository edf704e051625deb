/* Values that are put are got back, byte for byte as documented; every truncation is a failure and
 * nothing worse. */
#include "base/err.h"
#include "base/fault.h"
#include "base/wire_code.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void put_sample(struct wire_out *out)
{
	wire_put_u8(out, 0x01);
	wire_put_u16(out, 0x0203);
	wire_put_u32(out, 0x04050607);
	wire_put_u64(out, 0x08090a0b0c0d0e0fu);
	wire_put_str(out, "hi");
	wire_put_blob(out, "\0x", 2);
	wire_put_blob(out, NULL, 0);
	wire_put_raw(out, "end", 3);
}

static const uint8_t sample[] = {1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 2, 0, 0, 0, 'h',
	'i', 2, 0, 0, 0, 0, 'x', 0, 0, 0, 0, 'e', 'n', 'd'};

/* Reads the sample; an error shows in in->failed. */
static void get_sample(struct wire_in *in, bool whole)
{
	char text[3];
	uint32_t n;
	bool same = wire_get_u8(in) == 1;
	const uint8_t *at;

	same = wire_get_u16(in) == 0x0203 && same;
	same = wire_get_u32(in) == 0x04050607 && same;
	same = wire_get_u64(in) == 0x08090a0b0c0d0e0fu && same;
	wire_get_str(in, text, sizeof(text));
	same = strcmp(text, "hi") == 0 && same;
	at = wire_get_blob(in, &n);
	same = at != NULL && n == 2 && memcmp(at, "\0x", 2) == 0 && same;
	at = wire_get_blob(in, &n);
	same = at != NULL && n == 0 && same;
	at = wire_get_raw(in, 3);
	same = at != NULL && memcmp(at, "end", 3) == 0 && same;
	assert_int_equal(same, whole);
}

static void round_trip(void **state)
{
	struct wire_out out = {0};
	struct wire_in in;

	put_sample(&out);
	assert_false(out.failed);
	assert_int_equal(out.len_bytes, sizeof(sample));
	assert_memory_equal(out.bytes, sample, sizeof(sample));
	wire_in_init(&in, out.bytes, out.len_bytes);
	assert_int_equal(wire_in_left(&in), sizeof(sample));
	get_sample(&in, true);
	assert_true(wire_in_done(&in));
	wire_out_reset(&out);
	wire_put_u32(&out, 0);
	wire_put_u8(&out, 9);
	wire_patch_u32(&out, 0, 0x01020304);
	assert_memory_equal(out.bytes, "\4\3\2\1\11", 5);
	wire_out_deinit(&out);
}

static void truncation_at_every_byte_fails(void **state)
{
	for (size_t len = 0; len < sizeof(sample); len++) {
		/* The size is exact, so that ASan sees a read beyond it. */
		uint8_t *copy = malloc(len + (len == 0));
		struct wire_in in;

		memcpy(copy, sample, len);
		wire_in_init(&in, copy, len);
		get_sample(&in, false);
		assert_true(in.failed);
		assert_false(wire_in_done(&in));
		assert_int_equal(wire_get_u8(&in), 0); /* sticky */
		free(copy);
	}
}

static void leftovers_are_noticed(void **state)
{
	struct wire_in in;

	wire_in_init(&in, "\1\2", 2);
	assert_int_equal(wire_get_u8(&in), 1);
	assert_false(wire_in_done(&in));
	assert_int_equal(wire_in_left(&in), 1);
	wire_in_init(&in, NULL, 0);
	assert_true(wire_in_done(&in));
}

static void bad_strings_fail(void **state)
{
	static const uint8_t with_nul[] = {2, 0, 0, 0, 'a', 0};
	static const uint8_t three[] = {3, 0, 0, 0, 'a', 'b', 'c'};
	static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, 'a'};
	char text[3] = "zz";
	struct wire_in in;

	wire_in_init(&in, with_nul, sizeof(with_nul));
	wire_get_str(&in, text, sizeof(text));
	assert_true(in.failed);
	assert_string_equal(text, "");
	wire_in_init(&in, three, sizeof(three));
	wire_get_str(&in, text, sizeof(text));
	assert_true(in.failed);
	wire_in_init(&in, huge, sizeof(huge));
	wire_get_str(&in, text, sizeof(text));
	assert_true(in.failed);
}

static void failed_allocation_sticks(void **state)
{
	struct wire_out out = {0};
	struct pawl_err err;

	fault_arm("wire.grow", 2, ENOMEM, false);
	for (int i = 0; i < 1000; i++) {
		wire_put_u64(&out, (uint64_t)i);
	}
	fault_disarm();
	assert_true(out.failed);
	assert_int_equal(wire_out_error(&out, "a list", &err), PAWL_ENOMEM);
	assert_string_equal(err.msg, "no memory for a list of 256 bytes or more");
	wire_put_raw(&out, NULL, SIZE_MAX); /* the first failure counts */
	assert_int_equal(wire_out_error(&out, "a list", &err), PAWL_ENOMEM);
	assert_int_equal(out.len_bytes, 256); /* nothing after the failure */
	wire_patch_u32(&out, 4000, 1);        /* does nothing, asserts nothing */
	wire_out_reset(&out);
	put_sample(&out);
	assert_false(out.failed);
	assert_memory_equal(out.bytes, sample, sizeof(sample));
	wire_out_deinit(&out);
}

static void limit_is_kept(void **state)
{
	struct wire_out out = {.len_bytes = 8};
	struct pawl_err err;

	wire_put_raw(&out, NULL, WIRE_OUT_MAX - 7);
	assert_true(out.failed);
	assert_int_equal(wire_out_error(&out, "a list", &err), PAWL_ELIMIT);
	assert_string_equal(err.msg, "a list is larger than 1073741824 bytes");
	wire_out_reset(&out);
	wire_put_raw(&out, NULL, SIZE_MAX);
	assert_true(out.failed);
}

/* Fields of every kind that a coder knows. */
struct fields {
	uint16_t u16;
	uint32_t u32;
	uint64_t u64;
	int32_t i32;
	bool yes;
	char text[4];
};

static void code_fields(struct wire_coder *c, struct fields *f)
{
	wire_code_u16(c, &f->u16);
	wire_code_u32(c, &f->u32);
	wire_code_u64(c, &f->u64);
	wire_code_i32(c, &f->i32);
	wire_code_bool(c, &f->yes);
	wire_code_str(c, f->text, sizeof(f->text));
}

static void one_list_writes_and_reads(void **state)
{
	static const uint8_t bytes[] = {3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 0xfe, 0xff,
		0xff, 0xff, 1, 2, 0, 0, 0, 'h', 'i'};
	struct fields sent = {0x0203, 0x04050607, 0x08090a0b0c0d0e0fu, -2, true, "hi"};
	struct fields got = {.text = ""};
	struct wire_out out = {0};
	struct wire_in in;

	code_fields(&(struct wire_coder){.out = &out}, &sent);
	assert_int_equal(out.len_bytes, sizeof(bytes));
	assert_memory_equal(out.bytes, bytes, sizeof(bytes));
	wire_in_init(&in, bytes, sizeof(bytes));
	code_fields(&(struct wire_coder){.in = &in}, &got);
	assert_true(wire_in_done(&in));
	assert_true(got.u16 == sent.u16 && got.u32 == sent.u32 && got.u64 == sent.u64);
	assert_true(got.i32 == sent.i32 && got.yes == sent.yes);
	assert_string_equal(got.text, "hi");
	for (size_t len = 0; len < sizeof(bytes); len++) {
		wire_in_init(&in, bytes, len);
		code_fields(&(struct wire_coder){.in = &in}, &got);
		assert_true(in.failed);
	}
	wire_out_deinit(&out);
}

static void values_that_cannot_be_fail(void **state)
{
	static const uint8_t two[] = {2};
	static const char *const texts[] = {"\3\0\0\0a\nb", "\3\0\0\0a\177b", "\3\0\0\0a\0b",
		"\4\0\0\0abcd"};
	struct wire_coder coder;
	struct wire_in in;
	char text[4];
	bool yes;

	coder = (struct wire_coder){.in = &in};
	wire_in_init(&in, two, sizeof(two));
	wire_code_bool(&coder, &yes);
	assert_true(in.failed && !yes);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		wire_in_init(&in, texts[i], i < 3 ? 7 : 8);
		wire_code_str(&coder, text, sizeof(text));
		assert_true(in.failed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(truncation_at_every_byte_fails),
		cmocka_unit_test(leftovers_are_noticed),
		cmocka_unit_test(bad_strings_fail),
		cmocka_unit_test(failed_allocation_sticks),
		cmocka_unit_test(limit_is_kept),
		cmocka_unit_test(one_list_writes_and_reads),
		cmocka_unit_test(values_that_cannot_be_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
