/* List scheduling: see list.h for the contract. Pure. */
#include "pipe/list.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "pipe/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER INFINITY
#define NONE  UINT32_MAX

/* A chunk while the order is made. */
struct chunk_state {
	uint32_t next;     /* next chunk of the same stage, or NONE */
	bool visit;        /* the stage has a chunk before it */
	uint32_t forward;  /* number of forwards that have been placed */
	uint32_t backward; /* number of backwards, or of I */
	uint32_t weight;   /* number of W */
};

struct stage_state {
	uint32_t chunk; /* first chunk, or NONE */
	double free_s;  /* end of its last task */
	double next_s;  /* start of its next task; NEVER: nothing is ready */
	uint32_t live;  /* activations that it has */
};

struct lister {
	const struct pawl_pipe_plan *plan;
	const struct pipe_policy *policy;
	struct pipe_timing timing;
	struct pipe_order *order;
	struct chunk_state *chunks;
	struct stage_state *stages;
	uint32_t *first;    /* tree: see set_first */
	uint32_t leaves;    /* leaves of the tree: a power of two, at least stages */
	double *forward_s;  /* chunks x microbatches: when a forward's input is there, or NEVER */
	double *backward_s; /* chunks x microbatches: when a backward's input is there, or NEVER */
};

/* A task that a stage could take next. */
struct candidate {
	uint8_t kind;
	uint32_t chunk;
	uint32_t microbatch;
	double ready_s;
};

/* ---- memory ---- */

static void deinit(struct lister *lister)
{
	pipe_timing_deinit(&lister->timing);
	free(lister->chunks);
	free(lister->stages);
	free(lister->first);
	free(lister->forward_s);
	free(lister->backward_s);
}

/* Links the chunks of each stage, and makes room for its tasks. */
static void place_chunks(struct lister *lister)
{
	const struct pawl_pipe_plan *plan = lister->plan;
	uint32_t each = plan->microbatches * (lister->policy->split ? 3 : 2);

	for (uint32_t s = 0; s < plan->stages; s++) {
		lister->stages[s] = (struct stage_state){.chunk = NONE, .next_s = NEVER};
	}
	for (uint32_t c = plan->chunks_n; c-- > 0;) {
		struct stage_state *stage = &lister->stages[plan->chunks[c].stage];

		lister->chunks[c] = (struct chunk_state){.next = stage->chunk};
		if (stage->chunk != NONE) {
			lister->chunks[stage->chunk].visit = true;
		}
		stage->chunk = c;
		lister->order->first[plan->chunks[c].stage + 1] += each;
	}
	for (uint32_t s = 0; s < plan->stages; s++) {
		lister->order->first[s + 1] += lister->order->first[s];
	}
}

static int init(struct lister *lister, struct pawl_err *err)
{
	const struct pawl_pipe_plan *plan = lister->plan;
	size_t cells = (size_t)plan->chunks_n * plan->microbatches;
	int rv = pipe_timing_init(&lister->timing, plan, err);

	if (rv != 0) {
		return rv;
	}
	lister->chunks = FAULT_MEM("pipe.list", calloc(plan->chunks_n, sizeof(*lister->chunks)));
	lister->stages = FAULT_MEM("pipe.list", calloc(plan->stages, sizeof(*lister->stages)));
	lister->leaves = 1;
	while (lister->leaves < plan->stages) {
		lister->leaves *= 2;
	}
	lister->first = FAULT_MEM("pipe.list", malloc(2 * lister->leaves * sizeof(*lister->first)));
	lister->forward_s = FAULT_MEM("pipe.list", malloc(cells * sizeof(*lister->forward_s)));
	lister->backward_s = FAULT_MEM("pipe.list", malloc(cells * sizeof(*lister->backward_s)));
	if (!lister->chunks || !lister->stages || !lister->first || !lister->forward_s ||
		!lister->backward_s) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to order %u chunks",
			plan->chunks_n);
	}
	for (size_t i = 0; i < cells; i++) {
		lister->forward_s[i] = i < plan->microbatches ? 0 : NEVER;
		lister->backward_s[i] = NEVER;
	}
	memset(lister->first, 0xff, 2 * lister->leaves * sizeof(*lister->first)); /* NONE */
	place_chunks(lister);
	return 0;
}

/* ---- which task is next ---- */

