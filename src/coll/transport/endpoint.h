/*
 * A rank's endpoint: the host it runs on, and how other ranks reach it there. An endpoint is one
 * line of text. A store or a join listener passes it to the other ranks before they form a group.
 * docs/protocol.md describes the format. Pure.
 */
#ifndef COLL_TRANSPORT_ENDPOINT_H
#define COLL_TRANSPORT_ENDPOINT_H

#include "pawl/coll.h"

#include <stdint.h>

/* Sizes in bytes, terminators included. */
#define ENDPOINT_HOST_ID  96u
#define ENDPOINT_SHM      64u
#define ENDPOINT_NET      96u
#define ENDPOINT_HOSTNAME 64u

/* An endpoint, decoded. Texts are not empty, and have no blanks. */
struct coll_endpoint {
	char host_id[ENDPOINT_HOST_ID];   /* equal for all ranks of a host, and on no other host */
	char shm[ENDPOINT_SHM];           /* name in shared memory; see coll/transport/shm.h */
	char net[ENDPOINT_NET];           /* name on the network, TCP or libfabric; "-": none */
	uint32_t settings;                /* digest of the settings that all ranks must share */
	char hostname[ENDPOINT_HOSTNAME]; /* name of the host in messages to the user */
};

/* Writes an endpoint to text, which has PAWL_ENDPOINT_MAX bytes. */
void coll_endpoint_encode(char *text, const struct coll_endpoint *endpoint);
/* Reads the endpoint of rank. PAWL_EINVAL: text is not an endpoint of this version. */
int coll_endpoint_decode(const char *text, uint32_t rank, struct coll_endpoint *endpoint,
	struct pawl_err *err);

#endif
