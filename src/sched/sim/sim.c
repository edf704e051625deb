/* The simulator's rounds: see sim.h. Pure. */
#include "sched/sim/sim.h"

#include "base/assert.h"
#include "base/err.h"
#include "sched/sim/sim_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_A_S     1e9
#define PROGRESS_S 3600.0 /* seconds of virtual time between two reports */

struct sim {
	struct sim_run run;
	const struct sched_policy_entry *policy; /* the run's, as are workload and setting */
	const struct sched_workload *workload;
	const struct sched_setting *setting;
	void *memory;            /* the policy's */
	double now_s;            /* time at the end of the last step */
	double ran_s;            /* last time at which any job ran */
	struct sim_job *jobs;    /* all jobs, in the order of submission; the run's */
	uint32_t *active;        /* indices of jobs that are submitted and not complete */
	uint32_t active_n, next; /* entries in active; first job that is not submitted */
	uint32_t *spread_jobs;   /* by node: jobs on it that are on several */
	uint32_t *room;          /* by node: free slots, while grants are checked */
	struct sched_node *nodes;
	struct sched_job *view_jobs;  /* by active job: what the policy sees */
	struct sched_grant *grants;   /* by active job: what the policy grants */
	uint32_t *granted;            /* nodes of the grants */
	uint32_t granted_room;        /* active jobs that granted has room for */
	char (*names)[SIM_POOL_NAME]; /* names of nodes; NULL if changes are not reported */
	const char **replica_nodes;   /* room for the names of a job's nodes; NULL if names is */
};

/* ---- open and close ---- */

static int check(const struct sched_policy_entry *policy, const struct sched_workload *workload,
	const struct sched_setting *setting, struct pawl_err *err)
{
	uint64_t all = (uint64_t)setting->nodes * setting->slots;

	if (all > SIM_SLOTS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "the cluster has more than %u slots",
			SIM_SLOTS_MAX);
	}
	if (setting->pools_n > 0 && !policy->adapts) {
		return pawl_err_set(err, PAWL_EINVAL,
			"policy %s cannot use pools: its jobs do not choose their number of nodes",
			policy->policy->name);
	}
	for (uint32_t j = 0; j < workload->n; j++) {
		const struct sched_submission *job = &workload->jobs[j];

		if (job->app->slots_most > 0 && setting->slots > job->app->slots_most) {
			return pawl_err_set(err, PAWL_ENOTSUP,
				"%s was measured with at most %u replicas on a node, not %u; "
				"the built-in models have no such limit",
				job->app->name, job->app->slots_most, setting->slots);
		}
		if (!policy->adapts && job->replicas > all) {
			return pawl_err_set(err, PAWL_EINVAL,
				"job %s asks for %u replicas, but there are %u slots", job->name,
				job->replicas, (uint32_t)all);
		}
		if (!policy->adapts && job->app->slots_most > 0 && job->replicas > APP_MEASURED) {
			return pawl_err_set(err, PAWL_ENOTSUP,
				"job %s asks for %u replicas, but at most %u were measured",
				job->name, job->replicas, APP_MEASURED);
		}
	}
	return 0;
}

static void close_sim(struct sim *sim)
{
	if (sim->memory && sim->policy->policy->close) {
		sim->policy->policy->close(sim->memory);
	}
	free(sim->active);
	free(sim->spread_jobs);
	free(sim->room);
	free(sim->nodes);
	free(sim->view_jobs);
	free(sim->grants);
	free(sim->granted);
	free(sim->names);
	free(sim->replica_nodes);
}

static int open_sim(struct sim *sim, struct pawl_err *err)
{
	const struct sched_policy *policy = sim->policy->policy;
	uint32_t jobs_n = sim->workload->n;
	uint32_t nodes_n = sim->setting->nodes;

	int rv = sim_run_init(&sim->run, err);

	if (rv != 0) {
		return rv;
	}
	sim->jobs = sim->run.jobs;
	sim->active = calloc(jobs_n, sizeof(*sim->active));
	sim->view_jobs = calloc(jobs_n, sizeof(*sim->view_jobs));
	sim->grants = calloc(jobs_n, sizeof(*sim->grants));
	sim->spread_jobs = calloc(nodes_n, sizeof(*sim->spread_jobs));
	sim->room = calloc(nodes_n, sizeof(*sim->room));
	sim->nodes = calloc(nodes_n, sizeof(*sim->nodes));
	sim->memory = policy->open ? policy->open(sim->setting->seed) : NULL;
	if (!sim->active || !sim->view_jobs || !sim->grants || !sim->spread_jobs || !sim->room ||
		!sim->nodes || (policy->open && !sim->memory)) {
		return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
	}
	for (uint32_t i = 0; i < nodes_n; i++) {
		sim->nodes[i].slots = sim->setting->slots;
	}
	return 0;
}

