/* Placements: replicas by node, in ascending order of ids. See struct core_placement. */
#include "sched/core/core_impl.h"

#include <string.h>

/* Returns the index where the node is, or would be inserted. */
static uint32_t find_entry(const struct core_placement *place, uint32_t node)
{
	uint32_t low = 0;
	uint32_t high = place->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (place->entries[mid].node < node) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

uint32_t placement_replicas_on(const struct core_placement *place, uint32_t node)
{
	uint32_t i = find_entry(place, node);

	return i < place->n && place->entries[i].node == node ? place->entries[i].replicas : 0;
}

bool placement_equal(const struct core_placement *a, const struct core_placement *b)
{
	return a->n == b->n &&
		(a->n == 0 || memcmp(a->entries, b->entries, a->n * sizeof(*a->entries)) == 0);
}

void placement_copy(struct core_placement *to, const struct core_placement *from)
{
	if (from->n > 0) {
		memmove(to->entries, from->entries, from->n * sizeof(*to->entries));
	}
	to->n = from->n;
	to->replicas = from->replicas;
	ASSERT(to->n <= to->replicas); /* each entry has a replica */
}

void placement_clear(struct core_placement *place)
{
	place->n = 0;
	place->replicas = 0;
}

void placement_add(struct core_placement *place, uint32_t node, uint32_t replicas)
{
	uint32_t i = find_entry(place, node);

	if (replicas == 0) {
		return;
	}
	if (i == place->n || place->entries[i].node != node) {
		memmove(place->entries + i + 1, place->entries + i,
			(place->n - i) * sizeof(*place->entries));
		place->entries[i] = (struct core_placement_entry){.node = node};
		place->n++;
	}
	place->entries[i].replicas += replicas;
	place->replicas += replicas;
	ASSERT(place->n <= place->replicas);
}

uint32_t placement_remove(struct core_placement *place, uint32_t node, uint32_t replicas)
{
	uint32_t i = find_entry(place, node);
	uint32_t taken;

	if (i == place->n || place->entries[i].node != node) {
		return 0;
	}
	taken = place->entries[i].replicas < replicas ? place->entries[i].replicas : replicas;
	ASSERT(taken <= place->replicas);
	place->entries[i].replicas -= taken;
	place->replicas -= taken;
	if (place->entries[i].replicas == 0) {
		place->n--;
		memmove(place->entries + i, place->entries + i + 1,
			(place->n - i) * sizeof(*place->entries));
	}
	ASSERT(place->n <= place->replicas);
	return taken;
}
