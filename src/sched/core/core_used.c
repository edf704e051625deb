/* Slots in use: those of each node, and those that count against quotas. Slots that a job may still
 * have count too, not only those that it is to have. */
#include "sched/core/core_impl.h"

#include <string.h>

void core_charge_quota(struct sched_core *core, const struct core_job *job, uint32_t slots)
{
	uint32_t owner = core_owner_of(core, job->request.owner);

	ASSERT(job->queue < core->options.queues_n);
	ASSERT(owner < core->owners_n); /* a job that is not over keeps its owner known */
	core->queue_used[job->queue] += slots;
	core->owners[owner].used += slots;
}

void core_count_used(struct sched_core *core)
{
	memset(core->queue_used, 0, sizeof(core->queue_used));
	for (uint32_t i = 0; i < core->owners_n; i++) {
		core->owners[i].used = 0;
	}
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		core->nodes[n].used = 0;
	}
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		const struct core_job *job = core->jobs[j];

		for (uint32_t i = 0; i < job->current.n; i++) {
			uint32_t n = core_node_at(core, job->current.entries[i].node);

			ASSERT(n < core->nodes_n);
			core->nodes[n].used += core_job_slots_on(job, job->current.entries[i].node);
			core_charge_quota(core, job,
				core_job_slots_on(job, job->current.entries[i].node));
		}
		for (uint32_t i = 0; i < job->old.n; i++) {
			uint32_t n = core_node_at(core, job->old.entries[i].node);

			ASSERT(n < core->nodes_n);
			if (placement_replicas_on(&job->current, job->old.entries[i].node) == 0) {
				core->nodes[n].used += job->old.entries[i].replicas;
				core_charge_quota(core, job, job->old.entries[i].replicas);
			}
		}
	}
}
