/*
 * One root as the agent sees it: its ledger, its ranks and their arenas, its storage thread, and
 * the connections of its workers. agent.c accepts and dispatches; root.c carries out what the
 * ledger decides; root_persist.c brings it to the store; root_news.c says what goes wrong;
 * root_ask.c lets the ranks stop and save together; restore.c lets them agree on what to load. All
 * on the loop's thread.
 */
#ifndef AGENT_ROOT_H
#define AGENT_ROOT_H

#include "agent/advice.h"
#include "agent/agent.h"
#include "agent/ledger.h"
#include "agent/news.h"
#include "agent/persist.h"
#include "agent/proto.h"
#include "agent/tier.h"
#include "base/listener.h"

struct agent_conn;

/* A question about what there is. What other ranks sent before it may still lie in their sockets:
 * it is answered when those were read. */
struct agent_question {
	struct loop_timer timer; /* active: there is a question */
	bool read;               /* what came before it */
	void (*answer)(struct agent_conn *conn, uint32_t id, const char *tag);
	uint32_t id;            /* of the request */
	char tag[CKPT_TAG_MAX]; /* asked for */
};

/* A worker's connection, from accept on. */
struct agent_conn {
	struct agent *agent;         /* whose */
	struct agent_root *root;     /* NULL until HELLO */
	struct loop_source socket;   /* the connection */
	struct loop_source process;  /* pidfd of the worker; fd -1 if none: forks of the worker may
					keep the socket open */
	struct proto_conn io;        /* received bytes */
	uint32_t rank;               /* place among those of this host; valid with root */
	uint32_t job_rank;           /* its number in the job */
	uint32_t pid;                /* of the worker, as the kernel says */
	bool welcome;                /* HELLO was answered */
	bool held[QUESTIONS_N];      /* answered HOLD */
	uint64_t polls[QUESTIONS_N]; /* its answer */
	bool leaving;                /* said BYE */
	bool closing;                /* to be freed when the callback returns */
	uint32_t hello_id;           /* request to answer once the root is open */
	uint32_t begin_id;           /* request that waits for a grant; 0: none */
	int64_t begin_ns;            /* when it came */
	uint64_t begin_bytes;        /* arena it needs */
	int64_t begin_since_ns;      /* what it adds to, if it does, is no older */
	struct ledger_ask ask;       /* what it asked */
	uint64_t begin_seq;          /* granted to stream: of the save */
	struct agent_question asked; /* not answered yet */
	uint32_t find_id;            /* FIND that waits for the store's answer; 0: none */
	uint32_t stream_id;  /* granted to stream: answered once the directory is there; 0: none */
	uint32_t restore_id; /* request that waits for an offer; 0: none */
	uint32_t vote_id;    /* request that waits for the verdict; 0: none */
	bool restore_has_step; /* what it asked to restore */
	uint64_t restore_step; /* that step */
	bool offered;          /* has this round's offer; a next request waits for the next round */
	int reading;           /* slot that it copies out of, or -1 */
	uint64_t arena_ids[LEDGER_SLOTS]; /* arenas whose descriptors it has */
	struct agent_conn *next;          /* of the agent */
};

/* One rank's part of the memory tier. Outlives its worker. */
struct agent_rank {
	struct agent_conn *conn;             /* connected now, or NULL */
	bool seen;                           /* connected in this epoch */
	uint64_t asked_seq;                  /* newest save that it asked for or failed */
	struct arena arenas[LEDGER_SLOTS];   /* a generation each */
	struct record records[LEDGER_SLOTS]; /* of what is in them; block NULL: nothing */
	struct wire_out blobs[LEDGER_SLOTS]; /* the records as they came, for restoring workers */
	uint64_t stall_ns[LEDGER_SLOTS];     /* how long save() took */
	uint64_t stage_ns[LEDGER_SLOTS];     /* until all was copied */
};

enum restore_state {
	RESTORE_IDLE,
	RESTORE_RESOLVING, /* the store looks what there is */
	RESTORE_OFFERED,
	RESTORE_VOTED, /* all here have; other hosts are asked */
};

/* All ranks restore the same or nothing: one round of it. */
struct agent_restore {
	enum restore_state state;
	bool has_step;            /* this step and no other */
	uint64_t asked;           /* the step asked for, with has_step */
	uint64_t step;            /* offered */
	char tag[CKPT_TAG_MAX];   /* offered */
	uint32_t taken;           /* ranks that have the offer */
	int slot;                 /* offered from memory; -1: from the store */
	bool nothing;             /* offered: there is nothing */
	uint32_t voted;           /* ranks that voted */
	uint8_t verdict;          /* worst so far */
	char why[PROTO_TEXT_MAX]; /* of the worst */
};

