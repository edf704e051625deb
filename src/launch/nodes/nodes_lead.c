/* The coordinator: see nodes.h. It is the first of its members. */
#include "launch/nodes/nodes_impl.h"

#include "base/assert.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LOOPBACK "127.0.0.1" /* where ranks meet if one node has all of them */

static struct nodes_member *own(struct nodes *n)
{
	return &n->members[0];
}

static struct nodes_member *find_conn(struct nodes *n, uint32_t conn)
{
	for (uint32_t m = 1; m < NODES_MAX; m++) {
		if (n->members[m].joined && n->members[m].conn == conn) {
			return &n->members[m];
		}
	}
	return NULL;
}

/* Finds the ports of this node for the next start. */
static void find_ports(struct nodes *n)
{
	struct nodes_member *self = own(n);

	self->port = n->options.ops->port(n->options.user, self->address);
	if (n->options.nodes > 1) {
		self->peer_port = n->options.ops->peer_port(n->options.user, self->address);
	}
}

void nodes_lead_broadcast(struct nodes *n, const struct node_frame *frame)
{
	for (uint32_t m = 1; m < NODES_MAX; m++) {
		if (n->members[m].joined) {
			n->options.ops->send(n->options.user, n->members[m].conn, frame);
		}
	}
}

void nodes_lead_announce(struct nodes *n, bool is_error, const struct nodes_member *except,
	const char *fmt, ...)
{
	struct node_frame log_line_frame = {.kind = NODE_LOG_LINE, .is_error = is_error};
	va_list args;

	va_start(args, fmt);
	vsnprintf(log_line_frame.text, sizeof(log_line_frame.text), fmt, args);
	va_end(args);
	if (except != &n->members[0]) {
		nodes_log(n, is_error, "%s", log_line_frame.text);
	}
	for (uint32_t m = 1; m < NODES_MAX; m++) {
		if (n->members[m].joined && &n->members[m] != except) {
			n->options.ops->send(n->options.user, n->members[m].conn, &log_line_frame);
		}
	}
}

void nodes_lead_disband(struct nodes *n)
{
	for (uint32_t m = 1; m < NODES_MAX; m++) {
		if (n->members[m].joined) {
			n->options.ops->close(n->options.user, n->members[m].conn);
		}
	}
	nodes_serve_drop(n);
}

/* ---- members ---- */

static void announce_count(struct nodes *n)
{
	uint32_t missing = n->options.nodes - nodes_count_joined(n);
	char servers[64] = "";
	char here[256];
	char lost[160];

	ASSERT(missing <= n->options.nodes); /* no more have joined than there are */
	if (missing + nodes_servers_missing(n) == 0 || n->policy.phase != RUN_GATHERING) {
		return;
	}
	nodes_list_members(n, here, sizeof(here));
	nodes_list_missing(n, lost, sizeof(lost));
	if (nodes_servers_missing(n) > 0) {
		snprintf(servers, sizeof(servers), ", and for %u of %u servers",
			nodes_servers_missing(n), n->options.servers);
	}
	nodes_lead_announce(n, false, NULL,
		"%u of %u nodes are here: %s; waiting up to %.0f s for %u more%s%s",
		nodes_count_joined(n), n->options.nodes, here,
		(double)(n->policy.timer_ns - n->now_ns) / 1e9, missing, lost, servers);
}

void nodes_lead_log_timeout(struct nodes *n)
{
	char here[256];
	char lost[160];

	nodes_list_members(n, here, sizeof(here));
	nodes_list_missing(n, lost, sizeof(lost));
	nodes_lead_announce(n, true, NULL,
		"only %u of %u nodes came within %.0f s: %s; %u missing%s, and %u of %u servers",
		nodes_count_joined(n), n->options.nodes, (double)n->options.timeout_ns / 1e9, here,
		n->options.nodes - nodes_count_joined(n), lost, nodes_servers_missing(n),
		n->options.servers);
}

