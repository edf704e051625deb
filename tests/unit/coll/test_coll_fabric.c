/* Tests of the libfabric transport alone; test_coll_transport.c has the tests of all transports. */
#include "base/fault.h"
#include "base/rng.h"
#include "coll/group/group.h"
#include "coll/transport/fabric_impl.h"
#include "seed.h"
#include "test_coll_heartbeat.h"
#include "test_coll_kinds.h"
#include "within.h"

#include "pawl/coll.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define LONG_NS within_ns(WITHIN_LONG_S)

/* Suppresses leaks of libfabric 1.17: connections that were refused, or cut off while they were
 * made. The address sanitizer calls this function. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so.1\n";
}

static void handle(int signal)
{
}

/* This test must be the first one, so that it is the one that loads libfabric. */
static void loading_leaves_signals_alone(void **state)
{
	const int signals[] = {SIGINT, SIGTERM, SIGSEGV, SIGABRT};
	const struct sigaction ours = {.sa_handler = handle};
	struct sigaction before[4];
	struct sigaction now;
	struct coll_transport *transport;
	struct pawl_err err;
	char name[NAME];

	fault_arm("coll.fabric.open", 1, ENOENT, false); /* a failed load is tried again */
	assert_int_equal(fabric.open(&transport, 0, 1, name, &err), PAWL_ENOTSUP);
	fault_disarm();
	assert_non_null(strstr(err.msg, "libfabric.so.1 cannot be loaded: install libfabric"));
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		sigaction(signals[i], &ours, &before[i]);
	}
	want(&fabric);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		sigaction(signals[i], NULL, &now);
		assert_true(now.sa_handler == handle);
		sigaction(signals[i], &before[i], NULL);
	}
}

/* ---- joins that fail ---- */

static void names_that_are_none(void **state)
{
	const char *const bad[] = {"nonsense", "127.0.0.1:1:5", "fi2:02:5:tcp", "fi1:0:5:tcp",
		"fi1:02:5:", "fi1::5:tcp", "fi1:02:5:tcp more"};
	struct coll_transport *transport;
	char own[NAME];
	const char *names[] = {own, NULL};
	struct pawl_err err;

	want(&fabric);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(fabric.open(&transport, 0, 2, own, NULL), 0);
		names[1] = bad[i];
		assert_int_equal(coll_fabric_join(transport, names, NS_PER_S, NULL, &err),
			PAWL_EINVAL);
		assert_non_null(strstr(err.msg, "the address of rank 1 is malformed: "));
		transport->close(transport);
	}
	assert_int_equal(fabric.open(&transport, 0, 2, own, NULL), 0);
	names[1] = "fi1:02:5:another";
	assert_int_equal(coll_fabric_join(transport, names, NS_PER_S, NULL, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "rank 1 uses another: FI_PROVIDER must be the same"));
	transport->close(transport);
	assert_int_equal(coll_fabric_open(&transport, 0, 2, "here", own, &err), PAWL_ENOTSUP);
	assert_non_null(strstr(err.msg, "PAWL_TRANSPORT=fabric: libfabric has no provider"));
}

/* The missing rank leaves before the others join, or never joins. */
static void a_rank_that_does_not_come_is_named(void **state)
{
	struct coll_transport *transport;
	struct coll_transport *other;
	char text[2][NAME];
	const char *names[] = {text[0], text[1]};
	atomic_bool stop = true;
	struct pawl_err err;

	want(&fabric);
	for (int gone = 0; gone < 2; gone++) {
		assert_int_equal(fabric.open(&transport, 0, 2, text[0], NULL), 0);
		assert_int_equal(fabric.open(&other, 1, 2, text[1], NULL), 0);
		if (gone) {
			other->close(other);
		}
		assert_int_equal(coll_fabric_join(transport, names, NS_PER_S / 3, NULL, &err),
			PAWL_EPEER);
		assert_non_null(strstr(err.msg, "rank 1"));
		assert_non_null(strstr(err.msg, text[1]));
		transport->close(transport);
		if (!gone) {
			assert_int_equal(coll_fabric_join(other, names, NS_PER_S, &stop, &err),
				PAWL_ECANCELED);
			other->close(other);
		}
	}
}

