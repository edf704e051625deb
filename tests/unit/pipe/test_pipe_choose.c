/* Whole plans: what is chosen and why, and that any model in any setting gives a plan that keeps
 * its promises, or an error. */
#include "pipe/list.h"
#include "pipe_models.h"
#include "seed.h"

#include <stdlib.h>

#define MODELS      120u /* random models; ten times as many in long runs */
#define MODELS_LONG 3000u

/* ---- promises ---- */

/* Each unit is in one chunk, in order; sums of times and bytes are those of the units. */
static void check_chunks(const struct model *model, const struct pawl_pipe_plan *plan)
{
	uint32_t next = 0;

	for (uint32_t c = 0; c < plan->chunks_n; c++) {
		const struct pawl_pipe_chunk *chunk = &plan->chunks[c];
		double speed = model->setting.speeds ? model->speeds[chunk->stage] : 1;
		double forward_s = 0;
		double weight_s = 0;
		uint64_t saved = 0;

		assert_int_equal(chunk->first, next);
		assert_true(chunk->units > 0);
		for (uint32_t u = next; u < next + chunk->units; u++) {
			forward_s += model->units[u].forward_s / speed;
			weight_s += model->units[u].weight_s / speed;
			saved += model->units[u].saved_bytes;
			if (model->units[u].stage != PAWL_PIPE_ANY_STAGE) {
				assert_int_equal(model->units[u].stage, chunk->stage);
			}
		}
		next += chunk->units;
		assert_true(fabs(chunk->forward_s - forward_s) <= 1e-9 * forward_s);
		assert_true(fabs(chunk->weight_s - weight_s) <= 1e-9 * weight_s);
		assert_int_equal(chunk->saved_bytes, saved);
		if (c > 0 && plan->chunks[c - 1].stage != chunk->stage) {
			assert_int_equal(chunk->in_bytes, model->units[chunk->first].cut_bytes);
		} else {
			assert_int_equal(chunk->in_bytes, 0);
		}
	}
	assert_int_equal(next, model->n);
}

/* A tied set is on one stage if its units visit, and has copies listed on others. */
static void check_tied(const struct model *model, const struct pawl_pipe_plan *plan)
{
	uint32_t stages[3][MODEL_STAGES] = {0}; /* units of a set on a stage */
	uint32_t copies = 0;

	for (uint32_t c = 0; c < plan->chunks_n; c++) {
		for (uint32_t u = 0; u < plan->chunks[c].units; u++) {
			stages[model->units[plan->chunks[c].first + u].tied]
			      [plan->chunks[c].stage]++;
		}
	}
	for (uint32_t set = 1; set < 3; set++) {
		uint32_t holders = 0;

		for (uint32_t s = 0; s < plan->stages; s++) {
			holders += stages[set][s] > 0;
		}
		assert_true(holders <= 1 || !plan->visits);
		copies += holders > 1 ? holders : 0;
	}
	for (uint32_t i = 0; i < plan->copies_n; i++) {
		copies -= plan->copies[i].stages;
		for (uint32_t h = 0; h < plan->copies[i].stages; h++) {
			uint32_t s = plan->holders[plan->copies[i].first + h];

			assert_true(stages[plan->copies[i].tied][s] > 0);
		}
	}
	assert_int_equal(copies, 0);
}

static void check_plan(const struct model *model, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report)
{
	check_chunks(model, plan);
	check_tied(model, plan);
	assert_int_equal(report->over, PAWL_PIPE_ANY_STAGE);
	assert_true(report->finish_s >= report->bound_s * (1 - 1e-9));
	assert_true(report->step_s >= report->finish_s);
	assert_true(plan->bound <= plan->value);
	assert_true(report->finish_s >= plan->largest_s * plan->microbatches * (1 - 1e-9));
	for (uint32_t s = 0; s < plan->stages; s++) {
		assert_true(!model->setting.caps_bytes ||
			report->stage[s].peak_bytes <= model->caps[s]);
	}
}