void nodes_lead(struct nodes *n)
{
	struct nodes_member *self = own(n);
	struct pawl_err err;

	memset(n->members, 0, sizeof(n->members));
	memset(n->servers, 0, sizeof(n->servers));
	*self = (struct nodes_member){.joined = true,
		.conn = NODE_NONE,
		.instance_id = n->options.instance_id,
		.order = n->arrivals++,
		.workers = n->options.workers,
		.wanted = n->options.wanted,
		.node = n->options.nodes > 1 ? n->previous_node : 0,
		.address = LOOPBACK,
		.ready = true};
	n->role = NODES_LEADING;
	n->conn = NODE_NONE;
	n->due_ns = 0;
	n->heartbeat_interval_ns = n->options.heartbeat_interval_ns;
	n->policy.restarts = n->ledger.restarts;
	n->policy.fast_failures = n->ledger.fast_failures;
	if ((n->options.nodes > 1 || n->options.joint) &&
		n->options.ops->address(n->options.user, n->place, self->address, &err) != 0) {
		nodes_log(n, true, "%s: the ranks will use %s as MASTER_ADDR", err.msg,
			self->address);
	}
	find_ports(n);
	if (n->options.nodes > 1) {
		nodes_log(n, false, "coordinating at %s", n->options.place[n->place]);
		n->probe_due_ns = n->place > 0 ? n->now_ns + n->options.times.probe_ns : 0;
		n->heartbeat_due_ns = n->now_ns;
		announce_count(n);
	}
}

void nodes_lead_probed(struct nodes *n, uint32_t conn)
{
	if (n->policy.phase != RUN_GATHERING) {
		n->options.ops->close(n->options.user, conn);
		n->probe = NODE_NONE;
		return;
	}
	ASSERT(n->role == NODES_LEADING && n->probed < n->place);
	nodes_lead_disband(n);
	n->options.ops->unlisten(n->options.user);
	memset(n->members, 0, sizeof(n->members));
	n->probe = NODE_NONE;
	n->probe_due_ns = 0;
	n->place = n->probed;
	nodes_join(n, conn);
}

/* ---- joining ---- */

void nodes_lead_refuse(struct nodes *n, uint32_t conn, bool final, const char *fmt, ...)
{
	struct node_frame refusal = {.kind = NODE_REFUSE, .final = final};
	va_list args;

	va_start(args, fmt);
	vsnprintf(refusal.text, sizeof(refusal.text), fmt, args);
	va_end(args);
	n->options.ops->send(n->options.user, conn, &refusal);
	n->options.ops->close(n->options.user, conn);
}

static struct nodes_member *find_wanting(struct nodes *n, uint32_t wanted)
{
	for (uint32_t m = 0; m < NODES_MAX && wanted != NODE_NONE; m++) {
		if (n->members[m].joined && n->members[m].wanted == wanted) {
			return &n->members[m];
		}
	}
	return NULL;
}

/* Whether the node may join; otherwise refuses it with the reason. */
static bool may_join(struct nodes *n, uint32_t conn, const struct node_frame *join)
{
	enum run_phase phase = n->policy.phase;
	const struct nodes_member *other = find_wanting(n, join->wanted);

	if (join->nodes != n->options.nodes) {
		nodes_lead_refuse(n, conn, true, "--nnodes is %u there and %u here", join->nodes,
			n->options.nodes);
	} else if (strcmp(join->job, n->options.job) != 0) {
		nodes_lead_refuse(n, conn, true,
			"the job is %s there and %s here: give all nodes the same --job", join->job,
			n->options.job);
	} else if (join->instance_id == n->options.instance_id) {
		nodes_lead_refuse(n, conn, false, "it is this node itself");
	} else if (n->policy.departing) {
		nodes_lead_refuse(n, conn, false, "a node is about to leave");
	} else if (n->role != NODES_LEADING || phase == RUN_LEAVING || phase == RUN_DRAINING ||
		(phase == RUN_ENDING && !n->policy.will_restart)) {
		nodes_lead_refuse(n, conn, false, "the job is ending");
	} else if (nodes_count_joined(n) == n->options.nodes) {
		nodes_lead_refuse(n, conn, false, "the job already has its %u nodes",
			n->options.nodes);
	} else if (other != NULL) {
		nodes_lead_refuse(n, conn, false, "--node-rank %u is that of %s", join->wanted,
			other->address);
	} else {
		return true;
	}
	return false;
}

