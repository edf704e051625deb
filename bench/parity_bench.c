/*
 * Rates of one core: adding a data row to a parity row, beside CRC-32C of the same bytes, which a
 * host computes of every byte that it receives. In turns: in a block that the cache holds, and from
 * memory. Prints a line for each: its name, then the rates of the parity and of the CRC in GiB/s,
 * medians. An argument divides the bytes.
 */
#include "agent/peer/parity.h"
#include "base/assert.h"
#include "base/crc.h"
#include "base/rng.h"
#include "shared/cpu_times.h"

#include <string.h>

#define DATA_ROWS    4u
#define PARITY_ROWS  2u
#define CACHE_BYTES  ((size_t)64 << 10) /* a block in cache; the sum is as large */
#define BLOCK_BYTES  ((size_t)1 << 20)  /* bytes of a call */
#define MEMORY_BYTES ((size_t)256 << 20)

static volatile uint32_t sink; /* keeps the checksums from being left out */

/* Adds a data row of len_bytes to a parity row, a block after the other. */
static double time_parity(const struct parity *parity, const uint8_t *data, uint8_t *sum,
	size_t len_bytes, size_t block_bytes, unsigned rounds)
{
	int64_t began_ns = cpu_ns();

	for (unsigned i = 0; i < rounds; i++) {
		for (size_t off = 0; off < len_bytes; off += block_bytes) {
			parity_add_row(parity, PARITY_ROWS - 1, i % DATA_ROWS, data + off,
				block_bytes, sum + off);
		}
	}
	return cpu_ms_since(began_ns);
}

static double time_crc(const uint8_t *data, size_t len_bytes, size_t block_bytes, unsigned rounds)
{
	int64_t began_ns = cpu_ns();
	uint32_t crc = 0;

	for (unsigned i = 0; i < rounds; i++) {
		for (size_t off = 0; off < len_bytes; off += block_bytes) {
			crc = crc32c(crc, data + off, block_bytes);
		}
	}
	sink = crc;
	return cpu_ms_since(began_ns);
}

static double median_of(double *ms)
{
	qsort(ms, CPU_TIMES_MAX, sizeof(*ms), cpu_times_compare);
	return ms[CPU_TIMES_MAX / 2];
}

static void measure(const char *what, const struct parity *parity, const uint8_t *data,
	uint8_t *sum, size_t len_bytes, size_t block_bytes, unsigned rounds)
{
	double parity_ms[CPU_TIMES_MAX];
	double crc_ms[CPU_TIMES_MAX];
	double gib = (double)len_bytes * rounds / (double)(1u << 30);

	(void)time_parity(parity, data, sum, len_bytes, block_bytes, 1);
	for (unsigned i = 0; i < CPU_TIMES_MAX; i++) {
		parity_ms[i] = time_parity(parity, data, sum, len_bytes, block_bytes, rounds);
		crc_ms[i] = time_crc(data, len_bytes, block_bytes, rounds);
	}
	printf("%s %.3f %.3f\n", what, gib / median_of(parity_ms) * 1e3,
		gib / median_of(crc_ms) * 1e3);
}

int main(int argc, char **argv)
{
	size_t divisor = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	size_t len_bytes;
	struct parity parity;
	struct rng rng = {1};
	uint8_t *data, *sum;

	ASSERT(divisor >= 1 && divisor <= 64);
	len_bytes = MEMORY_BYTES / divisor / BLOCK_BYTES * BLOCK_BYTES;
	data = aligned_alloc(BLOCK_BYTES, len_bytes);
	sum = aligned_alloc(BLOCK_BYTES, len_bytes);
	ASSERT(data != NULL && sum != NULL);
	for (size_t i = 0; i < len_bytes; i += sizeof(uint64_t)) {
		*(uint64_t *)(void *)(data + i) = rng_u64(&rng);
	}
	memset(sum, 0, len_bytes);
	ASSERT(parity_init(&parity, DATA_ROWS, PARITY_ROWS, NULL) == 0);
	measure("cache", &parity, data, sum, CACHE_BYTES, CACHE_BYTES,
		(unsigned)(len_bytes / 4 / CACHE_BYTES));
	measure("memory", &parity, data, sum, len_bytes, BLOCK_BYTES, 1);
	parity_deinit(&parity);
	free(data);
	free(sum);
	return 0;
}
