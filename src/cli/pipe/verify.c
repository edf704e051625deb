/* pawl pipe verify: simulates a plan, and says what it takes or why it cannot run. */
#include "base/err.h"
#include "cli/cli.h"
#include "cli/pipe/document.h"
#include "cli/pipe/print.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option { JSON };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

/* ---- JSON ---- */

static json_t *encode_task(const struct pawl_pipe_task *task)
{
	return json_sprintf("%u%c%u", task->chunk, pawl_pipe_kind_letter(task->kind),
		task->microbatch);
}

/* Returns the cycle of stages that wait for each other. */
static json_t *encode_cycle(const struct pawl_pipe_report *report)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < report->waits_n; i++) {
		const struct pawl_pipe_wait *wait = &report->waits[i];

		json_array_append_new(all,
			json_pack("{s:i, s:o, s:o}", "stage", (int)wait->stage, "task",
				encode_task(&wait->task), "needs", encode_task(&wait->needs)));
	}
	return all;
}

/* Prints the document of a plan that runs, or why it does not. */
static int print_json(const struct pawl_pipe_report *report, int rv, const struct pawl_err *err)
{
	if (rv != 0) {
		return cli_json(json_pack("{s:b, s:o, s:o}", "valid", 0, "reason",
			cli_json_text(err->msg), "cycle", encode_cycle(report)));
	}
	return cli_json(json_pack("{s:b, s:o}", "valid", (int)(report->over == PAWL_PIPE_ANY_STAGE),
		"report", pipe_report_encode(report)));
}

/* ---- for people ---- */

static void print_text(const struct pawl_pipe_plan *plan, const struct pawl_pipe_report *report)
{
	char step[PIPE_TEXT_MAX];
	char bound[PIPE_TEXT_MAX];

	cli_print(stdout, "%u stages, %u chunks, %u microbatches: a step takes %s, bubble %.4f\n",
		plan->stages, plan->chunks_n, plan->microbatches,
		pipe_seconds(step, report->step_s), report->bubble);
	cli_print(stdout, "no order of these chunks takes less than %s\n",
		pipe_seconds(bound, report->bound_s));
	pipe_print_stages(NULL, plan, report);
}

/* Prints that a stage's peak is above its memory. */
static void print_over(const struct cli_command *command, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report)
{
	char peak[CLI_TEXT_MAX];
	char cap[CLI_TEXT_MAX];

	cli_print(stderr, "pawl %s: stage %u needs %s at its peak, and has %s\n", command->name,
		report->over, cli_size(peak, report->stage[report->over].peak_bytes),
		cli_size(cap, plan->stage[report->over].cap_bytes));
}

/* ---- verifying ---- */

static int verify(const struct cli_command *command, const struct pawl_pipe_plan *plan, bool json)
{
	struct pawl_pipe_report report;
	struct pawl_err err;
	int rv = pawl_pipe_verify(&report, plan, &err);
	int code = CLI_OK;

	if (rv == PAWL_ENOMEM) {
		return cli_fail(command, &err);
	}
	if (json) {
		code = print_json(&report, rv, &err);
	} else if (rv == 0) {
		print_text(plan, &report);
	}
	if (rv != 0) {
		cli_print(stderr, "pawl %s: %s\n", command->name, err.msg);
	} else if (report.over != PAWL_PIPE_ANY_STAGE) {
		print_over(command, plan, &report);
	}
	if (code == CLI_OK && (rv != 0 || report.over != PAWL_PIPE_ANY_STAGE)) {
		code = CLI_DAMAGED;
	}
	pawl_pipe_report_deinit(&report);
	return code;
}

static int verify_file(const struct cli_command *command, const char *path, bool json)
{
	struct pawl_pipe_plan plan;
	struct pawl_err err;
	char *text;
	size_t len_bytes;
	int rv = pipe_file_read(path, &text, &len_bytes, &err);

	if (rv != 0) {
		return cli_fail(command, &err);
	}
	rv = pipe_document_decode(&plan, text, len_bytes, &err);
	free(text);
	if (rv != 0) {
		pawl_err_prefix(&err, rv, "%s", path);
		return cli_fail(command, &err);
	}
	rv = verify(command, &plan, json);
	pawl_pipe_plan_deinit(&plan);
	return rv;
}

static int main_verify(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	const char *path = NULL;
	bool json = false;
	int what;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_HELP || what == CLI_BAD) {
			return cli_read_exit_code(what);
		}
		if (what == CLI_ARG && path) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		path = what == CLI_ARG ? reader.value : path;
		json = json || what == JSON;
	}
	return path ? verify_file(command, path, json) : cli_usage(command, "PLAN.json is missing");
}

const struct cli_command cli_pipe_verify = {
	.name = "pipe verify",
	.args = "PLAN.json",
	.summary = "Simulate a pipeline's plan: its time and memory, or its deadlock",
	.details =
		"PLAN.json is what pawl pipe show --json prints, perhaps with other tasks or\n"
		"times; \"-\" is standard input. Exits with 4 if a task is missing or too much,\n"
		"if stages would wait for each other for ever (the cycle is named), or if a\n"
		"stage needs more memory than it has.\n",
	.options = options,
	.main = main_verify,
};
