/*
 * Plans for operations in which all ranks have the same vector: all-reduce, reduce and broadcast.
 * Pure.
 *
 * A vector is cut into lanes, as many as the host with the most ranks has ranks. On each host, one
 * rank owns a lane. In an all-reduce, it adds the lanes of the host's ranks, adds that sum with
 * the owners of the lane on the other hosts, and sends the result to the host's ranks. So all ranks
 * of a host have an equal share of its network traffic, and each byte crosses the network once per
 * host, not once per rank.
 */
#include "base/assert.h"
#include "base/err.h"
#include "coll/plan/plan_impl.h"

struct lanes {
	struct coll_plan *plan;        /* the caller's */
	const struct coll_topo *topo;  /* the caller's */
	struct plan_position position; /* position of the rank; zeros: it is a server */
	uint64_t len_bytes;            /* size of the vector */
	uint32_t n;                    /* number of lanes */
	enum coll_area in;             /* area of the vector, in steps between hosts */
	enum coll_area out;            /* area of sums; byte b goes to b */
};

static void cut_lane(const struct lanes *lanes, uint32_t lane, uint64_t *lo, uint64_t *hi)
{
	coll_share(lanes->len_bytes, lanes->n, lane, lo, hi);
}

static uint32_t owner_of(const struct lanes *lanes, uint32_t lane)
{
	ASSERT(lanes->position.locals > 0);
	return plan_rank_at(lanes->topo, lanes->position.host, lane % lanes->position.locals);
}

static void add_locals(struct lanes *lanes)
{
	const struct plan_position *p = &lanes->position;
	uint64_t lo;
	uint64_t hi;

	for (uint32_t d = 1; d < p->locals; d++) {
		for (uint32_t lane = (p->local + d) % p->locals; lane < lanes->n;
			lane += p->locals) {
			cut_lane(lanes, lane, &lo, &hi);
			plan_add_send(lanes->plan, plan_after(p, d), COLL_IN, lo, hi - lo);
		}
	}
	for (uint32_t lane = p->local; lane < lanes->n; lane += p->locals) {
		cut_lane(lanes, lane, &lo, &hi);
		plan_add_locals(lanes->plan, p, lo, (struct coll_place){lanes->out, lo}, hi - lo);
	}
}

/* Sends this rank's lanes from area to the others on its host, except rank `except`, which has
 * them. */
static void send_to_locals(struct lanes *lanes, enum coll_area area, uint32_t except)
{
	const struct plan_position *p = &lanes->position;
	uint64_t lo;
	uint64_t hi;

	for (uint32_t d = 1; d < p->locals; d++) {
		for (uint32_t lane = p->local; lane < lanes->n; lane += p->locals) {
			cut_lane(lanes, lane, &lo, &hi);
			if (plan_after(p, d) != except) {
				plan_add_send(lanes->plan, plan_after(p, d), area, lo, hi - lo);
			}
		}
	}
}

/* Receives the lanes of the other ranks on this host. */
static void recv_from_locals(struct lanes *lanes)
{
	const struct plan_position *p = &lanes->position;
	uint64_t lo;
	uint64_t hi;

	for (uint32_t d = 1; d < p->locals; d++) {
		for (uint32_t lane = (p->local + p->locals - d) % p->locals; lane < lanes->n;
			lane += p->locals) {
			cut_lane(lanes, lane, &lo, &hi);
			plan_add_recv(lanes->plan, plan_before(p, d), COLL_OUT, lo, hi - lo);
		}
	}
}

/* Returns the owners of a lane on all hosts. who: memory for their ranks, one per host; me: this
 * rank's host, or hosts + i at server i. */
static struct flat flat_of(const struct lanes *lanes, uint32_t lane, uint32_t me, uint32_t *who)
{
	const struct coll_topo *topo = lanes->topo;
	struct flat flat = {.plan = lanes->plan,
		.who = who,
		.n = topo->hosts,
		.me = me,
		.servers = topo->servers,
		.server = topo->ranks,
		.in = lanes->in,
		.out = lanes->out};

	ASSERT(lane < lanes->n && me < topo->hosts + topo->servers);
	cut_lane(lanes, lane, &flat.lo, &flat.hi);
	for (uint32_t h = 0; h < topo->hosts; h++) {
		who[h] = plan_rank_at(topo, h, lane % coll_topo_locals(topo, h));
	}
	return flat;
}

static struct lanes lanes_of(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint64_t len_bytes)
{
	struct lanes lanes = {.plan = plan,
		.topo = topo,
		.len_bytes = len_bytes,
		.n = coll_topo_locals_max(topo),
		.in = COLL_IN,
		.out = COLL_OUT};

	if (rank < topo->ranks) {
		lanes.position = plan_find_position(topo, rank);
	}
	return lanes;
}

/* ---- all-reduce ---- */

/* For few bytes inside a host: each rank sends its vector to all others, and adds all vectors
 * itself. One hop instead of two. */
static void add_everywhere(struct lanes *lanes)
{
	const struct plan_position *p = &lanes->position;

	for (uint32_t d = 1; d < p->locals; d++) {
		plan_add_send(lanes->plan, plan_after(p, d), COLL_IN, 0, lanes->len_bytes);
	}
	plan_add_locals(lanes->plan, p, 0, (struct coll_place){COLL_OUT, 0}, lanes->len_bytes);
}

