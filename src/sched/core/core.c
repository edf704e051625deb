/* Events in, updates out: see core.h. core_jobs.c handles events of a job. This file handles events
 * of the cluster, and has the order of a step: the event, what has become due, a decision if one is
 * due, and carrying it out. */
#include "sched/core/core_impl.h"

#include <stdlib.h>
#include <string.h>

#define HINT_MAX 1e15 /* largest value of a hint, except for noise */
#define NORM_MAX 1e60 /* largest squared norm; a loss scaler may have made the gradients large */

/* ---- jobs ---- */

static int check_request(const struct sched_core *core, const struct core_request *request,
	struct pawl_err *err)
{
	uint32_t q;

	if (memchr(request->name, 0, sizeof(request->name)) == NULL ||
		memchr(request->queue, 0, sizeof(request->queue)) == NULL ||
		request->wanted > request->most || request->spot_least > request->spot_most ||
		!(request->restart_s >= 0 && request->restart_s < HINT_MAX) ||
		request->grace_ns < 0 || request->time_limit_ns < 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"submit: a job needs names that end, replicas in its bounds, and times "
			"that are not negative");
	}
	q = core_queue_named(core, request->queue);
	if (q == UINT32_MAX) {
		return pawl_err_set(err, PAWL_ENOENT, "submit: there is no queue %s",
			request->queue);
	}
	return core_check_size(core, q, request->least, request->most, "submit", err);
}

static int submit(struct sched_core *core, const struct core_request *request, uint64_t *id,
	struct pawl_err *err)
{
	struct core_job *job;
	int rv = check_request(core, request, err);

	if (rv == 0 && core->jobs_n >= CORE_JOBS_MAX) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "submit: there are already %u jobs",
			CORE_JOBS_MAX);
	}
	rv = rv == 0 ? core_reserve(core, 1, 0, 0, 0, err) : rv;
	if (rv != 0) {
		return rv;
	}
	if (core_owner_of(core, request->owner) == UINT32_MAX &&
		core->owners_n >= CORE_OWNERS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "submit: %u users have jobs already",
			CORE_OWNERS_MAX);
	}
	job = core_job_make(request, err);
	if (!job) {
		return PAWL_ENOMEM;
	}
	job->queue = core_queue_named(core, request->queue);
	job->id = ++core->jobs_ever;
	job->submitted_ns = core->now_ns;
	job->counted_ns = core->now_ns;
	core_add_job(core, job);
	core_job_enter(core, job, CORE_QUEUED, CORE_WHY_NEW);
	core->dirty = true;
	core_want_round(core, true);
	*id = job->id;
	return 0;
}

/* Drops the owners that have no job left. */
static void drop_owners(struct sched_core *core)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < core->owners_n; i++) {
		core->owners[i].used = 0;
	}
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		uint32_t owner = core_owner_of(core, core->jobs[j]->request.owner);

		ASSERT(owner < core->owners_n);
		core->owners[owner].used = 1;
	}
	for (uint32_t i = 0; i < core->owners_n; i++) {
		if (core->owners[i].used > 0) {
			core->owners[left++] = core->owners[i];
		}
	}
	core->owners_n = left;
	ASSERT(core->owners_n <= core->jobs_n);
}

/* Frees the jobs that the last step ended. */
static void free_ended_jobs(struct sched_core *core)
{
	uint32_t left = 0;

	for (uint32_t j = 0; j < core->jobs_n; j++) {
		if (core_is_over(core->jobs[j])) {
			core_job_free(core->jobs[j]);
		} else {
			core->jobs[left++] = core->jobs[j];
		}
	}
	if (left < core->jobs_n) {
		core->jobs_n = left;
		drop_owners(core);
	}
}

static bool is_hint_value(double x)
{
	return x >= 0 && x <= HINT_MAX;
}

static bool is_norm(double x)
{
	return x >= 0 && x <= NORM_MAX;
}

static bool are_sane(const struct sched_hints *h)
{
	const struct pawl_perf *p = &h->perf;
	const struct pawl_batch_bounds *b = &h->bounds;

	return is_hint_value(h->progress) && is_hint_value(h->progress_end) &&
		(!h->fitted ||
			(is_hint_value(p->alpha_c) && is_hint_value(p->beta_c) &&
				is_hint_value(p->alpha_r) && is_hint_value(p->beta_r) &&
				is_hint_value(p->alpha_n) && is_hint_value(p->beta_n) &&
				is_hint_value(p->delta_n) && p->gamma >= 1 && p->gamma <= 10 &&
				p->alpha_c + p->beta_c > 0 && is_norm(h->noise.sqr) &&
				is_norm(h->noise.var) && b->init >= 1 && b->max >= b->init &&
				b->atomic_min >= 1 && b->atomic_max >= b->atomic_min));
}

