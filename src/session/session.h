/*
 * Inside a worker: struct pawl_ckpt, shared by session*.c.
 *
 * Two locks, taken in this order:
 *  - saving: one save or restore at a time. A thread holds it through the whole call, but not while
 *    the snapshot engine copies on in the background.
 *  - state: statuses, questions, notifications. Never held across a call to the agent or to the
 *    snapshot engine.
 * Of these two, the snapshot engine's done callback takes only state. Beside it, it takes the
 * link's send lock, and Python's GIL when it asks whether memory on devices changed.
 *
 * The files, from the bottom up; each calls only files further up in this list:
 *   session_state.c      sending to the agent, numbers and statuses of saves
 *   session_notify.c     notifications for the user
 *   session_questions.c  questions with one answer for all ranks
 *   session_report.c     reports to the agent: staged, or failed
 *   session_slot.c       requests for a slot, arenas
 *   session_connect.c    the connection, its events
 *   session_stream.c     writing a save to the store
 *   session_save.c       saving all partitions at once
 *   session_build.c      saving partition by partition
 *   session_due.c        whether a save is due
 *   session_peers.c      what other hosts have in memory, for a restore
 *   session_restore.c    restoring; session_reshard.c and session_find.c stand on it
 *   session.c            opening and closing, waiting, other calls
 */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

#include "ckpt/format/manifest.h"
#include "ckpt/format/record.h"
#include "ckpt/snap/snap.h"
#include "ipc/link.h"
#include "ipc/tier.h"
#include "ipc/tier_slots.h"
#include "pawl/ckpt.h"
#include "store/store.h"

#include <pthread.h>
#include <sys/types.h>

/* One save in so many, from the first on, compares the replicas' checksums. */
#define SESSION_CHECK_EVERY       20
#define SESSION_NO_SLOT           (-2)
#define SESSION_NOTIFICATIONS_MAX 8
#define SESSION_DIVERGED_MAX      64

/* One partition of the save in progress; memory is kept from save to save. */
struct session_part {
	/* Record for the agent, an entry of layout.records; owns what it points to. */
	struct record_part *record;
	struct zip_plan zip;       /* layout of the file */
	struct ckpt_span *spans;   /* storages and, last, the pickle */
	uint32_t spans_n;          /* number of entries in spans */
	size_t piece_lo, piece_hi; /* the pieces in layout.pieces: from lo to before hi */
};

/* What the save in progress copies, and from where; kept from save to save. Protected by saving;
 * while the snapshot engine copies, its callback reads it and nobody changes it. */
struct session_layout {
	struct record_part *records;        /* records of the last structure, for the agent */
	struct session_part *parts;         /* partitions of the last structure */
	uint32_t parts_n;                   /* number of entries in parts and records */
	struct ckpt_pieces pieces;          /* pieces of the save in progress */
	struct record_piece *record_pieces; /* the pieces, as the records list them */
	size_t record_pieces_cap;           /* entries allocated in record_pieces */
};

/* The save in progress. Protected as the layout is. */
struct session_current {
	uint64_t step;                   /* training step */
	char tag[CKPT_TAG_MAX];          /* name of the checkpoint */
	uint32_t flags;                  /* PAWL_SAVE_… */
	bool summing;                    /* the save computes checksums of what all ranks share */
	enum snap_proof proof;           /* evidence that no byte changed under the copy */
	char stream_dir[STORE_NAME_MAX]; /* directory of a streamed save */
	int64_t begun_ns;                /* start of the save */
	int64_t announced_ns;            /* when the next save was announced; 0: not yet */
};

/* A request for a slot. Protected by saving. */
struct session_slot_request {
	bool pending;            /* the answer has not come yet */
	uint64_t id;             /* id of the save */
	uint64_t step;           /* step of the save */
	uint64_t need_bytes;     /* bytes requested; kept for the next request; 0: none so far */
	struct link_call call;   /* the call in progress */
	struct link_reply reply; /* the answer */
};

/* This process's mapping of one of its arenas. */
struct session_arena {
	uint8_t *map;        /* the mapping; NULL: none */
	uint64_t size_bytes; /* bytes mapped */
	bool ready;          /* all pages are populated */
};

