/* The order of calls: see order.h for the contract. Pure. */
#include "stage/order.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

#define HEAP_MIN 16u /* room of a heap that is not empty */

/* ---- heaps ---- */

/* Makes room for n tasks. False: no memory. */
static bool reserve_heap(struct order_heap *heap, uint32_t n)
{
	uint32_t cap = heap->cap == 0 ? HEAP_MIN : heap->cap;
	struct order_task **tasks;

	if (n <= heap->cap) {
		return true;
	}
	while (cap < n) {
		cap *= 2;
	}
	tasks = FAULT_MEM("stage.order", realloc(heap->tasks, cap * sizeof(struct order_task *)));
	if (!tasks) {
		return false;
	}
	heap->tasks = tasks;
	heap->cap = cap;
	return true;
}

static void place(struct order_heap *heap, uint32_t at, struct order_task *task)
{
	while (at > 0 && heap->tasks[(at - 1) / 2]->at > task->at) {
		heap->tasks[at] = heap->tasks[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap->tasks[at] = task;
}

static void push(struct order_heap *heap, struct order_task *task)
{
	ASSERT(heap->n < heap->cap && !task->queued);
	task->queued = true;
	place(heap, heap->n, task);
	heap->n++;
}

/* Takes the task at an index of the heap. */
static struct order_task *take(struct order_heap *heap, uint32_t at)
{
	struct order_task *taken = heap->tasks[at];
	struct order_task *last = heap->tasks[heap->n - 1];

	taken->queued = false;
	heap->n--;
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child + 1 < heap->n && heap->tasks[child + 1]->at < heap->tasks[child]->at) {
			child++;
		}
		if (child >= heap->n || heap->tasks[child]->at >= last->at) {
			break;
		}
		heap->tasks[at] = heap->tasks[child];
		at = child;
	}
	if (taken != last) {
		place(heap, at, last);
	}
	return taken;
}

/* ---- tasks ---- */

static uint64_t key_of(const struct pawl_pipe_task *task)
{
	return (uint64_t)task->microbatch << 24 | (uint64_t)task->chunk << 8 | task->kind;
}

static struct order_task **bucket_of(const struct stage_order *order,
	const struct pawl_pipe_task *task)
{
	uint64_t mixed = key_of(task) * 0x9e3779b97f4a7c15u;

	return &order->buckets[(mixed >> 32) & (order->buckets_n - 1)];
}

static struct order_task *find(const struct stage_order *order, const struct pawl_pipe_task *task)
{
	struct order_task *found = order->buckets_n > 0 ? *bucket_of(order, task) : NULL;

	while (found && key_of(&found->task) != key_of(task)) {
		found = found->next;
	}
	return found;
}

static void add(struct stage_order *order, struct order_task *task)
{
	struct order_task **bucket = bucket_of(order, &task->task);

	task->next = *bucket;
	*bucket = task;
}

bool stage_order_task_valid(const struct pawl_pipe_task *task)
{
	return task->kind < PAWL_PIPE_KINDS && task->microbatch < PAWL_PIPE_MICROBATCHES_MAX;
}

/* Frees the tasks that are not in the list; they have no calls. */
static void free_extra(struct stage_order *order)
{
	while (order->extra) {
		struct order_task *task = order->extra;
		struct order_task **at = bucket_of(order, &task->task);

		while (*at != task) {
			at = &(*at)->next;
		}
		*at = task->next;
		order->extra = task->next_extra;
		free(task);
	}
	order->extra_n = 0;
}

void stage_order_deinit(struct stage_order *order)
{
	free_extra(order);
	free(order->list);
	free(order->buckets);
	free(order->ready.tasks);
	*order = (struct stage_order){0};
}

static bool has_list(const struct stage_order *order, const struct pawl_pipe_task *tasks,
	uint32_t n)
{
	bool same = order->buckets_n > 0 && n == order->list_n;

	for (uint32_t i = 0; i < n && same; i++) {
		same = key_of(&order->list[i].task) == key_of(&tasks[i]);
	}
	return same;
}

