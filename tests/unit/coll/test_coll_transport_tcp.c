/* Tests of the TCP transport alone; test_coll_transport.c has the tests of all transports. */
#include "base/fault.h"
#include "coll/transport/tcp_impl.h"
#include "each_fault.h"
#include "seed.h"
#include "test_coll_kinds.h"
#include "within.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(const char *name)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	unsigned port;

	assert_int_equal(sscanf(name, "127.0.0.1:%u", &port), 1);
	at.sin_port = htons((uint16_t)port);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* While ranks join, strangers send nothing, or nonsense, or a hello without the nonce. */
static void who_is_no_rank_is_sent_away(void **state)
{
	uint8_t hello[32] = "pawptcp1 but not the number";
	struct transports transports = {.kind = &tcp};
	struct joiner joiners[RANKS];
	void *users[RANKS];
	int fds[200];

	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(tcp.open(&transports.at[r], r, RANKS, transports.names[r], NULL),
			0);
	}
	for (uint32_t i = 0; i < 200; i++) {
		fds[i] = connect_to(transports.names[2]);
		if (i % 3 > 0) {
			assert_true(write(fds[i], hello, i % 3 == 1 ? sizeof(hello) : 7) > 0);
		}
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		joiners[r] = (struct joiner){.transports = &transports, .rank = r};
		users[r] = &joiners[r];
	}
	run_threads(join_rank, users);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(joiners[r].rv, 0);
	}
	for (uint32_t i = 0; i < 200; i++) {
		close(fds[i]);
	}
	close_transports(&transports);
}

/* A peer that has closed all connections but that of the control channel is not lost until that one
 * ends, too: it carries the peer's last bytes, and other connections may overtake it. */
static void the_last_bytes_are_received(void **state)
{
	struct transports transports;
	struct coll_transport *transport;
	struct tcp *peer;
	char byte;

	open_transports(&transports, &tcp);
	transport = transports.at[0];
	peer = tcp_of(transports.at[1]);
	for (uint32_t s = 0; s < COLL_CONTROL; s++) {
		shutdown(tcp_link(peer, 0, s)->fd, SHUT_WR);
		WITHIN_DOING(WITHIN_LONG_S, tcp_link(tcp_of(transport), 1, s)->ended,
			transport->wait(transport, transport->poll(transport), NS_PER_MS),
			assert_int_equal(transport->receive(transport, 1, s, &byte, 1), 0));
	}
	assert_null(transport->lost(transport, 1));
	transports.at[1]->poll(transports.at[1]);
	assert_int_equal(transports.at[1]->send(transports.at[1], 0, COLL_CONTROL, "x", 1), 1);
	WITHIN_DOING(WITHIN_LONG_S, transport->receive(transport, 1, COLL_CONTROL, &byte, 1) != 0,
		transport->wait(transport, transport->poll(transport), NS_PER_MS));
	shutdown(tcp_link(peer, 0, COLL_CONTROL)->fd, SHUT_WR);
	assert_string_equal(await_lost(transport, 1), "its connection was closed");
	close_transports(&transports);
}

static void ranks_that_cannot_be_reached(void **state)
{
	struct coll_transport *transport;
	char own[COLL_TCP_NAME];
	const char *names[] = {own, NULL};
	const char *bad[] = {"nonsense", "127.0.0.1:1:5 ", "127.0.0.1:1", "::1:1:5", "[::1]:1"};
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(open_tcp(&transport, 0, 2, own, NULL), 0);
		names[1] = bad[i];
		assert_int_equal(coll_tcp_join(transport, names, NS_PER_S, NULL, &err),
			PAWL_EINVAL);
		transport->close(transport);
	}
	assert_int_equal(open_tcp(&transport, 0, 2, own, NULL), 0);
	names[1] = "127.0.0.1:1:5"; /* nobody listens there */
	assert_int_equal(coll_tcp_join(transport, names, 10 * NS_PER_S, NULL, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, "rank 1 cannot be reached at 127.0.0.1:1:5: Connection"));
	transport->close(transport);
	assert_int_equal(open_tcp(&transport, 1, 2, own, NULL), 0);
	names[0] = "127.0.0.1:1:5"; /* rank 0 does not join */
	names[1] = own;
	assert_int_equal(coll_tcp_join(transport, names, NS_PER_S / 5, NULL, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, "rank 0, at 127.0.0.1:1:5, and rank 1 cannot reach"));
	transport->close(transport);
	assert_int_equal(coll_tcp_open(&transport, 0, 2, "here", own, &err), PAWL_EINVAL);
}

static void faults(void **state)
{
	struct pawl_err err;
	uint64_t nth;

	for (nth = 1; each_fault(nth); nth++) {
		struct coll_transport *transport;
		int rv;
		char name[COLL_TCP_NAME];
		const char *names[] = {name};

		fault_arm("coll.tcp", nth, EIO, false);
		rv = open_tcp(&transport, 0, 1, name, &err);
		if (rv == 0) {
			rv = coll_tcp_join(transport, names, NS_PER_S, NULL, &err);
			transport->close(transport);
		}
		fault_disarm();
		assert_true(rv == 0 || (err.code == rv && fault_reached(nth)));
	}
	assert_true(nth > 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_no_rank_is_sent_away),
		cmocka_unit_test(the_last_bytes_are_received),
		cmocka_unit_test(ranks_that_cannot_be_reached),
		cmocka_unit_test(faults),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