/* A stranger claims to be rank 1. Its hello and its messages have another key than the names. */
static void who_has_no_key_gets_nothing(void **state)
{
	struct transports transports = {.kind = &fabric};
	struct joiner joiners[RANKS];
	void *users[RANKS];
	char text[NAME];
	char wrong[NAME];
	char *key;
	const char *names[RANKS] = {wrong, text};
	struct coll_transport *stranger;
	struct pawl_err err;
	char byte;

	want(&fabric);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(
			fabric.open(&transports.at[r], r, RANKS, transports.names[r], NULL), 0);
	}
	assert_int_equal(fabric.open(&stranger, 1, RANKS, text, NULL), 0);
	snprintf(wrong, sizeof(wrong), "%s", transports.names[0]);
	key = strchr(strchr(wrong, ':') + 1, ':') + 1;
	*key = *key == '1' ? '2' : '1';
	assert_int_equal(coll_fabric_join(stranger, names, NS_PER_S / 5, NULL, &err), PAWL_EPEER);
	for (uint32_t r = 0; r < RANKS; r++) {
		joiners[r] = (struct joiner){.transports = &transports, .rank = r};
		users[r] = &joiners[r];
	}
	run_threads(join_rank, users);
	assert_int_equal(stranger->send(stranger, 0, 1, "x", 1), 1);
	for (uint32_t i = 0; i < 50; i++) {
		stranger->wait(stranger, stranger->poll(stranger), NS_PER_MS);
		transports.at[0]->wait(transports.at[0], transports.at[0]->poll(transports.at[0]),
			NS_PER_MS);
		assert_int_equal(transports.at[0]->receive(transports.at[0], 1, 1, &byte, 1), 0);
	}
	assert_null(transports.at[0]->lost(transports.at[0], 1));
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(joiners[r].rv, 0);
		assert_false(fabric_of(stranger)->peers[r].hello_received);
	}
	stranger->close(stranger);
	close_transports(&transports);
}

/* ---- messages ---- */

/* Handles a message as if it had been received from the peer. */
static void deliver(struct fabric *receiver, struct fabric_header header, const uint8_t *bytes)
{
	static uint8_t message[FABRIC_MESSAGE];

	fabric_encode_header(message, &header);
	memcpy(message + FABRIC_HEADER, bytes, header.len_bytes);
	fabric_take_message(receiver, message, FABRIC_HEADER + header.len_bytes);
}

static void messages_come_in_any_order(void **state)
{
	static uint8_t sent[FABRIC_WINDOW_MAX];
	static uint8_t came[sizeof(sent)];
	struct rng rng = {first_seed};
	struct transports transports;
	struct fabric *receiver;
	struct fabric_header headers[FABRIC_AHEAD - 1];
	uint64_t off = 0;

	open_transports(&transports, &fabric);
	receiver = fabric_of(transports.at[0]);
	for (size_t i = 0; i < sizeof(sent); i++) {
		sent[i] = (uint8_t)rng_u64(&rng);
	}
	for (uint32_t i = 0; i < FABRIC_AHEAD - 1; i++) {
		headers[i] = (struct fabric_header){.key = receiver->key,
			.from = 2,
			.kind = FABRIC_DATA,
			.stream = 3,
			.number = i,
			.len_bytes = (uint32_t)(1 + rng_below(&rng, 2000)),
			.off_bytes = off};
		off += headers[i].len_bytes;
	}
	for (uint32_t i = FABRIC_AHEAD - 1; i > 0; i--) {
		uint32_t j = (uint32_t)rng_below(&rng, i);
		struct fabric_header header = headers[j];

		headers[j] = headers[i - 1];
		headers[i - 1] = header;
		deliver(receiver, headers[i - 1], sent + headers[i - 1].off_bytes);
	}
	assert_null(receiver->transport.lost(&receiver->transport, 2));
	assert_int_equal(
		receiver->transport.receive(&receiver->transport, 2, 3, came, sizeof(came)), off);
	assert_memory_equal(came, sent, off);
	close_transports(&transports);
}

