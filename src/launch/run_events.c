/* Events of `pawl run`, from workers, signals, nodes and the agent: see run.h. */
#include "launch/run_impl.h"

#include "agent/agent.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "launch/run_group.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes "attempt 0: rank 1 (pid 7) was killed by SIGKILL after 2.0 s". */
static void format_failure(const struct run *run, const struct run_end *end, char *text, size_t cap)
{
	char how[64];

	if (end->exit.signal != 0) {
		snprintf(how, sizeof(how), "was killed by SIG%s", sigabbrev_np(end->exit.signal));
	} else {
		snprintf(how, sizeof(how), "exited with code %d%s", end->exit.status,
			end->exit.status == RUN_EXIT_USER ? " (user error: no restart)" : "");
	}
	snprintf(text, cap, "attempt %u: rank %u (pid %d) %s after %.1f s",
		nodes_attempt(&run->nodes), end->rank, (int)end->pid, how,
		(double)end->exit.lasted_ns / NS_PER_S);
}

/* Whether ranks can join and leave: the membership lists ranks that train, and one of them lives.
 * This launcher can check only its own ranks; those of other launchers count as alive. Fills
 * *membership. */
static bool can_go_on(struct run *run, struct membership *membership)
{
	membership_read(membership, run->plan.membership_path);
	if (membership->state != MEMBERSHIP_CLOSED) {
		run->last_membership = *membership;
	}
	for (uint32_t i = 0; i < membership->n; i++) {
		if (run->plan.shared || run_group_has(run->group, membership->numbers[i])) {
			return true;
		}
	}
	return false;
}

/* Whether a rank was not among those that train: the others went on without it, or it had not
 * joined yet. Judged by the last membership, because a closed one does not list who trained. */
static bool is_outside(const struct run *run, const struct run_end *end)
{
	return run->nodes.policy.min_workers > 0 && !run->plan.shared &&
		run->last_membership.n > 0 && !membership_has(&run->last_membership, end->number);
}

/* Counts progress: a step was committed, or made durable, since the last call. */
static void count_progress(struct run *run)
{
	char summary[SUMMARY_MAX];

	agent_summary(run->agent, summary, sizeof(summary));
	if (strcmp(summary, run->summary) != 0) {
		memcpy(run->summary, summary, sizeof(summary));
		run->progress++;
	}
}

/* Logs the end of a worker. Writes the text of a failure into text, or "" if it is not one. */
static void log_exit(struct run *run, const struct run_end *end, bool stops, char *text, size_t cap)
{
	const struct run_exit *exit = &end->exit;

	text[0] = '\0';
	if (exit->retired && (exit->status == RUN_EXIT_LEFT || exit->signal == SIGUSR1)) {
		log_line(LOG_INFO, "rank %u has left the others", end->rank);
	} else if (stops) {
		log_line(LOG_INFO, "rank %u has ended with status %d, because the job is stopping",
			end->rank, exit->status);
	} else if (exit->status != 0 && run->nodes.policy.phase == RUN_WORKING) {
		format_failure(run, end, text, cap);
		log_line(LOG_ERROR, "%s; its last lines are above%s", text,
			exit->outside && run->nodes.policy.finishing
				? "; the others have finished the job without it"
				: "");
		count_progress(run);
	} else {
		log_line(LOG_DEBUG, "rank %u ended with status %d", end->rank, exit->status);
	}
}

/* Reports the end of a worker to nodes.c. */
static void step_exited(struct run *run, const struct run_end *end, const char *text)
{
	run_step(run,
		(struct nodes_event){.kind = NODES_EXITED,
			.rank = end->rank,
			.exit = end->exit,
			.commits = run->progress,
			.text = text});
}

/* Handles the end of a worker: finds out whether the others can go on, logs the end, and hands it
 * to nodes.c; if launchers share the job, to run_joint.c first. A worker that has finished, but
 * whose newest save is not durable, counts as done: no step has to be repeated. Whether the agent
 * makes the save durable then decides the job's exit code. */
void run_on_exited(void *user, const struct run_end *was)
{
	struct run *run = user;
	struct run_end end = *was;
	bool not_durable =
		was->exit.status == RUN_EXIT_UNSAVED && agent_left_not_durable(run->agent);
	bool stops = run->plan.shared && run_joint_is_stop(&run->joint, was);
	char text[NODE_TEXT_MAX];
	struct membership membership;

	end.exit.verdict = !run->plan.shared && can_go_on(run, &membership) ? RUN_VERDICT_GO_ON
									    : RUN_VERDICT_NONE_LEFT;
	end.exit.outside = is_outside(run, &end);
	if (not_durable) {
		log_line(LOG_WARNING, "rank %u is done, but its newest save is not durable",
			end.rank);
		end.exit.status = 0;
	}
	log_exit(run, &end, stops, text, sizeof(text));
	if (run->plan.shared) {
		run_joint_exited(&run->joint, &end, stops);
	} else {
		step_exited(run, &end, text);
	}
}

/* Acts on the end of one of our ranks in a job of several launchers. Closes the membership if no
 * rank goes on, so that ranks that wait to join end, too. */
void run_on_decided(void *user, const struct run_end *end)
{
	struct run *run = user;
	enum run_verdict verdict = end->exit.verdict;
	bool alone = verdict == RUN_VERDICT_NONE_LEFT && run->nodes.policy.phase == RUN_WORKING;

	if (alone) {
		log_line(LOG_ERROR, "no other rank can go on");
	}
	if ((alone || verdict == RUN_VERDICT_STOPPING) && !run->membership_closed) {
		run_close_membership(run, end->exit.status);
	}
	run->membership_closed = run->membership_closed || verdict == RUN_VERDICT_FINISHING;
	step_exited(run, end, "");
}

