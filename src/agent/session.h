/*
 * Inside a worker: struct pawl_ckpt, shared by session.c (connecting, levels), session_save.c
 * (saving), session_build.c (saving in pieces), session_notes.c and session_restore.c.
 *
 * Locks, in order: saving (one save or restore at a time; held through a whole save, not while its
 * copy goes on), then state (statuses, notes, flags; never held across a call to agent or snapshot
 * engine). The engine's done callback takes state only.
 */
#ifndef AGENT_SESSION_H
#define AGENT_SESSION_H

#include "agent/ledger.h"
#include "agent/link.h"
#include "agent/tier.h"
#include "ckpt/record.h"
#include "ckpt/snap.h"
#include "pawl/ckpt.h"
#include "store/store.h"

#include <pthread.h>
#include <sys/types.h>

#define SESSION_CHECK_EVERY                                                                        \
	20 /* saves: on the first and every such one the replicas' checksums are compared */
#define SESSION_NO_SLOT      (-2)
#define SESSION_NOTES_MAX    8
#define SESSION_DIVERGED_MAX 64

/* One partition of the save in progress; memory is kept from save to save. */
struct session_part {
	struct record_part *record; /* what the agent is told, in the session's records; what it
				       points to is owned here */
	struct zip_plan zip;        /* layout of the file */
	struct ckpt_span *spans;    /* storages and, last, the pickle */
	uint32_t spans_n;           /* of them */
	size_t piece_lo, piece_hi;  /* its pieces in the session's list */
};

/* A slot asked for. */
struct session_asked {
	bool open;               /* the answer was not heard yet */
	uint64_t id;             /* of the save */
	uint64_t step;           /* of it */
	uint64_t need_bytes;     /* asked for; kept for the next one. 0: never asked */
	struct link_call call;   /* the question */
	struct link_reply reply; /* the answer */
};

/* This process's mapping of one of its arenas. */
struct session_arena {
	uint8_t *map;        /* NULL: none */
	uint64_t size_bytes; /* of it */
	bool ready;          /* its pages are there */
};

/* What the ranks ask once a step, to be told alike. */
struct session_question {
	uint64_t polls;  /* how often it was asked */
	bool held;       /* the answer is about to be yes: */
	uint64_t seq;    /* QUESTION_DUE: while this is the last save that was asked for */
	uint64_t yes_at; /* from this poll on; UINT64_MAX: not known yet */
	bool late;       /* QUESTION_DUE: it has been answered no, as that took too long */
};

/* What is known of one save. */
struct session_status {
	uint64_t id;                    /* 0: none */
	struct pawl_ckpt_status status; /* as told */
	uint64_t seq;                   /* the agent's number for it; 0: not known to this agent */
	bool over;                      /* superseded: it will not become durable */
};

/* A save put together partition by partition. */
struct session_build {
	bool open;                     /* there is one */
	bool lost;                     /* what was staged was with an agent that is gone */
	uint64_t id;                   /* of it */
	int slot;                      /* granted; -1: stream; SESSION_NO_SLOT: not asked yet */
	uint64_t used_bytes;           /* of the arena */
	uint64_t last_bytes;           /* that the one before used: asked for first */
	int rv;                        /* of the copy of the newest partition */
	struct session_stream *stream; /* to the store; NULL: none yet */
};

struct pawl_ckpt {
	pid_t pid;                          /* that opened it: forks of it are dead */
	int64_t opened_ns;                  /* when, by the wall clock */
	bool abandoned;                     /* the process leaves because of an error */
	char abandoned_why[PROTO_TEXT_MAX]; /* which; else "" */
	struct pawl_ckpt_options options;   /* strings are owned copies */
	char *socket;                       /* owned; the agent's */
	struct link *link;                  /* NULL: not connected */
	struct snap *snap;                  /* the engine */

