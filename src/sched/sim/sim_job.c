/* A job of the simulator: see sim_job.h. Pure. */
#include "sched/sim/sim_job.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sim_job_deinit(struct sim_job *job)
{
	free(job->nodes);
	free(job->measured.profiles);
}

/* ---- hints ---- */

static struct pawl_placement reported_place(const struct sim_job *job,
	const struct sched_policy_entry *policy)
{
	struct pawl_placement place = job->placement.place;

	if (policy->paper_model) {
		place.max_per_node = 1;
	}
	return place;
}

/* Records the times of this placement and batch unless they are known. Returns false if memory is
 * short. */
static bool record_profile(struct sim_measurements *measured, const struct pawl_placement *place,
	uint32_t atomic, const struct sched_times *times)
{
	for (uint32_t p = 0; p < measured->n; p++) {
		if (measured->profiles[p].atomic == atomic &&
			memcmp(&measured->profiles[p].place, place, sizeof(*place)) == 0) {
			return true;
		}
	}
	if (measured->n == SIM_PROFILES_MAX) {
		return true;
	}
	if (measured->n == measured->room) {
		uint32_t room = measured->room > 0 ? 2 * measured->room : 8;
		struct pawl_profile *more = realloc(measured->profiles, room * sizeof(*more));

		if (more == NULL) {
			return false;
		}
		measured->profiles = more;
		measured->room = room;
	}
	ASSERT(measured->n < measured->room && measured->room <= SIM_PROFILES_MAX);
	measured->profiles[measured->n++] =
		(struct pawl_profile){*place, atomic, times->step_s - times->sync_s, times->step_s};
	measured->fresh = true;
	if (place->replicas > measured->hints.replicas_profiled) {
		measured->hints.replicas_profiled = place->replicas;
	}
	return true;
}

/* Draws a factor of a step's time, so that the throughput has an error of at most error, in either
 * direction. */
static double draw_time(struct rng *rng, double error)
{
	return 1 / (1 + error * (2 * rng_unit(rng) - 1));
}

void sim_job_draw_errors(struct sim_job *job, double speed_error, double noise_error, uint64_t seed)
{
	struct rng rng = {seed};

	job->error_factors = (struct sim_error_factors){.alpha_c = draw_time(&rng, speed_error),
		.beta_c = draw_time(&rng, speed_error),
		.alpha_r = draw_time(&rng, speed_error),
		.beta_r = draw_time(&rng, speed_error),
		.alpha_n = draw_time(&rng, speed_error),
		.beta_n = draw_time(&rng, speed_error),
		.delta_n = draw_time(&rng, speed_error),
		.var = noise_error > 1 ? pow(noise_error, 2 * rng_unit(&rng) - 1) : 1};
}

static void apply_errors(struct sched_hints *hints, const struct sim_error_factors *factors)
{
	hints->perf.alpha_c *= factors->alpha_c;
	hints->perf.beta_c *= factors->beta_c;
	hints->perf.alpha_r *= factors->alpha_r;
	hints->perf.beta_r *= factors->beta_r;
	hints->perf.alpha_n *= factors->alpha_n;
	hints->perf.beta_n *= factors->beta_n;
	hints->perf.delta_n *= factors->delta_n;
	hints->noise.var *= factors->var;
}

int sim_job_update_hints(struct sim_job *job, struct pawl_err *err)
{
	struct sim_measurements *measured = &job->measured;
	const struct sched_app *app = job->submission->app;
	int rv = 0;

	if (measured->fresh) {
		rv = pawl_perf_fit(&measured->hints.perf, measured->profiles, measured->n, err);
		measured->hints.fitted = rv == 0;
		measured->fresh = false;
	}
	measured->hints.bounds = app->bounds;
	measured->hints.progress = job->progress;
	measured->hints.progress_end = app->progress[app->epochs];
	job->reported = measured->hints;
	apply_errors(&job->reported, &job->error_factors);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "job %s", job->submission->name);
}

/* ---- batch ---- */

static int choose_batch(struct sim_job *job, const struct sched_policy_entry *policy,
	struct pawl_err *err)
{
	const struct sched_app *app = job->submission->app;
	const struct pawl_placement place = reported_place(job, policy);
	const struct sched_hints *hints = &job->reported;
	double least = (double)app->bounds.atomic_min * place.replicas;
	double total = least > app->bounds.init ? least : app->bounds.init;
	double goodput;
	int rv;

