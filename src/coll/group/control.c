/*
 * The control channel: see control.h for the contract. Pure.
 *
 * A message that is sent goes from list to list: to_offer, offered (the peer knows of it), to_send
 * (the peer has asked for it), done. A message that is received: posted, to_ask (there is an offer
 * for it), asked, done. These are lists of a peer, except done, and posted, since a receive may be
 * from any rank.
 */
#include "coll/group/control.h"

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
	FRAME_HEARTBEAT, /* b: bytes of the status, which follow, or 0 */
	FRAME_LEAVE,     /* b: the number of the first collective that is not done */
	FRAME_FAIL,      /* a: code, negated, b: bytes of text, which follow */
	FRAME_NOTICE,    /* b: bytes, which follow */
	FRAME_KINDS
};

struct frame {
	enum frame_kind kind; /* kind of the frame */
	uint32_t id;          /* number of a message, as its sender counts */
	uint32_t a;           /* see enum frame_kind */
	uint64_t b;           /* see enum frame_kind */
};

/* Notices to and from a peer. */
struct control_notices {
	uint8_t next[CONTROL_NOTICE_MAX],
		out[CONTROL_NOTICE_MAX]; /* notice to send; notice being sent */
	uint8_t in[CONTROL_NOTICE_MAX],
		last[CONTROL_NOTICE_MAX];  /* notice being received; last one received */
	size_t next_len, in_len, last_len; /* bytes of next, in and last; 0: none */
};

struct control_peer {
	struct control_notices *notices; /* owned; NULL: none yet */
	/* Messages to the peer, then those from it: the top of this file explains the lists. */
	struct control_list to_offer, offered, to_send;
	struct control_list to_ask, asked;
	uint32_t ids;                            /* number of messages offered to the peer, ever */
	bool heartbeat_due, leave_due, fail_due; /* to be sent to the peer */
	uint8_t out_status[CONTROL_STATUS_MAX];  /* our status, being sent */
	uint8_t in_status[CONTROL_STATUS_MAX];   /* the peer's status, being received */
	uint8_t last_status[CONTROL_STATUS_MAX]; /* the peer's last complete status */
	uint32_t in_status_len, last_status_len; /* bytes of in_status and last_status; 0: none */
	bool left;                               /* the peer has left */
	uint64_t left_at;                        /* number with which the peer left */
	uint64_t leave_at;                       /* number to send when we leave */
	/* The frame that is being sent. */
	uint8_t out_header[CONTROL_HEADER_BYTES];
	size_t out_header_at; /* bytes of out_header sent; CONTROL_HEADER_BYTES: all, or no frame */
	const uint8_t *out_bytes;         /* bytes after the header */
	uint64_t out_left;                /* number of bytes of out_bytes not sent yet */
	struct coll_message *out_message; /* message that out_bytes belongs to, or NULL */
	uint8_t *remainder; /* owned; unsent bytes of a message that was given up, or NULL */
	/* The frame that is being received. */
	uint8_t in_header[CONTROL_HEADER_BYTES];
	size_t in_header_at;             /* bytes of in_header received */
	uint8_t *in_bytes;               /* where the bytes after the header go */
	uint64_t in_left;                /* number of bytes still to come */
	struct coll_message *in_message; /* message that these bytes belong to, or NULL */
	struct pawl_err in_failure;      /* failure being received; code 0: none */
};

/* An offer of a message for which no receive is posted yet. */
struct control_offer {
	uint64_t len_bytes; /* size of the message */
	uint32_t peer;      /* rank that sends the message */
	uint32_t tag, id;   /* tag and number of the message */
};

/* ---- lists ---- */

static void push(struct control_list *list, struct coll_message *message)
{
	message->next = NULL;
	if (list->last) {
		list->last->next = message;
	} else {
		list->first = message;
	}
	list->last = message;
}

static void remove_message(struct control_list *list, struct coll_message *message)
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

static struct coll_message *pop(struct control_list *list)
{
	struct coll_message *message = list->first;

	if (message) {
		remove_message(list, message);
	}
	return message;
}

static struct coll_message *find_id(const struct control_list *list, uint32_t id)
{
	struct coll_message *m = list->first;

