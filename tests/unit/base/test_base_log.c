/* A log line is one line, names its process and severity, and respects the level. stderr is a pipe
 * here. */
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static int pipe_fds[2];
static int real_stderr;
static char got[4096];

static void begin(void)
{
	assert_int_equal(pipe(pipe_fds), 0);
	real_stderr = dup(STDERR_FILENO);
	dup2(pipe_fds[1], STDERR_FILENO);
}

/* Returns what was written to stderr since begin. */
static const char *end(void)
{
	ssize_t n;

	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(pipe_fds[1]);
	n = read(pipe_fds[0], got, sizeof(got) - 1);
	got[n > 0 ? n : 0] = '\0';
	close(pipe_fds[0]);
	return got;
}

/* This test comes first, while the level is still to be looked up. */
static void level_comes_from_environment(void **state)
{
	setenv("PAWL_LOG", "warning", 1);
	begin();
	log_line(LOG_INFO, "hidden");
	log_line(LOG_WARNING, "seen");
	assert_string_equal(end(), "pawl: warning: seen\n");
	unsetenv("PAWL_LOG");
}

static void levels_and_names(void **state)
{
	log_set_level(LOG_INFO);
	begin();
	log_line(LOG_DEBUG, "hidden");
	log_line(LOG_INFO, "step %d", 5);
	log_line(LOG_ERROR, "bad");
	assert_string_equal(end(), "pawl: step 5\npawl: error: bad\n");
	log_set_level(LOG_DEBUG);
	log_set_name("rank 1");
	begin();
	log_line(LOG_DEBUG, "fine");
	log_line(LOG_INFO, "step");
	assert_string_equal(end(), "pawl: rank 1: debug: fine\npawl: rank 1: step\n");
	log_set_name("a name that is longer than thirty-one bytes");
	begin();
	log_line(LOG_INFO, "x");
	assert_string_equal(end(), "pawl: a name that is longer than thir: x\n");
	log_set_name("");
}

static void stays_one_line(void **state)
{
	char text[3000];
	const char *line;

	begin();
	log_line(LOG_INFO, "path a\nb\x1b[31m\x7f é");
	assert_string_equal(end(), "pawl: path a\\nb\\x1b[31m\\x7f é\n");
	begin();
	log_line(LOG_INFO,
		"tag \xe2\x80\xae"
		"a\xc2\x9b"
		"31m \xff");
	assert_string_equal(end(), "pawl: tag \\u202ea\\u009b31m \\xff\n");
	memset(text, '\n', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	begin();
	log_line(LOG_INFO, "%s", text);
	line = end();
	assert_in_range(strlen(line), 900, 1024);
	assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(level_comes_from_environment),
		cmocka_unit_test(levels_and_names),
		cmocka_unit_test(stays_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
