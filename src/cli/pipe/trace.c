/* Writes traces of plans: see trace.h. */
#include "cli/pipe/trace.h"

#include "base/err.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define US_PER_S 1e6

static const char *const words[PAWL_PIPE_KINDS] = {"forward", "backward", "backward, inputs",
	"backward, parameters"};

/* Writes a text as JSON does. */
static void put_text(FILE *to, const char *text)
{
	json_t *string = cli_json_text(text);
	char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;

	fprintf(to, "%s", quoted ? quoted : "\"\"");
	free(quoted);
	json_decref(string);
}

static void put_names(FILE *to, const char *title, const struct pawl_pipe_plan *plan)
{
	fprintf(to, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":");
	put_text(to, title);
	fprintf(to, "}}");
	for (uint32_t s = 0; s < plan->stages; s++) {
		fprintf(to,
			",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%u,\"args\":{"
			"\"name\":\"stage %u\"}}",
			s, s);
	}
}

static void put_task(FILE *to, uint32_t stage, const struct pawl_pipe_task *task, double start_s,
	double end_s)
{
	fprintf(to,
		",\n{\"ph\":\"X\",\"name\":\"%c%u\",\"cat\":\"%s\",\"pid\":0,\"tid\":%u,\"ts\":%."
		"3f,"
		"\"dur\":%.3f,\"args\":{\"chunk\":%u,\"microbatch\":%u}}",
		pawl_pipe_kind_letter(task->kind), task->microbatch, words[task->kind], stage,
		start_s * US_PER_S, (end_s - start_s) * US_PER_S, task->chunk, task->microbatch);
}

static void put_memory(FILE *to, uint32_t stage, double at_s, uint64_t bytes)
{
	fprintf(to,
		",\n{\"ph\":\"C\",\"name\":\"memory of stage %u\",\"pid\":0,\"ts\":%.3f,\"args\":{"
		"\"bytes\":%" PRIu64 "}}",
		stage, at_s * US_PER_S, bytes);
}

/* Activations appear when a forward begins, and go when the backward ends. */
static void put_stage(FILE *to, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report, uint32_t stage)
{
	uint64_t bytes = plan->stage[stage].state_bytes;

	put_memory(to, stage, 0, bytes);
	for (uint32_t i = plan->first[stage]; i < plan->first[stage + 1]; i++) {
		const struct pawl_pipe_task *task = &plan->tasks[i];
		uint64_t saved = plan->chunks[task->chunk].saved_bytes;

		put_task(to, stage, task, report->start_s[i], report->end_s[i]);
		if (task->kind == PAWL_PIPE_FORWARD) {
			bytes += saved;
			put_memory(to, stage, report->start_s[i], bytes);
		} else if (task->kind != PAWL_PIPE_INPUT) {
			bytes -= saved;
			put_memory(to, stage, report->end_s[i], bytes);
		}
	}
}

int pipe_trace_write(const char *path, const char *title, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report, struct pawl_err *err)
{
	FILE *to = fopen(path, "we");
	bool written;

	if (!to) {
		return pawl_err_sys(err, "open %s", path);
	}
	fprintf(to,
		"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"step_s\":%.9g},\"traceEvents\":["
		"\n",
		report->step_s);
	put_names(to, title, plan);
	for (uint32_t s = 0; s < plan->stages; s++) {
		put_stage(to, plan, report, s);
	}
	fprintf(to, "\n]}\n");
	written = fflush(to) == 0 && !ferror(to);
	written = fclose(to) == 0 && written;
	return written ? 0 : pawl_err_sys(err, "write %s", path);
}
