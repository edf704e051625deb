/* Fuzzes the messages of a join listener: a join request, and the replies to a newcomer. An
 * accepted message encodes to the same bytes, and names a rank that can exist. */
#include "fuzz.h"

#include "base/assert.h"
#include "coll/group/join_listener.h"
#include "coll/plan/topo.h"

#include <string.h>

#define KEY 0x3f0c5a7700112233u

static void try_reply(const uint8_t *bytes, enum join_reply_type type)
{
	struct join_reply reply;
	uint8_t again[JOIN_REPLY_BYTES];

	if (join_reply_decode(bytes, type, &reply, NULL) == 0) {
		join_reply_encode(again, &reply);
		ASSERT(memcmp(again, bytes, JOIN_REPLY_BYTES - sizeof(uint32_t)) == 0);
		ASSERT(type != JOIN_REPLY_INVITE ||
			(reply.rank < reply.ranks && reply.ranks <= COLL_RANKS_MAX));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	uint8_t right[JOIN_REQUEST_BYTES];

	if (len_bytes >= JOIN_REQUEST_BYTES) {
		join_request_encode(right, KEY);
		ASSERT(join_request_check(bytes, KEY) ==
			(memcmp(bytes, right, JOIN_REQUEST_BYTES) == 0));
	}
	if (len_bytes >= JOIN_REPLY_BYTES) {
		try_reply(bytes, JOIN_REPLY_INVITE);
		try_reply(bytes, JOIN_REPLY_ENDPOINTS);
		try_reply(bytes, JOIN_REPLY_ADMITTED);
	}
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const struct join_reply replies[] = {{JOIN_REPLY_INVITE, 2, 3},
		{JOIN_REPLY_INVITE, COLL_RANKS_MAX - 1, COLL_RANKS_MAX},
		{JOIN_REPLY_ENDPOINTS, 0, 3}, {.type = JOIN_REPLY_ADMITTED}};

	if (i == 0) {
		join_request_encode(buf, KEY);
		return JOIN_REQUEST_BYTES;
	}
	if (i > sizeof(replies) / sizeof(*replies)) {
		return 0;
	}
	join_reply_encode(buf, &replies[i - 1]);
	return JOIN_REPLY_BYTES;
}
