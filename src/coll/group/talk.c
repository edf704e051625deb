/*
 * Messages between ranks beside collectives: see talk.h for the contract. Pure.
 *
 * A message that is sent goes from list to list: to_offer, offered (the peer knows of it), to_send
 * (the peer has asked for it), over. One that is received: posted, to_ask (there is an offer for
 * it), asked, over. These are lists of a peer, except posted, as a receive may be from anybody, and
 * over.
 */
#include "coll/group/talk.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum frame_kind {
	FRAME_OFFER = 1, /* a: tag, b: bytes, id */
	FRAME_ASK,       /* id */
	FRAME_DATA,      /* id, b: bytes, which follow */
	FRAME_BEAT,      /* b: bytes of what the rank does, which follow, or 0 */
	FRAME_LEAVE,     /* b: the number of the first collective that is not done */
	FRAME_FAIL,      /* a: code, negated, b: bytes of text, which follow */
	FRAME_NOTE,      /* b: bytes, which follow */
	FRAME_KINDS
};

struct frame {
	enum frame_kind kind; /* kind of the frame */
	uint32_t id;          /* number of a message, as its sender counts */
	uint32_t a;           /* see enum frame_kind */
	uint64_t b;           /* see enum frame_kind */
};

/* Notes to and from a peer. */
struct talk_notes {
	uint8_t next[TALK_NOTE_MAX], out[TALK_NOTE_MAX]; /* note to send; note being sent */
	uint8_t in[TALK_NOTE_MAX], last[TALK_NOTE_MAX];  /* note being received; last one */
	size_t next_len, in_len, last_len;               /* bytes of these notes; 0: none */
};

struct talk_peer {
	struct talk_notes *notes;                    /* owned; NULL: none yet */
	struct talk_list to_offer, offered, to_send; /* messages to the peer; see above */
	struct talk_list to_ask, asked;              /* messages from the peer; see above */
	uint32_t ids;                                /* messages offered to the peer, ever */
	bool beat, leave, fail;                      /* the peer is still to be told of these */
	uint8_t out_does[TALK_DOES_MAX];      /* list of our operations under way, being sent */
	uint8_t in_does[TALK_DOES_MAX];       /* the peer's list of operations, being received */
	uint8_t heard_does[TALK_DOES_MAX];    /* the peer's last whole list of operations */
	uint32_t in_does_len, heard_does_len; /* bytes of the lists; 0: none */
	bool left;                            /* the peer has told us that it leaves */
	uint64_t left_at;                     /* number that the peer left with */
	uint64_t leave_at;                    /* number to tell the peer when we leave */
	/* The frame that is being sent. */
	uint8_t out_head[TALK_FRAME_BYTES];
	size_t out_head_at;       /* bytes of out_head sent; TALK_FRAME_BYTES: all, or no frame */
	const uint8_t *out_bytes; /* bytes after the header */
	uint64_t out_left;        /* number of bytes left in out_bytes */
	struct coll_message *out_of; /* message that out_bytes belongs to, or NULL */
	uint8_t *rest;               /* owned; bytes of a message that was given up, or NULL */
	/* The frame that is being received. */
	uint8_t in_head[TALK_FRAME_BYTES];
	size_t in_head_at;          /* bytes of in_head received */
	uint8_t *in_bytes;          /* where the bytes after the header go */
	uint64_t in_left;           /* number of bytes still to come */
	struct coll_message *in_of; /* message that these bytes belong to, or NULL */
	struct pawl_err heard;      /* failure being received; code 0: none is */
};

/* An offer of a message that nobody receives yet. */
struct talk_offer {
	uint64_t len_bytes; /* size of the message */
	uint32_t peer;      /* rank that sends the message */
	uint32_t tag, id;   /* tag and number of the message */
};

/* ---- lists ---- */

static void push(struct talk_list *list, struct coll_message *message)
{
	message->next = NULL;
	if (list->last) {
		list->last->next = message;
	} else {
		list->first = message;
	}
	list->last = message;
}

static void drop(struct talk_list *list, struct coll_message *message)
{
	struct coll_message *before = NULL;

	for (struct coll_message *m = list->first; m != message; m = m->next) {
		ASSERT(m != NULL);
		before = m;
	}
	if (before) {
		before->next = message->next;
	} else {
		list->first = message->next;
	}
	if (list->last == message) {
		list->last = before;
	}
}

