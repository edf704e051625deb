/* How threads learn that a work is done; pawl_group_wait is in group.c, since it may drive. See
 * group_impl.h for the locks. */
#include "coll/group/group_impl.h"

bool pawl_work_done(const struct pawl_work *work)
{
	return __atomic_load_n(&work->done, __ATOMIC_ACQUIRE);
}

bool pawl_group_watch(struct pawl_group *group, struct pawl_work *work)
{
	bool wanted;

	pthread_mutex_lock(&group->state);
	wanted = !pawl_work_done(work);
	work->watched = wanted;
	pthread_mutex_unlock(&group->state);
	return wanted;
}

struct pawl_work *pawl_group_next_completion(struct pawl_group *group)
{
	struct pawl_work *work;

	pthread_mutex_lock(&group->state);
	while (group->queues.completions.first == NULL && !group->closing) {
		pthread_cond_wait(&group->queues.completed, &group->state);
	}
	work = group->queues.completions.first;
	if (work) {
		group->queues.completions.first = priv_of(work)->next_completion;
	}
	pthread_mutex_unlock(&group->state);
	return work;
}

static void push_completion(struct pawl_group *group, struct pawl_work *work)
{
	struct pawl_work *last = group->queues.completions.last;

	priv_of(work)->next_completion = NULL;
	if (group->queues.completions.first) {
		priv_of(last)->next_completion = work;
	} else {
		group->queues.completions.first = work;
	}
	group->queues.completions.last = work;
	pthread_cond_signal(&group->queues.completed);
}

void group_report_done(struct pawl_group *group, struct pawl_work *work)
{
	if (work->watched) {
		push_completion(group, work);
	}
	__atomic_store_n(&work->done, true, __ATOMIC_RELEASE); /* the caller may free it now */
	pthread_cond_broadcast(&group->driver.over);
}
