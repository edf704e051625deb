/*
 * Doors, where processes wait to become ranks of a running group: the side of the rank that has the
 * door (see pawl_door_open), and the bytes. docs/protocol.md describes them.
 *
 * Newcomers connect and knock. When the ranks admit some, each of these newcomers is told its
 * number, answers with its card, gets all cards, says whether it joined, and is told that it is in.
 * Where that fails the connection is closed, and the newcomer may knock again. One thread at a
 * time.
 */
#ifndef COLL_GROUP_DOOR_H
#define COLL_GROUP_DOOR_H

#include "pawl/coll.h"

#include <stdbool.h>
#include <stdint.h>

#define KNOCK_MAGIC  0x31726f6f64776170ULL /* "pawdoor1" */
#define KNOCK_BYTES  16u                   /* the magic, and the door's key */
#define DOOR_HEAD    16u                   /* bytes before what the door says */
#define DOOR_WAITERS 64u                   /* newcomers that may wait at a door, or connect to it */

enum door_word {
	DOOR_INVITE = 1, /* rank and ranks are set */
	DOOR_CARDS,      /* followed by all cards */
	DOOR_WELCOME,    /* the newcomer is in */
};

/* A message from the door. */
struct door_says {
	uint32_t word;        /* enum door_word */
	uint32_t rank, ranks; /* the newcomer's rank; number of ranks */
};

/* Write and check a knock, of KNOCK_BYTES. */
void door_encode_knock(uint8_t *bytes, uint64_t key);
bool door_check_knock(const uint8_t *bytes, uint64_t key);
/* Writes a message from the door, of DOOR_HEAD bytes. */
void door_encode(uint8_t *bytes, const struct door_says *says);
/* Reads a message from the door. PAWL_EINVAL: it is not the word that is expected, or invites as a
 * rank that cannot be. */
int door_decode(const uint8_t *bytes, enum door_word word, struct door_says *says,
	struct pawl_err *err);

/* Invites the first n newcomers, to become ranks from first on. cards gets their cards, of
 * PAWL_CARD_MAX bytes each; empty where a newcomer does not answer. */
void door_invite(struct pawl_door *door, uint32_t n, uint32_t first, uint32_t ranks, char *cards);
/* Gives the first n newcomers the cards of all ranks. */
void door_hand_out(struct pawl_door *door, uint32_t n, const char *cards, uint32_t ranks);
/* Returns whether the first n newcomers have all joined. */
bool door_all_joined(struct pawl_door *door, uint32_t n);
/* Tells the first n newcomers that they are in, or closes so that they knock again; either way they
 * wait no more. */
void door_dismiss(struct pawl_door *door, uint32_t n, bool in);

#endif
