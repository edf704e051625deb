/* Decides when to restart, wait, stop and give up: see run_policy.h. */
#include "launch/nodes/run_policy.h"

#include "base/assert.h"

static unsigned work(struct run_policy *p, int64_t now_ns)
{
	ASSERT(p->alive == 0 && p->workers > 0);
	p->phase = RUN_WORKING;
	p->alive = p->workers;
	p->retiring = 0;
	p->finishing = false;
	p->started_ns = now_ns;
	p->timer_ns = 0;
	p->status = 0;
	return RUN_DO_START;
}

static unsigned start(struct run_policy *p, int64_t now_ns)
{
	if (!p->gathers) {
		return work(p, now_ns);
	}
	p->phase = RUN_GATHERING;
	p->timer_ns = now_ns + p->gather_max_ns;
	return RUN_DO_GATHER;
}

static unsigned finish(struct run_policy *p)
{
	p->phase = RUN_OVER;
	p->timer_ns = 0;
	return RUN_DO_EXIT;
}

static unsigned drain(struct run_policy *p, int64_t now_ns)
{
	p->phase = RUN_DRAINING;
	p->timer_ns = p->signal != 0 || p->noticed ? p->deadline_ns : now_ns + p->times.drain_ns;
	return RUN_DO_DRAIN;
}

static int64_t backoff_ns(const struct run_policy *p)
{
	int64_t wait_ns = p->times.backoff_ns;

	if (p->fast_failures < RUN_FAST_MAX) {
		return 0;
	}
	for (uint32_t i = RUN_FAST_MAX; i < p->fast_failures && wait_ns < p->times.backoff_max_ns;
		i++) {
		wait_ns *= 2;
	}
	return wait_ns;
}

/* Decides what follows once the whole group is dead. */
static unsigned group_ended(struct run_policy *p, int64_t now_ns)
{
	int64_t wait_ns = backoff_ns(p);

	ASSERT(p->alive == 0);
	if (!p->will_restart) {
		return drain(p, now_ns);
	}
	p->restarts += p->counted;
	if (p->departing) {
		return drain(p, now_ns);
	}
	if (wait_ns == 0) {
		return start(p, now_ns);
	}
	p->phase = RUN_WAITING;
	p->timer_ns = now_ns + wait_ns;
	return 0;
}

/* All is durable, or time is up: the nodes that depart can do so, and the others go on. */
static unsigned gather_anew(struct run_policy *p, int64_t now_ns)
{
	ASSERT(p->phase == RUN_DRAINING && p->gathers);
	p->departing = false;
	p->noticed = false;
	return start(p, now_ns);
}

/* Whether the others survive the end of a worker. */
static bool is_survived(const struct run_exit *exit)
{
	return exit->verdict == RUN_VERDICT_GO_ON || exit->verdict == RUN_VERDICT_FINISHING;
}

static void count_fast_failure(struct run_policy *p, const struct run_event *event)
{
	bool progress = event->commits != p->commits;
	bool fast = event->now_ns - p->started_ns < p->times.fast_ns;

	p->fast_failures = fast && !progress ? p->fast_failures + 1 : 0;
	p->commits = event->commits;
}

/* Acts on the first failure of a worker in an attempt. */
static unsigned fail(struct run_policy *p, const struct run_event *event)
{
	ASSERT(p->phase == RUN_WORKING);
	count_fast_failure(p, event);
	/* From an elastic group, RUN_EXIT_LEFT would mean that all is well and others go on. */
	p->status = p->min_workers > 0 && event->exit.status == RUN_EXIT_LEFT ? RUN_EXIT_FAILURE
									      : event->exit.status;
	p->will_restart = (!p->joint || event->exit.verdict == RUN_VERDICT_SOLE_LAUNCHER) &&
		!p->quits && event->exit.status != RUN_EXIT_USER && p->restarts < p->max_restarts;
	p->counted = true;
	p->phase = RUN_ENDING;
	return p->alive > 0 ? RUN_DO_KILL : group_ended(p, event->now_ns);
}

/* ---- more and fewer ---- */

/* Adds workers up to p->workers. */
static unsigned add(struct run_policy *p)
{
	uint32_t stay = p->alive - p->retiring;

	ASSERT(p->phase == RUN_WORKING && p->retiring <= p->alive);
	p->timer_ns = 0;
	if (p->finishing || p->quits || stay >= p->workers) {
		return 0;
	}
	p->change = p->workers - stay;
	p->alive += p->change;
	return RUN_DO_ADD;
}

