/*
 * The connections of the TCP transport: see tcp.h for the contract.
 *
 * The rank that connects sends a hello: docs/protocol.md has the bytes. The other rank checks that
 * the hello is from a rank of this group, and answers. A connection without a hello is a handshake.
 * It is closed after a few seconds. The number of handshakes is limited: if a new connection finds
 * no free entry, the oldest handshake is closed, unless its hello has arrived by then.
 *
 * A rank that waits long for others probes whether they still listen: it connects to one after
 * another, and sends nothing. Each probe occupies an entry of the other rank until that rank reads
 * the end of the connection. So rounds of probes begin at intervals, however fast ranks answer.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/transport/tcp_impl.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_MAGIC      0x3170637470776170ULL /* "pawptcp1" */
#define EXTRA_HANDSHAKES 64u                   /* handshakes in addition to those of ranks */
#define BACKLOG          1024
/* Bytes that the kernel may hold unsent. This is one or two milliseconds at 1 Gbit/s, the time in
 * which a thread sends more. It is not larger, so that bytes leave soon after we send them. */
#define UNSENT_BYTES (256 << 10)

/* A connection that has not sent its hello yet. */
struct handshake {
	int fd;                         /* -1: this entry is free */
	int64_t since_ns;               /* time of connection, monotonic ns */
	uint8_t hello[TCP_HELLO_BYTES]; /* hello, as received so far */
	size_t got;                     /* bytes of hello received */
};

struct joining {
	struct tcp *tcp;              /* the caller's */
	const char *const *names;     /* the caller's */
	uint64_t *nonces;             /* owned; per rank, the secret in its name */
	struct handshake *handshakes; /* owned */
	uint32_t handshakes_n; /* entries: one per connection of all ranks, and EXTRA_HANDSHAKES */
	int probe;             /* socket that tests whether rank probed listens; -1: none */
	uint32_t probed;       /* rank that is probed; lower ranks follow in this round */
	int64_t probed_ns;     /* start of the probe */
	int64_t round_ns;      /* earliest start of the next round of probes */
	int64_t begun_ns;      /* time at which joining began */
	uint32_t left;         /* number of missing links */
	struct pollfd *polls;  /* owned; room for all sockets */
	int64_t end_ns;        /* deadline, monotonic ns */
	const atomic_bool *stop; /* the caller's; NULL: never */
};

/* ---- addresses ---- */

/* Reads "10.0.0.1" and "4567" of "10.0.0.1:4567:nonce", or of "[fe80::1]:4567:nonce". */
int coll_tcp_parse(const char *name, struct addrinfo **address, uint64_t *nonce)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	char host[64];
	char port[8];
	int n = 0;

	if (sscanf(name, "[%63[^]]]:%7[0-9]:%" SCNx64 "%n", host, port, nonce, &n) != 3 &&
		sscanf(name, "%63[^:[]:%7[0-9]:%" SCNx64 "%n", host, port, nonce, &n) != 3) {
		return -1;
	}
	return name[n] == '\0' && getaddrinfo(host, port, &hints, address) == 0 ? 0 : -1;
}

/* ---- opening ---- */

/* Sets the congestion control of a socket that is not connected yet, or of all connections that a
 * listening socket will accept. Uses PAWL_CONGESTION if it is set. Otherwise replaces BBR: its
 * estimate of the bandwidth is too low for collectives, which send intermittently. */
static int choose_congestion(int fd)
{
	const char *wanted = getenv("PAWL_CONGESTION");
	char now[16] = "";
	socklen_t len = sizeof(now) - 1;

	if (wanted && *wanted != '\0') {
		return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted,
			(socklen_t)strlen(wanted));
	}
	getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &len);
	if (strncmp(now, "bbr", 3) == 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5); /* on failure BBR stays */
	}
	return 0;
}

