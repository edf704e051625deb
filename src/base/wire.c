/* Little-endian fields, written to a growing buffer and read from a borrowed one: see wire.h. */
#include "base/wire.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIRE_CAP_FIRST 256u /* bytes of the first allocation; doubled from then on */

void wire_out_reset(struct wire_out *out)
{
	out->len_bytes = 0;
	out->failed = false;
	out->too_large = false;
}

void wire_out_deinit(struct wire_out *out)
{
	free(out->bytes);
	*out = (struct wire_out){0};
}

int wire_out_error(const struct wire_out *out, const char *what, struct pawl_err *err)
{
	ASSERT(out->failed);
	return out->too_large
		? pawl_err_set(err, PAWL_ELIMIT, "%s is larger than %u bytes", what, WIRE_OUT_MAX)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %s of %zu bytes or more", what,
			  out->len_bytes);
}

static void fail_too_large(struct wire_out *out)
{
	out->too_large = out->too_large || !out->failed;
	out->failed = true;
}

/* Makes room for n more bytes, which count as written. Returns NULL if there is none. */
static uint8_t *extend_out(struct wire_out *out, size_t n)
{
	size_t cap = out->cap_bytes > 0 ? out->cap_bytes : WIRE_CAP_FIRST;
	uint8_t *bytes;

	if (out->failed || n > WIRE_OUT_MAX - out->len_bytes) {
		fail_too_large(out);
		return NULL;
	}
	ASSERT(out->len_bytes <= out->cap_bytes);
	while (cap < out->len_bytes + n) {
		cap *= 2;
	}
	if (cap != out->cap_bytes) {
		bytes = FAULT_MEM("wire.grow", realloc(out->bytes, cap));
		if (bytes == NULL) {
			out->failed = true;
			return NULL;
		}
		out->bytes = bytes;
		out->cap_bytes = cap;
	}
	bytes = out->bytes + out->len_bytes;
	out->len_bytes += n;
	return bytes;
}

static void store_le(uint8_t *at, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		at[i] = (uint8_t)(v >> (8 * i));
	}
}

static void put_le(struct wire_out *out, uint64_t v, size_t n)
{
	uint8_t *at = extend_out(out, n);

	if (at != NULL) {
		store_le(at, v, n);
	}
}

void wire_put_u8(struct wire_out *out, uint8_t v)
{
	put_le(out, v, 1);
}

void wire_put_u16(struct wire_out *out, uint16_t v)
{
	put_le(out, v, 2);
}

void wire_put_u32(struct wire_out *out, uint32_t v)
{
	put_le(out, v, 4);
}

void wire_put_u64(struct wire_out *out, uint64_t v)
{
	put_le(out, v, 8);
}

void wire_put_raw(struct wire_out *out, const void *bytes, size_t len_bytes)
{
	uint8_t *at = extend_out(out, len_bytes);

	if (at != NULL && len_bytes > 0) {
		memcpy(at, bytes, len_bytes);
	}
}

void wire_put_blob(struct wire_out *out, const void *bytes, uint32_t len_bytes)
{
	wire_put_u32(out, len_bytes);
	wire_put_raw(out, bytes, len_bytes);
}

void wire_put_str(struct wire_out *out, const char *s)
{
	size_t len_bytes = strlen(s);

	if (len_bytes > WIRE_OUT_MAX) {
		fail_too_large(out);
		return;
	}
	wire_put_blob(out, s, (uint32_t)len_bytes);
}

void wire_put_text(struct wire_out *out, const char *fmt, ...)
{
	char *text;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0) {
		out->failed = true;
	} else {
		wire_put_raw(out, text, strlen(text) + 1);
		free(text);
	}
	va_end(args);
}

void wire_patch_u32(struct wire_out *out, size_t off, uint32_t v)
{
	if (out->failed) {
		return;
	}
	ASSERT(off <= out->len_bytes && out->len_bytes - off >= 4);
	store_le(out->bytes + off, v, 4);
}

void wire_in_init(struct wire_in *in, const void *bytes, size_t len_bytes)
{
	static const uint8_t nothing;

	in->at = len_bytes > 0 ? bytes : &nothing; /* bytes may be NULL then */
	in->end = in->at + len_bytes;
	in->failed = false;
}

const uint8_t *wire_get_raw(struct wire_in *in, size_t len_bytes)
{
	const uint8_t *at = in->at;

	if (in->failed || len_bytes > (size_t)(in->end - in->at)) {
		in->failed = true;
		return NULL;
	}
	in->at += len_bytes;
	return at;
}

static uint64_t get_le(struct wire_in *in, size_t n)
{
	const uint8_t *at = wire_get_raw(in, n);
	uint64_t v = 0;

	for (size_t i = 0; at != NULL && i < n; i++) {
		v |= (uint64_t)at[i] << (8 * i);
	}
	return v;
}

uint8_t wire_get_u8(struct wire_in *in)
{
	return (uint8_t)get_le(in, 1);
}

uint16_t wire_get_u16(struct wire_in *in)
{
	return (uint16_t)get_le(in, 2);
}

uint32_t wire_get_u32(struct wire_in *in)
{
	return (uint32_t)get_le(in, 4);
}

uint64_t wire_get_u64(struct wire_in *in)
{
	return get_le(in, 8);
}

const uint8_t *wire_get_blob(struct wire_in *in, uint32_t *len_bytes)
{
	uint32_t n = wire_get_u32(in);
	const uint8_t *at = wire_get_raw(in, n);

	*len_bytes = at != NULL ? n : 0;
	return at;
}

void wire_get_str(struct wire_in *in, char *buf, size_t cap_bytes)
{
	uint32_t n;
	const uint8_t *at = wire_get_blob(in, &n);

	ASSERT(cap_bytes > 0);
	buf[0] = '\0';
	if (at == NULL) {
		return;
	}
	if (n >= cap_bytes || memchr(at, '\0', n) != NULL) {
		in->failed = true;
		return;
	}
	memcpy(buf, at, n);
	buf[n] = '\0';
}

size_t wire_in_left(const struct wire_in *in)
{
	ASSERT(in->at <= in->end);
	return (size_t)(in->end - in->at);
}

bool wire_in_done(const struct wire_in *in)
{
	return !in->failed && in->at == in->end;
}
