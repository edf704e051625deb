/* The end of a failed assertion: see assert.h. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void base_assert_fail(const char *cond, const char *file, int line)
{
	fprintf(stderr, "pawl: assertion failed: %s (%s:%d)\n", cond, file, line);
	abort();
}
