/* Explains a job's state to people: see core_explain. */
#include "sched/core/core_impl.h"
#include "sched/policy/worth.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define SHOWN_MAX       16u  /* nodes that are named, at most */
#define SHOWN_MAX_BYTES 448u /* bytes of text after which no more nodes are named */

/* Text that grows line by line; what does not fit is cut off. */
struct lines {
	char *text;
	size_t len_bytes;
	int64_t now_ns; /* time of reading, which may be after the core's last step */
};

static void add(struct lines *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct lines *l, const char *fmt, ...)
{
	size_t room = CORE_TEXT_MAX - l->len_bytes;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(l->text + l->len_bytes, room, fmt, args);
	va_end(args);
	l->len_bytes += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

static const struct sched_hints *hints_of(const struct core_job *job, uint32_t type)
{
	const struct sched_hints *hints =
		sched_hints_of((const struct sched_hints *const *)job->hints, type);

	return hints && hints->fitted ? hints : NULL;
}

/* Chooses the best batch for a placement. Returns its goodput; 0: not known. */
static double choose(const struct core_job *job, uint32_t type, const struct pawl_placement *place,
	struct pawl_batch *batch)
{
	const struct sched_hints *h = hints_of(job, type);
	double goodput;

	if (!h || !pawl_batch_choose(&h->perf, &h->noise, &h->bounds, place, batch, &goodput)) {
		return 0;
	}
	return goodput;
}

double core_goodput(const struct core_job *job, uint32_t type, const struct pawl_placement *place)
{
	struct pawl_batch batch;

	return choose(job, type, place, &batch);
}

double core_left_s(const struct core_job *job, double goodput)
{
	const struct sched_hints *h =
		sched_hints_newest((const struct sched_hints *const *)job->hints);
	double left;

	if (!h || !(h->progress_end > 0) || !(goodput > 0)) {
		return -1;
	}
	left = (h->progress_end - h->progress) * h->bounds.init / goodput;
	return left > 0 ? left : 0;
}

/* Describes the job's placement as the throughput model needs it. Returns false if there is
 * none. */
static bool describe_place(const struct sched_core *core, const struct core_job *job,
	struct pawl_placement *place, uint32_t *type)
{
	*place =
		(struct pawl_placement){.nodes = job->current.n, .replicas = job->current.replicas};
	for (uint32_t i = 0; i < job->current.n; i++) {
		place->max_per_node = job->current.entries[i].replicas > place->max_per_node
			? job->current.entries[i].replicas
			: place->max_per_node;
	}
	*type = job->current.n > 0
		? core->nodes[core_node_at(core, job->current.entries[0].node)].offer.type
		: 0;
	return job->current.n > 0;
}

static void add_limit(const struct sched_core *core, const struct core_job *job, struct lines *l)
{
	bool runs = job->state == CORE_RUNNING || job->state == CORE_RESCALING;
	int64_t ran_ns = core_ran_ns(core, job) + (runs ? l->now_ns - core->now_ns : 0);

	if (job->request.time_limit_ns > 0) {
		add(l, "time limit: %.0f s, of which it has run %.0f s\n",
			(double)job->request.time_limit_ns / 1e9, (double)ran_ns / 1e9);
	}
}

/* Adds the gap of the decision on all jobs, this one among them. */
static void add_gap(const struct sched_core *core, struct lines *l)
{
	if (!isnan(core->gap)) {
		add(l, "decision: at most %.2g %% over the least cost of all jobs together\n",
			100 * core->gap);
	}
}

/* Adds the nodes that were requested and have not come. Returns false if there are none. */
static bool add_requested(const struct sched_core *core, struct lines *l)
{
	bool any = false;

	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		uint32_t requested = core->pools[p].requested;

		if (requested > 0) {
			add(l, "binds: %u requested node%s of pool %.63s not available yet\n",
				requested, requested == 1 ? " is" : "s are",
				core->options.pools[p].name);
			any = true;
		}
	}
	return any;
}

static void add_quota(const struct sched_core *core, const struct core_job *job,
	enum core_reason quota, struct lines *l)
{
	const struct core_queue *queue = &core->options.queues[job->queue];

	if (quota == CORE_WHY_QUEUE_QUOTA) {
		add(l, "binds: quota of queue %s, %u slots\n", queue->name, queue->slots_max);
	} else {
		add(l, "binds: quota of user %u, %u slots\n", job->request.owner,
			core->options.owner_slots_max);
	}
}

/* Free slots that a job may have. */
struct free_slots {
	uint32_t all;
	uint32_t spot; /* part of all: slots on nodes that can be taken away */
};

