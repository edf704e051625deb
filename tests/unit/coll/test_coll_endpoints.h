/* Processes that exchange endpoints through shared memory, and join a group. */
#ifndef TEST_COLL_ENDPOINTS_H
#define TEST_COLL_ENDPOINTS_H

#include "within.h"

#include "pawl/coll.h"

#include <sched.h>
#include <stdlib.h>

#define PROCS_MAX 8

/* Memory that the processes share; zero at first. */
struct test_endpoints {
	char text[PROCS_MAX][PAWL_ENDPOINT_MAX];
	uint32_t ready[PROCS_MAX]; /* atomic: text has the endpoint */
};

static inline struct pawl_group *join_by_endpoints(struct test_endpoints *endpoints, uint32_t rank,
	uint32_t ranks)
{
	const char *all[PROCS_MAX];
	struct pawl_group *group;

	if (pawl_group_open(&group, rank, ranks, NULL, endpoints->text[rank], NULL) != 0) {
		abort();
	}
	__atomic_store_n(&endpoints->ready[rank], 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < ranks; r++) {
		all[r] = endpoints->text[r];
		WITHIN_DOING(WITHIN_LONG_S,
			__atomic_load_n(&endpoints->ready[r], __ATOMIC_ACQUIRE) != 0,
			sched_yield());
	}
	if (IN_TIME(pawl_group_join(group, all, within_ns(WITHIN_LONG_S), NULL)) != 0) {
		abort();
	}
	return group;
}

#endif
