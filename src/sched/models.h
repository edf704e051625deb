/*
 * The applications of Pollux's evaluation: what a job of each is, and, where no profiles are given,
 * a model of each and a trace of jobs. Numbers are made by tools/sim_models.py; see docs/sim.md.
 */
#ifndef SCHED_MODELS_H
#define SCHED_MODELS_H

#include "sched/app.h"
#include "sched/workload.h"

#include <stdint.h>

#define MODELS_N      6u
#define MODEL_POINTS  12u     /* of a life, at which noise is known */
#define MODEL_ASKED   4u      /* pairs that users ask for, of an application */
#define MODEL_JOBS    160u    /* of a trace, as published ones have it */
#define MODEL_TRACE_S 28800.0 /* in which they are submitted */

/* What users ask for. */
struct model_asked {
	uint32_t replicas, batch;
	uint32_t percent; /* of the application's jobs */
};

struct sched_model {
	/* what is the same for measured ones (Pollux, table 1, and its simulator) */
	const char *name;
	uint32_t epochs;                 /* after which a job is complete */
	struct pawl_batch_bounds bounds; /* samples */
	uint32_t replicas_most;          /* that were measured together, or that its user allows */
	uint32_t batch_fixed;            /* see struct sched_app */
	/* and what stands for the rest of it */
	uint32_t percent;           /* of a trace's jobs */
	struct pawl_perf perf;      /* of its steps */
	double epoch_steps;         /* of an initial batch, in an epoch */
	double noise[MODEL_POINTS]; /* var / sqr, in the middle of equal parts of its life */
	struct model_asked asked[MODEL_ASKED];
};

extern const struct sched_model sched_models[MODELS_N];

/* The application without what is measured: sizes_n sizes, each twice the one before. */
void sched_model_begin(struct sched_app *app, const struct sched_model *model);
/* All applications as modelled. apps: zeroed; the caller's to deinit in any case. PAWL_ENOMEM. */
int sched_models_load(struct sched_apps *apps, struct pawl_err *err);
/*
 * A trace of jobs_n jobs (over 0) in 8 hours, as seed has them: as many of each application and in
 * each hour as in the published ones, on average. workload: zeroed; the caller's to deinit in any
 * case. PAWL_ENOMEM.
 */
int sched_models_trace(struct sched_workload *workload, const struct sched_apps *apps,
	uint32_t jobs_n, uint64_t seed, struct pawl_err *err);

#endif
