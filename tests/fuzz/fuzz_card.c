/* Fuzzes what a rank receives about another rank before they meet: its card, and the address in it.
 * An accepted card encodes to one that says the same. */
#include "fuzz.h"

#include "base/assert.h"
#include "coll/transport/card.h"
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
	/* Exactly this long, so that ASan notices a read beyond. */
	char *text = malloc(len_bytes + 1);
	char again[PAWL_CARD_MAX];
	struct coll_card card;
	struct coll_card same;

	if (!text) {
		return 0;
	}
	memcpy(text, bytes, len_bytes);
	text[len_bytes] = '\0';
	if (coll_card_decode(text, 1, &card, NULL) == 0) {
		coll_card_encode(again, &card);
		ASSERT(coll_card_decode(again, 1, &same, NULL) == 0);
		ASSERT(strcmp(card.host, same.host) == 0 && strcmp(card.shm, same.shm) == 0);
		ASSERT(strcmp(card.net, same.net) == 0 && strcmp(card.place, same.place) == 0);
		ASSERT(card.settings == same.settings);
		try_name(card.net);
	}
	try_name(text);
	free(text);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const struct coll_card cards[] = {
		{"3f0c-77:4026531836:4026531840", "711:5:a0b1", "-", 0, "node3"},
		{"3f0c-77:4026531836:4026531840", "711:5:a0b1", "10.0.0.1:4567:3f0c5a77",
			0x3f0c5a77, "node3"},
		{"3f0c-77:1:2", "1:2:3", "[fe80::1]:4567:ffffffffffffffff", UINT32_MAX, "?"}};

	if (i >= sizeof(cards) / sizeof(*cards)) {
		return 0;
	}
	coll_card_encode((char *)buf, &cards[i]);
	return strlen((char *)buf);
}
