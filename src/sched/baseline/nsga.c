/*
 * NSGA-II: see nsga.h.
 *
 * A generation mates until it has as many new matrices as there may be survivors. Parents win
 * tournaments of two, exchange rows, mutate and are repaired; duplicates are dropped. Of parents
 * and offspring together the best by front and crowding survive.
 */
#include "sched/baseline/nsga.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SOLUTIONS_MAX (2 * NSGA_POPULATION)
#define HASH_SLOTS    1024u /* entries in the hash table: a power of two, well over SOLUTIONS_MAX */
#define HASH_BITS     32

_Static_assert((HASH_SLOTS & (HASH_SLOTS - 1)) == 0, "a power of two");
_Static_assert(2 * SOLUTIONS_MAX <= HASH_SLOTS, "a search for a free slot ends soon");
_Static_assert(SOLUTIONS_MAX < UINT16_MAX, "an index in the hash table, plus 1");

/* ---- rank ---- */

bool nsga_dominates(const struct nsga_solution *a, const struct nsga_solution *b)
{
	bool worse = a->costs[0] > b->costs[0] || a->costs[1] > b->costs[1];
	bool better = a->costs[0] < b->costs[0] || a->costs[1] < b->costs[1];

	return better && !worse;
}

static bool costs_same(const struct nsga_solution *a, const struct nsga_solution *b)
{
	return a->costs[0] == b->costs[0] && a->costs[1] == b->costs[1];
}

static int compare_numbers(double a, double b)
{
	return (a > b) - (a < b);
}

/* Orders by costs: a solution comes before those that it dominates. */
static int compare_costs(const void *left, const void *right)
{
	const struct nsga_solution *a = *(struct nsga_solution *const *)left;
	const struct nsga_solution *b = *(struct nsga_solution *const *)right;
	int order = compare_numbers(a->costs[0], b->costs[0]);

	order = order == 0 ? compare_numbers(a->costs[1], b->costs[1]) : order;
	return order == 0 ? (a->tie_break > b->tie_break) - (a->tie_break < b->tie_break) : order;
}

static int compare_crowding(const void *left, const void *right)
{
	const struct nsga_solution *a = *(struct nsga_solution *const *)left;
	const struct nsga_solution *b = *(struct nsga_solution *const *)right;
	int order = compare_numbers(b->crowding, a->crowding);

	return order == 0 ? (a->tie_break > b->tie_break) - (a->tie_break < b->tie_break) : order;
}

/* Puts each solution on the first front whose last solution does not dominate it. In order of
 * costs, the last solution of a front has the least second cost there. So a solution that any on
 * the front dominates is dominated by the last. Returns how many fronts there are. */
static uint32_t find_fronts(struct nsga_solution **solutions, uint32_t n)
{
	const struct nsga_solution *last[SOLUTIONS_MAX];
	uint32_t fronts = 0;

	qsort(solutions, n, sizeof(struct nsga_solution *), compare_costs);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t f = 0;

		while (f < fronts && nsga_dominates(last[f], solutions[i])) {
			f++;
		}
		fronts += f == fronts;
		last[f] = solutions[i];
		solutions[i]->front = f;
	}
	ASSERT(fronts <= n && (fronts > 0) == (n > 0));
	return fronts;
}

/* Sets Deb's crowding distance on a front in order of its costs. One cost goes up as the other goes
 * down, so that neighbours are the same in both. */
static void set_crowding(struct nsga_solution **solutions, uint32_t n)
{
	const struct nsga_solution *unlike[SOLUTIONS_MAX];
	double range[NSGA_COSTS];
	uint32_t m = 0;

	ASSERT(n > 0); /* no front is empty */
	for (uint32_t i = 0; i < n; i++) {
		solutions[i]->crowding = 0;
		if (i == 0 || !costs_same(solutions[i], solutions[i - 1])) {
			unlike[m++] = solutions[i];
		}
	}
	range[0] = unlike[m - 1]->costs[0] - unlike[0]->costs[0];
	range[1] = unlike[0]->costs[1] - unlike[m - 1]->costs[1];
	for (uint32_t i = 0, at = 0; i < n; i++) {
		if (solutions[i] != unlike[at]) {
			continue;
		}
		solutions[i]->crowding = INFINITY;
		if (at > 0 && at < m - 1) {
			const double *before = unlike[at - 1]->costs;
			const double *after = unlike[at + 1]->costs;

			solutions[i]->crowding = (after[0] - before[0]) / range[0] +
				(before[1] - after[1]) / range[1];
		}
		at += at < m - 1;
	}
}