	while (m && m->id != id) {
		m = m->next;
	}
	return m;
}

/* ---- frames ---- */

static void encode_frame(uint8_t *header, const struct frame *frame)
{
	uint32_t words[3] = {htole32((uint32_t)frame->kind), htole32(frame->id), htole32(frame->a)};
	uint64_t b = htole64(frame->b);

	memset(header, 0, CONTROL_HEADER_BYTES);
	memcpy(header, words, sizeof(words));
	memcpy(header + 16, &b, sizeof(b));
}

static struct frame decode_frame(const uint8_t *header)
{
	uint32_t words[3];
	uint64_t b;

	memcpy(words, header, sizeof(words));
	memcpy(&b, header + 16, sizeof(b));
	return (struct frame){(enum frame_kind)le32toh(words[0]), le32toh(words[1]),
		le32toh(words[2]), le64toh(b)};
}

/* ---- opening ---- */

int coll_control_init(struct coll_control *control, uint32_t rank, uint32_t ranks,
	struct pawl_err *err)
{
	control->rank = rank;
	control->ranks = ranks;
	control->peers = FAULT_MEM("coll.control", calloc(ranks, sizeof(*control->peers)));
	if (!control->peers) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", ranks);
	}
	for (uint32_t p = 0; p < ranks; p++) {
		control->peers[p].out_header_at = CONTROL_HEADER_BYTES;
	}
	return 0;
}

void coll_control_deinit(struct coll_control *control)
{
	for (uint32_t p = 0; p < control->ranks && control->peers; p++) {
		free(control->peers[p].remainder);
		free(control->peers[p].notices);
	}
	free(control->peers);
	free(control->offers);
	*control = (struct coll_control){0};
}

/* ---- failures ---- */

void coll_control_fail(struct coll_control *control, const struct pawl_err *why)
{
	if (control->failure.code != 0) {
		return;
	}
	control->failure = *why;
	for (uint32_t p = 0; p < control->ranks; p++) {
		control->peers[p].fail_due = true;
	}
}

/* Fails because a peer does not follow docs/protocol.md. what: what it sent. */
static void fail_protocol(struct coll_control *control, uint32_t peer, const char *what)
{
	struct pawl_err err;

	pawl_err_set(&err, PAWL_EPEER, "rank %u is lost: it sent %s", peer, what);
	coll_control_fail(control, &err);
}

/* ---- messages ---- */

static bool fits_offer(const struct coll_message *message, const struct control_offer *offer)
{
	return message->tag == offer->tag &&
		(message->peer == PAWL_ANY_RANK || message->peer == offer->peer);
}

/* Matches a receive with an offer. Fails if the lengths differ. */
static void match(struct coll_control *control, struct coll_message *message,
	const struct control_offer *offer)
{
	struct pawl_err err;

	if (message->len_bytes != offer->len_bytes) {
		pawl_err_set(&err, PAWL_EMISMATCH,
			"rank %u sends %llu bytes with tag %u, and rank %u receives %llu",
			offer->peer, (unsigned long long)offer->len_bytes, offer->tag,
			control->rank, (unsigned long long)message->len_bytes);
		coll_control_fail(control, &err);
		push(&control->posted, message); /* to be given up later */
		return;
	}
	message->peer = offer->peer;
	message->id = offer->id;
	push(&control->peers[offer->peer].to_ask, message);
}

static void post_receive(struct coll_control *control, struct coll_message *message)
{
	for (uint32_t i = 0; i < control->offers_n; i++) {
		struct control_offer *offer = &control->offers[i];

		if (fits_offer(message, offer)) {
			match(control, message, offer);
			control->offers_n--;
			memmove(offer, offer + 1, (control->offers_n - i) * sizeof(*offer));
			return;
		}
	}
	push(&control->posted, message);
}

void coll_control_post(struct coll_control *control, struct coll_message *message)
{
	message->done_bytes = 0;
	if (message->receive) {
		post_receive(control, message);
	} else {
		ASSERT(message->peer < control->ranks && message->peer != control->rank);
		message->id = control->peers[message->peer].ids++;
		push(&control->peers[message->peer].to_offer, message);
	}
}

struct coll_message *coll_control_take(struct coll_control *control)
{
	return pop(&control->done);
}

