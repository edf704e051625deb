/* Plans: released, and checked. See plan.h for the contract. Pure. */
#include "pipe/plan.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>

#define WHOLE      (1u << PAWL_PIPE_FORWARD | 1u << PAWL_PIPE_BACKWARD)
#define STATE_MOST (1ull << 60) /* bytes of a stage's parameters and their state */
#define SPLIT      (1u << PAWL_PIPE_FORWARD | 1u << PAWL_PIPE_INPUT | 1u << PAWL_PIPE_WEIGHT)

void pawl_pipe_plan_deinit(struct pawl_pipe_plan *plan)
{
	if (!plan) {
		return;
	}
	free(plan->stage);
	free(plan->chunks);
	free(plan->copies);
	free(plan->holders);
	free(plan->first);
	free(plan->tasks);
	*plan = (struct pawl_pipe_plan){0};
}

const char *pipe_task_print(char *text, const struct pawl_pipe_task *task)
{
	snprintf(text, PIPE_TASK_TEXT, "%c of chunk %u, microbatch %u",
		task->kind < PAWL_PIPE_KINDS ? pawl_pipe_kind_letter(task->kind) : '?', task->chunk,
		task->microbatch);
	return text;
}

/* ---- numbers ---- */

static bool is_time(double seconds, double most_s)
{
	return seconds >= 0 && seconds <= most_s; /* false for NaN */
}

static int check_chunk(const struct pawl_pipe_plan *plan, uint32_t c, struct pawl_err *err)
{
	const struct pawl_pipe_chunk *chunk = &plan->chunks[c];
	double most_s = PAWL_PIPE_SECONDS_MAX * PAWL_PIPE_UNITS_MAX * 1e6; /* at a stage's speed */

	if (chunk->stage >= plan->stages) {
		return pawl_err_set(err, PAWL_EINVAL,
			"chunk %u is on stage %u, but the last stage is %u", c, chunk->stage,
			plan->stages - 1);
	}
	if (!is_time(chunk->forward_s, most_s) || !is_time(chunk->backward_s, most_s) ||
		!is_time(chunk->weight_s, chunk->backward_s)) {
		return pawl_err_set(err, PAWL_EINVAL, "chunk %u: a time is out of range", c);
	}
	if (chunk->in_bytes > 0 && (c == 0 || plan->chunks[c - 1].stage == chunk->stage)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"chunk %u receives bytes, but no chunk of another stage is before it", c);
	}
	return 0;
}

static int check_copies(const struct pawl_pipe_plan *plan, struct pawl_err *err)
{
	for (uint32_t i = 0; i < plan->copies_n; i++) {
		const struct pawl_pipe_copies *copies = &plan->copies[i];

		if (copies->len_bytes > PAWL_PIPE_BYTES_MAX || copies->stages < 2 ||
			copies->stages > plan->stages) {
			return pawl_err_set(err, PAWL_EINVAL,
				"tied set %u: copies on %u of %u stages, of %llu bytes",
				copies->tied, copies->stages, plan->stages,
				(unsigned long long)copies->len_bytes);
		}
		for (uint32_t h = 0; h < copies->stages; h++) {
			if (plan->holders[copies->first + h] >= plan->stages) {
				return pawl_err_set(err, PAWL_EINVAL,
					"tied set %u: there is no stage %u", copies->tied,
					plan->holders[copies->first + h]);
			}
		}
	}
	return 0;
}

/* Checks the sizes of all stages and chunks, so that no sum of them overflows. */
static int check_sizes(const struct pawl_pipe_plan *plan, struct pawl_err *err)
{
	uint64_t saved = 0;

	for (uint32_t s = 0; s < plan->stages; s++) {
		if (plan->stage[s].state_bytes > STATE_MOST) {
			return pawl_err_set(err, PAWL_ELIMIT, "stage %u: more than %llu bytes", s,
				STATE_MOST);
		}
	}
	for (uint32_t c = 0; c < plan->chunks_n; c++) {
		const struct pawl_pipe_chunk *chunk = &plan->chunks[c];

		saved += chunk->saved_bytes < PAWL_PIPE_BYTES_MAX ? chunk->saved_bytes
								  : PAWL_PIPE_BYTES_MAX;
		if (saved > PAWL_PIPE_BYTES_MAX || chunk->in_bytes > PAWL_PIPE_BYTES_MAX) {
			return pawl_err_set(err, PAWL_ELIMIT,
				"chunk %u: it, or the chunks so far, have more than %llu bytes", c,
				PAWL_PIPE_BYTES_MAX);
		}
	}
	return 0;
}

