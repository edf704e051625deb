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

#define PROTO_VERSION 6u
#define PROTO_HEADER  12u /* bytes of a header */
#define PROTO_BODY_MAX                                                                             \
	(512u << 20)            /* bytes of a body; more is refused and the connection closed      \
				 */
#define PROTO_FDS_MAX     64u   /* descriptors of one frame, at most */
#define PROTO_TEXT_MAX    512u  /* bytes of a message for people, terminator included */
#define PROTO_NEWS_MAX    1024u /* bytes of news for people, terminator included */
#define PROTO_RANKS_LOCAL 64u   /* ranks of one node, as their arenas must travel in one frame */

/* Bodies are listed as fields in order; str and blob have a u32 length before them. */
enum proto_type {
	/* worker to agent */
	PROTO_HELLO = 1, /* u16 version, str job, str root, u32 rank, u32 world, u32 attempt, u32
			    pid, u32 keep, u64 keep_every, u64 interval_ms, u64 memory_bytes, u8
			    named, str hidden, u32 full_every, u32 first and u32 ranks: the ranks on
			    this host, u64 seq: the rank's last save */
	PROTO_BEGIN,    /* u64 seq (named: 0 before the grant), u64 step, u64 bytes of arena needed,
			   str tag, u8 PAWL_SAVE_ flags, u64 since_ns: PAWL_SAVE_ADDS: the tag is no
			   older than this by the wall clock */
	PROTO_STAGED,   /* u64 seq, u64 stall_ns, u64 stage_ns, blob record */
	PROTO_FAIL,     /* u64 seq (named: 0 before the grant), u32 -code, str why, str tag */
	PROTO_WANT,     /* u64 seq: make this save durable now (0: the newest committed; PAWL_EBUSY
			   until it is durable) */
	PROTO_RESTORE,  /* u8 has_step, u64 step */
	PROTO_VOTE,     /* u8 verdict, str why */
	PROTO_RESTORED, /* nothing: the bytes were copied out */
	PROTO_LIST,     /* nothing */
	PROTO_PIN,      /* str tag, u8 pinned */
	PROTO_IMPORTS,  /* blob of newline-separated names */
	PROTO_BYE,      /* u8 clean: the save that this rank was adding to is whole; str why: the
			   error that ends the rank, or ""; u8 owing: its newest save is not
			   durable */
	PROTO_NOTICE,   /* nothing: a signal asked this worker to stop */
	PROTO_HELD,     /* u8 question, u64 polls: how often this rank had asked when HOLD came */
	PROTO_DONE,     /* nothing: this rank has nothing more to add to what is being staged */
	PROTO_CONDEMN,  /* u8 memory, str tag, str why: damaged bytes, in memory or in the store */
	PROTO_REMOVE,   /* str tag */
	PROTO_FIND,     /* str tag ("": newest): an offer to this rank alone, without a vote */
	PROTO_SCALE,    /* without HELLO: str job, u32 ranks wanted; 0: only asks */
	PROTO_STATE,    /* without HELLO: str job, str root */
	/* agent to worker, replies */
	PROTO_WELCOME = 64, /* u32 agent's pid */
	PROTO_ERROR,        /* u32 -code, u32 errno, str text */
	PROTO_OK,           /* nothing */
	PROTO_GRANT,        /* u8 slot, u8 streamed, u64 seq, u32 n, n x (u8 slot, u64 bytes): n
			       arenas whose descriptors come along. Streamed: and str directory */
	PROTO_FROM_NOTHING, /* u32 rounds: there is nothing to restore. How often all ranks have
			       restored together, this time included: the upper half of the numbers
			       of saves from now on (RESTORE) */
	PROTO_FROM_MEMORY,  /* u64 step, str tag, u32 world, world x (u64 arena bytes, blob record):
			       a descriptor for each that has bytes */
	PROTO_FROM_STORE,   /* str tag */
	PROTO_VERDICT,      /* u8 verdict of all, str why, u32 rounds: as above, if they go on */
	PROTO_LISTED, /* u32 n, n x (u64 step, str tag): committed in memory, not yet durable */
	PROTO_SCALED, /* u32 ranks that run, u32 wanted, u32 least, u32 most */
	PROTO_STATED, /* u32 ranks connected, str tag: newest that is in memory only, or ""; u32 key
			 and str text of what goes wrong (news.h), or "" */
	/* agent to worker, events */
	PROTO_LEVEL = 128, /* u64 seq, u8 level, u32 -code, str why */
	PROTO_DIVERGED,    /* str partition */
	PROTO_HOLD,        /* u8 question, u64 seq: answer HELD, and hold further such questions
			      until YES_AT. QUESTION_DUE: only if seq is the last save that was
			      asked for */
	PROTO_YES_AT,      /* u8 question, u64 polls: from this count on the answer is yes, on every
			      rank */
	PROTO_NEWS,        /* str text: news that people are to hear now */
};

/* Questions that ranks ask once a step, and that must be answered alike. */
enum proto_question {
	QUESTION_STOP, /* shall I finish the step, save, leave? */
	QUESTION_DUE,  /* is a save worth it now? Only in roots that are saved to by step */
	QUESTIONS_N
};

enum proto_level {
	LEVEL_FAILED = 0,
	LEVEL_STAGING,
	LEVEL_STAGED,
	LEVEL_COMMITTED,
	LEVEL_DURABLE,
	LEVEL_TROUBLE /* still committed; storage failed: why */
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
	/* Takes no descriptors: the kernel drops those that come, and a frame that names some is
	 * nonsense. */
	bool bare;
};

/* Starts a frame in out; the caller puts the body and then calls proto_end. Returns where the frame
 * starts. */
size_t proto_start(struct wire_out *out, enum proto_type type, uint32_t id);
void proto_end(struct wire_out *out, size_t start);

/* Sends a whole frame built in out, with descriptors, blocking. PAWL_EPEER if the other end is
 * gone. */
int proto_send(int fd, struct wire_out *out, const int *fds, uint32_t fds_n, struct pawl_err *err);

/* Reads what is there (blocking fd: at least one byte). Returns 1 if bytes came, 0 if nothing is
 * there now, PAWL_EPEER if the other end is gone. */
int proto_fill(struct proto_conn *conn, struct pawl_err *err);
/* Takes the next whole frame out of the bytes read. Returns 1 if frame is filled, 0 if none is
 * whole yet, PAWL_ECORRUPT for nonsense: close the connection. */
int proto_next(struct proto_conn *conn, struct proto_frame *frame, struct pawl_err *err);
void proto_frame_close(struct proto_frame *frame); /* closes descriptors that nobody took */
void proto_conn_close(struct proto_conn *conn);    /* closes fd and descriptors, frees buffers */

#endif
