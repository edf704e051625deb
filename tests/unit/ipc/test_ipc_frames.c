/* Every frame between worker and agent: what is encoded is decoded again, each field of each struct
 * travels, and a body that is not whole, too long, or of another type is refused. */
#include "base/rng.h"
#include "ipc/frames.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define ROUNDS 200 /* bodies of each type */

static uint8_t pool[4096]; /* bytes that blobs point into */

static void fill(struct rng *rng, const struct frame_layout *layout, uint8_t *body);

static void fill_text(struct rng *rng, uint8_t *text, uint32_t cap_bytes)
{
	uint32_t len = (uint32_t)rng_below(rng, rng_below(rng, 4) == 0 ? cap_bytes : 8);

	for (uint32_t i = 0; i < len && i + 1 < cap_bytes; i++) {
		text[i] = (uint8_t)(1 + rng_below(rng, 255));
	}
}

static void fill_field(struct rng *rng, const struct frame_field *field, uint8_t *body)
{
	uint8_t *at = body + field->at;
	struct frame_blob blob;
	uint32_t n;
	int code;

	switch (field->kind) {
	case FRAME_TEXT:
		fill_text(rng, at, field->size_bytes);
		break;
	case FRAME_BLOB:
		n = (uint32_t)rng_below(rng, 100);
		blob = (struct frame_blob){.bytes = pool + rng_below(rng, sizeof(pool) - n),
			.len_bytes = n};
		memcpy(at, &blob, sizeof(blob));
		break;
	case FRAME_BOOL:
		*at = (uint8_t)rng_below(rng, 2);
		break;
	case FRAME_CODE:
		code = -(int)rng_below(rng, 256);
		memcpy(at, &code, sizeof(code));
		break;
	case FRAME_LIST:
		n = (uint32_t)rng_below(rng, field->items_max + 1u);
		memcpy(at, &n, sizeof(n));
		for (uint32_t i = 0; i < n; i++) {
			fill(rng, field->items,
				body + field->items_at + (size_t)i * field->items->size_bytes);
		}
		break;
	case FRAME_U8:
	case FRAME_U16:
	case FRAME_U32:
	case FRAME_U64:
		for (uint32_t i = 0; i < field->size_bytes; i++) {
			at[i] = (uint8_t)rng_below(rng, 256);
		}
		break;
	}
}

static void fill(struct rng *rng, const struct frame_layout *layout, uint8_t *body)
{
	for (uint32_t f = 0; f < layout->fields_n; f++) {
		fill_field(rng, &layout->fields[f], body);
	}
}

/* Two structs, zeroed before they were filled, are equal: pointers by what they point to. */
static void check_equal(const struct frame_layout *layout, const uint8_t *a, const uint8_t *b)
{
	for (uint32_t f = 0; f < layout->fields_n; f++) {
		const struct frame_field *field = &layout->fields[f];
		struct frame_blob x, y;
		uint32_t n;

		if (field->kind == FRAME_BLOB) {
			memcpy(&x, a + field->at, sizeof(x));
			memcpy(&y, b + field->at, sizeof(y));
			assert_int_equal(x.len_bytes, y.len_bytes);
			assert_memory_equal(x.bytes, y.bytes, x.len_bytes);
			continue;
		}
		assert_memory_equal(a + field->at, b + field->at, field->size_bytes);
		if (field->kind == FRAME_LIST) {
			memcpy(&n, a + field->at, sizeof(n));
			for (uint32_t i = 0; i < n; i++) {
				size_t at = field->items_at + (size_t)i * field->items->size_bytes;

				check_equal(field->items, a + at, b + at);
			}
		}
	}
}

static bool decode(const uint8_t *bytes, size_t len_bytes, uint16_t type, uint8_t *body, size_t cap)
{
	struct wire_in in;

	wire_in_init(&in, bytes, len_bytes);
	return frame_decode(&in, type, body, cap);
}

static void check_type(struct rng *rng, uint16_t type, const struct frame_layout *layout)
{
	struct wire_out out = {0};
	uint8_t *sent = calloc(1, layout->size_bytes + 1u);
	uint8_t *got = calloc(1, layout->size_bytes + 1u);
	size_t cut;

	fill(rng, layout, sent);
	frame_encode(&out, (enum proto_type)type, sent);
	assert_false(out.failed);
	assert_true(decode(out.bytes, out.len_bytes, type, got, layout->size_bytes));
	check_equal(layout, sent, got);
	/* A part of a body, or more than one, is none. */
	cut = out.len_bytes > 0 ? rng_below(rng, out.len_bytes) : 0;
	if (out.len_bytes > 0) {
		assert_false(decode(out.bytes, cut, type, got, layout->size_bytes));
		assert_false(decode(out.bytes, out.len_bytes, type, got, layout->size_bytes - 1));
	}
	wire_put_u8(&out, 0);
	assert_false(decode(out.bytes, out.len_bytes, type, got, layout->size_bytes));
	free(sent);
	free(got);
	wire_out_deinit(&out);
}

