/* The parts of the jobs that the pilots are to have, and those that they have. */
#include "engine/slurm/slurm_impl.h"

#include <stdlib.h>
#include <string.h>

/* Finds the job's part on a pilot; NULL: there is none. *old: it is an earlier part of the same
 * start, which has left and is not forgotten yet. */
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

bool slurm_part_is_wanted(const struct slurm_job *job, const struct slurm_job_node *job_node,
	const struct slurm_have_part *part)
{
	return !job_node->joins || job->admits || part;
}

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

/* Returns whether the want of the pilot gets a part for the job node. The pilot must first forget
 * an earlier part that has left. */
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
	return !old && slurm_part_is_wanted(job, job_node, part);
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
