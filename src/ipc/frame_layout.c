/* Encodes and decodes structs by the tables of their fields: see frame_layout.h. */
#include "ipc/frame_layout.h"

#include "base/assert.h"

#include <string.h>

static void encode(struct wire_out *out, const struct frame_layout *layout, const uint8_t *body);
static void decode(struct wire_in *in, const struct frame_layout *layout, uint8_t *body);

/* Copies a field out of a struct, whose type is not known here: no pointer is converted. */
#define READ(type, at) (*(type *)memcpy(&(type){0}, (at), sizeof(type)))

static void encode_list(struct wire_out *out, const struct frame_field *field, const uint8_t *body)
{
	uint32_t n = READ(uint32_t, body + field->at);

	ASSERT(n <= field->items_max);
	wire_put_u32(out, n);
	for (uint32_t i = 0; i < n; i++) {
		encode(out, field->items,
			body + field->items_at + (size_t)i * field->items->size_bytes);
	}
}

static void encode_rows(struct wire_out *out, const uint8_t *at)
{
	struct frame_rows rows = READ(struct frame_rows, at);

	wire_put_u32(out, rows.n);
	wire_put_raw(out, rows.bytes, rows.len_bytes);
}

static void encode(struct wire_out *out, const struct frame_layout *layout, const uint8_t *body)
{
	for (uint32_t f = 0; f < layout->fields_n; f++) {
		const struct frame_field *field = &layout->fields[f];
		const uint8_t *at = body + field->at;
		struct frame_blob blob;

		switch (field->kind) {
		case FRAME_U8:
			wire_put_u8(out, *at);
			break;
		case FRAME_BOOL:
			wire_put_u8(out, READ(bool, at));
			break;
		case FRAME_U16:
			wire_put_u16(out, READ(uint16_t, at));
			break;
		case FRAME_U32:
			wire_put_u32(out, READ(uint32_t, at));
			break;
		case FRAME_U64:
		case FRAME_F64:
			wire_put_u64(out, READ(uint64_t, at));
			break;
		case FRAME_CODE:
			wire_put_u32(out, (uint32_t)-READ(int, at));
			break;
		case FRAME_TEXT:
			ASSERT(memchr(at, '\0', field->size_bytes) != NULL);
			wire_put_str(out, (const char *)at);
			break;
		case FRAME_BLOB:
			memcpy(&blob, at, sizeof(blob));
			wire_put_blob(out, blob.bytes, blob.len_bytes);
			break;
		case FRAME_STRUCT:
			encode(out, field->items, at);
			break;
		case FRAME_LIST:
			encode_list(out, field, body);
			break;
		case FRAME_ROWS:
			encode_rows(out, at);
			break;
		}
	}
}

static void decode_list(struct wire_in *in, const struct frame_field *field, uint8_t *body)
{
	uint32_t n = wire_get_u32(in);

	if (n > field->items_max) {
		in->failed = true;
		return;
	}
	memcpy(body + field->at, &n, sizeof(n));
	for (uint32_t i = 0; i < n; i++) {
		decode(in, field->items,
			body + field->items_at + (size_t)i * field->items->size_bytes);
	}
}

/* Finds the end of the rows by decoding each. */
static void decode_rows(struct wire_in *in, const struct frame_layout *layout, uint8_t *at)
{
	uint8_t row[FRAME_ROW_MAX];
	struct frame_rows rows = {.n = wire_get_u32(in)};

	ASSERT(layout->size_bytes <= sizeof(row));
	rows.bytes = in->at;
	for (uint32_t i = 0; i < rows.n && !in->failed; i++) {
		decode(in, layout, row);
	}
	rows.len_bytes = (uint32_t)(in->at - rows.bytes);
	memcpy(at, &rows, sizeof(rows));
}

#define WRITE(type, at, value) memcpy((at), &(type){value}, sizeof(type))

static int get_code(struct wire_in *in)
{
	uint32_t code = wire_get_u32(in);

	in->failed = in->failed || code > FRAME_CODE_MAX;
	return in->failed ? 0 : -(int)code;
}

static void decode(struct wire_in *in, const struct frame_layout *layout, uint8_t *body)
{
	for (uint32_t f = 0; f < layout->fields_n; f++) {
		const struct frame_field *field = &layout->fields[f];
		uint8_t *at = body + field->at;
		struct frame_blob blob;

		switch (field->kind) {
		case FRAME_U8:
			*at = wire_get_u8(in);
			break;
		case FRAME_BOOL:
			WRITE(bool, at, wire_get_u8(in) != 0);
			break;
		case FRAME_U16:
			WRITE(uint16_t, at, wire_get_u16(in));
			break;
		case FRAME_U32:
			WRITE(uint32_t, at, wire_get_u32(in));
			break;
		case FRAME_U64:
		case FRAME_F64:
			WRITE(uint64_t, at, wire_get_u64(in));
			break;
		case FRAME_CODE:
			WRITE(int, at, get_code(in));
			break;
		case FRAME_TEXT:
			wire_get_str(in, (char *)at, field->size_bytes);
			break;
		case FRAME_BLOB:
			blob.bytes = wire_get_blob(in, &blob.len_bytes);
			memcpy(at, &blob, sizeof(blob));
			break;
		case FRAME_STRUCT:
			decode(in, field->items, at);
			break;
		case FRAME_LIST:
			decode_list(in, field, body);
			break;
		case FRAME_ROWS:
			decode_rows(in, field->items, at);
			break;
		}
	}
}

void frame_layout_encode(struct wire_out *out, const struct frame_layout *layout, const void *body)
{
	encode(out, layout, body);
}

bool frame_layout_decode(struct wire_in *in, const struct frame_layout *layout, void *body,
	size_t size_bytes)
{
	if (layout->size_bytes > size_bytes) {
		return false;
	}
	memset(body, 0, layout->size_bytes);
	decode(in, layout, body);
	return wire_in_done(in);
}

void frame_rows_read(const struct frame_rows *rows, const struct frame_layout *layout, void *array)
{
	struct wire_in in;

	wire_in_init(&in, rows->bytes, rows->len_bytes);
	memset(array, 0, (size_t)rows->n * layout->size_bytes);
	for (uint32_t i = 0; i < rows->n; i++) {
		decode(&in, layout, (uint8_t *)array + (size_t)i * layout->size_bytes);
	}
	ASSERT(wire_in_done(&in)); /* frame_layout_decode has read them before */
}
