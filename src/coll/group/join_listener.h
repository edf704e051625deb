/*
 * Doors, where processes wait to become ranks of a running group: the side of the rank that has the
 * door (see pawl_join_listener_open), and the bytes. docs/protocol.md describes them.
 *
 * Newcomers connect and knock. When the ranks admit some, each of these newcomers is told its
 * number, answers with its card, gets all cards, says whether it joined, and is told that it is in.
 * Where that fails the connection is closed, and the newcomer may knock again. One thread at a
 * time.
 */
#ifndef COLL_GROUP_JOIN_LISTENER_H
#define COLL_GROUP_JOIN_LISTENER_H

#include "pawl/coll.h"

#include <stdbool.h>
#include <stdint.h>

#define JOIN_REQUEST_MAGIC 0x31726f6f64776170ULL /* "pawdoor1" */
#define JOIN_REQUEST_BYTES 16u                   /* the magic, and the door's key */
#define JOIN_REPLY_BYTES   16u                   /* bytes before what the door says */
#define JOIN_WAITERS_MAX   64u /* newcomers that may wait at a door, or connect to it */

enum join_reply_type {
	JOIN_REPLY_INVITE = 1, /* rank and ranks are set */
	JOIN_REPLY_ENDPOINTS,  /* followed by all cards */
	JOIN_REPLY_ADMITTED,   /* the newcomer is in */
};

/* A message from the door. */
struct join_reply {
	uint32_t type;        /* enum join_reply_type */
	uint32_t rank, ranks; /* the newcomer's rank; number of ranks */
};

/* Write and check a knock, of JOIN_REQUEST_BYTES. */
void join_request_encode(uint8_t *bytes, uint64_t key);
bool join_request_check(const uint8_t *bytes, uint64_t key);
/* Writes a message from the door, of JOIN_REPLY_BYTES bytes. */
void join_reply_encode(uint8_t *bytes, const struct join_reply *reply);
/* Reads a message from the door. PAWL_EINVAL: it is not the word that is expected, or invites as a
 * rank that cannot be. */
int join_reply_decode(const uint8_t *bytes, enum join_reply_type type, struct join_reply *reply,
	struct pawl_err *err);

/* Invites the first n newcomers, to become ranks from first on. cards gets their cards, of
 * PAWL_ENDPOINT_MAX bytes each; empty where a newcomer does not answer. */
void join_listener_invite(struct pawl_join_listener *listener, uint32_t n, uint32_t first,
	uint32_t ranks, char *endpoints);
/* Gives the first n newcomers the cards of all ranks. */
void join_listener_send_endpoints(struct pawl_join_listener *listener, uint32_t n,
	const char *endpoints, uint32_t ranks);
/* Returns whether the first n newcomers have all joined. */
bool join_listener_all_joined(struct pawl_join_listener *listener, uint32_t n);
/* Tells the first n newcomers that they are in, or closes so that they knock again; either way they
 * wait no more. */
void join_listener_dismiss(struct pawl_join_listener *listener, uint32_t n, bool in);

#endif
