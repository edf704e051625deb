/* Fuzzes the messages at a door: a knock, and the answer to a newcomer. An accepted message encodes
 * to the same bytes, and names a rank that can exist. */
#include "fuzz.h"

#include "base/assert.h"
#include "coll/group/door.h"
#include "coll/plan/topo.h"

#include <string.h>

#define KEY 0x3f0c5a7700112233u

static void try_word(const uint8_t *bytes, enum door_word word)
{
	struct door_says says;
	uint8_t again[DOOR_HEAD];

	if (door_decode(bytes, word, &says, NULL) == 0) {
		door_encode(again, &says);
		ASSERT(memcmp(again, bytes, DOOR_HEAD - sizeof(uint32_t)) == 0);
		ASSERT(word != DOOR_INVITE ||
			(says.rank < says.ranks && says.ranks <= COLL_RANKS_MAX));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	uint8_t right[KNOCK_BYTES];

	if (len_bytes >= KNOCK_BYTES) {
		door_encode_knock(right, KEY);
		ASSERT(door_check_knock(bytes, KEY) == (memcmp(bytes, right, KNOCK_BYTES) == 0));
	}
	if (len_bytes >= DOOR_HEAD) {
		try_word(bytes, DOOR_INVITE);
		try_word(bytes, DOOR_CARDS);
		try_word(bytes, DOOR_WELCOME);
	}
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const struct door_says says[] = {{DOOR_INVITE, 2, 3},
		{DOOR_INVITE, COLL_RANKS_MAX - 1, COLL_RANKS_MAX}, {DOOR_CARDS, 0, 3},
		{.word = DOOR_WELCOME}};

	if (i == 0) {
		door_encode_knock(buf, KEY);
		return KNOCK_BYTES;
	}
	if (i > sizeof(says) / sizeof(*says)) {
		return 0;
	}
	door_encode(buf, &says[i - 1]);
	return DOOR_HEAD;
}
