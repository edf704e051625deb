/* See card.h for the contract. */
#include "coll/transport/card.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CARD_KIND "pawl-2" /* version of cards, and of all protocols used afterwards */

void coll_card_encode(char *text, const struct coll_card *card)
{
	_Static_assert(sizeof(CARD_KIND) + CARD_HOST + CARD_SHM + CARD_NET + 8 + CARD_PLACE <
			PAWL_CARD_MAX,
		"no room for a card");
	snprintf(text, PAWL_CARD_MAX, "%s %s %s %s %08" PRIx32 " %s", CARD_KIND, card->host,
		card->shm, card->net, card->settings, card->place);
}

int coll_card_decode(const char *text, uint32_t rank, struct coll_card *card, struct pawl_err *err)
{
	char kind[16];

	if (strlen(text) >= PAWL_CARD_MAX ||
		sscanf(text, "%15s %95s %63s %95s %8" SCNx32 " %63s", kind, card->host, card->shm,
			card->net, &card->settings, card->place) != 6 ||
		strcmp(kind, CARD_KIND) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: rank %u says that it is at \"%.60s\": is it another version "
			"of Pawl?",
			rank, text);
	}
	return 0;
}