/* After a message that a peer must not send, or sends twice, that peer is lost, and no other. */
static void nonsense_is_a_lost_peer(void **state)
{
	static const uint8_t bytes[FABRIC_MESSAGE];
	const struct fabric_header bad[] = {
		{.kind = FABRIC_DATA, .stream = COLL_STREAMS, .len_bytes = 1},
		{.kind = FABRIC_DATA, .number = FABRIC_AHEAD, .len_bytes = 1},
		{.kind = FABRIC_DATA, .number = 1, .len_bytes = 1, .off_bytes = UINT64_MAX},
		{.kind = FABRIC_DATA,
			.number = 1,
			.len_bytes = 2,
			.off_bytes = FABRIC_WINDOW_MAX - 1},
		{.kind = FABRIC_DATA, .len_bytes = 1, .off_bytes = 1},
		{.kind = FABRIC_DATA},
		{.kind = FABRIC_HELLO},
		{.kind = FABRIC_CREDIT, .len_bytes = 7},
		{.kind = FABRIC_BYE, .len_bytes = 7},
		{.kind = 9},
	};
	struct transports transports;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct fabric_header header = bad[i];
		struct fabric *receiver;

		open_transports(&transports, &fabric);
		receiver = fabric_of(transports.at[0]);
		header.key = receiver->key;
		header.from = 2;
		deliver(receiver, header, bytes);
		assert_string_equal(receiver->transport.lost(&receiver->transport, 2),
			"it sent an invalid message");
		assert_int_equal(receiver->transport.send(&receiver->transport, 2, 0, "x", 1), 0);
		assert_null(receiver->transport.lost(&receiver->transport, 1));
		close_transports(&transports);
	}
}

/* Headers of random bits, with the right key. */
static void any_message_does_no_harm(void **state)
{
	static uint8_t bytes[FABRIC_MESSAGE];
	struct rng rng = {first_seed};
	struct transports transports;
	struct fabric *receiver;

	open_transports(&transports, &fabric);
	receiver = fabric_of(transports.at[0]);
	for (uint32_t i = 0; i < 100000; i++) {
		struct fabric_header header = {.key = receiver->key,
			.from = (uint32_t)rng_below(&rng, 4),
			.kind = (uint8_t)rng_below(&rng, 6),
			.stream = (uint8_t)rng_below(&rng, 6),
			.number = (uint32_t)rng_below(&rng, 70),
			.len_bytes = (uint32_t)rng_below(&rng, FABRIC_MESSAGE - FABRIC_HEADER),
			.off_bytes =
				rng_below(&rng, 2) == 0 ? rng_below(&rng, 600000) : rng_u64(&rng)};

		deliver(receiver, header, bytes);
		fabric_take_message(receiver, bytes, rng_below(&rng, 40));
		if (rng_below(&rng, 3) == 0) {
			receiver->transport.receive(&receiver->transport, header.from % 2 + 1,
				header.number % 5, bytes, header.len_bytes);
		}
		receiver->peers[1].broken = receiver->peers[2].broken = NULL;
	}
	close_transports(&transports);
}

/* ---- closing ---- */

static void what_was_sent_before_closing_comes(void **state)
{
	static uint8_t bytes[100000];
	struct transports transports;
	struct coll_transport *transport;
	size_t came = 0;
	size_t sent;

	open_transports(&transports, &fabric);
	transport = transports.at[0];
	sent = transports.at[1]->send(transports.at[1], 0, COLL_CONTROL, bytes, sizeof(bytes));
	assert_true(sent > 0);
	transports.at[1]->close(transports.at[1]);
	WITHIN_DOING(WITHIN_LONG_S, transport->lost(transport, 1) != NULL,
		transport->wait(transport, transport->poll(transport), NS_PER_MS));
	assert_string_equal(transport->lost(transport, 1), "its connection was closed");
	while (came < sent) {
		size_t n = transport->receive(transport, 1, COLL_CONTROL, bytes, sizeof(bytes));

		assert_true(n > 0);
		came += n;
	}
	assert_int_equal(came, sent);
	transports.at[2]->close(transports.at[2]);
	transport->close(transport);
}

