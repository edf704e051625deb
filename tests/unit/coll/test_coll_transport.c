/* Tests of the contract of transports, on all kinds: shared memory, TCP, libfabric, shared memory
 * with one of these, and simulated ones. Ranks are threads (simulated: turns on one thread), or one
 * thread that is all of them. If one must die, they are processes. */
#include "base/fault.h"
#include "base/rng.h"
#include "each_fault.h"
#include "seed.h"
#include "test_coll_kinds.h"
#include "within.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (3u << 20) /* bytes through a stream: many times its capacity */

/* Returns byte i of a stream from one rank to another. */
static uint8_t byte_of(uint32_t from, uint32_t to, uint32_t stream, uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 8) + from * 64 + to * 16 + stream);
}

struct flow {
	uint64_t sent[RANKS][COLL_STREAMS];
	uint64_t received[RANKS][COLL_STREAMS];
};

/* Sends and receives some bytes on one stream. Returns whether any bytes moved. */
static bool move(struct coll_transport *transport, uint32_t rank, uint32_t peer, uint32_t stream,
	struct flow *flow, struct rng *rng)
{
	uint8_t bytes[5000];
	uint64_t *sent = &flow->sent[peer][stream];
	uint64_t *received = &flow->received[peer][stream];
	size_t n = 1 + rng_below(rng, sizeof(bytes));
	size_t went;
	size_t came;

	n = n < BYTES - *sent ? n : BYTES - *sent;
	for (size_t i = 0; i < n; i++) {
		bytes[i] = byte_of(rank, peer, stream, *sent + i);
	}
	went = n > 0 ? transport->send(transport, peer, stream, bytes, n) : 0;
	assert_true(went <= n);
	*sent += went;
	came = transport->receive(transport, peer, stream, bytes,
		1 + rng_below(rng, sizeof(bytes)));
	for (size_t i = 0; i < came; i++) {
		assert_int_equal(bytes[i], byte_of(peer, rank, stream, *received + i));
	}
	*received += came;
	return went + came > 0;
}

static bool is_over(const struct flow *flow, uint32_t rank)
{
	for (uint32_t i = 0; i < RANKS * COLL_STREAMS; i++) {
		uint32_t peer = i / COLL_STREAMS;
		uint32_t stream = i % COLL_STREAMS;

		if (peer != rank &&
			(flow->sent[peer][stream] < BYTES ||
				flow->received[peer][stream] < BYTES)) {
			return false;
		}
	}
	return true;
}

struct runner {
	struct coll_transport *transport;
	uint32_t rank;
};

static void *run_rank(void *user)
{
	struct runner *runner = user;
	struct coll_transport *transport = runner->transport;
	struct flow flow = {.sent = {{0}}};
	struct rng rng = {first_seed + runner->rank};
	struct within idle = within_begin(WITHIN_LONG_S);

	while (!is_over(&flow, runner->rank)) {
		uint32_t seen = transport->poll(transport);
		bool moved = false;

		for (uint32_t i = 0; i < RANKS * COLL_STREAMS; i++) {
			uint32_t peer = i / COLL_STREAMS;

			if (peer != runner->rank) {
				moved |= move(transport, runner->rank, peer, i % COLL_STREAMS,
					&flow, &rng);
			}
		}
		if (moved) {
			idle = within_begin(WITHIN_LONG_S);
		} else {
			within_check(&idle, "something that moves", __FILE__, __LINE__);
			transport->wait(transport, seen, 10 * NS_PER_S);
		}
	}
	return NULL;
}

/* All streams are used at once, with sleeps in between: no byte is lost, duplicated or
 * reordered. */
static void streams_bring_all_in_order(void **state)
{
	struct runner runners[RANKS];
	void *users[RANKS];
	struct transports transports;

	open_transports(&transports, *state);
	for (uint32_t r = 0; r < RANKS; r++) {
		runners[r] = (struct runner){transports.at[r], r};
		users[r] = &runners[r];
	}
	transports.kind->all(run_rank, users);
	close_transports(&transports);
}

