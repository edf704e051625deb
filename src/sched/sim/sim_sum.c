/* Results of a simulation: see sim_impl.h. Pure. */
#include "sched/sim/sim_impl.h"

#include "base/assert.h"
#include "base/err.h"
#include "sched/sim/fair.h"

#include <math.h>
#include <stdlib.h>

int sim_run_init(struct sim_run *run, struct pawl_err *err)
{
	const struct sched_setting *setting = run->setting;

	run->jobs = calloc(run->workload->n, sizeof(*run->jobs));
	if (run->jobs == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
	}
	for (uint32_t j = 0; j < run->workload->n; j++) {
		const struct sched_submission *of = &run->workload->jobs[j];

		run->jobs[j] = (struct sim_job){.submission = of,
			.index = j,
			.end_s = -1,
			.oracle = {.app = of->app, .batch = of->batch}};
		sim_job_draw_errors(&run->jobs[j], setting->speed_error, setting->noise_error,
			setting->seed + j);
	}
	return 0;
}

void sim_run_deinit(struct sim_run *run)
{
	for (uint32_t j = 0; run->jobs && j < run->workload->n; j++) {
		sim_job_deinit(&run->jobs[j]);
	}
	free(run->jobs);
	free(run->solves_s);
}

int sim_run_solved(struct sim_run *run, double seconds, double gap, struct pawl_err *err)
{
	if (run->rounds == run->solves_room) {
		uint32_t room = 2 * run->solves_room + 1024;
		double *more = realloc(run->solves_s, room * sizeof(*more));

		if (more == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
		}
		run->solves_s = more;
		run->solves_room = room;
	}
	run->solves_s[run->rounds++] = seconds;
	if (!isnan(gap)) {
		run->gap_sum += gap;
		run->gap_max = fmax(run->gap_max, gap);
		run->gaps++;
	}
	return 0;
}

void sim_run_report(const struct sim_run *run, const struct sim_job *job, const char *const *nodes,
	double now_s)
{
	const struct sched_setting *setting = run->setting;

	if (setting->on_change) {
		const struct sched_sim_change change = {.at_s = job->end_s >= 0 ? job->end_s
				: job->started                                  ? now_s
					       : job->submission->at_s,
			.job = job->submission,
			.id = job->index + 1,
			.nodes = nodes,
			.replicas = job->end_s < 0 ? job->replicas : 0,
			.over = job->end_s >= 0};

		setting->on_change(setting->user, &change);
	}
}

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the n numbers and returns element floor(share * n). */
static double find_part(double *numbers, uint32_t n, double share)
{
	uint32_t at = (uint32_t)(share * n);

	qsort(numbers, n, sizeof(*numbers), by_number);
	return n == 0 ? 0 : numbers[at < n ? at : n - 1];
}

static void write_results(const struct sim_run *run, struct sched_job_result *results)
{
	for (uint32_t j = 0; j < run->workload->n; j++) {
		const struct sim_job *job = &run->jobs[j];

		results[j] = (struct sched_job_result){.end_s = job->end_s,
			.jct_s = job->end_s - job->submission->at_s,
			.attained = job->attained,
			.lost = job->lost,
			.restarts = job->restarts};
	}
}

static void sum_results(const struct sim_run *run, const struct sched_job_result *results,
	struct sched_metrics *metrics)
{
	uint32_t n = run->workload->n;
	double attained = 0;
	double lost = 0;
	uint32_t over = 0;
	uint32_t restarts = 0;

	ASSERT(run->gaps <= run->rounds && run->rounds <= run->solves_room);
	for (uint32_t j = 0; j < n; j++) {
		metrics->jct_avg_s += results[j].jct_s / n;
		metrics->makespan_s = fmax(metrics->makespan_s, results[j].end_s);
		metrics->rho_avg += results[j].rho / n;
		metrics->rho_max = fmax(metrics->rho_max, results[j].rho);
		over += results[j].rho > 2;
		restarts += results[j].restarts;
		metrics->outside += run->jobs[j].outside;
		attained += results[j].attained;
		lost += results[j].lost;
	}
	metrics->rho_over_2 = over / (double)n;
	metrics->restarts_per_job = restarts / (double)n;
	metrics->restart_share = lost / attained;
	metrics->utilisation = attained / run->slot_s;
	metrics->cost_h = attained / 3600;
	metrics->cost = run->cost;
	metrics->nodes_avg = run->node_s / metrics->makespan_s;
	metrics->spot_share = run->spot_s / run->node_s;
	metrics->reclaims = run->reclaims;
	metrics->rounds = run->rounds;
	metrics->gap_avg = run->gaps > 0 ? run->gap_sum / run->gaps : NAN;
	metrics->gap_max = run->gaps > 0 ? run->gap_max : NAN;
}

int sim_run_sum(struct sim_run *run, struct sched_outcome *outcome, struct pawl_err *err)
{
	struct sched_metrics *metrics = &outcome->metrics;
	uint32_t n = run->workload->n;
	double *numbers = calloc(n, sizeof(*numbers));
	int rv = 0;

	outcome->results = calloc(n, sizeof(*outcome->results));
	if (numbers == NULL || outcome->results == NULL) {
		free(numbers);
		return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
	}
	write_results(run, outcome->results);
	rv = sched_fair_fill(outcome->results, run->workload, run->setting, run->policy->adapts,
		err);
	sum_results(run, outcome->results, metrics);
	for (uint32_t j = 0; j < n; j++) {
		numbers[j] = outcome->results[j].jct_s;
	}
	metrics->jct_p50_s = find_part(numbers, n, 0.5);
	metrics->jct_p99_s = find_part(numbers, n, 0.99);
	for (uint32_t j = 0; j < n; j++) {
		numbers[j] = outcome->results[j].rho;
	}
	metrics->rho_p99 = find_part(numbers, n, 0.99);
	metrics->solve_p50_s = find_part(run->solves_s, run->rounds, 0.5);
	metrics->solve_p99_s = find_part(run->solves_s, run->rounds, 0.99);
	metrics->solve_max_s = find_part(run->solves_s, run->rounds, 1);
	free(numbers);
	return rv;
}

void sched_outcome_deinit(struct sched_outcome *outcome)
{
	free(outcome->results);
	outcome->results = NULL;
}