void run_on_signals(struct loop_source *source, uint32_t events)
{
	struct run *run = source->user;
	int signal = loop_read_signal(source);

	if (signal == 0) {
		return;
	}
	if (signal == SIGCHLD) {
		run_group_reap(run->group);
	} else if (signal == SIGUSR1) {
		log_line(LOG_INFO, "SIGUSR1: this launcher's workers leave the job");
		run_step(run, (struct nodes_event){.kind = NODES_QUIT});
	} else if (signal == SIGTERM && run->options->leaves_on_term && !run->terminated) {
		run->terminated = true;
		run_on_terminated(run);
	} else {
		run_step(run, (struct nodes_event){.kind = NODES_SIGNALED, .signal = signal});
	}
}

void run_on_timer(struct loop_timer *timer)
{
	struct run *run = timer->user;
	bool stay = run->nodes.policy.quits && run_joint_others_stay(&run->joint);

	run_step(run, (struct nodes_event){.kind = NODES_TICK, .survivable = stay});
}

void run_on_connected(void *user, uint32_t conn)
{
	run_step(user, (struct nodes_event){.kind = NODES_CONNECTED, .conn = conn});
}

void run_on_closed(void *user, uint32_t conn, const char *why)
{
	run_step(user, (struct nodes_event){.kind = NODES_CLOSED, .conn = conn, .text = why});
}

void run_on_frame(void *user, uint32_t conn, const struct node_frame *frame)
{
	run_step(user, (struct nodes_event){.kind = NODES_FRAME, .conn = conn, .frame = frame});
}

void run_on_template_timer(struct loop_timer *timer)
{
	struct run *run = timer->user;
	char *imports = membership_read_imports(run->plan.membership_path);

	if (run->nodes.policy.phase == RUN_WORKING) {
		if (imports == NULL && clock_mono_ns() < run->settled_ns) {
			run_await_template(run);
		} else {
			run_group_open_template(run->group,
				imports != NULL ? imports : agent_imports(run->agent));
		}
	}
	free(imports);
}

void run_on_root_begun(void *user, const char *path, uint64_t nonce)
{
	run_step(user,
		(struct nodes_event){.kind = NODES_ROOT_BEGUN, .text = path, .nonce = nonce});
}

void run_on_polled(void *user, const struct agent_poll *poll)
{
	struct node_frame frame = {.kind = NODE_POLLED,
		.question = poll->question,
		.instance_id = poll->run,
		.seq = poll->seq,
		.polls = poll->polls};

	/* A root of a longer path is not asked: its ranks stop by themselves. */
	if (strlen(poll->path) < sizeof(frame.text)) {
		memcpy(frame.text, poll->path, strlen(poll->path));
		run_step(user, (struct nodes_event){.kind = NODES_POLLED, .frame = &frame});
	}
}

void run_on_imports(void *user)
{
	struct run *run = user;

	if (run->options->use_template && run->nodes.policy.phase == RUN_WORKING) {
		run_group_open_template(run->group, agent_imports(run->agent));
	}
}

/* Carries out scale_to, or waits. Ranks that have just started have written no membership yet, and
 * a change would end them all; they may write one soon. Ranks that join others wait for the others'
 * membership. While the end of a rank is not judged, the number of ranks does not change. */
static void scale(struct run *run)
{
	const struct run_policy *policy = &run->nodes.policy;
	struct membership membership;
	bool survivable = can_go_on(run, &membership);
	bool waits = run->plan.joins || membership.state == MEMBERSHIP_UNREADABLE ||
		clock_mono_ns() < run->settled_ns;
	uint32_t wanted = run->scale_to;

	if ((!survivable && waits) || run->joint.pending_n > 0) {
		loop_timer_start(run->loop, &run->scale_timer,
			clock_mono_ns() + times_ns(TIME_RUN_LOOK));
		return;
	}
	run->scale_to = 0;
	loop_timer_cancel(run->loop, &run->scale_timer);
	if (run_policy_can_scale(policy)) {
		log_line(LOG_INFO, "%u rank%s requested, %u running", wanted,
			wanted == 1 ? "" : "s", policy->alive - policy->retiring);
		run_step(run,
			(struct nodes_event){.kind = NODES_SCALED,
				.workers = wanted,
				.survivable = survivable});
	}
}

void run_on_scale_timer(struct loop_timer *timer)
{
	scale(timer->user);
}

int run_on_scale(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err)
{
	struct run *run = user;
	const struct run_options *options = run->options;
	const struct run_policy *policy = &run->nodes.policy;
	uint32_t stay = policy->alive - policy->retiring;
	uint32_t more = wanted > stay ? wanted - stay : 0;

	if (options->max_workers == 0) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"job %s cannot have more or fewer ranks: start it with pawl run --elastic "
			"MIN:MAX",
			run->plan.job);
	}
	if (wanted != 0 && (wanted < options->min_workers || wanted > options->max_workers)) {
		return pawl_err_set(err, PAWL_EINVAL, "%u ranks: job %s can have from %u to %u",
			wanted, run->plan.job, options->min_workers, options->max_workers);
	}
	if (wanted != 0 && !run_policy_can_scale(policy)) {
		return pawl_err_set(err, PAWL_EBUSY, "job %s is ending", run->plan.job);
	}
	if (policy->alive + more > RUN_WORKERS_MAX) {
		return pawl_err_set(err, PAWL_EBUSY, "%u ranks are still leaving: try again soon",
			policy->retiring);
	}
	if (wanted != 0) {
		run->scale_to = wanted;
		scale(run);
	}
	*now = (struct agent_scale){stay, run->scale_to != 0 ? run->scale_to : policy->workers,
		options->min_workers, options->max_workers};
	return 0;
}
