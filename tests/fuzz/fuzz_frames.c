/* Fuzzes frame_decode and sched_msg_decode: a body that is accepted, encoded again, decodes to
 * bytes that stay so. The first two bytes of the input are the type; with SCHED_BIT, that of a
 * message to or from the scheduler. */
#include "fuzz.h"

#include "base/assert.h"
#include "daemon/sched_msg.h"
#include "ipc/frames.h"

#include <string.h>

#define SCHED_BIT 0x8000u

union any {
	union frame_request request;
	union frame_event event;
	struct frame_welcome welcome;
	struct frame_error error;
	struct frame_grant grant;
	struct frame_from_nothing from_nothing;
	struct frame_from_memory from_memory;
	struct frame_from_peers from_peers;
	struct frame_verdict verdict;
	struct frame_listed listed;
	struct frame_scaled scaled;
	struct frame_stated stated;
	union sched_msg_request sched_request;
	struct sched_msg_error sched_error;
	struct sched_msg_done done;
	struct sched_msg_jobs jobs;
	struct sched_msg_shown shown;
	struct sched_msg_nodes nodes;
};

static bool decode(struct wire_in *in, uint16_t type, union any *body)
{
	return type & SCHED_BIT
		? sched_msg_decode(in, (uint16_t)(type & ~SCHED_BIT), body, sizeof(*body))
		: frame_decode(in, type, body, sizeof(*body));
}

static void encode(struct wire_out *out, uint16_t type, const union any *body)
{
	if (type & SCHED_BIT) {
		sched_msg_encode(out, (enum sched_msg_type)(type & ~SCHED_BIT), body);
	} else {
		frame_encode(out, (enum proto_type)type, body);
	}
}

/* Reads the rows of a reply. */
static void read_rows(uint16_t type, const union any *body)
{
	static struct sched_msg_job job_rows[16];
	static struct sched_msg_node node_rows[16];
	static struct frame_peer_share share_rows[16];

	if (type == (SCHED_BIT | SCHED_MSG_JOBS) && body->jobs.jobs.n <= 16) {
		frame_rows_read(&body->jobs.jobs, &sched_msg_job_layout, job_rows);
	} else if (type == (SCHED_BIT | SCHED_MSG_NODE_ROWS) && body->nodes.nodes.n <= 16) {
		frame_rows_read(&body->nodes.nodes, &sched_msg_node_layout, node_rows);
	} else if (type == PROTO_FROM_PEERS && body->from_peers.shares.n <= 16) {
		frame_rows_read(&body->from_peers.shares, &frame_peer_share_layout, share_rows);
	}
}

static bool pass(const uint8_t *bytes, size_t len_bytes, uint16_t type, struct wire_out *out)
{
	struct wire_in in;
	union any body;

	wire_in_init(&in, bytes, len_bytes);
	if (!decode(&in, type, &body)) {
		return false;
	}
	read_rows(type, &body);
	encode(out, type, &body);
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
		PROTO_PIN, PROTO_BYE, PROTO_FETCH, PROTO_FROM_PEERS, PROTO_ERROR, PROTO_GRANT,
		PROTO_FROM_MEMORY, PROTO_VERDICT, PROTO_LISTED, PROTO_STATED, PROTO_LEVEL,
		PROTO_NOTIFICATION, SCHED_BIT | SCHED_MSG_SUBMIT, SCHED_BIT | SCHED_MSG_LIST,
		SCHED_BIT | SCHED_MSG_SHOW, SCHED_BIT | SCHED_MSG_NODES,
		SCHED_BIT | SCHED_MSG_DRAIN, SCHED_BIT | SCHED_MSG_ERROR,
		SCHED_BIT | SCHED_MSG_DONE, SCHED_BIT | SCHED_MSG_JOBS, SCHED_BIT | SCHED_MSG_SHOWN,
		SCHED_BIT | SCHED_MSG_NODE_ROWS};
	static const uint8_t record[] = "a record";
	union any body = {0};
	struct wire_out out = {0}, rows = {0};
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
	case PROTO_FROM_PEERS:
		frame_layout_encode(&rows, &frame_peer_share_layout,
			&(struct frame_peer_share){.off = 1,
				.size_bytes = 2,
				.record = {.bytes = record, .len_bytes = sizeof(record)}});
		body.from_peers.shares =
			(struct frame_rows){rows.bytes, (uint32_t)rows.len_bytes, 1};
		break;
	case PROTO_LISTED:
		body.listed.pending_n = 1;
		break;
	case SCHED_BIT | SCHED_MSG_SUBMIT:
		body.sched_request.submit.submission =
			(struct frame_blob){.bytes = record, .len_bytes = sizeof(record)};
		break;
	case SCHED_BIT | SCHED_MSG_JOBS:
		frame_layout_encode(&rows, &sched_msg_job_layout, &(struct sched_msg_job){.id = 1});
		body.jobs.jobs = (struct frame_rows){rows.bytes, (uint32_t)rows.len_bytes, 1};
		break;
	case SCHED_BIT | SCHED_MSG_NODE_ROWS:
		frame_layout_encode(&rows, &sched_msg_node_layout,
			&(struct sched_msg_node){.name = "a", .slots = 8});
		body.nodes.nodes = (struct frame_rows){rows.bytes, (uint32_t)rows.len_bytes, 1};
		break;
	default:
		break;
	}
	encode(&out, types[i], &body);
	len_bytes = sizeof(types[i]) + out.len_bytes;
	ASSERT(!out.failed && len_bytes <= FUZZ_BYTES_MAX);
	memcpy(buf, &types[i], sizeof(types[i]));
	memcpy(buf + sizeof(types[i]), out.bytes, out.len_bytes);
	wire_out_deinit(&out);
	wire_out_deinit(&rows);
	return len_bytes;
}
