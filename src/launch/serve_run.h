/*
 * `pawl serve --rendezvous`: joins a job's coordinator (nodes.h) as a server, a host that only
 * adds, for as long as the job runs. The server itself is coll/group/serve.h.
 */
#ifndef LAUNCH_SERVE_RUN_H
#define LAUNCH_SERVE_RUN_H

#include "launch/run_places.h"

struct serve_run_options {
	const struct run_places *places; /* where the job's nodes meet */
	const char *token;               /* NULL: none */
	const char *name;                /* name of the server, for PAWL_SERVERS */
	void (*print)(const char *line); /* prints a line for the user */
};

/* Blocks SIGTERM, SIGINT and SIGHUP in this thread, and in those that it starts. Call before
 * serve_run. */
void serve_run_block_signals(void);
/* Blocks until the job ends (*status is its exit status), or one of the signals above comes (128 +
 * its number), or the job uses no servers (PAWL_EINVAL). Looks for a coordinator that is lost or
 * not there yet. PAWL_ENOMEM, PAWL_EIO. */
int serve_run(const struct serve_run_options *options, int *status, struct pawl_err *err);

#endif
