/* See endpoint.h for the contract. */
#include "coll/transport/endpoint.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ENDPOINT_VERSION "pawl-2" /* version of endpoints, and of all later protocols of a group */

void coll_endpoint_encode(char *text, const struct coll_endpoint *endpoint)
{
	_Static_assert(sizeof(ENDPOINT_VERSION) + ENDPOINT_HOST_ID + ENDPOINT_SHM + ENDPOINT_NET +
				8 + ENDPOINT_HOSTNAME <
			PAWL_ENDPOINT_MAX,
		"PAWL_ENDPOINT_MAX is too small");
	snprintf(text, PAWL_ENDPOINT_MAX, "%s %s %s %s %08" PRIx32 " %s", ENDPOINT_VERSION,
		endpoint->host_id, endpoint->shm, endpoint->net, endpoint->settings,
		endpoint->hostname);
}

int coll_endpoint_decode(const char *text, uint32_t rank, struct coll_endpoint *endpoint,
	struct pawl_err *err)
{
	char kind[16];

	_Static_assert(ENDPOINT_HOST_ID == 96 && ENDPOINT_SHM == 64, "their widths are one less");
	_Static_assert(ENDPOINT_NET == 96 && ENDPOINT_HOSTNAME == 64, "their widths are one less");
	_Static_assert(sizeof(ENDPOINT_VERSION) <= sizeof(kind), "the version fits");
	if (strlen(text) >= PAWL_ENDPOINT_MAX ||
		sscanf(text, "%15s %95s %63s %95s %8" SCNx32 " %63s", kind, endpoint->host_id,
			endpoint->shm, endpoint->net, &endpoint->settings,
			endpoint->hostname) != 6 ||
		strcmp(kind, ENDPOINT_VERSION) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: the endpoint of rank %u is malformed: \"%.60s\": is it "
			"another version of Pawl?",
			rank, text);
	}
	return 0;
}
