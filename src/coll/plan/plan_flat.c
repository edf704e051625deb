/* Plans of equal ranks: each algorithm maps the index of a member to its list of steps. Pure. */
#include "base/assert.h"
#include "coll/plan/plan_impl.h"

/* Returns the rank of member or server i. */
static uint32_t rank_of(const struct flat *f, uint32_t i)
{
	return i < f->n ? f->who[i] : f->server + (i - f->n);
}

/* ---- direct ---- */

/* Sets *lo and *hi to the limits of what member or server i adds. While hosts of members serve,
 * they also send their own bytes and receive those of others. So of n(n - k) + 2k(n - 1) parts,
 * with n members and k servers, each member serves n - k and each server 2(n - 1). */
static void cut_direct(const struct flat *f, uint32_t i, uint64_t *lo, uint64_t *hi)
{
	uint64_t n = f->n;
	uint64_t k = f->servers;
	uint64_t of_member = k < n ? n - k : 0;
	uint64_t of_server = k < n ? 2 * (n - 1) : 1;
	uint64_t all = n * of_member + k * of_server;
	uint64_t granules = (f->hi - f->lo + COLL_GRANULE - 1) / COLL_GRANULE;
	uint64_t before = i <= n ? i * of_member : n * of_member + (i - n) * of_server;
	uint64_t after = before + (i < n ? of_member : of_server);

	ASSERT(i < n + k && before <= after && after <= all && all > 0);
	*lo = f->lo + granules * before / all * COLL_GRANULE;
	*hi = f->lo + granules * after / all * COLL_GRANULE;
	*lo = *lo < f->hi ? *lo : f->hi;
	*hi = *hi < f->hi ? *hi : f->hi;
}

#define ALL_MEMBERS UINT32_MAX

/* Adds bytes [lo, hi) of all members, and sends the sum to all of them, or to member whom only. */
static void serve(struct flat *f, uint64_t lo, uint64_t hi, uint32_t whom)
{
	uint64_t len_bytes = hi - lo;
	uint64_t tmp = plan_take_tmp(f->plan, f->n * len_bytes); /* one term per member */
	bool member = f->me < f->n;
	enum coll_area area = member ? f->out : COLL_TMP;
	uint64_t at = member ? lo : tmp;

	for (uint32_t d = 1; d <= f->n; d++) {
		uint32_t from = (f->me + f->n - d) % f->n;

		if (from != f->me) {
			plan_add_recv(f->plan, f->who[from], COLL_TMP, tmp + from * len_bytes,
				len_bytes);
		}
	}
	plan_add_sum(f->plan, area, at, len_bytes);
	for (uint32_t i = 0; i < f->n; i++) {
		if (i == f->me) {
			plan_add_term(f->plan, f->in, lo);
		} else {
			plan_add_term(f->plan, COLL_TMP, tmp + i * len_bytes);
		}
	}
	for (uint32_t d = 1; d <= f->n; d++) {
		uint32_t to = (f->me + d) % f->n;

		if (to != f->me && (whom == ALL_MEMBERS || whom == to)) {
			plan_add_send(f->plan, f->who[to], area, at, len_bytes);
		}
	}
}

/* Returns the d-th peer that a member sends to, or receives from: servers, then members. Each
 * member begins with a different peer, so that not all send to the same one at once. */
static uint32_t direct_peer(const struct flat *f, uint32_t d, bool to)
{
	uint32_t k = f->servers;
	uint32_t n = f->n;
	uint32_t peer;

	if (d < k) {
		return n + (f->me + d) % k;
	}
	d -= k;
	peer = (to ? f->me + 1 + d : f->me + n - 1 - d) % n;
	ASSERT(peer != f->me);
	return peer;
}

static void add_direct(struct flat *f, uint32_t whom)
{
	uint32_t others = f->n + f->servers - 1;
	bool member = f->me < f->n;
	uint64_t lo;
	uint64_t hi;

	for (uint32_t d = 0; d < others && member; d++) {
		uint32_t to = direct_peer(f, d, true);

		cut_direct(f, to, &lo, &hi);
		plan_add_send(f->plan, rank_of(f, to), f->in, lo, hi - lo);
	}
	cut_direct(f, f->me, &lo, &hi);
	if (lo < hi) {
		serve(f, lo, hi, whom);
	}
	for (uint32_t d = 0; d < others && member && (whom == ALL_MEMBERS || whom == f->me); d++) {
		uint32_t from = direct_peer(f, d, false);

		cut_direct(f, from, &lo, &hi);
		plan_add_recv(f->plan, rank_of(f, from), f->out, lo, hi - lo);
	}
}

static void reduce_direct(struct flat *f)
{
	add_direct(f, ALL_MEMBERS);
}

/* ---- doubling: the whole vector, log2(n) times ---- */

/* Adds this member's bytes and those received into tmp, in the order of members. */
static void add_pair(struct flat *f, enum coll_area mine, uint64_t tmp, bool mine_first,
	uint64_t lo, uint64_t hi)
{
	plan_add_sum(f->plan, f->out, lo, hi - lo);
	if (mine_first) {
		plan_add_term(f->plan, mine, lo);
	}
	plan_add_term(f->plan, COLL_TMP, tmp);
	if (!mine_first) {
		plan_add_term(f->plan, mine, lo);
	}
}

