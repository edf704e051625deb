/*
 * One root of the agent: its ledger, its ranks and their arenas, its storage thread, and the
 * connections of its workers. Runs on the loop's thread alone. ckpt/root.h is the root as it is
 * stored.
 *
 * A file calls only those below it, except that root_alerts.c and conn.c call each other:
 *
 *   agent.c           accepts connections, runs the loop's callbacks
 *   requests.c        handles the frames of workers
 *   root_reap.c       handles the jobs that the storage thread has finished
 *   root.c            opens and closes a root; its workers come and go
 *   root_saves.c      carries out what the ledger decides of saves
 *   restore.c         has all ranks restore the same checkpoint
 *   restore_peers.c   brings a checkpoint here that the hosts have in memory
 *   root_epoch.c      begins an epoch
 *   root_chosen.c     has all hosts make the same saves durable, if the ranks span hosts
 *   root_hosts.c      talks to the other hosts, if the ranks span hosts
 *   root_peers.c      has other hosts hold replicas, if the ranks span hosts
 *   root_persist.c    hands jobs to the storage thread
 *   root_history.c    queues rows of the history and the events
 *   root_schedule.c   decides when the next save is due
 *   root_questions.c  has all ranks stop, or save, at the same step
 *   root_alerts.c     reports failures to users
 *   conn.c            sends frames to workers
 *   agent_progress.c  ends a drain, and the loop when idle
 */
#ifndef AGENT_ROOT_H
#define AGENT_ROOT_H

#include "agent/agent.h"
#include "agent/ledger/advice.h"
#include "agent/ledger/ledger.h"
#include "agent/peer/fetch.h"
#include "agent/peer/place.h"
#include "agent/persist/alerts.h"
#include "agent/persist/persist.h"
#include "io/listener.h"
#include "ipc/frames.h"
#include "ipc/tier.h"

struct agent_conn;
struct chooser;
struct peers;
struct replicator;

#define ROOT_PARTS_MAX 128u /* parts of saves that a host offers for a restore, at most */

/* A rank's BEGIN. */
struct agent_begin {
	uint32_t id;           /* request that waits for a grant; 0: none */
	int64_t received_ns;   /* when the request was received, monotonic ns */
	uint64_t need_bytes;   /* bytes of arena that the request needs */
	int64_t since_ns;      /* with ask.adds: oldest that the tag may be, wall clock */
	struct ledger_ask ask; /* the request as the ledger takes it */
};

/* A rank's BEGIN that was granted to stream. */
struct agent_stream {
	uint32_t id;  /* request that waits for the directory; 0: none */
	uint64_t seq; /* number of the save */
};

/* A rank's RESTORE, and how far the rank has come in its round. */
struct agent_restore_request {
	uint32_t id;   /* request that waits for an offer; 0: none */
	bool has_step; /* the request names a step */
	uint64_t step; /* step to restore, with has_step */
	/* The rank has this round's offer; its next request waits for the next round. */
	bool offered;
	uint32_t vote_id; /* VOTE that waits for the verdict; 0: none */
};

/* A question about the checkpoints there are. Earlier frames of other ranks may still wait in their
 * sockets, so the answer waits until those are read. */
struct agent_question {
	struct loop_timer timer; /* active: a question is pending */
	bool read;               /* the other sockets were read once */
	void (*answer)(struct agent_conn *conn, uint32_t id, const char *tag);
	uint32_t id;            /* request id */
	char tag[CKPT_TAG_MAX]; /* tag of the request */
};

