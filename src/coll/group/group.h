/*
 * A group of ranks over any transport: the calls of include/pawl/coll.h, with the transport and the
 * hosts given by the caller.
 */
#ifndef COLL_GROUP_GROUP_H
#define COLL_GROUP_GROUP_H

#include "coll/plan/cost.h"
#include "coll/plan/topo.h"
#include "coll/transport/transport.h"

#include "pawl/coll.h"

#include <stdatomic.h>

/* Makes a group. A rank of `ranks` or more is a server, which only adds. PAWL_ENOMEM; PAWL_EINVAL:
 * PAWL_HEARTBEAT is no time. */
int coll_group_make(struct pawl_group **out, uint32_t rank, uint32_t ranks, uint32_t servers,
	struct pawl_err *err);
/* Starts a group on a transport, which the group owns from then on, even if this fails. where: as
 * for coll_topo_init. PAWL_ENOMEM, PAWL_EIO. */
int coll_group_start(struct pawl_group *group, struct coll_transport *transport,
	const uint32_t *where, struct pawl_err *err);
/* Sets the network for which algorithms are chosen from now on, in place of coll_link_default or
 * PAWL_LINK. Call it at all ranks, before start or while nothing is under way. */
void coll_group_set_link(struct pawl_group *group, const struct coll_link *link);
/* Adds for the ranks, at a server that has started. Returns 0 when all ranks have left or *stop is
 * true; else why the group failed, which the ranks learn too. */
int coll_group_serve(struct pawl_group *group, const atomic_bool *stop, struct pawl_err *err);

#endif
