/*
 * The storage thread of one root: does all work of the agent that may wait for a disk. The loop
 * submits jobs, and reaps them when they are done.
 *
 * The submitter owns a job and all it points to, and must not change them until persist_reap has
 * returned it: exactly once, in order of submission.
 */
#ifndef AGENT_PERSIST_PERSIST_H
#define AGENT_PERSIST_PERSIST_H

#include "agent/peer/recover.h"
#include "agent/persist/events.h"
#include "agent/persist/history.h"
#include "ckpt/format/manifest.h"
#include "ckpt/format/retain.h"
#include "pawl/err.h"
#include "store/store.h"

struct alerts;
struct loop;
struct peer_map;
struct peers;
struct persist;

#define PERSIST_WHY_MAX 256u /* bytes of a reason, terminator included */

/* What a job does, and the members of struct persist_job's unions that it uses. */
enum persist_kind {
	/* Makes and locks the root, and cleans up after a crash: always the first job. Result:
	 * open. */
	PERSIST_OPEN,
	/* ranks' arenas -> files -> published tag -> history row; then, when the job has been
	 * returned, retention. Uses save; result: save. */
	PERSIST_SAVE,
	/* Makes an empty directory for ranks that write themselves. Uses stream_begin; result:
	 * stream_begin. */
	PERSIST_STREAM_BEGIN,
	/* The ranks' files are written: published tag -> history row; then retention, as after
	 * PERSIST_SAVE. Uses save; result: save. */
	PERSIST_STREAM_END,
	PERSIST_STREAM_DROP, /* the ranks' files will not be written */
	/* Finds the newest complete tag, or the tag of a step or name; puts newer damaged ones
	 * aside. Uses resolve; result: resolve. */
	PERSIST_RESOLVE,
	PERSIST_ASIDE,       /* puts a tag aside whose payload failed verification; uses aside */
	PERSIST_PIN,         /* pins or unpins the tag; uses pin */
	PERSIST_REMOVE,      /* deletes the tag */
	PERSIST_CHECK_SPACE, /* checks whether the tag fits the free space; uses check_space */
	/* only in a job whose ranks span hosts, see agree.h: */
	PERSIST_BEGIN,     /* this host's ranks begin anew; result: begin */
	PERSIST_ENTER,     /* enters the run of the hosts, to do something in it */
	PERSIST_FAIL_SAVE, /* this host's part of a save will not come; uses fail_save */
	/* This host's ranks have voted: waits for the verdict of all ranks. If all are to ask
	 * again, puts the tag of the store aside. Uses vote; result: vote. */
	PERSIST_VOTE,
};

/* The part that one rank staged. */
struct persist_rank {
	const struct record *record; /* decoded */
	/* Mapping of its arena, writable; NULL when streamed. The payloads in it stay as they are;
	 * the writer puts the file's glue (zip.h) between them. */
	uint8_t *arena;
};

/* A save to make durable. */
struct persist_save {
	uint64_t seq;  /* number of the save */
	uint64_t step; /* training step */
	/* Adds to the tag if one was created since this wall-clock time; INT64_MAX: replaces the
	 * tag. */
	int64_t since_ns;
	uint32_t attempt;              /* for the manifest */
	uint32_t world;                /* number of ranks here */
	uint32_t first_rank;           /* number of the first rank here */
	uint32_t remote_ranks;         /* ranks of the job on other hosts */
	struct persist_rank *ranks;    /* world entries */
	const struct history_row *row; /* the history row, as far as known */
	int slot;                      /* the submitter's */
	bool chosen;                   /* see struct agree */
};

/* A save that ranks stream. */
struct persist_stream_begin {
	uint64_t seq; /* number of the save */
};

/* A tag to find: job.tag unless that is "", else that of the step, else the newest. */
struct persist_resolve {
	bool has_step;      /* find this step and no other */
	uint64_t step;      /* with has_step */
	uint32_t find_id;   /* request of one rank; 0: of all ranks together */
	uint32_t find_rank; /* with find_id: the rank that made the request; the submitter's */
	bool find_newest;   /* with find_id: the request names no tag; the submitter's */
	/* Parts of saves that this host has in memory; without find_id, in a job whose ranks span
	 * hosts, else 0. If there are many, those of the highest steps count. The thread may still
	 * read a list when the ranks have begun anew, so each job has its own: freed with it. */
	struct peer_part *held;
	uint32_t held_n; /* number of entries in held */
};

struct persist_aside {
	char why[PERSIST_WHY_MAX]; /* for users */
};

struct persist_pin {
	bool pinned; /* false: unpin */
};

struct persist_check_space {
	uint64_t need_bytes; /* size of the tag */
};

