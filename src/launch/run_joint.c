/* Judges what the end of a rank means where several launchers share a job: see run_joint.h. */
#include "launch/run_joint.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"

#include <signal.h>
#include <string.h>

uint64_t run_joint_listed(const struct run_door *door, uint32_t launcher)
{
	uint64_t listed = 0;

	for (uint32_t i = 0; i < door->n; i++) {
		if (door->numbers[i] / RUN_DOOR_LAUNCHER == launcher) {
			listed |= 1ull << door->numbers[i] % RUN_DOOR_LAUNCHER;
		}
	}
	return listed;
}

bool run_joint_hear(uint64_t *beat, const struct run_door_alive *alive, uint64_t listed)
{
	uint64_t before = *beat;

	if (alive->beat != 0) {
		*beat = alive->beat;
	}
	return before != 0 && *beat != before && (alive->ranks & listed) != 0;
}

void run_joint_pass(struct run_joint_heard *heard, int64_t passed_ns, bool lives)
{
	int64_t most_ns = times_ns(TIME_JOINT_HEAR);

	heard->lives = heard->lives || lives;
	heard->silent_ns += passed_ns < most_ns ? passed_ns : most_ns;
	heard->silent_ns = lives ? 0 : heard->silent_ns;
}

static enum run_verdict wait_for(const struct run_joint_heard *heard)
{
	return heard->silent_ns >= times_ns(TIME_JOINT_WAIT) ? RUN_ALONE : RUN_UNKNOWN;
}

