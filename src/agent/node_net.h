/*
 * Connections between the nodes of a job: one listener at most, and any number of connections, by
 * numbers that are never used twice. What nodes.c decides is carried out here.
 *
 * Each end first says 8 bytes: what it is, the version of all that follows, whether it has a token.
 * Then TLS (node_tls.h), then frames (node_frame.h). Who does not get so far in TIME_NET_HELLO, or
 * says nothing then, is sent away, as is the oldest of more than NET_STRANGERS_MAX such.
 *
 * For the loop's thread. Callbacks come from the loop alone, never from a call. Looking up a name
 * blocks it: only while a coordinator is sought, when nothing else is to be done.
 */
#ifndef AGENT_NODE_NET_H
#define AGENT_NODE_NET_H

#include "agent/node_frame.h"

struct loop;
struct node_net;

#define NET_STRANGERS_MAX 64u
#define NET_OUT_MAX       (256u << 10) /* bytes that wait to be sent; who does not read is lost */

/* Where to meet; strings stay the caller's. */
struct node_place {
	const char *text; /* "host:port", for people */
	const char *host; /* name or address */
	const char *port; /* its number */
};

struct node_net_options {
	struct loop *loop;               /* of the calling thread; outlives it */
	const struct node_place *places; /* they outlive it */
	const char *token;               /* NULL: none */
	void (*connected)(void *user, uint32_t conn);
	void (*closed)(void *user, uint32_t conn, const char *why);
	void (*frame)(void *user, uint32_t conn, const struct node_frame *frame);
	void *user; /* passed to them */
};

int node_net_open(struct node_net **out, const struct node_net_options *options,
	struct pawl_err *err);
void node_net_close(struct node_net *net); /* NULL is fine */

/* As nodes_ops has them (nodes.h). */
int node_net_listen(struct node_net *net, uint32_t place, struct pawl_err *err);
void node_net_unlisten(struct node_net *net);
uint32_t node_net_connect(struct node_net *net, uint32_t place);
void node_net_send(struct node_net *net, uint32_t conn, const struct node_frame *frame);
void node_net_drop(struct node_net *net, uint32_t conn);

#endif