static void expect_same_again(const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report)
{
	struct pawl_pipe_report again;
	struct pawl_err err;

	OK(pawl_pipe_verify(&again, plan, &err));
	assert_true(again.step_s <= report->step_s && again.step_s >= report->step_s);
	assert_int_equal(again.stage[0].peak_bytes, report->stage[0].peak_bytes);
	pawl_pipe_report_deinit(&again);
}

static void any_model_gives_a_plan_or_an_error(void **state)
{
	struct rng rng = {test_seed()};
	uint32_t n = getenv("PAWL_LONG") ? MODELS_LONG : MODELS;
	uint32_t found[PAWL_PIPE_SCHEDULES] = {0};
	static struct model model;

	for (uint32_t i = 0; i < n * PAWL_PIPE_SCHEDULES; i++) {
		struct pawl_pipe_plan plan;
		struct pawl_pipe_report report;
		struct pawl_err err = {0};
		int rv;

		make_random(&model, &rng, 30, 6);
		model.setting.schedule = i % PAWL_PIPE_SCHEDULES;
		model.setting.tied = rng_below(&rng, PAWL_PIPE_TIED_MODES);
		model.setting.microbatches = 1 + (uint32_t)rng_below(&rng, 20);
		model.setting.link.latency_s = one_in(&rng, 2) ? 1 : 0;
		rv = pawl_pipe_choose(&plan, &report, NULL, model.units, model.n, &model.setting,
			&err);
		if (rv == 0) {
			found[i % PAWL_PIPE_SCHEDULES]++;
			check_plan(&model, &plan, &report);
			expect_same_again(&plan, &report);
		} else {
			assert_int_equal(rv, PAWL_EINVAL);
			assert_true(err.msg[0] != '\0' && !plan.chunks && !report.stage);
		}
		release(&plan, &report);
	}
	for (uint32_t s = 0; s < PAWL_PIPE_SCHEDULES; s++) {
		print_message("%s: %u of %u\n", pawl_pipe_schedule_name(s), found[s], n);
		assert_true(found[s] > n / 10);
	}
}

/* ---- what is chosen ---- */

static void auto_takes_the_fastest_that_fits(void **state)
{
	static struct model model;
	static struct pawl_pipe_options options;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err;

	make_equal(&model, 16, 4, 8);
	model.setting.schedule = PAWL_PIPE_AUTO;
	OK(pawl_pipe_choose(&plan, &report, &options, model.units, model.n, &model.setting, &err));
	assert_int_equal(plan.schedule, PAWL_PIPE_ZBV);
	assert_close(report.bubble, 3.0 / 48, 1e-9);
	for (uint32_t i = 0; i < options.n; i++) {
		assert_int_equal(options.option[i].code, 0);
		assert_true(options.option[i].step_s >= report.step_s * (1 - 1e-9));
	}
	assert_int_equal(options.option[options.chosen].schedule, PAWL_PIPE_ZBV);
	release(&plan, &report);
	for (uint32_t u = 0; u < model.n; u++) {
		model.units[u].weight_s = 0;
	}
	choose(&model, &plan, &report);
	assert_int_equal(plan.schedule, PAWL_PIPE_INTERLEAVED);
	assert_int_equal(plan.each, 4);
	release(&plan, &report);
	for (uint32_t s = 0; s < 4; s++) { /* 4 units of 100, and those of 4 microbatches of 1F1B */
		model.caps[s] = 400 + 4 * 40;
	}
	model.setting.caps_bytes = model.caps;
	OK(pawl_pipe_choose(&plan, &report, &options, model.units, model.n, &model.setting, &err));
	assert_int_equal(plan.schedule, PAWL_PIPE_1F1B);
	for (uint32_t i = 0; i < options.n; i++) {
		if (options.option[i].schedule == PAWL_PIPE_INTERLEAVED) {
			assert_int_equal(options.option[i].code, PAWL_EINVAL);
			assert_true(options.option[i].why[0] != '\0');
		}
	}
	release(&plan, &report);
}

/* Returns the bubble of a plan by SMP's default policy: backwards first, two microbatches more in
 * flight than there are stages. */
