/* Turns a submission into a request to the core. A submission that the engine can never run is
 * refused, with the reason. */
#include "daemon/daemon_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "engine/submission.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RANKS_MAX      64u  /* ranks of a job on one machine, as `pawl run` has it */
#define RESTART_S      30.0 /* seconds that a change of replicas costs, by default */
#define RESTART_FAST_S 0.5  /* seconds if they change while it runs: bench/real, bench/elastic */

/* Returns the index of a type that nodes have; types_n: no node has it. */
static uint32_t find_type(const struct daemon_options *o, const char *name)
{
	uint32_t i = 0;

	while (i < o->types_n &&
		((o->types_here >> i & 1) == 0 || strcasecmp(o->types[i], name) != 0)) {
		i++;
	}
	return i;
}

/* Returns whether this machine has what one node, or replica, of the job asks for. */
static bool machine_has(const struct sched_choice *choice, const char *root, const char *scratch)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t cpus_milli = 1000 * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	struct statvfs disk;
	uint64_t free_bytes = statvfs(choice->disk_best && scratch ? scratch : root, &disk) == 0
		? (uint64_t)disk.f_bavail * disk.f_frsize
		: UINT64_MAX;

	return choice->memory_bytes <= memory && choice->cpus_milli <= cpus_milli &&
		choice->disk_bytes <= free_bytes;
}

static int refuse_type(const char *accelerator, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL,
		"accelerators: no node here has %s: pawl sched --node NAME=SLOTS:TYPE gives a node "
		"its type",
		accelerator);
}

/* Finds the node types that a job can run on, as bits; 0: all. runs: as in make_request. */
static int find_types(const struct daemon *d, const struct sched_spec *spec, bool runs,
	uint32_t *types, struct pawl_err *err)
{
	const struct daemon_options *o = d->options;
	const char *last = "";
	uint32_t found = 0;

	for (uint32_t i = 0; i < spec->choices_n; i++) {
		const struct sched_choice *choice = &spec->choices[i];
		uint32_t type = choice->accelerator ? find_type(o, choice->accelerator) : 0;

		if (!o->pools && !runs && !machine_has(choice, o->root, d->scratch)) {
			continue; /* this machine has less */
		}
		if (!choice->accelerator) {
			*types = 0;
			return 0;
		}
		if (choice->accelerators > 1) {
			return pawl_err_set(err, PAWL_EINVAL,
				"accelerators: %s:%u: a node of a job is one slot here; ask for "
				"%u replicas, or nodes, of one each",
				choice->accelerator, choice->accelerators, choice->accelerators);
		}
		found |= type < o->types_n ? 1u << type : 0;
		last = choice->accelerator;
	}
	*types = found;
	return found > 0 ? 0 : refuse_type(last, err);
}

static int check_machine(const struct daemon *d, const struct sched_spec *spec,
	struct pawl_err *err)
{
	for (uint32_t i = 0; i < spec->choices_n; i++) {
		if (machine_has(&spec->choices[i], d->options->root, d->scratch)) {
			return 0;
		}
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"resources: this machine has fewer CPUs, less memory, or less free disk than that");
}

/* ---- jobs that can never have room ---- */

/* Slots that a job may have once all other jobs have ended, no node is drained, and pools have all
 * their nodes. */
struct room {
	uint64_t firm;
	uint64_t spot;
};

static void add_room(struct room *room, const struct core_request *request, uint32_t type,
	bool spot, uint64_t slots)
{
	if (request->types == 0 || (request->types >> type & 1) != 0) {
		*(spot ? &room->spot : &room->firm) += slots;
	}
}

static struct room count_room(const struct daemon_options *o, const struct core_request *request)
{
	struct room room = {0};

	for (uint32_t i = 0; !o->pools && i < o->nodes_n; i++) {
		add_room(&room, request, o->nodes[i].type, o->nodes[i].spot, o->nodes[i].slots);
	}
	for (uint32_t p = 0; o->pools && p < o->pools_n; p++) {
		const struct core_pool *pool = &o->pools[p].pool;

		add_room(&room, request, pool->type, pool->spot,
			(uint64_t)pool->most * pool->slots);
	}
	return room;
}

/* Checks that spot nodes can have as many slots as the job must have replicas on them. */
static int check_spot(const struct daemon_options *o, const struct core_request *request,
	struct pawl_err *err)
{
	uint32_t needed =
		request->spot_least < request->least ? request->spot_least : request->least;
	struct room room = count_room(o, request);