/* Adds workers as add does, but after a wait if the workers added before failed fast. */
static unsigned refill(struct run_policy *p, int64_t now_ns)
{
	int64_t wait_ns = backoff_ns(p);

	if (wait_ns == 0) {
		return add(p);
	}
	p->timer_ns = now_ns + wait_ns;
	return 0;
}

/* Acts on the failure of a worker that the others survive. */
static unsigned replace(struct run_policy *p, const struct run_event *event)
{
	bool progress = event->commits != p->commits;
	uint32_t stay = p->alive - p->retiring;

	ASSERT(p->phase == RUN_WORKING && p->retiring <= p->alive);
	p->fast_failures =
		event->exit.lasted_ns < p->times.fast_ns && !progress ? p->fast_failures + 1 : 0;
	p->commits = event->commits;
	if (p->fast_failures > p->max_restarts && stay >= p->min_workers) {
		p->workers = stay;
		p->fast_failures = 0;
		p->timer_ns = 0;
		return RUN_DO_SHRINK;
	}
	if (p->fast_failures > p->max_restarts) {
		return fail(p, event);
	}
	return refill(p, event->now_ns);
}

bool run_policy_can_scale(const struct run_policy *p)
{
	return p->min_workers > 0 && p->signal == 0 && !p->finishing && !p->quits &&
		p->phase != RUN_DRAINING && p->phase != RUN_OVER;
}

static unsigned scaled(struct run_policy *p, const struct run_event *event)
{
	uint32_t stay = p->alive - p->retiring;

	ASSERT(run_policy_can_scale(p) && event->workers > 0);
	p->workers = event->workers;
	p->fast_failures = 0;
	if (p->phase != RUN_WORKING) {
		return 0; /* The next start uses the new number. */
	}
	if (!event->survivable) {
		if (p->alive == event->workers || p->alive == 0) {
			return 0;
		}
		p->phase = RUN_LEAVING;
		p->will_restart = true;
		p->counted = false;
		p->deadline_ns = event->now_ns + p->grace_ns;
		p->timer_ns = p->deadline_ns;
		return RUN_DO_NOTICE;
	}
	if (stay <= event->workers) {
		return refill(p, event->now_ns);
	}
	p->timer_ns = 0;
	p->change = stay - event->workers;
	p->retiring += p->change;
	return RUN_DO_RETIRE;
}

/* Returns the exit status of a joint group that has left the others. */
static int left_status(const struct run_policy *p)
{
	return p->noticed && p->preempted_status != 0 ? p->preempted_status : RUN_EXIT_LEFT;
}

static unsigned quit(struct run_policy *p, int64_t now_ns)
{
	ASSERT(p->joint);
	if (p->finishing || p->quits) {
		return 0;
	}
	if (p->phase == RUN_WAITING) {
		p->status = left_status(p);
		return drain(p, now_ns);
	}
	p->will_restart =
		p->will_restart && p->phase != RUN_ENDING; /* the group is not started again */
	if (p->phase != RUN_WORKING) {
		return 0;
	}
	p->quits = true;
	p->timer_ns = 0;
	p->change = p->alive - p->retiring;
	p->retiring = p->alive;
	if (p->alive == 0) { /* the next worker waits to be added */
		p->status = left_status(p);
		return drain(p, now_ns);
	}
	return p->change > 0 ? RUN_DO_RETIRE : 0;
}

/* ---- ends of workers ---- */

static int64_t reserve_ns(const struct run_policy *p, int64_t grace_ns)
{
	return grace_ns / 2 < p->times.reserve_ns ? grace_ns / 2 : p->times.reserve_ns;
}

/* The job is to stop, as a signal to another launcher demands. */
static unsigned stop(struct run_policy *p, int64_t now_ns)
{
	int64_t left_ns = p->deadline_ns > now_ns ? p->deadline_ns - now_ns : 0;
	int64_t grace_ns = p->noticed && left_ns < p->grace_ns ? left_ns : p->grace_ns;

	ASSERT(p->phase == RUN_WORKING && p->joint);
	p->status = RUN_EXIT_STOPPED;
	p->finishing = true;
	p->will_restart = false;
	if (p->alive == 0) {
		return drain(p, now_ns);
	}
	p->phase = RUN_LEAVING;
	p->deadline_ns = now_ns + grace_ns;
	p->timer_ns = p->deadline_ns - reserve_ns(p, grace_ns);
	return RUN_DO_NOTICE;
}

