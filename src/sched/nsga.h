/*
 * NSGA-II: a population of matrices of bytes evolves towards those that no other one beats at both
 * of two costs.
 *
 * Deb: K. Deb and others, A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II, IEEE
 *   Transactions on Evolutionary Computation 6(2), 182-197, 2002.
 *
 * What a matrix means, how it mutates, what is allowed and what it costs is the caller's. Pure: the
 * same arguments, and generator, give the same solutions.
 */
#ifndef SCHED_NSGA_H
#define SCHED_NSGA_H

#include "base/rng.h"
#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

#define NSGA_COSTS       2u
#define NSGA_POPULATION  100u
#define NSGA_GENERATIONS 100u
#define NSGA_CROSSOVER   90u  /* in 100: that two parents' rows are exchanged */
#define NSGA_INFILLS     101u /* how often a generation is mated at most, for one without twins */

/* What is looked for. Its matrices are the callees' only until they return. */
struct nsga_problem {
	uint32_t rows;      /* of a matrix, at least 1; offspring has each from one parent */
	uint32_t row_bytes; /* a multiple of 8, as matrices are aligned to */
	void *of;           /* given to the functions below */
	void (*mutate)(void *of, struct rng *rng, uint8_t *matrix);
	/* Makes of any matrix an allowed one. */
	void (*repair)(void *of, struct rng *rng, uint8_t *matrix);
	/* Of an allowed one; finite, the less the better. */
	void (*evaluate)(void *of, const uint8_t *matrix, double *costs);
};

/* One of a population. */
struct nsga_one {
	double costs[NSGA_COSTS];
	uint32_t front;  /* 0: no other one of the population beats it */
	double crowding; /* how far apart its neighbours on its front are; 0: it has its like there
			  */
	uint64_t hash;   /* of its matrix */
	uint64_t lot;    /* drawn; decides between those that are as good */
	uint8_t *matrix; /* rows * row_bytes */
};

/* Whether a is nowhere worse than b, and somewhere better: Deb's constrained domination, where all
 * is allowed. */
bool nsga_beats(const struct nsga_one *a, const struct nsga_one *b);
/* Sets front and crowding, and puts the best first: by front, then the least crowded, then by lot.
 * Fronts and crowding are those of Deb III-A and III-B, but of equal ones all except one have 0. */
void nsga_rank(struct nsga_one **ones, uint32_t n);

/* Allowed matrices, all different, of which none beats another. */
struct nsga_front {
	uint32_t n;                    /* at least 1 */
	uint32_t best;                 /* the one whose first cost is least */
	double best_costs[NSGA_COSTS]; /* its */
	uint8_t *matrices;             /* owned; n * rows * row_bytes */
};

/*
 * The last population's first front, after NSGA_GENERATIONS, of which the given solutions,
 * repaired, are the first: 1 to NSGA_POPULATION of them, the caller's. It ends sooner only where no
 * new matrix comes of mating. PAWL_ENOMEM: front is as it was.
 */
int nsga_run(const struct nsga_problem *problem, struct rng *rng, const uint8_t *given, uint32_t n,
	struct nsga_front *front, struct pawl_err *err);

#endif
