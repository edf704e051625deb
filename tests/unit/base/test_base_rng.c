/* The generator gives SplitMix64's published values, and below() is within bounds and even. */
#include "../lib/seed.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* From the reference implementation, https://prng.di.unimi.it/splitmix64.c, x = 1234567. */
static void gives_reference_values(void **state)
{
	static const uint64_t want[] = {6457827717110365317u, 3203168211198807973u,
		9817491932198370423u, 4593380528125082431u, 16408922859458223821u};
	struct rng r = {1234567};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		assert_true(rng_u64(&r) == want[i]);
	}
}

static void below_is_even(void **state)
{
	struct rng r = {test_seed()};
	unsigned count[7] = {0};

	for (int i = 0; i < 70000; i++) {
		count[rng_below(&r, 7)]++;
	}
	for (int i = 0; i < 7; i++) {
		assert_in_range(count[i], 9500, 10500); /* 5 standard deviations */
	}
	for (int i = 0; i < 1000; i++) {
		uint64_t bound = rng_u64(&r) >> (i % 64);

		bound += bound == 0;
		assert_true(rng_below(&r, bound) < bound);
	}
	assert_int_equal(rng_below(&r, 1), 0);
}

/* Taking a remainder of 64 bits alone would make the lowest third of this bound come half the
 * time. */
static void huge_bounds_are_even_too(void **state)
{
	struct rng r = {test_seed()};
	unsigned low = 0;

	for (int i = 0; i < 9000; i++) {
		low += rng_below(&r, 3ull << 62) < 1ull << 62;
	}
	assert_in_range(low, 2750, 3250); /* 5 standard deviations */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gives_reference_values),
		cmocka_unit_test(below_is_even),
		cmocka_unit_test(huge_bounds_are_even_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
