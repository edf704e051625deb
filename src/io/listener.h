/*
 * A listening socket in a loop. If descriptors or memory run out, a connection that cannot be
 * accepted keeps the socket ready, and the loop would spin. So the listener stops watching the
 * socket for a while (TIME_LISTEN_AGAIN), then tries again, as often as needed.
 */
#ifndef IO_LISTENER_H
#define IO_LISTENER_H

#include "io/loop.h"

#include <sys/socket.h>

struct pawl_err;

/* A listener in the caller's memory, from start to stop. The caller sets the first four fields. */
struct listener {
	const char *what; /* the kind of peer, as a log line names it: "a command" */
	/* Called for each connection. The callee owns fd, which is closed on exec, and may stop the
	 * listener. */
	void (*accepted)(struct listener *listener, int fd, const struct sockaddr *from,
		socklen_t len);
	void *user;                    /* for the caller's use */
	bool blocking;                 /* accept connections in blocking mode */
	struct loop *loop;             /* the loop, from start on; NULL: not started */
	struct loop_source source;     /* the listening socket, owned from start on */
	struct loop_timer retry_timer; /* time to accept connections again */
	bool accept_failing; /* a failure to accept was logged, and none was accepted since */
};

/* Takes the socket, which must be non-blocking and listening; on failure the caller still owns it.
 * Errors are those of loop_add. */
int listener_start(struct listener *listener, struct loop *loop, int fd, struct pawl_err *err);
/* Closes the socket. Does nothing if the listener is not started. */
void listener_stop(struct listener *listener);

#endif
