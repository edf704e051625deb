/* Runs a job from its start to its end: see shepherd.h. shepherd_start.c starts the processes. */
#include "engine/local/shepherd.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "engine/local/shepherd_impl.h"
#include "engine/local/strays.h"
#include "engine/scratch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCALE_IMPOSSIBLE 2 /* exit code of `pawl scale`: the request is impossible */

/* ---- state and notifications ---- */

static void drop_peer(struct shepherd *s)
{
	if (s->peer.fd >= 0) {
		loop_remove(s->loop, &s->peer);
		close(s->peer.fd);
		s->peer.fd = -1;
	}
	s->request_bytes = 0;
}

/* Notifies the scheduler, if it is connected, that the state has changed. */
static void notify_scheduler(struct shepherd *s)
{
	if (s->peer.fd >= 0 && send(s->peer.fd, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1 &&
		errno != EAGAIN) {
		drop_peer(s);
	}
}

/* Writes the state, and notifies the scheduler. */
static int report_state(struct shepherd *s)
{
	struct pawl_err err;
	int rv = run_state_save(ORDER_FD_STATE, &s->state, &err);

	if (rv != 0) {
		job_log_printf(s->log, "%s", err.msg);
	}
	notify_scheduler(s);
	return rv;
}

/* ---- the end ---- */

/* Records the end, and stops the loop once that has succeeded. On a full disk, tries again later:
 * without a recorded end, the scheduler would take the run for killed and start it again. */
static void finish(struct shepherd *s)
{
	if (s->state.phase != RUN_ENDED) {
		for (uint32_t i = 0; i < s->children_n; i++) {
			shepherd_output_close(&s->children[i]);
		}
		s->state.phase = RUN_ENDED;
		s->state.by_itself = s->by_itself;
		s->state.exit_code = s->first_exit;
		job_log_printf(s->log, "job %llu: %s with %d", (unsigned long long)s->order.job,
			s->by_itself ? "ended" : "stopped", s->first_exit);
	}
	if (report_state(s) == 0) {
		loop_stop(s->loop);
	} else {
		loop_timer_start(s->loop, &s->timer,
			clock_mono_ns() + times_ns(TIME_SHEPHERD_WRITE));
	}
}

/* Sets the timer for the next look for strays, at the latest at the end of the grace period. */
static void look_again(struct shepherd *s)
{
	int64_t at_ns = clock_mono_ns() + strays_backoff_ns(&s->wait_ns);

	loop_timer_start(s->loop, &s->timer,
		s->killing || at_ns < s->deadline_ns ? at_ns : s->deadline_ns);
}

/* Signals the processes that were left behind (signal 0: none). Finishes once none is left. */
static void look_for_strays(struct shepherd *s, int signal)
{
	if (signal != 0) {
		strays_signal_own(signal);
	}
	if (strays_has_own()) {
		look_again(s);
	} else {
		finish(s);
	}
}

/* Ends the processes that were left behind. Those that already got SIGTERM do not get it again: a
 * second one may mean something else to them. */
static void end_strays(struct shepherd *s)
{
	ASSERT(s->alive == 0);
	s->phase = PHASE_STRAYS;
	s->by_itself = !s->stopping || (s->spec.elastic && s->first_exit == 0);
	s->deadline_ns = s->stopping ? s->deadline_ns : clock_mono_ns() + s->order.grace_ns;
	look_for_strays(s, s->killing ? SIGKILL : s->stopping ? 0 : SIGTERM);
}

static void signal_children(struct shepherd *s, int signal)
{
	for (uint32_t i = 0; i < s->children_n; i++) {
		pid_t pid = s->children[i].pid;
		bool alone = s->spec.elastic && s->phase == PHASE_RUN && signal != SIGKILL;

		if (pid > 0) {
			kill(alone ? pid : -pid, signal); /* pawl run signals its ranks itself */
		}
	}
}

static void end_now(struct shepherd *s)
{
	s->wait_ns = s->killing ? s->wait_ns : 0;
	s->killing = true;
	signal_children(s, SIGKILL);
	strays_signal_own(SIGKILL);
	look_again(s);
}

static void on_timer(struct loop_timer *timer)
{
	struct shepherd *s = timer->user;

	if (s->phase != PHASE_STRAYS) {
		end_now(s);
	} else if (s->killing || clock_mono_ns() >= s->deadline_ns) {
		s->wait_ns = s->killing ? s->wait_ns : 0;
		s->killing = true;
		look_for_strays(s, SIGKILL);
	} else {
		look_for_strays(s, 0);
	}
}

/* Stops the run: SIGTERM now, SIGKILL after grace_ns. Without grace, SIGKILL at once. */
static void stop(struct shepherd *s, int64_t grace_ns)
{
	int64_t deadline_ns = clock_mono_ns() + grace_ns;

	if (grace_ns <= 0) {
		s->stopping = true;
		end_now(s);
	} else if (!s->stopping) {
		s->stopping = true;
		s->deadline_ns = deadline_ns;
		if (s->phase != PHASE_STRAYS) {
			signal_children(s, SIGTERM);
			loop_timer_start(s->loop, &s->timer, deadline_ns);
		} else {
			look_again(s);
		}
	}
}

/* ---- starting ---- */

static void fail_to_start(struct shepherd *s, const struct pawl_err *err)
{
	job_log_printf(s->log, "job %llu cannot be started: %s", (unsigned long long)s->order.job,
		err->msg);
	snprintf(s->state.why, sizeof(s->state.why), "%.*s", (int)sizeof(s->state.why) - 1,
		err->msg);
	s->first_exit = SHEPHERD_EXIT_START;
	signal_children(s, SIGKILL);
	if (s->alive == 0) {
		end_strays(s);
	}
}

/* Starts the next setup, or run. */
static void start_next(struct shepherd *s)
{
	struct pawl_err err;
	int rv;

	ASSERT(s->phase == PHASE_SETUP && s->alive == 0);
	if (s->spec.setup && s->setups < s->order.nodes_n) {
		job_log_printf(s->log, "setup on %s", s->order.nodes[s->setups].name);
		rv = shepherd_setup(s, &err);
		s->setups++;
	} else {
		s->phase = PHASE_RUN;
		rv = shepherd_run(s, &err);
		if (rv == 0) {
			s->state.phase = RUN_RUNNING;
			report_state(s);
		}
	}
	if (rv != 0) {
		fail_to_start(s, &err);
	}
}

/* ---- rescaling ---- */

/* Reports the outcome of the rescale under way. */
static void answer_resize(struct shepherd *s, bool done)
{
	if (done) {
		s->state.generation = s->resize_to;
		job_log_printf(s->log, "%u replicas", s->resize_n);
	} else {
		s->state.refused = s->resize_to;
	}
	s->resize_to = 0;
	report_state(s);
}

/* Runs `pawl scale` now, whatever time was set for it. */
static void try_resize(struct shepherd *s)
{
	struct pawl_err err;

	ASSERT(s->scaler == 0 && s->resize_to != 0);
	loop_timer_cancel(s->loop, &s->resize_timer);
	s->scaler_n = s->resize_n;
	if (shepherd_scale(s, &err) != 0) {
		job_log_printf(s->log, "%s", err.msg);
		answer_resize(s, false);
	}
}

static bool can_resize(const struct shepherd *s)
{
	return s->spec.elastic && s->phase == PHASE_RUN && !s->stopping;
}

static void on_resize_timer(struct loop_timer *timer)
{
	struct shepherd *s = timer->user;

	if (can_resize(s)) {
		try_resize(s);
	}
}

static void resize(struct shepherd *s, uint64_t generation, uint32_t replicas)
{
	if (s->resize_to == generation) {
		return; /* this rescale is under way */
	}
	if (generation <= s->state.generation || generation == s->state.refused || !can_resize(s)) {
		s->state.refused = generation > s->state.generation ? generation : s->state.refused;
		report_state(s);
		return;
	}
	s->resize_to = generation;
	s->resize_n = replicas;
	s->resize_until_ns = clock_mono_ns() + times_ns(TIME_RESIZE_TRY);
	if (s->scaler == 0) {
		try_resize(s);
	}
}

/* Handles the end of `pawl scale`. It also fails while the job is not ready yet, and is then tried
 * again, or while the job ends, which is reported separately. */
static void on_scaled(struct shepherd *s, int status)
{
	s->scaler = 0;
	if (s->resize_to == 0 || !can_resize(s)) {
		return;
	}
	if (s->scaler_n != s->resize_n) {
		try_resize(s); /* a newer request has another number */
	} else if (status == 0) {
		answer_resize(s, true);
	} else if (status == SCALE_IMPOSSIBLE || clock_mono_ns() >= s->resize_until_ns) {
		answer_resize(s, false);
	} else {
		loop_timer_start(s->loop, &s->resize_timer,
			clock_mono_ns() + times_ns(TIME_RESIZE_AGAIN));
	}
}

/* ---- events ---- */

static void on_all_ended(struct shepherd *s)
{
	for (uint32_t i = 0; i < s->children_n && s->phase == PHASE_SETUP; i++) {
		shepherd_output_close(&s->children[i]);
	}
	if (s->phase == PHASE_SETUP && s->first_exit == 0 && !s->stopping) {
		start_next(s);
	} else {
		end_strays(s);
	}
}

static void on_child_ended(struct shepherd *s, struct run_child *child, int status)
{
	ASSERT(s->alive > 0 && s->alive <= s->children_n);
	child->pid = 0;
	s->alive--;
	if (status != 0 && s->first_exit == 0) {
		s->first_exit = status;
		if (!s->stopping) {
			signal_children(s, SIGKILL); /* the others would wait for it forever */
		}
	}
	if (s->alive == 0) {
		on_all_ended(s);
	}
}

static void reap(struct shepherd *s)
{
	siginfo_t info = {.si_pid = 0};

	while (s->state.phase != RUN_ENDED && waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 &&
		info.si_pid != 0) {
		int status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;

		if (info.si_pid == s->scaler) {
			on_scaled(s, status);
		}
		for (uint32_t i = 0; i < s->children_n; i++) {
			if (s->children[i].pid == info.si_pid) {
				on_child_ended(s, &s->children[i], status);
				break;
			}
		}
		info.si_pid = 0;
	}
	if (s->phase == PHASE_STRAYS && s->state.phase != RUN_ENDED) {
		s->wait_ns = 0; /* some processes have ended: look soon */
		look_for_strays(s, 0);
	}
}

static void on_signal(struct loop_source *source, uint32_t events)
{
	struct shepherd *s = source->user;
	int signal = loop_read_signal(source);

	if (signal == 0) {
		return;
	}
	if (signal == SIGCHLD) {
		reap(s);
	} else {
		stop(s, s->order.grace_ns); /* the machine shuts down */
	}
}

static void on_request(struct loop_source *source, uint32_t events)
{
	struct shepherd *s = source->user;
	ssize_t n;

	ASSERT(s->request_bytes < sizeof(s->request));
	n = recv(source->fd, (char *)&s->request + s->request_bytes,
		sizeof(s->request) - s->request_bytes, MSG_DONTWAIT);
	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			drop_peer(s);
		}
		return;
	}
	s->request_bytes += (size_t)n;
	if (s->request_bytes < sizeof(s->request)) {
		return;
	}
	s->request_bytes = 0;
	if (s->request.command == RUN_STOP) {
		stop(s, s->request.grace_ns);
	} else if (s->request.command == RUN_RESCALE) {
		resize(s, s->request.generation, s->request.replicas);
	}
}