static struct coll_message *pop(struct talk_list *list)
{
	struct coll_message *message = list->first;

	if (message) {
		drop(list, message);
	}
	return message;
}

static struct coll_message *find_id(const struct talk_list *list, uint32_t id)
{
	struct coll_message *m = list->first;

	while (m && m->id != id) {
		m = m->next;
	}
	return m;
}

/* ---- frames ---- */

static void encode_frame(uint8_t *head, const struct frame *frame)
{
	uint32_t words[3] = {htole32((uint32_t)frame->kind), htole32(frame->id), htole32(frame->a)};
	uint64_t b = htole64(frame->b);

	memset(head, 0, TALK_FRAME_BYTES);
	memcpy(head, words, sizeof(words));
	memcpy(head + 16, &b, sizeof(b));
}

static struct frame decode_frame(const uint8_t *head)
{
	uint32_t words[3];
	uint64_t b;

	memcpy(words, head, sizeof(words));
	memcpy(&b, head + 16, sizeof(b));
	return (struct frame){(enum frame_kind)le32toh(words[0]), le32toh(words[1]),
		le32toh(words[2]), le64toh(b)};
}

/* ---- opening ---- */

int coll_talk_init(struct coll_talk *talk, uint32_t rank, uint32_t ranks, struct pawl_err *err)
{
	talk->rank = rank;
	talk->ranks = ranks;
	talk->peers = FAULT_MEM("coll.talk", calloc(ranks, sizeof(*talk->peers)));
	if (!talk->peers) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", ranks);
	}
	for (uint32_t p = 0; p < ranks; p++) {
		talk->peers[p].out_head_at = TALK_FRAME_BYTES;
	}
	return 0;
}

void coll_talk_deinit(struct coll_talk *talk)
{
	for (uint32_t p = 0; p < talk->ranks && talk->peers; p++) {
		free(talk->peers[p].rest);
		free(talk->peers[p].notes);
	}
	free(talk->peers);
	free(talk->offers);
	*talk = (struct coll_talk){0};
}

/* ---- failures ---- */

void coll_talk_fail(struct coll_talk *talk, const struct pawl_err *why)
{
	if (talk->failure.code != 0) {
		return;
	}
	talk->failure = *why;
	for (uint32_t p = 0; p < talk->ranks; p++) {
		talk->peers[p].fail = true;
	}
}

/* Fails, since a peer does not keep to docs/protocol.md. */
static void fail_nonsense(struct coll_talk *talk, uint32_t peer, const char *what)
{
	struct pawl_err err;

	pawl_err_set(&err, PAWL_EPEER, "rank %u is lost: it sent %s", peer, what);
	coll_talk_fail(talk, &err);
}

/* ---- messages ---- */

static bool fits_offer(const struct coll_message *message, const struct talk_offer *offer)
{
	return message->tag == offer->tag &&
		(message->peer == PAWL_ANY_RANK || message->peer == offer->peer);
}

/* Matches a receive with an offer. */
static void match(struct coll_talk *talk, struct coll_message *message,
	const struct talk_offer *offer)
{
	struct pawl_err err;

	if (message->len_bytes != offer->len_bytes) {
		pawl_err_set(&err, PAWL_EMISMATCH,
			"rank %u sends %llu bytes with tag %u, and rank %u receives %llu",
			offer->peer, (unsigned long long)offer->len_bytes, offer->tag, talk->rank,
			(unsigned long long)message->len_bytes);
		coll_talk_fail(talk, &err);
		push(&talk->posted, message); /* to be given up later */
		return;
	}
	message->peer = offer->peer;
	message->id = offer->id;
	push(&talk->peers[offer->peer].to_ask, message);
}

static void post_receive(struct coll_talk *talk, struct coll_message *message)
{
	for (uint32_t i = 0; i < talk->offers_n; i++) {
		struct talk_offer *offer = &talk->offers[i];

		if (fits_offer(message, offer)) {
			match(talk, message, offer);
			talk->offers_n--;
			memmove(offer, offer + 1, (talk->offers_n - i) * sizeof(*offer));
			return;
		}
	}
	push(&talk->posted, message);
}

