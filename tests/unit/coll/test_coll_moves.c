/* Every collective but all-reduce: the result is right at all ranks, for any hosts. Tried for every
 * number of ranks up to 16, with each of them as root, by each algorithm. */
#include "base/err.h"
#include "seed.h"
#include "test_coll_machine.h"

#define RANKS 16
#define TIMES 4 /* runs for each number of ranks, root and algorithm; the rest is random */
#define LEN   (6 * COLL_GRANULE)

static uint64_t first_seed;

/* One run: ranks on random hosts, and the parameters of a collective. */
struct round {
	struct rng rng;
	struct coll_topo topo;
	uint32_t ranks;
	uint32_t root;
	uint64_t len;
	enum coll_algorithm algorithm;
	bool in_place;                              /* used if the collective can be in place */
	uint64_t in[MACHINE_ALL], out[MACHINE_ALL]; /* bytes of each rank's IN and OUT */
	struct machine *m;
};

static void begin(struct round *round)
{
	uint32_t where[RANKS];
	uint32_t hosts = 1 + (uint32_t)rng_below(&round->rng, round->ranks);

	round->m = calloc(1, sizeof(*round->m));
	round->len = rng_below(&round->rng, rng_below(&round->rng, 2) == 1 ? 4 : LEN);
	round->in_place = rng_below(&round->rng, 2) == 1;
	for (uint32_t r = 0; r < round->ranks; r++) {
		where[r] = (uint32_t)rng_below(&round->rng, hosts);
	}
	assert_int_equal(coll_topo_init(&round->topo, where, round->ranks, 0, NULL), 0);
	round->m->all = round->ranks;
	names_commute = false;
}

static void run(struct round *round, bool in_place)
{
	round->m->in_place = in_place;
	round->m->narrow = rng_below(&round->rng, 2) == 1;
	machine_open(round->m, round->in, round->out);
	machine_run(round->m, &round->rng);
}

static void end(struct round *round)
{
	machine_close(round->m);
	coll_topo_deinit(&round->topo);
}

/* Tries every number of ranks, with each of them as root, by each algorithm. A collective that has
 * neither root nor algorithm is repeated as often. */
static void try_all(void (*try_one)(struct round *))
{
	static const enum coll_algorithm algorithms[] = {COLL_DIRECT, COLL_TREE};
	struct rng rng = {first_seed};

	for (uint32_t ranks = 1; ranks <= RANKS; ranks++) {
		for (uint32_t i = 0; i < TIMES * 2 * ranks; i++) {
			struct round round = {.rng = {rng_u64(&rng)},
				.ranks = ranks,
				.root = i % ranks,
				.algorithm = algorithms[i / ranks % 2]};

			begin(&round);
			try_one(&round);
			end(&round);
		}
	}
}

/* Expects byte b of rank's OUT to be byte off of from's IN. */
static void check_byte(struct round *round, uint32_t rank, uint64_t b, uint32_t from, uint64_t off)
{
	assert_true(round->m->areas[rank][COLL_OUT][b] == name_byte(from, off));
}

static void try_reduce(struct round *round)
{
	for (uint32_t r = 0; r < round->ranks; r++) {
		assert_int_equal(coll_plan_reduce(&round->m->plans[r], &round->topo, r, round->root,
					 round->algorithm, round->len, NULL),
			0);
		round->in[r] = round->len;
		round->out[r] = r == round->root ? round->len : 0;
	}
	run(round, round->in_place);
	for (uint64_t b = 0; b < round->len; b++) {
		assert_true(round->m->areas[round->root][COLL_OUT][b] == name_all(&round->topo, b));
	}
	for (uint32_t r = 0; r < round->ranks; r++) { /* The others' IN is unchanged. */
		for (uint64_t b = 0; b < round->len && r != round->root; b++) {
			assert_true(round->m->areas[r][COLL_IN][b] == name_byte(r, b));
		}
	}
}

static void reduce(void **state)
{
	try_all(try_reduce);
}

static void try_broadcast(struct round *round)
{
	for (uint32_t r = 0; r < round->ranks; r++) {
		assert_int_equal(coll_plan_broadcast(&round->m->plans[r], &round->topo, r,
					 round->root, round->algorithm, round->len, NULL),
			0);
		round->in[r] = r == round->root ? round->len : 0;
		round->out[r] = round->len;
	}
	run(round, true);
	for (uint64_t b = 0; b < round->ranks * round->len; b++) {
		check_byte(round, (uint32_t)(b / round->len), b % round->len, round->root,
			b % round->len);
	}
}

static void broadcast(void **state)
{
	try_all(try_broadcast);
}