/* A worker's connection, from accept on. */
struct agent_conn {
	struct agent *agent;       /* the agent that owns the connection */
	struct agent_root *root;   /* NULL until HELLO */
	struct loop_source socket; /* the connection */
	/* Pidfd of the worker, since its forks may keep the socket open; fd -1: none. */
	struct loop_source process;
	struct proto_conn io;            /* received bytes */
	uint32_t rank;                   /* index among the ranks of this host; valid with root */
	uint32_t job_rank;               /* rank in the job */
	uint32_t pid;                    /* pid of the worker, from the kernel */
	bool welcomed;                   /* HELLO was answered */
	bool hold_answered[QUESTIONS_N]; /* HOLD was answered */
	uint64_t polls[QUESTIONS_N];     /* how often the rank had asked, from POLL_COUNT */
	bool leaving;                    /* BYE was received */
	bool closing;                    /* to be freed when the callback returns */
	uint32_t hello_id;               /* request to answer once the root is open */
	struct agent_begin begin;        /* the last BEGIN */
	struct agent_stream stream;      /* the last BEGIN that was granted to stream */
	struct agent_question question;  /* not answered yet */
	uint32_t find_id;                /* FIND that waits for the store's answer; 0: none */
	struct agent_restore_request restore; /* the last RESTORE */
	int reading;                          /* slot that the worker copies out of, or -1 */
	bool fetches;                         /* the worker reads what is fetched from hosts */
	uint32_t fetch_id;                    /* FETCH that is not answered yet; 0: none */
	uint64_t arena_ids[LEDGER_SLOTS];     /* arenas whose descriptors the worker has */
	struct agent_conn *next;              /* next in the agent's list */
};

/* One rank's part of the memory tier. Outlives its worker. */
struct agent_rank {
	struct agent_conn *conn;             /* connected now, or NULL */
	bool seen;                           /* has connected in this epoch */
	uint64_t asked_seq;                  /* newest save that the rank requested or failed */
	struct arena arenas[LEDGER_SLOTS];   /* one for each generation */
	struct record records[LEDGER_SLOTS]; /* records of the arenas; block NULL: none */
	struct wire_out blobs[LEDGER_SLOTS]; /* records as received, for restoring workers */
	uint64_t stall_ns[LEDGER_SLOTS];     /* duration of save(), by slot */
	uint64_t stage_ns[LEDGER_SLOTS];     /* time until all was copied, by slot */
};

enum restore_state {
	RESTORE_IDLE,
	RESTORE_RESOLVING, /* the storage thread looks for a checkpoint */
	RESTORE_FETCHING,  /* the hosts have it in memory: its records are fetched */
	RESTORE_OFFERED,
	RESTORE_VOTED, /* all ranks here have voted; waits for the other hosts */
};

/* One round in which all ranks restore the same checkpoint, or none. */
struct agent_restore {
	enum restore_state state;
	bool has_step;            /* only asked_step will do */
	uint64_t asked_step;      /* step of the request, with has_step */
	uint64_t step;            /* step of the offer */
	char tag[CKPT_TAG_MAX];   /* tag of the offer */
	uint32_t offered;         /* number of ranks that have the offer */
	int slot;                 /* slot of the offer in memory; -1: in the store */
	bool nothing;             /* the offer: there is no checkpoint */
	uint32_t voted;           /* number of ranks that voted */
	uint8_t verdict;          /* worst verdict so far */
	char why[PROTO_TEXT_MAX]; /* reason of the worst verdict */
};

/* The nonce with which rank 0's host began in a root of this path. */
struct agent_nonce {
	char *path;     /* owned; NULL: entry is unused */
	uint64_t nonce; /* random number of the host's start */
};

/* A root in which another host's ranks were told to stop. */
struct agent_stop {
	char *path;      /* owned; NULL: entry is unused */
	bool unreported; /* the owner is to hear that no rank here has asked */
};

enum root_state { ROOT_OPENING, ROOT_OPEN, ROOT_FAILED };

/* The current epoch: one start of the ranks. */
struct root_epoch {
	uint32_t attempt; /* attempt number of the ranks */
	uint64_t number;  /* counts the epochs of this root */
	uint32_t rounds;  /* how often all ranks have restored in this epoch */
	int64_t begun_ns; /* when the epoch began, wall clock */
};

/* Whether workers are there, and how the last ones ended. */
struct root_workers {
	bool running;    /* workers came, and their end is not in the events yet */
	bool crashed;    /* a worker of this epoch ended without BYE */
	bool left;       /* all workers of this epoch have left on purpose */
	int64_t left_ns; /* when the last worker left, monotonic ns */
	/* A worker left though its newest save was not durable. */
	bool left_not_durable;
	struct loop_timer orphan; /* fires a while after the last worker's end */
};

