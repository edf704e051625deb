/* Rescales a running job, on its nodes and onto other nodes.
 *
 * The record is written before a pilot's want changes. It has each part's size, the generation that
 * set it, and which parts join and leave. Pilots report the sizes of their parts, and the job's
 * membership file lists the ranks that train. So the answer to a rescale depends only on the actual
 * state, however often the core requests it and whichever process was restarted.
 *
 * Happy path: sizes change. Once the membership file is open, new parts start. Once they train,
 * leaving parts are asked to leave. Once those have left, they are removed from the record, and the
 * core is told. A joining part that no rank admits would run as a job of its own; so none
 * starts before the file is open. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "launch/membership/membership.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMBERS_MAX 1024u /* numbers of a job's nodes, as in `pawl run --node-rank` */

/* ---- the membership file ---- */

/* Finds the path of the job's membership file; "": there is none. */
static void find_membership_path(const struct slurm_record *record, char path[SLURM_PATH_MAX])
{
	struct slurm_program_view view;

	path[0] = '\0';
	if (record->nodes_n > 0 &&
		slurm_program_decode(record->nodes[0].program, record->nodes[0].len_bytes, &view,
			NULL) == 0) {
		snprintf(path, SLURM_PATH_MAX, "%s", view.membership_path);
		slurm_program_view_deinit(&view);
	}
}

/* Reads the job's membership file. Returns whether ranks can join. */
static bool read_membership(const struct slurm_record *record, struct membership *membership)
{
	char path[SLURM_PATH_MAX];

	find_membership_path(record, path);
	membership_read(membership, path);
	return membership->state == MEMBERSHIP_OPEN && membership->n > 0;
}

void slurm_rescale_set_elastic(struct slurm_record *record)
{
	struct membership membership;

	record->elastic = record->elastic || read_membership(record, &membership) ||
		(!record->dynamic_nodes &&
			membership.state == MEMBERSHIP_CLOSED); /* written by ranks only */
}

void slurm_rescale_remove_files(const struct slurm_record *record)
{
	char path[SLURM_PATH_MAX];

	find_membership_path(record, path);
	membership_remove(path);
	membership_remove_alive(path);
}

/* ---- the new record ---- */

/* Returns whether the program of the job node can be resized. */
static bool can_scale(const struct slurm_job_node *job_node)
{
	struct slurm_program_view view;
	bool can;

	if (slurm_program_decode(job_node->program, job_node->len_bytes, &view, NULL) != 0) {
		return false;
	}
	can = view.scale[0] != NULL;
	slurm_program_view_deinit(&view);
	return can;
}

/* Returns the replicas that the placement has on a node; 0: none. */
static uint32_t wanted_on(const struct sched_core *core, const struct core_placement *place,
	const char *name)
{
	for (uint32_t i = 0; i < place->n; i++) {
		const struct core_node *node = core_node_find(core, place->entries[i].node);

		if (node && strcmp(node->offer.name, name) == 0) {
			return place->entries[i].replicas;
		}
	}
	return 0;
}

