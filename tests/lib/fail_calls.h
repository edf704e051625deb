/*
 * Makes the nth call into the C library fail, for each n, also where there is no fault point. In a
 * program that is linked with fail_calls_dep (tests/lib/meson.build) every such call of ours is
 * counted, in all threads; fail_calls.c has the table of counted calls.
 *
 * The count lies in memory that processes share: FAIL_CALLS_ENV names its descriptor, which a
 * program finds when it starts. So a test can make calls fail in a program that it starts.
 */
#ifndef TEST_FAIL_CALLS_H
#define TEST_FAIL_CALLS_H

#include <stdatomic.h>

#define FAIL_CALLS_ENV "PAWL_TEST_FAIL_CALLS"

struct fail_calls {
	_Atomic(long) nth;    /* number of the call that fails, from 1; 0: none */
	_Atomic(long) passed; /* calls so far, while nth is not 0 */
	char name[32];        /* name of the call that failed */
};

/* The counter of this process; NULL: none, as in a process that was given no descriptor. */
extern struct fail_calls *fail_calls;

/* Makes the counter for processes that this one starts. Returns NULL, with errno, on failure. */
struct fail_calls *fail_calls_share(void);
/* Makes the nth call from here on fail. */
void fail_calls_arm(struct fail_calls *calls, long nth);
/* Lets all calls succeed again. Returns how many were made since. */
long fail_calls_disarm(struct fail_calls *calls);

#endif