enum run_verdict run_joint_judge(const struct run_joint_ranks *ours, const struct run_door *door,
	const struct run_end *end, const struct run_joint_heard *heard)
{
	uint32_t launcher = ours->first / RUN_DOOR_LAUNCHER;
	bool elsewhere = run_door_has_others(door, launcher);

	switch (door->state) {
	case RUN_DOOR_OVER:
		return ours->alive != 0 ? RUN_LAST : RUN_ALONE;
	case RUN_DOOR_NONE:
		return !ours->joins                     ? RUN_SOLE
			: end->status == RUN_EXIT_NODES ? RUN_SHUT
							: RUN_GO_ON;
	case RUN_DOOR_DARK:
		return wait_for(heard);
	case RUN_DOOR_OPEN:
		break;
	}
	if ((run_joint_listed(door, launcher) & ours->alive) != 0) {
		return RUN_GO_ON;
	}
	if (end->status == RUN_EXIT_NODES) {
		return RUN_SHUT;
	}
	if (!elsewhere && !ours->joins && !ours->met) {
		return RUN_SOLE;
	}
	if ((elsewhere && !run_door_lists(door, end->number)) || (ours->quits && heard->lives)) {
		return RUN_GO_ON;
	}
	return wait_for(heard);
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

static enum run_verdict judge(const struct run_joint *joint, const struct run_door *door,
	const struct run_joint_held *held)
{
	const struct run_joint_options *options = &joint->options;
	const struct run_joint_ranks ours = {
		.first = options->plan->first,
		.alive = find_alive(joint),
		.joins = options->plan->joins,
		.met = joint->met,
		.quits = options->policy->quits,
	};
	enum run_verdict verdict = run_joint_judge(&ours, door, &held->end, &held->heard);

	return verdict == RUN_UNKNOWN && options->policy->phase != RUN_WORKING ? RUN_ALONE
									       : verdict;
}

/* Whether a rank of another launcher that the door names shows that it lives. */
static bool listen(struct run_joint *joint, const struct run_door *door)
{
	const struct run_plan *plan = joint->options.plan;
	int64_t now_ns = clock_mono_ns();
	bool lives = false;

	if (now_ns - joint->listened_ns < times_ns(TIME_JOINT_HEAR)) {
		return false;
	}
	joint->listened_ns = now_ns;
	for (uint32_t launcher = 0; launcher < RUN_LAUNCHERS_MAX && !lives; launcher++) {
		uint64_t listed = run_joint_listed(door, launcher);
		struct run_door_alive alive;

		if (listed == 0 || launcher == plan->first / RUN_DOOR_LAUNCHER) {
			continue;
		}
		run_door_read_alive(&alive, plan->door, launcher);
		lives = run_joint_hear(&joint->beats[launcher], &alive, listed);
	}
	return lives;
}

static void pass(struct run_joint *joint, bool lives)
{
	int64_t passed_ns = clock_mono_ns() - joint->looked_ns;

	joint->looked_ns += passed_ns;
	for (uint32_t i = 0; i < joint->n; i++) {
		run_joint_pass(&joint->held[i].heard, passed_ns, lives);
	}
}

static void look(struct run_joint *joint)
{
	struct run_door door;
	uint32_t i = 0;

	run_door_read(&door, joint->options.plan->door);
	joint->met = joint->met ||
		run_door_has_others(&door, joint->options.plan->first / RUN_DOOR_LAUNCHER);
	if (door.written_ns != joint->written_ns) {
		joint->written_ns = door.written_ns;
		joint->since_ns = clock_mono_ns();
	}
	pass(joint, listen(joint, &door));
	while (i < joint->n) {
		struct run_joint_held held = joint->held[i];
		enum run_verdict verdict = judge(joint, &door, &held);

		if (verdict == RUN_UNKNOWN) {
			i++;
			continue;
		}
		if (held.ended_ns - held.end.lasted_ns >= joint->since_ns) {
			held.end.lasted_ns = 0;
		}
		joint->n--;
		memmove(&joint->held[i], &joint->held[i + 1],
			(joint->n - i) * sizeof(joint->held[0]));
		joint->options.decided(joint->options.user, &held.end, verdict, false);
	}
	if (joint->n > 0) {
		loop_timer_start(joint->options.loop, &joint->timer,
			clock_mono_ns() + times_ns(TIME_JOINT_LOOK));
	}
}

static void on_timer(struct loop_timer *timer)
{
	look(timer->user);
}

bool run_joint_stops(const struct run_joint *joint, const struct run_end *end)
{
	struct run_door door;

	run_door_read(&door, joint->options.plan->door);
	return end->status != 0 && door.state == RUN_DOOR_OVER && door.status == RUN_EXIT_STOPPED;
}

void run_joint_exited(struct run_joint *joint, const struct run_end *end, bool stops)
{
	bool left = end->parted && (end->status == RUN_EXIT_LEFT || end->signal == SIGUSR1);

	if (stops || end->status == 0 || left || joint->options.policy->phase != RUN_WORKING) {
		joint->options.decided(joint->options.user, end, RUN_GO_ON, stops);
		return;
	}
	if (joint->n == 0) { /* what was heard before is no sign of life now */
		joint->looked_ns = clock_mono_ns();
		memset(joint->beats, 0, sizeof(joint->beats));
	}
	ASSERT(joint->n < RUN_WORKERS_MAX);
	joint->held[joint->n] = (struct run_joint_held){
		.end = *end,
		.ended_ns = clock_mono_ns(),
	};
	joint->n++;
	look(joint);
}

static void on_beat_timer(struct loop_timer *timer)
{
	struct run_joint *joint = timer->user;

	run_presence_tell(joint->presence, find_alive(joint));
	loop_timer_start(joint->options.loop, timer, clock_mono_ns() + times_ns(TIME_RUN_BEAT));
}

void run_joint_init(struct run_joint *joint, const struct run_joint_options *options)
{
	const struct run_plan *plan = options->plan;
	struct pawl_err err;

	joint->options = *options;
	joint->timer = (struct loop_timer){.fired = on_timer, .user = joint};
	joint->beat_timer = (struct loop_timer){.fired = on_beat_timer, .user = joint};
	if (!plan->shared) {
		return;
	}
	if (run_presence_open(&joint->presence, plan->door, plan->first / RUN_DOOR_LAUNCHER,
		    &err) != 0) {
		log_line(LOG_WARNING, "other launchers cannot see that ranks live here: %s",
			err.msg);
		return;
	}
	loop_timer_start(options->loop, &joint->beat_timer,
		clock_mono_ns() + times_ns(TIME_RUN_BEAT));
}

void run_joint_deinit(struct run_joint *joint)
{
	if (joint->options.loop != NULL) {
		loop_timer_cancel(joint->options.loop, &joint->timer);
		loop_timer_cancel(joint->options.loop, &joint->beat_timer);
	}
	run_presence_close(joint->presence);
}
