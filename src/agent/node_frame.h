/*
 * What the `pawl run` of several nodes say to each other: docs/protocol.md has the bytes. Pure.
 *
 * A member is a node that has joined; the coordinator is the node that keeps the list of members
 * and decides (nodes.h). Numbers are what each kind needs; the rest of a frame is zero.
 */
#ifndef AGENT_NODE_FRAME_H
#define AGENT_NODE_FRAME_H

#include "base/address.h"
#include "base/wire.h"
#include "ckpt/manifest.h"

#define NODE_FRAME_HEAD  4u    /* bytes before a body: its length */
#define NODE_FRAME_MAX   2048u /* bytes of a body */
#define NODE_TEXT_MAX    1200u /* bytes of a text, terminator included */
#define NODES_MAX        256u  /* of a job */
#define NODE_SERVERS_MAX 16u   /* hosts that only add, likewise */
#define NODE_NONE        UINT32_MAX
#define NODE_SERVER_MAX  72u /* bytes of a server's name, terminator included */
#define NODE_WORKERS     64u /* of a node; RUN_WORKERS_MAX */

enum node_frame_kind {
	/* member to coordinator */
	NODE_JOIN = 1, /* who, nodes, workers, wanted, held, address, port, job, ledger */
	NODE_READY,    /* generation, port: all its workers are over */
	NODE_EXITED,   /* generation, rank, status, commits, text */
	NODE_SIGNAL,   /* signal */
	NODE_DRAINED,  /* ok */
	NODE_BEGUN,    /* who, text: its agent has begun in a root of this path, with this number */
	NODE_SERVE,    /* who, text: no node, but a server that only adds, of this name */
	/* coordinator to member */
	NODE_WELCOME = 16, /* beat_ns */
	NODE_REFUSE,       /* final, text */
	NODE_NEWS,         /* bad, text */
	NODE_START,        /* node, nodes, first, world, address, port, ledger, text: servers */
	NODE_KILL,         /* generation, again, status */
	NODE_NOTICE,       /* generation, signal, left_ns */
	NODE_DRAIN,        /* status, signal, left_ns */
	NODE_EXIT,         /* status */
	NODE_TOLD,         /* as NODE_BEGUN, which it passes on */
	/* both */
	NODE_BEAT = 32, /* nothing: I am alive */
};

/* How far the job is, as each of its nodes knows: whoever becomes coordinator goes on from the
 * furthest of them. */
struct node_ledger {
	uint32_t generation; /* of the group: how often it was started, over all nodes; 0: never */
	uint32_t restarts;   /* of those, counted against --max-restarts */
	uint32_t fast;       /* as in struct run_policy */
	uint32_t attempt;    /* number of the first start */
};

struct node_frame {
	enum node_frame_kind kind; /* says which of the others count */
	uint64_t who;              /* random number, of a `pawl run` or of a start of its ranks */
	uint32_t nodes;            /* of the job, as its sender was told */
	uint32_t workers;          /* of the node */
	uint32_t wanted;           /* node rank that it was given, or NODE_NONE */
	uint32_t held;             /* node rank that it had last, or NODE_NONE */
	uint32_t node;             /* its node rank from now on */
	uint32_t first;            /* its lowest rank */
	uint32_t world;            /* ranks of the job */
	uint32_t port;             /* free on the node; START: MASTER_PORT */
	char address[ADDRESS_MAX]; /* of the node; START: MASTER_ADDR */
	char job[CKPT_JOB_MAX];    /* id */
	struct node_ledger ledger; /* see above */
	uint32_t generation;       /* of which this is */
	uint32_t rank;             /* of the worker */
	int32_t status;            /* exit status of a worker, or of the job */
	uint64_t commits;          /* as in struct run_event, of this node */
	int32_t signal;            /* its number, 0: none */
	int64_t left_ns;           /* until the deadline */
	int64_t beat_ns;           /* between signs of life; 0: there are none */
	bool ok;                   /* all that was committed is durable */
	bool again;                /* another start follows */
	bool final;                /* there is no use in trying again */
	bool bad;                  /* the text is an error */
	char text[NODE_TEXT_MAX];  /* for people, or what its kind says */
};

/* Appends a frame, head and body. */
void node_frame_put(struct wire_out *out, const struct node_frame *frame);
/* Reads the first frame of what has come. Returns the bytes it took, 0 while it is not all there,
 * or PAWL_ECORRUPT. *frame is only set with a frame. */
int node_frame_get(const uint8_t *bytes, size_t len_bytes, struct node_frame *frame,
	struct pawl_err *err);

#endif