/* Whether the first decision about the job is possible now, or the job has measured more replicas
 * than ever. Its allocation may then be far from the right one, and a short job would be over
 * before the next round. */
static bool calls_for_decision(const struct sched_hints *before, const struct sched_hints *now)
{
	return now->fitted &&
		(!before || !before->fitted || now->replicas_profiled > before->replicas_profiled);
}

static int take_hints(struct sched_core *core, struct core_job *job, const struct core_event *event,
	struct pawl_err *err)
{
	struct sched_hints **hints = &job->hints[event->type < SCHED_TYPES_MAX ? event->type : 0];
	bool decide_now;

	if (event->type >= SCHED_TYPES_MAX || !are_sane(event->hints)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"hints of job %llu: a value is not a number, or out of range",
			(unsigned long long)job->id);
	}
	decide_now = calls_for_decision(*hints, event->hints);
	if (!*hints) {
		*hints = FAULT_MEM("sched.core", malloc(sizeof(**hints)));
	}
	if (!*hints) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for hints of job %llu",
			(unsigned long long)job->id);
	}
	**hints = *event->hints;
	job->dirty = true;
	if (decide_now) {
		core_want_round(core, true);
	}
	return 0;
}

static int step_job(struct sched_core *core, const struct core_event *event, struct pawl_err *err)
{
	struct core_job *job = core_job_at(core, event->job);

	switch (event->kind) {
	case CORE_RUNS:
	case CORE_ENDED:
	case CORE_REFUSED:
		break;
	default:
		if (!job) {
			return pawl_err_set(err, PAWL_ENOENT, "there is no job %llu",
				(unsigned long long)event->job);
		}
		return event->kind == CORE_HINTS ? take_hints(core, job, event, err)
			: event->kind == CORE_CHANGE
			? core_job_change(core, job, &event->change, err)
			: core_job_command(core, job, event->kind, err);
	}
	if (!job || !core_event_is_new(core, event)) {
		return 0; /* the job is over; engines repeat themselves */
	}
	if (event->kind == CORE_RUNS) {
		core_job_runs(core, job, event->generation);
	} else if (event->kind == CORE_ENDED) {
		core_job_ended(core, job, event);
	} else if (event->generation == job->generation) {
		core_job_refused(core, job);
	}
	return 0;
}

/* ---- time ---- */

static bool is_live(const struct core_job *job)
{
	return !core_is_over(job) && job->state != CORE_PAUSED;
}

static bool any_live(const struct sched_core *core)
{
	bool live = false;

	for (uint32_t j = 0; j < core->jobs_n && !live; j++) {
		live = is_live(core->jobs[j]);
	}
	return live;
}

/* Removes the first node whose deadline has passed: one a step. If there are more, core_wake_ns is
 * now. */
static void remove_due_node(struct sched_core *core)
{
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		struct core_node *node = &core->nodes[n];

		if (node->state == CORE_NODE_GOING && node->deadline_ns <= core->now_ns) {
			core_node_gone(core, n);
			return;
		}
	}
}

/* Acts on what is due. While the core recovers, nothing counts as late: the answer may have come
 * long ago. */
static void handle_due(struct sched_core *core)
{
	bool live;

	for (uint32_t j = 0; j < core->jobs_n && !core->recovering; j++) {
		core_job_check_time(core, core->jobs[j]);
	}
	live = any_live(core);
	if (!core->recovering) {
		remove_due_node(core);
	}
	if (live && core->now_ns >= core->listed_ns + CORE_LIST_NS) {
		core_request_list(core);
	}
}

/* Returns the time from which the next decision may be made; INT64_MAX: none is needed. */
static int64_t decision_due_ns(const struct sched_core *core)
{
	if (core->recovering || !(core->options.pools_n > 0 || core->changed || any_live(core))) {
		return INT64_MAX;
	}
	if (core->decided_ns == INT64_MIN) {
		return core->now_ns;
	}
	return core->decided_ns + (core->urgent ? CORE_ROUND_MIN_NS : core->options.round_ns);
}

static int64_t sooner(int64_t a_ns, int64_t b_ns)
{
	return b_ns < a_ns ? b_ns : a_ns;
}

