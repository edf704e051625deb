/* Checks of structs with a layout, shared by the tests of all tables: a struct is filled at random,
 * encoded and decoded, and its table covers it. */
#ifndef TEST_IPC_LAYOUTS_H
#define TEST_IPC_LAYOUTS_H

#include "base/rng.h"
#include "ipc/frame_layout.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define ROUNDS   200  /* bodies of each type */
#define ROWS_MAX 4u   /* rows of a FRAME_ROWS */
#define CUTS_MAX 256u /* bytes of a body that is cut at each byte; a longer one is cut at one */

/* The functions of a table of layouts. */
struct layout_table {
	const struct frame_layout *(*layout_of)(uint16_t type);
	void (*encode)(struct wire_out *out, uint16_t type, const void *body);
	bool (*decode)(struct wire_in *in, uint16_t type, void *body, size_t size_bytes);
};

static uint8_t pool[4096];          /* bytes that blobs point into */
static struct wire_out filled_rows; /* rows of the struct that was filled last */

static void fill(struct rng *rng, const struct frame_layout *layout, uint8_t *body);

static void fill_text(struct rng *rng, uint8_t *text, uint32_t cap_bytes)
{
	uint32_t len = (uint32_t)rng_below(rng, rng_below(rng, 4) == 0 ? cap_bytes : 8);

	for (uint32_t i = 0; i < len && i + 1 < cap_bytes; i++) {
		text[i] = (uint8_t)(1 + rng_below(rng, 255));
	}
}