static void try_all_gather(struct round *round)
{
	for (uint32_t r = 0; r < round->ranks; r++) {
		assert_int_equal(coll_plan_all_gather(&round->m->plans[r], &round->topo, r,
					 round->len, NULL),
			0);
		round->in[r] = round->len;
		round->out[r] = round->ranks * round->len;
	}
	run(round, false);
	for (uint32_t r = 0; r < round->ranks; r++) {
		for (uint64_t b = 0; b < round->out[r]; b++) {
			check_byte(round, r, b, (uint32_t)(b / round->len), b % round->len);
		}
	}
}

static void all_gather(void **state)
{
	try_all(try_all_gather);
}

static void try_reduce_scatter(struct round *round)
{
	for (uint32_t r = 0; r < round->ranks; r++) {
		assert_int_equal(coll_plan_reduce_scatter(&round->m->plans[r], &round->topo, r,
					 round->len, NULL),
			0);
		round->in[r] = round->ranks * round->len;
		round->out[r] = round->len;
	}
	run(round, false);
	for (uint64_t b = 0; b < round->ranks * round->len; b++) {
		uint32_t r = (uint32_t)(b / round->len);

		assert_true(
			round->m->areas[r][COLL_OUT][b % round->len] == name_all(&round->topo, b));
	}
}

static void reduce_scatter(void **state)
{
	try_all(try_reduce_scatter);
}

/* Each rank sends a different number of bytes to every other one; some send none. */
static void try_all_to_all(struct round *round)
{
	uint64_t in_at[RANKS][RANKS + 1] = {{0}};
	uint64_t out_at[RANKS][RANKS + 1] = {{0}};

	for (uint32_t pair = 0; pair < round->ranks * round->ranks; pair++) {
		uint32_t from = pair / round->ranks;
		uint32_t to = pair % round->ranks;
		uint64_t len = rng_below(&round->rng, 40);

		in_at[from][to + 1] = in_at[from][to] + len;
		out_at[to][from + 1] = out_at[to][from] + len;
	}
	for (uint32_t r = 0; r < round->ranks; r++) {
		assert_int_equal(coll_plan_all_to_all(&round->m->plans[r], round->ranks, r,
					 in_at[r], out_at[r], NULL),
			0);
		round->in[r] = in_at[r][round->ranks];
		round->out[r] = out_at[r][round->ranks];
	}
	run(round, false);
	for (uint32_t pair = 0; pair < round->ranks * round->ranks; pair++) {
		uint32_t from = pair / round->ranks;
		uint32_t to = pair % round->ranks;

		for (uint64_t b = in_at[from][to]; b < in_at[from][to + 1]; b++) {
			check_byte(round, to, out_at[to][from] + b - in_at[from][to], from, b);
		}
	}
}

static void all_to_all(void **state)
{
	try_all(try_all_to_all);
}

static void try_gather(struct round *round)
{
	for (uint32_t r = 0; r < round->ranks; r++) {
		assert_int_equal(coll_plan_gather(&round->m->plans[r], round->ranks, r, round->root,
					 round->len, NULL),
			0);
		round->in[r] = round->len;
		round->out[r] = r == round->root ? round->ranks * round->len : 0;
	}
	run(round, false);
	for (uint64_t b = 0; b < round->ranks * round->len; b++) {
		check_byte(round, round->root, b, (uint32_t)(b / round->len), b % round->len);
	}
}

static void gather(void **state)
{
	try_all(try_gather);
}

static void try_scatter(struct round *round)
{
	for (uint32_t r = 0; r < round->ranks; r++) {
		assert_int_equal(coll_plan_scatter(&round->m->plans[r], round->ranks, r,
					 round->root, round->len, NULL),
			0);
		round->in[r] = r == round->root ? round->ranks * round->len : 0;
		round->out[r] = round->len;
	}
	run(round, false);
	for (uint64_t b = 0; b < round->ranks * round->len; b++) {
		check_byte(round, (uint32_t)(b / round->len), b % round->len, round->root, b);
	}
}

static void scatter(void **state)
{
	try_all(try_scatter);
}

static void what_cannot_be_is_refused(void **state)
{
	const uint32_t where[] = {0, 1};
	struct coll_topo topo;
	struct coll_plan plan = {0};
	struct pawl_err err;

	assert_int_equal(coll_topo_init(&topo, where, 2, 0, NULL), 0);
	assert_int_equal(coll_plan_reduce(&plan, &topo, 0, 2, COLL_TREE, 8, &err), PAWL_EINVAL);
	assert_string_equal(err.msg, "reduce: root 2 of 2 ranks");
	assert_int_equal(coll_plan_broadcast(&plan, &topo, 0, 1, COLL_RING, 8, &err), PAWL_EINVAL);
	assert_string_equal(err.msg, "broadcast: the algorithm must be direct or tree");
	coll_topo_deinit(&topo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reduce),
		cmocka_unit_test(broadcast),
		cmocka_unit_test(all_gather),
		cmocka_unit_test(reduce_scatter),
		cmocka_unit_test(all_to_all),
		cmocka_unit_test(gather),
		cmocka_unit_test(scatter),
		cmocka_unit_test(what_cannot_be_is_refused),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