	pthread_mutex_t saving;      /* see above; guards all up to state */
	struct wire_out frame;       /* frames of saving and restoring */
	struct link_reply reply;     /* their replies */
	struct record_part *records; /* of the last structure, as told to the agent */
	struct session_part *parts;  /* of the last structure */
	uint32_t parts_n;            /* of them */
	struct ckpt_pieces pieces;   /* of the save in progress */
	struct record_piece *told;   /* the pieces as told; told_cap of them */
	size_t told_cap;             /* allocated */
	struct session_asked asked;  /* for a slot */
	bool counted; /* all ranks make all saves, which are matched by number; else by tag */
	struct session_arena arenas[LEDGER_SLOTS]; /* mapped */
	pthread_t preparer;                        /* puts pages into an arena that may be next */
	struct session_arena *preparing; /* which; NULL: there is no preparer to be joined */
	char stream_dir[STORE_NAME_MAX]; /* where it is streamed to, if it is */
	uint64_t seq_base; /* counted: last id before the ranks restored together; 0: never */
	uint32_t rounds;   /* counted: times they did, since this agent counts */
	struct session_build build; /* in pieces */
	uint64_t step;              /* of the save in progress */
	char tag[CKPT_TAG_MAX];     /* of it */
	uint32_t flags;             /* PAWL_SAVE_…, of it */
	bool summing;               /* it takes sums */
	enum snap_proof proof;      /* it has */
	int64_t begun_ns;           /* when the save in progress began */
	int64_t asked_ns;           /* when the next one was asked for; 0: not yet */

	pthread_mutex_t state;  /* see above; guards all below */
	pthread_cond_t changed; /* a status, or the connection, changed */
	uint64_t last_id;       /* newest save */
	uint64_t copying_id;    /* save whose copy goes on; 0: none */
	uint64_t building_id;   /* save that is put together; 0: none */
	struct session_status statuses[PAWL_CKPT_STATUS_KEPT]; /* by id modulo */
	bool withdrawn; /* the save in progress was withdrawn by the caller */
	struct session_question questions[QUESTIONS_N]; /* asked once a step */
	uint64_t missed;  /* number of a save that was due without this rank; 0: none */
	int64_t reach_ns; /* with saving: the agent is gone, and no other is sought before; 0: no */
	int64_t pause_ns; /* with saving: after it was sought in vain */
	char notes[SESSION_NOTES_MAX][PAWL_CKPT_NOTE_MAX];  /* to tell the user */
	uint32_t notes_n;                                   /* of them */
	bool hushed;                                        /* nobody awaits any more */
	char diverged[SESSION_DIVERGED_MAX][CKPT_NAME_MAX]; /* partitions whose replicas differ */
	uint32_t diverged_n;                                /* of them */
	struct wire_out done_frame;                         /* built by the engine's callback */
};

