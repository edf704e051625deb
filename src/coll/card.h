/*
 * What a rank says of itself before there is a group: which host it is on, and how it is reached
 * there. One line of text, handed on by a store or a door; docs/protocol.md describes it. Pure.
 */
#ifndef COLL_CARD_H
#define COLL_CARD_H

#include "pawl/coll.h"

#include <stdint.h>

#define CARD_HOST  96u /* bytes of a host's name, terminator included */
#define CARD_SHM   64u /* of a name in memory */
#define CARD_NET   96u /* of a name in the network, of either transport */
#define CARD_PLACE 64u /* of what people call the host */

/* Texts are not empty, and have no blanks. */
struct coll_card {
	char host[CARD_HOST];   /* the same on one host, and nowhere else */
	char shm[CARD_SHM];     /* where its memory is; see coll/shm.h */
	char net[CARD_NET];     /* where it listens; "-": nowhere */
	uint32_t settings;      /* digest of what must be the same at all ranks */
	char place[CARD_PLACE]; /* for messages */
};

/* text: PAWL_CARD_MAX bytes. */
void coll_card_encode(char *text, const struct coll_card *card);
/* PAWL_EINVAL: it is no card of this version; rank is whose it should be. */
int coll_card_decode(const char *text, uint32_t rank, struct coll_card *card, struct pawl_err *err);

#endif
