/* Orders a plan's tasks by its schedule, and keeps the best order that the simulation has run: see
 * pawl/pipe.h for the contract. Pure. */
#include "pipe/schedule.h"

#include "base/assert.h"
#include "base/err.h"
#include "pipe/list.h"
#include "pipe/plan.h"

#include <stdlib.h>

#define ZBV_MORE   4u /* limits of activations that are tried, each one more than the one before */
#define TRIED_MOST (1u << 20) /* pairs of chunk and microbatch in orders that are tried */
#define SAME       1e-9       /* relative difference below which two orders take the same time */

/* The best order so far. */
struct best {
	struct pipe_order order;
	struct pawl_pipe_report report;
	uint32_t inflight; /* limit of microbatches in flight; 0: a fixed order */
	bool found;
	uint64_t tried; /* pairs of chunk and microbatch in all listed orders so far */
};

uint32_t pipe_inflights(uint32_t stages, uint32_t microbatches, uint32_t inflight[PIPE_INFLIGHTS])
{
	const uint32_t wanted[PIPE_INFLIGHTS] = {stages, stages + 2, 2 * stages, microbatches};
	uint32_t n = 0;

	for (uint32_t i = 0; i < PIPE_INFLIGHTS; i++) {
		uint32_t limit = pipe_lesser(wanted[i], microbatches);

		if (n == 0 || limit > inflight[n - 1]) {
			inflight[n++] = limit;
		}
	}
	return n;
}

bool pipe_is_listed(enum pawl_pipe_schedule schedule, bool visits)
{
	return visits || schedule == PAWL_PIPE_LISTED || schedule == PAWL_PIPE_ZBV;
}

uint64_t pipe_find_peak(const struct pawl_pipe_report *report)
{
	uint64_t most = 0;

	for (uint32_t s = 0; s < report->stages; s++) {
		most = report->stage[s].peak_bytes > most ? report->stage[s].peak_bytes : most;
	}
	return most;
}

/* Returns whether a is better than b: it fits, it is faster, or it needs less memory. */
static bool is_better(const struct pawl_pipe_report *a, const struct pawl_pipe_report *b)
{
	bool a_fits = a->over == PAWL_PIPE_ANY_STAGE;
	bool b_fits = b->over == PAWL_PIPE_ANY_STAGE;

	if (a_fits != b_fits) {
		return a_fits;
	}
	if (a->step_s < b->step_s * (1 - SAME) || b->step_s < a->step_s * (1 - SAME)) {
		return a->step_s < b->step_s;
	}
	return pipe_find_peak(a) < pipe_find_peak(b);
}

/* Simulates an order, which it takes, and keeps it if it is the best so far. An order that cannot
 * run is dropped; err says why. */
static int consider(struct best *best, const struct pawl_pipe_plan *plan, struct pipe_order *order,
	uint32_t inflight, struct pawl_err *err)
{
	struct pawl_pipe_plan with = *plan;
	struct pawl_pipe_report report;
	int rv;

	with.first = order->first;
	with.tasks = order->tasks;
	rv = pawl_pipe_verify(&report, &with, err);
	if (rv == 0 && (!best->found || is_better(&report, &best->report))) {
		pipe_order_deinit(&best->order);
		pawl_pipe_report_deinit(&best->report);
		*best = (struct best){*order, report, inflight, true, best->tried};
		return 0;
	}
	pawl_pipe_report_deinit(&report);
	pipe_order_deinit(order);
	return rv == PAWL_EINVAL ? 0 : rv;
}

static int try_list(struct best *best, const struct pawl_pipe_plan *plan,
	const struct pipe_policy *policy, struct pawl_err *err)
{
	struct pipe_order order;
	int rv = pipe_order_list(&order, plan, policy, err);

	best->tried += (uint64_t)plan->chunks_n * plan->microbatches;
	if (rv == PAWL_EINVAL) {
		return 0;
	}
	return rv ? rv : consider(best, plan, &order, policy->inflight, err);
}

/* Returns whether the best order so far is good enough: none can be faster, or many were tried. */
static bool is_enough(const struct best *best)
{
	return best->found && best->report.over == PAWL_PIPE_ANY_STAGE &&
		(best->report.finish_s <= best->report.bound_s * (1 + SAME) ||
			best->tried > TRIED_MOST);
}

