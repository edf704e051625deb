/* The fit of step times: it finds the model that made the times, uses the paper's priors where
 * nothing was measured, and no other parameters, from any starting point, are better. */
#include "base/err.h"
#include "close.h"
#include "pawl/adapt.h"
#include "seed.h"

#include <string.h>

#define MODELS   60u
#define PROFILES 60u

static uint64_t first_seed;

static struct pawl_perf make_perf(struct rng *rng)
{
	return (struct pawl_perf){.alpha_c = log_uniform(rng, 0.01, 0.3),
		.beta_c = log_uniform(rng, 0.001, 0.03),
		.alpha_r = log_uniform(rng, 0.02, 0.2),
		.beta_r = log_uniform(rng, 1e-4, 0.01),
		.alpha_n = log_uniform(rng, 0.1, 1),
		.beta_n = log_uniform(rng, 1e-3, 0.05),
		.delta_n = log_uniform(rng, 1e-3, 0.1),
		.gamma = log_uniform(rng, 1, 4)};
}

static struct pawl_profile measure(const struct pawl_perf *perf, uint32_t nodes, uint32_t replicas,
	uint32_t most, uint32_t atomic)
{
	struct pawl_profile profile = {{nodes, replicas, most}, atomic, 0, 0};
	const struct pawl_placement alone = {1, 1, 1};
	struct pawl_batch batch = {atomic, 0};

	profile.grad_s = pawl_step_s(perf, &alone, &batch);
	profile.step_s = pawl_step_s(perf, &profile.place, &batch);
	return profile;
}

/* Fills profiles of 1 to 4 nodes, at most 4 replicas a node, and batches of 8 to 64. noise: the
 * largest relative error of a time. */
static void measure_many(struct rng *rng, const struct pawl_perf *perf,
	struct pawl_profile *profiles, double noise)
{
	for (uint32_t i = 0; i < PROFILES; i++) {
		uint32_t nodes = 1 + (uint32_t)rng_below(rng, 4);
		uint32_t most = 1 + (uint32_t)rng_below(rng, 4);
		uint32_t others = nodes - 1;
		uint32_t replicas =
			most + others + (uint32_t)rng_below(rng, others * (most - 1) + 1);

		profiles[i] = measure(perf, nodes, replicas, most, 8u << rng_below(rng, 4));
		profiles[i].grad_s *= log_uniform(rng, 1 - noise, 1 + noise);
		profiles[i].step_s *= log_uniform(rng, 1 - noise, 1 + noise);
	}
}

/* For placements and batches that were not in the fit, predictions agree with the model. */
static void models_are_found_again(void **state)
{
	struct rng rng = {first_seed};
	double worst[MODELS];
	uint32_t good = 0;

	for (uint32_t i = 0; i < MODELS; i++) {
		struct pawl_profile profiles[PROFILES];
		struct pawl_profile others[PROFILES];
		struct pawl_perf truth = make_perf(&rng);
		struct pawl_perf perf = {0};

		measure_many(&rng, &truth, profiles, 0.02);
		measure_many(&rng, &truth, others, 0);
		assert_int_equal(pawl_perf_fit(&perf, profiles, PROFILES, NULL), 0);
		worst[i] = 0;
		for (uint32_t o = 0; o < PROFILES; o++) {
			struct pawl_batch batch = {others[o].atomic, 0};
			double predicted = pawl_step_s(&perf, &others[o].place, &batch);

			worst[i] = fmax(worst[i], fabs(predicted / others[o].step_s - 1));
		}
		good += worst[i] < 0.06;
	}
	assert_true(good > MODELS * 9 / 10);
}

/* Returns the loss that the fit minimizes, from its definition. */
static double loss_of(const struct pawl_perf *perf, const struct pawl_profile *profiles, uint32_t n)
{
	const struct pawl_placement alone = {1, 1, 1};
	double grads = 0;
	double steps = 0;
	double r = perf->beta_r / perf->alpha_r;
	double b = perf->beta_n / perf->alpha_n;

	for (uint32_t i = 0; i < n; i++) {
		struct pawl_batch batch = {profiles[i].atomic, 0};
		double of_grad = log(pawl_step_s(perf, &alone, &batch) / profiles[i].grad_s);
		double of_step =
			log(pawl_step_s(perf, &profiles[i].place, &batch) / profiles[i].step_s);

		grads += of_grad * of_grad;
		steps += of_step * of_step;
	}
	return sqrt(grads / n) + sqrt(steps / n) + 1e-3 * (perf->gamma - 1) * (perf->gamma - 1) +
		1e-2 * (r * r + b * b);
}

