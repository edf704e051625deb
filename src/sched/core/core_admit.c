/* Admission: which jobs take part in a decision, and how many replicas each may have.
 *
 * In order, each job is given its least, if the quotas of its queue and its owner, and the slots of
 * the nodes that it may be on, are enough. An admitted job will have its least: so the order alone
 * says which job comes first. Then quotas that bind are shared out, replica by replica. */
#include "sched/core/core_impl.h"
#include "sched/policy/worth.h"

#include <stdlib.h>
#include <string.h>

/* Slots by class of nodes. */
struct class_slots {
	uint32_t left[CORE_CLASSES];    /* slots that no admitted job needs for its least */
	uint32_t movable[CORE_CLASSES]; /* taken spot slots whose job would do with firm ones */
	uint32_t all[CORE_CLASSES];     /* slots of nodes that are up, taken or not */
};

uint32_t core_class_of(const struct core_node *node)
{
	ASSERT(node->offer.type < SCHED_TYPES_MAX);
	return 2 * node->offer.type + (node->offer.spot ? 1 : 0);
}

bool core_class_fits(const struct core_job *job, uint32_t class)
{
	uint32_t type = class / 2;

	return (job->request.types == 0 || (job->request.types >> type & 1) != 0) &&
		(class % 2 == 0 || job->request.spot_most > 0);
}

bool core_may_use(const struct core_job *job, const struct core_node *node)
{
	return core_class_fits(job, core_class_of(node));
}

const struct core_placement *core_place_now(const struct core_job *job)
{
	return core_is_up(job) ? &job->current : &job->want;
}

/* Returns the replicas of a pinned job that are not stopped or moved: those on nodes that stay, at
 * most the job's most, if they are at least its least; else 0. */
static uint32_t pinned_replicas(const struct sched_core *core, const struct core_job *job)
{
	uint32_t pinned = 0;

	for (uint32_t i = 0; i < job->current.n && job->request.pinned && core_is_up(job); i++) {
		uint32_t n = core_node_at(core, job->current.entries[i].node);
		enum core_node_state state;
		bool stays;

		ASSERT(n < core->nodes_n);
		state = core->nodes[n].state;
		stays = state == CORE_NODE_UP || state == CORE_NODE_DRAINED;
		pinned += stays ? job->current.entries[i].replicas : 0;
	}
	pinned = pinned < job->request.most ? pinned : job->request.most;
	return pinned >= job->request.least ? pinned : 0;
}

static bool is_candidate(const struct sched_core *core, const struct core_job *job)
{
	return core_is_up(job) || (job->state == CORE_QUEUED && job->due_ns <= core->now_ns) ||
		(job->state == CORE_STOPPING && job->after == CORE_THEN_QUEUED);
}

/* Subtracts the slots that the job has, or may still have from before, from the room of nodes. */
static void subtract_slots(struct sched_core *core, const struct core_job *job)
{
	const struct core_placement *const places[] = {&job->current, &job->old};

	for (uint32_t p = 0; p < 2; p++) {
		for (uint32_t i = 0; i < places[p]->n; i++) {
			uint32_t id = places[p]->entries[i].node;
			struct core_node *node = &core->nodes[core_node_at(core, id)];
			uint32_t owned = core_job_slots_on(job, id);

			if (node->state == CORE_NODE_UP &&
				(p == 0 || placement_replicas_on(&job->current, id) == 0)) {
				node->room -= owned < node->room ? owned : node->room;
			}
		}
	}
}

/* Sets node.room to the slots that the decision may give. On nodes that are up: all but those of
 * jobs that take no part. On drained nodes: those of jobs that cannot be moved. */
static void count_room(struct sched_core *core)
{
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		struct core_node *node = &core->nodes[n];

		node->room = node->state == CORE_NODE_UP ? node->offer.slots : 0;
	}
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		const struct core_job *job = core->jobs[j];

		if (!job->scratch->candidate) {
			subtract_slots(core, job);
		}
		for (uint32_t i = 0; i < job->current.n && job->scratch->candidate; i++) {
			const struct core_placement_entry *entry = &job->current.entries[i];
			struct core_node *node = &core->nodes[core_node_at(core, entry->node)];

			if (node->state == CORE_NODE_DRAINED && pinned_replicas(core, job) > 0) {
				node->room += entry->replicas;
			}
		}
	}
}