static double find_smp_bubble(const struct pawl_pipe_plan *plan)
{
	const struct pipe_policy policy = {PIPE_BACKWARD_FIRST, false, plan->stages + 2,
		UINT32_MAX};
	struct pawl_pipe_plan with = *plan;
	struct pawl_pipe_report report;
	struct pipe_order order;
	struct pawl_err err;
	double bubble;

	OK(pipe_order_list(&order, plan, &policy, &err));
	with.first = order.first;
	with.tasks = order.tasks;
	OK(pawl_pipe_verify(&report, &with, &err));
	bubble = report.bubble;
	pawl_pipe_report_deinit(&report);
	pipe_order_deinit(&order);
	return bubble;
}

/* p = 4, m = 32, and 8 equal units, of which the first and the last are tied. */
static void tied_units_cost_no_more_than_the_formula(void **state)
{
	static const enum pawl_pipe_tied modes[] = {PAWL_PIPE_REPLICATE, PAWL_PIPE_VISIT};
	static struct model model;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;

	for (int i = 0; i < 2; i++) {
		make_equal(&model, 8, 4, 32);
		model.units[0].tied = model.units[7].tied = 1;
		model.setting.tied = modes[i];
		choose(&model, &plan, &report);
		print_message("%s: bubble %.4f, 1F1B's formula %.4f, in flight %u, stage 0 has %u "
			      "activations\n",
			i == 0 ? "replicate" : "visit", report.bubble, 3.0 / 32, plan.inflight,
			report.stage[0].peak_live);
		assert_int_equal(plan.visits, i == 1);
		assert_int_equal(plan.copies_n, i == 0);
		assert_true(report.bubble <= 1.1 * 3 / 32);
		if (i == 1) {
			print_message("SMP's default policy: bubble %.4f\n",
				find_smp_bubble(&plan));
			assert_true(find_smp_bubble(&plan) > 0.3);
		}
		release(&plan, &report);
	}
}

static void tied_units_are_copied_or_visited_by_what_is_faster(void **state)
{
	static struct model model;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;

	make_equal(&model, 8, 4, 16);
	model.units[0].tied = model.units[7].tied = 1;
	model.units[0].tied_bytes = model.units[7].tied_bytes = 100;
	model.units[7].forward_s = 3; /* a stage of its own; with the first unit it is too much */
	model.units[7].backward_s = 6;
	choose(&model, &plan, &report);
	assert_false(plan.visits);
	assert_int_equal(plan.copies_n, 1);
	assert_int_equal(plan.holders[0], 0);
	assert_int_equal(plan.holders[1], 3);
	release(&plan, &report);
	model.units[7].forward_s = 0.01; /* a cheap visit, and gradients that take 10 s to sum */
	model.units[7].backward_s = 0.02;
	model.units[7].weight_s = 0;
	model.setting.link = (struct pawl_pipe_link){10, 0, false};
	choose(&model, &plan, &report);
	assert_true(plan.visits);
	assert_int_equal(plan.copies_n, 0);
	assert_int_equal(plan.chunks[plan.chunks_n - 1].stage, 0);
	assert_int_equal(plan.chunks[plan.chunks_n - 1].units, 1);
	release(&plan, &report);
}

static void a_plan_can_be_ordered_anew(void **state)
{
	static struct model model;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err;

	make_equal(&model, 8, 4, 8);
	model.setting.schedule = PAWL_PIPE_INTERLEAVED;
	choose(&model, &plan, &report);
	plan.microbatches = 9;
	pawl_pipe_report_deinit(&report);
	OK(pawl_pipe_order(&plan, &report, &err));
	assert_close(report.bubble, 3.0 / (2 * 9), 1e-9);
	pawl_pipe_report_deinit(&report);
	plan.chunks[3].stage = 0;
	plan.chunks[3].in_bytes = 0;
	plan.chunks[4].in_bytes = 0;
	FAILS(PAWL_EINVAL, pawl_pipe_order(&plan, &report, &err));
	assert_non_null(strstr(err.msg, "not placed"));
	release(&plan, &report);
}

