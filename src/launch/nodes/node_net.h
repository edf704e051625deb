/*
 * Connections between the nodes of a job: at most one listener, and any number of connections,
 * known by numbers that are not used again. Carries out what nodes.c decides.
 *
 * Each end first sends a greeting of 8 bytes: what it is, the version of the protocol, and whether
 * it has a token. TLS (io/tls.h) and frames (node_frame.h) follow. A stranger is an incoming
 * connection that has not sent a frame yet. It is closed after TIME_NET_HELLO, and earlier if it is
 * the oldest of more than NET_STRANGERS_MAX.
 *
 * All functions are for the loop's thread. Callbacks come from the loop alone, never from a call.
 * Looking up a name blocks the loop. That happens only while a coordinator is sought, when there is
 * nothing else to do.
 */
#ifndef LAUNCH_NODES_NODE_NET_H
#define LAUNCH_NODES_NODE_NET_H

#include "launch/nodes/node_frame.h"

struct loop;
struct node_net;

#define NODE_NET_VERSION  4u /* version of the greeting and all that follows it */
#define NET_STRANGERS_MAX 64u
#define NET_OUT_MAX       (256u << 10) /* unsent bytes, at most; beyond, the node is lost */

/* A place of the rendezvous; the caller owns the strings. */
struct node_place {
	const char *text; /* "host:port", for people */
	const char *host; /* name or address */
	const char *port; /* port number */
};

struct node_net_options {
	struct loop *loop;               /* loop of the calling thread; outlives the net */
	const struct node_place *places; /* places of the rendezvous; outlive the net */
	const char *token;               /* NULL: none */
	void (*connected)(void *user, uint32_t conn);
	void (*closed)(void *user, uint32_t conn, const char *why);
	void (*frame)(void *user, uint32_t conn, const struct node_frame *frame);
	void *user; /* passed to the callbacks */
};

int node_net_open(struct node_net **out, const struct node_net_options *options,
	struct pawl_err *err);
void node_net_close(struct node_net *net); /* NULL is fine */

/* The next five work as in nodes_ops (nodes.h). */
int node_net_listen(struct node_net *net, uint32_t place, struct pawl_err *err);
void node_net_unlisten(struct node_net *net);
uint32_t node_net_connect(struct node_net *net, uint32_t place);
void node_net_send(struct node_net *net, uint32_t conn, const struct node_frame *frame);
void node_net_drop(struct node_net *net, uint32_t conn);

#endif
