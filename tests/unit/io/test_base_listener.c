/* A listening socket whose connections cannot be accepted costs no time meanwhile, and is polled
 * again once they can. */
#include "base/err.h"
#include "base/fault.h"
#include "io/listener.h"
#include "times.h"
#include "within.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct loop *loop;
static struct listener listener;
static struct sockaddr_in at;
static uint32_t came; /* connections accepted */

static void on_connect(struct listener *l, int fd, const struct sockaddr *from, socklen_t len)
{
	assert_ptr_equal(l, &listener);
	assert_int_equal(from->sa_family, AF_INET);
	assert_int_equal(len, sizeof(at));
	came++;
	close(fd);
}

static void on_due(struct loop_timer *timer)
{
	loop_stop(loop);
}

static void turn(void)
{
	struct loop_timer timer = {.fired = on_due};

	loop_timer_start(loop, &timer, clock_mono_ns() + NS_PER_MS);
	assert_int_equal(loop_run(loop, NULL), 0);
}

static int set_up(void **state)
{
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	came = 0;
	at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	listener = (struct listener){.what = "a test", .accepted = on_connect};
	assert_int_equal(loop_open(&loop, NULL), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	return listener_start(&listener, loop, fd, NULL);
}

static int tear_down(void **state)
{
	fault_disarm();
	listener_stop(&listener);
	listener_stop(&listener); /* a second stop does nothing */
	loop_close(loop);
	return 0;
}

static int connect_one(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void who_comes_is_given_out(void **state)
{
	int first = connect_one();
	int second = connect_one();

	WITHIN_DOING(WITHIN_LONG_S, came == 2, turn());
	close(first);
	close(second);
}

/* The socket is ready all the time: a loop that polled it would try thousands of times. */
static void want_of_descriptors_costs_no_time(void **state)
{
	static const int wants[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS};

	for (size_t i = 0; i < sizeof(wants) / sizeof(*wants); i++) {
		int fd = connect_one();
		int64_t begun_ns = clock_mono_ns();
		uint64_t tries;

		came = 0;
		fault_arm("listener.accept", 1, wants[i], true);
		WITHIN_DOING(WITHIN_LONG_S, fault_count() >= 3, turn()); /* again and again */
		tries = fault_count();
		assert_true(tries <=
			2 + (uint64_t)((clock_mono_ns() - begun_ns) / times_ns(TIME_LISTEN_AGAIN)));
		assert_int_equal(came, 0);
		fault_disarm();
		WITHIN_DOING(WITHIN_LONG_S, came == 1, turn());
		close(fd);
	}
}

/* The connection is not lost either when the loop cannot poll the socket again, once or more
 * often. */
static void it_is_taken_back_in_the_end(void **state)
{
	int fd = connect_one();

	fault_arm("listener.accept", 1, EMFILE, false);
	WITHIN_DOING(WITHIN_LONG_S, listener.accept_failing, turn());
	fault_arm("loop.control", 1, ENOMEM, true);
	WITHIN_DOING(WITHIN_LONG_S, fault_count() >= 2, turn());
	assert_int_equal(came, 0);
	fault_disarm();
	WITHIN_DOING(WITHIN_LONG_S, came == 1, turn());
	close(fd);
}

/* A listener that is stopped while it rests fires nothing any more. */
static void it_can_be_stopped_while_it_rests(void **state)
{
	int fd = connect_one();

	fault_arm("listener.accept", 1, EMFILE, false);
	WITHIN_DOING(WITHIN_LONG_S, listener.accept_failing, turn());
	listener_stop(&listener);
	memset(&listener, 0, sizeof(listener));
	within_pace(0.06);
	turn();
	assert_int_equal(came, 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_comes_is_given_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(want_of_descriptors_costs_no_time, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(it_is_taken_back_in_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(it_can_be_stopped_while_it_rests, set_up,
			tear_down),
	};

	test_times("listen_again=0.03");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
