/* Fuzzes peer_msg_get: an accepted message encodes to the same bytes. The input is a whole message,
 * header and body. */
#include "fuzz.h"

#include "agent/peer/peer_msg.h"
#include "base/assert.h"
#include "pawl/err.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct peer_msg msg;
	struct wire_out out = {0};

	if (len_bytes < PEER_HEADER ||
		peer_msg_get(&msg, bytes[4], bytes + PEER_HEADER, len_bytes - PEER_HEADER, NULL) !=
			0) {
		return 0;
	}
	peer_msg_put(&out, &msg);
	ASSERT(!out.failed && out.len_bytes == len_bytes);
	ASSERT(memcmp(out.bytes + 4, bytes + 4, len_bytes - 4) == 0);
	wire_out_deinit(&out);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const enum peer_kind kinds[] = {PEER_HELLO, PEER_NEXT, PEER_DONE, PEER_PUT,
		PEER_PUT_RECORD, PEER_PUT_BYTES, PEER_PUT_END, PEER_GET_RECORDS, PEER_GET,
		PEER_NOTE_WRITE, PEER_NOTE_READ, PEER_CHOICE, PEER_OK, PEER_ERROR, PEER_ROUND,
		PEER_RECORD, PEER_BYTES, PEER_NOTE, PEER_CHOSEN};
	const struct peer_part part = {.save = {77, 3},
		.step = 1200,
		.tag = "global_step1200",
		.world = 16,
		.first_rank = 8,
		.ranks = 8,
		.parity = {.group = 0, .k = 8, .m = 2, .row = 1, .index = 7}};
	const struct peer_msg msg = {.kind = i < sizeof(kinds) / sizeof(kinds[0]) ? kinds[i] : 0,
		.version = PEER_VERSION,
		.job = "gpt",
		.root = 12,
		.save = {77, 3},
		.global = {77, 2},
		.wanted = {77, 4},
		.part = part,
		.rank = 9,
		.size_bytes = 1 << 20,
		.crc = 5,
		.off = 4096,
		.len_bytes = 8192,
		.code = PAWL_EIO,
		.text = "what happened",
		.path = "hosts/0/join",
		.blob = (const uint8_t *)"join\0run",
		.blob_bytes = 9};
	struct wire_out out = {0};
	size_t len_bytes;

	if (msg.kind == 0) {
		return 0;
	}
	peer_msg_put(&out, &msg);
	len_bytes = out.len_bytes;
	ASSERT(!out.failed && len_bytes <= FUZZ_BYTES_MAX);
	memcpy(buf, out.bytes, len_bytes);
	wire_out_deinit(&out);
	return len_bytes;
}
