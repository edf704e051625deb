/* Shared by the parts of the storage thread: persist.c has the queues and the thread,
 * persist_jobs.c does what each job asks for. See persist.h. */
#ifndef AGENT_PERSIST_PERSIST_IMPL_H
#define AGENT_PERSIST_PERSIST_IMPL_H

#include "agent/persist/agree.h"
#include "agent/persist/alerts.h"
#include "agent/persist/persist.h"
#include "agent/persist/rows.h"
#include "ckpt/root.h"

#include <pthread.h>

struct writer;

/* Streamed saves that are known at a time, more than the ledger has slots; older ones are
 * forgotten, and tags_recover removes their files. */
#define PERSIST_STREAMS_MAX 8u

struct persist_queue {
	struct persist_job *head; /* oldest job */
	struct persist_job *tail; /* newest job */
};

struct persist {
	char *root_path;        /* owned copy */
	char *hidden;           /* owned copy, or NULL */
	char *job;              /* owned copy */
	struct loop *loop;      /* lock: woken when a job is done; NULL: abandoned */
	pthread_t thread;       /* storage thread; it alone uses what is marked "thread's" */
	pthread_mutex_t lock;   /* guards todo, done, policy, stop to busy, and rows as in rows.h */
	pthread_cond_t changed; /* todo, stop, stopped or rows_due_ns changed */
	struct persist_queue todo;    /* submitted */
	struct persist_queue done;    /* finished, not reaped */
	struct persist_policy policy; /* for the next save */
	bool stop;                    /* leave after the current job */
	bool stopped;                 /* the thread has left */
	bool abandoned;               /* persist_stop no longer waits for the thread */
	bool opening;                 /* the job in progress opens the root */
	bool yields;                  /* what is done now is given up once a job waits */
	bool busy;                    /* a job, or the retention after it, is in progress */
	bool retains;                 /* thread's: retention follows the current job */
	struct rows history;          /* rows of the history file */
	struct rows events;           /* rows of the events file */
	int64_t rows_due_ns;          /* lock: when to write rows, monotonic ns; 0: no rows */
	char newest[CKPT_TAG_MAX];    /* thread's: newest durable tag, or "" */
	/* thread's, at rank 0's host: the store has no tag of a step above stored_step, but perhaps
	 * not that step any more */
	bool stored_known;
	uint64_t stored_step;
	bool rows_begun;        /* thread's: the history exists, and so does a checkpoint */
	struct alerts alerts;   /* for users; has a lock of its own */
	struct tags_root *root; /* thread's; NULL until PERSIST_OPEN succeeded */
	struct writer *writer;  /* thread's */
	/* thread's: streamed saves of this host alone that have begun, newest first; a zeroed entry
	 * is none */
	struct tag_draft streams[PERSIST_STREAMS_MAX];
	bool is_leader;      /* this host owns the root: locks it, and alone deletes in it */
	bool multi_host;     /* the job has ranks on other hosts */
	struct peers *peers; /* links to the other hosts; the starter's; NULL: none */
	struct agree agree;  /* thread's: agreement with the other hosts */
	struct peer_map map; /* lock: hosts of the run, for persist_take_map */
	bool map_changed;    /* lock: map was not taken yet */
};

/* ---- persist.c; none may be called with the lock held ---- */

/* Writes the queued rows; sync: durable on return. With several hosts only the leader does. */
void persist_write_rows(struct persist *persist, bool sync);
/* Raises or resolves the alert on rows that cannot be written; that fails no checkpoint. */
void persist_report_rows(struct persist *persist, int rv, const struct pawl_err *err);
/* Wakes the loop, unless the thread is abandoned: the loop may then be freed. */
void persist_wake_loop(struct persist *persist);
/* Whether the agent leaves. */
bool persist_is_stopping(struct persist *persist);
/* Whether the job under way is of no more use, since the ranks of hosts that work together begin
 * anew, or is in the way of their restore; user: the persist. */
bool persist_is_outdated(void *user);

/* ---- persist_jobs.c; on the thread, without the lock ---- */

/* Carries a job out. Sets job->result; retention is to follow if it sets persist->retains. */
void persist_run_job(struct persist *persist, struct persist_job *job);
/* Deletes old tags. Runs after a save, once the ranks that wait for the save have their answer:
 * freeing a large file's blocks takes long. */
void persist_retain(struct persist *persist);
/* Releases the root. An abandoned thread calls it with the lock. */
void persist_close_root(struct persist *persist);

#endif