static void what_is_encoded_is_decoded(void **state)
{
	struct rng rng = {test_seed()};
	uint32_t types = 0;

	for (uint32_t i = 0; i < sizeof(pool); i++) {
		pool[i] = (uint8_t)rng_below(&rng, 256);
	}
	for (uint32_t type = 0; type <= UINT16_MAX; type++) {
		const struct frame_layout *layout = frame_layout_of((uint16_t)type);

		for (int i = 0; layout && i < ROUNDS; i++) {
			check_type(&rng, (uint16_t)type, layout);
		}
		types += layout != NULL;
	}
	assert_int_equal(types, 36);
}

/* The fields of a struct's table lie one behind the other, without a hole that could be a field. */
static void check_covers(const struct frame_layout *layout)
{
	size_t end = 0;

	for (uint32_t f = 0; f < layout->fields_n; f++) {
		const struct frame_field *field = &layout->fields[f];

		assert_true(field->at >= end && field->at < end + sizeof(uint64_t));
		end = field->at + field->size_bytes;
		if (field->kind == FRAME_LIST) {
			assert_true(
				field->items_at >= end && field->items_at < end + sizeof(uint64_t));
			end = field->items_at + (size_t)field->items_max * field->items->size_bytes;
			check_covers(field->items);
		}
	}
	assert_true(layout->size_bytes >= end && layout->size_bytes < end + sizeof(uint64_t));
}

static void every_field_travels(void **state)
{
	for (uint32_t type = 0; type <= UINT16_MAX; type++) {
		const struct frame_layout *layout = frame_layout_of((uint16_t)type);

		if (layout) {
			check_covers(layout);
		}
	}
}

/* docs/protocol.md: a body is its fields in order, little endian, text with its length. */
static void bytes_are_those_of_the_protocol(void **state)
{
	static const uint8_t wanted[] = {
		7, 0, 0, 0, 0, 0, 0, 0,                /* seq */
		2, 1, 0, 0, 0, 0, 0, 0,                /* step */
		0, 16, 0, 0, 0, 0, 0, 0,               /* need_bytes */
		3, 0, 0, 0, 'a', '/', 'b',             /* tag */
		3,                                     /* flags */
		255, 255, 255, 255, 255, 255, 255, 255 /* since_ns */
	};
	const struct frame_begin begin = {.seq = 7,
		.step = 258,
		.need_bytes = 4096,
		.tag = "a/b",
		.flags = 3,
		.since_ns = -1};
	struct wire_out out = {0};

	frame_encode(&out, PROTO_BEGIN, &begin);
	assert_int_equal(out.len_bytes, sizeof(wanted));
	assert_memory_equal(out.bytes, wanted, sizeof(wanted));
	wire_out_deinit(&out);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct frame_tag tag;
	struct frame_grant grant;
	char text[CKPT_TAG_MAX];
	struct wire_out out = {0};
	uint8_t nothing = 0;

	memset(text, 'x', sizeof(text));
	wire_put_blob(&out, text, sizeof(text)); /* no room for the terminator */
	assert_false(decode(out.bytes, out.len_bytes, PROTO_FIND, (uint8_t *)&tag, sizeof(tag)));
	wire_out_reset(&out);
	wire_put_blob(&out, "a\0b", 3);
	assert_false(decode(out.bytes, out.len_bytes, PROTO_FIND, (uint8_t *)&tag, sizeof(tag)));
	wire_out_reset(&out);
	wire_put_u8(&out, 0);
	wire_put_u8(&out, 0);
	wire_put_u64(&out, 1);
	wire_put_u32(&out, ARENA_SLOTS + 1); /* more arenas than there are slots */
	for (int i = 0; i <= ARENA_SLOTS; i++) {
		wire_put_u8(&out, 0);
		wire_put_u64(&out, 1);
	}
	wire_put_str(&out, "");
	assert_false(
		decode(out.bytes, out.len_bytes, PROTO_GRANT, (uint8_t *)&grant, sizeof(grant)));
	assert_false(decode(&nothing, 0, 21, &nothing, 1)); /* no type has this number */
	assert_true(decode(&nothing, 0, PROTO_OK, &nothing, 0));
	wire_out_deinit(&out);
}

static void version_is_read_whatever_follows(void **state)
{
	static const uint8_t bytes[] = {3, 1, 0xff};
	struct wire_in in;

	wire_in_init(&in, bytes, sizeof(bytes));
	assert_int_equal(frame_hello_version(in), 259);
	wire_in_init(&in, bytes, 1);
	assert_int_equal(frame_hello_version(in), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_encoded_is_decoded),
		cmocka_unit_test(every_field_travels),
		cmocka_unit_test(bytes_are_those_of_the_protocol),
		cmocka_unit_test(what_does_not_fit_is_refused),
		cmocka_unit_test(version_is_read_whatever_follows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
