/* A group whose ranks are threads of one process, for tests. */
#ifndef TEST_COLL_WORLD_H
#define TEST_COLL_WORLD_H

#include "base/clock.h"
#include "within.h"

#include "pawl/coll.h"

#include <pthread.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define RANKS   4
#define LONG_NS within_ns(WITHIN_LONG_S)

struct member {
	pthread_t thread;
	uint32_t rank;
	struct pawl_group *group;
	int rv;              /* result of the last call, for tests */
	struct pawl_err err; /* error of that call */
};

struct world {
	struct member members[RANKS];
};

static inline void open_world(struct world *w)
{
	char endpoints[RANKS][PAWL_ENDPOINT_MAX];
	const char *all[RANKS];

	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(
			pawl_group_open(&w->members[r].group, r, RANKS, NULL, endpoints[r], NULL),
			0);
		all[r] = endpoints[r];
		w->members[r].rank = r;
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(IN_TIME(pawl_group_join(w->members[r].group, all, LONG_NS, NULL)),
			0);
	}
}

static inline void close_world(struct world *w)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		pawl_group_close(w->members[r].group);
	}
}

static inline void run_world(struct world *w, void *(*run)(void *member))
{
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_create(&w->members[r].thread, NULL, run, &w->members[r]);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(w->members[r].thread, NULL);
	}
}

#endif