static void remove_member(struct nodes *n, struct nodes_member *m, const char *why);

/* Finds the slot that the node had before, or else one that was never used if there is one, so that
 * lost nodes can still be named. */
static struct nodes_member *find_slot(struct nodes *n, uint64_t instance_id)
{
	struct nodes_member *slot = NULL;

	for (uint32_t i = 1; i < NODES_MAX; i++) {
		struct nodes_member *m = &n->members[i];

		if (!m->joined && m->instance_id == instance_id) {
			return m;
		}
		if (!m->joined &&
			(slot == NULL || (slot->instance_id != 0 && m->instance_id == 0))) {
			slot = m;
		}
	}
	ASSERT(slot != NULL); /* fewer than options.nodes are in use */
	return slot;
}

/* Adopts the ledger of a node on which the job was further. */
static void adopt_ledger(struct nodes *n, const struct node_frame *join)
{
	if (join->ledger.generation > n->ledger.generation) {
		n->ledger = join->ledger;
		n->policy.restarts = n->ledger.restarts;
		n->policy.fast_failures = n->ledger.fast_failures;
	} else if (n->ledger.generation == 0 && join->ledger.attempt > n->ledger.attempt) {
		n->ledger.attempt = join->ledger.attempt;
	}
}

static void take_join(struct nodes *n, uint32_t conn, const struct node_frame *join)
{
	const struct node_frame welcome = {.kind = NODE_WELCOME,
		.heartbeat_interval_ns = n->heartbeat_interval_ns};
	struct nodes_member *m;

	for (uint32_t i = 1; i < NODES_MAX; i++) {
		if (n->members[i].joined && n->members[i].instance_id == join->instance_id) {
			n->options.ops->close(n->options.user, n->members[i].conn);
			remove_member(n, &n->members[i], "it has joined again");
		}
	}
	if (!may_join(n, conn, join)) {
		return;
	}
	m = find_slot(n, join->instance_id);
	*m = (struct nodes_member){.joined = true,
		.conn = conn,
		.instance_id = join->instance_id,
		.order = n->arrivals++,
		.workers = join->workers,
		.wanted = join->wanted,
		.node = join->previous_node,
		.port = join->port,
		.peer_port = join->peer_port,
		.ready = true,
		.last_received_ns = n->now_ns};
	memcpy(m->address, join->address, sizeof(m->address));
	adopt_ledger(n, join);
	n->options.ops->send(n->options.user, conn, &welcome);
	nodes_lead_wait(n);
}

/* ---- starting ---- */

/* Returns where the agents of the other nodes reach that of rank 0's node; 0: not all of them can
 * be reached, and then none is. So all agree in the same way. */
static uint32_t find_peer_port(struct nodes *n)
{
	uint32_t port = nodes_find_member(n, 0)->peer_port;

	for (uint32_t node = 1; node < n->options.nodes; node++) {
		const struct nodes_member *m = nodes_find_member(n, node);

		ASSERT(m != NULL);
		port = m->peer_port != 0 ? port : 0;
	}
	return port;
}

