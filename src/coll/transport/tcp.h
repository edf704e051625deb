/*
 * A port between hosts, over TCP: one connection a stream, so that none holds up another, and the
 * kernel's flow control is the stream's.
 *
 * Each rank listens, publishes its name, and joins with the names of all others: of two ranks, the
 * lower one connects. A name carries a secret number, which a rank that connects must repeat.
 */
#ifndef COLL_TRANSPORT_TCP_H
#define COLL_TRANSPORT_TCP_H

#include "coll/transport/transport.h"

#include <stdatomic.h>

#define COLL_TCP_NAME 96u /* bytes of a name, terminator included: "10.0.0.1:4567:3f0c…" */

struct addrinfo;

/* Reads a name. *address: where its owner listens, numeric; to be freed by freeaddrinfo. -1: name
 * is malformed. */
int coll_tcp_parse(const char *name, struct addrinfo **address, uint64_t *nonce);
/* Returns a socket that listens at a numeric address of this host and a port (0: any), and writes
 * the name, which has the nonce. PAWL_EINVAL: no such address, or a bad PAWL_CONGESTION;
 * PAWL_EIO. */
int coll_tcp_listen(const char *address, uint16_t port, uint64_t nonce, char *name,
	struct pawl_err *err);

/* Opens a port, which listens at a numeric address of this host, IPv4 or IPv6. PAWL_EINVAL,
 * PAWL_ENOMEM, PAWL_EIO. */
int coll_tcp_open(struct coll_transport **out, uint32_t rank, uint32_t ranks, const char *address,
	char *name, struct pawl_err *err);
/* Joins the other ranks. names[r]: the name of rank r; NULL: nothing is exchanged with that rank;
 * of a lower rank, any text will do. PAWL_EPEER: a rank cannot be reached, or has not come in time;
 * PAWL_EINVAL: a name is malformed; PAWL_ECANCELED: *stop (may be NULL) is true; PAWL_ENOMEM,
 * PAWL_EIO. After an error the port can only be closed. */
int coll_tcp_join(struct coll_transport *transport, const char *const *names, int64_t timeout_ns,
	const atomic_bool *stop, struct pawl_err *err);
/* Returns a descriptor, which stays the port's, that is readable when look would find something. */
int coll_tcp_events(struct coll_transport *transport);

#endif
