/*
 * A port between hosts, over TCP: a connection a stream, so that none holds up another, and the
 * kernel's flow control is the stream's.
 *
 * Each rank listens, says where, and joins when it has heard where all others are: of two, the one
 * with the lower number connects. A name carries a number that only those know who have read it;
 * who connects must say it.
 */
#ifndef COLL_TCP_H
#define COLL_TCP_H

#include "coll/port.h"

#include <stdatomic.h>

#define COLL_TCP_NAME 96u /* bytes of a name, terminator included: "10.0.0.1:4567:3f0c…" */

struct addrinfo;

/* A name: where it listens, numeric; to be freed by freeaddrinfo. -1: it is none. */
int coll_tcp_parse(const char *name, struct addrinfo **address, uint64_t *nonce);
/* A socket that listens at a numeric address of this host and a port (0: any), and the name with a
 * nonce. PAWL_EINVAL: it is no address; PAWL_EIO: it cannot. */
int coll_tcp_listen(const char *address, uint16_t port, uint64_t nonce, char *name,
	struct pawl_err *err);

/* Listens at a numeric address of this host, IPv4 or IPv6. PAWL_EINVAL, PAWL_ENOMEM, PAWL_EIO. */
int coll_tcp_open(struct coll_port **out, uint32_t rank, uint32_t ranks, const char *address,
	char *name, struct pawl_err *err);
/* names[r]: of rank r; NULL: nothing is exchanged with it; of one with a lower number, any.
 * PAWL_EPEER: a rank cannot be reached, or has not come in time; PAWL_EINVAL: a name is none;
 * PAWL_EIO. The port can only be closed then. */
int coll_tcp_join(struct coll_port *port, const char *const *names, int64_t timeout_ns,
	const atomic_bool *stop, struct pawl_err *err);
/* A descriptor that is readable when look would find something; it stays the port's. */
int coll_tcp_events(struct coll_port *port);

#endif
