/*
 * Makes plans of all kinds that a setting allows, and keeps the best: see pawl/pipe.h for the
 * contract. A plan is a schedule, a number of chunks a stage, and what becomes of tied units. Pure.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/text.h"
#include "pipe/layout.h"
#include "pipe/order.h"
#include "pipe/schedule.h"

#include <string.h>

#define FASTER    0.995 /* a plan that is considered later must be faster by this factor */
#define EACH_MOST 4u    /* chunks of a stage that are tried without being asked for */

struct candidate {
	struct pawl_pipe_plan plan; /* without chunks: there is none */
	struct pawl_pipe_report report;
};

/* What is asked for, and the best plan so far. */
struct choice {
	const struct pawl_pipe_unit *units;
	uint32_t units_n;
	const struct pawl_pipe_setting *setting;
	bool ties;   /* some units are tied */
	bool splits; /* some unit has a weight_s */
	struct pawl_pipe_options *options;
	struct candidate best;
};

/* ---- one plan ---- */

/* How the model is cut for a plan. */
struct shape {
	struct pipe_cutting cutting;
	uint32_t stage[PAWL_PIPE_CHUNKS_MAX]; /* stage of each part */
	uint32_t live[PAWL_PIPE_CHUNKS_MAX];  /* microbatches that each part keeps activations of */
};

/* Returns of how many microbatches a stage keeps activations, with one chunk a stage. A listed
 * order mostly keeps no more than 1F1B; cautious: as many as it can. */
static uint32_t count_live(const struct pawl_pipe_plan *plan, uint32_t stage, bool cautious)
{
	uint32_t all = plan->microbatches;
	uint32_t usual = pipe_lesser(all, plan->stages - stage);

	if (pipe_is_listed(plan->schedule, plan->visits)) {
		return cautious ? pipe_lesser(all, plan->inflight)
				: pipe_lesser(usual, plan->inflight);
	}
	switch (plan->schedule) {
	case PAWL_PIPE_1F1B:
		return usual;
	case PAWL_PIPE_ZERO_BUBBLE:
		return pipe_lesser(all, plan->stages + 1);
	default:
		return all;
	}
}

/* Sets what the cut needs to know of a plan's schedule. */
static int set_shape(struct shape *shape, const struct pawl_pipe_plan *plan, bool cautious,
	struct pawl_err *err)
{
	uint32_t p = plan->stages;
	uint32_t n = p * plan->each;
	struct pipe_order order;
	int rv = 0;

	ASSERT(n <= PAWL_PIPE_CHUNKS_MAX);
	for (uint32_t k = 0; k < n; k++) {
		bool back = plan->schedule == PAWL_PIPE_ZBV && k >= p;

		shape->stage[k] = back ? 2 * p - 1 - k : k % p;
		shape->live[k] = count_live(plan, shape->stage[k], cautious);
	}
	if (plan->schedule == PAWL_PIPE_INTERLEAVED) {
		rv = pipe_order_fixed(&order, plan->schedule, p, plan->each, plan->microbatches,
			err);
		if (rv == 0) {
			pipe_order_live(&order, n, shape->live);
			pipe_order_deinit(&order);
		}
	}
	shape->cutting = (struct pipe_cutting){.parts_n = n,
		.stage = shape->stage,
		.live = shape->live,
		.visits = plan->visits};
	return rv;
}

/* Says that a plan's peak is above a stage's cap. */
static int refuse_peak(const struct pawl_pipe_plan *plan, const struct pawl_pipe_report *report,
	struct pawl_err *err)
{
	char peak[TEXT_SIZE_MAX];
	char cap[TEXT_SIZE_MAX];

	text_size(peak, report->stage[report->over].peak_bytes);
	text_size(cap, plan->stage[report->over].cap_bytes);
	return pawl_err_set(err, PAWL_EINVAL,
		"stage %u would need %s, and has %s: use fewer chunks a stage, or fewer "
		"microbatches in flight",
		report->over, peak, cap);
}

/* Cuts and orders a plan whose schedule and numbers are set. share: parts that share a stage's cap,
 * or 0. */
