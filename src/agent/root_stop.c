/* Stopping the workers of a root, all at the same place: see root.h. */
#include "agent/root.h"

void root_stop(struct agent_root *root)
{
	root->stopping = true;
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn) {
			conn_send_stop(root->ranks[r].conn);
		}
	}
}

void root_agree_stop(struct agent_root *root)
{
	uint64_t polls = 0;

	for (uint32_t r = 0; r < root->ledger.world; r++) {
		const struct agent_conn *conn = root->ranks[r].conn;

		if (conn && !conn->closing && !conn->stopping) {
			return; /* its answer is still to come */
		}
		polls = conn && conn->polls > polls ? conn->polls : polls;
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;
		size_t start;

		if (conn) {
			start = conn_start(conn, PROTO_STOP_AT, 0);
			wire_put_u64(&root->agent->scratch, polls + 1);
			conn_send(conn, start, NULL, 0);
		}
	}
}
