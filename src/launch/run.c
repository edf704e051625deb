/* `pawl run`: see run.h. This file carries out what nodes.c decides. */
#include "launch/run.h"

#include "agent/agent.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/times.h"
#include "io/address.h"
#include "io/loop.h"
#include "launch/membership/membership.h"
#include "launch/nodes/node_net.h"
#include "launch/nodes/nodes.h"
#include "launch/run_group.h"
#include "launch/run_joint.h"
#include "launch/run_output.h"
#include "launch/run_plan.h"
#include "launch/run_port.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#define SUMMARY_MAX 1024u /* bytes of the agent's summary, terminator included */

static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP};

/* The whole program. */
struct run {
	const struct run_options *options; /* the caller's */
	struct run_plan plan;              /* what was found out before the start */
	struct nodes nodes;                /* the state machine that decides */
	struct node_net *net;              /* connections to the other nodes; NULL: none */
	int port_fd;                       /* holds MASTER_PORT against others; -1: none */
	uint32_t attempt;                  /* attempt that the agent was last told */
	uint32_t restarts;                 /* restart count that was last logged */
	struct loop *loop;                 /* loop of the main thread */
	struct run_output *output;         /* the printing thread */
	struct agent *agent;               /* keeps the checkpoints */
	struct run_group *group;           /* the workers */
	struct run_joint joint;            /* judges ends of ranks if launchers share a door */
	struct loop_source signals;        /* a signalfd */
	struct loop_timer timer;           /* fires at nodes.timer_ns */
	struct loop_timer drain_timer;     /* due at once: starts the agent's drain */
	struct loop_timer template_timer;  /* next try to start a template */
	struct loop_timer scale_timer;     /* next try to carry out scale_to */
	uint32_t scale_to;                 /* ranks that `pawl scale` wants; 0: none pending */
	int64_t settled_ns;        /* TIME_RUN_SETTLE after the attempt's start, monotonic */
	char summary[SUMMARY_MAX]; /* the agent's summary when a worker last failed */
	uint64_t progress;         /* times that summary had changed */
	struct membership last_membership; /* the door when it last named the ranks that train */
	bool membership_closed;            /* nobody may join: the job is coming to its end */
	bool drained;                      /* all that was committed is durable */
};

/* ---- carrying out ---- */

/* Closes the door: ranks that wait to join end, and no rank may join any more. */
static void close_membership(struct run *run, int status)
{
	run->membership_closed = true;
	membership_close(run->plan.membership_path, status);
}

static void step(struct run *run, struct nodes_event event)
{
	event.now_ns = clock_mono_ns();
	nodes_step(&run->nodes, &event);
	if (run->nodes.policy.finishing && !run->membership_closed) {
		close_membership(run, run->nodes.policy.status);
	}
	if (run->nodes.timer_ns != 0) {
		loop_timer_start(run->loop, &run->timer, run->nodes.timer_ns);
	} else {
		loop_timer_cancel(run->loop, &run->timer);
	}
}

static void await_template(struct run *run)
{
	int64_t look_ns = clock_mono_ns() + times_ns(TIME_RUN_LOOK);
	bool sooner = run->options->max_workers != 0 && look_ns < run->settled_ns;

	loop_timer_start(run->loop, &run->template_timer, sooner ? look_ns : run->settled_ns);
}