/* Whether the job resumes where it stopped: a job that reports hints saves before it stops. */
static bool resumes_progress(const struct core_job *job)
{
	return job->request.in_place &&
		sched_hints_newest((const struct sched_hints *const *)job->hints) != NULL;
}

/* A job that may have to begin again gets a turn that is longer by all that it ran before. So turns
 * double, and one of them is long enough in the end. */
bool core_has_turn(const struct sched_core *core, const struct core_job *job)
{
	int64_t run_ns = core->now_ns - job->since_ns;
	int64_t before_ns = resumes_progress(job) ? 0 : core_ran_ns(core, job) - run_ns;

	return job->state == CORE_STARTING ||
		(job->state == CORE_RUNNING && job->generation == job->start_generation &&
			run_ns < CORE_TURN_NS + before_ns);
}

/* A job that had to release its slots within its turn keeps its earlier time. */
int64_t core_queued_since_ns(const struct core_job *job)
{
	bool displaced = job->reason == CORE_WHY_PREEMPTED || job->reason == CORE_WHY_MOVED;

	return displaced && job->queued_since_ns > 0 ? job->queued_since_ns : job->since_ns;
}

/* Whether the job has queued for so long that jobs whose turn is over must release slots. Time in
 * which no scheduler ran does not count. */
static bool is_overdue(const struct sched_core *core, const struct core_job *job)
{
	int64_t queued_ns = core_queued_since_ns(job);
	int64_t since_ns = queued_ns > core->recovery_ns ? queued_ns : core->recovery_ns;

	return job->state == CORE_QUEUED && !core->options.policy->run_to_completion &&
		core->now_ns - since_ns >= CORE_TURN_NS;
}

static void record_overdue(struct sched_core *core, const struct core_job *job)
{
	const struct core_job *first = core->first;
	/* A job with one of these reasons does not wait for the turns of others. */
	bool never = job->wait == CORE_WHY_NODES || job->wait == CORE_WHY_QUEUE_QUOTA ||
		job->wait == CORE_WHY_OWNER_QUOTA;

	core->turns = true;
	if (!never &&
		(!first || job->request.priority > first->request.priority ||
			(job->request.priority == first->request.priority &&
				core_queued_since_ns(job) < core_queued_since_ns(first)))) {
		core->first = job;
	}
}

/* Whether the job was started although the first overdue job, for which there was too little, had
 * waited longer. */
static bool passed_first(const struct sched_core *core, const struct core_job *job)
{
	const struct core_job *first = core->first;

	return first && first->request.priority == job->request.priority &&
		core_queued_since_ns(first) < job->queued_since_ns;
}

enum rank {
	PINNED, /* replicas cannot be taken away */
	HAS_TURN,
	FIRST,                /* the overdue job that has waited longest */
	HAS_TURN_AFTER_FIRST, /* has its turn, but the first job has waited longer */
	OVERDUE,
	RUNS, /* runs, or is about to */
	WAITS,
};

static enum rank rank_of(const struct sched_core *core, const struct core_job *job)
{
	if (pinned_replicas(core, job) > 0) {
		return PINNED;
	}
	if (core->turns && core_has_turn(core, job)) {
		return passed_first(core, job) ? HAS_TURN_AFTER_FIRST : HAS_TURN;
	}
	if (is_overdue(core, job)) {
		return job == core->first ? FIRST : OVERDUE;
	}
	return core_is_up(job) || job->want.n > 0 ? RUNS : WAITS;
}

