/* Chooses the connection that is evicted when all places are taken: see http_places.h. */
#include "daemon/http/http_places.h"

#include <netinet/in.h>
#include <string.h>

#define V6_NETWORK_BYTES 8u /* bytes of an IPv6 network: one customer has all its addresses */

void http_place_name(const struct sockaddr *from, uint8_t peer[HTTP_PEER_BYTES])
{
	memset(peer, 0, HTTP_PEER_BYTES);
	if (from->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)from;

		peer[0] = 4;
		/* All loopback addresses are one machine's. */
		if (ntohl(v4->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET) {
			memcpy(peer + 1, &v4->sin_addr, sizeof(v4->sin_addr));
		}
	} else if (from->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)from;

		peer[0] = 6;
		memcpy(peer + 1, &v6->sin6_addr, V6_NETWORK_BYTES);
	}
}

uint32_t http_places_taken(const struct http_place *first)
{
	uint32_t n = 0;

	for (const struct http_place *p = first; p; p = p->next) {
		n += !p->leaving;
	}
	return n;
}

static uint32_t count_of(const struct http_place *first, const uint8_t *peer)
{
	uint32_t n = 0;

	for (const struct http_place *p = first; p; p = p->next) {
		n += !p->leaving && memcmp(p->peer, peer, HTTP_PEER_BYTES) == 0;
	}
	return n;
}

struct http_place *http_places_victim(struct http_place *first)
{
	struct http_place *chosen = NULL;
	uint32_t most = 0;

	for (struct http_place *p = first; p; p = p->next) {
		uint32_t n = p->waiting || p->leaving ? 0 : count_of(first, p->peer);

		if (n > most || (n == most && n > 0 && p->since_ns < chosen->since_ns)) {
			most = n;
			chosen = p;
		}
	}
	return chosen;
}