int coll_tcp_listen(const char *address, uint16_t port, uint64_t nonce, char *name,
	struct pawl_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
	const int one = 1;
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);
	struct addrinfo *at = NULL;
	char text[8];
	bool six = strchr(address, ':') != NULL;
	bool chosen;
	int fd;

	snprintf(text, sizeof(text), "%u", (unsigned int)port);
	if (getaddrinfo(address, text, &hints, &at) != 0) {
		return pawl_err_set(err, PAWL_EINVAL, "collectives: %s is not an address", address);
	}
	fd = FAULT_SYS("coll.tcp",
		socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	chosen = fd >= 0 && choose_congestion(fd) == 0;
	if (!chosen || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
		bind(fd, at->ai_addr, at->ai_addrlen) != 0 ||
		FAULT_SYS("coll.tcp", listen(fd, BACKLOG)) != 0 ||
		getsockname(fd, (struct sockaddr *)&bound, &len) != 0 ||
		getnameinfo((struct sockaddr *)&bound, len, NULL, 0, text, sizeof(text),
			NI_NUMERICSERV) != 0) {
		int rv = fd < 0 || chosen
			? pawl_err_sys(err, "collectives: listen at %s, port %s", address,
				  port == 0 ? "any" : text)
			: pawl_err_set(err, PAWL_EINVAL, "collectives: PAWL_CONGESTION=%.15s: %s",
				  getenv("PAWL_CONGESTION"), strerror(errno));

		freeaddrinfo(at);
		if (fd >= 0) {
			close(fd);
		}
		return rv;
	}
	freeaddrinfo(at);
	snprintf(name, COLL_TCP_NAME, "%s%s%s:%s:%" PRIx64, six ? "[" : "", address, six ? "]" : "",
		text, nonce);
	return fd;
}

static int open_events(struct tcp *tcp, struct pawl_err *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = TCP_WAKE};

	tcp->epoll = FAULT_SYS("coll.tcp", epoll_create1(EPOLL_CLOEXEC));
	tcp->event = FAULT_SYS("coll.tcp", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (tcp->epoll < 0 || tcp->event < 0 ||
		epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, tcp->event, &event) != 0 ||
		getrandom(&tcp->nonce, sizeof(tcp->nonce), 0) != sizeof(tcp->nonce)) {
		return pawl_err_sys(err, "collectives: open a transport");
	}
	return 0;
}

int coll_tcp_open(struct coll_transport **out, uint32_t rank, uint32_t ranks, const char *address,
	char *name, struct pawl_err *err)
{
	struct tcp *tcp = FAULT_MEM("coll.tcp", calloc(1, sizeof(*tcp)));
	int rv;

	ASSERT(rank < ranks);
	if (!tcp) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives");
	}
	*tcp = (struct tcp){.transport = tcp_transport,
		.rank = rank,
		.ranks = ranks,
		.listener = -1,
		.epoll = -1,
		.event = -1};
	tcp->links =
		FAULT_MEM("coll.tcp", calloc((size_t)ranks * COLL_STREAMS, sizeof(*tcp->links)));
	for (uint32_t i = 0; i < ranks * COLL_STREAMS && tcp->links; i++) {
		tcp->links[i].fd = -1;
	}
	rv = tcp->links
		? open_events(tcp, err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives of %u ranks", ranks);
	if (rv == 0) {
		tcp->listener = coll_tcp_listen(address, 0, tcp->nonce, name, err);
		rv = tcp->listener < 0 ? tcp->listener : 0;
	}
	if (rv != 0) {
		tcp->transport.close(&tcp->transport);
		return rv;
	}
	*out = &tcp->transport;
	return 0;
}

/* ---- hello ---- */

void tcp_write_hello(uint8_t *hello, uint32_t from, uint32_t to, uint32_t stream, uint64_t nonce)
{
	uint64_t words[2] = {htole64(HELLO_MAGIC), htole64(nonce)};
	uint32_t numbers[4] = {htole32(from), htole32(to), htole32(stream), 0};

	_Static_assert(sizeof(words) + sizeof(numbers) == TCP_HELLO_BYTES, "no byte is left");
	memcpy(hello, words, sizeof(words));
	memcpy(hello + sizeof(words), numbers, sizeof(numbers));
}

struct tcp_link *tcp_read_hello(struct tcp *tcp, const char *const *names, const uint8_t *hello)
{
	uint64_t words[2];
	uint32_t numbers[4];
	uint32_t from;
	uint32_t stream;

