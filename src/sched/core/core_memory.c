/* Memory of the core, and look-up by id or name. A step allocates here, before it changes
 * anything. */
#include "sched/core/core_impl.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 16u /* entries to spare, beside a quarter of those needed */

_Static_assert(CORE_NODES_MAX <= UINT32_MAX / 2 / CORE_SLOTS_MAX, "all slots, and spare ones");
_Static_assert(CORE_JOBS_MAX <= UINT32_MAX / 8, "three updates a job, with spare ones");

static bool grow(void **at, size_t n, size_t size)
{
	void *more = FAULT_MEM("sched.core", realloc(*at, n * size));

	*at = more ? more : *at;
	return more != NULL;
}

/* Allocates anew; the old content is lost. */
static bool reallocate_empty(void **at, size_t n, size_t size)
{
	void *other = FAULT_MEM("sched.core", malloc(n * size));

	if (other) {
		free(*at);
		*at = other;
	}
	return other != NULL;
}

static uint32_t with_spare(uint32_t n)
{
	return n + n / 4 + ROOM_FIRST;
}

static bool grow_jobs(struct sched_core *core, uint32_t n)
{
	struct core_workspace *work = &core->workspace;

	return grow((void **)&core->jobs, n, sizeof(struct core_job *)) &&
		grow((void **)&core->owners, n, sizeof(*core->owners)) &&
		grow((void **)&work->jobs, n, sizeof(*work->jobs)) &&
		grow((void **)&work->grants, n, sizeof(*work->grants)) &&
		grow((void **)&work->order, n, sizeof(struct core_job *)) &&
		grow((void **)&work->some, n, sizeof(struct core_job *));
}

static bool grow_nodes(struct sched_core *core, uint32_t n)
{
	return grow((void **)&core->nodes, n, sizeof(*core->nodes)) &&
		grow((void **)&core->gone, n, sizeof(*core->gone)) &&
		grow((void **)&core->workspace.nodes, n, sizeof(*core->workspace.nodes));
}

static uint32_t count_slots(const struct sched_core *core)
{
	uint32_t slots = 0;

	for (uint32_t i = 0; i < core->nodes_n; i++) {
		slots += core->nodes[i].offer.slots;
	}
	return slots;
}

int core_reserve(struct sched_core *core, uint32_t jobs, uint32_t nodes, uint32_t slots,
	uint32_t updates, struct pawl_err *err)
{
	struct core_workspace *work = &core->workspace;
	uint32_t slots_need = count_slots(core) + slots;
	uint32_t jobs_max = work->jobs_max;
	uint32_t nodes_max = work->nodes_max;
	uint32_t slots_max = work->slots_max;
	bool ok = true;

	if (jobs_max == 0 || core->jobs_n + jobs > jobs_max) {
		jobs_max = with_spare(core->jobs_n + jobs);
		ok = grow_jobs(core, jobs_max);
	}
	if (ok && (nodes_max == 0 || core->nodes_n + nodes > nodes_max)) {
		nodes_max = with_spare(core->nodes_n + nodes);
		ok = grow_nodes(core, nodes_max);
	}
	if (ok && (slots_max == 0 || slots_need > slots_max)) {
		slots_max = with_spare(slots_need);
		ok = reallocate_empty((void **)&work->now, slots_max, sizeof(*work->now));
	}
	if (ok && (jobs_max > work->jobs_max || slots_max > work->slots_max)) {
		/* Most of this is never touched: a policy writes only the beginning of each row. */
		ok = reallocate_empty((void **)&work->granted, (size_t)jobs_max * slots_max,
			sizeof(*work->granted));
	}
	updates += 3 * jobs_max + 2 * nodes_max + CORE_EXTRA_MAX;
	if (ok && updates > work->updates_max) {
		ok = grow((void **)&work->updates, updates, sizeof(*work->updates));
		work->updates_max = ok ? updates : work->updates_max;
	}
	if (!ok) {
		return pawl_err_set(err, PAWL_ENOMEM, "scheduler: no memory for %u jobs, %u nodes",
			jobs_max, nodes_max);
	}
	work->jobs_max = jobs_max;
	work->nodes_max = nodes_max;
	work->slots_max = slots_max;
	ASSERT(core->jobs_n + jobs <= jobs_max && core->nodes_n + nodes <= nodes_max);
	ASSERT(slots_need <= slots_max && work->updates_max >= 3 * jobs_max + 2 * nodes_max);
	return 0;
}

