/* Fuzzes what a server receives before it knows the sender, and the orders of a measurement.
 * Accepted input is within bounds, and an accepted order encodes to the same bytes. */
#include "fuzz.h"

#include "base/assert.h"
#include "coll/group/serve_impl.h"
#include "coll/probe/probe_impl.h"

#include <string.h>

#define KEY   0x3f0c5a77u
#define RANKS 5u

/* Decodes the input as an order and as a request: an order begins with a small number, a request
 * with its magic. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	uint8_t again[ORDER_BYTES];
	struct probe_order order;
	struct coll_ask ask;

	if (len_bytes >= ORDER_BYTES && probe_decode(bytes, RANKS, &order) == 0) {
		probe_encode(again, &order);
		ASSERT(memcmp(again, bytes, ORDER_BYTES) == 0);
		ASSERT(order.rounds <= ORDER_ROUNDS_MAX && order.len_bytes <= SURVEY_VECTOR_MAX);
		for (uint32_t r = 0; r < RANKS; r++) {
			ASSERT(probe_bytes(&order, RANKS, r, (r + 1) % RANKS) <= order.len_bytes);
		}
	}
	if (len_bytes >= ASK_BYTES && serve_decode_ask(bytes, KEY, &ask) == 0) {
		ASSERT(ask.ranks > 1 && ask.rank < ask.ranks);
		ASSERT(serve_more_bytes(&ask) <= COLL_RANKS_MAX * sizeof(uint32_t));
	}
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const char names[RANKS * COLL_TCP_NAME] = "10.79.0.1:4567:3f0c5a";
	static const uint32_t where[RANKS] = {0, 0, 1, 1, 4};
	static const struct coll_ask asks[] = {
		{.group = 7, .probe = true, .rank = 2, .ranks = RANKS, .names = names},
		{.group = 7, .rank = 2, .ranks = RANKS, .server = 1, .servers = 2, .where = where}};
	struct probe_order order = {.kind = i,
		.b = i == PROBE_PING || i == PROBE_PAIR,
		.rounds = 32,
		.dtype = i == PROBE_SUM ? PAWL_FLOAT32 : PAWL_UINT8,
		.len_bytes = 4096,
		.link = coll_link_default};

	if (i < PROBE_KINDS) {
		probe_encode(buf, &order);
		ASSERT(probe_decode(buf, RANKS, &order) == 0);
		return ORDER_BYTES;
	}
	i -= PROBE_KINDS;
	return i < sizeof(asks) / sizeof(*asks) ? serve_encode_ask(buf, KEY, &asks[i]) : 0;
}