void coll_talk_post(struct coll_talk *talk, struct coll_message *message)
{
	message->over_bytes = 0;
	if (message->receive) {
		post_receive(talk, message);
	} else {
		ASSERT(message->peer < talk->ranks && message->peer != talk->rank);
		message->id = talk->peers[message->peer].ids++;
		push(&talk->peers[message->peer].to_offer, message);
	}
}

struct coll_message *coll_talk_take(struct coll_talk *talk)
{
	return pop(&talk->over);
}

/* Parts a message from the frame that it is in, which goes on without it, so that others can
 * follow. */
static void let_go(struct talk_peer *peer, const struct coll_message *message)
{
	if (peer->in_of == message) {
		peer->in_of = NULL;
	}
	if (peer->out_of == message) {
		peer->out_of = NULL;
		peer->rest = FAULT_MEM("coll.talk", malloc(peer->out_left + 1));
		if (peer->rest) {
			memcpy(peer->rest, peer->out_bytes, peer->out_left);
		}
		peer->out_bytes = peer->rest; /* NULL: nothing more is said to this peer */
	}
}

#define PEER_LISTS 5

struct coll_message *coll_talk_give_up(struct coll_talk *talk)
{
	struct coll_message *message = pop(&talk->posted);

	for (uint32_t p = 0; p < talk->ranks && message == NULL; p++) {
		struct talk_peer *peer = &talk->peers[p];
		struct talk_list *lists[PEER_LISTS] = {&peer->to_offer, &peer->offered,
			&peer->to_send, &peer->to_ask, &peer->asked};

		for (int i = 0; i < PEER_LISTS && message == NULL; i++) {
			message = pop(lists[i]);
		}
		if (message) {
			let_go(peer, message);
		}
	}
	return message;
}

/* ---- sending ---- */

void coll_talk_beat(struct coll_talk *talk, const void *does, size_t len_bytes)
{
	ASSERT(len_bytes <= TALK_DOES_MAX);
	memcpy(talk->does, does, len_bytes);
	talk->does_len = (uint32_t)len_bytes;
	for (uint32_t p = 0; p < talk->ranks; p++) {
		talk->peers[p].beat = true;
	}
}

void coll_talk_leave(struct coll_talk *talk, uint64_t number)
{
	for (uint32_t p = 0; p < talk->ranks; p++) {
		talk->peers[p].leave = true;
		talk->peers[p].leave_at = number;
	}
}

static struct talk_notes *notes_of(struct talk_peer *peer)
{
	if (!peer->notes) {
		peer->notes = FAULT_MEM("coll.talk", calloc(1, sizeof(*peer->notes)));
	}
	return peer->notes;
}

int coll_talk_note(struct coll_talk *talk, uint32_t p, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	struct talk_notes *notes = notes_of(&talk->peers[p]);

	ASSERT(len_bytes > 0 && len_bytes <= TALK_NOTE_MAX);
	if (!notes) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a note to rank %u", p);
	}
	memcpy(notes->next, bytes, len_bytes);
	notes->next_len = len_bytes;
	return 0;
}

const uint8_t *coll_talk_noted(const struct coll_talk *talk, uint32_t peer, size_t *len_bytes)
{
	const struct talk_notes *notes = talk->peers[peer].notes;

	*len_bytes = notes ? notes->last_len : 0;
	return *len_bytes > 0 ? notes->last : NULL;
}

const uint8_t *coll_talk_does(const struct coll_talk *talk, uint32_t peer, size_t *len_bytes)
{
	*len_bytes = talk->peers[peer].heard_does_len;
	return *len_bytes > 0 ? talk->peers[peer].heard_does : NULL;
}

bool coll_talk_left(const struct coll_talk *talk, uint32_t peer, uint64_t *number)
{
	*number = talk->peers[peer].left_at;
	return talk->peers[peer].left;
}

bool coll_talk_pending(const struct coll_talk *talk, uint32_t peer)
{
	const struct talk_peer *p = &talk->peers[peer];

	return p->out_head_at < TALK_FRAME_BYTES || (p->out_left > 0 && p->out_bytes) || p->fail ||
		(p->notes && p->notes->next_len > 0) ||
		(talk->failure.code == 0 &&
			(p->to_offer.first || p->to_send.first || p->to_ask.first || p->beat ||
				p->leave));
}