static int make_shared(const struct choice *choice, struct pawl_pipe_plan *plan,
	struct pawl_pipe_report *report, struct shape *shape, uint32_t share, struct pawl_err *err)
{
	int rv;

	shape->cutting.share = share;
	rv = pipe_layout(plan, choice->units, choice->units_n, choice->setting, &shape->cutting,
		err);
	rv = rv ? rv : pawl_pipe_order(plan, report, err);
	if (rv == 0 && report->over != PAWL_PIPE_ANY_STAGE) {
		rv = refuse_peak(plan, report, err);
		pawl_pipe_report_deinit(report);
	}
	return rv;
}

/* Makes a plan. What a stage needs with several chunks, or with a listed order, is known once its
 * tasks are in order. So the first cut knows no caps in the one case, and 1F1B's activations in the
 * other. If that needs too much, the second is on the safe side. */
static int make_plan(const struct choice *choice, struct pawl_pipe_plan *plan,
	struct pawl_pipe_report *report, struct pawl_err *err)
{
	const struct pawl_pipe_plan bare = *plan; /* without arrays */
	bool again = plan->each > 1 || pipe_is_listed(plan->schedule, plan->visits);
	struct shape shape;
	double bound;
	int rv = set_shape(&shape, plan, false, err);

	*report = (struct pawl_pipe_report){0};
	if (rv != 0) {
		return rv;
	}
	rv = make_shared(choice, plan, report, &shape, plan->each > 1 ? 0 : 1, err);
	if (rv == PAWL_EINVAL && again && plan->chunks) {
		bound = plan->bound;
		pawl_pipe_plan_deinit(plan);
		*plan = bare;
		rv = set_shape(&shape, plan, true, err);
		rv = rv ? rv : make_shared(choice, plan, report, &shape, plan->each, err);
		plan->bound = bound;
	}
	if (rv != 0) {
		pawl_pipe_plan_deinit(plan);
	}
	return rv;
}

/* ---- several plans ---- */

static void find_largest(struct pawl_pipe_plan *plan, const struct pawl_pipe_report *report)
{
	for (uint32_t s = 0; s < plan->stages; s++) {
		double took_s = report->stage[s].busy_s / plan->microbatches;

		plan->largest_s = took_s > plan->largest_s ? took_s : plan->largest_s;
	}
}

static void release(struct candidate *candidate)
{
	pawl_pipe_plan_deinit(&candidate->plan);
	pawl_pipe_report_deinit(&candidate->report);
}

/* Takes a new plan if it is clearly faster than the best so far, or the first; else releases it.
 * Returns whether it was taken. */
static bool take(struct candidate *best, struct candidate *new)
{
	bool better = !best->plan.chunks || new->report.step_s < best->report.step_s *FASTER;

	if (better) {
		release(best);
		*best = *new;
	} else {
		release(new);
	}
	return better;
}

/* Returns whether no plan with more microbatches in flight can be clearly faster. */
static bool is_enough(const struct candidate *best)
{
	return best->plan.chunks && best->report.step_s * FASTER <= best->report.bound_s;
}

/* Makes the best plan of an option, over limits of microbatches in flight. best: has no plan if
 * there is none; then err says why, with the least limit. PAWL_ENOMEM. */
static int make_best(const struct choice *choice, const struct pawl_pipe_option *option,
	struct candidate *best, struct pawl_err *err)
{
	const struct pawl_pipe_setting *setting = choice->setting;
	uint32_t inflight[PIPE_INFLIGHTS] = {setting->inflight};
	struct pawl_err later;
	uint32_t n = 1;

	if (setting->inflight == 0 && pipe_is_listed(option->schedule, option->visits)) {
		n = pipe_inflights(setting->stages, setting->microbatches, inflight);
	}
	for (uint32_t i = 0; i < n && !is_enough(best); i++) {
		struct candidate new = {.plan = {.stages = setting->stages,
						.microbatches = setting->microbatches,
						.schedule = option->schedule,
						.each = option->each,
						.visits = option->visits,
						.inflight = inflight[i]}};
		int rv = make_plan(choice, &new.plan, &new.report, i == 0 ? err : &later);

		if (rv == PAWL_ENOMEM) {
			release(best);
			return pawl_err_set(err, rv, "no memory to plan a pipeline");
		}
		if (rv == 0) {
			find_largest(&new.plan, &new.report);
			take(best, &new);
		}
	}
	return 0;
}

