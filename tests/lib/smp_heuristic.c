/* SMP's partition heuristic: see smp_heuristic.h. */
#include "smp_heuristic.h"

#include "base/assert.h"

#include <math.h>
#include <string.h>

/* Some devices, in ascending order. */
struct devices {
	uint32_t n;
	uint32_t device[SMP_DEVICES_MAX];
};

static void partition_node(struct smp_node *nodes, uint32_t node, const struct devices *devices);

/* Returns the cost of children first .. first + n - 1. */
static double sum_costs(const struct smp_node *nodes, uint32_t first, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = first; i < first + n; i++) {
		sum += nodes[i].cost;
	}
	return sum;
}

/* The least largest costs of cuts of some nodes: rows for segments, columns for nodes. */
struct table {
	double best[SMP_DEVICES_MAX + 1][SMP_NODES_MAX + 1];
	uint32_t from[SMP_DEVICES_MAX + 1][SMP_NODES_MAX + 1]; /* where the last segment begins */
};

/* Fills the entry for k segments and i nodes. */
static void fill(struct table *table, const struct smp_node *nodes, uint32_t first, uint32_t k,
	uint32_t i)
{
	table->best[k][i] = INFINITY;
	for (uint32_t j = 0; j < i; j++) {
		double most = fmax(table->best[k - 1][j], sum_costs(nodes, first + j, i - j));

		if (most < table->best[k][i]) {
			table->best[k][i] = most;
			table->from[k][i] = j;
		}
	}
}

/* Cuts n nodes into segments with the least largest cost, by dynamic programming. Sets ends to
 * where each segment ends, relative to the first node. */
static void cut(const struct smp_node *nodes, uint32_t first, uint32_t n, uint32_t segments_n,
	uint32_t *ends)
{
	static struct table table;

	ASSERT(segments_n >= 1 && segments_n <= n && n <= SMP_NODES_MAX);
	for (uint32_t i = 0; i <= n; i++) {
		table.best[0][i] = i == 0 ? 0 : INFINITY;
	}
	for (uint32_t k = 1; k <= segments_n; k++) {
		for (uint32_t i = 0; i <= n; i++) {
			fill(&table, nodes, first, k, i);
		}
	}
	for (uint32_t k = segments_n; k > 0; k--) {
		ends[k - 1] = n;
		n = table.from[k][n];
	}
}

/* d'Hondt: gives each device to the segment with the largest cost / (devices + 1). */
static void apportion(const double *costs, uint32_t segments_n, const struct devices *devices,
	struct devices *segments)
{
	memset(segments, 0, segments_n * sizeof(*segments));
	for (uint32_t d = 0; d < devices->n; d++) {
		uint32_t most = 0;

		for (uint32_t s = 1; s < segments_n; s++) {
			if (costs[s] / (segments[s].n + 1) > costs[most] / (segments[most].n + 1)) {
				most = s;
			}
		}
		segments[most].device[segments[most].n++] = devices->device[d];
	}
}

/* Gives devices to n nodes. parent: device of a segment that gets none. */
static void partition_nodes(struct smp_node *nodes, uint32_t first, uint32_t n,
	const struct devices *devices, uint32_t parent)
{
	struct devices segments[SMP_DEVICES_MAX];
	uint32_t ends[SMP_DEVICES_MAX];
	double costs[SMP_DEVICES_MAX];
	uint32_t segments_n = devices->n < n ? devices->n : n;
	uint32_t begin = 0;

	cut(nodes, first, n, segments_n, ends);
	for (uint32_t s = 0; s < segments_n; s++) {
		costs[s] = sum_costs(nodes, first + begin, ends[s] - begin);
		begin = ends[s];
	}
	apportion(costs, segments_n, devices, segments);
	begin = 0;
	for (uint32_t s = 0; s < segments_n; s++) {
		uint32_t size = ends[s] - begin;

		if (segments[s].n == 0) {
			segments[s] = (struct devices){1, {parent}};
		}
		if (segments[s].n > 1 && size > 1) {
			partition_nodes(nodes, first + begin, size, &segments[s], parent);
		} else {
			for (uint32_t i = 0; i < size; i++) {
				partition_node(nodes, first + begin + i, &segments[s]);
			}
		}
		begin = ends[s];
	}
}

static void partition_node(struct smp_node *nodes, uint32_t node, const struct devices *devices)
{
	nodes[node].device = devices->device[0];
	if (nodes[node].children == 0) {
		return;
	}
	if (devices->n > 1) {
		partition_nodes(nodes, nodes[node].first, nodes[node].children, devices,
			devices->device[0]);
		return;
	}
	for (uint32_t i = 0; i < nodes[node].children; i++) {
		partition_node(nodes, nodes[node].first + i, devices);
	}
}

void smp_partition(struct smp_node *nodes, uint32_t devices_n)
{
	struct devices all = {devices_n, {0}};

	ASSERT(devices_n >= 1 && devices_n <= SMP_DEVICES_MAX);
	for (uint32_t d = 0; d < devices_n; d++) {
		all.device[d] = d;
	}
	partition_node(nodes, 0, &all);
}
