/* The gradient noise of gradients whose moments are known: sums of a fixed vector and of normal
 * numbers, as many as a batch has samples. All seeds are fixed, so results do not vary. */
#include "close.h"
#include "pawl/adapt.h"

#define SIZE  10    /* elements of a gradient */
#define SEEDS 2000u /* simulated runs */
#define STEPS 150u  /* steps of each run */

/* Draws two normal numbers (Box and Muller 1958). */
static void draw_normal(struct rng *rng, double *two)
{
	double radius = sqrt(-2 * log(uniform(rng)));
	double angle = 6.283185307179586 * uniform(rng);

	two[0] = radius * cos(angle);
	two[1] = radius * sin(angle);
}

/* Draws one step of count gradients, each of a share of an initial batch. |G|^2 is 1, and tr(Sigma)
 * of an initial batch is phi. */
static struct pawl_gns_step draw_step(struct rng *rng, uint32_t count, double share, double phi)
{
	double sigma = sqrt(phi / share / SIZE);
	double mean[SIZE] = {0};
	struct pawl_gns_step step = {.count = count, .scale = share * count};

	for (uint32_t i = 0; i < count; i++) {
		double g[SIZE];

		for (uint32_t d = 0; d < SIZE; d += 2) {
			draw_normal(rng, &g[d]);
		}
		for (uint32_t d = 0; d < SIZE; d++) {
			g[d] = g[d] * sigma + sqrt(1.0 / SIZE);
			mean[d] += g[d] / count;
			step.local += g[d] * g[d] / count;
		}
	}
	for (uint32_t d = 0; d < SIZE; d++) {
		step.total += mean[d] * mean[d];
	}
	return step;
}

/* Both moments of single steps are unbiased on average, for any count and share. */
static void moments_are_unbiased(void **state)
{
	static const struct {
		uint32_t count;
		double share, phi;
	} cases[] = {{2, 0.5, 3}, {4, 0.25, 0.2}, {4, 1, 10}, {16, 0.125, 5}, {3, 2, 1}};
	struct rng rng = {7};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		double sqr = 0;
		double var = 0;

		for (uint32_t n = 0; n < 200000; n++) {
			struct pawl_gns_step step =
				draw_step(&rng, cases[i].count, cases[i].share, cases[i].phi);
			struct pawl_gns one = {0};

			assert_true(pawl_gns_add(&one, &step));
			sqr += one.sqr / one.weight / 200000;
			var += one.var / one.weight / 200000;
		}
		assert_close(sqr, 1, 0.03);
		assert_close(var, cases[i].phi, 0.01);
	}
}

/* The 95 % intervals hold the true value in 93 to 97 % of the runs; the ratio is biased by at most
 * 2 %. */
static void intervals_cover(void **state)
{
	static const struct {
		uint32_t count;
		double share, phi;
	} cases[] = {{4, 0.5, 1}, {8, 0.25, 4}, {2, 1, 0.3}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint32_t covered = 0;
		double ratio = 0;

		for (uint32_t seed = 0; seed < SEEDS; seed++) {
			struct rng rng = {seed * 1000003ull + i};
			struct pawl_gns gns = {0};
			struct pawl_noise noise;
			double low;
			double high;

			for (uint32_t n = 0; n < STEPS; n++) {
				struct pawl_gns_step step = draw_step(&rng, cases[i].count,
					cases[i].share, cases[i].phi);

				pawl_gns_age(&gns, step.scale);
				pawl_gns_add(&gns, &step);
			}
			assert_true(pawl_gns_interval(&gns, &low, &high));
			covered += low <= cases[i].phi && cases[i].phi <= high;
			pawl_gns_noise(&gns, &noise);
			ratio += noise.var / noise.sqr / SEEDS;
		}
		assert_in_range(covered, SEEDS * 93 / 100, SEEDS * 97 / 100);
		assert_close(ratio, cases[i].phi, 0.02);
	}
}

/* Adds the gradient of one rank, which has this share of the batch's samples. */
static void add_share(struct rng *rng, double share, double phi, double *mean, double *squares)
{
	for (uint32_t d = 0; d < SIZE; d += 2) {
		double g[2];

		draw_normal(rng, g);
		for (uint32_t k = 0; k < 2; k++) {
			g[k] = share * (g[k] * sqrt(phi / share / SIZE) + sqrt(1.0 / SIZE));
			mean[d + k] += g[k];
			*squares += g[k] * g[k];
		}
	}
}

/* Returns a step of one initial batch whose samples are split among ranks in these shares; a share
 * of 0 ends them. */
static struct pawl_gns_step draw_shares(struct rng *rng, const double *shares, double phi)
{
	struct pawl_gns_step step = {.scale = 1};
	double mean[SIZE] = {0};
	double of_shares = 0;
	double of_gradients = 0;

	for (uint32_t r = 0; r < 4 && shares[r] > 0; r++) {
		add_share(rng, shares[r], phi, mean, &of_gradients);
		of_shares += shares[r] * shares[r];
	}
	for (uint32_t d = 0; d < SIZE; d++) {
		step.total += mean[d] * mean[d];
	}
	step.count = 1 / of_shares;
	step.local = step.count * of_gradients;
	return step;
}

/* Ranks may have unequal numbers of samples. */
static void shares_may_be_unequal(void **state)
{
	static const double shares[][4] = {{0.4, 0.3, 0.3, 0}, {0.7, 0.1, 0.1, 0.1}, {0.5, 0.5}};
	const double phi = 5;
	struct rng rng = {13};

	for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
		struct pawl_gns gns = {0};
		struct pawl_noise noise;

		for (uint32_t n = 0; n < 100000; n++) {
			struct pawl_gns_step step = draw_shares(&rng, shares[i], phi);

			assert_true(pawl_gns_add(&gns, &step));
		}
		pawl_gns_noise(&gns, &noise);
		assert_close(noise.sqr, 1, 0.05);
		assert_close(noise.var, phi, 0.01);
	}
}

