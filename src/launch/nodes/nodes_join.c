/* A node that looks for the coordinator, or follows it: see nodes.h. */
#include "launch/nodes/nodes_impl.h"

#include "base/assert.h"
#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- seeking ---- */

static void schedule_retry(struct nodes *n)
{
	n->role = NODES_SEEKING;
	n->conn = NODE_NONE;
	n->due_ns = n->now_ns + n->options.times.retry_ns;
}

static void try_place(struct nodes *n)
{
	struct pawl_err err = {0};
	int rv;

	ASSERT(n->place < n->options.places);
	rv = n->options.ops->listen(n->options.user, n->place, &err);
	if (rv == 0) {
		nodes_lead(n);
		nodes_lead_gather(n);
		return;
	}
	if (rv != PAWL_ENOENT && rv != PAWL_EBUSY) {
		nodes_log(n, true, "%s", err.msg);
	}
	n->role = NODES_SEEKING;
	n->due_ns = 0;
	n->conn = n->options.ops->connect(n->options.user, n->place);
	if (n->conn == NODE_NONE) {
		schedule_retry(n);
	}
}

void nodes_seek(struct nodes *n)
{
	n->sought_ns = n->now_ns;
	n->logged_ns = n->now_ns;
	memset(n->members, 0, sizeof(n->members));
	memset(n->why, 0, sizeof(n->why));
	n->place = 0;
	try_place(n);
}

/* "a:29400 (Connection refused), b:29400 (…)" */
static void list_places(const struct nodes *n, char *text, size_t cap_bytes)
{
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t p = 0; p < n->options.places && len < cap_bytes; p++) {
		len += (size_t)snprintf(text + len, cap_bytes - len, "%s%s%s%s%s",
			p > 0 ? ", " : "", n->options.place[p], n->why[p][0] != '\0' ? " (" : "",
			n->why[p], n->why[p][0] != '\0' ? ")" : "");
	}
}

void nodes_join_log_timeout(struct nodes *n)
{
	char places[400];

	list_places(n, places, sizeof(places));
	nodes_log(n, true, "no coordinator within %.0f s: %s", (double)n->options.timeout_ns / 1e9,
		places);
}

/* Goes on to the next place: nobody answers at this one, or this node is refused. */
static void next_place(struct nodes *n, const char *why)
{
	char places[400];

	snprintf(n->why[n->place], NODES_WHY_MAX, "%s", why);
	n->conn = NODE_NONE;
	if (n->place + 1 < n->options.places) {
		n->place++;
		try_place(n);
		return;
	}
	if (n->now_ns - n->logged_ns >= n->options.times.log_interval_ns) {
		n->logged_ns = n->now_ns;
		list_places(n, places, sizeof(places));
		nodes_log(n, false, "no coordinator for %.0f s, of %.0f: %s",
			(double)(n->now_ns - n->sought_ns) / 1e9,
			(double)n->options.timeout_ns / 1e9, places);
	}
	schedule_retry(n);
}

void nodes_join(struct nodes *n, uint32_t conn)
{
	struct node_frame join = {.kind = NODE_JOIN,
		.instance_id = n->options.instance_id,
		.nodes = n->options.nodes,
		.workers = n->options.workers,
		.wanted = n->options.wanted,
		.previous_node = n->previous_node,
		.ledger = n->ledger};
	struct pawl_err err;

	if (n->options.ops->address(n->options.user, n->place, join.address, &err) != 0) {
		n->options.ops->close(n->options.user, conn);
		n->role = NODES_SEEKING;
		next_place(n, err.msg);
		return;
	}
	join.port = n->options.ops->port(n->options.user, join.address);
	join.peer_port = n->options.ops->peer_port(n->options.user, join.address);
	snprintf(join.job, sizeof(join.job), "%s", n->options.job);
	memcpy(n->address, join.address, sizeof(n->address));
	n->role = NODES_JOINING;
	n->conn = conn;
	n->due_ns = n->now_ns + n->options.times.answer_ns;
	n->options.ops->send(n->options.user, conn, &join);
}

static void take_welcome(struct nodes *n, const struct node_frame *welcome)
{
	n->role = NODES_MEMBER;
	n->due_ns = 0;
	n->policy.timer_ns = 0;
	n->heartbeat_interval_ns = welcome->heartbeat_interval_ns;
	n->heartbeat_due_ns = n->now_ns;
	n->last_received_ns = n->now_ns;
	nodes_log(n, false, "joined the coordinator at %s", n->options.place[n->place]);
}

