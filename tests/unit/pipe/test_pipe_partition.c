/* Cuts are the optimum: compared with all cuts of small chains; and impossible ones are refused by
 * name. */
#include "pipe_models.h"
#include "seed.h"

#include <stdlib.h>

#define CHAINS      10000u /* random chains; ten times as many in long runs */
#define CHAINS_LONG 100000u

/* ---- all cuts ---- */

/* A cut while all are tried: unit u is on stage[u]. */
struct trial {
	const struct model *model;
	uint32_t stage[MODEL_UNITS];
	double best;
};

/* Returns the stage that computes a unit: its own, or that of the first unit of its set. */
static uint32_t where(const struct trial *trial, uint32_t u)
{
	const struct pawl_pipe_unit *units = trial->model->units;
	uint32_t first = 0;

	if (units[u].tied == 0 || trial->model->setting.tied != PAWL_PIPE_VISIT) {
		return trial->stage[u];
	}
	while (units[first].tied != units[u].tied) {
		first++;
	}
	return trial->stage[first];
}

static bool visits(const struct trial *trial, uint32_t u)
{
	const struct pawl_pipe_unit *units = trial->model->units;

	for (uint32_t v = 0; v < u; v++) {
		if (trial->model->setting.tied == PAWL_PIPE_VISIT &&
			units[v].tied == units[u].tied && units[u].tied > 0) {
			return true;
		}
	}
	return false;
}

/* Returns of how many microbatches a stage keeps activations. */
static uint32_t count_live(const struct pawl_pipe_setting *setting, uint32_t s)
{
	uint32_t all = setting->microbatches;
	uint32_t most = setting->schedule == PAWL_PIPE_1F1B  ? setting->stages - s
		: setting->schedule == PAWL_PIPE_ZERO_BUBBLE ? setting->stages + 1
							     : all;

	return most < all ? most : all;
}

/* Returns whether a stage has a unit with parameters, or any if none has some; and, unless the
 * caller says otherwise, whether each unit is where it is wanted, and memory suffices. */
static bool is_valid(const struct trial *trial, uint32_t s, bool trains)
{
	const struct model *model = trial->model;
	uint32_t live = count_live(&model->setting, s);
	bool seen[PAWL_PIPE_TIED_MAX + 1] = {false};
	bool filled = false;
	double bytes = 0;

	for (uint32_t u = 0; u < model->n; u++) {
		const struct pawl_pipe_unit *unit = &model->units[u];

		if (where(trial, u) != s) {
			continue;
		}
		if (unit->stage != PAWL_PIPE_ANY_STAGE && unit->stage != s) {
			return false;
		}
		filled = filled || (!visits(trial, u) && (!trains || unit->param_bytes > 0));
		bytes += (double)(unit->param_bytes -
				 (unit->tied > 0 && seen[unit->tied] ? unit->tied_bytes : 0)) *
				model->setting.state_factor +
			live * (double)unit->saved_bytes;
		seen[unit->tied] = true;
	}
	return filled && (!model->setting.caps_bytes || bytes <= (double)model->caps[s]);
}

static bool has_parameters(const struct model *model)
{
	for (uint32_t u = 0; u < model->n; u++) {
		if (model->units[u].param_bytes > 0) {
			return true;
		}
	}
	return false;
}

/* Returns the largest share of a stage in all time and memory, weighed as SMP does. */
static double judge_shares(const struct trial *trial)
{
	const struct model *model = trial->model;
	double weight = model->setting.memory_weight;
	double time_s = 0;
	double bytes = 0;
	double most = 0;

	for (uint32_t u = 0; u < model->n; u++) {
		time_s += model->units[u].forward_s + model->units[u].backward_s;
		bytes += (double)(model->units[u].param_bytes + model->units[u].saved_bytes);
	}
	for (uint32_t s = 0; s < model->setting.stages; s++) {
		double share = 0;

		for (uint32_t u = 0; u < model->n; u++) {
			const struct pawl_pipe_unit *unit = &model->units[u];

			if (where(trial, u) == s) {
				share += (1 - weight) * (unit->forward_s + unit->backward_s) /
						time_s +
					weight * (double)(unit->param_bytes + unit->saved_bytes) /
						fmax(bytes, 1);
			}
		}
		most = fmax(most, share);
	}
	return most;
}

