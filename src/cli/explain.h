/* What the files of `pawl explain` share: a group's traces, and what is found in them. */
#ifndef CLI_EXPLAIN_H
#define CLI_EXPLAIN_H

#include "coll/trace.h"

#include <stdio.h>

#define EXPLAIN_FILES_MAX 65536u /* of a directory */

/* ---- the files (explain_load.c) ---- */

/* The directory's traces by group. */
struct explain_files {
	struct explain_file {
		char name[128]; /* in the directory */
		uint64_t group; /* whose it is */
		uint32_t rank;  /* the same */
	} * at;                 /* owned; by group, then by rank */
	size_t n;               /* of them */
	int folder;             /* the directory, open; -1: none */
	size_t bad_n;           /* files that are named so and are no traces */
	char bad[192];          /* the first of them, and why */
};

/* PAWL_ENOENT: there is none; PAWL_EIO, PAWL_ENOMEM, PAWL_ELIMIT. */
int explain_files_open(struct explain_files *files, const char *path, struct pawl_err *err);
void explain_files_close(struct explain_files *files);

/* One group's. */
struct explain_group {
	uint64_t id;           /* of the group */
	uint32_t ranks, hosts; /* of it */
	uint32_t there;        /* ranks that left a trace */
	struct trace *traces;  /* owned; of each rank; its head.ranks is 0: it left none */
	int64_t *base_ns;      /* owned; of each rank: its times and this are CLOCK_REALTIME */
	int64_t apart_ns;      /* by which clocks of hosts were put right, at most */
};

/* The files from first on that are of its group; how many is *n. PAWL_ENOMEM, PAWL_EIO,
 * PAWL_ECORRUPT: they do not fit each other. */
int explain_group_load(struct explain_group *group, const struct explain_files *files, size_t first,
	size_t *n, struct pawl_err *err);
void explain_group_deinit(struct explain_group *group);
/* When the first thing in its traces was; CLOCK_REALTIME. INT64_MAX: there is nothing. */
int64_t explain_group_begin(const struct explain_group *group);

/* ---- printing (explain.c) ---- */

/* What `pawl explain path` does. */
int explain_print(const char *path, struct pawl_err *err);

/* ---- what is in them (explain_sum.c); pure ---- */

enum explain_phase {
	EXPLAIN_QUEUED,
	EXPLAIN_IDLE,
	EXPLAIN_LATE, /* until the last rank of all had begun, as all files together show */
	EXPLAIN_NETWORK,
	EXPLAIN_MEMORY,
	EXPLAIN_PHASES
};

/* A collective that all traces have. */
struct explain_op {
	const struct trace_record *record; /* one rank's */
	int64_t begin_ns;                  /* when the first rank submitted it; CLOCK_REALTIME */
	int64_t together_ns;               /* when the last one began it */
	int64_t end_ns;                    /* when it was done everywhere */
	int64_t late_ns;                   /* from when half of the ranks had begun to the last */
	uint32_t last;                     /* that rank */
};

/* Operations that come again and again in this order. */
struct explain_step {
	size_t first; /* of the operations */
	int64_t ns;   /* from the end of the one before to its own */
};

struct explain_rank {
	uint64_t last_n;        /* operations to which it came last, by EXPLAIN_LATE_NS or more */
	double late_s;          /* by how much, all together */
	int64_t late_median_ns; /* of them */
	int64_t late_most_ns;   /* the same */
};

/* From one host to another. */
struct explain_link {
	uint32_t from, to; /* hosts; then servers */
	double bytes, s;   /* what went, while it was its turn */
};

#define EXPLAIN_LATE_NS 100000 /* less is nobody's fault */

struct explain_sum {
	struct explain_op *ops;         /* owned; by number */
	size_t ops_n;                   /* of them */
	struct explain_step *steps;     /* owned; in order */
	size_t steps_n, step_ops;       /* of them; operations of each */
	struct explain_rank *ranks;     /* owned; of each */
	struct explain_link *links;     /* owned; the slowest first */
	size_t links_n;                 /* of them */
	double phase_s[EXPLAIN_PHASES]; /* of all operations at all ranks */
	double adding_s;                /* of the last two */
	double blocked_s;               /* that threads waited, all ranks together */
	double elapsed_s;               /* from the first begin to the last end */
};

/* Puts the hosts' clocks right, as far as what cannot have been shows them to be wrong. */
void explain_align(struct explain_group *group);
/* PAWL_ENOMEM. */
int explain_sum_init(struct explain_sum *sum, const struct explain_group *group,
	struct pawl_err *err);
void explain_sum_deinit(struct explain_sum *sum);
/* Whether its link i is slow, by the others. */
bool explain_link_slow(const struct explain_sum *sum, size_t i);
/* "all_reduce(sum) of 1000 float32"; text has GROUP_CALL_TEXT bytes. */
void explain_name(const struct trace_record *record, char *text);

/* ---- for chrome://tracing (explain_json.c) ---- */

/* A document being written. */
struct explain_json {
	FILE *to;         /* the caller's */
	bool some;        /* there was an event */
	unsigned groups;  /* so far */
	int64_t begin_ns; /* what times are counted from; CLOCK_REALTIME */
};

void explain_json_begin(struct explain_json *json);
void explain_json_group(struct explain_json *json, const struct explain_group *group);
/* False: something could not be written. */
bool explain_json_end(struct explain_json *json);

#endif
