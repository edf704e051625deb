/* Fields that are written or read by one list: see wire_code.h. Pure. */
#include "base/wire_code.h"

#include "base/assert.h"

#include <string.h>

void wire_code_u16(struct wire_coder *c, uint16_t *v)
{
	if (c->out) {
		wire_put_u16(c->out, *v);
	} else {
		*v = wire_get_u16(c->in);
	}
}

void wire_code_u32(struct wire_coder *c, uint32_t *v)
{
	if (c->out) {
		wire_put_u32(c->out, *v);
	} else {
		*v = wire_get_u32(c->in);
	}
}

void wire_code_u64(struct wire_coder *c, uint64_t *v)
{
	if (c->out) {
		wire_put_u64(c->out, *v);
	} else {
		*v = wire_get_u64(c->in);
	}
}

void wire_code_i32(struct wire_coder *c, int32_t *v)
{
	uint32_t u = (uint32_t)*v;

	wire_code_u32(c, &u);
	*v = (int32_t)u;
}

void wire_code_bool(struct wire_coder *c, bool *v)
{
	if (c->out) {
		wire_put_u8(c->out, *v);
	} else {
		uint8_t u = wire_get_u8(c->in);

		c->in->failed = c->in->failed || u > 1;
		*v = u == 1;
	}
}

void wire_code_str(struct wire_coder *c, char *s, size_t cap_bytes)
{
	if (c->out) {
		ASSERT(memchr(s, '\0', cap_bytes) != NULL);
		wire_put_str(c->out, s);
		return;
	}
	wire_get_str(c->in, s, cap_bytes);
	for (const char *at = s; *at != '\0'; at++) {
		c->in->failed = c->in->failed || (unsigned char)*at < ' ' || *at == 0x7f;
	}
}
