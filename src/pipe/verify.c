/*
 * Simulates plans: see pawl/pipe.h for the contract.
 *
 * Each stage has a list of tasks. A stage goes on as long as what its next task needs has arrived;
 * then it waits until another stage sends that. Since each stage's list is fixed, and each sends in
 * the order of its list, the times do not depend on which stage is looked at first. If no stage can
 * go on and some have tasks left, each of these waits for a task of another one that waits as well:
 * following that leads into a cycle. Pure.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "pipe/order.h"
#include "pipe/plan.h"
#include "pipe/timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEVER INFINITY
#define NONE  UINT32_MAX

struct simulation {
	const struct pawl_pipe_plan *plan;
	struct pawl_pipe_report *report;
	struct pipe_timing timing;
	uint32_t *at;       /* stages: index of the next task */
	double *free_s;     /* stages: end of the last task */
	uint32_t *runnable; /* stages that may be able to go on; a stack */
	uint32_t runnable_n;
	bool *listed;       /* stages: it is in runnable */
	double *forward_s;  /* chunks x microbatches: when a forward's input is there, or NEVER */
	double *backward_s; /* chunks x microbatches: when a backward's input is there, or NEVER */
	uint8_t *kinds;     /* chunks x microbatches: a bit for each kind of task that there is */
	uint8_t *ran;       /* chunks x microbatches: a bit for each kind of task that has run */
};

void pawl_pipe_report_deinit(struct pawl_pipe_report *report)
{
	if (!report) {
		return;
	}
	free(report->stage);
	free(report->start_s);
	free(report->end_s);
	free(report->waits);
	*report = (struct pawl_pipe_report){0};
}

/* ---- memory ---- */

static void deinit(struct simulation *sim)
{
	pipe_timing_deinit(&sim->timing);
	free(sim->at);
	free(sim->free_s);
	free(sim->runnable);
	free(sim->listed);
	free(sim->forward_s);
	free(sim->backward_s);
	free(sim->kinds);
	free(sim->ran);
}

static int init_report(struct pawl_pipe_report *report, const struct pawl_pipe_plan *plan,
	struct pawl_err *err)
{
	size_t tasks_n = plan->first[plan->stages];

	*report = (struct pawl_pipe_report){.stages = plan->stages, .over = PAWL_PIPE_ANY_STAGE};
	report->stage = FAULT_MEM("pipe.verify", calloc(plan->stages, sizeof(*report->stage)));
	report->start_s = FAULT_MEM("pipe.verify", calloc(tasks_n + 1, sizeof(*report->start_s)));
	report->end_s = FAULT_MEM("pipe.verify", calloc(tasks_n + 1, sizeof(*report->end_s)));
	if (!report->stage || !report->start_s || !report->end_s) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to report on %zu tasks", tasks_n);
	}
	return 0;
}

static int init(struct simulation *sim, struct pawl_err *err)
{
	const struct pawl_pipe_plan *plan = sim->plan;
	size_t cells = (size_t)plan->chunks_n * plan->microbatches;
	uint32_t stages = plan->stages;
	int rv = pipe_timing_init(&sim->timing, plan, err);

	if (rv != 0) {
		return rv;
	}
	sim->at = FAULT_MEM("pipe.verify", calloc(stages, sizeof(*sim->at)));
	sim->free_s = FAULT_MEM("pipe.verify", calloc(stages, sizeof(*sim->free_s)));
	sim->runnable = FAULT_MEM("pipe.verify", calloc(stages, sizeof(*sim->runnable)));
	sim->listed = FAULT_MEM("pipe.verify", calloc(stages, sizeof(*sim->listed)));
	sim->forward_s = FAULT_MEM("pipe.verify", malloc(cells * sizeof(*sim->forward_s)));
	sim->backward_s = FAULT_MEM("pipe.verify", malloc(cells * sizeof(*sim->backward_s)));
	sim->kinds = FAULT_MEM("pipe.verify", calloc(cells, sizeof(*sim->kinds)));
	sim->ran = FAULT_MEM("pipe.verify", calloc(cells, sizeof(*sim->ran)));
	if (!sim->at || !sim->free_s || !sim->runnable || !sim->listed || !sim->forward_s ||
		!sim->backward_s || !sim->kinds || !sim->ran) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to simulate %zu tasks", cells);
	}
	for (size_t i = 0; i < cells; i++) {
		sim->forward_s[i] = i < plan->microbatches ? 0 : NEVER;
		sim->backward_s[i] = NEVER;
	}
	return 0;
}

