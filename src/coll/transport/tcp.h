/*
 * A transport between hosts, over TCP. Each stream has a connection of its own, so that no stream
 * blocks another, and the kernel does the flow control of each stream.
 *
 * Each rank listens, publishes its name, and joins with the names of all others. Of two ranks, the
 * lower one connects. A name carries a secret number, which a rank that connects must repeat.
 */
#ifndef COLL_TRANSPORT_TCP_H
#define COLL_TRANSPORT_TCP_H

#include "coll/transport/transport.h"

#include <stdatomic.h>

#define COLL_TCP_NAME 96u /* bytes of a name, terminator included: "10.0.0.1:4567:3f0c…" */

struct addrinfo;

/* Reads a name. *address: the numeric address at which its owner listens; the caller frees it with
 * freeaddrinfo. -1: name is malformed. */
int coll_tcp_parse(const char *name, struct addrinfo **address, uint64_t *nonce);
/* Returns a socket that listens at a numeric address of this host and a TCP port (0: any). name:
 * COLL_TCP_NAME bytes, filled with the name, which contains nonce. PAWL_EINVAL: address is not an
 * address, or PAWL_CONGESTION is bad; PAWL_EIO. */
int coll_tcp_listen(const char *address, uint16_t port, uint64_t nonce, char *name,
	struct pawl_err *err);

/* Opens a transport that listens at a numeric address of this host, IPv4 or IPv6. name:
 * COLL_TCP_NAME bytes, filled with its name. PAWL_EINVAL, PAWL_ENOMEM, PAWL_EIO. */
int coll_tcp_open(struct coll_transport **out, uint32_t rank, uint32_t ranks, const char *address,
	char *name, struct pawl_err *err);
/* Joins the other ranks. names[r]: the name of rank r; NULL: nothing is exchanged with that rank.
 * The name of a lower rank may be any text. PAWL_EPEER: a rank cannot be reached, or has not joined
 * in time; PAWL_EINVAL: a name is malformed; PAWL_ECANCELED: *stop (may be NULL) is true;
 * PAWL_ENOMEM, PAWL_EIO. After an error the transport can only be closed. */
int coll_tcp_join(struct coll_transport *transport, const char *const *names, int64_t timeout_ns,
	const atomic_bool *stop, struct pawl_err *err);
/* Returns a descriptor that is readable when poll would find an event. The transport owns it. */
int coll_tcp_events(struct coll_transport *transport);

#endif
