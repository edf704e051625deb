/* The seed of a random test: new in each run, and printed; PAWL_TEST_SEED=<n> repeats a run. */
#ifndef TEST_SEED_H
#define TEST_SEED_H

#include "base/clock.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline uint64_t test_seed(void)
{
	const char *text = getenv("PAWL_TEST_SEED");
	uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)clock_wall_ns();

	printf("PAWL_TEST_SEED=%" PRIu64 "\n", seed);
	fflush(stdout);
	return seed;
}

#endif
