/*
 * The works of a group: the queues that they are in, and how they end. See group_impl.h for the
 * locks.
 */
#include "base/assert.h"
#include "coll/group/group_impl.h"

void group_push(struct group_queue *queue, struct pawl_work *work)
{
	priv_of(work)->next = NULL;
	if (queue->last) {
		priv_of(queue->last)->next = work;
	} else {
		queue->first = work;
	}
	queue->last = work;
}

static void remove_work(struct group_queue *queue, struct pawl_work *work)
{
	struct pawl_work *before = NULL;

	for (struct pawl_work *w = queue->first; w != work; w = priv_of(w)->next) {
		ASSERT(w != NULL);
		before = w;
	}
	if (before) {
		priv_of(before)->next = priv_of(work)->next;
	} else {
		queue->first = priv_of(work)->next;
	}
	if (queue->last == work) {
		queue->last = before;
	}
}

static struct group_queue *queue_of(struct pawl_group *group, const struct pawl_work *work)
{
	return is_message(&work->call) ? &group->messages
				       : &group->queues.channels[work->number % COLL_CHANNELS];
}

struct pawl_work *group_first(struct pawl_group *group, uint32_t channel)
{
	struct pawl_work *work;

	pthread_mutex_lock(&group->state);
	work = group->queues.channels[channel].first;
	pthread_mutex_unlock(&group->state);
	return work;
}

void group_finish(struct pawl_group *group, struct pawl_work *work, int code)
{
	const struct pawl_coll_call *call = &work->call;

	if (code == 0 && call->mean && call->out &&
		(call->kind != PAWL_REDUCE || call->root == group->rank)) {
		coll_divide(call->dtype, call->out, call->len_bytes / coll_type_bytes(call->dtype),
			group->ranks);
	}
	group->now_ns = group_clock_ns(group);
	pthread_mutex_lock(&group->state);
	remove_work(queue_of(group, work), work);
	if (code == 0) {
		group_stats_done(group, work);
	}
	if (!is_message(call) && priv_of(work)->slot) {
		priv_of(work)->slot->busy = false;
	}
	work->code = code;
	group->queues.pending--;
	group_report_done(group, work);
	pthread_mutex_unlock(&group->state);
}
