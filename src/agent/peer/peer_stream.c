/*
 * Messages over TLS over a socket that does not block: see peer_stream.h.
 *
 * Every wait restarts when bytes have moved: an end that moves nothing for TIME_PEER_ANSWER is
 * given up; a message that moves may take any time.
 */
#include "agent/peer/peer_stream.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "io/greeting.h"
#include "io/tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define COPY_MAX   (16u << 10) /* bytes of a blob that are copied behind other bytes to be sent */
#define CORK_MAX   (64u << 10) /* bytes that wait for a flush */
#define IN_STEP    (2u << 20)  /* bytes allocated for a body before any of them has come */
#define KEEPALIVES 3           /* probes without an answer after which a host is gone */

/* ---- life ---- */

void peer_stream_init(struct peer_stream *stream, int fd, int stop_fd)
{
	memset(stream, 0, sizeof(*stream));
	stream->fd = fd;
	stream->stop_fd = stop_fd;
	stream->due_ns = PEER_STREAM_FOREVER;
}

void peer_stream_deinit(struct peer_stream *stream)
{
	tls_session_close(stream->session);
	stream->session = NULL;
	if (stream->fd >= 0) {
		close(stream->fd);
		stream->fd = -1;
	}
	wire_out_deinit(&stream->out);
	free(stream->in);
	stream->in = NULL;
	stream->in_cap_bytes = 0;
}

/* ---- waiting ---- */

