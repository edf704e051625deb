/*
 * One root as the agent sees it: its ledger, its ranks and their arenas, its storage thread, and
 * the connections of its workers. Runs on the loop's thread alone.
 *
 *   agent.c         accepts and dispatches
 *   frames.c        handles the frames of workers
 *   root.c          carries out what the ledger decides
 *   root_persist.c  brings generations to the store
 *   root_hosts.c    deals with the other hosts of a job
 *   root_history.c  notes rows of the history and the events
 *   root_alert.c     says what goes wrong
 *   root_ask.c      lets the ranks stop and save together
 *   restore.c       lets the ranks agree on what to load
 */
#ifndef AGENT_ROOT_H
#define AGENT_ROOT_H

#include "agent/agent.h"
#include "agent/ledger/advice.h"
#include "agent/ledger/ledger.h"
#include "agent/persist/alerts.h"
#include "agent/persist/storage_thread.h"
#include "io/listener.h"
#include "ipc/frames.h"
#include "ipc/tier.h"

struct agent_conn;

/* A question about the checkpoints there are. Earlier frames of other ranks may still lie in their
 * sockets: the answer waits until those were read. */
struct agent_question {
	struct loop_timer timer; /* active: there is a question */
	bool read;               /* the other sockets were read once */
	void (*answer)(struct agent_conn *conn, uint32_t id, const char *tag);
	uint32_t id;            /* request id */
	char tag[CKPT_TAG_MAX]; /* tag asked for */
};

/* A worker's connection, from accept on. */
struct agent_conn {
	struct agent *agent;       /* the agent that owns the connection */
	struct agent_root *root;   /* NULL until HELLO */
	struct loop_source socket; /* the connection */
	/* Pidfd of the worker, as its forks may keep the socket open; fd -1: none. */
	struct loop_source process;
	struct proto_conn io;            /* received bytes */
	uint32_t rank;                   /* place among the ranks of this host; valid with root */
	uint32_t job_rank;               /* rank in the job */
	uint32_t pid;                    /* pid of the worker, as the kernel says */
	bool welcomed;                   /* HELLO was answered */
	bool hold_answered[QUESTIONS_N]; /* answered HOLD */
	uint64_t polls[QUESTIONS_N];     /* polls in its HELD: how often it had asked */
	bool leaving;                    /* said BYE */
	bool closing;                    /* to be freed when the callback returns */
	uint32_t hello_id;               /* request to answer once the root is open */
	uint32_t begin_id;               /* request that waits for a grant; 0: none */
	int64_t begin_ns;                /* when the request came, monotonic ns */
	uint64_t begin_bytes;            /* bytes of arena that the request needs */
	int64_t begin_since_ns;          /* with adds: oldest that the tag may be, wall clock */
	struct ledger_ask ask;           /* contents of the request */
	uint64_t begin_seq;              /* number of the save that was granted to stream */
	struct agent_question question;  /* not answered yet */
	uint32_t find_id;                /* FIND that waits for the store's answer; 0: none */
	uint32_t stream_id;    /* BEGIN granted to stream, waits for the directory; 0: none */
	uint32_t restore_id;   /* request that waits for an offer; 0: none */
	uint32_t vote_id;      /* request that waits for the verdict; 0: none */
	bool restore_has_step; /* the restore names a step: restore_step */
	uint64_t restore_step; /* step to restore, with restore_has_step */
	/* The rank has this round's offer; its next request waits for the next round. */
	bool offered;
	int reading;                      /* slot that the worker copies out of, or -1 */
	uint64_t arena_ids[LEDGER_SLOTS]; /* arenas whose descriptors the worker has */
	struct agent_conn *next;          /* next in the agent's list */
};

