/* One node's part in a job of several: see nodes.h. This file dispatches events and carries out
 * actions. */
#include "launch/nodes/nodes_impl.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void nodes_log(struct nodes *n, bool is_error, const char *fmt, ...)
{
	char text[NODE_TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	n->options.ops->log(n->options.user, is_error, text);
}

uint32_t nodes_attempt(const struct nodes *n)
{
	return n->ledger.attempt + (n->ledger.generation > 0 ? n->ledger.generation - 1 : 0);
}

void nodes_init(struct nodes *n, const struct nodes_options *options)
{
	ASSERT(options->nodes >= 1 && options->nodes <= NODES_MAX);
	ASSERT(options->nodes == 1 || options->places >= 1);
	ASSERT(options->places <= NODES_PLACES_MAX && options->servers <= NODE_SERVERS_MAX);
	n->options = *options;
	n->policy = (struct run_policy){
		.times = options->run_times,
		.workers = options->workers,
		.min_workers = options->min_workers,
		.joint = options->joint,
		.max_restarts = options->max_restarts,
		.grace_ns = options->grace_ns,
		.preempted_status = options->preempted_status,
		.gathers = options->nodes > 1,
		.gather_max_ns = options->timeout_ns,
	};
	n->ledger.attempt = options->attempt;
	n->previous_node = NODE_NONE;
	n->conn = NODE_NONE;
	n->probe = NODE_NONE;
	n->heartbeat_interval_ns = options->heartbeat_interval_ns;
}

void nodes_start_own(struct nodes *n, const struct node_frame *start)
{
	ASSERT(n->alive == 0); /* the workers of the generation before have ended */
	n->ledger = start->ledger;
	n->previous_node = start->node;
	n->alive = n->options.workers;
	n->drained = false;
	n->options.ops->start(n->options.user, start);
}

void nodes_exit(struct nodes *n)
{
	ASSERT(n->role == NODES_CLOSING || n->role == NODES_MEMBER);
	n->role = NODES_OVER;
	n->options.ops->exit(n->options.user, n->policy.status);
}

/* ---- carrying out decisions ---- */

static int64_t left_ns(const struct nodes *n)
{
	return n->policy.timer_ns > n->now_ns ? n->policy.timer_ns - n->now_ns : 0;
}

static void notice(struct nodes *n)
{
	const struct node_frame frame = {.kind = NODE_NOTICE,
		.generation = n->ledger.generation,
		.signal = n->policy.signal,
		.left_ns = left_ns(n),
		.status = n->policy.status,
		.noticed = n->policy.noticed,
		.will_restart = n->policy.will_restart};

	nodes_lead_broadcast(n, &frame);
	n->options.ops->notice(n->options.user, frame.signal, frame.left_ns);
}

static void kill_workers(struct nodes *n)
{
	const struct node_frame frame = {.kind = NODE_KILL,
		.generation = n->ledger.generation,
		.will_restart = n->policy.will_restart,
		.status = n->policy.status};

	nodes_lead_broadcast(n, &frame);
	n->options.ops->kill(n->options.user);
}

static void drain(struct nodes *n)
{
	const struct node_frame frame = {.kind = NODE_DRAIN,
		.generation = n->ledger.generation,
		.status = n->policy.status,
		.signal = n->policy.signal,
		.left_ns = left_ns(n),
		.will_restart = n->policy.departing};

	n->drained = false;
	n->drained_ok = true;
	for (uint32_t m = 0; m < NODES_MAX; m++) {
		n->members[m].drained = false;
	}
	nodes_lead_broadcast(n, &frame);
	n->options.ops->drain(n->options.user);
}

/* Waits until all nodes are there. Nodes that depart, this one perhaps, leave first. */
static void gather(struct nodes *n)
{
	if (n->role != NODES_LEADING) {
		nodes_seek(n);
		return;
	}
	nodes_lead_dismiss(n);
	if (n->role == NODES_LEADING) {
		nodes_lead_wait(n);
	}
}

void nodes_carry_out(struct nodes *n, unsigned actions)
{
	if (actions & RUN_DO_NOTICE) {
		notice(n);
	}
	if (actions & RUN_DO_KILL) {
		kill_workers(n);
	}
	if (actions & RUN_DO_GATHER) {
		gather(n);
	}
	if (actions & RUN_DO_START) {
		nodes_lead_start(n);
	}
	if (actions & RUN_DO_ADD) {
		nodes_lead_add(n);
	}
	if (actions & RUN_DO_RETIRE) {
		n->options.ops->retire(n->options.user, n->policy.change);
	}
	if (actions & RUN_DO_SHRINK) {
		nodes_log(n, true,
			"workers fail as soon as they are started: %u go on, and none is added "
			"until pawl scale asks for one",
			n->policy.workers);
		nodes_lead_resize(n, n->policy.workers);
	}
	if (actions & RUN_DO_DRAIN) {
		drain(n);
	}
	if (actions & RUN_DO_EXIT) {
		nodes_lead_finish(n);
	}
}

void nodes_decide(struct nodes *n, struct run_event event)
{
	event.now_ns = n->now_ns;
	nodes_carry_out(n, run_policy_step(&n->policy, &event));
}

/* ---- events ---- */

static void begin(struct nodes *n)
{
	if (n->options.nodes == 1) {
		nodes_lead(n);
	}
	nodes_decide(n, (struct run_event){.kind = RUN_BEGIN});
}

static void take_exit(struct nodes *n, const struct nodes_event *event)
{
	ASSERT(n->alive > 0);
	n->alive--;
	if (n->role == NODES_MEMBER) {
		nodes_join_exited(n, event);
	} else {
		nodes_lead_exited(n, event);
	}
}

/* A signal that reaches all nodes at once, as by srun, counts once: it is no second signal from the
 * user. So does a signal that reaches one node twice at once, from Slurm and from its
 * supervisor, and the first one after a notice to launchers that leave the others. */
void nodes_signal(struct nodes *n, int64_t *signaled_ns, int signal)
{
	bool again = *signaled_ns != 0 && n->now_ns - *signaled_ns >= n->options.times.together_ns;

	*signaled_ns = *signaled_ns != 0 ? *signaled_ns : n->now_ns;
	if (again || (n->policy.signal == 0 && n->policy.quit_signal != signal)) {
		nodes_decide(n, (struct run_event){.kind = RUN_SIGNALED, .signal = signal});
	}
}

static void take_signal(struct nodes *n, int signal)
{
	const struct node_frame frame = {.kind = NODE_SIGNAL, .signal = signal};

	if (n->role == NODES_MEMBER) {
		n->signal = signal;
		n->signaled_ns = n->signaled_ns != 0 ? n->signaled_ns : n->now_ns;
		n->options.ops->send(n->options.user, n->conn, &frame);
	} else if (!n->policy.departing || n->notice_ns == 0) {
		nodes_signal(n, &n->signaled_ns, signal);
	}
}

/* Our machine goes away. */
static void take_machine_notice(struct nodes *n, const struct nodes_event *event)
{
	struct node_frame frame = {.kind = NODE_SIGNAL, .signal = event->signal};
	int64_t left_ns = event->deadline_ns - n->now_ns;

	if (event->kind == NODES_TERMINATED && n->signaled_ns == 0) {
		n->signaled_ns = n->now_ns;
	}
	left_ns = left_ns > 1 ? left_ns : 1;
	frame.left_ns = left_ns < NODE_LEFT_MAX_NS ? left_ns : NODE_LEFT_MAX_NS;
	snprintf(frame.text, sizeof(frame.text), "%s", event->text);
	n->notice_ns = n->now_ns + frame.left_ns;
	if (n->role == NODES_MEMBER) {
		n->signal = event->signal;
		n->policy.noticed = true;
		n->options.ops->send(n->options.user, n->conn, &frame);
	} else {
		nodes_lead_machine_goes(n, &n->members[0], &frame);
	}
}

static void take_drained(struct nodes *n, bool ok)
{
	const struct node_frame frame = {.kind = NODE_DRAINED,
		.generation = n->ledger.generation,
		.ok = ok};

	n->drained = true;
	n->drained_ok = n->drained_ok && ok;
	if (n->role == NODES_MEMBER) {
		n->options.ops->send(n->options.user, n->conn, &frame);
	} else {
		nodes_lead_drained(n);
	}
}

static void take_root_begun(struct nodes *n, const struct nodes_event *event)
{
	struct node_frame frame = {.kind = NODE_ROOT_BEGUN, .instance_id = event->nonce};

	if (n->options.nodes == 1 || strlen(event->text) >= sizeof(frame.text)) {
		return;
	}
	memcpy(frame.text, event->text, strlen(event->text));
	if (n->role == NODES_MEMBER) {
		n->options.ops->send(n->options.user, n->conn, &frame);
	} else {
		frame.kind = NODE_ROOT_BEGUN_RELAY;
		nodes_lead_broadcast(n, &frame);
	}
}

static void take_polled(struct nodes *n, const struct node_frame *polled)
{
	struct node_frame frame = *polled;

	frame.generation = n->ledger.generation;
	if (n->role == NODES_MEMBER) {
		n->options.ops->send(n->options.user, n->conn, &frame);
	} else if (n->role == NODES_LEADING) {
		nodes_lead_polled(n, &n->members[0], &frame);
	}
}

static void take_advice(struct nodes *n)
{
	const struct node_frame frame = {.kind = NODE_SAVE_SOON,
		.generation = n->ledger.generation};

	if (n->role == NODES_MEMBER) {
		n->options.ops->send(n->options.user, n->conn, &frame);
	} else if (n->role == NODES_LEADING) {
		nodes_lead_advised(n, &n->members[0], &frame);
	}
}

/* If this process itself stood still, the other nodes were not silent for that time: moves the
 * times of their last frames forward by it. */
static void adjust_for_stall(struct nodes *n)
{
	int64_t late_ns =
		n->ticked_ns != 0 ? n->now_ns - n->ticked_ns - n->heartbeat_interval_ns : 0;

	if (late_ns < n->heartbeat_interval_ns) {
		return;
	}
	n->last_received_ns += late_ns;
	for (uint32_t m = 0; m < NODES_MAX; m++) {
		n->members[m].last_received_ns += late_ns;
	}
}

static void tick(struct nodes *n, const struct nodes_event *event)
{
	if (n->policy.timer_ns != 0 && n->now_ns >= n->policy.timer_ns && n->role != NODES_MEMBER) {
		if (n->policy.phase == RUN_GATHERING && n->role == NODES_LEADING) {
			nodes_lead_log_timeout(n);
		} else if (n->policy.phase == RUN_GATHERING) {
			nodes_join_log_timeout(n);
		}
		nodes_decide(n,
			(struct run_event){.kind = RUN_TIMEOUT, .survivable = event->survivable});
	}
	if (n->role == NODES_LEADING || n->role == NODES_CLOSING) {
		nodes_lead_tick(n);
	} else if (n->role != NODES_OVER) {
		nodes_join_tick(n);
	}
}

static void take_sooner(int64_t *timer_ns, int64_t due_ns)
{
	if (due_ns != 0 && (*timer_ns == 0 || due_ns < *timer_ns)) {
		*timer_ns = due_ns;
	}
}

static int64_t next_tick_ns(const struct nodes *n)
{
	int64_t timer_ns = 0;

	if (n->role == NODES_OVER) {
		return 0;
	}
	if (n->role != NODES_MEMBER) {
		take_sooner(&timer_ns, n->policy.timer_ns);
		take_sooner(&timer_ns, n->due_ns);
		take_sooner(&timer_ns, n->probe_due_ns);
	}
	if (n->options.nodes > 1 && n->heartbeat_interval_ns != 0 && n->role != NODES_SEEKING &&
		n->role != NODES_JOINING) {
		take_sooner(&timer_ns, n->heartbeat_due_ns);
	}
	return timer_ns;
}

void nodes_step(struct nodes *n, const struct nodes_event *event)
{
	if (n->role == NODES_OVER) {
		return;
	}
	n->now_ns = event->now_ns;
	if (n->heartbeat_interval_ns != 0) {
		adjust_for_stall(n);
	}
	switch (event->kind) {
	case NODES_BEGIN:
		begin(n);
		break;
	case NODES_TICK:
		tick(n, event);
		break;
	case NODES_CONNECTED:
		if (event->conn == n->probe) {
			nodes_lead_probed(n, event->conn);
		} else if (event->conn == n->conn) {
			nodes_join(n, event->conn);
		}
		break;
	case NODES_CLOSED:
		if (n->role == NODES_LEADING || n->role == NODES_CLOSING) {
			nodes_lead_closed(n, event->conn, event->text);
		} else if (event->conn == n->conn) {
			nodes_join_closed(n, event->text);
		}
		break;
	case NODES_FRAME:
		if (n->role == NODES_LEADING || n->role == NODES_CLOSING) {
			nodes_lead_frame(n, event->conn, event->frame);
		} else if (event->conn == n->conn) {
			nodes_join_frame(n, event->frame);
		}
		break;
	case NODES_EXITED:
		take_exit(n, event);
		break;
	case NODES_SIGNALED:
		take_signal(n, event->signal);
		break;
	case NODES_TERMINATED:
	case NODES_NOTICED:
		take_machine_notice(n, event);
		break;
	case NODES_SCALED:
		nodes_lead_scaled(n, event);
		break;
	case NODES_QUIT:
		nodes_decide(n, (struct run_event){.kind = RUN_QUIT});
		break;
	case NODES_DRAINED:
		take_drained(n, event->ok);
		break;
	case NODES_ROOT_BEGUN:
		take_root_begun(n, event);
		break;
	case NODES_ADVISED:
		take_advice(n);
		break;
	case NODES_POLLED:
		take_polled(n, event->frame);
		break;
	}
	n->ticked_ns = n->now_ns;
	n->timer_ns = next_tick_ns(n);
}
