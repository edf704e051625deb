/* Changes the replicas of a job that runs, on its nodes and onto others.
 *
 * The record has each part's size, the generation that set it, and which parts join and leave,
 * before a pilot is told; pilots say what their parts have, and the job's ranks say in their door
 * which of them train. So a rescale is answered by what there is, however often it is asked for,
 * and whichever process was restarted meanwhile.
 *
 * Happy path: sizes change; once the job's ranks let others in, new parts start; once those train,
 * the parts that are to leave are told; once they have left, they are taken off the record, and the
 * core is told. A script whose ranks let nobody in would run as a job of its own where it joins: so
 * nothing is started before the ranks are known to let others in. */
#include "engine/slurm/slurm_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "launch/door/run_door.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMBERS_MAX 1024u /* numbers of a job's nodes, as in `pawl run --node-rank` */

/* ---- the door ---- */

/* Finds the path of the job's door; "": there is none. */
static void door_of(const struct slurm_record *record, char path[SLURM_PATH_MAX])
{
	struct slurm_words words;

	path[0] = '\0';
	if (record->spots_n > 0 &&
		slurm_program_decode(record->spots[0].program, record->spots[0].len_bytes, &words,
			NULL) == 0) {
		snprintf(path, SLURM_PATH_MAX, "%s", words.door);
		slurm_words_deinit(&words);
	}
}

/* Reads the job's door. Returns whether others can join there. */
static bool read_door(const struct slurm_record *record, struct run_door *door)
{
	char path[SLURM_PATH_MAX];

	door_of(record, path);
	run_door_read(door, path);
	return door->state == RUN_DOOR_OPEN && door->n > 0;
}

void slurm_rescale_learn(struct slurm_record *record)
{
	struct run_door door;

	record->elastic = record->elastic || read_door(record, &door) ||
		(!record->joint && door.state == RUN_DOOR_OVER); /* only ranks have said so */
}

void slurm_rescale_forget(const struct slurm_record *record)
{
	char path[SLURM_PATH_MAX];

	door_of(record, path);
	run_door_remove(path);
	run_door_remove_alive(path);
}

/* ---- the new record ---- */

/* Whether the spot's program can be told of another size. */
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

/* Returns the replicas of the place on a node; 0: none. */
static uint32_t wanted_on(const struct sched_core *core, const struct core_place *place,
	const char *name)
{
	for (uint32_t i = 0; i < place->n; i++) {
		const struct core_node *node = core_node_find(core, place->spots[i].node);

		if (node && strcmp(node->offer.name, name) == 0) {
			return place->spots[i].replicas;
		}
	}
	return 0;
}

