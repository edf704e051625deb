/*
 * Inside a worker: struct pawl_ckpt, shared by session*.c.
 *
 * Locks, in order: saving (one save or restore at a time; held through a whole save, not while its
 * copy goes on), then state (statuses, notes, flags; never held across a call to agent or snapshot
 * engine). Of these two, the engine's done callback takes state only.
 */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

#include "ckpt/format/manifest.h"
#include "ckpt/format/record.h"
#include "ckpt/snap/snap.h"
#include "ipc/arena.h"
#include "ipc/link.h"
#include "ipc/tier.h"
#include "pawl/ckpt.h"
#include "store/store.h"

#include <pthread.h>
#include <sys/types.h>

#define SESSION_CHECK_EVERY                                                                        \
	20 /* saves from one comparison of the replicas' checksums to the next, from the first on */
#define SESSION_NO_SLOT           (-2)
#define SESSION_NOTIFICATIONS_MAX 8
#define SESSION_DIVERGED_MAX      64

/* One partition of the save in progress; memory is kept from save to save. */
struct session_part {
	/* Record that the agent is told, in the session's records; what it points to is owned
	 * here. */
	struct record_part *record;
	struct zip_plan zip;     /* layout of the file */
	struct ckpt_span *spans; /* storages and, last, the pickle */
	uint32_t spans_n;        /* number of entries in spans */
	/* The part's pieces in the session's list: from lo to before hi. */
	size_t piece_lo, piece_hi;
};

/* A request for a slot. */
struct session_slot_request {
	bool pending;            /* the answer has not come yet */
	uint64_t id;             /* id of the save */
	uint64_t step;           /* step of the save */
	uint64_t need_bytes;     /* bytes asked for; kept for the next request; 0: never asked */
	struct link_call call;   /* the call under way */
	struct link_reply reply; /* the answer */
};

/* This process's mapping of one of its arenas. */
struct session_arena {
	uint8_t *map;        /* the mapping; NULL: none */
	uint64_t size_bytes; /* bytes mapped */
	bool ready;          /* all pages are populated */
};

/* A question that ranks ask once a step, and that is answered alike on all of them. */
struct session_question {
	uint64_t polls;   /* how often this rank has asked */
	bool yes_pending; /* the answer is about to be yes */
	uint64_t seq;     /* QUESTION_DUE: held only while this is the last save asked for */
	uint64_t yes_at;  /* poll from which on the answer is yes; UINT64_MAX: not known yet */
	bool late;        /* QUESTION_DUE: answered no, since yes_at took too long */
};

/* The state of one save. */
struct session_status {
	uint64_t id;                    /* id of the save; 0: none */
	struct pawl_ckpt_status status; /* as told to the caller */
	uint64_t seq;    /* the agent's number for the save; 0: not known to this agent */
	bool superseded; /* superseded: the save will not become durable */
};

/* A save put together partition by partition. */
struct session_build {
	bool open;                     /* a save is being put together */
	bool lost;                     /* what was staged was with an agent that is gone */
	uint64_t id;                   /* id of the save */
	int slot;                      /* granted; -1: stream; SESSION_NO_SLOT: not asked yet */
	uint64_t used_bytes;           /* bytes used of the arena */
	uint64_t last_bytes;           /* bytes that the save before used: asked for first */
	int rv;                        /* result of the copy of the newest partition */
	struct session_stream *stream; /* stream to the store; NULL: none yet */
};

struct pawl_ckpt {
	pid_t pid;         /* process that opened the session: forks of it are dead */
	int64_t opened_ns; /* time of opening, by the wall clock */
	bool abandoned;    /* the process leaves because of an error */
	char abandoned_why[PROTO_TEXT_MAX]; /* the error; "" if not abandoned */
	struct pawl_ckpt_options options;   /* strings are owned copies */
	char *socket;                       /* owned; path of the agent's socket */
	struct link *link;                  /* NULL: not connected */
	struct snap *snap;                  /* the snapshot engine */

