/* A job of the simulator: see sim_job.h. Pure. */
#include "sched/sim/sim_job.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sim_job_deinit(struct sim_job *job)
{
	free(job->nodes);
	free(job->seen.profiles);
}

/* ---- hints ---- */

static struct pawl_place told_place(const struct sim_job *job, const struct sched_named *policy)
{
	struct pawl_place place = job->spot.place;

	if (policy->by_paper) {
		place.most = 1;
	}
	return place;
}

/* Records the times of this place and batch unless they are known. Returns false if out of
 * memory. */
static bool see(struct sim_seen *seen, const struct pawl_place *place, uint32_t atomic,
	const struct sched_times *times)
{
	for (uint32_t p = 0; p < seen->n; p++) {
		if (seen->profiles[p].atomic == atomic &&
			memcmp(&seen->profiles[p].place, place, sizeof(*place)) == 0) {
			return true;
		}
	}
	if (seen->n == SIM_PROFILES_MAX) {
		return true;
	}
	if (seen->n == seen->room) {
		uint32_t room = seen->room > 0 ? 2 * seen->room : 8;
		struct pawl_profile *more = realloc(seen->profiles, room * sizeof(*more));

		if (more == NULL) {
			return false;
		}
		seen->profiles = more;
		seen->room = room;
	}
	seen->profiles[seen->n++] =
		(struct pawl_profile){*place, atomic, times->step_s - times->sync_s, times->step_s};
	seen->fresh = true;
	if (place->replicas > seen->hints.replicas_profiled) {
		seen->hints.replicas_profiled = place->replicas;
	}
	return true;
}

/* Draws a factor of a step's time, such that the throughput is wrong by at most error, in either
 * direction. */
static double draw_time(struct rng *rng, double error)
{
	return 1 / (1 + error * (2 * rng_part(rng) - 1));
}

void sim_job_err(struct sim_job *job, double speed_error, double noise_error, uint64_t seed)
{
	struct rng rng = {seed};

	job->wrong = (struct sim_wrong){.alpha_c = draw_time(&rng, speed_error),
		.beta_c = draw_time(&rng, speed_error),
		.alpha_r = draw_time(&rng, speed_error),
		.beta_r = draw_time(&rng, speed_error),
		.alpha_n = draw_time(&rng, speed_error),
		.beta_n = draw_time(&rng, speed_error),
		.delta_n = draw_time(&rng, speed_error),
		.var = noise_error > 1 ? pow(noise_error, 2 * rng_part(&rng) - 1) : 1};
}

static void be_wrong(struct sched_hints *told, const struct sim_wrong *wrong)
{
	told->perf.alpha_c *= wrong->alpha_c;
	told->perf.beta_c *= wrong->beta_c;
	told->perf.alpha_r *= wrong->alpha_r;
	told->perf.beta_r *= wrong->beta_r;
	told->perf.alpha_n *= wrong->alpha_n;
	told->perf.beta_n *= wrong->beta_n;
	told->perf.delta_n *= wrong->delta_n;
	told->noise.var *= wrong->var;
}

int sim_job_tell(struct sim_job *job, struct pawl_err *err)
{
	struct sim_seen *seen = &job->seen;
	const struct sched_app *app = job->of->app;
	int rv = 0;

	if (seen->fresh) {
		rv = pawl_perf_fit(&seen->hints.perf, seen->profiles, seen->n, err);
		seen->hints.fitted = rv == 0;
		seen->fresh = false;
	}
	seen->hints.bounds = app->bounds;
	seen->hints.progress = job->progress;
	seen->hints.progress_end = app->progress[app->epochs];
	job->told = seen->hints;
	be_wrong(&job->told, &job->wrong);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "job %s", job->of->name);
}

/* ---- batch ---- */

static int choose_batch(struct sim_job *job, const struct sched_named *policy, struct pawl_err *err)
{
	const struct sched_app *app = job->of->app;
	const struct pawl_place place = told_place(job, policy);
	const struct sched_hints *hints = &job->told;
	double least = (double)app->bounds.least * place.replicas;
	double total = least > app->bounds.init ? least : app->bounds.init;
	double goodput;
	int rv;

	if (!policy->adapts || app->batch_fixed > 0) {
		total = policy->adapts ? app->batch_fixed : job->of->batch;
		sched_app_split(app, place.replicas, total, &job->batch);
		return 0;
	}
	rv = sim_job_tell(job, err);
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

int sim_job_move(struct sim_job *job, const struct sched_named *policy,
	const struct sched_grant *grant, double restart_s, struct pawl_err *err)
{
	uint32_t nodes_most = job->of->app->nodes_most;

	if (grant->replicas > 0) {
		size_t len_bytes = grant->replicas * sizeof(*grant->nodes);
		uint32_t *nodes = realloc(job->nodes, len_bytes);

		if (nodes == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
		}
		memcpy(nodes, grant->nodes, len_bytes);
		job->nodes = nodes;
		sched_spot_fill(&job->spot, nodes, grant->replicas);
		if (nodes_most > 0 && job->spot.place.nodes > nodes_most) {
			return pawl_err_set(err, PAWL_ENOTSUP,
				"job %s is on %u nodes: %s was measured on at most %u",
				job->of->name, job->spot.place.nodes, job->of->app->name,
				nodes_most);
		}
		job->countdown_s = restart_s;
	}
	job->restarts += job->started && grant->replicas > 0;
	job->started |= grant->replicas > 0;
	job->replicas = grant->replicas;
	return grant->replicas > 0 ? choose_batch(job, policy, err) : 0;
}

/* ---- steps ---- */

/* Returns the rate in steps of an initial batch per second, and records the times that it used.
 * Returns 0 if out of memory. */
static double find_rate(struct sim_job *job, const struct sched_named *policy)
{
	const struct sched_app *app = job->of->app;
	const struct pawl_place place = told_place(job, policy);
	double total = (double)pawl_batch_total(&place, &job->batch);
	struct sched_times times;
	struct pawl_noise noise;

	job->outside += !sched_app_times(app, &job->spot, job->batch.atomic, &times);
	sched_app_noise(app, total, job->oracle.epoch, &noise);
	if (policy->adapts) {
		job->seen.hints.noise = noise;
		if (!see(&job->seen, &place, job->batch.atomic, &times)) {
			return 0;
		}
	}
	return pawl_gain(&noise, total / app->bounds.init) / sched_step_s(&times, job->batch.accum);
}

/* Advances to the end of the epoch, or by seconds if that is sooner. Returns the seconds used. */
static double go_on(struct sim_job *job, double rate, double now_s, double seconds)
{
	const struct sched_app *app = job->of->app;
	double next = app->progress[job->oracle.epoch + 1];
	double took;

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

int sim_job_step(struct sim_job *job, const struct sched_named *policy, double now_s,
	double seconds, double speed, struct pawl_err *err)
{
	double still = job->countdown_s < seconds ? job->countdown_s : seconds;
	int rv = 0;

	if (job->replicas == 0) {
		return 0;
	}
	job->countdown_s -= still;
	job->lost += still * job->replicas;
	job->attained += still * job->replicas;
	now_s += still;
	seconds -= still;
	while (seconds > 0 && job->end_s < 0 && rv == 0) {
		double rate = find_rate(job, policy) * speed;
		double took;

		if (rate <= 0) {
			return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
		}
		took = go_on(job, rate, now_s, seconds);
		job->attained += took * job->replicas;
		now_s += took;
		seconds -= took;
		if (job->end_s < 0) {
			rv = choose_batch(job, policy, err);
		}
	}
	return rv;
}
