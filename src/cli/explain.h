/* Shared by the files of `pawl explain`: a group's traces, and their summary. */
#ifndef CLI_EXPLAIN_H
#define CLI_EXPLAIN_H

#include "coll/group/trace.h"

#include "pawl/pipe.h"

#include <stdio.h>

#define EXPLAIN_FILES_MAX 65536u /* traces in a directory, at most */

/* ---- the files (explain_load.c) ---- */

/* The traces of a directory, by group. */
struct explain_files {
	struct explain_file {
		char name[128]; /* name in the directory */
		uint64_t group; /* id of the group that left it */
		uint32_t rank;  /* rank that left it */
	} * at;                 /* owned; sorted by group, then by rank */
	size_t n;               /* number of entries in at */
	int folder;             /* the directory, open; -1: none */
	size_t bad_n;           /* files that are named like a trace and are none */
	char bad[192];          /* the first such file, and why */
};

/* Lists the traces in a directory. PAWL_ENOENT: there is none; PAWL_EIO, PAWL_ENOMEM,
 * PAWL_ELIMIT. */
int explain_files_open(struct explain_files *files, const char *path, struct pawl_err *err);
void explain_files_close(struct explain_files *files);

/* The traces of one group. */
struct explain_group {
	uint64_t id;           /* id of the group */
	uint32_t ranks, hosts; /* number of ranks, and of hosts, in the group */
	uint32_t traced_ranks; /* ranks that left a trace */
	/* owned; one for each rank; header.ranks is 0 if the rank left none */
	struct trace *traces;
	int64_t *base_ns; /* owned; one for each rank: times plus this are CLOCK_REALTIME */
	int64_t skew_ns;  /* largest correction of a host's clock */
};

/* Loads the traces of one group, whose files begin at index first; *n: number of files.
 * PAWL_ENOMEM, PAWL_EIO, PAWL_ECORRUPT: the traces contradict each other. */
int explain_group_load(struct explain_group *group, const struct explain_files *files, size_t first,
	size_t *n, struct pawl_err *err);
void explain_group_deinit(struct explain_group *group);
/* Returns the time of the first record in the traces; CLOCK_REALTIME. INT64_MAX: there is none. */
int64_t explain_group_begin(const struct explain_group *group);

/* ---- printing (explain.c) ---- */

/* Prints what `pawl explain path` prints. */
int explain_print(const char *path, struct pawl_err *err);

/* ---- the summary (explain_sum.c); pure ---- */

enum explain_phase {
	EXPLAIN_QUEUED,
	EXPLAIN_IDLE,
	EXPLAIN_LATE, /* until the last rank had begun, by all traces together */
	EXPLAIN_NETWORK,
	EXPLAIN_MEMORY,
	EXPLAIN_PHASES
};

/* A collective that all traces have. */
struct explain_op {
	const struct trace_record *record; /* record of one of the ranks */
	int64_t begin_ns;    /* time when the first rank submitted it; CLOCK_REALTIME */
	int64_t together_ns; /* time when the last rank began it */
	int64_t end_ns;      /* time when the last rank had done it */
	int64_t late_ns;     /* time from half of the ranks having begun to the last one */
	uint32_t last;       /* rank that began it last */
};

/* Operations that repeat in this order. */
struct explain_step {
	size_t first; /* index of the first operation in ops */
	int64_t ns;   /* time from the end of the step before to the end of this one */
};

struct explain_rank {
	uint64_t last_n; /* operations to which the rank came last, by EXPLAIN_LATE_NS or more */
	double late_s;   /* lateness in all these operations together */
	int64_t late_median_ns; /* median of the lateness in these operations */
	int64_t late_most_ns;   /* largest lateness in these operations */
};

/* Traffic from one host to another. */
struct explain_link {
	uint32_t from, to; /* hosts; numbers after the last host are servers */
	double bytes, s;   /* bytes that were sent, and seconds of the link's turns */
};

#define EXPLAIN_LATE_NS 100000 /* a rank that is less late is not called late */

struct explain_sum {
	struct explain_op *ops;     /* owned; by number */
	size_t ops_n;               /* number of entries in ops */
	struct explain_step *steps; /* owned; in order */
	size_t steps_n, step_ops;   /* number of steps; operations in each, 0: they do not repeat */
	struct explain_rank *ranks; /* owned; one for each rank */
	struct explain_link *links; /* owned; the slowest first */
	size_t links_n;             /* number of entries in links */
	double phase_s[EXPLAIN_PHASES]; /* time in each phase, of all operations at all ranks */
	double adding_s;                /* time spent adding, within the last two phases */
	double blocked_s;               /* time that threads waited, all ranks together */
	double elapsed_s;               /* time from the first begin to the last end */
};

/* Corrects the skew of the hosts' clocks, as far as the order of events proves it. */
void explain_align(struct explain_group *group);
/* Sums up a group's traces. PAWL_ENOMEM. */
int explain_sum_init(struct explain_sum *sum, const struct explain_group *group,
	struct pawl_err *err);
void explain_sum_deinit(struct explain_sum *sum);
/* Returns whether link i is slow, compared with the median link. */
bool explain_link_slow(const struct explain_sum *sum, size_t i);
/* Sorts times, of which there is one at least. Returns the one in the middle. */
int64_t explain_median(int64_t *ns, size_t n);
/* Formats a name: "all_reduce(sum) of 1000 float32"; text has GROUP_CALL_TEXT bytes. */
void explain_name(const struct trace_record *record, char *text);

/* ---- pipelines (explain_stages.c); pure ---- */

/* The steps of one stage, which is a rank. */
struct explain_stage {
	size_t steps;       /* steps in its trace */
	int64_t busy_ns;    /* median time in which it did not wait */
	int64_t length_ns;  /* median time from begin to end */
	int64_t planned_ns; /* time in which it was to be busy; 0: not known */
};

struct explain_stages {
	struct explain_stage *at; /* owned; one for each rank */
	uint32_t n;               /* number of ranks */
	size_t steps;             /* most steps of a stage; 0: the group is no pipeline */
	int64_t length_ns;        /* longest median of a stage */
};

struct explain_verdict {
	enum {
		EXPLAIN_EVEN,   /* no stage is slow */
		EXPLAIN_LARGE,  /* a stage has more to do than the others */
		EXPLAIN_DELAYED /* a stage is slower than planned, and the others are not */
	} kind;
	uint32_t stage; /* the stage that is busy for longest */
	double more;    /* how much longer, as a share of the others */
};

/* Sums up a group's steps. PAWL_ENOMEM. */
int explain_stages_init(struct explain_stages *stages, const struct explain_group *group,
	struct pawl_err *err);
void explain_stages_deinit(struct explain_stages *stages);
/* Finds the stage that the others wait for. */
struct explain_verdict explain_stages_judge(const struct explain_stages *stages);

/* ---- for chrome://tracing (explain_json.c) ---- */

/* A document being written. */
struct explain_json {
	FILE *to;         /* stream of the caller's */
	bool has_events;  /* an event has been written */
	unsigned groups;  /* groups written so far */
	int64_t begin_ns; /* origin of all times; CLOCK_REALTIME */
};

void explain_json_begin(struct explain_json *json);
void explain_json_group(struct explain_json *json, const struct explain_group *group);
/* Ends the document. False: something could not be written. */
bool explain_json_end(struct explain_json *json);

#endif
