/*
 * Metrics of the scheduler for Prometheus: AdaptDL's two metrics, and Pawl's own. Those computed
 * from the core and its database survive a restart; those counted here do not.
 */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include "daemon/prometheus.h"
#include "sched/database/database.h"

#define METRICS_EVENTS   (CORE_IDS_USED + 1u) /* kinds of events */
#define METRICS_JOBS_MAX 1000u                /* jobs that have lines of their own, at most */
#define METRICS_CODES    16u                  /* codes of HTTP answers, at most */

/* Counts since the scheduler was started. */
struct metrics {
	int64_t started_ns; /* wall clock */
	uint64_t events[METRICS_EVENTS];
	struct metrics_times decisions;
	struct metrics_times waits; /* waits of jobs, from submission to their first start */
	struct {
		unsigned code;
		uint64_t n;
	} answers[METRICS_CODES]; /* answers over HTTP; code 0: free */
};

/* A step of the core while it is made. */
struct metrics_step {
	int64_t began_ns;
	uint64_t decisions;
	bool first; /* the event is the first report that a job runs */
};

/* The state that metrics are computed from. */
struct metrics_view {
	const struct metrics *metrics;
	const struct sched_core *core;
	struct sched_database *database;
	int64_t now_ns; /* the core's clock */
	const struct core_queue *queues;
	uint32_t queues_n;
	const char (*types)[CORE_NAME_MAX]; /* names of types of nodes */
	uint32_t types_here;                /* bit t: nodes may have type t */
	uint32_t connections;               /* number of connections over HTTP */
};

void metrics_init(struct metrics *metrics);
/* Measure a core_step: metrics_begin is called before it, metrics_end after it. */
void metrics_begin(struct metrics_step *step, const struct sched_core *core,
	const struct core_event *event);
void metrics_end(struct metrics *metrics, const struct metrics_step *step,
	const struct sched_core *core, const struct core_event *event);
void metrics_count_answer(struct metrics *metrics, unsigned code);

/* Writes all metrics as text. Errors as of reading the database; PAWL_ENOMEM. */
int metrics_print(struct wire_out *out, const struct metrics_view *view, struct pawl_err *err);

#endif
