/*
 * What the scheduler tells Prometheus of itself: AdaptDL's two names, and Pawl's own. What can be
 * computed from the core and its store survives a restart; what is counted here does not.
 */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include "daemon/metrics_text.h"
#include "sched/store.h"

#define METRICS_EVENTS   (CORE_SEEN + 1u) /* kinds of them */
#define METRICS_JOBS_MAX 1000u            /* that have lines of their own */
#define METRICS_CODES    16u              /* of HTTP */

/* Since the scheduler was started. */
struct metrics {
	int64_t started_ns; /* wall clock */
	uint64_t events[METRICS_EVENTS];
	struct metrics_times decisions;
	struct metrics_times waits; /* of jobs, from submission to their first start */
	struct {
		unsigned code;
		uint64_t n;
	} answers[METRICS_CODES]; /* by HTTP; code 0: free */
};

/* A step of the core while it is made. */
struct metrics_step {
	int64_t began_ns;
	uint64_t decisions;
	bool first; /* a job is told to run for the first time */
};

/* What they are about. */
struct metrics_view {
	const struct metrics *metrics;
	const struct sched_core *core;
	struct sched_store *store;
	int64_t now_ns; /* the core's clock */
	const struct core_queue *queues;
	uint32_t queues_n;
	const char (*types)[CORE_NAME_MAX]; /* names of types of nodes */
	uint32_t types_here;                /* bit t: nodes may have type t */
	uint32_t connections;               /* by HTTP */
};

void metrics_init(struct metrics *metrics);
/* Around core_step. */
void metrics_begin(struct metrics_step *step, const struct sched_core *core,
	const struct core_event *event);
void metrics_end(struct metrics *metrics, const struct metrics_step *step,
	const struct sched_core *core, const struct core_event *event);
void metrics_answered(struct metrics *metrics, unsigned code);

/* All of it, as text. Errors as of reading the store; PAWL_ENOMEM. */
int metrics_print(struct wire_out *out, const struct metrics_view *view, struct pawl_err *err);

#endif
