/* The results of pawl sim: tables for people, and JSON. */
#include "cli/cli.h"
#include "cli/sched/sim.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_COLUMN 32 /* columns of a workload's name; only the end of a longer one is shown */

/* The metrics that are compared. */
static const struct {
	const char *title;
	size_t offset; /* offset of a double in struct sched_metrics */
	double unit;   /* divides the value into the unit that is printed */
} compared[] = {
	{"average time to completion, h", offsetof(struct sched_metrics, jct_avg_s), 3600},
	{"99 % of jobs, h", offsetof(struct sched_metrics, jct_p99_s), 3600},
	{"makespan, h", offsetof(struct sched_metrics, makespan_s), 3600},
	{"worst rho", offsetof(struct sched_metrics, rho_max), 1},
	{"slots, h", offsetof(struct sched_metrics, cost_h), 1},
	{"cost", offsetof(struct sched_metrics, cost), 1},
};

const struct sched_metrics *sim_metrics(const struct sim_table *table, uint32_t workload,
	uint32_t policy)
{
	return &table->metrics[workload * table->policies_n + policy];
}

/* The metrics that a row shows, all doubles. */
static const size_t shown[] = {offsetof(struct sched_metrics, jct_avg_s),
	offsetof(struct sched_metrics, jct_p50_s), offsetof(struct sched_metrics, jct_p99_s),
	offsetof(struct sched_metrics, makespan_s), offsetof(struct sched_metrics, rho_max),
	offsetof(struct sched_metrics, rho_over_2),
	offsetof(struct sched_metrics, restarts_per_job),
	offsetof(struct sched_metrics, restart_share), offsetof(struct sched_metrics, utilisation),
	offsetof(struct sched_metrics, cost_h), offsetof(struct sched_metrics, cost),
	offsetof(struct sched_metrics, solve_p50_s), offsetof(struct sched_metrics, gap_max)};

static double get(const struct sched_metrics *metrics, size_t offset)
{
	return *(const double *)(const void *)((const char *)metrics + offset);
}

static double mean_of(const struct sim_table *table, uint32_t policy, size_t offset)
{
	double sum = 0;

	for (uint32_t w = 0; w < table->workloads_n; w++) {
		sum += get(sim_metrics(table, w, policy), offset);
	}
	return sum / table->workloads_n;
}

/* ---- for people ---- */

static void print_name(const char *name)
{
	size_t len = strlen(name);

	cli_print(stdout, "%-*s", NAME_COLUMN, name + (len > NAME_COLUMN ? len - NAME_COLUMN : 0));
}

static void print_row(const char *workload, const char *policy, uint32_t jobs,
	const struct sched_metrics *m)
{
	print_name(workload);
	cli_print(stdout, " %-9s %4u %8.0f %8.0f %8.0f %9.0f %6.2f %5.1f %6.2f %5.1f %5.1f %7.0f",
		policy, jobs, m->jct_avg_s, m->jct_p50_s, m->jct_p99_s, m->makespan_s, m->rho_max,
		m->rho_over_2 * 100, m->restarts_per_job, m->restart_share * 100,
		m->utilisation * 100, m->cost_h);
	cli_print(stdout, " %7.0f %7.3f", m->cost, m->solve_p50_s * 1e3);
	if (isnan(m->gap_max)) {
		cli_print(stdout, " %6s\n", "-");
	} else {
		cli_print(stdout, " %6.3f\n", m->gap_max * 100);
	}
}

/* Prints the means over workloads, with the jobs of all of them. */
static void print_mean(const struct sim_table *table, uint32_t policy)
{
	struct sched_metrics mean = {0};
	uint32_t jobs = 0;

	for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++) {
		*(double *)(void *)((char *)&mean + shown[i]) = mean_of(table, policy, shown[i]);
	}
	for (uint32_t w = 0; w < table->workloads_n; w++) {
		jobs += table->workloads[w].n;
	}
	print_row("mean", table->policies[policy]->policy->name, jobs, &mean);
}

static void print_outside(const struct sim_table *table)
{
	uint64_t outside = 0;

	for (uint32_t i = 0; i < table->workloads_n * table->policies_n; i++) {
		outside += table->metrics[i].outside;
	}
	if (outside > 0) {
		cli_print(stderr,
			"pawl sim: %llu step times were outside of what was measured, and were "
			"taken in proportion to the nearest one\n",
			(unsigned long long)outside);
	}
}

