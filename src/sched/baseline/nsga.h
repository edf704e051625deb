/*
 * NSGA-II: a population of matrices of bytes evolves towards those that no other one
 * dominates by two costs.
 *
 * Deb: K. Deb and others, A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II, IEEE
 *   Transactions on Evolutionary Computation 6(2), 182-197, 2002.
 *
 * The caller defines what a matrix means, how it mutates, what is allowed and what it costs. Pure:
 * the same arguments and generator give the same solutions.
 */
#ifndef SCHED_BASELINE_NSGA_H
#define SCHED_BASELINE_NSGA_H

#include "base/rng.h"
#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

#define NSGA_COSTS       2u
#define NSGA_POPULATION  100u
#define NSGA_GENERATIONS 100u
#define NSGA_CROSSOVER   90u  /* percentage of matings in which rows are exchanged */
#define NSGA_INFILLS     101u /* most rounds of mating in a generation */

/* A problem to be solved. The functions may use matrices only until they return. */
struct nsga_problem {
	uint32_t rows;      /* rows of a matrix, at least 1; a child has each from one parent */
	uint32_t row_bytes; /* bytes of a row: a multiple of 8, to which matrices are aligned */
	void *context;      /* passed to the functions below */
	void (*mutate)(void *context, struct rng *rng, uint8_t *matrix);
	/* Turns any matrix into an allowed one. */
	void (*repair)(void *context, struct rng *rng, uint8_t *matrix);
	/* Finds the costs of an allowed matrix; finite, the less the better. */
	void (*evaluate)(void *context, const uint8_t *matrix, double *costs);
};

/* A solution in a population. */
struct nsga_solution {
	double costs[NSGA_COSTS];
	uint32_t front;     /* 0: no other solution of the population dominates this one */
	double crowding;    /* distance of the neighbours on the front; 0: an equal one is there */
	uint64_t hash;      /* hash of matrix */
	uint64_t tie_break; /* drawn at random; orders solutions that are equally good */
	uint8_t *matrix;    /* bytes: rows * row_bytes */
};

/* Whether a is nowhere worse than b, and somewhere better: Deb's constrained domination, if all
 * matrices are allowed. */
bool nsga_dominates(const struct nsga_solution *a, const struct nsga_solution *b);
/* Sets front and crowding, and puts the best first: by front, then the least crowded, then by
 * tie_break. Fronts and crowding are those of Deb III-A and III-B, but of equal solutions
 * all except one have crowding 0. */
void nsga_rank(struct nsga_solution **solutions, uint32_t n);

/* Allowed matrices, all different, none of which dominates another. */
struct nsga_front {
	uint32_t n;                    /* number of matrices, at least 1 */
	uint32_t best;                 /* index of the matrix whose first cost is least */
	double best_costs[NSGA_COSTS]; /* costs of the best matrix */
	uint8_t *matrices;             /* owned; n * rows * row_bytes */
};

/*
 * Finds the first front of the last of NSGA_GENERATIONS populations. The first population
 * is the given solutions, repaired: 1 to NSGA_POPULATION of them, the caller's. The run ends
 * sooner only if mating finds no new matrix. PAWL_ENOMEM: front is unchanged.
 */
int nsga_run(const struct nsga_problem *problem, struct rng *rng, const uint8_t *given, uint32_t n,
	struct nsga_front *front, struct pawl_err *err);

#endif
