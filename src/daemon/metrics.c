/* The metrics that Prometheus reads: see metrics.h. */
#include "daemon/metrics.h"

#include "base/clock.h"
#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIVE_STATES ((uint32_t)CORE_DONE) /* states of jobs that are not over */

static const double decision_bounds_s[METRICS_BOUNDS] = {0.0001, 0.001, 0.005, 0.025, 0.1, 0.5, 2,
	10};
static const double wait_bounds_s[METRICS_BOUNDS] = {0.5, 2, 10, 60, 300, 1800, 10800, 86400};

/* Names of events in metrics. They differ from the enum's where its names have changed since:
 * dashboards rely on them. */
static const char *const event_names[METRICS_EVENTS] = {
	[CORE_TIMER] = "time",
	[CORE_SUBMIT] = "submit",
	[CORE_CANCEL] = "cancel",
	[CORE_PAUSE] = "pause",
	[CORE_RESUME] = "resume",
	[CORE_CHANGE] = "change",
	[CORE_HINTS] = "hints",
	[CORE_RUNS] = "runs",
	[CORE_ENDED] = "ended",
	[CORE_REFUSED] = "refused",
	[CORE_LISTED] = "listed",
	[CORE_NODE_REPORTED] = "node_comes",
	[CORE_NODE_NOTICE] = "node_goes",
	[CORE_NODE_DRAIN] = "node_drain",
	[CORE_NODE_RESUME] = "node_back",
	[CORE_NODE_GONE] = "node_gone",
	[CORE_POOL_EXHAUSTED] = "pool_dry",
	[CORE_FOUND] = "found",
	[CORE_IDS_USED] = "seen",
};

/* ---- counting ---- */

void metrics_init(struct metrics *m)
{
	*m = (struct metrics){.started_ns = clock_wall_ns(),
		.decisions.bounds_s = decision_bounds_s,
		.waits.bounds_s = wait_bounds_s};
}

/* Returns whether the event implies that a job ran: a short job may end before its start is
 * reported. */
static bool implies_job_ran(const struct core_event *event)
{
	return event->kind == CORE_RUNS ||
		(event->kind == CORE_ENDED && event->end_cause == CORE_END_EXITED);
}

void metrics_begin(struct metrics_step *step, const struct sched_core *core,
	const struct core_event *event)
{
	const struct core_job *job =
		implies_job_ran(event) ? core_job_find(core, event->job) : NULL;
	uint64_t refused;

	step->first = job && job->state == CORE_STARTING && job->restarts == 0;
	step->decisions = core_decisions(core, &refused);
	step->began_ns = clock_mono_ns();
}

void metrics_end(struct metrics *m, const struct metrics_step *step, const struct sched_core *core,
	const struct core_event *event)
{
	double took_s = (double)(clock_mono_ns() - step->began_ns) / NS_PER_S;
	const struct core_job *job = step->first ? core_job_find(core, event->job) : NULL;
	uint64_t refused;

	m->events[event->kind]++;
	if (core_decisions(core, &refused) > step->decisions) {
		metrics_times_add(&m->decisions, took_s);
	}
	if (job && job->state != CORE_STARTING) {
		metrics_times_add(&m->waits,
			(double)(event->now_ns - job->submitted_ns) / NS_PER_S);
	}
}

void metrics_count_answer(struct metrics *m, unsigned code)
{
	uint32_t i = 0;

	while (i < METRICS_CODES - 1 && m->answers[i].code != code && m->answers[i].code != 0) {
		i++;
	}
	m->answers[i].code = code;
	m->answers[i].n++;
}

/* ---- the present state ---- */

/* Sums over the jobs that are not over. */
struct sums {
	uint64_t *jobs;    /* owned; [queue][state] */
	double *oldest_s;  /* owned; by queue: longest wait of a job in it */
	uint64_t live;     /* number of these jobs */
	uint64_t restarts; /* changes of replicas, with those of jobs that are over */
	uint64_t failures; /* failures, with those of jobs that are over */
};

/* Totals of the jobs that are over, in the order of their states. */
struct ends {
	struct database_total by[CORE_CANCELLED - CORE_DONE + 1];
};

static void add_end(void *user, const struct database_total *total)
{
	struct ends *ends = user;

	for (uint32_t i = 0; i <= CORE_CANCELLED - CORE_DONE; i++) {
		if (strcmp(total->state, core_state_name((enum core_state)(CORE_DONE + i))) == 0) {
			ends->by[i] = *total;
		}
	}
}

