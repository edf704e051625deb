/* What the two files of the TCP port share. */
#ifndef COLL_TCP_IMPL_H
#define COLL_TCP_IMPL_H

#include "coll/tcp.h"

#include <stdbool.h>

/* A stream with a peer, both ways. */
struct tcp_link {
	int fd;         /* -1: none */
	bool in, out;   /* it may have bytes; it may have room */
	bool ended;     /* nothing more will come */
	bool broken;    /* … and not because the peer closed it */
	bool connected; /* while joining: the greeting was answered */
};

struct tcp {
	struct coll_port port;  /* what others see */
	uint32_t rank, ranks;   /* ours; all */
	int listener;           /* -1 once joined */
	int epoll, event;       /* event: for wake */
	uint64_t nonce;         /* of our name */
	uint32_t seen;          /* what look says */
	struct tcp_link *links; /* owned; of peer p, stream s: p * COLL_STREAMS + s */
};

#define TCP_WAKE UINT64_MAX /* what epoll says of event; else the number of a link */

extern const struct coll_port tcp_port; /* its functions */

static inline struct tcp *tcp_of(struct coll_port *port)
{
	return (struct tcp *)(void *)port;
}

static inline struct tcp_link *tcp_link(struct tcp *tcp, uint32_t peer, uint32_t stream)
{
	return &tcp->links[peer * COLL_STREAMS + stream];
}

/* ---- greetings ---- */

#define TCP_HELLO_BYTES 32u /* of a greeting, and of its answer */

/* nonce: of the name of whom it is for. */
void tcp_write_hello(uint8_t *hello, uint32_t from, uint32_t to, uint32_t stream, uint64_t nonce);
/* The link of ours that a greeting is for: of a rank with a lower number, which has a name, and not
 * there yet. NULL: of none. */
struct tcp_link *tcp_read_hello(struct tcp *tcp, const char *const *names, const uint8_t *hello);

#endif
