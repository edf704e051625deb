/*
 * Frames between workers and agent over their Unix socket: a header and a body, described in
 * docs/protocol.md.
 *
 *   u32 body length · u16 type · u16 descriptors · u32 request id · body
 *
 * A reply carries the id of its request; id 0 is an event. Descriptors travel with the first byte
 * of the frame that names their number.
 */
#ifndef IPC_PROTO_H
#define IPC_PROTO_H

#include "base/wire.h"

#include <stdbool.h>

struct pawl_err;

#define PROTO_VERSION 8u
#define PROTO_HEADER  12u /* bytes of a header */
/* bytes of a body; a larger one ends the connection */
#define PROTO_BODY_MAX         (512u << 20)
#define PROTO_FDS_MAX          64u   /* descriptors of one frame, at most */
#define PROTO_TEXT_MAX         512u  /* bytes of a message for people, terminator included */
#define PROTO_NOTIFICATION_MAX 1024u /* bytes of a notification, terminator included */
#define PROTO_RANKS_LOCAL      64u /* ranks of one node, as their arenas must travel in one frame */
#define PROTO_RANKS_JOB        (256u * PROTO_RANKS_LOCAL) /* ranks of one job, on 256 nodes */

/* Types of frames; frames.h has the body of each. */
enum proto_type {
	/* worker to agent */
	PROTO_HELLO = 1,
	PROTO_BEGIN,
	PROTO_STAGED,
	PROTO_FAIL,
	PROTO_FLUSH,
	PROTO_RESTORE,
	PROTO_VOTE,
	PROTO_RESTORED, /* no body: the bytes were copied out */
	PROTO_LIST,     /* no body */
	PROTO_PIN,
	PROTO_IMPORTS,
	PROTO_BYE,
	PROTO_NOTICE, /* no body: a signal asked this worker to stop */
	PROTO_POLL_COUNT,
	PROTO_DONE, /* no body: this rank has nothing more to add to the save being staged */
	PROTO_DAMAGED,
	PROTO_REMOVE,
	PROTO_FIND,    /* an offer to this rank alone, without a vote */
	PROTO_SCALE,   /* without HELLO */
	PROTO_STATE,   /* without HELLO */
	PROTO_PREEMPT, /* without HELLO */
	PROTO_FETCH,   /* bytes of a save that was offered by FROM_PEERS */
	/* agent to worker, replies */
	PROTO_WELCOME = 64,
	PROTO_ERROR,
	PROTO_OK, /* no body */
	PROTO_GRANT,
	PROTO_FROM_NOTHING,
	PROTO_FROM_MEMORY,
	PROTO_FROM_STORE,
	PROTO_VERDICT,
	PROTO_LISTED,
	PROTO_SCALED,
	PROTO_STATED,
	PROTO_PREEMPTED,
	PROTO_FROM_PEERS, /* a save that other hosts have in memory */
	/* agent to worker, events */
	PROTO_LEVEL = 128,
	PROTO_DIVERGED,
	PROTO_HOLD, /* reply POLL_COUNT; further polls wait until YES_AT */
	PROTO_YES_AT,
	PROTO_NOTIFICATION,
};

/* Questions that ranks ask once a step, and that have one answer for all ranks. */
enum proto_question {
	QUESTION_STOP, /* must I finish the step, save, close? */
	QUESTION_DUE,  /* is a save worth it now? Only in roots that are saved to by step */
	QUESTIONS_N
};

enum proto_level {
	LEVEL_FAILED = 0,
	LEVEL_STAGING,
	LEVEL_STAGED,
	LEVEL_COMMITTED,
	LEVEL_REPLICATED, /* the memory of other hosts has it, too */
	LEVEL_DURABLE,
	LEVEL_TROUBLE,   /* still committed; storage failed: why */
	LEVEL_SUPERSEDED /* a later save has taken its place; its level stays */
};
enum proto_verdict { VERDICT_GO, VERDICT_RETRY, VERDICT_REFUSED };

/* A frame as received. */
struct proto_frame {
	uint16_t type;
	uint32_t id;
	struct wire_in body;    /* points into the receive buffer; valid until the next receive */
	int fds[PROTO_FDS_MAX]; /* the handler of the frame takes these over; proto_frame_close
				   closes the rest */
	uint32_t fds_n;
};

/* One end of a connection. Zero-initialise, set fd. */
struct proto_conn {
	int fd;                 /* owned */
	struct wire_out in;     /* bytes received, not yet a whole frame, from in_off on */
	size_t in_off;          /* bytes of in already consumed */
	int fds[PROTO_FDS_MAX]; /* descriptors received, for the frame at in_off */
	uint32_t fds_n;         /* number of entries in fds */
	/* Refuses descriptors: the kernel drops those that arrive, and a frame that names some is
	 * malformed. */
	bool refuse_fds;
};

/* Starts a frame in out; the caller appends the body and then calls proto_end. Returns where the
 * frame starts. */
size_t proto_start(struct wire_out *out, enum proto_type type, uint32_t id);
void proto_end(struct wire_out *out, size_t start);

/* Sends a whole frame built in out, with descriptors, blocking. PAWL_EPEER if the other end is
 * gone. */
int proto_send(int fd, struct wire_out *out, const int *fds, uint32_t fds_n, struct pawl_err *err);

/* Reads what has arrived (blocking fd: at least one byte). Returns 1 if bytes arrived, 0 if there
 * are none now, PAWL_EPEER if the other end is gone. */
int proto_fill(struct proto_conn *conn, struct pawl_err *err);
/* Returns whether the header of the next frame has arrived, and announces a body of more than
 * most_bytes. */
bool proto_next_exceeds(const struct proto_conn *conn, uint32_t most_bytes);
/* Takes the next whole frame out of the bytes read. Returns 1 if frame is filled, 0 if no frame is
 * whole yet; PAWL_ECORRUPT: the bytes are malformed, close the connection. */
int proto_next(struct proto_conn *conn, struct proto_frame *frame, struct pawl_err *err);
void proto_frame_close(struct proto_frame *frame); /* closes descriptors that nobody took */
void proto_conn_close(struct proto_conn *conn);    /* closes fd and descriptors, frees buffers */

#endif
