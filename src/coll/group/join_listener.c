/* Join listeners: see join_listener.h for the contract. */
#include "coll/group/join_listener.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/plan/topo.h"
#include "coll/transport/dial.h"
#include "coll/transport/tcp.h"
#include "io/address.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* A newcomer that is connected. */
struct waiter {
	int fd;                              /* socket of the connection */
	int64_t since_ns;                    /* time of connection, monotonic ns */
	uint8_t request[JOIN_REQUEST_BYTES]; /* join request, as received so far */
	size_t got;                          /* bytes of request received */
};

struct pawl_join_listener {
	int fd;                                  /* listening socket, which does not block */
	uint64_t key;                            /* secret that a join request must contain */
	struct waiter waiters[JOIN_WAITERS_MAX]; /* waiters with a complete request come first */
	uint32_t waiters_n;                      /* number of entries in waiters */
	uint32_t requested_n;                    /* number of waiters whose request is complete */
};

/* ---- bytes ---- */

void join_request_encode(uint8_t *bytes, uint64_t key)
{
	const uint64_t words[2] = {htole64(JOIN_REQUEST_MAGIC), htole64(key)};

	memcpy(bytes, words, sizeof(words));
}

bool join_request_check(const uint8_t *bytes, uint64_t key)
{
	uint8_t right[JOIN_REQUEST_BYTES];

	join_request_encode(right, key);
	return memcmp(bytes, right, JOIN_REQUEST_BYTES) == 0;
}

void join_reply_encode(uint8_t *bytes, const struct join_reply *reply)
{
	const uint32_t words[4] = {htole32(reply->type), htole32(reply->rank),
		htole32(reply->ranks), 0};

	memcpy(bytes, words, sizeof(words));
}

int join_reply_decode(const uint8_t *bytes, enum join_reply_type type, struct join_reply *reply,
	struct pawl_err *err)
{
	uint32_t words[4];

	memcpy(words, bytes, sizeof(words));
	*reply = (struct join_reply){le32toh(words[0]), le32toh(words[1]), le32toh(words[2])};
	if (reply->type != (uint32_t)type) {
		return pawl_err_set(err, PAWL_EINVAL,
			"an unexpected reply: is it another version of Pawl?");
	}
	return type != JOIN_REPLY_INVITE ||
			(reply->ranks <= COLL_RANKS_MAX && reply->rank < reply->ranks)
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "an invitation as rank %u of %u", reply->rank,
			  reply->ranks);
}

/* ---- opening and closing ---- */

int pawl_join_listener_open(struct pawl_join_listener **out, const char *route_hint, char *name,
	struct pawl_err *err)
{
	struct pawl_join_listener *listener =
		FAULT_MEM("coll.listener", calloc(1, sizeof(*listener)));
	char address[ADDRESS_MAX];
	int rv;

	_Static_assert(COLL_TCP_NAME <= PAWL_JOIN_LISTENER_NAME, "no room for a name");
	if (!listener) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a join listener");
	}
	rv = address_find(route_hint ? route_hint : "127.0.0.1", address, err);
	if (rv == 0 &&
		getrandom(&listener->key, sizeof(listener->key), 0) != sizeof(listener->key)) {
		rv = pawl_err_sys(err, "random number");
	}
	if (rv == 0) {
		listener->fd = coll_tcp_listen(address, 0, listener->key, name, err);
		rv = listener->fd < 0 ? listener->fd : 0;
	}
	if (rv != 0) {
		free(listener);
		return pawl_err_prefix(err, rv, "collectives: open a join listener");
	}
	*out = listener;
	return 0;
}

/* Closes the connection of waiter i; the last waiter takes its place. */
static void drop(struct pawl_join_listener *listener, uint32_t i)
{
	close(listener->waiters[i].fd);
	if (i < listener->requested_n) {
		listener->requested_n--;
		listener->waiters[i] = listener->waiters[listener->requested_n];
		i = listener->requested_n;
	}
	listener->waiters[i] = listener->waiters[--listener->waiters_n];
}

void pawl_join_listener_close(struct pawl_join_listener *listener)
{
	if (listener) {
		while (listener->waiters_n > 0) {
			drop(listener, 0);
		}
		close(listener->fd);
		free(listener);
	}
}

/* ---- newcomers ---- */

/* Receives more of a join request. False: it is wrong, or comes too slowly. */
static bool receive_request(const struct pawl_join_listener *listener, struct waiter *w,
	int64_t now_ns)
{
	ssize_t n = recv(w->fd, w->request + w->got, JOIN_REQUEST_BYTES - w->got, 0);

	w->got += n > 0 ? (size_t)n : 0;
	if (w->got < JOIN_REQUEST_BYTES) {
		return n != 0 && now_ns - w->since_ns < times_ns(TIME_JOIN_REQUEST);
	}
	return join_request_check(w->request, listener->key);
}