	if (room.spot >= needed) {
		return 0;
	}
	if (room.spot == 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"spot: at least %u on nodes that can be taken away, and no pool has such "
			"nodes for it (pawl sched --pool)",
			needed);
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"spot: at least %u on nodes that can be taken away, and the pools have %llu slots "
		"of such for it together (pawl sched --pool)",
		needed, (unsigned long long)room.spot);
}

static int check_size(const struct daemon_options *o, const struct core_request *request,
	bool elastic, struct pawl_err *err)
{
	struct room room = count_room(o, request);
	uint64_t spot = room.spot < request->spot_most ? room.spot : request->spot_most;
	uint64_t most = room.firm + spot;

	if (o->core.pool_slots_max > 0 && most > o->core.pool_slots_max) {
		most = o->core.pool_slots_max;
	}
	if (most < request->least) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: %u%s, and the nodes here that it may be on have %llu slot%s together: "
			"ask for no more, or start pawl sched with more (%s)",
			elastic ? "replicas" : "num_nodes", request->least,
			elastic ? " at least" : "", (unsigned long long)most, most == 1 ? "" : "s",
			o->pools ? "--pool" : "--nodes, --slots, --node");
	}
	return 0;
}

/* Refuses a job larger than a quota, which is for all jobs of a queue, or a user, together: the job
 * would wait for ever. */
static int check_quotas(const struct daemon_options *o, const struct core_request *request,
	struct pawl_err *err)
{
	for (uint32_t q = 0; q < o->core.queues_n; q++) {
		const struct core_queue *queue = &o->core.queues[q];
		bool ours = request->queue[0] == '\0' ? q == 0
						      : strcmp(queue->name, request->queue) == 0;

		if (ours && queue->slots_max > 0 && request->least > queue->slots_max) {
			return pawl_err_set(err, PAWL_EINVAL,
				"queue %s: its jobs have at most %u slots together, and this one "
				"needs %u (pawl sched --queue)",
				queue->name, queue->slots_max, request->least);
		}
	}
	if (o->core.owner_slots_max > 0 && request->least > o->core.owner_slots_max) {
		return pawl_err_set(err, PAWL_EINVAL,
			"jobs of one user have at most %u slots together, and this one needs %u "
			"(pawl sched --user-slots)",
			o->core.owner_slots_max, request->least);
	}
	return 0;
}

static int check_room(const struct daemon_options *o, const struct core_request *request,
	bool elastic, struct pawl_err *err)
{
	int rv = check_spot(o, request, err);

	rv = rv == 0 ? check_size(o, request, elastic, err) : rv;
	return rv == 0 ? check_quotas(o, request, err) : rv;
}

/* Makes the request of a job to the core. runs: the job runs already, and room is not checked. */
static int make_request(const struct daemon *d, const struct sched_spec *spec, uint32_t owner,
	bool runs, struct core_request *request, struct pawl_err *err)
{
	const struct daemon_options *o = d->options;
	bool elastic = spec->elastic;
	bool here = elastic && !o->pools; /* under one `pawl run` */
	uint32_t most = spec->size.most;
	int rv;

	if (here && spec->size.least > RANKS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"replicas: %u at least: a job on one machine has at most %u",
			spec->size.least, RANKS_MAX);
	}
	*request = (struct core_request){.owner = owner,
		.least = elastic ? spec->size.least : spec->size.most,
		.most = here && most > RANKS_MAX ? RANKS_MAX : most,
		.spot_most = spec->spot.most,
		.spot_least = spec->spot.least,
		.priority = spec->priority,
		.pinned = !spec->preemptible,
		.in_place = elastic, /* pawl run changes the job's size */
		.restart_s = elastic ? RESTART_FAST_S : RESTART_S,
		/* pawl run restarts ranks of an elastic job on this machine by itself. On Slurm's
		 * nodes only the core can restart a job that has lost all its nodes. */
		.retries = here ? 0 : spec->retries,
		.time_limit_ns = spec->time_limit_s * NS_PER_S,
		.grace_ns = o->grace_ns};
	snprintf(request->name, sizeof(request->name), "%s", spec->name ? spec->name : "job");
	snprintf(request->queue, sizeof(request->queue), "%s", spec->queue ? spec->queue : "");
	rv = o->pools || runs ? 0 : check_machine(d, spec, err);
	rv = rv == 0 ? find_types(d, spec, runs, &request->types, err) : rv;
	rv = rv == 0 && o->pools ? daemon_check_pools(d, spec, &request->types, err) : rv;
	return rv == 0 && !runs ? check_room(o, request, elastic, err) : rv;
}

