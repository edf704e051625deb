/* The optimum beside SMP's heuristic, on random trees of modules and on a transformer: never worse
 * than a cut into runs, and mostly much better. SMP's result need not be one: a segment without a
 * device goes to its parent's first device, which a forward pass then visits twice. Such a result
 * can have a smaller largest load than any cut. */
#include "close.h"
#include "pawl/pipe.h"
#include "seed.h"
#include "smp_heuristic.h"

#include <stdlib.h>
#include <string.h>

#define TREES 300u

/* A tree of modules. */
struct tree {
	struct smp_node nodes[SMP_NODES_MAX];
	uint32_t n;
};

static uint32_t add_children(struct tree *tree, uint32_t node, uint32_t children)
{
	tree->nodes[node].children = children;
	tree->nodes[node].first = tree->n;
	memset(&tree->nodes[tree->n], 0, children * sizeof(*tree->nodes));
	tree->n += children;
	return tree->nodes[node].first;
}

/* Sets the costs of all nodes to the sums of their children's. */
static double sum_up(struct tree *tree, uint32_t node)
{
	struct smp_node *of = &tree->nodes[node];

	for (uint32_t i = 0; i < of->children; i++) {
		of->cost += sum_up(tree, of->first + i);
	}
	return of->cost;
}

/* Makes a node a leaf, or gives it children down to a depth. */
static void grow(struct tree *tree, struct rng *rng, uint32_t node, uint32_t depth)
{
	if (depth == 0 || (depth < 3 && rng_below(rng, 3) == 0)) {
		tree->nodes[node].cost = log_uniform(rng, 1, 100);
		return;
	}
	add_children(tree, node, 2 + (uint32_t)rng_below(rng, 4));
	for (uint32_t i = 0; i < tree->nodes[node].children; i++) {
		grow(tree, rng, tree->nodes[node].first + i, depth - 1);
	}
}

static void start_tree(struct tree *tree)
{
	memset(tree, 0, sizeof(*tree));
	tree->n = 1;
}

/* Lists the leaves below a node as units, in order of execution. */
static void list_leaves(const struct tree *tree, uint32_t node, struct pawl_pipe_unit *units,
	uint32_t *n)
{
	const struct smp_node *of = &tree->nodes[node];

	if (of->children == 0) {
		units[(*n)++] = (struct pawl_pipe_unit){.name = "leaf",
			.forward_s = of->cost,
			.stage = PAWL_PIPE_ANY_STAGE};
	}
	for (uint32_t i = 0; i < of->children; i++) {
		list_leaves(tree, of->first + i, units, n);
	}
}

static double smp_largest(struct tree *tree, uint32_t devices_n)
{
	double load[SMP_DEVICES_MAX] = {0};
	double most = 0;

	smp_partition(tree->nodes, devices_n);
	for (uint32_t i = 0; i < tree->n; i++) {
		if (tree->nodes[i].children == 0) {
			load[tree->nodes[i].device] += tree->nodes[i].cost;
		}
	}
	for (uint32_t d = 0; d < devices_n; d++) {
		most = fmax(most, load[d]);
	}
	return most;
}

/* Returns whether SMP's devices are runs of leaves below a node. last: device of the leaf
 * before; of: devices that have been left. */
static bool is_cut(const struct tree *tree, uint32_t node, uint32_t *last, bool *left)
{
	const struct smp_node *of = &tree->nodes[node];
	bool runs = true;

	if (of->children == 0) {
		left[*last] = left[*last] || of->device != *last;
		*last = of->device;
		return !left[of->device];
	}
	for (uint32_t i = 0; i < of->children && runs; i++) {
		runs = is_cut(tree, of->first + i, last, left);
	}
	return runs;
}

/* Returns SMP's largest load relative to ours; 0 if there are fewer leaves than devices. */
static double compare_with_smp(struct tree *tree, uint32_t devices_n)
{
	struct pawl_pipe_setting setting = {.stages = devices_n,
		.microbatches = 1,
		.schedule = PAWL_PIPE_1F1B,
		.state_factor = 1};
	struct pawl_pipe_unit units[SMP_NODES_MAX];
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	bool left[SMP_DEVICES_MAX] = {false};
	uint32_t last = 0;
	uint32_t n = 0;
	double ratio;

	sum_up(tree, 0);
	list_leaves(tree, 0, units, &n);
	if (n < devices_n) {
		return 0;
	}
	assert_int_equal(pawl_pipe_choose(&plan, &report, NULL, units, n, &setting, NULL), 0);
	ratio = smp_largest(tree, devices_n) / plan.value;
	if (is_cut(tree, 0, &last, left)) {
		assert_true(ratio >= 1 - 1e-9);
	}
	pawl_pipe_plan_deinit(&plan);
	pawl_pipe_report_deinit(&report);
	return ratio;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

static void never_worse_on_random_trees(void **state)
{
	static const struct {
		uint32_t devices;
		double median;
	} goals[] = {{2, 1.1}, {4, 1.25}, {8, 1.35}};
	struct rng rng = {test_seed()};
	static struct tree tree;
	double ratios[TREES];

	for (size_t g = 0; g < sizeof(goals) / sizeof(*goals); g++) {
		for (uint32_t i = 0; i < TREES;) {
			start_tree(&tree);
			grow(&tree, &rng, 0, 4);
			ratios[i] = compare_with_smp(&tree, goals[g].devices);
			i += ratios[i] > 0;
		}
		qsort(ratios, TREES, sizeof(*ratios), by_size);
		print_message(
			"%u devices: SMP's largest load is %.3f to %.3f times ours, median %.3f\n",
			goals[g].devices, ratios[0], ratios[TREES - 1], ratios[TREES / 2]);
		assert_true(ratios[TREES / 50] >= 1 - 1e-9);
		assert_true(ratios[TREES / 2] >= goals[g].median);
	}
}

/* An embedding, blocks of attention and feed-forward, a head. */
static void never_worse_on_a_transformer(void **state)
{
	static struct tree tree;

	for (uint32_t devices = 2; devices <= 8; devices *= 2) {
		uint32_t top;
		double ratio;

		start_tree(&tree);
		top = add_children(&tree, 0, 3);
		tree.nodes[top].cost = 0.5;
		tree.nodes[top + 2].cost = 3;
		add_children(&tree, top + 1, 24);
		for (uint32_t b = 0; b < 24; b++) {
			uint32_t parts = add_children(&tree, tree.nodes[top + 1].first + b, 2);

			tree.nodes[parts].cost = 1;
			tree.nodes[parts + 1].cost = 2;
		}
		ratio = compare_with_smp(&tree, devices);
		print_message("transformer on %u devices: %.3f times\n", devices, ratio);
		assert_true(ratio >= 1 - 1e-9);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(never_worse_on_random_trees),
		cmocka_unit_test(never_worse_on_a_transformer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
