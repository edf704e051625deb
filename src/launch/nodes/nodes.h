/*
 * One node's part in a job of one node or several: which nodes belong to the job, which one
 * decides, and what happens to the workers when one of them ends or a node is lost. A state machine
 * over events. Pure.
 *
 *            ┌───────────── the coordinator is lost ─────────────┐
 *            ▼                                                   │
 *   begin ─► seeking ──somebody coordinates──► joining ──► member┤
 *            │  ▲                                                │
 *            │  └──an earlier place answers──┐                   ▼
 *            └──a place is ours──► leading ──┴────────────► closing ─► over
 *
 * The addresses of the rendezvous are places, in order. A node that can listen at a place, while no
 * earlier place answers, becomes the coordinator. The coordinator keeps the list of members and
 * assigns ranks, and its run_policy decides for the job. The other nodes follow it, and report what
 * their workers do. A job starts only with all its nodes, each of which belongs to one coordinator.
 * So two groups of one job can run only with twice as many nodes, and at two places that cannot
 * reach each other.
 *
 * Each start has a number, its generation. A frame of another generation is ignored, and a start
 * that is not newer than the last is refused. All members know how far the job is (node_ledger), so
 * that the next coordinator goes on from there.
 *
 * Hosts that only add (servers) connect to the coordinator, too. A start waits for them, and the
 * loss of one ends the group as the loss of a node does.
 *
 * A member that loses the coordinator kills its workers and seeks again. If the job is ending, the
 * member ends it alone. With one node there is nobody to seek: that is `pawl run` on one node.
 *
 * A node departs if its machine goes away: all workers save and leave, the agents make that durable
 * while there is time, and the coordinator tells the node to exit. The others wait for another one.
 * If the coordinator itself departs, the others seek the next one. The last node does not depart:
 * if the machines of all go away, the job stops.
 */
#ifndef LAUNCH_NODES_NODES_H
#define LAUNCH_NODES_NODES_H

#include "launch/nodes/node_frame.h"
#include "launch/nodes/nodes_polls.h"
#include "launch/nodes/run_policy.h"

#define NODES_PLACES_MAX        8u
#define NODES_HEARTBEATS_MISSED 4    /* heartbeats that a lost node has missed */
#define NODES_WHY_MAX           160u /* bytes of a reason, terminator included */

/* The owner's callbacks, which carry out what is decided. None may call nodes_step. Connections are
 * numbers that the owner chooses; NODE_NONE is none. */
struct nodes_ops {
	/* Listens at a place. Returns 0; PAWL_ENOENT: the address is not this host's; PAWL_EBUSY:
	 * another process listens there. */
	int (*listen)(void *user, uint32_t place, struct pawl_err *err);
	void (*unlisten)(void *user);
	/* Begins to connect. Returns the connection; NODES_CONNECTED or NODES_CLOSED follows. */
	uint32_t (*connect)(void *user, uint32_t place);
	void (*send)(void *user, uint32_t conn, const struct node_frame *frame);
	/* Closes once all that was sent has gone out; no event follows for the connection. */
	void (*close)(void *user, uint32_t conn);
	/* Finds the address of this node for other nodes that reach that place. */
	int (*address)(void *user, uint32_t place, char *address, struct pawl_err *err);
	uint32_t (*port)(void *user, const char *address); /* holds a free port; 0: none */
	/* Finds the port at which the agent of this node, whose address this is, listens for agents
	 * of other nodes; 0: none. Called only if the job has several nodes. */
	uint32_t (*peer_port)(void *user, const char *address);
	/* Starts the workers of this node, as the frame describes. */
	void (*start)(void *user, const struct node_frame *start);
	void (*notice)(void *user, int signal, int64_t left_ns);
	void (*kill)(void *user);
	void (*add)(void *user, uint32_t n);    /* starts n more workers, which join the others */
	void (*retire)(void *user, uint32_t n); /* tells n workers to leave the others */
	void (*notify_root_begun)(void *user, const char *path,
		uint64_t nonce); /* see agent_expect_nonce */
	/* The frame is of kind NODE_HOLD or NODE_YES_AT: see agent_hold and agent_yes_at. */
	void (*ask)(void *user, const struct node_frame *frame);
	void (*save_soon)(void *user); /* another node's machine may go away: agent_save_soon */
	void (*drain)(void *user);     /* NODES_DRAINED follows */
	void (*exit)(void *user, int status);
	void (*log)(void *user, bool is_error, const char *text); /* logs a line for the user */
};

