/* How a test program makes waiting times short: see base/times.h. */
#ifndef TEST_TIMES_H
#define TEST_TIMES_H

#include "base/times.h"

#include <stdio.h>
#include <stdlib.h>

/* Before the first time is asked for. Adds to what the environment says, which may stretch all. */
static inline void test_times(const char *text)
{
	const char *given = getenv(TIMES_ENV);
	char all[1024];

	snprintf(all, sizeof(all), "%s%s%s", given ? given : "", given && *given ? "," : "", text);
	setenv(TIMES_ENV, all, 1);
}

#endif