static void fill_rows(struct rng *rng, const struct frame_layout *layout, uint8_t *at)
{
	struct frame_rows rows = {.n = (uint32_t)rng_below(rng, ROWS_MAX + 1)};

	wire_out_reset(&filled_rows);
	for (uint32_t i = 0; i < rows.n; i++) {
		uint8_t *row = calloc(1, layout->size_bytes);

		fill(rng, layout, row);
		frame_layout_encode(&filled_rows, layout, row);
		free(row);
	}
	rows.bytes = filled_rows.bytes;
	rows.len_bytes = (uint32_t)filled_rows.len_bytes;
	memcpy(at, &rows, sizeof(rows));
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
	case FRAME_STRUCT:
		fill(rng, field->items, at);
		break;
	case FRAME_ROWS:
		fill_rows(rng, field->items, at);
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
	case FRAME_F64:
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

static void check_equal(const struct frame_layout *layout, const uint8_t *a, const uint8_t *b);

static void check_equal_bytes(const uint8_t *a, uint32_t a_bytes, const uint8_t *b,
	uint32_t b_bytes)
{
	assert_int_equal(a_bytes, b_bytes);
	assert_true(a_bytes == 0 || memcmp(a, b, a_bytes) == 0);
}

/* Rows are equal, and as an array they are what was encoded. */
static void check_equal_rows(const struct frame_layout *layout, const uint8_t *a, const uint8_t *b)
{
	struct frame_rows x, y;
	struct wire_out out = {0};
	uint8_t *array;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	assert_int_equal(x.n, y.n);
	check_equal_bytes(x.bytes, x.len_bytes, y.bytes, y.len_bytes);
	array = calloc(y.n + 1u, layout->size_bytes);
	frame_rows_read(&y, layout, array);
	for (uint32_t i = 0; i < y.n; i++) {
		frame_layout_encode(&out, layout, array + (size_t)i * layout->size_bytes);
	}
	check_equal_bytes(out.bytes, (uint32_t)out.len_bytes, y.bytes, y.len_bytes);
	wire_out_deinit(&out);
	free(array);
}

static void check_equal_list(const struct frame_field *field, const uint8_t *a, const uint8_t *b)
{
	uint32_t n;

	assert_memory_equal(a + field->at, b + field->at, field->size_bytes);
	memcpy(&n, a + field->at, sizeof(n));
	for (uint32_t i = 0; i < n; i++) {
		size_t at = field->items_at + (size_t)i * field->items->size_bytes;

		check_equal(field->items, a + at, b + at);
	}
}

/* Two structs, zeroed before they were filled, are equal: pointers by what they point to. */
static void check_equal(const struct frame_layout *layout, const uint8_t *a, const uint8_t *b)
{
	for (uint32_t f = 0; f < layout->fields_n; f++) {
		const struct frame_field *field = &layout->fields[f];
		struct frame_blob x, y;

		switch (field->kind) {
		case FRAME_BLOB:
			memcpy(&x, a + field->at, sizeof(x));
			memcpy(&y, b + field->at, sizeof(y));
			check_equal_bytes(x.bytes, x.len_bytes, y.bytes, y.len_bytes);
			break;
		case FRAME_STRUCT:
			check_equal(field->items, a + field->at, b + field->at);
			break;
		case FRAME_ROWS:
			check_equal_rows(field->items, a + field->at, b + field->at);
			break;
		case FRAME_LIST:
			check_equal_list(field, a, b);
			break;
		default:
			assert_memory_equal(a + field->at, b + field->at, field->size_bytes);
			break;
		}
	}
}

static bool decode_bytes(const struct layout_table *table, const uint8_t *bytes, size_t len_bytes,
	uint16_t type, void *body, size_t size_bytes)
{
	struct wire_in in;

	wire_in_init(&in, bytes, len_bytes);
	return table->decode(&in, type, body, size_bytes);
}

static void check_type(struct rng *rng, const struct layout_table *table, uint16_t type)
{
	uint32_t size_bytes = table->layout_of(type)->size_bytes;
	struct wire_out out = {0};
	uint8_t *sent = calloc(1, size_bytes + 1u);
	uint8_t *got = calloc(1, size_bytes + 1u);
	size_t cut, step;

	fill(rng, table->layout_of(type), sent);
	table->encode(&out, type, sent);
	assert_false(out.failed);
	assert_true(decode_bytes(table, out.bytes, out.len_bytes, type, got, size_bytes));
	check_equal(table->layout_of(type), sent, got);
	/* A body that is cut, or followed by a byte, is refused. */
	step = out.len_bytes <= CUTS_MAX ? 1 : out.len_bytes;
	cut = out.len_bytes <= CUTS_MAX ? 0 : rng_below(rng, out.len_bytes);
	for (; cut < out.len_bytes; cut += step) {
		assert_false(decode_bytes(table, out.bytes, cut, type, got, size_bytes));
	}
	if (size_bytes > 0) {
		assert_false(
			decode_bytes(table, out.bytes, out.len_bytes, type, got, size_bytes - 1));
	}
	wire_put_u8(&out, 0);
	assert_false(decode_bytes(table, out.bytes, out.len_bytes, type, got, size_bytes));
	free(sent);
	free(got);
	wire_out_deinit(&out);
}

/* For each type below types, what is encoded is decoded again. */
static void check_types(const struct layout_table *table, uint32_t types)
{
	struct rng rng = {test_seed()};
	uint32_t found = 0;

	for (uint32_t i = 0; i < sizeof(pool); i++) {
		pool[i] = (uint8_t)rng_below(&rng, 256);
	}
	for (uint32_t type = 0; type <= UINT16_MAX; type++) {
		bool is_type = table->layout_of((uint16_t)type) != NULL;

		for (int i = 0; is_type && i < ROUNDS; i++) {
			check_type(&rng, table, (uint16_t)type);
		}
		found += is_type;
	}
	assert_int_equal(found, types);
	wire_out_deinit(&filled_rows);
}

/* The fields in a struct's table follow each other, without a hole of 8 bytes. A smaller field in a
 * hole is found by tests/python/project/test_frame_tables.py. */
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
		}
		if (field->items) {
			check_covers(field->items);
		}
	}
	assert_true(layout->size_bytes >= end && layout->size_bytes < end + sizeof(uint64_t));
}

static void check_tables(const struct layout_table *table)
{
	for (uint32_t type = 0; type <= UINT16_MAX; type++) {
		const struct frame_layout *layout = table->layout_of((uint16_t)type);

		if (layout) {
			check_covers(layout);
		}
	}
}

#endif
