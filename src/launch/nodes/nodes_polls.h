/*
 * The coordinator's questions to the ranks of all nodes: whether to stop, and whether a save is due
 * (agent/root.h, root_hold). All ranks get yes at the same count: the highest of all nodes, plus
 * one. Pure.
 *
 * A question begins with the first node that has an answer. The others are asked, and once all
 * nodes have answered it is settled. What is settled stands: a node that answers again, because
 * another of its ranks has connected, gets the same count.
 */
#ifndef LAUNCH_NODES_NODES_POLLS_H
#define LAUNCH_NODES_NODES_POLLS_H

#include "launch/nodes/node_frame.h"

/* Questions that are remembered, at most. The oldest is forgotten: ranks that wait for it go on by
 * themselves after TIME_SESSION_AGREE. */
#define NODES_POLLS_MAX 32u

/* One question. */
struct nodes_poll {
	bool used;                /* the entry is a question */
	uint64_t order;           /* order among the questions */
	uint32_t question;        /* enum proto_question */
	uint64_t run, seq;        /* as in struct agent_poll */
	char path[NODE_TEXT_MAX]; /* the root's */
	bool answered[NODES_MAX]; /* by node rank */
	uint32_t answered_n;      /* number of nodes that have answered */
	uint64_t polls;           /* highest count so far */
	bool settled;             /* all nodes have answered */
};

/* The questions of a generation. Zeroed: none. */
struct nodes_polls {
	uint64_t order; /* number of questions so far */
	struct nodes_poll at[NODES_POLLS_MAX];
};

enum nodes_polls_next {
	POLLS_WAIT,  /* for other nodes */
	POLLS_HOLD,  /* ask all other nodes */
	POLLS_YES,   /* tell all nodes the count */
	POLLS_AGAIN, /* tell this node the count */
};

/* Handles a NODE_POLLED of a node, of so many. Sets *yes_at to the count, if it is settled. */
enum nodes_polls_next nodes_polls_take(struct nodes_polls *polls, const struct node_frame *frame,
	uint32_t node, uint32_t nodes, uint64_t *yes_at);

#endif