/* What the agent knows of saves besides the ledger. */
struct root_saves {
	uint64_t memory_bytes; /* requested size of the memory tier; 0: automatic */
	bool logged_no_spare;  /* the log says that memory has no room for the spare slot */
	/* epoch.begun_ns when each slot's save began; earlier if a rank adds to an older tag. */
	int64_t since_ns[LEDGER_SLOTS];
	/* With ranks on other hosts: last save that this host has failed for all hosts, by the
	 * number that root_hosts_refuse got. */
	uint64_t failed_seq;
	bool stream_ready;               /* the directory for streaming ranks exists */
	char stream_dir[STORE_NAME_MAX]; /* name of that directory */
};

/* The storage thread, and what it has done. */
struct root_storage {
	struct persist *thread;
	struct persist_job save;         /* job of the slot being persisted */
	struct persist_rank *save_ranks; /* ranks of that job, ledger.world entries */
	struct loop_timer slow;          /* fires when that job takes too long */
	bool has_durable;                /* durable_tag is valid */
	char durable_tag[CKPT_TAG_MAX];  /* newest tag made durable, or restored from the store */
	bool failed_since_drain;         /* a persist has failed since agent_drain */
	bool space_checked;              /* free space was checked in this epoch */
	uint32_t pending_changes;        /* pins and removals accepted and not yet done */
};

/* Rows of the history that are not queued yet. */
struct root_history {
	struct history_row rows[LEDGER_SLOTS]; /* row of the save in each slot, as far as known */
	bool is_open[LEDGER_SLOTS];            /* the row is not in the history yet */
	uint64_t refused_seq;                  /* newest save whose failure is in the history */
	char refused_tag[CKPT_TAG_MAX];        /* tag of the last such save without a slot */
};

/* State of the questions that all ranks answer alike: see root_hold. */
struct root_questions {
	bool hold_sent[QUESTIONS_N]; /* HOLD was sent to the workers */
	/* YES_AT was sent to the workers or, if the hosts agree, polls has their answer. */
	bool settled[QUESTIONS_N];
	/* If the hosts agree (root_asks_hosts): */
	bool unreported[QUESTIONS_N]; /* the owner is to hear of polls */
	uint64_t polls[QUESTIONS_N];  /* how often a rank here had asked, at most */
	uint64_t run; /* run in which the ranks here are asked whether a save is due */
	uint64_t seq; /* number of the last save, in that question */
	/* Rank 0's host has asked whether a save is due, after the save wanted_seq of the run
	 * wanted_run, to which the ranks here have not come. */
	bool wanted;
	uint64_t wanted_run, wanted_seq;
	bool needs_run; /* rank 0's host could not ask yet: it knows of no run */
};

/* When the next save is due. */
struct root_schedule {
	struct advice advice; /* how often saving pays */
	bool auto_interval;   /* the ledger's interval is the advised one */
	bool save_soon;       /* a save is due as soon as all ranks are there; until one is begun */
	bool durable_next;    /* the next save that is committed is made durable at once */
	uint64_t asked_seq;   /* newest save that a rank requested or failed */
	int64_t asked_ns;     /* when asked_seq was first requested, or workers came */
	struct loop_timer due; /* fires when the next save is due */
};

/* What is known of other hosts' agents, and what they hold of this root. */
struct root_peers {
	bool has_links;                       /* the ranks span hosts whose agents have links */
	uint64_t root;                        /* number of the root: peer_root */
	struct peer_map map;                  /* hosts of the run in force; run 0: there is none */
	bool entering;                        /* a run was asked for, and is not known yet */
	uint32_t begins;                      /* PERSIST_BEGIN jobs that have not ended */
	struct replicator *replicator;        /* sends replicas; NULL: nobody does */
	struct peer_save saves[LEDGER_SLOTS]; /* save in each slot, as all hosts know it */
	uint64_t kept_steps[2];               /* highest steps kept in this run, descending */
	struct peer_save global;              /* newest save that the ranks know is replicated */
	struct peer_save restored;            /* save of memory that the ranks went on from last */
	uint64_t failures;                    /* failures that were reported */
	/* For root_chosen.c. */
	bool chooses;                /* rank 0's host chooses which saves become durable */
	struct chooser *chooser;     /* NULL: none was needed yet */
	uint64_t seqs[LEDGER_SLOTS]; /* save in each slot that ranks may wait for; 0: none */
	uint64_t past; /* highest number of a save that was committed here, or failed here */
	/* Not handled yet; run 0: none. Leader: what another host wants. Other hosts: what the
	 * leader has chosen. */
	struct peer_save pending;
	int64_t since_ns; /* when pending came, monotonic ns */
	int64_t look_ns;  /* when to look whether the run is over, monotonic ns */
	/* A restore from the memory of the hosts, from its offer until all ranks here have read. */
	struct peer_fetch *fetch;  /* NULL: there is none */
	struct recover_plan *plan; /* what is restored; owned; NULL: nothing is */
};