	if (!policy->adapts || app->batch_fixed > 0) {
		total = policy->adapts ? app->batch_fixed : job->submission->batch;
		sched_app_split(app, place.replicas, total, &job->batch);
		return 0;
	}
	rv = sim_job_update_hints(job, err);
	if (rv != 0) {
		return rv;
	}
	if (!hints->fitted ||
		!pawl_batch_choose(&hints->perf, &hints->noise, &app->bounds, &place, &job->batch,
			&goodput)) {
		sched_app_split(app, place.replicas, total, &job->batch);
	}
	return 0;
}

int sim_job_move(struct sim_job *job, const struct sched_policy_entry *policy,
	const struct sched_grant *grant, double restart_s, struct pawl_err *err)
{
	uint32_t nodes_most = job->submission->app->nodes_most;

	if (grant->replicas > 0) {
		size_t len_bytes = grant->replicas * sizeof(*grant->nodes);
		uint32_t *nodes = realloc(job->nodes, len_bytes);

		if (nodes == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
		}
		memcpy(nodes, grant->nodes, len_bytes);
		job->nodes = nodes;
		sched_app_placement_fill(&job->placement, nodes, grant->replicas);
		if (nodes_most > 0 && job->placement.place.nodes > nodes_most) {
			return pawl_err_set(err, PAWL_ENOTSUP,
				"job %s is on %u nodes: %s was measured on at most %u",
				job->submission->name, job->placement.place.nodes,
				job->submission->app->name, nodes_most);
		}
		job->countdown_s = restart_s;
	}
	job->restarts += job->started && grant->replicas > 0;
	job->started |= grant->replicas > 0;
	job->replicas = grant->replicas;
	return grant->replicas > 0 ? choose_batch(job, policy, err) : 0;
}

/* ---- steps ---- */

/* Returns the rate in steps of an initial batch per second, and records the times used. Returns 0
 * if memory is short. */
static double find_rate(struct sim_job *job, const struct sched_policy_entry *policy)
{
	const struct sched_app *app = job->submission->app;
	const struct pawl_placement place = reported_place(job, policy);
	double total = (double)pawl_batch_total(&place, &job->batch);
	struct sched_times times;
	struct pawl_noise noise;

	job->outside += !sched_app_times(app, &job->placement, job->batch.atomic, &times);
	sched_app_noise(app, total, job->oracle.epoch, &noise);
	if (policy->adapts) {
		job->measured.hints.noise = noise;
		if (!record_profile(&job->measured, &place, job->batch.atomic, &times)) {
			return 0;
		}
	}
	return pawl_gain(&noise, total / app->bounds.init) / sched_step_s(&times, job->batch.accum);
}

/* Advances to the end of the epoch, or by seconds if that comes first. Returns the seconds used. */
static double advance(struct sim_job *job, double rate, double now_s, double seconds)
{
	const struct sched_app *app = job->submission->app;
	double next;
	double took;

	ASSERT(job->oracle.epoch < app->epochs && job->end_s < 0);
	next = app->progress[job->oracle.epoch + 1];
	if (job->progress + rate * seconds < next) {
		job->progress += rate * seconds;
		return seconds;
	}
	took = rint((next - job->progress) / rate);
	took = took < seconds ? took : seconds;
	job->progress = next;
	job->oracle.epoch++;
	if (job->oracle.epoch == app->epochs) {
		job->end_s = now_s + took;
	}
	return took;
}

int sim_job_step(struct sim_job *job, const struct sched_policy_entry *policy, double now_s,
	double seconds, double speed, struct pawl_err *err)
{
	double pause_s = job->countdown_s < seconds ? job->countdown_s : seconds;
	int rv = 0;

	if (job->replicas == 0) {
		return 0;
	}
	job->countdown_s -= pause_s;
	job->lost += pause_s * job->replicas;
	job->attained += pause_s * job->replicas;
	now_s += pause_s;
	seconds -= pause_s;
	while (seconds > 0 && job->end_s < 0 && rv == 0) {
		double rate = find_rate(job, policy) * speed;
		double took;

		if (rate <= 0) {
			return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
		}
		took = advance(job, rate, now_s, seconds);
		job->attained += took * job->replicas;
		now_s += took;
		seconds -= took;
		if (job->end_s < 0) {
			rv = choose_batch(job, policy, err);
		}
	}
	return rv;
}
