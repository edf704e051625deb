/*
 * The control channel: all that ranks exchange besides collectives, on a stream of its own between
 * each two ranks. It carries messages with a tag, heartbeats, notices, that a rank leaves, and that
 * a rank failed and why. Pure.
 *
 * The sender offers a message first, and sends it when the receiver asks for it. So no message
 * needs memory before its receive is posted, and none blocks others. docs/protocol.md describes the
 * frames.
 *
 * This code neither sends nor receives: the caller asks what to move, and reports how much it
 * moved, as with coll/plan/exec.h. group_control.c is that caller. What comes in is not trusted.
 * One thread at a time.
 */
#ifndef COLL_GROUP_CONTROL_H
#define COLL_GROUP_CONTROL_H

#include "coll/plan/topo.h"

#include "pawl/coll.h"

#include <stdbool.h>
#include <stddef.h>

#define CONTROL_HEADER_BYTES 24u  /* bytes of the header of a frame */
#define CONTROL_STATUS_MAX   448u /* most bytes of a status, sent with heartbeats */
/* Most offers that may wait for a receive; one more is a failure. */
#define CONTROL_OFFERS_MAX (1u << 20)
/* Most bytes of a message in one frame, so that others get their turn. */
#define CONTROL_CHUNK_BYTES (256u << 10)
#define CONTROL_NOTICE_MAX  1024u /* most bytes of a notice */

/* A message to or from another rank. The memory is the caller's. It must stay until
 * coll_control_take or coll_control_give_up returns the message. */
struct coll_message {
	struct coll_message *next; /* private to the control channel */
	uint8_t *bytes;            /* the caller's; only read if receive is false */
	uint64_t len_bytes;        /* size of the message */
	uint64_t done_bytes;       /* bytes sent or received so far */
	uint32_t peer;             /* the other rank; PAWL_ANY_RANK until it is known */
	uint32_t tag;              /* equal at both ends */
	uint32_t id;  /* number of the message among those of its sender to its receiver */
	bool receive; /* the message is received, else sent */
};

struct control_list {
	struct coll_message *first, *last;
};

struct control_peer;
struct control_offer;

/* State of the control channel of a rank. Zero it before coll_control_init. */
struct coll_control {
	uint32_t rank, ranks;       /* this rank; number of ranks and servers */
	struct control_peer *peers; /* owned; one per rank; ours is not used */
	struct control_list posted; /* receives that have no offer yet */
	/* Owned; offers that have no receive yet, in order of arrival. */
	struct control_offer *offers;
	uint32_t offers_n;                  /* number of entries in offers */
	uint32_t offers_cap;                /* room in offers */
	struct control_list done;           /* messages that are done, for coll_control_take */
	struct pawl_err failure;            /* first failure, received or our own; code 0: none */
	bool status_received;               /* a peer's status has come; the caller clears this */
	uint8_t status[CONTROL_STATUS_MAX]; /* our status, sent with heartbeats */
	uint32_t status_len;                /* bytes of status */
	uint8_t sink[4096];                 /* receives the bytes of messages that were given up */
};

int coll_control_init(struct coll_control *control, uint32_t rank, uint32_t ranks,
	struct pawl_err *err);
void coll_control_deinit(struct coll_control *control);

/* Begins a message; next, done_bytes and id need not be set. */
void coll_control_post(struct coll_control *control, struct coll_message *message);
/* Returns a message that is done, and forgets it; NULL: none is. */
struct coll_message *coll_control_take(struct coll_control *control);
/* Gives up a message that is not done, and returns it; NULL: there is none. */
struct coll_message *coll_control_give_up(struct coll_control *control);

/* Queues a heartbeat to all peers, with the status of this rank: CONTROL_STATUS_MAX bytes at
 * most. */
void coll_control_heartbeat(struct coll_control *control, const void *status, size_t len_bytes);
/* Notifies all peers that this rank leaves, and takes part in no collective from number on. */
void coll_control_leave(struct coll_control *control, uint64_t number);
/* Notifies all peers that the group has failed, and why; only the first call counts. A rank passes
 * on a failure that it receives, so that it has reported the cause before it ends. Otherwise a rank
 * that sees that end first would take it for the culprit. */
void coll_control_fail(struct coll_control *control, const struct pawl_err *why);
/* Returns a peer's status at its last heartbeat, and the length; NULL: none has come. */
const uint8_t *coll_control_status(const struct coll_control *control, uint32_t peer,
	size_t *len_bytes);
/* Returns whether a peer has left, and with which number. */
bool coll_control_left(const struct coll_control *control, uint32_t peer, uint64_t *number);
/* Returns whether something is still to be sent to a peer. */
bool coll_control_pending(const struct coll_control *control, uint32_t peer);

/* Queues a notice to a peer, even after a failure. It replaces an earlier one that has not been
 * sent. 1 .. CONTROL_NOTICE_MAX bytes. PAWL_ENOMEM. */
int coll_control_send_notice(struct coll_control *control, uint32_t peer, const void *bytes,
	size_t len_bytes, struct pawl_err *err);
/* Returns the last notice of a peer, and its length; NULL: there is none. */
const uint8_t *coll_control_last_notice(const struct coll_control *control, uint32_t peer,
	size_t *len_bytes);

/* Returns how many bytes are to be sent to a peer now, and where they are; 0: none. */
size_t coll_control_to_send(struct coll_control *control, uint32_t peer, const void **bytes);
void coll_control_sent(struct coll_control *control, uint32_t peer, size_t len_bytes);
/* Returns how many bytes of a peer come next, and where to put them; never 0. */
size_t coll_control_to_receive(struct coll_control *control, uint32_t peer, void **bytes);
void coll_control_received(struct coll_control *control, uint32_t peer, size_t len_bytes);

#endif
