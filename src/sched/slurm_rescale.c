/* Another size of a job that runs.
 *
 * The record has each part's size and the generation that it is of before a pilot is told; pilots
 * say which generation a part has, or could not be given. So it is answered by what there is,
 * however often it is told, and whoever was restarted meanwhile.
 */
#include "sched/slurm_impl.h"

#include "base/err.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Its program can be told of another size. */
static bool can_scale(const struct slurm_spot *spot)
{
	struct slurm_words words;
	bool can;

	if (slurm_program_decode(spot->program, spot->len_bytes, &words, NULL) != 0) {
		return false;
	}
	can = words.scale[0] != NULL;
	slurm_words_deinit(&words);
	return can;
}

/* A node of it is lost, or a part of it has failed: it ends. */
static bool is_ending(struct sched_slurm *s, const struct slurm_job *job)
{
	bool lost = job->failing || job->bereaved;

	for (uint32_t i = 0; i < job->record.spots_n && !lost; i++) {
		const struct pilot *pilot = slurm_pilot_named(s, job->record.spots[i].node);

		lost = !pilot || pilot->lost;
	}
	return lost;
}

/* PAWL_ENOTSUP: it is only by a new start. */
static int check(const struct slurm_job *job, const struct sched_core *core,
	const struct core_place *place, struct pawl_err *err)
{
	const struct slurm_record *record = &job->record;
	const struct core_node *node = core_node_find(core, place->spots[0].node);

	if (!job->told_runs) {
		return pawl_err_set(err, PAWL_ENOTSUP, "it does not run yet");
	}
	if (record->spots_n != 1 || place->n != 1 || !node ||
		strcmp(node->offer.name, record->spots[0].node) != 0) {
		return pawl_err_set(err, PAWL_ENOTSUP, "it would be on other nodes");
	}
	if (!can_scale(&record->spots[0])) {
		return pawl_err_set(err, PAWL_ENOTSUP, "its replicas stay as they are");
	}
	return 0;
}

static int begin(struct sched_slurm *s, struct slurm_job *job, uint64_t generation,
	const struct core_place *place, struct pawl_err *err)
{
	struct slurm_spot spot = job->record.spots[0];
	struct slurm_record record = job->record;
	int rv;

	spot.replicas = place->spots[0].replicas;
	spot.sizing = generation;
	record.rescale = generation;
	record.spots = &spot;
	rv = slurm_job_save(s, &record, err);
	if (rv == 0) {
		job->record.rescale = generation;
		job->record.spots[0] = spot;
		slurm_job_touch(s, job);
	}
	return rv;
}

static void refuse(struct sched_slurm *s, struct slurm_job *job, uint64_t generation)
{
	job->refused = generation;
	slurm_tell_job(s, CORE_REFUSED, job, generation);
}

void slurm_jobs_rescale(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_place *place)
{
	struct slurm_job *job = slurm_job_find_or_add(s, id);
	struct pawl_err err = {0};
	int rv;

	if (!job) {
		return; /* the core asks again */
	}
	if (!slurm_job_is_alive(job)) {
		slurm_tell_job(s, CORE_ENDED, job, generation);
	} else if (generation <= job->record.stopped || is_ending(s, job)) {
		return; /* its end will be told */
	} else if (generation == job->refused) {
		refuse(s, job, generation);
	} else if (generation == job->sized) {
		slurm_tell_job(s, CORE_RUNS, job, generation);
	} else if (generation > job->record.generation && generation > job->record.rescale) {
		rv = check(job, core, place, &err);
		rv = rv == 0 ? begin(s, job, generation, place, &err) : rv;
		if (rv != 0) {
			log_line(LOG_INFO, "slurm: job %" PRIu64 " is not changed as it runs: %s",
				id, err.msg);
			refuse(s, job, generation);
		}
	}
}

void slurm_rescale_look(struct sched_slurm *s, struct slurm_job *job)
{
	const struct slurm_record *record = &job->record;
	uint32_t have = 0;

	if (record->rescale == 0 || record->rescale == job->sized ||
		record->rescale == job->refused) {
		return;
	}
	for (uint32_t i = 0; i < record->spots_n; i++) {
		const struct pilot *pilot = slurm_pilot_named(s, record->spots[i].node);
		const struct slurm_have_part *part = pilot ? slurm_part_find(pilot, record) : NULL;

		if (part && part->unsized == record->rescale) {
			log_line(LOG_INFO, "slurm: job %" PRIu64 " could not be changed as it runs",
				record->job);
			refuse(s, job, record->rescale);
			return;
		}
		have += part && part->sized >= record->spots[i].sizing;
	}
	if (have == record->spots_n) {
		job->sized = record->rescale;
		slurm_tell_job(s, CORE_RUNS, job, record->rescale);
	}
}
