/*
 * Who gives way when all places of an address are taken. Nobody is refused for it: of the peer that
 * has most connections, the one that was there for longest without a request is closed, so one
 * peer, whatever it does, cannot keep others out. Pure.
 */
#ifndef DAEMON_HTTP_PLACES_H
#define DAEMON_HTTP_PLACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define HTTP_PEER_BYTES 16u

/* One connection's. */
struct http_place {
	struct http_place *next;       /* of the same listener */
	uint8_t peer[HTTP_PEER_BYTES]; /* who has it */
	int64_t since_ns; /* monotonic clock: it was accepted, or its last request was over */
	bool waiting;     /* in discovery, which has limits of its own: it gives no way */
	bool leaving;     /* it was cut off, and its server has not seen that yet */
};

/* Who is at an address, as far as that tells: an IPv4 address, the first 64 bits of an IPv6 one,
 * and one for all of this machine's own. */
void http_place_name(const struct sockaddr *from, uint8_t peer[HTTP_PEER_BYTES]);
/* How many are taken, but for those that leave. */
uint32_t http_places_taken(const struct http_place *first);
/* The one to give way; NULL: all wait, or leave. */
struct http_place *http_places_yield(struct http_place *first);

#endif