struct agent_root {
	struct agent *agent;    /* the agent that owns this root */
	char *path;             /* owned; absolute */
	enum root_state state;  /* state of the storage */
	struct pawl_err failed; /* why ROOT_FAILED */
	uint32_t first_rank;    /* number of the first rank here */
	uint32_t remote_ranks;  /* ranks of the job on other hosts */
	/* Saves have tags. With remote ranks, the ledger still matches them by number. */
	bool named;
	struct ledger ledger;     /* decisions */
	struct agent_rank *ranks; /* ledger.world entries */
	struct root_epoch epoch;
	struct root_workers workers;
	struct root_saves saves;
	struct root_storage storage;
	struct root_history history;
	struct root_questions questions;
	struct root_schedule schedule;
	struct agent_restore restore; /* round in progress */
	struct root_peers peers;
	struct loop_timer tick;                 /* fires when the ledger is to be asked next */
	struct alert_state alerts[ALERT_KINDS]; /* state of each kind of failure */
	struct agent_root *next;                /* next in the agent's list */
};

struct agent {
	int pid;                  /* pid of this process */
	struct loop *loop;        /* loop of the process */
	char *job;                /* owned */
	char *socket;             /* owned; path */
	int lock_fd;              /* lock file beside the socket */
	bool any_attempt;         /* see agent_options */
	uint32_t attempt;         /* current attempt number */
	int64_t idle_exit_ns;     /* see agent_options */
	bool close_idle_roots;    /* see agent_options */
	bool log_visible;         /* see agent_options */
	bool left_not_durable;    /* a worker of this attempt left: see agent_left_not_durable */
	struct listener listener; /* accepts */
	struct loop_timer idle;   /* ends the loop when idle */
	struct agent_conn *conns; /* all connections */
	struct agent_root *roots; /* all roots */
	struct peers *peers;      /* see agent_set_peers; NULL: none */
	char *notice;             /* why workers should stop, or NULL */
	char *imports;            /* module names that a worker reported, or NULL; owned */
	void (*imported)(void *user); /* see agent_on_imports */
	void *imported_user;
	void (*begun)(void *user, const char *path, uint64_t nonce); /* see agent_on_begun */
	void *begun_user;
	/* See agent_on_scale. */
	int (*scale)(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err);
	void *scale_user;
	void (*preempted)(void *user, int64_t left_ns); /* see agent_on_preempt */
	void *preempted_user;
	struct agent_nonce nonces[AGENT_NONCES_MAX];               /* newest first, by path */
	void (*polled)(void *user, const struct agent_poll *poll); /* see agent_on_polled */
	void *polled_user;
	struct loop_timer poll_timer;             /* due at once: something is unreported */
	struct agent_stop stops[AGENT_STOPS_MAX]; /* newest first */
	void (*drained)(void *user, bool ok);     /* see agent_drain; NULL: not draining */
	void *drained_user;
	struct wire_out scratch; /* frames are built here */
};

/* ---- requests.c ---- */
/* Handles a frame; marks the connection closing if the frame is malformed. */
void frame_handle(struct agent_conn *conn, struct proto_frame *frame);

/* ---- root_reap.c ---- */
/* Handles the jobs that the storage thread has finished, and its alerts. */
void root_reap(struct agent_root *root);

/* ---- root.c ---- */
int root_open(struct agent *agent, const char *path, const struct persist_options *options,
	int64_t interval_ns, struct agent_root **out, struct pawl_err *err);
