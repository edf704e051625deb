/* pawl pipe show: cuts a model into stages, and shows the plan. */
#include "base/err.h"
#include "cli/pipe/args.h"
#include "cli/pipe/document.h"
#include "cli/pipe/draw.h"
#include "cli/pipe/print.h"
#include "cli/pipe/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define TITLE_MAX 320u /* bytes of a trace's title */
#define PLACE_MAX 40u  /* bytes of a path in /proc */

enum option { TRACE = PIPE_OPTIONS, PICTURE, PYTHON };

/* Where the plan goes, beside the output. */
struct destination {
	const char *trace;   /* --trace; NULL: not given */
	const char *picture; /* --picture; NULL: not given */
	const char *python;  /* --python; NULL: as pawl run finds it */
};

static const struct cli_option options[] = {
	[PIPE_STAGES] = {"--stages", 0, "N", "stages: devices that hold a part of the model each"},
	[PIPE_MICROBATCHES] = {"--microbatches", 0, "M",
		"microbatches of a step (twice as many as stages)"},
	[PIPE_SCHEDULE] = {"--schedule", 0, "NAME", "one of the schedules below (auto)"},
	PIPE_SAME_OPTIONS,
	[PIPE_JSON] = {"--json", 0, NULL, "print the plan as JSON, as pawl pipe verify reads it"},
	[TRACE] = {"--trace", 0, "FILE", "write the predicted step for chrome://tracing"},
	[PICTURE] = {"--picture", 0, "FILE", "draw the predicted step, as pawl pipe draw does"},
	[PYTHON] = {"--python", 0, "PATH", "with --picture: interpreter that has matplotlib"},
	{NULL},
};

static bool check_destination(const struct cli_command *command, const struct destination *to)
{
	if (to->python && !to->picture) {
		cli_usage(command, "--python is for --picture");
		return false;
	}
	return !to->picture || pipe_draw_check(command, "--picture", to->picture);
}

/* Returns the schedule of the command line. Several: CLI_BAD, after an error. */
static int find_schedule(const struct cli_command *command, const struct pipe_args *args)
{
	int found = PAWL_PIPE_AUTO;
	uint32_t n = 0;

	for (int s = 0; s < PAWL_PIPE_SCHEDULES; s++) {
		found = args->schedules[s] ? s : found;
		n += args->schedules[s];
	}
	if (n > 1 || args->stages_n > 1 || args->microbatches_n > 1) {
		cli_usage(command,
			"one number of stages and of microbatches, and one schedule, make a plan; "
			"pawl pipe predict compares several");
		return CLI_BAD;
	}
	return found;
}

static int print(const struct pipe_args *args, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report, const struct pawl_pipe_options *considered)
{
	if (args->json) {
		return cli_json(pipe_document_encode(&args->model, plan, report, considered));
	}
	pipe_print_plan(&args->model, plan, report, considered, args->setting.memory_weight > 0);
	return CLI_OK;
}

static int write_trace(const char *path, const struct pipe_args *args,
	const struct pawl_pipe_plan *plan, const struct pawl_pipe_report *report,
	struct pawl_err *err)
{
	char title[TITLE_MAX];
	char schedule[PIPE_TEXT_MAX];

	snprintf(title, sizeof(title), "%s, %s, predicted", args->model.name,
		pipe_schedule_text(schedule, plan->schedule, plan->each, plan->visits));
	return pipe_trace_write(path, title, plan, report, err);
}

/* Becomes the program that draws the step. It reads the trace from memory, which goes when that
 * program ends. Returns only on error. */
static int draw(const struct destination *to, const struct pipe_args *args,
	const struct pawl_pipe_plan *plan, const struct pawl_pipe_report *report,
	struct pawl_err *err)
{
	char place[PLACE_MAX];
	const char *traces[] = {place};
	int fd = memfd_create("pawl-trace", 0); /* the program inherits it */
	int rv;

	if (fd < 0) {
		return pawl_err_sys(err, "draw %s: make its trace", to->picture);
	}
	snprintf(place, sizeof(place), "/proc/self/fd/%d", fd);
	rv = write_trace(place, args, plan, report, err);
	rv = rv ? rv : pipe_draw_become(traces, 1, to->picture, to->python, err);
	close(fd);
	return rv;
}

/* Makes the plan, prints it, and writes the trace and the picture. */
static int show(const struct cli_command *command, struct pipe_args *args,
	const struct destination *to)
{
	static struct pawl_pipe_options considered;
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pawl_err err;
	int rv = pawl_pipe_choose(&plan, &report, &considered, args->model.units, args->model.n,
		&args->setting, &err);

	if (rv != 0) {
		return cli_fail(command, &err);
	}
	if (to->trace) {
		rv = write_trace(to->trace, args, &plan, &report, &err);
	}
	rv = rv ? cli_fail(command, &err) : print(args, &plan, &report, &considered);
	if (rv == CLI_OK && to->picture) {
		fflush(stdout);
		draw(to, args, &plan, &report, &err);
		rv = cli_fail(command, &err);
	}
	pawl_pipe_plan_deinit(&plan);
	pawl_pipe_report_deinit(&report);
	return rv;
}

static int main_show(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	static struct pipe_args args;
	struct destination to = {NULL};
	int schedule;
	int what;
	int rv;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_HELP || what == CLI_BAD) {
			return cli_read_exit_code(what);
		}
		if (what == TRACE) {
			to.trace = reader.value;
		} else if (what == PICTURE) {
			to.picture = reader.value;
		} else if (what == PYTHON) {
			to.python = reader.value;
		} else if (!pipe_args_read(command, what, reader.value, &args)) {
			return CLI_USAGE;
		}
	}
	if (!check_destination(command, &to)) {
		return CLI_USAGE;
	}
	schedule = find_schedule(command, &args);
	rv = schedule == CLI_BAD ? CLI_USAGE : pipe_args_load(command, &args);
	if (rv == CLI_OK) {
		uint32_t m = args.microbatches_n > 0 ? args.microbatches[0] : 2 * args.stages[0];

		rv = pipe_args_set(command, &args, args.stages[0], m,
			     (enum pawl_pipe_schedule)schedule)
			? show(command, &args, &to)
			: CLI_USAGE;
	}
	pipe_model_deinit(&args.model);
	return rv;
}

const struct cli_command cli_pipe_show = {
	.name = "pipe show",
	.args = "MODEL.json",
	.summary = "Cut a model into stages, and show the plan of its pipeline",
	.details =
		"MODEL.json has a row for each unit of a model: times, parameters, activations;\n"
		"\"-\" is standard input. docs/pipeline.md has the format. The cut is the optimum\n"
		"of the largest stage's time within the stages' memory, and its lower bound is\n"
		"proven. The schedules, of which auto takes the fastest that fits:\n"
		"\n"
		"  simple       all forwards, then all backwards (GPipe)\n"
		"  1f1b         a backward as soon as possible; few activations\n"
		"  interleaved  1f1b with several chunks a stage (Megatron)\n"
		"  zero-bubble  gradients of parameters fill the gaps (ZB-H1)\n"
		"  zbv          the same with two chunks a stage (ZB-V)\n"
		"  listed       an order found by list scheduling\n",
	.options = options,
	.main = main_show,
};