int pipe_plan_check(const struct pawl_pipe_plan *plan, struct pawl_err *err)
{
	int rv = 0;

	if (plan->stages < 1 || plan->stages > PAWL_PIPE_STAGES_MAX || plan->chunks_n < 1 ||
		plan->chunks_n > PAWL_PIPE_CHUNKS_MAX || plan->microbatches < 1 ||
		plan->microbatches > PAWL_PIPE_MICROBATCHES_MAX ||
		plan->copies_n > PAWL_PIPE_TIED_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"a plan has 1 to %u stages, 1 to %u chunks, 1 to %u microbatches, and at "
			"most %u tied sets",
			PAWL_PIPE_STAGES_MAX, PAWL_PIPE_CHUNKS_MAX, PAWL_PIPE_MICROBATCHES_MAX,
			PAWL_PIPE_TIED_MAX);
	}
	if (!pipe_is_rate(plan->link.bytes_per_s) ||
		!is_time(plan->link.latency_s, PAWL_PIPE_SECONDS_MAX)) {
		return pawl_err_set(err, PAWL_EINVAL, "the link is out of range");
	}
	for (uint32_t c = 0; c < plan->chunks_n && rv == 0; c++) {
		rv = check_chunk(plan, c, err);
	}
	rv = rv ? rv : check_sizes(plan, err);
	return rv ? rv : check_copies(plan, err);
}

/* ---- tasks ---- */

static int check_task(const struct pawl_pipe_plan *plan, uint32_t stage,
	const struct pawl_pipe_task *task, uint8_t *kinds, struct pawl_err *err)
{
	char text[PIPE_TASK_TEXT];
	uint8_t *seen;

	pipe_task_print(text, task);
	if (task->kind >= PAWL_PIPE_KINDS || task->chunk >= plan->chunks_n ||
		task->microbatch >= plan->microbatches) {
		return pawl_err_set(err, PAWL_EINVAL,
			"stage %u has %s, but the plan has %u chunks and %u microbatches", stage,
			text, plan->chunks_n, plan->microbatches);
	}
	if (plan->chunks[task->chunk].stage != stage) {
		return pawl_err_set(err, PAWL_EINVAL, "stage %u has %s, which is on stage %u",
			stage, text, plan->chunks[task->chunk].stage);
	}
	seen = &kinds[pipe_plan_cell(plan, task->chunk, task->microbatch)];
	if (*seen & 1u << task->kind) {
		return pawl_err_set(err, PAWL_EINVAL, "stage %u has %s twice", stage, text);
	}
	*seen |= (uint8_t)(1u << task->kind);
	return 0;
}

/* Says which task of a chunk and a microbatch is missing, or too much. */
static int refuse_kinds(const struct pawl_pipe_plan *plan, uint32_t chunk, uint32_t microbatch,
	uint8_t kinds, struct pawl_err *err)
{
	bool split = (kinds & SPLIT & ~WHOLE) != 0;
	bool both = split && (kinds & 1u << PAWL_PIPE_BACKWARD) != 0;
	uint8_t lacks = (uint8_t)((split ? SPLIT : WHOLE) & ~kinds);
	enum pawl_pipe_kind kind = PAWL_PIPE_FORWARD;
	char text[PIPE_TASK_TEXT];

	while (kind < PAWL_PIPE_WEIGHT && !(lacks & 1u << kind)) {
		kind++;
	}
	pipe_task_print(text,
		&(struct pawl_pipe_task){(uint8_t)(both ? PAWL_PIPE_BACKWARD : kind),
			(uint16_t)chunk, microbatch});
	return pawl_err_set(err, PAWL_EINVAL,
		both ? "stage %u has %s, and I or W of it as well" : "stage %u does not have %s",
		plan->chunks[chunk].stage, text);
}

int pipe_plan_check_ranges(const struct pawl_pipe_plan *plan, struct pawl_err *err)
{
	for (uint32_t s = 0; s < plan->stages; s++) {
		if ((s == 0 && plan->first[0] != 0) || plan->first[s] > plan->first[s + 1] ||
			plan->first[s + 1] > PAWL_PIPE_TASKS_MAX) {
			return pawl_err_set(err, PAWL_EINVAL,
				"the tasks of stage %u do not lie behind those of the stage before",
				s);
		}
	}
	return 0;
}

int pipe_plan_check_tasks(const struct pawl_pipe_plan *plan, uint8_t *kinds, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t s = 0; s < plan->stages; s++) {
		for (uint32_t i = plan->first[s]; i < plan->first[s + 1] && rv == 0; i++) {
			rv = check_task(plan, s, &plan->tasks[i], kinds, err);
		}
	}
	for (uint32_t c = 0; c < plan->chunks_n && rv == 0; c++) {
		for (uint32_t j = 0; j < plan->microbatches && rv == 0; j++) {
			uint8_t seen = kinds[pipe_plan_cell(plan, c, j)];

			if (seen != WHOLE && seen != SPLIT) {
				rv = refuse_kinds(plan, c, j, seen, err);
			}
		}
	}
	return rv;
}