static bool is_on(const struct slurm_record *record, const char *name)
{
	for (uint32_t i = 0; i < record->nodes_n; i++) {
		if (strcmp(record->nodes[i].node, name) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns a number above all numbers in use, so that a number is not reused soon after its node
 * left. */
static uint32_t new_number(const struct slurm_record *record)
{
	uint32_t number = 0;

	for (uint32_t i = 0; i < record->nodes_n; i++) {
		number = record->nodes[i].number > number ? record->nodes[i].number : number;
	}
	return number + 1;
}

/* Adds the nodes that stay, with their new sizes. PAWL_ENOTSUP: a size cannot change. */
static int put_staying(struct slurm_record *next, const struct slurm_record *record,
	const struct sched_core *core, const struct core_placement *place, struct pawl_err *err)
{
	for (uint32_t i = 0; i < record->nodes_n; i++) {
		struct slurm_job_node job_node = record->nodes[i];
		uint32_t replicas = wanted_on(core, place, job_node.node);

		if (replicas == 0) {
			continue;
		}
		if (job_node.leaves || (replicas != job_node.replicas && !can_scale(&job_node))) {
			return pawl_err_set(err, PAWL_ENOTSUP,
				"its replicas on node %s cannot change", job_node.node);
		}
		job_node.sizing = replicas != job_node.replicas ? next->rescale : job_node.sizing;
		job_node.replicas = replicas;
		next->nodes[next->nodes_n++] = job_node;
	}
	return 0;
}

/* Adds the nodes that join, without programs. */
static int put_joining(struct sched_slurm *s, struct slurm_record *next,
	const struct slurm_record *record, const struct sched_core *core,
	const struct core_placement *place, struct pawl_err *err)
{
	uint32_t number = new_number(record);
	int rv = 0;

	for (uint32_t i = 0; i < place->n && rv == 0; i++) {
		const struct core_node *node = core_node_find(core, place->entries[i].node);
		struct slurm_job_node job_node = {.sizing = next->rescale, .joins = true};

		if (node && is_on(record, node->offer.name)) {
			continue;
		}
		job_node.number = number++;
		rv = job_node.number < NUMBERS_MAX
			? slurm_job_node_fill(s, core, &place->entries[i], &job_node, err)
			: pawl_err_set(err, PAWL_ENOTSUP, "it has used all %u node numbers",
				  NUMBERS_MAX);
		if (rv == 0) {
			next->nodes[next->nodes_n++] = job_node;
		}
	}
	return rv;
}

/* Adds the nodes that leave. */
static void put_leaving(struct slurm_record *next, const struct slurm_record *record,
	const struct sched_core *core, const struct core_placement *place)
{
	for (uint32_t i = 0; i < record->nodes_n; i++) {
		if (wanted_on(core, place, record->nodes[i].node) == 0) {
			next->nodes[next->nodes_n] = record->nodes[i];
			next->nodes[next->nodes_n++].leaves = true;
		}
	}
}

/* Checks that nodes can join and leave, if the record has such nodes. PAWL_ENOTSUP. */
static int check_nodes_can_change(const struct slurm_job *job, const struct slurm_record *next,
	struct pawl_err *err)
{
	struct membership membership;
	bool same = true;

	for (uint32_t i = 0; i < next->nodes_n; i++) {
		same = same && !next->nodes[i].joins && !next->nodes[i].leaves;
	}
	if (same ||
		(job->record.dynamic_nodes &&
			(read_membership(&job->record, &membership) ||
				clock_mono_ns() - job->runs_ns < times_ns(TIME_SLURM_SETTLE)))) {
		return 0;
	}
	return pawl_err_set(err, PAWL_ENOTSUP,
		"its nodes would change, and its ranks admit no others");
}

/* Frees the nodes of next, and the programs of those from first to end. The old record owns the
 * other programs. */
static void drop(struct slurm_record *next, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		free(next->nodes[i].program);
	}
	free(next->nodes);
}

/* Makes and saves the new record. An error refuses the rescale; then nothing has changed. */
static int begin(struct sched_slurm *s, struct slurm_job *job, const struct sched_core *core,
	uint64_t generation, const struct core_placement *place, struct pawl_err *err)
{
	struct slurm_record *record = &job->record;
	struct slurm_record next = *record;
	uint32_t staying;
	uint32_t described;
	int rv;

	ASSERT(record->runs && generation > record->generation && generation > record->rescale);
	next.rescale = generation;
	next.nodes_n = 0;
	next.nodes = calloc(record->nodes_n + place->n, sizeof(*next.nodes));
	if (!next.nodes) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	rv = put_staying(&next, record, core, place, err);
	staying = next.nodes_n;
	rv = rv == 0 ? put_joining(s, &next, record, core, place, err) : rv;
	described = next.nodes_n;
	if (rv == 0) {
		put_leaving(&next, record, core, place);
		rv = check_nodes_can_change(job, &next, err);
	}
	/* Each node of before stays or leaves. */
	ASSERT(staying <= described && next.nodes_n <= record->nodes_n + place->n);
	rv = rv == 0 ? slurm_job_nodes_describe(s, &next, described, err) : rv;
	rv = rv == 0 ? slurm_job_save(s, &next, err) : rv;
	if (rv != 0) {
		drop(&next, staying, described);
		return rv;
	}
	free(record->nodes);
	*record = next;
	job->admits = job->leave_requested = false;
	job->rescale_ns = clock_mono_ns();
	slurm_job_touch(s, job);
	return 0;
}

/* ---- answers to the core ---- */

static void refuse(struct sched_slurm *s, struct slurm_job *job, uint64_t generation)
{
	job->refused = generation;
	slurm_post_job(s, CORE_REFUSED, job, generation);
}

/* Returns whether the job ends in any case: a part has failed, or the job is lost with its
 * nodes. */
static bool is_ending(struct sched_slurm *s, const struct slurm_job *job)
{
	uint32_t here = 0;

	for (uint32_t i = 0; i < job->record.nodes_n; i++) {
		const struct pilot *pilot = slurm_pilot_named(s, job->record.nodes[i].node);

		here += pilot && pilot->life < PILOT_LOST;
	}
	return job->failing || here == 0 ||
		(!job->record.dynamic_nodes && here < job->record.nodes_n);
}

void slurm_jobs_rescale(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_placement *place)
{
	struct slurm_job *job = slurm_job_find_or_add(s, id);
	struct pawl_err err = {0};
	int rv;

	if (!job) {
		return; /* the core will ask again */
	}
	if (!slurm_job_is_alive(job)) {
		slurm_post_job(s, CORE_ENDED, job, generation);
	} else if (generation <= job->record.stopped || is_ending(s, job)) {
		return; /* the end will be posted */
	} else if (generation == job->refused) {
		refuse(s, job, generation);
	} else if (generation == job->record.rescaled) {
		slurm_post_job(s, CORE_RUNS, job, generation);
	} else if (generation > job->record.generation && generation > job->record.rescale) {
		rv = job->record.runs
			? begin(s, job, core, generation, place, &err)
			: pawl_err_set(&err, PAWL_ENOTSUP, "it does not run in full yet");
		if (rv != 0) {
			log_line(LOG_INFO,
				"slurm: job %" PRIu64 " cannot be rescaled while it runs: %s", id,
				err.msg);
			refuse(s, job, generation);
		}
	}
}

/* ---- progress ---- */

/* The progress of a rescale. */
struct progress {
	bool sized;  /* all parts that stay have their new size */
	bool joined; /* all parts that join train */
	bool left;   /* all parts that leave have left */
	bool leaves; /* there is a part that leaves */
	bool failed; /* the rescale cannot succeed */
};

/* Returns whether the part runs, and all its ranks train. */
static bool trains(const struct membership *membership, const struct slurm_job_node *job_node,
	const struct slurm_have_part *part)
{
	return part && part->state == SLURM_RUNNING &&
		membership_count_ranks(membership, job_node->number) >= job_node->replicas;
}

static void add_progress(struct sched_slurm *s, const struct slurm_job *job,
	const struct membership *membership, const struct slurm_job_node *job_node,
	struct progress *progress)
{
	const struct pilot *pilot = slurm_pilot_named(s, job_node->node);
	const struct slurm_have_part *part =
		pilot ? slurm_part_find(pilot, &job->record, job_node) : NULL;
	bool ended = part && part->state == SLURM_ENDED;

	if (job_node->leaves) {
		progress->leaves = true;
		/* The other ranks must go on without this part. If it ended because its node was
		 * stopped, it may have stopped the whole job. */
		progress->left = progress->left &&
			(ended || !pilot || pilot->life >= PILOT_EMPTY) &&
			membership_count_ranks(membership, job_node->number) == 0;
	} else if (job_node->joins) {
		progress->failed = progress->failed || (ended && part->exit_code != 0);
		progress->joined = progress->joined && trains(membership, job_node, part);
	} else {
		progress->failed =
			progress->failed || (part && part->refused_sizing == job->record.rescale);
		progress->sized = progress->sized && part && part->sized >= job_node->sizing;
	}
}

/* Completes a rescale: removes the parts that have left from the record, and posts the answer. */
static void complete(struct sched_slurm *s, struct slurm_job *job)
{
	struct slurm_record next = job->record;
	struct slurm_job_node *nodes = calloc(next.nodes_n, sizeof(*nodes));
	struct pawl_err err = {0};

	next.nodes = nodes;
	next.nodes_n = 0;
	next.rescaled = next.rescale;
	for (uint32_t i = 0; nodes && i < job->record.nodes_n; i++) {
		if (!job->record.nodes[i].leaves) {
			nodes[next.nodes_n] = job->record.nodes[i];
			nodes[next.nodes_n++].joins = false;
		}
	}
	if (!nodes || slurm_job_save(s, &next, &err) != 0) {
		free(nodes);
		slurm_report_spool_error(s, &err); /* posted once it is stored */
		return;
	}
	slurm_job_touch(s, job);
	for (uint32_t i = 0; i < job->record.nodes_n; i++) {
		if (job->record.nodes[i].leaves) {
			free(job->record.nodes[i].program);
		}
	}
	free(job->record.nodes);
	job->record = next;
	job->rescale_ns = 0;
	job->admits = job->leave_requested = false;
	job->node_lost = false; /* this also settles the loss of nodes that have left */
	slurm_post_job(s, CORE_RUNS, job, next.rescaled);
}

/* Returns whether the rescale takes too long, or the membership file stays closed too long. */
static bool is_late(const struct slurm_job *job, bool open, const struct progress *progress)
{
	int64_t now_ns = clock_mono_ns();
	int64_t since_ns = job->runs_ns > 0 ? job->runs_ns : job->rescale_ns;

	since_ns = job->last_open_ns > since_ns ? job->last_open_ns : since_ns;
	return now_ns - job->rescale_ns >= times_ns(TIME_SLURM_RESCALE) ||
		((!progress->joined || progress->leaves) &&
			now_ns - since_ns >= times_ns(TIME_SLURM_SETTLE) && !open);
}

void slurm_rescale_look(struct sched_slurm *s, struct slurm_job *job)
{
	const struct slurm_record *record = &job->record;
	struct progress progress = {.sized = true, .joined = true, .left = true};
	struct membership membership;
	bool admits;
	bool may_leave;

	ASSERT(slurm_job_is_alive(job));
	if (record->rescale == record->rescaled || record->rescale == job->refused ||
		record->stop_requested || job->failing) {
		return;
	}
	job->rescale_ns = job->rescale_ns > 0 ? job->rescale_ns : clock_mono_ns();
	admits = read_membership(record, &membership);
	job->last_open_ns = admits ? clock_mono_ns() : job->last_open_ns;
	for (uint32_t i = 0; i < record->nodes_n; i++) {
		add_progress(s, job, &membership, &record->nodes[i], &progress);
	}
	if (progress.failed || is_late(job, admits, &progress)) {
		log_line(LOG_INFO, "slurm: job %" PRIu64 " could not be rescaled while it ran",
			record->job);
		refuse(s, job, record->rescale);
		return;
	}
	if (progress.sized && progress.joined && progress.left && (admits || !progress.leaves)) {
		complete(s, job);
		return;
	}
	may_leave = progress.joined && !progress.left && admits;
	if ((admits && !job->admits) || (may_leave && !job->leave_requested)) {
		slurm_job_touch(s, job);
	}
	job->admits = job->admits || admits;
	job->leave_requested = job->leave_requested || may_leave;
}
