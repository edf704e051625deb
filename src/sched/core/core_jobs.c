/* The states of one job: see core.h.
 *
 * Happy path: queued, starting once its slots are free (core_carry.c), running when the engine
 * reports so, done when it exits with 0. Every other end comes by core_job_ended, and from there
 * the job enters its next state. A job that has slots and is to lose them all always goes through
 * stopping. */
#include "sched/core/core_impl.h"

#define DOUBLE_MAX 32u /* doublings of a backoff, at most */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *core_state_name(enum core_state state)
{
	static const char *const names[] = {"queued", "starting", "running", "rescaling",
		"stopping", "paused", "done", "failed", "cancelled"};

	_Static_assert(COUNT(names) == CORE_CANCELLED + 1, "a name for each state");
	return state <= CORE_CANCELLED ? names[state] : "?";
}

const char *core_node_state_name(enum core_node_state state)
{
	static const char *const names[] = {"up", "drained", "going", "lost"};

	_Static_assert(COUNT(names) == CORE_NODE_LOST + 1, "a name for each state");
	return state <= CORE_NODE_LOST ? names[state] : "?";
}

const char *core_reason_text(enum core_reason reason)
{
	static const char *const texts[] = {
#define X(name, text) text,
		CORE_REASONS(X)
#undef X
	};

	return reason < COUNT(texts) ? texts[reason] : "?";
}

bool core_is_over(const struct core_job *job)
{
	return job->state >= CORE_DONE;
}

bool core_is_up(const struct core_job *job)
{
	return job->state == CORE_STARTING || job->state == CORE_RUNNING ||
		job->state == CORE_RESCALING;
}

bool core_may_have(const struct core_job *job, uint32_t replicas)
{
	return replicas >= job->request.least && replicas <= job->request.most;
}

uint32_t core_job_slots_on(const struct core_job *job, uint32_t node)
{
	uint32_t current = placement_replicas_on(&job->current, node);
	uint32_t old = placement_replicas_on(&job->old, node);

	return current > old ? current : old;
}

uint32_t core_job_slots(const struct core_job *job)
{
	uint32_t slots = job->current.replicas;

	for (uint32_t i = 0; i < job->old.n; i++) {
		uint32_t current = placement_replicas_on(&job->current, job->old.entries[i].node);

		slots += job->old.entries[i].replicas > current
			? job->old.entries[i].replicas - current
			: 0;
	}
	return slots;
}

double core_attained_s(const struct sched_core *core, const struct core_job *job)
{
	return job->attained_s +
		(double)core_job_slots(job) * (double)(core->now_ns - job->counted_ns) / 1e9;
}

int64_t core_ran_ns(const struct sched_core *core, const struct core_job *job)
{
	bool runs = job->state == CORE_RUNNING || job->state == CORE_RESCALING;

	return job->ran_ns + (runs ? core->now_ns - job->counted_ns : 0);
}

/* While the core recovers, time in which no scheduler ran (the machine was off, say) does not
 * count. */
void core_job_count(struct sched_core *core, struct core_job *job)
{
	int64_t from_ns = job->counted_ns > core->recovery_ns ? job->counted_ns : core->recovery_ns;

	ASSERT(from_ns <= core->now_ns); /* time does not go backward: core_step, core_restore */
	job->counted_ns += core->recovering ? core->now_ns - from_ns : 0;
	job->attained_s = core_attained_s(core, job);
	job->ran_ns = core_ran_ns(core, job);
	job->counted_ns = core->now_ns;
	job->dirty = true;
}

void core_job_enter(struct sched_core *core, struct core_job *job, enum core_state state,
	enum core_reason reason)
{
	core_job_count(core, job);
	job->state = state;
	job->reason = reason;
	job->since_ns = core->now_ns;
	job->wait = CORE_WHY_NONE;
	job->wait_for = 0;
	if (state == CORE_STARTING || state == CORE_RESCALING) {
		job->due_ns = core->now_ns + core->options.start_timeout_ns;
	} else if (state != CORE_QUEUED && state != CORE_STOPPING) {
		job->due_ns = 0;
	}
}

static void add_stop_update(struct sched_core *core, struct core_job *job, int64_t grace_ns)
{
	struct core_update *u = core_add_update(core, grace_ns > 0 ? CORE_DO_STOP : CORE_DO_KILL);

	ASSERT(job->state == CORE_STOPPING);
	u->job = job->id;
	u->generation = job->generation;
	u->grace_ns = grace_ns;
	job->killed = grace_ns <= 0;
	job->due_ns = core->now_ns + (grace_ns > 0 ? grace_ns : core->options.kill_interval_ns);
}

