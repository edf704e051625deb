/*
 * Bodies of the frames between workers and agent, one struct each: docs/protocol.md has the bytes,
 * proto.h the header in front of them. frames.c has the layout of each struct: see frame_layout.h.
 * The agent handles frames in agent/requests.c.
 *
 * A frame that has no struct here has no body. A sender cuts text that is longer than its array. A
 * receiver rejects such text as malformed, as it rejects a body that is too short or too long.
 */
#ifndef IPC_FRAMES_H
#define IPC_FRAMES_H

#include "ckpt/format/manifest.h"
#include "ckpt/format/record.h"
#include "ipc/frame_layout.h"
#include "ipc/proto.h"
#include "ipc/tier_slots.h"

#include <limits.h>

#define FRAME_DIR_MAX 256u /* bytes of the directory of a stream, terminator included */

/* ---- worker to agent ---- */

struct frame_hello {
	uint16_t version; /* PROTO_VERSION of the worker; first in every version of the protocol */
	char job[CKPT_JOB_MAX];
	char root[PATH_MAX];       /* absolute */
	uint32_t rank, world;      /* rank in the job, and number of ranks */
	uint32_t attempt;          /* starts of the job before this one */
	uint32_t keep;             /* durable checkpoints to keep; 0: all */
	uint64_t keep_every;       /* also keep steps that are a multiple of this; 0: none */
	uint64_t persist_every_ms; /* interval of durable saves; 0: every save; PAWL_CKPT_AUTO */
	uint64_t memory_bytes; /* most memory for arenas on this node; 0: half of what is free */
	bool named;            /* saves are matched by tag */
	char hidden[PATH_MAX]; /* directory for unfinished tags; "": the root */
	uint32_t full_every;   /* one durable save in so many is written whole */
	uint32_t first, ranks; /* lowest rank on this host, and number of ranks on it */
	uint64_t seq;          /* number of this rank's last save; 0: none yet */
	/* Hosts that keep a copy of this host's part of a save; UINT32_MAX: the agent chooses, 1 if
	 * it has links to other hosts of the job, else 0. */
	uint32_t replicas;
	bool parity; /* as many sums are to be kept in place of copies */
};

struct frame_begin {
	uint64_t seq;        /* number of the save; 0: saved by tag, before the grant */
	uint64_t step;       /* step of the save, or PAWL_STEP_NONE */
	uint64_t need_bytes; /* size of the arena that the save needs */
	char tag[CKPT_TAG_MAX];
	uint8_t flags;    /* PAWL_SAVE_ flags */
	int64_t since_ns; /* PAWL_SAVE_ADDS: the tag is not older than this; wall clock */
};

struct frame_staged {
	uint64_t seq;
	uint64_t stall_ns, stage_ns; /* time that save took, and time until all was copied */
	struct frame_blob record;    /* ckpt/format/record.h */
};

struct frame_fail {
	uint64_t seq; /* number of the save; 0: saved by tag, before the grant */
	int code;     /* PAWL_E code */
	char why[PROTO_TEXT_MAX];
	char tag[CKPT_TAG_MAX]; /* saves by tag; else "" */
};

struct frame_flush {
	/* save to make durable now; 0: the newest committed, PAWL_EBUSY until it is */
	uint64_t seq;
};

struct frame_restore {
	bool has_step; /* restore step; else the newest checkpoint */
	uint64_t step;
};

struct frame_vote {
	uint8_t verdict; /* enum proto_verdict */
	char why[PROTO_TEXT_MAX];
};

struct frame_pin {
	char tag[CKPT_TAG_MAX];
	bool pinned;
};

struct frame_imports {
	struct frame_blob names; /* modules that the worker has imported, one a line */
};

struct frame_bye {
	bool clean;               /* the save that this rank was adding to is whole */
	char why[PROTO_TEXT_MAX]; /* error that ends the rank; "": none */
	bool not_durable;         /* the rank's newest save is not durable */
};

struct frame_poll_count {
	uint8_t question; /* enum proto_question */
	uint64_t polls;   /* how often this rank had asked when HOLD came */
};

struct frame_damaged {
	bool memory; /* the damaged bytes are in memory; else in the store */
	char tag[CKPT_TAG_MAX];
	char why[PROTO_TEXT_MAX];
};

struct frame_tag { /* REMOVE; FIND ("": the newest); FROM_STORE */
	char tag[CKPT_TAG_MAX];
};

struct frame_scale {
	char job[CKPT_JOB_MAX];
	uint32_t wanted; /* ranks that are wanted; 0: changes nothing, only reads the numbers */
};

struct frame_state {
	char job[CKPT_JOB_MAX];
	char root[PATH_MAX];
};

/* The machine goes away: the job is to save, and end. */
struct frame_preempt {
	char job[CKPT_JOB_MAX]; /* "": whichever the agent has */
	uint32_t left_ms;       /* time until the machine is gone */
};

/* Bytes of a save that FROM_PEERS has offered. */
struct frame_fetch {
	uint32_t rank;   /* rank in the job */
	uint32_t part;   /* index of the partition in that rank's record */
	uint64_t lo, hi; /* from lo to before hi of the partition's file */
};

/* ---- agent to worker: replies ---- */

struct frame_welcome {
	uint32_t pid; /* agent's process id */
};

struct frame_error {
	int code; /* PAWL_E code */
	int sys;  /* errno, or 0 */
	char text[PROTO_TEXT_MAX];
};

/* An arena whose descriptor comes along. */
struct frame_arena {
	uint8_t slot; /* below ARENA_SLOTS */
	uint64_t size_bytes;
};