struct nodes_times {
	int64_t answer_ns;       /* for the coordinator's answer to a node that wants to join */
	int64_t retry_ns;        /* pause after all places were tried */
	int64_t probe_ns;        /* between two checks whether an earlier place answers */
	int64_t log_interval_ns; /* between two log lines about the wait for a coordinator */
	int64_t close_ns;        /* longest wait for members to close after the end */
	int64_t together_ns;     /* signals no further apart than this count as one */
};

struct nodes_options {
	struct nodes_times times;
	struct run_times run_times; /* times of the policy */
	uint32_t nodes;             /* nodes of the job; 1: no places, no connections */
	uint32_t workers;           /* workers of this node */
	uint32_t min_workers;       /* fewest workers that can go on; 0: all must. One node only */
	bool joint;                 /* as in struct run_policy; its ranks meet at address(0) */
	uint32_t servers;           /* servers that the ranks are to have; for the coordinator */
	uint32_t wanted;            /* node rank of this node, or NODE_NONE: any free one */
	uint32_t places;            /* number of places of the rendezvous */
	const char *const *place;   /* names of the places, for messages */
	uint64_t instance_id;       /* random number of this `pawl run` */
	int64_t heartbeat_interval_ns; /* if we coordinate; 0: no heartbeats */
	const char *job;               /* job id */
	uint32_t attempt;              /* number of the first start */
	uint32_t max_restarts;         /* restarts of the group, at most; for the coordinator */
	int64_t grace_ns;              /* time from a signal to the exit; for the coordinator */
	int preempted_status;          /* as in struct run_policy; for the coordinator */
	/* A node whose machine goes away leaves the others, which wait for another node; false: all
	 * stop. For the coordinator. */
	bool leaves_on_notice;
	int64_t timeout_ns; /* longest wait for nodes */
	const struct nodes_ops *ops;
	void *user; /* passed to ops */
};

enum nodes_role {
	NODES_SEEKING, /* looks for the coordinator, or, without it, ends the job here */
	NODES_JOINING, /* has asked to join; the coordinator has not answered yet */
	NODES_MEMBER,  /* follows the coordinator */
	NODES_LEADING, /* is the coordinator */
	NODES_CLOSING, /* has decided to exit, and waits until the others have disconnected */
	NODES_OVER,    /* has exited */
};

/* A node, as the coordinator knows it; the first one is the coordinator itself. */
struct nodes_member {
	bool joined;               /* is a member; false: lost, or never joined */
	uint32_t conn;             /* NODE_NONE: ourselves */
	uint64_t instance_id;      /* random number of the node's `pawl run`; 0: never used */
	uint64_t order;            /* order of arrival */
	uint32_t workers;          /* workers of the node */
	uint32_t wanted;           /* node rank by its options, or NODE_NONE */
	uint32_t node;             /* node rank, or that of the last generation, or NODE_NONE */
	uint32_t alive;            /* workers of this generation that have not ended */
	uint32_t port;             /* free port there, for the next start */
	uint32_t peer_port;        /* port where its agent listens for other agents; 0: none */
	char address[ADDRESS_MAX]; /* address for the other nodes */
	bool ready;                /* ready for a start: all its workers have ended */
	bool drained;     /* the agent there has answered, whether or not commits are durable */
	bool departs;     /* the node's machine goes away, and it leaves the others */
	uint64_t commits; /* commits that the node has reported */
	int64_t last_received_ns; /* when the last frame came from it, monotonic ns */
	int64_t signaled_ns;      /* when the node first got a signal, monotonic ns; 0: never */
};

/* A host that only adds (`pawl serve`). It is no node, but a start waits for it as for one. */
struct nodes_server {
	bool joined;                /* connected; false: lost, or never joined */
	uint32_t conn;              /* connection to the server */
	uint64_t instance_id;       /* random number of the server */
	char name[NODE_SERVER_MAX]; /* for PAWL_SERVERS */
	int64_t last_received_ns;   /* when the last frame came from it, monotonic ns */
};

