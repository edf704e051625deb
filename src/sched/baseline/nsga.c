/*
 * NSGA-II: see nsga.h.
 *
 * A generation mates until it has found as many new matrices as there may be survivors: parents win
 * tournaments of two, exchange rows, mutate and are repaired; twins are dropped. Of parents and
 * offspring together the best by front and crowding survive.
 */
#include "sched/baseline/nsga.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ONES_MAX  (2 * NSGA_POPULATION)
#define SEATS     1024u /* entries in the hash table: a power of two, well over ONES_MAX */
#define HASH_BITS 32

/* ---- rank ---- */

bool nsga_beats(const struct nsga_one *a, const struct nsga_one *b)
{
	bool worse = a->costs[0] > b->costs[0] || a->costs[1] > b->costs[1];
	bool better = a->costs[0] < b->costs[0] || a->costs[1] < b->costs[1];

	return better && !worse;
}

static bool costs_same(const struct nsga_one *a, const struct nsga_one *b)
{
	return a->costs[0] == b->costs[0] && a->costs[1] == b->costs[1];
}

static int compare_numbers(double a, double b)
{
	return (a > b) - (a < b);
}

/* Orders by costs: a solution comes before those that it beats. */
static int compare_costs(const void *left, const void *right)
{
	const struct nsga_one *a = *(struct nsga_one *const *)left;
	const struct nsga_one *b = *(struct nsga_one *const *)right;
	int order = compare_numbers(a->costs[0], b->costs[0]);

	order = order == 0 ? compare_numbers(a->costs[1], b->costs[1]) : order;
	return order == 0 ? (a->lot > b->lot) - (a->lot < b->lot) : order;
}

static int compare_crowding(const void *left, const void *right)
{
	const struct nsga_one *a = *(struct nsga_one *const *)left;
	const struct nsga_one *b = *(struct nsga_one *const *)right;
	int order = compare_numbers(b->crowding, a->crowding);

	return order == 0 ? (a->lot > b->lot) - (a->lot < b->lot) : order;
}

/* Puts each solution on the first front whose last solution does not beat it. In order of costs,
 * the last solution of a front has the least second cost there: one that is beaten by any on the
 * front is beaten by the last. Returns how many fronts there are. */
static uint32_t find_fronts(struct nsga_one **ones, uint32_t n)
{
	const struct nsga_one *last[ONES_MAX];
	uint32_t fronts = 0;

	qsort(ones, n, sizeof(struct nsga_one *), compare_costs);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t f = 0;

		while (f < fronts && nsga_beats(last[f], ones[i])) {
			f++;
		}
		fronts += f == fronts;
		last[f] = ones[i];
		ones[i]->front = f;
	}
	return fronts;
}

/* Sets Deb's crowding distance on a front in order of its costs: one cost goes up as the other goes
 * down, so that neighbours are the same in both. */
static void crowd_front(struct nsga_one **ones, uint32_t n)
{
	const struct nsga_one *unlike[ONES_MAX];
	double range[NSGA_COSTS];
	uint32_t m = 0;

	ASSERT(n > 0); /* no front is empty */
	for (uint32_t i = 0; i < n; i++) {
		ones[i]->crowding = 0;
		if (i == 0 || !costs_same(ones[i], ones[i - 1])) {
			unlike[m++] = ones[i];
		}
	}
	range[0] = unlike[m - 1]->costs[0] - unlike[0]->costs[0];
	range[1] = unlike[0]->costs[1] - unlike[m - 1]->costs[1];
	for (uint32_t i = 0, at = 0; i < n; i++) {
		if (ones[i] != unlike[at]) {
			continue;
		}
		ones[i]->crowding = INFINITY;
		if (at > 0 && at < m - 1) {
			const double *before = unlike[at - 1]->costs;
			const double *after = unlike[at + 1]->costs;

			ones[i]->crowding = (after[0] - before[0]) / range[0] +
				(before[1] - after[1]) / range[1];
		}
		at += at < m - 1;
	}
}

void nsga_rank(struct nsga_one **ones, uint32_t n)
{
	struct nsga_one *by_costs[ONES_MAX];
	uint32_t start = 0;
	uint32_t fronts;

	ASSERT(n <= ONES_MAX);
	fronts = find_fronts(ones, n);
	memcpy(by_costs, ones, n * sizeof(struct nsga_one *));
	for (uint32_t f = 0; f < fronts; f++) {
		uint32_t end = start;

		for (uint32_t i = 0; i < n; i++) {
			if (by_costs[i]->front == f) {
				ones[end++] = by_costs[i];
			}
		}
		crowd_front(ones + start, end - start);
		qsort(ones + start, end - start, sizeof(struct nsga_one *), compare_crowding);
		start = end;
	}
}

/* ---- a run ---- */

struct run {
	const struct nsga_problem *problem;
	struct rng *rng;
	size_t bytes;                    /* bytes of a matrix */
	struct nsga_one all[ONES_MAX];   /* solutions, each with its matrix */
	struct nsga_one *ones[ONES_MAX]; /* solutions in order: parents, offspring, free ones */
	uint32_t parents;                /* number of parents, the first of ones */
	uint32_t offspring;              /* number of offspring, after the parents */
	uint8_t *pair;                   /* two more matrices, which are being made */
	uint32_t deck[NSGA_POPULATION];  /* indices of the parents, shuffled */
	uint32_t drawn;                  /* number drawn from deck; parents: all */
	uint16_t seats[SEATS];           /* hash table: 1 + index in ones; 0: free */
	uint8_t *matrices;               /* owned; memory of all matrices above */
};

