/* Programs that are run for what they print. */
#include "../lib/expect.h"
#include "base/clock.h"
#include "base/err.h"
#include "io/command.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct pawl_err err;

static int run(const char *script, int64_t limit_ns, char **text)
{
	const char *const argv[] = {"sh", "-c", script, NULL};

	*text = NULL;
	return command_run(&(struct command){argv, NULL, limit_ns, 100}, text, &err);
}

static void what_is_printed_is_returned(void **state)
{
	const char *const argv[] = {"sh", "-c", "echo \"$A\"; cat", NULL};
	const char *const env[] = {"A=b", "PATH=/usr/bin:/bin", NULL};
	char *text;

	OK(run("printf 'one\\ntwo'", 10 * NS_PER_S, &text));
	assert_string_equal(text, "one\ntwo");
	free(text);
	OK(run(":", 10 * NS_PER_S, &text));
	assert_string_equal(text, "");
	free(text);
	/* A program finds its input empty. */
	OK(command_run(&(struct command){argv, env, 10 * NS_PER_S, 100}, &text, &err));
	assert_string_equal(text, "b\n");
	free(text);
}

static void failures_are_named(void **state)
{
	const char *const none[] = {"no-such-program", NULL};
	char *text;

	FAILS(PAWL_EIO, run("echo secret; exit 3", 10 * NS_PER_S, &text));
	SAYS("it failed with status 3");
	assert_null(strstr(err.msg, "secret"));
	assert_null(text);
	FAILS(PAWL_EIO, run("kill -9 $$", 10 * NS_PER_S, &text));
	SAYS("it failed with signal 9");
	FAILS(PAWL_ELIMIT, run("yes", 10 * NS_PER_S, &text));
	SAYS("more than 100 bytes");
	FAILS(PAWL_ENOENT, command_run(&(struct command){none, NULL, NS_PER_S, 100}, &text, &err));
	SAYS("run no-such-program");
}

/* Also where a child of its own holds the output open. */
static void a_program_that_does_not_end_is_killed(void **state)
{
	char *text;

	FAILS(PAWL_ETIMEDOUT, run("sleep 100", 50 * NS_PER_MS, &text));
	FAILS(PAWL_ETIMEDOUT, run("sleep 100 & sleep 100", 50 * NS_PER_MS, &text));
	FAILS(PAWL_ETIMEDOUT, run("sleep 100 & exit 0", 50 * NS_PER_MS, &text));
	assert_null(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_printed_is_returned),
		cmocka_unit_test(failures_are_named),
		cmocka_unit_test(a_program_that_does_not_end_is_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
