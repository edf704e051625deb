/* Remarks of the engine slurm for people: see engine.h. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text to which lines are appended; a line that does not fit is left out. */
struct lines {
	char *text;
	size_t len_bytes, cap_bytes;
};

__attribute__((format(printf, 2, 3))) static void add(struct lines *l, const char *fmt, ...)
{
	size_t room = l->cap_bytes - l->len_bytes;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(l->text + l->len_bytes, room, fmt, args);
	va_end(args);
	if (n >= 0 && (size_t)n < room) {
		l->len_bytes += (size_t)n;
	}
	ASSERT(l->len_bytes < l->cap_bytes);
	l->text[l->len_bytes] = '\0';
}

static int64_t seconds_since(int64_t ns)
{
	return (clock_mono_ns() - ns) / NS_PER_S;
}

static void add_pool(const struct sched_slurm *s, uint32_t pool, struct lines *l)
{
	const struct pool_request *request = &s->requests[pool];
	const char *name = s->options.pools[pool].pool.name;
	const char *reason = "Slurm has not considered them yet";
	uint32_t waiting = 0;

	for (uint32_t i = 0; i < s->queue_n; i++) {
		const struct pilot_job *job = &s->queue[i];

		if (job->pool != pool || !job->awaited || job->row.state != SLURM_PENDING) {
			continue;
		}
		waiting++;
		if (job->row.reason[0] != '\0' && strcmp(job->row.reason, "None") != 0 &&
			(waiting == 1 || strcmp(job->row.reason, "Priority") != 0)) {
			reason = job->row.reason; /* Priority: not the first in its partition */
		}
	}
	if (waiting > 0) {
		add(l, "slurm: pool %s: %u pilot%s in Slurm's queue: %s\n", name, waiting,
			waiting == 1 ? " waits" : "s wait", reason);
	}
	if (request->exhausted_reason[0] != '\0') {
		add(l, "slurm: pool %s: no pilot, %" PRId64 " s ago: %s\n", name,
			seconds_since(request->exhausted_ns), request->exhausted_reason);
	}
}

void slurm_remark(struct sched_slurm *s, uint64_t id, char *text, size_t cap_bytes)
{
	const struct slurm_job *job = id > 0 ? slurm_job_find(s, id) : NULL;
	struct lines l = {.text = text, .cap_bytes = cap_bytes};

	text[0] = '\0';
	if (job && job->refused_why[0] != '\0') {
		add(&l, "slurm: the job's last start was refused: %s\n", job->refused_why);
	}
	if (s->failed[0] != '\0') {
		add(&l, "slurm: no answer for %" PRId64 " s: %s\n", seconds_since(s->failed_ns),
			s->failed);
	}
	if (s->spool_failed[0] != '\0') {
		add(&l, "slurm: %s\n", s->spool_failed);
	}
	for (uint32_t p = 0; p < s->options.pools_n; p++) {
		add_pool(s, p, &l);
	}
}
