/* Goodput: the paper's formulas worked by hand, what must hold for any model, and the chosen batch
 * against an exhaustive search. */
#include "close.h"
#include "pawl/adapt.h"
#include "seed.h"

#define JOBS 3000u

static uint64_t first_seed;

static const struct pawl_perf round_perf = {.alpha_c = 0.1,
	.beta_c = 0.01,
	.alpha_r = 0.02,
	.beta_r = 0.003,
	.alpha_n = 0.4,
	.beta_n = 0.05,
	.delta_n = 0.007,
	.gamma = 1};

/* ---- formulas ---- */

static void steps_by_hand(void **state)
{
	const struct {
		struct pawl_placement place;
		struct pawl_batch batch;
		double step_s;
	} cases[] = {
		{{1, 1, 0}, {30, 0}, 0.4},
		{{1, 1, 0}, {30, 3}, 1.6},
		{{1, 2, 0}, {30, 0}, 0.42},
		{{1, 5, 0}, {30, 1}, 0.4 + 0.4 + 0.029},
		{{2, 2, 0}, {10, 0}, 0.2 + 0.4},
		/* 3 replicas on one node and 2 on the other */
		{{2, 5, 0}, {10, 0}, 0.2 + 0.4 + 0.15 + 0.014},
		{{2, 5, 4}, {10, 0}, 0.2 + 0.4 + 0.15 + 0.021},
		{{4, 16, 4}, {10, 2}, 3 * 0.2 + 0.4 + 0.7 + 0.021},
	};
	struct pawl_perf perf = round_perf;
	struct pawl_placement place = {2, 2, 1};
	struct pawl_batch batch = {30, 0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_close(pawl_step_s(&perf, &cases[i].place, &cases[i].batch), cases[i].step_s,
			1e-12);
	}
	perf.gamma = 2; /* 0.4 and 0.4 */
	assert_close(pawl_step_s(&perf, &place, &batch), 0.4 * sqrt(2), 1e-12);
	perf.gamma = 10;
	perf.alpha_n = 1e-30;
	assert_close(pawl_step_s(&perf, &place, &batch), 0.4, 1e-12);
}

/* Pollux (6): EFFICIENCY = (phi + M0) / (phi + M), where phi = M0 var / sqr. */
static void goodput_is_throughput_times_efficiency(void **state)
{
	struct rng rng = {first_seed};

	for (uint32_t i = 0; i < JOBS; i++) {
		struct pawl_noise noise = {log_uniform(&rng, 1e-6, 1e3),
			log_uniform(&rng, 1e-6, 1e3)};
		struct pawl_placement place = {1, 1 + (uint32_t)rng_below(&rng, 8), 0};
		struct pawl_batch batch = {1 + (uint32_t)rng_below(&rng, 100),
			(uint32_t)rng_below(&rng, 4)};
		uint32_t init = 1 + (uint32_t)rng_below(&rng, 500);
		double total = (double)pawl_batch_total(&place, &batch);
		double phi = init * noise.var / noise.sqr;

		assert_close(pawl_goodput(&round_perf, &noise, init, &place, &batch),
			total / pawl_step_s(&round_perf, &place, &batch) * (phi + init) /
				(phi + total),
			1e-9);
	}
}

static void gain_lies_between_one_and_scale(void **state)
{
	struct pawl_noise nothing = {0, 0};
	struct pawl_noise quiet = {1, 0};
	struct pawl_noise loud = {0, 1};

	assert_close(pawl_gain(&quiet, 8), 1, 1e-12);
	assert_close(pawl_gain(&loud, 8), 8, 1e-12);
	assert_close(pawl_gain(&nothing, 8), 1, 1e-12);
}

static void learning_rates_by_hand(void **state)
{
	const struct pawl_lr_rule adascale = {.by_gain = true, .power = 1};
	const struct pawl_lr_rule adam = {.by_gain = true, .power = 0.5};
	const struct pawl_lr_rule linear = {.power = 1};
	const struct pawl_lr_rule root = {.power = 0.5};
	const struct pawl_lr_rule legw = {.power = 0.5, .warmup = 100};
	struct pawl_noise even = {1, 1}; /* at a scale of 4 the gain is 2 / (1 + 1 / 4) */
	struct pawl_noise loud = {0, 1};

	assert_close(pawl_lr_factor(&adascale, &even, 4, 7), 1.6, 1e-12);
	assert_close(pawl_lr_factor(&adam, &even, 4, 7), sqrt(1.6), 1e-12);
	assert_close(pawl_lr_factor(&adam, &loud, 4, 7), 2, 1e-12);
	assert_close(pawl_lr_factor(&linear, &even, 4, 7), 4, 1e-12);
	assert_close(pawl_lr_factor(&root, &even, 4, 7), 2, 1e-12);
	assert_close(pawl_lr_factor(&legw, &even, 4, 0), 0, 1e-12);
	assert_close(pawl_lr_factor(&legw, &even, 4, 100), 0.5, 1e-12);
	assert_close(pawl_lr_factor(&legw, &even, 4, 400), 2, 1e-12);
	assert_close(pawl_lr_factor(&legw, &even, 4, 1e9), 2, 1e-12);
	assert_close(pawl_lr_factor(&legw, &even, 1, 50), 0.5, 1e-12);
}

