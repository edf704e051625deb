/* Helpers for tests of arithmetic: random numbers, and equality within a tolerance. */
#ifndef TEST_CLOSE_H
#define TEST_CLOSE_H

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the standard headers above. */
#include <cmocka.h>

static inline void assert_close(double got, double expected, double relative)
{
	if (!(fabs(got - expected) <= relative * fabs(expected))) {
		fail_msg("%.12g is not within %g of %.12g", got, relative, expected);
	}
}

/* Returns a number that is uniform in (0, 1). */
static inline double uniform(struct rng *rng)
{
	return ((double)(rng_u64(rng) >> 11) + 0.5) / 9007199254740992.0;
}

/* Returns a number from least to most, each order of magnitude equally likely. */
static inline double log_uniform(struct rng *rng, double least, double most)
{
	return least * pow(most / least, uniform(rng));
}

#endif
