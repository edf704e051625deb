/* The table of waiting times: its values, how the environment changes them, and that an error there
 * is printed and ends the process. */
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct {
	const char *name;
	const char *text;
	int64_t ns;
	const char *what;
} rows[] = {
#define X(name, text, ns, seen, what) {#name, text, ns, what},
	TIMES(X)
#undef X
};

static void names_are_those_of_the_code(void **state)
{
	for (int i = 0; i < TIMES_N; i++) {
		size_t len = strlen(rows[i].text);

		assert_int_equal(len, strlen(rows[i].name));
		for (size_t c = 0; c < len; c++) {
			bool letter = rows[i].text[c] >= 'a' && rows[i].text[c] <= 'z';

			assert_int_equal(rows[i].name[c],
				letter ? rows[i].text[c] - 'a' + 'A' : '_');
			assert_true(letter || rows[i].text[c] == '_');
		}
		assert_string_not_equal(rows[i].text, "scale");
		assert_int_equal(rows[i].what[strlen(rows[i].what) - 1], '.');
	}
}

static void defaults_hold_without_a_word(void **state)
{
	int64_t ns[TIMES_N];

	assert_int_equal(times_read(NULL, ns, NULL), 0);
	for (int i = 0; i < TIMES_N; i++) {
		assert_int_equal(ns[i], rows[i].ns);
		assert_true(ns[i] > 0);
	}
	assert_int_equal(times_read("", ns, NULL), 0);
	assert_int_equal(ns[TIME_HEARTBEAT], rows[TIME_HEARTBEAT].ns);
}

static void times_beyond_the_range_are_its_end(void **state)
{
	assert_int_equal(clock_ns_of(1.5), 1500 * NS_PER_MS);
	assert_int_equal(clock_ns_of(0), 0);
	assert_int_equal(clock_ns_of(-1), 0);
	assert_int_equal(clock_ns_of(NAN), 0);
	assert_true(clock_ns_of(9.2e9) < INT64_MAX);
	assert_int_equal(clock_ns_of(9.3e9), INT64_MAX); /* 292 years are 9.22e9 s */
	assert_int_equal(clock_ns_of(1e300), INT64_MAX);
	assert_int_equal(clock_ns_of(INFINITY), INT64_MAX);
	assert_int_equal(clock_add_ns(5, 7), 12);
	assert_int_equal(clock_add_ns(5, -7), -2);
	assert_int_equal(clock_add_ns(0, INT64_MAX), INT64_MAX);
	assert_int_equal(clock_add_ns(5, INT64_MAX - 5), INT64_MAX);
	assert_int_equal(clock_add_ns(5, INT64_MAX - 4), INT64_MAX);
	assert_int_equal(clock_add_ns(5, INT64_MAX - 6), INT64_MAX - 1);
}

static void names_are_set_and_the_rest_is_scaled(void **state)
{
	int64_t ns[TIMES_N];

	assert_int_equal(times_read("due_again=0.05,session_gone=0.2", ns, NULL), 0);
	assert_int_equal(ns[TIME_DUE_AGAIN], 50 * NS_PER_MS);
	assert_int_equal(ns[TIME_SESSION_GONE], 200 * NS_PER_MS);
	assert_int_equal(ns[TIME_HEARTBEAT], rows[TIME_HEARTBEAT].ns);

	/* The word scale may stand anywhere. */
	assert_int_equal(times_read("due_again=0.05,scale=4,session_gone=0.2", ns, NULL), 0);
	for (int i = 0; i < TIMES_N; i++) {
		int64_t expected_ns = i == TIME_DUE_AGAIN ? 50 * NS_PER_MS
			: i == TIME_SESSION_GONE          ? 200 * NS_PER_MS
							  : 4 * rows[i].ns;

		assert_int_equal(ns[i], expected_ns);
	}
	assert_int_equal(times_read("scale=1e-12", ns, NULL), 0);
	for (int i = 0; i < TIMES_N; i++) {
		assert_true(ns[i] > 0);
	}
	assert_int_equal(times_read("scale=1e6", ns, NULL), 0);
	for (int i = 0; i < TIMES_N; i++) {
		assert_int_equal(ns[i], 1000000 * rows[i].ns);
	}
}

