/* `pawl run`: see run.h. What the policy decides is carried out here.
 */
#include "agent/run.h"

#include "agent/agent.h"
#include "agent/run_group.h"
#include "agent/run_output.h"
#include "agent/run_plan.h"
#include "agent/run_policy.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define SUMMARY_MAX       1024u         /* bytes of the agent's summary, terminator included */
#define TEMPLATE_AFTER_NS 10000000000LL /* start one even if no worker said what it imports */

static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP};

/* The whole program. */
struct run {
	const struct run_options *options; /* the caller's */
	struct run_plan plan;              /* what was found out before the start */
	struct run_policy policy;          /* decides */
	struct loop *loop;                 /* of the main thread */
	struct run_output *output;         /* prints */
	struct agent *agent;               /* keeps the checkpoints */
	struct run_group *group;           /* the workers */
	struct loop_source signals;        /* a signalfd */
	struct loop_timer timer;           /* the policy's */
	struct loop_timer template_timer;  /* TEMPLATE_AFTER_NS after the start of an attempt */
	char summary[SUMMARY_MAX];         /* the agent's, when a worker last failed */
	uint64_t progress;                 /* times it was another one */
	bool drained;                      /* all that was committed is durable */
};

static void on_event(struct run *run, struct run_event *event);

/* ---- carrying out ---- */

static void on_drained(void *user, bool ok)
{
	struct run *run = user;
	struct run_event event = {.kind = RUN_DRAINED, .ok = ok};

	run->drained = ok;
	on_event(run, &event);
}

static void start_group(struct run *run)
{
	if (run->policy.restarts > 0) {
		log_line(LOG_INFO, "restart %u of %u", run->policy.restarts,
			run->policy.max_restarts);
		agent_set_attempt(run->agent, run->plan.attempt + run->policy.restarts);
	}
	run_group_start(run->group, run->policy.restarts);
	if (run->options->use_template) {
		loop_timer_start(run->loop, &run->template_timer,
			clock_mono_ns() + TEMPLATE_AFTER_NS);
	}
}

static void notice_workers(struct run *run)
{
	char why[16];

	snprintf(why, sizeof(why), "SIG%s", sigabbrev_np(run->policy.signal));
	log_line(LOG_INFO, "%s: workers have %.0f s to finish their step, save and leave", why,
		(double)(run->policy.timer_ns - clock_mono_ns()) / NS_PER_S);
	agent_notice(run->agent, why);
	run_group_kill(run->group, SIGTERM);
}

/* The last line: what a later start will find. */
static void log_end(struct run *run)
{
	char summary[SUMMARY_MAX];

	agent_summary(run->agent, summary, sizeof(summary));
	log_line(run->drained ? LOG_INFO : LOG_ERROR, "%s with status %d%s%s%s",
		run->policy.signal != 0 ? "stopped" : "ended", run->policy.status,
		run->drained ? "" : ", not all that was committed is durable",
		summary[0] != '\0' ? ": " : "", summary);
}

static void carry_out(struct run *run, unsigned actions)
{
	if (actions & RUN_DO_NOTICE) {
		notice_workers(run);
	}
	if (actions & RUN_DO_KILL) {
		run_group_kill(run->group, SIGKILL);
	}
	if (actions & RUN_DO_START) {
		start_group(run);
	}
	if (actions & RUN_DO_DRAIN) {
		loop_timer_cancel(run->loop, &run->template_timer);
		agent_drain(run->agent, on_drained, run);
	}
	if (actions & RUN_DO_EXIT) {
		log_end(run);
		loop_stop(run->loop);
	}
}

static void on_event(struct run *run, struct run_event *event)
{
	unsigned actions;

	event->now_ns = clock_mono_ns();
	actions = run_policy_step(&run->policy, event);
	if (run->policy.timer_ns != 0) {
		loop_timer_start(run->loop, &run->timer, run->policy.timer_ns);
	} else {
		loop_timer_cancel(run->loop, &run->timer);
	}
	carry_out(run, actions);
}

/* ---- what happens ---- */

