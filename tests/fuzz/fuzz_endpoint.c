/* Fuzzes what a rank receives about another rank before it connects: its endpoint, and the address
 * in it. An accepted endpoint stays the same if it is encoded and decoded again. */
#include "fuzz.h"

#include "base/assert.h"
#include "coll/transport/endpoint.h"
#include "coll/transport/tcp.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

static void try_name(const char *name)
{
	struct addrinfo *at = NULL;
	uint64_t nonce;

	if (coll_tcp_parse(name, &at, &nonce) == 0) {
		ASSERT(at != NULL);
		freeaddrinfo(at);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	/* Exactly this long, so that ASan reports a read beyond the end. */
	char *text = malloc(len_bytes + 1);
	char again[PAWL_ENDPOINT_MAX];
	struct coll_endpoint endpoint;
	struct coll_endpoint same;

	if (!text) {
		return 0;
	}
	memcpy(text, bytes, len_bytes);
	text[len_bytes] = '\0';
	if (coll_endpoint_decode(text, 1, &endpoint, NULL) == 0) {
		coll_endpoint_encode(again, &endpoint);
		ASSERT(coll_endpoint_decode(again, 1, &same, NULL) == 0);
		ASSERT(strcmp(endpoint.host_id, same.host_id) == 0 &&
			strcmp(endpoint.shm, same.shm) == 0);
		ASSERT(strcmp(endpoint.net, same.net) == 0 &&
			strcmp(endpoint.hostname, same.hostname) == 0);
		ASSERT(endpoint.settings == same.settings);
		try_name(endpoint.net);
	}
	try_name(text);
	free(text);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const struct coll_endpoint endpoints[] = {
		{"3f0c-77:4026531836:4026531840", "711:5:a0b1", "-", 0, "node3"},
		{"3f0c-77:4026531836:4026531840", "711:5:a0b1", "10.0.0.1:4567:3f0c5a77",
			0x3f0c5a77, "node3"},
		{"3f0c-77:1:2", "1:2:3", "[fe80::1]:4567:ffffffffffffffff", UINT32_MAX, "?"}};

	if (i >= sizeof(endpoints) / sizeof(*endpoints)) {
		return 0;
	}
	coll_endpoint_encode((char *)buf, &endpoints[i]);
	return strlen((char *)buf);
}
