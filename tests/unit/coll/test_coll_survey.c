/* Conclusions from measurements, and the orders of rank 0 of a measurement: pure functions. */
#include "base/rng.h"
#include "coll/probe/probe_impl.h"
#include "seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define HOSTS 6

static void medians(void **state)
{
	double odd[] = {3, 1, 2};
	double even[] = {4, 1, 3, 2};

	assert_true(coll_median(odd, 3) == 2);
	assert_true(coll_median(even, 4) == 2.5);
	assert_true(coll_median(NULL, 0) == 0);
}

/* A token bucket lets the first rounds pass at once; then each takes about 10 ms. */
static void a_pace_is_that_of_the_rounds_after_the_first_ones(void **state)
{
	struct rng rng = {test_seed()};
	double ends_s[32];

	for (uint32_t i = 0; i < 32; i++) {
		double noise = (double)rng_below(&rng, 1000) / 1000 - 0.5;

		ends_s[i] = i < 8 ? i * 1e-4 : 0.01 * i + noise * 1e-3;
	}
	assert_true(fabs(coll_fit_round_s(ends_s, 32) - 0.01) < 2e-4);
}

/* ---- a survey ---- */

static struct coll_survey make_survey(uint32_t n)
{
	struct coll_survey survey;

	assert_int_equal(coll_survey_init(&survey, n, NULL), 0);
	for (uint32_t i = 0; i < n * n; i++) {
		survey.latency_s[i] = i / n == i % n ? 0 : 60e-6 + (double)i * 1e-9;
		survey.bytes_per_s[i] = i / n == i % n ? 0 : 118e6 - (double)i * 1e3;
	}
	survey.all_bytes_per_s = 117e6;
	survey.all_small_s = 60e-6 + (n - 2) * 15e-6;
	return survey;
}

static void a_link_is_fitted(void **state)
{
	struct coll_survey survey = make_survey(HOSTS);
	struct coll_link link;

	survey.latency_s[1] = 1; /* one outlier */
	coll_survey_link(&survey, &link);
	assert_true(link.bytes_per_s == 117e6);
	assert_true(fabs(link.message_s - 15e-6) < 1e-7);
	assert_true(fabs(link.latency_s - 45e-6) < 1e-7);
	assert_true(coll_link_valid(&link));
	survey.all_small_s =
		1; /* a message costs more than one latency: the whole latency is its cost */
	coll_survey_link(&survey, &link);
	assert_true(link.latency_s == 0 && fabs(link.message_s - 60e-6) < 1e-7);
	survey.all_small_s = 1e-6; /* many messages are quicker than one */
	coll_survey_link(&survey, &link);
	assert_true(link.message_s == 0 && fabs(link.latency_s - 60e-6) < 1e-7);
	coll_survey_deinit(&survey);
}

static void check_flaws(const struct coll_survey *survey, uint32_t host, enum survey_metric flaw)
{
	for (uint32_t h = 0; h < survey->n; h++) {
		for (enum survey_metric f = 0; f < SURVEY_METRICS; f++) {
			assert_int_equal(coll_survey_is_outlier(survey, h, f),
				h == host && f == flaw);
		}
		for (uint32_t peer = 0; peer < survey->n; peer++) {
			assert_false(coll_survey_narrow(survey, h, peer));
		}
	}
}

static void a_slow_host_is_told_apart_from_its_peers(void **state)
{
	for (uint32_t n = 3; n <= HOSTS; n++) {
		for (enum survey_metric flaw = 0; flaw < SURVEY_METRICS; flaw++) {
			struct coll_survey survey = make_survey(n);

			check_flaws(&survey, UINT32_MAX, flaw);
			for (uint32_t peer = 0; peer < n; peer++) {
				survey.bytes_per_s[1 * n + peer] *=
					flaw == SURVEY_SEND_RATE ? 0.6 : 1;
				survey.bytes_per_s[peer * n + 1] *=
					flaw == SURVEY_RECEIVE_RATE ? 0.6 : 1;
				survey.latency_s[1 * n + peer] *= flaw == SURVEY_LATENCY ? 4 : 1;
				survey.latency_s[peer * n + 1] *= flaw == SURVEY_LATENCY ? 4 : 1;
			}
			check_flaws(&survey, 1, flaw);
			coll_survey_deinit(&survey);
		}
	}
}

static void a_slow_path_is_no_hosts_fault(void **state)
{
	struct coll_survey survey = make_survey(4);

	survey.bytes_per_s[1 * 4 + 2] *= 0.5;
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(coll_survey_narrow(&survey, i / 4, i % 4), i == 1 * 4 + 2);
		assert_false(coll_survey_is_outlier(&survey, i / 4, i % SURVEY_METRICS));
	}
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(coll_survey_slow(&survey, i / 4, i % 4),
			i / 4 == i % 4 || i == 1 * 4 + 2);
	}
	survey.bytes_per_s[1 * 4 + 3] = 0; /* not measured */
	assert_false(coll_survey_narrow(&survey, 1, 3));
	coll_survey_deinit(&survey);
}

static void of_two_hosts_none_is_the_slow_one(void **state)
{
	struct coll_survey survey = make_survey(2);

	survey.bytes_per_s[1] *= 0.1;
	check_flaws(&survey, UINT32_MAX, SURVEY_SEND_RATE);
	coll_survey_deinit(&survey);
}

/* ---- orders ---- */