static void receive_requests(struct pawl_join_listener *listener, int64_t now_ns)
{
	for (uint32_t i = listener->waiters_n; i-- > listener->requested_n;) {
		if (!receive_request(listener, &listener->waiters[i], now_ns)) {
			drop(listener, i);
		}
	}
	for (uint32_t i = listener->requested_n; i < listener->waiters_n; i++) {
		if (listener->waiters[i].got == JOIN_REQUEST_BYTES) {
			struct waiter w = listener->waiters[i];

			listener->waiters[i] = listener->waiters[listener->requested_n];
			listener->waiters[listener->requested_n++] = w;
		}
	}
}

/* Makes room for another newcomer, by dropping the oldest of those whose request is not complete.
 * False: there is none. */
static bool make_room(struct pawl_join_listener *listener, int64_t now_ns)
{
	uint32_t oldest;

	if (listener->waiters_n == JOIN_WAITERS_MAX) {
		receive_requests(listener, now_ns);
	}
	if (listener->waiters_n < JOIN_WAITERS_MAX) {
		return true;
	}
	oldest = listener->requested_n;
	for (uint32_t i = oldest; i < listener->waiters_n; i++) {
		oldest = listener->waiters[i].since_ns < listener->waiters[oldest].since_ns
			? i
			: oldest;
	}
	if (oldest < listener->waiters_n) {
		drop(listener, oldest);
	}
	return listener->waiters_n < JOIN_WAITERS_MAX;
}

static void accept_waiters(struct pawl_join_listener *listener, int64_t now_ns)
{
	int fd;

	while ((fd = FAULT_SYS("coll.listener",
			accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK))) >= 0) {
		if (!make_room(listener, now_ns)) {
			close(fd); /* the newcomer may ask again when others are admitted */
			continue;
		}
		listener->waiters[listener->waiters_n++] =
			(struct waiter){.fd = fd, .since_ns = now_ns};
	}
}

/* Returns whether a waiter is still connected. After its request a waiter sends nothing until it is
 * invited. */
static bool is_connected(const struct waiter *w)
{
	uint8_t byte;

	return recv(w->fd, &byte, 1, MSG_PEEK) < 0;
}

uint32_t pawl_join_listener_waiting(struct pawl_join_listener *listener)
{
	int64_t now_ns = clock_mono_ns();

	if (!listener) {
		return 0;
	}
	accept_waiters(listener, now_ns);
	for (uint32_t i = listener->requested_n; i-- > 0;) {
		if (!is_connected(&listener->waiters[i])) {
			drop(listener, i);
		}
	}
	receive_requests(listener, now_ns);
	return listener->requested_n;
}

/* ---- newcomers that are admitted ---- */

/* Sends a reply to a waiter. A failure is ignored: that waiter fails to answer later. */
static void send_reply(struct pawl_join_listener *listener, uint32_t i,
	const struct join_reply *reply)
{
	uint8_t bytes[JOIN_REPLY_BYTES];

	join_reply_encode(bytes, reply);
	dial_send(listener->waiters[i].fd, bytes, sizeof(bytes),
		clock_mono_ns() + times_ns(TIME_JOIN_STEP));
}

void join_listener_invite(struct pawl_join_listener *listener, uint32_t n, uint32_t first,
	uint32_t ranks, char *endpoints)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_JOIN_STEP);

	for (uint32_t i = 0; i < n; i++) {
		send_reply(listener, i, &(struct join_reply){JOIN_REPLY_INVITE, first + i, ranks});
	}
	for (uint32_t i = 0; i < n; i++) {
		char *endpoint = endpoints + (size_t)i * PAWL_ENDPOINT_MAX;

		if (!dial_receive(listener->waiters[i].fd, endpoint, PAWL_ENDPOINT_MAX, end_ns)) {
			endpoint[0] = '\0';
		}
		endpoint[PAWL_ENDPOINT_MAX - 1] = '\0';
	}
}

void join_listener_send_endpoints(struct pawl_join_listener *listener, uint32_t n,
	const char *endpoints, uint32_t ranks)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_JOIN_STEP);

	for (uint32_t i = 0; i < n; i++) {
		send_reply(listener, i, &(struct join_reply){JOIN_REPLY_ENDPOINTS, 0, ranks});
		dial_send(listener->waiters[i].fd, endpoints, (size_t)ranks * PAWL_ENDPOINT_MAX,
			end_ns);
	}
}

bool join_listener_all_joined(struct pawl_join_listener *listener, uint32_t n)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_JOIN_STEP);
	bool all = true;

	for (uint32_t i = 0; i < n; i++) {
		uint8_t joined = 0;

		all &= dial_receive(listener->waiters[i].fd, &joined, 1, end_ns) && joined == 1;
	}
	return all;
}

void join_listener_dismiss(struct pawl_join_listener *listener, uint32_t n, bool admitted)
{
	while (n-- > 0) {
		if (admitted) {
			send_reply(listener, n, &(struct join_reply){.type = JOIN_REPLY_ADMITTED});
		}
		drop(listener, n);
	}
}
