/*
 * Feeds a fuzz target with damaged copies of its valid inputs, from a seed: fuzz_<name> [runs]
 * A stand-in for libFuzzer that needs no special compiler, so that every test run fuzzes a little.
 */
#include "fuzz.h"

#include "base/rng.h"
#include "seed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS          100000
#define MUTATIONS_MAX 8 /* damages to one input, at most */

/* Numbers that break careless arithmetic. */
static const uint64_t odd[] = {0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x10000, 0x7fffffff,
	0x80000000, 0xfffffffe, 0xffffffff, 0x100000000, INT64_MAX, UINT64_MAX - 4095, UINT64_MAX};

/* Overwrites 1, 2, 4 or 8 bytes with one of those numbers, or with one near the present value. */
static void put_number(uint8_t *bytes, size_t len_bytes, struct rng *rng)
{
	size_t width = (size_t)1 << rng_below(rng, 4);
	uint64_t v = odd[rng_below(rng, sizeof(odd) / sizeof(odd[0]))];
	uint64_t now = 0;
	size_t off;

	if (len_bytes < width) {
		return;
	}
	off = rng_below(rng, len_bytes - width + 1);
	memcpy(&now, bytes + off, width);
	v = rng_below(rng, 2) == 0 ? v : now + rng_below(rng, 9) - 4;
	memcpy(bytes + off, &v, width);
}

/* Copies a run of bytes over another place. */
static void copy_run(uint8_t *bytes, size_t len_bytes, struct rng *rng)
{
	size_t n = 1 + rng_below(rng, len_bytes < 64 ? len_bytes : 64);

	memmove(bytes + rng_below(rng, len_bytes - n + 1),
		bytes + rng_below(rng, len_bytes - n + 1), n);
}

/* Removes a run of bytes. Returns the new length. */
static size_t cut_run(uint8_t *bytes, size_t len_bytes, struct rng *rng)
{
	size_t n = 1 + rng_below(rng, len_bytes < 32 ? len_bytes : 32);
	size_t off = rng_below(rng, len_bytes - n + 1);

	memmove(bytes + off, bytes + off + n, len_bytes - off - n);
	return len_bytes - n;
}

static size_t mutate(uint8_t *bytes, size_t len_bytes, struct rng *rng)
{
	uint64_t n = 1 + rng_below(rng, MUTATIONS_MAX);

	for (uint64_t i = 0; i < n && len_bytes > 0; i++) {
		switch (rng_below(rng, 8)) {
		case 0:
			len_bytes = rng_below(rng, len_bytes + 1);
			break;
		case 1:
			len_bytes = cut_run(bytes, len_bytes, rng);
			break;
		case 2:
			copy_run(bytes, len_bytes, rng);
			break;
		case 3:
		case 4:
			bytes[rng_below(rng, len_bytes)] ^= (uint8_t)(1u << rng_below(rng, 8));
			break;
		default:
			put_number(bytes, len_bytes, rng);
		}
	}
	return len_bytes;
}

int main(int argc, char **argv)
{
	static uint8_t seeds[FUZZ_SEEDS_MAX][FUZZ_BYTES_MAX];
	long runs = argc > 1 ? strtol(argv[1], NULL, 10) : RUNS;
	size_t lens[FUZZ_SEEDS_MAX];
	struct rng rng;
	unsigned n = 0;

	while (n < FUZZ_SEEDS_MAX && (lens[n] = fuzz_seed(n, seeds[n])) > 0) {
		LLVMFuzzerTestOneInput(seeds[n], lens[n]);
		n++;
	}
	rng.state = test_seed();
	for (long i = 0; i < runs; i++) {
		unsigned s = (unsigned)rng_below(&rng, n);
		uint8_t *bytes = malloc(lens[s]); /* this long, so that ASan sees reads beyond */
		size_t len_bytes;

		if (bytes == NULL) {
			return 1;
		}
		memcpy(bytes, seeds[s], lens[s]);
		len_bytes = mutate(bytes, lens[s], &rng);
		bytes = realloc(bytes, len_bytes > 0 ? len_bytes : 1);
		LLVMFuzzerTestOneInput(bytes, len_bytes);
		free(bytes);
	}
	printf("%ld inputs from %u seeds\n", runs, n);
	return 0;
}
