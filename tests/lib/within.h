/*
 * How tests wait, and how they distinguish lateness from errors.
 *
 * A test waits for an event that must happen by WITHIN(seconds, condition). When the time is over,
 * the test fails and prints one line:
 *   late: <condition>: not within 120 s (file:line)
 * The line shows a reader that no value was wrong: the machine may have been too busy.
 *
 * A process that a test has forked cannot fail the test: it prints "in a child, late: …" and exits
 * with WITHIN_STATUS, and WITHIN_CHILD in its parent fails with a line of its own. A thread cannot
 * fail the test either, nor can code outside of tests: they print the line, and one like cmocka's
 * for a failed test, and end the program.
 *
 * PAWL_TEST_TIMES="scale=4" makes all these times four times as long. It may also contain times of
 * the library, separated by commas.
 */
#ifndef TEST_WITHIN_H
#define TEST_WITHIN_H

#include "base/clock.h"
#include "pawl/err.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define WITHIN_LONG_S 120.0 /* for events that must happen, even on a busy machine */
#define WITHIN_STATUS 75    /* exit status of a process that was late */

/* ---- times ---- */

static inline double within_scale(void)
{
	const char *at = getenv("PAWL_TEST_TIMES");
	double scale = 1;

	while (at) {
		scale = strncmp(at, "scale=", 6) == 0 ? strtod(at + 6, NULL) : scale;
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return scale > 0 ? scale : 1;
}

/* Scales a time for calls that have a timeout, see IN_TIME. */
static inline int64_t within_ns(double seconds)
{
	return (int64_t)(seconds * within_scale() * NS_PER_S);
}

static inline uint32_t within_ms(double seconds)
{
	return (uint32_t)(within_ns(seconds) / NS_PER_MS);
}

static inline void within_sleep_ns(int64_t ns)
{
	struct timespec left = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};

	while (nanosleep(&left, &left) != 0 && errno == EINTR) {
	}
}

/* Pauses between two checks, or two actions; on a busy machine it may take any time. */
static inline void within_pace(double seconds)
{
	within_sleep_ns((int64_t)(seconds * NS_PER_S));
}

/* Waits while something must not happen; the caller checks afterwards. */
static inline void within_quiet(double seconds)
{
	within_sleep_ns(within_ns(seconds));
}

/* ---- being late ---- */

static pid_t within_test; /* the process that can fail a test */

__attribute__((constructor)) static void within_start(void)
{
	within_test = getpid();
}

/* Marks a process that a test has started by exec as a child. */
static inline void within_be_child(void)
{
	within_test = 0;
}

/* Ends the program after a failure. Memory that the failed test leaves behind is no leak, so no
 * sanitizer may report it at the end. */
static inline void within_exit(int status, void *user)
{
	if ((status & 0xff) == 0xff) { /* cmocka ends the program like this where no test runs */
		dprintf(STDERR_FILENO, "[  FAILED  ] outside_of_tests\n");
	}
	fflush(NULL);
	_exit(status);
}

/* Fails the test as late. seconds, unscaled, were not enough; negative: there was no time limit. */
__attribute__((noreturn)) static inline void within_late(const char *what, double seconds,
	const char *file, int line)
{
	static bool reported; /* set by the thread that reports; the others stay silent */
	bool child = getpid() != within_test;
	bool thread = gettid() != getpid();
	char limit[48] = "";

	while (thread && __atomic_exchange_n(&reported, true, __ATOMIC_RELAXED)) {
		pause();
	}
	if (seconds >= 0) {
		snprintf(limit, sizeof(limit), ": not within %g s", seconds * within_scale());
	}
	dprintf(STDERR_FILENO, "%slate: %s%s (%s:%d)\n", child ? "in a child, " : "", what, limit,
		file, line);
	if (!child && !thread) {
		on_exit(within_exit, NULL);
		_fail(file, line);
	}
	if (!child) {
		dprintf(STDERR_FILENO, "[  FAILED  ] a_thread_of_the_test\n");
	}
	_exit(WITHIN_STATUS);
}

/* Fails as late after enough tries. */
#define FAIL_LATE(what) within_late(what, -1, __FILE__, __LINE__)

/* A time limit that is running. */
struct within {
	double seconds; /* unscaled */
	int64_t end_ns;
	bool last; /* the time is up, and one more check was made */
};

static inline struct within within_begin(double seconds)
{
	return (struct within){.seconds = seconds, .end_ns = clock_mono_ns() + within_ns(seconds)};
}

/* Returns whether the time is up; call it once after each check. There is always one check after
 * the end, however long the test was stopped. */
static inline bool within_over(struct within *within)
{
	bool over = within->last;

	within->last = clock_mono_ns() >= within->end_ns;
	return over;
}

static inline void within_check(struct within *within, const char *what, const char *file, int line)
{
	if (within_over(within)) {
		within_late(what, within->seconds, file, line);
	}
}

/* Waits for a condition, and runs a statement between two checks. */
#define WITHIN_DOING(seconds, condition, ...)                                                      \
	do {                                                                                       \
		struct within within_ = within_begin(seconds);                                     \
                                                                                                   \
		while (!(condition)) {                                                             \
			within_check(&within_, #condition, __FILE__, __LINE__);                    \
			__VA_ARGS__;                                                               \
		}                                                                                  \
	} while (0)

#define WITHIN(seconds, condition) WITHIN_DOING(seconds, condition, within_pace(0.001))

static __thread int64_t within_called_ns; /* time at which the thread's last call began */

static inline void within_call(void)
{
	within_called_ns = clock_mono_ns();
}

/* Checks a result for lateness. Some calls report a peer that does not come in time as lost. */
static inline int within_in_time(int rv, const char *what, const char *file, int line)
{
	int64_t took_ns = clock_mono_ns() - within_called_ns;

	if (rv == PAWL_ETIMEDOUT || (rv != 0 && took_ns >= within_ns(WITHIN_LONG_S))) {
		within_late(what, WITHIN_LONG_S, file, line);
	}
	return rv;
}

/* Calls a function that was given WITHIN_LONG_S as its timeout, which must be enough. */
#define IN_TIME(call) (within_call(), within_in_time(call, #call, __FILE__, __LINE__))

/* Waits for a child's end, and kills a child that does not end. */
static inline int within_child(pid_t pid, const char *file, int line)
{
	struct within within = within_begin(WITHIN_LONG_S);
	int status = 0;
	pid_t ended;

	while ((ended = waitpid(pid, &status, WNOHANG)) == 0) {
		if (within_over(&within)) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			within_late("the end of a child", within.seconds, file, line);
		}
		within_pace(0.001);
	}
	assert_int_equal(ended, pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == WITHIN_STATUS) {
		within_late("a child, which says why", -1, file, line);
	}
	return status;
}

/* Returns the status that waitpid gives. */
#define WITHIN_CHILD(pid) within_child(pid, __FILE__, __LINE__)

#endif
