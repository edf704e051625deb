/* Connections between nodes, by real sockets: frames that arrive, peers that are refused, and no
 * leaks when either end closes at any moment. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/rng.h"
#include "base/times.h"
#include "io/loop.h"
#include "launch/nodes/node_net.h"
#include "launch/run_port.h"
#include "pawl/err.h"
#include "seed.h"
#include "within.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define TOKEN "sixteen bytes and more"
#define BATCH 200u
#define TRIES                                                                                      \
	3 /* attempts; one is void if this process stood still for TIME_NET_HELLO in its course */

/* One end of the connections, and what it has received. */
struct end {
	struct node_net *net;
	uint32_t conn;      /* newest connection */
	uint32_t connected; /* times that one was made */
	uint32_t frames;    /* frames received */
	uint32_t closed;    /* times that one was closed */
	uint64_t sum;       /* sum of the numbers in the frames */
	char why[256];      /* reason of the last close */
	uint32_t echo;      /* frames sent back for each one received */
};

static struct loop *loop;
static int port_fd = -1; /* a socket that keeps the port from all others */
static char port[8];
static struct node_place place = {"127.0.0.1", "127.0.0.1", port};
static struct end ends[2];
static uint64_t first_seed;

static void on_connected(void *user, uint32_t conn)
{
	struct end *end = user;

	end->connected++;
	assert_int_equal(conn, end->conn);
}

static void on_closed(void *user, uint32_t conn, const char *why)
{
	struct end *end = user;

	end->closed++;
	snprintf(end->why, sizeof(end->why), "%s", why);
}

static void on_frame(void *user, uint32_t conn, const struct node_frame *frame)
{
	struct end *end = user;

	end->conn = conn;
	end->frames++;
	end->sum += frame->commits;
	for (uint32_t i = 0; i < end->echo; i++) {
		node_net_send(end->net, conn, frame);
	}
}

static void on_due(struct loop_timer *timer)
{
	loop_stop(loop);
}

/* Turns the loop until *count is at least least, for at most 20 s. */
static void turn_until(const uint32_t *count, uint32_t least)
{
	int64_t until_ns = clock_mono_ns() + 20 * NS_PER_S;

	while (*count < least && clock_mono_ns() < until_ns) {
		struct loop_timer timer = {.fired = on_due};

		loop_timer_start(loop, &timer, clock_mono_ns() + NS_PER_MS);
		assert_int_equal(loop_run(loop, NULL), 0);
	}
	assert_true(*count >= least);
}

static void turn_for(int64_t ns)
{
	struct loop_timer timer = {.fired = on_due};

	loop_timer_start(loop, &timer, clock_mono_ns() + ns);
	assert_int_equal(loop_run(loop, NULL), 0);
}

static void choose_port(void)
{
	uint32_t number;

	assert_int_equal(run_port_hold(&port_fd, place.host, &number, NULL), 0);
	snprintf(port, sizeof(port), "%u", (unsigned)(uint16_t)number);
}

static void open_end(struct end *end, const char *token)
{
	const struct node_net_options options = {.loop = loop,
		.places = &place,
		.token = token,
		.connected = on_connected,
		.closed = on_closed,
		.frame = on_frame,
		.user = end};

	memset(end, 0, sizeof(*end));
	assert_int_equal(node_net_open(&end->net, &options, NULL), 0);
}

/* ends[0] listens. */
static void open_ends(const char *token, const char *other_token)
{
	struct pawl_err err;

	assert_int_equal(loop_open(&loop, NULL), 0);
	choose_port();
	open_end(&ends[0], token);
	open_end(&ends[1], other_token);
	assert_int_equal(node_net_listen(ends[0].net, 0, &err), 0);
	assert_int_equal(node_net_listen(ends[1].net, 0, &err), PAWL_EBUSY);
}

static void close_ends(void)
{
	node_net_close(ends[0].net);
	node_net_close(ends[1].net);
	loop_close(loop);
	close(port_fd);
	port_fd = -1;
}

static void send_one(struct end *end, uint64_t number)
{
	struct node_frame frame = {.kind = NODE_EXITED, .rank = 1, .commits = number};

	memset(frame.text, 'x', 300);
	node_net_send(end->net, end->conn, &frame);
}

static void connect_end(void)
{
	ends[1].connected = ends[1].closed = 0;
	ends[1].conn = node_net_connect(ends[1].net, 0);
}