/* Returns the grace period, cut short so that it ends before any node of the job goes away. */
static int64_t bound_grace(const struct sched_core *core, const struct core_job *job,
	int64_t grace_ns)
{
	for (uint32_t i = 0; i < job->current.n; i++) {
		uint32_t n = core_node_at(core, job->current.entries[i].node);
		const struct core_node *node = n < core->nodes_n ? &core->nodes[n] : NULL;

		if (node && node->state == CORE_NODE_GOING &&
			node->deadline_ns - core->now_ns < grace_ns) {
			grace_ns = node->deadline_ns - core->now_ns;
		}
	}
	return grace_ns > 0 ? grace_ns : 0;
}

/* Drops this step's rescale of the job: the engine would carry it out with the placement that the
 * job has at the end of the step, which may be empty. */
static void drop_rescale(struct sched_core *core, const struct core_job *job)
{
	struct core_update *updates = core->workspace.updates;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < core->updates_n; i++) {
		if (updates[i].kind != CORE_DO_RESCALE || updates[i].job != job->id) {
			updates[kept++] = updates[i];
		}
	}
	core->updates_n = kept;
}

void core_job_stop(struct sched_core *core, struct core_job *job, enum core_after after,
	enum core_reason reason, int64_t grace_ns)
{
	ASSERT(core_is_up(job));
	drop_rescale(core, job);
	core_job_enter(core, job, CORE_STOPPING, reason);
	job->after = after;
	if (after != CORE_THEN_QUEUED) {
		placement_clear(&job->want);
	}
	add_stop_update(core, job, bound_grace(core, job, grace_ns));
}

static int64_t backoff_ns(const struct sched_core *core, const struct core_job *job)
{
	int64_t wait_ns = core->options.backoff_ns;

	for (uint32_t i = 1;
		i < job->backoff_count && i < DOUBLE_MAX && wait_ns < core->options.backoff_max_ns;
		i++) {
		wait_ns *= 2;
	}
	return wait_ns < core->options.backoff_max_ns ? wait_ns : core->options.backoff_max_ns;
}

void core_job_count_end(const struct sched_core *core, struct core_job *job)
{
	bool ran_long = core->now_ns - job->since_ns >= CORE_BACKOFF_RESET_NS;

	job->backoff_count = ran_long ? 1 : job->backoff_count + 1;
}

/* Queues the job again, after a wait; fails it after too many failures or refusals. */
static void wait_or_fail(struct sched_core *core, struct core_job *job, enum core_reason reason)
{
	bool enough = job->failures > job->request.retries || job->refused > CORE_REFUSED_MAX;

	ASSERT(job->current.n == 0); /* a job waits, or is over, only once it has no slots */
	placement_clear(&job->want);
	if (enough) {
		core_job_enter(core, job, CORE_FAILED, reason);
		return;
	}
	core_job_enter(core, job, CORE_QUEUED, reason);
	job->due_ns = core->now_ns + backoff_ns(core, job);
}

/* Handles the end of the job's last replica. */
static void end_stop(struct sched_core *core, struct core_job *job)
{
	enum core_reason reason = job->reason;

	core_job_count(core, job);
	placement_clear(&job->current);
	placement_clear(&job->old);
	job->killed = false;
	job->due_ns = 0;
	core_want_round(core, true);
	switch (job->after) {
	case CORE_THEN_QUEUED:
		core_job_enter(core, job, CORE_QUEUED, reason);
		break;
	case CORE_THEN_BACKOFF:
		wait_or_fail(core, job, reason);
		break;
	case CORE_THEN_PAUSED:
		core_job_enter(core, job, CORE_PAUSED, reason);
		break;
	case CORE_THEN_FAILED:
		core_job_enter(core, job, CORE_FAILED, reason);
		break;
	case CORE_THEN_CANCELLED:
		core_job_enter(core, job, CORE_CANCELLED, reason);
	}
}

void core_job_runs(struct sched_core *core, struct core_job *job, uint64_t generation)
{
	bool awaited = job->state == CORE_STARTING || job->state == CORE_RESCALING;

	if (!awaited || generation != job->generation) {
		return; /* about a generation that the core has since stopped or changed */
	}
	if (job->state == CORE_STARTING) {
		job->refused = 0;
	}
	core_job_enter(core, job, CORE_RUNNING, CORE_WHY_DECIDED);
	placement_clear(&job->old);
	core_want_round(core, false);
}

/* Handles an exit of the job by itself with a code other than 0. */
static void fail(struct sched_core *core, struct core_job *job, int exit_code)
{
	job->exit_code = exit_code;
	job->failures++;
	core_job_count_end(core, job);
	wait_or_fail(core, job, CORE_WHY_EXIT);
}

