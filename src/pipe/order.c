/* Orders that are fixed rules: see order.h for the contract. Pure. */
#include "pipe/order.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[PAWL_PIPE_SCHEDULES] = {"auto", "simple", "1f1b", "interleaved",
	"zero-bubble", "zbv", "listed"};

const char *pawl_pipe_schedule_name(enum pawl_pipe_schedule schedule)
{
	ASSERT((unsigned)schedule < PAWL_PIPE_SCHEDULES);
	return names[schedule];
}

char pawl_pipe_kind_letter(enum pawl_pipe_kind kind)
{
	ASSERT((unsigned)kind < PAWL_PIPE_KINDS);
	return "FBIW"[kind];
}

void pipe_order_deinit(struct pipe_order *order)
{
	free(order->first);
	free(order->tasks);
	*order = (struct pipe_order){0};
}

int pipe_order_init(struct pipe_order *order, uint32_t stages, uint64_t tasks_n,
	struct pawl_err *err)
{
	*order = (struct pipe_order){.stages = stages};
	if (tasks_n > PAWL_PIPE_TASKS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"a step would have %llu tasks, and at most %u are possible: use fewer "
			"microbatches or chunks",
			(unsigned long long)tasks_n, PAWL_PIPE_TASKS_MAX);
	}
	order->first = FAULT_MEM("pipe.order", calloc(stages + 1u, sizeof(*order->first)));
	order->tasks = FAULT_MEM("pipe.order", calloc(tasks_n + 1, sizeof(*order->tasks)));
	if (!order->first || !order->tasks) {
		pipe_order_deinit(order);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for an order of %llu tasks",
			(unsigned long long)tasks_n);
	}
	return 0;
}

static void add(struct pipe_order *order, enum pawl_pipe_kind kind, uint32_t chunk,
	uint32_t microbatch)
{
	order->tasks[order->n++] =
		(struct pawl_pipe_task){(uint8_t)kind, (uint16_t)chunk, microbatch};
}

/* ---- one chunk a stage ---- */

static void add_simple(struct pipe_order *order, uint32_t stage, uint32_t microbatches)
{
	for (uint32_t j = 0; j < microbatches; j++) {
		add(order, PAWL_PIPE_FORWARD, stage, j);
	}
	for (uint32_t j = 0; j < microbatches; j++) {
		add(order, PAWL_PIPE_BACKWARD, stage, j);
	}
}

/* Forwards until the first backward can have come, then both in turn. */
static void add_1f1b(struct pipe_order *order, uint32_t stage, uint32_t microbatches)
{
	uint32_t ahead = pipe_lesser(microbatches, order->stages - stage - 1);

	for (uint32_t j = 0; j < ahead; j++) {
		add(order, PAWL_PIPE_FORWARD, stage, j);
	}
	for (uint32_t j = 0; j < microbatches; j++) {
		if (j + ahead < microbatches) {
			add(order, PAWL_PIPE_FORWARD, stage, j + ahead);
		}
		add(order, PAWL_PIPE_BACKWARD, stage, j);
	}
}

/* ZB-H1: as 1F1B with one forward more; gradients of parameters lag behind by the stage's
 * number, so that at the end they are what the stage waits with. */
static void add_zero_bubble(struct pipe_order *order, uint32_t stage, uint32_t microbatches)
{
	uint32_t ahead = pipe_lesser(microbatches, order->stages - stage);
	uint32_t weights = 0;

	for (uint32_t j = 0; j < ahead; j++) {
		add(order, PAWL_PIPE_FORWARD, stage, j);
	}
	for (uint32_t j = 0; j < microbatches; j++) {
		add(order, PAWL_PIPE_INPUT, stage, j);
		if (j + ahead < microbatches) {
			add(order, PAWL_PIPE_FORWARD, stage, j + ahead);
		}
		if (j + 1 - weights > stage) {
			add(order, PAWL_PIPE_WEIGHT, stage, weights++);
		}
	}
	while (weights < microbatches) {
		add(order, PAWL_PIPE_WEIGHT, stage, weights++);
	}
}

/* ---- several chunks a stage ---- */

/* How microbatches are grouped: all of a group pass one chunk of a stage before the next chunk. */
struct grouping {
	uint32_t each;   /* chunks of a stage */
	uint32_t groups; /* number of groups */
	uint32_t size;   /* microbatches of a small group */
	uint32_t larger; /* number of groups, the first ones, that have one more */
};

