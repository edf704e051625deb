/* Advice on how often to save, on a virtual clock: from the prior to what was measured, within the
 * bounds; and in simulated jobs it costs little more than the best interval would. */
#include "agent/ledger/advice.h"
#include "base/rng.h"
#include "pawl/adapt.h"
#include "seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the standard headers above. */
#include <cmocka.h>

#define NS 1e9

static void assert_close(double got, double expected, double relative)
{
	if (!(fabs(got - expected) <= relative * fabs(expected))) {
		fail_msg("%.6g is not within %g of %.6g", got, relative, expected);
	}
}

static int64_t ns(double s)
{
	return (int64_t)(s * NS);
}

static const struct advice_bounds bounds = {1, 1800, 10, 3600};

/* Returns a number that is uniform in (0, 1). */
static double uniform(struct rng *rng)
{
	return ((double)(rng_u64(rng) >> 11) + 0.5) / 9007199254740992.0;
}

static void nothing_is_known_at_first(void **state)
{
	struct advice advice;

	advice_init(&advice, &bounds, 0, 0, 0);
	assert_close(advice_save_s(&advice), pawl_interval_daly(ADVICE_COST_S, ADVICE_PRIOR_S),
		1e-9);
	assert_close(advice_persist_s(&advice), pawl_interval_daly(ADVICE_COST_S, ADVICE_PRIOR_S),
		1e-9);
	assert_close(advice_slowdown(&advice), ADVICE_SLOWDOWN, 1e-9);
}

static void the_rate_follows_what_was_seen(void **state)
{
	struct advice advice;
	double before_s;

	advice_init(&advice, &bounds, 0, 0, 0);
	advice_saved(&advice, 0.1);
	before_s = advice_save_s(&advice);
	advice_run(&advice, true, ns(100));
	advice_run(&advice, true, ns(100 + 3 * 86400.0)); /* three days without a failure */
	assert_close(advice_save_s(&advice), 2 * before_s, 0.01);
	for (int i = 0; i < 15; i++) {
		advice_failed(&advice);
	}
	/* 16 failures in four days, with the prior */
	assert_close(advice_save_s(&advice), before_s / 2, 0.01);
	advice_run(&advice, false, ns(100 + 3 * 86400.0));
	advice_run(&advice, false, ns(1e9)); /* nothing runs, so nothing is learnt */
	assert_close(advice_save_s(&advice), before_s / 2, 0.01);
	advice_init(&advice, &bounds, 15, 3, 3 * 86400.0); /* counts of an earlier agent */
	advice_saved(&advice, 0.1);
	assert_close(advice_save_s(&advice), before_s / 2, 0.01);
	assert_close(advice_persist_s(&advice), before_s, 0.01); /* one failure a day */
}

static void advice_stays_in_its_bounds(void **state)
{
	struct rng rng = {test_seed()};

	for (unsigned i = 0; i < 20000; i++) {
		struct advice advice;
		double stall_s = pow(10, uniform(&rng) * 8 - 5);
		double persist_s = pow(10, uniform(&rng) * 8 - 3);

		advice_init(&advice, &bounds, rng_below(&rng, 1000), rng_below(&rng, 1000),
			pow(10, uniform(&rng) * 9));
		advice_begin(&advice, 1, 0);
		advice_saved(&advice, stall_s);
		advice_writing(&advice, 0);
		advice_written(&advice, true, ns(persist_s));
		assert_true(advice_save_s(&advice) >= bounds.save_min_s);
		assert_true(advice_save_s(&advice) <= bounds.save_max_s);
		assert_true(advice_save_s(&advice) >= 20 * stall_s ||
			advice_save_s(&advice) == bounds.save_max_s);
		assert_true(advice_persist_s(&advice) >= bounds.persist_min_s);
		assert_true(advice_persist_s(&advice) <= bounds.persist_max_s);
		assert_true(advice_persist_s(&advice) >= 1.99 * persist_s ||
			advice_persist_s(&advice) == bounds.persist_max_s);
	}
}

/* Returns the measured slowdown of steps while a save is written. A save comes every ten steps,
 * which take a second; every third save is written for 0.8 s, and slowdown is the true value. */