/* ---- reports of changes ---- */

static int name_nodes(struct sim *sim, struct pawl_err *err)
{
	uint32_t nodes_n = sim->setting->nodes;

	if (sim->setting->on_change == NULL) {
		return 0;
	}
	sim->names = calloc(nodes_n, sizeof(*sim->names));
	sim->replica_nodes =
		calloc((size_t)nodes_n * sim->setting->slots, sizeof(*sim->replica_nodes));
	if (!sim->names || !sim->replica_nodes) {
		return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
	}
	for (uint32_t i = 0; i < nodes_n; i++) {
		const struct sched_sim_change change = {.node = sim->names[i],
			.pool = "",
			.slots = sim->setting->slots,
			.price = 1};

		snprintf(sim->names[i], sizeof(sim->names[i]), "node-%u", i);
		sim->setting->on_change(sim->setting->user, &change);
	}
	return 0;
}

static void report_job(struct sim *sim, const struct sim_job *job)
{
	for (uint32_t i = 0; sim->replica_nodes && i < job->replicas; i++) {
		sim->replica_nodes[i] = sim->names[job->nodes[i]];
	}
	sim_run_report(&sim->run, job, sim->replica_nodes, sim->now_s);
}

/* ---- a round's steps ---- */

/* Whether the job is on several nodes, by the runs in its list of nodes. */
static bool on_several(const struct sim_job *job)
{
	return job->replicas > 0 && job->placement.place.nodes > 1;
}

static bool starts_run(const struct sim_job *job, uint32_t i)
{
	return i == 0 || job->nodes[i] != job->nodes[i - 1];
}

static void count_spread_jobs(struct sim *sim)
{
	memset(sim->spread_jobs, 0, sim->setting->nodes * sizeof(*sim->spread_jobs));
	for (uint32_t a = 0; a < sim->active_n; a++) {
		const struct sim_job *job = &sim->jobs[sim->active[a]];

		for (uint32_t i = 0; on_several(job) && i < job->replicas; i++) {
			sim->spread_jobs[job->nodes[i]] += starts_run(job, i);
		}
	}
}

static double find_speed(const struct sim *sim, const struct sim_job *job)
{
	for (uint32_t i = 0; on_several(job) && i < job->replicas; i++) {
		if (sim->spread_jobs[job->nodes[i]] > 1) {
			return 1 - sim->setting->interference;
		}
	}
	return 1;
}

static int step_all(struct sim *sim, struct pawl_err *err)
{
	double seconds = sim->setting->interval_s;
	uint32_t left = 0;
	int rv = 0;

	if (sim->setting->interference > 0) {
		count_spread_jobs(sim);
	}
	for (uint32_t a = 0; a < sim->active_n && rv == 0; a++) {
		struct sim_job *job = &sim->jobs[sim->active[a]];

		rv = sim_job_step(job, sim->policy, sim->now_s, seconds, find_speed(sim, job), err);
	}
	sim->now_s += seconds;
	for (uint32_t a = 0; a < sim->active_n; a++) {
		if (sim->jobs[sim->active[a]].end_s < 0) {
			sim->active[left++] = sim->active[a];
		} else {
			report_job(sim, &sim->jobs[sim->active[a]]);
		}
	}
	sim->active_n = left;
	while (sim->next < sim->workload->n && sim->workload->jobs[sim->next].at_s <= sim->now_s) {
		sim->active[sim->active_n++] = sim->next;
		report_job(sim, &sim->jobs[sim->next++]);
	}
	ASSERT(sim->active_n <= sim->next); /* each job is active once */
	return rv;
}

/* ---- a round's decision ---- */

