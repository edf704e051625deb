/* parallel_for does every piece once, however many there are; parallel_find finds the least. */
#include "base/parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PIECES_MAX 1000

static atomic_int done[PIECES_MAX]; /* how often each piece was done */

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

static bool is_from(void *user, size_t i)
{
	count(done, i);
	return i >= *(const size_t *)user;
}

static void least_is_found(void **state)
{
	for (size_t n = 0; n < PIECES_MAX; n = 2 * n + 1) {
		for (size_t from = 0; from <= n; from += 1 + n / 7) {
			memset(done, 0, sizeof(done));
			assert_int_equal(parallel_find(n, is_from, &from), from);
			for (size_t i = 0; i < PIECES_MAX; i++) {
				assert_int_equal(atomic_load(&done[i]), i < n);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_piece_once),
		cmocka_unit_test(least_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
