/* New bounds and a new priority for a job that is there: see CORE_CHANGE. The next decision puts
 * them into effect. Until then the job keeps what it has, even outside of its bounds. */
#include "sched/core/core_impl.h"

int core_check_size(const struct sched_core *core, uint32_t queue, uint32_t least, uint32_t most,
	const char *what, struct pawl_err *err)
{
	uint32_t quota = core->options.queues[queue].slots_max;

	ASSERT(queue < core->options.queues_n);
	if (least < 1 || most < least || most > CORE_MOST_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: a job needs 1 to %u replicas, and a least that is not above its most",
			what, CORE_MOST_MAX);
	}
	if (quota > 0 && least > quota) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: the job needs %u slots, but queue %s has only %u", what, least,
			core->options.queues[queue].name, quota);
	}
	if (core->options.owner_slots_max > 0 && least > core->options.owner_slots_max) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: the job needs %u slots, but a user may have only %u", what, least,
			core->options.owner_slots_max);
	}
	return 0;
}

static bool is_ending(const struct core_job *job)
{
	return core_is_over(job) ||
		(job->state == CORE_STOPPING &&
			(job->after == CORE_THEN_FAILED || job->after == CORE_THEN_CANCELLED));
}

int core_job_change(struct sched_core *core, struct core_job *job, const struct core_change *change,
	struct pawl_err *err)
{
	int rv;

	if (is_ending(job)) {
		return pawl_err_set(err, PAWL_EINVAL, "job %llu is %s: it cannot be changed",
			(unsigned long long)job->id, core_state_name(job->state));
	}
	rv = core_check_size(core, job->queue, change->least, change->most, "change", err);
	rv = rv == 0 ? core_job_grow(job, change->most, err) : rv;
	if (rv != 0) {
		return rv;
	}
	job->request.least = change->least;
	job->request.most = change->most;
	job->request.wanted =
		job->request.wanted < change->most ? job->request.wanted : change->most;
	job->request.priority = change->priority;
	if (job->want.n > 0 && !core_may_have(job, job->want.replicas)) {
		/* What was decided no longer holds. */
		if (core_is_up(job)) {
			placement_copy(&job->want, &job->current);
		} else {
			placement_clear(&job->want);
		}
	}
	job->dirty = true;
	core_want_round(core, true);
	return 0;
}