static double slowdown_of(double slowdown, double noise, struct rng *rng)
{
	struct advice advice;
	double now = 0;

	advice_init(&advice, &bounds, 0, 0, 0);
	for (uint64_t save = 0; save < 200; save++) {
		double writes_s = save % 3 == 0 ? 0.8 : 0;

		advice_begin(&advice, save * 10, ns(now));
		advice_saved(&advice, 0.25);
		now += 0.25;
		if (writes_s > 0) {
			advice_writing(&advice, ns(now));
			advice_written(&advice, true, ns(now + writes_s));
		}
		now += 1 + slowdown * writes_s + noise * (uniform(rng) - 0.5);
	}
	return advice_slowdown(&advice);
}

static void the_slowdown_is_found(void **state)
{
	struct rng rng = {test_seed()};

	for (int i = 0; i < 200; i++) {
		double slowdown = uniform(&rng) * 0.9;

		assert_true(fabs(slowdown_of(slowdown, 0, &rng) - slowdown) < 1e-6);
		assert_true(fabs(slowdown_of(slowdown, 0.1, &rng) - slowdown) < 0.1);
	}
	assert_true(slowdown_of(0, 0, &rng) < 1e-6);
}

/* Where storage is always written to, or never, the slowdown cannot be measured, and the prior
 * stands. */
static void the_slowdown_is_not_made_up(void **state)
{
	struct advice advice;

	for (int always = 0; always < 2; always++) {
		advice_init(&advice, &bounds, 0, 0, 0);
		if (always) {
			advice_writing(&advice, 0);
		}
		for (uint64_t save = 0; save < 100; save++) {
			advice_begin(&advice, save, ns((double)save + (save % 2 ? 0.3 : 0)));
		}
		assert_close(advice_slowdown(&advice), ADVICE_SLOWDOWN, 1e-9);
	}
}

/* Returns the time that a job of work_s takes: it saves when advised to, fails at random, and
 * starts again. */
static double simulate(struct rng *rng, double work_s, double cost_s, double mtbf_s, double fixed_s)
{
	struct advice advice;
	double now = 0;
	double done_s = 0;
	uint64_t saves = 0;

	advice_init(&advice, &bounds, 0, 0, 0);
	while (done_s < work_s) {
		double fails_at = now - mtbf_s * log(uniform(rng));

		advice_run(&advice, true, ns(now));
		for (;;) {
			double interval_s = fixed_s > 0 ? fixed_s : advice_save_s(&advice);

			if (done_s >= work_s || now + interval_s + cost_s > fails_at) {
				break;
			}
			now += interval_s + cost_s;
			done_s += interval_s;
			advice_begin(&advice, ++saves, ns(now));
			advice_saved(&advice, cost_s);
			advice_run(&advice, true, ns(now));
		}
		if (done_s < work_s) {
			now = fails_at;
			advice_run(&advice, false, ns(now));
			advice_failed(&advice);
		}
	}
	return now / done_s - 1;
}

/* The prior says one failure a day; the true rate is anything from minutes to days. Over many
 * failures the advised interval loses little more than the best one, and over few not much. */
static void simulated_jobs_lose_little(void **state)
{
	struct rng rng = {test_seed()};

	for (int i = 0; i < 20; i++) {
		double mtbf_s = 600 * pow(300, uniform(&rng));
		double cost_s = 0.05 * pow(100, uniform(&rng));
		double best_s = pawl_interval_daly(cost_s, mtbf_s);
		double least;
		double advised;

		best_s = best_s < 20 * cost_s ? 20 * cost_s : best_s;
		best_s = best_s > bounds.save_max_s ? bounds.save_max_s : best_s;
		least = pawl_interval_overhead(best_s, cost_s, 0, mtbf_s);
		advised = simulate(&rng, 2000 * mtbf_s, cost_s, mtbf_s, 0);
		assert_true(advised < least * 1.15 + 0.0005);
		assert_true(advised > least * 0.85 - 0.0005);
	}
	assert_true(simulate(&rng, 2e6, 1, 600, 0) < simulate(&rng, 2e6, 1, 600, 4) * 0.6);
	assert_true(simulate(&rng, 2e6, 1, 600, 0) < simulate(&rng, 2e6, 1, 600, 300) * 0.6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_known_at_first),
		cmocka_unit_test(the_rate_follows_what_was_seen),
		cmocka_unit_test(advice_stays_in_its_bounds),
		cmocka_unit_test(the_slowdown_is_found),
		cmocka_unit_test(the_slowdown_is_not_made_up),
		cmocka_unit_test(simulated_jobs_lose_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
