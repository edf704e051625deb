/* From the placements that jobs are to have to the placements that they have.
 *
 * Happy path: a job that is to have less releases it, by a rescale in place or by a stop. A job
 * that is to have more gets it once it is free. If all wait for each other in a cycle, one job
 * makes a partial move; if none can, the first is stopped. That breaks the cycle. Each generation
 * is sent to the engine once; after a restart, or if messages were lost, again. */
#include "sched/core/core_impl.h"

/* Returns what is left of max; 0 is no limit. More than max may be in use, if it was lowered. */
static uint32_t left_of(uint32_t max, uint32_t used)
{
	return max == 0 ? UINT32_MAX : max > used ? max - used : 0;
}

/* Returns how many more slots the quotas let the job take. */
static uint32_t find_quota(struct sched_core *core, const struct core_job *job)
{
	uint32_t queue =
		left_of(core->options.queues[job->queue].slots_max, core->queue_used[job->queue]);
	uint32_t of = core_owner_of(core, job->request.owner);
	uint32_t owner;

	ASSERT(of < core->owners_n);
	owner = left_of(core->options.owner_slots_max, core->owners[of].used);
	return queue < owner ? queue : owner;
}

/* Returns the replicas that the job wants on a node beyond those that it has there. */
static uint32_t find_more(const struct core_job *job, const struct core_placement_entry *entry)
{
	uint32_t owned = core_job_slots_on(job, entry->node);

	return entry->replicas > owned ? entry->replicas - owned : 0;
}

/* Whether all that the job wants beyond what it has is free, on nodes that are up, and within
 * quotas. */
static bool fits(struct sched_core *core, const struct core_job *job)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < job->want.n; i++) {
		const struct core_placement_entry *entry = &job->want.entries[i];
		uint32_t n = core_node_at(core, entry->node);
		uint32_t more = find_more(job, entry);

		if (n == core->nodes_n || core->nodes[n].used + more > core->nodes[n].offer.slots ||
			(more > 0 && core->nodes[n].state != CORE_NODE_UP)) {
			return false;
		}
		sum += more;
	}
	return sum <= find_quota(core, job);
}

/* Whether the job only releases replicas: on no node it wants more than it has there. */
static bool only_gives(const struct core_job *job)
{
	for (uint32_t i = 0; i < job->want.n; i++) {
		if (job->want.entries[i].replicas >
			placement_replicas_on(&job->current, job->want.entries[i].node)) {
			return false;
		}
	}
	return true;
}

static void take_slots(struct sched_core *core, const struct core_job *job,
	const struct core_placement *to)
{
	for (uint32_t i = 0; i < to->n; i++) {
		const struct core_placement_entry *entry = &to->entries[i];
		uint32_t more = find_more(job, entry);
		uint32_t n = core_node_at(core, entry->node);
		struct core_node *node = &core->nodes[n];

		ASSERT(n < core->nodes_n);
		node->used += more;
		core_charge_quota(core, job, more);
		/* A slot is free, and on a node that is up, before a job gets it. */
		ASSERT(more == 0 ||
			(node->state == CORE_NODE_UP && node->used <= node->offer.slots));
	}
}

static void add_place_update(struct sched_core *core, const struct core_job *job,
	enum core_update_kind kind)
{
	struct core_update *u = core_add_update(core, kind);

	ASSERT(core_is_up(job) && job->start_generation <= job->generation);
	u->job = job->id;
	u->generation = job->generation;
	u->place = &job->current;
}

static void start(struct sched_core *core, struct core_job *job)
{
	ASSERT(job->state == CORE_QUEUED && job->want.n > 0);
	take_slots(core, job, &job->want);
	job->queued_since_ns = core_queued_since_ns(job);
	core_job_enter(core, job, CORE_STARTING, CORE_WHY_DECIDED);
	job->restarts += job->start_generation > 0;
	job->needs_restart = false;
	job->generation++;
	job->start_generation = job->generation;
	placement_copy(&job->current, &job->want);
	add_place_update(core, job, CORE_DO_START);
}

