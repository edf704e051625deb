/* What the tests of links between agents share: two ends in one process, and ends that do not keep
 * to the protocol. */
#ifndef TEST_PEERS_WORLD_H
#define TEST_PEERS_WORLD_H

#include "agent/peer/held.h"
#include "agent/peer/notes.h"
#include "agent/peer/peer_link.h"
#include "agent/peer/peer_stream.h"
#include "agent/peer/peers.h"
#include "agent/peer/rounds.h"
#include "base/assert.h"
#include "base/crc.h"
#include "expect.h"
#include "pawl/err.h"
#include "within.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define ROOT  7u
#define TOKEN "sixteen bytes and more"

static struct pawl_err err;
static struct peers *here;  /* the end of the links' client */
static struct peers *there; /* the end that is connected to */

static inline struct peers *open_peers(const char *job, const char *token)
{
	const struct peers_options options = {.job = job,
		.token = token,
		.address = "127.0.0.1",
		.domain = "rack1"};
	struct peers *peers = NULL;

	OK(peers_open(&peers, &options, &err));
	return peers;
}

static inline int begin(void **state)
{
	here = open_peers("gpt", TOKEN);
	there = open_peers("gpt", TOKEN);
	return 0;
}

static inline int end(void **state)
{
	peers_close(here);
	peers_close(there);
	here = there = NULL;
	return 0;
}

/* Connects a link to an address; *out is set if that succeeds. */
static inline int link_to(struct peer_link **out, const char *address, struct pawl_err *why)
{
	struct peer_link *link;
	int rv = peer_link_make(&link, here, why);

	if (rv != 0) {
		return rv;
	}
	rv = peer_link_connect(link, address, why);
	if (rv != 0) {
		peer_link_close(link);
		return rv;
	}
	*out = link;
	return 0;
}

static inline struct peer_link *open_link(void)
{
	struct peer_link *link = NULL;

	OK(link_to(&link, peers_address(there), &err));
	return link;
}

/* Asks for something about a note; text: what is written. */
static inline int note(struct peer_link *link, enum peer_kind kind, const char *path,
	const char *text, enum peer_kind answer, struct peer_msg *reply)
{
	struct peer_msg msg = {.kind = kind, .root = ROOT, .blob = (const uint8_t *)text};

	msg.blob_bytes = text ? (uint32_t)strlen(text) : 0;
	snprintf(msg.path, sizeof(msg.path), "%s", path);
	return peer_link_call(link, &msg, answer, reply, &err);
}

/* Whether the link works. */
static inline void assert_works(struct peer_link *link)
{
	struct peer_msg reply;

	OK(note(link, PEER_NOTE_WRITE, "works", "", PEER_OK, &reply));
}

static inline struct sockaddr_in loopback(uint32_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_addr = {htonl(INADDR_LOOPBACK)},
		.sin_port = htons((uint16_t)port)};
}

/* Connects to an end without a word. */
static inline int connect_raw(const struct peers *peers)
{
	struct sockaddr_in at = loopback(peers_port(peers));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* Returns whether the other end has closed; discards what it has sent. */
static inline bool is_closed(int fd)
{
	char bytes[65536];
	ssize_t n;

	do {
		n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	} while (n > 0);
	return n == 0 || errno != EAGAIN;
}

static inline void await_close(int fd)
{
	WITHIN(WITHIN_LONG_S, is_closed(fd));
}

/* Connects to an end, up to TLS; what is sent then is the test's affair. */
static inline void start_stream(struct peer_stream *stream, struct peers *peers)
{
	int fd = connect_raw(peers);

	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	peer_stream_init(stream, fd, eventfd(0, EFD_CLOEXEC));
	OK(peer_stream_start(stream, peers_tls(here), true, false, &err));
}

static inline void end_stream(struct peer_stream *stream)
{
	close(stream->stop_fd);
	peer_stream_deinit(stream);
}

/* A server that accepts one connection and does with it what it likes. */
struct rogue {
	int listen_fd;
	int stop_fd;                                /* readable from when the rogue is to end */
	char address[PEER_ADDRESS_MAX];             /* "host:port" */
	void (*serve)(struct rogue *rogue, int fd); /* called with the connection's socket */
	struct peer_stream stream;                  /* used by rogue_greet */
	bool alone;                                 /* the other end has given up, or left */
	pthread_t thread;
};

static inline void *run_rogue(void *user)
{
	struct rogue *rogue = user;
	int fd = accept4(rogue->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	ASSERT(fd >= 0);
	rogue->serve(rogue, fd);
	return NULL;
}

static inline void start_rogue(struct rogue *rogue, void (*serve)(struct rogue *rogue, int fd))
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);

	rogue->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rogue->stop_fd = eventfd(0, EFD_CLOEXEC);
	rogue->serve = serve;
	assert_int_equal(bind(rogue->listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(rogue->listen_fd, 1), 0);
	assert_int_equal(getsockname(rogue->listen_fd, (struct sockaddr *)&at, &len), 0);
	snprintf(rogue->address, sizeof(rogue->address), "127.0.0.1:%u", ntohs(at.sin_port));
	assert_int_equal(pthread_create(&rogue->thread, NULL, run_rogue, rogue), 0);
}

/* Ends what the rogue waits for. */
static inline void end_rogue(struct rogue *rogue)
{
	assert_int_equal(eventfd_write(rogue->stop_fd, 1), 0);
	pthread_join(rogue->thread, NULL);
	close(rogue->listen_fd);
	close(rogue->stop_fd);
}

/* In the thread of a rogue: receives a message and discards it. A client that was late gives up,
 * and says so: nothing is an error here. */
static inline void rogue_receive(struct rogue *rogue)
{
	struct peer_msg msg;

	rogue->alone = rogue->alone ||
		peer_stream_receive(&rogue->stream, &msg, PEER_STREAM_FOREVER, PEER_BODY_MAX,
			NULL) != 0;
}

static inline void rogue_send(struct rogue *rogue, const struct peer_msg *msg)
{
	rogue->alone = rogue->alone || peer_stream_send(&rogue->stream, msg, NULL) != 0 ||
		peer_stream_flush(&rogue->stream, NULL) != 0;
}

/* Sends bytes that are no message. */
static inline void rogue_send_bytes(struct rogue *rogue, const void *bytes, size_t len_bytes)
{
	wire_put_raw(&rogue->stream.out, bytes, len_bytes);
	rogue->alone = rogue->alone || peer_stream_flush(&rogue->stream, NULL) != 0;
}

/* In the thread of a rogue: does as a good server does, up to the answer to PEER_HELLO. */
static inline void rogue_greet(struct rogue *rogue, int fd)
{
	const struct peer_msg ok = {.kind = PEER_OK};
	struct peer_stream *stream = &rogue->stream;

	peer_stream_init(stream, fd, rogue->stop_fd);
	rogue->alone = peer_stream_start(stream, peers_tls(there), true, true, NULL) != 0;
	rogue_receive(rogue);
	rogue_send(rogue, &ok);
}

/* In the thread of a rogue: discards messages until the other end closes, or end_rogue. */
static inline void rogue_wait(struct rogue *rogue)
{
	while (!rogue->alone) {
		rogue_receive(rogue);
	}
	peer_stream_deinit(&rogue->stream);
}

/* Sends bytes of any kind over TLS. */
static inline void send_bytes(struct peer_stream *stream, const void *bytes, size_t len_bytes)
{
	wire_put_raw(&stream->out, bytes, len_bytes);
	ASSERT(peer_stream_flush(stream, NULL) == 0);
}

#endif
