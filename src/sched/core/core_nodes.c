/* Nodes and pools: their states, and how a change of them affects jobs. */
#include "sched/core/core_impl.h"

#include <string.h>

static uint32_t find_name(const struct sched_core *core, const char *name)
{
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		if (strcmp(core->nodes[n].offer.name, name) == 0) {
			return n;
		}
	}
	return core->nodes_n;
}

static void forget(struct sched_core *core, uint32_t n)
{
	ASSERT(core->nodes[n].state == CORE_NODE_LOST); /* no job has slots there */
	ASSERT(core->gone_n < core->workspace.nodes_max);
	core->gone[core->gone_n++] = core->nodes[n].id;
	core->nodes_n--;
	memmove(core->nodes + n, core->nodes + n + 1, (core->nodes_n - n) * sizeof(*core->nodes));
}

/* Takes a lost node away from all jobs. */
static void take_from_jobs(struct sched_core *core, uint32_t id)
{
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		core_job_node_lost(core, core->jobs[j], id);
	}
	core_want_round(core, true);
}

void core_node_gone(struct sched_core *core, uint32_t n)
{
	struct core_node *node = &core->nodes[n];

	ASSERT(n < core->nodes_n);
	if (node->state == CORE_NODE_LOST) {
		return;
	}
	node->state = CORE_NODE_LOST;
	node->dirty = true;
	take_from_jobs(core, node->id);
	if (node->pool != CORE_NO_POOL) {
		forget(core, n);
	}
}

/* Makes room for one more node: at the limit, the lost node with the lowest id is forgotten. */
static int make_room(struct sched_core *core, const struct core_offer *offer, struct pawl_err *err)
{
	uint32_t n = 0;

	if (core->nodes_n < CORE_NODES_MAX) {
		return core_reserve(core, 0, 1, offer->slots, 0, err);
	}
	while (n < core->nodes_n && core->nodes[n].state != CORE_NODE_LOST) {
		n++;
	}
	if (n == core->nodes_n) {
		return pawl_err_set(err, PAWL_ELIMIT, "node %s: there are already %u nodes",
			offer->name, CORE_NODES_MAX);
	}
	if (core_reserve(core, 0, 0, offer->slots, 0, err) != 0) {
		return PAWL_ENOMEM;
	}
	forget(core, n);
	return 0;
}

static int add(struct sched_core *core, const struct core_offer *offer, struct pawl_err *err)
{
	uint32_t pool = core_pool_named(core, offer->pool);
	int rv = make_room(core, offer, err);

	if (rv != 0) {
		return rv;
	}
	ASSERT(core->nodes_n < core->workspace.nodes_max);
	core->nodes[core->nodes_n++] = (struct core_node){.id = ++core->nodes_ever,
		.offer = *offer,
		.pool = pool,
		.dirty = true};
	core->dirty = true;
	if (pool != CORE_NO_POOL && core->pools[pool].requested > 0) {
		core->pools[pool].requested--;
	}
	return 0;
}

/* Whether two offers of one node are the same. */
static bool is_same(const struct core_offer *a, const struct core_offer *b)
{
	return strcmp(a->pool, b->pool) == 0 && a->type == b->type && a->slots == b->slots &&
		a->price == b->price && a->spot == b->spot;
}

/* What a job has on a node that has too few slots, from what costs least on. */
enum loss {
	LOSS_LEAVES, /* slots that the job is about to leave */
	LOSS_SPARE,  /* replicas above the job's least, which it can give up while it runs */
	LOSS_ALL,
};

/* Returns how many slots on the node the job can lose at that cost. */
static uint32_t count_loss(const struct core_job *job, uint32_t node, enum loss loss)
{
	uint32_t owned = core_job_slots_on(job, node);
	uint32_t current = placement_replicas_on(&job->current, node);
	uint32_t spare = core_job_can_rescale(job) && job->current.replicas > job->request.least
		? job->current.replicas - job->request.least
		: 0;

	switch (loss) {
	case LOSS_LEAVES:
		return job->state == CORE_STOPPING ? owned : owned - current;
	case LOSS_SPARE:
		return spare < current ? spare : current;
	default:
		return owned;
	}
}

/* Whether the job, rather than the other, loses slots: the order in core.h. */
static bool loses_before(const struct core_job *job, const struct core_job *other)
{
	if (job->request.pinned != other->request.pinned) {
		return other->request.pinned;
	}
	if (job->request.priority != other->request.priority) {
		return job->request.priority < other->request.priority;
	}
	return job->since_ns != other->since_ns ? job->since_ns > other->since_ns
						: job->id > other->id;
}

