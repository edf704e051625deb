/*
 * The connections between nodes use TLS 1.3 with a pre-shared key that is derived from the job's
 * token. Both ends prove that they know the token, and it is never sent. Without a token the key is
 * publicly known: an eavesdropper learns nothing, but any process that reaches the port can join.
 *
 * Sockets are non-blocking. For one thread.
 */
#ifndef LAUNCH_NODES_NODE_TLS_H
#define LAUNCH_NODES_NODE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct node_tls;     /* shared by all connections */
struct node_session; /* one connection */
struct pawl_err;

#define NODE_TOKEN_MIN 16u /* bytes of a token: fewer could be guessed */
#define NODE_TOKEN_MAX 4096u

/* Derives the key from token; NULL: there is no token. PAWL_ENOMEM, PAWL_EIO. */
int node_tls_open(struct node_tls **out, const char *token, struct pawl_err *err);
void node_tls_close(struct node_tls *tls); /* NULL is fine */

/* Opens a session on a socket that the caller owns; accept: the other end connected. Returns NULL
 * if memory is short. */
struct node_session *node_session_open(struct node_tls *tls, int fd, bool accept);
void node_session_close(struct node_session *session); /* NULL is fine */
/* Advances the handshake. Returns 1 when it is done, 0 while it waits for the socket (to write if
 * *write, else to read), or PAWL_EPEER, with the reason in err. */
int node_session_handshake(struct node_session *session, bool *write, struct pawl_err *err);
/* Return the number of bytes; 0 if none can be transferred now (*write: until the socket can be
 * written to); or PAWL_EPEER, with the reason in err. */
ssize_t node_session_read(struct node_session *session, void *bytes, size_t len_bytes, bool *write,
	struct pawl_err *err);
ssize_t node_session_write(struct node_session *session, const void *bytes, size_t len_bytes,
	bool *write, struct pawl_err *err);
void node_session_end(
	struct node_session *session); /* tells the other end that nothing more will be sent */

#endif