bool core_event_is_new(const struct sched_core *core, const struct core_event *event)
{
	const struct core_job *job;

	if (event->kind != CORE_ENDED) {
		return true;
	}
	job = core_job_at(core, event->job);
	return job && (core_is_up(job) || job->state == CORE_STOPPING) &&
		event->generation >= job->start_generation;
}

void core_job_ended(struct sched_core *core, struct core_job *job, const struct core_event *event)
{
	bool stopping = job->state == CORE_STOPPING;
	enum core_after after = job->after;

	ASSERT((core_is_up(job) || stopping) && event->generation >= job->start_generation);
	if (event->end_cause == CORE_END_EXITED && event->exit_code == 0) {
		/* The user's wishes no longer matter: the state becomes done below. */
		job->after = CORE_THEN_CANCELLED;
		end_stop(core, job);
		placement_clear(&job->want);
		core_job_enter(core, job, CORE_DONE, CORE_WHY_EXIT);
		job->exit_code = 0;
		return;
	}
	if (stopping) {
		job->after = after;
		end_stop(core, job);
		return;
	}
	core_job_count(core, job);
	placement_clear(&job->current);
	placement_clear(&job->old);
	job->due_ns = 0;
	core_want_round(core, true);
	if (event->end_cause == CORE_END_EXITED) {
		fail(core, job, event->exit_code);
	} else if (event->end_cause == CORE_END_NODE_LOST) {
		core_job_enter(core, job, CORE_QUEUED, CORE_WHY_NODE);
	} else {
		/* Never started: counts against CORE_REFUSED_MAX. */
		job->refused += job->state == CORE_STARTING;
		core_job_count_end(core, job);
		wait_or_fail(core, job, CORE_WHY_GONE);
	}
}

void core_job_refused(struct sched_core *core, struct core_job *job)
{
	if (job->state == CORE_STARTING) {
		core_job_count(core, job);
		placement_clear(&job->current);
		job->refused++;
		job->backoff_count++;
		job->due_ns = 0;
		wait_or_fail(core, job, CORE_WHY_REFUSED);
		core_want_round(core, true);
		if (core->now_ns >= core->listed_ns + core->options.backoff_ns) {
			core_request_list(core); /* the core's picture of the nodes may be wrong */
		}
	} else if (job->state == CORE_RESCALING) {
		job->needs_restart = true;
		job->restarts--; /* no change was made; the start that follows is one */
		core_job_stop(core, job, CORE_THEN_QUEUED, CORE_WHY_MOVED, job->request.grace_ns);
	}
}

/* Acts on the job's time limit and due_ns. */
void core_job_check_time(struct sched_core *core, struct core_job *job)
{
	bool limited = job->request.time_limit_ns > 0;

	if ((job->state == CORE_RUNNING || job->state == CORE_RESCALING) && limited &&
		core_ran_ns(core, job) >= job->request.time_limit_ns) {
		core_job_stop(core, job, CORE_THEN_FAILED, CORE_WHY_TIME, job->request.grace_ns);
		return;
	}
	if (job->due_ns == 0 || job->due_ns > core->now_ns) {
		return;
	}
	if (job->state == CORE_QUEUED) {
		job->due_ns = 0;
		job->dirty = true;
		core_want_round(core, true);
	} else if (job->state == CORE_STARTING || job->state == CORE_RESCALING) {
		int64_t grace_ns = job->state == CORE_RESCALING ? job->request.grace_ns : 0;

		job->refused++;
		job->backoff_count++;
		core_job_stop(core, job, CORE_THEN_BACKOFF, CORE_WHY_SILENT, grace_ns);
	} else if (job->state == CORE_STOPPING) {
		add_stop_update(core, job, 0);
		job->dirty = true;
	}
}

static int refuse(const struct core_job *job, const char *what, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL, "job %llu is %s: it cannot be %s",
		(unsigned long long)job->id, core_state_name(job->state), what);
}

static void pause_or_cancel(struct sched_core *core, struct core_job *job, enum core_after after)
{
	enum core_state state = after == CORE_THEN_PAUSED ? CORE_PAUSED : CORE_CANCELLED;

	placement_clear(&job->want);
	core_want_round(core, false);
	if (core_is_up(job)) {
		core_job_stop(core, job, after, CORE_WHY_USER, job->request.grace_ns);
	} else if (job->state == CORE_STOPPING) {
		job->after = after;
		job->reason = CORE_WHY_USER;
		job->dirty = true;
	} else {
		core_job_enter(core, job, state, CORE_WHY_USER);
		job->due_ns = 0;
	}
}

