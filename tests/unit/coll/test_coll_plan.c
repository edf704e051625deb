/*
 * All-reduce: the result is the sum in the fixed order, byte by byte, at all ranks, and no host
 * sends or receives more bytes than it must.
 */
#include "base/err.h"
#include "base/fault.h"
#include "each_fault.h"
#include "seed.h"
#include "test_coll_machine.h"

#include <errno.h>

#define RANKS 16  /* ranks with vectors, at most; all numbers up to it */
#define LARGE 100 /* ranks of one large run */

static uint64_t first_seed;

static void try_one(struct rng *rng, const uint32_t *where, uint32_t ranks, uint32_t servers,
	enum coll_algorithm algorithm, uint64_t len)
{
	struct machine *m = calloc(1, sizeof(*m));
	uint64_t lens[MACHINE_ALL] = {0};
	struct coll_topo topo;

	assert_int_equal(coll_topo_init(&topo, where, ranks, servers, NULL), 0);
	m->all = ranks + servers;
	m->in_place = rng_below(rng, 2) == 1;
	m->narrow = rng_below(rng, 2) == 1;
	for (uint32_t r = 0; r < m->all; r++) {
		assert_int_equal(coll_plan_all_reduce(&m->plans[r], &topo, r, algorithm, len, NULL),
			0);
		lens[r] = r < ranks ? len : 0;
	}
	names_commute = algorithm == COLL_RING; /* any order, but every term */
	machine_open(m, lens, lens);
	machine_run(m, rng);
	for (uint64_t b = 0; b < len; b++) {
		uint64_t want = name_all(&topo, b);

		for (uint32_t r = 0; r < ranks; r++) {
			assert_true(m->areas[r][COLL_OUT][b] == want);
		}
	}
	machine_close(m);
	coll_topo_deinit(&topo);
}

static uint64_t take_len(struct rng *rng)
{
	static const uint64_t below[] = {2, COLL_GRANULE, 20 * COLL_GRANULE};

	return rng_below(rng, below[rng_below(rng, 3)]);
}

static void shuffle(struct rng *rng, uint32_t *where, uint32_t ranks)
{
	for (uint32_t r = ranks - 1; r > 0; r--) {
		uint32_t other = (uint32_t)rng_below(rng, r + 1);
		uint32_t host = where[r];

		where[r] = where[other];
		where[other] = host;
	}
}

/* All numbers of ranks, one rank per host, by all algorithms. */
static void one_rank_a_host(void **state)
{
	struct rng rng = {first_seed};

	for (uint32_t ranks = 1; ranks <= RANKS; ranks++) {
		uint32_t where[RANKS];

		for (uint32_t r = 0; r < ranks; r++) {
			where[r] = r;
		}
		for (enum coll_algorithm algorithm = COLL_DIRECT; algorithm < COLL_ALGORITHMS;
			algorithm++) {
			if (coll_algorithm_fits(algorithm, ranks)) {
				try_one(&rng, where, ranks, 0, algorithm, 40 * COLL_GRANULE + 13);
				try_one(&rng, where, ranks, 0, algorithm, take_len(&rng));
			}
		}
	}
}

/* All numbers of ranks and of hosts; the ranks are spread over the hosts at random. */
static void any_hosts(void **state)
{
	struct rng rng = {first_seed + 1};

	for (uint32_t i = 0; i < RANKS * RANKS * COLL_ALGORITHMS; i++) {
		uint32_t where[RANKS];
		uint32_t ranks = 1 + i % RANKS;
		uint32_t hosts = 1 + i / RANKS % RANKS % ranks;
		enum coll_algorithm algorithm = (enum coll_algorithm)(i / RANKS / RANKS);

		for (uint32_t r = 0; r < ranks; r++) {
			where[r] = 7 + (r < hosts ? r : (uint32_t)rng_below(&rng, hosts));
		}
		if (!coll_algorithm_fits(algorithm, hosts)) {
			algorithm = COLL_DIRECT;
		}
		shuffle(&rng, where, ranks);
		try_one(&rng, where, ranks, 0, algorithm, take_len(&rng));
	}
}

/* Any number of servers that only add. */
static void servers_share_the_work(void **state)
{
	struct rng rng = {first_seed + 2};

	for (uint32_t ranks = 1; ranks <= RANKS; ranks++) {
		for (uint32_t servers = 1; servers <= ranks + 2; servers++) {
			uint32_t where[RANKS];
			uint32_t hosts = 1 + (uint32_t)rng_below(&rng, ranks);

			for (uint32_t r = 0; r < ranks; r++) {
				where[r] = (uint32_t)rng_below(&rng, hosts);
			}
			try_one(&rng, where, ranks, servers, COLL_DIRECT, 40 * COLL_GRANULE + 5);
			for (uint32_t r = 0; r < ranks; r++) {
				where[r] = r;
			}
			try_one(&rng, where, ranks, servers, COLL_DIRECT, take_len(&rng));
		}
	}
}

static uint32_t host_of(const struct coll_topo *topo, uint32_t rank)
{
	return rank < topo->ranks ? topo->host_of[rank] : topo->hosts + rank - topo->ranks;
}

