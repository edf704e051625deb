/*
 * Chooses the connection that gives way when all places of an address are taken. Nobody is refused
 * for it: of the peer that has most connections, the one that was there for longest without a
 * request is closed, so one peer, whatever it does, cannot keep others out. Pure.
 */
#ifndef DAEMON_HTTP_PLACES_H
#define DAEMON_HTTP_PLACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define HTTP_PEER_BYTES 16u

/* The place of one connection. */
struct http_place {
	struct http_place *next;       /* next place of the same listener */
	uint8_t peer[HTTP_PEER_BYTES]; /* name of the peer that has the place */
	int64_t since_ns; /* time, monotonic, when it was accepted or its last request was over */
	bool waiting;     /* waits in discovery, which has limits of its own: gives no way */
	bool leaving;     /* cut off, and the server has not seen that yet */
};

/* Names the peer at an address, as far as the address tells: an IPv4 address, the first 64 bits of
 * an IPv6 one, and one name for all of this machine's own. */
void http_place_name(const struct sockaddr *from, uint8_t peer[HTTP_PEER_BYTES]);
/* Returns how many places are taken, without those that leave. */
uint32_t http_places_taken(const struct http_place *first);
/* Returns the place that gives way; NULL: all wait, or leave. */
struct http_place *http_places_victim(struct http_place *first);

#endif