/* One rank's part of the memory tier. Outlives its worker. */
struct agent_rank {
	struct agent_conn *conn;             /* connected now, or NULL */
	bool seen;                           /* connected in this epoch */
	uint64_t asked_seq;                  /* newest save that the rank asked for or failed */
	struct arena arenas[LEDGER_SLOTS];   /* one for each generation */
	struct record records[LEDGER_SLOTS]; /* records of the arenas; block NULL: nothing */
	struct wire_out blobs[LEDGER_SLOTS]; /* records as they came, for restoring workers */
	uint64_t stall_ns[LEDGER_SLOTS];     /* how long save() took, by slot */
	uint64_t stage_ns[LEDGER_SLOTS];     /* time until all was copied, by slot */
};

enum restore_state {
	RESTORE_IDLE,
	RESTORE_RESOLVING, /* the store looks for a checkpoint */
	RESTORE_OFFERED,
	RESTORE_VOTED, /* all ranks here have voted; other hosts are asked */
};

/* One round in which all ranks restore the same, or nothing. */
struct agent_restore {
	enum restore_state state;
	bool has_step;            /* only one step will do */
	uint64_t asked_step;      /* the step asked for, with has_step */
	uint64_t step;            /* step of the offer */
	char tag[CKPT_TAG_MAX];   /* tag of the offer */
	uint32_t offered;         /* ranks that have the offer */
	int slot;                 /* slot of the offer in memory; -1: in the store */
	bool nothing;             /* the offer is that there is nothing */
	uint32_t voted;           /* ranks that voted */
	uint8_t verdict;          /* worst verdict so far */
	char why[PROTO_TEXT_MAX]; /* reason of the worst verdict */
};

/* Word that rank 0's host has begun in a root of this path. */
struct agent_nonce {
	char *path;     /* owned; NULL: entry is unused */
	uint64_t nonce; /* random number of the host's start */
};

enum root_state { ROOT_OPENING, ROOT_OPEN, ROOT_FAILED };

struct agent_root {
	struct agent *agent;    /* the agent that owns this root */
	char *path;             /* owned; absolute */
	enum root_state state;  /* state of the storage */
	struct pawl_err failed; /* why ROOT_FAILED */
	uint32_t first_rank;    /* number of the first rank here */
	uint32_t remote_ranks;  /* ranks of the job on other hosts */
	/* Saves have tags; with ranks elsewhere the ledger counts them all the same. */
	bool named;
	uint32_t attempt; /* attempt number of the ranks in this epoch */
	uint64_t epoch;   /* number of the epoch */
	uint32_t rounds;  /* how often all ranks have restored in this epoch */
	/* With ranks elsewhere: newest save that the other hosts were told will not come from
	 * here. */
	uint64_t failed_seq;
	int64_t epoch_ns; /* when the epoch began, wall clock */
	/* epoch_ns when each slot's save began; earlier, if a rank adds to an older tag. */
	int64_t since_ns[LEDGER_SLOTS];
	uint64_t memory_bytes;                 /* asked for the tier; 0: automatic */
	struct ledger ledger;                  /* decisions */
	struct agent_rank *ranks;              /* ledger.world entries */
	struct persist *persist;               /* storage thread */
	struct persist_job save_job;           /* job of the slot being persisted */
	struct persist_rank *save_ranks;       /* ranks of save_job */
	struct history_row rows[LEDGER_SLOTS]; /* row of the save in each slot, as far as known */
	bool row_open[LEDGER_SLOTS];           /* the row is not in the history yet */
	uint64_t row_seq;                      /* newest save whose failure is in the history */
	char row_tag[CKPT_TAG_MAX];            /* tag of the last such save without a slot */
	bool running;                    /* workers came, and their end is not in the events yet */
	struct agent_restore restore;    /* round in progress */
	struct loop_timer tick;          /* fires when the ledger wants to be asked next */
	struct loop_timer orphan;        /* fires a while after the last worker vanished */
	bool crashed;                    /* a worker of this epoch went without a word */
	bool left;                       /* all workers of this epoch have left on purpose */
	bool left_not_durable;           /* a worker left though its newest save was not durable */
	int64_t left_ns;                 /* when the last worker left, monotonic ns */
	bool hold_sent[QUESTIONS_N];     /* the workers were told to hold the question */
	bool settled[QUESTIONS_N];       /* the workers were told when the answer is yes */
	struct advice advice;            /* how often it is worth it to save */
	bool auto_interval;              /* the ledger's interval is the advised one */
	uint64_t asked_seq;              /* newest save that a rank asked for or failed */
	int64_t asked_ns;                /* when asked_seq was first asked for, or workers came */
	struct loop_timer due;           /* fires when a save is worth it again */
	uint32_t pending_changes;        /* pins and removals accepted and not yet done */
	bool logged_no_spare;            /* the log says that memory takes no spare slot */
	bool stream_ready;               /* the directory for streaming ranks is there */
	char stream_dir[STORE_NAME_MAX]; /* name of that directory */
	bool has_durable;                /* durable_tag is valid */
	char durable_tag[CKPT_TAG_MAX];  /* newest made durable by this agent */
	bool failed_since_drain;         /* a persist has failed since agent_drain */
	struct alert_state alerts[ALERT_KINDS]; /* trouble of each kind */
	struct loop_timer slow;                 /* fires when the storage thread takes too long */
	bool space_checked;      /* the room in the store was checked in this epoch */
	struct agent_root *next; /* next in the agent's list */
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
	char *notice;             /* why workers should stop, or NULL */
	char *imports;            /* module names as reported, or NULL; owned */
	void (*imported)(void *user); /* see agent_on_imports */
	void *imported_user;
	void (*begun)(void *user, const char *path, uint64_t nonce); /* see agent_on_begun */
	int (*scale)(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err);
	void *scale_user;
	void *begun_user;
	struct agent_nonce nonces[AGENT_NONCES_MAX]; /* newest first, by path */
	void (*drained)(void *user, bool ok);        /* see agent_drain; NULL: not draining */
	void *drained_user;
	struct wire_out scratch; /* frames are built here */
};

