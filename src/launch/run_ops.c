/* Carries out what nodes.c decides for `pawl run`: see run.h. */
#include "launch/run_impl.h"

#include "agent/agent.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "io/address.h"
#include "ipc/frames.h"
#include "launch/nodes/node_net.h"
#include "launch/run_group.h"
#include "launch/run_port.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

void run_close_membership(struct run *run, int status)
{
	run->membership_closed = true;
	membership_close(run->plan.membership_path, status);
}

void run_step(struct run *run, struct nodes_event event)
{
	event.now_ns = clock_mono_ns();
	nodes_step(&run->nodes, &event);
	if (run->nodes.policy.finishing && !run->membership_closed) {
		run_close_membership(run, run->nodes.policy.status);
	}
	if (run->nodes.timer_ns != 0) {
		loop_timer_start(run->loop, &run->timer, run->nodes.timer_ns);
	} else {
		loop_timer_cancel(run->loop, &run->timer);
	}
}

void run_await_template(struct run *run)
{
	int64_t poll_ns = clock_mono_ns() + times_ns(TIME_RUN_LOOK);
	bool soon = run->options->max_workers != 0 && poll_ns < run->settled_ns;

	loop_timer_start(run->loop, &run->template_timer, soon ? poll_ns : run->settled_ns);
}

static void start_group(void *user, const struct node_frame *start)
{
	struct run *run = user;
	uint32_t attempt = nodes_attempt(&run->nodes);
	const struct run_start group_start = {.workers = run->nodes.options.workers,
		.joins = run->plan.joins,
		.first = start->first + run->plan.first,
		.world = start->world,
		.node = start->node,
		.nodes = start->nodes,
		.attempt = attempt,
		.restarts = start->ledger.restarts,
		.port = start->port,
		.master = start->address,
		.servers = start->text};

	if (group_start.restarts != run->restarts) {
		log_line(LOG_INFO, "restart %u of %u", group_start.restarts,
			run->options->max_restarts);
		run->restarts = group_start.restarts;
	}
	run_peers_start(run, start);
	if (attempt != run->attempt) {
		agent_set_attempt(run->agent, attempt);
		run->attempt = attempt;
	}
	if (!run->plan.joins) {
		/* left by an earlier attempt, or by a run that was killed */
		membership_remove(run->plan.membership_path);
	}
	run->last_membership.n = 0;
	run->membership_closed = false;
	run_group_start(run->group, &group_start);
	/* From settled_ns on, a template is started even if no worker has listed its imports, and
	 * a script that has written no membership counts as one that never will. */
	run->settled_ns = clock_mono_ns() + times_ns(TIME_RUN_SETTLE);
	if (run->options->use_template) {
		run_await_template(run);
	}
}

static void notice_workers(void *user, int signal, int64_t left_ns)
{
	struct run *run = user;
	char why[32] = "scaled";

	if (signal == 0 && !run->nodes.policy.will_restart) {
		snprintf(why, sizeof(why), "another launcher was stopped");
	} else if (run->nodes.policy.noticed) {
		snprintf(why, sizeof(why), "notice");
	} else if (signal != 0) {
		snprintf(why, sizeof(why), "SIG%s", sigabbrev_np(signal));
	}
	log_line(LOG_INFO, "%s: workers have %.0f s to finish their step, save and leave", why,
		(double)left_ns / NS_PER_S);
	agent_notice(run->agent, why);
	run_group_kill(run->group, SIGTERM);
}

static void kill_workers(void *user)
{
	struct run *run = user;

	run_group_kill(run->group, SIGKILL);
}

static void add_workers(void *user, uint32_t n)
{
	struct run *run = user;

	run_group_add(run->group, n);
}

static void retire_workers(void *user, uint32_t n)
{
	struct run *run = user;

	log_line(LOG_INFO, "%u worker%s told to leave the others after this step", n,
		n == 1 ? " is" : "s are");
	run_group_retire(run->group, n);
	if (run->nodes.policy.quits) {
		run_joint_leave(&run->joint);
	}
}

static void on_drained(void *user, bool ok)
{
	struct run *run = user;
	char summary[SUMMARY_MAX];

	run->drained = ok;
	if (run->nodes.policy.departing && run->nodes.notice_ns == 0) {
		agent_summary(run->agent, summary, sizeof(summary));
		log_line(ok ? LOG_INFO : LOG_WARNING, "%s", summary);
	}
	run_step(run, (struct nodes_event){.kind = NODES_DRAINED, .ok = ok});
}

