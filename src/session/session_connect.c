/* Inside a worker: the connection to the agent, and the events that come over it. See session.h. */
#include "session/session.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "session/spawn.h"

#include <stdio.h>

/* link_event_fn */
static void handle_event(void *user, struct link *link, uint16_t type,
	const union frame_event *event)
{
	struct pawl_ckpt *ckpt = user;

	if (!event) {
		session_handle_agent_lost(ckpt);
		return;
	}
	switch (type) {
	case PROTO_LEVEL:
		session_handle_level(ckpt, &event->level);
		break;
	case PROTO_DIVERGED:
		session_handle_diverged(ckpt, &event->diverged);
		break;
	case PROTO_HOLD:
		session_handle_hold(ckpt, link, &event->hold);
		break;
	case PROTO_YES_AT:
		session_handle_yes_at(ckpt, &event->yes_at);
		break;
	case PROTO_NOTIFICATION:
		session_notify(ckpt, "%s", event->notification.text);
		break;
	default:
		break; /* a newer agent may send other types */
	}
}

/* Connects to the job's agent. If nobody listens, starts one, where options allow it. */
static int connect_agent(struct pawl_ckpt *ckpt, struct link **link, struct pawl_err *err)
{
	const struct pawl_ckpt_options *options = &ckpt->options;
	int64_t until_ns = clock_mono_ns() + times_ns(TIME_SESSION_SPAWN);
	bool spawned = false;
	int rv;

	for (;;) {
		rv = link_open(link, ckpt->socket, handle_event, ckpt, err);
		if (rv != PAWL_ENOENT || !options->program) {
			return rv;
		}
		if (clock_mono_ns() > until_ns) {
			return pawl_err_prefix(err, rv,
				"the agent was started, but does not listen: its .log file "
				"beside the socket may say why");
		}
		if (!spawned) {
			rv = spawn_agent(options->program, options->job, ckpt->socket, err);
			if (rv != 0) {
				return rv;
			}
			spawned = true;
		}
		times_sleep(TIME_SESSION_CONNECT);
	}
}

static int send_hello(struct pawl_ckpt *ckpt, struct link *link, struct pawl_err *err)
{
	const struct pawl_ckpt_options *options = &ckpt->options;
	struct frame_hello hello = {.version = PROTO_VERSION,
		.rank = options->rank,
		.world = options->world,
		.attempt = options->attempt,
		.keep = options->keep,
		.keep_every = options->keep_every,
		.persist_every_ms = options->persist_every_ms,
		.memory_bytes = options->memory_bytes,
		.named = options->named,
		.full_every = options->full_every,
		.first = options->host_first,
		.ranks = options->host_ranks,
		.replicas = options->replicas,
		.parity = options->parity};

	snprintf(hello.job, sizeof(hello.job), "%s", options->job);
	snprintf(hello.root, sizeof(hello.root), "%s", options->root);
	snprintf(hello.hidden, sizeof(hello.hidden), "%s", options->hidden ? options->hidden : "");
	pthread_mutex_lock(&ckpt->state);
	hello.seq = ckpt->numbered ? session_last_number(ckpt) : 0;
	pthread_mutex_unlock(&ckpt->state);
	return link_call(link, &ckpt->frame, PROTO_HELLO, &hello, times_ms(TIME_SESSION_OPEN),
		&ckpt->reply, err);
}

/* Shows other threads a link, or that there is none. Returns the one before. Called with saving. */
static struct link *replace_link(struct pawl_ckpt *ckpt, struct link *link)
{
	struct link *before = ckpt->link;

	pthread_mutex_lock(&ckpt->state);
	ckpt->link = link;
	pthread_mutex_unlock(&ckpt->state);
	return before;
}

int session_connect(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	int64_t until_ns = clock_mono_ns() + times_ns(TIME_SESSION_OPEN);
	struct link *link;
	bool again;
	int rv;

	session_drop_arenas(ckpt);
	link_close(replace_link(ckpt, NULL));
	session_forget_request(ckpt);
	ckpt->build.lost = ckpt->build.open && ckpt->build.slot != SESSION_NO_SLOT;
	pthread_mutex_lock(&ckpt->state);
	session_reset_rounds(ckpt);
	for (uint32_t i = 0; i < PAWL_CKPT_STATUS_KEPT; i++) {
		ckpt->saves.statuses[i].seq = 0; /* this agent counts from the start */
	}
	pthread_mutex_unlock(&ckpt->state);
	do {
		rv = connect_agent(ckpt, &link, err);
		if (rv != 0) {
			return rv;
		}
		rv = send_hello(ckpt, link, err);
		if (rv == 0) { /* before the agent's welcome no other frame may be sent */
			replace_link(ckpt, link);
			return 0;
		}
		/* "try again": see change_world in root.c; or this agent was just ending */
		again = rv == PAWL_ETIMEDOUT || !link_alive(link);
		link_close(link);
		times_sleep(TIME_SESSION_RETRY);
	} while (again && clock_mono_ns() < until_ns);
	return rv;
}

int session_ensure_connected(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	return ckpt->link && link_alive(ckpt->link) ? 0 : session_connect(ckpt, err);
}