/* Rank 0's host has begun in a root of this path. */
struct agent_told {
	char *path;     /* owned; NULL: nothing */
	uint64_t nonce; /* of its start */
};

enum root_state { ROOT_OPENING, ROOT_OPEN, ROOT_FAILED };

struct agent_root {
	struct agent *agent;                   /* whose */
	char *path;                            /* owned; absolute */
	enum root_state state;                 /* of the storage */
	struct pawl_err failed;                /* why ROOT_FAILED */
	uint32_t first;                        /* number of the first rank here */
	uint32_t elsewhere;                    /* ranks of the job on other hosts */
	bool named;                            /* its saves have tags; with ranks elsewhere the
						  ledger counts them all the same */
	uint32_t attempt;                      /* of the ranks in this epoch */
	uint64_t epoch;                        /* counts them */
	uint32_t rounds;                       /* how often all ranks restored in this one */
	uint64_t unsaved_seq;                  /* elsewhere: newest save that the other hosts
						  were told will not come from here */
	int64_t epoch_ns;                      /* when it began, by the wall clock */
	int64_t since_ns[LEDGER_SLOTS];        /* that, when what is in a slot was begun, or when
						  the first rank began that adds to it */
	uint64_t memory_bytes;                 /* asked for the tier; 0: automatic */
	struct ledger ledger;                  /* decisions */
	struct agent_rank *ranks;              /* ledger.world of them */
	struct persist *persist;               /* storage thread */
	struct persist_job save_job;           /* of the slot being persisted */
	struct persist_rank *save_ranks;       /* its ranks */
	struct history_row rows[LEDGER_SLOTS]; /* of the save in each slot, as far as it is known */
	bool row_open[LEDGER_SLOTS];           /* it is not in the history yet */
	uint64_t row_seq;                      /* newest save that failed and is in it */
	char row_tag[CKPT_TAG_MAX];            /* its tag */
	bool running;                 /* workers came, and it is not in the events how they ended */
	struct agent_restore restore; /* round in progress */
	struct loop_timer tick;       /* next time the ledger wants to be asked */
	struct loop_timer orphan;     /* after the last worker vanished */
	bool crashed;                 /* a worker of this epoch went without a word */
	bool left;                    /* all workers of this epoch have left on purpose */
	bool owing;                   /* one of them, though its newest save was not durable */
	int64_t left_ns;              /* when the last one did, monotonic */
	bool asked[QUESTIONS_N];      /* its workers were told to hold the question */
	bool agreed[QUESTIONS_N];     /* and when the answer is yes */
	struct advice advice;         /* how often it is worth it to save */
	bool auto_interval;           /* the ledger's interval is the advised one */
	uint64_t asked_seq;           /* newest save that a rank asked for or failed */
	int64_t asked_ns;             /* when it did; else when the workers came */
	struct loop_timer due;        /* a save is worth it again */
	uint32_t owed;                /* pins and removals that were taken, and are not done */
	bool told_bare;               /* it is in the log that memory takes no spare slot */
	bool streaming;               /* the directory for streaming ranks is there: */
	char stream_dir[STORE_NAME_MAX];    /* its name */
	bool has_durable;                   /* durable_tag is valid */
	char durable_tag[CKPT_TAG_MAX];     /* newest made durable by this agent */
	bool failed_anew;                   /* a persist has failed since agent_drain */
	struct news_state news[NEWS_KINDS]; /* trouble of each kind */
	struct loop_timer slow;             /* the storage thread has not come to an end for long */
	bool room_asked;                    /* whether the store has room, in this epoch */
	struct agent_root *next;            /* of the agent */
};

struct agent {
	int pid;                      /* of this process */
	struct loop *loop;            /* the process's */
	char *job;                    /* owned */
	char *socket;                 /* owned; path */
	int lock_fd;                  /* lock file beside the socket */
	bool any_attempt;             /* see agent_options */
	uint32_t attempt;             /* current */
	int64_t idle_exit_ns;         /* see agent_options */
	bool lets_go;                 /* likewise */
	bool heard;                   /* see agent_options */
	bool owing;                   /* a worker of this attempt left as agent_left_owing has it */
	struct listener listener;     /* accepts */
	struct loop_timer idle;       /* leaves when idle */
	struct agent_conn *conns;     /* all */
	struct agent_root *roots;     /* all */
	char *notice;                 /* why workers should stop, or NULL */
	char *imports;                /* as reported, or NULL */
	void (*imported)(void *user); /* see agent_on_imports */
	void *imported_user;
	void (*begun)(void *user, const char *path, uint64_t nonce); /* see agent_on_begun */
	int (*scale)(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err);
	void *scale_user;
	void *begun_user;
	struct agent_told told[AGENT_TOLD_MAX]; /* newest first, by path */
	void (*drained)(void *user, bool ok);   /* see agent_drain; NULL: not draining */
	void *drained_user;
	struct wire_out scratch; /* frames are built here */
};

