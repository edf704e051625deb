/*
 * What ranks say to each other beside collectives, on a stream of its own between each two:
 * messages with a tag, that one is alive, that it leaves, that it gave up and why. Pure.
 *
 * A message is offered first, and sent when the other one has asked for it: so none ever needs
 * memory where nobody waits for it, nor holds others up. Frames are described in docs/protocol.md.
 *
 * It neither sends nor receives: whoever does asks what, and tells how far it came, as with
 * coll/exec.h. What comes in is not trusted. One thread at a time.
 */
#ifndef COLL_TALK_H
#define COLL_TALK_H

#include "coll/topo.h"

#include "pawl/coll.h"

#include <stdbool.h>
#include <stddef.h>

#define TALK_FRAME_BYTES 24u          /* of what begins each frame */
#define TALK_DOES_MAX    448u         /* bytes of what a rank does, told with signs of life */
#define TALK_OFFERS_MAX  (1u << 20)   /* waiting for a receive; more is taken for nonsense */
#define TALK_PART        (256u << 10) /* bytes of a message in one frame: others get their turn */
#define TALK_NOTE_MAX    1024u        /* bytes of a note */

/* A message to or from another rank. Caller's memory from post until it is taken, or given up. */
struct coll_message {
	struct coll_message *next; /* the talk's */
	uint8_t *bytes;            /* the caller's; only read of one that is sent */
	uint64_t len_bytes;        /* of them */
	uint64_t over_bytes;       /* sent or received */
	uint32_t peer;             /* the other one; PAWL_ANY_RANK, until it is known */
	uint32_t tag;              /* the same at both ends */
	uint32_t id;               /* of the sender's messages to this peer */
	bool receive;              /* else it is sent */
};

struct talk_list {
	struct coll_message *first, *last;
};

struct talk_peer;
struct talk_offer;

/* Zeroed before coll_talk_init. */
struct coll_talk {
	uint32_t rank, ranks;        /* ours; all */
	struct talk_peer *peers;     /* owned; ours is not used */
	struct talk_list posted;     /* to be received, and not offered yet */
	struct talk_offer *offers;   /* owned; not to be received yet; in order of arrival */
	uint32_t offers_n;           /* of them */
	uint32_t offers_cap;         /* allocated */
	struct talk_list over;       /* for coll_talk_take */
	struct pawl_err failure;     /* the first that was heard of, or told; code 0: none */
	bool heard_doing;            /* what somebody does; the caller takes it back */
	uint8_t does[TALK_DOES_MAX]; /* what this one does */
	uint32_t does_len;           /* bytes of it */
	uint8_t sink[4096];          /* for what comes and was given up */
};

int coll_talk_init(struct coll_talk *talk, uint32_t rank, uint32_t ranks, struct pawl_err *err);
void coll_talk_deinit(struct coll_talk *talk);

/* Begins one; next, over_bytes and id need not be set. */
void coll_talk_post(struct coll_talk *talk, struct coll_message *message);
/* One that is over; NULL: none is. */
struct coll_message *coll_talk_take(struct coll_talk *talk);
/* One that is not over, which is given up; NULL: there is none. */
struct coll_message *coll_talk_give_up(struct coll_talk *talk);

/* All peers are told that this one is alive, and what it does: at most TALK_DOES_MAX bytes. */
void coll_talk_beat(struct coll_talk *talk, const void *does, size_t len_bytes);
/* … that it leaves, and does no collective from number on. */
void coll_talk_leave(struct coll_talk *talk, uint64_t number);
/* … that all is over, and why; only the first time. What is heard of a peer is passed on: so
 * whoever ends because of it has said why, and is not taken for the culprit by who hears of that
 * first. */
void coll_talk_fail(struct coll_talk *talk, const struct pawl_err *why);
/* What a peer did when it last gave a sign of life, and how long that is; NULL: it has not said. */
const uint8_t *coll_talk_does(const struct coll_talk *talk, uint32_t peer, size_t *len_bytes);
/* Whether a peer has left, and with which number. */
bool coll_talk_left(const struct coll_talk *talk, uint32_t peer, uint64_t *number);
/* Whether something is still to be said to a peer. */
bool coll_talk_pending(const struct coll_talk *talk, uint32_t peer);

/* A peer is told this, even after a failure, and instead of what it was to be told and has not
 * been. At most TALK_NOTE_MAX bytes, at least 1. PAWL_ENOMEM. */
int coll_talk_note(struct coll_talk *talk, uint32_t peer, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
/* What a peer told last, and how long it is; NULL: nothing yet. */
const uint8_t *coll_talk_noted(const struct coll_talk *talk, uint32_t peer, size_t *len_bytes);

/* What is to be sent to a peer now; 0: nothing. */
size_t coll_talk_to_send(struct coll_talk *talk, uint32_t peer, const void **bytes);
void coll_talk_sent(struct coll_talk *talk, uint32_t peer, size_t len_bytes);
/* Where the next bytes of a peer go, and how many; never 0. */
size_t coll_talk_to_receive(struct coll_talk *talk, uint32_t peer, void **bytes);
void coll_talk_received(struct coll_talk *talk, uint32_t peer, size_t len_bytes);

#endif