/* Returns the milliseconds from now to end_ns, rounded up, for poll; -1: forever. */
static int poll_ms(int64_t now_ns, int64_t end_ns)
{
	int64_t left_ns = end_ns > now_ns ? end_ns - now_ns : 0;

	if (end_ns == PEER_STREAM_FOREVER) {
		return -1;
	}
	return left_ns / NS_PER_MS >= INT32_MAX - 1 ? INT32_MAX
						    : (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static int late(short events, bool due, int64_t wait_ns, struct pawl_err *err)
{
	if (due) {
		return pawl_err_set(err, PAWL_ETIMEDOUT, "its connection did not come up in time");
	}
	return pawl_err_set(err, PAWL_ETIMEDOUT, "it %s nothing for %.3g s",
		events & POLLOUT ? "takes" : "sends", (double)wait_ns / NS_PER_S);
}

int peer_stream_wait(struct peer_stream *stream, short events, int64_t wait_ns,
	struct pawl_err *err)
{
	struct pollfd fds[2] = {{stream->stop_fd, POLLIN, 0}, {stream->fd, events, 0}};
	int64_t now_ns = clock_mono_ns();
	int64_t late_ns = clock_add_ns(now_ns, wait_ns);
	int64_t end_ns = late_ns < stream->due_ns ? late_ns : stream->due_ns;

	for (;;) {
		int n = FAULT_SYS("peer.poll", poll(fds, 2, poll_ms(now_ns, end_ns)));

		if (n < 0 && errno != EINTR) {
			return pawl_err_sys(err, "wait for its connection");
		}
		if (n > 0 && fds[0].revents != 0) {
			return pawl_err_set(err, PAWL_ECANCELED, "canceled");
		}
		if (n > 0) {
			return 0;
		}
		now_ns = clock_mono_ns();
		if (now_ns >= end_ns) {
			return late(events, end_ns < late_ns, wait_ns, err);
		}
	}
}

/* Ends a call of a stream that was stopped, even if it would not have to wait. */
static int check_stop(const struct peer_stream *stream, struct pawl_err *err)
{
	struct pollfd fd = {stream->stop_fd, POLLIN, 0};

	return poll(&fd, 1, 0) > 0 ? pawl_err_set(err, PAWL_ECANCELED, "canceled") : 0;
}

/* Waits until a session can go on that wanted to write, or to read. */
static int wait_session(struct peer_stream *stream, bool write, int64_t wait_ns,
	struct pawl_err *err)
{
	return peer_stream_wait(stream, write ? POLLOUT : POLLIN, wait_ns, err);
}

/* ---- greeting and TLS ---- */

static void set_options(int fd)
{
	int64_t answer_s = times_ns(TIME_PEER_ANSWER) / NS_PER_S;
	const int on = 1;
	const int probes = KEEPALIVES;
	int idle_s = answer_s < 1 ? 1 : answer_s > INT16_MAX ? INT16_MAX : (int)answer_s;
	int probe_s = idle_s / KEEPALIVES > 0 ? idle_s / KEEPALIVES : 1;

	/* None of them has to succeed: without keepalives, a lost host costs a thread. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof(probe_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

static int exchange_greetings(struct peer_stream *stream, bool token, struct pawl_err *err)
{
	const struct greeting own = {.magic = "pawl-a",
		.version = PEER_VERSION,
		.token = token,
		.program = "an agent of pawl",
		.here = "this host"};
	uint8_t bytes[GREETING_BYTES];
	size_t len = 0;
	int rv = 0;

	greeting_put(&own, bytes);
	/* The buffer of a new socket has room for eight bytes. */
	if (send(stream->fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != (ssize_t)sizeof(bytes)) {
		return pawl_err_set(err, PAWL_EPEER, "its connection ended");
	}
	while (rv == 0) {
		ssize_t n;

		rv = peer_stream_wait(stream, POLLIN, times_ns(TIME_PEER_CONNECT), err);
		if (rv != 0) {
			return rv;
		}
		n = recv(stream->fd, bytes + len, sizeof(bytes) - len, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			return pawl_err_set(err, PAWL_EPEER,
				"its connection ended before it sent its greeting");
		}
		len += n > 0 ? (size_t)n : 0;
		rv = greeting_check(&own, bytes, len, err);
	}
	return rv < 0 ? rv : 0;
}

int peer_stream_start(struct peer_stream *stream, struct tls *tls, bool token, bool accept,
	struct pawl_err *err)
{
	bool write = false;
	int rv;

	ASSERT(stream->fd >= 0 && !stream->session);
	set_options(stream->fd);
	rv = exchange_greetings(stream, token, err);
	if (rv != 0) {
		return rv;
	}
	stream->session = tls_session_open(tls, stream->fd, accept);
	if (!stream->session) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a connection");
	}
	while ((rv = tls_session_handshake(stream->session, &write, err)) == 0) {
		rv = wait_session(stream, write, times_ns(TIME_PEER_CONNECT), err);
		if (rv != 0) {
			return rv;
		}
	}
	return rv < 0 ? rv : 0;
}

/* ---- sending ---- */

static int write_all(struct peer_stream *stream, const uint8_t *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	bool write = false;

	while (len_bytes > 0) {
		size_t most = len_bytes < PEER_BLOCK ? len_bytes : PEER_BLOCK;
		ssize_t n = tls_session_write(stream->session, bytes, most, &write, err);
		int rv = n < 0 ? (int)n : 0;

		if (n == 0) {
			rv = wait_session(stream, write, times_ns(TIME_PEER_ANSWER), err);
		}
		if (rv != 0) {
			return rv;
		}
		bytes += n;
		len_bytes -= (size_t)n;
	}
	return 0;
}

int peer_stream_flush(struct peer_stream *stream, struct pawl_err *err)
{
	int rv = check_stop(stream, err);

	if (rv == 0 && stream->out.len_bytes > 0) {
		rv = write_all(stream, stream->out.bytes, stream->out.len_bytes, err);
		wire_out_reset(&stream->out);
	}
	return rv;
}

int peer_stream_send(struct peer_stream *stream, const struct peer_msg *msg, struct pawl_err *err)
{
	bool copy = msg->blob_bytes <= COPY_MAX;
	size_t start = stream->out.len_bytes;
	int rv;

	ASSERT(!stream->out.failed);
	if (copy) {
		peer_msg_put(&stream->out, msg);
	} else {
		peer_msg_put_head(&stream->out, msg);
	}
	if (stream->out.failed) { /* what was there before the message is whole */
		rv = wire_out_error(&stream->out, "a message to another host", err);
		stream->out.failed = stream->out.too_large = false;
		stream->out.len_bytes = start;
		return rv;
	}
	if (copy && stream->out.len_bytes < CORK_MAX) {
		return 0;
	}
	rv = peer_stream_flush(stream, err);
	return rv == 0 && !copy ? write_all(stream, msg->blob, msg->blob_bytes, err) : rv;
}

/* ---- receiving ---- */

/* Reads len_bytes bytes, of which the first comes within wait_ns. */
static int read_all(struct peer_stream *stream, uint8_t *bytes, size_t len_bytes, int64_t wait_ns,
	struct pawl_err *err)
{
	bool write = false;

	while (len_bytes > 0) {
		size_t most = len_bytes < PEER_BLOCK ? len_bytes : PEER_BLOCK;
		ssize_t n = tls_session_read(stream->session, bytes, most, &write, err);
		int rv = n < 0 ? (int)n : 0;

		if (n == 0) {
			rv = wait_session(stream, write, wait_ns, err);
		} else {
			wait_ns = times_ns(TIME_PEER_ANSWER);
		}
		if (rv != 0) {
			return rv;
		}
		bytes += n;
		len_bytes -= (size_t)n;
	}
	return 0;
}

static int resize_in(struct peer_stream *stream, size_t cap_bytes, struct pawl_err *err)
{
	uint8_t *in = FAULT_MEM("peer.in", realloc(stream->in, cap_bytes));

	if (!in) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a message of %zu bytes",
			cap_bytes);
	}
	stream->in = in;
	stream->in_cap_bytes = cap_bytes;
	return 0;
}

