/*
 * A listening socket in a loop. A connection that cannot be taken for want of descriptors or memory
 * keeps its socket ready for ever, and a loop that looks at it would do nothing else: so it is left
 * alone for a while then (TIME_LISTEN_AGAIN), and taken back, however often that is needed.
 */
#ifndef BASE_LISTENER_H
#define BASE_LISTENER_H

#include "base/loop.h"

#include <sys/socket.h>

struct pawl_err;

/* Caller's memory, from start to stop. Set the first four. */
struct listener {
	const char *what; /* that cannot be heard, for the log: "a command" */
	/* A connection came, which is the callee's, closed on exec. It may stop the listener. */
	void (*came)(struct listener *listener, int fd, const struct sockaddr *from, socklen_t len);
	void *user;                /* the caller's */
	bool blocking;             /* connections are to block */
	struct loop *loop;         /* from start on; NULL: it is not started */
	struct loop_source source; /* its socket, owned from start on */
	struct loop_timer again;   /* it is looked at again then */
	bool deaf;                 /* that none can be taken has been said */
};

/* Takes the socket, which is not blocking and listens; on failure it is the caller's still. Errors
 * as of loop_add. */
int listener_start(struct listener *listener, struct loop *loop, int fd, struct pawl_err *err);
/* Closes the socket. Nothing, if it is not started. */
void listener_stop(struct listener *listener);

#endif
