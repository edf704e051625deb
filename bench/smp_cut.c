/*
 * Cuts a tree of modules as SMP's heuristic does (tests/lib/smp_heuristic.h), for
 * bench/programs/_unets.py.
 *
 *   smp_cut DEVICES < TREE
 *
 * TREE has a line for each module, the model first: its cost, number of children, and index of the
 * first of them, which are adjacent. Prints the device of each module.
 */
#include "smp_heuristic.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	static struct smp_node nodes[SMP_NODES_MAX];
	unsigned long devices = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	uint32_t n = 0;

	if (devices == 0 || devices > SMP_DEVICES_MAX) {
		fprintf(stderr, "smp_cut: the number of devices, 1 to %u, is needed\n",
			SMP_DEVICES_MAX);
		return 2;
	}
	while (n < SMP_NODES_MAX &&
		scanf("%lf %u %u", &nodes[n].cost, &nodes[n].children, &nodes[n].first) == 3) {
		n++;
	}
	if (n == 0 || !feof(stdin)) {
		fprintf(stderr, "smp_cut: no tree of at most %u modules\n", SMP_NODES_MAX);
		return 2;
	}
	smp_partition(nodes, (uint32_t)devices);
	for (uint32_t i = 0; i < n; i++) {
		printf("%u\n", nodes[i].device);
	}
	return 0;
}
