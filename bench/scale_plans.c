/*
 * Time of an all-reduce on 64 to 4,096 hosts, simulated on paper (tests/lib/carry.h), beside the
 * cost model and the bound. Each line has: hosts, link, way, bytes, servers, whether a group would
 * choose this way, seconds simulated (0: not simulated), seconds by the model, and the bound. For
 * bench/scale.py, which gives the links as groups of three numbers: bytes per second, latency, and
 * the time for which a message keeps a host busy.
 */
#include "carry.h"

#include <stdio.h>
#include <stdlib.h>

#define LINKS_MAX 8
/* Most hosts of a simulated direct plan, where each host sends to each other; beyond that only the
 * model is used. */
#define DIRECT_MAX 1024u

static const uint64_t sizes[] = {4096, 1 << 20, 25 << 20, 1 << 30};

static struct coll_link links[LINKS_MAX];
static uint32_t links_n;

static void print_line(uint32_t link, const struct coll_hosts *hosts, enum coll_algorithm algorithm,
	uint64_t len, double took_s)
{
	printf("%u %u %s %llu %u %d %.9g %.9g %.9g\n", hosts->n, link,
		coll_algorithm_name(algorithm), (unsigned long long)len, hosts->servers,
		coll_choose_algorithm(&links[link], hosts, len) == algorithm, took_s,
		coll_cost_s(&links[link], hosts, algorithm, len),
		coll_bound_s(&links[link], hosts, len));
}

static void run_algorithm(uint32_t n, enum coll_algorithm algorithm, uint64_t len)
{
	const struct coll_hosts hosts = {n, 0};
	bool everybody = algorithm == COLL_DIRECT || algorithm == COLL_RING;
	double took_s[LINKS_MAX] = {0};

	if (!everybody || n <= DIRECT_MAX) {
		carry_all_reduce(took_s, links, links_n, n, algorithm, len);
	}
	for (uint32_t link = 0; link < links_n; link++) {
		print_line(link, &hosts, algorithm, len, took_s[link]);
	}
}

/* Prints the model's times with half as many servers as hosts, and with as many. */
static void do_servers(uint32_t n, uint64_t len)
{
	for (uint32_t servers = n / 2; servers <= n && n + servers <= COLL_RANKS_MAX;
		servers += n / 2) {
		const struct coll_hosts hosts = {n, servers};

		for (uint32_t link = 0; link < links_n; link++) {
			print_line(link, &hosts, COLL_DIRECT, len, 0);
		}
	}
}

int main(int argc, char **argv)
{
	uint32_t hosts_max = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;

	for (int i = 2; i + 2 < argc && links_n < LINKS_MAX; i += 3) {
		links[links_n++] = (struct coll_link){strtod(argv[i], NULL),
			strtod(argv[i + 1], NULL), strtod(argv[i + 2], NULL)};
	}
	for (uint32_t n = 64; n <= hosts_max; n *= 4) {
		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
			for (enum coll_algorithm algorithm = 0; algorithm < COLL_ALGORITHMS;
				algorithm++) {
				run_algorithm(n, algorithm, sizes[s]);
			}
			do_servers(n, sizes[s]);
		}
	}
	return 0;
}