/* Acts on the end of a worker of a joint group that works. */
static unsigned joint_exited(struct run_policy *p, const struct run_event *event)
{
	const struct run_exit *exit = &event->exit;
	bool survived = is_survived(exit);
	bool left = exit->retired && (exit->status == RUN_EXIT_LEFT || survived);
	bool failed = exit->status != 0 && !left;
	bool permanent = exit->status == RUN_EXIT_USER;

	p->finishing = p->finishing || exit->verdict == RUN_VERDICT_FINISHING;
	permanent = permanent || (p->finishing && p->alive == 0);
	if (exit->verdict == RUN_VERDICT_STOPPING) {
		return stop(p, event->now_ns);
	}
	if (failed && (permanent || !survived)) {
		return fail(p, event);
	}
	if (failed && !p->quits) {
		return replace(p, event);
	}
	p->finishing = p->finishing || exit->status == 0;
	if (p->alive > 0) {
		return 0;
	}
	if (!p->finishing && !p->quits) {
		return p->timer_ns != 0 ? 0 : add(p); /* The other workers were told to leave. */
	}
	p->status = p->finishing ? 0 : left_status(p);
	return drain(p, event->now_ns);
}

/* Acts on the end of a worker. A worker that was told to leave may have left, or failed meanwhile.
 * It may also have come to the end of the job, if the others were lost. A worker that was stopped,
 * and that the others went on without, fails as it wakes, even if the others have finished. */
static unsigned worker_exited(struct run_policy *p, const struct run_event *event)
{
	const struct run_exit *exit = &event->exit;
	bool survived = is_survived(exit);
	bool behind = exit->outside && p->finishing;
	bool failed = exit->status != 0 && !exit->retired && !behind;

	ASSERT(p->alive > 0);
	p->alive--;
	if (p->retiring > 0 && exit->retired) {
		p->retiring--;
	}
	/* All were told to leave, and one of them had ended before that reached it. */
	p->retiring = p->retiring < p->alive ? p->retiring : p->alive;
	if (p->phase == RUN_WORKING && p->joint) {
		return joint_exited(p, event);
	}
	if (p->phase == RUN_WORKING && failed) {
		return p->min_workers > 0 && survived && p->alive > p->retiring &&
				exit->status != RUN_EXIT_USER
			? replace(p, event)
			: fail(p, event);
	}
	if (p->phase == RUN_WORKING && exit->status != 0 && !p->finishing && !survived) {
		return fail(p, event); /* Only workers are left that were to join. */
	}
	p->finishing = p->finishing || (p->phase == RUN_WORKING && exit->status == 0);
	if (p->alive > 0) {
		return 0;
	}
	if (p->phase == RUN_LEAVING && p->will_restart) {
		return group_ended(p, event->now_ns);
	}
	return p->phase == RUN_ENDING ? group_ended(p, event->now_ns) : drain(p, event->now_ns);
}

/* Acts on the loss of a node. The job is not at fault: the restart does not count against
 * max_restarts. */
static unsigned node_lost(struct run_policy *p, const struct run_event *event)
{
	ASSERT(event->workers <= p->alive);
	p->alive -= event->workers;
	if (p->phase == RUN_WORKING) {
		count_fast_failure(p, event);
		p->will_restart = true;
		p->counted = false;
		p->phase = RUN_ENDING;
		return p->alive > 0 ? RUN_DO_KILL : group_ended(p, event->now_ns);
	}
	if (p->alive == 0 && p->phase == RUN_ENDING) {
		return group_ended(p, event->now_ns);
	}
	if (p->alive == 0 && p->phase == RUN_LEAVING) {
		return p->will_restart ? group_ended(p, event->now_ns) : drain(p, event->now_ns);
	}
	return 0;
}

/* Returns the exit status of a job that a signal has stopped. */
static int stop_status(const struct run_policy *p, int signal)
{
	return p->noticed && p->preempted_status != 0 ? p->preempted_status : 128 + signal;
}