	memcpy(words, hello, sizeof(words));
	memcpy(numbers, hello + sizeof(words), sizeof(numbers));
	from = le32toh(numbers[0]);
	stream = le32toh(numbers[2]);
	if (le64toh(words[0]) != HELLO_MAGIC || le64toh(words[1]) != tcp->nonce ||
		le32toh(numbers[1]) != tcp->rank || from >= tcp->rank || !names[from] ||
		stream >= COLL_STREAMS || tcp_link(tcp, from, stream)->fd >= 0) {
		return NULL;
	}
	return tcp_link(tcp, from, stream);
}

/* Completes a link. From now on epoll reports its events. */
static int link_up(struct joining *j, struct tcp_link *link, int fd)
{
	const int one = 1;
	const int unsent = UNSENT_BYTES;
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.u64 = (uint64_t)(link - j->tcp->links)};

	ASSERT(!link->connected && j->left > 0);
	link->fd = fd;
	link->connected = true;
	j->left--;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	return epoll_ctl(j->tcp->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* ---- incoming connections ---- */

static void drop_handshake(struct handshake *handshake)
{
	close(handshake->fd);
	handshake->fd = -1;
}

static int receive_hello(struct joining *j, struct handshake *handshake)
{
	struct tcp_link *link;
	uint8_t answer[TCP_HELLO_BYTES];
	ssize_t n;

	ASSERT(handshake->fd >= 0 && handshake->got < TCP_HELLO_BYTES);
	n = recv(handshake->fd, handshake->hello + handshake->got, TCP_HELLO_BYTES - handshake->got,
		0);
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN) {
			drop_handshake(handshake);
		}
		return 0;
	}
	handshake->got += (size_t)n;
	if (handshake->got < TCP_HELLO_BYTES) {
		return 0;
	}
	link = tcp_read_hello(j->tcp, j->names, handshake->hello);
	if (!link) {
		drop_handshake(handshake);
		return 0;
	}
	tcp_write_hello(answer, j->tcp->rank, (uint32_t)((link - j->tcp->links) / COLL_STREAMS),
		(uint32_t)((link - j->tcp->links) % COLL_STREAMS), j->tcp->nonce);
	if (send(handshake->fd, answer, TCP_HELLO_BYTES, MSG_NOSIGNAL) !=
		(ssize_t)TCP_HELLO_BYTES) {
		drop_handshake(handshake);
		return 0;
	}
	n = link_up(j, link, handshake->fd);
	handshake->fd = -1;
	return (int)n;
}

/* Finds a free entry. If there is none, closes the oldest handshake, unless its hello has
 * arrived. */
static int make_room(struct joining *j, struct handshake **entry)
{
	struct handshake *oldest = &j->handshakes[0];
	int rv = 0;

	for (uint32_t h = 0; h < j->handshakes_n && oldest->fd >= 0; h++) {
		if (j->handshakes[h].fd < 0 || j->handshakes[h].since_ns < oldest->since_ns) {
			oldest = &j->handshakes[h];
		}
	}
	if (oldest->fd >= 0) {
		rv = receive_hello(j, oldest);
	}
	if (oldest->fd >= 0) {
		drop_handshake(oldest);
	}
	*entry = oldest;
	return rv;
}

/* Accepts connections, at most as many as there are entries. A handshake that is complete or closed
 * frees its entry. Further connections wait until other sockets were handled. */
static int accept_connections(struct joining *j)
{
	struct handshake *entry;
	int rv = 0;
	int fd;

	for (uint32_t n = 0; n < j->handshakes_n && rv == 0; n++) {
		fd = accept4(j->tcp->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			break;
		}
		rv = make_room(j, &entry);
		*entry = (struct handshake){.fd = fd, .since_ns = clock_mono_ns()};
		if (rv == 0) {
			rv = receive_hello(j, entry);
		}
	}
	return rv;
}

/* ---- outgoing connections ---- */