static int sum_jobs(struct sums *s, const struct metrics_view *v, const struct ends *ends,
	struct pawl_err *err)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(v->core, &jobs);

	s->jobs = calloc((size_t)v->queues_n * LIVE_STATES, sizeof(*s->jobs));
	s->oldest_s = calloc(v->queues_n, sizeof(*s->oldest_s));
	if (!s->jobs || !s->oldest_s) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for metrics");
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct core_job *job = jobs[i];
		uint32_t queue = job->queue < v->queues_n ? job->queue : 0;
		double waits_s = (double)(v->now_ns - job->since_ns) / NS_PER_S;

		if (job->state >= CORE_DONE) {
			continue; /* the database's totals include the job */
		}
		s->live++;
		s->jobs[queue * LIVE_STATES + job->state]++;
		s->restarts += job->restarts;
		s->failures += job->failures;
		if (job->state == CORE_QUEUED && waits_s > s->oldest_s[queue]) {
			s->oldest_s[queue] = waits_s;
		}
	}
	for (uint32_t i = 0; i <= CORE_CANCELLED - CORE_DONE; i++) {
		s->restarts += ends->by[i].restarts;
		s->failures += ends->by[i].failures;
	}
	return 0;
}

/* Writes the metrics of AdaptDL's scheduler; its statuses are the phases of a job. AdaptDL's client
 * library adds _total to the name of a counter, as dashboards expect; its documents have the name
 * without. Both are written. */
static void put_adaptdl(struct wire_out *out, const struct sums *sums, const struct ends *ends)
{
	static const char *const statuses[] = {"Succeeded", "Failed", "Cancelled"};
	static const char name[] = "adaptdl_sched_job_completion_time";
	uint64_t submitted = sums->live;

	for (uint32_t i = 0; i <= CORE_CANCELLED - CORE_DONE; i++) {
		submitted += ends->by[i].jobs;
	}
	metrics_put_one(out, "adaptdl_sched_job_submission_count", "counter",
		"Number of submitted jobs", (double)submitted);
	metrics_put_one(out, "adaptdl_sched_job_submission_count_total", "counter",
		"Number of submitted jobs", (double)submitted);
	metrics_put_family(out, name, "summary", "Duration of completed jobs, in seconds");
	for (uint32_t i = 0; i <= CORE_CANCELLED - CORE_DONE; i++) {
		const struct metrics_label status = {"status", statuses[i]};

		metrics_put(out, "adaptdl_sched_job_completion_time_count", &status, 1,
			(double)ends->by[i].jobs);
		metrics_put(out, "adaptdl_sched_job_completion_time_sum", &status, 1,
			(double)ends->by[i].took_ns / NS_PER_S);
	}
}

static void put_by_type(struct wire_out *out, const struct metrics_view *v, const char *name,
	uint32_t here, const uint64_t counts[SCHED_TYPES_MAX])
{
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		const struct metrics_label type = {"type", v->types[t]};

		if (here >> t & 1) {
			metrics_put(out, name, &type, 1, (double)counts[t]);
		}
	}
}

static void put_nodes(struct wire_out *out, const struct metrics_view *v)
{
	uint32_t types_here = v->types_here; /* and types of nodes that are about to go */
	uint64_t counts[CORE_NODE_LOST + 1] = {0};
	uint64_t slots[SCHED_TYPES_MAX] = {0};
	uint64_t used[SCHED_TYPES_MAX] = {0};
	const struct core_node *nodes;
	uint32_t n = core_nodes(v->core, &nodes);

	for (uint32_t i = 0; i < n; i++) {
		bool here = nodes[i].state != CORE_NODE_LOST;

		counts[nodes[i].state]++;
		types_here |= here ? 1u << nodes[i].offer.type : 0;
		slots[nodes[i].offer.type] += here ? nodes[i].offer.slots : 0;
		used[nodes[i].offer.type] += here ? nodes[i].used : 0;
	}
	metrics_put_family(out, "pawl_sched_nodes", "gauge", "Nodes, by state");
	for (uint32_t i = 0; i <= CORE_NODE_LOST; i++) {
		const struct metrics_label state = {"state", core_node_state_name(i)};

		metrics_put(out, "pawl_sched_nodes", &state, 1, (double)counts[i]);
	}
	metrics_put_family(out, "pawl_sched_slots", "gauge",
		"Slots of nodes that are there, by type");
	put_by_type(out, v, "pawl_sched_slots", types_here, slots);
	metrics_put_family(out, "pawl_sched_slots_used", "gauge",
		"Slots that replicas have, by type of node");
	put_by_type(out, v, "pawl_sched_slots_used", types_here, used);
}

