/*
 * checkpointEvents.csv in the root, beside the history: when the ranks of an attempt began, what
 * they restored, and how they ended. These rows tell how often a job fails and what each failure
 * cost, and so how often it should save. The agent writes them, as it outlives its workers; if the
 * agent died with its run, the next agent writes the end of that run.
 */
#ifndef AGENT_PERSIST_EVENTS_H
#define AGENT_PERSIST_EVENTS_H

#include "agent/persist/rows.h"

#include <stdbool.h>

struct pawl_err;
struct tags_root;

#define EVENTS_FILE    "checkpointEvents.csv"
#define EVENTS_HEADER  "time,job,attempt,event,ranks,step,why\n"
#define EVENTS_WHY_MAX 256u /* bytes, terminator included */

enum event_kind {
	EVENT_STARTED,  /* the first rank of an attempt connected */
	EVENT_RESTORED, /* all ranks go on from step; why: "memory" or "store" */
	EVENT_FAILED,   /* a rank vanished, or reported that it fails; the agent lives */
	EVENT_ENDED,    /* the last rank left on purpose, as all others did */
	EVENT_LOST,     /* the agent vanished too; the time is the last one known of it */
};

struct event {
	enum event_kind kind;
	int64_t at_ns;            /* wall-clock time */
	uint32_t attempt;         /* attempt number of the job */
	uint32_t ranks;           /* number of ranks in the attempt */
	bool has_step;            /* step is known */
	uint64_t step;            /* step restored; otherwise the newest one saved */
	char why[EVENTS_WHY_MAX]; /* "": no reason */
};

/* Totals of the runs in a file. */
struct events_past {
	uint32_t failures; /* runs that failed or were lost */
	uint32_t losses;   /* runs that were lost, and the memory tier with them */
	double run_s;      /* total length of all runs, in seconds */
};

/* Appends the row and its line end. Pure. */
void events_put(struct wire_out *out, const struct event *event, const char *job);
/*
 * Sums up the lines of a file. If the last run has no end, fills *open (started, at the latest time
 * known of it) and returns true. Changes text. Pure.
 */
bool events_sum(char *text, struct events_past *past, struct event *open, char *job,
	size_t job_cap_bytes);
/*
 * Called at start by the one owner of the root: sums up the file, and adds the end of a run that
 * has none. latest_ns: when that run was last alive, as far as the history knows. A file that is
 * not ours, or is too long, is put aside.
 */
int events_recover(struct rows *rows, struct tags_root *root, int64_t latest_ns,
	struct events_past *past, struct pawl_err *err);

#endif
