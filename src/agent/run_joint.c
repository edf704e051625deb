/* What the end of a rank means to others elsewhere: see run_joint.h. */
#include "agent/run_joint.h"

#include "base/assert.h"
#include "base/clock.h"

#include <signal.h>
#include <string.h>

/* One of ours that is listed lives. */
static bool trains_here(const struct run_joint_ranks *ours, const struct run_door *door)
{
	bool here = false;

	for (uint32_t i = 0; i < door->n; i++) {
		uint32_t place = door->numbers[i] - ours->first;

		here = here || (place < RUN_WORKERS_MAX && (ours->alive >> place & 1) != 0);
	}
	return here;
}

enum run_verdict run_joint_judge(const struct run_joint_ranks *ours, const struct run_door *door,
	const struct run_end *end)
{
	bool elsewhere = run_door_has_others(door, ours->first / RUN_DOOR_LAUNCHER);
	bool here = trains_here(ours, door);

	switch (door->state) {
	case RUN_DOOR_OVER:
		return ours->alive != 0 ? RUN_LAST : RUN_ALONE;
	case RUN_DOOR_NONE:
		return !ours->joins                     ? RUN_SOLE
			: end->status == RUN_EXIT_NODES ? RUN_SHUT
							: RUN_GO_ON;
	case RUN_DOOR_DARK:
		return RUN_UNKNOWN;
	case RUN_DOOR_OPEN:
		break;
	}
	if (here) {
		return RUN_GO_ON;
	}
	if (end->status == RUN_EXIT_NODES) {
		return RUN_SHUT;
	}
	if (!elsewhere && !ours->joins && !ours->met) {
		return RUN_SOLE;
	}
	return elsewhere && !run_door_lists(door, end->number) ? RUN_GO_ON : RUN_UNKNOWN;
}

static enum run_verdict judge(const struct run_joint *joint, const struct run_door *door,
	const struct run_joint_held *held)
{
	const struct run_joint_options *options = &joint->options;
	struct run_joint_ranks ours = {
		.first = options->plan->first,
		.joins = options->plan->joins,
		.met = joint->met,
	};
	enum run_verdict verdict;

	for (uint32_t i = 0; i < RUN_WORKERS_MAX; i++) {
		ours.alive |= (uint64_t)run_group_has(options->group, ours.first + i) << i;
	}
	verdict = run_joint_judge(&ours, door, &held->end);
	if (verdict == RUN_UNKNOWN &&
		(clock_mono_ns() - held->ended_ns >= RUN_JOINT_WAIT_NS ||
			options->policy->phase != RUN_WORKING)) {
		return RUN_ALONE;
	}
	return verdict;
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
			clock_mono_ns() + RUN_JOINT_LOOK_NS);
	}
}

static void on_timer(struct loop_timer *timer)
{
	look(timer->user);
}

/* It trained, and has ended as all of them do when one was told that the job is to stop; not one
 * that was told so while it waited at the door. */
static bool is_stopping(const struct run_joint *joint, const struct run_end *end)
{
	struct run_door door;

	if (end->signal != 0 || end->status != RUN_EXIT_STOPPED) {
		return false;
	}
	run_door_read(&door, joint->options.plan->door);
	return run_door_lists(&door, end->number) ||
		(door.state == RUN_DOOR_OVER && door.status == RUN_EXIT_STOPPED);
}

void run_joint_exited(struct run_joint *joint, const struct run_end *end)
{
	bool stops = is_stopping(joint, end);
	bool left = end->parted && (end->status == RUN_EXIT_LEFT || end->signal == SIGUSR1);

	if (stops || end->status == 0 || left || joint->options.policy->phase != RUN_WORKING) {
		joint->options.decided(joint->options.user, end, RUN_GO_ON, stops);
		return;
	}
	ASSERT(joint->n < RUN_WORKERS_MAX);
	joint->held[joint->n] = (struct run_joint_held){
		.end = *end,
		.ended_ns = clock_mono_ns(),
	};
	joint->n++;
	look(joint);
}

void run_joint_init(struct run_joint *joint, const struct run_joint_options *options)
{
	joint->options = *options;
	joint->timer = (struct loop_timer){.fired = on_timer, .user = joint};
}

void run_joint_deinit(struct run_joint *joint)
{
	if (joint->options.loop != NULL) {
		loop_timer_cancel(joint->options.loop, &joint->timer);
	}
}
