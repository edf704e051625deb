/* How ranks join over the TCP transport, and the congestion control of their connections: the
 * system's, or that of PAWL_CONGESTION; BBR is used only if it is requested. */
#include "base/clock.h"
#include "base/err.h"
#include "coll/transport/dial.h"
#include "coll/transport/tcp.h"
#include "coll/transport/tcp_impl.h"
#include "times.h"
#include "within.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define LONG_NS (60 * NS_PER_S)
#define CONTROL 16 /* bytes of the name of a congestion control */

struct end {
	struct coll_transport *transport;
	const char *const *names; /* names of both ranks */
	int rv;
};

static void *join(void *user)
{
	struct end *end = user;

	end->rv = coll_tcp_join(end->transport, end->names, LONG_NS, NULL, NULL);
	return NULL;
}

static void read_control(int fd, char *control)
{
	socklen_t len = CONTROL - 1;

	memset(control, 0, CONTROL);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &len), 0);
}

/* Finds the congestion control of all connections between two ranks, at both ends. */
static void find_control(char *control)
{
	char text[2][COLL_TCP_NAME];
	const char *names[2] = {text[0], text[1]};
	struct end ends[2];
	pthread_t thread;

	for (uint32_t r = 0; r < 2; r++) {
		ends[r].names = names;
		assert_int_equal(
			coll_tcp_open(&ends[r].transport, r, 2, "127.0.0.1", text[r], NULL), 0);
	}
	pthread_create(&thread, NULL, join, &ends[0]);
	join(&ends[1]);
	pthread_join(thread, NULL);
	for (uint32_t i = 0; i < 2 * COLL_STREAMS; i++) {
		struct tcp *tcp = tcp_of(ends[i % 2].transport);
		char now[CONTROL];

		assert_int_equal(ends[i % 2].rv, 0);
		read_control(tcp_link(tcp, 1 - i % 2, i / 2)->fd, now);
		assert_true(i == 0 || strcmp(now, control) == 0);
		memcpy(control, now, CONTROL);
	}
	ends[0].transport->close(ends[0].transport);
	ends[1].transport->close(ends[1].transport);
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
		bbr = false; /* The system does not have it, or not for us. */
	}
	close(fd);
	find_control(ours);
	assert_string_equal(ours, bbr ? "cubic" : systems);
}

/* Any process may use Reno, and the system's congestion control. */
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
	struct coll_transport *transport;
	struct pawl_err err;

	setenv("PAWL_CONGESTION", "pigeons", 1);
	assert_int_equal(coll_tcp_open(&transport, 0, 2, "127.0.0.1", name, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "PAWL_CONGESTION=pigeons: "));
	unsetenv("PAWL_CONGESTION");
}

/* ---- joining ---- */

#define MANY 32u

/* More ranks join than there are entries for strangers. The last rank begins to join when all
 * others have connected to it. */
static void many_ranks(void **state)
{
	static char text[MANY][COLL_TCP_NAME];
	const char *names[MANY];
	struct end ends[MANY];
	pthread_t threads[MANY];

	for (uint32_t r = 0; r < MANY; r++) {
		names[r] = text[r];
		ends[r].names = names;
		assert_int_equal(
			coll_tcp_open(&ends[r].transport, r, MANY, "127.0.0.1", text[r], NULL), 0);
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
		ends[r].transport->close(ends[r].transport);
	}
}

/* Rank 0 is gone. It would have connected to rank 1, which would have waited. */
static void one_that_is_gone(void **state)
{
	char text[2][COLL_TCP_NAME];
	const char *names[2] = {text[0], text[1]};
	struct coll_transport *transports[2];
	struct pawl_err err;

	for (uint32_t r = 0; r < 2; r++) {
		assert_int_equal(coll_tcp_open(&transports[r], r, 2, "127.0.0.1", text[r], NULL),
			0);
	}
	transports[0]->close(transports[0]);
	assert_int_equal(
		IN_TIME(coll_tcp_join(transports[1], names, within_ns(WITHIN_LONG_S), NULL, &err)),
		PAWL_EPEER);
	assert_non_null(strstr(err.msg, "rank 0, at 127.0.0.1:"));
	assert_non_null(strstr(err.msg, "is gone: nobody listens there"));
	transports[1]->close(transports[1]);
}

/* ---- who connects to a rank that joins ---- */

#define CROWD 200u /* more than the entries for handshakes in a group of two */
#define FEW   64u  /* as many as its entries for strangers */

/* Rank 1 of two, and the connections that are made to it. The test is rank 0; nobody accepts the
 * connections to its listener. */
