/* Plans that there cannot be: models, settings and wishes that are refused, and how; and plans that
 * memory is short for. */
#include "each_fault.h"
#include "pipe_models.h"

#include <errno.h>
#include <stdlib.h>

static void expect_refused(struct model *model, int code, const char *first, const char *second)
{
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err = {0};

	FAILS(code,
		pawl_pipe_choose(&plan, &report, NULL, model->units, model->n, &model->setting,
			&err));
	SAYS(first);
	SAYS(second);
	assert_null(plan.chunks);
}

static void set_caps(struct model *model, uint64_t bytes)
{
	for (uint32_t s = 0; s < model->setting.stages; s++) {
		model->caps[s] = bytes;
	}
	model->setting.caps_bytes = model->caps;
}

static void a_unit_that_fits_no_stage_is_named(void **state)
{
	static struct model model;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;

	make_equal(&model, 8, 4, 8);
	model.units[5].param_bytes = 1 << 20;
	model.setting.state_factor = 4;
	set_caps(&model, 3 << 20);
	expect_refused(&model, PAWL_EINVAL, "unit u5 alone needs 4.0 MiB",
		"1.34 times the memory of each stage would do (stage 3: 4.1 MiB)");
	set_caps(&model, (uint64_t)(1.34 * (3 << 20)));
	choose(&model, &plan, &report);
	release(&plan, &report);
	model.units[0].stage = 0; /* 4 microbatches in flight there, with 10 bytes each */
	model.units[0].saved_bytes = 2 << 20;
	model.setting.schedule = PAWL_PIPE_SIMPLE;
	set_caps(&model, 9 << 20);
	expect_refused(&model, PAWL_EINVAL, "unit u0 alone needs 16.0 MiB",
		"activations of 8 microbatches), and stage 0");
	expect_refused(&model, PAWL_EINVAL, "", "; schedule 1f1b would fit");
}

/* The caps that the message names do, and a few hundredths less do not. */
static void caps_that_would_do_are_named(void **state)
{
	static struct model model;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err = {0};
	double factor;
	const char *named;

	make_equal(&model, 13, 4, 8);
	for (uint32_t u = 0; u < model.n; u++) {
		model.units[u].param_bytes = 1000003 + 70000 * u;
		model.units[u].saved_bytes = 50000 * (u % 3);
	}
	set_caps(&model, 4000000);
	expect_refused(&model, PAWL_EINVAL, "memory does not suffice from unit u",
		"or more stages");
	FAILS(PAWL_EINVAL,
		pawl_pipe_choose(&plan, &report, NULL, model.units, model.n, &model.setting, &err));
	print_message("%s\n", err.msg);
	named = strstr(err.msg, "; ");
	assert_non_null(named);
	factor = strtod(named + 2, NULL);
	assert_true(factor > 1 && factor < 2);
	set_caps(&model, (uint64_t)(4000000 * factor));
	choose(&model, &plan, &report);
	release(&plan, &report);
	set_caps(&model, (uint64_t)(4000000 * (factor - 0.02)));
	expect_refused(&model, PAWL_EINVAL, "memory does not suffice", "");
	model.units[0].param_bytes = 0; /* the first stage needs the second unit, too */
	model.units[0].saved_bytes = 1000000;
	set_caps(&model, 20000000);
	model.caps[0] = 4500000;
	expect_refused(&model, PAWL_EINVAL, "memory does not suffice from unit u0 on: stage 0", "");
}

static void empty_stages_are_refused(void **state)
{
	static struct model model;

	make_equal(&model, 3, 4, 8);
	expect_refused(&model, PAWL_EINVAL, "3 units cannot fill 4 chunks", "ask for at most 3");
	make_equal(&model, 9, 4, 8);
	for (uint32_t u = 0; u < 6; u++) {
		model.units[u].param_bytes = 0;
	}
	expect_refused(&model, PAWL_EINVAL, "3 units with parameters cannot fill 4 chunks", "");
	make_equal(&model, 7, 4, 8);
	model.setting.schedule = PAWL_PIPE_INTERLEAVED;
	expect_refused(&model, PAWL_EINVAL, "7 units cannot fill 8 chunks", "1f1b would fit");
}

