/*
 * First come, first served: jobs run with the replicas that their users asked for, in the order of
 * submission, and until they end. If a job finds no room, all later ones wait, too, on nodes of the
 * types that it may be on. Pure.
 */
#include "sched/baseline/fill.h"
#include "sched/baseline/policies.h"

#include <math.h>

static int decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	struct sched_fill fill;
	uint32_t free_types = SCHED_FILL_ANY; /* types that no job waits for, a bit each */
	int rv = sched_fill_init(&fill, view, err);

	*verdict = (struct sched_verdict){NAN, NAN};
	if (rv != 0) {
		return rv;
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		sched_fill_keep(&fill, &view->jobs[j], &grants[j]);
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		uint32_t types = sched_fill_types(&view->jobs[j]);
		uint32_t wanted = view->jobs[j].wanted;

		if (grants[j].replicas > 0 || (types & free_types) == 0) {
			continue;
		}
		if (wanted > sched_fill_room(&fill, types & free_types)) {
			free_types &= ~types;
			continue;
		}
		sched_fill_put(&fill, types & free_types, wanted, &grants[j]);
	}
	sched_fill_deinit(&fill);
	return 0;
}

const struct sched_policy sched_fifo = {.name = "fifo",
	.run_to_completion = true,
	.decide = decide};