static uint32_t at_most(uint32_t number, uint32_t most)
{
	return number < most ? number : most;
}

static int fill_view_job(struct sim *sim, struct sim_job *job, struct sched_job *view_job,
	struct pawl_err *err)
{
	const struct sched_app *app = job->submission->app;
	uint32_t most = at_most(app->replicas_most, sim->setting->nodes * sim->setting->slots);

	*view_job = (struct sched_job){.id = job->index,
		.age_s = sim->now_s - job->submission->at_s,
		.attained = job->attained,
		.restarts = job->restarts,
		.least = 1,
		.most = sim->policy->adapts || most > job->submission->replicas
			? most
			: job->submission->replicas,
		.wanted = job->submission->replicas,
		.weight = 1,
		.restart_s = sim->setting->restart_s,
		.nodes = job->nodes,
		.replicas = job->replicas,
		.oracle = &job->oracle};
	if (!sim->policy->adapts) {
		return 0;
	}
	view_job->hints[0] = &job->reported;
	return sim_job_update_hints(job, err);
}

/* Makes room for a grant of all slots for each active job. */
static int reserve(struct sim *sim, struct pawl_err *err)
{
	size_t slots = (size_t)sim->setting->nodes * sim->setting->slots;

	if (sim->active_n > sim->granted_room) {
		uint32_t room = 2 * sim->active_n;

		free(sim->granted);
		sim->granted = calloc(room * slots, sizeof(*sim->granted));
		sim->granted_room = sim->granted ? room : 0;
	}
	if (sim->active_n > sim->granted_room) {
		return pawl_err_set(err, PAWL_ENOMEM, "simulate: out of memory");
	}
	for (uint32_t a = 0; a < sim->active_n; a++) {
		sim->grants[a] = (struct sched_grant){.nodes = sim->granted + a * slots};
	}
	return 0;
}

/* Checks the grants: if the policy grants slots that do not exist, its results are worthless. */
static int check_grants(struct sim *sim, struct pawl_err *err)
{
	for (uint32_t i = 0; i < sim->setting->nodes; i++) {
		sim->room[i] = sim->setting->slots;
	}
	for (uint32_t a = 0; a < sim->active_n; a++) {
		const struct sched_grant *grant = &sim->grants[a];

		if (grant->replicas > sim->view_jobs[a].most) {
			return pawl_err_set(err, PAWL_EINVAL,
				"policy %s at %.0f s: job %s got %u replicas, more than %u",
				sim->policy->policy->name, sim->now_s,
				sim->jobs[sim->active[a]].submission->name, grant->replicas,
				sim->view_jobs[a].most);
		}
		for (uint32_t i = 0; i < grant->replicas; i++) {
			if (grant->nodes[i] >= sim->setting->nodes ||
				sim->room[grant->nodes[i]]-- == 0) {
				return pawl_err_set(err, PAWL_EINVAL,
					"policy %s at %.0f s: job %s got node %u, which is full",
					sim->policy->policy->name, sim->now_s,
					sim->jobs[sim->active[a]].submission->name,
					grant->nodes[i]);
			}
		}
	}
	return 0;
}

static int ask_policy(struct sim *sim, struct pawl_err *err)
{
	const struct sched_view view = {.now_s = sim->now_s,
		.nodes = sim->nodes,
		.nodes_n = sim->setting->nodes,
		.jobs = sim->view_jobs,
		.jobs_n = sim->active_n,
		.fairness = sim->setting->fairness};
	int64_t (*clock_ns)(void) = sim->setting->clock_ns;
	struct sched_verdict verdict = {NAN, NAN};
	int64_t from;
	int rv = reserve(sim, err);

	for (uint32_t a = 0; a < sim->active_n && rv == 0; a++) {
		rv = fill_view_job(sim, &sim->jobs[sim->active[a]], &sim->view_jobs[a], err);
	}
	if (rv != 0) {
		return rv;
	}
	from = clock_ns ? clock_ns() : 0;
	rv = sim->policy->policy->decide(sim->memory, &view, sim->grants, &verdict, err);
	rv = rv ? rv
		: sim_run_solved(&sim->run, clock_ns ? (double)(clock_ns() - from) / NS_A_S : 0,
			  sched_verdict_gap(&verdict), err);
	return rv ? rv : check_grants(sim, err);
}