static void take_refusal(struct nodes *n, const struct node_frame *refusal)
{
	n->options.ops->close(n->options.user, n->conn);
	if (refusal->final) {
		n->role = NODES_SEEKING;
		n->conn = NODE_NONE;
		n->due_ns = 0;
		nodes_log(n, true, "the coordinator at %s refuses this node: %s",
			n->options.place[n->place], refusal->text);
		nodes_decide(n, (struct run_event){.kind = RUN_REFUSED, .status = RUN_EXIT_USAGE});
		return;
	}
	snprintf(n->why[n->place], NODES_WHY_MAX, "%.159s", refusal->text);
	if (n->logged_ns == n->sought_ns) { /* the first time only: the wait may be long */
		n->logged_ns++;
		nodes_log(n, false, "the coordinator at %s cannot take this node yet: %s",
			n->options.place[n->place], refusal->text);
	}
	schedule_retry(n);
	n->place = 0;
}

/* ---- following ---- */

static void take_start(struct nodes *n, const struct node_frame *start)
{
	struct run_policy *p = &n->policy;

	if (start->ledger.generation <= n->ledger.generation || n->alive > 0 ||
		start->nodes != n->options.nodes) {
		n->options.ops->close(n->options.user, n->conn);
		nodes_join_closed(n, "it sent a start of an old generation");
		return;
	}
	p->phase = RUN_WORKING;
	p->alive = n->options.workers;
	p->workers = n->options.workers;
	p->restarts = start->ledger.restarts;
	p->fast_failures = start->ledger.fast_failures;
	p->status = 0;
	p->departing = false;
	p->noticed = false;
	nodes_start_own(n, start);
}

static void take_notice(struct nodes *n, const struct node_frame *frame)
{
	struct run_policy *p = &n->policy;

	if (frame->generation != n->ledger.generation || p->phase != RUN_WORKING) {
		return;
	}
	p->phase = RUN_LEAVING;
	n->signal = 0;
	p->signal = frame->signal;
	p->noticed = frame->noticed;
	p->status = frame->status;
	p->will_restart = frame->will_restart;
	p->departing = frame->will_restart;
	p->timer_ns = n->now_ns + frame->left_ns;
	p->deadline_ns = p->timer_ns + p->times.reserve_ns;
	n->options.ops->notice(n->options.user, frame->signal, frame->left_ns);
}

static void take_kill(struct nodes *n, const struct node_frame *frame)
{
	if (frame->generation != n->ledger.generation) {
		return;
	}
	n->policy.phase = RUN_ENDING;
	n->policy.will_restart = frame->will_restart;
	n->policy.status = frame->status;
	n->options.ops->kill(n->options.user);
}

static void take_drain(struct nodes *n, const struct node_frame *frame)
{
	struct run_policy *p = &n->policy;

	n->signal = 0;
	p->phase = RUN_DRAINING;
	p->signal = frame->signal;
	p->status = frame->status;
	p->will_restart = frame->will_restart;
	p->departing = frame->will_restart;
	p->timer_ns = n->now_ns + frame->left_ns;
	p->deadline_ns = p->timer_ns;
	n->drained = false;
	n->drained_ok = true;
	n->options.ops->drain(n->options.user);
}

/* Takes a frame for the ranks here, if there are any. */
static void take_for_ranks(struct nodes *n, const struct node_frame *frame)
{
	if (frame->generation != n->ledger.generation ||
		(n->policy.phase != RUN_WORKING && n->policy.phase != RUN_LEAVING)) {
		return;
	}
	if (frame->kind == NODE_SAVE_SOON) {
		n->options.ops->save_soon(n->options.user);
	} else {
		n->options.ops->ask(n->options.user, frame);
	}
}

static void take_frame(struct nodes *n, const struct node_frame *frame)
{
	n->last_received_ns = n->now_ns;
	switch (frame->kind) {
	case NODE_LOG_LINE:
		nodes_log(n, frame->is_error, "%s", frame->text);
		break;
	case NODE_START:
		take_start(n, frame);
		break;
	case NODE_NOTICE:
		take_notice(n, frame);
		break;
	case NODE_KILL:
		take_kill(n, frame);
		break;
	case NODE_DRAIN:
		take_drain(n, frame);
		break;
	case NODE_EXIT:
		n->policy.status = frame->status;
		nodes_exit(n);
		break;
	case NODE_ROOT_BEGUN_RELAY:
		n->options.ops->notify_root_begun(n->options.user, frame->text, frame->instance_id);
		break;
	case NODE_HOLD:
	case NODE_YES_AT:
	case NODE_SAVE_SOON:
		take_for_ranks(n, frame);
		break;
	case NODE_HEARTBEAT:
		break;
	default:
		n->options.ops->close(n->options.user, n->conn);
		nodes_join_closed(n, "it sent a frame that no coordinator sends");
	}
}