/* Begins a frame with a part of the first message that was asked for. */
static void say_data(struct talk_peer *peer, struct frame *frame)
{
	struct coll_message *message = peer->to_send.first;
	uint64_t left = message->len_bytes - message->over_bytes;

	frame->kind = FRAME_DATA;
	frame->id = message->id;
	frame->b = left < TALK_PART ? left : TALK_PART;
	peer->out_bytes = message->bytes + message->over_bytes;
	peer->out_left = frame->b;
	peer->out_of = message;
}

static void say_fail(const struct coll_talk *talk, struct talk_peer *peer, struct frame *frame)
{
	*frame = (struct frame){FRAME_FAIL, 0, (uint32_t)-talk->failure.code,
		strlen(talk->failure.msg)};
	peer->fail = false;
	peer->out_bytes = (const uint8_t *)talk->failure.msg;
	peer->out_left = frame->b;
}

static void say_note(struct talk_peer *peer, struct frame *frame)
{
	struct talk_notes *notes = peer->notes;

	*frame = (struct frame){FRAME_NOTE, 0, 0, notes->next_len};
	memcpy(notes->out, notes->next, notes->next_len);
	peer->out_bytes = notes->out;
	peer->out_left = notes->next_len;
	notes->next_len = 0;
}

/* Begins a heartbeat, with what we do. False: none is due. */
static bool say_beat(const struct coll_talk *talk, struct talk_peer *peer, struct frame *frame)
{
	if (!peer->beat) {
		return false;
	}
	frame->kind = FRAME_BEAT;
	memcpy(peer->out_does, talk->does, talk->does_len);
	peer->out_bytes = peer->out_does;
	peer->out_left = frame->b = talk->does_len;
	peer->beat = false;
	return true;
}

/* Begins the next frame, unless something failed; what is short goes first. False: there is nothing
 * to say. */
static bool say_usual(struct coll_talk *talk, struct talk_peer *peer, struct frame *frame)
{
	struct coll_message *message;

	if (peer->to_ask.first) {
		message = pop(&peer->to_ask);
		*frame = (struct frame){FRAME_ASK, message->id, 0, 0};
		push(message->len_bytes > 0 ? &peer->asked : &talk->over, message);
	} else if (peer->to_offer.first) {
		message = pop(&peer->to_offer);
		*frame = (struct frame){FRAME_OFFER, message->id, message->tag, message->len_bytes};
		push(&peer->offered, message);
	} else if (peer->leave && !peer->beat) { /* after the last heartbeat */
		peer->leave = false;
		*frame = (struct frame){FRAME_LEAVE, 0, 0, peer->leave_at};
	} else if (peer->to_send.first && !peer->beat) {
		say_data(peer, frame);
	} else {
		return say_beat(talk, peer, frame);
	}
	return true;
}

/* Begins the next frame for a peer; after a failure only that, notes, and heartbeats. */
static bool say_next(struct coll_talk *talk, struct talk_peer *peer)
{
	struct frame frame = {0};

	if (peer->fail) {
		say_fail(talk, peer, &frame);
	} else if (peer->notes && peer->notes->next_len > 0) {
		say_note(peer, &frame);
	} else if (talk->failure.code != 0 ? !say_beat(talk, peer, &frame)
					   : !say_usual(talk, peer, &frame)) {
		return false;
	}
	encode_frame(peer->out_head, &frame);
	peer->out_head_at = 0;
	return true;
}

size_t coll_talk_to_send(struct coll_talk *talk, uint32_t p, const void **bytes)
{
	struct talk_peer *peer = &talk->peers[p];

	if (peer->out_head_at == TALK_FRAME_BYTES && peer->out_left > 0) {
		*bytes = peer->out_bytes;
		return peer->out_bytes ? peer->out_left : 0;
	}
	if (peer->out_head_at == TALK_FRAME_BYTES && !say_next(talk, peer)) {
		return 0;
	}
	*bytes = peer->out_head + peer->out_head_at;
	return TALK_FRAME_BYTES - peer->out_head_at;
}