/* This thread stands still for an hour before each call of the clock. */
static _Thread_local bool stands_still;

int64_t __real_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void);

/* meson.build redirects all calls of clock_mono_ns here. */
int64_t __wrap_clock_mono_ns(void)
{
	static _Thread_local int64_t stood_ns;

	stood_ns = stands_still ? stood_ns + 3600 * NS_PER_S : 0;
	return __real_clock_mono_ns() + stood_ns;
}

/* The transport announces to its peers that it closes, even if the time for that is over. */
static void closing_is_announced_however_late(void **state)
{
	struct transports transports;

	open_transports(&transports, &fabric);
	fault_arm("coll.fabric.move", UINT64_MAX, EIO, false); /* never fails: counts the calls */
	stands_still = true;
	transports.at[1]->close(transports.at[1]);
	stands_still = false;
	fault_disarm();
	assert_true(fault_count() > 0);
	assert_string_equal(await_lost(transports.at[0], 1), "its connection was closed");
	transports.at[2]->close(transports.at[2]);
	transports.at[0]->close(transports.at[0]);
}

/* ---- any call may fail ---- */

struct attempt {
	struct coll_transport *transport;
	const char *const *names;
	atomic_bool *stop;
	struct pawl_err err;
	int rv;
};

static void *attempt(void *user)
{
	struct attempt *a = user;

	a->rv = coll_fabric_join(a->transport, a->names, LONG_NS, a->stop, &a->err);
	if (a->rv != 0) {
		atomic_store(a->stop, true);
	}
	a->transport->close(a->transport);
	return NULL;
}

/* Returns whether all calls succeeded. */
static bool try_with_fault(const char *point, uint64_t nth)
{
	char text[2][NAME];
	const char *names[] = {text[0], text[1]};
	atomic_bool stop = false;
	struct attempt a[2];
	pthread_t threads[2];
	struct pawl_err err;
	int rv;

	for (uint32_t r = 0; r < 2; r++) {
		a[r] = (struct attempt){.names = names, .stop = &stop};
	}
	assert_int_equal(fabric.open(&a[1].transport, 1, 2, text[1], NULL), 0);
	fault_arm(point, nth, EIO, false);
	rv = fabric.open(&a[0].transport, 0, 2, text[0], &err);
	if (rv != 0) {
		fault_disarm();
		assert_int_equal(err.code, rv);
		a[1].transport->close(a[1].transport);
		return false;
	}
	for (uint32_t r = 0; r < 2; r++) {
		pthread_create(&threads[r], NULL, attempt, &a[r]);
	}
	for (uint32_t r = 0; r < 2; r++) {
		pthread_join(threads[r], NULL);
		assert_true(a[r].rv == 0 || a[r].err.code == a[r].rv);
	}
	fault_disarm();
	return fault_count() < nth;
}

static void faults(void **state)
{
	uint64_t nth = 1;

	want(&fabric);
	while (!try_with_fault("coll.fabric.open", nth)) {
		nth++;
	}
	assert_true(nth > 12);
	for (nth = 1; nth < 40; nth++) {
		try_with_fault("coll.fabric.move", nth);
	}
}

/* ---- groups ---- */

struct member {
	struct transports *transports;
	uint32_t rank;
	struct pawl_group *group;
	float *numbers;
	int rv;
};

#define NUMBERS 1000003