void nodes_join_frame(struct nodes *n, const struct node_frame *frame)
{
	if (n->role == NODES_MEMBER) {
		take_frame(n, frame);
	} else if (frame->kind == NODE_WELCOME) {
		take_welcome(n, frame);
	} else if (frame->kind == NODE_REFUSE) {
		take_refusal(n, frame);
	}
}

void nodes_join_exited(struct nodes *n, const struct nodes_event *event)
{
	struct node_frame frame = {.kind = NODE_EXITED,
		.generation = n->ledger.generation,
		.rank = event->rank,
		.status = event->exit.status,
		.commits = event->commits};

	n->policy.alive = n->alive;
	snprintf(frame.text, sizeof(frame.text), "%s", event->text);
	n->options.ops->send(n->options.user, n->conn, &frame);
	if (n->alive == 0) {
		const struct node_frame ready = {.kind = NODE_READY,
			.generation = n->ledger.generation,
			.port = n->options.ops->port(n->options.user, n->address),
			.peer_port = n->options.ops->peer_port(n->options.user, n->address)};

		n->options.ops->send(n->options.user, n->conn, &ready);
	}
}

/* ---- losing the coordinator ---- */

/* Ends the job on this node alone: no other node will. */
static void end_alone(struct nodes *n)
{
	n->policy.alive = n->alive;
	if (n->policy.phase != RUN_DRAINING) {
		/* Goes on if no worker is left here to wait for. */
		nodes_decide(n, (struct run_event){.kind = RUN_LOST, .workers = 0});
	} else if (n->drained) {
		nodes_decide(n, (struct run_event){.kind = RUN_DRAINED, .ok = n->drained_ok});
	}
}

static void lose_coordinator(struct nodes *n, const char *why)
{
	struct run_policy *p = &n->policy;
	bool leaves = p->phase == RUN_LEAVING || p->phase == RUN_DRAINING || p->phase == RUN_ENDING;
	bool departs = n->notice_ns != 0 && n->signal == 0; /* the coordinator knows that */
	bool ending = leaves && (!p->will_restart || departs);

	nodes_log(n, true, "the coordinator at %s is lost: %s%s", n->options.place[n->place], why,
		ending ? ""
			: n->options.places == 1
			? "; only a node with that address can take its place"
			: "; the next address of the rendezvous takes its place");
	n->role = NODES_SEEKING;
	n->conn = NODE_NONE;
	n->due_ns = 0;
	memset(n->members, 0, sizeof(n->members));
	p->departing = false;
	if (ending) {
		p->will_restart = false;
		end_alone(n);
		return;
	}
	p->noticed = false;
	p->phase = RUN_ENDING;
	p->will_restart = true;
	p->counted = false;
	p->timer_ns = 0;
	p->alive = n->alive;
	/* The coordinator may not have received an unanswered signal; no other node has. */
	if (n->signal != 0) {
		nodes_decide(n,
			(struct run_event){.kind = n->notice_ns != 0 ? RUN_NOTICED : RUN_SIGNALED,
				.signal = n->signal,
				.deadline_ns =
					n->notice_ns > n->now_ns ? n->notice_ns : n->now_ns});
	}
	if (n->alive > 0) {
		n->options.ops->kill(n->options.user);
	} else {
		nodes_decide(n, (struct run_event){.kind = RUN_LOST, .workers = 0});
	}
}

void nodes_join_closed(struct nodes *n, const char *why)
{
	if (n->role == NODES_MEMBER) {
		lose_coordinator(n, why);
	} else {
		next_place(n, why);
	}
}

void nodes_join_tick(struct nodes *n)
{
	const struct node_frame frame = {.kind = NODE_HEARTBEAT};
	char why[64];

	if (n->role == NODES_MEMBER && n->heartbeat_interval_ns != 0 &&
		n->now_ns >= n->heartbeat_due_ns) {
		n->heartbeat_due_ns = n->now_ns + n->heartbeat_interval_ns;
		n->options.ops->send(n->options.user, n->conn, &frame);
		if (n->now_ns - n->last_received_ns >
			NODES_HEARTBEATS_MISSED * n->heartbeat_interval_ns) {
			snprintf(why, sizeof(why), "no heartbeat for %.1f s",
				(double)(n->now_ns - n->last_received_ns) / 1e9);
			n->options.ops->close(n->options.user, n->conn);
			lose_coordinator(n, why);
		}
	} else if (n->role == NODES_JOINING && n->now_ns >= n->due_ns) {
		n->options.ops->close(n->options.user, n->conn);
		n->role = NODES_SEEKING;
		next_place(n, "it does not answer");
	} else if (n->role == NODES_SEEKING && n->conn == NODE_NONE && n->due_ns != 0 &&
		n->now_ns >= n->due_ns) {
		n->place = 0;
		try_place(n);
	}
}
