/*
 * checkpointEvents.csv in the root, beside the history: when the ranks of an attempt began, what
 * they restored, and how they ended. From it follow how often a job fails, what each failure cost,
 * and so how often it should save. Written by the agent, which outlives its workers; what became of
 * a run whose agent died with it is written by the next one.
 */
#ifndef AGENT_EVENTS_H
#define AGENT_EVENTS_H

#include "agent/rows.h"

#include <stdbool.h>

struct pawl_err;
struct store;

#define EVENTS_FILE    "checkpointEvents.csv"
#define EVENTS_HEADER  "time,job,attempt,event,ranks,step,why\n"
#define EVENTS_WHY_MAX 256u /* bytes, terminator included */

enum event_kind {
	EVENT_STARTED,  /* the first rank of an attempt connected */
	EVENT_RESTORED, /* all ranks go on from step; why: from where */
	EVENT_FAILED,   /* a rank vanished, or said that it fails; the agent lives */
	EVENT_ENDED,    /* the last rank left, as all did: on purpose */
	EVENT_LOST,     /* the agent vanished too; the time is the last one known of it */
};

struct event {
	enum event_kind kind;
	int64_t at_ns;            /* wall clock */
	uint32_t attempt;         /* of the job */
	uint32_t ranks;           /* of the attempt */
	bool has_step;            /* step is known */
	uint64_t step;            /* restored; else the newest that was saved */
	char why[EVENTS_WHY_MAX]; /* "" if there is nothing to say */
};

/* What the runs in a file came to. */
struct events_past {
	uint32_t failures; /* runs that failed or were lost */
	uint32_t losses;   /* of them: lost, and the memory tier with them */
	double run_s;      /* seconds that runs lasted, together */
};

/* Appends the row, its end included. Pure. */
void events_put(struct wire_out *out, const struct event *event, const char *job);
/*
 * Sums up the lines of a file; a run with no end is put into *open (started, at the latest time
 * known of it), and true returned. Changes text. Pure.
 */
bool events_sum(char *text, struct events_past *past, struct event *open, char *job,
	size_t job_cap_bytes);
/*
 * At start, by the one owner of the root: sums up the file, and notes the end of a run that has
 * none. latest_ns: when it was alive, as far as the history knows. A file that is none of ours, or
 * too long, is put aside.
 */
int events_recover(struct rows *rows, struct store *store, int64_t latest_ns,
	struct events_past *past, struct pawl_err *err);

#endif