void nsga_rank(struct nsga_solution **solutions, uint32_t n)
{
	struct nsga_solution *by_costs[SOLUTIONS_MAX];
	uint32_t start = 0;
	uint32_t fronts;

	ASSERT(n <= SOLUTIONS_MAX);
	fronts = find_fronts(solutions, n);
	memcpy(by_costs, solutions, n * sizeof(struct nsga_solution *));
	for (uint32_t f = 0; f < fronts; f++) {
		uint32_t end = start;

		for (uint32_t i = 0; i < n; i++) {
			if (by_costs[i]->front == f) {
				solutions[end++] = by_costs[i];
			}
		}
		set_crowding(solutions + start, end - start);
		qsort(solutions + start, end - start, sizeof(struct nsga_solution *),
			compare_crowding);
		start = end;
	}
	ASSERT(start == n); /* each solution is on one front */
}

/* ---- a run ---- */

struct run {
	const struct nsga_problem *problem;
	struct rng *rng;
	size_t bytes;                            /* bytes of a matrix */
	struct nsga_solution all[SOLUTIONS_MAX]; /* solutions, each with its matrix */
	/* Solutions in order: parents, offspring, free ones. */
	struct nsga_solution *solutions[SOLUTIONS_MAX];
	uint32_t parents;   /* number of parents */
	uint32_t offspring; /* number of offspring, after the parents */
	uint8_t *pair;      /* two more matrices, for children that are being made */
	uint32_t shuffled[NSGA_POPULATION]; /* indices of the parents, shuffled */
	uint32_t drawn_n;                   /* number drawn from shuffled; parents: all */
	uint16_t hash_table[HASH_SLOTS];    /* 1 + index in solutions; 0: free */
	uint8_t *matrices;                  /* owned; memory of all matrices above */
};

static int start_run(struct run *r, struct pawl_err *err)
{
	r->bytes = (size_t)r->problem->rows * r->problem->row_bytes;
	r->matrices = FAULT_MEM("sched.nsga", calloc(SOLUTIONS_MAX + 2, r->bytes));
	if (!r->matrices) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u solutions of %zu bytes",
			SOLUTIONS_MAX, r->bytes);
	}
	for (uint32_t i = 0; i < SOLUTIONS_MAX; i++) {
		r->all[i].matrix = r->matrices + i * r->bytes;
		r->solutions[i] = &r->all[i];
	}
	r->pair = r->matrices + SOLUTIONS_MAX * r->bytes;
	return 0;
}

/* Hashes a matrix by FNV-1a (Fowler, Noll and Vo), in words. */
static uint64_t hash_matrix(const uint8_t *matrix, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < bytes; i += sizeof(hash)) {
		uint64_t word;

		memcpy(&word, matrix + i, sizeof(word));
		hash = (hash ^ word) * 0x100000001b3u;
		hash ^= hash >> HASH_BITS;
	}
	return hash;
}

/* Finds the slot of an equal matrix in the hash table, or else the free slot for this matrix. */
static uint16_t *find_hash_slot(struct run *r, uint64_t hash, const uint8_t *matrix)
{
	uint32_t at = hash % HASH_SLOTS;

	for (; r->hash_table[at] != 0; at = (at + 1) % HASH_SLOTS) {
		const struct nsga_solution *solution = r->solutions[r->hash_table[at] - 1];

		if (solution->hash == hash && memcmp(solution->matrix, matrix, r->bytes) == 0) {
			break;
		}
	}
	return &r->hash_table[at];
}

static void hash_parents(struct run *r)
{
	memset(r->hash_table, 0, sizeof(r->hash_table));
	for (uint32_t i = 0; i < r->parents; i++) {
		const struct nsga_solution *solution = r->solutions[i];
		uint16_t *slot = find_hash_slot(r, solution->hash, solution->matrix);

		ASSERT(*slot == 0); /* no two are equal */
		*slot = (uint16_t)(i + 1);
	}
}

/* Adds a matrix to the offspring, unless an equal one is there. */
static void add_solution(struct run *r, const uint8_t *matrix)
{
	uint32_t at = r->parents + r->offspring;
	uint64_t hash = hash_matrix(matrix, r->bytes);
	uint16_t *slot = find_hash_slot(r, hash, matrix);
	struct nsga_solution *solution;

	ASSERT(at < SOLUTIONS_MAX);
	if (*slot != 0) {
		return;
	}
	solution = r->solutions[at];
	*slot = (uint16_t)(at + 1);
	solution->hash = hash;
	memcpy(solution->matrix, matrix, r->bytes);
	r->problem->evaluate(r->problem->context, solution->matrix, solution->costs);
	r->offspring++;
}

/* Makes the best solutions the parents of the next generation. */
static void select_survivors(struct run *r)
{
	uint32_t n = r->parents + r->offspring;

	for (uint32_t i = 0; i < n; i++) {
		r->solutions[i]->tie_break = rng_u64(r->rng);
	}
	nsga_rank(r->solutions, n);
	r->parents = n < NSGA_POPULATION ? n : NSGA_POPULATION;
	r->offspring = 0;
	r->drawn_n = r->parents;
	for (uint32_t i = 0; i < r->parents; i++) {
		r->shuffled[i] = i;
	}
	hash_parents(r);
}

