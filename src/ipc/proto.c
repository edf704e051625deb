/* Frames over the Unix socket between workers and agent: see proto.h. */
#include "ipc/proto.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILL_BYTES (256u << 10) /* most bytes of one read */

_Static_assert(PROTO_FDS_MAX <= UINT8_MAX, "proto_send sets one byte of the header");
_Static_assert(PROTO_RANKS_LOCAL <= PROTO_FDS_MAX, "the arenas of all ranks fit a frame");

size_t proto_start(struct wire_out *out, enum proto_type type, uint32_t id)
{
	size_t start = out->len_bytes;

	wire_put_u32(out, 0);
	wire_put_u16(out, (uint16_t)type);
	wire_put_u16(out, 0);
	wire_put_u32(out, id);
	return start;
}

void proto_end(struct wire_out *out, size_t start)
{
	if (!out->failed) {
		ASSERT(out->len_bytes >= start && out->len_bytes - start >= PROTO_HEADER);
		wire_patch_u32(out, start, (uint32_t)(out->len_bytes - start - PROTO_HEADER));
	}
}

/* Fills msg's control part with descriptors. control has room for PROTO_FDS_MAX of them. */
static void attach_fds(struct msghdr *msg, char *control, const int *fds, uint32_t fds_n)
{
	struct cmsghdr *cmsg;

	msg->msg_control = control;
	msg->msg_controllen = CMSG_SPACE(fds_n * sizeof(int));
	cmsg = CMSG_FIRSTHDR(msg);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(fds_n * sizeof(int));
	memcpy(CMSG_DATA(cmsg), fds, fds_n * sizeof(int));
}

int proto_send(int fd, struct wire_out *out, const int *fds, uint32_t fds_n, struct pawl_err *err)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(PROTO_FDS_MAX * sizeof(int))];
	size_t sent = 0;

	if (out->failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "send to the other end: out of memory");
	}
	ASSERT(fds_n <= PROTO_FDS_MAX);
	if (fds_n > 0) {
		ASSERT(out->len_bytes >= PROTO_HEADER);
		out->bytes[6] = (uint8_t)fds_n; /* the header's low byte: PROTO_FDS_MAX fits */
	}
	while (sent < out->len_bytes) {
		struct iovec part = {out->bytes + sent, out->len_bytes - sent};
		struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
		ssize_t done;

		if (sent == 0 && fds_n > 0) {
			attach_fds(&msg, control, fds, fds_n);
		}
		done = FAULT_SYS("proto.send", sendmsg(fd, &msg, MSG_NOSIGNAL));
		if (done < 0 && errno == EINTR) {
			continue;
		}
		if (done < 0) {
			pawl_err_sys(err, "send to the other end");
			return err ? (err->code = PAWL_EPEER) : PAWL_EPEER;
		}
		sent += (size_t)done;
	}
	return 0;
}

static void take_fds(struct proto_conn *conn, struct msghdr *msg)
{
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
			continue;
		}
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
			if (conn->fds_n < PROTO_FDS_MAX) {
				conn->fds[conn->fds_n++] = fd;
			} else {
				close(fd);
			}
		}
	}
}

/* Makes room for FILL_BYTES more behind the unread bytes. */
static int make_room(struct proto_conn *conn, struct pawl_err *err)
{
	struct wire_out *in = &conn->in;
	size_t need;
	uint8_t *bytes;

	if (conn->in_off > 0) {
		memmove(in->bytes, in->bytes + conn->in_off, in->len_bytes - conn->in_off);
		in->len_bytes -= conn->in_off;
		conn->in_off = 0;
	}
	need = in->len_bytes + FILL_BYTES;
	if (in->cap_bytes >= need) {
		return 0;
	}
	need = need < 2 * in->cap_bytes ? 2 * in->cap_bytes : need;
	bytes = FAULT_MEM("proto.room", realloc(in->bytes, need));
	if (!bytes) {
		return pawl_err_set(err, PAWL_ENOMEM, "receive: no memory for %zu bytes", need);
	}
	in->bytes = bytes;
	in->cap_bytes = need;
	return 0;
}

int proto_fill(struct proto_conn *conn, struct pawl_err *err)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(PROTO_FDS_MAX * sizeof(int))];
	struct msghdr msg = {.msg_iovlen = 1,
		.msg_control = conn->refuse_fds ? NULL : control,
		.msg_controllen = conn->refuse_fds ? 0 : sizeof(control)};
	struct iovec part;
	ssize_t got;
	int rv = make_room(conn, err);

	if (rv != 0) {
		return rv;
	}
	part = (struct iovec){conn->in.bytes + conn->in.len_bytes,
		conn->in.cap_bytes - conn->in.len_bytes};
	msg.msg_iov = &part;
	do {
		got = FAULT_SYS("proto.receive", recvmsg(conn->fd, &msg, MSG_CMSG_CLOEXEC));
	} while (got < 0 && errno == EINTR);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
		return 0;
	}
	if (got <= 0) {
		return pawl_err_set(err, PAWL_EPEER, "the other end closed the connection%s%s",
			got < 0 ? ": " : "", got < 0 ? strerror(errno) : "");
	}
	take_fds(conn, &msg);
	conn->in.len_bytes += (size_t)got;
	return 1;
}

bool proto_next_exceeds(const struct proto_conn *conn, uint32_t most_bytes)
{
	struct wire_in header;

	wire_in_init(&header, conn->in.bytes + conn->in_off, conn->in.len_bytes - conn->in_off);
	return wire_get_u32(&header) > most_bytes && !header.failed;
}

int proto_next(struct proto_conn *conn, struct proto_frame *frame, struct pawl_err *err)
{
	struct wire_in header;
	uint32_t len;
	uint32_t fds_n;
	size_t have = conn->in.len_bytes - conn->in_off;

	ASSERT(conn->in_off <= conn->in.len_bytes && conn->fds_n <= PROTO_FDS_MAX);
	if (have < PROTO_HEADER) {
		return 0;
	}
	wire_in_init(&header, conn->in.bytes + conn->in_off, PROTO_HEADER);
	len = wire_get_u32(&header);
	frame->type = wire_get_u16(&header);
	fds_n = wire_get_u16(&header);
	frame->id = wire_get_u32(&header);
	if (len > PROTO_BODY_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"a frame of %u bytes is over the limit of %u", len, PROTO_BODY_MAX);
	}
	if (have - PROTO_HEADER < len) {
		return 0;
	}
	wire_in_init(&frame->body, conn->in.bytes + conn->in_off + PROTO_HEADER, len);
	conn->in_off += PROTO_HEADER + len;
	if (fds_n > conn->fds_n) {
		return pawl_err_set(err, PAWL_ECORRUPT, "a frame lacks %u of its descriptors",
			fds_n - conn->fds_n);
	}
	memcpy(frame->fds, conn->fds, fds_n * sizeof(int));
	frame->fds_n = fds_n;
	conn->fds_n -= fds_n;
	memmove(conn->fds, conn->fds + fds_n, conn->fds_n * sizeof(int));
	return 1;
}

void proto_frame_close(struct proto_frame *frame)
{
	for (uint32_t i = 0; i < frame->fds_n; i++) {
		if (frame->fds[i] >= 0) {
			close(frame->fds[i]);
		}
	}
	frame->fds_n = 0;
}

void proto_conn_close(struct proto_conn *conn)
{
	for (uint32_t i = 0; i < conn->fds_n; i++) {
		close(conn->fds[i]);
	}
	if (conn->fd >= 0) {
		close(conn->fd);
	}
	wire_out_deinit(&conn->in);
	*conn = (struct proto_conn){.fd = -1};
}