/* Tries an option: a schedule, chunks a stage, and visits. PAWL_ENOMEM; other errors are noted in
 * the option. */
static int try_option(struct choice *choice, enum pawl_pipe_schedule schedule, uint32_t each,
	bool visits, struct pawl_err *err)
{
	struct pawl_pipe_options *options = choice->options;
	struct pawl_pipe_option *option = &options->option[options->n];
	struct candidate best = {0};
	struct pawl_err why = {0};
	int rv;

	ASSERT(options->n < PAWL_PIPE_OPTIONS_MAX);
	*option = (struct pawl_pipe_option){.schedule = schedule, .each = each, .visits = visits};
	rv = make_best(choice, option, &best, &why);
	if (rv != 0) {
		return pawl_err_set(err, rv, "%s", why.msg);
	}
	options->n++;
	if (!best.plan.chunks) {
		option->code = why.code;
		memcpy(option->why, why.msg, sizeof(option->why));
		return 0;
	}
	option->step_s = best.report.step_s;
	option->bubble = best.report.bubble;
	option->peak_bytes = pipe_find_peak(&best.report);
	if (take(&choice->best, &best)) {
		options->chosen = options->n - 1;
	}
	return 0;
}

/* ---- which plans ---- */

/* Tries a schedule with one chunk a stage: with copies of tied units, with visits, or both. */
static int try_tied(struct choice *choice, enum pawl_pipe_schedule schedule, struct pawl_err *err)
{
	enum pawl_pipe_tied tied = choice->setting->tied;
	bool can_visit =
		choice->ties && (schedule == PAWL_PIPE_1F1B || schedule == PAWL_PIPE_LISTED);
	int rv = 0;

	if (!choice->ties || tied != PAWL_PIPE_VISIT) {
		rv = try_option(choice, schedule, 1, false, err);
	}
	if (rv == 0 && can_visit && tied != PAWL_PIPE_REPLICATE) {
		rv = try_option(choice, schedule, 1, true, err);
	}
	return rv;
}

static int try_interleaved(struct choice *choice, struct pawl_err *err)
{
	uint32_t asked = choice->setting->each;
	uint32_t least = asked > 0 ? asked : 2;
	uint32_t most = asked > 0 ? asked : EACH_MOST;
	int rv = 0;

	for (uint32_t each = least; each <= most && rv == 0; each++) {
		if (each * choice->setting->stages <= PAWL_PIPE_CHUNKS_MAX) {
			rv = try_option(choice, PAWL_PIPE_INTERLEAVED, each, false, err);
		}
	}
	return rv;
}

static int try_auto(struct choice *choice, struct pawl_err *err)
{
	bool several = choice->setting->stages > 1;
	bool copies = !choice->ties || choice->setting->tied != PAWL_PIPE_VISIT;
	int rv = try_tied(choice, PAWL_PIPE_1F1B, err);

	if (rv != 0 || !several || !copies) {
		return rv;
	}
	rv = try_option(choice, PAWL_PIPE_SIMPLE, 1, false, err);
	rv = rv ? rv : try_interleaved(choice, err);
	if (rv == 0 && choice->splits) {
		rv = try_option(choice, PAWL_PIPE_ZERO_BUBBLE, 1, false, err);
		rv = rv ? rv : try_option(choice, PAWL_PIPE_ZBV, 2, false, err);
	}
	return rv ? rv : try_option(choice, PAWL_PIPE_LISTED, 1, false, err);
}