/* Returns a stage's time, or that of the largest transfer into it or out of it if that is more. */
static double judge_stage(const struct trial *trial, uint32_t s)
{
	const struct model *model = trial->model;
	const struct pawl_pipe_link *link = &model->setting.link;
	double speed = model->setting.speeds ? model->speeds[s] : 1;
	double took_s = 0;
	double most_s = 0;

	for (uint32_t u = 0; u < model->n; u++) {
		const struct pawl_pipe_unit *unit = &model->units[u];
		bool here = where(trial, u) == s;

		took_s += here ? (unit->forward_s + unit->backward_s) / speed : 0;
		if (u > 0 && here != (where(trial, u - 1) == s) && link->bytes_per_s > 0) {
			double transfer_s = (double)unit->cut_bytes / link->bytes_per_s;

			took_s += link->busy ? 2 * transfer_s : 0;
			most_s = link->busy ? most_s : fmax(most_s, transfer_s);
		}
	}
	return fmax(took_s, most_s);
}

/* Returns the value of a cut. */
static double judge(const struct trial *trial)
{
	double most = 0;

	if (trial->model->setting.memory_weight > 0) {
		return judge_shares(trial);
	}
	for (uint32_t s = 0; s < trial->model->setting.stages; s++) {
		most = fmax(most, judge_stage(trial, s));
	}
	return most;
}

/* Tries all cuts in which units from u on are on stages from s on. */
static void try_cuts(struct trial *trial, uint32_t u, uint32_t s)
{
	const struct model *model = trial->model;

	if (u == model->n) {
		for (uint32_t t = 0; t < model->setting.stages; t++) {
			if (!is_valid(trial, t, has_parameters(model))) {
				return;
			}
		}
		trial->best = fmin(trial->best, judge(trial));
		return;
	}
	for (uint32_t next = s; next <= s + 1 && next < model->setting.stages; next++) {
		if (u > 0 || next == 0) {
			trial->stage[u] = next;
			try_cuts(trial, u + 1, next);
		}
	}
}

/* Compares the cut of a model with the least value of all cuts; infinite: there is none. Returns
 * whether there is one. */
static bool compare_to(struct model *model, double least)
{
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err = {0};
	int rv = pawl_pipe_choose(&plan, &report, NULL, model->units, model->n, &model->setting,
		&err);

	if (isinf(least)) {
		assert_int_equal(rv, PAWL_EINVAL);
		assert_true(err.msg[0] != '\0' && plan.chunks == NULL);
		return false;
	}
	if (rv != 0) {
		fail_msg("there is a cut of %g: %s", least, err.msg);
	}
	assert_close(plan.value, least, 1e-9);
	assert_true(plan.bound <= plan.value);
	assert_close(plan.bound, plan.value, 1e-9);
	assert_true(plan.largest_s <= plan.value * plan.each * (1 + 1e-9) ||
		model->setting.memory_weight > 0);
	release(&plan, &report);
	return true;
}

static bool compare(struct model *model)
{
	struct trial trial = {.model = model, .best = INFINITY};

	try_cuts(&trial, 0, 0);
	return compare_to(model, trial.best);
}

/* Returns one of the schedules with one chunk a stage, which differ in what they keep. */
static enum pawl_pipe_schedule choose_schedule(struct model *model, struct rng *rng)
{
	static const enum pawl_pipe_schedule schedules[] = {PAWL_PIPE_1F1B, PAWL_PIPE_1F1B,
		PAWL_PIPE_SIMPLE, PAWL_PIPE_ZERO_BUBBLE};

	model->units[0].backward_s += 1; /* zero-bubble needs to know the time for parameters */
	model->units[0].weight_s = 1;
	return schedules[rng_below(rng, 4)];
}

static void no_cut_of_a_small_chain_is_better(void **state)
{
	struct rng rng = {test_seed()};
	uint32_t n = getenv("PAWL_LONG") ? CHAINS_LONG : CHAINS;
	uint32_t possible = 0;
	static struct model model;

	for (uint32_t i = 0; i < n; i++) {
		make_random(&model, &rng, 14, 5);
		model.setting.tied = PAWL_PIPE_REPLICATE;
		model.setting.schedule = choose_schedule(&model, &rng);
		possible += compare(&model);
	}
	print_message("%u chains, %u possible\n", n, possible);
	assert_true(possible > n / 4 && possible < n - n / 20);
}

/* ---- longer chains ---- */