/* Detaches a message from the frame that carries it. The frame goes on with a copy of its bytes, so
 * that others can follow. */
static void detach_message(struct control_peer *peer, const struct coll_message *message)
{
	if (peer->in_message == message) {
		peer->in_message = NULL;
	}
	if (peer->out_message == message) {
		peer->out_message = NULL;
		peer->remainder = FAULT_MEM("coll.control", malloc(peer->out_left + 1));
		if (peer->remainder) {
			memcpy(peer->remainder, peer->out_bytes, peer->out_left);
		}
		peer->out_bytes = peer->remainder; /* NULL: nothing more is sent to this peer */
	}
}

#define PEER_LISTS 5

struct coll_message *coll_control_give_up(struct coll_control *control)
{
	struct coll_message *message = pop(&control->posted);

	for (uint32_t p = 0; p < control->ranks && message == NULL; p++) {
		struct control_peer *peer = &control->peers[p];
		struct control_list *lists[PEER_LISTS] = {&peer->to_offer, &peer->offered,
			&peer->to_send, &peer->to_ask, &peer->asked};

		for (int i = 0; i < PEER_LISTS && message == NULL; i++) {
			message = pop(lists[i]);
		}
		if (message) {
			detach_message(peer, message);
		}
	}
	return message;
}

/* ---- sending ---- */

void coll_control_heartbeat(struct coll_control *control, const void *status, size_t len_bytes)
{
	ASSERT(len_bytes <= CONTROL_STATUS_MAX);
	memcpy(control->status, status, len_bytes);
	control->status_len = (uint32_t)len_bytes;
	for (uint32_t p = 0; p < control->ranks; p++) {
		control->peers[p].heartbeat_due = true;
	}
}

void coll_control_leave(struct coll_control *control, uint64_t number)
{
	for (uint32_t p = 0; p < control->ranks; p++) {
		control->peers[p].leave_due = true;
		control->peers[p].leave_at = number;
	}
}

static struct control_notices *notices_of(struct control_peer *peer)
{
	if (!peer->notices) {
		peer->notices = FAULT_MEM("coll.control", calloc(1, sizeof(*peer->notices)));
	}
	return peer->notices;
}

int coll_control_send_notice(struct coll_control *control, uint32_t p, const void *bytes,
	size_t len_bytes, struct pawl_err *err)
{
	struct control_notices *notices = notices_of(&control->peers[p]);

	ASSERT(len_bytes > 0 && len_bytes <= CONTROL_NOTICE_MAX);
	if (!notices) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a notice to rank %u", p);
	}
	memcpy(notices->next, bytes, len_bytes);
	notices->next_len = len_bytes;
	return 0;
}

const uint8_t *coll_control_last_notice(const struct coll_control *control, uint32_t peer,
	size_t *len_bytes)
{
	const struct control_notices *notices = control->peers[peer].notices;

	*len_bytes = notices ? notices->last_len : 0;
	return *len_bytes > 0 ? notices->last : NULL;
}

const uint8_t *coll_control_status(const struct coll_control *control, uint32_t peer,
	size_t *len_bytes)
{
	*len_bytes = control->peers[peer].last_status_len;
	return *len_bytes > 0 ? control->peers[peer].last_status : NULL;
}

bool coll_control_left(const struct coll_control *control, uint32_t peer, uint64_t *number)
{
	*number = control->peers[peer].left_at;
	return control->peers[peer].left;
}

bool coll_control_pending(const struct coll_control *control, uint32_t peer)
{
	const struct control_peer *p = &control->peers[peer];

	return p->out_header_at < CONTROL_HEADER_BYTES || (p->out_left > 0 && p->out_bytes) ||
		p->fail_due || (p->notices && p->notices->next_len > 0) ||
		(control->failure.code == 0 &&
			(p->to_offer.first || p->to_send.first || p->to_ask.first ||
				p->heartbeat_due || p->leave_due));
}

/* Begins a frame with a chunk of the first message that was asked for. */
static void begin_data(struct control_peer *peer, struct frame *frame)
{
	struct coll_message *message = peer->to_send.first;
	uint64_t left = message->len_bytes - message->done_bytes;

	frame->kind = FRAME_DATA;
	frame->id = message->id;
	frame->b = left < CONTROL_CHUNK_BYTES ? left : CONTROL_CHUNK_BYTES;
	peer->out_bytes = message->bytes + message->done_bytes;
	peer->out_left = frame->b;
	peer->out_message = message;
}

