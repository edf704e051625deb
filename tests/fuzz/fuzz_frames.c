/* Fuzzes frame_decode: an accepted body, encoded, is accepted again and encodes to the same bytes.
 * The first two bytes of the input are the type. */
#include "fuzz.h"

#include "base/assert.h"
#include "ipc/frames.h"

#include <string.h>

union any {
	union frame_request request;
	union frame_event event;
	struct frame_welcome welcome;
	struct frame_error error;
	struct frame_grant grant;
	struct frame_from_nothing from_nothing;
	struct frame_from_memory from_memory;
	struct frame_verdict verdict;
	struct frame_listed listed;
	struct frame_scaled scaled;
	struct frame_stated stated;
};

static bool pass(const uint8_t *bytes, size_t len_bytes, uint16_t type, struct wire_out *out)
{
	struct wire_in in;
	union any body;

	wire_in_init(&in, bytes, len_bytes);
	if (!frame_decode(&in, type, &body, sizeof(body))) {
		return false;
	}
	frame_encode(out, (enum proto_type)type, &body);
	ASSERT(!out->failed);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct wire_out first = {0}, second = {0};
	uint16_t type;

	if (len_bytes < sizeof(type)) {
		return 0;
	}
	memcpy(&type, bytes, sizeof(type));
	if (pass(bytes + sizeof(type), len_bytes - sizeof(type), type, &first)) {
		ASSERT(pass(first.bytes, first.len_bytes, type, &second));
		ASSERT(first.len_bytes == second.len_bytes);
		ASSERT(first.len_bytes == 0 ||
			memcmp(first.bytes, second.bytes, first.len_bytes) == 0);
	}
	wire_out_deinit(&first);
	wire_out_deinit(&second);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const uint16_t types[] = {PROTO_HELLO, PROTO_BEGIN, PROTO_STAGED, PROTO_FAIL,
		PROTO_PIN, PROTO_BYE, PROTO_ERROR, PROTO_GRANT, PROTO_FROM_MEMORY, PROTO_VERDICT,
		PROTO_LISTED, PROTO_STATED, PROTO_LEVEL, PROTO_NOTIFICATION};
	static const uint8_t record[] = "a record";
	union any body = {0};
	struct wire_out out = {0};
	size_t len_bytes;

	if (i >= sizeof(types) / sizeof(types[0])) {
		return 0;
	}
	switch (types[i]) {
	case PROTO_STAGED:
		body.request.staged.record =
			(struct frame_blob){.bytes = record, .len_bytes = sizeof(record)};
		break;
	case PROTO_GRANT:
		body.grant.arenas_n = ARENA_SLOTS;
		break;
	case PROTO_FROM_MEMORY:
		body.from_memory.shares_n = 2;
		body.from_memory.shares[1].record =
			(struct frame_blob){.bytes = record, .len_bytes = sizeof(record)};
		break;
	case PROTO_LISTED:
		body.listed.pending_n = 1;
		break;
	default:
		break;
	}
	frame_encode(&out, (enum proto_type)types[i], &body);
	len_bytes = sizeof(types[i]) + out.len_bytes;
	ASSERT(!out.failed && len_bytes <= FUZZ_BYTES_MAX);
	memcpy(buf, &types[i], sizeof(types[i]));
	memcpy(buf + sizeof(types[i]), out.bytes, out.len_bytes);
	wire_out_deinit(&out);
	return len_bytes;
}