static void contradicting_wishes_are_refused(void **state)
{
	static struct model model;

	make_equal(&model, 8, 4, 8);
	model.units[2].stage = 2;
	model.units[5].stage = 1;
	expect_refused(&model, PAWL_EINVAL,
		"u2 is wanted on stage 2, and u5, behind it, on stage 1", "cannot go back");
	model.units[5].stage = PAWL_PIPE_ANY_STAGE;
	model.units[2].stage = 3;
	expect_refused(&model, PAWL_EINVAL, "u2 is wanted on stage 3", "no unit");
	model.units[2].stage = 4;
	expect_refused(&model, PAWL_EINVAL, "u2 is wanted on stage 4", "the last stage is 3");
	model.units[2].stage = 1; /* 8 units are one each in 8 chunks: u2 is on stage 2 */
	model.setting.schedule = PAWL_PIPE_INTERLEAVED;
	expect_refused(&model, PAWL_EINVAL, "no cut has the wanted units on their stages",
		"in each of 8 chunks; schedule 1f1b would fit");
	make_equal(&model, 8, 4, 8);
	model.units[0].tied = model.units[7].tied = 1;
	model.units[0].stage = 0;
	model.units[7].stage = 3;
	model.setting.tied = PAWL_PIPE_VISIT;
	expect_refused(&model, PAWL_EINVAL, "u7 is wanted on stage 3", "visits u0");
	model.setting.schedule = PAWL_PIPE_SIMPLE;
	expect_refused(&model, PAWL_EINVAL, "simple has no visits", "replicate");
	make_equal(&model, 8, 4, 8);
	model.units[0].param_bytes = model.units[1].param_bytes = 0;
	model.units[1].stage = 0;
	model.units[2].stage = 1;
	expect_refused(&model, PAWL_EINVAL, "no cut has the wanted units on their stages", "");
	make_equal(&model, 8, 4, 8);
	for (uint32_t u = 0; u < 8; u++) {
		model.units[u].weight_s = 0;
	}
	model.setting.schedule = PAWL_PIPE_ZERO_BUBBLE;
	expect_refused(&model, PAWL_EINVAL, "zero-bubble delays", "weight_s");
	make_equal(&model, 8, 1, 8);
	model.setting.schedule = PAWL_PIPE_ZBV;
	expect_refused(&model, PAWL_EINVAL, "zbv needs at least two stages", "");
	make_equal(&model, 8, 2, 8);
	model.setting.memory_weight = 0.5;
	model.speeds[0] = 1;
	model.speeds[1] = 2;
	model.setting.speeds = model.speeds;
	expect_refused(&model, PAWL_EINVAL, "memory_weight", "different speeds");
}

static void wrong_units_are_named(void **state)
{
	static const struct {
		struct pawl_pipe_unit unit; /* the last of four; its stage is any */
		int code;
		const char *first;
		const char *second;
	} wrong[] = {
		{{"x", .forward_s = NAN}, PAWL_EINVAL, "unit x: its forward time", ""},
		{{"x", .forward_s = -1}, PAWL_EINVAL, "unit x: its forward time", ""},
		{{"x", .backward_s = INFINITY}, PAWL_EINVAL, "unit x: its backward time", ""},
		{{"x", .backward_s = 0.5, .weight_s = 1}, PAWL_EINVAL,
			"unit x: the time for gradients of parameters", ""},
		{{"x", .cut_bytes = PAWL_PIPE_BYTES_MAX + 1}, PAWL_ELIMIT, "unit x: its inputs",
			""},
		{{""}, PAWL_EINVAL, "unit 3 has no name", ""},
		{{NULL}, PAWL_EINVAL, "unit 3 has no name", ""},
		{{"x", .param_bytes = 100, .tied = 1, .tied_bytes = 101}, PAWL_EINVAL,
			"unit x: it shares more", ""},
		{{"x", .tied = PAWL_PIPE_TIED_MAX + 1}, PAWL_ELIMIT, "unit x",
			"sets of tied units"},
	};
	static struct model model;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		make_equal(&model, 4, 2, 2);
		model.units[3] = wrong[i].unit;
		model.units[3].stage = PAWL_PIPE_ANY_STAGE;
		expect_refused(&model, wrong[i].code, wrong[i].first, wrong[i].second);
	}
}

static void units_that_do_not_go_together_are_named(void **state)
{
	static struct model model;

	make_equal(&model, 4, 2, 2);
	model.units[0].tied = model.units[2].tied = 1;
	model.units[0].tied_bytes = 5;
	expect_refused(&model, PAWL_EINVAL, "units u0 and u2 are tied, but share 5 and 0 bytes",
		"");
	make_equal(&model, 2, 2, 2);
	for (uint32_t u = 0; u < 2; u++) {
		model.units[u].forward_s = model.units[u].backward_s = model.units[u].weight_s = 0;
	}
	expect_refused(&model, PAWL_EINVAL, "no unit takes any time", "");
	make_equal(&model, 2, 2, 2);
	model.units[0].saved_bytes = model.units[1].saved_bytes = PAWL_PIPE_BYTES_MAX;
	expect_refused(&model, PAWL_ELIMIT, "activations of all units", "");
}