static int compare(const void *a, const void *b, void *user)
{
	const struct core_job *x = *(struct core_job *const *)a;
	const struct core_job *y = *(struct core_job *const *)b;
	enum rank rx = rank_of(user, x);
	enum rank ry = rank_of(user, y);

	if ((rx == PINNED) != (ry == PINNED)) {
		return rx == PINNED ? -1 : 1;
	}
	if (x->request.priority != y->request.priority) {
		return x->request.priority > y->request.priority ? -1 : 1;
	}
	if (rx != ry) {
		return rx < ry ? -1 : 1;
	}
	if (rx == OVERDUE && core_queued_since_ns(x) != core_queued_since_ns(y)) {
		return core_queued_since_ns(x) < core_queued_since_ns(y) ? -1 : 1;
	}
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Takes spot slots of a class from jobs that would do with firm ones (not spot) of the type.
 * Returns how many. */
static uint32_t free_spot(struct class_slots *by_class, uint32_t class, uint32_t need)
{
	uint32_t firm = by_class->left[class - 1];
	uint32_t n = by_class->movable[class] < need ? by_class->movable[class] : need;

	n = n < firm ? n : firm;
	by_class->movable[class] -= n;
	by_class->left[class - 1] -= n;
	return n;
}

/* Takes so many slots of classes that the job may have: spot slots first, since they cost less.
 * Returns false, and takes none, if there are too few. */
static bool take(struct class_slots *by_class, const struct core_job *job, uint32_t need)
{
	struct class_slots after = *by_class;
	uint32_t must = job->request.spot_least < need ? job->request.spot_least : need;
	uint32_t spot = job->request.spot_most < need ? job->request.spot_most : need;

	for (uint32_t c = 1; c < CORE_CLASSES; c += 2) {
		uint32_t n = after.left[c] < spot ? after.left[c] : spot;
		uint32_t fixed; /* spot slots that firm ones cannot replace */

		if (!core_class_fits(job, c)) {
			continue;
		}
		after.left[c] -= n;
		n += n < must ? free_spot(&after, c, must - n) : 0;
		fixed = n < must ? n : must;
		after.movable[c] += n - fixed;
		must -= fixed;
		spot -= n;
		need -= n;
	}
	for (uint32_t c = 0; c < CORE_CLASSES && need > 0; c += 2) {
		uint32_t n = after.left[c] < need ? after.left[c] : need;

		n = core_class_fits(job, c) ? n : 0;
		after.left[c] -= n;
		need -= n;
	}
	if (need > 0 || must > 0) {
		return false;
	}
	*by_class = after;
	return true;
}

/* Takes so many of the slots that the job has, where it has them. */
static void take_own(const struct sched_core *core, struct class_slots *by_class,
	const struct core_job *job, uint32_t need)
{
	for (uint32_t i = 0; i < job->current.n; i++) {
		const struct core_placement_entry *entry = &job->current.entries[i];
		const struct core_node *node = &core->nodes[core_node_at(core, entry->node)];
		uint32_t c = core_class_of(node);

		if (node->state != CORE_NODE_GOING) { /* nodes that go away have no room */
			uint32_t n = entry->replicas < need ? entry->replicas : need;

			ASSERT(by_class->left[c] >= n);
			by_class->left[c] -= n;
			need -= n;
		}
	}
	ASSERT(need == 0);
}

static bool quota_holds(const struct sched_core *core, const struct core_job *job, uint32_t more,
	enum core_reason *why)
{
	uint32_t queue_max = core->options.queues[job->queue].slots_max;
	uint32_t owner_max = core->options.owner_slots_max;
	uint32_t owner = core_owner_of(core, job->request.owner);

	ASSERT(owner < core->owners_n);
	if (queue_max > 0 && core->queue_used[job->queue] + more > queue_max) {
		*why = CORE_WHY_QUEUE_QUOTA;
		return false;
	}
	if (owner_max > 0 && core->owners[owner].used + more > owner_max) {
		*why = CORE_WHY_OWNER_QUOTA;
		return false;
	}
	return true;
}

static void use_quota(struct sched_core *core, struct core_job *job, uint32_t more)
{
	job->scratch->cap += more;
	core_charge_quota(core, job, more);
}

/* Jobs admitted so far that have more priority than all jobs admitted after them; priorities
 * descend. */
struct above {
	struct core_job **jobs;
	uint32_t n;
};

/* Returns how many of the jobs have more priority. */
static uint32_t count_above(const struct above *above, int32_t priority)
{
	uint32_t low = 0;
	uint32_t high = above->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (above->jobs[mid]->request.priority > priority) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

/* Sets why the job is not admitted; wait_for is the last job of higher priority. */
static void set_wait_reason(struct core_job *job, const struct class_slots *by_class,
	const struct above *above)
{
	uint32_t n = count_above(above, job->request.priority);
	struct class_slots empty = {0};

	memcpy(empty.left, by_class->all, sizeof(empty.left));
	job->wait = CORE_WHY_SLOTS;
	job->wait_for = 0;
	if (!take(&empty, job, job->request.least)) {
		job->wait = CORE_WHY_NODES;
		return;
	}
	if (n > 0) {
		job->wait = CORE_WHY_PRIORITY;
		job->wait_for = above->jobs[n - 1]->id;
	}
}

static void admit_least(struct sched_core *core, uint32_t n, struct class_slots *by_class)
{
	struct above above = {.jobs = core->workspace.some};

	for (uint32_t i = 0; i < n; i++) {
		struct core_job *job = core->workspace.order[i];
		uint32_t pinned = pinned_replicas(core, job);
		uint32_t need = pinned > 0 ? pinned : job->request.least;
		enum core_reason why = CORE_WHY_NONE;

		if (pinned > 0) {
			take_own(core, by_class, job, need);
			use_quota(core, job, need);
		} else if (!quota_holds(core, job, need, &why)) {
			job->wait = why;
			job->wait_for = 0;
		} else if (!take(by_class, job, need)) {
			set_wait_reason(job, by_class, &above);
		} else {
			job->wait = CORE_WHY_NONE;
			use_quota(core, job, need);
		}
		if (job->scratch->cap > 0) {
			above.n = count_above(&above, job->request.priority);
			ASSERT(above.n <= i);
			above.jobs[above.n++] = job;
		}
	}
}

static bool has_quota(const struct sched_core *core, const struct core_job *job)
{
	return core->options.owner_slots_max > 0 || core->options.queues[job->queue].slots_max > 0;
}

/* Lets jobs without a quota have their most. */
static void give_most(struct sched_core *core, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct core_job *job = core->workspace.order[i];

		if (job->scratch->cap > 0 && pinned_replicas(core, job) == 0 &&
			!has_quota(core, job)) {
			job->scratch->cap = job->request.most;
		}
	}
}

/* Shares out quotas that bind. With to_now, jobs keep the replicas that they have; without, each
 * gets one more in turn. Use of a quota only grows: a job that was refused one more is out. */
static void share_rest(struct sched_core *core, uint32_t n, bool to_now)
{
	struct core_job **sharers = core->workspace.some;
	uint32_t left = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct core_job *job = core->workspace.order[i];

		if (job->scratch->cap > 0 && has_quota(core, job) &&
			pinned_replicas(core, job) == 0) {
			sharers[left++] = job;
		}
	}
	while (left > 0) {
		n = left;
		left = 0;
		for (uint32_t i = 0; i < n; i++) {
			struct core_job *job = sharers[i];
			uint32_t now = core_place_now(job)->replicas;
			uint32_t most = to_now && now < job->request.most ? now : job->request.most;

			if (job->scratch->cap < most &&
				quota_holds(core, job, 1, &job->scratch->quota)) {
				use_quota(core, job, 1);
				sharers[left++] = job;
			}
		}
	}
}

