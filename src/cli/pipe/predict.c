/* pawl pipe predict: the time of a step for several numbers of stages and microbatches, and several
 * schedules. */
#include "base/err.h"
#include "cli/pipe/args.h"
#include "cli/pipe/document.h"
#include "cli/pipe/print.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct cli_option options[] = {
	[PIPE_STAGES] = {"--stages", 0, "N,…", "numbers of stages"},
	[PIPE_MICROBATCHES] = {"--microbatches", 0, "M,…",
		"numbers of microbatches (twice as many as stages)"},
	[PIPE_SCHEDULE] = {"--schedule", 0, "NAME,…", "schedules, or auto (all)"},
	PIPE_SAME_OPTIONS,
	[PIPE_JSON] = {"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

/* A prediction for one number of stages and of microbatches, and one schedule. */
struct prediction {
	uint32_t stages;
	uint32_t microbatches;
	struct pawl_pipe_option option; /* the best plan, or why there is none */
	double largest_s;               /* time of the largest stage, one microbatch */
	double speedup; /* a step on one device of speed 1 takes as many times as long */
};

static double step_alone_s(const struct pipe_model *model, uint32_t microbatches)
{
	double sum_s = 0;

	for (uint32_t u = 0; u < model->n; u++) {
		sum_s += model->units[u].forward_s + model->units[u].backward_s;
	}
	return sum_s * microbatches;
}

/* Predicts one row; the setting is set. PAWL_ENOMEM; other errors are the row's. */
static int predict(const struct pipe_args *args, struct prediction *row, struct pawl_err *err)
{
	static struct pawl_pipe_options considered;
	const struct pawl_pipe_setting *setting = &args->setting;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	int rv = pawl_pipe_choose(&plan, &report, &considered, args->model.units, args->model.n,
		setting, err);

	*row = (struct prediction){.stages = setting->stages,
		.microbatches = setting->microbatches,
		.option = {.schedule = setting->schedule, .each = 1, .code = rv}};
	if (rv == PAWL_ENOMEM) {
		return rv;
	}
	if (rv != 0) {
		memcpy(row->option.why, err->msg, sizeof(row->option.why));
		return 0;
	}
	row->option = considered.option[considered.chosen];
	row->largest_s = plan.largest_s;
	row->speedup = step_alone_s(&args->model, setting->microbatches) / report.step_s;
	pawl_pipe_plan_deinit(&plan);
	pawl_pipe_report_deinit(&report);
	return 0;
}

/* ---- printing ---- */

static void print_row(const struct prediction *row)
{
	char schedule[PIPE_TEXT_MAX];
	char step[PIPE_TEXT_MAX];
	char largest[PIPE_TEXT_MAX];
	char peak[CLI_TEXT_MAX];

	pipe_schedule_text(schedule, row->option.schedule, row->option.each, row->option.visits);
	if (row->option.code != 0) {
		cli_print(stdout, "%6u %8u  %-34s %s\n", row->stages, row->microbatches, schedule,
			row->option.why);
		return;
	}
	cli_print(stdout, "%6u %8u  %-34s %12s %8.2f %8.4f %12s %12s\n", row->stages,
		row->microbatches, schedule, pipe_seconds(step, row->option.step_s), row->speedup,
		row->option.bubble, pipe_seconds(largest, row->largest_s),
		cli_size(peak, row->option.peak_bytes));
}

static json_t *encode_row(const struct prediction *row)
{
	json_t *all = pipe_option_encode(&row->option);
	json_t *more = json_pack("{s:i, s:i}", "stages", (int)row->stages, "microbatches",
		(int)row->microbatches);

	json_object_update(all, more);
	json_decref(more);
	if (row->option.code == 0) {
		json_object_set_new(all, "largest_s", json_real(row->largest_s));
		json_object_set_new(all, "speedup", json_real(row->speedup));
	}
	return all;
}

/* ---- all rows ---- */

/* The row that is next: indexes of the lists of the command line. */
struct place {
	uint32_t stages;
	uint32_t microbatches;
	int schedule;
};

/* Moves to the next row. Returns false behind the last. */
static bool move(const struct pipe_args *args, struct place *place)
{
	do {
		if (++place->schedule == PAWL_PIPE_SCHEDULES) {
			place->schedule = 0;
			place->microbatches++;
		}
		if (place->microbatches >= (args->microbatches_n > 0 ? args->microbatches_n : 1)) {
			place->microbatches = 0;
			place->stages++;
		}
	} while (!args->schedules[place->schedule] && place->stages < args->stages_n);
	return place->stages < args->stages_n;
}

/* Predicts all rows. rows: gets them, unless NULL; then they are printed. */
static int predict_all(const struct cli_command *command, struct pipe_args *args, json_t *rows)
{
	struct place place = {.schedule = -1};
	struct prediction row;
	struct pawl_err err;

	while (move(args, &place)) {
		uint32_t stages = args->stages[place.stages];
		uint32_t m = args->microbatches_n > 0 ? args->microbatches[place.microbatches]
						      : 2 * stages;

		if (!pipe_args_set(command, args, stages, m,
			    (enum pawl_pipe_schedule)place.schedule)) {
			return CLI_USAGE;
		}
		if (predict(args, &row, &err) != 0) {
			return cli_fail(command, &err);
		}
		if (rows) {
			json_array_append_new(rows, encode_row(&row));
		} else {
			print_row(&row);
		}
	}
	return CLI_OK;
}

static int print(const struct cli_command *command, struct pipe_args *args)
{
	json_t *rows = args->json ? json_array() : NULL;
	int rv;

	if (!args->json) {
		cli_print(stdout, "%6s %8s  %-34s %12s %8s %8s %12s %12s\n", "stages", "microb.",
			"schedule", "step", "speedup", "bubble", "largest", "peak");
	}
	rv = predict_all(command, args, rows);
	if (rv != CLI_OK || !args->json) {
		json_decref(rows);
		return rv;
	}
	return cli_json(rows);
}

/* Takes all schedules if none is named. */
static void default_schedules(struct pipe_args *args)
{
	bool any = false;

	for (int s = 0; s < PAWL_PIPE_SCHEDULES; s++) {
		any = any || args->schedules[s];
	}
	for (int s = PAWL_PIPE_AUTO + 1; s < PAWL_PIPE_SCHEDULES; s++) {
		args->schedules[s] = args->schedules[s] || !any;
	}
}

static int main_predict(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	static struct pipe_args args;
	int what;
	int rv;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_HELP || what == CLI_BAD) {
			return cli_read_exit_code(what);
		}
		if (!pipe_args_read(command, what, reader.value, &args)) {
			return CLI_USAGE;
		}
	}
	default_schedules(&args);
	rv = pipe_args_load(command, &args);
	if (rv == CLI_OK) {
		rv = print(command, &args);
	}
	pipe_model_deinit(&args.model);
	return rv;
}

const struct cli_command cli_pipe_predict = {
	.name = "pipe predict",
	.args = "MODEL.json",
	.summary = "Predict a step's time for numbers of stages, microbatches, and schedules",
	.details =
		"MODEL.json is that of pawl pipe show. Prints a row for each combination: a "
		"step's\n"
		"time, how much faster that is than one device of speed 1, the bubble, the time\n"
		"of the largest stage for one microbatch, and the most memory that a stage\n"
		"needs. A combination that is not possible has the reason in its row. The times\n"
		"in MODEL.json are of one microbatch, so more microbatches are a larger batch.\n",
	.options = options,
	.main = main_predict,
};
