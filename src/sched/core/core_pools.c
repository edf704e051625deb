/* How many nodes each pool is to have: more while jobs would make good use of them, the cheaper
 * before the dearer; fewer once there were too many for a while.
 *
 * A job makes good use of as many replicas as each reach a part (core_options.good_use) of the
 * goodput of a lone one. Where that is not known, the number that the user asked for counts, else
 * the job's least. A pool that has no node now (CORE_POOL_EXHAUSTED, or no answer) is left out for a
 * while, so that the next one stands in for it; the stand-in's nodes go back once the cheaper ones
 * have come. */
#include "sched/core/core_impl.h"

#define GOOD_USE 0.5 /* core_options.good_use, if the options do not say */

/* Slots that jobs would make good use of. */
struct demand {
	uint64_t slots;   /* slots for all jobs */
	uint64_t only[2]; /* part of slots: [0] not on spot nodes, [1] only on spot nodes */
	uint64_t of_pool[CORE_POOLS_MAX]; /* slots for jobs that may be on the pool's nodes */
};

/* Returns the first pool whose nodes the job may be on; the first of all, if there is none. */
static const struct core_pool *pool_for(const struct sched_core *core, const struct core_job *job)
{
	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		const struct core_pool *pool = &core->options.pools[p];
		const struct core_node of = {.offer = {.type = pool->type, .spot = pool->spot}};

		if (core_may_use(job, &of)) {
			return pool;
		}
	}
	return core->options.pools;
}

/* Returns the replicas that a job makes good use of, on nodes of its first pool. */
static uint32_t useful(const struct sched_core *core, const struct core_job *job)
{
	double good_use = core->options.good_use > 0 ? core->options.good_use : GOOD_USE;
	const struct core_pool *pool = pool_for(core, job);
	uint32_t most = job->cap > 0 ? job->cap : job->request.least;
	struct pawl_placement place = {.nodes = 1, .replicas = 1};
	uint32_t good =
		job->request.wanted > job->request.least ? job->request.wanted : job->request.least;
	double alone = core_goodput(job, pool->type, &place);

	if (!(alone > 0) || job->request.pinned) {
		return good < most ? good : most;
	}
	good = job->request.least;
	for (uint32_t r = 2 * good; good < most; r *= 2) {
		place.replicas = r < most ? r : most;
		place.nodes = 1 + (place.replicas - 1) / pool->slots;
		place.max_per_node = place.replicas < pool->slots ? place.replicas : pool->slots;
		if (core_goodput(job, pool->type, &place) < good_use * alone * place.replicas) {
			break;
		}
		good = place.replicas;
	}
	return good;
}

static void count_demand(const struct sched_core *core, struct demand *d)
{
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		const struct core_job *job = core->jobs[j];
		bool quota = job->wait == CORE_WHY_QUEUE_QUOTA || job->wait == CORE_WHY_OWNER_QUOTA;
		uint32_t slots;
		uint32_t spot; /* slots on spot nodes, at most */
		uint32_t firm; /* slots on other nodes, at most */

		if (!job->candidate || (job->cap == 0 && quota)) {
			continue;
		}
		slots = useful(core, job);
		spot = job->request.spot_most < slots ? job->request.spot_most : slots;
		firm = slots > job->request.spot_least ? slots - job->request.spot_least : 0;
		d->slots += slots;
		d->only[0] += slots - spot;
		d->only[1] += slots - firm;
		for (uint32_t p = 0; p < core->options.pools_n; p++) {
			const struct core_pool *pool = &core->options.pools[p];
			const struct core_node of = {
				.offer = {.type = pool->type, .spot = pool->spot}};

			d->of_pool[p] += core_may_use(job, &of) ? (pool->spot ? spot : firm) : 0;
		}
	}
}

/* Returns how many nodes of a pool are to stay. */
static uint32_t count_nodes(const struct sched_core *core, uint32_t pool)
{
	uint32_t nodes = 0;

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		const struct core_node *node = &core->nodes[n];

		nodes += node->pool == pool && node->state == CORE_NODE_UP;
	}
	return nodes;
}