static int begin_connect(struct joining *j, uint32_t peer, const struct addrinfo *at,
	struct pawl_err *err)
{
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		struct tcp_link *link = tcp_link(j->tcp, peer, s);

		link->fd = FAULT_SYS("coll.tcp",
			socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
		if (link->fd < 0 || choose_congestion(link->fd) != 0 ||
			(connect(link->fd, at->ai_addr, at->ai_addrlen) != 0 &&
				errno != EINPROGRESS)) {
			return pawl_err_set(err, PAWL_EPEER,
				"collectives: rank %u cannot be reached at %s: %s", peer,
				j->names[peer], strerror(errno));
		}
	}
	return 0;
}

/* Sends the hello once the connection is made; fails if it was refused. */
static int send_hello(struct joining *j, uint32_t peer, uint32_t stream, struct pawl_err *err)
{
	struct tcp_link *link = tcp_link(j->tcp, peer, stream);
	uint8_t hello[TCP_HELLO_BYTES];
	int sys = 0;
	socklen_t len = sizeof(sys);

	ASSERT(peer > j->tcp->rank && link->fd >= 0); /* the lower rank connects */
	getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &sys, &len);
	tcp_write_hello(hello, j->tcp->rank, peer, stream, j->nonces[peer]);
	if (sys == 0 &&
		send(link->fd, hello, TCP_HELLO_BYTES, MSG_NOSIGNAL) != (ssize_t)TCP_HELLO_BYTES) {
		sys = errno;
	}
	link->writable = true; /* while joining: the hello was sent */
	return sys == 0
		? 0
		: pawl_err_set(err, PAWL_EPEER, "collectives: rank %u cannot be reached at %s: %s",
			  peer, j->names[peer], strerror(sys));
}

static int receive_answer(struct joining *j, uint32_t peer, uint32_t stream, struct pawl_err *err)
{
	struct tcp_link *link = tcp_link(j->tcp, peer, stream);
	uint8_t answer[TCP_HELLO_BYTES];
	uint8_t expected[TCP_HELLO_BYTES];
	ssize_t n = recv(link->fd, answer, TCP_HELLO_BYTES, MSG_PEEK);

	if (n < 0 && errno == EAGAIN) {
		return 0;
	}
	if (n > 0 && n < (ssize_t)TCP_HELLO_BYTES) {
		return 0;
	}
	tcp_write_hello(expected, peer, j->tcp->rank, stream, j->nonces[peer]);
	if (n != (ssize_t)TCP_HELLO_BYTES || memcmp(answer, expected, TCP_HELLO_BYTES) != 0) {
		return pawl_err_set(err, PAWL_EPEER,
			"collectives: what answers at %s is not rank %u", j->names[peer], peer);
	}
	(void)!recv(link->fd, answer, TCP_HELLO_BYTES, 0);
	return link_up(j, link, link->fd) == 0
		? 0
		: pawl_err_sys(err, "collectives: join rank %u", peer);
}

/* ---- joining ---- */

static int begin(struct joining *j, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t p = 0; p < j->tcp->ranks && rv == 0; p++) {
		struct addrinfo *at = NULL;

		if (p == j->tcp->rank || !j->names[p]) {
			continue;
		}
		j->left += COLL_STREAMS;
		if (p < j->tcp->rank) {
			continue;
		}
		if (coll_tcp_parse(j->names[p], &at, &j->nonces[p]) != 0) {
			rv = pawl_err_set(err, PAWL_EINVAL,
				"collectives: the address of rank %u is malformed: %s", p,
				j->names[p]);
		} else {
			rv = begin_connect(j, p, at, err);
		}
		if (at) {
			freeaddrinfo(at);
		}
	}
	return rv;
}

/* Fills polls: the listener, the probe, the handshakes, then the links. Entries that need no event
 * have the descriptor -1. */
