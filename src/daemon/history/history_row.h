/*
 * A line of the history of a live cluster, as JSON: docs/format.md has its keys. One thread.
 */
#ifndef DAEMON_HISTORY_HISTORY_ROW_H
#define DAEMON_HISTORY_HISTORY_ROW_H

#include "sched/core/core.h"

struct json_t;
struct pawl_err;

#define HISTORY_VERSION   2
#define HISTORY_STATE_MAX 16u /* bytes of a state's name, terminator included */

enum history_kind {
	HISTORY_FILE_HEADER, /* first row of a file; rows of all nodes and jobs follow */
	HISTORY_NODE,        /* node */
	HISTORY_JOB,         /* job */
	HISTORY_SCHEDULER,   /* event: "started", "stopped" */
};

struct history_node {
	char name[CORE_NAME_MAX];
	char pool[CORE_NAME_MAX];      /* "": none */
	char type[CORE_NAME_MAX];      /* "": none */
	char state[HISTORY_STATE_MAX]; /* "up", "drained", "going", "gone" */
	uint32_t slots;                /* 0: the node is gone */
	double price;                  /* price of an hour; 0: not known */
	bool spot;                     /* the node can be taken away */
};

struct history_entry {
	char node[CORE_NAME_MAX];
	uint32_t replicas; /* at least 1 */
};

struct history_job {
	uint64_t id;
	char name[CORE_NAME_MAX];
	char user[CORE_NAME_MAX];
	char queue[CORE_NAME_MAX];
	uint32_t least, most; /* replicas */
	double submitted_s;   /* seconds since 1970 */
	double begun_s;       /* time of the first replica; 0: there was none */
	char state[HISTORY_STATE_MAX];
	char why[CORE_NAME_MAX];
	struct history_entry *entries; /* owned; nodes that it is on */
	uint32_t entries_n;
	uint32_t restarts; /* changes of its replicas since its first start */
	double goodput;    /* samples/s, by the job's hints; 0: not known */
	uint64_t batch;    /* samples of a step at that goodput; 0: not known */
	bool over;         /* state says how it ended */
	int exit_code;     /* if over: exit code of its last end by itself */
	double last_row_s; /* t_s of the newest row; not in a row */
};

struct history_row {
	enum history_kind kind;
	double t_s;    /* seconds since 1970 */
	double lost_s; /* header: time from which rows up to t_s are lost; 0: none are */
	char event[HISTORY_STATE_MAX];
	char host[CORE_NAME_MAX];   /* header: host of the scheduler */
	char policy[CORE_NAME_MAX]; /* header, scheduler: name of the policy */
	struct history_node node;
	struct history_job job;
};

/* Encodes a row as an object, which the caller releases; its key "more" is left to the caller.
 * NULL: no memory. */
struct json_t *history_row_encode(const struct history_row *row);
/* Decodes a line without its end. PAWL_ECORRUPT: the line is no row, or no memory. On success the
 * caller deinits row. */
int history_row_decode(struct history_row *row, const char *line, size_t len_bytes,
	struct pawl_err *err);
void history_row_deinit(struct history_row *row);
/* Returns whether both rows of a job have the same state, reason, restarts and nodes. */
bool history_job_same(const struct history_job *a, const struct history_job *b);

#endif
