/*
 * Frames that the `pawl run` of several nodes send each other: docs/protocol.md has the bytes.
 * Pure.
 *
 * A member is a node that has joined; the coordinator is the node that keeps the list of members
 * and decides (nodes.h). Each kind uses the fields that it needs; the rest of a frame is zero.
 */
#ifndef LAUNCH_NODES_NODE_FRAME_H
#define LAUNCH_NODES_NODE_FRAME_H

#include "base/wire.h"
#include "ckpt/format/manifest.h"
#include "io/address.h"

#define NODE_FRAME_HEADER 4u    /* bytes before a body: its length */
#define NODE_FRAME_MAX    2048u /* bytes of a body */
#define NODE_TEXT_MAX     1200u /* bytes of a text, terminator included */
#define NODES_MAX         256u  /* nodes of a job, at most */
#define NODE_QUESTIONS    2u    /* QUESTIONS_N of ipc/frames.h */
#define NODE_SERVERS_MAX  16u   /* servers of a job (hosts that only add), at most */
#define NODE_NONE         UINT32_MAX
#define NODE_SERVER_MAX   72u              /* bytes of a server's name, terminator included */
#define NODE_LEFT_MAX_NS  86400000000000LL /* time left to a machine that goes away, at most */
#define NODE_WORKERS      64u              /* workers of a node, at most; RUN_WORKERS_MAX */

enum node_frame_kind {
	/* member to coordinator */
	/* instance_id, nodes, workers, wanted, previous_node, job, address, port, peer_port,
	 * ledger */
	NODE_JOIN = 1,
	NODE_READY,  /* generation, port, peer_port: all workers of the node have ended */
	NODE_EXITED, /* generation, rank, status, commits, text */
	/* signal, left_ns, text; left_ns not 0: the node's machine goes away, and text says why */
	NODE_SIGNAL,
	NODE_DRAINED,    /* generation, ok */
	NODE_ROOT_BEGUN, /* instance_id, text: nonce and path of a root begun by rank 0 */
	NODE_SERVE,      /* instance_id, text: a server, which only adds, and its name */
	/* generation, question, instance_id, seq, polls, text: the ranks of the node have answered;
	 * text is the root's path, as in NODE_HOLD and NODE_YES_AT */
	NODE_POLLED,
	/* coordinator to member */
	NODE_WELCOME = 16, /* heartbeat_interval_ns */
	NODE_REFUSE,       /* final, text */
	NODE_LOG_LINE,     /* is_error, text */
	/* node, nodes, first, world, address, port, peer_port, ledger, text: servers */
	NODE_START,
	NODE_KILL,             /* generation, will_restart, status */
	NODE_NOTICE,           /* generation, signal, left_ns, status, noticed, will_restart */
	NODE_DRAIN,            /* generation, status, signal, left_ns, will_restart */
	NODE_EXIT,             /* status */
	NODE_ROOT_BEGUN_RELAY, /* a NODE_ROOT_BEGUN, relayed */
	NODE_HOLD,             /* as NODE_POLLED, without polls: other ranks are asked */
	NODE_YES_AT,           /* as NODE_POLLED: from which count on the answer is yes */
	/* both ways */
	NODE_HEARTBEAT = 32, /* no fields */
	NODE_SAVE_SOON,      /* generation: a machine may go away; the coordinator relays it */
};

/* How far the job is, as each of its nodes knows. A new coordinator goes on from the node that is
 * furthest. */
struct node_ledger {
	uint32_t generation;    /* starts of the group so far, over all nodes; 0: never started */
	uint32_t restarts;      /* starts counted against --max-restarts */
	uint32_t fast_failures; /* as in struct run_policy */
	uint32_t attempt;       /* number of the first start */
};

struct node_frame {
	enum node_frame_kind kind; /* tells which of the other fields count */
	/* Random number of a `pawl run`, or of a start of its ranks; in questions, the run of the
	 * hosts: see struct agent_poll. */
	uint64_t instance_id;
	uint32_t nodes;         /* nodes of the job, by the options of the sender */
	uint32_t workers;       /* workers of the node */
	uint32_t wanted;        /* node rank by its options, or NODE_NONE */
	uint32_t previous_node; /* node rank in the last generation, or NODE_NONE */
	uint32_t node;          /* node rank from now on */
	uint32_t first;         /* lowest rank of the node */
	uint32_t world;         /* ranks of the job */
	uint32_t port;          /* free port on the node; START: MASTER_PORT */
	/* Port of the node's agent for others; START: of rank 0's node. 0: the agent does not
	 * listen, or, in a START, that of some node does not. */
	uint32_t peer_port;
	char address[ADDRESS_MAX];     /* address of the node; START: MASTER_ADDR */
	char job[CKPT_JOB_MAX];        /* job id */
	struct node_ledger ledger;     /* counts of starts and restarts */
	uint32_t generation;           /* generation that the frame belongs to */
	uint32_t rank;                 /* rank of the worker in the job */
	int32_t status;                /* exit status of a worker, or of the job */
	uint64_t commits;              /* commits of this node, as in struct run_event */
	uint32_t question;             /* below NODE_QUESTIONS: enum proto_question */
	uint64_t seq;                  /* as in struct agent_poll */
	uint64_t polls;                /* as in struct agent_poll */
	int32_t signal;                /* signal number; 0: none */
	int64_t left_ns;               /* time left until the deadline */
	int64_t heartbeat_interval_ns; /* 0: there are no heartbeats */
	bool ok;                       /* all that was committed is durable */
	bool will_restart;             /* another start follows */
	bool noticed;                  /* a machine of the job goes away */
	bool final;                    /* another try would be refused, too */
	bool is_error;                 /* text is an error */
	char text[NODE_TEXT_MAX];      /* text for people, or as the kind says */
};

/* Appends a frame, header and body. */
void node_frame_put(struct wire_out *out, const struct node_frame *frame);
/* Reads the first frame of the bytes received so far. Returns the length of the frame, 0 while it
 * is incomplete, or PAWL_ECORRUPT. *frame is set only if a whole frame was read. */
int node_frame_get(const uint8_t *bytes, size_t len_bytes, struct node_frame *frame,
	struct pawl_err *err);

#endif
