/*
 * Bodies of frames as structs: a layout is the table of a struct's fields, by which one function
 * encodes and one decodes every struct. frames.h has the structs between workers and agent,
 * daemon/sched_msg.h those between commands and the scheduler; frame_macros.h has the macros to
 * write a table.
 */
#ifndef IPC_FRAME_LAYOUT_H
#define IPC_FRAME_LAYOUT_H

#include "base/wire.h"

#define FRAME_ROW_MAX  2048u /* bytes of a struct that FRAME_ROWS can have as a row */
#define FRAME_CODE_MAX 255u  /* negative of a FRAME_CODE, at most; a larger number is malformed */

/* Bytes within a frame: the sender's, or in the buffer that the frame was decoded from. */
struct frame_blob {
	const uint8_t *bytes;
	uint32_t len_bytes;
};

/* A list too long for an array: its rows stay encoded, one behind the other. The bytes are the
 * sender's, made by frame_layout_encode; or those of the buffer that the frame was decoded from. */
struct frame_rows {
	const uint8_t *bytes;
	uint32_t len_bytes;
	uint32_t n; /* rows */
};

enum frame_kind {
	FRAME_U8,
	FRAME_BOOL,
	FRAME_U16,
	FRAME_U32,    /* or int32_t */
	FRAME_U64,    /* or int64_t */
	FRAME_F64,    /* double; its bits travel, as u64 */
	FRAME_CODE,   /* int; its negative travels, as u32 */
	FRAME_TEXT,   /* char array; travels as a str */
	FRAME_BLOB,   /* struct frame_blob */
	FRAME_STRUCT, /* a struct; its fields travel in its place */
	FRAME_LIST,   /* u32 count, and an array of structs; travels as count and structs */
	FRAME_ROWS    /* struct frame_rows; travels as FRAME_LIST does */
};

struct frame_layout;

/* A field of a struct, in the order in which fields travel. */
struct frame_field {
	enum frame_kind kind;
	uint16_t at;                      /* offset in the struct, in bytes */
	uint32_t size_bytes;              /* size in the struct */
	uint16_t items_at;                /* FRAME_LIST: offset of the array */
	uint16_t items_max;               /* FRAME_LIST: entries of the array */
	const struct frame_layout *items; /* layout of the struct, an entry, or a row */
};

struct frame_layout {
	const struct frame_field *fields; /* fields_n of them */
	uint32_t fields_n;
	uint32_t size_bytes; /* size of the struct */
};

/* Appends a struct. A layout without fields appends nothing, and body may be NULL then. */
void frame_layout_encode(struct wire_out *out, const struct frame_layout *layout, const void *body);
/* Reads a struct from all bytes that are left in in; blobs and rows point into these. False: the
 * struct is larger than size_bytes, or the bytes are malformed; *body is not to be used then. */
bool frame_layout_decode(struct wire_in *in, const struct frame_layout *layout, void *body,
	size_t size_bytes);
/* Reads the rows of a frame that was decoded into an array of rows->n structs. */
void frame_rows_read(const struct frame_rows *rows, const struct frame_layout *layout, void *array);

#endif