/* ---- running ---- */

/* Returns when a task's input is there, or NEVER. */
static double find_ready(const struct simulation *sim, const struct pawl_pipe_task *task)
{
	size_t at = pipe_plan_cell(sim->plan, task->chunk, task->microbatch);

	switch (task->kind) {
	case PAWL_PIPE_FORWARD:
		return sim->forward_s[at];
	case PAWL_PIPE_WEIGHT:
		return sim->ran[at] & 1u << PAWL_PIPE_INPUT ? 0 : NEVER;
	default:
		return sim->ran[at] & 1u << PAWL_PIPE_FORWARD ? sim->backward_s[at] : NEVER;
	}
}

static void make_runnable(struct simulation *sim, uint32_t stage)
{
	if (!sim->listed[stage]) {
		sim->listed[stage] = true;
		sim->runnable[sim->runnable_n++] = stage;
	}
	ASSERT(sim->runnable_n <= sim->plan->stages);
}

/* Sends a task's result to the chunk that needs it. */
static void send(struct simulation *sim, const struct pawl_pipe_task *task, double end_s)
{
	const struct pawl_pipe_plan *plan = sim->plan;
	bool forward = task->kind == PAWL_PIPE_FORWARD;
	uint32_t to = forward ? task->chunk + 1u : task->chunk - 1u;

	if (task->kind == PAWL_PIPE_WEIGHT || (!forward && task->chunk == 0)) {
		return;
	}
	if (to == plan->chunks_n) {
		sim->backward_s[pipe_plan_cell(plan, task->chunk, task->microbatch)] = end_s;
		return;
	}
	end_s = pipe_timing_send(&sim->timing, task->chunk, to, end_s);
	(forward ? sim->forward_s : sim->backward_s)[pipe_plan_cell(plan, to, task->microbatch)] =
		end_s;
	make_runnable(sim, plan->chunks[to].stage);
}

/* Runs the tasks of a stage until one is not ready. */
static void run_stage(struct simulation *sim, uint32_t stage)
{
	const struct pawl_pipe_plan *plan = sim->plan;

	while (sim->at[stage] < plan->first[stage + 1]) {
		uint32_t i = sim->at[stage];
		const struct pawl_pipe_task *task = &plan->tasks[i];
		double ready_s = find_ready(sim, task);
		double took_s = pipe_timing_took(&sim->timing, task->kind, task->chunk);

		if (isinf(ready_s)) {
			return;
		}
		sim->at[stage]++;
		sim->report->start_s[i] = fmax(sim->free_s[stage], ready_s);
		sim->report->end_s[i] = sim->report->start_s[i] + took_s;
		sim->report->stage[stage].busy_s += took_s;
		sim->free_s[stage] = sim->report->end_s[i];
		sim->ran[pipe_plan_cell(plan, task->chunk, task->microbatch)] |=
			(uint8_t)(1u << task->kind);
		send(sim, task, sim->free_s[stage]);
	}
}

static void run(struct simulation *sim)
{
	for (uint32_t s = sim->plan->stages; s-- > 0;) {
		sim->at[s] = sim->plan->first[s];
		make_runnable(sim, s);
	}
	while (sim->runnable_n > 0) {
		uint32_t stage = sim->runnable[--sim->runnable_n];

		run_stage(sim, stage);
		sim->listed[stage] = false;
	}
}

/* ---- deadlocks ---- */

/* Returns the task that has to end before another one can begin. There is one, as the other
 * waits. */
static struct pawl_pipe_task find_need(const struct simulation *sim,
	const struct pawl_pipe_task *task)
{
	const struct pawl_pipe_plan *plan = sim->plan;
	struct pawl_pipe_task need = *task;

	if (task->kind == PAWL_PIPE_FORWARD) {
		need.chunk--;
	} else if (task->kind == PAWL_PIPE_WEIGHT) {
		need.kind = PAWL_PIPE_INPUT;
	} else if (task->chunk + 1u == plan->chunks_n) {
		need.kind = PAWL_PIPE_FORWARD;
	} else {
		need.chunk++;
		need.kind = sim->kinds[pipe_plan_cell(plan, need.chunk, need.microbatch)] &
				1u << PAWL_PIPE_INPUT
			? PAWL_PIPE_INPUT
			: PAWL_PIPE_BACKWARD;
	}
	ASSERT(need.chunk < plan->chunks_n);
	return need;
}

