/* Numbers for tests of arithmetic. */
#ifndef TEST_ADAPT_H
#define TEST_ADAPT_H

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the standard headers it needs */
#include <cmocka.h>

static inline void assert_close(double got, double expected, double relative)
{
	if (!(fabs(got - expected) <= relative * fabs(expected))) {
		fail_msg("%.12g is not within %g of %.12g", got, relative, expected);
	}
}

/* Even in (0, 1). */
static inline double uniform(struct rng *rng)
{
	return ((double)(rng_u64(rng) >> 11) + 0.5) / 9007199254740992.0;
}

/* From least to most, each order of magnitude alike. */
static inline double log_uniform(struct rng *rng, double least, double most)
{
	return least * pow(most / least, uniform(rng));
}

#endif