/* ---- frames.c ---- */
/* Sends a frame; id 0: an event; body: see frame_encode. On failure the connection is marked
 * closing. */
void conn_send(struct agent_conn *conn, enum proto_type type, uint32_t id, const void *body);
/* Sends a frame with descriptors, which stay the caller's. */
void conn_send_fds(struct agent_conn *conn, enum proto_type type, uint32_t id, const void *body,
	const int *fds, uint32_t fds_n);
void conn_reply_ok(struct agent_conn *conn, uint32_t id);
void conn_reply_error(struct agent_conn *conn, uint32_t id, const struct pawl_err *err);
void conn_send_welcome(struct agent_conn *conn); /* answers HELLO */
/* Handles a frame; marks the connection closing if the frame is nonsense. */
void frame_handle(struct agent_conn *conn, struct proto_frame *frame);

/* ---- agent.c ---- */
/* Something changed that a drain or the idle timer may wait for. */
void agent_progress(struct agent *agent);

/* ---- root.c ---- */
int root_open(struct agent *agent, const char *path, const struct persist_options *options,
	int64_t interval_ns, struct agent_root **out, struct pawl_err *err);
void root_close(struct agent_root *root);
/* Adds the rank of a worker that said HELLO to an open or opening root; PAWL_EBUSY if the rank
 * lives already. */
int root_join(struct agent_root *root, struct agent_conn *conn, uint32_t world, uint32_t attempt,
	struct pawl_err *err);
void root_leave(struct agent_root *root, struct agent_conn *conn);
void root_begin(struct agent_root *root, struct agent_conn *conn);
/* Returns how many times, up to LEDGER_SLOTS, the budget takes need_bytes for each rank here. */
uint32_t root_fits(const struct agent_root *root, uint64_t need_bytes);
void root_staged(struct agent_root *root, struct agent_conn *conn,
	const struct frame_staged *staged);
/* Fails a save of this number that rank was granted; of named saves, with seq 0, one of this tag
 * that was not granted. */