/* Acts on the first signal, or a notice before any signal; grace_ns: time until the exit. */
static unsigned first_signal(struct run_policy *p, const struct run_event *event, int64_t grace_ns)
{
	enum run_phase phase = p->phase;
	bool departing = p->departing;
	int64_t kept_ns;

	if (departing && p->deadline_ns - event->now_ns < grace_ns) {
		grace_ns = p->deadline_ns > event->now_ns ? p->deadline_ns - event->now_ns : 0;
	}
	kept_ns = reserve_ns(p, grace_ns);
	p->signal = event->signal;
	p->deadline_ns = event->now_ns + grace_ns;
	p->timer_ns = p->deadline_ns - (phase == RUN_LEAVING ? kept_ns : 0);
	p->will_restart = false;
	p->departing = false;
	if (phase == RUN_DRAINING && !departing) {
		return 0; /* The workers were done: their status stands if draining ends in time. */
	}
	p->status = stop_status(p, event->signal);
	if (phase == RUN_WAITING || phase == RUN_GATHERING ||
		(phase == RUN_WORKING && p->alive == 0)) {
		return drain(p, event->now_ns);
	}
	if (phase == RUN_WORKING) {
		p->phase = RUN_LEAVING;
		p->timer_ns -= kept_ns;
		return RUN_DO_NOTICE;
	}
	return 0;
}

/* Kills the workers; the rest of the grace is for the agent. */
static unsigned cut_short(struct run_policy *p)
{
	ASSERT(p->phase == RUN_LEAVING);
	p->phase = RUN_ENDING;
	p->timer_ns = p->departing ? 0 : p->deadline_ns; /* nodes that stay wait for their dead */
	return RUN_DO_KILL;
}

/* Kills the workers of a joint group that has not left in time. The others go on without them. */
static unsigned cut_off(struct run_policy *p)
{
	ASSERT(p->phase == RUN_WORKING && p->quit_signal != 0);
	p->status = stop_status(p, p->quit_signal);
	p->will_restart = false;
	p->phase = RUN_ENDING;
	p->timer_ns = p->deadline_ns;
	return RUN_DO_KILL;
}

static unsigned signaled(struct run_policy *p, const struct run_event *event)
{
	ASSERT(event->signal > 0);
	if (p->phase == RUN_WORKING && p->quit_signal == event->signal) {
		return cut_off(p);
	}
	if (p->signal == 0 && (p->quit_signal == 0 || p->phase == RUN_WORKING)) {
		return first_signal(p, event, p->grace_ns);
	}
	if (p->phase == RUN_LEAVING) {
		return cut_short(p);
	}
	if (p->phase == RUN_DRAINING) {
		p->status = stop_status(p, event->signal);
		return finish(p);
	}
	return 0;
}

/* A machine goes away. If a signal came before, the time that is left may be shorter than the
 * grace; timer_ns is at a fixed distance before the deadline, or at it. */
static unsigned noticed(struct run_policy *p, const struct run_event *event)
{
	bool is_stopped = p->signal != 0 && p->status == 128 + p->signal;
	int64_t sooner_ns = p->deadline_ns - event->deadline_ns;

	ASSERT(event->signal > 0 && event->deadline_ns >= event->now_ns);
	p->noticed = true;
	if (p->signal == 0) {
		return first_signal(p, event, event->deadline_ns - event->now_ns);
	}
	p->status = is_stopped ? stop_status(p, p->signal) : p->status;
	if (sooner_ns > 0) {
		p->deadline_ns -= sooner_ns;
		p->timer_ns -= p->timer_ns != 0 ? sooner_ns : 0;
	}
	return 0;
}

/* Whether a notice ends the job, or comes while it ends, so that nobody can depart any more. */
static bool is_ending(const struct run_policy *p)
{
	return p->signal != 0 || (p->phase == RUN_ENDING && !p->will_restart) ||
		(p->phase == RUN_DRAINING && !p->departing);
}

/* The machine of a node goes away, and the job goes on without that node. */
static unsigned depart(struct run_policy *p, const struct run_event *event)
{
	int64_t now_ns = event->now_ns;
	bool sooner = !p->departing || event->deadline_ns < p->deadline_ns;

	ASSERT(p->gathers && event->deadline_ns >= now_ns);
	if (is_ending(p)) {
		return noticed(p, event);
	}
	p->noticed = true;
	p->departing = true;
	p->deadline_ns = sooner ? event->deadline_ns : p->deadline_ns;
	p->status = stop_status(p, event->signal);
	switch (p->phase) {
	case RUN_WORKING:
	case RUN_LEAVING:
		p->timer_ns = sooner ? p->deadline_ns - reserve_ns(p, p->deadline_ns - now_ns)
				     : p->timer_ns;
		p->will_restart = true;
		p->counted = false;
		if (p->phase == RUN_LEAVING) {
			return 0;
		}
		p->phase = RUN_LEAVING;
		return RUN_DO_NOTICE;
	case RUN_DRAINING:
		p->timer_ns = p->deadline_ns;
		return 0;
	case RUN_ENDING:
		return 0;
	default:
		return drain(p, now_ns);
	}
}