void coll_talk_sent(struct coll_talk *talk, uint32_t p, size_t len_bytes)
{
	struct talk_peer *peer = &talk->peers[p];
	struct coll_message *message = peer->out_of;

	if (peer->out_head_at < TALK_FRAME_BYTES) {
		peer->out_head_at += len_bytes;
		ASSERT(peer->out_head_at <= TALK_FRAME_BYTES);
	} else {
		ASSERT(len_bytes <= peer->out_left);
		peer->out_bytes += len_bytes;
		peer->out_left -= len_bytes;
		if (message) {
			message->over_bytes += len_bytes;
		}
	}
	if (peer->out_head_at == TALK_FRAME_BYTES && peer->out_left == 0 && message) {
		peer->out_of = NULL;
		drop(&peer->to_send, message);
		push(message->over_bytes == message->len_bytes ? &talk->over : &peer->to_send,
			message);
	}
}

/* ---- receiving ---- */

static bool keep_offer(struct coll_talk *talk, const struct talk_offer *offer)
{
	if (talk->offers_n == talk->offers_cap) {
		uint32_t cap = talk->offers_cap > 0 ? 2 * talk->offers_cap : 16;
		struct talk_offer *more = NULL;

		if (cap <= TALK_OFFERS_MAX) {
			more = FAULT_MEM("coll.talk",
				realloc(talk->offers, cap * sizeof(*talk->offers)));
		}
		if (!more) {
			return false;
		}
		talk->offers = more;
		talk->offers_cap = cap;
	}
	talk->offers[talk->offers_n++] = *offer;
	return true;
}

static void hear_offer(struct coll_talk *talk, const struct talk_offer *offer)
{
	struct pawl_err err;

	for (struct coll_message *m = talk->posted.first; m; m = m->next) {
		if (fits_offer(m, offer)) {
			drop(&talk->posted, m);
			match(talk, m, offer);
			return;
		}
	}
	if (!keep_offer(talk, offer)) {
		pawl_err_set(&err, PAWL_ENOMEM,
			"rank %u has no room for what is sent to it, and it does not receive: %u "
			"messages",
			talk->rank, talk->offers_n);
		coll_talk_fail(talk, &err);
	}
}

static void hear_ask(struct coll_talk *talk, uint32_t p, uint32_t id)
{
	struct talk_peer *peer = &talk->peers[p];
	struct coll_message *message = find_id(&peer->offered, id);

	if (!message) {
		fail_nonsense(talk, p, "for a message that it was not offered");
		return;
	}
	drop(&peer->offered, message);
	push(message->len_bytes > 0 ? &peer->to_send : &talk->over, message);
}

/* Begins to receive a part of a message. We must have asked for it, and it must have bytes. */
static void hear_data(struct coll_talk *talk, uint32_t p, const struct frame *frame)
{
	struct talk_peer *peer = &talk->peers[p];
	struct coll_message *message = find_id(&peer->asked, frame->id);

	if (!message && talk->failure.code != 0 && frame->b <= TALK_PART) {
		peer->in_left = frame->b; /* asked for before it was given up */
		return;
	}
	if (!message || frame->b == 0 || frame->b > message->len_bytes - message->over_bytes) {
		fail_nonsense(talk, p, "what it was not asked for");
		return;
	}
	peer->in_of = message;
	peer->in_bytes = message->bytes + message->over_bytes;
	peer->in_left = frame->b;
}

static void hear_fail(struct coll_talk *talk, uint32_t p, const struct frame *frame)
{
	struct talk_peer *peer = &talk->peers[p];

	if (frame->b == 0 || frame->b >= PAWL_ERR_MSG_MAX || frame->a == 0 || frame->a > 255) {
		fail_nonsense(talk, p, "a failure that is none");
		return;
	}
	peer->heard = (struct pawl_err){.code = -(int)frame->a};
	peer->in_bytes = (uint8_t *)peer->heard.msg;
	peer->in_left = frame->b;
}

static void hear_note(struct coll_talk *talk, uint32_t p, const struct frame *frame)
{
	struct talk_peer *peer = &talk->peers[p];

	if (frame->b == 0 || frame->b > TALK_NOTE_MAX || !notes_of(peer)) {
		fail_nonsense(talk, p, "a note that is none");
		return;
	}
	peer->notes->in_len = frame->b;
	peer->in_bytes = peer->notes->in;
	peer->in_left = frame->b;
}