/* The memory of a job. core_job_free frees it by the address of the job, the first field. */
struct job_block {
	struct core_job job;
	struct core_job_scratch scratch;
};

_Static_assert(offsetof(struct job_block, job) == 0, "a job has the address of its block");

struct core_job *core_job_make(const struct core_request *request, struct pawl_err *err)
{
	struct job_block *block = FAULT_MEM("sched.core", calloc(1, sizeof(*block)));
	struct core_placement_entry *entries =
		FAULT_MEM("sched.core", calloc(4 * (size_t)request->most, sizeof(*entries)));
	struct core_job *job;

	if (!block || !entries) {
		free(block);
		free(entries);
		pawl_err_set(err, PAWL_ENOMEM, "scheduler: no memory for job %.63s", request->name);
		return NULL;
	}
	job = &block->job;
	job->scratch = &block->scratch;
	job->request = *request;
	job->current.entries = entries;
	job->old.entries = entries + request->most;
	job->want.entries = entries + 2 * (size_t)request->most;
	job->scratch->next.entries = entries + 3 * (size_t)request->most;
	job->place_max = request->most;
	return job;
}

int core_job_grow(struct core_job *job, uint32_t most, struct pawl_err *err)
{
	struct core_placement *const places[] = {&job->current, &job->old, &job->want,
		&job->scratch->next};
	struct core_placement_entry *before = job->current.entries; /* the first of the four */
	struct core_placement_entry *entries;

	if (most <= job->place_max) {
		return 0;
	}
	entries = FAULT_MEM("sched.core", calloc(4 * (size_t)most, sizeof(*entries)));
	if (!entries) {
		return pawl_err_set(err, PAWL_ENOMEM, "scheduler: no memory for job %.63s",
			job->request.name);
	}
	for (uint32_t i = 0; i < 4; i++) {
		struct core_placement_entry *to = entries + i * (size_t)most;

		memcpy(to, places[i]->entries, places[i]->n * sizeof(*to));
		places[i]->entries = to;
	}
	free(before);
	job->place_max = most;
	return 0;
}

void core_job_free(struct core_job *job)
{
	if (job) {
		for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
			free(job->hints[t]);
		}
		free(job->current.entries);
		free(job); /* with the rest of its block */
	}
}

uint32_t core_node_at(const struct sched_core *core, uint32_t id)
{
	uint32_t low = 0;
	uint32_t high = core->nodes_n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (core->nodes[mid].id < id) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low < core->nodes_n && core->nodes[low].id == id ? low : core->nodes_n;
}

struct core_job *core_job_at(const struct sched_core *core, uint64_t id)
{
	uint32_t low = 0;
	uint32_t high = core->jobs_n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (core->jobs[mid]->id < id) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low < core->jobs_n && core->jobs[low]->id == id ? core->jobs[low] : NULL;
}

/* Returns the index where the owner is, or would be inserted. */
static uint32_t find_owner(const struct sched_core *core, uint32_t id)
{
	uint32_t low = 0;
	uint32_t high = core->owners_n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (core->owners[mid].id < id) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

uint32_t core_owner_of(const struct sched_core *core, uint32_t id)
{
	uint32_t i = find_owner(core, id);

	return i < core->owners_n && core->owners[i].id == id ? i : UINT32_MAX;
}

static void add_owner(struct sched_core *core, uint32_t id)
{
	uint32_t i = find_owner(core, id);

	if (i == core->owners_n || core->owners[i].id != id) {
		memmove(core->owners + i + 1, core->owners + i,
			(core->owners_n - i) * sizeof(*core->owners));
		core->owners[i] = (struct core_owner){.id = id};
		core->owners_n++;
	}
}

void core_add_job(struct sched_core *core, struct core_job *job)
{
	ASSERT(core->jobs_n < core->workspace.jobs_max); /* core_reserve comes first */
	ASSERT(core->owners_n <= core->jobs_n);          /* each has a job */
	add_owner(core, job->request.owner);
	core->jobs[core->jobs_n++] = job;
}

uint32_t core_queue_named(const struct sched_core *core, const char *name)
{
	for (uint32_t q = 0; q < core->options.queues_n; q++) {
		if (name[0] == '\0' || strcmp(core->options.queues[q].name, name) == 0) {
			return q;
		}
	}
	return UINT32_MAX;
}

uint32_t core_pool_named(const struct sched_core *core, const char *name)
{
	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		if (strcmp(core->options.pools[p].name, name) == 0) {
			return p;
		}
	}
	return CORE_NO_POOL;
}