struct visit {
	char text[2][COLL_TCP_NAME];
	const char *names[2];
	struct coll_transport *transport; /* rank 1 */
	pthread_t thread;                 /* thread of rank 1, which joins */
	int rv;                           /* result of joining */
	atomic_bool stop;
	struct addrinfo *at;       /* owned; address where rank 1 listens */
	uint64_t nonce;            /* nonce in rank 1's name */
	int listener;              /* socket where rank 0 listens */
	int streams[COLL_STREAMS]; /* connections from rank 0 to rank 1 */
	int crowd[2 * CROWD];      /* owned; connections that send nothing */
	uint32_t crowd_n;
};

static int connect_to(const struct addrinfo *at)
{
	int fd = IN_TIME(dial_connect(at, clock_mono_ns() + within_ns(WITHIN_LONG_S)));

	assert_true(fd >= 0);
	return fd;
}

static void begin_visit(struct visit *v)
{
	memset(v, 0, sizeof(*v));
	v->names[0] = v->text[0];
	v->names[1] = v->text[1];
	v->listener = coll_tcp_listen("127.0.0.1", 0, 1, v->text[0], NULL);
	assert_true(v->listener >= 0);
	assert_int_equal(coll_tcp_open(&v->transport, 1, 2, "127.0.0.1", v->text[1], NULL), 0);
	assert_int_equal(coll_tcp_parse(v->text[1], &v->at, &v->nonce), 0);
}

static void *join_visit(void *user)
{
	struct visit *v = user;

	v->rv = coll_tcp_join(v->transport, v->names, LONG_NS, &v->stop, NULL);
	return NULL;
}

static void connect_streams(struct visit *v)
{
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		v->streams[s] = connect_to(v->at);
	}
}

static void send_hellos(struct visit *v)
{
	uint8_t hello[TCP_HELLO_BYTES];

	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		tcp_write_hello(hello, 0, 1, s, v->nonce);
		assert_int_equal(send(v->streams[s], hello, sizeof(hello), MSG_NOSIGNAL),
			sizeof(hello));
	}
}

/* Opens n connections that send nothing, and closes them unless stay is set. */
static void send_crowd(struct visit *v, uint32_t n, bool stay)
{
	for (uint32_t i = 0; i < n; i++) {
		int fd = connect_to(v->at);

		if (stay) {
			v->crowd[v->crowd_n++] = fd;
		} else {
			close(fd);
		}
	}
}

/* Waits until rank 1 has accepted all connections made so far: it then closes one that sends an
 * invalid hello. */
static void await_taken(struct visit *v)
{
	const uint8_t wrong[TCP_HELLO_BYTES] = {0};
	int64_t end_ns = clock_mono_ns() + within_ns(WITHIN_LONG_S);
	int fd = connect_to(v->at);
	uint8_t byte;

	assert_true(dial_send(fd, wrong, sizeof(wrong), end_ns));
	assert_false(dial_receive(fd, &byte, 1, end_ns)); /* rank 1 closes the connection */
	if (errno == ETIMEDOUT) {
		FAIL_LATE("rank 1 has not taken who has connected");
	}
	close(fd);
}

/* Returns whether rank 1 has answered a stream of rank 0. */
static bool is_answered(const struct visit *v, uint32_t stream)
{
	uint8_t answer[TCP_HELLO_BYTES];
	uint8_t expected[TCP_HELLO_BYTES];

	tcp_write_hello(expected, 1, 0, stream, v->nonce);
	return dial_receive(v->streams[stream], answer, sizeof(answer),
		       clock_mono_ns() + within_ns(WITHIN_LONG_S)) &&
		memcmp(answer, expected, sizeof(answer)) == 0;
}

/* Expects rank 1 to join, and to answer each stream of rank 0. */
static void end_visit(struct visit *v)
{
	bool answered = true;

	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		answered = answered && is_answered(v, s);
	}
	atomic_store(&v->stop, !answered);
	pthread_join(v->thread, NULL);
	assert_true(answered);
	assert_int_equal(v->rv, 0);
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		close(v->streams[s]);
	}
	for (uint32_t i = 0; i < v->crowd_n; i++) {
		close(v->crowd[i]);
	}
	v->transport->close(v->transport);
	close(v->listener);
	freeaddrinfo(v->at);
}

/* A rank that was busy for a while finds all connections at once. */
static void who_has_greeted_is_not_sent_away(void **state)
{
	for (int stay = 0; stay < 2; stay++) {
		struct visit v;

		begin_visit(&v);
		connect_streams(&v);
		send_hellos(&v);
		send_crowd(&v, CROWD, stay == 1);
		pthread_create(&v.thread, NULL, join_visit, &v);
		end_visit(&v);
	}
}

/* A connection that was closed meanwhile does not occupy the entry of a rank that is about to send
 * its hello. */