/* Turns the loop until ends[1] is sent away or *count is not 0. Returns the latter. */
static bool turn_unless_closed(const uint32_t *count)
{
	int64_t until_ns = clock_mono_ns() + 20 * NS_PER_S;

	while (*count == 0 && ends[1].closed == 0 && clock_mono_ns() < until_ns) {
		turn_for(NS_PER_MS);
	}
	return *count > 0;
}

/* Connects ends[1], and waits until ends[0] has its first frame: no limit of time applies then. */
static void meet(void)
{
	bool met = false;
	bool late = true;

	for (int i = 0; i < TRIES && !met && late; i++) {
		int64_t begun_ns = clock_mono_ns();

		connect_end();
		if (turn_unless_closed(&ends[1].connected)) {
			send_one(&ends[1], 0);
			met = turn_unless_closed(&ends[0].frames);
		}
		late = clock_mono_ns() - begun_ns >= times_ns(TIME_NET_HELLO);
	}
	assert_true(met);
	ends[0].frames = 0;
}

static void frames_arrive_in_order_and_whole(void **state)
{
	open_ends(TOKEN, TOKEN);
	meet();
	ends[0].echo = 1;
	for (uint32_t i = 1; i <= BATCH; i++) {
		send_one(&ends[1], i);
	}
	turn_until(&ends[1].frames, BATCH);
	assert_int_equal(ends[0].sum, BATCH * (BATCH + 1) / 2);
	assert_int_equal(ends[1].sum, ends[0].sum);
	node_net_drop(ends[1].net, ends[1].conn);
	turn_until(&ends[0].closed, 1);
	assert_string_equal(ends[0].why, "its connection ended");
	assert_int_equal(ends[1].closed, 0); /* the end that drops it gets no event */
	close_ends();
}

/* What was sent before a connection is dropped gets there. */
static void the_last_frame_arrives(void **state)
{
	open_ends(TOKEN, TOKEN);
	meet();
	send_one(&ends[1], 2); /* under way, and never read by the one that drops */
	send_one(&ends[0], 7);
	node_net_drop(ends[0].net, ends[0].conn);
	turn_until(&ends[1].closed, 1);
	assert_int_equal(ends[1].sum, 7);
	close_ends();
}

static void be_sent_away(const char *why)
{
	bool late = true;

	for (int i = 0; i < TRIES && late; i++) {
		int64_t begun_ns = clock_mono_ns();

		connect_end();
		turn_until(&ends[1].closed, 1);
		late = strcmp(ends[1].why, why) != 0 &&
			clock_mono_ns() - begun_ns >= times_ns(TIME_NET_HELLO);
	}
	assert_string_equal(ends[1].why, why);
}

