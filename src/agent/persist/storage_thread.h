/*
 * The storage thread of one root: everything of the agent that may wait for a disk. The loop
 * submits jobs, and gets them back when they are done.
 *
 * The submitter owns a job and all it points to, and must not change them until persist_reap has
 * returned it: exactly once, in order of submission.
 */
#ifndef AGENT_PERSIST_STORAGE_THREAD_H
#define AGENT_PERSIST_STORAGE_THREAD_H

#include "agent/persist/events.h"
#include "agent/persist/history.h"
#include "ckpt/format/manifest.h"
#include "ckpt/format/retain.h"
#include "pawl/err.h"
#include "store/store.h"

struct agree;
struct loop;
struct alerts;
struct persist;

enum persist_kind {
	PERSIST_OPEN, /* make and lock the root, clean up after a crash: always the first job */
	PERSIST_SAVE, /* ranks' arenas -> files -> manifest -> complete.txt -> history row; then,
			 when it has been given back, retention */
	PERSIST_STREAM_BEGIN, /* an empty directory for ranks that write by themselves */
	PERSIST_STREAM_END,   /* the ranks' files are written: manifest -> complete.txt -> history
				 row; then retention, as after SAVE */
	PERSIST_STREAM_DROP,  /* the ranks' files will not be written */
	PERSIST_RESOLVE,      /* the newest complete tag, or the tag of a step or name; newer broken
				 ones are put aside */
	PERSIST_ASIDE,        /* a tag whose payload failed verification: why */
	PERSIST_PIN,          /* pins or unpins the tag: pinned */
	PERSIST_REMOVE,       /* deletes the tag */
	PERSIST_CHECK_SPACE,  /* whether there is room for need_bytes */
	/* only in a job whose ranks span hosts, see agree.h: */
	PERSIST_BEGIN,     /* this host's ranks begin anew; seq becomes their nonce */
	PERSIST_FAIL_SAVE, /* this host's part of save seq will not come: why_not */
	PERSIST_VOTE, /* verdict and why of this host's ranks become those of all; the tag is put
			   aside if all are to ask again */
};

/* The part that one rank staged. */
struct persist_rank {
	const struct record *record; /* decoded */
	const uint8_t
		*arena; /* mapping of its arena; NULL when streamed. Glue is written into it */
};

struct persist_job {
	enum persist_kind kind;
	/* Tag of SAVE STREAM_* ASIDE PIN REMOVE ROOM VOTE; RESOLVE: the only one to find, unless
	 * "", and the result. */
	char tag[CKPT_TAG_MAX];
	uint64_t step;      /* SAVE STREAM_END; RESOLVE: if has_step; OPEN: newest found */
	bool has_step;      /* RESOLVE: find this step and no other */
	uint32_t find_id;   /* RESOLVE: request of one rank; 0: of all ranks together */
	bool find_newest;   /* RESOLVE: the request names no tag */
	uint32_t find_rank; /* RESOLVE: the rank that made the request */
	/* SAVE STREAM_END: adds to the tag if one was created since this wall-clock time;
	 * INT64_MAX: replaces the tag. */
	int64_t since_ns;
	bool pinned;           /* PIN */
	uint64_t need_bytes;   /* ROOM */
	uint32_t world;        /* SAVE STREAM_END: number of ranks here */
	uint32_t first_rank;   /* SAVE STREAM_END: number of the first rank here */
	uint32_t remote_ranks; /* SAVE STREAM_END: ranks of the job on other hosts */
	/* SAVE STREAM_BEGIN STREAM_END UNSAVE: number of the save; BEGIN: the result, the ranks'
	 * nonce. */
	uint64_t seq;
	uint64_t round;      /* SAVE STREAM_END: number among all hosts; the thread's */
	uint64_t epoch;      /* start of the ranks that the job belongs to; the submitter's */
	struct agree *agree; /* SAVE STREAM_END: the thread's; NULL: all ranks are here */
	uint8_t verdict;     /* VOTE: enum proto_verdict */
	uint32_t attempt;    /* SAVE STREAM_END: for the manifest */
	struct persist_rank *ranks;    /* SAVE STREAM_END: world entries */
	const struct history_row *row; /* SAVE STREAM_END: the history row, as far as known */
	char why[256];                 /* ASIDE VOTE */
	struct pawl_err failure;       /* UNSAVE */
	char dir[STORE_NAME_MAX];      /* result of STREAM_BEGIN: where the ranks write */
	/* Result of SAVE STREAM_END: a partition that hosts do not hold alike, or "". */
	char diverged_part[CKPT_NAME_MAX];
	int slot;                 /* the submitter's */
	int rv;                   /* result: 0 or PAWL_E code */
	struct pawl_err err;      /* result: filled if rv != 0 */
	bool found;               /* RESOLVE: tag and step are the answer; OPEN: step is one */
	struct events_past past;  /* result of OPEN */
	bool allocated;           /* persist_stop frees it, unless it was reaped */
	struct persist_job *next; /* the queue's */
};

/* Settings that workers may change while the thread runs. */
struct persist_policy {
	struct retain_rule rule; /* retention after each save */
	uint32_t full_every;     /* see struct write_tag_options */
};

struct persist_options {
	const char *root;   /* absolute path */
	const char *hidden; /* directory for unfinished files; NULL: in root */
	const char *job;    /* job id */
	struct persist_policy policy;
	uint32_t first_rank;   /* number of the first rank here */
	uint32_t ranks;        /* number of ranks here */
	uint32_t remote_ranks; /* ranks on other hosts; 0: the root is ours alone */
};

/* Starts the thread. Finished jobs make it call loop_wake(loop). Strings are copied. */
int persist_start(struct persist **out, struct loop *loop, const struct persist_options *options,
	struct pawl_err *err);
void persist_set_policy(struct persist *persist, const struct persist_policy *policy);
void persist_submit(struct persist *persist, struct persist_job *job);
/*
 * Note a row of the history, and of the events: written with the next checkpoint that becomes
 * durable, or when the thread has nothing else to do, but not before there is a checkpoint. Never
 * wait; rows that cannot be written are news.
 */
void persist_queue_row(struct persist *persist, const struct history_row *row);
void persist_queue_event(struct persist *persist, const struct event *event);
/* Does as agree_expect_nonce. */
void persist_expect_nonce(struct persist *persist, uint64_t nonce);
/* Returns what the thread has met and people are to hear: the loop takes it when it is woken. */
struct alerts *persist_alerts(struct persist *persist);
/* Whether no job is waiting, under way, or to be reaped. */
bool persist_idle(struct persist *persist);
/* Returns a finished job, or NULL. */
struct persist_job *persist_reap(struct persist *persist);
/*
 * Finishes the current job and drops the rest. Returns false if the thread hangs in a disk for
 * longer than timeout_ms: it is abandoned with all that belongs to it, since the process is
 * leaving; should it still come to its end, it lets go of the root.
 */
bool persist_stop(struct persist *persist, int timeout_ms);

#endif
