/* What the TCP port alone must do; test_coll_port.c has what all ports must do. */
#include "base/fault.h"
#include "coll/transport/tcp_impl.h"
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

/* Strangers say nothing, or nonsense, or the right words without the number, while ranks join. */
static void who_is_no_rank_is_sent_away(void **state)
{
	uint8_t hello[32] = "pawptcp1 but not the number";
	struct ports ports = {.kind = &tcp};
	struct joiner joiners[RANKS];
	void *users[RANKS];
	int fds[200];

	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(tcp.open(&ports.at[r], r, RANKS, ports.names[r], NULL), 0);
	}
	for (uint32_t i = 0; i < 200; i++) {
		fds[i] = connect_to(ports.names[2]);
		if (i % 3 > 0) {
			assert_true(write(fds[i], hello, i % 3 == 1 ? sizeof(hello) : 7) > 0);
		}
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		joiners[r] = (struct joiner){.ports = &ports, .rank = r};
		users[r] = &joiners[r];
	}
	run_threads(join_rank, users);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(joiners[r].rv, 0);
	}
	for (uint32_t i = 0; i < 200; i++) {
		close(fds[i]);
	}
	close_ports(&ports);
}

/* A peer that has closed all connections but one is there until that one ends, too: its last words
 * come on it, and others may overtake them. */
static void last_words_are_heard(void **state)
{
	struct ports ports;
	struct coll_port *port;
	struct tcp *peer;
	char byte;

	open_ports(&ports, &tcp);
	port = ports.at[0];
	peer = tcp_of(ports.at[1]);
	for (uint32_t s = 0; s < COLL_TALK; s++) {
		shutdown(tcp_link(peer, 0, s)->fd, SHUT_WR);
		WITHIN_DOING(WITHIN_LONG_S, tcp_link(tcp_of(port), 1, s)->ended,
			port->wait(port, port->look(port), NS_PER_MS),
			assert_int_equal(port->receive(port, 1, s, &byte, 1), 0));
	}
	assert_null(port->lost(port, 1));
	ports.at[1]->look(ports.at[1]);
	assert_int_equal(ports.at[1]->send(ports.at[1], 0, COLL_TALK, "x", 1), 1);
	WITHIN_DOING(WITHIN_LONG_S, port->receive(port, 1, COLL_TALK, &byte, 1) != 0,
		port->wait(port, port->look(port), NS_PER_MS));
	shutdown(tcp_link(peer, 0, COLL_TALK)->fd, SHUT_WR);
	assert_string_equal(await_lost(port, 1), "its connection was closed");
	close_ports(&ports);
}

static void ranks_that_cannot_be_reached(void **state)
{
	struct coll_port *port;
	char own[COLL_TCP_NAME];
	const char *names[] = {own, NULL};
	const char *bad[] = {"nonsense", "127.0.0.1:1:5 ", "127.0.0.1:1", "::1:1:5", "[::1]:1"};
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(open_tcp(&port, 0, 2, own, NULL), 0);
		names[1] = bad[i];
		assert_int_equal(coll_tcp_join(port, names, NS_PER_S, NULL, &err), PAWL_EINVAL);
		port->close(port);
	}
	assert_int_equal(open_tcp(&port, 0, 2, own, NULL), 0);
	names[1] = "127.0.0.1:1:5"; /* nobody listens there */
	assert_int_equal(coll_tcp_join(port, names, 10 * NS_PER_S, NULL, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, "rank 1 cannot be reached at 127.0.0.1:1:5: Connection"));
	port->close(port);
	assert_int_equal(open_tcp(&port, 1, 2, own, NULL), 0);
	names[0] = "127.0.0.1:1:5"; /* rank 0 does not come */
	names[1] = own;
	assert_int_equal(coll_tcp_join(port, names, NS_PER_S / 5, NULL, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, "rank 0, at 127.0.0.1:1:5, and rank 1 do not reach"));
	port->close(port);
	assert_int_equal(coll_tcp_open(&port, 0, 2, "here", own, &err), PAWL_EINVAL);
}

static void faults(void **state)
{
	struct pawl_err err;
	uint64_t nth = 1;
	int rv;

	do {
		struct coll_port *port;
		char name[COLL_TCP_NAME];
		const char *names[] = {name};

		fault_arm("coll.tcp", nth++, EIO, false);
		rv = open_tcp(&port, 0, 1, name, &err);
		if (rv == 0) {
			rv = coll_tcp_join(port, names, NS_PER_S, NULL, &err);
			port->close(port);
		}
		fault_disarm();
		assert_true(rv == 0 || err.code == rv);
	} while (rv != 0);
	assert_true(nth > 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_no_rank_is_sent_away),
		cmocka_unit_test(last_words_are_heard),
		cmocka_unit_test(ranks_that_cannot_be_reached),
		cmocka_unit_test(faults),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