/* Returns the least value of cuts of units 0 .. end - 1 into stages 0 .. s, by dynamic programming
 * over the end of stage s - 1; least has the rows of the stages before. */
static double find_least(const struct model *model, double least[][MODEL_UNITS + 1], uint32_t s,
	uint32_t end)
{
	struct trial trial = {.model = model};
	double best = INFINITY;

	for (uint32_t begin = 0; begin < end; begin++) {
		double before = s > 0 ? least[s - 1][begin] : begin == 0 ? 0 : INFINITY;

		for (uint32_t u = 0; u < model->n; u++) {
			trial.stage[u] = u < begin ? MODEL_STAGES : u < end ? s : MODEL_STAGES + 1;
		}
		if (!isinf(before) && is_valid(&trial, s, has_parameters(model))) {
			best = fmin(best, fmax(before, judge_stage(&trial, s)));
		}
	}
	return best;
}

static double find_optimum(const struct model *model)
{
	static double least[MODEL_STAGES][MODEL_UNITS + 1];
	uint32_t stages = model->setting.stages;

	for (uint32_t s = 0; s < stages; s++) {
		for (uint32_t end = 0; end <= model->n; end++) {
			least[s][end] = find_least(model, least, s, end);
		}
	}
	return least[stages - 1][model->n];
}

static void no_cut_of_a_longer_chain_is_better(void **state)
{
	struct rng rng = {test_seed()};
	uint32_t n = getenv("PAWL_LONG") ? 1000 : 30;
	uint32_t possible = 0;
	static struct model model;

	for (uint32_t i = 0; i < n; i++) {
		make_random(&model, &rng, MODEL_UNITS, 12);
		model.setting.tied = PAWL_PIPE_REPLICATE;
		possible += compare_to(&model, find_optimum(&model));
	}
	assert_true(possible > n / 5);
}

/* Real numbers instead of whole ones, so that all cuts differ. */
static void bounds_of_long_chains_are_met(void **state)
{
	static struct pawl_pipe_unit units[2000];
	static double speeds[MODEL_STAGES];
	struct rng rng = {test_seed()};

	for (uint32_t i = 0; i < 40; i++) {
		struct pawl_pipe_setting setting = {.stages = 2 + (uint32_t)rng_below(&rng, 30),
			.microbatches = 4,
			.schedule = PAWL_PIPE_1F1B,
			.link = {1000, 0, one_in(&rng, 2)},
			.speeds = one_in(&rng, 2) ? speeds : NULL,
			.state_factor = 1};
		struct pawl_pipe_plan plan;
		struct pawl_pipe_report report;
		struct pawl_err err;

		for (uint32_t s = 0; s < MODEL_STAGES; s++) {
			speeds[s] = 0.5 + uniform(&rng);
		}
		for (uint32_t u = 0; u < 2000; u++) {
			units[u] = (struct pawl_pipe_unit){.name = "u",
				.forward_s = log_uniform(&rng, 0.01, 10),
				.cut_bytes = rng_below(&rng, 1000),
				.stage = PAWL_PIPE_ANY_STAGE};
		}
		OK(pawl_pipe_choose(&plan, &report, NULL, units, 2000, &setting, &err));
		assert_true(plan.value - plan.bound <= 1e-12 * plan.value);
		release(&plan, &report);
	}
}

static void no_cut_is_better_by_smp_s_objective(void **state)
{
	struct rng rng = {test_seed()};
	uint32_t possible = 0;
	static struct model model;

	for (uint32_t i = 0; i < CHAINS / 10; i++) {
		make_random(&model, &rng, 12, 4);
		model.setting.link.busy = false;
		model.setting.speeds = NULL;
		model.setting.tied = PAWL_PIPE_REPLICATE;
		model.setting.memory_weight = one_in(&rng, 4) ? 1 : uniform(&rng);
		possible += compare(&model);
	}
	assert_true(possible > CHAINS / 40);
}

/* Without memory limits, since a visited stage's number of live microbatches depends on the order;
 * and with transfers that overlap, since a visit is paid even within a stage. */
static void no_cut_with_visits_is_better(void **state)
{
	struct rng rng = {test_seed()};
	uint32_t possible = 0;
	static struct model model;

	for (uint32_t i = 0; i < CHAINS / 10; i++) {
		make_random(&model, &rng, 12, 4);
		tie_some(&model, &rng);
		model.setting.caps_bytes = NULL;
		model.setting.link.busy = false;
		model.setting.link.bytes_per_s = 0;
		model.setting.tied = PAWL_PIPE_VISIT;
		possible += compare(&model);
	}
	assert_true(possible > CHAINS / 40);
}

