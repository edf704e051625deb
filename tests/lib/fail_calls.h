/*
 * Makes the nth call into the C library fail, for each n, also where there is no fault point. A
 * program that is linked with fail_calls_dep (tests/lib/meson.build) has every such call of ours
 * counted, in all of its threads; the table of what is counted is in fail_calls.c.
 *
 * The count lies in memory that processes share: FAIL_CALLS_ENV names its descriptor, which a
 * program finds when it starts. So a test can make calls fail in a program that it executes.
 */
#ifndef TEST_FAIL_CALLS_H
#define TEST_FAIL_CALLS_H

#include <stdatomic.h>

#define FAIL_CALLS_ENV "PAWL_TEST_FAIL_CALLS"

struct fail_calls {
	_Atomic(long) nth;    /* from 1, which one fails; 0: none */
	_Atomic(long) passed; /* calls so far, while nth is not 0 */
	char name[32];        /* of the one that failed */
};

/* Where the calls of this process count; NULL: nowhere, as in one that was given no descriptor. */
extern struct fail_calls *fail_calls;

/* Makes the memory for those that this process starts. Returns NULL, with errno, if it cannot. */
struct fail_calls *fail_calls_share(void);
/* From here on the nth call fails. */
void fail_calls_arm(struct fail_calls *calls, long nth);
/* No call fails any more. Returns how many were made since. */
long fail_calls_disarm(struct fail_calls *calls);

#endif