void nodes_lead_start(struct nodes *n)
{
	struct node_frame start = {.kind = NODE_START, .nodes = n->options.nodes};
	const struct nodes_member *master = nodes_find_member(n, 0);

	ASSERT(n->role == NODES_LEADING && master != NULL);
	n->ledger.generation++;
	n->ledger.restarts = n->policy.restarts;
	n->ledger.fast_failures = n->policy.fast_failures;
	start.ledger = n->ledger;
	start.world = n->policy.workers;
	start.port = master->port;
	start.peer_port = find_peer_port(n);
	memcpy(start.address, master->address, sizeof(start.address));
	nodes_serve_list(n, start.text);
	memset(&n->polls, 0, sizeof(n->polls));
	n->probe_due_ns = 0;
	for (uint32_t node = 0, first = 0; node < n->options.nodes; node++) {
		struct nodes_member *m = nodes_find_member(n, node);

		ASSERT(m != NULL);
		start.node = node;
		start.first = first;
		m->alive = m->workers;
		m->ready = false;
		m->drained = false;
		first += m->workers;
		if (m == own(n)) {
			nodes_start_own(n, &start);
		} else {
			n->options.ops->send(n->options.user, m->conn, &start);
		}
	}
}

void nodes_lead_wait(struct nodes *n)
{
	announce_count(n);
	nodes_lead_gather(n);
}

void nodes_lead_gather(struct nodes *n)
{
	uint32_t workers = 0;

	if (n->policy.phase != RUN_GATHERING) {
		return;
	}
	if (nodes_count_joined(n) < n->options.nodes || nodes_servers_missing(n) > 0) {
		n->probe_due_ns = n->place > 0 && n->probe_due_ns == 0
			? n->now_ns + n->options.times.probe_ns
			: n->probe_due_ns;
		return;
	}
	for (uint32_t m = 0; m < NODES_MAX; m++) {
		if (n->members[m].joined && !n->members[m].ready) {
			return;
		}
		workers += n->members[m].joined ? n->members[m].workers : 0;
	}
	if (n->probe != NODE_NONE) {
		n->options.ops->close(n->options.user, n->probe);
		n->probe = NODE_NONE;
	}
	for (uint32_t m = 0; m < NODES_MAX; m++) { /* lost nodes have been replaced */
		n->members[m].instance_id = n->members[m].joined ? n->members[m].instance_id : 0;
	}
	nodes_settle_ranks(n);
	nodes_decide(n, (struct run_event){.kind = RUN_GATHERED, .workers = workers});
}

/* ---- frames of members ---- */

static void decide_exit(struct nodes *n, struct nodes_member *m, struct run_event exited)
{
	n->commits += exited.commits != m->commits;
	m->commits = exited.commits;
	exited.kind = RUN_EXITED;
	exited.commits = n->commits;
	nodes_decide(n, exited);
}

static void take_exited(struct nodes *n, struct nodes_member *m, const struct node_frame *frame)
{
	if (frame->generation != n->ledger.generation || m->alive == 0) {
		return;
	}
	m->alive--;
	if (frame->status != 0 && n->policy.phase == RUN_WORKING) {
		nodes_lead_announce(n, true, m, "%s", frame->text);
	}
	decide_exit(n, m,
		(struct run_event){.exit = {.status = frame->status}, .commits = frame->commits});
}

void nodes_lead_exited(struct nodes *n, const struct nodes_event *event)
{
	struct nodes_member *self = own(n);

	if (n->role != NODES_LEADING) { /* one of a group whose coordinator is lost */
		nodes_decide(n, (struct run_event){.kind = RUN_EXITED, .exit = event->exit});
		return;
	}
	ASSERT(self->alive > 0);
	self->alive--;
	if (event->exit.status != 0 && n->policy.phase == RUN_WORKING && n->options.nodes > 1) {
		struct node_frame log_line_frame = {.kind = NODE_LOG_LINE, .is_error = true};

		snprintf(log_line_frame.text, sizeof(log_line_frame.text), "%s", event->text);
		nodes_lead_broadcast(n, &log_line_frame);
	}
	if (self->alive == 0) {
		find_ports(n);
		self->ready = true;
	}
	decide_exit(n, self, (struct run_event){.exit = event->exit, .commits = event->commits});
}