struct frame_grant {
	uint8_t slot;                           /* slot to stage into; not of a stream */
	bool streamed;                          /* write files into dir instead */
	uint64_t seq;                           /* number of the save */
	uint32_t arenas_n;                      /* number of entries in arenas */
	struct frame_arena arenas[ARENA_SLOTS]; /* arenas that the rank does not have yet */
	char dir[FRAME_DIR_MAX];                /* directory of a stream, below the root; else "" */
};

struct frame_from_nothing {
	/* How often all ranks have restored together, this time included: the upper half of the
	 * numbers of saves from now on. FIND: 0. */
	uint32_t rounds;
};

/* A rank's part of a save in memory. Its arena's descriptor comes along if there is a record. */
struct frame_share {
	uint64_t size_bytes;      /* size of the arena */
	struct frame_blob record; /* empty: the rank has no part in the save */
};

struct frame_from_memory {
	uint64_t step;
	char tag[CKPT_TAG_MAX];
	uint32_t shares_n;                            /* ranks of the job */
	struct frame_share shares[PROTO_RANKS_LOCAL]; /* by rank */
};

/* A rank's part of a save that other hosts have in memory. */
struct frame_peer_share {
	uint64_t off;             /* offset of the rank's arena in the one memory */
	uint64_t size_bytes;      /* size of the arena */
	struct frame_blob record; /* empty: the rank has no part in the save */
};

/* The descriptor of one memory comes along, in which all arenas lie. Bytes are there only once a
 * FETCH of them was answered. */
struct frame_from_peers {
	uint64_t step;
	char tag[CKPT_TAG_MAX];
	uint64_t memory_bytes;    /* size of the memory */
	struct frame_rows shares; /* frame_peer_share, by rank; at most PROTO_RANKS_JOB */
};

struct frame_verdict {
	uint8_t verdict;          /* enum proto_verdict, of all ranks */
	char why[PROTO_TEXT_MAX]; /* reason of the rank that refused */
	uint32_t rounds;          /* as in frame_from_nothing, if they go on */
};

struct frame_pending {
	uint64_t step;
	char tag[CKPT_TAG_MAX];
};

struct frame_listed {
	uint32_t pending_n;                        /* number of entries in pending */
	struct frame_pending pending[ARENA_SLOTS]; /* committed in memory, not yet durable */
};

struct frame_scaled {
	uint32_t alive;       /* ranks that run */
	uint32_t wanted;      /* ranks that are to run */
	uint32_t least, most; /* ranks that may run */
};

struct frame_stated {
	uint32_t ranks;            /* ranks that are connected */
	char tag[CKPT_TAG_MAX];    /* newest save that is in memory only; "": none */
	uint32_t key;              /* kind of trouble (alerts.h); 0: none */
	char text[PROTO_TEXT_MAX]; /* description of the trouble; "": none */
};

struct frame_preempted {
	char job[CKPT_JOB_MAX]; /* the agent's job */
};

/* ---- agent to worker: events ---- */

struct frame_level {
	uint64_t seq;
	uint8_t level;            /* enum proto_level */
	int code;                 /* PAWL_E code of failure or trouble; 0: none */
	char why[PROTO_TEXT_MAX]; /* text of code */
};

struct frame_diverged {
	char part[CKPT_NAME_MAX]; /* shared partition that differs between ranks */
};

struct frame_hold {
	uint8_t question; /* enum proto_question */
	uint64_t seq;     /* QUESTION_DUE: wait for YES_AT only if this is the rank's last save */
};

struct frame_yes_at {
	uint8_t question; /* enum proto_question */
	uint64_t polls;   /* the answer is yes from this count on, on every rank */
};

struct frame_notification {
	char text[PROTO_NOTIFICATION_MAX]; /* for the user, at once */
};

/* Room for the body of any frame that a worker sends. */
union frame_request {
	struct frame_hello hello;
	struct frame_begin begin;
	struct frame_staged staged;
	struct frame_fail fail;
	struct frame_flush flush;
	struct frame_restore restore;
	struct frame_vote vote;
	struct frame_pin pin;
	struct frame_imports imports;
	struct frame_bye bye;
	struct frame_poll_count poll_count;
	struct frame_damaged damaged;
	struct frame_tag tag;
	struct frame_scale scale;
	struct frame_state state;
	struct frame_preempt preempt;
	struct frame_fetch fetch;
};

/* Room for the body of any event. */
union frame_event {
	struct frame_level level;
	struct frame_diverged diverged;
	struct frame_hold hold;
	struct frame_yes_at yes_at;
	struct frame_notification notification;
};

/* Layout of a row of frame_from_peers. */
extern const struct frame_layout frame_peer_share_layout;

/* Appends the body of a frame. body: the struct of that type; NULL for one without a body. */
void frame_encode(struct wire_out *out, enum proto_type type, const void *body);
/* Reads a whole body into the struct of its type, or a union with it; blobs point into the bytes of
 * in. False: the type is unknown, its struct is larger than size_bytes, or the body is malformed;
 * *body is not to be used then. */
bool frame_decode(struct wire_in *in, uint16_t type, void *body, size_t size_bytes);
/* Returns the version that a body of HELLO begins with, whatever follows it; 0: none. */
uint16_t frame_hello_version(struct wire_in in);

/* ---- for tests ---- */

/* Returns the layout of a type; NULL: there is no such type. One without fields has no body. */
const struct frame_layout *frame_layout_of(uint16_t type);

#endif