void root_close(struct agent_root *root);
/* Returns the root of that path, or NULL. */
struct agent_root *root_find(const struct agent *agent, const char *path);
/* Adds the rank of a worker that sent HELLO to an open or opening root; PAWL_EBUSY if the rank
 * runs already. */
int root_join(struct agent_root *root, struct agent_conn *conn, uint32_t world, uint32_t attempt,
	struct pawl_err *err);
void root_leave(struct agent_root *root, struct agent_conn *conn);

/* ---- root_saves.c ---- */
/* Returns how many times, up to LEDGER_SLOTS, need_bytes for each rank here fit the budget. */
uint32_t root_fits(const struct agent_root *root, uint64_t need_bytes);
void root_staged(struct agent_root *root, struct agent_conn *conn,
	const struct frame_staged *staged);
/* Fails the save of this number, which rank was granted. Named saves, with seq 0: fails a save of
 * this tag that was not granted. */
void root_fail(struct agent_root *root, uint32_t rank, uint64_t seq, const char *tag, int code,
	const char *why);
/* Named saves: see ledger_move_on. */
void root_move_on(struct agent_root *root, uint32_t rank, enum ledger_move move, const char *tag);
/* Answers the ranks of a streamed save: its directory exists, or could not be made. */
void root_streams_ready(struct agent_root *root, const struct persist_job *job);
/* Drops what a rank has in a slot, and frees its memory. */
void root_free_slot(struct agent_rank *rank, int slot);
/* Asks the ledger again about waiting saves and the next persist. Called after anything that may
 * have changed its answer. */
void root_advance(struct agent_root *root);

/* ---- restore.c ---- */
/* A rank asks to restore. The answer may wait for the other ranks, or for the store. */
void restore_ask(struct agent_root *root, struct agent_conn *conn, uint32_t id,
	const struct frame_restore *asked);
/* Starts a round for the ranks that wait for one, if their job spans hosts and it may start now. */
void restore_advance(struct agent_root *root);
void restore_resolved(struct agent_root *root, struct persist_job *job);
/* Goes on with a round once what it restores from the memory of hosts can be offered. */
void restore_reap(struct agent_root *root);
/* Counts a vote. id: the request, which the verdict answers; 0: the rank does not wait for it. */
void restore_vote(struct agent_root *root, struct agent_conn *conn, uint32_t id, uint8_t verdict,
	const char *why);
/* Handles the verdict of all hosts. */
void restore_voted(struct agent_root *root, const struct persist_job *job);
/* The rank no longer reads a slot. */
void restore_done(struct agent_root *root, struct agent_conn *conn);
/* The bytes of a tag are damaged: drops it from memory, or puts it aside in the store. */
void restore_condemn(struct agent_root *root, bool memory, const char *tag, const char *why);
/* Offers tag ("": the newest) to this rank alone. */
void restore_find(struct agent_root *root, struct agent_conn *conn, uint32_t id, const char *tag);

/* ---- restore_peers.c ---- */
/* Begins to fetch what plan, which it takes over, says. restore_peers_end must follow. */
int restore_peers_begin(struct agent_root *root, struct recover_plan *plan, struct pawl_err *err);
/* Returns how far that is; FETCH_FAILED: err says why. */
enum peer_fetch_state restore_peers_state(struct agent_root *root, struct pawl_err *err);
/* Offers it to a rank; only when ready. */
void restore_peers_offer(struct agent_root *root, struct agent_conn *conn, uint32_t id);
/* A rank wants to read a part of the offer. Answers once it is here. */
void restore_fetch(struct agent_root *root, struct agent_conn *conn, uint32_t id,
	const struct frame_fetch *fetch);
/* Answers the ranks whose bytes have come. */
void restore_peers_reap(struct agent_root *root);
/* A rank reads no more. */
void restore_peers_done(struct agent_root *root, struct agent_conn *conn);
/* Forgets the restore, if there is one; ranks' mappings stay. */
void restore_peers_end(struct agent_root *root);

