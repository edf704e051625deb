/* Continues the suite of test_sched_engine.h for engines that can lose nodes. */
#ifndef TEST_SCHED_LOST_H
#define TEST_SCHED_LOST_H

#include "test_sched_engine.h"

/* Waits for the ends of the node and of the job, in any order. Does not pass the node's end to the
 * core yet. */
static void suite_lost(const char *node, uint64_t job)
{
	bool gone = false;
	bool ended = false;

	while (!gone || !ended) {
		const struct core_event *event = suite.world->next(suite.world->wait_ms);

		assert_non_null(event);
		if (event->kind == CORE_NODE_GONE && strcmp(event->node, node) == 0) {
			gone = true;
		} else if (event->kind == CORE_ENDED && event->job == job) {
			assert_int_equal(event->end_cause, CORE_END_NODE_LOST);
			ended = true;
		} else if (suite_is_of_node(event->kind)) {
			suite_take_node(event);
		}
	}
}

/* A job with a lost node ends, on its other nodes as well; and nothing starts on the lost node. */
static void suite_node_is_lost(void **state)
{
	const struct core_node *nodes;
	char name[CORE_NAME_MAX];
	struct core_placement_entry entry;
	struct core_placement place = {.entries = &entry, .n = 1, .replicas = 1};
	uint64_t job;

	job = suite_running(DEED_IGNORES_STOP, 2);
	assert_true(suite_nodes(&nodes) >= 2);
	entry = (struct core_placement_entry){.node = nodes[0].id, .replicas = 1};
	snprintf(name, sizeof(name), "%s", nodes[0].offer.name);
	suite.world->lose(name);
	suite_lost(name, job);
	/* The core does not know of the loss yet. */
	job = suite_job(DEED_LASTS);
	suite.calling = true;
	suite.world->engine->start(suite.world->self, suite.core, job, ++suite.generation, &place);
	suite.calling = false;
	suite_wait(CORE_REFUSED, job);
	suite.calling = true;
	suite.world->engine->start(suite.world->self, suite.core, job, suite.generation, &place);
	suite.calling = false;
	suite_wait(CORE_REFUSED, job);
	suite_take_node(&(struct core_event){.kind = CORE_NODE_GONE, .node = name});
}

#define SUITE_TESTS_LOST cmocka_unit_test(suite_node_is_lost)

#endif
