/* How the ranks of the TCP port find each other, and how TCP shares the network among their
 * connections: what the system says, or PAWL_CONGESTION; only BBR is not taken unless it is asked
 * for. */
#include "base/clock.h"
#include "base/err.h"
#include "coll/tcp.h"
#include "coll/tcp_impl.h"
#include "times.h"
#include "within.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define LONG_NS (60 * NS_PER_S)
#define CONTROL 16 /* bytes of a name */

struct end {
	struct coll_port *port;
	const char *const *names; /* of both */
	int rv;
};

static void *join(void *user)
{
	struct end *end = user;

	end->rv = coll_tcp_join(end->port, end->names, LONG_NS, NULL, NULL);
	return NULL;
}

static void read_control(int fd, char *control)
{
	socklen_t len = CONTROL - 1;

	memset(control, 0, CONTROL);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &len), 0);
}

/* That of all connections between two ranks, at both ends. */
static void find_control(char *control)
{
	char text[2][COLL_TCP_NAME];
	const char *names[2] = {text[0], text[1]};
	struct end ends[2];
	pthread_t thread;

	for (uint32_t r = 0; r < 2; r++) {
		ends[r].names = names;
		assert_int_equal(coll_tcp_open(&ends[r].port, r, 2, "127.0.0.1", text[r], NULL), 0);
	}
	pthread_create(&thread, NULL, join, &ends[0]);
	join(&ends[1]);
	pthread_join(thread, NULL);
	for (uint32_t i = 0; i < 2 * COLL_STREAMS; i++) {
		struct tcp *tcp = tcp_of(ends[i % 2].port);
		char now[CONTROL];

		assert_int_equal(ends[i % 2].rv, 0);
		read_control(tcp_link(tcp, 1 - i % 2, i / 2)->fd, now);
		assert_true(i == 0 || strcmp(now, control) == 0);
		memcpy(control, now, CONTROL);
	}
	ends[0].port->close(ends[0].port);
	ends[1].port->close(ends[1].port);
}

static void the_systems_but_bbr(void **state)
{
	char systems[CONTROL];
	char ours[CONTROL];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool bbr;

	unsetenv("PAWL_CONGESTION");
	read_control(fd, systems);
	bbr = strncmp(systems, "bbr", 3) == 0;
	if (bbr && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
		bbr = false; /* the system does not have it, or not for us */
	}
	close(fd);
	find_control(ours);
	assert_string_equal(ours, bbr ? "cubic" : systems);
}

/* Everybody may have Reno, and what the system has. */
static void what_is_asked_for(void **state)
{
	char control[CONTROL];
	char systems[CONTROL];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	read_control(fd, systems);
	close(fd);
	setenv("PAWL_CONGESTION", systems, 1);
	find_control(control);
	assert_string_equal(control, systems);
	setenv("PAWL_CONGESTION", "reno", 1);
	find_control(control);
	assert_string_equal(control, "reno");
	unsetenv("PAWL_CONGESTION");
}

static void what_there_is_not(void **state)
{
	char name[COLL_TCP_NAME];
	struct coll_port *port;
	struct pawl_err err;

	setenv("PAWL_CONGESTION", "pigeons", 1);
	assert_int_equal(coll_tcp_open(&port, 0, 2, "127.0.0.1", name, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "PAWL_CONGESTION=pigeons: "));
	unsetenv("PAWL_CONGESTION");
}

/* ---- joining ---- */

#define MANY 32u

/* More ranks than strangers are let in, of which the last one comes when all others have connected
 * to it. */
static void many_ranks(void **state)
{
	static char text[MANY][COLL_TCP_NAME];
	const char *names[MANY];
	struct end ends[MANY];
	pthread_t threads[MANY];

	for (uint32_t r = 0; r < MANY; r++) {
		names[r] = text[r];
		ends[r].names = names;
		assert_int_equal(coll_tcp_open(&ends[r].port, r, MANY, "127.0.0.1", text[r], NULL),
			0);
	}
	for (uint32_t r = 0; r < MANY; r++) {
		if (r == MANY - 1) {
			within_pace(0.3);
		}
		pthread_create(&threads[r], NULL, join, &ends[r]);
	}
	for (uint32_t r = 0; r < MANY; r++) {
		pthread_join(threads[r], NULL);
		assert_int_equal(ends[r].rv, 0);
	}
	for (uint32_t r = 0; r < MANY; r++) {
		ends[r].port->close(ends[r].port);
	}
}

/* It would have connected to the other one, which would have waited. */
static void one_that_is_gone(void **state)
{
	char text[2][COLL_TCP_NAME];
	const char *names[2] = {text[0], text[1]};
	struct coll_port *ports[2];
	struct pawl_err err;

	for (uint32_t r = 0; r < 2; r++) {
		assert_int_equal(coll_tcp_open(&ports[r], r, 2, "127.0.0.1", text[r], NULL), 0);
	}
	ports[0]->close(ports[0]);
	assert_int_equal(
		IN_TIME(coll_tcp_join(ports[1], names, within_ns(WITHIN_LONG_S), NULL, &err)),
		PAWL_EPEER);
	assert_non_null(strstr(err.msg, "rank 0, at 127.0.0.1:"));
	assert_non_null(strstr(err.msg, "is gone: nobody listens there"));
	ports[1]->close(ports[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_systems_but_bbr),
		cmocka_unit_test(what_is_asked_for),
		cmocka_unit_test(what_there_is_not),
		cmocka_unit_test(many_ranks),
		cmocka_unit_test(one_that_is_gone),
	};

	/* ports of one thread close one after the other */
	test_times("tcp_goodbye=0.02");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
