/*
 * A server: see serve.h for the contract.
 *
 * One thread receives requests. The first rank of a group that asks makes the server's side of the
 * group. A side is a transport at an address of its own, and a thread that joins the ranks there
 * and adds. The answer to all ranks is the name of that transport. The server closes a connection
 * whose request is not complete in a few seconds, or that is the oldest when there are too many.
 */
#include "coll/group/serve.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/group/group.h"
#include "coll/group/serve_impl.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASKERS_MAX 256u /* most processes that may ask at a time */
#define SIDES_MAX  256u /* most groups that are served at a time */

/* A process that is connected, and whose request is not complete. */
struct asker {
	int fd;           /* -1: this entry is free */
	int64_t since_ns; /* time of connection, monotonic ns */
	uint8_t *bytes;   /* owned; the request, as received so far */
	size_t got, want; /* bytes received; bytes to receive */
};

/* The server's side of one group. */
struct side {
	struct coll_server *server; /* server that the side belongs to */
	struct coll_ask ask; /* request of the first rank that asked; where and names are owned */
	char name[COLL_TCP_NAME];         /* name by which ranks join the side */
	struct coll_transport *transport; /* after the thread starts, only the thread uses it */
	pthread_t thread;                 /* joins the ranks, and adds */
	atomic_bool begun;                /* the ranks have joined */
	atomic_bool done;                 /* the thread has ended or is about to */
};

struct coll_server {
	char address[64];                /* address at which the server and its sides listen */
	uint64_t key;                    /* secret that a request must contain */
	int listener;                    /* socket that requests come to */
	int64_t accept_after_ns;         /* when accepting resumes after a failure; monotonic ns */
	bool accept_failing;             /* the last accept failed, and that is reported */
	struct asker askers[ASKERS_MAX]; /* processes that ask */
	struct side *sides[SIDES_MAX];   /* owned; NULL: this entry is free */
	struct pollfd polls[ASKERS_MAX + 1];
	atomic_bool stop;          /* all sides must leave */
	coll_serve_report *report; /* callback of the caller's */
	void *user;                /* argument of report */
	coll_serve_obey *obey;     /* callback of the caller's: takes part in a measurement */
};

/* ---- a side ---- */

/* Returns the server's rank in its group. */
static uint32_t rank_of(const struct coll_ask *ask)
{
	return ask->probe ? ask->rank : ask->ranks + ask->server;
}

static int join_side(struct side *side, struct pawl_group *group, struct pawl_err *err)
{
	const struct coll_ask *ask = &side->ask;
	uint32_t peers = ask->ranks + ask->servers;
	const char **names = FAULT_MEM("coll.serve", calloc(peers, sizeof(*names)));
	int rv;

	for (uint32_t r = 0; r < ask->ranks && names; r++) {
		names[r] = ask->probe && r > ask->rank
			? ask->names + (size_t)(r - ask->rank - 1) * COLL_TCP_NAME
			: "an unknown address";
	}
	rv = names ? coll_tcp_join(side->transport, names, times_ns(TIME_SERVE_JOIN),
			     &side->server->stop, err)
		   : pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", peers);
	free(names);
	if (rv != 0) {
		side->transport->close(side->transport);
		return rv;
	}
	return coll_group_start(group, side->transport, ask->where, err);
}

static void report_side(const struct side *side, const char *what)
{
	char line[sizeof(((struct pawl_err *)NULL)->msg) + 80];

	if (side->ask.probe) {
		snprintf(line, sizeof(line), "measuring %u hosts, as rank %u: %s", side->ask.ranks,
			side->ask.rank, what);
	} else {
		snprintf(line, sizeof(line), "a group of %u ranks, server %u of %u: %s",
			side->ask.ranks, side->ask.server, side->ask.servers, what);
	}
	side->server->report(side->server->user, line);
}

static void *serve_side(void *user)
{
	struct side *side = user;
	const struct coll_ask *ask = &side->ask;
	struct pawl_group *group = NULL;
	struct pawl_err err;
	int rv = coll_group_make(&group, rank_of(ask), ask->ranks, ask->servers, &err);

	if (rv != 0) {
		side->transport->close(side->transport);
	} else {
		rv = join_side(side, group, &err);
	}
	if (rv == 0) {
		atomic_store(&side->begun, true);
		report_side(side, "begins");
		rv = ask->probe ? side->server->obey(group, &side->server->stop, &err)
				: coll_group_serve(group, &side->server->stop, &err);
	}
	pawl_group_close(group);
	report_side(side, rv == 0 ? "all have left" : err.msg);
	atomic_store(&side->done, true);
	return NULL;
}

static void free_lists(const struct coll_ask *ask)
{
	free((void *)(uintptr_t)ask->where);
	free((void *)(uintptr_t)ask->names);
}

static void free_side(struct side *side)
{
	free_lists(&side->ask);
	free(side);
}