void root_fail(struct agent_root *root, uint32_t rank, uint64_t seq, const char *tag, int code,
	const char *why);
/* Named saves: see ledger_move_on. */
void root_move_on(struct agent_root *root, uint32_t rank, enum ledger_move move, const char *tag);
void root_new_epoch(struct agent_root *root, uint32_t world, uint32_t attempt);
/* Asks the ledger again about saves that wait and the next persist. Called after anything that may
 * have changed an answer. */
void root_advance(struct agent_root *root);
/* Tells the ranks of a streamed save that its directory is there, or could not be made. */
void root_streams_ready(struct agent_root *root, const struct persist_job *job);
/* Makes a job for the storage thread, which root_reap frees once it is done. NULL: no memory. */
struct persist_job *root_job(struct agent_root *root, enum persist_kind kind, const char *tag);

/* Tells the ranks that a partition is not alike on all of them: it is kept per rank from now on. */
void root_send_diverged(struct agent_root *root, const char *part);
/* Tells the workers the level that a save has reached, or that it failed. */
void root_send_level(struct agent_root *root, uint64_t seq, enum proto_level level, int code,
	const char *why);
/* Forgets what a rank has in a slot, memory and all. */
void root_free_slot(struct agent_rank *rank, int slot);

/* ---- root_persist.c ---- */
/* Hands a committed slot to the storage thread. The ledger keeps the slot from all others until the
 * job is reaped. */
void root_persist(struct agent_root *root, int slot);
/* Takes back a slot that the storage thread has finished with. */
void root_persisted(struct agent_root *root, struct persist_job *job);
/* Has the storage thread check the room for the first committed save of an epoch that is not to be
 * durable yet, so that a full disk is known before the first interval ends. */
void root_check_space(struct agent_root *root, int slot);
/* Takes the jobs that the storage thread has finished, and its news. */
void root_reap(struct agent_root *root);
/* The storage thread has worked for long on one save. */
void root_slow_fired(struct loop_timer *timer);

/* ---- root_alert.c: see news.h ---- */
void root_alert(struct agent_root *root, const struct alert *alert);
/* A rank was welcomed: if it is the rank that tells people, sends it the troubles that last. */
void root_send_alerts(struct agent_conn *conn);
/* Returns the trouble of now that matters most; NULL: there is none. */
const struct alert_state *root_worst_alert(const struct agent_root *root);

/* ---- root_hosts.c: a job whose ranks span hosts, see agree.h ---- */
/* The ranks here begin (anew): saves that the epoch before had committed cannot become durable any
 * more, unless their write is under way. */
void root_hosts_begin(struct agent_root *root);
/* Ends the job that root_hosts_begin made. */
void root_hosts_begun(struct agent_root *root, const struct persist_job *job);
/* Uses what agent_told heard, if it is about this root. */
void root_hosts_expect_nonce(struct agent_root *root);
/* Save seq failed here, and so fails on all hosts. */
void root_hosts_fail_save(struct agent_root *root, uint64_t seq, int code, const char *why);
/* A job of a save came back: if the run is over (PAWL_EPEER), begins anew. */
void root_hosts_saved(struct agent_root *root, const struct persist_job *job);
/* Whether a round of restoring may start: all ranks here ask, and nothing is still to become
 * durable. This way all hosts come to the round in the same order. */
bool root_hosts_may_restore(const struct agent_root *root);
/* Asks again for the ranks that wait for a round of restoring. */
void root_hosts_advance(struct agent_root *root);
/* All ranks here have voted: asks the other hosts. */
void root_hosts_vote(struct agent_root *root);
void root_hosts_voted(struct agent_root *root, const struct persist_job *job);
/* The run is over: begins a new epoch, unless the ranks have done so since epoch. They find out
 * when they next ask for anything. */
void root_hosts_over(struct agent_root *root, uint64_t epoch, const char *why);