/* Sets err to the report's cycle, as far as the message has room. */
static int name_cycle(const struct pawl_pipe_report *report, struct pawl_err *err)
{
	char text[PAWL_ERR_MSG_MAX] = "";
	char task[PIPE_TASK_TEXT];
	char needs[PIPE_TASK_TEXT];
	size_t len = 0;

	for (uint32_t i = 0; i < report->waits_n && len + 160 < sizeof(text); i++) {
		const struct pawl_pipe_wait *wait = &report->waits[i];

		len += (size_t)snprintf(text + len, sizeof(text) - len,
			"%sstage %u, before %s, waits for %s", i > 0 ? "; " : "", wait->stage,
			pipe_task_print(task, &wait->task), pipe_task_print(needs, &wait->needs));
	}
	return pawl_err_set(err, PAWL_EINVAL, "%u stages wait for each other for ever: %s",
		report->waits_n, text);
}

/* Follows the stages that wait, from one of them until it comes to one again: from there on they
 * are the cycle. */
static int find_cycle(struct simulation *sim, uint32_t stage, struct pawl_err *err)
{
	const struct pawl_pipe_plan *plan = sim->plan;
	struct pawl_pipe_report *report = sim->report;
	uint32_t visited[PAWL_PIPE_STAGES_MAX]; /* number of the stage on the way, or NONE */
	uint32_t n = 0;

	report->waits = FAULT_MEM("pipe.verify", calloc(plan->stages, sizeof(*report->waits)));
	if (!report->waits) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to report a deadlock");
	}
	memset(visited, 0xff, sizeof(visited));
	while (visited[stage] == NONE) {
		const struct pawl_pipe_task *task = &plan->tasks[sim->at[stage]];

		ASSERT(sim->at[stage] < plan->first[stage + 1]);
		visited[stage] = n;
		report->waits[n++] = (struct pawl_pipe_wait){stage, *task, find_need(sim, task)};
		stage = plan->chunks[report->waits[n - 1].needs.chunk].stage;
	}
	report->waits_n = n - visited[stage];
	memmove(report->waits, report->waits + visited[stage],
		report->waits_n * sizeof(*report->waits));
	return name_cycle(report, err);
}

static int check_end(struct simulation *sim, struct pawl_err *err)
{
	for (uint32_t s = 0; s < sim->plan->stages; s++) {
		if (sim->at[s] < sim->plan->first[s + 1]) {
			return find_cycle(sim, s, err);
		}
	}
	return 0;
}

/* ---- figures ---- */

/* Sets a stage's peaks. Forwards take activations, backwards or W give them back. */
static void find_peaks(const struct pawl_pipe_plan *plan, uint32_t stage,
	struct pawl_pipe_stage_report *report)
{
	uint64_t bytes = plan->stage[stage].state_bytes;
	uint32_t live = 0;

	report->peak_bytes = bytes;
	for (uint32_t i = plan->first[stage]; i < plan->first[stage + 1]; i++) {
		const struct pawl_pipe_task *task = &plan->tasks[i];
		uint64_t saved = plan->chunks[task->chunk].saved_bytes;

		if (task->kind == PAWL_PIPE_FORWARD) {
			bytes += saved;
			live++;
		} else if (pipe_kind_ends(task->kind)) {
			bytes -= saved;
			live--;
		}
		report->peak_bytes = bytes > report->peak_bytes ? bytes : report->peak_bytes;
		report->peak_live = live > report->peak_live ? live : report->peak_live;
	}
}

static bool has_split(const struct simulation *sim)
{
	size_t cells = (size_t)sim->plan->chunks_n * sim->plan->microbatches;

	for (size_t i = 0; i < cells; i++) {
		if (sim->kinds[i] & 1u << PAWL_PIPE_INPUT) {
			return true;
		}
	}
	return false;
}

/* Returns a time before which no order of the tasks can finish: each stage computes all its tasks
 * after its first forward can begin, and whole backwards have to go back from it to the start. */
