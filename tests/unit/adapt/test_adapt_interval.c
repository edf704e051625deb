/* How often to save: the values printed in the papers, then each formula against a slow and simple
 * reference: simulated failures, a search for the least cost, and sums of probabilities. */
#include "close.h"
#include "pawl/adapt.h"
#include "seed.h"

#include <stdlib.h>

#define SEGMENTS 400000u /* segments of work to simulate */

/* ---- the optimum ---- */

/* Daly 2006, figures 3 to 5: a save costs 5 minutes, failures come every 24 h, 6 h, 15 min. */
static void the_paper_s_examples(void **state)
{
	assert_close(pawl_interval_daly(5, 24 * 60), 117, 0.005);
	assert_close(pawl_interval_daly(5, 6 * 60), 57, 0.008);
	assert_close(pawl_interval_daly(5, 15), 9.1, 0.006);
	assert_close(pawl_interval_young(5, 24 * 60), 120, 1e-12);
	assert_close(pawl_interval_daly(31, 15), 15, 1e-12);
}

/* Returns the interval of the least cost, by a slow search that narrows around it. */
static double search_optimum(double cost_s, double mtbf_s)
{
	double low = mtbf_s * 1e-9;
	double high = mtbf_s * 3;

	for (int i = 0; i < 300; i++) {
		double a = low + (high - low) / 3;
		double b = high - (high - low) / 3;

		if (pawl_interval_overhead(a, cost_s, 0, mtbf_s) <
			pawl_interval_overhead(b, cost_s, 0, mtbf_s)) {
			high = b;
		} else {
			low = a;
		}
	}
	return (low + high) / 2;
}

static void the_formulas_find_the_least_cost(void **state)
{
	struct rng rng = {test_seed()};

	for (unsigned i = 0; i < 2000; i++) {
		double mtbf_s = log_uniform(&rng, 60, 1e7);
		double cost_s = mtbf_s * log_uniform(&rng, 1e-8, 0.5);
		double restart_s = mtbf_s * uniform(&rng) / 10;
		double best_s = search_optimum(cost_s, mtbf_s);
		double daly_s = pawl_interval_daly(cost_s, mtbf_s);
		double least = pawl_interval_overhead(best_s, cost_s, restart_s, mtbf_s);

		assert_close(daly_s, best_s, 0.002 + 0.02 * cost_s / mtbf_s);
		assert_close(pawl_interval_overhead(daly_s, cost_s, restart_s, mtbf_s), least,
			1e-4);
		/* Young's interval lies above it by less than the cost of a save, and near it where
		 * saves are cheap. */
		assert_in_range((uint64_t)(pawl_interval_young(cost_s, mtbf_s) >= daly_s), 1, 1);
		assert_close(pawl_interval_young(cost_s, mtbf_s), best_s,
			1.2 * sqrt(cost_s / mtbf_s) + 0.001);
	}
}

/* Simulates the overhead: draws failures one by one, repeats lost work and interrupted saves.
 * Returns the mean; *error is its standard error. */
static double simulate(struct rng *rng, double interval_s, double cost_s, double restart_s,
	double mtbf_s, double *error)
{
	double sum = 0;
	double squares = 0;

	for (unsigned i = 0; i < SEGMENTS; i++) {
		double left_s = interval_s + cost_s; /* time to the next whole save */
		double next_s = -mtbf_s * log(uniform(rng));
		double lost_s = 0;

		while (next_s < left_s) {
			lost_s += next_s;
			left_s = restart_s + interval_s + cost_s;
			next_s = -mtbf_s * log(uniform(rng));
		}
		lost_s += left_s - interval_s;
		sum += lost_s / interval_s;
		squares += lost_s * lost_s / (interval_s * interval_s);
	}
	sum /= SEGMENTS;
	*error = sqrt((squares / SEGMENTS - sum * sum) / SEGMENTS);
	return sum;
}

