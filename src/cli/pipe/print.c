/* Prints plans: see print.h. */
#include "cli/pipe/print.h"

#include "cli/cli.h"

#include <string.h>

#define SAME       1e-9 /* relative difference below which two times are the same */
#define UNITS_TEXT 2 * MODEL_NAME_MAX + 8 /* bytes of the names of a chunk's units */

const char *pipe_seconds(char *buf, double seconds)
{
	double us = seconds * 1e6;
	double number = us < 1e3 ? us : us < 1e6 ? us / 1e3 : seconds;

	snprintf(buf, PIPE_TEXT_MAX, "%.4g %s", number, us < 1e3 ? "us" : us < 1e6 ? "ms" : "s");
	return buf;
}

const char *pipe_schedule_text(char *buf, enum pawl_pipe_schedule schedule, uint32_t each,
	bool visits)
{
	size_t len = (size_t)snprintf(buf, PIPE_TEXT_MAX, "%s", pawl_pipe_schedule_name(schedule));

	if (each > 1) {
		snprintf(buf + len, PIPE_TEXT_MAX - len, ", %u chunks a stage", each);
	} else if (visits) {
		snprintf(buf + len, PIPE_TEXT_MAX - len, " with visits");
	}
	return buf;
}

/* ---- stages ---- */

/* Writes the names of a chunk's units: "h.0", or "h.0 … h.5". */
static const char *name_units(char *buf, const struct pipe_model *model,
	const struct pawl_pipe_chunk *chunk)
{
	const struct pawl_pipe_unit *units = model ? model->units + chunk->first : NULL;

	if (!units) {
		snprintf(buf, UNITS_TEXT, "%u units", chunk->units);
	} else if (chunk->units == 1) {
		snprintf(buf, UNITS_TEXT, "%s", units[0].name);
	} else {
		snprintf(buf, UNITS_TEXT, "%s … %s", units[0].name, units[chunk->units - 1].name);
	}
	return buf;
}

static void print_stage(const struct pawl_pipe_plan *plan, const struct pawl_pipe_report *report,
	uint32_t s)
{
	const struct pawl_pipe_stage_report *stage = &report->stage[s];
	char busy[PIPE_TEXT_MAX];
	char state[CLI_TEXT_MAX];
	char peak[CLI_TEXT_MAX];
	char cap[CLI_TEXT_MAX] = "-";
	double idle = report->finish_s > 0 ? 1 - stage->busy_s / report->finish_s : 0;

	if (plan->stage[s].cap_bytes != PAWL_PIPE_NO_CAP) {
		cli_size(cap, plan->stage[s].cap_bytes);
	}
	cli_print(stdout, "%5u %12s %6.1f%% %9u %12s %12s %12s\n", s,
		pipe_seconds(busy, stage->busy_s), 100 * idle, stage->peak_live,
		cli_size(state, plan->stage[s].state_bytes), cli_size(peak, stage->peak_bytes),
		cap);
}

static void print_chunk(const struct pipe_model *model, const struct pawl_pipe_plan *plan,
	uint32_t c)
{
	const struct pawl_pipe_chunk *chunk = &plan->chunks[c];
	char forward[PIPE_TEXT_MAX];
	char backward[PIPE_TEXT_MAX];
	char saved[CLI_TEXT_MAX];
	char in[CLI_TEXT_MAX];
	char units[UNITS_TEXT];

	cli_print(stdout, "%5u %5u %12s %12s %12s %12s  %s\n", c, chunk->stage,
		pipe_seconds(forward, chunk->forward_s), pipe_seconds(backward, chunk->backward_s),
		cli_size(saved, chunk->saved_bytes), cli_size(in, chunk->in_bytes),
		name_units(units, model, chunk));
}

void pipe_print_stages(const struct pipe_model *model, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report)
{
	cli_print(stdout, "\n%5s %5s %12s %12s %12s %12s  %s\n", "chunk", "stage", "forward",
		"backward", "activations", "receives", "units");
	for (uint32_t c = 0; c < plan->chunks_n; c++) {
		print_chunk(model, plan, c);
	}
	cli_print(stdout, "\n%5s %12s %7s %9s %12s %12s %12s\n", "stage", "busy", "idle",
		"in flight", "state", "peak", "memory");
	for (uint32_t s = 0; s < plan->stages; s++) {
		print_stage(plan, report, s);
	}
}

/* ---- the whole plan ---- */

