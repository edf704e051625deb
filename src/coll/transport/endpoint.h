/*
 * A rank's card: what it says of itself before there is a group, that is, which host it is on and
 * how it is reached there. One line of text, handed on by a store or a door; docs/protocol.md
 * describes it. Pure.
 */
#ifndef COLL_TRANSPORT_ENDPOINT_H
#define COLL_TRANSPORT_ENDPOINT_H

#include "pawl/coll.h"

#include <stdint.h>

#define ENDPOINT_HOST_ID  96u /* bytes of a host's name, terminator included */
#define ENDPOINT_SHM      64u /* bytes of a name in shared memory, terminator included */
#define ENDPOINT_NET      96u /* bytes of a network name, of either transport, terminator included */
#define ENDPOINT_HOSTNAME 64u /* bytes of a host's name for people, terminator included */

/* A card, decoded. Texts are not empty, and have no blanks. */
struct coll_endpoint {
	char host_id
		[ENDPOINT_HOST_ID]; /* identifies the host: equal on one host, and nowhere else */
	char shm[ENDPOINT_SHM];     /* name of the rank's shared memory; see coll/transport/shm.h */
	char net[ENDPOINT_NET];     /* network name at which the rank listens; "-": none */
	uint32_t settings;          /* digest of the settings that must be equal at all ranks */
	char hostname[ENDPOINT_HOSTNAME]; /* name of the host in messages for people */
};

/* Writes a card to text, which has PAWL_ENDPOINT_MAX bytes. */
void coll_endpoint_encode(char *text, const struct coll_endpoint *endpoint);
/* Reads the card of rank. PAWL_EINVAL: text is no card of this version. */
int coll_endpoint_decode(const char *text, uint32_t rank, struct coll_endpoint *endpoint,
	struct pawl_err *err);

#endif