static size_t cell(const struct lister *lister, uint32_t chunk, uint32_t microbatch)
{
	return (size_t)chunk * lister->plan->microbatches + microbatch;
}

/* Returns whether a chunk may take its next forward, once that is ready. */
static bool may_forward(const struct lister *lister, uint32_t chunk)
{
	const struct chunk_state *state = &lister->chunks[chunk];
	const struct stage_state *stage = &lister->stages[lister->plan->chunks[chunk].stage];

	if (state->visit) {
		return true;
	}
	return stage->live < lister->policy->live &&
		(chunk > 0 || state->forward - state->backward < lister->policy->inflight);
}

/* Lists a chunk's next tasks. Returns how many there are. */
static uint32_t list_candidates(const struct lister *lister, uint32_t chunk,
	struct candidate found[3])
{
	const struct chunk_state *state = &lister->chunks[chunk];
	uint32_t all = lister->plan->microbatches;
	bool split = lister->policy->split;
	uint32_t n = 0;

	if (state->forward < all && may_forward(lister, chunk)) {
		found[n++] = (struct candidate){PAWL_PIPE_FORWARD, chunk, state->forward,
			lister->forward_s[cell(lister, chunk, state->forward)]};
	}
	if (state->backward < all) {
		found[n++] = (struct candidate){split ? PAWL_PIPE_INPUT : PAWL_PIPE_BACKWARD, chunk,
			state->backward, lister->backward_s[cell(lister, chunk, state->backward)]};
	}
	if (split && state->weight < state->backward) {
		found[n++] = (struct candidate){PAWL_PIPE_WEIGHT, chunk, state->weight, 0};
	}
	return n;
}

/* Returns how urgent a task is; the least first. */
static uint32_t rank(const struct lister *lister, const struct candidate *candidate)
{
	static const uint32_t ranks[PIPE_URGENCIES][3] = {
		/* backwards, visits' forwards, new microbatches */
		[PIPE_BACKWARD_FIRST] = {0, 1, 2},
		[PIPE_VISIT_FIRST] = {1, 0, 2},
		[PIPE_FORWARD_FIRST] = {2, 0, 1},
	};
	bool visit = lister->chunks[candidate->chunk].visit;

	switch (candidate->kind) {
	case PAWL_PIPE_FORWARD:
		return ranks[lister->policy->urgency][visit ? 1 : 2];
	case PAWL_PIPE_WEIGHT:
		return 3;
	default:
		return ranks[lister->policy->urgency][0];
	}
}

/* Returns whether a comes before b, of tasks that are both ready. Forwards of late chunks come
 * before those of early ones, since they are nearer to their end; so do backwards of early ones. */
static bool precedes(const struct lister *lister, const struct candidate *a,
	const struct candidate *b)
{
	uint32_t rank_a = rank(lister, a);
	uint32_t rank_b = rank(lister, b);

	if (rank_a != rank_b) {
		return rank_a < rank_b;
	}
	return a->kind == PAWL_PIPE_FORWARD ? a->chunk > b->chunk : a->chunk < b->chunk;
}

/* Returns the one of two stages, or NONE, that can begin first; of equal ones, the lower. */
static uint32_t earlier(const struct lister *lister, uint32_t a, uint32_t b)
{
	if (a == NONE || b == NONE) {
		return a == NONE ? b : a;
	}
	return lister->stages[b].next_s < lister->stages[a].next_s ? b : a;
}

/* Updates the tree after a stage's next_s has changed. A node has the stage below it that can begin
 * first, or NONE. Node 1 is the root; the children of node i are 2 i and 2 i + 1. */
static void set_first(struct lister *lister, uint32_t stage)
{
	uint32_t node = lister->leaves + stage;

	lister->first[node] = isinf(lister->stages[stage].next_s) ? NONE : stage;
	for (node /= 2; node > 0; node /= 2) {
		lister->first[node] =
			earlier(lister, lister->first[2 * node], lister->first[2 * node + 1]);
	}
}

/* Sets when a stage can begin another task, as far as is known. */
static void find_start(struct lister *lister, uint32_t stage)
{
	struct stage_state *state = &lister->stages[stage];
	struct candidate found[3];

	state->next_s = NEVER;
	for (uint32_t c = state->chunk; c != NONE; c = lister->chunks[c].next) {
		uint32_t n = list_candidates(lister, c, found);

		for (uint32_t i = 0; i < n; i++) {
			state->next_s = fmin(state->next_s, fmax(state->free_s, found[i].ready_s));
		}
	}
	set_first(lister, stage);
}

