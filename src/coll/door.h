/*
 * Where processes wait that want to be ranks of a running group: the side of the rank that has the
 * door (see pawl_door_open), and the bytes. docs/protocol.md describes them.
 *
 * Newcomers connect and knock. When the ranks admit some, each of those is told its number, answers
 * with its card, gets all cards, says whether it joined, and is told that it is in. Where that
 * fails the connection is closed, and the newcomer may knock again. One thread at a time.
 */
#ifndef COLL_DOOR_H
#define COLL_DOOR_H

#include "pawl/coll.h"

#include <stdbool.h>
#include <stdint.h>

#define KNOCK_MAGIC  0x31726f6f64776170ULL /* "pawdoor1" */
#define KNOCK_BYTES  16u                   /* the magic, and the door's key */
#define DOOR_HEAD    16u                   /* bytes before what the door says */
#define DOOR_WAITERS 64u                   /* who may wait at a door, or connect to it */

enum door_word {
	DOOR_INVITE = 1, /* rank and ranks are the newcomer's */
	DOOR_CARDS,      /* followed by all cards */
	DOOR_WELCOME,    /* it is in */
};

/* What the door says. */
struct door_says {
	uint32_t word;        /* enum door_word */
	uint32_t rank, ranks; /* the newcomer's; all */
};

/* A knock: KNOCK_BYTES. */
void door_encode_knock(uint8_t *bytes, uint64_t key);
bool door_check_knock(const uint8_t *bytes, uint64_t key);
/* DOOR_HEAD bytes. */
void door_encode(uint8_t *bytes, const struct door_says *says);
/* PAWL_EINVAL: it is another word than is expected, or invites as a rank that cannot be. */
int door_decode(const uint8_t *bytes, enum door_word word, struct door_says *says,
	struct pawl_err *err);

/* The first n of them become ranks from first on; cards: PAWL_CARD_MAX bytes each, empty of those
 * that do not answer. */
void door_invite(struct pawl_door *door, uint32_t n, uint32_t first, uint32_t ranks, char *cards);
/* They get the cards of all. */
void door_hand_out(struct pawl_door *door, uint32_t n, const char *cards, uint32_t ranks);
/* Whether they all joined. */
bool door_all_joined(struct pawl_door *door, uint32_t n);
/* They are in, or are to knock again; either way they wait no more. */
void door_dismiss(struct pawl_door *door, uint32_t n, bool in);

#endif
