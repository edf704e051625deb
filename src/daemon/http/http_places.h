/*
 * Chooses the connection that is evicted when all places of an address are taken. The new
 * connection is never refused: the peer with most connections loses the one that has been without a
 * request for longest. So no peer can keep others out. Pure.
 */
#ifndef DAEMON_HTTP_HTTP_PLACES_H
#define DAEMON_HTTP_HTTP_PLACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define HTTP_PEER_BYTES 16u

/* The place of one connection. */
struct http_place {
	struct http_place *next;       /* next place of the same listener */
	uint8_t peer[HTTP_PEER_BYTES]; /* name of the peer that has the place */
	int64_t since_ns; /* time, monotonic, when it was accepted or its last request was over */
	bool waiting;     /* waits in discovery, which has its own limits: is not evicted */
	bool leaving;     /* cut off, but the library has not closed it yet */
};

/* Names the peer at an address: an IPv4 address, the first 64 bits of an IPv6 address, or one name
 * for all loopback addresses. */
void http_place_name(const struct sockaddr *from, uint8_t peer[HTTP_PEER_BYTES]);
/* Returns how many places are taken, without those that leave. */
uint32_t http_places_taken(const struct http_place *first);
/* Returns the place that is evicted; NULL: all wait, or leave. */
struct http_place *http_places_victim(struct http_place *first);

#endif