static void plan_member(struct lanes *lanes, enum coll_algorithm algorithm, uint32_t *who)
{
	const struct plan_position *p = &lanes->position;

	if (lanes->topo->ranks == 1) {
		plan_add_copy(lanes->plan, 0, 0, lanes->len_bytes);
		return;
	}
	if (lanes->topo->hosts == 1 && (algorithm == COLL_DOUBLING || algorithm == COLL_TREE)) {
		add_everywhere(lanes);
		return;
	}
	if (p->locals > 1) {
		add_locals(lanes);
		lanes->in = COLL_OUT;
	}
	for (uint32_t lane = p->local; lane < lanes->n; lane += p->locals) {
		struct flat flat = flat_of(lanes, lane, p->host, who);

		flat_all_reduce(&flat, algorithm);
	}
	send_to_locals(lanes, COLL_OUT, UINT32_MAX);
	recv_from_locals(lanes);
}

int coll_plan_all_reduce(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	enum coll_algorithm algorithm, uint64_t len_bytes, struct pawl_err *err)
{
	struct lanes lanes = lanes_of(plan, topo, rank, len_bytes);
	uint32_t who[COLL_RANKS_MAX];

	ASSERT(rank < topo->ranks + topo->servers);
	plan_reset(plan, false);
	if (!coll_algorithm_fits(algorithm, topo->hosts)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"all-reduce by halving: the number of hosts must be a power of two, not %u",
			topo->hosts);
	}
	if (topo->servers > 0 && algorithm != COLL_DIRECT) {
		return pawl_err_set(err, PAWL_EINVAL,
			"all-reduce: with servers (%u here), the algorithm must be direct",
			topo->servers);
	}
	plan->interleave = topo->servers > 0; /* servers send while they receive */
	if (rank < topo->ranks) {
		plan_member(&lanes, algorithm, who);
	}
	for (uint32_t lane = 0; lane < lanes.n && rank >= topo->ranks; lane++) {
		struct flat flat = flat_of(&lanes, lane, topo->hosts + rank - topo->ranks, who);

		flat_all_reduce(&flat, algorithm);
	}
	return plan_finish(plan, "an all-reduce", err);
}

/* ---- reduce and broadcast: one rank has, or gets, the vector ---- */

static int check_rooted(const struct coll_topo *topo, const char *what, uint32_t root,
	enum coll_algorithm algorithm, struct pawl_err *err)
{
	if (root >= topo->ranks) {
		return pawl_err_set(err, PAWL_EINVAL, "%s: root %u of %u ranks", what, root,
			topo->ranks);
	}
	if (algorithm != COLL_DIRECT && algorithm != COLL_TREE) {
		return pawl_err_set(err, PAWL_EINVAL, "%s: the algorithm must be direct or tree",
			what);
	}
	return 0;
}

int coll_plan_reduce(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint32_t root, enum coll_algorithm algorithm, uint64_t len_bytes, struct pawl_err *err)
{
	struct lanes lanes = lanes_of(plan, topo, rank, len_bytes);
	const struct plan_position *p = &lanes.position;
	uint32_t who[COLL_RANKS_MAX];
	int rv = check_rooted(topo, "reduce", root, algorithm, err);

	ASSERT(rank < topo->ranks);
	plan_reset(plan, false);
	if (rv != 0) {
		return rv;
	}
	if (topo->ranks == 1) {
		plan_add_copy(plan, 0, 0, len_bytes);
		return plan_finish(plan, "a reduce", err);
	}
	if (rank != root) {
		lanes.out = COLL_TMP;
		plan_take_tmp(plan, len_bytes); /* at offset 0 */
	}
	if (p->locals > 1) {
		add_locals(&lanes);
		lanes.in = lanes.out;
	}
	for (uint32_t lane = p->local; lane < lanes.n; lane += p->locals) {
		struct flat flat = flat_of(&lanes, lane, p->host, who);

		flat.servers = 0;
		flat_reduce(&flat, algorithm, topo->host_of[root]);
		if (rank != root && p->host == topo->host_of[root]) {
			plan_add_send(plan, root, lanes.out, flat.lo, flat.hi - flat.lo);
		}
	}
	if (rank == root) {
		recv_from_locals(&lanes);
	}
	return plan_finish(plan, "a reduce", err);
}

/* On root's host: root sends every lane to its owner. */
static void distribute_lanes(struct lanes *lanes, uint32_t rank, uint32_t root)
{
	uint64_t lo;
	uint64_t hi;

	for (uint32_t lane = 0; lane < lanes->n; lane++) {
		uint32_t owner = owner_of(lanes, lane);

		cut_lane(lanes, lane, &lo, &hi);
		if (rank == root && owner != root) {
			plan_add_send(lanes->plan, owner, COLL_IN, lo, hi - lo);
		} else if (rank == owner && rank != root) {
			plan_add_recv(lanes->plan, root, COLL_OUT, lo, hi - lo);
		}
	}
}

int coll_plan_broadcast(struct coll_plan *plan, const struct coll_topo *topo, uint32_t rank,
	uint32_t root, enum coll_algorithm algorithm, uint64_t len_bytes, struct pawl_err *err)
{
	struct lanes lanes = lanes_of(plan, topo, rank, len_bytes);
	const struct plan_position *p = &lanes.position;
	uint32_t who[COLL_RANKS_MAX];
	int rv = check_rooted(topo, "broadcast", root, algorithm, err);

	ASSERT(rank < topo->ranks);
	plan_reset(plan, false);
	if (rv != 0) {
		return rv;
	}
	if (p->host == topo->host_of[root]) {
		distribute_lanes(&lanes, rank, root);
	}
	lanes.in = rank == root ? COLL_IN : COLL_OUT;
	for (uint32_t lane = p->local; lane < lanes.n; lane += p->locals) {
		struct flat flat = flat_of(&lanes, lane, p->host, who);

		flat.servers = 0;
		flat_broadcast(&flat, algorithm, topo->host_of[root]);
	}
	send_to_locals(&lanes, lanes.in, root);
	if (rank != root) {
		recv_from_locals(&lanes);
	}
	return plan_finish(plan, "a broadcast", err);
}