/* ---- session.c ---- */
bool session_dead(const struct pawl_ckpt *ckpt, struct pawl_err *err); /* a fork's copy */
/* Connects (again). Called with saving. */
int session_connect(struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Sets id's level unless it failed or is further already. */
void session_set_level(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level);
void session_set_failed(struct pawl_ckpt *ckpt, uint64_t id, int code, const char *why, int part,
	int storage);
/* The agent's number for a save; 0: it has none. */
uint64_t session_seq(struct pawl_ckpt *ckpt, uint64_t id);
/* With state: that of a counted save. */
uint64_t session_number(const struct pawl_ckpt *ckpt, uint64_t id);
/* All ranks have restored together: numbers begin anew. */
void session_restored(struct pawl_ckpt *ckpt, uint32_t rounds);
void session_set_seq(struct pawl_ckpt *ckpt, uint64_t id, uint64_t seq);

/* ---- session_notes.c ---- */
void session_note(struct pawl_ckpt *ckpt, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Receiving thread. */
void session_hear_news(struct pawl_ckpt *ckpt, struct wire_in *in);

/* ---- session_ask.c ---- */
/* With state: of the last save, or what the next one's follows. */
uint64_t session_last_number(const struct pawl_ckpt *ckpt);
/* With state: another agent counts rounds anew; what is known of the save to come stays. */
void session_recount(struct pawl_ckpt *ckpt);
/* With saving: fails the save that was due without this rank, so that it has its number here. */
void session_skip_missed(struct pawl_ckpt *ckpt);
/* Receiving thread. */
/* Answers how often this rank has asked, and holds the next question until it is known where all
 * are told yes. */
void session_hear_hold(struct pawl_ckpt *ckpt, struct wire_in *in);
void session_hear_yes_at(struct pawl_ckpt *ckpt, struct wire_in *in);

/* ---- session_slot.c ---- all called with saving, or alone */
/* Asks for a slot, unless that was done ahead and suffices. 0 and the slot (-1: stream), or why
 * there is none. */
int session_ask_slot(struct pawl_ckpt *ckpt, uint64_t id, uint64_t need_bytes, int *slot,
	struct pawl_err *err);
/* What was asked ahead, if anything, will not come. */
void session_take_back(struct pawl_ckpt *ckpt, const char *why);
/* This rank's next save will not come. Where ranks count, it has had its number. */
void session_skip(struct pawl_ckpt *ckpt, const char *why);
void session_forget_asked(struct pawl_ckpt *ckpt); /* the agent is gone */
void session_ask_lost(struct pawl_ckpt *ckpt);     /* the same, and its id is free again */
/* Puts pages into an arena that the save after this one may need, in the background. */
void session_prepare_rest(struct pawl_ckpt *ckpt, int slot);
/* Unmaps the arenas, once nobody writes to them any more. */
void session_drop_arenas(struct pawl_ckpt *ckpt);
void session_slot_deinit(struct pawl_ckpt *ckpt);

/* ---- session_save.c ---- */
/* Number of a new save; what it says is known at once even if it never starts. */
uint64_t session_new_save(struct pawl_ckpt *ckpt);
/* This rank's part of the save will not come: the agent tells the others. */
void session_tell_failed(struct pawl_ckpt *ckpt, struct wire_out *out, uint64_t id, int code,
	const char *why);
void session_save_deinit(struct pawl_ckpt *ckpt);
/* Lays out one partition more, of which all is to be saved, behind used_bytes of the arena.
 * PAWL_EEXIST if there is one of this name. */
int session_append_part(struct pawl_ckpt *ckpt, const struct pawl_ckpt_part *in,
	uint64_t used_bytes, struct pawl_err *err);
void session_free_parts(struct pawl_ckpt *ckpt);
/* Lists the pieces of partition p behind those that are listed. */
int session_list_part(struct pawl_ckpt *ckpt, uint32_t p, uint8_t *arena, struct pawl_err *err);
/* Connects if need be. */
int session_reach(struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Takes the lock for a save of tag (NULL: that of step), once the one before is copied. */
int session_enter(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	struct pawl_err *err);
void session_note_stall(struct pawl_ckpt *ckpt, uint64_t id);

/* ---- session_stream.c ---- */
struct session_stream; /* to the directory that the agent has made for the save in progress */
int session_stream_open(struct session_stream **out, struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Writes a partition that is laid out. */
int session_stream_part(struct session_stream *stream, struct pawl_ckpt *ckpt, uint32_t p,
	struct pawl_err *err);
void session_stream_close(struct session_stream *stream); /* NULL is fine */
/* Writes this rank's partitions to the store itself, and tells the agent. Called with saving, parts
 * laid out. */
int session_stream(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_err *err);
/* Tells the agent that all is staged. Engine's thread, or saving. */
void session_tell_staged(struct pawl_ckpt *ckpt, uint64_t id);

/* ---- session_restore.c ---- */
int session_restore_new(struct pawl_restore **restore, struct pawl_ckpt *ckpt,
	struct pawl_err *err);
/* Takes over what the agent offers: what is in ckpt's reply. Called with saving. */
int session_restore_take(struct pawl_restore *restore, struct pawl_ckpt *ckpt, struct wire_in *in,
	struct pawl_err *err);

#endif