static void *sum(void *user)
{
	static const uint32_t where[RANKS] = {0, 1, 2};
	struct member *m = user;
	struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.len_bytes = NUMBERS * sizeof(float),
		.in = m->numbers,
		.out = m->numbers,
		.timeout_ns = LONG_NS};
	struct pawl_work work;
	struct pawl_err err = {0};

	m->rv = coll_group_make(&m->group, m->rank, RANKS, 0, &err);
	if (m->rv == 0) {
		m->rv = coll_group_start(m->group, m->transports->at[m->rank], where, &err);
	}
	for (uint32_t i = 0; i < 5 && m->rv == 0; i++) {
		m->rv = pawl_group_submit(m->group, &work, &call, &err);
		m->rv = m->rv == 0 ? IN_TIME(pawl_group_wait(m->group, &work, -1, &err)) : m->rv;
	}
	pawl_group_close(m->group);
	return NULL;
}

static void a_group_adds(void **state)
{
	struct transports transports;
	struct member members[RANKS];
	void *users[RANKS];

	open_transports(&transports, &fabric);
	for (uint32_t r = 0; r < RANKS; r++) {
		members[r] = (struct member){.transports = &transports,
			.rank = r,
			.numbers = malloc(NUMBERS * sizeof(float))};
		for (uint32_t i = 0; i < NUMBERS; i++) {
			members[r].numbers[i] = (float)(i % 1000 + r);
		}
		users[r] = &members[r];
	}
	run_threads(sum, users);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(members[r].rv, 0);
		for (uint32_t i = 0; i < NUMBERS; i++) {
			assert_true(members[r].numbers[i] == (float)(3 * (i % 1000) + 3) * 81);
		}
		free(members[r].numbers);
	}
}

static void settings_are_read(void **state)
{
	char endpoints[2][PAWL_ENDPOINT_MAX];
	const char *all[] = {endpoints[0], endpoints[1]};
	struct pawl_group *groups[2];
	struct pawl_group *group;
	struct pawl_err err;

	want(&fabric);
	setenv("PAWL_TRANSPORT", "udp", 1);
	assert_int_equal(pawl_group_open(&group, 0, 2, "127.0.0.1", endpoints[0], &err),
		PAWL_EINVAL);
	assert_string_equal(err.msg, "PAWL_TRANSPORT=udp: tcp (sockets) or fabric (libfabric)");
	setenv("PAWL_TRANSPORT", "fabric", 1);
	setenv("PAWL_SERVERS", "127.0.0.1:1:1", 1);
	assert_int_equal(pawl_group_open(&group, 0, 2, "127.0.0.1", endpoints[0], &err),
		PAWL_ENOTSUP);
	assert_non_null(strstr(err.msg, "servers (PAWL_SERVERS)"));
	unsetenv("PAWL_SERVERS");
	assert_int_equal(pawl_group_open(&groups[0], 0, 2, "127.0.0.1", endpoints[0], &err), 0);
	setenv("PAWL_TRANSPORT", "tcp", 1);
	assert_int_equal(pawl_group_open(&groups[1], 1, 2, "127.0.0.1", endpoints[1], &err), 0);
	unsetenv("PAWL_TRANSPORT");
	for (uint32_t r = 0; r < 2; r++) {
		assert_int_equal(pawl_group_join(groups[r], all, NS_PER_S, &err), PAWL_EINVAL);
		assert_non_null(
			strstr(err.msg, "PAWL_TRANSPORT and PAWL_HEARTBEAT must be the same"));
		pawl_group_close(groups[r]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loading_leaves_signals_alone),
		cmocka_unit_test(names_that_are_none),
		cmocka_unit_test(a_rank_that_does_not_come_is_named),
		cmocka_unit_test(who_has_no_key_gets_nothing),
		cmocka_unit_test(messages_come_in_any_order),
		cmocka_unit_test(nonsense_is_a_lost_peer),
		cmocka_unit_test(any_message_does_no_harm),
		cmocka_unit_test(what_was_sent_before_closing_comes),
		cmocka_unit_test(closing_is_announced_however_late),
		cmocka_unit_test(faults),
		cmocka_unit_test(a_group_adds),
		cmocka_unit_test(settings_are_read),
	};

	first_seed = test_seed();
	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
