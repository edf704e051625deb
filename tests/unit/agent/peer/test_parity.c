/* Parity over hosts' images: whatever rows are lost, within what the code promises, comes back bit
 * by bit; the sums are those that parity.h defines. */
#include "agent/peer/parity.h"
#include "base/err.h"
#include "base/rng.h"
#include "each_fault.h"
#include "seed.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define ROWS_MAX (PARITY_DATA_MAX + PARITY_ROWS_MAX)
#define LEN_MAX  600u /* bytes of a row: some steps of ISA-L's widest loop, and a rest */

/* A code and its rows, data first. */
struct stripe {
	struct parity parity;
	uint32_t k, m;
	size_t len_bytes;
	uint8_t rows[ROWS_MAX][LEN_MAX];
};

static struct rng rng;

/* ---- the definition, slowly ---- */

static uint8_t gf_times(uint8_t a, uint8_t b)
{
	unsigned sum = 0;

	for (unsigned bit = 0; bit < 8; bit++) {
		sum ^= (b >> bit & 1) ? (unsigned)a << bit : 0;
	}
	for (unsigned bit = 15; bit >= 8; bit--) {
		sum ^= (sum >> bit & 1) ? 0x11du << (bit - 8) : 0;
	}
	return (uint8_t)sum;
}

static uint8_t gf_inverse(uint8_t a)
{
	unsigned b = 1;

	while (gf_times(a, (uint8_t)b) != 1) {
		b++;
	}
	return (uint8_t)b;
}

static uint8_t sum_slowly(const struct stripe *s, uint32_t row, size_t at)
{
	uint8_t sum = 0;

	for (uint32_t i = 0; i < s->k; i++) {
		sum ^= gf_times(gf_inverse((uint8_t)((s->k + row) ^ i)), s->rows[i][at]);
	}
	return sum;
}

/* ---- stripes ---- */

static void shuffle(uint32_t *numbers, uint32_t n)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t other = (uint32_t)rng_below(&rng, i);
		uint32_t number = numbers[i - 1];

		numbers[i - 1] = numbers[other];
		numbers[other] = number;
	}
}

/* Makes random rows, which end with zeros from some point on, and adds them in a random order,
 * without those zeros. */
static void make_stripe(struct stripe *s, uint32_t k, uint32_t m, size_t len_bytes)
{
	uint32_t order[PARITY_DATA_MAX];
	size_t ends[PARITY_DATA_MAX];

	memset(s, 0, sizeof(*s));
	s->k = k;
	s->m = m;
	s->len_bytes = len_bytes;
	assert_int_equal(parity_init(&s->parity, k, m, NULL), 0);
	for (uint32_t i = 0; i < k; i++) {
		order[i] = i;
		ends[i] = rng_below(&rng, 2) == 0 ? len_bytes : rng_below(&rng, len_bytes + 1);
		for (size_t at = 0; at < ends[i]; at++) {
			s->rows[i][at] = (uint8_t)rng_u64(&rng);
		}
	}
	shuffle(order, k);
	for (uint32_t i = 0; i < k * m; i++) {
		uint32_t row = i % m;
		uint32_t from = order[i / m];

		parity_add_row(&s->parity, row, from, s->rows[from], ends[from], s->rows[k + row]);
	}
}

/* Rebuilds every data row out of the rows of have, in a random order. */
static void check_rebuilds(struct stripe *s, uint32_t *have)
{
	const uint8_t *rows[PARITY_DATA_MAX];
	uint8_t out[LEN_MAX + 1];

	shuffle(have, s->k);
	for (uint32_t n = 0; n < s->k; n++) {
		rows[n] = s->rows[have[n]];
	}
	for (uint32_t lost = 0; lost < s->k; lost++) {
		memset(out, 0xa5, sizeof(out));
		assert_int_equal(
			parity_rebuild(&s->parity, have, rows, lost, s->len_bytes, out, NULL), 0);
		assert_memory_equal(out, s->rows[lost], s->len_bytes);
		assert_int_equal(out[s->len_bytes], 0xa5);
	}
}

/* Rebuilds out of every set of k rows: whatever is lost, but for k of them. */
static void check_all_sets(struct stripe *s)
{
	for (uint32_t set = 0; set < 1u << (s->k + s->m); set++) {
		uint32_t have[ROWS_MAX];
		uint32_t n = 0;

		for (uint32_t row = 0; row < s->k + s->m; row++) {
			if (set >> row & 1) {
				have[n++] = row;
			}
		}
		if (n == s->k) {
			check_rebuilds(s, have);
		}
	}
}

