/*
 * A client's connection to another agent: see peer_link.h.
 *
 * A server that refuses says why, and closes. If that comes while this end still sends, the send
 * fails first: the reason lies among what was received, and is looked for there.
 */
#include "agent/peer/peer_link.h"

#include "agent/peer/peer_stream.h"
#include "agent/peer/peers.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEFT_MAX 4096u /* messages that are looked through for the reason of a failed send */

struct peer_link {
	struct peers *peers;            /* this host's end */
	struct peer_stream stream;      /* the link owns stop_fd, too */
	char address[PEER_ADDRESS_MAX]; /* "host:port" of the other end; "": not connected yet */
};

/* ---- life ---- */

int peer_link_make(struct peer_link **out, struct peers *peers, struct pawl_err *err)
{
	struct peer_link *link = FAULT_MEM("peer.link", calloc(1, sizeof(*link)));
	int stop_fd;

	if (!link) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a link to another host");
	}
	stop_fd = FAULT_SYS("peer.link", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (stop_fd < 0) {
		free(link);
		return pawl_err_sys(err, "make a link to another host");
	}
	link->peers = peers;
	peer_stream_init(&link->stream, -1, stop_fd);
	*out = link;
	return 0;
}

void peer_link_close(struct peer_link *link)
{
	if (!link) {
		return;
	}
	peer_stream_deinit(&link->stream);
	close(link->stream.stop_fd);
	free(link);
}

void peer_link_cancel(struct peer_link *link)
{
	const uint64_t one = 1;

	/* The write fails only if the counter is full, and that has the same effect. */
	(void)!write(link->stream.stop_fd, &one, sizeof(one));
}

/* Puts the other end's address in front of the reason. */
static int name_peer(const struct peer_link *link, int rv, struct pawl_err *err)
{
	return rv == 0 || rv == PAWL_ECANCELED
		? rv
		: pawl_err_prefix(err, rv, "the agent at %s", link->address);
}

/* ---- connecting ---- */

/* Finds what "host:port" or "[host]:port" means, without asking anybody. */
static struct addrinfo *resolve(const char *address)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	const char *colon = strrchr(address, ':');
	struct addrinfo *found = NULL;
	char host[PEER_ADDRESS_MAX];
	size_t len = colon ? (size_t)(colon - address) : 0;

	if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
		address++;
		len -= 2;
	}
	if (len == 0 || len >= sizeof(host) || colon[1] == '\0') {
		return NULL;
	}
	memcpy(host, address, len);
	host[len] = '\0';
	return getaddrinfo(host, colon + 1, &hints, &found) == 0 ? found : NULL;
}

static int connect_socket(struct peer_link *link, const struct addrinfo *at, struct pawl_err *err)
{
	struct peer_stream *stream = &link->stream;
	int sys = 0;
	socklen_t len = sizeof(sys);
	int rv;

	stream->fd = FAULT_SYS("peer.socket",
		socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (stream->fd < 0) {
		return pawl_err_sys(err, "make a socket");
	}
	if (connect(stream->fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
		return pawl_err_set(err, PAWL_EPEER, "%s", strerrordesc_np(errno));
	}
	rv = peer_stream_wait(stream, POLLOUT, times_ns(TIME_PEER_CONNECT), err);
	if (rv != 0) {
		return rv == PAWL_ETIMEDOUT ? pawl_err_set(err, rv,
						      "it does not answer: a firewall, or no such "
						      "host")
					    : rv;
	}
	if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &sys, &len) != 0 || sys != 0) {
		return pawl_err_set(err, PAWL_EPEER, "%s", strerrordesc_np(sys != 0 ? sys : errno));
	}
	return 0;
}

