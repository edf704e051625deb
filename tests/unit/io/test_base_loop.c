/* The loop calls what is ready, when it is due, and never what was removed. */
#include "../lib/seed.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "io/loop.h"
#include "within.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#define TIMERS 40u

static uint64_t seed;
static struct loop *the_loop;

static int open_loop(void **state)
{
	return loop_open(&the_loop, NULL);
}

static int close_loop(void **state)
{
	loop_close(the_loop);
	return 0;
}

/* ---- timers ---- */

static struct loop_timer timers[TIMERS];
static unsigned fired[TIMERS]; /* in order of firing */
static unsigned fired_n;

static void record_fired(struct loop_timer *timer)
{
	assert_true(clock_mono_ns() >= timer->due_ns);
	assert_false(timer->active);
	fired[fired_n++] = (unsigned)(timer - timers);
}

static void stop_fired(struct loop_timer *timer)
{
	loop_stop(the_loop);
}

static void timers_fire_in_order(void **state)
{
	struct rng rng = {seed};
	struct loop_timer last = {.fired = stop_fired};
	int64_t start_ns = clock_mono_ns();
	unsigned moved = (unsigned)rng_below(&rng, TIMERS / 2);

	memset(timers, 0, sizeof(timers));
	fired_n = 0;
	for (unsigned i = 0; i < TIMERS; i++) {
		timers[i].fired = record_fired;
		loop_timer_start(the_loop, &timers[i],
			start_ns + (int64_t)rng_below(&rng, 20) * NS_PER_MS);
	}
	loop_timer_start(the_loop, &last, start_ns + 40 * NS_PER_MS);
	loop_timer_start(the_loop, &timers[moved], start_ns + 30 * NS_PER_MS);
	loop_timer_cancel(the_loop, &timers[TIMERS - 1]);
	loop_timer_cancel(the_loop, &timers[TIMERS - 1]); /* not active: does nothing */
	assert_int_equal(loop_run(the_loop, NULL), 0);
	assert_int_equal(fired_n, TIMERS - 1);
	for (unsigned i = 1; i < fired_n; i++) {
		int64_t a = timers[fired[i - 1]].due_ns;
		int64_t b = timers[fired[i]].due_ns;

		assert_true(a < b || (a == b && fired[i - 1] < fired[i]));
	}
	assert_int_equal(fired[fired_n - 1], moved);
}

static unsigned laps;

static void fire_again(struct loop_timer *timer)
{
	laps++;
	loop_timer_start(the_loop, timer, 0); /* due already */
}

static void count_and_stop(void *user)
{
	loop_stop(the_loop);
}

/* A timer that is always due does not starve the rest. */
static void eager_timer_starves_nobody(void **state)
{
	struct loop_timer eager = {.fired = fire_again};

	laps = 0;
	loop_timer_start(the_loop, &eager, 0);
	loop_on_wake(the_loop, count_and_stop, NULL);
	loop_wake(the_loop);
	assert_int_equal(loop_run(the_loop, NULL), 0);
	assert_in_range(laps, 1, 1000);
}

static void cancel_other(struct loop_timer *timer)
{
	loop_timer_cancel(the_loop, timer->user);
	loop_stop(the_loop);
}

static void timer_cancelled_by_another_does_not_fire(void **state)
{
	fired_n = 0;
	memset(timers, 0, sizeof(timers));
	timers[0] = (struct loop_timer){.fired = cancel_other, .user = &timers[1]};
	timers[1].fired = record_fired;
	loop_timer_start(the_loop, &timers[1], 2);
	loop_timer_start(the_loop, &timers[0], 1);
	assert_int_equal(loop_run(the_loop, NULL), 0);
	assert_int_equal(fired_n, 0);
}

/* ---- descriptors ---- */

struct pair {
	struct loop_source source; /* watches the reading end */
	int write_fd;
	struct pair *other;
	unsigned calls;
};

static void open_pair(struct pair *pair, void (*ready)(struct loop_source *, uint32_t))
{
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	*pair = (struct pair){.source = {.fd = fds[0], .ready = ready, .user = pair},
		.write_fd = fds[1]};
	assert_int_equal(loop_add(the_loop, &pair->source, EPOLLIN, NULL), 0);
}

static void close_pair(struct pair *pair)
{
	close(pair->source.fd);
	close(pair->write_fd);
}

static void read_one(struct loop_source *source, uint32_t events)
{
	struct pair *pair = source->user;
	char c;

	assert_true((events & EPOLLIN) != 0);
	assert_int_equal(read(source->fd, &c, 1), 1);
	pair->calls++;
	if (pair->calls == 3) {
		loop_stop(the_loop);
	}
}

static void ready_sources_are_called(void **state)
{
	struct pair pair;

	open_pair(&pair, read_one);
	assert_int_equal(write(pair.write_fd, "abc", 3), 3);
	assert_int_equal(loop_run(the_loop, NULL), 0);
	assert_int_equal(pair.calls, 3);
	loop_remove(the_loop, &pair.source);
	loop_remove(the_loop, &pair.source); /* a second removal does nothing */
	close_pair(&pair);
}

/* Removes both sources, from the callback of whichever is ready first, and scribbles over the other
 * to mimic a free. */
