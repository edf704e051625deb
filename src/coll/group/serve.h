/*
 * Servers (`pawl serve`): processes on hosts of their own that have no vectors, and add those of
 * ranks. One serves any number of groups; a group asks its servers when it is joined. group_serve.c
 * is a server's side of one group; launch/serve_run.h, a server's connection to a job.
 */
#ifndef COLL_GROUP_SERVE_H
#define COLL_GROUP_SERVE_H

#include "coll/plan/topo.h"
#include "coll/transport/tcp.h"

#include <stdatomic.h>
#include <stdbool.h>

#define COLL_SERVERS_MAX 64u /* most servers of a group */

/* A request to a server, the same from all ranks except for rank. Or a request of rank 0 of a
 * measurement (probe.h) to take part in it as a rank. */
struct coll_ask {
	uint64_t group; /* secret number that only the group's ranks know */
	bool probe;     /* a request to take part in a measurement */
	/* Rank that asks, or in a probe the rank that the server becomes; number of ranks. */
	uint32_t rank, ranks;
	/* Server that is asked, from 0; number of servers. Both are 0 in a probe. */
	uint32_t server, servers;
	const uint32_t *where; /* the caller's; per rank, as for coll_topo_init; not in a probe */
	/* The caller's; used in a probe only: names of ranks rank + 1 .. ranks - 1, COLL_TCP_NAME
	 * bytes each. */
	const char *names;
};

/* Asks a server for its side of a group. name: that of the server, "10.0.0.5:7001:3f0c5a…". side:
 * COLL_TCP_NAME bytes, filled with the name by which ranks join the server's side. PAWL_EINVAL:
 * name is malformed; PAWL_EPEER: the server cannot be reached, refuses, or does not answer in
 * time. */
int coll_serve_ask(const char *name, const struct coll_ask *ask, int64_t timeout_ns, char *side,
	struct pawl_err *err);

struct coll_server;
struct pawl_group;

/* Called by any thread with one line of text: a group begins, a group ends and why, or ranks cannot
 * be accepted. */
typedef void coll_serve_report(void *user, const char *line);

/* Takes part in a measurement as rank 0 of the group orders: coll_probe_obey (coll/probe). Returns
 * when the measurement is over, *stop is true, or the group has failed. */
typedef int coll_serve_obey(struct pawl_group *group, const atomic_bool *stop,
	struct pawl_err *err);

/* Opens a server, which listens at address and TCP port. name: COLL_TCP_NAME bytes, filled with the
 * server's name. PAWL_EINVAL, PAWL_ENOMEM, PAWL_EIO. */
int coll_server_open(struct coll_server **out, const char *address, uint16_t port, char *name,
	coll_serve_report *report, void *user, coll_serve_obey *obey, struct pawl_err *err);
/* Accepts and answers requests, for timeout_ns at most; call it again and again. PAWL_EIO:
 * listening failed. */
int coll_server_poll(struct coll_server *server, int64_t timeout_ns, struct pawl_err *err);
/* Leaves all groups, and frees the server. NULL is fine. */
void coll_server_close(struct coll_server *server);

#endif