void nodes_lead_resize(struct nodes *n, uint32_t workers)
{
	ASSERT(n->options.nodes == 1 && workers > 0);
	own(n)->workers = workers;
	n->options.workers = workers;
}

void nodes_lead_scaled(struct nodes *n, const struct nodes_event *event)
{
	nodes_lead_resize(n, event->workers);
	nodes_decide(n,
		(struct run_event){.kind = RUN_SCALED,
			.workers = event->workers,
			.survivable = event->survivable});
}

void nodes_lead_add(struct nodes *n)
{
	ASSERT(n->role == NODES_LEADING && n->policy.change > 0);
	own(n)->alive += n->policy.change;
	own(n)->ready = false;
	n->alive += n->policy.change;
	n->options.ops->add(n->options.user, n->policy.change);
}

void nodes_lead_drained(struct nodes *n)
{
	if (n->policy.phase != RUN_DRAINING || !n->drained) {
		return;
	}
	for (uint32_t m = 1; m < NODES_MAX; m++) {
		if (n->members[m].joined && !n->members[m].drained) {
			return;
		}
	}
	nodes_decide(n, (struct run_event){.kind = RUN_DRAINED, .ok = n->drained_ok});
}

/* Relays that rank 0's agent has begun in a root: the other agents check whether they see what it
 * wrote. */
static void take_root_begun(struct nodes *n, const struct nodes_member *m,
	const struct node_frame *frame)
{
	struct node_frame relay = *frame;

	relay.kind = NODE_ROOT_BEGUN_RELAY;
	for (uint32_t i = 1; i < NODES_MAX; i++) {
		if (n->members[i].joined && &n->members[i] != m) {
			n->options.ops->send(n->options.user, n->members[i].conn, &relay);
		}
	}
	n->options.ops->notify_root_begun(n->options.user, frame->text, frame->instance_id);
}

static bool has_ranks(const struct nodes *n)
{
	return n->policy.phase == RUN_WORKING || n->policy.phase == RUN_LEAVING;
}

void nodes_lead_polled(struct nodes *n, const struct nodes_member *m,
	const struct node_frame *frame)
{
	struct node_frame answer = *frame;
	enum nodes_polls_next next;

	if (frame->generation != n->ledger.generation || !has_ranks(n)) {
		return;
	}
	next = nodes_polls_take(&n->polls, frame, m->node, n->options.nodes, &answer.polls);
	answer.kind = next == POLLS_HOLD ? NODE_HOLD : NODE_YES_AT;
	for (uint32_t i = 0; i < NODES_MAX && next != POLLS_WAIT; i++) {
		bool same = &n->members[i] == m;

		if (!n->members[i].joined || (next == POLLS_HOLD && same) ||
			(next == POLLS_AGAIN && !same)) {
			continue;
		}
		if (i == 0) {
			n->options.ops->ask(n->options.user, &answer);
		} else {
			n->options.ops->send(n->options.user, n->members[i].conn, &answer);
		}
	}
}

void nodes_lead_advised(struct nodes *n, const struct nodes_member *m,
	const struct node_frame *frame)
{
	if (frame->generation != n->ledger.generation || !has_ranks(n)) {
		return;
	}
	for (uint32_t i = 1; i < NODES_MAX; i++) {
		if (n->members[i].joined && &n->members[i] != m) {
			n->options.ops->send(n->options.user, n->members[i].conn, frame);
		}
	}
	if (m != own(n)) {
		n->options.ops->save_soon(n->options.user);
	}
}

/* A signal reached a member, or its machine goes away. */
static void take_signal(struct nodes *n, struct nodes_member *m, const struct node_frame *frame)
{
	if (frame->left_ns != 0) {
		nodes_lead_machine_goes(n, m, frame);
	} else if (!n->policy.departing || !m->departs) {
		nodes_signal(n, &m->signaled_ns, frame->signal);
	}
}

