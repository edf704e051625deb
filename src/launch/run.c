/* Set-up and end of `pawl run`: see run.h. */
#include "launch/run.h"

#include "agent/agent.h"
#include "base/err.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/times.h"
#include "launch/nodes/node_net.h"
#include "launch/run_fence.h"
#include "launch/run_group.h"
#include "launch/run_impl.h"
#include "launch/run_output.h"
#include "launch/run_relay.h"
#include "notice/notice_watcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP};

/* Receives signals by a descriptor. A signal that the parent process ignored (nohup) stays
 * ignored. */
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
	/* The signals stay blocked: one that comes at the end must not kill this process. */
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
		agent_on_imports(run->agent, run_on_imports, run);
		agent_on_begun(run->agent, run_on_root_begun, run);
		agent_on_scale(run->agent, run_on_scale, run);
		agent_on_preempt(run->agent, run_on_preempt, run);
		if (run->plan.nodes > 1) {
			agent_on_polled(run->agent, run_on_polled, run);
		}
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
		.exited = run_on_exited,
		.user = run,
	};

	return run_group_open(&run->group, &options, err);
}

static int open_relay(struct run *run, struct pawl_err *err)
{
	const struct run_plan *plan = &run->plan;
	const struct run_relay_options options = {.url = plan->membership_url,
		.token = plan->token,
		.path = plan->membership_path,
		.launcher = plan->first / MEMBERSHIP_LAUNCHER_RANKS,
		.begins = !plan->joins,
		.fence_ns = run->options->fence_ns >= 0 ? run->options->fence_ns
							: run_fence_default_ns()};

	return plan->membership_url != NULL ? run_relay_open(&run->relay, &options, err) : 0;
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
		.drain_ns = times_ns(TIME_RUN_DRAIN),
		.look_ns = times_ns(TIME_RUN_LOOK)};
}

/* Sets up the state machines, and opens the connections to the other nodes. */
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
		.preempted_status = (int)o->preempted_code,
		.leaves_on_notice = !o->stops_on_notice,
		.timeout_ns = o->node_timeout_ns,
		.ops = &run_ops,
		.user = run};
	const struct node_net_options net = {.loop = run->loop,
		.places = plan->places.at,
		.token = plan->token[0] != '\0' ? plan->token : NULL,
		.connected = run_on_connected,
		.closed = run_on_closed,
		.frame = run_on_frame,
		.user = run};
	const struct run_joint_options joint = {.plan = plan,
		.policy = &run->nodes.policy,
		.group = run->group,
		.loop = run->loop,
		.decided = run_on_decided,
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
		rv = take_signals(run,
			err); /* before any thread starts: threads inherit the mask */
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
	if (rv == 0) {
		rv = open_relay(run, err);
	}
	if (rv == 0) {
		rv = open_nodes(run, err);
	}
	return rv == 0 ? run_notice_open(run, err) : rv;
}

static void close_run(struct run *run)
{
	notice_watcher_stop(run->notice);
	node_net_close(run->net);
	run_joint_deinit(&run->joint);
	run_relay_close(run->relay);
	run_group_close(run->group);
	if (run->port_fd >= 0) {
		close(run->port_fd);
	}
	agent_close(run->agent);
	run_peers_close(run);
	if (!run->plan.shared) {
		membership_remove(run->plan.membership_path);
	}
	run_output_close(run->output);
	if (run->signals.fd >= 0) {
		close(run->signals.fd);
	}
	loop_close(run->loop);
}

/* Opens /dev/null at those of descriptors 0 to 2 that are closed, so that no other file gets
 * their numbers. */
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
	run->signals = (struct loop_source){-1, run_on_signals, run};
	run->timer = (struct loop_timer){.fired = run_on_timer, .user = run};
	run->drain_timer = (struct loop_timer){.fired = run_on_drain_timer, .user = run};
	run->template_timer = (struct loop_timer){.fired = run_on_template_timer, .user = run};
	run->scale_timer = (struct loop_timer){.fired = run_on_scale_timer, .user = run};
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
		run_step(run, (struct nodes_event){.kind = NODES_BEGIN});
		rv = loop_run(run->loop, err);
		*status = run->nodes.policy.status;
	}
	close_run(run);
	free(run);
	return rv;
}
