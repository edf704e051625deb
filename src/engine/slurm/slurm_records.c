/* The jobs' records: saved, loaded, found, listed to the core, and forgotten long after the end. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP_NS (86400 * NS_PER_S) /* time for which an end is kept */

bool slurm_job_is_alive(const struct slurm_job *job)
{
	return job->record.nodes_n > 0 && !job->record.over;
}

static void file_name(char name[32], uint64_t id)
{
	snprintf(name, 32, "%" PRIu64, id);
}

int slurm_job_save(struct sched_slurm *s, const struct slurm_record *record, struct pawl_err *err)
{
	struct wire_out out = {0};
	char directory[SLURM_PATH_MAX];
	char name[32];
	int rv;

	snprintf(directory, sizeof(directory), "%s/jobs", s->options.spool);
	file_name(name, record->job);
	slurm_record_encode(record, &out);
	rv = slurm_spool_put(directory, name, &out, err);
	wire_out_deinit(&out);
	return rv;
}

/* Returns the index of a job, or the index at which it would be inserted. */
static uint32_t index_of(const struct sched_slurm *s, uint64_t id)
{
	uint32_t low = 0;
	uint32_t high = s->jobs_n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (s->jobs[middle]->record.job < id) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

static bool is_at(const struct sched_slurm *s, uint32_t at, uint64_t id)
{
	return at < s->jobs_n && s->jobs[at]->record.job == id;
}

const struct slurm_job *slurm_job_find(const struct sched_slurm *s, uint64_t id)
{
	uint32_t at = index_of(s, id);

	return is_at(s, at, id) ? s->jobs[at] : NULL;
}

struct slurm_job *slurm_job_find_or_add(struct sched_slurm *s, uint64_t id)
{
	uint32_t at = index_of(s, id);
	struct slurm_job *job;

	if (is_at(s, at, id)) {
		return s->jobs[at];
	}
	job = slurm_grow(&s->jobs, s->jobs_n, &s->jobs_cap, sizeof(struct slurm_job *))
		? calloc(1, sizeof(*job))
		: NULL;
	if (job) {
		memmove(s->jobs + at + 1, s->jobs + at,
			(s->jobs_n - at) * sizeof(struct slurm_job *));
		s->jobs[at] = job;
		s->jobs_n++;
		ASSERT(at == 0 || s->jobs[at - 1]->record.job < id);
		ASSERT(at + 1 == s->jobs_n || s->jobs[at + 1]->record.job > id);
		job->record.job = id;
		job->record.end_cause = CORE_END_UNKNOWN;
		job->record.over_wall_ns = clock_wall_ns();
	}
	return job;
}

struct loading {
	struct sched_slurm *s;
	const char *directory;
	struct pawl_err *err;
	int rv;
};

static bool load(void *user, const char *name)
{
	struct loading *loading = user;
	struct slurm_record record;
	struct slurm_job *job;
	uint8_t *bytes;
	size_t len_bytes;

	if (strspn(name, "0123456789") != strlen(name)) {
		return true; /* left by an interrupted write */
	}
	loading->rv = slurm_spool_get(loading->directory, name, &bytes, &len_bytes, loading->err);
	if (loading->rv != 0) {
		return false;
	}
	loading->rv = slurm_record_decode(bytes, len_bytes, &record, loading->err);
	free(bytes);
	if (loading->rv != 0) {
		pawl_err_prefix(loading->err, loading->rv, "%s/%s", loading->directory, name);
		return false;
	}
	job = slurm_job_find_or_add(loading->s, record.job);
	if (!job) {
		slurm_record_deinit(&record);
		loading->rv = pawl_err_set(loading->err, PAWL_ENOMEM, "out of memory");
		return false;
	}
	job->record = record;
	job->runs_ns = record.runs ? clock_mono_ns() : 0;
	return true;
}

int slurm_jobs_load(struct sched_slurm *s, struct pawl_err *err)
{
	char directory[SLURM_PATH_MAX];
	struct loading loading = {.s = s, .directory = directory, .err = err};
	int rv;

	snprintf(directory, sizeof(directory), "%s/jobs", s->options.spool);
	rv = slurm_spool_list(directory, load, &loading, err);
	return rv != 0 ? rv : loading.rv;
}

void slurm_jobs_close(struct sched_slurm *s)
{
	for (uint32_t i = 0; i < s->jobs_n; i++) {
		slurm_record_deinit(&s->jobs[i]->record);
		free(s->jobs[i]);
	}
	free(s->jobs);
}

/* ---- lists ---- */

/* Forgets jobs that ended more than KEEP_NS ago. */
static void forget_old(struct sched_slurm *s)
{
	int64_t now_ns = clock_wall_ns();
	char path[SLURM_PATH_MAX];
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->jobs_n; i++) {
		struct slurm_job *job = s->jobs[i];

		if (slurm_job_is_alive(job) || now_ns - job->record.over_wall_ns < KEEP_NS) {
			s->jobs[kept++] = job;
			continue;
		}
		snprintf(path, sizeof(path), "%s/jobs/%" PRIu64, s->options.spool, job->record.job);
		unlink(path);
		slurm_record_deinit(&job->record);
		free(job);
	}
	s->jobs_n = kept;
}

void slurm_jobs_post_all(struct sched_slurm *s)
{
	forget_old(s);
	for (uint32_t j = 0; j < s->jobs_n; j++) {
		if (s->jobs[j]->record.over) {
			slurm_post_job(s, CORE_ENDED, s->jobs[j], s->jobs[j]->record.generation);
		}
	}
	slurm_post(s, CORE_LISTED);
}

const struct core_run *slurm_jobs_list(struct sched_slurm *s, uint32_t *n)
{
	free(s->runs);
	*n = 0;
	s->runs = calloc(s->jobs_n > 0 ? s->jobs_n : 1, sizeof(*s->runs));
	for (uint32_t j = 0; s->runs && j < s->jobs_n; j++) {
		const struct slurm_job *job = s->jobs[j];

		if (slurm_job_is_alive(job)) {
			s->runs[(*n)++] = (struct core_run){.job = job->record.job,
				.generation = job->record.rescaled > 0 ? job->record.rescaled
								       : job->record.generation,
				.running = job->record.runs};
		}
	}
	return s->runs;
}