/* ---- root_epoch.c ---- */
/* The ranks begin (anew): drops their connections and the saves that they are staging. */
void root_new_epoch(struct agent_root *root, uint32_t world, uint32_t attempt);
/* The run is over: begins a new epoch, unless the ranks have done so since epoch. They find out
 * when they next ask for anything. */
void root_epoch_over(struct agent_root *root, uint64_t epoch, const char *why);

/* ---- root_hosts.c: a job whose ranks span hosts, see agree.h ---- */
/* The ranks here begin (anew). Saves committed in the epoch before cannot become durable any more,
 * unless they are being persisted. */
void root_hosts_begin(struct agent_root *root);
/* Handles the result of root_hosts_begin. */
void root_hosts_begun(struct agent_root *root, const struct persist_job *job);
/* Passes the nonce of agent_expect_nonce on, if it is for this root. */
void root_hosts_expect_nonce(struct agent_root *root);
/* Save seq failed here, and so fails on all hosts. Where rank 0's host chooses what becomes
 * durable, the others learn that only if it chooses this one. */
void root_hosts_fail_save(struct agent_root *root, uint64_t seq, int code, const char *why);
/* Tells all hosts that this host's part in a save fails. number: that of this host's ranks or,
 * where rank 0's host chooses, root_peers_number. */
void root_hosts_refuse(struct agent_root *root, uint64_t number, int code, const char *why);
/* All ranks here have voted: asks for the verdict of all hosts. Without memory for that, refuses
 * the restore and returns false. */
bool root_hosts_vote(struct agent_root *root);

/* ---- root_chosen.c: nothing happens unless rank 0's host chooses what becomes durable ---- */
/* A rank joins: whether rank 0's host chooses is settled anew. */
int root_chosen_join(struct agent_root *root, struct pawl_err *err);
/* Handles what other hosts have chosen or want, and asks the leader for what somebody waits for
 * here. Returns whether it is to be called again after a while. */
bool root_chosen_advance(struct agent_root *root);
/* The save in a slot is durable: older ones are superseded. */
void root_chosen_durable(struct agent_root *root, int slot);
/* A slot was not made durable. Returns whether that is no failure, since some host has a newer save
 * instead; then the slot is dropped. */
bool root_chosen_superseded(struct agent_root *root, int slot, const struct pawl_err *err);
/* Whether a restore may start: all that would not be kept for it is durable. */
bool root_chosen_may_restore(const struct agent_root *root);
/* A restore starts: keeps what is committed and not durable, as the hosts may restore it. */
void root_chosen_keep(struct agent_root *root);

/* ---- root_peers.c: nothing happens in a root without links ---- */
void root_peers_open(struct agent_root *root);
void root_peers_close(struct agent_root *root);
/* The ranks begin anew, and PERSIST_BEGIN was submitted: the run that was in force is over. */
void root_peers_begin(struct agent_root *root);
/* PERSIST_BEGIN has ended. */
void root_peers_begun(struct agent_root *root);
/* Returns the number by which all hosts know the save seq of this host's ranks. */
uint64_t root_peers_number(const struct agent_root *root, uint64_t seq);
/* Whether the save in a slot is all of its tag, and lies in memory. */
bool root_peers_is_whole(const struct agent_root *root, int slot);
/* Has the storage thread enter the run of the hosts, or look whether it is over. */
void root_peers_enter(struct agent_root *root);
/* Save seq was committed here, or has failed here. */
void root_peers_past(struct agent_root *root, uint64_t seq);
/* The ranks begin anew. */
void root_peers_reset(struct agent_root *root);
/* The save in a slot will reach no higher level. Where rank 0's host chooses what becomes durable,
 * tells the ranks. */
void root_peers_supersede(struct agent_root *root, int slot);
/* A slot was handed to the storage thread. If this is rank 0's host, and chooses what becomes
 * durable, has all hosts make the save durable. */
void root_peers_choose(struct agent_root *root, int slot);
/* A save is committed in a slot. */
void root_peers_commit(struct agent_root *root, int slot);
/* The memory of a slot is about to change. */
void root_peers_withdraw(struct agent_root *root, int slot);
/* The save in a slot cannot become durable any more. Keeps it, since all hosts may restore it
 * together: takes the memory out of the slot, which the ledger is to drop. */