/* Counts the bytes that each host sends to others, and receives; servers come after the hosts. */
static void count_traffic(const struct coll_topo *topo, enum coll_algorithm algorithm, uint64_t len,
	uint64_t *sent, uint64_t *received)
{
	struct coll_plan plan = {0};

	for (uint32_t r = 0; r < topo->ranks + topo->servers; r++) {
		assert_int_equal(coll_plan_all_reduce(&plan, topo, r, algorithm, len, NULL), 0);
		for (size_t s = 0; s < plan.steps_n; s++) {
			const struct coll_step *step = &plan.steps[s];
			uint32_t from = host_of(topo, r);
			uint32_t to = host_of(topo, step->peer);

			if (step->op == COLL_SEND && from != to) {
				sent[from] += step->len_bytes;
				received[to] += step->len_bytes;
			}
		}
	}
	coll_plan_deinit(&plan);
}

/* No host sends or receives more than the bound, plus or minus a granule per message. */
static void traffic_is_the_least(void **state)
{
	const uint64_t len = 4 << 20;
	struct rng rng = {first_seed + 4};

	for (int i = 0; i < 300; i++) {
		static const enum coll_algorithm algorithms[] = {COLL_DIRECT, COLL_HALVING,
			COLL_RING};
		uint32_t where[RANKS];
		uint64_t sent[LARGE] = {0};
		uint64_t received[LARGE] = {0};
		uint32_t ranks = 2 + (uint32_t)rng_below(&rng, RANKS - 1);
		enum coll_algorithm algorithm = algorithms[rng_below(&rng, 3)];
		uint32_t servers = algorithm == COLL_DIRECT ? (uint32_t)rng_below(&rng, 20) : 0;
		struct coll_topo topo;
		double n;
		double k = servers;
		double share;

		for (uint32_t r = 0; r < ranks; r++) {
			where[r] = (uint32_t)rng_below(&rng, 8);
		}
		assert_int_equal(coll_topo_init(&topo, where, ranks, servers, NULL), 0);
		n = topo.hosts;
		share = k < n ? 2 * n * (n - 1) / (n * n + k * n - 2 * k) : 1;
		if (topo.hosts > 1 && coll_algorithm_fits(algorithm, topo.hosts)) {
			count_traffic(&topo, algorithm, len, sent, received);
			for (uint32_t h = 0; h < topo.hosts + servers; h++) {
				assert_true((double)sent[h] <= 1.01 * share * len);
				assert_true((double)received[h] <= 1.01 * share * len);
			}
		}
		coll_topo_deinit(&topo);
	}
}

static void many_ranks(void **state)
{
	struct rng rng = {first_seed + 3};
	uint32_t where[LARGE];

	for (uint32_t r = 0; r < LARGE; r++) {
		where[r] = r / 4;
	}
	try_one(&rng, where, LARGE, 0, COLL_DIRECT, COLL_GRANULE + 1);
	try_one(&rng, where, LARGE, 0, COLL_TREE, COLL_GRANULE + 1);
	try_one(&rng, where, LARGE, 0, COLL_DOUBLING, COLL_GRANULE + 1);
}

static void what_cannot_be_is_refused(void **state)
{
	uint32_t where[3] = {0, 1, 2};
	struct coll_topo topo;
	struct coll_plan plan = {0};
	struct pawl_err err;

	assert_int_equal(coll_topo_init(&topo, where, 0, 1, &err), PAWL_EINVAL);
	assert_int_equal(coll_topo_init(&topo, where, 3, COLL_RANKS_MAX, &err), PAWL_ELIMIT);
	fault_arm("coll.topo", 1, ENOMEM, false);
	assert_int_equal(coll_topo_init(&topo, where, 3, 0, &err), PAWL_ENOMEM);
	fault_disarm();
	assert_int_equal(coll_topo_init(&topo, where, 3, 1, &err), 0);
	assert_int_equal(coll_plan_all_reduce(&plan, &topo, 0, COLL_HALVING, 64, &err),
		PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "must be a power of two, not 3"));
	assert_int_equal(coll_plan_all_reduce(&plan, &topo, 0, COLL_TREE, 64, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "with servers (1 here)"));
	coll_topo_deinit(&topo);
}

/* Any allocation of a plan may fail; the plan can be made again. */
static void no_memory(void **state)
{
	uint32_t where[RANKS * 2];
	struct coll_topo topo;
	uint64_t nth;

	for (uint32_t r = 0; r < RANKS * 2; r++) {
		where[r] = r / 2;
	}
	assert_int_equal(coll_topo_init(&topo, where, RANKS * 2, 0, NULL), 0);
	for (nth = 1; each_fault(nth); nth++) {
		struct coll_plan plan = {0};
		bool failed;

		fault_arm("coll.plan", nth, ENOMEM, false);
		failed = coll_plan_all_reduce(&plan, &topo, 3, COLL_DIRECT, 1 << 20, NULL) != 0;
		fault_disarm();
		assert_int_equal(coll_plan_all_reduce(&plan, &topo, 3, COLL_DIRECT, 1 << 20, NULL),
			0);
		coll_plan_deinit(&plan);
		assert_true(!failed || fault_reached(nth));
	}
	assert_true(nth > 2);
	coll_topo_deinit(&topo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_rank_a_host),
		cmocka_unit_test(any_hosts),
		cmocka_unit_test(servers_share_the_work),
		cmocka_unit_test(traffic_is_the_least),
		cmocka_unit_test(many_ranks),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(no_memory),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