/* This rank's memory in the agent, mapped. Protected by saving. */
struct session_memory {
	struct session_arena arenas[ARENA_SLOTS]; /* one for each slot */
	pthread_t preparer;                       /* populates an arena that may be used next */
	struct session_arena *preparing; /* the preparer's arena; NULL: no preparer to join */
};

/* A save put together partition by partition. Protected by saving. */
struct session_build {
	bool open;                     /* a save is being put together */
	bool lost;                     /* the agent that had the staged partitions is gone */
	uint64_t id;                   /* id of the save */
	int slot;                      /* granted; -1: stream; SESSION_NO_SLOT: not requested yet */
	uint64_t used_bytes;           /* bytes used of the arena */
	uint64_t last_bytes;           /* bytes that the previous save used: requested first */
	int rv;                        /* result of the copy of the newest partition */
	struct session_stream *stream; /* stream to the store; NULL: none yet */
};

/* When to look for another agent, while ours is gone. Protected by saving. */
struct session_reconnect {
	int64_t at_ns;    /* time of the next attempt; 0: our agent is alive */
	int64_t pause_ns; /* pause after an attempt that fails */
};

/* The numbers of saves that all ranks make in the same order. Changed with both locks held. */
struct session_numbers {
	uint64_t base;   /* last id before the ranks restored together; 0: they never did */
	uint32_t rounds; /* joint restores, as this agent counts them */
};

/* The state of one save. */
struct session_status {
	uint64_t id;                    /* id of the save; 0: none */
	struct pawl_ckpt_status status; /* as reported to the caller */
	uint64_t seq;    /* the agent's number for the save; 0: not known to this agent */
	bool superseded; /* a later save replaced it: it will not become durable */
};

/* What is known of saves. Protected by state. */
struct session_saves {
	uint64_t last_id;     /* newest save */
	uint64_t copying_id;  /* save that is being copied; 0: none */
	uint64_t building_id; /* save that is put together; 0: none */
	bool withdrawn;       /* the caller withdrew the save in progress */
	/* By id modulo PAWL_CKPT_STATUS_KEPT. */
	struct session_status statuses[PAWL_CKPT_STATUS_KEPT];
};

/* A question that ranks ask once a step, and that has one answer for all of them. */
struct session_question {
	uint64_t polls;   /* how often this rank has asked */
	bool yes_pending; /* the answer is about to be yes */
	uint64_t seq;     /* QUESTION_DUE: yes_pending counts only while this is the last save */
	uint64_t yes_at;  /* poll from which on the answer is yes; UINT64_MAX: not known yet */
	bool late;        /* QUESTION_DUE: answered no, since yes_at took too long */
};

/* The questions that ranks ask once a step. Protected by state. */
struct session_questions {
	struct session_question at[QUESTIONS_N]; /* by enum proto_question */
	uint64_t missed; /* number of a save that was due without this rank; 0: none */
};

/* Messages for the user that nobody has taken yet, oldest first. Protected by state. */
struct session_notifications {
	char texts[SESSION_NOTIFICATIONS_MAX][PAWL_CKPT_NOTIFICATION_MAX];
	uint32_t n; /* number of entries in texts */
	bool ended; /* nobody awaits a notification any more */
};

/* Partitions whose replicas differ. Protected by state. */
struct session_diverged {
	char names[SESSION_DIVERGED_MAX][CKPT_NAME_MAX];
	uint32_t n; /* number of entries in names */
};

/* Buffers that report a staged save to the agent. Used by the snapshot engine's done callback, or
 * with saving once nothing is copied. */
struct session_staged {
	struct wire_out frame;  /* the frame */
	struct wire_out record; /* record of what was staged, for the frame */
};

struct pawl_ckpt {
	/* Set when the session opens. */
	pid_t pid;                        /* process that opened it; forks of it cannot use it */
	int64_t opened_ns;                /* time of opening, by the wall clock */
	struct pawl_ckpt_options options; /* strings are owned copies */
	char *socket;                     /* owned; path of the agent's socket */
	struct snap *snap;                /* the snapshot engine */
	bool numbered; /* all ranks make all saves, which are matched by number; else by tag */