/* Fills an order that has no tasks. */
static int fill(struct stage_order *order, const struct pawl_pipe_task *tasks, uint32_t n,
	struct pawl_err *err)
{
	order->buckets_n = 64;
	while (order->buckets_n < n) {
		order->buckets_n *= 2;
	}
	order->list = FAULT_MEM("stage.order", calloc((size_t)n + 1, sizeof(*order->list)));
	order->buckets =
		FAULT_MEM("stage.order", calloc(order->buckets_n, sizeof(struct order_task *)));
	if (!order->list || !order->buckets) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u tasks", n);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!stage_order_task_valid(&tasks[i]) || find(order, &tasks[i])) {
			return pawl_err_set(err, PAWL_EINVAL,
				"task %u (kind %u, chunk %u, microbatch %u) %s", i, tasks[i].kind,
				tasks[i].chunk, tasks[i].microbatch,
				stage_order_task_valid(&tasks[i]) ? "is there twice"
								  : "is not valid");
		}
		order->list[i].task = tasks[i];
		order->list[i].at = i;
		add(order, &order->list[i]);
	}
	if (!reserve_heap(&order->ready, n)) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u tasks", n);
	}
	order->list_n = n;
	return 0;
}

int stage_order_begin(struct stage_order *order, const struct pawl_pipe_task *tasks, uint32_t n,
	struct pawl_err *err)
{
	struct stage_order next = {0};
	int rv;

	ASSERT(order->left == 0);
	if (n > PAWL_PIPE_TASKS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "%u tasks, at most %u", n,
			PAWL_PIPE_TASKS_MAX);
	}
	ASSERT(order->ready.n == 0);
	if (has_list(order, tasks, n)) {
		free_extra(order);
	} else {
		rv = fill(&next, tasks, n, err);
		if (rv != 0) {
			stage_order_deinit(&next);
			return rv;
		}
		stage_order_deinit(order);
		*order = next;
	}
	order->cursor = order->backward = order->low = 0;
	order->all_flushed = false;
	memset(order->flushed, 0, sizeof(order->flushed));
	return 0;
}

static struct order_task *add_extra(struct stage_order *order, const struct pawl_pipe_task *task)
{
	struct order_task *made = FAULT_MEM("stage.order", calloc(1, sizeof(*made)));

	if (!made || !reserve_heap(&order->ready, order->list_n + order->extra_n + 1)) {
		free(made);
		return NULL;
	}
	made->task = *task;
	made->at = order->list_n + order->extra_n++;
	made->next_extra = order->extra;
	order->extra = made;
	add(order, made);
	return made;
}

/* ---- calls ---- */

/* Returns whether a task is only done when the list comes to it: nobody else waits for it. */
static bool waits_its_turn(const struct order_task *task)
{
	return task->task.kind == PAWL_PIPE_WEIGHT;
}

/* Counts a call of a task that is no longer left. */
static void forget(struct stage_order *order, const struct order_task *task)
{
	order->left--;
	if (!waits_its_turn(task)) {
		order->left_of[task->task.microbatch]--;
	}
}

/* Puts a task into ready, if its first call can run. */
static void queue_ready(struct stage_order *order, struct order_task *task)
{
	const struct order_call *first = task->first;

	if (!task->queued && first && first->missing == 0 && !first->running) {
		push(&order->ready, task);
	}
}

int stage_order_add(struct stage_order *order, struct order_call *call)
{
	struct order_task *task = find(order, &call->call.task);

	task = task ? task : add_extra(order, &call->call.task);
	if (!task) {
		return PAWL_ENOMEM;
	}
	call->task = task;
	call->next = NULL;
	if (task->first) {
		task->last->next = call;
	} else {
		task->first = call;
	}
	task->last = call;
	order->left++;
	if (!waits_its_turn(task)) {
		order->left_of[task->task.microbatch]++;
		if (task->task.microbatch < order->low) {
			order->low = task->task.microbatch;
		}
	}
	queue_ready(order, task);
	return 0;
}