static void put_jobs(struct wire_out *out, const struct metrics_view *v, const struct sums *sums)
{
	metrics_put_family(out, "pawl_sched_jobs", "gauge",
		"Jobs that are not over, by queue and state");
	for (uint32_t q = 0; q < v->queues_n; q++) {
		for (uint32_t s = 0; s < LIVE_STATES; s++) {
			const struct metrics_label labels[] = {{"queue", v->queues[q].name},
				{"state", core_state_name((enum core_state)s)}};

			metrics_put(out, "pawl_sched_jobs", labels, 2,
				(double)sums->jobs[q * LIVE_STATES + s]);
		}
	}
	metrics_put_family(out, "pawl_sched_queue_wait_seconds", "gauge",
		"Longest wait of a job that is in the queue now");
	for (uint32_t q = 0; q < v->queues_n; q++) {
		const struct metrics_label queue = {"queue", v->queues[q].name};

		metrics_put(out, "pawl_sched_queue_wait_seconds", &queue, 1, sums->oldest_s[q]);
	}
	metrics_put_one(out, "pawl_sched_job_restarts_total", "counter",
		"Changes of the replicas of jobs after their first start", (double)sums->restarts);
	metrics_put_one(out, "pawl_sched_job_failures_total", "counter",
		"Ends of jobs with another code than 0", (double)sums->failures);
}

/* Writes a line for each job that runs. */
static void put_running(struct wire_out *out, const struct metrics_view *v, bool goodput)
{
	const char *name =
		goodput ? "pawl_sched_job_goodput_samples_per_second" : "pawl_sched_job_replicas";
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(v->core, &jobs);
	uint32_t shown = 0;

	metrics_put_family(out, name, "gauge",
		goodput ? "Goodput of a job by the model in its hints; 0: no hints"
			: "Replicas of a job that runs");
	for (uint32_t i = 0; i < n && shown < METRICS_JOBS_MAX; i++) {
		char id[24];
		const struct metrics_label labels[] = {{"job", id},
			{"name", jobs[i]->request.name}};
		struct core_outlook outlook = {0};

		if (jobs[i]->state != CORE_RUNNING && jobs[i]->state != CORE_RESCALING) {
			continue;
		}
		snprintf(id, sizeof(id), "%llu", (unsigned long long)jobs[i]->id);
		if (goodput) {
			core_outlook_now(v->core, jobs[i], &outlook);
		}
		metrics_put(out, name, labels, 2,
			goodput ? outlook.now : jobs[i]->current.replicas);
		shown++;
	}
}

static void put_scheduler(struct wire_out *out, const struct metrics_view *v)
{
	const struct metrics *m = v->metrics;
	const struct metrics_label version = {"version", PAWL_VERSION};
	uint64_t refused;

	core_decisions(v->core, &refused);
	metrics_put_times(out, "pawl_sched_decision_seconds",
		"Duration of a decision of the scheduler", &m->decisions);
	metrics_put_family(out, "pawl_sched_decision_gap", "gauge",
		"Bound on the excess cost of the newest decision, as a part of its cost");
	if (!isnan(core_gap(v->core))) {
		metrics_put(out, "pawl_sched_decision_gap", NULL, 0, core_gap(v->core));
	}
	metrics_put_one(out, "pawl_sched_decisions_refused_total", "counter",
		"Decisions of the policy that could not be carried out", (double)refused);
	metrics_put_times(out, "pawl_sched_job_wait_seconds",
		"From the submission of a job to its first start", &m->waits);
	metrics_put_family(out, "pawl_sched_events_total", "counter", "Events, by kind");
	for (uint32_t i = 0; i < METRICS_EVENTS; i++) {
		const struct metrics_label kind = {"kind", event_names[i]};

		metrics_put(out, "pawl_sched_events_total", &kind, 1, (double)m->events[i]);
	}
	metrics_put_family(out, "pawl_sched_http_answers_total", "counter",
		"Requests answered over HTTP, by code");
	for (uint32_t i = 0; i < METRICS_CODES && m->answers[i].code != 0; i++) {
		char text[16];
		const struct metrics_label code = {"code", text};

		snprintf(text, sizeof(text), "%u", m->answers[i].code);
		metrics_put(out, "pawl_sched_http_answers_total", &code, 1,
			(double)m->answers[i].n);
	}
	metrics_put_one(out, "pawl_sched_http_connections", "gauge", "Connections over HTTP",
		v->connections);
	metrics_put_one(out, "process_start_time_seconds", "gauge",
		"When the scheduler was started, since the epoch",
		(double)m->started_ns / NS_PER_S);
	metrics_put_family(out, "pawl_build_info", "gauge", "Version of Pawl");
	metrics_put(out, "pawl_build_info", &version, 1, 1);
}

int metrics_print(struct wire_out *out, const struct metrics_view *v, struct pawl_err *err)
{
	struct ends ends = {0};
	struct sums sums = {0};
	int rv = sched_database_totals(v->database, add_end, &ends, err);

	rv = rv == 0 ? sum_jobs(&sums, v, &ends, err) : rv;
	if (rv == 0) {
		put_adaptdl(out, &sums, &ends);
		put_nodes(out, v);
		put_jobs(out, v, &sums);
		put_running(out, v, false);
		put_running(out, v, true);
		put_scheduler(out, v);
		rv = out->failed ? pawl_err_set(err, PAWL_ENOMEM, "no memory for metrics") : 0;
	}
	free(sums.jobs);
	free(sums.oldest_s);
	return rv;
}
