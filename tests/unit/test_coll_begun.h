/* How far a group has come, seen from inside. */
#ifndef TEST_COLL_BEGUN_H
#define TEST_COLL_BEGUN_H

#include "base/clock.h"
#include "coll/group_impl.h"

#include <pthread.h>
#include <unistd.h>

/* Whether a rank has begun a collective, has told all others so, and lacks the heads of so many. */
static inline bool lacks_heads(struct pawl_group *group, uint64_t number, uint32_t n)
{
	struct pawl_work *work;
	bool lacks;

	pthread_mutex_lock(&group->driving);
	pthread_mutex_lock(&group->state);
	work = group->channels[number % COLL_CHANNELS].first;
	lacks = work && work->number == number && priv_of(work)->slot &&
		priv_of(work)->slot->times.missing == n;
	pthread_mutex_unlock(&group->state);
	pthread_mutex_unlock(&group->driving);
	return lacks;
}

/* Until it has; whoever waits for ever is killed by the test's time-out. */
static inline void await_heads(struct pawl_group *group, uint64_t number, uint32_t n)
{
	while (!lacks_heads(group, number, n)) {
		usleep(1000);
	}
}

/* Until the group has failed, or time_ns is over. */
static inline void await_failure(struct pawl_group *group, int64_t time_ns)
{
	int64_t end_ns = clock_mono_ns() + time_ns;
	bool failed = false;

	while (!failed && clock_mono_ns() < end_ns) {
		pthread_mutex_lock(&group->state);
		failed = group->failure.code != 0;
		pthread_mutex_unlock(&group->state);
		usleep(1000);
	}
}

#endif
