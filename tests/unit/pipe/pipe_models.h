/* Models and pipelines for the tests of src/pipe: equal units, and random ones. */
#ifndef TEST_PIPE_MODELS_H
#define TEST_PIPE_MODELS_H

#include "base/rng.h"
#include "close.h"
#include "expect.h"
#include "pawl/pipe.h"

#include <stdio.h>
#include <string.h>

#define MODEL_UNITS  64u /* units of a model of the tests, at most */
#define MODEL_STAGES 32u /* stages of a pipeline of the tests, at most */

/* A model, and what is wanted of it; the pointers in setting and units lead into the struct, which
 * is not copied. */
struct model {
	struct pawl_pipe_unit units[MODEL_UNITS];
	uint32_t n;
	char names[MODEL_UNITS][16];
	struct pawl_pipe_setting setting;
	double speeds[MODEL_STAGES];
	uint64_t caps[MODEL_STAGES];
};

/* Makes a model of n equal units: F 1 s, B 2 s, of which 1 s for parameters. */
static inline void make_equal(struct model *model, uint32_t n, uint32_t stages,
	uint32_t microbatches)
{
	memset(model, 0, sizeof(*model));
	model->n = n;
	for (uint32_t u = 0; u < n; u++) {
		snprintf(model->names[u], sizeof(model->names[u]), "u%u", u);
		model->units[u] = (struct pawl_pipe_unit){.name = model->names[u],
			.forward_s = 1,
			.backward_s = 2,
			.weight_s = 1,
			.param_bytes = 100,
			.saved_bytes = 10,
			.stage = PAWL_PIPE_ANY_STAGE};
	}
	model->setting = (struct pawl_pipe_setting){.stages = stages,
		.microbatches = microbatches,
		.schedule = PAWL_PIPE_1F1B,
		.state_factor = 1};
}

/* Returns a whole number from 0 to most, so that sums are exact. */
static inline double some(struct rng *rng, uint64_t most)
{
	return (double)rng_below(rng, most + 1);
}

static inline bool one_in(struct rng *rng, uint64_t n)
{
	return rng_below(rng, n) == 0;
}

/* Ties some units of a model: one set or two, of two or three units. */
static inline void tie_some(struct model *model, struct rng *rng)
{
	for (uint32_t set = 1; set <= 1u + one_in(rng, 3); set++) {
		for (uint64_t i = 0; i < 2 + rng_below(rng, 2); i++) {
			struct pawl_pipe_unit *unit = &model->units[rng_below(rng, model->n)];

			if (unit->tied == 0) {
				unit->tied = set;
				unit->tied_bytes = 3 + set;
				unit->param_bytes += unit->tied_bytes;
			}
		}
	}
}

/* Wants some units on stages. Often there is no such plan. */
static inline void pin_some(struct model *model, struct rng *rng)
{
	for (uint32_t i = 0; i < 1u + one_in(rng, 2); i++) {
		model->units[rng_below(rng, model->n)].stage =
			(uint32_t)rng_below(rng, model->setting.stages);
	}
}

/* Makes a random model of at most n units for at most stages stages, with what occurs in life:
 * units without time or parameters, cuts of all sizes, tied units, limits of memory, unequal
 * speeds. */
static inline void make_random(struct model *model, struct rng *rng, uint32_t n, uint32_t stages)
{
	bool bare = one_in(rng, 4); /* no unit has parameters */
	double all = 0;

	make_equal(model, 1 + (uint32_t)rng_below(rng, n), 1 + (uint32_t)rng_below(rng, stages),
		1 + (uint32_t)rng_below(rng, 8));
	for (uint32_t u = 0; u < model->n; u++) {
		struct pawl_pipe_unit *unit = &model->units[u];

		unit->forward_s = one_in(rng, 9) ? 0 : 1 + some(rng, 20);
		unit->backward_s = one_in(rng, 9) ? 0 : some(rng, 40);
		unit->weight_s = one_in(rng, 2) ? 0 : unit->backward_s / 2;
		unit->param_bytes = bare || one_in(rng, 6) ? 0 : rng_below(rng, 10);
		unit->saved_bytes = rng_below(rng, 6);
		unit->cut_bytes = rng_below(rng, 30);
		all += (double)unit->param_bytes + (double)unit->saved_bytes * 3;
	}
	model->units[0].forward_s += 1;
	if (one_in(rng, 3)) {
		tie_some(model, rng);
	}
	if (one_in(rng, 6)) {
		pin_some(model, rng);
	}
	if (one_in(rng, 2)) {
		model->setting.link = (struct pawl_pipe_link){1 + some(rng, 3), 0, one_in(rng, 2)};
	}
	for (uint32_t s = 0; s < model->setting.stages; s++) {
		model->speeds[s] = 0.5 + uniform(rng);
		model->caps[s] =
			1 + (uint64_t)(all / model->setting.stages * (0.6 + 2 * uniform(rng)));
	}
	model->setting.speeds = one_in(rng, 2) ? model->speeds : NULL;
	model->setting.caps_bytes = one_in(rng, 2) ? model->caps : NULL;
	model->setting.state_factor = 1 + some(rng, 2);
}

/* Chooses a plan; fails the test if there is none. */
static inline void choose(struct model *model, struct pawl_pipe_plan *plan,
	struct pawl_pipe_report *report)
{
	struct pawl_err err;

	OK(pawl_pipe_choose(plan, report, NULL, model->units, model->n, &model->setting, &err));
}

static inline void release(struct pawl_pipe_plan *plan, struct pawl_pipe_report *report)
{
	pawl_pipe_plan_deinit(plan);
	pawl_pipe_report_deinit(report);
}

#endif
