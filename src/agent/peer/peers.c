/*
 * The server's life and its threads: see peers.h. One thread accepts and joins; each connection has
 * one that serves it (peers_serve.c).
 *
 * Lock: one mutex guards the list of connections, their flags, their sockets' descriptors and the
 * leader's address. It is never held while anything waits. A thread that is not a connection's own
 * ends the connection by shutting its socket down; all of them end when stop_fd becomes readable.
 */
#include "agent/peer/peers_impl.h"

#include "agent/peer/held.h"
#include "agent/peer/notes.h"
#include "agent/peer/rounds.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"
#include "io/tls.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LABEL   "pawl agent 1: key between agents" /* ties the TLS key to this use */
#define BACKLOG 128

/* ---- addresses ---- */

/* Finds a numeric address and a port. NULL: it is none. */
static struct addrinfo *resolve(const char *address, uint32_t port)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
	struct addrinfo *found = NULL;
	char service[16];

	snprintf(service, sizeof(service), "%u", (unsigned)port);
	return getaddrinfo(address, service, &hints, &found) == 0 ? found : NULL;
}

/* Formats "host:port", the same text for the same address however it was written. */
static void format_address(char out[PEER_ADDRESS_MAX], const struct sockaddr *at, socklen_t len)
{
	char host[ADDRESS_MAX];
	char port[8];

	out[0] = '\0';
	if (getnameinfo(at, len, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		snprintf(out, PEER_ADDRESS_MAX, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host,
			port);
	}
}

/* ---- connections ---- */

static void signal_fd(int fd)
{
	const uint64_t one = 1;

	/* The write fails only if the counter is full, and that has the same effect. */
	(void)!write(fd, &one, sizeof(one));
}

void peers_know(struct peers_conn *conn)
{
	pthread_mutex_lock(&conn->peers->lock);
	conn->known = true;
	pthread_mutex_unlock(&conn->peers->lock);
}

void peers_complain(struct peers_conn *conn, int rv, const char *why)
{
	struct peers *peers = conn->peers;
	int64_t now_ns = clock_mono_ns();
	bool complain;

	pthread_mutex_lock(&peers->lock);
	complain = rv == PAWL_ECORRUPT || (!conn->known && rv != PAWL_ECANCELED);
	if (complain && !conn->known) {
		complain = peers->complained_ns == 0 ||
			now_ns - peers->complained_ns >= times_ns(TIME_NET_COMPLAIN);
		peers->complained_ns = complain ? now_ns : peers->complained_ns;
	}
	why = conn->dropped ? "there are too many connections" : why;
	pthread_mutex_unlock(&peers->lock);
	if (complain) {
		log_line(LOG_WARNING, "agents: connection from %s closed: %s", conn->from, why);
	}
}

static void *run_conn(void *user)
{
	struct peers_conn *conn = user;
	struct peers *peers = conn->peers;

	peers_serve(conn);
	pthread_mutex_lock(&peers->lock);
	peer_stream_deinit(&conn->stream);
	conn->ended = true;
	pthread_mutex_unlock(&peers->lock);
	signal_fd(peers->ended_fd);
	return NULL;
}

/* Joins and frees the connections that have ended; all: waits until the others have. */
static void reap(struct peers *peers, bool all)
{
	struct peers_conn *done = NULL;
	struct peers_conn **at;

	pthread_mutex_lock(&peers->lock);
	at = &peers->conns;
	while (*at) {
		struct peers_conn *conn = *at;

		if (all || conn->ended) {
			*at = conn->next;
			conn->next = done;
			done = conn;
		} else {
			at = &conn->next;
		}
	}
	pthread_mutex_unlock(&peers->lock);
	while (done) {
		struct peers_conn *conn = done;

		done = conn->next;
		pthread_join(conn->thread, NULL);
		free(conn);
	}
}

/* Closes the oldest stranger if there are too many connections. The new one is a stranger, too. */
static void make_room(struct peers *peers)
{
	struct peers_conn *oldest = NULL;
	uint32_t n = 0;

	pthread_mutex_lock(&peers->lock);
	for (struct peers_conn *conn = peers->conns; conn; conn = conn->next) {
		if (!conn->ended && !conn->dropped) {
			n++;
			oldest = conn->known ? oldest : conn;
		}
	}
	if (n > PEERS_CONNS_MAX && oldest) {
		oldest->dropped = true;
		shutdown(oldest->stream.fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&peers->lock);
}

/* Starts to serve a connection; takes over its socket. */
static void add_conn(struct peers *peers, int fd, const struct sockaddr *from, socklen_t len)
{
	struct peers_conn *conn = FAULT_MEM("peer.conn", calloc(1, sizeof(*conn)));
	int sys = ENOMEM;

	if (conn) {
		conn->peers = peers;
		peer_stream_init(&conn->stream, fd, peers->stop_fd);
		format_address(conn->from, from, len);
		pthread_mutex_lock(&peers->lock);
		conn->next = peers->conns;
		peers->conns = conn;
		sys = FAULT_SYS("peer.thread", pthread_create(&conn->thread, NULL, run_conn, conn));
		peers->conns = sys == 0 ? conn : conn->next;
		pthread_mutex_unlock(&peers->lock);
	}
	if (sys != 0) {
		log_line(LOG_WARNING, "agents: cannot serve a connection: %s",
			strerrordesc_np(sys > 0 ? sys : errno));
		close(fd);
		free(conn);
		return;
	}
	make_room(peers);
}

/* ---- the thread that accepts ---- */

/* Accepts a connection. Returns whether accepting is to rest: the process has too few descriptors,
 * or memory. *failing: that was so last time, too. */
static bool accept_one(struct peers *peers, bool *failing)
{
	struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
	socklen_t len = sizeof(from);
	int fd = FAULT_SYS("peer.accept",
		accept4(peers->listen_fd, (struct sockaddr *)&from, &len,
			SOCK_CLOEXEC | SOCK_NONBLOCK));

	if (fd >= 0) {
		add_conn(peers, fd, (struct sockaddr *)&from, len);
		*failing = false;
		return false;
	}
	if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) {
		return false; /* the client has already gone */
	}
	if (!*failing) {
		log_line(LOG_WARNING, "agents: cannot accept connections, trying again: %s",
			strerrordesc_np(errno));
	}
	*failing = true;
	return true;
}

static void *run_accept(void *user)
{
	struct peers *peers = user;
	bool failing = false;
	bool rest = false;

	for (;;) {
		struct pollfd fds[3] = {{peers->stop_fd, POLLIN, 0}, {peers->ended_fd, POLLIN, 0},
			{rest ? -1 : peers->listen_fd, POLLIN, 0}};
		int n = poll(fds, 3, rest ? times_ms(TIME_LISTEN_AGAIN) : -1);
		uint64_t ended;

		if (fds[0].revents != 0) {
			return NULL;
		}
		if (n > 0 && fds[1].revents != 0) {
			(void)!read(peers->ended_fd, &ended, sizeof(ended));
			reap(peers, false);
		}
		rest = n > 0 && fds[2].revents != 0 ? accept_one(peers, &failing) : rest && n > 0;
	}
}

/* ---- life ---- */

static int listen_at(struct peers *peers, const char *address, struct pawl_err *err)
{
	struct addrinfo *at = resolve(address, 0);
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} own = {.v6 = {.sin6_family = AF_UNSPEC}};
	socklen_t len = sizeof(own);
	int rv = 0;

	if (!at) {
		return pawl_err_set(err, PAWL_EINVAL, "%s is no numeric address of this host",
			address);
	}
	peers->listen_fd = FAULT_SYS("peer.listen",
		socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (peers->listen_fd < 0 || bind(peers->listen_fd, at->ai_addr, at->ai_addrlen) != 0 ||
		FAULT_SYS("peer.listen", listen(peers->listen_fd, BACKLOG)) != 0 ||
		getsockname(peers->listen_fd, &own.any, &len) != 0) {
		rv = pawl_err_sys(err, "listen at %s for other hosts' agents", address);
	} else {
		peers->port =
			ntohs(own.any.sa_family == AF_INET6 ? own.v6.sin6_port : own.v4.sin_port);
		format_address(peers->address, &own.any, len);
	}
	freeaddrinfo(at);
	return rv;
}

static int open_fds(struct peers *peers, struct pawl_err *err)
{
	peers->stop_fd = FAULT_SYS("peer.event", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	peers->ended_fd = FAULT_SYS("peer.event", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	return peers->stop_fd >= 0 && peers->ended_fd >= 0
		? 0
		: pawl_err_sys(err, "make an eventfd for other hosts' agents");
}

static int start_thread(struct peers *peers, struct pawl_err *err)
{
	int sys = FAULT_SYS("peer.thread", pthread_create(&peers->thread, NULL, run_accept, peers));

	if (sys > 0) { /* pthread_create returns its error; an injected fault sets errno */
		errno = sys;
	}
	return sys == 0 ? 0 : pawl_err_sys(err, "start a thread for other hosts' agents");
}

static void close_fd(int fd)
{
	if (fd >= 0) {
		close(fd);
	}
}

/* Frees what there is, except threads. */
static void free_peers(struct peers *peers)
{
	close_fd(peers->listen_fd);
	close_fd(peers->stop_fd);
	close_fd(peers->ended_fd);
	notes_close(peers->notes);
	rounds_close(peers->rounds);
	held_close(peers->held);
	tls_close(peers->tls);
	pthread_mutex_destroy(&peers->lock);
	free(peers);
}

int peers_open(struct peers **out, const struct peers_options *options, struct pawl_err *err)
{
	struct peers *peers;
	int rv;

	if (strlen(options->job) >= CKPT_JOB_MAX || strlen(options->domain) >= PEER_DOMAIN_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"a job id has less than %u bytes, and a failure domain less than %u",
			CKPT_JOB_MAX, PEER_DOMAIN_MAX);
	}
	peers = FAULT_MEM("peer.open", calloc(1, sizeof(*peers)));
	if (!peers) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for links between agents");
	}
	snprintf(peers->job, sizeof(peers->job), "%s", options->job);
	snprintf(peers->domain, sizeof(peers->domain), "%s", options->domain);
	peers->has_token = options->token != NULL;
	peers->listen_fd = peers->stop_fd = peers->ended_fd = -1;
	pthread_mutex_init(&peers->lock, NULL);
	if ((rv = tls_open(&peers->tls, options->token, LABEL, err)) != 0 ||
		(rv = held_open(&peers->held, err)) != 0 ||
		(rv = rounds_open(&peers->rounds, err)) != 0 ||
		(rv = notes_open(&peers->notes, err)) != 0 || (rv = open_fds(peers, err)) != 0 ||
		(rv = listen_at(peers, options->address, err)) != 0 ||
		(rv = start_thread(peers, err)) != 0) {
		free_peers(peers);
		return rv;
	}
	*out = peers;
	return 0;
}

void peers_outlive(struct peers *peers)
{
	pthread_mutex_lock(&peers->lock);
	peers->outlives = true;
	pthread_mutex_unlock(&peers->lock);
}

void peers_close(struct peers *peers)
{
	bool outlives;

	if (!peers) {
		return;
	}
	signal_fd(peers->stop_fd);
	rounds_cancel(peers->rounds, 0);
	pthread_join(peers->thread, NULL);
	reap(peers, true);
	ASSERT(!peers->conns);
	pthread_mutex_lock(&peers->lock);
	outlives = peers->outlives;
	pthread_mutex_unlock(&peers->lock);
	if (!outlives) {
		free_peers(peers);
	}
}

/* ---- what others ask for ---- */

const char *peers_address(const struct peers *peers)
{
	return peers->address;
}

const char *peers_domain(const struct peers *peers)
{
	return peers->domain;
}

const char *peers_job(const struct peers *peers)
{
	return peers->job;
}

uint32_t peers_port(const struct peers *peers)
{
	return peers->port;
}

struct tls *peers_tls(struct peers *peers)
{
	return peers->tls;
}

bool peers_has_token(const struct peers *peers)
{
	return peers->has_token;
}

struct held *peers_held(struct peers *peers)
{
	return peers->held;
}

struct rounds *peers_rounds(struct peers *peers)
{
	return peers->rounds;
}

struct notes *peers_notes(struct peers *peers)
{
	return peers->notes;
}

void peers_set_leader(struct peers *peers, const char *address, uint32_t port)
{
	struct addrinfo *at = port > 0 && port <= UINT16_MAX ? resolve(address, port) : NULL;

	pthread_mutex_lock(&peers->lock);
	peers->leader[0] = '\0';
	if (at) {
		format_address(peers->leader, at->ai_addr, at->ai_addrlen);
	}
	pthread_mutex_unlock(&peers->lock);
	if (at) {
		freeaddrinfo(at);
	}
}

int peers_leader(struct peers *peers, char address[PEER_ADDRESS_MAX], struct pawl_err *err)
{
	char leader[PEER_ADDRESS_MAX];

	pthread_mutex_lock(&peers->lock);
	memcpy(leader, peers->leader, sizeof(leader));
	pthread_mutex_unlock(&peers->lock);
	if (leader[0] == '\0') {
		return pawl_err_set(err, PAWL_ENOENT, "where rank 0's agent listens is not known");
	}
	memcpy(address, leader, sizeof(leader));
	return 0;
}

bool peers_is_leader(struct peers *peers)
{
	bool is_leader;

	pthread_mutex_lock(&peers->lock);
	is_leader = strcmp(peers->leader, peers->address) == 0;
	pthread_mutex_unlock(&peers->lock);
	return is_leader;
}
