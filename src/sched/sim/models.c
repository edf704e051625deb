/* The applications of Pollux's evaluation: see models.h. Pure. */
#include "sched/sim/models.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define HOURS 8u

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* tools/sim_models.py makes the values of perf, epoch_steps, noise and asked. */
const struct sched_model sched_models[MODELS_N] = {
	{.name = "bert",
		.epochs = 2,
		.bounds = {12, 384, 4, 12, true},
		.replicas_most = 64,
		.percent = 10,
		.perf = {0.172, 0.0586, 0.285, 0.00918, 1.3, 0.00896, 0.0433, 1.9},
		.epoch_steps = 7387,
		.noise = {152, 152, 152, 152, 152, 152, 598, 598, 598, 598, 598, 598},
		.asked = {{6, 384, 32}, {16, 384, 27}, {12, 384, 21}, {8, 384, 20}}},
	{.name = "cifar10",
		.epochs = 100,
		.bounds = {128, 4096, 32, 1024, true},
		.replicas_most = 64,
		.percent = 36,
		.perf = {0.0174, 0.000701, 0.0328, 0.000889, 0.12, 0.00263, 0.001, 2.07},
		.epoch_steps = 390.6,
		.noise = {7.45, 18.3, 32.3, 46.3, 59.8, 87, 136, 194, 274, 417, 550, 455},
		.asked = {{6, 2048, 28}, {12, 4096, 27}, {8, 2048, 23}, {16, 4096, 22}}},
	{.name = "ncf",
		.epochs = 10,
		.bounds = {256, 32768, 32, 32768, true},
		.replicas_most = 1,
		.batch_fixed = 32768,
		.percent = 36,
		.perf = {0.00696, 6.35e-07, 0.00388, 0.000426, 0.014, 0.000533, 0.000296, 1},
		.epoch_steps = 19417.4,
		.noise = {548, 4870, 3550, 3550, 6140, 1e4, 1e4, 1e4, 1e4, 1e4, 1e4, 1e4},
		.asked = {{1, 32768, 100}}},
	{.name = "imagenet",
		.epochs = 90,
		.bounds = {200, 12800, 20, 200, true},
		.replicas_most = 64,
		.percent = 2,
		.perf = {0.0641, 0.00448, 0.0769, 0.000526, 0.3, 0.00664, 1e-08, 2.47},
		.epoch_steps = 6405.8,
		.noise = {25.6, 39.5, 43.9, 46.2, 212, 164, 155, 153, 476, 458, 448, 426},
		.asked = {{32, 6400, 39}, {24, 3200, 33}, {48, 6400, 28}}},
	{.name = "deepspeech2",
		.epochs = 80,
		.bounds = {20, 640, 10, 80, true},
		.replicas_most = 64,
		.percent = 10,
		.perf = {0.31, 0.0239, 0.101, 0.0053, 0.351, 0.00906, 0.0706, 1.44},
		.epoch_steps = 356.7,
		.noise = {7.53, 48.9, 128, 272, 1060, 1270, 5010, 3560, 1e4, 2810, 3550, 4860},
		.asked = {{12, 640, 36}, {8, 320, 34}, {6, 320, 30}}},
	{.name = "yolov3",
		.epochs = 50,
		.bounds = {8, 512, 4, 8, true},
		.replicas_most = 64,
		.percent = 6,
		.perf = {0.187, 0.0254, 0.147, 0.022, 0.645, 0.0094, 0.073, 1.2},
		.epoch_steps = 2068.9,
		.noise = {23, 41.4, 42.9, 47.9, 61.7, 64.5, 71.4, 81.3, 110, 170, 256, 521},
		.asked = {{4, 64, 100}}},
};

static const uint32_t hour_percent[HOURS] = {11, 11, 6, 12, 15, 22, 12, 11};

/* ---- applications ---- */

void sched_model_begin(struct sched_app *app, const struct sched_model *model)
{
	uint32_t most = model->bounds.max / model->bounds.atomic_min;

	*app = (struct sched_app){.epochs = model->epochs,
		.bounds = model->bounds,
		.replicas_most = most < model->replicas_most ? most : model->replicas_most,
		.batch_fixed = model->batch_fixed};
	snprintf(app->name, sizeof(app->name), "%s", model->name);
	for (uint32_t total = app->bounds.init; total <= app->bounds.max; total *= 2) {
		ASSERT(app->sizes_n < APP_SIZES_MAX);
		app->sizes[app->sizes_n++].total = total;
	}
}