struct persist_fail_save {
	uint64_t seq;           /* number of the save; with chosen, among all hosts */
	bool chosen;            /* see struct agree */
	struct pawl_err reason; /* why the part will not come */
};

/* A verdict: before, of this host's ranks; in the result, of all ranks. */
struct persist_vote {
	uint8_t verdict;           /* enum proto_verdict */
	char why[PERSIST_WHY_MAX]; /* reason of the verdict, for users */
	bool memory;               /* the offer was one of memory: no tag is put aside */
};

struct persist_opened {
	bool found;              /* the root has a tag with a step: step */
	uint64_t step;           /* highest step */
	struct events_past past; /* totals of the runs of earlier agents */
};

struct persist_saved {
	char diverged_part[CKPT_NAME_MAX]; /* partition that hosts hold differently, or "" */
};

struct persist_stream_dir {
	char dir[STORE_NAME_MAX]; /* where the ranks write */
};

/* The tag found; with found false, what was asked for. */
struct persist_found {
	bool found;
	uint64_t step;
	char tag[CKPT_TAG_MAX];
	bool memory; /* the tag is in the memory of the hosts, as plan says */
	/* With memory: what to fetch, else NULL. Freed with the job, unless it is taken out. */
	struct recover_plan *plan;
};

struct persist_begun {
	uint64_t nonce; /* random number of the ranks' start */
};

/* What the thread has done; it sets all of this, the submitter nothing. */
struct persist_result {
	int rv;              /* 0 or PAWL_E code */
	struct pawl_err err; /* filled if rv != 0 */
	union {              /* by kind; zeroed before the job begins */
		struct persist_opened open;
		struct persist_saved save;
		struct persist_stream_dir stream_begin;
		struct persist_found resolve;
		struct persist_begun begin;
		struct persist_vote vote;
	};
};

struct persist_job {
	enum persist_kind kind;
	char tag[CKPT_TAG_MAX]; /* the tag that the job is about, or "" */
	uint64_t epoch;         /* epoch of the ranks that the job belongs to; the submitter's */
	bool allocated;         /* persist_job_free frees the job itself, too */
	union {                 /* by kind */
		struct persist_save save;
		struct persist_stream_begin stream_begin;
		struct persist_resolve resolve;
		struct persist_aside aside;
		struct persist_pin pin;
		struct persist_check_space check_space;
		struct persist_fail_save fail_save;
		struct persist_vote vote;
	};
	struct persist_result result;
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
	uint32_t remote_ranks; /* ranks on other hosts; 0: only this host uses the root */
	uint32_t replicas;     /* as in struct peer_host, like parity */
	bool parity;
	/* Links to the agents of the other hosts, until persist_stop; NULL: there are none. */
	struct peers *peers;
};

/* Starts the thread. Finished jobs make it call loop_wake(loop). Strings are copied. */
int persist_start(struct persist **out, struct loop *loop, const struct persist_options *options,
	struct pawl_err *err);
void persist_set_policy(struct persist *persist, const struct persist_policy *policy);
void persist_submit(struct persist *persist, struct persist_job *job);
/*
 * Queue a row of the history, and of the events. The thread writes it with the next checkpoint that
 * becomes durable, or when it is idle, but not before there is a checkpoint. Never wait; rows that
 * cannot be written raise an alert.
 */
void persist_queue_row(struct persist *persist, const struct history_row *row);
void persist_queue_event(struct persist *persist, const struct event *event);
/* As agree_expect_nonce. */
void persist_expect_nonce(struct persist *persist, uint64_t nonce);
/* Returns whether the run of the hosts (agree.h) has changed since the last call: one was entered,
 * whose hosts are filled in, or it is over (map->run is 0). If false, *map is not touched. Any
 * thread; the loop is woken after each change. */
bool persist_take_map(struct persist *persist, struct peer_map *map);
/* Returns the alerts that the thread has put; the loop takes them when it is woken. */
struct alerts *persist_alerts(struct persist *persist);
/* Whether no job is queued, in progress, or to be reaped. */
bool persist_idle(struct persist *persist);
/* Returns a finished job, or NULL. */
struct persist_job *persist_reap(struct persist *persist);
/* Frees what the result of a reaped job owns; with allocated, also the job and its lists. */
void persist_job_free(struct persist_job *job);
/*
 * Finishes the current job and drops the rest. Returns false if the thread hangs in a disk for
 * longer than timeout_ms: the thread is then abandoned with all that belongs to it, since the
 * process is leaving. If it ends after all, it releases the root. The loop may be closed: it is not
 * woken any more. The peers must stay.
 */
bool persist_stop(struct persist *persist, int timeout_ms);

#endif
