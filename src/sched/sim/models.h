/*
 * The applications of Pollux's evaluation: the parameters of their jobs. For runs without profiles,
 * also a model of each and a trace of jobs. tools/sim_models.py makes the numbers; see docs/sim.md.
 */
#ifndef SCHED_SIM_MODELS_H
#define SCHED_SIM_MODELS_H

#include "sched/baseline/app.h"
#include "sched/sim/workload.h"

#include <stdint.h>

#define MODELS_N      6u
#define MODEL_POINTS  12u     /* points in a job's life at which noise is known */
#define MODEL_ASKED   4u      /* pairs of replicas and batch that users ask for, by application */
#define MODEL_JOBS    160u    /* jobs in a trace, as in published ones */
#define MODEL_TRACE_S 28800.0 /* seconds in which a trace's jobs are submitted */

/* A size that users ask for. */
struct model_asked {
	uint32_t replicas, batch;
	uint32_t percent; /* percentage of the application's jobs */
};

struct sched_model {
	/* Common to modelled and measured applications (Pollux, table 1, and its simulator). */
	const char *name;
	uint32_t epochs;                 /* epochs after which a job is complete */
	struct pawl_batch_bounds bounds; /* samples */
	uint32_t replicas_most; /* replicas that were measured together, or that the user allows */
	uint32_t batch_fixed;   /* see struct sched_app */
	/* The model, in place of measurements. */
	uint32_t percent;           /* percentage of a trace's jobs */
	struct pawl_perf perf;      /* times of a job's steps */
	double epoch_steps;         /* steps of an initial batch in an epoch */
	double noise[MODEL_POINTS]; /* var / sqr, in the middle of equal parts of a job's life */
	struct model_asked asked[MODEL_ASKED];
};

extern const struct sched_model sched_models[MODELS_N];

/* Initializes the application, except for measurements: sizes_n sizes, each twice the one
 * before. */
void sched_model_begin(struct sched_app *app, const struct sched_model *model);
/* Loads all applications as modelled. apps: zeroed; the caller's to deinit in any case.
 * PAWL_ENOMEM. */
int sched_models_load(struct sched_apps *apps, struct pawl_err *err);
/*
 * Makes a trace of jobs_n jobs (over 0) in 8 hours, drawn from seed. On average, each application
 * and each hour has as many as in the published ones. workload: zeroed; the caller's to deinit
 * in any case. PAWL_ENOMEM.
 */
int sched_models_trace(struct sched_workload *workload, const struct sched_apps *apps,
	uint32_t jobs_n, uint64_t seed, struct pawl_err *err);

#endif