/* ---- choice ---- */

struct job {
	struct pawl_perf perf;
	struct pawl_noise noise;
	struct pawl_batch_bounds bounds;
	struct pawl_placement place;
};

static struct job make_job(struct rng *rng)
{
	struct job job = {
		.perf = {.alpha_c = log_uniform(rng, 1e-4, 1),
			.beta_c = log_uniform(rng, 1e-5, 0.1),
			.alpha_r = log_uniform(rng, 1e-4, 1),
			.beta_r = log_uniform(rng, 1e-5, 0.1),
			.alpha_n = log_uniform(rng, 1e-4, 10),
			.beta_n = log_uniform(rng, 1e-5, 0.1),
			.delta_n = log_uniform(rng, 1e-5, 0.1),
			.gamma = log_uniform(rng, 1, 10)},
		.noise = {1, log_uniform(rng, 1e-2, 1e3)},
		.bounds = {.accumulate = rng_below(rng, 2) == 0},
	};

	job.bounds.init = (uint32_t)log_uniform(rng, 1, 1000);
	job.bounds.max = (uint32_t)(job.bounds.init * log_uniform(rng, 1, 60));
	job.bounds.atomic_min = (uint32_t)log_uniform(rng, 1, job.bounds.init + 1);
	job.bounds.atomic_max = job.bounds.atomic_min + (uint32_t)log_uniform(rng, 1, 500);
	job.place.replicas = (uint32_t)log_uniform(rng, 1, 70);
	job.place.nodes = 1 + (uint32_t)rng_below(rng, job.place.replicas);
	return job;
}

static bool may_be(const struct job *job, const struct pawl_batch *batch)
{
	uint64_t total = pawl_batch_total(&job->place, batch);

	return batch->atomic >= job->bounds.atomic_min && batch->atomic <= job->bounds.atomic_max &&
		total <= job->bounds.max && (job->bounds.accumulate || batch->accum == 0);
}

/* Returns the best goodput of all batches of at least init samples that the choice may take. */
static double search(const struct job *job, bool *found)
{
	uint32_t parts_max = job->bounds.max / job->place.replicas;
	double best = 0;

	*found = false;
	for (uint32_t accum = 0; accum < parts_max; accum++) {
		for (uint32_t m = job->bounds.atomic_min; m <= job->bounds.atomic_max; m++) {
			struct pawl_batch batch = {m, accum};
			uint64_t total = pawl_batch_total(&job->place, &batch);
			bool alone =
				job->place.replicas == 1 && total > job->bounds.init && accum == 0;
			double worth;

			if (may_be(job, &batch) && total >= job->bounds.init && !alone) {
				worth = pawl_goodput(&job->perf, &job->noise, job->bounds.init,
					&job->place, &batch);
				best = worth > best ? worth : best;
				*found = true;
			}
		}
	}
	return best;
}

/* The choice is always within the bounds, and is found if there is one. Of the totals that are
 * tried, one lies below the best by a factor of at most ratio: it takes less time and gains at
 * least 1 / ratio as much, except for the rounding to whole samples. */
static void choice_is_nearly_the_best(void **state)
{
	struct rng rng = {first_seed};
	uint32_t chosen = 0;

	for (uint32_t i = 0; i < JOBS; i++) {
		struct job job = make_job(&rng);
		double ratio = pow((double)job.bounds.max / job.bounds.init,
			1.0 / (PAWL_BATCH_CANDIDATES - 1));
		struct pawl_batch batch;
		double goodput = 0;
		bool any;
		double best = search(&job, &any);

		if (!pawl_batch_choose(&job.perf, &job.noise, &job.bounds, &job.place, &batch,
			    &goodput)) {
			assert_false(any);
			continue;
		}
		assert_true(may_be(&job, &batch));
		assert_close(goodput,
			pawl_goodput(&job.perf, &job.noise, job.bounds.init, &job.place, &batch),
			1e-12);
		assert_true(goodput * ratio * (1 + 1.0 / batch.atomic) >= best);
		chosen++;
	}
	assert_true(chosen > JOBS / 3);
}

static void what_fits_no_bounds(void **state)
{
	struct pawl_batch_bounds bounds = {.init = 64,
		.max = 128,
		.atomic_min = 32,
		.atomic_max = 64};
	struct pawl_noise noise = {1, 1};
	struct pawl_placement place = {2, 8, 4};
	struct pawl_batch batch;
	double goodput;

	assert_false(pawl_batch_choose(&round_perf, &noise, &bounds, &place, &batch, &goodput));
	place = (struct pawl_placement){1, 1, 1}; /* one alone never scales without accumulating */
	assert_true(pawl_batch_choose(&round_perf, &noise, &bounds, &place, &batch, &goodput));
	assert_int_equal(batch.atomic, 64);
	assert_int_equal(batch.accum, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_by_hand),
		cmocka_unit_test(goodput_is_throughput_times_efficiency),
		cmocka_unit_test(gain_lies_between_one_and_scale),
		cmocka_unit_test(learning_rates_by_hand),
		cmocka_unit_test(choice_is_nearly_the_best),
		cmocka_unit_test(what_fits_no_bounds),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