/* Returns the next pool, by price of a slot; CORE_NO_POOL: no more. done: a bit for each one
 * before. */
static uint32_t next_pool(const struct sched_core *core, uint32_t done)
{
	uint32_t best = CORE_NO_POOL;
	double best_price = 0;

	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		double price = core->options.pools[p].price / core->options.pools[p].slots;

		if ((done >> p & 1) == 0 && (best == CORE_NO_POOL || price < best_price)) {
			best = p;
			best_price = price;
		}
	}
	return best;
}

static uint64_t saturating_sub(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Demand that no node is meant to meet yet. */
struct unmet_demand {
	uint64_t slots;
	uint64_t only[2]; /* part of slots, as in demand */
};

/* Returns how much of the lack nodes of that kind, spot or not, can meet; most slots at most. */
static uint64_t count_unmet(const struct unmet_demand *lack, bool spot, uint64_t most)
{
	uint64_t n = saturating_sub(lack->slots, lack->only[!spot]);

	return n < most ? n : most;
}

static void meet_demand(struct unmet_demand *lack, bool spot, uint64_t slots)
{
	lack->slots = saturating_sub(lack->slots, slots);
	lack->only[spot] = saturating_sub(lack->only[spot], slots);
}

/* Finds the demand that nodes of no pool do not meet. */
static void find_unmet(const struct sched_core *core, const struct demand *d,
	struct unmet_demand *lack)
{
	uint64_t slots[2] = {0};
	uint64_t only;

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		const struct core_node *node = &core->nodes[n];

		if (node->pool == CORE_NO_POOL && node->state == CORE_NODE_UP) {
			slots[node->offer.spot] += node->offer.slots;
		}
	}
	lack->only[0] = saturating_sub(d->only[0], slots[0]);
	lack->only[1] = saturating_sub(d->only[1], slots[1]);
	only = lack->only[0] + lack->only[1];
	lack->slots = saturating_sub(d->slots, slots[0] + slots[1]);
	lack->slots = lack->slots > only ? lack->slots : only;
}

/* Finds how many nodes each pool is to have. */
static void share_out(struct sched_core *core, const struct demand *demand, uint32_t *wants)
{
	struct demand shared = *demand;
	struct demand *d = &shared; /* demand that is left */
	uint64_t may = core->options.pool_slots_max > 0 ? core->options.pool_slots_max : UINT64_MAX;
	struct unmet_demand lack;
	uint32_t done = 0;

	find_unmet(core, d, &lack);
	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		const struct core_pool *pool = &core->options.pools[p];
		uint64_t least = (uint64_t)pool->least * pool->slots;

		wants[p] = pool->least;
		may = saturating_sub(may, least);
		least = least < d->of_pool[p] ? least : d->of_pool[p];
		least = count_unmet(&lack, pool->spot, least);
		d->of_pool[p] -= least;
		meet_demand(&lack, pool->spot, least);
	}
	for (uint32_t i = 0; i < core->options.pools_n; i++) {
		uint32_t p = next_pool(core, done);
		const struct core_pool *pool = &core->options.pools[p];
		uint64_t ours =
			count_unmet(&lack, pool->spot, d->of_pool[p] < may ? d->of_pool[p] : may);
		uint64_t more = (ours + pool->slots - 1) / pool->slots;
		uint32_t have = count_nodes(core, p);
		uint32_t most = core->now_ns >= core->pools[p].retry_ns ? pool->most : have;

		done |= 1u << p;
		more = wants[p] + more > most ? (most > wants[p] ? most - wants[p] : 0) : more;
		wants[p] += (uint32_t)more;
		/* Slots to spare on the last node are of no use to jobs that may not be there. */
		meet_demand(&lack, pool->spot,
			more * pool->slots < ours ? more * pool->slots : ours);
		may = saturating_sub(may, more * pool->slots);
	}
}

