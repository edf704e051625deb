/* Sends frames to a worker, or to all workers of a root. See proto.h for the frames, root.h for the
 * parts. */
#include "agent/root.h"

#include "base/log.h"
#include "base/times.h"

#include <errno.h>
#include <stdio.h>

/* Reports a rank that is disconnected since it does not read. The end of a rank is only logged
 * here: others report it. */
static void report_unresponsive(struct agent_conn *conn, const struct pawl_err *err)
{
	struct alert alert;

	if (conn->root && (err->sys == EAGAIN || err->sys == EWOULDBLOCK)) {
		alert_fill(&alert, ALERT_ONCE, NULL,
			"rank %u (pid %u) has not read its agent's messages for %u s and is "
			"disconnected: its process hangs, or is stopped",
			conn->job_rank, conn->pid, times_s(TIME_LINK_SEND));
		root_alert(conn->root, &alert);
	} else {
		log_line(LOG_DEBUG, "rank %u (pid %u): %s", conn->job_rank, conn->pid, err->msg);
	}
}

void conn_send_fds(struct agent_conn *conn, enum proto_type type, uint32_t id, const void *body,
	const int *fds, uint32_t fds_n)
{
	struct wire_out *out = &conn->agent->scratch;
	struct pawl_err err = {0};
	size_t start;

	wire_out_reset(out);
	start = proto_start(out, type, id);
	frame_encode(out, type, body);
	proto_end(out, start);
	if (!conn->closing && proto_send(conn->io.fd, out, fds, fds_n, &err) != 0) {
		conn->closing = true;
		report_unresponsive(conn, &err);
	}
}

void conn_send(struct agent_conn *conn, enum proto_type type, uint32_t id, const void *body)
{
	conn_send_fds(conn, type, id, body, NULL, 0);
}

void conn_reply_ok(struct agent_conn *conn, uint32_t id)
{
	conn_send(conn, PROTO_OK, id, NULL);
}

void conn_reply_error(struct agent_conn *conn, uint32_t id, const struct pawl_err *err)
{
	struct frame_error frame = {.code = err->code, .sys = err->sys};

	snprintf(frame.text, sizeof(frame.text), "%s", err->msg);
	conn_send(conn, PROTO_ERROR, id, &frame);
}

void conn_send_welcome(struct agent_conn *conn)
{
	const struct frame_welcome welcome = {.pid = (uint32_t)conn->agent->pid};

	conn->welcomed = true;
	conn_send(conn, PROTO_WELCOME, conn->hello_id, &welcome);
	root_send_alerts(conn);
}

void root_send_level(struct agent_root *root, uint64_t seq, enum proto_level level, int code,
	const char *why)
{
	struct frame_level frame = {.seq = seq, .level = (uint8_t)level, .code = code};

	snprintf(frame.why, sizeof(frame.why), "%s", why);
	for (uint32_t r = 0; seq != 0 && r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn && !conn->closing) {
			conn_send(conn, PROTO_LEVEL, 0, &frame);
		}
	}
}

void root_send_diverged(struct agent_root *root, const char *part)
{
	struct frame_diverged frame;

	snprintf(frame.part, sizeof(frame.part), "%s", part);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn) {
			conn_send(root->ranks[r].conn, PROTO_DIVERGED, 0, &frame);
		}
	}
}