static void remove_both(struct loop_source *source, uint32_t events)
{
	struct pair *pair = source->user;
	struct pair *other = pair->other;

	pair->calls++;
	loop_remove(the_loop, &other->source);
	loop_remove(the_loop, source);
	memset(&other->source, 0xff, sizeof(other->source));
	loop_timer_start(the_loop, &timers[0], 0);
}

static void removed_source_is_not_called(void **state)
{
	struct pair pairs[2];
	int fds[2];

	memset(timers, 0, sizeof(timers));
	timers[0].fired = stop_fired;
	for (int i = 0; i < 2; i++) {
		open_pair(&pairs[i], remove_both);
		pairs[i].other = &pairs[1 - i];
		fds[i] = pairs[i].source.fd;
		assert_int_equal(write(pairs[i].write_fd, "x", 1), 1);
	}
	assert_int_equal(loop_run(the_loop, NULL), 0);
	assert_int_equal(pairs[0].calls + pairs[1].calls, 1);
	for (int i = 0; i < 2; i++) {
		close(fds[i]);
		close(pairs[i].write_fd);
	}
}

static void want_writing(struct loop_source *source, uint32_t events)
{
	struct pair *pair = source->user;

	pair->calls++;
	if ((events & EPOLLOUT) != 0) {
		loop_stop(the_loop);
		return;
	}
	assert_int_equal(loop_change(the_loop, source, EPOLLOUT, NULL), 0);
}

static void change_changes(void **state)
{
	struct pair pair;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	open_pair(&pair, want_writing);
	loop_remove(the_loop, &pair.source);
	close(pair.source.fd);
	pair.source.fd = fds[1]; /* always writable, never readable */
	assert_int_equal(loop_add(the_loop, &pair.source, EPOLLIN, NULL), 0);
	close(fds[0]); /* EPOLLERR is reported unasked */
	assert_int_equal(loop_run(the_loop, NULL), 0);
	assert_int_equal(pair.calls, 2);
	close_pair(&pair);
}

/* ---- waking ---- */

static unsigned wakes;

static void count_wake(void *user)
{
	wakes++;
	loop_stop(the_loop);
}

static void *wake_later(void *user)
{
	within_pace(0.005);
	loop_wake(the_loop);
	return NULL;
}

static void any_thread_wakes(void **state)
{
	pthread_t thread;

	wakes = 0;
	loop_on_wake(the_loop, count_wake, NULL);
	assert_int_equal(pthread_create(&thread, NULL, wake_later, NULL), 0);
	assert_int_equal(loop_run(the_loop, NULL), 0);
	pthread_join(thread, NULL);
	assert_int_equal(wakes, 1);
}

static void handle_alarm(int sig)
{
	loop_wake(the_loop);
}

static void signal_handler_wakes(void **state)
{
	struct sigaction action = {.sa_handler = handle_alarm};
	struct sigaction old;
	struct itimerval soon = {.it_value.tv_usec = 5000};

	wakes = 0;
	sigaction(SIGALRM, &action, &old);
	loop_on_wake(the_loop, count_wake, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	assert_int_equal(loop_run(the_loop, NULL), 0); /* EINTR does not end the loop */
	sigaction(SIGALRM, &old, NULL);
	assert_int_equal(wakes, 1);
}

/* ---- failures ---- */

static void failures_are_reported(void **state)
{
	struct loop *loop = NULL;
	struct loop_source bad = {.fd = -1};
	struct pawl_err err;

	assert_int_equal(loop_add(the_loop, &bad, EPOLLIN, &err), PAWL_EIO);
	assert_int_equal(err.sys, EBADF);
	for (uint64_t n = 1; n <= 4; n++) { /* memory, epoll, eventfd, its watch */
		fault_arm("loop.", n, EMFILE, false);
		assert_int_not_equal(loop_open(&loop, &err), 0);
	}
	fault_arm("loop.wait", 1, EINVAL, false);
	assert_int_equal(loop_run(the_loop, &err), PAWL_EIO);
	fault_disarm();
	assert_null(loop);
	loop_close(NULL);
}

static void stop_before_run_counts(void **state)
{
	struct loop_timer later = {.fired = stop_fired};

	loop_stop(the_loop);
	assert_int_equal(loop_run(the_loop, NULL), 0);
	loop_timer_start(the_loop, &later, clock_mono_ns() + NS_PER_MS);
	assert_int_equal(loop_run(the_loop, NULL), 0); /* the stop counts for one run only */
	assert_false(later.active);
}

#define LOOP_TEST(f) cmocka_unit_test_setup_teardown(f, open_loop, close_loop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOOP_TEST(timers_fire_in_order),
		LOOP_TEST(eager_timer_starves_nobody),
		LOOP_TEST(timer_cancelled_by_another_does_not_fire),
		LOOP_TEST(ready_sources_are_called),
		LOOP_TEST(removed_source_is_not_called),
		LOOP_TEST(change_changes),
		LOOP_TEST(any_thread_wakes),
		LOOP_TEST(signal_handler_wakes),
		LOOP_TEST(failures_are_reported),
		LOOP_TEST(stop_before_run_counts),
	};

	seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