static nfds_t list_polls(struct joining *j)
{
	struct tcp *tcp = j->tcp;
	nfds_t n = 0;

	j->polls[n++] = (struct pollfd){.fd = tcp->listener, .events = POLLIN};
	j->polls[n++] = (struct pollfd){.fd = j->probe, .events = POLLOUT};
	for (uint32_t h = 0; h < j->handshakes_n; h++) {
		j->polls[n++] = (struct pollfd){.fd = j->handshakes[h].fd, .events = POLLIN};
	}
	for (uint32_t i = 0; i < tcp->ranks * COLL_STREAMS; i++) {
		const struct tcp_link *link = &tcp->links[i];

		j->polls[n++] = (struct pollfd){.fd = link->connected ? -1 : link->fd,
			.events = link->writable ? POLLIN : POLLOUT};
	}
	return n;
}

/* Returns whether a link to a rank that has a name is missing. */
static bool is_missing(const struct joining *j, uint32_t peer)
{
	bool all = true;

	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		all &= tcp_link(j->tcp, peer, s)->connected;
	}
	return peer != j->tcp->rank && j->names[peer] && !all;
}

/* Ends a probe. If nobody listens at its address, the rank is gone, and will not connect. */
static int finish_probe(struct joining *j, struct pawl_err *err)
{
	int sys = 0;
	socklen_t len = sizeof(sys);

	ASSERT(j->probe >= 0 && j->probed < j->tcp->rank);
	getsockopt(j->probe, SOL_SOCKET, SO_ERROR, &sys, &len);
	close(j->probe);
	j->probe = -1;
	return sys != ECONNREFUSED
		? 0
		: pawl_err_set(err, PAWL_EPEER,
			  "collectives: rank %u, at %s, is gone: nobody listens there", j->probed,
			  j->names[j->probed]);
}

/* Probes the next rank that has not connected yet, once the last probe has ended or timed out. A
 * round probes all missing ranks; a new one begins every TIME_TCP_PROBE. */
static void probe_next(struct joining *j, int64_t now_ns)
{
	struct addrinfo *at = NULL;
	uint64_t nonce;

	if (now_ns < j->round_ns ||
		(j->probe >= 0 && now_ns - j->probed_ns < times_ns(TIME_TCP_LOOK))) {
		return;
	}
	if (j->probe >= 0) {
		close(j->probe);
		j->probe = -1;
	}
	while (j->probed > 0 && j->probe < 0) {
		uint32_t peer = --j->probed;

		if (is_missing(j, peer) && coll_tcp_parse(j->names[peer], &at, &nonce) == 0) {
			j->probed_ns = now_ns;
			j->probe = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
				0);
			if (j->probe >= 0) {
				(void)!connect(j->probe, at->ai_addr, at->ai_addrlen);
			}
			freeaddrinfo(at);
		}
	}
	if (j->probe < 0) {
		j->probed = j->tcp->rank;
		j->round_ns = now_ns + times_ns(TIME_TCP_PROBE);
	}
}

static int process_events(struct joining *j, struct pawl_err *err)
{
	const struct pollfd *polls = j->polls + 2;
	int rv = j->polls[1].revents != 0 ? finish_probe(j, err) : 0;

	for (uint32_t h = 0; h < j->handshakes_n && rv == 0; h++) {
		struct handshake *handshake = &j->handshakes[h];

		if (handshake->fd >= 0 && polls[h].revents != 0 &&
			receive_hello(j, handshake) != 0) {
			rv = pawl_err_sys(err, "collectives: join");
		} else if (handshake->fd >= 0 &&
			clock_mono_ns() - handshake->since_ns > times_ns(TIME_TCP_HANDSHAKE)) {
			drop_handshake(handshake);
		}
	}
	polls += j->handshakes_n;
	for (uint32_t i = 0; i < j->tcp->ranks * COLL_STREAMS && rv == 0; i++) {
		const struct tcp_link *link = &j->tcp->links[i];
		uint32_t peer = i / COLL_STREAMS;

		if (polls[i].revents == 0 || link->connected) {
			continue;
		}
		rv = link->writable ? receive_answer(j, peer, i % COLL_STREAMS, err)
				    : send_hello(j, peer, i % COLL_STREAMS, err);
	}
	if (rv == 0 && j->polls[0].revents != 0 && accept_connections(j) != 0) {
		rv = pawl_err_sys(err, "collectives: join");
	}
	return rv;
}