static void hear_beat(struct coll_talk *talk, uint32_t p, const struct frame *frame)
{
	struct talk_peer *peer = &talk->peers[p];

	if (frame->b > TALK_DOES_MAX) {
		fail_nonsense(talk, p, "a sign of life that is none");
		return;
	}
	peer->in_does_len = (uint32_t)frame->b;
	peer->in_bytes = peer->in_does;
	peer->in_left = frame->b;
}

static void hear(struct coll_talk *talk, uint32_t p)
{
	struct talk_peer *peer = &talk->peers[p];
	struct frame frame = decode_frame(peer->in_head);
	struct talk_offer offer = {frame.b, p, frame.a, frame.id};

	switch (frame.kind) {
	case FRAME_OFFER:
		hear_offer(talk, &offer);
		break;
	case FRAME_ASK:
		hear_ask(talk, p, frame.id);
		break;
	case FRAME_DATA:
		hear_data(talk, p, &frame);
		break;
	case FRAME_BEAT:
		hear_beat(talk, p, &frame);
		break;
	case FRAME_LEAVE:
		peer->left = true;
		peer->left_at = frame.b;
		break;
	case FRAME_FAIL:
		hear_fail(talk, p, &frame);
		break;
	case FRAME_NOTE:
		hear_note(talk, p, &frame);
		break;
	default:
		fail_nonsense(talk, p, "a frame of no kind: is it another version of Pawl?");
	}
}

static bool in_note(const struct talk_peer *peer)
{
	return peer->notes && peer->notes->in_len > 0;
}

/* Returns whether the bytes after a header have a place to go: those of a message that was given up
 * have none. */
static bool has_room(const struct talk_peer *peer)
{
	return peer->in_of || peer->heard.code != 0 || in_note(peer) || peer->in_does_len > 0;
}

/* Handles a frame of which all bytes are there. */
static void end_bytes(struct coll_talk *talk, struct talk_peer *peer)
{
	struct coll_message *message = peer->in_of;

	if (in_note(peer)) {
		memcpy(peer->notes->last, peer->notes->in, peer->notes->in_len);
		peer->notes->last_len = peer->notes->in_len;
		peer->notes->in_len = 0;
	} else if (peer->in_does_len > 0) {
		memcpy(peer->heard_does, peer->in_does, peer->in_does_len);
		peer->heard_does_len = peer->in_does_len;
		peer->in_does_len = 0;
		talk->heard_doing = true;
	} else if (peer->heard.code != 0) {
		for (char *c = peer->heard.msg; *c != '\0'; c++) {
			if (*c < ' ' || *c > '~') {
				*c = '?';
			}
		}
		coll_talk_fail(talk, &peer->heard);
		peer->heard.code = 0;
	} else if (message && message->over_bytes == message->len_bytes) {
		drop(&peer->asked, message);
		push(&talk->over, message);
	}
	peer->in_of = NULL;
}

size_t coll_talk_to_receive(struct coll_talk *talk, uint32_t p, void **bytes)
{
	struct talk_peer *peer = &talk->peers[p];

	if (peer->in_left > 0 && !has_room(peer)) {
		*bytes = talk->sink;
		return peer->in_left < sizeof(talk->sink) ? peer->in_left : sizeof(talk->sink);
	}
	if (peer->in_left > 0) {
		*bytes = peer->in_bytes;
		return peer->in_left;
	}
	*bytes = peer->in_head + peer->in_head_at;
	return TALK_FRAME_BYTES - peer->in_head_at;
}

void coll_talk_received(struct coll_talk *talk, uint32_t p, size_t len_bytes)
{
	struct talk_peer *peer = &talk->peers[p];

	if (peer->in_left == 0) {
		peer->in_head_at += len_bytes;
		ASSERT(peer->in_head_at <= TALK_FRAME_BYTES);
		if (peer->in_head_at == TALK_FRAME_BYTES) {
			peer->in_head_at = 0;
			hear(talk, p);
		}
		return;
	}
	ASSERT(len_bytes <= peer->in_left);
	peer->in_left -= len_bytes;
	if (has_room(peer)) {
		peer->in_bytes += len_bytes;
	}
	if (peer->in_of) {
		peer->in_of->over_bytes += len_bytes;
	}
	if (peer->in_left == 0) {
		end_bytes(talk, peer);
	}
}