/* Finds the noise in an epoch. Between two points its logarithm is linear. */
static double find_noise(const struct sched_model *model, uint32_t epoch)
{
	double at = (epoch + 0.5) / model->epochs * MODEL_POINTS - 0.5;
	uint32_t low = at > 0 ? (uint32_t)at : 0;
	uint32_t high = low + 1 < MODEL_POINTS ? low + 1 : low;
	double share = fmin(fmax(at - low, 0), 1);

	ASSERT(epoch < model->epochs && low < MODEL_POINTS && high < MODEL_POINTS);
	return model->noise[low] * pow(model->noise[high] / model->noise[low], share);
}

static void fill_app(struct sched_app *app, const struct sched_model *model)
{
	app->perf = model->perf;
	for (uint32_t e = 0; e < app->epochs; e++) {
		const struct pawl_noise noise = {.sqr = 1, .var = find_noise(model, e)};

		app->progress[e + 1] = app->progress[e] + model->epoch_steps;
		for (uint32_t s = 0; s < app->sizes_n; s++) {
			struct app_size *size = &app->sizes[s];
			double gain = pawl_gain(&noise, (double)size->total / app->bounds.init);

			size->noise[e] = noise;
			size->iterations[e] =
				(e > 0 ? size->iterations[e - 1] : 0) + model->epoch_steps / gain;
		}
	}
}

int sched_models_load(struct sched_apps *apps, struct pawl_err *err)
{
	apps->apps = calloc(MODELS_N, sizeof(*apps->apps));
	for (uint32_t a = 0; apps->apps && a < MODELS_N; a++) {
		sched_model_begin(&apps->apps[a], &sched_models[a]);
		apps->n++;
		if (!sched_app_reserve(&apps->apps[a])) {
			return pawl_err_set(err, PAWL_ENOMEM, "models: out of memory");
		}
		fill_app(&apps->apps[a], &sched_models[a]);
	}
	return apps->apps ? 0 : pawl_err_set(err, PAWL_ENOMEM, "models: out of memory");
}

/* ---- a trace ---- */

static void draw_job(struct rng *rng, const struct sched_apps *apps, struct sched_submission *job)
{
	uint32_t which = (uint32_t)rng_below(rng, 100);
	uint32_t asked = (uint32_t)rng_below(rng, 100);
	const struct sched_model *model = sched_models;
	const struct model_asked *pair;

	while (which >= model->percent) {
		which -= model->percent;
		model++;
		ASSERT(model < sched_models + MODELS_N); /* the shares add up to 100 */
	}
	pair = model->asked;
	while (asked >= pair->percent) {
		asked -= pair->percent;
		pair++;
		ASSERT(pair < model->asked + COUNT(model->asked));
	}
	job->app = sched_apps_find(apps, model->name);
	job->replicas = pair->replicas;
	job->batch = pair->batch;
}

static double draw_time(struct rng *rng)
{
	uint32_t which = (uint32_t)rng_below(rng, 100);
	uint32_t hour = 0;

	while (which >= hour_percent[hour]) {
		which -= hour_percent[hour++];
		ASSERT(hour < HOURS);
	}
	return hour * 3600.0 + (double)rng_below(rng, 3600);
}

static int by_time(const void *a, const void *b)
{
	double x = ((const struct sched_submission *)a)->at_s;
	double y = ((const struct sched_submission *)b)->at_s;

	return (x > y) - (x < y);
}

int sched_models_trace(struct sched_workload *workload, const struct sched_apps *apps,
	uint32_t jobs_n, uint64_t seed, struct pawl_err *err)
{
	struct rng rng = {seed};

	snprintf(workload->name, sizeof(workload->name), "built-in");
	workload->jobs = calloc(jobs_n, sizeof(*workload->jobs));
	if (workload->jobs == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "models: out of memory");
	}
	for (uint32_t j = 0; j < jobs_n; j++) {
		workload->jobs[j].at_s = draw_time(&rng);
	}
	qsort(workload->jobs, jobs_n, sizeof(*workload->jobs), by_time);
	for (uint32_t j = 0; j < jobs_n; j++) {
		struct sched_submission *job = &workload->jobs[j];

		draw_job(&rng, apps, job);
		snprintf(job->name, sizeof(job->name), "%s-%u", job->app->name, j);
	}
	workload->n = jobs_n;
	return 0;
}
