/* What the files of the engine slurm do with its state: they queue events for the core, schedule
 * the next look, record errors of the spool, and grow the state's arrays. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

struct slurm_event *slurm_post(struct sched_slurm *s, enum core_event_kind kind)
{
	struct slurm_event *pending = calloc(1, sizeof(*pending));

	if (!pending) {
		log_line(LOG_ERROR,
			"slurm: out of memory: an event is lost until the scheduler lists again");
		return NULL;
	}
	pending->event.kind = kind;
	*s->last = pending;
	s->last = &pending->next;
	loop_timer_start(s->options.loop, &s->post, clock_mono_ns());
	return pending;
}

void slurm_post_node(struct sched_slurm *s, const char *name, enum core_event_kind kind)
{
	struct slurm_event *pending = slurm_post(s, kind);

	if (pending) {
		snprintf(pending->name, sizeof(pending->name), "%s", name);
	}
}

void slurm_post_job(struct sched_slurm *s, enum core_event_kind kind, const struct slurm_job *job,
	uint64_t generation)
{
	struct slurm_event *pending = slurm_post(s, kind);

	if (pending) {
		pending->event.job = job->record.job;
		pending->event.generation = generation;
		pending->event.end_cause = job->record.end_cause;
		pending->event.exit_code = job->record.exit_code;
	}
}

void slurm_look_soon(struct sched_slurm *s)
{
	loop_timer_start(s->options.loop, &s->look, clock_mono_ns());
}

void slurm_report_spool_error(struct sched_slurm *s, const struct pawl_err *err)
{
	if (s->spool_failed[0] == '\0') {
		log_line(LOG_ERROR, "slurm: %s", err->msg);
	}
	snprintf(s->spool_failed, sizeof(s->spool_failed), "%s", err->msg);
	s->spool_failing = true;
}

bool slurm_grow(void *items, uint32_t n, uint32_t *cap, size_t item_bytes)
{
	void **at = items;
	uint32_t more = *cap > 0 ? 2 * *cap : 16;
	void *grown;

	ASSERT(n <= *cap);
	if (n < *cap) {
		return true;
	}
	grown = realloc(*at, more * item_bytes);
	if (!grown) {
		log_line(LOG_ERROR, "slurm: out of memory");
		return false;
	}
	*at = grown;
	*cap = more;
	return true;
}