static void each_meets_each_once(void **state)
{
	for (uint32_t n = 2; n <= SURVEY_HOSTS_MAX; n++) {
		uint32_t met[SURVEY_HOSTS_MAX][SURVEY_HOSTS_MAX] = {0};

		for (uint32_t round = 0; round < n - 1 + n % 2; round++) {
			for (uint32_t h = 0; h < n; h++) {
				uint32_t peer = probe_partner(n, round, h);

				assert_true(peer < n);
				assert_int_equal(probe_partner(n, round, peer), h);
				met[h][peer]++;
			}
		}
		for (uint32_t h = 0; h < n * n; h++) {
			assert_int_equal(met[h / n][h % n], h / n != h % n || n % 2 != 0);
		}
	}
}

static const struct probe_order orders[] = {
	{PROBE_END, 0, 0, 4, PAWL_UINT8, 1, {125e6, 1e-4, 1e-5}},
	{PROBE_PING, 0, 3, 500, PAWL_UINT8, 64, {125e6, 0, 0}},
	{PROBE_PAIR, 2, 1, 32, PAWL_UINT8, 16 << 20, {125e6, 1e-4, 1e-5}},
	{PROBE_PAIRS, 3, 1, 32, PAWL_UINT8, 1000, {125e6, 1e-4, 1e-5}},
	{PROBE_ALL, 0, 0, 1024, PAWL_UINT8, 64, {125e6, 1e-4, 1e-5}},
	{PROBE_SUM, 0, 0, 4, PAWL_BFLOAT16, 64 << 20, {1e13, 10, 1}},
};

static void orders_come_as_they_went(void **state)
{
	for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
		uint8_t bytes[ORDER_BYTES];
		uint8_t again[ORDER_BYTES];
		struct probe_order order;

		probe_encode(bytes, &orders[i]);
		assert_int_equal(probe_decode(bytes, 4, &order), 0);
		probe_encode(again, &order);
		assert_memory_equal(bytes, again, ORDER_BYTES);
		assert_int_equal(order.kind, orders[i].kind);
		assert_int_equal(order.len_bytes, orders[i].len_bytes);
	}
}

static void refuse(struct probe_order order)
{
	uint8_t bytes[ORDER_BYTES];

	probe_encode(bytes, &order);
	assert_int_equal(probe_decode(bytes, 4, &order), -1);
}

#define REFUSE(base, field, value)                                                                 \
	do {                                                                                       \
		struct probe_order order = orders[base];                                           \
		order.field = value;                                                               \
		refuse(order);                                                                     \
	} while (0)

static void nonsense_is_refused(void **state)
{
	REFUSE(PROBE_PAIR, kind, PROBE_KINDS);
	REFUSE(PROBE_PAIR, a, 4);
	REFUSE(PROBE_PAIR, b, 2); /* a pair of one host */
	REFUSE(PROBE_PAIRS, b, 2);
	REFUSE(PROBE_ALL, a, 1);
	REFUSE(PROBE_PAIR, rounds, 3);
	REFUSE(PROBE_PAIR, rounds, ORDER_ROUNDS_MAX + 1);
	REFUSE(PROBE_PAIR, len_bytes, 0);
	REFUSE(PROBE_PAIR, len_bytes, ORDER_STREAM_MAX / 3 + 1);
	REFUSE(PROBE_PAIR, len_bytes, UINT64_MAX);
	REFUSE(PROBE_PAIR, dtype, PAWL_FLOAT32);
	REFUSE(PROBE_SUM, dtype, PAWL_DTYPES);
	REFUSE(PROBE_SUM, dtype, PAWL_INT32);
	REFUSE(PROBE_SUM, len_bytes, 7);
	REFUSE(PROBE_SUM, len_bytes, SURVEY_VECTOR_MAX + 2);
	REFUSE(PROBE_SUM, link.bytes_per_s, NAN);
	REFUSE(PROBE_SUM, link.latency_s, -1);
	REFUSE(PROBE_SUM, link.message_s, INFINITY);
}

/* In a round of pairs each host sends or receives, never both, and every pair occurs in both
 * directions. */
static void pairs_do_not_meet(void **state)
{
	for (uint32_t n = 2; n <= 9; n++) {
		uint32_t seen = 0;

		for (uint32_t i = 0; i < 2 * n; i++) {
			struct probe_order order = {.kind = PROBE_PAIRS,
				.a = i / 2,
				.b = i % 2,
				.len_bytes = 5};
			uint32_t busy[9] = {0};

			for (uint32_t p = 0; p < n * n; p++) {
				uint32_t one = probe_bytes(&order, n, p / n, p % n) > 0;

				busy[p / n] += one;
				busy[p % n] += one;
				seen += one && i / 2 < n - 1 + n % 2;
			}
			for (uint32_t h = 0; h < n; h++) {
				assert_true(busy[h] <= 1);
			}
		}
		assert_int_equal(seen, n * (n - 1));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(medians),
		cmocka_unit_test(a_pace_is_that_of_the_rounds_after_the_first_ones),
		cmocka_unit_test(a_link_is_fitted),
		cmocka_unit_test(a_slow_host_is_told_apart_from_its_peers),
		cmocka_unit_test(a_slow_path_is_no_hosts_fault),
		cmocka_unit_test(of_two_hosts_none_is_the_slow_one),
		cmocka_unit_test(each_meets_each_once),
		cmocka_unit_test(orders_come_as_they_went),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(pairs_do_not_meet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
