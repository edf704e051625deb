/*
 * Least attained service in two queues, as Tiresias (Gu and others, NSDI 2019) in Pollux's
 * simulator. A job begins in the first queue. When it has had 16 hours of a slot, it goes to the
 * end of the second one, for good. Each round goes through the queues in order. A job runs with the
 * replicas that its user asked for if so many are left, even if an earlier job did not fit. Pure.
 */
#include "base/assert.h"
#include "base/err.h"
#include "sched/baseline/fill.h"
#include "sched/baseline/policies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_0_S 57600.0 /* slots times seconds after which a job leaves the first queue */

/* Memory from round to round. */
struct tiresias {
	uint64_t *second; /* ids of the second queue, its head first */
	uint32_t n;       /* number of ids in second */
	uint32_t room;    /* ids that second has room for */
};

/* A pass through the queues, in one round. */
struct walk {
	uint32_t *order; /* indices of the view's jobs, in the order of the queues */
	bool *second;    /* by job of the view: it is in the second queue */
	bool *runs;      /* by job of the view: it is to run */
};

static void *open_memory(uint64_t seed)
{
	return calloc(1, sizeof(struct tiresias));
}

static void close_memory(void *self)
{
	struct tiresias *memory = self;

	free(memory->second);
	free(memory);
}

static int by_id(const void *a, const void *b)
{
	uint64_t id = *(const uint64_t *)a;
	uint64_t other = ((const struct sched_job *)b)->id;

	return (id > other) - (id < other);
}

/* Forgets jobs that are gone, and marks in second the others that are in the second queue. */
static void keep_second(struct tiresias *memory, const struct sched_view *view, bool *second)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < memory->n; i++) {
		const struct sched_job *job =
			bsearch(&memory->second[i], view->jobs, view->jobs_n, sizeof(*job), by_id);

		if (job != NULL) {
			second[job - view->jobs] = true;
			memory->second[kept++] = job->id;
		}
	}
	memory->n = kept;
}

/* Moves jobs that have had QUEUE_0_S to the second queue. */
static int move_down(struct tiresias *memory, const struct sched_view *view, bool *second,
	struct pawl_err *err)
{
	if (memory->room < view->jobs_n) {
		uint64_t *more = realloc(memory->second, 2 * view->jobs_n * sizeof(*more));

		if (more == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "no memory for policy tiresias");
		}
		memory->second = more;
		memory->room = 2 * view->jobs_n;
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		if (!second[j] && view->jobs[j].attained >= QUEUE_0_S) {
			second[j] = true;
			ASSERT(memory->n < memory->room); /* each job is there once */
			memory->second[memory->n++] = view->jobs[j].id;
		}
	}
	return 0;
}

static void put_in_order(const struct tiresias *memory, const struct sched_view *view,
	struct walk *walk)
{
	uint32_t n = 0;

	for (uint32_t j = 0; j < view->jobs_n; j++) {
		if (!walk->second[j]) {
			walk->order[n++] = j;
		}
	}
	for (uint32_t i = 0; i < memory->n; i++) {
		const struct sched_job *job =
			bsearch(&memory->second[i], view->jobs, view->jobs_n, sizeof(*job), by_id);

		ASSERT(job != NULL); /* keep_second has forgotten those that are gone */
		walk->order[n++] = (uint32_t)(job - view->jobs);
	}
	ASSERT(n == view->jobs_n); /* each job is in one of the queues */
}

/* Takes so many of the free slots of these types, from the type with most of them first. Returns
 * false if there are fewer. */
static bool take(uint32_t left[SCHED_TYPES_MAX], uint32_t types, uint32_t needs)
{
	uint32_t all = 0;

	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		all += (types >> t & 1) != 0 ? left[t] : 0;
	}
	if (all < needs) {
		return false;
	}
	while (needs > 0) {
		uint32_t best = SCHED_TYPES_MAX;
		uint32_t taken;

		for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
			if ((types >> t & 1) != 0 &&
				(best == SCHED_TYPES_MAX || left[t] > left[best])) {
				best = t;
			}
		}
		ASSERT(best < SCHED_TYPES_MAX && left[best] > 0);
		taken = left[best] < needs ? left[best] : needs;
		left[best] -= taken;
		needs -= taken;
	}
	return true;
}

/* Places the jobs that are to run. Since some jobs stay, others may find no room on their types and
 * wait. */
static void place(const struct sched_view *view, const struct walk *walk, struct sched_fill *fill,
	struct sched_grant *grants)
{
	uint32_t left[SCHED_TYPES_MAX] = {0};

	for (uint32_t i = 0; i < view->nodes_n; i++) {
		left[view->nodes[i].type] += view->nodes[i].slots;
	}
	for (uint32_t i = 0; i < view->jobs_n; i++) {
		const struct sched_job *job = &view->jobs[walk->order[i]];

		walk->runs[walk->order[i]] = take(left, sched_fill_types(job), job->wanted);
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		if (walk->runs[j] && view->jobs[j].replicas == view->jobs[j].wanted) {
			sched_fill_keep(fill, &view->jobs[j], &grants[j]);
		}
	}
	for (uint32_t i = 0; i < view->jobs_n; i++) {
		uint32_t j = walk->order[i];
		uint32_t types = sched_fill_types(&view->jobs[j]);
		uint32_t wanted = view->jobs[j].wanted;

		if (walk->runs[j] && grants[j].replicas == 0 &&
			sched_fill_room(fill, types) >= wanted) {
			sched_fill_put(fill, types, wanted, &grants[j]);
		}
	}
}

static int decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	struct tiresias *memory = self;
	struct walk walk = {.order = calloc(view->jobs_n + 1, sizeof(*walk.order)),
		.second = calloc(view->jobs_n + 1, sizeof(bool)),
		.runs = calloc(view->jobs_n + 1, sizeof(bool))};
	struct sched_fill fill = {0};
	int rv = walk.order && walk.second && walk.runs
		? sched_fill_init(&fill, view, err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for policy tiresias");

	*verdict = (struct sched_verdict){NAN, NAN};
	if (rv == 0) {
		keep_second(memory, view, walk.second);
		rv = move_down(memory, view, walk.second, err);
	}
	if (rv == 0) {
		put_in_order(memory, view, &walk);
		place(view, &walk, &fill, grants);
	}
	sched_fill_deinit(&fill);
	free(walk.order);
	free(walk.second);
	free(walk.runs);
	return rv;
}

const struct sched_policy sched_tiresias = {.name = "tiresias",
	.open = open_memory,
	.close = close_memory,
	.decide = decide};