static bool is_on(const struct slurm_record *record, const char *name)
{
	for (uint32_t i = 0; i < record->spots_n; i++) {
		if (strcmp(record->spots[i].node, name) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns a number above all that there are: leftovers of a node that has left are not met soon. */
static uint32_t new_number(const struct slurm_record *record)
{
	uint32_t number = 0;

	for (uint32_t i = 0; i < record->spots_n; i++) {
		number = record->spots[i].number > number ? record->spots[i].number : number;
	}
	return number + 1;
}

static int put_staying(struct slurm_record *next, const struct slurm_record *record,
	const struct sched_core *core, const struct core_place *place, struct pawl_err *err)
{
	for (uint32_t i = 0; i < record->spots_n; i++) {
		struct slurm_spot spot = record->spots[i];
		uint32_t replicas = wanted_on(core, place, spot.node);

		if (replicas == 0) {
			continue;
		}
		if (spot.leaves || (replicas != spot.replicas && !can_scale(&spot))) {
			return pawl_err_set(err, PAWL_ENOTSUP,
				"its replicas on node %s stay as they are", spot.node);
		}
		spot.sizing = replicas != spot.replicas ? next->rescale : spot.sizing;
		spot.replicas = replicas;
		next->spots[next->spots_n++] = spot;
	}
	return 0;
}

static int put_joining(struct sched_slurm *s, struct slurm_record *next,
	const struct slurm_record *record, const struct sched_core *core,
	const struct core_place *place, struct pawl_err *err)
{
	uint32_t number = new_number(record);
	int rv = 0;

	for (uint32_t i = 0; i < place->n && rv == 0; i++) {
		const struct core_node *node = core_node_find(core, place->spots[i].node);
		struct slurm_spot spot = {.sizing = next->rescale, .joins = true};

		if (node && is_on(record, node->offer.name)) {
			continue;
		}
		spot.number = number++;
		rv = spot.number < NUMBERS_MAX
			? slurm_spot_take(s, core, &place->spots[i], &spot, err)
			: pawl_err_set(err, PAWL_ENOTSUP, "it has had %u nodes", NUMBERS_MAX);
		if (rv == 0) {
			next->spots[next->spots_n++] = spot;
		}
	}
	return rv;
}

static void put_leaving(struct slurm_record *next, const struct slurm_record *record,
	const struct sched_core *core, const struct core_place *place)
{
	for (uint32_t i = 0; i < record->spots_n; i++) {
		if (wanted_on(core, place, record->spots[i].node) == 0) {
			next->spots[next->spots_n] = record->spots[i];
			next->spots[next->spots_n++].leaves = true;
		}
	}
}

/* Checks that nodes can join and leave, if any are to. PAWL_ENOTSUP. */
static int check_door(const struct slurm_job *job, const struct slurm_record *next,
	struct pawl_err *err)
{
	struct run_door door;
	bool same = true;

	for (uint32_t i = 0; i < next->spots_n; i++) {
		same = same && !next->spots[i].joins && !next->spots[i].leaves;
	}
	if (same ||
		(job->record.joint &&
			(read_door(&job->record, &door) ||
				clock_mono_ns() - job->runs_ns < times_ns(TIME_SLURM_SETTLE)))) {
		return 0;
	}
	return pawl_err_set(err, PAWL_ENOTSUP,
		"it would be on other nodes, and its ranks let nobody in");
}

/* Frees next, and the programs of its spots from first to end; all other programs are the
 * record's. */
static void drop(struct slurm_record *next, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		free(next->spots[i].program);
	}
	free(next->spots);
}

/* Makes the record as it is to be. An error refuses the rescale: nothing has changed. */
static int begin(struct sched_slurm *s, struct slurm_job *job, const struct sched_core *core,
	uint64_t generation, const struct core_place *place, struct pawl_err *err)
{
	struct slurm_record *record = &job->record;
	struct slurm_record next = *record;
	uint32_t staying;
	uint32_t described;
	int rv;

	next.rescale = generation;
	next.spots_n = 0;
	next.spots = calloc(record->spots_n + place->n, sizeof(*next.spots));
	if (!next.spots) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	rv = put_staying(&next, record, core, place, err);
	staying = next.spots_n;
	rv = rv == 0 ? put_joining(s, &next, record, core, place, err) : rv;
	described = next.spots_n;
	if (rv == 0) {
		put_leaving(&next, record, core, place);
		rv = check_door(job, &next, err);
	}
	rv = rv == 0 ? slurm_spots_describe(s, &next, described, err) : rv;
	rv = rv == 0 ? slurm_job_save(s, &next, err) : rv;
	if (rv != 0) {
		drop(&next, staying, described);
		return rv;
	}
	free(record->spots);
	*record = next;
	job->admits = job->parting = false;
	job->rescale_ns = clock_mono_ns();
	slurm_job_touch(s, job);
	return 0;
}

/* ---- answers to the core ---- */

static void refuse(struct sched_slurm *s, struct slurm_job *job, uint64_t generation)
{
	job->refused = generation;
	slurm_tell_job(s, CORE_REFUSED, job, generation);
}

/* Whether the job ends whatever it is told: a part of it has failed, or it is lost with its
 * nodes. */
static bool is_ending(struct sched_slurm *s, const struct slurm_job *job)
{
	uint32_t here = 0;

	for (uint32_t i = 0; i < job->record.spots_n; i++) {
		const struct pilot *pilot = slurm_pilot_named(s, job->record.spots[i].node);

		here += pilot && !pilot->lost;
	}
	return job->failing || here == 0 || (!job->record.joint && here < job->record.spots_n);
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
		return; /* the core will be told of the end */
	} else if (generation == job->refused) {
		refuse(s, job, generation);
	} else if (generation == job->record.rescaled) {
		slurm_tell_job(s, CORE_RUNS, job, generation);
	} else if (generation > job->record.generation && generation > job->record.rescale) {
		rv = job->record.runs ? begin(s, job, core, generation, place, &err)
				      : pawl_err_set(&err, PAWL_ENOTSUP, "it does not run yet");
		if (rv != 0) {
			log_line(LOG_INFO, "slurm: job %" PRIu64 " is not changed as it runs: %s",
				id, err.msg);
			refuse(s, job, generation);
		}
	}
}

/* ---- progress ---- */

/* How far a rescale has come. */
struct progress {
	bool sized;  /* parts that stay have the size that they are to have */
	bool joined; /* parts that join train */
	bool left;   /* parts that leave have left */
	bool leaves; /* a part is to leave */
	bool failed; /* the rescale will not succeed */
};

static bool trains(const struct run_door *door, const struct slurm_spot *spot,
	const struct slurm_have_part *part)
{
	return part && part->state == SLURM_RUNNING &&
		run_door_ranks(door, spot->number) >= spot->replicas;
}

static void look_at(struct sched_slurm *s, const struct slurm_job *job, const struct run_door *door,
	const struct slurm_spot *spot, struct progress *progress)
{
	const struct pilot *pilot = slurm_pilot_named(s, spot->node);
	const struct slurm_have_part *part =
		pilot ? slurm_part_find(pilot, &job->record, spot) : NULL;
	bool ended = part && part->state == SLURM_ENDED;

	if (spot->leaves) {
		progress->leaves = true;
		/* The others must go on without it: a part that was ended with its node may have
		 * been told to stop, and have stopped the job. */
		progress->left = progress->left && (ended || !pilot || pilot->empty) &&
			run_door_ranks(door, spot->number) == 0;
	} else if (spot->joins) {
		progress->failed = progress->failed || (ended && part->exit_code != 0);
		progress->joined = progress->joined && trains(door, spot, part);
	} else {
		progress->failed =
			progress->failed || (part && part->unsized == job->record.rescale);
		progress->sized = progress->sized && part && part->sized >= spot->sizing;
	}
}

/* Ends a rescale that is carried out: parts that have left are forgotten. */
static void settle(struct sched_slurm *s, struct slurm_job *job)
{
	struct slurm_record next = job->record;
	struct slurm_spot *spots = calloc(next.spots_n, sizeof(*spots));
	struct pawl_err err = {0};

	next.spots = spots;
	next.spots_n = 0;
	next.rescaled = next.rescale;
	for (uint32_t i = 0; spots && i < job->record.spots_n; i++) {
		if (!job->record.spots[i].leaves) {
			spots[next.spots_n] = job->record.spots[i];
			spots[next.spots_n++].joins = false;
		}
	}
	if (!spots || slurm_job_save(s, &next, &err) != 0) {
		free(spots);
		slurm_spool_fails(s, &err); /* the core is told once it is stored */
		return;
	}
	slurm_job_touch(s, job);
	for (uint32_t i = 0; i < job->record.spots_n; i++) {
		if (job->record.spots[i].leaves) {
			free(job->record.spots[i].program);
		}
	}
	free(job->record.spots);
	job->record = next;
	job->rescale_ns = 0;
	job->admits = job->parting = false;
	job->bereaved = false; /* losses of nodes that have left are dealt with, too */
	slurm_tell_job(s, CORE_RUNS, job, next.rescaled);
}

static bool is_late(const struct slurm_job *job, bool open, const struct progress *progress)
{
	int64_t now_ns = clock_mono_ns();
	int64_t since_ns = job->runs_ns > 0 ? job->runs_ns : job->rescale_ns;

	since_ns = job->open_ns > since_ns ? job->open_ns : since_ns;
	return now_ns - job->rescale_ns >= times_ns(TIME_SLURM_RESCALE) ||
		((!progress->joined || progress->leaves) &&
			now_ns - since_ns >= times_ns(TIME_SLURM_SETTLE) && !open);
}

void slurm_rescale_look(struct sched_slurm *s, struct slurm_job *job)
{
	const struct slurm_record *record = &job->record;
	struct progress progress = {.sized = true, .joined = true, .left = true};
	struct run_door door;
	bool admits;
	bool parting;

	if (record->rescale == record->rescaled || record->rescale == job->refused ||
		record->told || job->failing) {
		return;
	}
	job->rescale_ns = job->rescale_ns > 0 ? job->rescale_ns : clock_mono_ns();
	admits = read_door(record, &door);
	job->open_ns = admits ? clock_mono_ns() : job->open_ns;
	for (uint32_t i = 0; i < record->spots_n; i++) {
		look_at(s, job, &door, &record->spots[i], &progress);
	}
	if (progress.failed || is_late(job, admits, &progress)) {
		log_line(LOG_INFO, "slurm: job %" PRIu64 " could not be changed as it runs",
			record->job);
		refuse(s, job, record->rescale);
		return;
	}
	if (progress.sized && progress.joined && progress.left && (admits || !progress.leaves)) {
		settle(s, job);
		return;
	}
	parting = progress.joined && !progress.left && admits;
	if ((admits && !job->admits) || (parting && !job->parting)) {
		slurm_job_touch(s, job);
	}
	job->admits = job->admits || admits;
	job->parting = job->parting || parting;
}