	pthread_mutex_t saving;      /* guards all fields up to state; taken before it */
	struct wire_out frame;       /* frames of saving and restoring */
	struct link_reply reply;     /* replies to the frames sent */
	struct record_part *records; /* records of the last structure, as told to the agent */
	struct session_part *parts;  /* partitions of the last structure */
	uint32_t parts_n;            /* number of entries in parts and records */
	struct ckpt_pieces pieces;   /* pieces of the save in progress */
	struct record_piece *record_pieces;       /* the pieces as told to the agent */
	size_t record_pieces_cap;                 /* entries allocated in told */
	struct session_slot_request slot_request; /* request for a slot */
	bool numbered; /* all ranks make all saves, which are matched by number; else by tag */
	struct session_arena arenas[ARENA_SLOTS]; /* mappings of this rank's arenas */
	pthread_t preparer;                       /* puts pages into an arena that may be next */
	struct session_arena *preparing; /* the preparer's arena; NULL: no preparer to be joined */
	char stream_dir[STORE_NAME_MAX]; /* directory that the save is streamed to, if it is */
	uint64_t seq_base; /* counted: last id before the ranks restored together; 0: never */
	uint32_t rounds;   /* counted: joint restores, as this agent counts them */
	struct session_build build; /* save put together in pieces */
	uint64_t step;              /* step of the save in progress */
	char tag[CKPT_TAG_MAX];     /* tag of the save in progress */
	uint32_t flags;             /* PAWL_SAVE_… flags of the save in progress */
	bool summing;               /* the save in progress takes sums */
	enum snap_proof proof;      /* proof that the save in progress has */
	int64_t begun_ns;           /* start of the save in progress */
	int64_t announced_ns;       /* when the next save was asked for; 0: not yet */

	pthread_mutex_t state;  /* guards all fields from here on */
	pthread_cond_t changed; /* a status, or the connection, changed */
	uint64_t last_id;       /* newest save */
	uint64_t copying_id;    /* save whose copy goes on; 0: none */
	uint64_t building_id;   /* save that is put together; 0: none */
	/* By id modulo PAWL_CKPT_STATUS_KEPT. */
	struct session_status statuses[PAWL_CKPT_STATUS_KEPT];
	bool withdrawn; /* the save in progress was withdrawn by the caller */
	struct session_question questions[QUESTIONS_N]; /* asked once a step */
	uint64_t missed;      /* number of a save that was due without this rank; 0: none */
	int64_t reconnect_ns; /* with saving: the agent is gone; next time another is sought; 0: no */
	int64_t reconnect_pause_ns; /* with saving: pause after an agent was sought in vain */
	char notifications[SESSION_NOTIFICATIONS_MAX]
			  [PAWL_CKPT_NOTIFICATION_MAX];     /* messages for the user */
	uint32_t notifications_n;                           /* number of entries in notes */
	bool notifications_ended;                           /* nobody awaits a note any more */
	char diverged[SESSION_DIVERGED_MAX][CKPT_NAME_MAX]; /* partitions whose replicas differ */
	uint32_t diverged_n;                                /* number of entries in diverged */
	struct wire_out done_frame;                         /* built by the engine's callback */
	struct wire_out record; /* record of what was staged, for done_frame */
};