/* Reads a body. Memory grows with the bytes that have come: a length alone takes little. */
static int read_body(struct peer_stream *stream, uint32_t body_bytes, struct pawl_err *err)
{
	size_t len = 0;
	int rv = 0;

	if (stream->in_cap_bytes > IN_STEP) { /* a long message is no reason to keep its memory */
		free(stream->in);
		stream->in = NULL;
		stream->in_cap_bytes = 0;
	}
	while (rv == 0 && len < body_bytes) {
		size_t most = len < IN_STEP ? IN_STEP : 2 * len;
		size_t cap = body_bytes < most ? body_bytes : most;

		if (cap > stream->in_cap_bytes) {
			rv = resize_in(stream, cap, err);
		}
		if (rv == 0) {
			rv = read_all(stream, stream->in + len, cap - len,
				times_ns(TIME_PEER_ANSWER), err);
			len = cap;
		}
	}
	return rv;
}

int peer_stream_receive(struct peer_stream *stream, struct peer_msg *msg, int64_t wait_ns,
	uint32_t body_max, struct pawl_err *err)
{
	uint8_t header[PEER_HEADER];
	struct wire_in in;
	uint32_t body_bytes;
	int rv = check_stop(stream, err);

	if (rv == 0) {
		rv = read_all(stream, header, sizeof(header), wait_ns, err);
	}
	if (rv != 0) {
		return rv;
	}
	wire_in_init(&in, header, sizeof(header));
	body_bytes = wire_get_u32(&in);
	if (body_bytes > body_max) {
		return pawl_err_set(err, PAWL_ECORRUPT, "it sent a message of %u bytes: %u at most",
			body_bytes, body_max);
	}
	rv = read_body(stream, body_bytes, err);
	return rv == 0 ? peer_msg_get(msg, wire_get_u8(&in), body_bytes > 0 ? stream->in : header,
				 body_bytes, err)
		       : rv;
}

/* ---- the end ---- */

void peer_stream_linger(struct peer_stream *stream)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_NET_GOODBYE);
	uint8_t nothing[4096];

	if (peer_stream_flush(stream, NULL) != 0) {
		return;
	}
	tls_session_end(stream->session);
	shutdown(stream->fd, SHUT_WR);
	stream->due_ns = end_ns;
	while (peer_stream_wait(stream, POLLIN, times_ns(TIME_NET_GOODBYE), NULL) == 0) {
		ssize_t n = recv(stream->fd, nothing, sizeof(nothing), MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
			clock_mono_ns() >= end_ns) {
			return;
		}
	}
}
