/*
 * A rank's card: what it says of itself before there is a group, that is, which host it is on and
 * how it is reached there. One line of text, handed on by a store or a door; docs/protocol.md
 * describes it. Pure.
 */
#ifndef COLL_TRANSPORT_CARD_H
#define COLL_TRANSPORT_CARD_H

#include "pawl/coll.h"

#include <stdint.h>

#define CARD_HOST  96u /* bytes of a host's name, terminator included */
#define CARD_SHM   64u /* bytes of a name in shared memory, terminator included */
#define CARD_NET   96u /* bytes of a network name, of either transport, terminator included */
#define CARD_PLACE 64u /* bytes of a host's name for people, terminator included */

/* A card, decoded. Texts are not empty, and have no blanks. */
struct coll_card {
	char host[CARD_HOST];   /* identifies the host: equal on one host, and nowhere else */
	char shm[CARD_SHM];     /* name of the rank's shared memory; see coll/transport/shm.h */
	char net[CARD_NET];     /* network name at which the rank listens; "-": none */
	uint32_t settings;      /* digest of the settings that must be equal at all ranks */
	char place[CARD_PLACE]; /* name of the host in messages for people */
};

/* Writes a card to text, which has PAWL_CARD_MAX bytes. */
void coll_card_encode(char *text, const struct coll_card *card);
/* Reads the card of rank. PAWL_EINVAL: text is no card of this version. */
int coll_card_decode(const char *text, uint32_t rank, struct coll_card *card, struct pawl_err *err);

#endif
