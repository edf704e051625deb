/*
 * One end of a connection between agents, for the client (peer_link.c) and the server
 * (peers_serve.c): the greeting, TLS, and messages, over a socket that does not block. Calls wait
 * by poll(2), never without a limit that the caller knows; they end with PAWL_ECANCELED as soon as
 * stop_fd is readable. For one thread.
 *
 * Errors: PAWL_ETIMEDOUT; PAWL_ECANCELED; PAWL_EPEER: the other end is gone, or is not what it has
 * to be; PAWL_ECORRUPT: what it sent is no message; PAWL_ENOMEM, PAWL_EIO: the system fails. Texts
 * say what "it", the other end, did.
 */
#ifndef AGENT_PEER_PEER_STREAM_H
#define AGENT_PEER_PEER_STREAM_H

#include "agent/peer/peer_msg.h"

struct tls;
struct tls_session;

#define PEER_STREAM_FOREVER INT64_MAX /* a wait that ends with the connection, or with stop_fd */

struct peer_stream {
	int fd;                      /* socket; owned; -1: none */
	int stop_fd;                 /* an eventfd of the caller's, which is never read */
	int64_t due_ns;              /* by when the connection is up, monotonic ns; later FOREVER */
	struct tls_session *session; /* owned; NULL before the greetings */
	struct wire_out out;         /* messages to be sent */
	uint8_t *in;                 /* body of the last message received; owned */
	size_t in_cap_bytes;         /* bytes allocated for in */
};

/* Takes over fd, a socket that does not block; -1: it is set later. */
void peer_stream_init(struct peer_stream *stream, int fd, int stop_fd);
void peer_stream_deinit(struct peer_stream *stream);
/* Waits until the socket is ready for events (poll.h), for at most wait_ns. */
int peer_stream_wait(struct peer_stream *stream, short events, int64_t wait_ns,
	struct pawl_err *err);
/* Exchanges greetings and makes the TLS connection. token: there is one; accept: the other end
 * connected. */
int peer_stream_start(struct peer_stream *stream, struct tls *tls, bool token, bool accept,
	struct pawl_err *err);
/* Sends a message; what is small waits for the next flush. A large blob is sent from where it
 * lies. PAWL_ELIMIT: the message is longer than PEER_BODY_MAX; the stream goes on. */
int peer_stream_send(struct peer_stream *stream, const struct peer_msg *msg, struct pawl_err *err);
int peer_stream_flush(struct peer_stream *stream, struct pawl_err *err);
/* Receives a message with a body of at most body_max bytes, whose first byte comes within wait_ns.
 * Its blob is valid until the next call. */
int peer_stream_receive(struct peer_stream *stream, struct peer_msg *msg, int64_t wait_ns,
	uint32_t body_max, struct pawl_err *err);
/* Ends the connection so that the other end can read what was sent to it last: discards what it
 * still sends, until it closes, for TIME_NET_GOODBYE at most. */
void peer_stream_linger(struct peer_stream *stream);

#endif