static void start_group(void *user, const struct node_frame *start)
{
	struct run *run = user;
	uint32_t attempt = nodes_attempt(&run->nodes);
	const struct run_start place = {.workers = run->nodes.options.workers,
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

	if (place.restarts != run->restarts) {
		log_line(LOG_INFO, "restart %u of %u", place.restarts, run->options->max_restarts);
		run->restarts = place.restarts;
	}
	if (attempt != run->attempt) {
		agent_set_attempt(run->agent, attempt);
		run->attempt = attempt;
	}
	if (!run->plan.joins) {
		membership_remove(
			run->plan
				.membership_path); /* left by an earlier attempt, or a run that was killed */
	}
	run->last_membership.n = 0;
	run->membership_closed = false;
	run_group_start(run->group, &place);
	/* From settled_ns on, a template is started even if no worker said what it imports, and
	 * ranks that have opened no door are those of a script that never will. */
	run->settled_ns = clock_mono_ns() + times_ns(TIME_RUN_SETTLE);
	if (run->options->use_template) {
		await_template(run);
	}
}

static void notice_workers(void *user, int signal, int64_t left_ns)
{
	struct run *run = user;
	char why[32] = "scaled";

	if (signal == 0 && !run->nodes.policy.will_restart) {
		snprintf(why, sizeof(why), "another launcher was stopped");
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

	log_line(LOG_INFO, "%u worker%s told to leave the others behind this step", n,
		n == 1 ? " is" : "s are");
	run_group_retire(run->group, n);
}

static void on_drained(void *user, bool ok)
{
	struct run *run = user;

	run->drained = ok;
	step(run, (struct nodes_event){.kind = NODES_DRAINED, .ok = ok});
}

/* Has the agent drain. A timer calls this, since the agent may answer at once, while nodes.c is not
 * done yet. */
static void on_drain_timer(struct loop_timer *timer)
{
	struct run *run = timer->user;

	agent_drain(run->agent, on_drained, run);
}

static void notify_agent(void *user, const char *path, uint64_t nonce)
{
	struct run *run = user;

	agent_expect_nonce(run->agent, path, nonce);
}

/* Closes the door of a job of which no rank is left: ranks that wait there would wait for
 * nothing. */
static void close_empty_membership(struct run *run)
{
	struct membership membership;
	bool ours;

	membership_read(&membership, run->plan.membership_path);
	ours = (membership.state == MEMBERSHIP_NONE && !run->plan.joins) ||
		(membership.state == MEMBERSHIP_OPEN &&
			!membership_has_others(&membership,
				run->plan.first / MEMBERSHIP_LAUNCHER_RANKS));
	if (ours && !run->membership_closed) {
		close_membership(run, run->nodes.policy.status);
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
	loop_timer_start(run->loop, &run->drain_timer, clock_mono_ns());
}

/* Prints the last line, which says what a later start will find, and stops the loop. */
static void end_run(void *user, int status)
{
	struct run *run = user;
	char summary[SUMMARY_MAX];

	agent_summary(run->agent, summary, sizeof(summary));
	log_line(run->drained ? LOG_INFO : LOG_ERROR, "%s with status %d%s%s%s",
		run->nodes.policy.signal != 0 ? "stopped" : "ended", status,
		run->drained ? "" : ", not all that was committed is durable",
		summary[0] != '\0' ? ": " : "", summary);
	loop_stop(run->loop);
}

static void log_text(void *user, bool bad, const char *text)
{
	log_line(bad ? LOG_ERROR : LOG_INFO, "%s", text);
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

static const struct nodes_ops ops = {
	.listen = listen_for_nodes,
	.unlisten = unlisten,
	.connect = connect_to,
	.send = send_frame,
	.close = drop,
	.address = find_address,
	.port = hold_port,
	.start = start_group,
	.notice = notice_workers,
	.kill = kill_workers,
	.add = add_workers,
	.retire = retire_workers,
	.notify_root_begun = notify_agent,
	.drain = drain,
	.exit = end_run,
	.log = log_text,
};

/* ---- what happens ---- */

/* Writes "attempt 0: rank 1 (pid 7) was killed by SIGKILL after 2.0 s". */
static void format_failure(const struct run *run, const struct run_end *end, char *text, size_t cap)
{
	char how[64];

	if (end->signal != 0) {
		snprintf(how, sizeof(how), "was killed by SIG%s", sigabbrev_np(end->signal));
	} else {
		snprintf(how, sizeof(how), "exited with code %d%s", end->status,
			end->status == RUN_EXIT_USER ? " (user error: no restart)" : "");
	}
	snprintf(text, cap, "attempt %u: rank %u (pid %d) %s after %.1f s",
		nodes_attempt(&run->nodes), end->rank, (int)end->pid, how,
		(double)end->lasted_ns / NS_PER_S);
}

/* Whether ranks can come and go: the door names ranks that train, and one of them lives. Only of
 * our own ranks can that be seen; another launcher's count as alive. *door gets what the door
 * says. */
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

/* Whether a rank was none of those that train: one that was stopped is left behind, and one that
 * joins is not in yet. Judged by the last look, since the door of a job that has come to its end
 * does not say who trained. */
static bool is_outside(const struct run *run, const struct run_end *end)
{
	return run->nodes.policy.min_workers > 0 && !run->plan.shared &&
		run->last_membership.n > 0 && !membership_has(&run->last_membership, end->number);
}

/* Counts as progress that a step was committed, or made durable, since the last look. */
static void count_progress(struct run *run)
{
	char summary[SUMMARY_MAX];

	agent_summary(run->agent, summary, sizeof(summary));
	if (strcmp(summary, run->summary) != 0) {
		memcpy(run->summary, summary, sizeof(summary));
		run->progress++;
	}
}

/* A worker that is through, but whose newest save is not durable, counts as done: nothing is to be
 * done again, and what the agent comes to decides about the job's code. */
static void on_exited(void *user, const struct run_end *was)
{
	struct run *run = user;
	bool not_durable = was->status == RUN_EXIT_UNSAVED && agent_left_not_durable(run->agent);
	struct run_end judged = *was;
	const struct run_end *end = &judged;
	bool stops = run->plan.shared && run_joint_is_stop(&run->joint, end);
	char text[NODE_TEXT_MAX] = "";
	struct membership membership;
	bool survivable = !run->plan.shared && can_go_on(run, &membership);
	bool outside = is_outside(run, end);

	if (not_durable) {
		log_line(LOG_WARNING, "rank %u is done, its newest save is not durable", end->rank);
		judged.status = 0;
	}
	if (end->retired && (end->status == RUN_EXIT_LEFT || end->signal == SIGUSR1)) {
		log_line(LOG_INFO, "rank %u has left the others", end->rank);
	} else if (stops) {
		log_line(LOG_INFO,
			"rank %u has ended with status %d, as all do when one is stopped",
			end->rank, end->status);
	} else if (end->status != 0 && run->nodes.policy.phase == RUN_WORKING) {
		format_failure(run, end, text, sizeof(text));
		log_line(LOG_ERROR, "%s; its last lines are above%s", text,
			outside && run->nodes.policy.finishing
				? "; the others came to the job's end without it"
				: "");
		count_progress(run);
	} else {
		log_line(LOG_DEBUG, "rank %u ended with status %d", end->rank, end->status);
	}
	if (run->plan.shared) {
		run_joint_exited(&run->joint, end, stops);
		return;
	}
	step(run,
		(struct nodes_event){.kind = NODES_EXITED,
			.rank = end->rank,
			.status = end->status,
			.retired = end->retired,
			.survivable = survivable,
			.outside = outside,
			.lasted_ns = end->lasted_ns,
			.commits = run->progress,
			.text = text});
}

/* Acts on the end of one of our ranks in a job of several launchers. Closes the door if no rank
 * goes on, so that ranks that wait there end, too. */
static void on_decided(void *user, const struct run_end *end, enum run_verdict verdict, bool stops)
{
	struct run *run = user;
	bool alone = verdict == RUN_VERDICT_NONE_LEFT && run->nodes.policy.phase == RUN_WORKING;

	if (alone) {
		log_line(LOG_ERROR, "no other rank goes on");
	}
	if ((alone || stops) && !run->membership_closed) {
		close_membership(run, end->status);
	}
	run->membership_closed = run->membership_closed || verdict == RUN_VERDICT_FINISHING;
	step(run,
		(struct nodes_event){.kind = NODES_EXITED,
			.rank = end->rank,
			.status = end->status,
			.retired = end->retired,
			.survivable =
				verdict == RUN_VERDICT_GO_ON || verdict == RUN_VERDICT_FINISHING,
			.sole_launcher = verdict == RUN_VERDICT_SOLE_LAUNCHER,
			.finishing = verdict == RUN_VERDICT_FINISHING,
			.stops = stops,
			.lasted_ns = end->lasted_ns,
			.commits = run->progress,
			.text = ""});
}

static void on_signals(struct loop_source *source, uint32_t events)
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
		step(run, (struct nodes_event){.kind = NODES_QUIT});
	} else {
		step(run, (struct nodes_event){.kind = NODES_SIGNALED, .signal = signal});
	}
}

static void on_timer(struct loop_timer *timer)
{
	step(timer->user, (struct nodes_event){.kind = NODES_TICK});
}

static void on_connected(void *user, uint32_t conn)
{
	step(user, (struct nodes_event){.kind = NODES_CONNECTED, .conn = conn});
}

static void on_closed(void *user, uint32_t conn, const char *why)
{
	step(user, (struct nodes_event){.kind = NODES_CLOSED, .conn = conn, .text = why});
}

static void on_frame(void *user, uint32_t conn, const struct node_frame *frame)
{
	step(user, (struct nodes_event){.kind = NODES_FRAME, .conn = conn, .frame = frame});
}

static void on_template_timer(struct loop_timer *timer)
{
	struct run *run = timer->user;
	char *imports = membership_read_imports(run->plan.membership_path);

	if (run->nodes.policy.phase == RUN_WORKING) {
		if (imports == NULL && clock_mono_ns() < run->settled_ns) {
			await_template(run);
		} else {
			run_group_open_template(run->group,
				imports != NULL ? imports : agent_imports(run->agent));
		}
	}
	free(imports);
}

static void on_root_begun(void *user, const char *path, uint64_t nonce)
{
	step(user, (struct nodes_event){.kind = NODES_ROOT_BEGUN, .text = path, .nonce = nonce});
}

static void on_imports(void *user)
{
	struct run *run = user;

	if (run->options->use_template && run->nodes.policy.phase == RUN_WORKING) {
		run_group_open_template(run->group, agent_imports(run->agent));
	}
}

/* Carries out scale_to, or waits. Ranks that only start have no door yet: to end them all for a
 * change would be rash, if they will open one. Ranks that join others wait for the others' door.
 * While it is not known what the end of a rank means, the number of ranks stands. */
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
		log_line(LOG_INFO, "%u rank%s wanted, %u run", wanted, wanted == 1 ? "" : "s",
			policy->alive - policy->retiring);
		step(run,
			(struct nodes_event){.kind = NODES_SCALED,
				.workers = wanted,
				.survivable = survivable});
	}
}