/*
 * In each round, each block of `half` members receives the sum of its neighbour block. The last
 * block may be short: each of its members then serves several members of the block on the left.
 */
static void reduce_doubling(struct flat *f)
{
	uint64_t len_bytes = f->hi - f->lo;
	uint64_t tmp = plan_take_tmp(f->plan, len_bytes);
	enum coll_area mine = f->in;

	for (uint32_t half = 1; half < f->n; half *= 2) {
		uint32_t left = f->me & ~(2 * half - 1);
		uint32_t right = left + half;
		uint32_t rights = right < f->n ? f->n - right : 0;
		bool is_left = f->me < right;

		if (rights == 0) {
			continue;
		}
		rights = rights < half ? rights : half;
		if (is_left) {
			uint32_t i = f->me - left;

			if (i < rights) {
				plan_add_send(f->plan, f->who[right + i], mine, f->lo, len_bytes);
			}
			plan_add_recv(f->plan, f->who[right + i % rights], COLL_TMP, tmp,
				len_bytes);
		} else {
			uint32_t i = f->me - right;

			for (uint32_t to = i; to < half; to += rights) {
				plan_add_send(f->plan, f->who[left + to], mine, f->lo, len_bytes);
			}
			plan_add_recv(f->plan, f->who[left + i], COLL_TMP, tmp, len_bytes);
		}
		add_pair(f, mine, tmp, is_left, f->lo, f->hi);
		mine = f->out;
	}
}

/* ---- halving ---- */

#define ROUNDS_MAX 13 /* log2(COLL_RANKS_MAX) + 1 */

_Static_assert(COLL_RANKS_MAX == 1u << (ROUNDS_MAX - 1), "a range per round, and the whole one");

/* Pairs neighbours first, unlike the usual algorithm, so that the order of addition is the
 * tree's. */
static void reduce_halving(struct flat *f)
{
	uint64_t lo[ROUNDS_MAX] = {f->lo};
	uint64_t hi[ROUNDS_MAX] = {f->hi};
	uint64_t tmp = plan_take_tmp(f->plan, f->hi - f->lo);
	uint32_t round = 0;

	ASSERT(f->n <= COLL_RANKS_MAX);
	for (; 1u << round < f->n; round++) {
		uint32_t peer = f->who[f->me ^ (1u << round)];
		bool is_left = (f->me >> round & 1) == 0;
		enum coll_area mine = round == 0 ? f->in : f->out;
		uint64_t mid;
		uint64_t end;

		coll_share(hi[round] - lo[round], 2, 0, &mid, &end);
		mid = lo[round] + end;
		lo[round + 1] = is_left ? lo[round] : mid;
		hi[round + 1] = is_left ? mid : hi[round];
		plan_add_send(f->plan, peer, mine, is_left ? mid : lo[round],
			is_left ? hi[round] - mid : mid - lo[round]);
		if (lo[round + 1] < hi[round + 1]) {
			plan_add_recv(f->plan, peer, COLL_TMP, tmp, hi[round + 1] - lo[round + 1]);
			add_pair(f, mine, tmp, is_left, lo[round + 1], hi[round + 1]);
		}
	}
	while (round-- > 0) {
		uint32_t peer = f->who[f->me ^ (1u << round)];
		bool is_left = (f->me >> round & 1) == 0;
		uint64_t mid = is_left ? hi[round + 1] : lo[round + 1];

		plan_add_send(f->plan, peer, f->out, lo[round + 1], hi[round + 1] - lo[round + 1]);
		plan_add_recv(f->plan, peer, f->out, is_left ? mid : lo[round],
			is_left ? hi[round] - mid : mid - lo[round]);
	}
}

/* ---- tree: to the first member and back ---- */

/* Sends the sum to the first member. Pairs neighbours first, so that the order of addition is the
 * tree's. */
static void tree_reduce(struct flat *f)
{
	uint64_t len_bytes = f->hi - f->lo;
	uint64_t tmp = plan_take_tmp(f->plan, len_bytes);
	enum coll_area mine = f->in;
	uint32_t half = 1;

	for (; half < f->n && (f->me & half) == 0; half *= 2) {
		if (f->me + half < f->n) {
			plan_add_recv(f->plan, f->who[f->me + half], COLL_TMP, tmp, len_bytes);
			add_pair(f, mine, tmp, true, f->lo, f->hi);
			mine = f->out;
		}
	}
	if (f->me != 0) {
		ASSERT((f->me & half) != 0); /* me - half is nearer to the first member */
		plan_add_send(f->plan, f->who[f->me - half], mine, f->lo, len_bytes);
	}
}