/* Groups of fewer microbatches than stages leave gaps, and can deadlock; so does a group that is
 * larger than the first. */
static struct grouping group(uint32_t stages, uint32_t each, uint32_t microbatches)
{
	uint32_t groups = microbatches < stages ? 1 : microbatches / stages;

	return (struct grouping){each, groups, microbatches / groups, microbatches % groups};
}

/* Returns the n-th task of a stage's forwards, or of its backwards, as chunk and microbatch. */
static struct pawl_pipe_task find_turn(const struct grouping *grouping, uint32_t stages,
	uint32_t stage, enum pawl_pipe_kind kind, uint32_t n)
{
	uint32_t large = grouping->larger * (grouping->size + 1) * grouping->each;
	bool is_large = n < large;
	uint32_t size = grouping->size + is_large;
	uint32_t left = is_large ? n : n - large; /* turns since the groups of this size began */
	uint32_t first = is_large ? 0 : grouping->larger * (grouping->size + 1);
	uint32_t turn = left / size % grouping->each;

	if (kind == PAWL_PIPE_BACKWARD) {
		turn = grouping->each - 1 - turn;
	}
	return (struct pawl_pipe_task){(uint8_t)kind, (uint16_t)(turn * stages + stage),
		first + left / (size * grouping->each) * size + left % size};
}

/* Megatron's rule, with groups of other sizes. */
static void add_interleaved(struct pipe_order *order, uint32_t stage,
	const struct grouping *grouping, uint32_t microbatches)
{
	uint32_t all = microbatches * grouping->each;
	uint32_t stages = order->stages;
	uint32_t ahead = pipe_lesser(all,
		2 * (stages - stage - 1) +
			(grouping->each - 1) * (grouping->size + (grouping->larger > 0)));

	for (uint32_t i = 0; i < ahead; i++) {
		order->tasks[order->n++] = find_turn(grouping, stages, stage, PAWL_PIPE_FORWARD, i);
	}
	for (uint32_t i = 0; i < all; i++) {
		if (i + ahead < all) {
			order->tasks[order->n++] =
				find_turn(grouping, stages, stage, PAWL_PIPE_FORWARD, i + ahead);
		}
		order->tasks[order->n++] =
			find_turn(grouping, stages, stage, PAWL_PIPE_BACKWARD, i);
	}
}

int pipe_order_fixed(struct pipe_order *order, enum pawl_pipe_schedule schedule, uint32_t stages,
	uint32_t each, uint32_t microbatches, struct pawl_err *err)
{
	uint64_t kinds = schedule == PAWL_PIPE_ZERO_BUBBLE ? 3 : 2;
	uint64_t tasks_n = kinds * stages * each * microbatches;
	struct grouping grouping = group(stages, each, microbatches);
	int rv = pipe_order_init(order, stages, tasks_n, err);

	if (rv != 0) {
		return rv;
	}
	ASSERT(each == 1 || schedule == PAWL_PIPE_INTERLEAVED);
	for (uint32_t s = 0; s < stages; s++) {
		order->first[s] = order->n;
		if (schedule == PAWL_PIPE_SIMPLE) {
			add_simple(order, s, microbatches);
		} else if (schedule == PAWL_PIPE_1F1B) {
			add_1f1b(order, s, microbatches);
		} else if (schedule == PAWL_PIPE_ZERO_BUBBLE) {
			add_zero_bubble(order, s, microbatches);
		} else {
			ASSERT(schedule == PAWL_PIPE_INTERLEAVED);
			add_interleaved(order, s, &grouping, microbatches);
		}
	}
	order->first[stages] = order->n;
	ASSERT(order->n == tasks_n);
	return 0;
}

void pipe_order_live(const struct pipe_order *order, uint32_t chunks_n, uint32_t *live)
{
	uint32_t now[PAWL_PIPE_CHUNKS_MAX] = {0};

	ASSERT(chunks_n <= PAWL_PIPE_CHUNKS_MAX);
	memset(live, 0, chunks_n * sizeof(*live));
	for (uint32_t i = 0; i < order->n; i++) {
		const struct pawl_pipe_task *task = &order->tasks[i];

		if (task->kind == PAWL_PIPE_FORWARD) {
			now[task->chunk]++;
		}
		if (now[task->chunk] > live[task->chunk]) {
			live[task->chunk] = now[task->chunk];
		}
		now[task->chunk] -= pipe_kind_ends(task->kind);
	}
}
