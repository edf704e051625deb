/* parallel_for: every piece once, whatever their number. */
#include "base/parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PIECES_MAX 1000

static atomic_int done[PIECES_MAX]; /* how often each was done */

static void count(void *user, size_t i)
{
	atomic_fetch_add((atomic_int *)user + i, 1);
}

static void each_piece_once(void **state)
{
	for (size_t n = 0; n < PIECES_MAX; n = 2 * n + 1) {
		memset(done, 0, sizeof(done));
		parallel_for(n, count, done);
		for (size_t i = 0; i < PIECES_MAX; i++) {
			assert_int_equal(atomic_load(&done[i]), i < n);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_piece_once)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
