/* Jobs: their records, and their states as the pilots' files show them.
 *
 * A job's record is written before anything is wanted of a pilot, and its end before that is taken
 * back; only then do the pilots forget the job's parts. So after any crash the records say all, and
 * no part is started twice. */
#include "engine/slurm/slurm_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP_NS (86400 * NS_PER_S) /* how long an end is remembered */

bool slurm_job_is_alive(const struct slurm_job *job)
{
	return job->record.nodes_n > 0 && !job->record.over;
}

/* ---- records ---- */

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
static uint32_t place_of(const struct sched_slurm *s, uint64_t id)
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

static struct slurm_job *find(const struct sched_slurm *s, uint64_t id)
{
	uint32_t at = place_of(s, id);

	return at < s->jobs_n && s->jobs[at]->record.job == id ? s->jobs[at] : NULL;
}

const struct slurm_job *slurm_job_find(const struct sched_slurm *s, uint64_t id)
{
	return find(s, id);
}

struct slurm_job *slurm_job_find_or_add(struct sched_slurm *s, uint64_t id)
{
	uint32_t at = place_of(s, id);
	struct slurm_job *job = find(s, id);

	if (job) {
		return job;
	}
	job = slurm_grow(&s->jobs, s->jobs_n, &s->jobs_cap, sizeof(struct slurm_job *))
		? calloc(1, sizeof(*job))
		: NULL;
	if (job) {
		memmove(s->jobs + at + 1, s->jobs + at,
			(s->jobs_n - at) * sizeof(struct slurm_job *));
		s->jobs[at] = job;
		s->jobs_n++;
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
		return true; /* left by a write that was cut off */
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

/* Forgets ends that were kept for long enough. */
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

void slurm_jobs_close(struct sched_slurm *s)
{
	for (uint32_t i = 0; i < s->jobs_n; i++) {
		slurm_record_deinit(&s->jobs[i]->record);
		free(s->jobs[i]);
	}
	free(s->jobs);
}

/* ---- start ---- */

void slurm_job_touch(struct sched_slurm *s, const struct slurm_job *job)
{
	for (uint32_t i = 0; i < job->record.nodes_n; i++) {
		struct pilot *pilot = slurm_pilot_named(s, job->record.nodes[i].node);

		if (pilot) {
			pilot->dirty = true;
		}
	}
	slurm_look_soon(s);
}

static int take_place(struct sched_slurm *s, struct slurm_record *record,
	const struct sched_core *core, const struct core_placement *place, struct pawl_err *err)
{
	int rv = 0;

	record->nodes = calloc(place->n, sizeof(*record->nodes));
	if (!record->nodes) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	record->nodes_n = place->n;
	for (uint32_t i = 0; i < place->n && rv == 0; i++) {
		record->nodes[i].number = i;
		record->nodes[i].sizing = record->generation;
		rv = slurm_job_node_fill(s, core, &place->entries[i], &record->nodes[i], err);
	}
	return rv == 0 ? slurm_job_nodes_describe(s, record, place->n, err) : rv;
}

/* Starts a job; an error is a reason to refuse. */
static int begin(struct sched_slurm *s, struct slurm_job *job, const struct sched_core *core,
	uint64_t generation, const struct core_placement *place, struct pawl_err *err)
{
	struct slurm_record record = {.job = job->record.job,
		.generation = generation,
		.elastic = job->record.elastic,
		.stopped = job->record.stopped};
	int rv = take_place(s, &record, core, place, err);

	rv = rv == 0 ? slurm_job_save(s, &record, err) : rv;
	if (rv != 0) {
		slurm_record_deinit(&record);
		return rv;
	}
	slurm_record_deinit(&job->record);
	*job = (struct slurm_job){.record = record};
	slurm_job_touch(s, job);
	return 0;
}

void slurm_jobs_start(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_placement *place)
{
	struct slurm_job *job = slurm_job_find_or_add(s, id);
	struct pawl_err err = {0};

	if (!job) {
		return; /* the core will ask again */
	}
	if (generation <= job->record.stopped) {
		if (!slurm_job_is_alive(job)) { /* else the job is ending, which will be told */
			slurm_post_job(s, CORE_ENDED, job, generation);
		}
	} else if (generation == job->refused) {
		slurm_post_job(s, CORE_REFUSED, job, generation);
	} else if (slurm_job_is_alive(job)) {
		if (job->record.runs) { /* else told once it runs */
			slurm_post_job(s, CORE_RUNS, job, job->record.generation);
		}
	} else if (begin(s, job, core, generation, place, &err) != 0) {
		log_line(LOG_WARNING, "slurm: job %" PRIu64 " is not started: %s", id, err.msg);
		job->refused = generation;
		snprintf(job->refused_why, sizeof(job->refused_why), "%s", err.msg);
		slurm_post_job(s, CORE_REFUSED, job, generation);
	}
}

void slurm_jobs_stop(struct sched_slurm *s, uint64_t id, uint64_t generation, int64_t grace_ns)
{
	struct slurm_job *job = slurm_job_find_or_add(s, id);
	struct pawl_err err = {0};

	if (!job) {
		return;
	}
	if (generation > job->record.stopped) {
		job->record.stopped = generation;
	}
	if (slurm_job_is_alive(job) && job->record.generation <= generation) {
		if (!job->record.stop_requested || grace_ns < job->record.grace_ns) {
			job->record.grace_ns = grace_ns;
		}
		job->record.stop_requested = true;
		slurm_rescale_set_elastic(&job->record);
		slurm_job_touch(s, job);
	}
	if (slurm_job_save(s, &job->record, &err) != 0) {
		log_line(LOG_ERROR, "slurm: %s", err.msg);
	}
	if (!slurm_job_is_alive(job)) {
		slurm_post_job(s, CORE_ENDED, job, generation);
	}
}

/* ---- progress of jobs ---- */

/* Sums over the parts of a job. */
struct tally {
	uint32_t alive;    /* parts that have not ended, on pilots that are not empty */
	uint32_t running;  /* parts that run, have ended well, or are not to start yet */
	uint32_t staying;  /* parts that are alive, on nodes that are not lost, and not to leave */
	bool succeeded;    /* a part ended well by itself */
	bool failed;       /* a part ended badly, and was not told to end */
	bool stopped;      /* a part saved and ended without being told: others were told */
	bool node_lost;    /* a part went with its node */
	bool as_requested; /* a part ended as it was told */
	/* First exit status that is not 0, of a part that was not told to end if there is one. */
	int32_t exit_code;
	int32_t join_exit_code; /* status of a part that was to join, and could not */
};

/* Finds the job's part on a pilot; NULL: there is none. *old: the part is one of this start that
 * has left and is not yet forgotten. */
static const struct slurm_have_part *find_any(const struct pilot *pilot,
	const struct slurm_record *record, const struct slurm_job_node *job_node, bool *old)
{
	for (uint32_t i = 0; i < pilot->have.parts_n; i++) {
		const struct slurm_have_part *part = &pilot->have.parts[i];

		if (part->job == record->job && part->generation == record->generation) {
			*old = job_node->joins && part->state == SLURM_ENDED &&
				part->sized < job_node->sizing;
			return part;
		}
	}
	*old = false;
	return NULL;
}

const struct slurm_have_part *slurm_part_find(const struct pilot *pilot,
	const struct slurm_record *record, const struct slurm_job_node *job_node)
{
	bool old;
	const struct slurm_have_part *part = find_any(pilot, record, job_node, &old);

	return old ? NULL : part;
}

/* Whether a part is to be on its pilot. A part that joins does not start before the ranks let it
 * in; once started, it counts. */
static bool is_wanted(const struct slurm_job *job, const struct slurm_job_node *job_node,
	const struct slurm_have_part *part)
{
	return !job_node->joins || job->admits || part;
}

/* Whether the end of a part concerns it alone: it was to leave, or was to join and could not. */
static bool ends_alone(const struct slurm_job_node *job_node, const struct slurm_have_part *part)
{
	return part->end_cause == SLURM_END_EXITED &&
		((job_node->leaves &&
			 (part->exit_code == SLURM_EXIT_LEFT || part->exit_code == 0)) ||
			(job_node->joins && part->exit_code != 0));
}

static void count_end(struct tally *tally, const struct slurm_have_part *part)
{
	bool own = part->end_cause == SLURM_END_EXITED && part->exit_code != SLURM_EXIT_STOPPED;

	tally->stopped = tally->stopped ||
		(part->end_cause == SLURM_END_EXITED && part->exit_code == SLURM_EXIT_STOPPED);
	tally->running += own && part->exit_code == 0;
	tally->succeeded = tally->succeeded || (own && part->exit_code == 0);
	tally->node_lost = tally->node_lost || part->end_cause == SLURM_END_NODE_LOST;
	tally->as_requested = tally->as_requested || part->end_cause == SLURM_END_STOPPED;
	if (part->exit_code != 0 && (tally->exit_code == 0 || (own && !tally->failed))) {
		tally->exit_code = part->exit_code;
	}
	tally->failed = tally->failed || (own && part->exit_code != 0);
}

static struct tally count(struct sched_slurm *s, const struct slurm_job *job)
{
	const struct slurm_record *record = &job->record;
	struct tally tally = {.join_exit_code = 1};

	for (uint32_t i = 0; i < record->nodes_n; i++) {
		const struct pilot *pilot = slurm_pilot_named(s, record->nodes[i].node);
		const struct slurm_have_part *part =
			pilot ? slurm_part_find(pilot, record, &record->nodes[i]) : NULL;

		if (part && part->state == SLURM_ENDED) {
			if (ends_alone(&record->nodes[i], part)) {
				tally.running++;
				tally.succeeded = tally.succeeded || part->exit_code == 0;
				tally.join_exit_code = record->nodes[i].joins
					? part->exit_code
					: tally.join_exit_code;
			} else {
				count_end(&tally, part);
			}
			continue;
		}
		if (!is_wanted(job, &record->nodes[i], part)) {
			tally.running++;
			continue;
		}
		tally.node_lost = tally.node_lost || !pilot || pilot->lost;
		tally.staying += pilot && !pilot->lost && !record->nodes[i].leaves;
		tally.alive += pilot && !pilot->empty;
		tally.running += part && part->state == SLURM_RUNNING;
	}
	return tally;
}

/* Ends a job of which nothing is left. */
static void finish(struct sched_slurm *s, struct slurm_job *job, const struct tally *tally)
{
	struct slurm_record *record = &job->record;
	struct slurm_record over = *record;
	bool done = record->dynamic_nodes && tally->succeeded &&
		!tally->failed; /* whatever was lost by then */
	/* The part that was to take the job on has failed, after all others had left. */
	bool lost = !tally->succeeded && !tally->failed && !tally->stopped &&
		!tally->as_requested && !job->node_lost;
	struct pawl_err err = {0};

	over.over = true;
	over.stopped = record->stopped > record->generation ? record->stopped : record->generation;
	over.stopped = over.stopped > record->rescale ? over.stopped : record->rescale;
	over.exit_code = done ? 0 : lost ? tally->join_exit_code : tally->exit_code;
	over.over_wall_ns = clock_wall_ns();
	over.end_cause = tally->failed || done              ? CORE_END_EXITED
		: job->node_lost                            ? CORE_END_NODE_LOST
		: tally->stopped && !record->stop_requested ? CORE_END_EXITED
		: tally->as_requested || tally->stopped     ? CORE_END_STOPPED
							    : CORE_END_EXITED;
	slurm_rescale_set_elastic(&over);
	if (slurm_job_save(s, &over, &err) != 0) {
		slurm_report_spool_error(s, &err); /* the core is told once it is stored */
		return;
	}
	*record = over;
	slurm_rescale_remove_files(record);
	slurm_post_job(s, CORE_ENDED, job, record->generation);
	slurm_job_touch(s, job);
}

/* Whether a job can go on. Where nodes can leave, the core says what is to become of a job that has
 * lost one; where some parts were told to stop, and so make the others stop, all have time to
 * save. */
static bool can_go_on(struct slurm_job *job, const struct tally *tally)
{
	bool without = job->record.dynamic_nodes && job->record.runs && tally->staying > 0;
	int64_t now_ns = clock_mono_ns();
	bool saving;

	job->stopped_ns = !tally->stopped ? 0 : job->stopped_ns > 0 ? job->stopped_ns : now_ns;
	saving = job->record.dynamic_nodes && now_ns - job->stopped_ns < times_ns(TIME_SLURM_STOP);
	return !tally->failed && (!tally->stopped || saving) && (!tally->node_lost || without);
}

/* Puts it on record that the job runs, so that a restarted scheduler knows, too, that other parts
 * may go on without a lost one. */
static void record_running(struct sched_slurm *s, struct slurm_job *job)
{
	struct slurm_record next = job->record;
	struct pawl_err err = {0};

	next.runs = true;
	if (slurm_job_save(s, &next, &err) != 0) {
		slurm_report_spool_error(s, &err); /* the core is told once it is stored */
		return;
	}
	job->record.runs = true;
	job->runs_ns = clock_mono_ns();
	slurm_post_job(s, CORE_RUNS, job, job->record.generation);
}

void slurm_jobs_look(struct sched_slurm *s)
{
	if (!slurm_pilots_known(s)) {
		return; /* lost pilots are not known yet */
	}
	for (uint32_t i = 0; i < s->jobs_n; i++) {
		struct slurm_job *job = s->jobs[i];
		struct tally tally;

		if (!slurm_job_is_alive(job)) {
			continue;
		}
		tally = count(s, job);
		job->node_lost = job->node_lost || tally.node_lost;
		if (!job->failing && !can_go_on(job, &tally)) {
			job->failing = true;
			slurm_job_touch(s, job);
		}
		if (tally.alive == 0) {
			finish(s, job, &tally);
		} else if (!job->record.runs && tally.running == job->record.nodes_n) {
			record_running(s, job);
		}
		slurm_rescale_look(s, job);
	}
}

/* ---- wants and lists ---- */

bool slurm_pilot_has_jobs(const struct sched_slurm *s, const struct pilot *pilot)
{
	for (uint32_t j = 0; j < s->jobs_n; j++) {
		const struct slurm_record *record = &s->jobs[j]->record;

		for (uint32_t i = 0; i < record->nodes_n && slurm_job_is_alive(s->jobs[j]); i++) {
			if (strcmp(record->nodes[i].node, pilot->name) == 0) {
				return true;
			}
		}
	}
	return false;
}

static void put_part(const struct slurm_job *job, const struct slurm_job_node *job_node,
	struct slurm_want_part *part)
{
	*part = (struct slurm_want_part){.job = job->record.job,
		.generation = job->record.generation,
		.sizing = job_node->sizing,
		.slots = job_node->replicas,
		.leave = job_node->leaves && job->leave_requested,
		.stop = job->record.stop_requested || job->failing,
		.grace_ns = job->failing && !job->record.stop_requested ? 0 : job->record.grace_ns,
		.program = job_node->program,
		.len_bytes = job_node->len_bytes};
}

/* Whether a part of the job is to be on the pilot. A part that has left is forgotten first. */
static bool is_in_want(const struct slurm_job *job, const struct slurm_job_node *job_node,
	struct pilot *pilot)
{
	const struct slurm_have_part *part;
	bool old;

	if (strcmp(job_node->node, pilot->name) != 0) {
		return false;
	}
	part = find_any(pilot, &job->record, job_node, &old);
	pilot->awaits_removal = pilot->awaits_removal || old;
	return !old && is_wanted(job, job_node, part);
}

bool slurm_jobs_want(const struct sched_slurm *s, struct pilot *pilot, struct slurm_want *want)
{
	want->parts = calloc(SLURM_PARTS_MAX, sizeof(*want->parts));
	want->parts_n = 0;
	for (uint32_t j = 0; want->parts && j < s->jobs_n; j++) {
		const struct slurm_record *record = &s->jobs[j]->record;

		for (uint32_t i = 0; i < record->nodes_n && slurm_job_is_alive(s->jobs[j]); i++) {
			if (is_in_want(s->jobs[j], &record->nodes[i], pilot) &&
				want->parts_n < SLURM_PARTS_MAX) {
				put_part(s->jobs[j], &record->nodes[i],
					&want->parts[want->parts_n++]);
			}
		}
	}
	return want->parts != NULL;
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