/* Reads a little of what rank 0 has sent to rank 1. */
static void make_room(struct transports *transports, uint32_t *seen)
{
	static uint8_t bytes[1 << 16];

	transports->at[1]->poll(transports->at[1]);
	if (transports->at[1]->receive(transports->at[1], 0, 2, bytes, sizeof(bytes)) == 0) {
		transports->at[0]->wait(transports->at[0], *seen, NS_PER_MS);
		*seen = transports->at[0]->poll(transports->at[0]);
	}
}

/* A stream that nobody reads accepts bytes until it is full; reading makes room. */
static void a_full_stream_takes_nothing(void **state)
{
	static uint8_t bytes[1 << 16];
	struct transports transports;
	struct coll_transport *transport;
	uint32_t seen;
	size_t accepted = 0;
	size_t n;

	open_transports(&transports, *state);
	transport = transports.at[0];
	transport->poll(transport);
	while ((n = transport->send(transport, 1, 2, bytes, sizeof(bytes))) > 0) {
		accepted += n;
	}
	assert_true(accepted > 0);
	assert_int_equal(transport->send(transport, 1, 2, bytes, 1), 0);
	assert_true(transport->send(transport, 1, 3, bytes, 1) == 1);
	seen = transport->poll(transport);
	WITHIN_DOING(WITHIN_LONG_S, transport->send(transport, 1, 2, bytes, 1) != 0,
		make_room(&transports, &seen));
	close_transports(&transports);
}

static void *wake_soon(void *user)
{
	struct coll_transport *transport = user;

	within_pace(0.02);
	transport->wake(transport);
	return NULL;
}

/* Returns whether there is no event for a while. */
static bool is_still(struct coll_transport *transport, uint32_t *seen)
{
	*seen = transport->poll(transport);
	transport->wait(transport, *seen, NS_PER_MS);
	return transport->poll(transport) == *seen;
}

/* Waits for an event, such as a ring of the doorbell. The wait must end; it may end early. */
static void await_ring(struct coll_transport *transport, uint32_t seen)
{
	struct within within = within_begin(WITHIN_LONG_S);

	do {
		transport->wait(transport, seen, within.end_ns - clock_mono_ns());
		if (clock_mono_ns() >= within.end_ns) {
			within_late("a ring", within.seconds, __FILE__, __LINE__);
		}
	} while (transport->poll(transport) == seen);
}

static void waiting_ends(void **state)
{
	struct transports transports;
	struct coll_transport *transport;
	pthread_t thread;
	uint32_t seen;

	open_transports(&transports, *state);
	transport = transports.at[0];
	WITHIN(WITHIN_LONG_S, is_still(transport, &seen)); /* joining may still ring */
	pthread_create(&thread, NULL, wake_soon, transport);
	await_ring(transport, seen);
	pthread_join(thread, NULL);
	seen = transport->poll(transport);
	transports.at[2]->poll(transports.at[2]);
	assert_int_equal(transports.at[2]->send(transports.at[2], 0, 0, "x", 1), 1);
	await_ring(transport, seen); /* the event was before this wait, or will follow */
	close_transports(&transports);
}

/* The death of a process is reported, and the bytes that it sent can be read. */
static void a_dead_rank_is_reported(void **state)
{
	const struct kind *kind = *state;
	char names[2][NAME];
	const char *all[] = {names[0], names[1]};
	struct coll_transport *transport;
	int up[2];
	int down[2];
	char byte;
	pid_t pid;

	want(kind);
	assert_int_equal(pipe(up) | pipe(down), 0);
	pid = fork();
	if (pid == 0) {
		bool ok = kind->open(&transport, 1, 2, names[1], NULL) == 0 &&
			write(up[1], names[1], NAME) == NAME &&
			read(down[0], names[0], NAME) == NAME &&
			kind->join(&transport, all, NULL) == 0;

		if (ok) {
			transport->poll(transport);
			ok = transport->send(transport, 0, 0, "z", 1) == 1 &&
				read(down[0], &byte, 1) == 1; /* The other rank has joined. */
		}
		raise(ok ? SIGKILL : SIGABRT);
	}
	assert_int_equal(kind->open(&transport, 0, 2, names[0], NULL), 0);
	assert_int_equal(read(up[0], names[1], NAME), NAME);
	assert_int_equal(write(down[1], names[0], NAME), NAME);
	assert_int_equal(kind->join(&transport, all, NULL), 0);
	assert_int_equal(write(down[1], "j", 1), 1);
	if (kind->dead) {
		assert_string_equal(await_lost(transport, 1), kind->dead);
	}
	/* Connections may overtake each other. */
	WITHIN_DOING(WITHIN_LONG_S, transport->receive(transport, 1, 0, &byte, 1) != 0,
		transport->wait(transport, transport->poll(transport), NS_PER_MS));
	assert_int_equal(byte, 'z');
	WITHIN_CHILD(pid);
	transport->close(transport);
	for (int i = 0; i < 2; i++) {
		close(up[i]);
		close(down[i]);
	}
}

