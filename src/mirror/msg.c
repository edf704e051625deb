/* Requests and answers of a mirror: see msg.h. */
#include "mirror/msg.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"

#include <stdlib.h>
#include <string.h>

#define UNIT_BYTES_MIN 48u /* bytes of an encoded unit, at least */

static const uint8_t magic[4] = {'p', 'w', 'l', 'm'};

static void put_le(uint8_t *at, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		at[i] = (uint8_t)(value >> (8 * i));
	}
}

void msg_put_request(uint8_t bytes[MSG_REQUEST], const struct msg_request *request)
{
	memcpy(bytes, magic, sizeof(magic));
	put_le(bytes + 4, MSG_VERSION, 2);
	put_le(bytes + 6, request->kind, 2);
	put_le(bytes + 8, (uint64_t)request->deadline_ns, 8);
}

int msg_get_request(const uint8_t bytes[MSG_REQUEST], struct msg_request *request,
	struct pawl_err *err)
{
	struct wire_in in;
	uint16_t version, kind;

	wire_in_init(&in, bytes + sizeof(magic), MSG_REQUEST - sizeof(magic));
	version = wire_get_u16(&in);
	kind = wire_get_u16(&in);
	if (memcmp(bytes, magic, sizeof(magic)) != 0) {
		return pawl_err_set(err, PAWL_EINVAL, "not a request to a mirror");
	}
	if (version != MSG_VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"the request has version %u, this mirror has %u", version, MSG_VERSION);
	}
	if (kind != MSG_STATUS && kind != MSG_FLUSH) {
		return pawl_err_set(err, PAWL_EINVAL, "unknown request %u", kind);
	}
	request->kind = kind;
	request->deadline_ns = (int64_t)(wire_get_u64(&in) & INT64_MAX);
	return 0;
}

static void put_unit(struct wire_out *out, const struct msg_unit *unit)
{
	wire_put_str(out, unit->path);
	wire_put_str(out, unit->tag);
	wire_put_u64(out, unit->step);
	wire_put_u8(out, unit->state);
	wire_put_u8(out, unit->kind);
	wire_put_u8(out, unit->present);
	wire_put_u8(out, unit->in_bucket);
	wire_put_u64(out, unit->size_bytes);
	wire_put_u64(out, unit->sent_bytes);
	wire_put_str(out, unit->why);
}

static void get_unit(struct wire_in *in, struct msg_unit *unit)
{
	wire_get_str(in, unit->path, sizeof(unit->path));
	wire_get_str(in, unit->tag, sizeof(unit->tag));
	unit->step = wire_get_u64(in);
	unit->state = wire_get_u8(in);
	unit->kind = wire_get_u8(in);
	unit->present = wire_get_u8(in) != 0;
	unit->in_bucket = wire_get_u8(in) != 0;
	unit->size_bytes = wire_get_u64(in);
	unit->sent_bytes = wire_get_u64(in);
	wire_get_str(in, unit->why, sizeof(unit->why));
	if (unit->state >= CORE_STATES_N || unit->kind >= UNIT_KINDS_N) {
		in->failed = true;
	}
}

void msg_put_status(struct wire_out *out, const struct msg_status *status)
{
	wire_put_u16(out, MSG_VERSION);
	wire_put_str(out, status->dir);
	wire_put_str(out, status->bucket);
	wire_put_str(out, status->last_error);
	wire_put_u32(out, status->program);
	wire_put_u8(out, status->lost);
	wire_put_u8(out, status->full);
	wire_put_u8(out, status->flushed);
	wire_put_u32(out, status->dirty_units);
	wire_put_u32(out, status->dirty_loose);
	wire_put_u64(out, status->dirty_bytes);
	wire_put_u64(out, (uint64_t)status->oldest_ns);
	wire_put_u64(out, status->pinned_bytes);
	wire_put_u32(out, status->fetching);
	wire_put_u32(out, status->units_n);
	for (uint32_t i = 0; i < status->units_n; i++) {
		put_unit(out, &status->units[i]);
	}
}

static void get_head(struct wire_in *in, struct msg_status *status)
{
	wire_get_str(in, status->dir, sizeof(status->dir));
	wire_get_str(in, status->bucket, sizeof(status->bucket));
	wire_get_str(in, status->last_error, sizeof(status->last_error));
	status->program = wire_get_u32(in);
	status->lost = wire_get_u8(in) != 0;
	status->full = wire_get_u8(in) != 0;
	status->flushed = wire_get_u8(in) != 0;
	status->dirty_units = wire_get_u32(in);
	status->dirty_loose = wire_get_u32(in);
	status->dirty_bytes = wire_get_u64(in);
	status->oldest_ns = (int64_t)wire_get_u64(in);
	status->pinned_bytes = wire_get_u64(in);
	status->fetching = wire_get_u32(in);
	status->units_n = wire_get_u32(in);
}

int msg_get_status(const void *bytes, size_t len_bytes, struct msg_status *status,
	struct pawl_err *err)
{
	struct wire_in in;
	uint16_t version;

	wire_in_init(&in, bytes, len_bytes);
	version = wire_get_u16(&in);
	*status = (struct msg_status){.units = NULL};
	if (!in.failed && version != MSG_VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"the mirror's answer has version %u, this command has %u", version,
			MSG_VERSION);
	}
	get_head(&in, status);
	if (in.failed || status->units_n > wire_in_left(&in) / UNIT_BYTES_MIN) {
		return pawl_err_set(err, PAWL_EIO, "the mirror's answer makes no sense");
	}
	status->units =
		FAULT_MEM("mirror.msg", calloc(status->units_n + 1u, sizeof(*status->units)));
	if (status->units == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the mirror's answer");
	}
	for (uint32_t i = 0; i < status->units_n; i++) {
		get_unit(&in, &status->units[i]);
	}
	if (!wire_in_done(&in)) {
		msg_status_deinit(status);
		return pawl_err_set(err, PAWL_EIO, "the mirror's answer makes no sense");
	}
	return 0;
}

void msg_status_deinit(struct msg_status *status)
{
	free(status->units);
	status->units = NULL;
	status->units_n = 0;
}
