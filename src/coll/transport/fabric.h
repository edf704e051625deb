/*
 * A transport between hosts, over libfabric. It uses libfabric endpoints for reliable datagrams
 * (FI_EP_RDM), of the provider that libfabric chooses for the address. FI_PROVIDER and libfabric's
 * other variables apply.
 *
 * libfabric.so.1 is not linked, since loading it takes 0.2 s: it is loaded at first use. Each rank
 * has a libfabric endpoint, publishes its name, and joins with the names of all others. A name
 * carries a secret number, which each message must repeat.
 */
#ifndef COLL_TRANSPORT_FABRIC_H
#define COLL_TRANSPORT_FABRIC_H

#include "coll/transport/transport.h"

#include <stdatomic.h>

#define COLL_FABRIC_NAME 96u /* bytes of a name, terminator included: "fi1:0200…:3f0c…:tcp" */

/* Opens a transport for a group of `ranks` ranks, at a numeric address of this host. name:
 * COLL_FABRIC_NAME bytes, filled with its name. PAWL_ENOTSUP: libfabric is not installed, or has no
 * provider for that address; PAWL_ENOMEM, PAWL_EIO. */
int coll_fabric_open(struct coll_transport **out, uint32_t rank, uint32_t ranks,
	const char *address, char *name, struct pawl_err *err);
/* Joins the other ranks. names[r]: the name of rank r; NULL: nothing is exchanged with that rank.
 * PAWL_EPEER: a rank cannot be reached, or has not joined in time; PAWL_EINVAL: a name is
 * malformed, or of another version or provider; PAWL_ECANCELED: *stop (may be NULL) is true;
 * PAWL_ENOMEM, PAWL_EIO. After an error the transport can only be closed. */
int coll_fabric_join(struct coll_transport *transport, const char *const *names, int64_t timeout_ns,
	const atomic_bool *stop, struct pawl_err *err);
/* Returns a descriptor that becomes readable when an event follows a poll that found none. The
 * transport owns it. -1: the provider has none, and poll must be called at intervals. */
int coll_fabric_events(struct coll_transport *transport);

#endif
