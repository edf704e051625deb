/* Finish-time fairness: see fair.h. Pure. */
#include "sched/sim/fair.h"

#include "base/assert.h"
#include "base/err.h"

#include <math.h>
#include <stdlib.h>

/* The time that a job of one application and batch takes alone, by replicas. */
struct alone {
	const struct sched_app *app;
	uint32_t batch;   /* batch size; 0: the best one in each epoch */
	uint32_t most;    /* replicas that the job can use */
	double *shortest; /* seconds on up to so many replicas, 1 to most; 0: not computed yet */
};

struct fair {
	const struct sched_workload *workload;
	uint32_t slots;      /* slots of a node */
	uint32_t all;        /* slots of all nodes */
	bool adapts;         /* jobs choose their batches */
	struct alone *memos; /* one for each job at most */
	uint32_t n;          /* number of entries in memos */
};

/* A candidate batch, and the time of its steps. */
struct tried {
	double total; /* batch size, in samples */
	double step_s;
};

/* ---- alone ---- */

static double rate_in(const struct sched_app *app, const struct tried *tried, uint32_t epoch)
{
	struct pawl_noise noise;

	sched_app_noise(app, tried->total, epoch, &noise);
	return pawl_gain(&noise, tried->total / app->bounds.init) / tried->step_s;
}

/* Makes a batch of about total samples. Returns false if there is none on so many replicas. */
static bool try_batch(const struct sched_app *app, const struct sched_app_placement *placement,
	double total, struct tried *tried)
{
	struct pawl_batch batch;
	struct sched_times times;

	sched_app_split(app, placement->place.replicas, total, &batch);
	if (batch.atomic < app->bounds.atomic_min || batch.atomic > app->bounds.atomic_max) {
		return false;
	}
	sched_app_times(app, placement, batch.atomic, &times);
	tried->total = (double)pawl_batch_total(&placement->place, &batch);
	tried->step_s = sched_step_s(&times, batch.accum);
	return true;
}

/* Lists the batches that the job may use. Returns how many. */
static uint32_t list_batches(const struct alone *alone, const struct sched_app_placement *placement,
	struct tried *tried)
{
	const struct sched_app *app = alone->app;
	double ratio =
		pow((double)app->bounds.max / app->bounds.init, 1.0 / (PAWL_BATCH_CANDIDATES - 1));
	double total = app->bounds.init;
	uint32_t n = 0;

	if (alone->batch > 0) {
		return try_batch(app, placement, alone->batch, tried);
	}
	for (int i = 0; i < PAWL_BATCH_CANDIDATES; i++) {
		n += try_batch(app, placement, total, &tried[n]);
		total *= ratio;
	}
	return n;
}

/* Returns the seconds on exactly so many replicas, packed; infinite: there is no batch. */
static double time_on(const struct fair *fair, const struct alone *alone, uint32_t replicas)
{
	const struct sched_app *app = alone->app;
	struct tried tried[PAWL_BATCH_CANDIDATES];
	struct sched_app_placement placement;
	double seconds = 0;
	uint32_t n;

	sched_app_placement_pack(&placement, replicas, fair->slots);
	n = list_batches(alone, &placement, tried);
	for (uint32_t e = 0; e < app->epochs; e++) {
		double best = 0;

		for (uint32_t i = 0; i < n; i++) {
			best = fmax(best, rate_in(app, &tried[i], e));
		}
		seconds += (app->progress[e + 1] - app->progress[e]) / best;
	}
	return n > 0 ? seconds : INFINITY;
}

static struct alone *find_alone(struct fair *fair, const struct sched_submission *job)
{
	uint32_t batch = fair->adapts ? job->app->batch_fixed : job->batch;
	uint32_t most = job->app->replicas_most;
	uint32_t slots_max = job->app->nodes_most * fair->slots;
	struct alone *alone = fair->memos;

	if (!fair->adapts) { /* the user may have asked for more than the job can use */
		most = most > job->replicas ? most : job->replicas;
		most = slots_max > 0 && slots_max < most ? slots_max : most;
	}
	most = most < fair->all ? most : fair->all;
	for (; alone < fair->memos + fair->n; alone++) {
		if (alone->app == job->app && alone->batch == batch && alone->most == most) {
			return alone;
		}
	}
	ASSERT(fair->n < fair->workload->n); /* one for each job at most */
	*alone = (struct alone){job->app, batch, most, calloc(most + 1, sizeof(double))};
	return alone->shortest ? &fair->memos[fair->n++] : NULL;
}

/* Returns the seconds on so many replicas or fewer, over 0. */
static double best_time_up_to(const struct fair *fair, struct alone *alone, uint32_t replicas)
{
	double *shortest = alone->shortest;

	ASSERT(replicas > 0);
	replicas = replicas < alone->most ? replicas : alone->most;
	for (uint32_t k = 1; k <= replicas; k++) {
		if (shortest[k] <= 0) {
			shortest[k] = time_on(fair, alone, k);
			if (k > 1 && shortest[k] > shortest[k - 1]) {
				shortest[k] = shortest[k - 1];
			}
		}
	}
	return shortest[replicas];
}

/* ---- shares ---- */

/* Returns the number of jobs in the cluster, as the average over the time that job j is there: the
 * job itself, and the others while they are there, too. */
static double count_around(const struct fair *fair, const struct sched_job_result *results,
	uint32_t j)
{
	double from = fair->workload->jobs[j].at_s;
	double sum = 0;

	for (uint32_t i = 0;
		i < fair->workload->n && fair->workload->jobs[i].at_s < results[j].end_s; i++) {
		double until = fmin(results[i].end_s, results[j].end_s);

		sum += fmax(until - fmax(fair->workload->jobs[i].at_s, from), 0);
	}
	return sum / results[j].jct_s;
}

/* Returns the seconds alone on a share. If it is not whole, the job has the last slot for a part of
 * the time. */
static double time_on_share(const struct fair *fair, struct alone *alone, double share)
{
	uint32_t whole = (uint32_t)share;
	double part = share - whole;
	double rate = (whole > 0 ? (1 - part) / best_time_up_to(fair, alone, whole) : 0) +
		(part > 0 ? part / best_time_up_to(fair, alone, whole + 1) : 0);

	return 1 / rate;
}

/* Returns the seconds until a job's first step, if there is room: until the next round, and for the
 * start. */
static double wait_start(const struct sched_setting *setting, double at_s)
{
	double round = fmax(ceil(at_s / setting->interval_s), 1);

	return round * setting->interval_s - at_s + setting->restart_s;
}

int sched_fair_fill(struct sched_job_result *results, const struct sched_workload *workload,
	const struct sched_setting *setting, bool adapts, struct pawl_err *err)
{
	struct fair fair = {.workload = workload,
		.slots = setting->slots,
		.all = setting->nodes * setting->slots,
		.adapts = adapts,
		.memos = calloc(workload->n + 1, sizeof(*fair.memos))};
	bool all = fair.memos != NULL;

	for (uint32_t j = 0; j < workload->n && all; j++) {
		struct alone *alone = find_alone(&fair, &workload->jobs[j]);

		all = alone != NULL;
		if (all) {
			double share = fair.all / count_around(&fair, results, j);

			results[j].rho = results[j].jct_s /
				(wait_start(setting, workload->jobs[j].at_s) +
					time_on_share(&fair, alone, share));
		}
	}
	for (uint32_t i = 0; i < fair.n; i++) {
		free(fair.memos[i].shortest);
	}
	free(fair.memos);
	return all ? 0 : pawl_err_set(err, PAWL_ENOMEM, "fairness: out of memory");
}
