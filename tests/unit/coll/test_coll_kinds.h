/* The kinds of transports, and ranks on them, for tests. Ranks are threads (simulated: turns on one
 * thread), or one thread that is all of them. */
#ifndef TEST_COLL_KINDS_H
#define TEST_COLL_KINDS_H

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "coll/transport/fabric.h"
#include "coll/transport/mixed.h"
#include "coll/transport/shm.h"
#include "coll/transport/tcp.h"
#include "sim.h"
#include "within.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS 3
static uint64_t first_seed; /* set by main */

#define NAME 160 /* bytes of the longest name of any kind */

/* A kind of transport. */
struct kind {
	int (*open)(struct coll_transport **out, uint32_t rank, uint32_t ranks, char *name,
		struct pawl_err *err);
	/* May put another transport into *transport. */
	int (*join)(struct coll_transport **transport, const char *const *names,
		struct pawl_err *err);
	/* Runs as each rank, at the same time. */
	void (*all)(void *(*run)(void *user), void *const *users);
	const char *dead; /* reason reported once the process is killed; NULL: any, or none */
	bool of_fabric;   /* needs libfabric */
};

static inline void run_threads(void *(*run)(void *user), void *const *users)
{
	pthread_t threads[RANKS];

	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(pthread_create(&threads[r], NULL, run, users[r]), 0);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(threads[r], NULL);
	}
}

static inline int join_shm(struct coll_transport **transport, const char *const *names,
	struct pawl_err *err)
{
	return coll_shm_join(*transport, names, err);
}

static inline int open_tcp(struct coll_transport **out, uint32_t rank, uint32_t ranks, char *name,
	struct pawl_err *err)
{
	return coll_tcp_open(out, rank, ranks, "127.0.0.1", name, err);
}

static inline int join_tcp(struct coll_transport **transport, const char *const *names,
	struct pawl_err *err)
{
	return IN_TIME(coll_tcp_join(*transport, names, within_ns(WITHIN_LONG_S), NULL, err));
}

static inline int open_fabric(struct coll_transport **out, uint32_t rank, uint32_t ranks,
	char *name, struct pawl_err *err)
{
	return coll_fabric_open(out, rank, ranks, "127.0.0.1", name, err);
}

/* Opens a transport as with a provider whose queues have no descriptors. */
static inline int open_fabric_no_fd(struct coll_transport **out, uint32_t rank, uint32_t ranks,
	char *name, struct pawl_err *err)
{
	int rv;

	fault_arm("coll.fabric.fd", 1, ENOSYS, true);
	rv = open_fabric(out, rank, ranks, name, err);
	fault_disarm();
	return rv;
}

static inline int join_fabric(struct coll_transport **transport, const char *const *names,
	struct pawl_err *err)
{
	return IN_TIME(coll_fabric_join(*transport, names, within_ns(WITHIN_LONG_S), NULL, err));
}

/* Mixed transports: ranks 0 and 1 are on one host. Until it has joined, a mixed transport is its
 * shared memory transport, and this struct holds the rest. */
static struct half {
	struct coll_transport *shm, *net;
	uint32_t rank, ranks;
} halves[RANKS];

static inline int open_half(struct coll_transport **out, const struct kind *net, uint32_t rank,
	uint32_t ranks, char *name, struct pawl_err *err)
{
	char shm[COLL_SHM_NAME];
	char remote[NAME];
	struct half *half = &halves[rank];

	assert_int_equal(coll_shm_open(&half->shm, rank, ranks, shm, err), 0);
	/* A transport of the test before may have had this address. */
	for (uint32_t r = 0; r < RANKS; r++) {
		halves[r].shm = r != rank && halves[r].shm == half->shm ? NULL : halves[r].shm;
	}
	assert_int_equal(net->open(&half->net, rank, ranks, remote, err), 0);
	half->rank = rank;
	half->ranks = ranks;
	*out = half->shm;
	return snprintf(name, NAME, "%s %s", shm, remote) < NAME ? 0 : -1;
}

static inline int join_half(struct coll_transport **transport, const struct kind *net,
	const char *const *names, struct pawl_err *err)
{
	char shm[RANKS][COLL_SHM_NAME];
	char remote[RANKS][COLL_TCP_NAME];
	const char *shms[RANKS];
	const char *remotes[RANKS];
	int events;
	bool local[RANKS];
	struct half *half = halves;

	while (half->shm != *transport) {
		half++;
	}
	for (uint32_t r = 0; r < half->ranks; r++) {
		assert_int_equal(sscanf(names[r], "%63s %95s", shm[r], remote[r]), 2);
		local[r] = (r < 2) == (half->rank < 2);
		shms[r] = local[r] ? shm[r] : NULL;
		remotes[r] = local[r] ? NULL : remote[r];
	}
	assert_int_equal(coll_shm_join(half->shm, shms, err), 0);
	assert_int_equal(net->join(&half->net, remotes, err), 0);
	events = net->of_fabric ? coll_fabric_events(half->net) : coll_tcp_events(half->net);
	return coll_mixed_open(transport, half->shm, half->net, events, local, half->ranks, err);
}

__attribute__((unused)) static struct kind tcp = {open_tcp, join_tcp, run_threads,
	"its connection was closed", false};
__attribute__((unused)) static struct kind fabric = {open_fabric, join_fabric, run_threads, NULL,
	true};
__attribute__((unused)) static struct kind fabric_no_fd = {open_fabric_no_fd, join_fabric,
	run_threads, NULL, true};

static inline int open_mixed(struct coll_transport **out, uint32_t rank, uint32_t ranks, char *name,
	struct pawl_err *err)
{
	return open_half(out, &tcp, rank, ranks, name, err);
}

