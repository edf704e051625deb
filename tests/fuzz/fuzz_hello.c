/* Fuzzes what a rank receives from a peer that connects: a hello is accepted only for a link that
 * is expected. */
#include "fuzz.h"

#include "base/assert.h"
#include "coll/transport/tcp_impl.h"

#include <string.h>

#define RANKS 5u
#define OURS  3u
#define NONCE 0x3f0c5a7700112233u

/* Rank 1 is on our host; a link with rank 2 exists already. */
static const char *const names[RANKS] = {"10.0.0.1:4567:1", NULL, "10.0.0.3:4567:3",
	"10.0.0.4:4567:4", "10.0.0.5:4567:5"};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct tcp_link links[RANKS * COLL_STREAMS];
	struct tcp tcp = {.rank = OURS, .ranks = RANKS, .nonce = NONCE, .links = links};
	uint8_t again[TCP_HELLO_BYTES];
	struct tcp_link *link;

	if (len_bytes < TCP_HELLO_BYTES) {
		return 0;
	}
	for (uint32_t i = 0; i < RANKS * COLL_STREAMS; i++) {
		links[i] = (struct tcp_link){.fd = i == 2 * COLL_STREAMS ? 7 : -1};
	}
	link = tcp_read_hello(&tcp, names, bytes);
	if (link) {
		uint32_t from = (uint32_t)((link - links) / COLL_STREAMS);

		ASSERT(link >= links && link < links + RANKS * COLL_STREAMS);
		ASSERT(from < OURS && names[from] && link->fd < 0);
		tcp_write_hello(again, from, OURS, (uint32_t)((link - links) % COLL_STREAMS),
			NONCE);
		ASSERT(memcmp(again, bytes, TCP_HELLO_BYTES - sizeof(uint32_t)) == 0);
	}
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	if (i >= 2 * COLL_STREAMS) {
		return 0;
	}
	tcp_write_hello(buf, i < COLL_STREAMS ? 0 : 2, OURS, i % COLL_STREAMS, NONCE);
	return TCP_HELLO_BYTES;
}
