/* Jobs that run and of which nothing is stored: see CORE_FOUND. The core treats them as started and
 * not answered yet; the engine's list then completes what is known. */
#include "sched/core/core_impl.h"

#include "base/err.h"

#include <string.h>

static int refuse(const struct core_event *event, const char *why, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL, "running job %llu cannot be taken over: %s",
		(unsigned long long)event->job, why);
}

static bool is_listed_before(const struct core_found *found, uint32_t at)
{
	for (uint32_t i = 0; i < at; i++) {
		if (found->entries[i].node == found->entries[at].node) {
			return true;
		}
	}
	return false;
}

/* Checks that the job's nodes exist, are listed once each, and have room for it. job: the core's
 * entry of it; NULL: there is none. */
static int check_place(const struct sched_core *core, const struct core_event *event,
	const struct core_job *job, uint32_t most, struct pawl_err *err)
{
	const struct core_found *found = event->found;
	uint32_t replicas = 0;

	for (uint32_t i = 0; i < found->entries_n; i++) {
		const struct core_placement_entry *entry = &found->entries[i];
		uint32_t n = core_node_at(core, entry->node);
		const struct core_node *node = n < core->nodes_n ? &core->nodes[n] : NULL;
		uint32_t owned = job ? core_job_slots_on(job, entry->node) : 0;

		if (!node || node->state == CORE_NODE_LOST || entry->replicas == 0) {
			return refuse(event, "one of its nodes is unknown or lost", err);
		}
		if (is_listed_before(found, i)) {
			return refuse(event, "one of its nodes is listed twice", err);
		}
		if (entry->replicas > node->offer.slots - (node->used - owned)) {
			return refuse(event, "one of its nodes has too few slots", err);
		}
		replicas += entry->replicas;
	}
	return replicas > 0 && replicas <= most
		? 0
		: refuse(event, "it has no replicas, or more than its most", err);
}

/* Inserts the job in the order of ids. */
static void insert(struct sched_core *core, struct core_job *job)
{
	uint32_t at;

	core_add_job(core, job);
	at = core->jobs_n - 1;
	while (at > 0 && core->jobs[at - 1]->id > job->id) {
		core->jobs[at] = core->jobs[at - 1];
		at--;
	}
	core->jobs[at] = job;
	ASSERT(core_job_at(core, job->id) == job);
}

static int add(struct sched_core *core, const struct core_event *event, struct core_job **out,
	struct pawl_err *err)
{
	const struct core_found *found = event->found;
	struct core_job *job;
	int rv = check_place(core, event, NULL, found->request.most, err);

	if (rv == 0 && core->jobs_n >= CORE_JOBS_MAX) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "there are already %u jobs", CORE_JOBS_MAX);
	}
	rv = rv == 0 ? core_reserve(core, 1, 0, 0, 0, err) : rv;
	if (rv != 0) {
		return rv;
	}
	if (core_owner_of(core, found->request.owner) == UINT32_MAX &&
		core->owners_n >= CORE_OWNERS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%u users have jobs already",
			CORE_OWNERS_MAX);
	}
	job = core_job_make(&found->request, err);
	if (!job) {
		return PAWL_ENOMEM;
	}
	job->id = event->job;
	job->queue = core_queue_named(core, found->request.queue);
	/* A job whose queue is not configured any more is in the first one. */
	job->queue = job->queue == UINT32_MAX ? 0 : job->queue;
	job->submitted_ns = found->submitted_ns;
	job->restarts = found->restarts;
	job->counted_ns = core->now_ns;
	insert(core, job);
	*out = job;
	return 0;
}

int core_job_found(struct sched_core *core, const struct core_event *event, struct pawl_err *err)
{
	const struct core_found *found = event->found;
	struct core_job *job = core_job_at(core, event->job);
	int rv;

	if (!core->recovering || event->job == 0 || found->start_generation > event->generation) {
		return refuse(event, "the engine has already listed what runs", err);
	}
	if (job && job->generation >= event->generation) {
		return pawl_err_set(err, PAWL_EEXIST, "job %llu is known",
			(unsigned long long)job->id);
	}
	if (job) {
		rv = check_place(core, event, job, found->request.most, err);
		rv = rv == 0 ? core_job_grow(job, found->request.most, err) : rv;
	} else {
		rv = add(core, event, &job, err);
	}
	if (rv != 0) {
		return rv;
	}
	/* The run is newer than what is stored of its job, and so are its bounds. */
	job->request.least = found->request.least;
	job->request.most = found->request.most;
	job->request.priority = found->request.priority;
	core_job_count(core, job);
	placement_clear(&job->current);
	placement_clear(&job->old);
	for (uint32_t i = 0; i < found->entries_n; i++) {
		placement_add(&job->current, found->entries[i].node, found->entries[i].replicas);
	}
	placement_copy(&job->want, &job->current);
	ASSERT(job->current.replicas > 0 && job->current.replicas <= job->request.most);
	job->generation = event->generation;
	job->start_generation = found->start_generation;
	job->killed = false;
	core_job_enter(core, job, CORE_STARTING, CORE_WHY_DECIDED);
	core_ids_used(core, event->job);
	return 0;
}

void core_ids_used(struct sched_core *core, uint64_t job)
{
	core->jobs_ever = job > core->jobs_ever ? job : core->jobs_ever;
	core->dirty = true;
}