/* ---- several chunks a stage ---- */

/* Returns the stage of a chunk. */
static uint32_t stage_of(const struct pawl_pipe_setting *setting, uint32_t chunk)
{
	bool back = setting->schedule == PAWL_PIPE_ZBV && chunk >= setting->stages;

	return back ? 2 * setting->stages - 1 - chunk : chunk % setting->stages;
}

/* Returns the time of units begin .. end - 1 as one chunk; infinite: they cannot be one. */
static double judge_chunk(const struct model *model, uint32_t chunk, uint32_t begin, uint32_t end)
{
	uint32_t stage = stage_of(&model->setting, chunk);
	bool filled = false;
	double took_s = 0;

	for (uint32_t u = begin; u < end; u++) {
		const struct pawl_pipe_unit *unit = &model->units[u];

		if (unit->stage != PAWL_PIPE_ANY_STAGE && unit->stage != stage) {
			return INFINITY;
		}
		filled = filled || unit->param_bytes > 0 || !has_parameters(model);
		took_s += unit->forward_s + unit->backward_s;
	}
	return filled ? took_s / (model->setting.speeds ? model->speeds[stage] : 1) : INFINITY;
}

/* Returns the least value of cuts into chunks, by dynamic programming over their ends. */
static double find_least_chunks(const struct model *model, uint32_t chunks)
{
	double least[MODEL_UNITS + 1];
	double before[MODEL_UNITS + 1];

	for (uint32_t end = 0; end <= model->n; end++) {
		least[end] = end == 0 ? 0 : INFINITY;
	}
	for (uint32_t chunk = 0; chunk < chunks; chunk++) {
		memcpy(before, least, sizeof(least));
		for (uint32_t end = 0; end <= model->n; end++) {
			least[end] = INFINITY;
			for (uint32_t begin = 0; begin < end; begin++) {
				least[end] = fmin(least[end],
					fmax(before[begin], judge_chunk(model, chunk, begin, end)));
			}
		}
	}
	return least[model->n];
}

/* A unit may be wanted on a stage, where it is in any of the chunks. */
static void no_cut_into_several_chunks_is_better(void **state)
{
	struct rng rng = {test_seed()};
	uint32_t possible = 0;
	uint32_t pinned = 0;
	static struct model model;

	for (uint32_t i = 0; i < CHAINS / 5; i++) {
		bool back = one_in(&rng, 3);
		uint32_t each = back ? 2 : 2 + (uint32_t)rng_below(&rng, 2);
		bool found;

		make_random(&model, &rng, 16, 3);
		if (model.setting.stages == 1) {
			model.setting.stages = 2;
			model.speeds[1] = 1;
		}
		model.setting.caps_bytes = NULL;
		model.setting.link = (struct pawl_pipe_link){0};
		model.setting.tied = PAWL_PIPE_REPLICATE;
		model.setting.schedule = back ? PAWL_PIPE_ZBV : PAWL_PIPE_INTERLEAVED;
		model.setting.each = each;
		model.units[0].backward_s += 1; /* zbv needs a time for parameters */
		model.units[0].weight_s = 1;
		for (uint32_t u = 0; u < model.n; u++) {
			model.units[u].stage = one_in(&rng, 6)
				? (uint32_t)rng_below(&rng, model.setting.stages)
				: PAWL_PIPE_ANY_STAGE;
			model.units[u].param_bytes += 1;
		}
		found = compare_to(&model, find_least_chunks(&model, each * model.setting.stages));
		possible += found;
		for (uint32_t u = 0; u < model.n && found; u++) {
			pinned += model.units[u].stage != PAWL_PIPE_ANY_STAGE;
		}
	}
	print_message("%u possible, with %u units on wanted stages\n", possible, pinned);
	assert_true(possible > CHAINS / 50 && pinned > possible);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_cut_of_a_small_chain_is_better),
		cmocka_unit_test(no_cut_of_a_longer_chain_is_better),
		cmocka_unit_test(bounds_of_long_chains_are_met),
		cmocka_unit_test(no_cut_is_better_by_smp_s_objective),
		cmocka_unit_test(no_cut_with_visits_is_better),
		cmocka_unit_test(no_cut_into_several_chunks_is_better),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