static void who_is_gone_takes_no_place(void **state)
{
	struct visit v;

	begin_visit(&v);
	connect_streams(&v);
	send_crowd(&v, CROWD, false);
	pthread_create(&v.thread, NULL, join_visit, &v);
	await_taken(&v);
	send_hellos(&v);
	end_visit(&v);
}

/* The oldest silent connections are closed in favour of a rank that connects after them. */
static void who_is_silent_keeps_nobody_out(void **state)
{
	struct visit v;

	begin_visit(&v);
	send_crowd(&v, CROWD, true);
	connect_streams(&v);
	send_crowd(&v, FEW, true);
	pthread_create(&v.thread, NULL, join_visit, &v);
	await_taken(&v);
	send_hellos(&v);
	end_visit(&v);
}

/* ---- probes of missing ranks ---- */

#define ROUNDS 3u

/* Ranks 0 and 1 of three listen, and do not join. */
struct missing {
	char text[3][COLL_TCP_NAME];
	const char *names[3];
	int listeners[2];
	struct coll_transport *transport; /* rank 2 */
	atomic_bool stop;
	int rv;
	struct pawl_err err;
};

static void begin_missing(struct missing *m)
{
	memset(m, 0, sizeof(*m));
	for (uint32_t r = 0; r < 2; r++) {
		m->listeners[r] = coll_tcp_listen("127.0.0.1", 0, r, m->text[r], NULL);
		assert_true(m->listeners[r] >= 0);
	}
	assert_int_equal(coll_tcp_open(&m->transport, 2, 3, "127.0.0.1", m->text[2], NULL), 0);
	for (uint32_t r = 0; r < 3; r++) {
		m->names[r] = m->text[r];
	}
}

static void *join_missing(void *user)
{
	struct missing *m = user;

	m->rv = coll_tcp_join(m->transport, m->names, LONG_NS, &m->stop, &m->err);
	return NULL;
}

static void take_probe(int listener)
{
	struct pollfd ready = {.fd = listener, .events = POLLIN};
	int fd;

	assert_int_equal(poll(&ready, 1, (int)within_ms(WITHIN_LONG_S)), 1);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	close(fd);
}

/* Probes are sent in rounds, however fast the others answer, and whatever else wakes the waiting
 * rank. */
static void probes_come_in_rounds(void **state)
{
	struct missing m;
	pthread_t thread;
	int64_t begun_ns;

	begin_missing(&m);
	begun_ns = clock_mono_ns();
	pthread_create(&thread, NULL, join_missing, &m);
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		take_probe(m.listeners[0]);
		assert_true(clock_mono_ns() - begun_ns >= i * times_ns(TIME_TCP_PROBE));
		take_probe(m.listeners[1]);
	}
	atomic_store(&m.stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(m.rv, PAWL_ECANCELED);
	m.transport->close(m.transport);
	close(m.listeners[0]);
	close(m.listeners[1]);
}

/* Rank 1's kernel accepts no more connections. Rank 0 is gone, and is named nevertheless. */
static void who_does_not_answer_hides_nobody(void **state)
{
	struct missing m;
	int filling[4];

	begin_missing(&m);
	close(m.listeners[0]);
	assert_int_equal(listen(m.listeners[1], 0), 0);
	for (size_t i = 0; i < sizeof(filling) / sizeof(*filling); i++) {
		struct addrinfo *at = NULL;
		uint64_t nonce;

		assert_int_equal(coll_tcp_parse(m.text[1], &at, &nonce), 0);
		filling[i] = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)!connect(filling[i], at->ai_addr, at->ai_addrlen);
		freeaddrinfo(at);
	}
	join_missing(&m);
	assert_int_equal(m.rv, PAWL_EPEER);
	assert_non_null(strstr(m.err.msg, "rank 0, at 127.0.0.1:"));
	assert_non_null(strstr(m.err.msg, "is gone: nobody listens there"));
	for (size_t i = 0; i < sizeof(filling) / sizeof(*filling); i++) {
		close(filling[i]);
	}
	m.transport->close(m.transport);
	close(m.listeners[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_systems_but_bbr),
		cmocka_unit_test(what_is_asked_for),
		cmocka_unit_test(what_there_is_not),
		cmocka_unit_test(many_ranks),
		cmocka_unit_test(one_that_is_gone),
		cmocka_unit_test(who_has_greeted_is_not_sent_away),
		cmocka_unit_test(who_is_gone_takes_no_place),
		cmocka_unit_test(who_is_silent_keeps_nobody_out),
		cmocka_unit_test(probes_come_in_rounds),
		cmocka_unit_test(who_does_not_answer_hides_nobody),
	};

	/* Transports of one thread close one after the other. A silent connection is closed only in
	 * favour of others. Probes, which ranks send when they wait long, are sent in each of these
	 * tests. */
	test_times("tcp_goodbye=0.02,tcp_handshake=120,tcp_probe=0.2");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