static void on_scale_timer(struct loop_timer *timer)
{
	scale(timer->user);
}

/* Answers `pawl scale`. */
static int on_scale(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err)
{
	struct run *run = user;
	const struct run_options *options = run->options;
	const struct run_policy *policy = &run->nodes.policy;
	uint32_t stay = policy->alive - policy->retiring;
	uint32_t more = wanted > stay ? wanted - stay : 0;

	if (options->max_workers == 0) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"job %s cannot have more or fewer ranks: pawl run --elastic MIN:MAX starts "
			"one that can",
			run->plan.job);
	}
	if (wanted != 0 && (wanted < options->min_workers || wanted > options->max_workers)) {
		return pawl_err_set(err, PAWL_EINVAL, "%u ranks: job %s has from %u to %u", wanted,
			run->plan.job, options->min_workers, options->max_workers);
	}
	if (wanted != 0 && !run_policy_can_scale(policy)) {
		return pawl_err_set(err, PAWL_EBUSY, "job %s is coming to its end", run->plan.job);
	}
	if (policy->alive + more > RUN_WORKERS_MAX) {
		return pawl_err_set(err, PAWL_EBUSY, "%u ranks are still leaving: ask again soon",
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

/* ---- start and end ---- */

/* Takes signals by a descriptor. A signal that our starter ignored (nohup) stays ignored. */
static int take_signals(struct run *run, struct pawl_err *err)
{
	struct sigaction action = {.sa_handler = SIG_IGN};
	sigset_t set;

	sigaction(SIGPIPE, &action, NULL);
	action.sa_handler = SIG_DFL;
	sigaction(SIGCHLD, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (run->plan.shared) {
		sigaddset(&set, SIGUSR1);
	}
	for (size_t i = 0; i < sizeof(stop_signals) / sizeof(stop_signals[0]); i++) {
		sigaction(stop_signals[i], NULL, &action);
		if (action.sa_handler != SIG_IGN) {
			sigaddset(&set, stop_signals[i]);
		}
	}
	/* blocked for good: a signal that comes at the end must not kill */
	return loop_add_signals(run->loop, &run->signals, &set, err);
}

static int open_agent(struct run *run, struct pawl_err *err)
{
	const struct agent_options options = {
		.job = run->plan.job,
		.socket = run->plan.socket,
		.attempt = run->plan.attempt,
		.log_visible = true,
		.close_idle_roots = run->plan.shared,
	};
	int rv = agent_open(&run->agent, run->loop, &options, err);

	if (rv == 0) {
		agent_on_imports(run->agent, on_imports, run);
		agent_on_begun(run->agent, on_root_begun, run);
		agent_on_scale(run->agent, on_scale, run);
	}
	return rv;
}

static int open_group(struct run *run, struct pawl_err *err)
{
	const struct run_group_options options = {
		.run = run->options,
		.plan = &run->plan,
		.loop = run->loop,
		.output = run->output,
		.exited = on_exited,
		.user = run,
	};

	return run_group_open(&run->group, &options, err);
}

static void set_times(struct nodes_options *options)
{
	options->times = (struct nodes_times){.answer_ns = times_ns(TIME_NODES_ANSWER),
		.retry_ns = times_ns(TIME_NODES_RETRY),
		.probe_ns = times_ns(TIME_NODES_PROBE),
		.log_interval_ns = times_ns(TIME_NODES_WAITING),
		.close_ns = times_ns(TIME_NODES_CLOSE),
		.together_ns = times_ns(TIME_NODES_TOGETHER)};
	options->run_times = (struct run_times){.fast_ns = times_ns(TIME_RUN_FAST),
		.backoff_ns = times_ns(TIME_RUN_BACKOFF),
		.backoff_max_ns = times_ns(TIME_RUN_BACKOFF_MAX),
		.reserve_ns = times_ns(TIME_RUN_RESERVE),
		.drain_ns = times_ns(TIME_RUN_DRAIN)};
}

/* Opens what decides, and the connections to the other nodes. */
static int open_nodes(struct run *run, struct pawl_err *err)
{
	const struct run_options *o = run->options;
	const struct run_plan *plan = &run->plan;
	struct nodes_options options = {.nodes = plan->nodes,
		.workers = o->workers,
		.min_workers = o->min_workers,
		.joint = plan->shared,
		.servers = o->servers,
		.wanted = plan->node_rank,
		.places = plan->places.n,
		.place = plan->places.text,
		.job = plan->job,
		.attempt = plan->attempt,
		.max_restarts = o->max_restarts,
		.grace_ns = o->grace_ns,
		.timeout_ns = o->node_timeout_ns,
		.ops = &ops,
		.user = run};
	const struct node_net_options net = {.loop = run->loop,
		.places = plan->places.at,
		.token = plan->token[0] != '\0' ? plan->token : NULL,
		.connected = on_connected,
		.closed = on_closed,
		.frame = on_frame,
		.user = run};
	const struct run_joint_options joint = {.plan = plan,
		.policy = &run->nodes.policy,
		.group = run->group,
		.loop = run->loop,
		.decided = on_decided,
		.user = run};
	int rv = 0;

	set_times(&options);
	if (plan->nodes > 1) {
		rv = heartbeat_read(&options.heartbeat_interval_ns, err);
		if (rv == 0 &&
			getrandom(&options.instance_id, sizeof(options.instance_id), 0) !=
				(ssize_t)sizeof(options.instance_id)) {
			rv = pawl_err_sys(err, "get a random number");
		}
		rv = rv == 0 ? node_net_open(&run->net, &net, err) : rv;
	}
	nodes_init(&run->nodes, &options);
	run_joint_init(&run->joint, &joint);
	return rv;
}

static int open_run(struct run *run, struct pawl_err *err)
{
	int rv = loop_open(&run->loop, err);

	if (rv == 0) {
		rv = take_signals(run, err); /* before threads, which inherit the mask */
	}
	if (rv == 0) {
		rv = run_output_open(&run->output, err);
	}
	if (rv == 0) {
		rv = open_agent(run, err);
	}
	if (rv == 0) {
		rv = open_group(run, err);
	}
	return rv == 0 ? open_nodes(run, err) : rv;
}

static void close_run(struct run *run)
{
	node_net_close(run->net);
	run_joint_deinit(&run->joint);
	run_group_close(run->group);
	if (run->port_fd >= 0) {
		close(run->port_fd);
	}
	agent_close(run->agent);
	if (!run->plan.shared) {
		membership_remove(run->plan.membership_path);
	}
	run_output_close(run->output);
	if (run->signals.fd >= 0) {
		close(run->signals.fd);
	}
	loop_close(run->loop);
}

/* Descriptors 0 to 2 may be missing; what we open must not land there. */
static void fill_stdio(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0) {
		close(fd);
	}
}

int run_main(const struct run_options *options, int *status, struct pawl_err *err)
{
	struct run *run = calloc(1, sizeof(*run));
	int rv;

	if (run == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "run: out of memory");
	}
	run->options = options;
	run->port_fd = -1;
	run->signals = (struct loop_source){-1, on_signals, run};
	run->timer = (struct loop_timer){.fired = on_timer, .user = run};
	run->drain_timer = (struct loop_timer){.fired = on_drain_timer, .user = run};
	run->template_timer = (struct loop_timer){.fired = on_template_timer, .user = run};
	run->scale_timer = (struct loop_timer){.fired = on_scale_timer, .user = run};
	fill_stdio();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	rv = run_plan_make(&run->plan, options, err);
	if (rv == 0) {
		rv = open_run(run, err);
	}
	if (rv == 0) {
		if (options->workers > 1 && getenv("OMP_NUM_THREADS") == NULL) {
			log_line(LOG_INFO, "OMP_NUM_THREADS is not set: 1 for each of %u workers",
				options->workers);
		}
		run->attempt = run->plan.attempt;
		step(run, (struct nodes_event){.kind = NODES_BEGIN});
		rv = loop_run(run->loop, err);
		*status = run->nodes.policy.status;
	}
	close_run(run);
	free(run);
	return rv;
}