static void begin_fail(const struct coll_control *control, struct control_peer *peer,
	struct frame *frame)
{
	*frame = (struct frame){FRAME_FAIL, 0, (uint32_t)-control->failure.code,
		strlen(control->failure.msg)};
	peer->fail_due = false;
	peer->out_bytes = (const uint8_t *)control->failure.msg;
	peer->out_left = frame->b;
}

static void begin_notice(struct control_peer *peer, struct frame *frame)
{
	struct control_notices *notices = peer->notices;

	*frame = (struct frame){FRAME_NOTICE, 0, 0, notices->next_len};
	memcpy(notices->out, notices->next, notices->next_len);
	peer->out_bytes = notices->out;
	peer->out_left = notices->next_len;
	notices->next_len = 0;
}

/* Begins a heartbeat, with our status. False: none is due. */
static bool begin_heartbeat(const struct coll_control *control, struct control_peer *peer,
	struct frame *frame)
{
	if (!peer->heartbeat_due) {
		return false;
	}
	frame->kind = FRAME_HEARTBEAT;
	memcpy(peer->out_status, control->status, control->status_len);
	peer->out_bytes = peer->out_status;
	peer->out_left = frame->b = control->status_len;
	peer->heartbeat_due = false;
	return true;
}

/* Begins the next frame while nothing has failed; short frames go first. False: there is nothing to
 * send. */
static bool begin_regular(struct coll_control *control, struct control_peer *peer,
	struct frame *frame)
{
	struct coll_message *message;

	if (peer->to_ask.first) {
		message = pop(&peer->to_ask);
		*frame = (struct frame){FRAME_ASK, message->id, 0, 0};
		push(message->len_bytes > 0 ? &peer->asked : &control->done, message);
	} else if (peer->to_offer.first) {
		message = pop(&peer->to_offer);
		*frame = (struct frame){FRAME_OFFER, message->id, message->tag, message->len_bytes};
		push(&peer->offered, message);
	} else if (peer->leave_due && !peer->heartbeat_due) { /* after the last heartbeat */
		peer->leave_due = false;
		*frame = (struct frame){FRAME_LEAVE, 0, 0, peer->leave_at};
	} else if (peer->to_send.first && !peer->heartbeat_due) {
		begin_data(peer, frame);
	} else {
		return begin_heartbeat(control, peer, frame);
	}
	return true;
}

/* Begins the next frame for a peer; after a failure only that failure, notices and heartbeats.
 * False: there is nothing to send. */
static bool begin_next(struct coll_control *control, struct control_peer *peer)
{
	struct frame frame = {0};

	if (peer->fail_due) {
		begin_fail(control, peer, &frame);
	} else if (peer->notices && peer->notices->next_len > 0) {
		begin_notice(peer, &frame);
	} else if (control->failure.code != 0 ? !begin_heartbeat(control, peer, &frame)
					      : !begin_regular(control, peer, &frame)) {
		return false;
	}
	encode_frame(peer->out_header, &frame);
	peer->out_header_at = 0;
	return true;
}

size_t coll_control_to_send(struct coll_control *control, uint32_t p, const void **bytes)
{
	struct control_peer *peer = &control->peers[p];

	if (peer->out_header_at == CONTROL_HEADER_BYTES && peer->out_left > 0) {
		*bytes = peer->out_bytes;
		return peer->out_bytes ? peer->out_left : 0;
	}
	if (peer->out_header_at == CONTROL_HEADER_BYTES && !begin_next(control, peer)) {
		return 0;
	}
	*bytes = peer->out_header + peer->out_header_at;
	return CONTROL_HEADER_BYTES - peer->out_header_at;
}