/* ---- frames.c ---- */
/* Sends the frame in agent->scratch; on failure the connection is marked closing. */
void conn_send(struct agent_conn *conn, size_t start, const int *fds, uint32_t fds_n);
size_t conn_start(struct agent_conn *conn, enum proto_type type, uint32_t id);
void conn_reply_ok(struct agent_conn *conn, uint32_t id);
void conn_reply_error(struct agent_conn *conn, uint32_t id, const struct pawl_err *err);
void conn_send_hold(struct agent_conn *conn, enum proto_question question, uint64_t seq);
void conn_send_welcome(struct agent_conn *conn); /* answers its HELLO */
/* Carries a frame out; marks the connection closing if it is nonsense. */
void frame_handle(struct agent_conn *conn, struct proto_frame *frame);

/* ---- agent.c ---- */
/* Something changed that a drain or the idle timer may wait for. */
void agent_progress(struct agent *agent);

/* ---- root.c ---- */
int root_open(struct agent *agent, const char *path, const struct persist_options *options,
	int64_t interval_ns, struct agent_root **out, struct pawl_err *err);
void root_close(struct agent_root *root);
/* A worker said HELLO to an open or opening root; PAWL_EBUSY if its rank lives already. */
int root_join(struct agent_root *root, struct agent_conn *conn, uint32_t world, uint32_t attempt,
	struct pawl_err *err);
void root_leave(struct agent_root *root, struct agent_conn *conn);
void root_begin(struct agent_root *root, struct agent_conn *conn);
/* How many times, up to LEDGER_SLOTS, the budget takes this rank's state, and that of as many ranks
 * like it as there are. */
uint32_t root_fits(const struct agent_root *root, uint64_t need_bytes);
void root_staged(struct agent_root *root, struct agent_conn *conn, struct wire_in *body);
/* A save of this number, which rank was granted, will not be; of named saves also one that it was
 * not granted: tag. */
void root_fail(struct agent_root *root, uint32_t rank, uint64_t seq, const char *tag, int code,
	const char *why);
/* Named saves: see ledger_move_on. */
void root_move_on(struct agent_root *root, uint32_t rank, enum ledger_move move, const char *tag);
void root_new_epoch(struct agent_root *root, uint32_t world, uint32_t attempt);
/* Asks the ledger again: saves that wait, the next persist. After anything that may have changed an
 * answer. */
void root_turn(struct agent_root *root);
/* The directory for a streamed save is there, or is not: its ranks are told. */
void root_streams_ready(struct agent_root *root, const struct persist_job *job);
/* A new job for the storage thread that is freed when done, unless after() takes it. NULL: no
 * memory. */
struct persist_job *root_job(struct agent_root *root, enum persist_kind kind, const char *tag);

/* A partition is not alike on all ranks: it is kept per rank from now on. */
void root_tell_diverged(struct agent_root *root, const char *part);
/* Tells the workers what became of a save. */
void root_tell_level(struct agent_root *root, uint64_t seq, enum proto_level level, int code,
	const char *why);
/* Forgets what a rank has in a slot, memory and all. */
void root_give_back(struct agent_rank *rank, int slot);

/* ---- root_persist.c ---- */
/* Hands a committed slot to the storage thread. The ledger keeps everybody off it until it is
 * reaped. */
void root_persist(struct agent_root *root, int slot);
/* The storage thread is done with it. */
void root_persisted(struct agent_root *root, struct persist_job *job);
/* A save was committed that is not to be durable yet: of the first of an epoch the storage thread
 * looks whether there is room for it, so that a full disk is not news at the first interval's
 * end. */
void root_ask_room(struct agent_root *root, int slot);
/* Takes what the storage thread has finished, and its news. */
void root_reap(struct agent_root *root);
/* The storage thread has worked for long at what it was given. */
void root_slow_fired(struct loop_timer *timer);

/* ---- root_news.c: see news.h ---- */
void root_news(struct agent_root *root, const struct news_item *item);
/* A rank was welcomed: if it is the one that tells people, it hears what goes wrong already. */
void root_news_greet(struct agent_conn *conn);
/* What goes wrong now and matters most; NULL: nothing does. */
const struct news_state *root_trouble(const struct agent_root *root);

/* ---- root_hosts.c: a job whose ranks span hosts, see hosts.h ---- */
/* The ranks here begin (anew): what the epoch before had committed cannot become durable any more,
 * unless it is on its way. */