/* The machine of a joint group goes away: its workers leave the others. */
static unsigned quit_by(struct run_policy *p, const struct run_event *event)
{
	int64_t now_ns = event->now_ns;
	bool sooner = !p->noticed || event->deadline_ns < p->deadline_ns;
	unsigned actions;

	ASSERT(p->joint && event->deadline_ns >= now_ns);
	if (p->phase != RUN_WORKING || p->finishing || p->signal != 0) {
		return noticed(p, event);
	}
	p->noticed = true;
	p->quit_signal = event->signal;
	p->deadline_ns = sooner ? event->deadline_ns : p->deadline_ns;
	actions = quit(p, now_ns);
	if (p->phase == RUN_WORKING) {
		p->timer_ns = now_ns + (p->deadline_ns - now_ns) / 2;
	}
	return actions;
}

/* A joint group has not left in half of the time. others: ranks of other launchers stay. */
static unsigned leave_late(struct run_policy *p, int64_t now_ns, bool others)
{
	const struct run_event stop = {.now_ns = now_ns, .signal = p->quit_signal};
	int64_t last_ns = p->deadline_ns - reserve_ns(p, p->grace_ns);

	if (!others) {
		return first_signal(p, &stop,
			p->deadline_ns > now_ns ? p->deadline_ns - now_ns : 0);
	}
	if (now_ns >= last_ns) {
		return cut_off(p);
	}
	p->timer_ns = last_ns - now_ns < p->times.look_ns ? last_ns : now_ns + p->times.look_ns;
	return 0;
}

static unsigned timed_out(struct run_policy *p, const struct run_event *event)
{
	int64_t now_ns = event->now_ns;

	switch (p->phase) {
	case RUN_WAITING:
		return start(p, now_ns);
	case RUN_WORKING:
		if (p->quit_signal != 0) {
			return leave_late(p, now_ns, event->survivable);
		}
		p->timer_ns = 0;
		return add(p);
	case RUN_GATHERING:
		p->status = RUN_EXIT_NODES;
		return drain(p, now_ns);
	case RUN_LEAVING:
		return cut_short(p);
	case RUN_ENDING: /* killed, but not dead by the deadline: stuck in the kernel */
	case RUN_DRAINING:
		if (p->departing) {
			return gather_anew(p, now_ns);
		}
		if (p->status == 0 && p->signal != 0) {
			p->status = stop_status(p, p->signal);
		} else if (p->status == 0) {
			p->status = p->phase == RUN_DRAINING ? RUN_EXIT_UNSAVED : RUN_EXIT_FAILURE;
		}
		return finish(p);
	default:
		return 0;
	}
}

unsigned run_policy_step(struct run_policy *p, const struct run_event *event)
{
	if (p->phase == RUN_OVER) {
		return 0;
	}
	switch (event->kind) {
	case RUN_BEGIN:
		ASSERT(p->phase == RUN_IDLE && (p->workers > 0 || p->gathers));
		return start(p, event->now_ns);
	case RUN_GATHERED:
		ASSERT(p->phase == RUN_GATHERING && event->workers > 0);
		p->workers = event->workers;
		return work(p, event->now_ns);
	case RUN_REFUSED:
		ASSERT(p->phase == RUN_GATHERING);
		p->status = event->status;
		return drain(p, event->now_ns);
	case RUN_LOST:
		return node_lost(p, event);
	case RUN_EXITED:
		return worker_exited(p, event);
	case RUN_SIGNALED:
		return signaled(p, event);
	case RUN_NOTICED:
		return noticed(p, event);
	case RUN_DEPARTS:
		return depart(p, event);
	case RUN_SCALED:
		return scaled(p, event);
	case RUN_QUIT:
		return quit(p, event->now_ns);
	case RUN_QUIT_BY:
		return quit_by(p, event);
	case RUN_TIMEOUT:
		return timed_out(p, event);
	case RUN_DRAINED:
		if (p->phase != RUN_DRAINING) {
			return 0;
		}
		if (p->departing) {
			return gather_anew(p, event->now_ns);
		}
		if (!event->ok && p->status == 0) {
			p->status = RUN_EXIT_UNSAVED;
		}
		return finish(p);
	}
	return 0;
}
