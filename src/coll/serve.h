/*
 * Servers: processes, on hosts of their own, that have no vectors and add those of others (`pawl
 * serve`). One serves any number of groups; a group asks its servers when it is joined.
 */
#ifndef COLL_SERVE_H
#define COLL_SERVE_H

#include "coll/tcp.h"
#include "coll/topo.h"

#include <stdbool.h>

#define COLL_SERVERS_MAX 64u /* of a group */

/* What a rank asks of a server: the same from all ranks, but for rank. Or, by rank 0 of those who
 * measure the network (probe.h), to take part in that as a rank. */
struct coll_ask {
	uint64_t group;           /* a number that only its ranks know */
	bool probe;               /* the latter */
	uint32_t rank, ranks;     /* who asks, or which rank the server is to be; all */
	uint32_t server, servers; /* whom, from 0; all. Of a probe both 0 */
	const uint32_t
		*where;    /* of each rank: as of coll_topo_init; the caller's. Not of a probe */
	const char *names; /* of a probe: of ranks rank + 1 .. ranks - 1, COLL_TCP_NAME bytes each;
			      the caller's */
};

/* name: of the server, "10.0.0.5:7001:3f0c…". Gives the name, COLL_TCP_NAME bytes, by which its
 * side of the group is joined. PAWL_EINVAL: name is none; PAWL_EPEER: it cannot be reached, or does
 * not want to, or has not answered in time. */
int coll_serve_ask(const char *name, const struct coll_ask *ask, int64_t timeout_ns, char *side,
	struct pawl_err *err);

struct coll_server;

/* Called by any thread with one line: that a group begins; that it ends, and why. */
typedef void coll_serve_tell(void *user, const char *line);

/* Listens; name: COLL_TCP_NAME bytes. PAWL_EINVAL, PAWL_ENOMEM, PAWL_EIO. */
int coll_server_open(struct coll_server **out, const char *address, uint16_t port, char *name,
	coll_serve_tell *tell, void *user, struct pawl_err *err);
/* Hears who asks, for timeout_ns at most: to be called again and again. PAWL_EIO: it cannot. */
int coll_server_turn(struct coll_server *server, int64_t timeout_ns, struct pawl_err *err);
/* Leaves all groups. NULL is fine. */
void coll_server_close(struct coll_server *server);

#endif