	/* Set by the thread that closes the session. */
	bool abandoned;                     /* the process leaves because of an error */
	char abandoned_why[PROTO_TEXT_MAX]; /* the error; "" if not abandoned */

	/* Connection to the agent, which has welcomed this rank; NULL: none. Replaced with saving
	 * and state held: whoever has saving may use it, all others call session_link. */
	struct link *link;

	pthread_mutex_t saving;  /* protects what follows, up to state; taken before state */
	struct wire_out frame;   /* frames of saving and restoring */
	struct link_reply reply; /* replies to these frames */
	struct session_layout layout;
	struct session_current current;
	struct session_slot_request slot_request;
	struct session_memory memory;
	struct session_build build;
	struct session_reconnect reconnect;

	pthread_mutex_t state;  /* protects what follows, up to staged */
	pthread_cond_t changed; /* a status, a question, or a notification changed */
	struct session_numbers numbers;
	struct session_saves saves;
	struct session_questions questions;
	struct session_notifications notifications;
	struct session_diverged diverged;

	struct session_staged staged; /* the done callback's */
};

/* ---- session_state.c ---- */
/* Returns whether this process is a fork of the one that opened the session. */
bool session_is_forked(const struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Returns the connection to the agent with a reference, for link_release; NULL: there is none. */
struct link *session_link(struct pawl_ckpt *ckpt);
/* Sends a frame to the agent, as link_send does. PAWL_EPEER: there is no agent. */
int session_send(struct pawl_ckpt *ckpt, struct wire_out *out, enum proto_type type,
	const void *body, struct pawl_err *err);
/* Returns the number that the next save's number follows: that of the last save, if there was one.
 * Called with state. */
uint64_t session_last_number(const struct pawl_ckpt *ckpt);
/* Restarts the numbers: all ranks have restored together. */
void session_reset_numbers(struct pawl_ckpt *ckpt, uint32_t rounds);
/* Adds a new save to the table and returns its id. Its status is known even if it never starts. */
uint64_t session_new_save(struct pawl_ckpt *ckpt);
/* Returns the state of save id; NULL if it is unknown, or no longer remembered. Called with
 * state. */
struct session_status *session_find_status(struct pawl_ckpt *ckpt, uint64_t id);
/* Returns the agent's number for a save; 0 if it has none. */
uint64_t session_seq(struct pawl_ckpt *ckpt, uint64_t id);
void session_set_seq(struct pawl_ckpt *ckpt, uint64_t id, uint64_t seq);
/* Raises the level of save id. Does nothing if the save failed or is at that level already. */
void session_set_level(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level);
void session_set_failed(struct pawl_ckpt *ckpt, uint64_t id, int code, const char *why, int part,
	int storage);
/* The receiving thread calls the functions below. */
void session_handle_agent_lost(struct pawl_ckpt *ckpt);
void session_handle_level(struct pawl_ckpt *ckpt, const struct frame_level *frame);
void session_handle_diverged(struct pawl_ckpt *ckpt, const struct frame_diverged *frame);

/* ---- session_notify.c ---- */
void session_notify(struct pawl_ckpt *ckpt, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- session_questions.c ---- */
/* Returns whether the next save is the one that was due without this rank. Called with state. */
bool session_has_missed(const struct pawl_ckpt *ckpt);
/* Restarts the count of rounds, for another agent. Keeps what is known of the next save. Called
 * with state. */
void session_reset_rounds(struct pawl_ckpt *ckpt);
/* Asks a question. May wait until it is known at which poll all ranks get yes. */
bool session_poll(struct pawl_ckpt *ckpt, enum proto_question which);
/* The receiving thread calls both functions below. */
/* Replies how often this rank has asked. From then on this rank's polls wait until it is known at
 * which poll all ranks get yes. */
void session_handle_hold(struct pawl_ckpt *ckpt, struct link *link, const struct frame_hold *frame);
void session_handle_yes_at(struct pawl_ckpt *ckpt, const struct frame_yes_at *frame);

/* ---- session_report.c ---- */
/* Reports to the agent that all is staged. Called by a snapshot thread, or with saving. */
void session_send_staged(struct pawl_ckpt *ckpt, uint64_t id);
/* Reports to the agent, which passes it on, that this rank's part of the save will not come. Does
 * nothing if there is no agent. */
void session_send_fail(struct pawl_ckpt *ckpt, struct wire_out *out, uint64_t id, int code,
	const char *why);

/* ---- session_slot.c: all called with saving, or while no other thread has the session ---- */
/* Requests a slot, unless an earlier request suffices, and waits for the answer. Returns 0 and the
 * slot (-1: stream), or why there is none. */
int session_request_slot(struct pawl_ckpt *ckpt, uint64_t id, uint64_t need_bytes, int *slot,
	struct pawl_err *err);
/* Cancels a request made ahead of its save, if there is one: the save will not come. */
void session_cancel_request(struct pawl_ckpt *ckpt, const char *why);
/* Fails this rank's next save, which will not come. Where saves are numbered, it uses up its
 * number. */
void session_skip(struct pawl_ckpt *ckpt, const char *why);
/* Fails the save that was due without this rank, so that it takes a number here, too. */
void session_skip_missed(struct pawl_ckpt *ckpt);
/* Forgets the request for a slot: the agent is gone. */
void session_forget_request(struct pawl_ckpt *ckpt);
/* Forgets the request for a slot as session_forget_request does, and frees its save's id. */
void session_undo_request(struct pawl_ckpt *ckpt);
/* Populates, in the background, an arena that the next save may need. */
void session_prepare_next(struct pawl_ckpt *ckpt, int slot);
/* Unmaps the arenas once nobody writes to them. */
void session_drop_arenas(struct pawl_ckpt *ckpt);
void session_slot_deinit(struct pawl_ckpt *ckpt);

/* ---- session_connect.c: called with saving, or while no other thread has the session ---- */
/* Connects, or reconnects. */
int session_connect(struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Connects, unless connected. */
int session_ensure_connected(struct pawl_ckpt *ckpt, struct pawl_err *err);

/* ---- session_stream.c ---- */
/* A stream to the directory that the agent has made for the save in progress. */
struct session_stream;
int session_stream_open(struct session_stream **out, struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Writes a partition, which must be laid out. */
int session_stream_part(struct session_stream *stream, struct pawl_ckpt *ckpt, uint32_t p,
	struct pawl_err *err);
void session_stream_close(struct session_stream *stream); /* NULL is fine */
/* Writes this rank's partitions to the store and reports that to the agent. Called with saving,
 * after the partitions are laid out. */
int session_stream(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_err *err);

/* ---- session_save.c ---- */
void session_save_deinit(struct pawl_ckpt *ckpt);
/* Lays out one more partition, to be saved whole, behind used_bytes of the arena.
 * PAWL_EEXIST if the save has a partition of this name. */
int session_append_part(struct pawl_ckpt *ckpt, const struct pawl_ckpt_part *in,
	uint64_t used_bytes, struct pawl_err *err);
void session_free_parts(struct pawl_ckpt *ckpt);
/* Adds the pieces of partition p to the list. */
int session_list_part(struct pawl_ckpt *ckpt, uint32_t p, uint8_t *arena, struct pawl_err *err);
/* Checks the arguments, and takes the lock saving for a save of tag (NULL: the tag of step) once
 * the previous save is copied. The caller releases it, unless this fails. */
int session_lock_for_save(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	struct pawl_err *err);
void session_record_stall(struct pawl_ckpt *ckpt, uint64_t id);

/* ---- session_restore.c ---- */
int session_restore_new(struct pawl_restore **restore, struct pawl_ckpt *ckpt,
	struct pawl_err *err);
/* Takes the agent's offer from ckpt's reply. to_all: the offer is for all ranks, which vote on it.
 * Called with saving. */
int session_restore_accept(struct pawl_restore *restore, struct pawl_ckpt *ckpt, bool to_all,
	struct pawl_err *err);
/* Refuses an offer to all ranks, unless this rank has voted. Does not block. */
void session_restore_refuse(struct pawl_restore *restore, const char *why);

#endif