/* The death of a simulated rank is reported, for each way to die. */
static void a_simulated_death_is_reported(void **state)
{
	const char *const why[] =
		{[SIM_CLOSED] = "its connection was closed", [SIM_RESET] = "its connection broke"};

	for (enum sim_death death = SIM_CLOSED; death <= SIM_SILENT; death++) {
		struct transports transports;
		struct coll_transport *transport;
		char byte;

		open_transports(&transports, &simulated);
		transport = transports.at[0];
		assert_int_equal(transports.at[2]->send(transports.at[2], 0, 0, "z", 1), 1);
		transport->wait(transport, transport->poll(transport), NS_PER_S);
		sim_kill(world, 2, death);
		if (death == SIM_SILENT) {
			transport->wait(transport, transport->poll(transport), 100 * NS_PER_S);
			assert_null(transport->lost(transport, 2));
		} else {
			assert_string_equal(await_lost(transport, 2), why[death]);
		}
		assert_int_equal(transport->receive(transport, 2, 0, &byte, 1), 1);
		assert_int_equal(byte, 'z');
		assert_int_equal(transport->now_ns(transport), sim_now_ns(world));
		close_transports(&transports);
	}
}

/* ---- shared memory alone ---- */

static int join_as(const char *name, struct pawl_err *err)
{
	struct coll_transport *transport;
	char own[COLL_SHM_NAME];
	const char *names[] = {own, name};
	int rv;

	assert_int_equal(coll_shm_open(&transport, 0, 2, own, NULL), 0);
	rv = coll_shm_join(transport, names, err);
	transport->close(transport);
	return rv;
}

/* Memory that is not the area of the rank is refused. */
static void what_is_no_area_is_refused(void **state)
{
	struct coll_transport *transport;
	char name[COLL_SHM_NAME];
	char wrong[COLL_SHM_NAME];
	struct pawl_err err;
	int fd = memfd_create("no area", 0);

	assert_int_equal(join_as("nonsense", &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "the address of rank 1 is malformed: nonsense"));
	assert_int_equal(join_as("1999999999:3:1", &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, "process 1999999999"));
	snprintf(wrong, sizeof(wrong), "%ld:%d:1", (long)getpid(), fd);
	assert_int_equal(join_as(wrong, &err), PAWL_EINVAL);
	assert_int_equal(coll_shm_open(&transport, 1, 3, name, NULL),
		0); /* area of a larger group */
	assert_int_equal(join_as(name, &err), PAWL_EINVAL);
	transport->close(transport);
	assert_int_equal(coll_shm_open(&transport, 1, 2, name, NULL), 0);
	snprintf(wrong, sizeof(wrong), "%.*s1", (int)strlen(name), name); /* a wrong nonce */
	assert_int_equal(join_as(wrong, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "another group"));
	assert_int_equal(join_as(name, &err), 0);
	transport->close(transport);
	close(fd);
	assert_int_equal(coll_shm_open(&transport, 0, COLL_SHM_RANKS_MAX + 1, name, &err),
		PAWL_ELIMIT);
}

