/* Lateness is reported as tests/lib/within.h promises: by one line, whoever it is that waits. Tests
 * that are late run in a process of their own: this program again. */
#include "within.h"

#include <fcntl.h>
#include <pthread.h>

#define TEXT_MAX 8192

static int looks;

static bool look(void)
{
	return ++looks > 3;
}

/* ---- what is late ---- */

static void waits_in_vain(void **state)
{
	WITHIN(0.01, looks < 0);
}

static void *wait_in_vain(void *user)
{
	waits_in_vain(NULL);
	return NULL;
}

static void what_it_has_is_lost(void **state)
{
	memset(malloc(5000), 1, 5000);
	waits_in_vain(NULL); /* NOLINT(clang-analyzer-unix.Malloc): to lose it is the test */
}

static void a_child_waits(void **state)
{
	pid_t pid = fork();

	if (pid == 0) {
		waits_in_vain(NULL);
	}
	WITHIN_CHILD(pid);
}

static void threads_wait(void **state)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, wait_in_vain, NULL), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
	}
}

static void a_call_times_out(void **state)
{
	assert_int_equal(IN_TIME(PAWL_EPEER), PAWL_EPEER);
	IN_TIME(PAWL_ETIMEDOUT);
}

static void a_value_is_wrong(void **state)
{
	assert_int_equal(looks, 1);
}

static const struct CMUnitTest late[] = {
	cmocka_unit_test(waits_in_vain),
	cmocka_unit_test(a_child_waits),
	cmocka_unit_test(what_it_has_is_lost),
	cmocka_unit_test(threads_wait),
	cmocka_unit_test(a_call_times_out),
	cmocka_unit_test(a_value_is_wrong),
};

/* ---- what is printed ---- */

/* Runs one of the tests above; text gets all that it prints. Returns its exit status. */
static int run(const char *name, const char *times, char *text)
{
	int ends[2];
	size_t used = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		setenv("PAWL_TEST_TIMES", times, 1);
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		execl("/proc/self/exe", "late", name, NULL);
		_exit(2);
	}
	close(ends[1]);
	while ((n = read(ends[0], text + used, TEXT_MAX - 1 - used)) > 0) {
		used += (size_t)n;
	}
	text[used] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &ends[0], 0), pid);
	assert_true(WIFEXITED(ends[0]));
	return WEXITSTATUS(ends[0]);
}

/* Counts the lines of the text that begin with begin. */
static int count(const char *text, const char *begin)
{
	int n = strncmp(text, begin, strlen(begin)) == 0;

	for (const char *at = strchr(text, '\n'); at; at = strchr(at + 1, '\n')) {
		n += strncmp(at + 1, begin, strlen(begin)) == 0;
	}
	return n;
}

static void one_line_reports_it(void **state)
{
	static const struct {
		const char *name, *times, *line;
		int status; /* exit status of the program; cmocka's is the number of failed tests */
	} rows[] = {
		{"waits_in_vain", "", "late: looks < 0: not within 0.01 s (", 1},
		{"waits_in_vain", "scale=4", "late: looks < 0: not within 0.04 s (", 1},
		{"waits_in_vain", "a=5,scale=2,b=3", "late: looks < 0: not within 0.02 s (", 1},
		{"waits_in_vain", "a=5,scale=nonsense", "late: looks < 0: not within 0.01 s (", 1},
		{"a_child_waits", "", "late: a child, which says why (", 1},
		{"what_it_has_is_lost", "", "late: looks < 0: not within 0.01 s (", 1},
		{"threads_wait", "", "late: looks < 0: not within 0.01 s (", WITHIN_STATUS},
		{"outside", "", "late: looks < 0: not within 0.01 s (", 255},
		{"a_call_times_out", "scale=2", "late: PAWL_ETIMEDOUT: not within 240 s (", 1},
	};
	char text[TEXT_MAX];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(run(rows[i].name, rows[i].times, text), rows[i].status);
		assert_int_equal(count(text, "late: "), 1);
		assert_int_equal(count(text, rows[i].line), 1);
		assert_int_equal(count(text, "[  FAILED  ] a_thread_of_the_test\n"),
			strcmp(rows[i].name, "threads_wait") == 0);
		assert_int_equal(count(text, "[  FAILED  ] outside_of_tests\n"),
			strcmp(rows[i].name, "outside") == 0);
		assert_null(strstr(text, "Sanitizer"));
		assert_int_equal(count(text, "in a child, late: looks < 0"),
			strcmp(rows[i].name, "a_child_waits") == 0);
	}
}

static void a_wrong_value_is_not_late(void **state)
{
	char text[TEXT_MAX];

	assert_int_equal(run("a_value_is_wrong", "", text), 1);
	assert_int_equal(count(text, "late: "), 0);
}

/* ---- what is no lateness ---- */

static void what_happens_is_not_late(void **state)
{
	int done = 0;

	looks = 0;
	WITHIN(WITHIN_LONG_S, look());
	assert_int_equal(looks, 4);
	looks = 0;
	WITHIN_DOING(WITHIN_LONG_S, look(), done++);
	assert_int_equal(done, 3);
}

/* The condition is checked once more although the time is over already. */
static void who_stood_still_looks_again(void **state)
{
	looks = 2;
	WITHIN(0, look());
	assert_int_equal(looks, 4);
}

static void times_that_nothing_happens_are_waited(void **state)
{
	int64_t begun_ns = clock_mono_ns();

	within_quiet(0.03);
	assert_true(clock_mono_ns() - begun_ns >= 30 * NS_PER_MS);
}

static void statuses_of_children_are_given(void **state)
{
	pid_t pid = fork();

	if (pid == 0) {
		_exit(3);
	}
	assert_int_equal(WEXITSTATUS(WITHIN_CHILD(pid)), 3);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_line_reports_it),
		cmocka_unit_test(a_wrong_value_is_not_late),
		cmocka_unit_test(what_happens_is_not_late),
		cmocka_unit_test(who_stood_still_looks_again),
		cmocka_unit_test(times_that_nothing_happens_are_waited),
		cmocka_unit_test(statuses_of_children_are_given),
	};

	if (argc > 1 && strcmp(argv[0], "late") == 0) {
		if (strcmp(argv[1], "outside") == 0) {
			waits_in_vain(NULL);
		}
		cmocka_set_test_filter(argv[1]);
		return cmocka_run_group_tests(late, NULL, NULL);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
