/* A server's connection to the job's coordinator: see serve_run.h. */
#include "launch/serve_run.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "io/loop.h"
#include "launch/nodes/node_net.h"
#include "launch/nodes/nodes.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

struct serving {
	const struct serve_run_options *options; /* the caller's */
	struct loop *loop;                       /* loop of this thread */
	struct node_net *net;                    /* connection to the coordinator */
	struct loop_source signals;              /* a signalfd */
	struct loop_timer timer;                 /* fires every TIME_SERVE_LOOK */
	uint64_t instance_id;                    /* random number of this server */
	uint32_t place;                          /* place being tried, or where we joined */
	uint32_t conn;                           /* connection; NODE_NONE: none */
	bool joined;                             /* the coordinator has welcomed us */
	bool reported;                           /* the loss of the coordinator was printed */
	int64_t due_ns;           /* next try, limit of the answer, or next heartbeat; monotonic */
	int64_t last_received_ns; /* time of the last frame, monotonic */
	int64_t heartbeat_interval_ns; /* time between heartbeats; 0: none */
	int status;                    /* exit status */
	bool refused;                  /* refused for good; why has the reason */
	char why[NODE_TEXT_MAX];
};

__attribute__((format(printf, 2, 3))) static void print_line(struct serving *s, const char *fmt,
	...)
{
	char line[NODE_TEXT_MAX + 128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	s->options->print(line);
}

static const char *where(const struct serving *s)
{
	return s->options->places->text[s->place];
}

static void finish(struct serving *s, int status)
{
	s->status = status;
	loop_stop(s->loop);
}

/* Tries the next place, in a moment. */
static void try_again(struct serving *s, const char *why)
{
	if (s->joined || !s->reported) {
		print_line(s, "%s%s: %s; looking for the coordinator", s->joined ? "lost " : "",
			where(s), why);
	}
	s->reported = true;
	s->joined = false;
	s->conn = NODE_NONE;
	s->place = (s->place + 1) % s->options->places->n;
	s->due_ns = clock_mono_ns() + times_ns(TIME_NODES_RETRY);
}

static void on_connected(void *user, uint32_t conn)
{
	struct serving *s = user;
	struct node_frame serve = {.kind = NODE_SERVE, .instance_id = s->instance_id};

	snprintf(serve.text, sizeof(serve.text), "%s", s->options->name);
	node_net_send(s->net, conn, &serve);
	s->due_ns = clock_mono_ns() + times_ns(TIME_NODES_ANSWER);
}

static void on_closed(void *user, uint32_t conn, const char *why)
{
	struct serving *s = user;

	if (conn == s->conn) {
		try_again(s, why);
	}
}

static void on_frame(void *user, uint32_t conn, const struct node_frame *frame)
{
	struct serving *s = user;

	if (conn != s->conn) {
		return;
	}
	s->last_received_ns = clock_mono_ns();
	switch (frame->kind) {
	case NODE_WELCOME:
		s->joined = true;
		s->reported = false;
		s->heartbeat_interval_ns = frame->heartbeat_interval_ns;
		s->due_ns = s->last_received_ns;
		print_line(s, "serves the job at %s", where(s));
		break;
	case NODE_REFUSE:
		node_net_drop(s->net, conn);
		if (frame->final) {
			snprintf(s->why, sizeof(s->why), "%s", frame->text);
			s->refused = true;
			finish(s, 0);
		} else {
			try_again(s, frame->text);
		}
		break;
	case NODE_EXIT:
		print_line(s, "the job ended with status %d", frame->status);
		finish(s, frame->status);
		break;
	default: /* frames for all members */
		break;
	}
}

/* Tries a place, gives up waiting for an answer, or sends a heartbeat, as is due. */
static void on_timer(struct loop_timer *timer)
{
	struct serving *s = timer->user;
	const struct node_frame heartbeat = {.kind = NODE_HEARTBEAT};
	int64_t now_ns = clock_mono_ns();

	ASSERT(!s->joined || s->conn != NODE_NONE);
	loop_timer_start(s->loop, timer, now_ns + times_ns(TIME_SERVE_LOOK));
	if (s->joined && s->heartbeat_interval_ns > 0 &&
		now_ns - s->last_received_ns > NODES_HEARTBEATS_MISSED * s->heartbeat_interval_ns) {
		node_net_drop(s->net, s->conn);
		try_again(s, "no heartbeat from it");
		return;
	}
	if (now_ns < s->due_ns) {
		return;
	}
	if (s->conn == NODE_NONE) {
		s->conn = node_net_connect(s->net, s->place);
		s->due_ns = now_ns + times_ns(TIME_NODES_ANSWER);
		if (s->conn == NODE_NONE) {
			try_again(s, "it cannot be reached");
		}
	} else if (!s->joined) {
		node_net_drop(s->net, s->conn);
		try_again(s, "it does not answer");
	} else {
		node_net_send(s->net, s->conn, &heartbeat);
		s->due_ns = s->heartbeat_interval_ns > 0 ? now_ns + s->heartbeat_interval_ns
							 : INT64_MAX;
	}
}

static void on_signals(struct loop_source *source, uint32_t events)
{
	int signal = loop_read_signal(source);

	if (signal != 0) {
		finish(source->user, 128 + signal);
	}
}

static void list_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
}

void serve_run_block_signals(void)
{
	sigset_t set;

	list_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int open_all(struct serving *s, struct pawl_err *err)
{
	struct node_net_options net = {.places = s->options->places->at,
		.token = s->options->token,
		.connected = on_connected,
		.closed = on_closed,
		.frame = on_frame,
		.user = s};
	sigset_t set;
	int rv = loop_open(&s->loop, err);

	if (rv != 0) {
		return rv;
	}
	list_signals(&set);
	if (getrandom(&s->instance_id, sizeof(s->instance_id), 0) != sizeof(s->instance_id)) {
		return pawl_err_sys(err, "get a random number");
	}
	rv = loop_add_signals(s->loop, &s->signals, &set, err);
	net.loop = s->loop;
	return rv == 0 ? node_net_open(&s->net, &net, err) : rv;
}

int serve_run(const struct serve_run_options *options, int *status, struct pawl_err *err)
{
	struct serving s = {.options = options, .conn = NODE_NONE};
	int rv;

	ASSERT(options->places->n > 0);
	s.signals = (struct loop_source){-1, on_signals, &s};
	s.timer = (struct loop_timer){.fired = on_timer, .user = &s};
	rv = open_all(&s, err);
	if (rv == 0) {
		loop_timer_start(s.loop, &s.timer, clock_mono_ns());
		rv = loop_run(s.loop, err);
	}
	if (rv == 0 && s.refused) {
		rv = pawl_err_set(err, PAWL_EINVAL, "%s: %.400s", where(&s), s.why);
	}
	*status = s.status;
	node_net_close(s.net);
	if (s.signals.fd >= 0) {
		close(s.signals.fd);
	}
	loop_close(s.loop);
	return rv;
}
