/* Rows of checkpointEvents.csv: see events.h. */
#include "agent/persist/events.h"

#include "base/clock.h"
#include "base/err.h"
#include "ckpt/root.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Places of the columns. */
enum { COL_TIME, COL_JOB, COL_ATTEMPT, COL_EVENT, COL_RANKS, COL_STEP, COLS = 7 };

static const char *const kinds[] = {[EVENT_STARTED] = "started",
	[EVENT_RESTORED] = "restored",
	[EVENT_FAILED] = "failed",
	[EVENT_ENDED] = "ended",
	[EVENT_LOST] = "lost"};

#define KINDS_N (sizeof(kinds) / sizeof(kinds[0]))

_Static_assert(KINDS_N == EVENT_LOST + 1, "each kind has a word");
_Static_assert(COL_STEP + 2 == COLS, "why is the last column");

void events_put(struct wire_out *out, const struct event *event, const char *job)
{
	char at[ROWS_TIME_MAX];

	rows_put(out, "%s,", rows_time(at, event->at_ns, true));
	rows_put_text(out, job, false);
	rows_put(out, "%u,%s,%u,", event->attempt, kinds[event->kind], event->ranks);
	if (event->has_step) {
		rows_put(out, "%" PRIu64, event->step);
	}
	rows_put(out, ",");
	rows_put_text(out, event->why, true);
}

/* Returns the kind that word names; KINDS_N if none. */
static size_t kind_of(const char *word)
{
	size_t kind = 0;

	while (kind < KINDS_N && strcmp(kinds[kind], word) != 0) {
		kind++;
	}
	return kind;
}

static void end_run(struct events_past *past, int64_t started_ns, int64_t at_ns, size_t kind)
{
	past->run_s += at_ns > started_ns ? (double)(at_ns - started_ns) / NS_PER_S : 0;
	past->failures += kind == EVENT_FAILED || kind == EVENT_LOST;
	past->losses += kind == EVENT_LOST;
}

bool events_sum(char *text, struct events_past *past, struct event *open, char *job,
	size_t job_cap_bytes)
{
	char *fields[COLS];
	int64_t started_ns = 0;
	bool running = false;
	char *end;

	*past = (struct events_past){0};
	for (char *line = text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		size_t kind;
		int64_t at_ns;

		*end = '\0';
		if (rows_split(line, fields, COLS) != COLS ||
			(kind = kind_of(fields[COL_EVENT])) == KINDS_N ||
			(at_ns = rows_time_ns(fields[COL_TIME])) == 0) {
			continue;
		}
		if (running && kind != EVENT_STARTED && kind != EVENT_RESTORED) {
			end_run(past, started_ns, at_ns, kind);
			running = false;
		}
		/* A run that has no end before the next one starts counts for nothing. */
		if (kind == EVENT_STARTED) {
			running = true;
			started_ns = at_ns;
			*open = (struct event){.kind = EVENT_STARTED,
				.attempt = (uint32_t)strtoul(fields[COL_ATTEMPT], NULL, 10),
				.ranks = (uint32_t)strtoul(fields[COL_RANKS], NULL, 10)};
			snprintf(job, job_cap_bytes, "%s", fields[COL_JOB]);
		}
		open->at_ns = running ? at_ns : 0;
	}
	if (running) {
		past->run_s += (double)(open->at_ns - started_ns) / NS_PER_S;
	}
	return running;
}

/* Adds the end of a run whose agent vanished, at the last time known of the run. */
static void end_open(struct rows *rows, struct event *open, const char *job, int64_t latest_ns,
	struct events_past *past)
{
	end_run(past, open->at_ns, latest_ns, EVENT_LOST);
	open->kind = EVENT_LOST;
	open->at_ns = latest_ns > open->at_ns ? latest_ns : open->at_ns;
	snprintf(open->why, sizeof(open->why), "the agent was gone, with its workers");
	events_put(&rows->taken, open, job);
	rows->taken.failed = false; /* without memory only the row is lost */
}

int events_recover(struct rows *rows, struct tags_root *root, int64_t latest_ns,
	struct events_past *past, struct pawl_err *err)
{
	struct event open = {0};
	char job[CKPT_JOB_MAX];
	void *bytes = NULL;
	size_t len = 0;
	int rv = store_read_small(tags_root_store(root), EVENTS_FILE, &bytes, &len, ROWS_FILE_MAX,
		err);

	*past = (struct events_past){0};
	if (rv == PAWL_ELIMIT || rv == PAWL_EINVAL ||
		(rv == 0 && strncmp(bytes, EVENTS_HEADER, strlen(EVENTS_HEADER)) != 0)) {
		rv = rows_put_aside(rows, root,
			rv == 0 ? "its header is not that of this version" : err->msg, err);
		free(bytes);
		return rv;
	}
	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	rows->torn = len > 0 && ((const char *)bytes)[len - 1] != '\n';
	if (events_sum(bytes, past, &open, job, sizeof(job))) {
		end_open(rows, &open, job, latest_ns, past);
	}
	free(bytes);
	return 0;
}
