/*
 * Messages between ranks beside collectives, on a stream of its own between each two ranks:
 * messages with a tag, heartbeats, that a rank leaves, that it gave up and why. Pure.
 *
 * A message is offered first, and sent when the receiver has asked for it: so no message needs
 * memory where nobody waits for it, nor holds others up. Frames are described in docs/protocol.md.
 *
 * This code neither sends nor receives: the caller asks what to move, and reports how far it came,
 * as with coll/plan/exec.h. What comes in is not trusted. One thread at a time.
 */
#ifndef COLL_GROUP_CONTROL_H
#define COLL_GROUP_CONTROL_H

#include "coll/plan/topo.h"

#include "pawl/coll.h"

#include <stdbool.h>
#include <stddef.h>

#define CONTROL_HEADER_BYTES 24u  /* bytes of the header of a frame */
#define CONTROL_STATUS_MAX   448u /* bytes of what a rank does, sent with heartbeats, at most */
#define CONTROL_OFFERS_MAX                                                                         \
	(1u << 20) /* offers that may wait for a receive; one more is a failure */
#define CONTROL_CHUNK_BYTES                                                                        \
	(256u << 10)             /* bytes of a message in one frame: others get their turn */
#define CONTROL_NOTICE_MAX 1024u /* bytes of a note, at most */

/* A message to or from another rank. The memory is the caller's, from post until the message is
 * taken, or given up. */
struct coll_message {
	struct coll_message *next; /* private to the talk */
	uint8_t *bytes;            /* the caller's; only read if receive is false */
	uint64_t len_bytes;        /* size of the message */
	uint64_t done_bytes;       /* bytes sent or received so far */
	uint32_t peer;             /* the other rank; PAWL_ANY_RANK until it is known */
	uint32_t tag;              /* equal at both ends */
	uint32_t id;  /* number of the message, of those of its sender to its receiver */
	bool receive; /* the message is received, else sent */
};

struct control_list {
	struct coll_message *first, *last;
};

struct control_peer;
struct control_offer;

/* State of a talk. Zero it before coll_control_init. */
struct coll_control {
	uint32_t rank, ranks;       /* this rank; number of ranks and servers */
	struct control_peer *peers; /* owned; one per rank; ours is not used */
	struct control_list posted; /* receives that have no offer yet */
	struct control_offer
		*offers;          /* owned; offers that have no receive yet, in order of arrival */
	uint32_t offers_n;        /* number of entries in offers */
	uint32_t offers_cap;      /* room in offers */
	struct control_list done; /* messages that are over, for coll_control_take */
	struct pawl_err failure;  /* first failure that was heard of, or told; code 0: none */
	bool status_received;     /* a peer said what it does; the caller clears this */
	uint8_t status[CONTROL_STATUS_MAX]; /* list of this rank's operations under way */
	uint32_t status_len;                /* size of does */
	uint8_t sink[4096]; /* takes incoming bytes of messages that were given up */
};

int coll_control_init(struct coll_control *control, uint32_t rank, uint32_t ranks,
	struct pawl_err *err);
void coll_control_deinit(struct coll_control *control);

/* Begins a message; next, over_bytes and id need not be set. */
void coll_control_post(struct coll_control *control, struct coll_message *message);
/* Takes a message that is over; NULL: none is. */
struct coll_message *coll_control_take(struct coll_control *control);
/* Gives up a message that is not over, and returns it; NULL: there is none. */
struct coll_message *coll_control_give_up(struct coll_control *control);

/* Tells all peers that this rank is alive, and what it does: at most CONTROL_STATUS_MAX bytes. */
void coll_control_heartbeat(struct coll_control *control, const void *status, size_t len_bytes);
/* Tells all peers that this rank leaves, and does no collective from number on. */
void coll_control_leave(struct coll_control *control, uint64_t number);
/* Tells all peers that all is over, and why; only the first time. A failure that was heard of is
 * passed on: so a rank that ends because of it has said why, and is not taken for the culprit by a
 * rank that hears of that end first. */
void coll_control_fail(struct coll_control *control, const struct pawl_err *why);
/* Returns what a peer did at its last heartbeat, and the length; NULL: it has not said. */
const uint8_t *coll_control_status(const struct coll_control *control, uint32_t peer,
	size_t *len_bytes);
/* Returns whether a peer has left, and with which number. */
bool coll_control_left(const struct coll_control *control, uint32_t peer, uint64_t *number);
/* Returns whether something is still to be said to a peer. */
bool coll_control_pending(const struct coll_control *control, uint32_t peer);

/* Sends a note to a peer, even after a failure, and instead of an earlier one that has not been
 * sent. At most CONTROL_NOTICE_MAX bytes, at least 1. PAWL_ENOMEM. */
int coll_control_send_notice(struct coll_control *control, uint32_t peer, const void *bytes,
	size_t len_bytes, struct pawl_err *err);
/* Returns the last note of a peer, and its length; NULL: there is none. */
const uint8_t *coll_control_last_notice(const struct coll_control *control, uint32_t peer,
	size_t *len_bytes);

/* Returns how many bytes are to be sent to a peer now, and where they are; 0: none. */
size_t coll_control_to_send(struct coll_control *control, uint32_t peer, const void **bytes);
void coll_control_sent(struct coll_control *control, uint32_t peer, size_t len_bytes);
/* Returns how many bytes of a peer come next, and where they go; never 0. */
size_t coll_control_to_receive(struct coll_control *control, uint32_t peer, void **bytes);
void coll_control_received(struct coll_control *control, uint32_t peer, size_t len_bytes);

#endif