static void log_failure(const struct run *run, const struct run_end *end)
{
	char how[64];

	if (end->signal != 0) {
		snprintf(how, sizeof(how), "was killed by SIG%s", sigabbrev_np(end->signal));
	} else {
		snprintf(how, sizeof(how), "exited with code %d%s", end->status,
			end->status == RUN_EXIT_USER ? " (user error: no restart)" : "");
	}
	log_line(LOG_ERROR,
		"attempt %u: rank %u (pid %d) %s after %.1f s; its last lines are above",
		run->plan.attempt + run->policy.restarts, end->rank, (int)end->pid, how,
		(double)end->lasted_ns / NS_PER_S);
}

/* A step was committed, or made durable, since the last look. */
static void note_progress(struct run *run)
{
	char summary[SUMMARY_MAX];

	agent_summary(run->agent, summary, sizeof(summary));
	if (strcmp(summary, run->summary) != 0) {
		memcpy(run->summary, summary, sizeof(summary));
		run->progress++;
	}
}

static void on_exited(void *user, const struct run_end *end)
{
	struct run *run = user;
	struct run_event event = {.kind = RUN_EXITED, .status = end->status};

	if (end->status != 0 && run->policy.phase == RUN_WORKING) {
		log_failure(run, end);
		note_progress(run);
	} else {
		log_line(LOG_DEBUG, "rank %u ended with status %d", end->rank, end->status);
	}
	event.commits = run->progress;
	on_event(run, &event);
}

static void on_signals(struct loop_source *source, uint32_t events)
{
	struct run *run = source->user;
	struct signalfd_siginfo info;

	if (read(source->fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
		return;
	}
	if (info.ssi_signo == SIGCHLD) {
		run_group_reap(run->group);
	} else {
		struct run_event event = {.kind = RUN_SIGNALED, .signal = (int)info.ssi_signo};

		on_event(run, &event);
	}
}

static void on_timer(struct loop_timer *timer)
{
	struct run_event event = {.kind = RUN_TIMEOUT};

	on_event(timer->user, &event);
}

static void on_template_timer(struct loop_timer *timer)
{
	struct run *run = timer->user;

	if (run->policy.phase == RUN_WORKING) {
		run_group_prepare(run->group, agent_imports(run->agent));
	}
}

static void on_imports(void *user)
{
	struct run *run = user;

	if (run->options->use_template && run->policy.phase == RUN_WORKING) {
		run_group_prepare(run->group, agent_imports(run->agent));
	}
}

/* ---- start and end ---- */

/* Signals come as a descriptor. One that whoever started us ignores (nohup) stays ignored. */
static int take_signals(struct run *run, struct pawl_err *err)
{
	struct sigaction action = {.sa_handler = SIG_IGN};
	sigset_t set;

	sigaction(SIGPIPE, &action, NULL);
	action.sa_handler = SIG_DFL;
	sigaction(SIGCHLD, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < sizeof(stop_signals) / sizeof(stop_signals[0]); i++) {
		sigaction(stop_signals[i], NULL, &action);
		if (action.sa_handler != SIG_IGN) {
			sigaddset(&set, stop_signals[i]);
		}
	}
	sigprocmask(SIG_BLOCK, &set, NULL); /* for good: one that comes at the end must not kill */
	run->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (run->signals.fd < 0) {
		return pawl_err_sys(err, "receive signals");
	}
	return loop_add(run->loop, &run->signals, EPOLLIN, err);
}

static int open_agent(struct run *run, struct pawl_err *err)
{
	const struct agent_options options = {
		.job = run->plan.job,
		.socket = run->plan.socket,
		.attempt = run->plan.attempt,
	};
	int rv = agent_open(&run->agent, run->loop, &options, err);

	if (rv == 0) {
		agent_on_imports(run->agent, on_imports, run);
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
	return rv;
}

static void close_run(struct run *run)
{
	run_group_close(run->group);
	agent_close(run->agent);
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
	struct run_event begin = {.kind = RUN_BEGIN};
	int rv;

	if (run == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "run: out of memory");
	}
	run->options = options;
	run->policy = (struct run_policy){.workers = options->workers,
		.max_restarts = options->max_restarts,
		.grace_ns = options->grace_ns};
	run->signals = (struct loop_source){-1, on_signals, run};
	run->timer = (struct loop_timer){.fired = on_timer, .user = run};
	run->template_timer = (struct loop_timer){.fired = on_template_timer, .user = run};
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
		on_event(run, &begin);
		rv = loop_run(run->loop, err);
		*status = run->policy.status;
	}
	close_run(run);
	free(run);
	return rv;
}
