/* Events of engines of real processes, for the suite of test_sched_engine.h: queued, and returned
 * one by one while the loop runs. Also the marks, one line each, that the jobs write to a file. */
#ifndef TEST_SCHED_EVENTS_H
#define TEST_SCHED_EVENTS_H

#include "test_sched_engine.h"

#include "base/clock.h"
#include "io/loop.h"
#include "within.h"

#define EVENTS_MAX  256u
#define EVENTS_RUNS 64u

/* A posted event, and the data that it points to. */
struct reported {
	struct core_event event;
	struct core_offer offer;
	char name[CORE_NAME_MAX];
	struct core_run runs[EVENTS_RUNS];
};

static struct events {
	struct loop *loop;
	struct reported reports[EVENTS_MAX];
	uint32_t first, n;     /* index of the oldest in the ring; number of events */
	struct reported given; /* the event that events_next returned last */
} events;

static void events_take(void *user, const struct core_event *event)
{
	struct reported *report = &events.reports[(events.first + events.n) % EVENTS_MAX];

	assert_false(suite.calling); /* no event from within a call */
	assert_true(events.n < EVENTS_MAX && event->runs_n <= EVENTS_RUNS);
	events.n++;
	report->event = *event;
	report->offer = event->offer ? *event->offer : (struct core_offer){0};
	snprintf(report->name, sizeof(report->name), "%s",
		event->node           ? event->node
			: event->pool ? event->pool
				      : "");
	if (event->runs_n > 0) {
		memcpy(report->runs, event->runs, event->runs_n * sizeof(report->runs[0]));
	}
	loop_stop(events.loop);
}

static void events_late(struct loop_timer *timer)
{
	bool *late = timer->user;

	*late = true;
	loop_stop(events.loop);
}

/* Returns the next event. The time is scaled, see within.h. */
static const struct core_event *events_next(int64_t wait_ms)
{
	bool late = false;
	struct loop_timer timer = {.fired = events_late, .user = &late};
	struct core_event *event = &events.given.event;

	loop_timer_start(events.loop, &timer, clock_mono_ns() + within_ns((double)wait_ms / 1000));
	while (events.n == 0 && !late) { /* An earlier stop may end the loop at once. */
		assert_int_equal(loop_run(events.loop, NULL), 0);
	}
	loop_timer_cancel(events.loop, &timer);
	if (events.n == 0) {
		return NULL;
	}
	events.given = events.reports[events.first];
	events.first = (events.first + 1) % EVENTS_MAX;
	events.n--;
	event->offer = &events.given.offer;
	event->node = event->pool = events.given.name;
	event->runs = events.given.runs;
	return event;
}

/* ---- jobs and their marks ---- */

/* Scripts for sh: $0 is the file of marks, $1 JOB.GENERATION.RANK. Each writes "start" once it
 * handles signals, and "saved" on SIGTERM. */
static const char *const deed_scripts[DEEDS_N] = {
	[DEED_LASTS] = ("trap 'echo saved $1 >>$0; exit 143' TERM; echo start $1 >>$0\n"
			"setsid sh -c 'trap \"\" TERM; sleep 1000' & while :; do sleep 0.1; done"),
	[DEED_GOOD] = "echo start $1 >>$0; exit 0",
	[DEED_BAD] = "echo start $1 >>$0; exit 3",
	[DEED_IGNORES_STOP] = "trap '' TERM; echo start $1 >>$0; while :; do sleep 0.1; done",
	/* Under pawl run, all ranks begin again when their number changes: the job starts once. */
	[DEED_ELASTIC] = ("trap 'echo saved $1 >>$0; exit 143' TERM\n"
			  "[ -z \"$WORLD_SIZE\" ] || echo size $1 $WORLD_SIZE >>$0\n"
			  "[ \"$RANK\" = 0 ] && [ $WORLD_SIZE -gt 1 ] || echo start $1 >>$0\n"
			  "while :; do sleep 0.1; done"),
};

/* Counts the lines with that begin and that end. */
static uint64_t marks_count(const char *path, const char *begin, const char *end)
{
	FILE *file = fopen(path, "re");
	char line[256];
	uint64_t n = 0;

	while (file && fgets(line, sizeof(line), file)) {
		size_t len = strcspn(line, "\n");
		size_t end_len = strlen(end);

		n += strncmp(line, begin, strlen(begin)) == 0 && len >= end_len &&
			strncmp(line + len - end_len, end, end_len) == 0;
	}
	if (file) {
		fclose(file);
	}
	return n;
}

/* Returns the last number of replicas that the job wrote: "size JOB.GENERATION.RANK NUMBER"; 0:
 * none. */
static uint32_t marks_size(const char *path, uint64_t job)
{
	FILE *file = fopen(path, "re");
	char line[256];
	uint32_t size = 0;

	while (file && fgets(line, sizeof(line), file)) {
		unsigned long long of;
		unsigned n;

		if (sscanf(line, "size %llu.%*u.%*u %u", &of, &n) == 2 && of == job) {
			size = n;
		}
	}
	if (file) {
		fclose(file);
	}
	return size;
}

/* Counts the starts: those of the first node, so each start once. */
static uint64_t marks_starts(const char *path)
{
	return marks_count(path, "start ", ".0");
}

#endif
