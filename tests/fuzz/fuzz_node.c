/* Fuzzes node_frame_get: an accepted frame encodes to the same bytes. */
#include "fuzz.h"

#include "base/assert.h"
#include "launch/nodes/node_frame.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct node_frame frame;
	struct wire_out out = {0};
	int n = node_frame_get(bytes, len_bytes, &frame, NULL);

	ASSERT(n <= (int)len_bytes);
	if (n > 0) {
		node_frame_put(&out, &frame);
		ASSERT(!out.failed && out.len_bytes == (size_t)n);
		ASSERT(memcmp(out.bytes, bytes, out.len_bytes) == 0);
	}
	wire_out_deinit(&out);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const enum node_frame_kind kinds[] = {NODE_JOIN, NODE_READY, NODE_EXITED,
		NODE_SIGNAL, NODE_DRAINED, NODE_WELCOME, NODE_REFUSE, NODE_LOG_LINE, NODE_START,
		NODE_KILL, NODE_NOTICE, NODE_DRAIN, NODE_EXIT, NODE_ROOT_BEGUN,
		NODE_ROOT_BEGUN_RELAY, NODE_HEARTBEAT};
	struct node_frame frame = {.instance_id = 77,
		.nodes = 3,
		.workers = 4,
		.wanted = NODE_NONE,
		.previous_node = 1,
		.node = 2,
		.first = 8,
		.world = 12,
		.port = 29400,
		.peer_port = 40112,
		.address = "10.79.0.1",
		.job = "gpt",
		.ledger = {.generation = 2, .restarts = 1},
		.rank = 9,
		.status = 137,
		.signal = 15,
		.left_ns = 1000000000,
		.text = "what happened"};
	struct wire_out out = {0};
	size_t len_bytes;

	if (i >= sizeof(kinds) / sizeof(kinds[0])) {
		return 0;
	}
	frame.kind = kinds[i];
	node_frame_put(&out, &frame);
	len_bytes = out.len_bytes;
	ASSERT(!out.failed && len_bytes <= FUZZ_BYTES_MAX &&
		node_frame_get(out.bytes, len_bytes, &frame, NULL) == (int)len_bytes);
	memcpy(buf, out.bytes, len_bytes);
	wire_out_deinit(&out);
	return len_bytes;
}
