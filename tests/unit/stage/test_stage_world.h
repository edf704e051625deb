/* Stages of several ranks, which are threads of one process over a real group. */
#ifndef TEST_STAGE_WORLD_H
#define TEST_STAGE_WORLD_H

#include "../coll/test_coll_world.h"

#include "pawl/stage.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct stages {
	struct world world;
	struct pawl_stage *stage[RANKS];
	pthread_t threads[RANKS];
};

static struct stages all;

/* The first thing that went wrong in a thread, for the test to report. */
static char wrong[600];
static atomic_bool is_wrong;

static inline bool note_wrong(const char *what, int line, const char *why)
{
	if (!atomic_exchange(&is_wrong, true)) {
		snprintf(wrong, sizeof(wrong), "line %d: %s: %s", line, what, why);
	}
	return false;
}

/* Evaluates a condition in a thread; false ends what the thread does. */
#define EXPECT(cond) ((cond) ? true : note_wrong(#cond, __LINE__, ""))
/* Evaluates a call that must succeed. */
#define DOES(call) ((call) == 0 ? true : note_wrong(#call, __LINE__, why.msg))

static inline void expect_right(void)
{
	if (atomic_load(&is_wrong)) {
		fail_msg("%s", wrong);
	}
}

static inline void open_stages(void)
{
	struct pawl_err why;

	atomic_store(&is_wrong, false);
	open_world(&all.world);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(pawl_stage_open(&all.stage[r], all.world.members[r].group, &why),
			0);
	}
}

static inline void close_stages(void (*release)(void *held))
{
	for (uint32_t r = 0; r < RANKS; r++) {
		pawl_stage_close(all.stage[r], release);
		all.stage[r] = NULL;
	}
	close_world(&all.world);
}

/* Runs a function at each rank at once. */
static inline void run_stages(void *(*run)(void *rank))
{
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_create(&all.threads[r], NULL, run, (void *)(uintptr_t)r);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(all.threads[r], NULL);
	}
}

#endif
