/* How many nodes each pool is to have: more while jobs would make good use of them, cheap ones
 * first; fewer once there were too many for a while.
 *
 * A job makes good use of its replicas as long as each reaches a part (core_options.good_use) of
 * the goodput of a lone one. If that is not known, the number that the user asked for counts, else
 * the job's least. A pool that has no node now (CORE_POOL_EXHAUSTED, or no answer) is left out for
 * a while, so that the next one replaces it. The replacement's nodes are returned once the cheaper
 * ones have come. */
#include "sched/core/core_impl.h"

#define GOOD_USE 0.5 /* default of core_options.good_use */

_Static_assert(CORE_POOLS_MAX <= 32, "a bit for each pool in 32 bits");

/* Slots that jobs would make good use of. */
struct demand {
	uint64_t slots;   /* slots for all jobs */
	uint64_t only[2]; /* part of slots: [0] not on spot nodes, [1] only on spot nodes */
	uint64_t of_pool[CORE_POOLS_MAX]; /* slots for jobs that may be on the pool's nodes */
};

/* Returns the first pool whose nodes the job may be on; if there is none, the first of all. */
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

/* Returns the replicas that a job makes good use of, on nodes of the first pool that suits it. */
static uint32_t useful(const struct sched_core *core, const struct core_job *job)
{
	double good_use = core->options.good_use > 0 ? core->options.good_use : GOOD_USE;
	const struct core_pool *pool = pool_for(core, job);
	uint32_t most = job->scratch->cap > 0 ? job->scratch->cap : job->request.least;
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

static void count_demand(const struct sched_core *core, struct demand *demand)
{
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		const struct core_job *job = core->jobs[j];
		bool quota = job->wait == CORE_WHY_QUEUE_QUOTA || job->wait == CORE_WHY_OWNER_QUOTA;
		uint32_t slots;
		uint32_t spot; /* slots on spot nodes, at most */
		uint32_t firm; /* slots on other nodes, at most */

		if (!job->scratch->candidate || (job->scratch->cap == 0 && quota)) {
			continue;
		}
		slots = useful(core, job);
		spot = job->request.spot_most < slots ? job->request.spot_most : slots;
		firm = slots > job->request.spot_least ? slots - job->request.spot_least : 0;
		demand->slots += slots;
		demand->only[0] += slots - spot;
		demand->only[1] += slots - firm;
		for (uint32_t p = 0; p < core->options.pools_n; p++) {
			const struct core_pool *pool = &core->options.pools[p];
			const struct core_node of = {
				.offer = {.type = pool->type, .spot = pool->spot}};

			demand->of_pool[p] +=
				core_may_use(job, &of) ? (pool->spot ? spot : firm) : 0;
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

/* Returns the next pool, by price of a slot; CORE_NO_POOL: no more. done: the pools before, a bit
 * each. */
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

/* Demand that no node, present or requested, meets yet. */
struct unmet_demand {
	uint64_t slots;
	uint64_t only[2]; /* part of slots, as in demand */
};

/* Returns how much of the unmet demand nodes of that kind, spot or not, can meet; at most most
 * slots. */
static uint64_t count_unmet(const struct unmet_demand *unmet, bool spot, uint64_t most)
{
	uint64_t n = saturating_sub(unmet->slots, unmet->only[!spot]);

	return n < most ? n : most;
}

static void meet_demand(struct unmet_demand *unmet, bool spot, uint64_t slots)
{
	unmet->slots = saturating_sub(unmet->slots, slots);
	unmet->only[spot] = saturating_sub(unmet->only[spot], slots);
}

/* Finds the demand that is left for pools: nodes of no pool meet part of it. */
static void find_unmet(const struct sched_core *core, const struct demand *demand,
	struct unmet_demand *unmet)
{
	uint64_t slots[2] = {0};
	uint64_t only;

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		const struct core_node *node = &core->nodes[n];

		if (node->pool == CORE_NO_POOL && node->state == CORE_NODE_UP) {
			slots[node->offer.spot] += node->offer.slots;
		}
	}
	unmet->only[0] = saturating_sub(demand->only[0], slots[0]);
	unmet->only[1] = saturating_sub(demand->only[1], slots[1]);
	only = unmet->only[0] + unmet->only[1];
	unmet->slots = saturating_sub(demand->slots, slots[0] + slots[1]);
	unmet->slots = unmet->slots > only ? unmet->slots : only;
}

/* Finds how many nodes each pool is to have. */
static void share_out(struct sched_core *core, const struct demand *demand, uint32_t *wants)
{
	struct demand shared = *demand;
	struct demand *left = &shared; /* demand that is left */
	uint64_t may = core->options.pool_slots_max > 0 ? core->options.pool_slots_max : UINT64_MAX;
	struct unmet_demand unmet;
	uint32_t done = 0;

	find_unmet(core, left, &unmet);
	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		const struct core_pool *pool = &core->options.pools[p];
		uint64_t least = (uint64_t)pool->least * pool->slots;

		wants[p] = pool->least;
		may = saturating_sub(may, least);
		least = least < left->of_pool[p] ? least : left->of_pool[p];
		least = count_unmet(&unmet, pool->spot, least);
		left->of_pool[p] -= least;
		meet_demand(&unmet, pool->spot, least);
	}
	for (uint32_t i = 0; i < core->options.pools_n; i++) {
		uint32_t p = next_pool(core, done);
		const struct core_pool *pool = &core->options.pools[p];
		uint64_t ours = count_unmet(&unmet, pool->spot,
			left->of_pool[p] < may ? left->of_pool[p] : may);
		uint64_t more = (ours + pool->slots - 1) / pool->slots;
		uint32_t have = count_nodes(core, p);
		uint32_t most = core->now_ns >= core->pools[p].retry_ns ? pool->most : have;

		done |= 1u << p;
		more = wants[p] + more > most ? (most > wants[p] ? most - wants[p] : 0) : more;
		wants[p] += (uint32_t)more;
		/* Slots to spare on the last node are of no use to jobs that may not be there. */
		meet_demand(&unmet, pool->spot,
			more * pool->slots < ours ? more * pool->slots : ours);
		may = saturating_sub(may, more * pool->slots);
	}
}

/* Repeats the requests for nodes that have not come: the engine may not have received them. */
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

	/* First, nodes that were to be returned stay. */
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

/* Drains the emptiest node of a pool, to return it. */
static void drain_emptiest(struct sched_core *core, uint32_t p)
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

/* Requests nodes up to want, or drains those above keep. keep: want or more. */
static void adjust(struct sched_core *core, uint32_t p, uint32_t want, uint64_t keep)
{
	struct core_pool_state *state = &core->pools[p];
	uint32_t have = count_nodes(core, p);
	bool over = have > keep;

	ASSERT(keep >= want);
	if (over != (state->surplus_ns != 0)) {
		state->surplus_ns = over ? core->now_ns : 0;
		core->dirty = true;
	}
	if (have + state->requested < want) {
		request_nodes(core, p, want - have - state->requested);
	} else if (over && core->now_ns >= state->surplus_ns + CORE_IDLE_NS) {
		for (; have > keep; have--) {
			drain_emptiest(core, p);
		}
	}
}

/* Returns how many nodes of a pool may replace those of a pool that is awaited: as many as all jobs
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
	bool quiet = true; /* no requested node is missing, so no pool replaces another */

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
