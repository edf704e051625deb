/* Errors carry their code, their cause and what was being done; nothing overflows; NULL is fine. */
#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void set_fills_and_returns(void **state)
{
	struct pawl_err err = {.sys = 7};

	assert_int_equal(pawl_err_set(&err, PAWL_EBUSY, "open %s %d", "x", 3), PAWL_EBUSY);
	assert_int_equal(err.code, PAWL_EBUSY);
	assert_int_equal(err.sys, 0);
	assert_string_equal(err.msg, "open x 3");
	assert_int_equal(pawl_err_set(NULL, PAWL_EBUSY, "open"), PAWL_EBUSY);
}

static void sys_translates(void **state)
{
	static const struct {
		int sys;
		int code;
	} cases[] = {
		{ENOSPC, PAWL_ENOSPC},
		{EDQUOT, PAWL_ENOSPC},
		{ENOENT, PAWL_ENOENT},
		{EEXIST, PAWL_EEXIST},
		{ENOTEMPTY, PAWL_EEXIST},
		{ENOMEM, PAWL_ENOMEM},
		{ETIMEDOUT, PAWL_ETIMEDOUT},
		{EIO, PAWL_EIO},
		{EROFS, PAWL_EIO},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pawl_err err;

		errno = cases[i].sys;
		assert_int_equal(pawl_err_sys(&err, "write %s", "optim"), cases[i].code);
		assert_int_equal(err.code, cases[i].code);
		assert_int_equal(err.sys, cases[i].sys);
		assert_memory_equal(err.msg, "write optim: ", 13);
		assert_string_equal(err.msg + 13, strerror(cases[i].sys));
		errno = cases[i].sys;
		assert_int_equal(pawl_err_sys(NULL, "write"), cases[i].code);
	}
}

static void prefix_adds_context(void **state)
{
	struct pawl_err err;

	errno = ENOSPC;
	pawl_err_sys(&err, "write %s", "optim");
	assert_int_equal(pawl_err_prefix(&err, err.code, "save step %d", 1200), PAWL_ENOSPC);
	assert_string_equal(err.msg, "save step 1200: write optim: No space left on device");
	assert_int_equal(err.sys, ENOSPC);
	assert_int_equal(pawl_err_prefix(NULL, PAWL_EIO, "save"), PAWL_EIO);
	/* The prefix may contain the message that it is put before. */
	pawl_err_set(&err, PAWL_EIO, "a");
	pawl_err_prefix(&err, err.code, "<%s>", err.msg);
	assert_string_equal(err.msg, "<a>: a");
}

static void long_messages_are_cut(void **state)
{
	char text[2 * PAWL_ERR_MSG_MAX];

	for (size_t n = PAWL_ERR_MSG_MAX - 40; n < sizeof(text) - 1; n += 7) {
		struct {
			struct pawl_err err;
			char guard;
		} e = {.guard = 'g'};

		memset(text, 'x', n);
		text[n] = '\0';
		errno = EIO;
		pawl_err_sys(&e.err, "%s", text);
		assert_in_range(strlen(e.err.msg), PAWL_ERR_MSG_MAX - 40, PAWL_ERR_MSG_MAX - 1);
		pawl_err_prefix(&e.err, PAWL_EIO, "%s", text);
		assert_in_range(strlen(e.err.msg), PAWL_ERR_MSG_MAX - 40, PAWL_ERR_MSG_MAX - 1);
		assert_int_equal(e.guard, 'g');
	}
}

static void every_code_has_a_name(void **state)
{
#define X(name, value, text) assert_string_equal(pawl_err_name(value), #name);
	PAWL_ERRORS(X)
#undef X
	assert_string_equal(pawl_err_name(0), "PAWL_OK");
	assert_string_equal(pawl_err_name(1), "PAWL_E?");
	assert_string_equal(pawl_err_name(-1000), "PAWL_E?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(set_fills_and_returns),
		cmocka_unit_test(sys_translates),
		cmocka_unit_test(prefix_adds_context),
		cmocka_unit_test(long_messages_are_cut),
		cmocka_unit_test(every_code_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