/* Returns the most urgent of the tasks that a stage can begin at next_s, which is not NEVER. */
static struct candidate find_task(const struct lister *lister, const struct stage_state *stage)
{
	struct candidate best = {.chunk = NONE};
	struct candidate found[3];

	for (uint32_t c = stage->chunk; c != NONE; c = lister->chunks[c].next) {
		uint32_t n = list_candidates(lister, c, found);

		for (uint32_t i = 0; i < n; i++) {
			if (found[i].ready_s <= stage->next_s &&
				(best.chunk == NONE || precedes(lister, &found[i], &best))) {
				best = found[i];
			}
		}
	}
	ASSERT(best.chunk != NONE);
	return best;
}

/* ---- carrying it out ---- */

/* Passes a task's result on to the chunk that needs it. */
static void pass_on(struct lister *lister, const struct candidate *task, double end_s)
{
	uint32_t last = lister->plan->chunks_n - 1;
	uint32_t c = task->chunk;
	bool forward = task->kind == PAWL_PIPE_FORWARD;

	if (task->kind == PAWL_PIPE_WEIGHT || (!forward && c == 0)) {
		return;
	}
	if (forward && c == last) {
		lister->backward_s[cell(lister, c, task->microbatch)] = end_s;
		return;
	}
	end_s = pipe_timing_send(&lister->timing, c, forward ? c + 1 : c - 1, end_s);
	c = forward ? c + 1 : c - 1;
	(forward ? lister->forward_s : lister->backward_s)[cell(lister, c, task->microbatch)] =
		end_s;
	find_start(lister, lister->plan->chunks[c].stage);
}

static void place_task(struct lister *lister, uint32_t s, uint32_t at, const struct candidate *task)
{
	struct stage_state *stage = &lister->stages[s];
	struct chunk_state *chunk = &lister->chunks[task->chunk];

	ASSERT(at < lister->order->first[s + 1] && task->microbatch < lister->plan->microbatches);
	lister->order->tasks[at] =
		(struct pawl_pipe_task){task->kind, (uint16_t)task->chunk, task->microbatch};
	stage->free_s = stage->next_s + pipe_timing_took(&lister->timing, task->kind, task->chunk);
	chunk->forward += task->kind == PAWL_PIPE_FORWARD;
	chunk->weight += task->kind == PAWL_PIPE_WEIGHT;
	chunk->backward += task->kind == PAWL_PIPE_BACKWARD || task->kind == PAWL_PIPE_INPUT;
	stage->live += task->kind == PAWL_PIPE_FORWARD;
	stage->live -= pipe_kind_ends(task->kind);
	pass_on(lister, task, stage->free_s);
	find_start(lister, s);
}

static int list_tasks(struct lister *lister, uint32_t tasks_n, uint32_t *placed,
	struct pawl_err *err)
{
	for (uint32_t s = 0; s < lister->plan->stages; s++) {
		find_start(lister, s);
	}
	while (lister->order->n < tasks_n) {
		uint32_t s = lister->first[1];
		struct candidate task;

		if (s == NONE) {
			return pawl_err_set(err, PAWL_EINVAL,
				"list scheduling comes to a standstill with %u microbatches in "
				"flight",
				lister->policy->inflight);
		}
		task = find_task(lister, &lister->stages[s]);
		place_task(lister, s, lister->order->first[s] + placed[s]++, &task);
		lister->order->n++;
	}
	return 0;
}

int pipe_order_list(struct pipe_order *order, const struct pawl_pipe_plan *plan,
	const struct pipe_policy *policy, struct pawl_err *err)
{
	uint64_t tasks_n = (uint64_t)plan->chunks_n * plan->microbatches * (policy->split ? 3 : 2);
	uint32_t placed[PAWL_PIPE_STAGES_MAX] = {0};
	struct lister lister = {.plan = plan, .policy = policy, .order = order};
	int rv = pipe_order_init(order, plan->stages, tasks_n, err);

	ASSERT(policy->inflight > 0 && policy->live > 0);
	if (rv != 0) {
		return rv;
	}
	rv = init(&lister, err);
	rv = rv ? rv : list_tasks(&lister, (uint32_t)tasks_n, placed, err);
	deinit(&lister);
	if (rv != 0) {
		pipe_order_deinit(order);
	}
	return rv;
}
