/*
 * Fields that are coded both ways by one list: a function names the fields of a message once, in
 * order, and writes or reads them by the coder that it is given. Bytes are those of wire.h. Pure.
 */
#ifndef BASE_WIRE_CODE_H
#define BASE_WIRE_CODE_H

#include "base/wire.h"

/* Writes or reads: one of the two is NULL. Check out->failed, or in->failed, after the last field:
 * a field that is read after a failure is 0, false or "". */
struct wire_coder {
	struct wire_out *out; /* message being written */
	struct wire_in *in;   /* message being read */
};

void wire_code_u16(struct wire_coder *c, uint16_t *v);
void wire_code_u32(struct wire_coder *c, uint32_t *v);
void wire_code_u64(struct wire_coder *c, uint64_t *v);
void wire_code_i32(struct wire_coder *c, int32_t *v); /* four bytes, two's complement */
void wire_code_bool(struct wire_coder *c, bool *v);   /* one byte; reading fails unless 0 or 1 */
/* Codes a string of at most cap_bytes - 1 bytes, as wire_put_str does. One that is read may be
 * printed, and compared with names: reading fails if it is longer, or has control characters. */
void wire_code_str(struct wire_coder *c, char *s, size_t cap_bytes);

#endif