static int start_run(struct run *r, struct pawl_err *err)
{
	r->bytes = (size_t)r->problem->rows * r->problem->row_bytes;
	r->matrices = FAULT_MEM("sched.nsga", calloc(ONES_MAX + 2, r->bytes));
	if (!r->matrices) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u solutions of %zu bytes",
			ONES_MAX, r->bytes);
	}
	for (uint32_t i = 0; i < ONES_MAX; i++) {
		r->all[i].matrix = r->matrices + i * r->bytes;
		r->ones[i] = &r->all[i];
	}
	r->pair = r->matrices + ONES_MAX * r->bytes;
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

/* Finds the seat of an equal matrix in the hash table, or the free one for this matrix. */
static uint16_t *find_seat(struct run *r, uint64_t hash, const uint8_t *matrix)
{
	uint32_t at = hash % SEATS;

	for (; r->seats[at] != 0; at = (at + 1) % SEATS) {
		const struct nsga_one *one = r->ones[r->seats[at] - 1];

		if (one->hash == hash && memcmp(one->matrix, matrix, r->bytes) == 0) {
			break;
		}
	}
	return &r->seats[at];
}

static void seat_parents(struct run *r)
{
	memset(r->seats, 0, sizeof(r->seats));
	for (uint32_t i = 0; i < r->parents; i++) {
		*find_seat(r, r->ones[i]->hash, r->ones[i]->matrix) = (uint16_t)(i + 1);
	}
}

/* Adds a matrix to the offspring, unless there is a twin. */
static void add_one(struct run *r, const uint8_t *matrix)
{
	uint32_t at = r->parents + r->offspring;
	struct nsga_one *one = r->ones[at];
	uint64_t hash = hash_matrix(matrix, r->bytes);
	uint16_t *seat = find_seat(r, hash, matrix);

	if (*seat != 0) {
		return;
	}
	*seat = (uint16_t)(at + 1);
	one->hash = hash;
	memcpy(one->matrix, matrix, r->bytes);
	r->problem->evaluate(r->problem->of, one->matrix, one->costs);
	r->offspring++;
}

/* Makes the best solutions the parents of the next generation. */
static void survive(struct run *r)
{
	uint32_t n = r->parents + r->offspring;

	for (uint32_t i = 0; i < n; i++) {
		r->ones[i]->lot = rng_u64(r->rng);
	}
	nsga_rank(r->ones, n);
	r->parents = n < NSGA_POPULATION ? n : NSGA_POPULATION;
	r->offspring = 0;
	r->drawn = r->parents;
	for (uint32_t i = 0; i < r->parents; i++) {
		r->deck[i] = i;
	}
	seat_parents(r);
}

/* ---- mating ---- */

/* Draws each parent once, before any one comes again. */
static const struct nsga_one *draw_parent(struct run *r)
{
	if (r->drawn == r->parents) {
		for (uint32_t i = r->parents; i > 1; i--) {
			uint32_t other = (uint32_t)rng_below(r->rng, i);
			uint32_t kept = r->deck[i - 1];

			r->deck[i - 1] = r->deck[other];
			r->deck[other] = kept;
		}
		r->drawn = 0;
	}
	return r->ones[r->deck[r->drawn++]];
}

/* Draws two and returns the one that beats the other; else the less crowded one; else either. */
static const struct nsga_one *win_tournament(struct run *r)
{
	const struct nsga_one *a = draw_parent(r);
	const struct nsga_one *b = draw_parent(r);
	bool first = a->crowding > b->crowding;

	if (nsga_beats(a, b) || nsga_beats(b, a)) {
		first = nsga_beats(a, b);
	} else if (a->crowding == b->crowding) {
		first = rng_below(r->rng, 2) == 0;
	}
	return first ? a : b;
}

/* Adds two children of two parents, where there is room. */
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
		p->mutate(p->of, r->rng, child);
		p->repair(p->of, r->rng, child);
		if (r->offspring < NSGA_POPULATION) {
			add_one(r, child);
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

	while (n < r->parents && r->ones[n]->front == 0) {
		n++;
	}
	matrices = FAULT_MEM("sched.nsga", malloc(n * r->bytes > 0 ? n * r->bytes : 1));
	if (!matrices) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u solutions of %zu bytes", n,
			r->bytes);
	}
	front->n = n;
	front->best = 0;
	front->matrices = matrices;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(matrices + i * r->bytes, r->ones[i]->matrix, r->bytes);
		if (i == 0 || r->ones[i]->costs[0] < front->best_costs[0]) {
			front->best = i;
			memcpy(front->best_costs, r->ones[i]->costs, sizeof(front->best_costs));
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
		problem->repair(problem->of, rng, r.pair);
		add_one(&r, r.pair);
	}
	survive(&r);
	for (uint32_t i = 1; i < NSGA_GENERATIONS && going; i++) {
		going = breed(&r);
		survive(&r);
	}
	rv = take_front(&r, front, err);
	free(r.matrices);
	return rv;
}