void root_hosts_begin(struct agent_root *root);
/* The job that this made is done. */
void root_hosts_begun(struct agent_root *root, const struct persist_job *job);
/* What agent_told heard, if it is about this root. */
void root_hosts_told(struct agent_root *root);
/* Save seq fails here, so it does everywhere. */
void root_hosts_unsave(struct agent_root *root, uint64_t seq, int code, const char *why);
/* A save failed, and the run may be over with it. */
void root_hosts_saved(struct agent_root *root, const struct persist_job *job);
/* Whether a round of restoring may start: all here ask, and nothing is on its way to the store. So
 * all hosts come to it in the same order. */
bool root_hosts_may_restore(const struct agent_root *root);
/* Asks again for the ranks that wait for such a round. */
void root_hosts_turn(struct agent_root *root);
/* All here have voted. */
void root_hosts_vote(struct agent_root *root);
void root_hosts_voted(struct agent_root *root, const struct persist_job *job);
/* The run is over: the ranks here begin anew, when they next ask for anything. */
void root_hosts_over(struct agent_root *root, uint64_t epoch, const char *why);

/* ---- root_history.c ---- */
/* A save began in a slot; what was there has been superseded. */
void root_row_begin(struct agent_root *root, int slot, const struct ledger_ask *ask);
/* All ranks staged it. */
void root_row_commit(struct agent_root *root, int slot);
/* It is in the history, or out of anybody's hands: why says why it is not durable; NULL: the
 * storage thread wrote its row. */
void root_row_end(struct agent_root *root, int slot, const char *why);
/* A save that never had a slot failed. */
void root_row_refuse(struct agent_root *root, const struct ledger_ask *ask, const char *why);
/* Slots that were emptied because a later save is durable; or all, because the agent leaves. */
void root_rows_sweep(struct agent_root *root, bool all);
/* Something happened to the workers. why may be NULL. */
void root_event(struct agent_root *root, enum event_kind kind, const char *why);

/* ---- root_ask.c ---- */
/*
 * The answer to a question is to be yes. Ranks ask "shall I stop?" and "is a save due?" once a
 * step, and must get the same answer at the same place, or one would leave the others waiting in a
 * collective. So each says how often it has asked, and holds its next question; the highest count
 * and one more is where all are told yes. A save ends the question whether one is due: which save
 * came last is said with it, so that a rank that is ahead is not asked twice.
 *
 * Saves are counted, so all ranks must be told yes, or none: it is asked once all have come to the
 * last one.
 */
void root_hold(struct agent_root *root, enum proto_question question);
/* All are to stop; where they do is settled once. */
void root_stop(struct agent_root *root);
/* A rank has said how often it asked. */
void root_agree(struct agent_root *root, enum proto_question question);
/* One that will not say it has left: the others need not wait. */
void root_agree_rest(struct agent_root *root);
/* A rank asked for save seq, or failed it: the next is due a while after the first that does. */
void root_asked(struct agent_root *root, uint32_t rank, uint64_t seq);
/* A rank that has come did so before. */
void root_know_seq(struct agent_root *root, uint32_t rank, uint64_t seq);
/* Other workers come, which have made none. */
void root_forget_seqs(struct agent_root *root);
/* All ranks have restored together, and count from there; one may have begun a save already. */
void root_count_anew(struct agent_root *root);
/* What the save in progress cost: the next is due by what is known now. */
void root_saved(struct agent_root *root, uint64_t stall_ns);
/* Workers came or restored, or (running false) are gone: likewise. */
void root_ran(struct agent_root *root, bool running);
/* What earlier agents have seen of this root. */
void root_learn(struct agent_root *root, const struct events_past *past);
void root_init_advice(struct agent_root *root); /* as nothing is known yet */
void root_init_ledger(struct agent_root *root, uint32_t world, int64_t interval_ns);
/* The advised interval goes to the ledger, if it is to decide. */
void root_advise(struct agent_root *root);
void root_due_fired(struct loop_timer *timer);

/* ---- restore.c ---- */
void restore_ask(struct agent_root *root, struct agent_conn *conn); /* conn->restore_* say what */
void restore_resolved(struct agent_root *root, const struct persist_job *job);
void restore_vote(struct agent_root *root, struct agent_conn *conn, uint8_t verdict,
	const char *why);
/* All have voted, here and on other hosts: carries the verdict out and tells everybody. */
void restore_finish(struct agent_root *root);
void restore_done(struct agent_root *root, struct agent_conn *conn);
/* The bytes of a tag are damaged, in memory or in the store: nobody is to meet it again. */
void restore_condemn(struct agent_root *root, bool memory, const char *tag, const char *why);
/* Offers tag ("": the newest) to this rank alone. */
void restore_find(struct agent_root *root, struct agent_conn *conn, uint32_t id, const char *tag);

#endif
