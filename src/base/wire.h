/*
 * Bytes built and read field by field: little endian, length-prefixed, with a sticky failure flag.
 * A decoder reads all its fields, and checks the flag once, at the end.
 */
#ifndef BASE_WIRE_H
#define BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define WIRE_OUT_MAX (1u << 30) /* bytes a wire_out grows to; a put beyond fails it */

/* A growing buffer. Zero-initialise; wire_out_deinit when done, or keep it and wire_out_reset to
 * reuse its memory. */
struct wire_out {
	uint8_t *bytes;   /* owned; len_bytes of them are valid */
	size_t len_bytes; /* written so far */
	size_t cap_bytes; /* allocated */
	bool failed;      /* an allocation or the limit failed: all later puts do nothing */
	bool too_large;   /* failed by the limit */
};

void wire_out_reset(
	struct wire_out *out); /* clears the content and the failure, keeps the memory */
void wire_out_deinit(struct wire_out *out);
/* Returns why a buffer has failed: PAWL_ELIMIT or PAWL_ENOMEM. what: its content, for the text. */
int wire_out_error(const struct wire_out *out, const char *what, struct pawl_err *err);
void wire_put_u8(struct wire_out *out, uint8_t v);
void wire_put_u16(struct wire_out *out, uint16_t v);
void wire_put_u32(struct wire_out *out, uint32_t v);
void wire_put_u64(struct wire_out *out, uint64_t v);
void wire_put_raw(struct wire_out *out, const void *bytes, size_t len_bytes); /* no length prefix */
void wire_put_blob(struct wire_out *out, const void *bytes,
	uint32_t len_bytes);                            /* u32 length, then the bytes */
void wire_put_str(struct wire_out *out, const char *s); /* as a blob, without the NUL */
/* Appends printf-style text and its NUL, without a length: for lists of strings. */
__attribute__((format(printf, 2, 3))) void wire_put_text(struct wire_out *out, const char *fmt,
	...);
/* Overwrites four bytes at off (already written): for lengths and checksums known only later. */
void wire_patch_u32(struct wire_out *out, size_t off, uint32_t v);

/* A cursor over bytes that stay the caller's. After a short or bad read, failed is set and every
 * get returns 0 or NULL. */
struct wire_in {
	const uint8_t *at;  /* next byte */
	const uint8_t *end; /* one past the last */
	bool failed;
};

void wire_in_init(struct wire_in *in, const void *bytes, size_t len_bytes);
uint8_t wire_get_u8(struct wire_in *in);
uint16_t wire_get_u16(struct wire_in *in);
uint32_t wire_get_u32(struct wire_in *in);
uint64_t wire_get_u64(struct wire_in *in);
const uint8_t *wire_get_raw(struct wire_in *in, size_t len_bytes);     /* points into the input */
const uint8_t *wire_get_blob(struct wire_in *in, uint32_t *len_bytes); /* points into the input */
/* Copies a string of at most cap - 1 bytes to buf and terminates it; longer, or holding a NUL, is a
 * failure and leaves buf empty. */
void wire_get_str(struct wire_in *in, char *buf, size_t cap_bytes);
size_t wire_in_left(const struct wire_in *in);
/* Returns true if every get succeeded and nothing is left over. */
bool wire_in_done(const struct wire_in *in);

#endif
