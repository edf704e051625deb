/*
 * A line of the history of a live cluster, as JSON: docs/format.md says what is in it. One thread.
 */
#ifndef DAEMON_HISTORY_ROW_H
#define DAEMON_HISTORY_ROW_H

#include "sched/core.h"

struct json_t;
struct pawl_err;

#define HISTORY_VERSION 2
#define HISTORY_WORD    16u /* bytes of a state's name, terminator included */

enum history_kind {
	HISTORY_HEAD,      /* a file begins: with all that there is at t_s */
	HISTORY_NODE,      /* node */
	HISTORY_JOB,       /* job */
	HISTORY_SCHEDULER, /* word: "started", "stopped" */
};

struct history_node {
	char name[CORE_NAME_MAX];
	char pool[CORE_NAME_MAX]; /* "": none */
	char type[CORE_NAME_MAX]; /* likewise */
	char state[HISTORY_WORD]; /* "up", "drained", "going", "gone" */
	uint32_t slots;           /* 0: it is gone */
	double price;             /* an hour; 0: not known */
	bool spot;                /* it can be taken away */
};

struct history_spot {
	char node[CORE_NAME_MAX];
	uint32_t replicas; /* at least 1 */
};

struct history_job {
	uint64_t id;
	char name[CORE_NAME_MAX];
	char user[CORE_NAME_MAX];
	char queue[CORE_NAME_MAX];
	uint32_t least, most; /* replicas */
	double submitted_s;   /* since 1970 */
	double begun_s;       /* when it first had a replica; 0: it had none */
	char state[HISTORY_WORD];
	char why[CORE_NAME_MAX];
	struct history_spot *spots; /* owned; where it is */
	uint32_t spots_n;
	uint32_t restarts; /* changes of its replicas since its first start */
	double goodput;    /* samples/s, as it told; 0: not known */
	uint64_t batch;    /* samples of a step that this is of; 0: not known */
	bool over;         /* state is how it ended */
	int exit_code;     /* over: of its last end by itself */
	double told_s;     /* t_s of its newest row; in no row */
};

struct history_row {
	enum history_kind kind;
	double t_s;    /* since 1970 */
	double lost_s; /* head: from then on to t_s nothing was written; 0: nothing is lost */
	char word[HISTORY_WORD];
	char host[CORE_NAME_MAX];   /* head: of the scheduler */
	char policy[CORE_NAME_MAX]; /* head, scheduler: its name */
	struct history_node node;
	struct history_job job;
};

/* The row as an object, to be released; its key "more" is left to the caller. NULL: no memory. */
struct json_t *history_row_encode(const struct history_row *row);
/* A line without its end. PAWL_ECORRUPT: it is none; PAWL_ENOMEM. On success row is to be
 * deinitialised. */
int history_row_decode(struct history_row *row, const char *line, size_t len_bytes,
	struct pawl_err *err);
void history_row_deinit(struct history_row *row);
/* Whether both say the same of a job, but for its goodput and batch. */
bool history_job_same(const struct history_job *a, const struct history_job *b);

#endif