int core_job_command(struct sched_core *core, struct core_job *job, enum core_event_kind kind,
	struct pawl_err *err)
{
	bool stopping = job->state == CORE_STOPPING;
	bool ending =
		stopping && (job->after == CORE_THEN_CANCELLED || job->after == CORE_THEN_FAILED);

	ASSERT(kind == CORE_CANCEL || kind == CORE_PAUSE || kind == CORE_RESUME);
	if (kind == CORE_CANCEL) {
		if (core_is_over(job)) {
			return refuse(job, "cancelled", err);
		}
		pause_or_cancel(core, job, CORE_THEN_CANCELLED);
	} else if (kind == CORE_PAUSE) {
		if (core_is_over(job) || ending) {
			return refuse(job, "paused", err);
		}
		pause_or_cancel(core, job, CORE_THEN_PAUSED);
	} else if (stopping && job->after == CORE_THEN_PAUSED) {
		job->after = CORE_THEN_QUEUED;
		job->dirty = true;
	} else if (job->state == CORE_PAUSED) {
		core_job_enter(core, job, CORE_QUEUED, CORE_WHY_USER);
		job->due_ns = 0;
		core_want_round(core, true);
	} else {
		return refuse(job, "resumed", err);
	}
	return 0;
}

bool core_job_can_rescale(const struct core_job *job)
{
	return job->state == CORE_RUNNING && job->request.in_place && !job->needs_restart;
}

/* Rescales the job to what it has left; the engine no longer counts on the rest. */
static void go_on_with_rest(struct sched_core *core, struct core_job *job, enum core_reason reason)
{
	struct core_update *u;

	ASSERT(core_job_can_rescale(job) && job->current.replicas >= job->request.least);
	job->generation++;
	core_job_enter(core, job, CORE_RESCALING, reason);
	placement_copy(&job->want, &job->current);
	u = core_add_update(core, CORE_DO_RESCALE);
	u->job = job->id;
	u->generation = job->generation;
	u->place = &job->current;
	job->restarts++;
}

void core_job_node_lost(struct sched_core *core, struct core_job *job, uint32_t node)
{
	bool wanted = placement_remove(&job->want, node, UINT32_MAX) > 0;
	uint32_t owned = core_job_slots_on(job, node);
	bool needed;

	if (wanted) {
		job->dirty = true;
		if (job->want.replicas < job->request.least) {
			placement_clear(&job->want);
		}
	}
	if (owned == 0) {
		return;
	}
	core_job_count(core, job);
	needed = placement_remove(&job->current, node, UINT32_MAX) > 0;
	placement_remove(&job->old, node, UINT32_MAX);
	if (core_job_can_rescale(job) && job->current.replicas >= job->request.least) {
		go_on_with_rest(core, job, CORE_WHY_NODE);
	} else if (job->state == CORE_RESCALING && !needed &&
		job->current.replicas >= job->request.least) {
		/* The job was to leave that node: the engine answers once it has left. */
		job->dirty = true;
	} else if (core_is_up(job)) {
		/* Even with no node left, the job is over only when the engine reports it: a start
		 * may be under way, on a node that has come back. Replicas that are left may
		 * save. */
		bool saves = job->state == CORE_RESCALING && job->current.n + job->old.n > 0;

		core_job_stop(core, job, CORE_THEN_QUEUED, CORE_WHY_NODE,
			saves ? job->request.grace_ns : 0);
	}
	ASSERT(core_job_slots_on(job, node) == 0 && placement_replicas_on(&job->want, node) == 0);
}

/* Keeps at most so many of the placement's replicas on a node. */
static void keep_on(struct core_placement *place, uint32_t node, uint32_t keep)
{
	uint32_t on = placement_replicas_on(place, node);

	placement_remove(place, node, on > keep ? on - keep : 0);
}

void core_job_slots_lost(struct sched_core *core, struct core_job *job, uint32_t node,
	uint32_t count)
{
	uint32_t owned = core_job_slots_on(job, node);
	uint32_t replicas = job->current.replicas;

	ASSERT(count > 0 && count <= owned);
	core_job_count(core, job);
	keep_on(&job->current, node, owned - count);
	keep_on(&job->old, node, owned - count);
	ASSERT(core_job_slots_on(job, node) == owned - count);
	if (job->state == CORE_STOPPING || job->current.replicas == replicas) {
		return; /* the job was to leave these slots */
	}
	if (core_job_can_rescale(job) && job->current.replicas >= job->request.least) {
		go_on_with_rest(core, job, CORE_WHY_FEWER_SLOTS);
	} else {
		core_job_stop(core, job, CORE_THEN_QUEUED, CORE_WHY_FEWER_SLOTS,
			job->request.grace_ns);
	}
}
