/* A product is rounded before it is added to, whatever the processor offers: results are the same
 * on all machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#ifdef __x86_64__
#define FUSES __attribute__((target("fma"))) /* lets the compiler fuse */
#else
#define FUSES
#endif

/* Not static: with arguments that the compiler does not know. */
FUSES __attribute__((noinline)) double rounded_sum(double a, double b, double c);

FUSES __attribute__((noinline)) double rounded_sum(double a, double b, double c)
{
	return a * b + c;
}

static bool can_fuse(void)
{
#ifdef __x86_64__
	return __builtin_cpu_supports("fma");
#else
	return true;
#endif
}

static void products_are_rounded(void **state)
{
	volatile double a = 1 + 0x1p-30;

	if (!can_fuse()) {
		printf("skipped: this processor fuses nothing\n");
		skip();
	}
	/* a * a is 1 + 2^-29 + 2^-60, whose last term is rounded away. */
	assert_true(rounded_sum(a, a, -1 - 0x1p-29) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_are_rounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
