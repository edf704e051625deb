/* Placements: replicas by node, in ascending order of ids. See struct core_place. */
#include "sched/core/core_impl.h"

#include <string.h>

/* Returns the index where the node is, or would be. */
static uint32_t find_spot(const struct core_place *place, uint32_t node)
{
	uint32_t low = 0;
	uint32_t high = place->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (place->spots[mid].node < node) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

uint32_t place_on(const struct core_place *place, uint32_t node)
{
	uint32_t i = find_spot(place, node);

	return i < place->n && place->spots[i].node == node ? place->spots[i].replicas : 0;
}

bool place_is(const struct core_place *a, const struct core_place *b)
{
	return a->n == b->n &&
		(a->n == 0 || memcmp(a->spots, b->spots, a->n * sizeof(*a->spots)) == 0);
}

void place_copy(struct core_place *to, const struct core_place *from)
{
	if (from->n > 0) {
		memmove(to->spots, from->spots, from->n * sizeof(*to->spots));
	}
	to->n = from->n;
	to->replicas = from->replicas;
}

void place_clear(struct core_place *place)
{
	place->n = 0;
	place->replicas = 0;
}

void place_add(struct core_place *place, uint32_t node, uint32_t replicas)
{
	uint32_t i = find_spot(place, node);

	if (replicas == 0) {
		return;
	}
	if (i == place->n || place->spots[i].node != node) {
		memmove(place->spots + i + 1, place->spots + i,
			(place->n - i) * sizeof(*place->spots));
		place->spots[i] = (struct core_spot){.node = node};
		place->n++;
	}
	place->spots[i].replicas += replicas;
	place->replicas += replicas;
}

uint32_t place_take(struct core_place *place, uint32_t node, uint32_t replicas)
{
	uint32_t i = find_spot(place, node);
	uint32_t taken;

	if (i == place->n || place->spots[i].node != node) {
		return 0;
	}
	taken = place->spots[i].replicas < replicas ? place->spots[i].replicas : replicas;
	place->spots[i].replicas -= taken;
	place->replicas -= taken;
	if (place->spots[i].replicas == 0) {
		place->n--;
		memmove(place->spots + i, place->spots + i + 1,
			(place->n - i) * sizeof(*place->spots));
	}
	return taken;
}