static void wrong_settings_are_named(void **state)
{
	static const double no_speeds[MODEL_STAGES];
	static const uint64_t no_caps[MODEL_STAGES];
	static const struct {
		struct pawl_pipe_setting setting;
		const char *first;
		const char *second;
	} wrong[] = {
		{{0, 2, .state_factor = 1}, "0 stages", "1 to 256"},
		{{2, 0, .state_factor = 1}, "0 microbatches", "1 to 4096"},
		{{2, 2, .state_factor = 0}, "state_factor", ""},
		{{2, 2, .state_factor = 1, .memory_weight = 1.5}, "memory_weight", ""},
		{{2, 2, .state_factor = 1, .each = 1}, "each", ""},
		{{2, 2, .state_factor = 1, .schedule = PAWL_PIPE_SCHEDULES}, "schedule", ""},
		{{2, 2, .state_factor = 1, .link = {-1, 0, false}}, "link.bytes_per_s", ""},
		{{2, 2, .state_factor = 1, .link = {NAN, 0, false}}, "link.bytes_per_s", ""},
		/* a transfer would never end */
		{{2, 2, .state_factor = 1, .link = {1e-300, 0, false}}, "link.bytes_per_s", ""},
		{{2, 2, .state_factor = 1, .caps_bytes = no_caps}, "stage 0 has no memory", ""},
		{{2, 2, .state_factor = 1, .speeds = no_speeds}, "stage 0: its speed 0", ""},
	};
	static struct model model;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		make_equal(&model, 4, 2, 2);
		model.setting = wrong[i].setting;
		expect_refused(&model, PAWL_EINVAL, wrong[i].first, wrong[i].second);
	}
	make_equal(&model, 4, 2, 2);
	model.n = 0;
	expect_refused(&model, PAWL_EINVAL, "0 units", "");
}

static void steps_of_too_many_tasks_are_refused(void **state)
{
	static struct pawl_pipe_unit units[PAWL_PIPE_STAGES_MAX * 4];
	struct pawl_pipe_setting setting = {.stages = PAWL_PIPE_STAGES_MAX,
		.microbatches = PAWL_PIPE_MICROBATCHES_MAX,
		.schedule = PAWL_PIPE_INTERLEAVED,
		.each = 4,
		.state_factor = 1};
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err;

	for (size_t u = 0; u < sizeof(units) / sizeof(*units); u++) {
		units[u] = (struct pawl_pipe_unit){.name = "u",
			.forward_s = 1,
			.stage = PAWL_PIPE_ANY_STAGE};
	}
	FAILS(PAWL_ELIMIT,
		pawl_pipe_choose(&plan, &report, NULL, units, sizeof(units) / sizeof(*units),
			&setting, &err));
	assert_non_null(strstr(err.msg, "a step would have 8388608 tasks"));
	setting.each = 5;
	FAILS(PAWL_ELIMIT,
		pawl_pipe_choose(&plan, &report, NULL, units, sizeof(units) / sizeof(*units),
			&setting, &err));
	assert_non_null(strstr(err.msg, "256 stages of 5 chunks"));
}

/* ---- no memory ---- */

/* Chooses a plan while the n-th allocation fails, for all n. */
static void fail_each(struct model *model, int expected)
{
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err;

	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("pipe.", nth, ENOMEM, false);
		rv = pawl_pipe_choose(&plan, &report, NULL, model->units, model->n, &model->setting,
			&err);
		fault_disarm();
		if (rv == PAWL_ENOMEM) {
			assert_true(fault_reached(nth));
			assert_null(plan.chunks);
			assert_null(report.stage);
		} else {
			assert_int_equal(rv, expected);
		}
		release(&plan, &report);
	}
}

static void each_allocation_may_fail(void **state)
{
	static struct model model;

	make_equal(&model, 9, 3, 4);
	model.units[0].tied = model.units[8].tied = 1;
	model.setting.schedule = PAWL_PIPE_AUTO;
	fail_each(&model, 0);
	set_caps(&model, 330);
	fail_each(&model, PAWL_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_unit_that_fits_no_stage_is_named),
		cmocka_unit_test(caps_that_would_do_are_named),
		cmocka_unit_test(empty_stages_are_refused),
		cmocka_unit_test(contradicting_wishes_are_refused),
		cmocka_unit_test(wrong_units_are_named),
		cmocka_unit_test(units_that_do_not_go_together_are_named),
		cmocka_unit_test(wrong_settings_are_named),
		cmocka_unit_test(steps_of_too_many_tasks_are_refused),
		cmocka_unit_test(each_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