/* ---- tests ---- */

static void whatever_is_lost_comes_back(void **state)
{
	static struct stripe s;

	for (uint32_t k = 1; k <= 6; k++) {
		for (uint32_t m = 1; m <= 3; m++) {
			make_stripe(&s, k, m, 1 + rng_below(&rng, 200));
			check_all_sets(&s);
			parity_deinit(&s.parity);
		}
	}
}

static void large_codes_do_as_well(void **state)
{
	static struct stripe s;
	uint32_t rows[ROWS_MAX];

	for (uint32_t i = 0; i < 200; i++) {
		uint32_t k = i == 0 ? PARITY_DATA_MAX : 1 + (uint32_t)rng_below(&rng, 32);
		uint32_t m = i == 0 ? PARITY_ROWS_MAX : 1 + (uint32_t)rng_below(&rng, 8);

		make_stripe(&s, k, m, rng_below(&rng, LEN_MAX));
		for (uint32_t row = 0; row < k + m; row++) {
			rows[row] = row;
		}
		shuffle(rows, k + m);
		check_rebuilds(&s, rows);
		parity_deinit(&s.parity);
	}
}

/* Hosts of one job may have different processors, and versions of ISA-L. */
static void sums_are_as_defined_at_every_length(void **state)
{
	static struct stripe s;

	for (size_t len = 0; len < 200; len++) {
		make_stripe(&s, 1 + (uint32_t)len % 9, 1 + (uint32_t)len % PARITY_ROWS_MAX, len);
		for (uint32_t row = 0; row < s.m; row++) {
			for (size_t at = 0; at < len; at++) {
				assert_int_equal(s.rows[s.k + row][at], sum_slowly(&s, row, at));
			}
			assert_int_equal(s.rows[s.k + row][len], 0); /* nothing behind the end */
		}
		parity_deinit(&s.parity);
	}
}

/* With more lost than there is parity, no k rows are left to be named. */
static void too_few_rows_are_refused(void **state)
{
	static struct stripe s;
	static const uint32_t bad[][4] = {{1, 2, 4, 4}, {0, 1, 2, 0}, {5, 5, 5, 5}, {1, 2, 3, 6},
		{1, 2, 3, UINT32_MAX}};
	const uint32_t good[] = {1, 2, 3, 5};
	const uint8_t *rows[4];
	uint8_t out[LEN_MAX] = {0};
	struct pawl_err err;

	make_stripe(&s, 4, 2, 100);
	for (uint32_t n = 0; n < 4; n++) {
		rows[n] = s.rows[good[n]];
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parity_rebuild(&s.parity, bad[i], rows, 0, 100, out, &err),
			PAWL_EINVAL);
		assert_non_null(strstr(err.msg, i < 3 ? "given twice" : "no row"));
	}
	assert_int_equal(parity_rebuild(&s.parity, good, rows, 4, 100, out, &err), PAWL_EINVAL);
	for (size_t at = 0; at < sizeof(out); at++) {
		assert_int_equal(out[at], 0);
	}
	assert_int_equal(parity_rebuild(&s.parity, good, rows, 0, 100, out, &err), 0);
	assert_memory_equal(out, s.rows[0], 100);
	parity_deinit(&s.parity);
}

static void codes_beyond_the_limits_are_refused(void **state)
{
	static const uint32_t bad[][2] = {{0, 1}, {1, 0}, {PARITY_DATA_MAX + 1, 1},
		{1, PARITY_ROWS_MAX + 1}, {UINT32_MAX, UINT32_MAX}};
	struct parity parity = {0};
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parity_init(&parity, bad[i][0], bad[i][1], &err), PAWL_EINVAL);
		assert_null(parity.tables);
	}
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("parity.", nth, ENOMEM, false);
		rv = parity_init(&parity, 4, 2, &err);
		fault_disarm();
		assert_int_equal(rv, fault_reached(nth) ? PAWL_ENOMEM : 0);
		parity_deinit(&parity);
	}
	parity_deinit(&parity); /* a second time */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whatever_is_lost_comes_back),
		cmocka_unit_test(large_codes_do_as_well),
		cmocka_unit_test(sums_are_as_defined_at_every_length),
		cmocka_unit_test(too_few_rows_are_refused),
		cmocka_unit_test(codes_beyond_the_limits_are_refused),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