uint32_t core_admit(struct sched_core *core)
{
	struct class_slots by_class = {0};
	uint32_t n = 0;

	core->turns = false;
	core->first = NULL;
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		struct core_job *job = core->jobs[j];

		job->scratch->candidate = is_candidate(core, job);
		job->scratch->cap = 0;
		job->scratch->quota = CORE_WHY_NONE;
		if (job->scratch->candidate && is_overdue(core, job)) {
			record_overdue(core, job);
		}
		if (job->scratch->candidate) {
			core->workspace.order[n++] = job;
		}
	}
	count_room(core);
	for (uint32_t i = 0; i < core->nodes_n; i++) {
		const struct core_node *node = &core->nodes[i];

		by_class.left[core_class_of(node)] += node->room;
		by_class.all[core_class_of(node)] +=
			node->state == CORE_NODE_UP ? node->offer.slots : 0;
	}
	memset(core->queue_used, 0, sizeof(core->queue_used));
	for (uint32_t i = 0; i < core->owners_n; i++) {
		core->owners[i].used = 0;
	}
	/* A job that is stopping still has its slots. */
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		struct core_job *job = core->jobs[j];

		if (!job->scratch->candidate) {
			use_quota(core, job, core_job_slots(job));
			job->scratch->cap = 0;
		}
	}
	qsort_r(core->workspace.order, n, sizeof(struct core_job *), compare, core);
	admit_least(core, n, &by_class);
	give_most(core, n);
	share_rest(core, n, true);
	share_rest(core, n, false);
	return n;
}
