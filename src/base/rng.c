/* SplitMix64: see rng.h. */
#include "base/rng.h"

#include "base/assert.h"

uint64_t rng_u64(struct rng *r)
{
	uint64_t z = (r->state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t rng_below(struct rng *r, uint64_t bound)
{
	uint64_t uneven; /* number of lowest values to skip: they would bias the result */
	uint64_t v;

	ASSERT(bound > 0);
	uneven = -bound % bound;
	do {
		v = rng_u64(r);
	} while (v < uneven);
	return v % bound;
}

double rng_unit(struct rng *r)
{
	return (double)(rng_u64(r) >> 11) * 0x1p-53;
}