static struct core_job *find_loser(const struct sched_core *core, uint32_t node, enum loss loss)
{
	struct core_job *first = NULL;

	for (uint32_t j = 0; j < core->jobs_n; j++) {
		struct core_job *job = core->jobs[j];

		if (count_loss(job, node, loss) > 0 && (!first || loses_before(job, first))) {
			first = job;
		}
	}
	return first;
}

/* Takes slots off a node until so many suffice. */
static void take_slots_off(struct sched_core *core, const struct core_node *node, uint32_t slots)
{
	uint32_t used = node->used;

	for (enum loss loss = LOSS_LEAVES; loss <= LOSS_ALL; loss++) {
		struct core_job *job;

		while (used > slots && (job = find_loser(core, node->id, loss)) != NULL) {
			uint32_t n = count_loss(job, node->id, loss);

			n = n < used - slots ? n : used - slots;
			core_job_slots_lost(core, job, node->id, n);
			used -= n;
		}
	}
	ASSERT(used <= slots);
}

static int node_reported(struct sched_core *core, const struct core_offer *offer,
	struct pawl_err *err)
{
	uint32_t n = find_name(core, offer->name);
	struct core_node *node = n < core->nodes_n ? &core->nodes[n] : NULL;
	int rv;

	if (offer->type >= SCHED_TYPES_MAX || offer->slots < 1 || offer->slots > CORE_SLOTS_MAX ||
		!(offer->price >= 0 && offer->price < 1e12)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"node %s: it needs 1 to %u slots, a type below %u, and a price from 0 on",
			offer->name, CORE_SLOTS_MAX, SCHED_TYPES_MAX);
	}
	if (!node) {
		rv = add(core, offer, err);
		core_want_round(core, rv == 0);
		return rv;
	}
	rv = core_reserve(core, 0, 0, offer->slots, 0, err);
	if (rv != 0) {
		return rv;
	}
	node = &core->nodes[n];
	if (node->state != CORE_NODE_LOST &&
		(node->offer.type != offer->type ||
			(node->returned && node->offer.slots != offer->slots))) {
		take_from_jobs(core, node->id); /* another node has the name */
		node->state = CORE_NODE_LOST;
	} else if (node->used > offer->slots) {
		take_slots_off(core, node, offer->slots);
	}
	if (node->state == CORE_NODE_LOST || !is_same(&node->offer, offer)) {
		if (node->state == CORE_NODE_LOST) {
			node->state = CORE_NODE_UP;
			node->returning = node->returned = false;
		}
		node->offer = *offer;
		node->pool = core_pool_named(core, offer->pool);
		node->dirty = true;
		core_want_round(core, true);
	}
	return 0;
}

static void set_node_state(struct sched_core *core, uint32_t n, enum core_node_state state,
	int64_t deadline_ns)
{
	struct core_node *node = &core->nodes[n];

	if (node->state == CORE_NODE_LOST) {
		return;
	}
	node->state = state;
	node->deadline_ns = deadline_ns;
	node->returning = false;
	node->dirty = true;
	core_want_round(core, true);
}

static int pool_exhausted(struct sched_core *core, const char *name, struct pawl_err *err)
{
	uint32_t p = core_pool_named(core, name);

	if (p == CORE_NO_POOL) {
		return pawl_err_set(err, PAWL_ENOENT, "there is no pool %.63s", name);
	}
	core->pools[p].requested = 0;
	core->pools[p].retry_ns = core->now_ns + CORE_POOL_RETRY_NS;
	core->dirty = true;
	core_want_round(core, true);
	return 0;
}

int core_node_step(struct sched_core *core, const struct core_event *event, struct pawl_err *err)
{
	uint32_t n;

	if (event->kind == CORE_NODE_REPORTED) {
		return node_reported(core, event->offer, err);
	}
	if (event->kind == CORE_POOL_EXHAUSTED) {
		return pool_exhausted(core, event->pool, err);
	}
	n = find_name(core, event->node);
	if (n == core->nodes_n) {
		return pawl_err_set(err, PAWL_ENOENT, "there is no node %.63s", event->node);
	}
	if (event->kind == CORE_NODE_GONE) {
		core_node_gone(core, n);
	} else if (core->nodes[n].returned) {
		return 0; /* returned: no job is on the node, and CORE_NODE_GONE will follow */
	} else if (event->kind == CORE_NODE_NOTICE) {
		set_node_state(core, n, CORE_NODE_GOING, event->deadline_ns);
	} else if (event->kind == CORE_NODE_DRAIN) {
		set_node_state(core, n, CORE_NODE_DRAINED, 0);
	} else {
		set_node_state(core, n, CORE_NODE_UP, 0);
	}
	return 0;
}