void root_peers_keep(struct agent_root *root, int slot);
/* Lists the parts of saves that this host holds. The caller frees *parts, which is NULL if there
 * are none. */
int root_peers_list(const struct agent_root *root, struct peer_part **parts, uint32_t *parts_n,
	struct pawl_err *err);
/* The ranks go on from this step; newest: it is the newest that all hosts have. */
void root_peers_restored(struct agent_root *root, uint64_t step, bool newest);
/* Drops what this host holds of a save. */
void root_peers_drop(struct agent_root *root, const struct peer_save *save);
/* A save of this step is durable: drops what this host holds of that save and of older ones. */
void root_peers_durable(struct agent_root *root, uint64_t step);
/* Handles what threads report. */
void root_peers_reap(struct agent_root *root);
/* Frees memory that is kept for replicas to come. Returns whether there was any. */
bool root_peers_trim(const struct agent_root *root);

/* ---- root_persist.c ---- */
/* Makes a job of the current epoch for the storage thread; root_reap frees it. NULL: no memory. */
struct persist_job *root_job(struct agent_root *root, enum persist_kind kind, const char *tag);
/* Submits a job whose result is not needed. Without memory the job is skipped: all such jobs only
 * clean up. */
void root_submit(struct agent_root *root, enum persist_kind kind, const char *tag);
/* Hands a committed slot to the storage thread. The ledger keeps the slot from all others until the
 * job is reaped. */
void root_persist(struct agent_root *root, int slot);
/* Has the storage thread check the free space, once an epoch, after a commit that is not persisted
 * at once: so a full disk is reported before the first interval ends. */
void root_check_space(struct agent_root *root, int slot);
/* Reports that the write of one save takes long. */
void root_slow_fired(struct loop_timer *timer);
/* Reports that a committed slot could not be made durable. The slot stays, and is tried again. */
void root_persist_failed(struct agent_root *root, int slot, const struct pawl_err *err);
/* Reports "global_step5 is not durable: …", with the newest tag that is durable. */
void root_report_failed(struct agent_root *root, const char *tag, const struct pawl_err *err);

/* ---- root_history.c ---- */
/* A save began in a slot; the one that was there is superseded. */
void root_row_begin(struct agent_root *root, int slot, const struct ledger_ask *ask);
/* All ranks staged the save of a slot. */
void root_row_commit(struct agent_root *root, int slot);
/* Closes the row of a slot. why: the reason that the save is not durable; NULL: the storage thread
 * wrote the row. */
void root_row_end(struct agent_root *root, int slot, const char *why);
/* A save that never had a slot failed. */
void root_row_refuse(struct agent_root *root, const struct ledger_ask *ask, const char *why);
/* Closes the rows of slots that were emptied since a later save is durable; with all, every row,
 * because the agent leaves. */
void root_rows_sweep(struct agent_root *root, bool all);
/* Queues a row for an event of the workers. why may be NULL. */
void root_event(struct agent_root *root, enum event_kind kind, const char *why);

/* ---- root_questions.c ---- */
/*
 * Has a question answered yes. Ranks ask "shall I stop?" and "is a save due?" once a step. All must
 * get the same answer at the same step, or one would leave the others waiting in a collective. So
 * on HOLD each rank reports how often it has asked (POLL_COUNT) and holds its next question; all
 * get yes at the highest count plus one (YES_AT). A save ends the question whether one is due: HOLD
 * carries the number of the last save, so that a rank that is ahead is not asked twice.
 *
 * Saves are counted, so either all ranks get yes, or none: HOLD is sent once all have come to the
 * last save.
 *
 * Where ranks span hosts, each host does that for its own ranks, and reports the highest count to
 * the owner of the agent, who finds the highest of all hosts. Any host may have its ranks told to
 * stop: the others follow (agent_hold). Only rank 0's host asks whether a save is due. The others
 * follow once their ranks have come to that save. Ranks that are ahead answer, and are asked
 * nothing: they got no before their next save, as will the others, because the count for yes is
 * higher than theirs. The run is part of that question, because ranks that begin anew count from
 * the start.
 */