static int set_unreachable_error(const struct joining *j, uint32_t peer, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EPEER,
		"collectives: rank %u, at %s, and rank %u cannot reach each other: is a firewall "
		"between them, or is it the wrong interface (PAWL_IFNAME)?",
		peer, j->names[peer], j->tcp->rank);
}

static int set_timeout_error(const struct joining *j, struct pawl_err *err)
{
	uint32_t peer = 0;

	while (!is_missing(j, peer)) {
		peer++;
		ASSERT(peer < j->tcp->ranks); /* one is missing */
	}
	return set_unreachable_error(j, peer, err);
}

/* Fails if connections to higher ranks are still not established. */
static int check_reach(const struct joining *j, struct pawl_err *err)
{
	for (uint32_t p = j->tcp->rank + 1; p < j->tcp->ranks; p++) {
		for (uint32_t s = 0; s < COLL_STREAMS; s++) {
			const struct tcp_link *link = tcp_link(j->tcp, p, s);

			if (link->fd >= 0 && !link->connected && !link->writable) {
				return set_unreachable_error(j, p, err);
			}
		}
	}
	return 0;
}

static int connect_all(struct joining *j, struct pawl_err *err)
{
	int poll_ms = times_ms(TIME_TCP_LOOK);
	int rv = begin(j, err);

	j->begun_ns = clock_mono_ns();
	j->round_ns = j->begun_ns + times_ns(TIME_TCP_PROBE);
	j->probed = j->tcp->rank;
	while (rv == 0 && j->left > 0) {
		int64_t now_ns = clock_mono_ns();
		int64_t left_ms = (j->end_ns - now_ns) / NS_PER_MS;

		if (now_ns - j->begun_ns > times_ns(TIME_TCP_CONNECT)) {
			rv = check_reach(j, err);
		}
		if (rv != 0) {
			break;
		}
		probe_next(j, now_ns);
		if (left_ms <= 0) {
			rv = set_timeout_error(j, err);
		} else if (j->stop && atomic_load(j->stop)) {
			rv = pawl_err_set(err, PAWL_ECANCELED, "collectives: joining was stopped");
		} else if (poll(j->polls, list_polls(j),
				   left_ms < poll_ms ? (int)left_ms : poll_ms) >= 0) {
			rv = process_events(j, err);
		}
	}
	return rv;
}

int coll_tcp_join(struct coll_transport *transport, const char *const *names, int64_t timeout_ns,
	const atomic_bool *stop, struct pawl_err *err)
{
	struct tcp *tcp = tcp_of(transport);
	struct joining *j = FAULT_MEM("coll.tcp", calloc(1, sizeof(*j)));
	int rv;

	if (!j) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to join a group");
	}
	j->tcp = tcp;
	j->names = names;
	j->stop = stop;
	j->end_ns = clock_add_ns(clock_mono_ns(), timeout_ns);
	j->probe = -1;
	j->handshakes_n = tcp->ranks * COLL_STREAMS + EXTRA_HANDSHAKES;
	j->handshakes = FAULT_MEM("coll.tcp", calloc(j->handshakes_n, sizeof(*j->handshakes)));
	j->nonces = FAULT_MEM("coll.tcp", calloc(tcp->ranks, sizeof(*j->nonces)));
	j->polls = FAULT_MEM("coll.tcp",
		calloc(2 + j->handshakes_n + (size_t)tcp->ranks * COLL_STREAMS, sizeof(*j->polls)));
	for (uint32_t h = 0; h < j->handshakes_n && j->handshakes; h++) {
		j->handshakes[h].fd = -1;
	}
	rv = j->handshakes && j->nonces && j->polls
		? connect_all(j, err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory to join a group");
	if (j->probe >= 0) {
		close(j->probe);
	}
	for (uint32_t h = 0; h < j->handshakes_n && j->handshakes; h++) {
		if (j->handshakes[h].fd >= 0) {
			drop_handshake(&j->handshakes[h]);
		}
	}
	close(tcp->listener);
	tcp->listener = -1;
	free(j->handshakes);
	free(j->nonces);
	free(j->polls);
	free(j);
	return rv;
}
