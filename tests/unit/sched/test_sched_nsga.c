/* NSGA-II: fronts and crowding by hand and against Deb's definitions, and problems whose fronts are
 * known. */
#include "base/fault.h"
#include "sched/baseline/nsga.h"
#include "seed.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define POINTS_MAX (2 * NSGA_POPULATION)

static uint64_t first_seed;

/* ---- rank ---- */

static void make_points(struct nsga_solution *points, struct nsga_solution **solutions, uint32_t n,
	const double (*costs)[NSGA_COSTS])
{
	for (uint32_t i = 0; i < n; i++) {
		points[i] = (struct nsga_solution){.costs = {costs[i][0], costs[i][1]},
			.tie_break = i,
			.front = 99};
		solutions[i] = &points[i];
	}
}

static void fronts_by_hand(void **state)
{
	const double costs[][NSGA_COSTS] = {{5, 1}, {1, 5}, {2, 2}, {4, 4}, {2, 2}, {2, 6}, {9, 9},
		{3, 1.5}};
	const uint32_t fronts[] = {0, 0, 0, 1, 0, 1, 2, 0};
	struct nsga_solution points[8];
	struct nsga_solution *solutions[8];

	make_points(points, solutions, 8, costs);
	nsga_rank(solutions, 8);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(points[i].front, fronts[i]);
	}
	assert_true(isinf(points[0].crowding) && isinf(points[1].crowding));
	assert_true(points[2].crowding == 2.0 / 4 + 3.5 / 4); /* between (1, 5) and (3, 1.5) */
	assert_true(points[4].crowding == 0);                 /* equal to points[2] */
	assert_true(points[7].crowding == 3.0 / 4 + 1.0 / 4);
	assert_true(isinf(points[3].crowding) && isinf(points[5].crowding));
	assert_ptr_equal(solutions[2], &points[2]);
	assert_ptr_equal(solutions[3], &points[7]);
	assert_ptr_equal(solutions[4], &points[4]); /* the last of the first front */
	assert_ptr_equal(solutions[7], &points[6]);
}

static bool is_beaten(const struct nsga_solution *points, uint32_t n, uint32_t i, uint32_t front)
{
	for (uint32_t j = 0; j < n; j++) {
		if (points[j].front >= front && nsga_dominates(&points[j], &points[i])) {
			return true;
		}
	}
	return false;
}

/* Deb III-B, cost by cost: the distance between the next larger and the next smaller of the front's
 * values, over their whole range. */
static double crowd_slowly(const struct nsga_solution *points, uint32_t n, uint32_t i)
{
	double sum = 0;

	for (uint32_t c = 0; c < NSGA_COSTS; c++) {
		double at = points[i].costs[c];
		double before = -INFINITY;
		double after = INFINITY;
		double least = at;
		double most = at;

		for (uint32_t j = 0; j < n; j++) {
			double other = points[j].costs[c];

			if (points[j].front != points[i].front) {
				continue;
			}
			before = other < at && other > before ? other : before;
			after = other > at && other < after ? other : after;
			least = other < least ? other : least;
			most = other > most ? other : most;
		}
		sum += most > least ? (after - before) / (most - least) : INFINITY;
	}
	return sum;
}

/* Points with equal costs: one has the crowding, and the others none. */
static void check_crowding(const struct nsga_solution *points, uint32_t n, uint32_t i)
{
	uint32_t crowded = 0;

	for (uint32_t j = 0; j < n; j++) {
		if (points[j].costs[0] == points[i].costs[0] &&
			points[j].costs[1] == points[i].costs[1]) {
			crowded += points[j].crowding > 0;
		}
	}
	assert_int_equal(crowded, 1);
	if (points[i].crowding > 0) {
		double slow = crowd_slowly(points, n, i);

		assert_true(points[i].crowding == slow ||
			fabs(points[i].crowding - slow) < 1e-12 * slow);
	}
}

static void ranks_as_defined(void **state)
{
	struct rng rng = {first_seed};

	for (uint32_t round = 0; round < 300; round++) {
		struct nsga_solution points[POINTS_MAX];
		struct nsga_solution *solutions[POINTS_MAX];
		uint32_t n = 1 + (uint32_t)rng_below(&rng, POINTS_MAX);
		uint64_t range = 2 + rng_below(&rng, round % 2 ? 20 : 1000);

		for (uint32_t i = 0; i < n; i++) {
			points[i] = (struct nsga_solution){.tie_break = rng_u64(&rng),
				.costs = {(double)rng_below(&rng, range) - 7,
					(double)rng_below(&rng, range) / 3}};
			solutions[i] = &points[i];
		}
		nsga_rank(solutions, n);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t front = points[i].front;

			assert_false(is_beaten(points, n, i, front));
			assert_true(front == 0 || is_beaten(points, n, i, front - 1));
			check_crowding(points, n, i);
			assert_true(i == 0 || solutions[i - 1]->front < solutions[i]->front ||
				(solutions[i - 1]->front == solutions[i]->front &&
					solutions[i - 1]->crowding >= solutions[i]->crowding));
		}
	}
}

/* ---- runs ---- */

#define ROWS  2u
#define BYTES 8u

/* Schaffer's problem, in the first byte of each of two rows, added: x squared, and (x - 9) squared;
 * all other bytes must be 0. On its front both are from 0 to 9, and no more than 1 apart. */
struct schaffer {
	uint32_t evaluated;
	bool frozen; /* nothing mutates */
};

