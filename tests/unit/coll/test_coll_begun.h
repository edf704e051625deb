/* How far a group has come, read from its internal state. */
#ifndef TEST_COLL_BEGUN_H
#define TEST_COLL_BEGUN_H

#include "base/clock.h"
#include "coll/group/group_impl.h"
#include "within.h"

#include <pthread.h>

/* Returns whether a rank has begun a collective, and lacks the headers of n peers. */
static inline bool lacks_headers(struct pawl_group *group, uint64_t number, uint32_t n)
{
	struct pawl_work *work;
	bool lacks;

	pthread_mutex_lock(&group->driving);
	pthread_mutex_lock(&group->state);
	work = group->queues.channels[number % COLL_CHANNELS].first;
	lacks = work && work->number == number && priv_of(work)->slot &&
		priv_of(work)->slot->times.missing == n;
	pthread_mutex_unlock(&group->state);
	pthread_mutex_unlock(&group->driving);
	return lacks;
}

/* Waits until lacks_headers returns true. */
static inline void await_headers(struct pawl_group *group, uint64_t number, uint32_t n)
{
	WITHIN(WITHIN_LONG_S, lacks_headers(group, number, n));
}

static inline bool has_failed(struct pawl_group *group)
{
	bool failed;

	pthread_mutex_lock(&group->state);
	failed = group->failure.code != 0;
	pthread_mutex_unlock(&group->state);
	return failed;
}

/* Waits until the group has failed; time_ns, of within_ns, must suffice. */
static inline void await_failure(struct pawl_group *group, int64_t time_ns)
{
	WITHIN((double)time_ns / (double)within_ns(1), has_failed(group));
}

#endif