/* Tries all urgencies with a limit of microbatches in flight. */
static int try_lists(struct best *best, const struct pawl_pipe_plan *plan, uint32_t inflight,
	uint32_t live, struct pawl_err *err)
{
	struct pipe_policy policy = {.split = plan->schedule == PAWL_PIPE_ZBV,
		.inflight = inflight,
		.live = live};
	int rv = 0;

	for (int u = 0; u < PIPE_URGENCIES && rv == 0 && !is_enough(best); u++) {
		policy.urgency = (enum pipe_urgency)u;
		rv = try_list(best, plan, &policy, err);
	}
	return rv;
}

/* ZB-V keeps as many activations as 1F1B's first stage: those of as many microbatches as there are
 * stages, in two chunks each. Some more hide that W is late. */
static int try_zbv(struct best *best, const struct pawl_pipe_plan *plan, struct pawl_err *err)
{
	uint32_t inflight = plan->inflight > 0 ? plan->inflight : plan->stages;
	int rv = 0;

	for (uint32_t more = 0; more < 2 * ZBV_MORE && rv == 0; more++) {
		rv = try_lists(best, plan, inflight + more % 2, 2 * inflight + more / 2, err);
	}
	return rv;
}

static int try_inflights(struct best *best, const struct pawl_pipe_plan *plan, struct pawl_err *err)
{
	uint32_t inflight[PIPE_INFLIGHTS] = {plan->inflight};
	uint32_t n =
		plan->inflight > 0 ? 1 : pipe_inflights(plan->stages, plan->microbatches, inflight);
	int rv = 0;

	for (uint32_t i = 0; i < n && rv == 0; i++) {
		rv = try_lists(best, plan, inflight[i], UINT32_MAX, err);
	}
	return rv;
}

static int try_all(struct best *best, const struct pawl_pipe_plan *plan, struct pawl_err *err)
{
	struct pipe_order order;
	bool ragged =
		plan->schedule == PAWL_PIPE_INTERLEAVED && plan->microbatches % plan->stages != 0;
	int rv;

	if (plan->schedule == PAWL_PIPE_ZBV) {
		return try_zbv(best, plan, err);
	}
	if (pipe_is_listed(plan->schedule, plan->visits)) {
		return try_inflights(best, plan, err);
	}
	rv = pipe_order_fixed(&order, plan->schedule, plan->stages, plan->each, plan->microbatches,
		err);
	rv = rv ? rv : consider(best, plan, &order, 0, err);
	return rv || !ragged ? rv : try_inflights(best, plan, err);
}

/* Checks that a plan's chunks are where its schedule needs them. */
static int check_placement(const struct pawl_pipe_plan *plan, struct pawl_err *err)
{
	uint32_t p = plan->stages;
	bool listed = plan->visits || plan->schedule == PAWL_PIPE_LISTED;
	bool valid = plan->schedule > PAWL_PIPE_AUTO && plan->schedule < PAWL_PIPE_SCHEDULES &&
		(listed || (uint64_t)p * plan->each == plan->chunks_n);

	for (uint32_t c = 0; c < plan->chunks_n && valid && !listed; c++) {
		bool back = plan->schedule == PAWL_PIPE_ZBV && c >= p;

		valid = plan->chunks[c].stage == (back ? 2 * p - 1 - c : c % p);
	}
	return valid ? 0
		     : pawl_err_set(err, PAWL_EINVAL,
			       "the plan's chunks are not placed as its schedule needs them");
}

int pawl_pipe_order(struct pawl_pipe_plan *plan, struct pawl_pipe_report *report,
	struct pawl_err *err)
{
	struct best best = {.found = false};
	int rv = pipe_plan_check(plan, err);

	*report = (struct pawl_pipe_report){0};
	rv = rv ? rv : check_placement(plan, err);
	rv = rv ? rv : try_all(&best, plan, err);
	if (rv == 0 && !best.found) {
		rv = PAWL_EINVAL; /* err has the reason of the last order */
	}
	if (rv != 0) {
		pipe_order_deinit(&best.order);
		pawl_pipe_report_deinit(&best.report);
		return rv;
	}
	free(plan->first);
	free(plan->tasks);
	plan->first = best.order.first;
	plan->tasks = best.order.tasks;
	plan->inflight = best.inflight;
	*report = best.report;
	ASSERT(plan->first && plan->tasks && report->waits_n == 0);
	return 0;
}