static double find_bound(const struct simulation *sim)
{
	const struct pawl_pipe_plan *plan = sim->plan;
	bool seen[PAWL_PIPE_STAGES_MAX] = {false};
	bool split = has_split(sim);
	double latency_s = plan->link.latency_s;
	double there_s = 0; /* time until the chunk's first input */
	double back_s = 0;  /* time after the chunk's last backward */
	double bound_s = 0;

	for (uint32_t c = 0; c < plan->chunks_n; c++) {
		uint32_t stage = plan->chunks[c].stage;
		double hop_s = c + 1 < plan->chunks_n && plan->chunks[c + 1].stage != stage
			? latency_s
			: 0;

		if (!plan->link.busy && plan->link.bytes_per_s > 0 && c + 1 < plan->chunks_n) {
			hop_s += (double)plan->chunks[c + 1].in_bytes / plan->link.bytes_per_s;
		}
		if (!seen[stage]) {
			seen[stage] = true;
			bound_s = fmax(bound_s,
				there_s + sim->report->stage[stage].busy_s + (split ? 0 : back_s));
		}
		there_s += pipe_timing_took(&sim->timing, PAWL_PIPE_FORWARD, c) + hop_s;
		back_s += hop_s +
			pipe_timing_took(&sim->timing, split ? PAWL_PIPE_INPUT : PAWL_PIPE_BACKWARD,
				c);
	}
	return fmax(bound_s, there_s + back_s);
}

/* Returns the end of the sums of copies' gradients. Those of a set begin when all its stages have
 * ended, and take what a ring all-reduce takes: 2 (k - 1) / k of the bytes, 2 (k - 1) hops. */
static double sum_copies(const struct simulation *sim)
{
	const struct pawl_pipe_plan *plan = sim->plan;
	double end_s = 0;

	for (uint32_t i = 0; i < plan->copies_n; i++) {
		const struct pawl_pipe_copies *copies = &plan->copies[i];
		const uint32_t *holders = plan->holders + copies->first;
		double hops = 2.0 * (copies->stages - 1);
		double took_s = hops * plan->link.latency_s;
		double begin_s = 0;

		if (plan->link.bytes_per_s > 0) {
			took_s += hops / copies->stages * (double)copies->len_bytes /
				plan->link.bytes_per_s;
		}
		for (uint32_t h = 0; h < copies->stages; h++) {
			begin_s = fmax(begin_s, sim->free_s[holders[h]]);
		}
		for (uint32_t h = 0; h < copies->stages; h++) {
			sim->free_s[holders[h]] = begin_s + took_s;
		}
		end_s = fmax(end_s, begin_s + took_s);
	}
	return end_s;
}

static void sum_up(struct simulation *sim)
{
	const struct pawl_pipe_plan *plan = sim->plan;
	struct pawl_pipe_report *report = sim->report;
	double busy_s = 0;

	for (uint32_t s = 0; s < plan->stages; s++) {
		find_peaks(plan, s, &report->stage[s]);
		report->finish_s = fmax(report->finish_s, sim->free_s[s]);
		busy_s = fmax(busy_s, report->stage[s].busy_s);
		if (report->over == PAWL_PIPE_ANY_STAGE &&
			report->stage[s].peak_bytes > plan->stage[s].cap_bytes) {
			report->over = s;
		}
	}
	report->bubble = busy_s > 0 ? report->finish_s / busy_s - 1 : 0;
	report->bound_s = find_bound(sim);
	report->step_s = fmax(report->finish_s, sum_copies(sim));
}

int pawl_pipe_verify(struct pawl_pipe_report *report, const struct pawl_pipe_plan *plan,
	struct pawl_err *err)
{
	struct simulation sim = {.plan = plan, .report = report};
	int rv = pipe_plan_check(plan, err);

	*report = (struct pawl_pipe_report){0};
	rv = rv ? rv : pipe_plan_check_ranges(plan, err);
	if (rv != 0) {
		return rv;
	}
	rv = init_report(report, plan, err);
	rv = rv ? rv : init(&sim, err);
	rv = rv ? rv : pipe_plan_check_tasks(plan, sim.kinds, err);
	if (rv == 0) {
		run(&sim);
		rv = check_end(&sim, err);
	}
	if (rv == 0) {
		sum_up(&sim);
	} else if (report->waits_n == 0) {
		pawl_pipe_report_deinit(report);
	}
	deinit(&sim);
	return rv;
}
