/* Shared by run.c (set-up and end), run_ops.c (decisions carried out) and run_events.c (events). */
#ifndef LAUNCH_RUN_IMPL_H
#define LAUNCH_RUN_IMPL_H

#include "io/loop.h"
#include "launch/membership/membership.h"
#include "launch/nodes/nodes.h"
#include "launch/run.h"
#include "launch/run_joint.h"
#include "launch/run_plan.h"

struct agent;
struct agent_poll;
struct agent_scale;
struct node_net;
struct notice_watcher;
struct peers;
struct run_group;
struct run_output;
struct run_relay;

#define SUMMARY_MAX 1024u /* bytes of the agent's summary, terminator included */

/* The state of `pawl run`. */
struct run {
	const struct run_options *options; /* the caller's */
	struct run_plan plan;              /* as made before the start */
	struct nodes nodes;                /* the state machine that decides */
	struct node_net *net;              /* connections to the other nodes; NULL: none */
	int port_fd;                       /* holds MASTER_PORT against others; -1: none */
	uint32_t attempt;                  /* attempt that the agent was last given */
	uint32_t restarts;                 /* restart count that was last logged */
	struct loop *loop;                 /* loop of the main thread */
	struct run_output *output;         /* the printing thread */
	struct agent *agent;               /* keeps the checkpoints */
	struct peers *peers;               /* the agent's links to other nodes'; NULL: none */
	char peers_address[ADDRESS_MAX];   /* where peers was opened; "": it never was */
	struct run_group *group;           /* the workers */
	struct notice_watcher *notice;     /* asks whether the machine goes away; NULL: nobody */
	struct run_relay *relay;           /* relays the membership files; NULL: not needed */
	struct run_joint joint;            /* judges ends of ranks in a job of several launchers */
	struct loop_source signals;        /* a signalfd */
	struct loop_timer timer;           /* fires at nodes.timer_ns */
	struct loop_timer drain_timer;     /* due at once: starts the agent's drain */
	struct loop_timer template_timer;  /* next try to start a template */
	struct loop_timer scale_timer;     /* next try to carry out scale_to */
	uint32_t scale_to;                 /* ranks that `pawl scale` wants; 0: none pending */
	int64_t settled_ns;        /* TIME_RUN_SETTLE after the attempt's start, monotonic */
	char summary[SUMMARY_MAX]; /* the agent's summary when a worker last failed */
	uint64_t progress;         /* times that summary had changed */
	struct membership last_membership; /* as last read while it was not closed */
	bool membership_closed;            /* no rank may join any more: the job is ending */
	bool drained;                      /* all that was committed is durable */
	bool terminated;                   /* SIGTERM has come, which counts as a notice */
};

/* ---- run_ops.c ---- */

extern const struct nodes_ops run_ops;

/* Hands an event to nodes.c, and sets the timer that it wants. */
void run_step(struct run *run, struct nodes_event event);
/* Closes the membership: ranks that wait to join end, and no rank can join any more. */
void run_close_membership(struct run *run, int status);
/* Sets the timer for the next try to start a template. */
void run_await_template(struct run *run);
/* Has the agent drain. A timer calls this, because the agent may answer at once, while nodes.c is
 * still in the call that asked for it. */
void run_on_drain_timer(struct loop_timer *timer);

/* ---- run_notice.c ---- */

/* Begins to ask whether this machine goes away, if the options say so. */
int run_notice_open(struct run *run, struct pawl_err *err);
/* Acts on a SIGTERM that counts as a notice: this process must have ended after the grace. */
void run_on_terminated(struct run *run);
/* Answers `pawl notice`: this machine goes away in left_ns. */
void run_on_preempt(void *user, int64_t left_ns);

/* ---- run_peers.c ---- */

/* Returns the port of the agent's links, which the first call opens, as peer_port of nodes_ops. */
uint32_t run_peers_port(void *user, const char *address);
/* Tells the links where rank 0's node is from this start on. */
void run_peers_start(struct run *run, const struct node_frame *start);
void run_peers_close(struct run *run); /* after the agent */

/* ---- run_events.c: callbacks ---- */

void run_on_exited(void *user, const struct run_end *was);
void run_on_decided(void *user, const struct run_end *end);
void run_on_signals(struct loop_source *source, uint32_t events);
void run_on_timer(struct loop_timer *timer);
void run_on_template_timer(struct loop_timer *timer);
void run_on_scale_timer(struct loop_timer *timer);
void run_on_connected(void *user, uint32_t conn);
void run_on_closed(void *user, uint32_t conn, const char *why);
void run_on_frame(void *user, uint32_t conn, const struct node_frame *frame);
void run_on_root_begun(void *user, const char *path, uint64_t nonce);
void run_on_polled(void *user, const struct agent_poll *poll);
void run_on_imports(void *user);
/* Answers `pawl scale`. */
int run_on_scale(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err);

#endif