static inline int join_mixed(struct coll_transport **transport, const char *const *names,
	struct pawl_err *err)
{
	return join_half(transport, &tcp, names, err);
}

static inline int open_mixed_no_fd(struct coll_transport **out, uint32_t rank, uint32_t ranks,
	char *name, struct pawl_err *err)
{
	return open_half(out, &fabric_no_fd, rank, ranks, name, err);
}

static inline int open_mixed_fabric(struct coll_transport **out, uint32_t rank, uint32_t ranks,
	char *name, struct pawl_err *err)
{
	return open_half(out, &fabric, rank, ranks, name, err);
}

static inline int join_mixed_fabric(struct coll_transport **transport, const char *const *names,
	struct pawl_err *err)
{
	return join_half(transport, &fabric, names, err);
}

/* World of the simulated transports; stays open until the next test opens its own. */
static struct sim *world;

static inline int open_simulated(struct coll_transport **out, uint32_t rank, uint32_t ranks,
	char *name, struct pawl_err *err)
{
	static const struct sim_net net = {1e9, 50000, 20000, 3000000, 100000, 64u << 10, 100000};
	static const uint32_t host_of[RANKS] = {0, 0, 1};

	if (rank == 0 && world) {
		sim_close(world);
	}
	if (rank == 0) {
		world = sim_open(&net, host_of, ranks, first_seed);
	}
	*out = sim_transport(world, rank);
	snprintf(name, NAME, "simulated");
	return 0;
}

static inline int join_simulated(struct coll_transport **transport, const char *const *names,
	struct pawl_err *err)
{
	return 0;
}

/* One rank's part in a simulated run. */
struct turn {
	void *(*run)(void *user);
	void *user;
};

static inline void take_turn(void *user)
{
	struct turn *turn = user;

	turn->run(turn->user);
}

static inline void run_simulated(void *(*run)(void *user), void *const *users)
{
	struct turn turns[RANKS];

	for (uint32_t r = 0; r < RANKS; r++) {
		turns[r] = (struct turn){run, users[r]};
		sim_spawn(world, r, take_turn, &turns[r]);
	}
	assert_true(sim_run(world, sim_now_ns(world) + 1000 * NS_PER_S));
}

__attribute__((unused)) static struct kind shm = {coll_shm_open, join_shm, run_threads,
	"its process ended", false};
__attribute__((unused)) static struct kind mixed = {open_mixed, join_mixed, run_threads,
	"its process ended", false};
__attribute__((unused)) static struct kind mixed_fabric = {open_mixed_fabric, join_mixed_fabric,
	run_threads, "its process ended", true};
__attribute__((unused)) static struct kind mixed_no_fd = {open_mixed_no_fd, join_mixed_fabric,
	run_threads, "its process ended", true};
__attribute__((unused)) static struct kind simulated = {open_simulated, join_simulated,
	run_simulated, NULL, false};

/* Skips the test if this kind of transport is not available. */
static inline void want(const struct kind *kind)
{
	struct pawl_err err;
	struct coll_transport *transport;
	char name[NAME];

	if (!kind->of_fabric) {
		return;
	}
	if (coll_fabric_open(&transport, 0, 1, "127.0.0.1", name, &err) == PAWL_ENOTSUP) {
		printf("skipped: %s\n", err.msg);
		skip();
	}
	transport->close(transport);
}

struct transports {
	const struct kind *kind;
	struct coll_transport *at[RANKS];
	char names[RANKS][NAME];
};

struct joiner {
	struct transports *transports;
	uint32_t rank;
	int rv;
};

static inline void *join_rank(void *user)
{
	struct joiner *joiner = user;
	struct transports *transports = joiner->transports;
	const char *names[RANKS];

	for (uint32_t r = 0; r < RANKS; r++) {
		names[r] = transports->names[r];
	}
	joiner->rv = transports->kind->join(&transports->at[joiner->rank], names, NULL);
	return NULL;
}

static inline void open_transports(struct transports *transports, const struct kind *kind)
{
	struct joiner joiners[RANKS];
	void *users[RANKS];

	want(kind);
	transports->kind = kind;
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(
			kind->open(&transports->at[r], r, RANKS, transports->names[r], NULL), 0);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		joiners[r] = (struct joiner){.transports = transports, .rank = r};
		users[r] = &joiners[r];
	}
	kind->all(join_rank, users);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(joiners[r].rv, 0);
	}
}

static inline void *close_transport(void *user)
{
	struct coll_transport *transport = user;

	transport->close(transport);
	return NULL;
}

/* Closes all transports at once: TCP waits a while for others to close. */
static inline void close_transports(struct transports *transports)
{
	void *users[RANKS];

	for (uint32_t r = 0; r < RANKS; r++) {
		users[r] = transports->at[r];
	}
	transports->kind->all(close_transport, users);
}

/* Receives from the control channel, as every group always does. */
static inline void listen_to(struct coll_transport *transport, uint32_t peer)
{
	uint32_t seen = transport->poll(transport);
	char byte;

	assert_int_equal(transport->receive(transport, peer, COLL_CONTROL, &byte, 1), 0);
	transport->wait(transport, seen, NS_PER_MS);
}

/* Waits until a peer is lost. Returns the reason. */
static inline const char *await_lost(struct coll_transport *transport, uint32_t peer)
{
	WITHIN_DOING(WITHIN_LONG_S, transport->lost(transport, peer) != NULL,
		listen_to(transport, peer));
	return transport->lost(transport, peer);
}

#endif