/* ---- root_history.c ---- */
/* A save began in a slot; the one that was there is superseded. */
void root_row_begin(struct agent_root *root, int slot, const struct ledger_ask *ask);
/* All ranks staged the save of a slot. */
void root_row_commit(struct agent_root *root, int slot);
/* Closes the row of a slot: why says why the save is not durable; NULL: the storage thread wrote
 * the row. */
void root_row_end(struct agent_root *root, int slot, const char *why);
/* A save that never had a slot failed. */
void root_row_refuse(struct agent_root *root, const struct ledger_ask *ask, const char *why);
/* Closes the rows of slots emptied because a later save is durable; or all, because the agent
 * leaves. */
void root_rows_sweep(struct agent_root *root, bool all);
/* Notes an event of the workers. why may be NULL. */
void root_event(struct agent_root *root, enum event_kind kind, const char *why);

/* ---- root_ask.c ---- */
/*
 * Has a question answered yes. Ranks ask "shall I stop?" and "is a save due?" once a step, and must
 * get the same answer at the same place, or one would leave the others waiting in a collective. So
 * each says how often it has asked, and holds its next question; all are told yes at the highest
 * count plus one. A save ends the question whether one is due: HOLD carries the number of the last
 * save, so that a rank that is ahead is not asked twice.
 *
 * Saves are counted, so either all ranks are told yes, or none: the question is asked once all have
 * come to the last save.
 */
void root_hold(struct agent_root *root, enum proto_question question);
/* Tells all ranks to stop; the step at which they do is settled once. */
void root_request_stop(struct agent_root *root);
/* A rank has said how often it asked: tells all the count for yes, once every rank has said so. */
void root_settle(struct agent_root *root, enum proto_question question);
/* A rank that owes an answer has left: the others need not wait for it. */
void root_settle_all(struct agent_root *root);
/* A rank asked for save seq, or failed it: the next save is due a while after the first rank that
 * does. */
void root_asked(struct agent_root *root, uint32_t rank, uint64_t seq);
/* Takes the number of a rank's last save, which it made before it came. */
void root_set_last_seq(struct agent_root *root, uint32_t rank, uint64_t seq);
/* Forgets the numbers of saves: other workers come, which have made none. */
void root_reset_seqs(struct agent_root *root);
/* All ranks have restored together, and count from there; a rank may have begun a save already. */
void root_restart_count(struct agent_root *root);
/* Takes the cost of the save in progress: the next one is due by what is known now. */
void root_saved(struct agent_root *root, uint64_t stall_ns);
/* Workers came or restored, or (running false) are gone: the next save is due by what is known
 * now. */
void root_set_running(struct agent_root *root, bool running);
/* Takes what earlier agents have seen of this root. */
void root_add_past(struct agent_root *root, const struct events_past *past);
void root_init_advice(struct agent_root *root); /* nothing is known yet */
void root_init_ledger(struct agent_root *root, uint32_t world, int64_t interval_ns);
/* Gives the advised interval to the ledger, if it is to decide. */
void root_advise(struct agent_root *root);
void root_due_fired(struct loop_timer *timer);

/* ---- restore.c ---- */
void restore_ask(struct agent_root *root, struct agent_conn *conn); /* request: conn->restore_* */
void restore_resolved(struct agent_root *root, const struct persist_job *job);
/* Counts a vote. The rank waits for the verdict if conn->vote_id is not 0. */
void restore_vote(struct agent_root *root, struct agent_conn *conn, uint8_t verdict,
	const char *why);
/* All have voted, here and on other hosts: carries the verdict out and tells all ranks. */
void restore_finish(struct agent_root *root);
void restore_done(struct agent_root *root, struct agent_conn *conn);
/* The bytes of a tag are damaged, in memory or in the store: drops it or puts it aside. */
void restore_condemn(struct agent_root *root, bool memory, const char *tag, const char *why);
/* Offers tag ("": the newest) to this rank alone. */
void restore_find(struct agent_root *root, struct agent_conn *conn, uint32_t id, const char *tag);

#endif