static void rescale(struct sched_core *core, struct core_job *job, const struct core_placement *to)
{
	ASSERT(job->state == CORE_RUNNING && to != &job->current);
	take_slots(core, job, to);
	core_job_enter(core, job, CORE_RESCALING, CORE_WHY_DECIDED);
	job->restarts++;
	job->generation++;
	placement_copy(&job->old, &job->current);
	placement_copy(&job->current, to);
	add_place_update(core, job, CORE_DO_RESCALE);
}

static bool in_place(const struct core_job *job)
{
	return job->request.in_place && !job->needs_restart && job->want.n > 0;
}

/* Makes the job release replicas: in place, if it is to have fewer, else by a restart. Returns
 * false if there is nothing to do. */
static bool give_up(struct sched_core *core, struct core_job *job)
{
	bool leaves = job->want.n == 0;

	if (leaves && core_is_up(job) && !core_has_turn(core, job)) {
		job->queued_since_ns = 0; /* the turn is over: the wait starts anew */
	}
	if (job->state == CORE_STARTING && leaves) {
		core_job_stop(core, job, CORE_THEN_QUEUED, CORE_WHY_PREEMPTED,
			job->request.grace_ns);
		return true;
	}
	if (job->state != CORE_RUNNING || placement_equal(&job->want, &job->current)) {
		return false;
	}
	if (!in_place(job)) {
		core_job_stop(core, job, CORE_THEN_QUEUED,
			leaves ? CORE_WHY_PREEMPTED : CORE_WHY_MOVED, job->request.grace_ns);
		return true;
	}
	if (only_gives(job)) {
		rescale(core, job, &job->want);
		return true;
	}
	return false;
}

/* Finds a partial move of the job, into next: as much of what it wants as is free; or if that is
 * too little, only its least of what it has. Returns false if there is no such move. */
static bool find_step(struct sched_core *core, struct core_job *job)
{
	uint32_t quota = find_quota(core, job);
	const struct core_placement *at = &job->current;

	placement_clear(&job->scratch->next);
	for (uint32_t i = 0; i < job->want.n; i++) {
		const struct core_placement_entry *entry = &job->want.entries[i];
		uint32_t n = core_node_at(core, entry->node);
		uint32_t owned = core_job_slots_on(job, entry->node);
		uint32_t more = find_more(job, entry);
		bool up = n < core->nodes_n && core->nodes[n].state == CORE_NODE_UP &&
			core->nodes[n].used < core->nodes[n].offer.slots;
		uint32_t room = up ? core->nodes[n].offer.slots - core->nodes[n].used : 0;

		more = more < room ? more : room;
		more = more < quota ? more : quota;
		quota -= more;
		owned = owned < entry->replicas ? owned : entry->replicas;
		placement_add(&job->scratch->next, entry->node, owned + more);
	}
	if (job->scratch->next.replicas < job->request.least) {
		placement_clear(&job->scratch->next);
		for (uint32_t i = 0; i < at->n; i++) {
			uint32_t lacks = job->request.least - job->scratch->next.replicas;
			uint32_t has = at->entries[i].replicas;

			placement_add(&job->scratch->next, at->entries[i].node,
				has < lacks ? has : lacks);
		}
	}
	return job->scratch->next.replicas >= job->request.least &&
		!placement_equal(&job->scratch->next, at);
}

/*
 * Breaks a cycle, in which all jobs that want to move wait for each other. A job whose replicas
 * change while it runs makes room by a partial move. This ends, since each job releases what it has
 * at most once. From then on it has only what it wants, and more of it each time. Returns false if
 * there is no such job.
 */
static bool break_cycle(struct sched_core *core)
{
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		struct core_job *job = core->jobs[j];

		if (job->state == CORE_RUNNING && !placement_equal(&job->want, &job->current) &&
			in_place(job) && find_step(core, job)) {
			rescale(core, job, &job->scratch->next);
			return true;
		}
	}
	return false;
}