static void what_is_wrong_is_named(void **state)
{
	static const struct {
		const char *text;
		const char *named;
	} wrong[] = {
		{"session_gon=0.2", "session_gon: there is no time of this name"},
		{"due_again=1,SESSION_GONE=1", "SESSION_GONE: there is no time"},
		{"heart=1", "heart: there is no time"},
		{"heartbeats=1", "heartbeats: there is no time"},
		{"heartbeat=1,", ": there is no time"},
		{",heartbeat=1", ": there is no time"},
		{"0.5", "0.5: there is no time"},
		{" heartbeat=1", " heartbeat: there is no time"},
		{"heartbeat", "heartbeat: not a positive number"},
		{"heartbeat=", "heartbeat=: not a positive number"},
		{"heartbeat=0", "heartbeat=0: not a positive number"},
		{"heartbeat=-1", "heartbeat=-1: not a positive number"},
		{"heartbeat=nan", "heartbeat=nan: not a positive number"},
		{"heartbeat=inf", "heartbeat=inf: not a positive number"},
		{"heartbeat=1e10", "heartbeat=1e10: not a positive number"},
		{"heartbeat=1s", "heartbeat=1s: not a positive number"},
		{"heartbeat=1 ,due_again=1", "heartbeat=1 : not a positive number"},
		{"due_again=1,scale=0", "scale=0: not a positive number"},
		{"scale=1e7", "scale=1e7: not a positive number"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int64_t ns[TIMES_N] = {-1};
		struct pawl_err err = {0};

		assert_int_equal(times_read(wrong[i].text, ns, &err), PAWL_EINVAL);
		assert_non_null(strstr(err.msg, wrong[i].named));
		assert_non_null(strstr(err.msg, "PAWL_TEST_TIMES"));
		assert_int_equal(ns[0], -1);
	}
}

/* Runs ask in a process that has looked up no time yet. Returns its exit status; output gets what
 * it prints. */
static int ask_in_child(const char *times, void (*ask)(void), char output[512])
{
	int pipe_fds[2];
	size_t len = 0;
	ssize_t n;
	pid_t pid;
	int status;

	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		dup2(pipe_fds[1], STDERR_FILENO);
		setenv(TIMES_ENV, times, 1);
		ask();
		_exit(0);
	}
	assert_true(pid > 0);
	close(pipe_fds[1]);
	while ((n = read(pipe_fds[0], output + len, 511 - len)) > 0) {
		len += (size_t)n;
	}
	output[len] = '\0';
	close(pipe_fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void ask_all_ways(void)
{
	struct timeval tv;
	bool good;

	good = times_ns(TIME_HEARTBEAT) == 1500 * NS_PER_MS + 1;
	good = good && times_ms(TIME_HEARTBEAT) == 1501;
	good = good && times_s(TIME_HEARTBEAT) == 2;
	tv = times_timeval(TIME_HEARTBEAT);
	good = good && tv.tv_sec == 1 && tv.tv_usec == 500001;
	good = good && times_ns(TIME_DUE_AGAIN) == rows[TIME_DUE_AGAIN].ns / 2;
	setenv(TIMES_ENV, "heartbeat=3", 1); /* too late, as the environment is read once */
	good = good && times_ns(TIME_HEARTBEAT) == 1500 * NS_PER_MS + 1;
	_exit(good ? 17 : 1);
}

static void sleep_a_little(void)
{
	int64_t begun_ns = clock_mono_ns();

	times_sleep(TIME_SESSION_PAUSE);
	_exit(clock_mono_ns() - begun_ns >= 20 * NS_PER_MS ? 17 : 1);
}

static void ask(void)
{
	times_ns(TIME_HEARTBEAT);
}

static void the_environment_is_read_once(void **state)
{
	char output[512];

	assert_int_equal(ask_in_child("heartbeat=1.500000001,scale=0.5", ask_all_ways, output), 17);
	assert_string_equal(output, "");
	assert_int_equal(ask_in_child("session_pause=0.02", sleep_a_little, output), 17);
}

static void a_wrong_environment_ends_the_process(void **state)
{
	char output[512];

	assert_int_equal(ask_in_child("heartbeet=1", ask, output), 2);
	assert_non_null(strstr(output, "error"));
	assert_non_null(
		strstr(output, "PAWL_TEST_TIMES: heartbeet: there is no time of this name"));
	assert_int_equal(ask_in_child("heartbeat=-1", ask, output), 2);
	assert_non_null(strstr(output, "heartbeat=-1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_those_of_the_code),
		cmocka_unit_test(defaults_hold_without_a_word),
		cmocka_unit_test(times_beyond_the_range_are_its_end),
		cmocka_unit_test(names_are_set_and_the_rest_is_scaled),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(the_environment_is_read_once),
		cmocka_unit_test(a_wrong_environment_ends_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