/* Sets the memory of each stage to what its unit needs with some activations of 10 bytes each. */
static void set_room(struct model *model, const uint32_t *live)
{
	for (uint32_t s = 0; s < model->setting.stages; s++) {
		model->caps[s] = 100 + 10 * live[s];
	}
	model->setting.caps_bytes = model->caps;
}

/* With a byte less on any stage there is no such plan. */
static void each_schedule_fits_the_memory_that_it_needs(void **state)
{
	static const struct {
		enum pawl_pipe_schedule schedule;
		uint32_t live[4];
	} cases[] = {{PAWL_PIPE_SIMPLE, {8, 8, 8, 8}}, {PAWL_PIPE_1F1B, {4, 3, 2, 1}},
		{PAWL_PIPE_ZERO_BUBBLE, {5, 5, 5, 5}}};
	static struct model model;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pawl_pipe_plan plan;
		struct pawl_pipe_report report;
		struct pawl_err err;

		make_equal(&model, 4, 4, 8);
		model.setting.schedule = cases[i].schedule;
		set_room(&model, cases[i].live);
		choose(&model, &plan, &report);
		release(&plan, &report);
		for (uint32_t s = 0; s < 4; s++) {
			set_room(&model, cases[i].live);
			model.caps[s]--;
			FAILS(PAWL_EINVAL,
				pawl_pipe_choose(&plan, &report, NULL, model.units, model.n,
					&model.setting, &err));
		}
	}
}

/* Microbatches in flight hide latency, and need memory. */
static void a_listed_order_hides_latency_as_far_as_it_fits(void **state)
{
	static const uint32_t live[] = {4, 4, 4, 4};
	static struct model model;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err;
	double step_s;

	make_equal(&model, 4, 4, 16);
	model.setting.link.latency_s = 3;
	choose(&model, &plan, &report);
	step_s = report.step_s;
	release(&plan, &report);
	model.setting.schedule = PAWL_PIPE_LISTED;
	choose(&model, &plan, &report);
	assert_true(report.step_s < 0.8 * step_s && plan.inflight > 4);
	step_s = report.step_s;
	for (uint32_t s = 0; s < 4; s++) {
		plan.stage[s].cap_bytes = 100 + 40;
	}
	plan.inflight = 0;
	pawl_pipe_report_deinit(&report);
	OK(pawl_pipe_order(&plan, &report, &err));
	assert_int_equal(report.over, PAWL_PIPE_ANY_STAGE);
	assert_true(report.step_s > 1.1 * step_s && plan.inflight == 4);
	release(&plan, &report);
	set_room(&model, live);
	choose(&model, &plan, &report);
	assert_int_equal(plan.inflight, 4);
	release(&plan, &report);
}

/* Among cuts with the same value, the one that sends least is taken; else even parts. */
static void equal_cuts_send_little_and_are_even(void **state)
{
	static struct model model;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;

	make_equal(&model, 10, 3, 4); /* the largest part has 4 units in any case */
	choose(&model, &plan, &report);
	for (uint32_t c = 0; c < 3; c++) {
		assert_in_range(plan.chunks[c].units, 3, 4);
	}
	release(&plan, &report);
	for (uint32_t u = 1; u < 10; u++) {
		model.units[u].cut_bytes = 1000;
	}
	model.units[2].cut_bytes = 1; /* 2, 4, 4 */
	choose(&model, &plan, &report);
	assert_int_equal(plan.chunks[0].units, 2);
	release(&plan, &report);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_model_gives_a_plan_or_an_error),
		cmocka_unit_test(auto_takes_the_fastest_that_fits),
		cmocka_unit_test(tied_units_cost_no_more_than_the_formula),
		cmocka_unit_test(tied_units_are_copied_or_visited_by_what_is_faster),
		cmocka_unit_test(a_plan_can_be_ordered_anew),
		cmocka_unit_test(each_schedule_fits_the_memory_that_it_needs),
		cmocka_unit_test(a_listed_order_hides_latency_as_far_as_it_fits),
		cmocka_unit_test(equal_cuts_send_little_and_are_even),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