/* Accepts a connection, and drops an older one: the newest scheduler is in charge. */
static void on_connect(struct listener *listener, int fd, const struct sockaddr *from,
	socklen_t len)
{
	struct shepherd *s = listener->user;

	drop_peer(s);
	s->peer = (struct loop_source){.fd = fd, .ready = on_request, .user = s};
	if (loop_add(s->loop, &s->peer, EPOLLIN, NULL) != 0) {
		close(fd);
		s->peer.fd = -1;
	}
	notify_scheduler(s); /* the scheduler may have missed changes before */
}

static int open_loop(struct shepherd *s, struct pawl_err *err)
{
	sigset_t set;
	int rv = loop_open(&s->loop, err);

	if (rv != 0) {
		return rv;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	s->signals = (struct loop_source){.ready = on_signal, .user = s};
	rv = loop_add_signals(s->loop, &s->signals, &set, err);
	return rv == 0 ? listener_start(&s->listen, s->loop, ORDER_FD_LISTEN, err) : rv;
}

static void log_start(struct shepherd *s)
{
	char where[512] = "";
	size_t len = 0;

	for (uint32_t i = 0; i < s->order.nodes_n && len < sizeof(where) - 1; i++) {
		len += (size_t)snprintf(where + len, sizeof(where) - len, "%s%s (%u)",
			i > 0 ? ", " : "", s->order.nodes[i].name, s->order.nodes[i].replicas);
	}
	job_log_printf(s->log, "job %llu starts on %s", (unsigned long long)s->order.job, where);
}

/* Records why the run could not start: in its state, and in the log if there is one. */
static int refuse(struct shepherd *s, const struct pawl_err *err)
{
	s->state.phase = RUN_ENDED;
	s->state.by_itself = true;
	s->state.exit_code = SHEPHERD_EXIT_START;
	snprintf(s->state.why, sizeof(s->state.why), "%.*s", (int)sizeof(s->state.why) - 1,
		err->msg);
	if (s->log) {
		job_log_printf(s->log, "job %llu cannot be started: %s",
			(unsigned long long)s->order.job, err->msg);
	}
	return run_state_save(ORDER_FD_STATE, &s->state, NULL);
}

/* Removes the scratch directory, which may take long. First closes the connection, so that the
 * scheduler reads the recorded end at once. */
static void clean_up(struct shepherd *s)
{
	if (s->scratch[0] != '\0') {
		drop_peer(s);
		close(ORDER_FD_LISTEN);
		scratch_remove(s->scratch);
	}
}

int shepherd_main(struct pawl_err *err)
{
	struct shepherd *s = calloc(1, sizeof(*s));
	struct pawl_err cause;
	int rv;

	if (!s) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a run");
	}
	umask(022);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	s->peer.fd = -1;
	s->listen = (struct listener){.what = "the scheduler", .accepted = on_connect, .user = s};
	s->timer = (struct loop_timer){.fired = on_timer, .user = s};
	s->resize_timer = (struct loop_timer){.fired = on_resize_timer, .user = s};
	rv = shepherd_prepare(s, &cause);
	s->state.generation = s->order.generation;
	rv = rv == 0 ? open_loop(s, &cause) : rv;
	if (rv != 0) {
		rv = refuse(s, &cause);
	} else {
		log_start(s);
		start_next(s);
		rv = loop_run(s->loop, err);
	}
	clean_up(s);
	submission_deinit(&s->submission);
	sched_spec_deinit(&s->spec);
	wire_out_deinit(&s->order_bytes);
	job_log_close(s->log);
	loop_close(s->loop);
	free(s->children);
	free(s);
	return rv;
}
