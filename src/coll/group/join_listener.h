/*
 * Join listeners, where processes wait to become ranks of a running group: the side of the rank
 * that has the listener (see pawl_join_listener_open), and the bytes. docs/protocol.md describes
 * them.
 *
 * Newcomers connect and send a join request. When the ranks admit some, each of these receives its
 * rank, and answers with its endpoint. It then receives all endpoints, reports whether it joined,
 * and receives that it is admitted. If a step fails, the listener closes the connection, and the
 * newcomer may ask again. One thread at a time.
 */
#ifndef COLL_GROUP_JOIN_LISTENER_H
#define COLL_GROUP_JOIN_LISTENER_H

#include "pawl/coll.h"

#include <stdbool.h>
#include <stdint.h>

#define JOIN_REQUEST_MAGIC 0x31726f6f64776170ULL /* "pawdoor1" */
#define JOIN_REQUEST_BYTES 16u                   /* the magic, and the listener's key */
#define JOIN_REPLY_BYTES   16u                   /* bytes of a reply; endpoints may follow */
#define JOIN_WAITERS_MAX   64u /* most newcomers that wait at a listener, requested or not */

enum join_reply_type {
	JOIN_REPLY_INVITE = 1, /* rank and ranks are set */
	JOIN_REPLY_ENDPOINTS,  /* followed by all endpoints */
	JOIN_REPLY_ADMITTED,   /* the newcomer is admitted */
};

/* A reply of the join listener. */
struct join_reply {
	uint32_t type;        /* enum join_reply_type */
	uint32_t rank, ranks; /* the newcomer's rank; number of ranks */
};

/* Write and check a join request, of JOIN_REQUEST_BYTES. */
void join_request_encode(uint8_t *bytes, uint64_t key);
bool join_request_check(const uint8_t *bytes, uint64_t key);
/* Writes a reply, of JOIN_REPLY_BYTES. */
void join_reply_encode(uint8_t *bytes, const struct join_reply *reply);
/* Reads a reply. PAWL_EINVAL: it is not of the expected type, or invites as a rank that cannot
 * exist. */
int join_reply_decode(const uint8_t *bytes, enum join_reply_type type, struct join_reply *reply,
	struct pawl_err *err);

/* Invites the first n newcomers, to become ranks from first on. endpoints receives their endpoints,
 * of PAWL_ENDPOINT_MAX bytes each; empty where a newcomer does not answer. */
void join_listener_invite(struct pawl_join_listener *listener, uint32_t n, uint32_t first,
	uint32_t ranks, char *endpoints);
/* Sends the first n newcomers the endpoints of all ranks. */
void join_listener_send_endpoints(struct pawl_join_listener *listener, uint32_t n,
	const char *endpoints, uint32_t ranks);
/* Returns whether the first n newcomers have all joined. */
bool join_listener_all_joined(struct pawl_join_listener *listener, uint32_t n);
/* Closes the connections of the first n newcomers, which no longer wait. admitted: first sends them
 * that they are admitted; else they may ask again. */
void join_listener_dismiss(struct pawl_join_listener *listener, uint32_t n, bool admitted);

#endif
