/* Placement for the baselines: see fill.h. Pure. */
#include "sched/baseline/fill.h"

#include "base/assert.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

int sched_fill_init(struct sched_fill *fill, const struct sched_view *view, struct pawl_err *err)
{
	*fill = (struct sched_fill){.nodes = view->nodes, .n = view->nodes_n};
	fill->room = calloc(view->nodes_n + 1, sizeof(*fill->room));
	if (fill->room == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to place replicas");
	}
	for (uint32_t i = 0; i < fill->n; i++) {
		fill->room[i] = view->nodes[i].slots;
		fill->unclaimed += fill->room[i];
	}
	return 0;
}

void sched_fill_deinit(struct sched_fill *fill)
{
	free(fill->room);
}

uint32_t sched_fill_types(const struct sched_job *job)
{
	return job->types != 0 ? job->types : SCHED_FILL_ANY;
}

/* Returns the free slots of a node for a job that may be on these types. */
static uint32_t room_on(const struct sched_fill *fill, uint32_t node, uint32_t types)
{
	return (types >> fill->nodes[node].type & 1) != 0 ? fill->room[node] : 0;
}

uint32_t sched_fill_room(const struct sched_fill *fill, uint32_t types)
{
	uint32_t room = 0;

	for (uint32_t i = 0; i < fill->n; i++) {
		room += room_on(fill, i, types);
	}
	return room;
}

bool sched_fill_keep(struct sched_fill *fill, const struct sched_job *job,
	struct sched_grant *grant)
{
	uint32_t taken = 0;

	while (taken < job->replicas && fill->room[job->nodes[taken]] > 0) {
		fill->room[job->nodes[taken++]]--;
	}
	if (taken < job->replicas) {
		while (taken > 0) {
			fill->room[job->nodes[--taken]]++;
		}
		return false;
	}
	if (taken > 0) {
		memcpy(grant->nodes, job->nodes, taken * sizeof(*job->nodes));
	}
	ASSERT(fill->unclaimed >= job->replicas); /* each slot is kept for one job at most */
	grant->replicas = job->replicas;
	fill->unclaimed -= job->replicas;
	return true;
}

void sched_fill_put(struct sched_fill *fill, uint32_t types, uint32_t replicas,
	struct sched_grant *grant)
{
	ASSERT(grant->replicas <= replicas);
	while (grant->replicas < replicas) {
		uint32_t best = 0;

		for (uint32_t i = 1; i < fill->n; i++) {
			best = room_on(fill, i, types) > room_on(fill, best, types) ? i : best;
		}
		ASSERT(room_on(fill, best, types) > 0);
		while (fill->room[best] > 0 && grant->replicas < replicas) {
			grant->nodes[grant->replicas++] = best;
			fill->room[best]--;
		}
	}
}