/* Sends the bytes that root has in mine to all members. Members are numbered from root on. */
static void tree_broadcast(struct flat *f, uint32_t root, enum coll_area mine)
{
	uint64_t len_bytes = f->hi - f->lo;
	uint32_t me = (f->me + f->n - root) % f->n;
	uint32_t half = 1;

	while (half < f->n && (me & half) == 0) {
		half *= 2;
	}
	if (me != 0) {
		ASSERT((me & half) != 0);
		plan_add_recv(f->plan, f->who[(root + me - half) % f->n], f->out, f->lo, len_bytes);
	}
	while (half > 1) {
		half /= 2;
		if (me + half < f->n) {
			plan_add_send(f->plan, f->who[(root + me + half) % f->n],
				me == 0 ? mine : f->out, f->lo, len_bytes);
		}
	}
}

static void reduce_tree(struct flat *f)
{
	tree_reduce(f);
	tree_broadcast(f, 0, f->out);
}

/* ---- ring ---- */

static void reduce_ring(struct flat *f)
{
	uint32_t next = f->who[(f->me + 1) % f->n];
	uint32_t before = f->who[(f->me + f->n - 1) % f->n];
	uint64_t tmp = plan_take_tmp(f->plan, (f->hi - f->lo) / f->n + COLL_GRANULE);

	for (uint32_t s = 0; s < 2 * (f->n - 1); s++) {
		bool adding = s < f->n - 1;
		uint64_t lo;
		uint64_t hi;

		coll_share(f->hi - f->lo, f->n, (f->me + 2 * f->n - s) % f->n, &lo, &hi);
		plan_add_send(f->plan, next, s == 0 ? f->in : f->out, f->lo + lo, hi - lo);
		coll_share(f->hi - f->lo, f->n, (f->me + 2 * f->n - s - 1) % f->n, &lo, &hi);
		if (lo < hi && adding) {
			plan_add_recv(f->plan, before, COLL_TMP, tmp, hi - lo);
			add_pair(f, f->in, tmp, false, f->lo + lo, f->lo + hi);
		} else {
			plan_add_recv(f->plan, before, f->out, f->lo + lo, hi - lo);
		}
	}
}

void flat_all_reduce(struct flat *f, enum coll_algorithm algorithm)
{
	static void (*const algorithms[COLL_ALGORITHMS])(
		struct flat *) = {[COLL_DIRECT] = reduce_direct,
		[COLL_DOUBLING] = reduce_doubling,
		[COLL_HALVING] = reduce_halving,
		[COLL_TREE] = reduce_tree,
		[COLL_RING] = reduce_ring};

	ASSERT(coll_algorithm_fits(algorithm, f->n) && f->me < f->n + f->servers);
	ASSERT(f->servers == 0 || algorithm == COLL_DIRECT);
	if (f->lo < f->hi && f->n > 1) {
		algorithms[algorithm](f);
	}
}

void flat_reduce(struct flat *f, enum coll_algorithm algorithm, uint32_t root)
{
	ASSERT(f->servers == 0 && f->me < f->n && root < f->n);
	ASSERT(algorithm == COLL_DIRECT || algorithm == COLL_TREE);
	if (f->lo == f->hi || f->n == 1) {
		return;
	}
	if (algorithm == COLL_DIRECT) {
		add_direct(f, root);
		return;
	}
	tree_reduce(f);
	if (root != 0 && f->me == 0) {
		plan_add_send(f->plan, f->who[root], f->out, f->lo, f->hi - f->lo);
	} else if (root != 0 && f->me == root) {
		plan_add_recv(f->plan, f->who[0], f->out, f->lo, f->hi - f->lo);
	}
}

/* Root sends each member its share; then all members send their shares to each other. So each byte
 * leaves root twice at most, however many members there are. */
static void broadcast_direct(struct flat *f, uint32_t root)
{
	uint64_t lo;
	uint64_t hi;

	for (uint32_t d = 1; d < f->n && f->me == root; d++) {
		cut_direct(f, (f->me + d) % f->n, &lo, &hi);
		plan_add_send(f->plan, f->who[(f->me + d) % f->n], f->in, lo, hi - lo);
	}
	cut_direct(f, f->me, &lo, &hi);
	if (f->me != root) {
		plan_add_recv(f->plan, f->who[root], f->out, lo, hi - lo);
	}
	for (uint32_t d = 1; d < f->n; d++) {
		uint32_t to = (f->me + d) % f->n;

		if (to != root) {
			plan_add_send(f->plan, f->who[to], f->me == root ? f->in : f->out, lo,
				hi - lo);
		}
	}
	for (uint32_t d = 1; d < f->n && f->me != root; d++) {
		uint32_t from = (f->me + f->n - d) % f->n;

		cut_direct(f, from, &lo, &hi);
		plan_add_recv(f->plan, f->who[from], f->out, lo, hi - lo);
	}
}

void flat_broadcast(struct flat *f, enum coll_algorithm algorithm, uint32_t root)
{
	ASSERT(f->servers == 0 && f->me < f->n && root < f->n);
	ASSERT(algorithm == COLL_DIRECT || algorithm == COLL_TREE);
	if (f->lo == f->hi || f->n == 1) {
		return;
	}
	if (algorithm == COLL_DIRECT) {
		broadcast_direct(f, root);
	} else {
		tree_broadcast(f, root, f->in);
	}
}