void run_on_drain_timer(struct loop_timer *timer)
{
	struct run *run = timer->user;

	agent_drain(run->agent, on_drained, run);
}

static void notify_agent(void *user, const char *path, uint64_t nonce)
{
	struct run *run = user;

	agent_expect_nonce(run->agent, path, nonce);
}

static void ask_ranks(void *user, const struct node_frame *frame)
{
	struct run *run = user;
	const struct agent_poll poll = {.path = frame->text,
		.question = frame->question,
		.run = frame->instance_id,
		.seq = frame->seq,
		.polls = frame->polls};

	_Static_assert(NODE_QUESTIONS == QUESTIONS_N, "nodes know all questions");
	if (frame->kind == NODE_HOLD) {
		agent_hold(run->agent, &poll);
	} else {
		agent_yes_at(run->agent, &poll);
	}
}

static void save_soon(void *user)
{
	struct run *run = user;

	log_line(LOG_INFO,
		"another node's machine may go away: the next save is made durable at "
		"once");
	agent_save_soon(run->agent);
}

/* Closes the membership of a job that has no rank left, so that ranks do not wait to join in
 * vain. */
static void close_empty_membership(struct run *run)
{
	struct membership membership;
	bool closes;

	membership_read(&membership, run->plan.membership_path);
	closes = (membership.state == MEMBERSHIP_NONE && !run->plan.joins) ||
		(membership.state == MEMBERSHIP_OPEN &&
			!membership_has_others(&membership,
				run->plan.first / MEMBERSHIP_LAUNCHER_RANKS));
	if (closes && !run->membership_closed) {
		run_close_membership(run, run->nodes.policy.status);
	}
}

static void drain(void *user)
{
	struct run *run = user;

	if (run->plan.shared) {
		close_empty_membership(run);
	}
	loop_timer_cancel(run->loop, &run->template_timer);
	loop_timer_cancel(run->loop, &run->scale_timer);
	run->drained = false;
	loop_timer_start(run->loop, &run->drain_timer, clock_mono_ns());
}

/* Logs the last line, which describes what a later start will find, and stops the loop. */
static void end_run(void *user, int status)
{
	struct run *run = user;
	char summary[SUMMARY_MAX];

	agent_summary(run->agent, summary, sizeof(summary));
	log_line(run->drained ? LOG_INFO : LOG_ERROR, "%s with status %d%s%s%s",
		run->nodes.policy.signal != 0 || run->nodes.policy.noticed ? "stopped" : "ended",
		status, run->drained ? "" : ", not all that was committed is durable",
		summary[0] != '\0' ? ": " : "", summary);
	loop_stop(run->loop);
}

static void log_text(void *user, bool is_error, const char *text)
{
	log_line(is_error ? LOG_ERROR : LOG_INFO, "%s", text);
}

static uint32_t hold_port(void *user, const char *address)
{
	struct run *run = user;
	struct pawl_err err;
	uint32_t port = 0;

	if (run_port_hold(&run->port_fd, address, &port, &err) != 0) {
		log_line(LOG_WARNING, "%s: MASTER_PORT is %u", err.msg, port);
	}
	return port;
}

static int find_address(void *user, uint32_t place, char *address, struct pawl_err *err)
{
	struct run *run = user;

	if (run->plan.shared) {
		return address_own(address, err);
	}
	return address_find(run->plan.places.at[place].host, address, err);
}

static int listen_for_nodes(void *user, uint32_t place, struct pawl_err *err)
{
	struct run *run = user;

	return node_net_listen(run->net, place, err);
}

static void unlisten(void *user)
{
	struct run *run = user;

	node_net_unlisten(run->net);
}

static uint32_t connect_to(void *user, uint32_t place)
{
	struct run *run = user;

	return node_net_connect(run->net, place);
}

static void send_frame(void *user, uint32_t conn, const struct node_frame *frame)
{
	struct run *run = user;

	node_net_send(run->net, conn, frame);
}

static void drop(void *user, uint32_t conn)
{
	struct run *run = user;

	node_net_drop(run->net, conn);
}

const struct nodes_ops run_ops = {
	.listen = listen_for_nodes,
	.unlisten = unlisten,
	.connect = connect_to,
	.send = send_frame,
	.close = drop,
	.address = find_address,
	.port = hold_port,
	.peer_port = run_peers_port,
	.start = start_group,
	.notice = notice_workers,
	.kill = kill_workers,
	.add = add_workers,
	.retire = retire_workers,
	.notify_root_begun = notify_agent,
	.ask = ask_ranks,
	.save_soon = save_soon,
	.drain = drain,
	.exit = end_run,
	.log = log_text,
};