/* State of one node. Zeroed before nodes_init. */
struct nodes {
	struct nodes_options options; /* as given */
	struct run_policy policy;  /* decides, except on a member, which follows the coordinator */
	enum nodes_role role;      /* role of this node in the job */
	struct node_ledger ledger; /* how far the job is */
	uint32_t previous_node;    /* our node rank in the last generation, or NODE_NONE */
	uint32_t alive;            /* our workers that have not ended */
	int signal; /* sent to us as a member, and not yet answered by the coordinator; 0: none */
	int64_t notice_ns;        /* when our machine goes away; 0: it does not */
	int64_t signaled_ns;      /* when we first were sent a signal, monotonic ns; 0: never */
	bool drained, drained_ok; /* our agent has answered; all answers so far are ok */
	uint64_t commits;         /* grows when a node reports new commits; for the policy */
	int64_t now_ns;           /* time of the current event, monotonic ns */
	int64_t ticked_ns;        /* time of the event before; 0: there was none */
	int64_t timer_ns;         /* when NODES_TICK is wanted, monotonic ns; 0: not at all */
	int64_t heartbeat_interval_ns; /* 0: no heartbeats */
	int64_t heartbeat_due_ns;      /* when our next heartbeat is due, monotonic ns */

	uint32_t place;            /* index of the place being tried, joined or led */
	uint32_t conn;             /* seeking, joining, member: connection to the coordinator */
	char address[ADDRESS_MAX]; /* joining, member: our address */
	int64_t last_received_ns;  /* member: when the coordinator's last frame came */
	/* Seeking without conn: time of the next try; joining: limit of the coordinator's answer;
	 * closing: time of the end; 0: nothing is due. */
	int64_t due_ns;
	int64_t sought_ns; /* when we began to seek, monotonic ns */
	int64_t logged_ns; /* when the search was last logged, monotonic ns */
	char why[NODES_PLACES_MAX][NODES_WHY_MAX]; /* why each place failed */

	struct nodes_member members[NODES_MAX];        /* leading: the nodes */
	struct nodes_server servers[NODE_SERVERS_MAX]; /* leading: the servers */
	uint64_t arrivals;                             /* nodes that have joined so far */
	struct nodes_polls polls; /* leading: questions to the ranks of this generation */
	uint32_t probe;           /* connection to an earlier place, or NODE_NONE */
	uint32_t probed;          /* index of the place that probe connects to */
	int64_t probe_due_ns;     /* when the next probe is due, monotonic ns; 0: none */
};

enum nodes_event_kind {
	NODES_BEGIN,      /* once, first */
	NODES_TICK,       /* timer_ns was reached */
	NODES_CONNECTED,  /* conn: a connection that connect began is open */
	NODES_CLOSED,     /* conn, begun by either side, is closed: text */
	NODES_FRAME,      /* conn, frame; also the first event of an incoming conn */
	NODES_EXITED,     /* a worker here ended: rank, exit, commits, text */
	NODES_SIGNALED,   /* signal: sent to this process */
	NODES_NOTICED,    /* signal, deadline_ns, text: this machine goes away, which was logged */
	NODES_TERMINATED, /* as NODES_NOTICED, by a signal that was sent to this process */
	NODES_SCALED,     /* workers, survivable; only if run_policy_can_scale */
	NODES_QUIT,       /* the workers are to leave the others: joint */
	NODES_DRAINED,    /* ok */
	NODES_ROOT_BEGUN, /* nonce, text: the agent here has begun in the root whose path is text */
	NODES_ADVISED,    /* this machine may go away, and the agent here knows */
	NODES_POLLED,     /* frame, without generation: the ranks here have answered a question */
};

struct nodes_event {
	enum nodes_event_kind kind;     /* tells which of the other fields count */
	int64_t now_ns;                 /* monotonic */
	uint32_t conn;                  /* connection number */
	const struct node_frame *frame; /* the caller's */
	const char *text;               /* reason, or path; the caller's */
	uint64_t nonce;                 /* random number of our ranks' start */
	uint32_t rank;                  /* rank of the worker in the job */
	uint32_t workers;               /* number of workers wanted */
	struct run_exit exit;           /* how the worker ended */
	bool survivable;                /* NODES_SCALED, NODES_TICK: as in struct run_event */
	uint64_t commits;               /* commits of this node so far */
	int signal;                     /* signal number */
	int64_t deadline_ns;            /* when the job must have exited, monotonic */
	bool ok;                        /* all that was committed is durable */
};

void nodes_init(struct nodes *nodes, const struct nodes_options *options);
/* Handles an event. The caller then sets its timer to timer_ns. */
void nodes_step(struct nodes *nodes, const struct nodes_event *event);
/* Returns the attempt number of the generation that runs, or ran last. */
uint32_t nodes_attempt(const struct nodes *nodes);

#endif