static bool is_same(const struct sim_job *job, const struct sched_grant *grant)
{
	return job->replicas == grant->replicas &&
		(job->replicas == 0 ||
			memcmp(job->nodes, grant->nodes, job->replicas * sizeof(*job->nodes)) == 0);
}

/* Fails if jobs are left, and time is up, or no job has run for too long. */
static int check_time(const struct sim *sim, struct pawl_err *err)
{
	uint32_t left = sim->active_n + sim->workload->n - sim->next;

	if (left == 0 || (sim->now_s - sim->ran_s <= SIM_IDLE_S && sim->now_s <= SIM_LAST_S)) {
		return 0;
	}
	return pawl_err_set(err, PAWL_ELIMIT,
		"policy %s: job %s and %u more are not done after %.0f days",
		sim->policy->policy->name,
		sim->workload->jobs[sim->active_n > 0 ? sim->active[0] : sim->next].name, left - 1,
		sim->now_s / 86400);
}

static int carry_out(struct sim *sim, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t a = 0; a < sim->active_n && rv == 0; a++) {
		struct sim_job *job = &sim->jobs[sim->active[a]];

		if (!is_same(job, &sim->grants[a])) {
			rv = sim_job_move(job, sim->policy, &sim->grants[a],
				sim->setting->restart_s, err);
			report_job(sim, job);
		}
		if (job->replicas > 0) {
			sim->ran_s = sim->now_s;
		}
	}
	if (sim->active_n == 0) {
		sim->ran_s = sim->now_s;
	}
	return rv == 0 ? check_time(sim, err) : rv;
}

static int run_rounds(struct sim *sim, struct pawl_err *err)
{
	const struct sched_setting *setting = sim->setting;
	double reported_s = 0;
	int rv = 0;

	while (rv == 0 && (sim->active_n > 0 || sim->next < sim->workload->n)) {
		rv = step_all(sim, err);
		if (rv == 0 && sim->active_n > 0) {
			rv = ask_policy(sim, err);
		}
		if (rv == 0) {
			rv = carry_out(sim, err);
		}
		if (setting->on_progress && sim->now_s - reported_s >= PROGRESS_S) {
			reported_s = sim->now_s;
			setting->on_progress(setting->user, sim->now_s, sim->next - sim->active_n);
		}
	}
	return rv;
}

/* ---- a run ---- */

/* Counts the rent: all nodes are there during the whole run, at a price of 1 an hour each. */
static void count_rent(struct sim_run *run)
{
	double end_s = 0;

	for (uint32_t j = 0; j < run->workload->n; j++) {
		end_s = fmax(end_s, run->jobs[j].end_s);
	}
	run->node_s = end_s * run->setting->nodes;
	run->slot_s = run->node_s * run->setting->slots;
	run->cost = run->node_s / 3600;
}

static int run_cluster(struct sim_run *run, struct sched_outcome *outcome, struct pawl_err *err)
{
	struct sim sim = {.run = *run,
		.policy = run->policy,
		.workload = run->workload,
		.setting = run->setting};
	int rv = open_sim(&sim, err);

	rv = rv ? rv : name_nodes(&sim, err);
	rv = rv ? rv : run_rounds(&sim, err);
	if (rv == 0) {
		count_rent(&sim.run);
		rv = sim_run_sum(&sim.run, outcome, err);
	}
	close_sim(&sim);
	sim_run_deinit(&sim.run);
	return rv;
}

int sched_sim_run(struct sched_outcome *outcome, const struct sched_policy_entry *policy,
	const struct sched_workload *workload, const struct sched_setting *setting,
	struct pawl_err *err)
{
	struct sim_run run = {.policy = policy, .workload = workload, .setting = setting};
	int rv = check(policy, workload, setting, err);

	if (rv != 0) {
		return rv;
	}
	if (setting->pools_n == 0) {
		return run_cluster(&run, outcome, err);
	}
	rv = sim_run_init(&run, err);
	rv = rv ? rv : sim_pools_run(&run, err);
	rv = rv ? rv : sim_run_sum(&run, outcome, err);
	sim_run_deinit(&run);
	return rv;
}
