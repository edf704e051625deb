/*
 * A client's connection to the agent of another host: TLS (io/tls.h), messages (peer_msg.h). Calls
 * block; a link belongs to one thread, except that any thread may cancel it.
 *
 * An answer that does not come within TIME_PEER_ANSWER, or a connection that does not come up
 * within TIME_PEER_CONNECT, is PAWL_ETIMEDOUT. After any error but that of PEER_ERROR the link is
 * of no more use, and is to be closed.
 */
#ifndef AGENT_PEER_PEER_LINK_H
#define AGENT_PEER_PEER_LINK_H

#include "agent/peer/peer_msg.h"

struct peer_link;
struct peers;

/* Makes a link that is not connected yet, so that another thread can cancel its connecting. */
int peer_link_make(struct peer_link **out, struct peers *peers, struct pawl_err *err);
/* Connects a new link to "host:port", a numeric address, and sends PEER_HELLO. PAWL_EPEER: nobody
 * answers there, or refuses. If it fails, the link is to be closed. */
int peer_link_connect(struct peer_link *link, const char *address, struct pawl_err *err);
void peer_link_close(struct peer_link *link); /* NULL is fine */
/* Ends the calls that block, and all later ones, with PAWL_ECANCELED. Any thread. */
void peer_link_cancel(struct peer_link *link);

/* Sends a message; what is small waits for the next receive. */
int peer_link_send(struct peer_link *link, const struct peer_msg *msg, struct pawl_err *err);
/* Receives a message; its blob is valid until the next call. A PEER_ERROR is returned as its code,
 * with its text. */
int peer_link_receive(struct peer_link *link, struct peer_msg *msg, struct pawl_err *err);
/* Sends a request and receives its answer, which must be of this kind, else PAWL_ECORRUPT. */
int peer_link_call(struct peer_link *link, const struct peer_msg *msg, enum peer_kind answer,
	struct peer_msg *reply, struct pawl_err *err);

#endif
