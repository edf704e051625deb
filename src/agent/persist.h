/*
 * The storage thread of one root: everything of the agent that may wait for a disk. Jobs go in from
 * the loop, come back to it done.
 *
 * A job and all it points to stay the submitter's and must not change until persist_reap returned
 * it: exactly once, in order of submission.
 */
#ifndef AGENT_PERSIST_H
#define AGENT_PERSIST_H

#include "agent/events.h"
#include "agent/history.h"
#include "ckpt/manifest.h"
#include "ckpt/retain.h"
#include "pawl/err.h"
#include "store/store.h"

struct hosts;
struct loop;
struct news;
struct persist;

enum persist_kind {
	PERSIST_OPEN, /* make and lock the root, clean up after a crash: always the first job */
	PERSIST_SAVE, /* ranks' arenas -> files -> manifest -> complete.txt -> history row; then,
			 when it has been given back, retention */
	PERSIST_STREAM_BEGIN, /* an empty directory for ranks that write by themselves */
	PERSIST_STREAM_END,   /* their files are written: manifest -> complete.txt -> history
				 row; then retention, likewise */
	PERSIST_STREAM_DROP,  /* they will not be */
	PERSIST_RESOLVE,      /* the newest complete tag, or that of a step or name; broken ones
				 newer than it are put aside */
	PERSIST_ASIDE,        /* the tag's payload failed verification: why */
	PERSIST_PIN,          /* the tag: pinned */
	PERSIST_REMOVE,       /* the tag: deleted */
	PERSIST_ROOM,         /* is there room for need_bytes? */
	/* of a job whose ranks span hosts, see hosts.h: */
	PERSIST_BEGIN,  /* this host's ranks begin anew; seq becomes their nonce */
	PERSIST_UNSAVE, /* this host's part of save seq will not come: why_not */
	PERSIST_VOTE,   /* verdict and why of this host's ranks become those of all; the tag is put
			   aside if all are to ask again */
};

/* What one rank staged. */
struct persist_rank {
	const struct record *record; /* decoded */
	const uint8_t
		*arena; /* mapping of its arena; NULL when streamed. Glue is written into it */
};

struct persist_job {
	enum persist_kind kind;
	char tag[CKPT_TAG_MAX]; /* SAVE STREAM_* ASIDE PIN; RESOLVE: that one or none, if not
				   "" */
	uint64_t step;          /* SAVE STREAM_END; RESOLVE: if has_step; OPEN: newest found */
	bool has_step;          /* RESOLVE: that one or none */
	uint32_t find_id;       /* RESOLVE: for this request of one rank; 0: for all of them */
	bool find_newest;       /* it names no tag */
	uint32_t find_rank;     /* RESOLVE: that rank */
	int64_t since_ns;       /* SAVE STREAM_END: adds to the tag, if one was created since then,
				   by the wall clock; INT64_MAX: it replaces the tag */
	bool pinned;            /* PIN */
	uint64_t need_bytes;    /* ROOM */
	uint32_t world;         /* SAVE STREAM_END: ranks, that are here */
	uint32_t first;         /* SAVE STREAM_END: number of the first of them */
	uint32_t elsewhere;     /* SAVE STREAM_END: ranks of the job on other hosts */
	uint64_t seq;           /* SAVE STREAM_BEGIN STREAM_END UNSAVE, if there are such: number
				   of the save */
	uint64_t round;         /* SAVE STREAM_END: its number among all hosts; the thread's */
	uint64_t epoch;         /* the submitter's: which start of its ranks it is of */
	struct hosts *hosts;    /* SAVE STREAM_END: the thread's; NULL: all ranks are here */
	uint8_t verdict;        /* VOTE: enum proto_verdict */
	uint32_t attempt;       /* SAVE STREAM_END: for the manifest */
	struct persist_rank *ranks;    /* SAVE STREAM_END: world of them */
	const struct history_row *row; /* SAVE STREAM_END: what is known for the history */
	char why[256];                 /* ASIDE VOTE */
	struct pawl_err why_not;       /* UNSAVE */
	char dir[STORE_NAME_MAX];      /* result of STREAM_BEGIN: where the ranks write */
	char differs[CKPT_NAME_MAX];   /* result of SAVE STREAM_END: a partition that hosts do not
					  hold   alike, or "" */
	int slot;                      /* the submitter's */
	int rv;                        /* result: 0 or PAWL_E code */
	struct pawl_err err;           /* result: filled if rv != 0 */
	bool found;                    /* RESOLVE: tag and step are the answer; OPEN: step is one */
	struct events_past past;       /* result of OPEN */
	bool allocated;                /* persist_stop frees it, unless it was reaped */
	struct persist_job *next;      /* the queue's */
};

/* What workers may change while the thread runs. */
struct persist_policy {
	struct retain_rule rule; /* retention after each save */
	uint32_t full_every;     /* see struct save_how */
};

struct persist_options {
	const char *root;   /* absolute path */
	const char *hidden; /* directory for what is not finished; NULL: in root */
	const char *job;    /* id */
	struct persist_policy policy;
	uint32_t first;     /* number of the first rank here */
	uint32_t ranks;     /* here */
	uint32_t elsewhere; /* ranks on other hosts; 0: the root is all ours */
};

/* Starts the thread. Finished jobs make it call loop_wake(loop). Strings are copied. */
int persist_start(struct persist **out, struct loop *loop, const struct persist_options *options,
	struct pawl_err *err);
void persist_set_policy(struct persist *persist, const struct persist_policy *policy);
void persist_submit(struct persist *persist, struct persist_job *job);
/*
 * For the history, and the record of what happened to the workers: written with the next checkpoint
 * that becomes durable, or when the thread has nothing else to do, but not before there is one.
 * Never wait; what cannot be written is news.
 */
void persist_note(struct persist *persist, const struct history_row *row);
void persist_note_event(struct persist *persist, const struct event *event);
/* As hosts_told. */
void persist_told(struct persist *persist, uint64_t nonce);
/* What the thread has met that people are to hear: the loop takes it when it is woken. */
struct news *persist_news(struct persist *persist);
/* Whether nothing is to be done, being done, or to be reaped. */
bool persist_idle(struct persist *persist);
/* A finished job, or NULL. */
struct persist_job *persist_reap(struct persist *persist);
/*
 * Finishes the job in hand and drops the rest. false: it hangs in a disk longer than timeout_ms and
 * is abandoned with all that belongs to it, since the process is leaving; should it come to its end
 * all the same, it lets go of the root.
 */
bool persist_stop(struct persist *persist, int timeout_ms);

#endif