/* Starts a side. Owns the lists of ask from then on, even if this fails. */
static int start_side(struct coll_server *server, struct side **place, const struct coll_ask *ask,
	struct pawl_err *err)
{
	struct side *side = FAULT_MEM("coll.serve", calloc(1, sizeof(*side)));
	int rv;
	int sys;

	if (!side) {
		free_lists(ask);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for another group");
	}
	side->server = server;
	side->ask = *ask;
	rv = coll_tcp_open(&side->transport, rank_of(ask), ask->ranks + ask->servers,
		server->address, side->name, err);
	if (rv != 0) {
		free_side(side);
		return rv;
	}
	sys = FAULT_SYS("coll.serve", pthread_create(&side->thread, NULL, serve_side, side));
	if (sys != 0) {
		side->transport->close(side->transport);
		free_side(side);
		return pawl_err_set(err, PAWL_EIO, "start a thread: %s",
			strerror(sys == -1 ? errno : sys));
	}
	*place = side;
	return 0;
}

static void reap_sides(struct coll_server *server, bool all)
{
	for (uint32_t i = 0; i < SIDES_MAX; i++) {
		struct side *side = server->sides[i];

		if (side && (all || atomic_load(&side->done))) {
			pthread_join(side->thread, NULL);
			free_side(side);
			server->sides[i] = NULL;
		}
	}
}

static bool same_group(const struct coll_ask *a, const struct coll_ask *b)
{
	return !a->probe && !b->probe && a->ranks == b->ranks && a->server == b->server &&
		a->servers == b->servers &&
		memcmp(a->where, b->where, a->ranks * sizeof(*a->where)) == 0;
}

/* Returns whether a side blocks the request: two measurements would disturb each other. */
static bool blocks_probe(const struct side *side, const struct coll_ask *ask)
{
	return ask->probe && side->ask.probe && atomic_load(&side->begun) &&
		!atomic_load(&side->done);
}

/* Finds the side of a group, or makes it. Owns the lists of ask from then on, even if this
 * fails. */
static int find_side(struct coll_server *server, const struct coll_ask *ask, struct side **found,
	struct pawl_err *err)
{
	struct side **place = NULL;
	int rv;

	reap_sides(server, false);
	for (uint32_t i = 0; i < SIDES_MAX; i++) {
		struct side *side = server->sides[i];

		if (side && blocks_probe(side, ask)) {
			free_lists(ask);
			return pawl_err_set(err, PAWL_EPEER, "another measurement uses it now");
		}
		if (side && side->ask.group == ask->group) {
			bool same = same_group(&side->ask, ask);

			free_lists(ask);
			*found = side;
			return same ? 0
				    : pawl_err_set(err, PAWL_EPEER,
					      "ranks %u and %u differ in servers: PAWL_SERVERS "
					      "must be the same",
					      side->ask.rank, ask->rank);
		}
		place = side ? place : &server->sides[i];
	}
	if (!place) {
		free_lists(ask);
		return pawl_err_set(err, PAWL_EPEER, "it serves %u groups already, the most it can",
			SIDES_MAX);
	}
	rv = start_side(server, place, ask, err);
	*found = *place;
	return rv;
}

/* ---- requests ---- */

static void close_asker(struct asker *asker)
{
	close(asker->fd);
	free(asker->bytes);
	*asker = (struct asker){.fd = -1};
}

/* Pauses accepting for a while: a connection that cannot be accepted stays queued, so poll would
 * return at once. */
static void pause_accepting(struct coll_server *server)
{
	char line[128];

	server->accept_after_ns = clock_mono_ns() + times_ns(TIME_LISTEN_AGAIN);
	if (!server->accept_failing) {
		snprintf(line, sizeof(line), "a rank cannot be heard, and is tried again: %s",
			strerror(errno));
		server->report(server->user, line);
	}
	server->accept_failing = true;
}

static void accept_asker(struct coll_server *server)
{
	struct asker *place = &server->askers[0];
	int fd = FAULT_SYS("coll.asker",
		accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
		pause_accepting(server);
	}
	if (fd < 0) {
		return; /* the process may have disconnected */
	}
	server->accept_failing = false;
	for (uint32_t i = 0; i < ASKERS_MAX && place->fd >= 0; i++) {
		if (server->askers[i].fd < 0 || server->askers[i].since_ns < place->since_ns) {
			place = &server->askers[i];
		}
	}
	if (place->fd >= 0) {
		close_asker(place);
	}
	*place = (struct asker){.fd = fd,
		.since_ns = clock_mono_ns(),
		.bytes = FAULT_MEM("coll.serve", malloc(ASK_BYTES)),
		.want = ASK_BYTES};
	if (!place->bytes) {
		close_asker(place);
	}
}

/* Reads the list that follows a request: the names of ranks in a probe, else their hosts. In a
 * probe, each rank is on a host of its own. */