static void take_drained(struct nodes *n, struct nodes_member *m, const struct node_frame *frame)
{
	if (frame->generation != n->ledger.generation) {
		return; /* the answer to a drain that was given up */
	}
	m->drained = true;
	n->drained_ok = n->drained_ok && frame->ok;
	nodes_lead_drained(n);
}

void nodes_lead_frame(struct nodes *n, uint32_t conn, const struct node_frame *frame)
{
	struct nodes_member *m = find_conn(n, conn);

	if (m == NULL) {
		if (nodes_serve_frame(n, conn, frame)) {
			return;
		}
		if (frame->kind == NODE_JOIN) {
			take_join(n, conn, frame);
		} else if (frame->kind == NODE_SERVE) {
			nodes_serve_join(n, conn, frame);
		} else if (conn != n->probe) {
			n->options.ops->close(n->options.user, conn);
		}
		return;
	}
	m->last_received_ns = n->now_ns;
	switch (frame->kind) {
	case NODE_EXITED:
		take_exited(n, m, frame);
		break;
	case NODE_READY:
		if (frame->generation == n->ledger.generation && m->alive == 0) {
			m->ready = true;
			m->port = frame->port;
			m->peer_port = frame->peer_port;
			nodes_lead_gather(n);
		}
		break;
	case NODE_SIGNAL:
		take_signal(n, m, frame);
		break;
	case NODE_DRAINED:
		take_drained(n, m, frame);
		break;
	case NODE_ROOT_BEGUN:
		take_root_begun(n, m, frame);
		break;
	case NODE_SAVE_SOON:
		nodes_lead_advised(n, m, frame);
		break;
	case NODE_POLLED:
		nodes_lead_polled(n, m, frame);
		break;
	case NODE_HEARTBEAT:
		break;
	default:
		n->options.ops->close(n->options.user, conn);
		remove_member(n, m, "it sent a frame that only a coordinator sends");
	}
}

/* ---- losing, ending ---- */

static void remove_member(struct nodes *n, struct nodes_member *m, const char *why)
{
	uint32_t alive = m->alive;
	char name[96];

	m->joined = false;
	m->alive = 0;
	if (n->role == NODES_CLOSING) {
		nodes_lead_try_exit(n);
		return;
	}
	nodes_name_member(m, name, sizeof(name));
	nodes_lead_announce(n, true, NULL, "%s is lost: %s", name, why);
	if (n->policy.phase == RUN_DRAINING) {
		n->drained_ok = false;
		nodes_lead_drained(n);
		return;
	}
	nodes_lead_lost(n, alive);
}

void nodes_lead_lost(struct nodes *n, uint32_t alive)
{
	bool gathering = n->policy.phase == RUN_GATHERING;

	nodes_decide(n,
		(struct run_event){.kind = RUN_LOST, .workers = alive, .commits = n->commits});
	if (gathering) {
		announce_count(n);
	}
}

void nodes_lead_closed(struct nodes *n, uint32_t conn, const char *why)
{
	struct nodes_member *m = find_conn(n, conn);

	if (conn == n->probe) {
		n->probe = NODE_NONE;
	} else if (m != NULL) {
		remove_member(n, m, why);
	} else {
		nodes_serve_closed(n, conn, why);
	}
}

void nodes_lead_finish(struct nodes *n)
{
	const struct node_frame exit = {.kind = NODE_EXIT, .status = n->policy.status};

	nodes_lead_broadcast(n, &exit);
	nodes_serve_broadcast(n, &exit);
	n->role = NODES_CLOSING;
	n->probe_due_ns = 0;
	n->due_ns = n->now_ns + n->options.times.close_ns;
	nodes_lead_try_exit(n);
}