static void the_overhead_is_what_failures_cost(void **state)
{
	struct rng rng = {test_seed()};
	static const double cases[][4] = {
		/* interval, cost, restart, time between failures */
		{100, 5, 10, 1000},
		{30, 5, 0, 1000},
		{300, 20, 60, 500},
		{1000, 1, 1, 20000},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const double *c = cases[i];
		double error;
		double cost = simulate(&rng, c[0], c[1], c[2], c[3], &error);

		assert_true(error < 0.015 * cost);
		/* Five standard errors: a right formula fails here once in two million runs. */
		assert_close(cost, pawl_interval_overhead(c[0], c[1], c[2], c[3]),
			5 * error / cost);
	}
}

/* ---- the rate ---- */

/* Returns the Poisson probability of at most n events, summed term by term. */
static double sum_at_most(uint64_t n, double mean)
{
	double term = exp(-mean);
	double sum = term;

	for (uint64_t k = 1; k <= n; k++) {
		term *= mean / (double)k;
		sum += term;
	}
	return sum;
}

/* Garwood's table, as in every textbook: 95 % for none, 1, 5 and 10. */
static void the_textbook_s_bounds(void **state)
{
	static const double table[][3] = {{0, 0, 3.689}, {1, 0.0253, 5.572}, {5, 1.623, 11.668},
		{10, 4.795, 18.390}};
	double low;
	double high;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		pawl_rate_bounds((uint64_t)table[i][0], 1, 0.95, &low, &high);
		assert_true(fabs(low - table[i][1]) < 0.0006);
		assert_true(fabs(high - table[i][2]) < 0.0006);
	}
}

static void bounds_have_their_confidence(void **state)
{
	struct rng rng = {test_seed()};

	for (unsigned i = 0; i < 2000; i++) {
		uint64_t n = rng_below(&rng, 300);
		double confidence = 0.5 + uniform(&rng) * 0.499;
		double time_s = log_uniform(&rng, 1, 1e8);
		double tail = (1 - confidence) / 2;
		double low;
		double high;

		pawl_rate_bounds(n, time_s, confidence, &low, &high);
		assert_close(sum_at_most(n, high * time_s), tail, 1e-6);
		if (n > 0) {
			assert_close(1 - sum_at_most(n - 1, low * time_s), tail, 1e-4);
		} else {
			assert_true(low == 0);
		}
		assert_true(low <= (double)n / time_s && (double)n / time_s < high);
	}
}

static void bounds_of_very_many(void **state)
{
	double low;
	double high;

	pawl_rate_bounds(1000000, 1e6, 0.95, &low, &high);
	assert_close(low, 1 - 1.96e-3, 1e-4);
	assert_close(high, 1 + 1.96e-3, 1e-4);
	pawl_rate_bounds(1, 0, 0.95, &low, &high);
	assert_true(isinf(low) && isinf(high));
}

static void the_mean_moves_from_the_prior_to_what_was_seen(void **state)
{
	const struct pawl_rate_prior prior = {1, 86400};

	assert_close(pawl_rate_mean(&prior, 0, 0), 1 / 86400.0, 1e-12);
	assert_close(pawl_rate_mean(&prior, 3, 86400), 2 / 86400.0, 1e-12);
	assert_close(pawl_rate_mean(&prior, 1000, 1000 * 60), 1 / 60.0, 2);
	assert_true(pawl_rate_mean(&prior, 0, 10 * 86400) < 1 / (10.0 * 86400));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_paper_s_examples),
		cmocka_unit_test(the_formulas_find_the_least_cost),
		cmocka_unit_test(the_overhead_is_what_failures_cost),
		cmocka_unit_test(the_textbook_s_bounds),
		cmocka_unit_test(bounds_have_their_confidence),
		cmocka_unit_test(bounds_of_very_many),
		cmocka_unit_test(the_mean_moves_from_the_prior_to_what_was_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
