/* Jobs: their starts and stops, and their states as the pilots' files show them.
 *
 * A job's record is written before the job is in any want, and its end is recorded before the job
 * is removed from the wants; only then do the pilots forget its parts. So the records are complete
 * after any crash, and no part is started twice. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- start ---- */

/* Fills in the nodes of a record. On errors the caller deinits the record. */
static int fill_nodes(struct sched_slurm *s, struct slurm_record *record,
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

/* Starts a job. An error refuses the start. */
static int begin(struct sched_slurm *s, struct slurm_job *job, const struct sched_core *core,
	uint64_t generation, const struct core_placement *place, struct pawl_err *err)
{
	struct slurm_record record = {.job = job->record.job,
		.generation = generation,
		.elastic = job->record.elastic,
		.stopped = job->record.stopped};
	int rv;

	/* Nothing of the job is left, and no stop covers this start. */
	ASSERT(!slurm_job_is_alive(job) && generation > job->record.stopped);
	rv = fill_nodes(s, &record, core, place, err);
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
		if (!slurm_job_is_alive(job)) { /* else the end will be posted */
			slurm_post_job(s, CORE_ENDED, job, generation);
		}
	} else if (generation == job->refused) {
		slurm_post_job(s, CORE_REFUSED, job, generation);
	} else if (slurm_job_is_alive(job)) {
		if (job->record.runs) { /* else posted once it runs */
			slurm_post_job(s, CORE_RUNS, job, job->record.generation);
		}
	} else if (begin(s, job, core, generation, place, &err) != 0) {
		log_line(LOG_WARNING, "slurm: job %" PRIu64 " cannot be started: %s", id, err.msg);
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

/* Counts over the parts of a job. */
struct tally {
	uint32_t alive;    /* parts that have not ended, on pilots that are not empty */
	uint32_t running;  /* parts that run, have succeeded, or must not start yet */
	uint32_t staying;  /* parts that are alive, not on a lost node, and not to leave */
	bool succeeded;    /* a part exited with 0 */
	bool failed;       /* a part failed without a stop request */
	bool stopped;      /* a part saved and exited because other parts of the job were stopped */
	bool node_lost;    /* a part was lost with its node */
	bool as_requested; /* a part ended on a stop request */
	/* First exit status other than 0; of a part without a stop request, if there is one. */
	int32_t exit_code;
	int32_t join_exit_code; /* exit status of a part that could not join */
};

/* Returns whether the end of a part does not end the job: the part was to leave, or could not
 * join. */
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
		if (!slurm_part_is_wanted(job, &record->nodes[i], part)) {
			tally.running++;
			continue;
		}
		tally.node_lost = tally.node_lost || !pilot || pilot->life >= PILOT_LOST;
		tally.staying += pilot && pilot->life < PILOT_LOST && !record->nodes[i].leaves;
		tally.alive += pilot && pilot->life < PILOT_EMPTY;
		tally.running += part && part->state == SLURM_RUNNING;
	}
	return tally;
}

/* Records and posts the end of a job of which nothing is left. */
static void finish(struct sched_slurm *s, struct slurm_job *job, const struct tally *tally)
{
	struct slurm_record *record = &job->record;
	struct slurm_record over = *record;
	bool done = record->dynamic_nodes && tally->succeeded &&
		!tally->failed; /* even if nodes were lost */
	/* The part that was to continue the job failed to join, after all others had left. */
	bool lost = !tally->succeeded && !tally->failed && !tally->stopped &&
		!tally->as_requested && !job->node_lost;
	struct pawl_err err = {0};

	ASSERT(slurm_job_is_alive(job) && tally->alive == 0);
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
		slurm_report_spool_error(s, &err); /* posted once it is stored */
		return;
	}
	*record = over;
	slurm_rescale_remove_files(record);
	slurm_post_job(s, CORE_ENDED, job, record->generation);
	slurm_job_touch(s, job);
}

/* Returns whether a job can go on. With dynamic nodes, it can go on without a lost node: the core
 * decides what to do. If a stopped part makes the other parts stop, all of them get time to
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

/* Records and posts that the job runs. A restarted scheduler then also knows that the job can go on
 * without a lost node. */
static void record_running(struct sched_slurm *s, struct slurm_job *job)
{
	struct slurm_record next = job->record;
	struct pawl_err err = {0};

	ASSERT(slurm_job_is_alive(job) && !job->record.runs);
	next.runs = true;
	if (slurm_job_save(s, &next, &err) != 0) {
		slurm_report_spool_error(s, &err); /* posted once it is stored */
		return;
	}
	job->record.runs = true;
	job->runs_ns = clock_mono_ns();
	slurm_post_job(s, CORE_RUNS, job, job->record.generation);
}

void slurm_jobs_look(struct sched_slurm *s)
{
	if (!slurm_pilots_known(s)) {
		return; /* pilots not seen yet would count as lost */
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
		if (slurm_job_is_alive(job)) {
			slurm_rescale_look(s, job);
		}
	}
}