static void print_model(const struct pipe_model *model, const struct pawl_pipe_plan *plan)
{
	double forward_s = 0;
	double backward_s = 0;
	uint64_t params = 0;
	char forward[PIPE_TEXT_MAX];
	char backward[PIPE_TEXT_MAX];
	char size[CLI_TEXT_MAX];

	for (uint32_t u = 0; u < model->n; u++) {
		forward_s += model->units[u].forward_s;
		backward_s += model->units[u].backward_s;
		params += model->units[u].param_bytes;
	}
	cli_print(stdout,
		"%s: %u units, %s forward and %s backward for a microbatch, %s of parameters\n",
		model->name, model->n, pipe_seconds(forward, forward_s),
		pipe_seconds(backward, backward_s), cli_size(size, params));
	cli_print(stdout, "%u stages, %u microbatches\n", plan->stages, plan->microbatches);
}

static void print_schedule(const struct pawl_pipe_plan *plan, const struct pawl_pipe_report *report)
{
	char schedule[PIPE_TEXT_MAX];
	char step[PIPE_TEXT_MAX];
	char bound[PIPE_TEXT_MAX];

	cli_print(stdout, "schedule %s: a step takes %s, bubble %.4f\n",
		pipe_schedule_text(schedule, plan->schedule, plan->each, plan->visits),
		pipe_seconds(step, report->step_s), report->bubble);
	cli_print(stdout, "no order of these chunks takes less than %s\n",
		pipe_seconds(bound, report->bound_s));
	if (plan->inflight > 0) {
		cli_print(stdout,
			"the order was found by list scheduling, with at most %u microbatches in "
			"flight\n",
			plan->inflight);
	}
}

static void print_cut(const struct pawl_pipe_plan *plan, bool shares)
{
	bool same = plan->value <= plan->largest_s * (1 + SAME) &&
		plan->value >= plan->largest_s * (1 - SAME);
	char largest[PIPE_TEXT_MAX];
	char value[PIPE_TEXT_MAX];
	char bound[PIPE_TEXT_MAX];

	cli_print(stdout, "largest stage %s a microbatch; ",
		pipe_seconds(largest, plan->largest_s));
	if (shares) {
		cli_print(stdout,
			"largest share of time and memory %.6f, and no cut has less than %.6f "
			"(proven)\n",
			plan->value, plan->bound);
		return;
	}
	if (!same) {
		cli_print(stdout, "largest %s %s, and ", plan->each > 1 ? "chunk" : "link or stage",
			pipe_seconds(value, plan->value));
	}
	cli_print(stdout, "no cut has less than %s (proven)\n", pipe_seconds(bound, plan->bound));
}

static void print_copies(const struct pipe_model *model, const struct pawl_pipe_plan *plan)
{
	char size[CLI_TEXT_MAX];

	for (uint32_t i = 0; i < plan->copies_n; i++) {
		const struct pawl_pipe_copies *copies = &plan->copies[i];

		cli_print(stdout, "%s (%s): a copy on each of the stages",
			model->tied[copies->tied], cli_size(size, copies->len_bytes));
		for (uint32_t h = 0; h < copies->stages; h++) {
			cli_print(stdout, " %u", plan->holders[copies->first + h]);
		}
		cli_print(stdout, "; their gradients are summed after the step\n");
	}
}

static void print_options(const struct pawl_pipe_options *options)
{
	cli_print(stdout, "\n  %-34s %12s %8s %12s\n", "considered", "step", "bubble", "peak");
	for (uint32_t i = 0; i < options->n; i++) {
		const struct pawl_pipe_option *option = &options->option[i];
		char schedule[PIPE_TEXT_MAX];
		char step[PIPE_TEXT_MAX];
		char peak[CLI_TEXT_MAX];

		pipe_schedule_text(schedule, option->schedule, option->each, option->visits);
		if (option->code != 0) {
			cli_print(stdout, "  %-34s %s\n", schedule, option->why);
			continue;
		}
		cli_print(stdout, "%s %-34s %12s %8.4f %12s\n", i == options->chosen ? "*" : " ",
			schedule, pipe_seconds(step, option->step_s), option->bubble,
			cli_size(peak, option->peak_bytes));
	}
}

void pipe_print_plan(const struct pipe_model *model, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report, const struct pawl_pipe_options *options, bool shares)
{
	print_model(model, plan);
	print_schedule(plan, report);
	print_cut(plan, shares);
	print_copies(model, plan);
	pipe_print_stages(model, plan, report);
	print_options(options);
}
