/*
 * A port between hosts, over libfabric: reliable datagram endpoints (FI_EP_RDM) of whatever
 * provider it chooses for the address; FI_PROVIDER and its other variables work as everywhere.
 *
 * libfabric.so.1 is loaded at first use, and not linked: that takes 0.2 s. Each rank has an
 * endpoint, says where, and joins when it has heard where all others are. A name carries a number
 * that only those know who have read it; each message must say it.
 */
#ifndef COLL_FABRIC_H
#define COLL_FABRIC_H

#include "coll/port.h"

#include <stdatomic.h>

#define COLL_FABRIC_NAME 96u /* bytes of a name, terminator included: "fi1:0200…:3f0c…:tcp" */

/* For a group of so many ranks, at a numeric address of this host. PAWL_ENOTSUP: libfabric is not
 * here, or has no provider for that address; PAWL_ENOMEM, PAWL_EIO. */
int coll_fabric_open(struct coll_port **out, uint32_t rank, uint32_t ranks, const char *address,
	char *name, struct pawl_err *err);
/* names[r]: of rank r; NULL: nothing is exchanged with it. PAWL_EPEER: a rank cannot be reached, or
 * has not come in time; PAWL_EINVAL: a name is none, or of another version or provider;
 * PAWL_ENOMEM, PAWL_EIO. The port can only be closed then. */
int coll_fabric_join(struct coll_port *port, const char *const *names, int64_t timeout_ns,
	const atomic_bool *stop, struct pawl_err *err);
/* A descriptor that is readable when something comes after look found nothing; it stays the
 * port's. -1: this provider has none, look must be called now and then. */
int coll_fabric_events(struct coll_port *port);

#endif
