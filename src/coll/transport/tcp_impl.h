/* Shared by the two files of the TCP transport. */
#ifndef COLL_TRANSPORT_TCP_IMPL_H
#define COLL_TRANSPORT_TCP_IMPL_H

#include "coll/transport/tcp.h"

#include "base/assert.h"

#include <stdbool.h>

/* A stream to and from a peer. */
struct tcp_link {
	int fd;                  /* socket; -1: none */
	bool readable, writable; /* there may be bytes; there may be room */
	bool ended;              /* nothing more will arrive */
	bool broken;             /* the connection ended, but not because the peer closed it */
	bool connected;          /* the handshake is complete */
};

struct tcp {
	struct coll_transport transport; /* functions for callers; must come first */
	uint32_t rank, ranks;            /* this rank; number of ranks */
	int listener;                    /* socket that others connect to; -1 after joining */
	int epoll, event;                /* epoll set of wait; eventfd of wake */
	uint64_t nonce;                  /* secret in our name */
	uint32_t event_count;            /* count that poll returns */
	struct tcp_link *links;          /* owned; of peer p, stream s: p * COLL_STREAMS + s */
};

#define TCP_WAKE UINT64_MAX /* epoll's data for event; else the index of a link */

extern const struct coll_transport tcp_transport; /* functions of this transport */

static inline struct tcp *tcp_of(struct coll_transport *transport)
{
	return (struct tcp *)(void *)transport;
}

static inline struct tcp_link *tcp_link(struct tcp *tcp, uint32_t peer, uint32_t stream)
{
	ASSERT(peer < tcp->ranks && stream < COLL_STREAMS);
	return &tcp->links[peer * COLL_STREAMS + stream];
}

/* ---- hello ---- */

#define TCP_HELLO_BYTES 32u /* size of a hello, and of its answer */

/* Writes a hello, or its answer. nonce: the one in the name of the rank that listens. */
void tcp_write_hello(uint8_t *hello, uint32_t from, uint32_t to, uint32_t stream, uint64_t nonce);
/* Returns the link that a hello is for. NULL: the hello is not valid. A valid hello has our nonce,
 * and is from a lower rank that has a name and whose link is not connected yet. */
struct tcp_link *tcp_read_hello(struct tcp *tcp, const char *const *names, const uint8_t *hello);

#endif