void stage_order_ready(struct stage_order *order, struct order_call *call)
{
	ASSERT(call->missing == 0);
	queue_ready(order, call->task);
}

void stage_order_flush(struct stage_order *order, enum pawl_pipe_kind kind, uint32_t microbatch)
{
	ASSERT(microbatch < PAWL_PIPE_MICROBATCHES_MAX);
	order->flushed[kind != PAWL_PIPE_FORWARD][microbatch / 8] |=
		(uint8_t)(1u << microbatch % 8);
}

void stage_order_flush_all(struct stage_order *order)
{
	order->all_flushed = true;
}

static bool is_flushed(const struct stage_order *order, bool backward, uint32_t microbatch)
{
	return order->all_flushed ||
		(order->flushed[backward][microbatch / 8] >> microbatch % 8 & 1u) != 0;
}

static bool is_drained(const struct stage_order *order, const struct order_task *task)
{
	return !task->first &&
		is_flushed(order, task->task.kind != PAWL_PIPE_FORWARD, task->task.microbatch);
}

static bool is_complete(const struct stage_order *order, uint32_t microbatch)
{
	return order->left_of[microbatch] == 0 && is_flushed(order, false, microbatch) &&
		is_flushed(order, true, microbatch);
}

/* Moves the marks forward. */
static void advance(struct stage_order *order)
{
	const struct order_task *list = order->list;

	while (order->cursor < order->list_n && is_drained(order, &list[order->cursor])) {
		order->cursor++;
	}
	while (order->backward < order->list_n &&
		(list[order->backward].task.kind == PAWL_PIPE_FORWARD ||
			waits_its_turn(&list[order->backward]) ||
			is_drained(order, &list[order->backward]))) {
		order->backward++;
	}
	while (order->low < PAWL_PIPE_MICROBATCHES_MAX - 1 && is_complete(order, order->low)) {
		order->low++;
	}
}

/* Whether a task may run now that has a call which can: see the rules in pawl/stage.h. */
static bool may_run(const struct stage_order *order, const struct order_task *task)
{
	uint32_t at = task->at < order->list_n ? task->at : order->list_n;

	return at <= order->cursor ||
		(!waits_its_turn(task) &&
			(task->task.microbatch == order->low ||
				(task->task.kind != PAWL_PIPE_FORWARD && at <= order->backward)));
}

const struct order_task *stage_order_current(struct stage_order *order)
{
	advance(order);
	return order->cursor < order->list_n ? &order->list[order->cursor] : NULL;
}

struct order_call *stage_order_next(struct stage_order *order)
{
	struct order_heap *ready = &order->ready;
	uint32_t best = UINT32_MAX;
	struct order_task *task;

	advance(order);
	/* The first task of the heap is the earliest; mostly it may run. */
	for (uint32_t i = 0; i < ready->n && best != 0; i++) {
		if (may_run(order, ready->tasks[i]) &&
			(best == UINT32_MAX || ready->tasks[i]->at < ready->tasks[best]->at)) {
			best = i;
		}
	}
	if (best == UINT32_MAX) {
		return NULL;
	}
	task = take(ready, best);
	task->first->running = true;
	return task->first;
}

void stage_order_done(struct stage_order *order, struct order_call *call)
{
	struct order_task *task = call->task;

	ASSERT(call->running && task->first == call);
	task->first = call->next;
	task->last = task->first ? task->last : NULL;
	forget(order, task);
	queue_ready(order, task);
}

struct order_call *stage_order_take_any(struct stage_order *order)
{
	while (order->taking < order->buckets_n) {
		struct order_task *task = order->buckets[order->taking];

		while (task && !task->first) {
			task = task->next;
		}
		if (task) {
			struct order_call *call = task->first;

			task->first = call->next;
			forget(order, task);
			return call;
		}
		order->taking++;
	}
	return NULL;
}