void coll_control_sent(struct coll_control *control, uint32_t p, size_t len_bytes)
{
	struct control_peer *peer = &control->peers[p];
	struct coll_message *message = peer->out_message;

	if (peer->out_header_at < CONTROL_HEADER_BYTES) {
		peer->out_header_at += len_bytes;
		ASSERT(peer->out_header_at <= CONTROL_HEADER_BYTES);
	} else {
		ASSERT(len_bytes <= peer->out_left);
		peer->out_bytes += len_bytes;
		peer->out_left -= len_bytes;
		if (message) {
			message->done_bytes += len_bytes;
		}
	}
	if (peer->out_header_at == CONTROL_HEADER_BYTES && peer->out_left == 0 && message) {
		peer->out_message = NULL;
		remove_message(&peer->to_send, message);
		push(message->done_bytes == message->len_bytes ? &control->done : &peer->to_send,
			message);
	}
}

/* ---- receiving ---- */

static bool keep_offer(struct coll_control *control, const struct control_offer *offer)
{
	if (control->offers_n == control->offers_cap) {
		uint32_t cap = control->offers_cap > 0 ? 2 * control->offers_cap : 16;
		struct control_offer *more = NULL;

		if (cap <= CONTROL_OFFERS_MAX) {
			more = FAULT_MEM("coll.control",
				realloc(control->offers, cap * sizeof(*control->offers)));
		}
		if (!more) {
			return false;
		}
		control->offers = more;
		control->offers_cap = cap;
	}
	control->offers[control->offers_n++] = *offer;
	return true;
}

static void on_offer(struct coll_control *control, const struct control_offer *offer)
{
	struct pawl_err err;

	for (struct coll_message *m = control->posted.first; m; m = m->next) {
		if (fits_offer(m, offer)) {
			remove_message(&control->posted, m);
			match(control, m, offer);
			return;
		}
	}
	if (!keep_offer(control, offer)) {
		pawl_err_set(&err, PAWL_ENOMEM,
			"rank %u has no room for another message: %u were sent to it and not "
			"received",
			control->rank, control->offers_n);
		coll_control_fail(control, &err);
	}
}

static void on_ask(struct coll_control *control, uint32_t p, uint32_t id)
{
	struct control_peer *peer = &control->peers[p];
	struct coll_message *message = find_id(&peer->offered, id);

	if (!message) {
		fail_protocol(control, p, "a request for a message that it was not offered");
		return;
	}
	remove_message(&peer->offered, message);
	push(message->len_bytes > 0 ? &peer->to_send : &control->done, message);
}

/* Begins to receive a chunk of a message. We must have asked for it, and it must have bytes. */
static void on_data(struct coll_control *control, uint32_t p, const struct frame *frame)
{
	struct control_peer *peer = &control->peers[p];
	struct coll_message *message = find_id(&peer->asked, frame->id);

	if (!message && control->failure.code != 0 && frame->b <= CONTROL_CHUNK_BYTES) {
		peer->in_left = frame->b; /* we asked for it before we gave it up */
		return;
	}
	if (!message || frame->b == 0 || frame->b > message->len_bytes - message->done_bytes) {
		fail_protocol(control, p, "bytes that it was not asked for");
		return;
	}
	peer->in_message = message;
	peer->in_bytes = message->bytes + message->done_bytes;
	peer->in_left = frame->b;
}

static void on_fail(struct coll_control *control, uint32_t p, const struct frame *frame)
{
	struct control_peer *peer = &control->peers[p];

	if (frame->b == 0 || frame->b >= PAWL_ERR_MSG_MAX || frame->a == 0 || frame->a > 255) {
		fail_protocol(control, p, "a malformed failure");
		return;
	}
	peer->in_failure = (struct pawl_err){.code = -(int)frame->a};
	peer->in_bytes = (uint8_t *)peer->in_failure.msg;
	peer->in_left = frame->b;
}

static void on_notice(struct coll_control *control, uint32_t p, const struct frame *frame)
{
	struct control_peer *peer = &control->peers[p];

	if (frame->b == 0 || frame->b > CONTROL_NOTICE_MAX || !notices_of(peer)) {
		fail_protocol(control, p, "a malformed notice");
		return;
	}
	peer->notices->in_len = frame->b;
	peer->in_bytes = peer->notices->in;
	peer->in_left = frame->b;
}

