/* Where the baselines put replicas: see fill.h. Pure. */
#include "sched/fill.h"

#include "base/assert.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

int sched_fill_init(struct sched_fill *fill, const struct sched_view *view, struct pawl_err *err)
{
	*fill = (struct sched_fill){.n = view->nodes_n};
	fill->room = calloc(view->nodes_n + 1, sizeof(*fill->room));
	if (fill->room == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "place replicas: out of memory");
	}
	for (uint32_t i = 0; i < fill->n; i++) {
		fill->room[i] = view->nodes[i].slots;
		fill->all += fill->room[i];
	}
	return 0;
}

void sched_fill_deinit(struct sched_fill *fill)
{
	free(fill->room);
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
	grant->replicas = job->replicas;
	fill->all -= job->replicas;
	return true;
}

void sched_fill_put(struct sched_fill *fill, uint32_t replicas, struct sched_grant *grant)
{
	while (grant->replicas < replicas) {
		uint32_t best = 0;

		for (uint32_t i = 1; i < fill->n; i++) {
			best = fill->room[i] > fill->room[best] ? i : best;
		}
		ASSERT(fill->room[best] > 0);
		while (fill->room[best] > 0 && grant->replicas < replicas) {
			grant->nodes[grant->replicas++] = best;
			fill->room[best]--;
		}
	}
}