/* Returns the next deadline of a job or node; INT64_MAX: none. */
static int64_t deadline_ns(const struct sched_core *core)
{
	int64_t soonest_ns = INT64_MAX;

	for (uint32_t j = 0; j < core->jobs_n; j++) {
		const struct core_job *job = core->jobs[j];
		bool runs = job->state == CORE_RUNNING || job->state == CORE_RESCALING;

		if (job->due_ns > 0) {
			soonest_ns = sooner(soonest_ns, job->due_ns);
		}
		if (runs && job->request.time_limit_ns > 0) {
			soonest_ns = sooner(soonest_ns,
				core->now_ns + job->request.time_limit_ns - core_ran_ns(core, job));
		}
	}
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		if (core->nodes[n].state == CORE_NODE_GOING) {
			soonest_ns = sooner(soonest_ns, core->nodes[n].deadline_ns);
		}
	}
	return soonest_ns;
}

static void set_wake(struct sched_core *core)
{
	int64_t wake_ns = decision_due_ns(core);

	if (!core->recovering) {
		wake_ns = sooner(wake_ns, deadline_ns(core));
	}
	if (any_live(core)) {
		wake_ns = sooner(wake_ns, core->listed_ns + CORE_LIST_NS);
	}
	core->wake_ns = wake_ns == INT64_MAX ? 0 : wake_ns;
}

int64_t core_wake_ns(const struct sched_core *core)
{
	return core->wake_ns;
}

/* ---- the step ---- */

static int take_event(struct sched_core *core, const struct core_event *event, uint64_t *job,
	struct pawl_err *err)
{
	int rv = 0;

	switch (event->kind) {
	case CORE_TIMER:
		break;
	case CORE_SUBMIT:
		rv = submit(core, event->request, job, err);
		break;
	case CORE_LISTED:
		rv = core_reserve(core, 0, 0, 0, event->runs_n, err);
		if (rv == 0) {
			core_reconcile(core, event->runs, event->runs_n);
			core_want_round(core, true);
		}
		break;
	case CORE_FOUND:
		rv = core_job_found(core, event, err);
		*job = event->job;
		break;
	case CORE_IDS_USED:
		core_ids_used(core, event->job);
		break;
	case CORE_NODE_REPORTED:
	case CORE_NODE_NOTICE:
	case CORE_NODE_DRAIN:
	case CORE_NODE_RESUME:
	case CORE_NODE_GONE:
	case CORE_POOL_EXHAUSTED:
		rv = core_node_step(core, event, err);
		break;
	default:
		rv = step_job(core, event, err);
	}
	return rv;
}

int core_step(struct sched_core *core, const struct core_event *event, uint64_t *job,
	struct pawl_err *err)
{
	int rv;

	ASSERT(core->rows_visited == 0 && core->gone_n == 0);
	free_ended_jobs(core);
	core->updates_n = 0;
	core->log_text[0] = '\0';
	core->now_ns = event->now_ns > core->now_ns ? event->now_ns : core->now_ns;
	rv = take_event(core, event, job, err);
	if (rv != 0) {
		return rv;
	}
	handle_due(core);
	if (decision_due_ns(core) <= core->now_ns) {
		core_decide(core);
	}
	if (!core->recovering) {
		core_carry_out(core);
	}
	core_count_used(core);
	set_wake(core);
	return 0;
}

/* ---- state of the core ---- */

uint32_t core_jobs(const struct sched_core *core, const struct core_job *const **jobs)
{
	*jobs = (const struct core_job *const *)core->jobs;
	return core->jobs_n;
}

const struct core_job *core_job_find(const struct sched_core *core, uint64_t id)
{
	return core_job_at(core, id);
}

uint32_t core_nodes(const struct sched_core *core, const struct core_node **nodes)
{
	*nodes = core->nodes;
	return core->nodes_n;
}

const struct core_node *core_node_find(const struct sched_core *core, uint32_t id)
{
	uint32_t n = core_node_at(core, id);

	return n < core->nodes_n ? &core->nodes[n] : NULL;
}

uint32_t core_pool_requested(const struct sched_core *core, uint32_t pool)
{
	ASSERT(pool < core->options.pools_n);
	return core->pools[pool].requested;
}

uint64_t core_decisions(const struct sched_core *core, uint64_t *refused)
{
	*refused = core->refused;
	return core->decisions;
}

double core_gap(const struct sched_core *core)
{
	return core->gap;
}