/* Asks again for nodes that have not come: the engine may not have heard the last scheduler. */
void core_pools_request_again(struct sched_core *core)
{
	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		struct core_update *u;

		if (core->pools[p].requested > 0) {
			u = core_add_update(core, CORE_DO_REQUEST_NODES);
			u->pool = p;
			u->count = core->pools[p].requested;
		}
	}
}

static void request_nodes(struct sched_core *core, uint32_t p, uint32_t more)
{
	struct core_update *u;

	/* First, nodes that were to be given back stay. */
	for (uint32_t n = 0; n < core->nodes_n && more > 0; n++) {
		struct core_node *node = &core->nodes[n];

		if (node->pool == p && node->returning && !node->returned) {
			node->returning = false;
			node->state = CORE_NODE_UP;
			node->dirty = true;
			core_want_round(core, true);
			more--;
		}
	}
	if (more == 0 || core->now_ns < core->pools[p].retry_ns) {
		return;
	}
	u = core_add_update(core, CORE_DO_REQUEST_NODES);
	u->pool = p;
	u->count = more;
	core->pools[p].requested += more;
	core->pools[p].requested_ns = core->now_ns;
	core->dirty = true;
}

/* Drains the emptiest node of a pool, to be given back. */
static void let_go(struct sched_core *core, uint32_t p)
{
	struct core_node *best = NULL;

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		struct core_node *node = &core->nodes[n];

		if (node->pool == p && node->state == CORE_NODE_UP &&
			(!best || node->used < best->used)) {
			best = node;
		}
	}
	if (best) {
		best->state = CORE_NODE_DRAINED;
		best->returning = true;
		best->dirty = true;
		core_want_round(core, true);
	}
}

/* Asks for nodes up to want, or lets go of those above keep. keep: want or more. */
static void adjust(struct sched_core *core, uint32_t p, uint32_t want, uint64_t keep)
{
	struct core_pool_state *state = &core->pools[p];
	uint32_t have = count_nodes(core, p);
	bool over = have > keep;

	if (over != (state->surplus_ns != 0)) {
		state->surplus_ns = over ? core->now_ns : 0;
		core->dirty = true;
	}
	if (have + state->requested < want) {
		request_nodes(core, p, want - have - state->requested);
	} else if (over && core->now_ns >= state->surplus_ns + CORE_IDLE_NS) {
		for (; have > keep; have--) {
			let_go(core, p);
		}
	}
}

/* Returns the most nodes of a pool that may stand in for one that is awaited: as many as all jobs
 * that may be there would use. */
static uint64_t nodes_used(const struct sched_core *core, const struct demand *demand, uint32_t p)
{
	uint32_t slots = core->options.pools[p].slots;

	return (demand->of_pool[p] + slots - 1) / slots;
}

static void return_empty(struct sched_core *core)
{
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		struct core_node *node = &core->nodes[n];

		if (node->returning && node->state == CORE_NODE_DRAINED && node->used == 0) {
			node->dirty = node->dirty || !node->returned;
			node->returned = true;
			core_add_update(core, CORE_DO_RETURN_NODE)->node = node->id;
		}
	}
}

void core_pools_adjust(struct sched_core *core)
{
	struct demand demand = {0};
	uint32_t wants[CORE_POOLS_MAX] = {0};
	bool quiet = true; /* no pool is awaited, so none stands in */

	if (core->options.pools_n == 0) {
		return;
	}
	core_count_used(core);
	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		struct core_pool_state *state = &core->pools[p];

		if (state->requested > 0 &&
			core->now_ns >= state->requested_ns + CORE_POOL_RETRY_NS) {
			state->requested = 0; /* no answer counts as CORE_POOL_EXHAUSTED */
			state->retry_ns = core->now_ns + CORE_POOL_RETRY_NS;
			core->dirty = true;
		}
		quiet = quiet && state->requested == 0;
	}
	count_demand(core, &demand);
	share_out(core, &demand, wants);
	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		uint64_t used = quiet ? 0 : nodes_used(core, &demand, p);

		adjust(core, p, wants[p], used > wants[p] ? used : wants[p]);
	}
	return_empty(core);
}