void nodes_lead_try_exit(struct nodes *n)
{
	if (n->role == NODES_CLOSING && nodes_count_joined(n) <= 1 &&
		nodes_servers_joined(n) == 0) {
		nodes_exit(n);
	}
}

static void send_heartbeats(struct nodes *n)
{
	const struct node_frame frame = {.kind = NODE_HEARTBEAT};
	char why[64];

	n->heartbeat_due_ns = n->now_ns + n->heartbeat_interval_ns;
	nodes_lead_broadcast(n, &frame);
	nodes_serve_heartbeat(n);
	for (uint32_t i = 1; i < NODES_MAX; i++) {
		struct nodes_member *m = &n->members[i];

		if (m->joined &&
			n->now_ns - m->last_received_ns >
				NODES_HEARTBEATS_MISSED * n->heartbeat_interval_ns) {
			snprintf(why, sizeof(why), "no heartbeat for %.1f s",
				(double)(n->now_ns - m->last_received_ns) / 1e9);
			n->options.ops->close(n->options.user, m->conn);
			remove_member(n, m, why);
		}
		if (n->role == NODES_OVER) {
			return;
		}
	}
}

static void probe(struct nodes *n)
{
	ASSERT(n->place > 0); /* there are earlier places */
	n->probe_due_ns = n->now_ns + n->options.times.probe_ns;
	if (n->probe == NODE_NONE && n->policy.phase == RUN_GATHERING) {
		n->probed = (n->probed + 1) % n->place;
		n->probe = n->options.ops->connect(n->options.user, n->probed);
	}
}

void nodes_lead_tick(struct nodes *n)
{
	if (n->role == NODES_CLOSING && n->now_ns >= n->due_ns) {
		nodes_exit(n);
		return;
	}
	if (n->options.nodes > 1 && n->heartbeat_interval_ns != 0 &&
		n->now_ns >= n->heartbeat_due_ns) {
		send_heartbeats(n);
	}
	if (n->role == NODES_LEADING && n->probe_due_ns != 0 && n->now_ns >= n->probe_due_ns) {
		probe(n);
	}
}

/* ---- machines that go away ---- */

void nodes_lead_machine_goes(struct nodes *n, struct nodes_member *member,
	const struct node_frame *frame)
{
	struct run_event event = {.kind = RUN_NOTICED,
		.signal = frame->signal,
		.deadline_ns = n->now_ns + frame->left_ns};
	char name[96];

	member->departs = true;
	if (n->options.joint && n->options.leaves_on_notice) {
		event.kind = RUN_QUIT_BY;
	} else if (n->role == NODES_LEADING && n->options.nodes > 1) {
		nodes_name_member(member, name, sizeof(name));
		nodes_lead_announce(n, false, member, "%s: %s", name, frame->text);
		event.kind = n->options.leaves_on_notice && nodes_has_staying(n) ? RUN_DEPARTS
										 : RUN_NOTICED;
	}
	nodes_decide(n, event);
}

void nodes_lead_dismiss(struct nodes *n)
{
	const struct node_frame exit = {.kind = NODE_EXIT, .status = n->policy.status};
	struct nodes_member *self = &n->members[0];
	char name[96];

	for (uint32_t i = 1; i < NODES_MAX; i++) {
		struct nodes_member *m = &n->members[i];

		if (m->joined && m->departs) {
			nodes_name_member(m, name, sizeof(name));
			n->options.ops->send(n->options.user, m->conn, &exit);
			n->options.ops->close(n->options.user, m->conn);
			m->joined = false;
			nodes_lead_announce(n, false, NULL, "%s has left", name);
		}
	}
	if (self->departs) {
		nodes_name_member(self, name, sizeof(name));
		nodes_lead_announce(n, false, self, "%s has left; it was the coordinator", name);
		nodes_lead_disband(n);
		n->policy.noticed =
			true; /* over for the others, and the reason why this node ends */
		n->role = NODES_CLOSING;
		nodes_exit(n);
	}
}