/* ---- mating ---- */

/* Draws each parent once before any of them is drawn again. */
static const struct nsga_solution *draw_parent(struct run *r)
{
	ASSERT(r->parents > 0 && r->drawn_n <= r->parents);
	if (r->drawn_n == r->parents) {
		for (uint32_t i = r->parents; i > 1; i--) {
			uint32_t other = (uint32_t)rng_below(r->rng, i);
			uint32_t swap = r->shuffled[i - 1];

			r->shuffled[i - 1] = r->shuffled[other];
			r->shuffled[other] = swap;
		}
		r->drawn_n = 0;
	}
	return r->solutions[r->shuffled[r->drawn_n++]];
}

/* Draws two and returns the one that dominates the other; else the less crowded one; else
 * either. */
static const struct nsga_solution *win_tournament(struct run *r)
{
	const struct nsga_solution *a = draw_parent(r);
	const struct nsga_solution *b = draw_parent(r);
	bool first = a->crowding > b->crowding;

	if (nsga_dominates(a, b) || nsga_dominates(b, a)) {
		first = nsga_dominates(a, b);
	} else if (a->crowding == b->crowding) {
		first = rng_below(r->rng, 2) == 0;
	}
	return first ? a : b;
}

/* Adds two children of two parents, if there is room. */
static void mate(struct run *r)
{
	const struct nsga_problem *p = r->problem;
	const uint8_t *a = win_tournament(r)->matrix;
	const uint8_t *b = win_tournament(r)->matrix;
	uint8_t *second = r->pair + r->bytes;
	bool crosses = rng_below(r->rng, 100) < NSGA_CROSSOVER;
	size_t point = crosses ? rng_below(r->rng, p->rows) * p->row_bytes : 0;

	memcpy(r->pair, b, point);
	memcpy(r->pair + point, a + point, r->bytes - point);
	memcpy(second, a, point);
	memcpy(second + point, b + point, r->bytes - point);
	for (uint8_t *child = r->pair; child <= second; child += r->bytes) {
		p->mutate(p->context, r->rng, child);
		p->repair(p->context, r->rng, child);
		if (r->offspring < NSGA_POPULATION) {
			add_solution(r, child);
		}
	}
}

/* Mates a generation. Returns false if no new matrix was found. */
static bool breed(struct run *r)
{
	for (uint32_t i = 0; i < NSGA_INFILLS && r->offspring < NSGA_POPULATION; i++) {
		uint32_t pairs = (NSGA_POPULATION - r->offspring + 1) / 2;

		for (uint32_t j = 0; j < pairs; j++) {
			mate(r);
		}
	}
	return r->offspring > 0;
}

/* ---- the whole ---- */

static int take_front(struct run *r, struct nsga_front *front, struct pawl_err *err)
{
	uint8_t *matrices;
	uint32_t n = 0;

	while (n < r->parents && r->solutions[n]->front == 0) {
		n++;
	}
	ASSERT(n > 0); /* the best solution is on the first front */
	matrices = FAULT_MEM("sched.nsga", malloc(n * r->bytes > 0 ? n * r->bytes : 1));
	if (!matrices) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u solutions of %zu bytes", n,
			r->bytes);
	}
	front->n = n;
	front->best = 0;
	front->matrices = matrices;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(matrices + i * r->bytes, r->solutions[i]->matrix, r->bytes);
		if (i == 0 || r->solutions[i]->costs[0] < front->best_costs[0]) {
			front->best = i;
			memcpy(front->best_costs, r->solutions[i]->costs,
				sizeof(front->best_costs));
		}
	}
	return 0;
}

int nsga_run(const struct nsga_problem *problem, struct rng *rng, const uint8_t *given, uint32_t n,
	struct nsga_front *front, struct pawl_err *err)
{
	struct run r = {.problem = problem, .rng = rng};
	bool going = true;
	int rv;

	ASSERT(n > 0 && n <= NSGA_POPULATION && problem->rows > 0);
	ASSERT(problem->row_bytes > 0 && problem->row_bytes % sizeof(uint64_t) == 0);
	rv = start_run(&r, err);
	if (rv != 0) {
		return rv;
	}
	for (uint32_t i = 0; i < n; i++) {
		memcpy(r.pair, given + i * r.bytes, r.bytes);
		problem->repair(problem->context, rng, r.pair);
		add_solution(&r, r.pair);
	}
	select_survivors(&r);
	for (uint32_t i = 1; i < NSGA_GENERATIONS && going; i++) {
		going = breed(&r);
		select_survivors(&r);
	}
	rv = take_front(&r, front, err);
	free(r.matrices);
	return rv;
}