static void on_heartbeat(struct coll_control *control, uint32_t p, const struct frame *frame)
{
	struct control_peer *peer = &control->peers[p];

	if (frame->b > CONTROL_STATUS_MAX) {
		fail_protocol(control, p, "a malformed heartbeat");
		return;
	}
	peer->in_status_len = (uint32_t)frame->b;
	peer->in_bytes = peer->in_status;
	peer->in_left = frame->b;
}

static void dispatch_frame(struct coll_control *control, uint32_t p)
{
	struct control_peer *peer = &control->peers[p];
	struct frame frame = decode_frame(peer->in_header);
	struct control_offer offer = {frame.b, p, frame.a, frame.id};

	switch (frame.kind) {
	case FRAME_OFFER:
		on_offer(control, &offer);
		break;
	case FRAME_ASK:
		on_ask(control, p, frame.id);
		break;
	case FRAME_DATA:
		on_data(control, p, &frame);
		break;
	case FRAME_HEARTBEAT:
		on_heartbeat(control, p, &frame);
		break;
	case FRAME_LEAVE:
		peer->left = true;
		peer->left_at = frame.b;
		break;
	case FRAME_FAIL:
		on_fail(control, p, &frame);
		break;
	case FRAME_NOTICE:
		on_notice(control, p, &frame);
		break;
	default:
		fail_protocol(control, p,
			"a frame of an unknown kind: is it another version of Pawl?");
	}
}

static bool in_notice(const struct control_peer *peer)
{
	return peer->notices && peer->notices->in_len > 0;
}

/* Returns whether the bytes after a header have a place to go; those of a message that was given up
 * go to the sink. */
static bool has_room(const struct control_peer *peer)
{
	return peer->in_message || peer->in_failure.code != 0 || in_notice(peer) ||
		peer->in_status_len > 0;
}

/* Handles a frame whose bytes have all come. */
static void finish_frame(struct coll_control *control, struct control_peer *peer)
{
	struct coll_message *message = peer->in_message;

	if (in_notice(peer)) {
		memcpy(peer->notices->last, peer->notices->in, peer->notices->in_len);
		peer->notices->last_len = peer->notices->in_len;
		peer->notices->in_len = 0;
	} else if (peer->in_status_len > 0) {
		memcpy(peer->last_status, peer->in_status, peer->in_status_len);
		peer->last_status_len = peer->in_status_len;
		peer->in_status_len = 0;
		control->status_received = true;
	} else if (peer->in_failure.code != 0) {
		for (char *c = peer->in_failure.msg; *c != '\0'; c++) {
			if (*c < ' ' || *c > '~') {
				*c = '?';
			}
		}
		coll_control_fail(control, &peer->in_failure);
		peer->in_failure.code = 0;
	} else if (message && message->done_bytes == message->len_bytes) {
		remove_message(&peer->asked, message);
		push(&control->done, message);
	}
	peer->in_message = NULL;
}

size_t coll_control_to_receive(struct coll_control *control, uint32_t p, void **bytes)
{
	struct control_peer *peer = &control->peers[p];

	if (peer->in_left > 0 && !has_room(peer)) {
		*bytes = control->sink;
		return peer->in_left < sizeof(control->sink) ? peer->in_left
							     : sizeof(control->sink);
	}
	if (peer->in_left > 0) {
		*bytes = peer->in_bytes;
		return peer->in_left;
	}
	*bytes = peer->in_header + peer->in_header_at;
	return CONTROL_HEADER_BYTES - peer->in_header_at;
}

void coll_control_received(struct coll_control *control, uint32_t p, size_t len_bytes)
{
	struct control_peer *peer = &control->peers[p];

	if (peer->in_left == 0) {
		peer->in_header_at += len_bytes;
		ASSERT(peer->in_header_at <= CONTROL_HEADER_BYTES);
		if (peer->in_header_at == CONTROL_HEADER_BYTES) {
			peer->in_header_at = 0;
			dispatch_frame(control, p);
		}
		return;
	}
	ASSERT(len_bytes <= peer->in_left);
	peer->in_left -= len_bytes;
	if (has_room(peer)) {
		peer->in_bytes += len_bytes;
	}
	if (peer->in_message) {
		peer->in_message->done_bytes += len_bytes;
	}
	if (peer->in_left == 0) {
		finish_frame(control, peer);
	}
}
