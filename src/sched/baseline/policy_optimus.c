/*
 * Optimus (Peng and others, EuroSys 2018) with an oracle, as in Pollux's simulator. Each job has
 * one replica. The others go one by one to the job whose end one more replica brings forward most.
 * The simulator provides the time of steps and how many are left. Pure.
 */
#include "base/assert.h"
#include "base/err.h"
#include "sched/baseline/fill.h"
#include "sched/baseline/oracle.h"
#include "sched/baseline/policies.h"

#include <math.h>
#include <stdlib.h>

/* Times of a job's steps by replicas, on as few nodes as hold them: for one pair of application and
 * batch. */
struct steps {
	const struct sched_app *app;
	uint32_t batch;
	uint32_t most;   /* replicas that the job can use */
	double *seconds; /* seconds of a step by replicas, 1 to most; 0: not computed yet */
};

/* Memory from round to round. */
struct optimus {
	struct steps *steps;
	uint32_t n; /* number of entries in steps */
};

/* A job in a round. */
struct share {
	struct steps *steps;
	double remaining; /* steps */
	double gain;      /* seconds that one more replica saves */
	uint32_t replicas;
	uint32_t job; /* index in the view */
};

static void *open_memory(uint64_t seed)
{
	return calloc(1, sizeof(struct optimus));
}

static void close_memory(void *self)
{
	struct optimus *memory = self;

	for (uint32_t i = 0; i < memory->n; i++) {
		free(memory->steps[i].seconds);
	}
	free(memory->steps);
	free(memory);
}

/* ---- times of steps ---- */

/* Returns the index of the job's steps in memory; -1: out of memory. */
static int find_step_times(struct optimus *memory, const struct sched_oracle *of)
{
	struct steps *more;
	uint32_t most = of->batch / of->app->bounds.atomic_min;

	for (uint32_t i = 0; i < memory->n; i++) {
		if (memory->steps[i].app == of->app && memory->steps[i].batch == of->batch) {
			return (int)i;
		}
	}
	more = realloc(memory->steps, (memory->n + 1) * sizeof(*more));
	if (more == NULL) {
		return -1;
	}
	memory->steps = more;
	most = most < of->app->replicas_most ? most : of->app->replicas_most;
	most = most > 1 ? most : 1;
	more[memory->n] =
		(struct steps){of->app, of->batch, most, calloc(most + 1, sizeof(double))};
	return more[memory->n].seconds ? (int)memory->n++ : -1;
}

static double step_s(struct steps *steps, uint32_t replicas, uint32_t slots)
{
	struct sched_app_placement placement;
	struct sched_times times;
	struct pawl_batch batch;

	ASSERT(replicas > 0 && replicas <= steps->most);
	if (steps->seconds[replicas] <= 0) {
		sched_app_split(steps->app, replicas, steps->batch, &batch);
		if (replicas == 1 && batch.accum == 0) {
			/* The noise is measured from at least two gradients. */
			batch = (struct pawl_batch){(batch.atomic + 1) / 2, 1};
		}
		sched_app_placement_pack(&placement, replicas, slots);
		sched_app_times(steps->app, &placement, batch.atomic, &times);
		steps->seconds[replicas] = sched_step_s(&times, batch.accum);
	}
	return steps->seconds[replicas];
}

static double remaining_steps(const struct sched_oracle *of)
{
	uint32_t last = of->app->epochs - 1;

	return of->epoch >= last ? 1
				 : sched_app_iterations(of->app, of->batch, last) -
			sched_app_iterations(of->app, of->batch, of->epoch);
}

/* ---- a round ---- */

static void find_gain(struct share *share, uint32_t slots)
{
	share->gain = 0;
	if (share->replicas < share->steps->most) {
		share->gain = (step_s(share->steps, share->replicas, slots) -
				      step_s(share->steps, share->replicas + 1, slots)) *
			share->remaining;
	}
}

static int begin_shares(struct optimus *memory, const struct sched_view *view, struct share *shares,
	struct pawl_err *err)
{
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		if (find_step_times(memory, view->jobs[j].oracle) < 0) {
			return pawl_err_set(err, PAWL_ENOMEM, "no memory for policy optimus");
		}
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) { /* memory->steps no longer moves */
		const struct sched_oracle *of = view->jobs[j].oracle;

		shares[j].steps = &memory->steps[find_step_times(memory, of)];
		shares[j].remaining = remaining_steps(of);
		shares[j].job = j;
	}
	return 0;
}

/* Shares the slots out, one replica to each job first. left: slots of all nodes; slots: those of
 * the largest node. */
static void share_out(struct share *shares, uint32_t n, uint32_t left, uint32_t slots)
{
	for (uint32_t j = 0; j < n && left > 0; j++) {
		shares[j].replicas = 1;
		left--;
		find_gain(&shares[j], slots);
	}
	while (left > 0) {
		struct share *best = shares;

		for (uint32_t j = 1; j < n; j++) {
			best = shares[j].gain > best->gain ? &shares[j] : best;
		}
		if (n == 0 || best->gain <= 0) {
			break;
		}
		best->replicas++;
		left--;
		find_gain(best, slots);
	}
}

static int by_replicas(const void *a, const void *b)
{
	const struct share *x = a;
	const struct share *y = b;

	if (x->replicas != y->replicas) {
		return x->replicas < y->replicas ? -1 : 1;
	}
	return (x->job > y->job) - (x->job < y->job);
}

static void place(const struct sched_view *view, struct share *shares, struct sched_fill *fill,
	struct sched_grant *grants)
{
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		if (shares[j].replicas == view->jobs[j].replicas) {
			sched_fill_keep(fill, &view->jobs[j], &grants[j]);
		}
	}
	qsort(shares, view->jobs_n, sizeof(*shares), by_replicas);
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		sched_fill_put(fill, SCHED_FILL_ANY, shares[j].replicas, &grants[shares[j].job]);
	}
}

static int decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	struct share *shares = calloc(view->jobs_n + 1, sizeof(*shares));
	struct sched_fill fill = {0};
	uint32_t slots = 0;
	int rv = shares ? begin_shares(self, view, shares, err)
			: pawl_err_set(err, PAWL_ENOMEM, "no memory for policy optimus");

	*verdict = (struct sched_verdict){NAN, NAN};
	for (uint32_t i = 0; i < view->nodes_n; i++) {
		slots = view->nodes[i].slots > slots ? view->nodes[i].slots : slots;
	}
	if (rv == 0) {
		rv = sched_fill_init(&fill, view, err);
	}
	if (rv == 0) {
		share_out(shares, view->jobs_n, fill.unclaimed, slots);
		place(view, shares, &fill, grants);
	}
	sched_fill_deinit(&fill);
	free(shares);
	return rv;
}

const struct sched_policy sched_optimus = {.name = "optimus",
	.open = open_memory,
	.close = close_memory,
	.decide = decide};