static struct free_slots count_free(const struct sched_core *core, const struct core_job *job)
{
	struct free_slots vacant = {0};

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		const struct core_node *node = &core->nodes[n];

		if (node->state == CORE_NODE_UP && core_may_use(job, node)) {
			vacant.all += node->offer.slots - node->used;
			vacant.spot += node->offer.spot ? node->offer.slots - node->used : 0;
		}
	}
	return vacant;
}

/* Returns the replicas of the job's least that must be on spot nodes. */
static uint32_t spot_needed(const struct core_job *job)
{
	return job->request.spot_least < job->request.least ? job->request.spot_least
							    : job->request.least;
}

static void add_needed(const struct core_job *job, struct lines *l)
{
	add(l, "binds: it needs %u slots together", job->request.least);
	if (spot_needed(job) > 0) {
		add(l, ", %u of them on spot nodes", spot_needed(job));
	}
}

/* Adds which slots a queued job lacks, if no quota and no priority keeps it out. */
static void add_lack(const struct sched_core *core, const struct core_job *job, struct lines *l)
{
	struct free_slots vacant = count_free(core, job);
	uint32_t firm = vacant.all - vacant.spot;
	uint32_t spot = vacant.spot < job->request.spot_most ? vacant.spot : job->request.spot_most;

	if (vacant.all > 0 && (firm + spot < job->request.least || spot < spot_needed(job))) {
		add_needed(job, l);
		add(l, "; %u are free", vacant.all);
		if (vacant.spot > 0 || spot_needed(job) > 0) {
			add(l, ", %u of them on spot nodes", vacant.spot);
		}
		if (spot < vacant.spot) {
			add(l, ", of which it may have %u", spot);
		}
		add(l, "\n");
	} else if (vacant.all > 0) {
		add(l, "binds: the %u free slots are for other jobs\n", vacant.all);
	} else {
		add(l, "binds: %s\n", core_reason_text(CORE_WHY_SLOTS));
	}
}

/* Returns the seconds until due_ns; 0 if it has passed. */
static double left_s(const struct lines *l, int64_t due_ns)
{
	return due_ns > l->now_ns ? (double)(due_ns - l->now_ns) / 1e9 : 0;
}

static void add_wait(const struct sched_core *core, const struct core_job *job, struct lines *l)
{
	const struct core_job *other = core_job_at(core, job->wait_for);

	if (job->state == CORE_QUEUED && job->due_ns > core->now_ns) {
		add(l, "binds: back-off after %u failures, for %.1f s more\n",
			job->failures + job->refused, left_s(l, job->due_ns));
		return;
	}
	switch (job->wait) {
	case CORE_WHY_QUEUE_QUOTA:
	case CORE_WHY_OWNER_QUOTA:
		add_quota(core, job, job->wait, l);
		break;
	case CORE_WHY_PRIORITY:
		add(l, "binds: priority of job %llu%s%.63s, %d against %d\n",
			(unsigned long long)job->wait_for, other ? " " : "",
			other ? other->request.name : "", other ? other->request.priority : 0,
			job->request.priority);
		break;
	case CORE_WHY_NODES:
		if (add_requested(core, l)) {
			break;
		}
		add_needed(job, l);
		add(l, ", and all nodes that it may be on have fewer\n");
		break;
	case CORE_WHY_SLOTS:
		add_lack(core, job, l);
		break;
	case CORE_WHY_BUSY:
		add(l,
			"binds: %u replicas are decided; it waits until other jobs release their "
			"slots\n",
			job->want.replicas);
		break;
	default:
		add(l, "binds: %s\n",
			core_reason_text(job->wait != CORE_WHY_NONE ? job->wait : CORE_WHY_ROUND));
	}
}

/* Adds why the job has no more replicas. */
static void add_bound(const struct sched_core *core, const struct core_job *job, struct lines *l)
{
	if (job->wait == CORE_WHY_BUSY) {
		add_wait(core, job, l);
	} else if (job->current.replicas >= job->request.most) {
		add(l, "binds: its own maximum, %u replicas\n", job->request.most);
	} else if (job->request.pinned) {
		add(l, "binds: it may not be moved (preemptible: no)\n");
	} else if (job->scratch->quota != CORE_WHY_NONE &&
		job->current.replicas >= job->scratch->cap) {
		add_quota(core, job, job->scratch->quota, l);
	} else if (count_free(core, job).all == 0) {
		add(l, "binds: no slots are free; other jobs make better use of theirs\n");
	} else {
		add(l, "binds: policy %s sees no use for the free slots\n",
			core->options.policy->name);
	}
}