/* ---- open and close ---- */

static int check_options(const struct core_options *o, struct pawl_err *err)
{
	bool bad = o->queues_n < 1 || o->queues_n > CORE_QUEUES_MAX ||
		o->pools_n > CORE_POOLS_MAX || o->round_ns < CORE_ROUND_MIN_NS ||
		o->start_timeout_ns <= 0 || o->kill_interval_ns <= 0 || o->backoff_ns <= 0 ||
		o->backoff_max_ns < o->backoff_ns || !o->policy ||
		!(o->fairness >= 0 && o->fairness <= SCHED_FAIRNESS_MAX) ||
		!(o->good_use >= 0 && o->good_use <= 1);

	for (uint32_t q = 0; q < o->queues_n && !bad; q++) {
		bad = !(o->queues[q].weight > 0) || o->queues[q].name[0] == '\0';
	}
	for (uint32_t p = 0; p < o->pools_n && !bad; p++) {
		const struct core_pool *pool = &o->pools[p];

		bad = pool->type >= SCHED_TYPES_MAX || pool->slots < 1 ||
			pool->slots > CORE_SLOTS_MAX || pool->least > pool->most ||
			!(pool->price >= 0) || pool->name[0] == '\0';
	}
	return bad
		? pawl_err_set(err, PAWL_EINVAL,
			  "scheduler: invalid options: a queue needs a name and a weight over 0, "
			  "a pool a name and slots, times must be over 0, fairness at most 16, "
			  "good_use at most 1")
		: 0;
}

int core_open(struct sched_core **out, const struct core_options *options, struct pawl_err *err)
{
	struct sched_core *core;
	struct core_queue *queues;
	struct core_pool *pools;
	int rv = check_options(options, err);

	if (rv != 0) {
		return rv;
	}
	core = FAULT_MEM("sched.core", calloc(1, sizeof(*core)));
	queues = FAULT_MEM("sched.core", calloc(options->queues_n, sizeof(*queues)));
	pools = FAULT_MEM("sched.core", calloc(options->pools_n + 1, sizeof(*pools)));
	if (!core || !queues || !pools) {
		free(core);
		free(queues);
		free(pools);
		return pawl_err_set(err, PAWL_ENOMEM, "scheduler: no memory");
	}
	memcpy(queues, options->queues, options->queues_n * sizeof(*queues));
	if (options->pools_n > 0) {
		memcpy(pools, options->pools, options->pools_n * sizeof(*pools));
	}
	core->options = *options;
	core->options.queues = queues;
	core->options.pools = pools;
	core->decided_ns = INT64_MIN;
	core->gap = NAN;
	core->dirty = true;
	core->policy = options->policy->open ? options->policy->open(options->seed) : NULL;
	rv = core->policy || !options->policy->open
		? core_reserve(core, 0, 0, 0, 0, err)
		: pawl_err_set(err, PAWL_ENOMEM, "scheduler: no memory for policy %s",
			  options->policy->name);
	if (rv != 0) {
		core_close(core);
		return rv;
	}
	*out = core;
	return 0;
}

void core_close(struct sched_core *core)
{
	if (!core) {
		return;
	}
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		core_job_free(core->jobs[j]);
	}
	if (core->policy) {
		core->options.policy->close(core->policy);
	}
	wire_out_deinit(&core->row);
	free((void *)core->options.queues);
	free((void *)core->options.pools);
	free(core->jobs);
	free(core->nodes);
	free(core->owners);
	free(core->gone);
	free(core->workspace.jobs);
	free(core->workspace.nodes);
	free(core->workspace.grants);
	free(core->workspace.now);
	free(core->workspace.granted);
	free(core->workspace.order);
	free(core->workspace.some);
	free(core->workspace.updates);
	free(core);
}