static int read_lists(const uint8_t *bytes, struct coll_ask *ask)
{
	size_t names_n = ask->probe ? ask->ranks - ask->rank - 1 : 0;
	uint32_t *where = FAULT_MEM("coll.serve", calloc(ask->ranks, sizeof(*where)));
	char *names = FAULT_MEM("coll.serve", calloc(names_n + 1, COLL_TCP_NAME));

	ask->where = where;
	ask->names = names;
	if (!where || !names) {
		free_lists(ask);
		return -1;
	}
	memcpy(ask->probe ? (void *)names : where, bytes, serve_more_bytes(ask));
	for (uint32_t r = 0; r < ask->ranks; r++) {
		where[r] = ask->probe ? r : le32toh(where[r]);
	}
	for (size_t i = 0; i < names_n; i++) {
		names[(i + 1) * COLL_TCP_NAME - 1] = '\0';
	}
	return 0;
}

/* Answers a request that is complete. */
static void answer(struct coll_server *server, struct asker *asker, struct coll_ask *ask)
{
	uint8_t bytes[1 + ANSWER_TEXT] = {0};
	struct side *side = NULL;
	struct pawl_err err;
	int rv;

	if (read_lists(asker->bytes + ASK_BYTES, ask) != 0) {
		return;
	}
	rv = find_side(server, ask, &side, &err);
	bytes[0] = rv == 0;
	snprintf((char *)bytes + 1, ANSWER_TEXT, "%.199s", rv == 0 ? side->name : err.msg);
	(void)!send(asker->fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
}

/* Receives more of a request. False: the connection is to be closed. */
static bool receive_request(struct coll_server *server, struct asker *asker)
{
	ssize_t n = recv(asker->fd, asker->bytes + asker->got, asker->want - asker->got, 0);
	struct coll_ask ask;
	uint8_t *bytes;

	if (n <= 0) {
		return n < 0 && errno == EAGAIN;
	}
	asker->got += (size_t)n;
	if (asker->got < asker->want) {
		return true;
	}
	if (serve_decode_ask(asker->bytes, server->key, &ask) != 0) {
		return false;
	}
	if (asker->want == ASK_BYTES + serve_more_bytes(&ask)) {
		answer(server, asker, &ask);
		return false;
	}
	asker->want = ASK_BYTES + serve_more_bytes(&ask);
	bytes = FAULT_MEM("coll.serve", realloc(asker->bytes, asker->want));
	asker->bytes = bytes ? bytes : asker->bytes;
	return bytes != NULL;
}

int coll_server_poll(struct coll_server *server, int64_t timeout_ns, struct pawl_err *err)
{
	struct pollfd *polls = server->polls;
	int64_t now_ns;

	polls[ASKERS_MAX] = (struct pollfd){.fd = server->listener, .events = POLLIN};
	if (clock_mono_ns() < server->accept_after_ns) {
		polls[ASKERS_MAX].fd = -1;
	}
	for (uint32_t i = 0; i < ASKERS_MAX; i++) {
		polls[i] = (struct pollfd){.fd = server->askers[i].fd, .events = POLLIN};
	}
	if (poll(polls, ASKERS_MAX + 1, (int)(timeout_ns / NS_PER_MS)) < 0) {
		return errno == EINTR ? 0 : pawl_err_sys(err, "listen");
	}
	now_ns = clock_mono_ns();
	for (uint32_t i = 0; i < ASKERS_MAX; i++) {
		struct asker *asker = &server->askers[i];

		if (asker->fd >= 0 &&
			((polls[i].revents != 0 && !receive_request(server, asker)) ||
				now_ns - asker->since_ns > times_ns(TIME_SERVE_HELLO))) {
			close_asker(asker);
		}
	}
	if (polls[ASKERS_MAX].revents != 0) {
		accept_asker(server);
	}
	reap_sides(server, false);
	return 0;
}

/* ---- opening and closing ---- */

int coll_server_open(struct coll_server **out, const char *address, uint16_t port, char *name,
	coll_serve_report *report, void *user, coll_serve_obey *obey, struct pawl_err *err)
{
	struct coll_server *server = FAULT_MEM("coll.serve", calloc(1, sizeof(*server)));

	if (!server) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a server");
	}
	server->report = report;
	server->user = user;
	server->obey = obey;
	for (uint32_t i = 0; i < ASKERS_MAX; i++) {
		server->askers[i].fd = -1;
	}
	snprintf(server->address, sizeof(server->address), "%s", address);
	if (getrandom(&server->key, sizeof(server->key), 0) != sizeof(server->key)) {
		free(server);
		return pawl_err_sys(err, "make a key");
	}
	server->listener = coll_tcp_listen(address, port, server->key, name, err);
	if (server->listener < 0) {
		int rv = server->listener;

		free(server);
		return rv;
	}
	*out = server;
	return 0;
}

void coll_server_close(struct coll_server *server)
{
	if (!server) {
		return;
	}
	atomic_store(&server->stop, true);
	reap_sides(server, true);
	for (uint32_t i = 0; i < ASKERS_MAX; i++) {
		if (server->askers[i].fd >= 0) {
			close_asker(&server->askers[i]);
		}
	}
	close(server->listener);
	free(server);
}