void core_outlook_now(const struct sched_core *core, const struct core_job *job,
	struct core_outlook *outlook)
{
	struct pawl_batch batch;
	struct pawl_placement place;
	uint32_t type;

	*outlook = (struct core_outlook){.left_s = -1};
	if (describe_place(core, job, &place, &type)) {
		outlook->now = choose(job, type, &place, &batch);
		outlook->batch = outlook->now > 0 ? pawl_batch_total(&place, &batch) : 0;
		outlook->left_s = core_left_s(job, outlook->now);
	}
}

void core_outlook_full(const struct sched_core *core, const struct core_job *job,
	struct core_outlook *outlook)
{
	struct pawl_placement place;
	uint32_t type;

	core_outlook_now(core, job, outlook);
	if (!describe_place(core, job, &place, &type)) {
		return;
	}
	place.max_per_node = 0;
	place.replicas++;
	outlook->more = core_goodput(job, type, &place);
	place.replicas -= 2;
	place.nodes = place.nodes < place.replicas ? place.nodes : place.replicas;
	if (place.replicas >= 1) {
		outlook->fewer = core_goodput(job, type, &place);
	}
}

static void add_goodput(const struct sched_core *core, const struct core_job *job, struct lines *l)
{
	struct core_outlook outlook;
	struct pawl_placement place;
	uint32_t type;

	describe_place(core, job, &place, &type);
	core_outlook_full(core, job, &outlook);
	if (!(outlook.now > 0)) {
		add(l, "goodput: not known%s\n",
			hints_of(job, type) ? " while it does not run"
					    : ": it has reported no hints");
		return;
	}
	add(l, "goodput: %.6g samples/s with %u replicas\n", outlook.now, job->current.replicas);
	add(l, "goodput: %.6g with one more\n", outlook.more);
	if (job->current.replicas > 1) {
		add(l, "goodput: %.6g with one fewer\n", outlook.fewer);
	}
	if (outlook.left_s >= 0) {
		add(l, "ends: in %.0f s\n", outlook.left_s);
	} else {
		add(l, "ends: not known\n");
	}
}

static void add_stopping(const struct core_job *job, struct lines *l)
{
	static const char *const then[] = {"it is queued again", "it is tried again in a while",
		"it is paused", "it has failed", "it is cancelled"};

	_Static_assert(sizeof(then) / sizeof(*then) == CORE_THEN_CANCELLED + 1, "one text each");
	if (job->killed) {
		add(l, "binds: it was killed, but has not ended yet; then %s\n", then[job->after]);
	} else {
		add(l, "binds: it has %.1f s to save and end; then %s\n", left_s(l, job->due_ns),
			then[job->after]);
	}
}

static void add_nodes(const struct sched_core *core, const struct core_job *job, struct lines *l)
{
	uint32_t i;

	add(l, "on:");
	for (i = 0; i < job->current.n && i < SHOWN_MAX && l->len_bytes < SHOWN_MAX_BYTES; i++) {
		const struct core_node *node =
			&core->nodes[core_node_at(core, job->current.entries[i].node)];

		add(l, " %s (%u)", node->offer.name, job->current.entries[i].replicas);
	}
	if (i < job->current.n) {
		add(l, " and %u more", job->current.n - i);
	}
	add(l, "\n");
}

int core_explain(const struct sched_core *core, uint64_t id, int64_t now_ns,
	char text[CORE_TEXT_MAX], struct pawl_err *err)
{
	const struct core_job *job = core_job_at(core, id);
	struct lines l = {.text = text, .now_ns = now_ns > core->now_ns ? now_ns : core->now_ns};

	text[0] = '\0';
	if (!job) {
		return pawl_err_set(err, PAWL_ENOENT, "there is no job %llu",
			(unsigned long long)id);
	}
	add(&l, "%s for %.0f s", core_state_name(job->state),
		(double)(l.now_ns - job->since_ns) / 1e9);
	add(&l, job->reason != CORE_WHY_NONE ? ": %s" : "%s", core_reason_text(job->reason));
	if (job->reason == CORE_WHY_EXIT) {
		add(&l, " with %d", job->exit_code);
	}
	add(&l, "\n");
	if (core_is_over(job)) {
		return 0;
	}
	if (core_is_up(job)) {
		add_nodes(core, job, &l);
		add_bound(core, job, &l);
	} else if (job->state == CORE_STOPPING) {
		add_stopping(job, &l);
	} else if (job->state == CORE_QUEUED) {
		add_wait(core, job, &l);
	} else {
		add(&l, "binds: it is paused, until it is resumed\n");
	}
	add_goodput(core, job, &l);
	add_limit(core, job, &l);
	add_gap(core, &l);
	return 0;
}
