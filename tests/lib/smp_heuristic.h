/*
 * The partition heuristic of SageMaker's SMP, to compare with: Algorithms 1 to 3 of C. Karakus and
 * others, arXiv 2111.05972, on a tree of modules. Children are cut into segments with the least
 * largest cost; d'Hondt's rule gives devices to segments; each segment with several devices and
 * several children is cut again.
 */
#ifndef TEST_SMP_HEURISTIC_H
#define TEST_SMP_HEURISTIC_H

#include <stdint.h>

#define SMP_NODES_MAX   512u
#define SMP_DEVICES_MAX 16u

/* A module. Its children are adjacent in the tree's nodes, in order of execution. */
struct smp_node {
	double cost;       /* cost of the whole subtree */
	uint32_t children; /* number of children; 0: a leaf */
	uint32_t first;    /* index of the first child */
	uint32_t device;   /* result: device of the node itself */
};

/* Gives each node of a tree its device, of devices_n. The root is node 0. */
void smp_partition(struct smp_node *nodes, uint32_t devices_n);

#endif