/* Sends PEER_HELLO and receives the answer. */
static int greet(struct peer_link *link, struct pawl_err *err)
{
	struct peer_msg hello = {.kind = PEER_HELLO, .version = PEER_VERSION};
	struct peer_msg answer;
	int rv;

	snprintf(hello.job, sizeof(hello.job), "%s", peers_job(link->peers));
	rv = peer_stream_send(&link->stream, &hello, err);
	if (rv == 0) {
		rv = peer_stream_flush(&link->stream, err);
	}
	if (rv == 0) {
		rv = peer_stream_receive(&link->stream, &answer, times_ns(TIME_PEER_CONNECT),
			PEER_BODY_MAX, err);
	}
	if (rv == 0 && answer.kind != PEER_OK) {
		return pawl_err_set(err, PAWL_EPEER, "%s",
			answer.kind == PEER_ERROR ? answer.text : "its greeting is no answer");
	}
	return rv == PAWL_ECORRUPT ? pawl_err_set(err, PAWL_EPEER, "its greeting is no answer")
				   : rv;
}

int peer_link_connect(struct peer_link *link, const char *address, struct pawl_err *err)
{
	struct addrinfo *at = resolve(address);
	int rv;

	ASSERT(link->stream.fd < 0);
	snprintf(link->address, sizeof(link->address), "%s", address);
	if (!at) {
		return pawl_err_set(err, PAWL_EPEER,
			"\"%s\" is no numeric address and port of an agent", address);
	}
	link->stream.due_ns = clock_add_ns(clock_mono_ns(), times_ns(TIME_PEER_CONNECT));
	rv = connect_socket(link, at, err);
	freeaddrinfo(at);
	if (rv == 0) {
		rv = peer_stream_start(&link->stream, peers_tls(link->peers),
			peers_has_token(link->peers), false, err);
	}
	if (rv == 0) {
		rv = greet(link, err);
	}
	link->stream.due_ns = PEER_STREAM_FOREVER;
	return name_peer(link, rv, err);
}

/* ---- messages ---- */

static int take_error(const struct peer_msg *msg, struct pawl_err *err)
{
	return pawl_err_set(err, msg->code, "%s", msg->text);
}

/* After a send has failed because the other end is gone: returns the error that it sent before, or
 * rv. */
static int explain(struct peer_link *link, int rv, struct pawl_err *err)
{
	struct peer_msg msg;

	for (uint32_t i = 0; rv == PAWL_EPEER && i < LEFT_MAX; i++) {
		if (peer_stream_receive(&link->stream, &msg, 0, PEER_BODY_MAX, NULL) != 0) {
			break;
		}
		if (msg.kind == PEER_ERROR) {
			return take_error(&msg, err);
		}
	}
	return name_peer(link, rv, err);
}

int peer_link_send(struct peer_link *link, const struct peer_msg *msg, struct pawl_err *err)
{
	int rv;

	ASSERT(link->stream.session); /* the link is connected */
	rv = peer_stream_send(&link->stream, msg, err);
	return rv == PAWL_ELIMIT ? rv : explain(link, rv, err);
}

int peer_link_receive(struct peer_link *link, struct peer_msg *msg, struct pawl_err *err)
{
	int rv;

	ASSERT(link->stream.session); /* the link is connected */
	rv = peer_stream_flush(&link->stream, err);
	if (rv != 0) {
		return explain(link, rv, err);
	}
	rv = peer_stream_receive(&link->stream, msg, times_ns(TIME_PEER_ANSWER), PEER_BODY_MAX,
		err);
	if (rv != 0) {
		return name_peer(link, rv, err);
	}
	return msg->kind == PEER_ERROR ? take_error(msg, err) : 0;
}

int peer_link_call(struct peer_link *link, const struct peer_msg *msg, enum peer_kind answer,
	struct peer_msg *reply, struct pawl_err *err)
{
	int rv = peer_link_send(link, msg, err);

	if (rv == 0) {
		rv = peer_link_receive(link, reply, err);
	}
	if (rv == 0 && reply->kind != answer) {
		rv = pawl_err_set(err, PAWL_ECORRUPT,
			"the agent at %s: its answer has kind %d, not %d", link->address,
			(int)reply->kind, (int)answer);
	}
	return rv;
}
