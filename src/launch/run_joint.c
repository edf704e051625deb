/* Judges the end of a rank in a job of several launchers: see run_joint.h. */
#include "launch/run_joint.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"

#include <signal.h>
#include <string.h>

_Static_assert(MEMBERSHIP_LAUNCHER_RANKS <= 64, "the ranks of a launcher are bits of a mask");

uint64_t run_joint_member_mask(const struct membership *membership, uint32_t launcher)
{
	uint64_t listed = 0;

	for (uint32_t i = 0; i < membership->n; i++) {
		if (membership->numbers[i] / MEMBERSHIP_LAUNCHER_RANKS == launcher) {
			listed |= 1ull << membership->numbers[i] % MEMBERSHIP_LAUNCHER_RANKS;
		}
	}
	return listed;
}

bool run_joint_check_heartbeat(uint64_t *last_heartbeat, const struct membership_alive *alive,
	uint64_t listed)
{
	uint64_t before = *last_heartbeat;

	if (alive->heartbeat != 0) {
		*last_heartbeat = alive->heartbeat;
	}
	return before != 0 && *last_heartbeat != before && (alive->ranks & listed) != 0;
}

void run_joint_advance(struct run_joint_liveness *liveness, int64_t passed_ns, bool lives)
{
	int64_t max_ns = times_ns(TIME_JOINT_PEERS);

	liveness->seen_alive = liveness->seen_alive || lives;
	liveness->silent_ns += passed_ns < max_ns ? passed_ns : max_ns;
	liveness->silent_ns = lives ? 0 : liveness->silent_ns;
}

static enum run_verdict judge_silence(const struct run_joint_liveness *liveness)
{
	return liveness->silent_ns >= times_ns(TIME_JOINT_WAIT) ? RUN_VERDICT_NONE_LEFT
								: RUN_VERDICT_UNKNOWN;
}

enum run_verdict run_joint_judge(const struct run_joint_ranks *ours,
	const struct membership *membership, const struct run_end *end,
	const struct run_joint_liveness *liveness)
{
	uint32_t launcher = ours->first / MEMBERSHIP_LAUNCHER_RANKS;
	bool others = membership_has_others(membership, launcher);

	switch (membership->state) {
	case MEMBERSHIP_CLOSED:
		return ours->alive != 0 ? RUN_VERDICT_FINISHING : RUN_VERDICT_NONE_LEFT;
	case MEMBERSHIP_NONE:
		return !ours->joins                          ? RUN_VERDICT_SOLE_LAUNCHER
			: end->exit.status == RUN_EXIT_NODES ? RUN_VERDICT_REJECTED
							     : RUN_VERDICT_GO_ON;
	case MEMBERSHIP_UNREADABLE:
		return judge_silence(liveness);
	case MEMBERSHIP_OPEN:
		break;
	}
	if ((run_joint_member_mask(membership, launcher) & ours->alive) != 0) {
		return RUN_VERDICT_GO_ON;
	}
	if (end->exit.status == RUN_EXIT_NODES) {
		return RUN_VERDICT_REJECTED;
	}
	if (!others && !ours->joins && !ours->seen_others) {
		return RUN_VERDICT_SOLE_LAUNCHER;
	}
	if ((others && !membership_has(membership, end->number)) ||
		(ours->quits && liveness->seen_alive)) {
		return RUN_VERDICT_GO_ON;
	}
	return judge_silence(liveness);
}

/* Returns a bit for each of our ranks that lives. */
static uint64_t find_alive(const struct run_joint *joint)
{
	uint64_t alive = 0;

	for (uint32_t i = 0; i < RUN_WORKERS_MAX; i++) {
		alive |= (uint64_t)run_group_has(joint->options.group,
				 joint->options.plan->first + i)
			<< i;
	}
	return alive;
}