void sim_print(const struct sim_table *table)
{
	cli_print(stdout, "%-*s %-9s %4s %8s %8s %8s %9s %6s %5s %6s %5s %5s %7s %7s %7s %6s\n",
		NAME_COLUMN, "workload", "policy", "jobs", "avg s", "p50 s", "p99 s", "makespan",
		"rho", ">2 %", "moves", "lost%", "used%", "slots h", "cost", "ms", "gap %");
	for (uint32_t w = 0; w < table->workloads_n; w++) {
		for (uint32_t p = 0; p < table->policies_n; p++) {
			print_row(table->workloads[w].name, table->policies[p]->policy->name,
				table->workloads[w].n, sim_metrics(table, w, p));
		}
	}
	for (uint32_t p = 0; p < table->policies_n && table->workloads_n > 1; p++) {
		print_mean(table, p);
	}
	print_outside(table);
}

static void print_compared_row(const char *name, const struct sim_table *table, int w,
	size_t offset, double unit)
{
	double first = 0;

	print_name(name);
	for (uint32_t p = 0; p < table->policies_n; p++) {
		double value = w < 0 ? mean_of(table, p, offset)
				     : get(sim_metrics(table, (uint32_t)w, p), offset);

		first = p == 0 ? value : first;
		cli_print(stdout, " %9.3f", value / unit);
		if (p > 0) {
			cli_print(stdout, " %6.3f", value / first);
		}
	}
	cli_print(stdout, "\n");
}

void sim_print_compared(const struct sim_table *table)
{
	for (size_t i = 0; i < sizeof(compared) / sizeof(*compared); i++) {
		cli_print(stdout, i > 0 ? "\n%-*s" : "%-*s", NAME_COLUMN, compared[i].title);
		for (uint32_t p = 0; p < table->policies_n; p++) {
			cli_print(stdout, " %9s%s", table->policies[p]->policy->name,
				p > 0 ? "  ratio" : "");
		}
		cli_print(stdout, "\n");
		for (uint32_t w = 0; w < table->workloads_n; w++) {
			print_compared_row(table->workloads[w].name, table, (int)w,
				compared[i].offset, compared[i].unit);
		}
		if (table->workloads_n > 1) {
			print_compared_row("mean", table, -1, compared[i].offset, compared[i].unit);
		}
	}
	print_outside(table);
}

/* ---- JSON ---- */

static json_t *known_json(double number)
{
	return isnan(number) ? json_null() : json_real(number);
}

static json_t *make_object(const struct sim_table *table, const struct sched_setting *setting,
	uint32_t w, uint32_t p)
{
	const struct sched_metrics *m = sim_metrics(table, w, p);

	return json_pack("{s:o,s:s,s:i,s:i,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,"
			 "s:f,s:f,s:i,s:I,s:f,s:f,s:f,s:f,s:o,s:o}",
		"workload", cli_json_text(table->workloads[w].name), "policy",
		table->policies[p]->policy->name, "jobs", (int)table->workloads[w].n, "nodes",
		(int)setting->nodes, "slots", (int)setting->slots, "avg_jct_s", m->jct_avg_s,
		"p50_jct_s", m->jct_p50_s, "p99_jct_s", m->jct_p99_s, "makespan_s", m->makespan_s,
		"rho_avg", m->rho_avg, "rho_p99", m->rho_p99, "rho_max", m->rho_max, "rho_over_2",
		m->rho_over_2, "restarts_per_job", m->restarts_per_job, "restart_share",
		m->restart_share, "utilisation", m->utilisation, "cost_h", m->cost_h, "solve_p50_s",
		m->solve_p50_s, "solve_p99_s", m->solve_p99_s, "solve_max_s", m->solve_max_s,
		"rounds", (int)m->rounds, "outside", (json_int_t)m->outside, "cost", m->cost,
		"nodes_avg", m->nodes_avg, "spot_share", m->spot_share, "reclaims", m->reclaims,
		"gap_avg", known_json(m->gap_avg), "gap_max", known_json(m->gap_max));
}

int sim_print_json(const struct sim_table *table, const struct sched_setting *setting)
{
	json_t *list = json_array();

	for (uint32_t w = 0; w < table->workloads_n; w++) {
		for (uint32_t p = 0; p < table->policies_n; p++) {
			if (json_array_append_new(list, make_object(table, setting, w, p)) != 0) {
				json_decref(list);
				list = NULL;
			}
		}
	}
	return cli_json(list);
}
