/* Makes waiting times short in a test program: see base/times.h. */
#ifndef TEST_TIMES_H
#define TEST_TIMES_H

#include "base/times.h"

#include <stdio.h>
#include <stdlib.h>

/* Sets times in the form of PAWL_TEST_TIMES, before the first time is asked for. Adds to the
 * environment's own, which may stretch all. */
static inline void test_times(const char *text)
{
	const char *given = getenv(TIMES_ENV);
	char all[1024];

	snprintf(all, sizeof(all), "%s%s%s", given ? given : "", given && *given ? "," : "", text);
	setenv(TIMES_ENV, all, 1);
}

#endif