void root_hold(struct agent_root *root, enum proto_question question);
/* Whether the ranks span hosts and the owner brings them together. */
bool root_asks_hosts(const struct agent_root *root);
/* Whether all ranks are here and have come to a save. */
bool root_has_come_to(const struct agent_root *root, uint64_t seq);
/* Another host's ranks are asked. */
void root_hold_too(struct agent_root *root, const struct agent_poll *poll);
/* Asks what rank 0's host has asked, if the ranks here have come to it. Returns whether that, or a
 * question of this host, waits for the run of the hosts to be known. */
bool root_hold_wanted(struct agent_root *root);
/* The hosts have agreed. */
void root_yes_at(struct agent_root *root, const struct agent_poll *poll);
/* Calls the owner with what is unreported. */
void root_report_polls(struct agent_root *root);
/* Has all ranks stop. The step at which they do is settled once. */
void root_request_stop(struct agent_root *root);
/* Called when a rank's count is in. Once all counts are, sends all ranks the count for yes. */
void root_settle(struct agent_root *root, enum proto_question question);
/* A rank whose count may be missing has left: the others need not wait for it. */
void root_settle_all(struct agent_root *root);

/* ---- root_schedule.c ---- */
/* A rank requested save seq, or failed it. The next save is due an interval after the first rank
 * that does. */
void root_asked(struct agent_root *root, uint32_t rank, uint64_t seq);
/* Sets the number of the last save that a rank made before it connected. */
void root_set_last_seq(struct agent_root *root, uint32_t rank, uint64_t seq);
/* Resets the numbers of saves, for new workers, which have made none. */
void root_reset_seqs(struct agent_root *root);
/* All ranks have restored together and count saves from there. A rank may have begun a save
 * already. */
void root_restart_count(struct agent_root *root);
/* The save in progress took the slowest rank stall_ns: schedules the next save anew. */
void root_saved(struct agent_root *root, uint64_t stall_ns);
/* Workers came or restored, or (running false) have ended: schedules the next save anew. */
void root_set_running(struct agent_root *root, bool running);
/* As agent_save_soon; root_advance must follow. */
void root_save_soon(struct agent_root *root);
/* Adds the failures that earlier agents recorded in this root. */
void root_add_past(struct agent_root *root, const struct events_past *past);
void root_init_advice(struct agent_root *root);
/* With auto_interval: gives the advised interval to the ledger. */
void root_advise(struct agent_root *root);
/* The next save is due: asks the ranks, or tries again soon; root_advance must follow. */
void root_due(struct agent_root *root);

/* ---- root_alerts.c: see alerts.h ---- */
void root_alert(struct agent_root *root, const struct alert *alert);
/* A rank was welcomed: if it is the reporter, sends it the active alerts. */
void root_send_alerts(struct agent_conn *conn);
/* Returns the most important active alert; NULL: there is none. */
const struct alert_state *root_worst_alert(const struct agent_root *root);

/* ---- conn.c ---- */
/* Sends a frame; id 0: an event; body: see frame_encode. On failure the connection is marked
 * closing. */
void conn_send(struct agent_conn *conn, enum proto_type type, uint32_t id, const void *body);
/* Sends a frame with descriptors, which stay the caller's. */
void conn_send_fds(struct agent_conn *conn, enum proto_type type, uint32_t id, const void *body,
	const int *fds, uint32_t fds_n);
void conn_reply_ok(struct agent_conn *conn, uint32_t id);
void conn_reply_error(struct agent_conn *conn, uint32_t id, const struct pawl_err *err);
void conn_send_welcome(struct agent_conn *conn); /* answers HELLO */
/* Sends the workers the level that a save has reached, or that it failed. */
void root_send_level(struct agent_root *root, uint64_t seq, enum proto_level level, int code,
	const char *why);
/* Tells the ranks that they hold a partition differently: from now on each rank saves its own. */
void root_send_diverged(struct agent_root *root, const char *part);

/* ---- agent_progress.c ---- */
/* Called after a change that a drain or the idle timer may wait for. */
void agent_progress(struct agent *agent);
/* Stops the loop if nothing is left to do; else looks again later. */
void agent_idle_fired(struct loop_timer *timer);

#endif
