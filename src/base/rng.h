/* A small seeded generator (SplitMix64, Steele et al. 2014) for tests, simulations and jitter. Not
 * for secrets. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
	uint64_t state; /* any value is a valid seed */
};

uint64_t rng_u64(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t bound); /* uniform in [0, bound); bound > 0 */
double rng_unit(struct rng *r);                    /* uniform in [0, 1), in steps of 2^-53 */

#endif