/* Checks that the schedule that is asked for suits the model and the other wishes. */
static int check_schedule(const struct choice *choice, struct pawl_err *err)
{
	enum pawl_pipe_schedule schedule = choice->setting->schedule;
	bool divides = schedule == PAWL_PIPE_ZERO_BUBBLE || schedule == PAWL_PIPE_ZBV;
	bool several = schedule == PAWL_PIPE_INTERLEAVED || schedule == PAWL_PIPE_ZBV;
	bool visits = schedule == PAWL_PIPE_AUTO || schedule == PAWL_PIPE_1F1B ||
		schedule == PAWL_PIPE_LISTED;

	if (divides && !choice->splits) {
		return pawl_err_set(err, PAWL_EINVAL,
			"schedule %s delays gradients of parameters, but no unit has a weight_s: "
			"their times are not known",
			pawl_pipe_schedule_name(schedule));
	}
	if (choice->ties && choice->setting->tied == PAWL_PIPE_VISIT && !visits) {
		return pawl_err_set(err, PAWL_EINVAL,
			"schedule %s has no visits: replicate what is tied, or use 1f1b",
			pawl_pipe_schedule_name(schedule));
	}
	if (several && choice->setting->stages == 1) {
		return pawl_err_set(err, PAWL_EINVAL, "schedule %s needs at least two stages",
			pawl_pipe_schedule_name(schedule));
	}
	if (choice->setting->stages * choice->setting->each > PAWL_PIPE_CHUNKS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%u stages of %u chunks: at most %u chunks",
			choice->setting->stages, choice->setting->each, PAWL_PIPE_CHUNKS_MAX);
	}
	return 0;
}

static int try_schedule(struct choice *choice, struct pawl_err *err)
{
	switch (choice->setting->schedule) {
	case PAWL_PIPE_AUTO:
		return try_auto(choice, err);
	case PAWL_PIPE_INTERLEAVED:
		return try_interleaved(choice, err);
	case PAWL_PIPE_ZBV:
		return try_option(choice, PAWL_PIPE_ZBV, 2, false, err);
	default:
		return try_tied(choice, choice->setting->schedule, err);
	}
}

/* Says why there is no plan, and whether 1F1B would do, which needs least memory. */
static int refuse(struct choice *choice, struct pawl_err *err)
{
	const struct pawl_pipe_option *first = &choice->options->option[0];

	ASSERT(choice->options->n > 0 && first->code != 0);
	if (choice->setting->schedule != PAWL_PIPE_AUTO && first->schedule != PAWL_PIPE_1F1B) {
		int rv = try_option(choice, PAWL_PIPE_1F1B, 1, false, err);

		if (rv != 0) {
			return rv;
		}
		if (choice->best.plan.chunks) {
			release(&choice->best);
			return pawl_err_set(err, first->code, "%s; schedule 1f1b would fit",
				first->why);
		}
	}
	return pawl_err_set(err, first->code, "%s", first->why);
}

int pawl_pipe_choose(struct pawl_pipe_plan *plan, struct pawl_pipe_report *report,
	struct pawl_pipe_options *options, const struct pawl_pipe_unit *units, uint32_t units_n,
	const struct pawl_pipe_setting *setting, struct pawl_err *err)
{
	struct pawl_pipe_options own;
	struct choice choice = {.units = units,
		.units_n = units_n,
		.setting = setting,
		.options = options ? options : &own};
	int rv = pipe_check(units, units_n, setting, err);

	choice.options->n = 0;
	choice.options->chosen = 0;
	*plan = (struct pawl_pipe_plan){0};
	*report = (struct pawl_pipe_report){0};
	for (uint32_t u = 0; u < units_n && rv == 0; u++) {
		choice.ties = choice.ties || units[u].tied > 0;
		choice.splits = choice.splits || units[u].weight_s > 0;
	}
	rv = rv ? rv : check_schedule(&choice, err);
	rv = rv ? rv : try_schedule(&choice, err);
	if (rv == 0 && !choice.best.plan.chunks) {
		rv = refuse(&choice, err);
	}
	if (rv != 0) {
		release(&choice.best);
		return rv;
	}
	*plan = choice.best.plan;
	*report = choice.best.report;
	return 0;
}