/* No parameters near the fit are better, nor are the true ones; a fit that begins there changes
 * little. */
static void nothing_near_is_better(void **state)
{
	struct rng rng = {first_seed};

	for (uint32_t i = 0; i < MODELS; i++) {
		struct pawl_profile profiles[PROFILES];
		struct pawl_perf truth = make_perf(&rng);
		struct pawl_perf perf = {0};
		struct pawl_perf again;
		double least;

		measure_many(&rng, &truth, profiles, 0.1);
		assert_int_equal(pawl_perf_fit(&perf, profiles, PROFILES, NULL), 0);
		least = loss_of(&perf, profiles, PROFILES);
		assert_true(least <= loss_of(&truth, profiles, PROFILES) * 1.001);
		again = perf;
		assert_int_equal(pawl_perf_fit(&again, profiles, PROFILES, NULL), 0);
		assert_close(loss_of(&again, profiles, PROFILES), least, 0.03);
		for (uint32_t k = 0; k < 200; k++) {
			struct pawl_perf other = perf;

			other.alpha_c *= log_uniform(&rng, 0.8, 1.25);
			other.beta_c *= log_uniform(&rng, 0.8, 1.25);
			other.alpha_r *= log_uniform(&rng, 0.8, 1.25);
			other.beta_r *= log_uniform(&rng, 0.8, 1.25);
			other.alpha_n *= log_uniform(&rng, 0.8, 1.25);
			other.beta_n *= log_uniform(&rng, 0.8, 1.25);
			other.delta_n *= log_uniform(&rng, 0.8, 1.25);
			other.gamma = fmax(1, other.gamma * log_uniform(&rng, 0.8, 1.25));
			assert_true(loss_of(&other, profiles, PROFILES) >= least * 0.999);
		}
	}
}

/* A cost that was never measured counts as zero, so that jobs try such placements and measure
 * it. */
static void priors_are_optimistic(void **state)
{
	const struct pawl_perf truth = {0.1, 0.01, 0.05, 0.01, 0.4, 0.02, 0.01, 1};
	const struct pawl_batch batch = {16, 0};
	struct pawl_profile profiles[4] = {measure(&truth, 1, 1, 1, 16)};
	struct pawl_perf perf = {0};

	assert_int_equal(pawl_perf_fit(&perf, profiles, 1, NULL), 0);
	/* Half of the gradient time, as only one batch size was seen. */
	assert_close(perf.alpha_c, 0.13, 1e-6);
	assert_close(perf.alpha_c + 16 * perf.beta_c, 0.26, 1e-4);
	assert_true(perf.alpha_r < 1e-7 && perf.beta_r < 1e-7);
	assert_true(perf.alpha_n < 1e-7 && perf.beta_n < 1e-7 && perf.delta_n < 1e-7);
	profiles[1] = measure(&truth, 1, 1, 1, 32);
	profiles[2] = measure(&truth, 1, 2, 2, 16);
	assert_int_equal(pawl_perf_fit(&perf, profiles, 3, NULL), 0);
	assert_close(perf.alpha_c, 0.1, 0.01);
	assert_close(pawl_step_s(&perf, &profiles[2].place, &batch), 0.31, 1e-3);
	assert_true(perf.beta_r < 1e-7);
	assert_close(perf.alpha_n, 1.1 * perf.alpha_r, 1e-9); /* more than one node costs more */
	profiles[3] = measure(&truth, 2, 2, 1, 16);
	assert_int_equal(pawl_perf_fit(&perf, profiles, 4, NULL), 0);
	assert_close(pawl_step_s(&perf, &profiles[3].place, &batch), 0.66, 1e-3);
}

static void nonsense_is_refused(void **state)
{
	const struct pawl_perf truth = {0.1, 0.01, 0.05, 0.01, 0.4, 0.02, 0.01, 1};
	static const double bad[] = {0, -1, NAN, INFINITY};
	struct pawl_perf perf = {0};
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct pawl_profile profiles[2] = {measure(&truth, 1, 1, 1, 16),
			measure(&truth, 1, 1, 1, 16)};

		profiles[1].step_s = bad[i];
		assert_int_equal(pawl_perf_fit(&perf, profiles, 2, &err), PAWL_EINVAL);
		assert_non_null(strstr(err.msg, "profile 1 has invalid times: 0.26 s and "));
	}
	assert_int_equal(pawl_perf_fit(&perf, NULL, 0, &err), PAWL_EINVAL);
	assert_true(perf.gamma == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(models_are_found_again),
		cmocka_unit_test(nothing_near_is_better),
		cmocka_unit_test(priors_are_optimistic),
		cmocka_unit_test(nonsense_is_refused),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
