/* Calls that must succeed, or fail in one way. The test has a variable struct pawl_err err, which
 * the calls fill, and includes string.h and cmocka.h. */
#ifndef TEST_EXPECT_H
#define TEST_EXPECT_H

/* Expects the call to succeed. */
#define OK(call)                                                                                   \
	do {                                                                                       \
		err.msg[0] = '\0';                                                                 \
		if ((call) != 0) {                                                                 \
			fail_msg("%s: %s", #call, err.msg);                                        \
		}                                                                                  \
	} while (0)

/* Expects the call to fail with this code, and err to have it and a message. */
#define FAILS(want, call)                                                                          \
	do {                                                                                       \
		err.code = 0;                                                                      \
		assert_int_equal(call, want);                                                      \
		assert_int_equal(err.code, want);                                                  \
		assert_true(err.msg[0] != '\0');                                                   \
	} while (0)

/* Expects err to say this. */
#define SAYS(text)                                                                                 \
	do {                                                                                       \
		if (!strstr(err.msg, text)) {                                                      \
			fail_msg("\"%s\" does not say \"%s\"", err.msg, text);                     \
		}                                                                                  \
	} while (0)

#endif