/* A gradient whose squared norm falls during training, as (1 + t / 50)^-power. The estimate at the
 * end is off by at most the factor most, after any number of steps. */
static void a_falling_gradient_is_followed(void **state)
{
	static const struct {
		double power, most;
	} cases[] = {{0, 1.15}, {0.5, 1.35}, {1, 1.8}, {1.5, 2.6}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (uint32_t steps = 100; steps <= 1600; steps *= 4) {
			struct rng rng = {17};
			struct pawl_gns gns = {0};
			struct pawl_noise noise;
			double sqr = 1;

			for (uint32_t n = 1; n <= steps; n++) {
				struct pawl_gns_step step = draw_step(&rng, 4, 0.25, 0.02);

				/* The noise stays the same; the squared norm changes by exactly its
				 * expected value. */
				sqr = pow(1 + n / 50.0, -cases[i].power);
				step.local += sqr - 1;
				step.total += sqr - 1;
				pawl_gns_age(&gns, step.scale);
				assert_true(pawl_gns_add(&gns, &step));
			}
			pawl_gns_noise(&gns, &noise);
			assert_close(noise.var, 0.02, 0.1);
			assert_true(noise.sqr / sqr > 1 / cases[i].most);
			assert_true(noise.sqr / sqr < cases[i].most);
		}
	}
}

/* Steps without a measurement make the earlier estimate older, and do not change it. */
static void age_is_of_training(void **state)
{
	const struct pawl_gns_step before = {2, 1, 4, 1};
	const struct pawl_gns_step after = {20, 10, 4, 1};
	struct pawl_gns gns = {0};
	struct pawl_noise noise[2];

	for (uint32_t n = 0; n < 300; n++) {
		pawl_gns_age(&gns, 1);
		assert_true(pawl_gns_add(&gns, &before));
	}
	pawl_gns_noise(&gns, &noise[0]);
	for (uint32_t n = 0; n < 400; n++) {
		pawl_gns_age(&gns, 1);
	}
	pawl_gns_noise(&gns, &noise[1]);
	assert_close(noise[1].sqr, noise[0].sqr, 1e-9);
	assert_close(noise[1].var, noise[0].var, 1e-9);
	for (uint32_t n = 0; n < 50; n++) {
		pawl_gns_age(&gns, 1);
		assert_true(pawl_gns_add(&gns, &after));
	}
	pawl_gns_noise(&gns, &noise[1]);
	/* The new squared norm is 10 times as large. */
	assert_true(noise[1].sqr > 7 * noise[0].sqr);
}

/* Four replicas, and one that accumulates four gradients, give the same estimate. */
static void only_the_gradients_count(void **state)
{
	const struct pawl_gns_step steps[] = {{2, 0.9, 4, 2}, {2, 0.8, 4, 2}, {2.5, 0.7, 4, 2}};
	struct pawl_gns gns = {0};
	struct pawl_noise noise;

	for (size_t i = 0; i < 3; i++) {
		assert_true(pawl_gns_add(&gns, &steps[i]));
	}
	pawl_gns_noise(&gns, &noise);
	assert_close(noise.sqr, (4 * 0.8 - 6.5 / 3) / 3, 0.01);
	assert_close(noise.var, (6.5 / 3 - 0.8) * 2 / 3, 0.01);
}

static void what_is_not_finite_is_left_out(void **state)
{
	const struct pawl_gns_step good = {2, 1, 4, 1};
	struct pawl_gns_step bad = good;
	struct pawl_gns gns = {0};
	struct pawl_gns before;
	struct pawl_noise noise;
	double low;
	double high;

	pawl_gns_noise(&gns, &noise);
	assert_true(noise.sqr == 1 && noise.var == 0);
	assert_false(pawl_gns_interval(&gns, &low, &high));
	assert_true(pawl_gns_add(&gns, &good));
	assert_false(pawl_gns_interval(&gns, &low, &high));
	before = gns;
	bad.local = INFINITY;
	assert_false(pawl_gns_add(&gns, &bad));
	bad = good;
	bad.total = NAN;
	assert_false(pawl_gns_add(&gns, &bad));
	assert_memory_equal(&gns, &before, sizeof(gns));
}

/* Gradients that are nothing but noise: sqr cannot be distinguished from 0. */
static void a_gradient_of_noise(void **state)
{
	struct rng rng = {11};
	struct pawl_gns gns = {0};
	struct pawl_noise noise;
	double low;
	double high;

	for (uint32_t n = 0; n < 20; n++) {
		struct pawl_gns_step step = draw_step(&rng, 4, 1, 1e4);

		pawl_gns_age(&gns, step.scale);
		pawl_gns_add(&gns, &step);
	}
	assert_true(pawl_gns_interval(&gns, &low, &high));
	assert_true(isinf(high) && low > 0 && low < 1e4);
	pawl_gns_noise(&gns, &noise);
	assert_true(noise.sqr >= 0 && noise.var > 1e3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moments_are_unbiased),
		cmocka_unit_test(intervals_cover),
		cmocka_unit_test(shares_may_be_unequal),
		cmocka_unit_test(a_falling_gradient_is_followed),
		cmocka_unit_test(age_is_of_training),
		cmocka_unit_test(only_the_gradients_count),
		cmocka_unit_test(what_is_not_finite_is_left_out),
		cmocka_unit_test(a_gradient_of_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