/* A peer that writes invalid data to the shared memory harms only itself. */
static void nonsense_is_a_lost_peer(void **state)
{
	static uint8_t bytes[1 << 22];
	struct rng rng = {first_seed};
	struct transports transports;
	char byte;
	int fd;

	open_transports(&transports, &shm);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] = (uint8_t)rng_u64(&rng);
	}
	assert_int_equal(sscanf(transports.names[1], "%*d:%d", &fd), 1);
	assert_true(pwrite(fd, bytes, COLL_SHM_RING * RANKS * COLL_STREAMS, 192) > 0);
	for (uint32_t i = 0; i < RANKS * COLL_STREAMS; i++) {
		uint32_t stream = i % COLL_STREAMS;

		assert_int_equal(transports.at[0]->receive(transports.at[0], 1, stream, &byte, 1),
			0);
		assert_int_equal(
			transports.at[1]->send(transports.at[1], i / COLL_STREAMS, stream, "x", 1),
			0);
	}
	assert_non_null(strstr(transports.at[0]->lost(transports.at[0], 1), "invalid data"));
	assert_null(transports.at[0]->lost(transports.at[0], 2));
	assert_int_equal(transports.at[2]->send(transports.at[2], 0, 0, "x", 1), 1);
	assert_int_equal(transports.at[0]->receive(transports.at[0], 2, 0, &byte, 1), 1);
	close_transports(&transports);
}

/* Any call may fail. */
static void faults(void **state)
{
	struct pawl_err err;
	uint64_t nth;

	for (nth = 1; each_fault(nth); nth++) {
		struct coll_transport *transport;
		struct coll_transport *other;
		int rv;
		char names[2][COLL_SHM_NAME];
		const char *all[] = {names[0], names[1]};

		assert_int_equal(coll_shm_open(&other, 1, 2, names[1], NULL), 0);
		fault_arm("coll.shm", nth, EIO, false);
		rv = coll_shm_open(&transport, 0, 2, names[0], &err);
		if (rv == 0) {
			rv = coll_shm_join(transport, all, &err);
			transport->close(transport);
		}
		fault_disarm();
		other->close(other);
		assert_true(rv == 0 || (err.code == rv && fault_reached(nth)));
	}
	assert_true(nth > 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(streams_bring_all_in_order, &shm),
		cmocka_unit_test_prestate(a_full_stream_takes_nothing, &shm),
		cmocka_unit_test_prestate(waiting_ends, &shm),
		cmocka_unit_test_prestate(a_dead_rank_is_reported, &shm),
		cmocka_unit_test_prestate(streams_bring_all_in_order, &tcp),
		cmocka_unit_test_prestate(a_full_stream_takes_nothing, &tcp),
		cmocka_unit_test_prestate(waiting_ends, &tcp),
		cmocka_unit_test_prestate(a_dead_rank_is_reported, &tcp),
		cmocka_unit_test_prestate(streams_bring_all_in_order, &mixed),
		cmocka_unit_test_prestate(a_full_stream_takes_nothing, &mixed),
		cmocka_unit_test_prestate(waiting_ends, &mixed),
		cmocka_unit_test_prestate(a_dead_rank_is_reported, &mixed),
		cmocka_unit_test_prestate(streams_bring_all_in_order, &fabric),
		cmocka_unit_test_prestate(a_full_stream_takes_nothing, &fabric),
		cmocka_unit_test_prestate(waiting_ends, &fabric),
		cmocka_unit_test_prestate(a_dead_rank_is_reported, &fabric),
		cmocka_unit_test_prestate(streams_bring_all_in_order, &fabric_no_fd),
		cmocka_unit_test_prestate(a_full_stream_takes_nothing, &fabric_no_fd),
		cmocka_unit_test_prestate(waiting_ends, &fabric_no_fd),
		cmocka_unit_test_prestate(streams_bring_all_in_order, &mixed_no_fd),
		cmocka_unit_test_prestate(waiting_ends, &mixed_no_fd),
		cmocka_unit_test_prestate(streams_bring_all_in_order, &mixed_fabric),
		cmocka_unit_test_prestate(a_full_stream_takes_nothing, &mixed_fabric),
		cmocka_unit_test_prestate(waiting_ends, &mixed_fabric),
		cmocka_unit_test_prestate(a_dead_rank_is_reported, &mixed_fabric),
		cmocka_unit_test_prestate(streams_bring_all_in_order, &simulated),
		cmocka_unit_test_prestate(a_full_stream_takes_nothing, &simulated),
		cmocka_unit_test_prestate(waiting_ends, &simulated),
		cmocka_unit_test(a_simulated_death_is_reported),
		cmocka_unit_test(what_is_no_area_is_refused),
		cmocka_unit_test(nonsense_is_a_lost_peer),
		cmocka_unit_test(faults),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