static void tokens_must_be_the_same(void **state)
{
	static const struct {
		const char *one, *other, *why;
	} cases[] = {{TOKEN, "sixteen bytes and more!", "its token is a different one"},
		{TOKEN, NULL, "it has a token, and this node has none (PAWL_TOKEN)"},
		{NULL, TOKEN, "it has no token, and this node has one (PAWL_TOKEN)"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_ends(cases[i].one, cases[i].other);
		be_sent_away(cases[i].why);
		assert_int_equal(ends[1].connected, 0);
		turn_for(100 * NS_PER_MS);
		assert_int_equal(ends[0].closed, 0); /* ends[0] never knew of the connection */
		close_ends();
	}
	open_ends(NULL, NULL);
	meet();
	close_ends();
}

static int connect_raw(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
		.sin_addr = {htonl(INADDR_LOOPBACK)},
		.sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* Strangers send any bytes, in pieces, and leave at any time; the nodes are not affected. */
static void strangers_do_no_harm(void **state)
{
	/* a greeting, and how TLS begins */
	static const uint8_t start[] = {'p', 'a', 'w', 'l', '-', 'r', NODE_NET_VERSION, 1, 0x16, 3,
		1};
	struct rng rng = {first_seed};
	uint8_t bytes[600];

	open_ends(TOKEN, TOKEN);
	meet();
	ends[0].echo = 1;
	for (uint32_t i = 0; i < 150; i++) {
		size_t len = rng_below(&rng, sizeof(bytes));
		int fd = connect_raw();

		for (size_t b = 0; b < len; b++) {
			bytes[b] = (uint8_t)rng_u64(&rng);
		}
		memcpy(bytes, start, rng_below(&rng, sizeof(start) + 1));
		for (size_t at = 0; at < len;) {
			size_t n = 1 + rng_below(&rng, len - at);

			at += n;
			turn_for(NS_PER_MS / 10);
			if (send(fd, bytes + at - n, n, MSG_NOSIGNAL) < 0) {
				break; /* sent away */
			}
		}
		send_one(&ends[1], 1);
		turn_until(&ends[1].frames, i + 1);
		close(fd);
	}
	assert_int_equal(ends[0].closed, 0);
	assert_int_equal(ends[1].closed, 0);
	close_ends();
}

/* Turns the loop until the other end of fd has sent a byte. */
static void turn_until_greeted(int fd)
{
	char byte;

	WITHIN_DOING(WITHIN_LONG_S, recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1,
		turn_for(NS_PER_MS));
}

/* Strangers send these bytes, and then nothing. */
static void crowd(const char *token, const char *hello, size_t hello_bytes)
{
	int fds[NET_STRANGERS_MAX + 10];
	char byte;

	open_ends(token, token);
	meet();
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		fds[i] = connect_raw();
		assert_int_equal(send(fds[i], hello, hello_bytes, MSG_NOSIGNAL), hello_bytes);
		turn_for(NS_PER_MS);
	}
	turn_until_greeted(fds[sizeof(fds) / sizeof(fds[0]) - 1]);
	assert_int_equal(recv(fds[0], &byte, 1, MSG_DONTWAIT), 1); /* the greeting of ends[0] */
	while (recv(fds[0], &byte, 1, MSG_DONTWAIT) == 1) {
	}
	assert_true(recv(fds[0], &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
	send_one(&ends[1], 1);
	turn_until(&ends[0].frames, 1);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		close(fds[i]);
	}
	close_ends();
}

/* Too many strangers that send nothing are disconnected at once, the oldest first. */
static void silent_strangers_make_room(void **state)
{
	crowd(TOKEN, "", 0);
}

/* Strangers that send only the greeting, which needs no secret, are disconnected as well. */
static void strangers_who_greet_make_room(void **state)
{
	static const char hello[] = {'p', 'a', 'w', 'l', '-', 'r', NODE_NET_VERSION, 0};

	crowd(NULL, hello, sizeof(hello));
}

/* A node that does not read is lost, and holds up nobody. */
static void who_does_not_read_is_lost(void **state)
{
	open_ends(TOKEN, TOKEN);
	meet();
	for (uint32_t i = 0; i < 20000; i++) {
		send_one(&ends[0], 1); /* the loop does not turn: nobody reads */
	}
	turn_until(&ends[0].closed, 1);
	assert_string_equal(ends[0].why, "it does not read what it is sent");
	close_ends();
}

/* Each allocation and each call that can fail fails once: that is an error, or the node does
 * without. */
static void what_the_system_refuses(void **state)
{
	static const char *const points[] = {"node.conn", "tls.session", "node.connect",
		"wire.grow"};

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		for (uint64_t nth = 1; nth <= 2; nth++) {
			assert_int_equal(loop_open(&loop, NULL), 0);
			choose_port();
			open_end(&ends[0], TOKEN);
			open_end(&ends[1], TOKEN);
			assert_int_equal(node_net_listen(ends[0].net, 0, &(struct pawl_err){0}), 0);
			fault_arm(points[i], nth, ENOMEM, false);
			ends[1].conn = node_net_connect(ends[1].net, 0);
			turn_for(50 * NS_PER_MS);
			send_one(&ends[1], 1);
			turn_for(50 * NS_PER_MS);
			fault_disarm();
			close_ends();
		}
	}
	fault_arm("node.net", 1, ENOMEM, false);
	assert_int_equal(
		node_net_open(&ends[0].net, &(struct node_net_options){.places = &place}, NULL),
		PAWL_ENOMEM);
	fault_arm("tls.open", 2, ENOMEM, false);
	assert_int_equal(
		node_net_open(&ends[0].net, &(struct node_net_options){.places = &place}, NULL),
		PAWL_EIO);
	fault_disarm();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_arrive_in_order_and_whole),
		cmocka_unit_test(the_last_frame_arrives),
		cmocka_unit_test(tokens_must_be_the_same),
		cmocka_unit_test(strangers_do_no_harm),
		cmocka_unit_test(silent_strangers_make_room),
		cmocka_unit_test(strangers_who_greet_make_room),
		cmocka_unit_test(who_does_not_read_is_lost),
		cmocka_unit_test(what_the_system_refuses),
	};

	const struct sigaction ignore = {.sa_handler = SIG_IGN};

	sigaction(SIGPIPE, &ignore, NULL); /* as `pawl run` has it */
	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