static void mutate_schaffer(void *of, struct rng *rng, uint8_t *matrix)
{
	struct schaffer *s = of;

	if (!s->frozen) {
		uint8_t *row = matrix + rng_below(rng, ROWS) * BYTES;

		row[0] = (uint8_t)rng_below(rng, 20);
		row[1] = (uint8_t)rng_u64(rng); /* not allowed */
	}
}

static void repair_schaffer(void *of, struct rng *rng, uint8_t *matrix)
{
	for (uint32_t i = 0; i < ROWS * BYTES; i++) {
		matrix[i] = i % BYTES == 0 ? matrix[i] : 0;
	}
}

static void evaluate_schaffer(void *of, const uint8_t *matrix, double *costs)
{
	struct schaffer *s = of;

	s->evaluated++;
	costs[0] = 0;
	costs[1] = 0;
	for (uint32_t r = 0; r < ROWS; r++) {
		costs[0] += pow(matrix[(size_t)r * BYTES], 2);
		costs[1] += pow(matrix[(size_t)r * BYTES] - 9.0, 2);
	}
}

static int run_schaffer(struct schaffer *s, uint64_t seed, const uint8_t *given, uint32_t n,
	struct nsga_front *front)
{
	const struct nsga_problem problem = {.rows = ROWS,
		.row_bytes = BYTES,
		.context = s,
		.mutate = mutate_schaffer,
		.repair = repair_schaffer,
		.evaluate = evaluate_schaffer};
	struct rng rng = {seed};

	return nsga_run(&problem, &rng, given, n, front, NULL);
}

static void known_front_is_found(void **state)
{
	uint8_t given[ROWS * BYTES];
	struct schaffer s = {0};
	struct nsga_front front;

	memset(given, 77, sizeof(given));
	assert_int_equal(run_schaffer(&s, first_seed, given, 1, &front), 0);
	assert_in_range(s.evaluated, 4000, 1 + (NSGA_GENERATIONS - 1) * NSGA_POPULATION);
	assert_int_equal(front.n, 10 + 9 + 9);
	assert_true(front.best_costs[0] == 0);
	for (uint32_t i = 0; i < front.n; i++) {
		const uint8_t *matrix = front.matrices + (size_t)i * ROWS * BYTES;
		uint32_t least = 9;
		uint32_t most = 0;

		for (uint32_t b = 0; b < ROWS * BYTES; b++) {
			assert_true(b % BYTES == 0 || matrix[b] == 0);
			if (b % BYTES == 0) {
				least = matrix[b] < least ? matrix[b] : least;
				most = matrix[b] > most ? matrix[b] : most;
			}
		}
		assert_in_range(most, least, least + 1);
		assert_true(most <= 9);
		for (uint32_t j = 0; j < i; j++) {
			assert_memory_not_equal(matrix, front.matrices + (size_t)j * ROWS * BYTES,
				sizeof(given));
		}
	}
	free(front.matrices);
}

static void seeds_repeat_runs(void **state)
{
	uint8_t given[ROWS * BYTES] = {1};
	struct schaffer s = {0};
	struct nsga_front fronts[3];

	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(run_schaffer(&s, first_seed + i / 2, given, 1, &fronts[i]), 0);
	}
	assert_int_equal(fronts[0].n, fronts[1].n);
	assert_memory_equal(fronts[0].matrices, fronts[1].matrices, fronts[0].n * sizeof(given));
	assert_true(fronts[2].n != fronts[0].n ||
		memcmp(fronts[0].matrices, fronts[2].matrices, fronts[0].n * sizeof(given)) != 0);
	for (uint32_t i = 0; i < 3; i++) {
		free(fronts[i].matrices);
	}
}

/* Two given solutions that do not mutate have only as many offspring as exchanges of their rows
 * give. */
static void ends_where_nothing_is_new(void **state)
{
	uint8_t given[3][ROWS * BYTES] = {{0}};
	struct schaffer s = {.frozen = true};
	struct nsga_front front;

	for (uint32_t r = 0; r < ROWS; r++) {
		given[1][r * BYTES] = 9;
		given[2][r * BYTES] = 9; /* a duplicate */
	}
	assert_int_equal(run_schaffer(&s, first_seed, given[0], 3, &front), 0);
	assert_int_equal(s.evaluated, 1u << ROWS);
	assert_int_equal(front.n, 1u << ROWS);
	free(front.matrices);
}

static void memory_may_be_short(void **state)
{
	uint8_t given[ROWS * BYTES] = {0};
	struct schaffer s = {0};
	struct nsga_front front = {.n = 12345};

	for (uint64_t nth = 1; nth <= 2; nth++) {
		fault_arm("sched.nsga", nth, ENOMEM, false);
		assert_int_equal(run_schaffer(&s, 1, given, 1, &front), PAWL_ENOMEM);
		assert_int_equal(front.n, 12345);
	}
	fault_arm("sched.nsga", 3, ENOMEM, false);
	assert_int_equal(run_schaffer(&s, 1, given, 1, &front), 0);
	assert_int_equal(fault_count(), 2);
	fault_disarm();
	free(front.matrices);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fronts_by_hand),
		cmocka_unit_test(ranks_as_defined),
		cmocka_unit_test(known_front_is_found),
		cmocka_unit_test(seeds_repeat_runs),
		cmocka_unit_test(ends_where_nothing_is_new),
		cmocka_unit_test(memory_may_be_short),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