/* ---- session.c ---- */
/* Whether this process is a fork of the one that opened the session. */
bool session_is_forked(const struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Connects (again). Called with saving. */
int session_connect(struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Sets id's level unless it failed or is further already. */
void session_set_level(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level);
void session_set_failed(struct pawl_ckpt *ckpt, uint64_t id, int code, const char *why, int part,
	int storage);
/* Returns the agent's number for a save; 0 if it has none. */
uint64_t session_seq(struct pawl_ckpt *ckpt, uint64_t id);
/* Returns the number of a counted save. Called with state. */
uint64_t session_number(const struct pawl_ckpt *ckpt, uint64_t id);
/* Begins numbers anew: all ranks have restored together. */
void session_reset_numbers(struct pawl_ckpt *ckpt, uint32_t rounds);
void session_set_seq(struct pawl_ckpt *ckpt, uint64_t id, uint64_t seq);

/* ---- session_notify.c ---- */
void session_notify(struct pawl_ckpt *ckpt, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- session_announce.c ---- */
/* Returns the number of the last save, or the number that the next save's follows. Called with
 * state. */
uint64_t session_last_number(const struct pawl_ckpt *ckpt);
/* Counts rounds anew, for another agent; what is known of the save to come stays. Called with
 * state. */
void session_reset_rounds(struct pawl_ckpt *ckpt);
/* Fails the save that was due without this rank, so that it has its number here, too. Called with
 * saving. */
void session_skip_missed(struct pawl_ckpt *ckpt);
/* Both functions below are called by the receiving thread. */
/* Answers how often this rank has asked, and holds the next question until it is known where all
 * are told yes. */
void session_handle_hold(struct pawl_ckpt *ckpt, const struct frame_hold *frame);
void session_handle_yes_at(struct pawl_ckpt *ckpt, const struct frame_yes_at *frame);

/* ---- session_slot.c ---- all called with saving, or alone */
/* Asks for a slot, unless that was done ahead and suffices. Returns 0 and the slot (-1: stream), or
 * why there is none. */
int session_request_slot(struct pawl_ckpt *ckpt, uint64_t id, uint64_t need_bytes, int *slot,
	struct pawl_err *err);
/* Takes back a request made ahead, if there is one: its save will not come. */
void session_cancel_request(struct pawl_ckpt *ckpt, const char *why);
/* Fails this rank's next save, which will not come. Where saves are counted, it has had its
 * number. */
void session_skip(struct pawl_ckpt *ckpt, const char *why);
/* Forgets the request for a slot: the agent is gone. */
void session_forget_request(struct pawl_ckpt *ckpt);
/* Forgets the request for a slot as session_forget_request does, and frees its save's id. */
void session_undo_request(struct pawl_ckpt *ckpt);
/* Puts pages into an arena that the save after this one may need, in the background. */
void session_prepare_next(struct pawl_ckpt *ckpt, int slot);
/* Unmaps the arenas, once nobody writes to them any more. */
void session_drop_arenas(struct pawl_ckpt *ckpt);
void session_slot_deinit(struct pawl_ckpt *ckpt);

/* ---- session_save.c ---- */
/* Returns the id of a new save, whose status is known at once even if it never starts. */
uint64_t session_new_save(struct pawl_ckpt *ckpt);
/* Tells the agent, which tells the others, that this rank's part of the save will not come. */
void session_send_fail(struct pawl_ckpt *ckpt, struct wire_out *out, uint64_t id, int code,
	const char *why);
void session_save_deinit(struct pawl_ckpt *ckpt);
/* Lays out one more partition, of which all is to be saved, behind used_bytes of the arena.
 * PAWL_EEXIST if the save has a partition of this name. */
int session_append_part(struct pawl_ckpt *ckpt, const struct pawl_ckpt_part *in,
	uint64_t used_bytes, struct pawl_err *err);
void session_free_parts(struct pawl_ckpt *ckpt);
/* Adds the pieces of partition p to the list. */
int session_list_part(struct pawl_ckpt *ckpt, uint32_t p, uint8_t *arena, struct pawl_err *err);
/* Connects if need be. */
int session_ensure_connected(struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Takes saving for a save of tag (NULL: the tag of step), once the save before is copied. */
int session_begin_save(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	struct pawl_err *err);
void session_record_stall(struct pawl_ckpt *ckpt, uint64_t id);

/* ---- session_stream.c ---- */
/* A stream to the directory that the agent has made for the save in progress. */
struct session_stream;
int session_stream_open(struct session_stream **out, struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Writes a partition that is laid out. */
int session_stream_part(struct session_stream *stream, struct pawl_ckpt *ckpt, uint32_t p,
	struct pawl_err *err);
void session_stream_close(struct session_stream *stream); /* NULL is fine */
/* Writes this rank's partitions to the store itself, and tells the agent. Called with saving, parts
 * laid out. */
int session_stream(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_err *err);
/* Tells the agent that all is staged. Called by the engine's thread, or with saving. */
void session_send_staged(struct pawl_ckpt *ckpt, uint64_t id);

/* ---- session_restore.c ---- */
int session_restore_new(struct pawl_restore **restore, struct pawl_ckpt *ckpt,
	struct pawl_err *err);
/* Takes over what the agent offers: what is in ckpt's reply. to_all: it offers that to all ranks,
 * which vote on it. Called with saving. */
int session_restore_accept(struct pawl_restore *restore, struct pawl_ckpt *ckpt, bool to_all,
	struct pawl_err *err);
/* Refuses what is offered to all ranks, unless this rank has voted. Waits for nobody. */
void session_restore_refuse(struct pawl_restore *restore, const char *why);

#endif