static enum run_verdict judge(const struct run_joint *joint, const struct membership *membership,
	const struct run_joint_pending *pending)
{
	const struct run_joint_options *options = &joint->options;
	const struct run_joint_ranks ours = {
		.first = options->plan->first,
		.alive = find_alive(joint),
		.joins = options->plan->joins,
		.seen_others = joint->seen_others,
		.quits = options->policy->quits,
	};
	enum run_verdict verdict =
		run_joint_judge(&ours, membership, &pending->end, &pending->liveness);

	return verdict == RUN_VERDICT_UNKNOWN && options->policy->phase != RUN_WORKING
		? RUN_VERDICT_NONE_LEFT
		: verdict;
}

/* Whether a rank of another launcher that is in the membership shows that it lives. */
static bool check_heartbeats(struct run_joint *joint, const struct membership *membership)
{
	const struct run_plan *plan = joint->options.plan;
	int64_t now_ns = clock_mono_ns();
	bool lives = false;

	if (now_ns - joint->heartbeats_read_ns < times_ns(TIME_JOINT_PEERS)) {
		return false;
	}
	joint->heartbeats_read_ns = now_ns;
	for (uint32_t launcher = 0; launcher < RUN_LAUNCHERS_MAX && !lives; launcher++) {
		uint64_t listed = run_joint_member_mask(membership, launcher);
		struct membership_alive alive;

		if (listed == 0 || launcher == plan->first / MEMBERSHIP_LAUNCHER_RANKS) {
			continue;
		}
		membership_read_alive(&alive, plan->membership_path, launcher);
		lives = run_joint_check_heartbeat(&joint->last_heartbeats[launcher], &alive,
			listed);
	}
	return lives;
}

static void advance(struct run_joint *joint, bool lives)
{
	int64_t passed_ns = clock_mono_ns() - joint->polled_ns;

	joint->polled_ns += passed_ns;
	for (uint32_t i = 0; i < joint->pending_n; i++) {
		run_joint_advance(&joint->pending[i].liveness, passed_ns, lives);
	}
}

static void poll_membership(struct run_joint *joint)
{
	struct membership membership;
	uint32_t i = 0;

	membership_read(&membership, joint->options.plan->membership_path);
	joint->seen_others = joint->seen_others ||
		membership_has_others(&membership,
			joint->options.plan->first / MEMBERSHIP_LAUNCHER_RANKS);
	if (membership.written_ns != joint->written_ns) {
		joint->written_ns = membership.written_ns;
		joint->since_ns = clock_mono_ns();
	}
	advance(joint, check_heartbeats(joint, &membership));
	while (i < joint->pending_n) {
		struct run_joint_pending pending = joint->pending[i];
		enum run_verdict verdict = judge(joint, &membership, &pending);

		if (verdict == RUN_VERDICT_UNKNOWN) {
			i++;
			continue;
		}
		pending.end.exit.verdict = verdict;
		if (pending.ended_ns - pending.end.exit.lasted_ns >= joint->since_ns) {
			pending.end.exit.lasted_ns = 0;
		}
		joint->pending_n--;
		memmove(&joint->pending[i], &joint->pending[i + 1],
			(joint->pending_n - i) * sizeof(joint->pending[0]));
		joint->options.decided(joint->options.user, &pending.end);
	}
	if (joint->pending_n > 0) {
		loop_timer_start(joint->options.loop, &joint->timer,
			clock_mono_ns() + times_ns(TIME_JOINT_LOOK));
	}
}

static void on_timer(struct loop_timer *timer)
{
	poll_membership(timer->user);
}

bool run_joint_is_stop(const struct run_joint *joint, const struct run_end *end)
{
	struct membership membership;

	membership_read(&membership, joint->options.plan->membership_path);
	return end->exit.status != 0 && membership.state == MEMBERSHIP_CLOSED &&
		membership.status == RUN_EXIT_STOPPED;
}