void core_carry_out(struct sched_core *core)
{
	struct core_job *stuck = NULL;
	bool moving = false;

	ASSERT(!core->recovering); /* the engine has listed the jobs that it runs */
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		struct core_job *job = core->jobs[j];

		moving = give_up(core, job) || moving || job->state == CORE_STARTING ||
			job->state == CORE_RESCALING || job->state == CORE_STOPPING;
	}
	core_count_used(core);
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		struct core_job *job = core->jobs[j];
		/* Bounds that have changed wait for the next decision. */
		bool starts = job->state == CORE_QUEUED && job->want.n > 0 &&
			core_may_have(job, job->want.replicas);
		bool grows =
			job->state == CORE_RUNNING && !placement_equal(&job->want, &job->current);

		if (!starts && !grows) {
			continue;
		}
		if (!fits(core, job)) {
			stuck = grows && !stuck ? job : stuck;
			job->wait = CORE_WHY_BUSY;
		} else if (starts) {
			start(core, job);
			moving = true;
		} else {
			rescale(core, job, &job->want);
			moving = true;
		}
	}
	if (stuck && !moving && !break_cycle(core)) {
		core_job_stop(core, stuck, CORE_THEN_QUEUED, CORE_WHY_MOVED,
			stuck->request.grace_ns);
	}
}

/* ---- the engine's list ---- */

/* Finds each job's entry in the list: the first that belongs to its newest start. Kills what
 * belongs to no job. */
static void match_runs(struct sched_core *core, const struct core_run *runs, uint32_t runs_n)
{
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		core->jobs[j]->scratch->run = NULL;
	}
	for (uint32_t i = 0; i < runs_n; i++) {
		struct core_job *job = core_job_at(core, runs[i].job);
		bool has_slots = job && (core_is_up(job) || job->state == CORE_STOPPING);
		bool newest = job && runs[i].generation >= job->start_generation;

		if (newest && !job->scratch->run) {
			job->scratch->run = &runs[i];
		}
		if (!has_slots || !newest) {
			struct core_update *u = core_add_update(core, CORE_DO_KILL);

			u->job = runs[i].job;
			u->generation = runs[i].generation;
		}
	}
}

/* Kills a job that the list should have and has not: no replica of it is left, or comes later. */
static void kill_missing(struct sched_core *core, struct core_job *job)
{
	core_job_count_end(core, job);
	core_job_stop(core, job, CORE_THEN_BACKOFF, CORE_WHY_GONE, 0);
}

static void reconcile_job(struct sched_core *core, struct core_job *job, const struct core_run *run)
{
	bool there = run && run->generation == job->generation && run->running;
	int64_t left_ns = job->due_ns - core->now_ns;
	struct core_update *u;

	if (job->state == CORE_STOPPING) {
		u = core_add_update(core,
			job->killed || left_ns <= 0 ? CORE_DO_KILL : CORE_DO_STOP);
		u->job = job->id;
		u->generation = job->generation;
		u->grace_ns = left_ns > 0 ? left_ns : 0;
	} else if (!core_is_up(job)) {
		return;
	} else if (!run && job->state != CORE_STARTING) {
		kill_missing(core, job);
	} else if (there) {
		core_job_runs(core, job, job->generation);
	} else if (job->state != CORE_RUNNING) {
		if (core->recovering) { /* the answer may have been due while no scheduler ran */
			job->due_ns = core->now_ns + core->options.start_timeout_ns;
			job->dirty = true;
		}
		add_place_update(core, job,
			job->state == CORE_STARTING ? CORE_DO_START : CORE_DO_RESCALE);
	}
}

void core_reconcile(struct sched_core *core, const struct core_run *runs, uint32_t runs_n)
{
	match_runs(core, runs, runs_n);
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		struct core_job *job = core->jobs[j];
		const struct core_run *run = job->scratch->run;
		bool has_slots = core_is_up(job) || job->state == CORE_STOPPING;

		if (core->recovering && has_slots && !(run && run->running)) {
			core_job_count(core, job); /* the job may have ended long ago */
		}
		/* A job that began after the request for the list may be missing from it. */
		if (job->since_ns < core->listed_ns || core->recovering) {
			reconcile_job(core, job, run);
		}
	}
	if (core->recovering) {
		core_pools_request_again(core);
		core->recovery_ns = core->now_ns;
	}
	core->recovering = false;
}