/* Checks the number of the user's jobs, so that one user cannot keep all others out. */
static int check_job_count(const struct daemon *d, uint32_t uid, struct pawl_err *err)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);
	uint64_t theirs = 0;

	for (uint32_t i = 0; i < n; i++) {
		theirs += jobs[i]->request.owner == uid && jobs[i]->state < CORE_DONE;
	}
	return theirs < d->options->user_jobs_max
		? 0
		: pawl_err_set(err, PAWL_ELIMIT,
			  "you have %llu jobs that are not over, the most that a user may have "
			  "(pawl sched --user-jobs)",
			  (unsigned long long)theirs);
}

/* Reports the first error in a job file; pawl submit has shown all errors to the user. */
static int report_remark(const struct remarks *remarks, struct pawl_err *err)
{
	return remarks->n > 0 ? pawl_err_set(err, PAWL_EINVAL, "%u:%u: %.400s", remarks->at[0].line,
					remarks->at[0].column, remarks->at[0].text)
			      : PAWL_EINVAL;
}

int daemon_submit(struct daemon_client *client, const uint8_t *bytes, size_t len_bytes,
	uint64_t *job, struct pawl_err *err)
{
	struct daemon *d = client->daemon;
	struct remarks *remarks = calloc(1, sizeof(*remarks));
	struct sched_spec spec = {0};
	struct wire_out out = {NULL};
	struct submission submission;
	struct database_spec stored;
	struct core_request request;
	struct core_event event = {.kind = CORE_SUBMIT, .request = &request};
	int rv;

	if (!remarks) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a submission");
	}
	rv = len_bytes <= SUBMISSION_BYTES_MAX
		? submission_decode(&submission, bytes, len_bytes, err)
		: pawl_err_set(err, PAWL_ELIMIT, "a job of more than %u bytes",
			  SUBMISSION_BYTES_MAX);
	if (rv != 0) {
		free(remarks);
		return rv;
	}
	submission.wall_ns = clock_wall_ns();
	rv = submission_spec(&submission, &spec, remarks, err);
	if (rv == PAWL_EINVAL) {
		report_remark(remarks, err);
	}
	rv = rv == 0 ? make_request(d, &spec, client->uid, false, &request, err) : rv;
	rv = rv == 0 ? check_job_count(d, client->uid, err) : rv;
	if (rv == 0) {
		submission_encode(&out, &submission);
		stored = (struct database_spec){.bytes = out.bytes, .len_bytes = out.len_bytes};
		rv = out.failed ? pawl_err_set(err, PAWL_ENOMEM, "no memory for a submission")
				: daemon_handle_event(d, &event, &stored, job, err);
	}
	wire_out_deinit(&out);
	sched_spec_deinit(&spec);
	submission_deinit(&submission);
	free(remarks);
	return rv;
}

int daemon_check_size(const struct daemon *d, const struct core_job *job, uint32_t least,
	uint32_t most, struct pawl_err *err)
{
	struct core_request request = job->request;

	if (least < 1 || most < least || most > CORE_MOST_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%u:%u replicas: MIN is at least 1, and MAX at least MIN and at most %u",
			least, most, CORE_MOST_MAX);
	}
	if (!d->options->pools && most > RANKS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"replicas: %u at most: a job on one machine has at most %u", most,
			RANKS_MAX);
	}
	request.least = least;
	request.most = most;
	return check_room(d->options, &request, true, err);
}

int daemon_read_request(const struct daemon *d, const uint8_t *bytes, size_t len_bytes,
	uint32_t owner, struct core_request *request, int64_t *wall_ns, struct pawl_err *err)
{
	struct remarks *remarks = calloc(1, sizeof(*remarks));
	struct submission submission;
	struct sched_spec spec = {0};
	int rv = remarks ? submission_decode(&submission, bytes, len_bytes, err)
			 : pawl_err_set(err, PAWL_ENOMEM, "no memory for a submission");

	if (rv == 0) {
		*wall_ns = submission.wall_ns;
		rv = submission_spec(&submission, &spec, remarks, err);
		rv = rv == 0 ? make_request(d, &spec, owner, true, request, err) : rv;
		sched_spec_deinit(&spec);
		submission_deinit(&submission);
	}
	free(remarks);
	return rv;
}