void run_joint_exited(struct run_joint *joint, const struct run_end *end, bool stops)
{
	const struct run_exit *exit = &end->exit;
	bool left = exit->retired && (exit->status == RUN_EXIT_LEFT || exit->signal == SIGUSR1);

	ASSERT(joint->options.plan->shared);
	if (stops || exit->status == 0 || left || joint->options.policy->phase != RUN_WORKING) {
		struct run_end decided = *end;

		decided.exit.verdict = stops ? RUN_VERDICT_STOPPING : RUN_VERDICT_GO_ON;
		joint->options.decided(joint->options.user, &decided);
		return;
	}
	if (joint->pending_n == 0) { /* earlier heartbeats prove nothing now */
		joint->polled_ns = clock_mono_ns();
		memset(joint->last_heartbeats, 0, sizeof(joint->last_heartbeats));
	}
	ASSERT(joint->pending_n < RUN_WORKERS_MAX);
	joint->pending[joint->pending_n] = (struct run_joint_pending){
		.end = *end,
		.ended_ns = clock_mono_ns(),
	};
	joint->pending_n++;
	poll_membership(joint);
}

static void show(struct run_joint *joint)
{
	const struct membership_alive alive = {.ranks = find_alive(joint),
		.leaves = joint->options.policy->quits};

	if (joint->presence != NULL) {
		run_presence_update(joint->presence, &alive);
	}
}

void run_joint_leave(struct run_joint *joint)
{
	const struct run_plan *plan = joint->options.plan;
	struct membership membership;

	membership_read(&membership, plan->membership_path);
	for (uint32_t launcher = 0; launcher < RUN_LAUNCHERS_MAX; launcher++) {
		struct membership_alive alive = {.heartbeat = 0};

		if (run_joint_member_mask(&membership, launcher) != 0) {
			membership_read_alive(&alive, plan->membership_path, launcher);
		}
		joint->heartbeats_then[launcher] = alive.heartbeat;
	}
	show(joint);
}

bool run_joint_others_stay(const struct run_joint *joint)
{
	const struct run_plan *plan = joint->options.plan;
	struct membership membership;

	membership_read(&membership, plan->membership_path);
	for (uint32_t launcher = 0; launcher < RUN_LAUNCHERS_MAX; launcher++) {
		uint64_t listed = run_joint_member_mask(&membership, launcher);
		struct membership_alive alive;

		if (listed == 0 || launcher == plan->first / MEMBERSHIP_LAUNCHER_RANKS) {
			continue;
		}
		membership_read_alive(&alive, plan->membership_path, launcher);
		if ((alive.ranks & listed) != 0 && !alive.leaves &&
			alive.heartbeat != joint->heartbeats_then[launcher]) {
			return true;
		}
	}
	return false;
}

static void on_heartbeat_timer(struct loop_timer *timer)
{
	struct run_joint *joint = timer->user;

	show(joint);
	loop_timer_start(joint->options.loop, timer,
		clock_mono_ns() + times_ns(TIME_RUN_HEARTBEAT));
}

void run_joint_init(struct run_joint *joint, const struct run_joint_options *options)
{
	const struct run_plan *plan = options->plan;
	struct pawl_err err;

	joint->options = *options;
	joint->timer = (struct loop_timer){.fired = on_timer, .user = joint};
	joint->heartbeat_timer = (struct loop_timer){.fired = on_heartbeat_timer, .user = joint};
	if (!plan->shared) {
		return;
	}
	if (run_presence_open(&joint->presence, plan->membership_path,
		    plan->first / MEMBERSHIP_LAUNCHER_RANKS, &err) != 0) {
		log_line(LOG_WARNING, "other launchers cannot see that ranks live here: %s",
			err.msg);
		return;
	}
	loop_timer_start(options->loop, &joint->heartbeat_timer,
		clock_mono_ns() + times_ns(TIME_RUN_HEARTBEAT));
}

void run_joint_deinit(struct run_joint *joint)
{
	if (joint->options.loop != NULL) {
		loop_timer_cancel(joint->options.loop, &joint->timer);
		loop_timer_cancel(joint->options.loop, &joint->heartbeat_timer);
	}
	run_presence_close(joint->presence);
}
