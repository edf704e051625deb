/*
 * The contract of sched/core/engine.h as a suite of tests, SUITE_CASES, which every engine passes:
 * the simulated one, and those of real processes. A case that an engine's table excludes (a call
 * that is NULL, a flag) is left out. A world, one for each engine, sets how a job behaves, and how
 * a node is lost.
 */
#ifndef TEST_SCHED_ENGINE_H
#define TEST_SCHED_ENGINE_H

#include "test_sched_suite.h"

/* ---- the contract ---- */

static void suite_start_is_answered_again_and_done_once(void **state)
{
	uint64_t before = suite.world->starts();
	uint64_t job = suite_running(DEED_LASTS, 1);
	const struct core_event *event;

	suite_start(job, suite.generation, 1);
	event = suite_wait(CORE_RUNS, job);
	assert_int_equal(event->generation, suite.generation);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
	assert_int_equal(suite.world->starts(), before + 1);
}

static void suite_stop_is_answered_again(void **state)
{
	uint64_t job = suite_running(DEED_LASTS, 2);

	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

static void suite_stop_of_nothing_is_an_end(void **state)
{
	uint64_t job = suite_job(DEED_LASTS);

	suite_stop(job, ++suite.generation, 0);
	suite_ends(job, CORE_END_UNKNOWN, 0);
}

/* A stop blocks starts of its generation and of all before it, however late they come. */
static void suite_stop_blocks_starts(void **state)
{
	uint64_t before = suite.world->starts();
	uint64_t job = suite_job(DEED_LASTS);

	suite_stop(job, ++suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_UNKNOWN, 0);
	suite_start(job, suite.generation, 1);
	suite_ends(job, CORE_END_UNKNOWN, 0);
	suite_start(job, suite.generation - 1, 1);
	suite_ends(job, CORE_END_UNKNOWN, 0);
	assert_int_equal(suite.world->starts(), before);
	suite_start(job, ++suite.generation, 1); /* a newer one is another matter */
	suite_runs(job);
	assert_int_equal(suite.world->starts(), before + 1);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

/* A stop follows its start at once, before the start is answered. */
static void suite_stop_overtakes(void **state)
{
	uint64_t job = suite_job(DEED_LASTS);

	suite_start(job, ++suite.generation, 2);
	suite_stop(job, suite.generation, 0);
	suite_wait(CORE_ENDED, job);
	suite_silent(CORE_RUNS, job, 1500);
}

/* A stop of an earlier generation ends nothing. */
static void suite_stop_of_an_old_one_ends_nothing(void **state)
{
	uint64_t job = suite_job(DEED_LASTS);
	uint64_t old = ++suite.generation;

	suite_start(job, ++suite.generation, 1);
	suite_runs(job);
	suite_stop(job, old, 0);
	suite_silent(CORE_ENDED, job, 1500);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

static void suite_ends_by_itself(void **state)
{
	uint64_t job = suite_job(DEED_GOOD);

	suite_start(job, ++suite.generation, 2);
	suite_ends(job, CORE_END_EXITED, 0);
	suite_start(job, suite.generation, 1); /* requested again: the run is over */
	suite_ends(job, CORE_END_EXITED, 0);
	job = suite_job(DEED_BAD);
	suite_start(job, ++suite.generation, 2);
	suite_ends(job, CORE_END_EXITED, suite.world->bad_code);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_EXITED, suite.world->bad_code);
}

static void suite_jobs_ignoring_stop_are_killed(void **state)
{
	uint64_t job = suite_running(DEED_IGNORES_STOP, 2);

	suite_stop(job, suite.generation, 600 * SUITE_GRACE_NS);
	suite_silent(CORE_ENDED, job, 1500);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

/* Rescales the job to that many replicas on its only node, the first one. */
static void suite_rescale(uint64_t job, uint64_t generation, uint32_t replicas)
{
	const struct core_node *nodes;
	struct core_placement_entry entry = {.replicas = replicas};
	struct core_placement place = {.entries = &entry, .n = 1, .replicas = replicas};

	assert_true(suite_nodes(&nodes) > 0);
	entry.node = nodes[0].id;
	suite.calling = true;
	suite.world->engine->rescale(suite.world->self, suite.core, job, generation, &place);
	suite.calling = false;
}

/* Returns how the rescale of the newest generation is answered. */
static enum core_event_kind suite_answer(uint64_t job)
{
	const struct core_event *event = NULL;

	while (!event || event->job != job || event->generation != suite.generation ||
		(event->kind != CORE_RUNS && event->kind != CORE_REFUSED)) {
		event = suite_must_next("answer to a rescale");
	}
	return event->kind;
}

static void suite_rescale_is_answered(void **state)
{
	uint64_t job = suite_running(DEED_LASTS, 1);
	uint64_t first = suite.generation;
	enum core_event_kind kind;

	suite_rescale(job, ++suite.generation, 2);
	kind = suite_answer(job);
	suite_rescale(job, suite.generation, 2); /* requested again */
	assert_int_equal(suite_answer(job), kind);
	suite_silent(CORE_ENDED, job, 1000);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
	suite_rescale(job, first, 2); /* a rescale of a run that is over */
	suite_silent(CORE_RUNS, job, 1000);
}

/* A stop blocks rescales of its generation while the job still ends, and they do not undo it. */
static void suite_stop_blocks_rescales(void **state)
{
	uint64_t job = suite_running(DEED_IGNORES_STOP, 1);
	const struct core_event *event;

	suite_stop(job, ++suite.generation, 600 * SUITE_GRACE_NS);
	suite_rescale(job, suite.generation, 2);
	while ((event = suite_next(1000)) != NULL) {
		assert_true(event->job != job);
	}
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

/* Waits until the job was told to have so many replicas: a job's processes report it themselves. */
static void suite_has_size(uint64_t job, uint32_t replicas)
{
	WITHIN_DOING(WITHIN_LONG_S, suite.world->requested_size(job) == replicas,
		within_pace(0.01));
}

/* A rescaled job goes on with more or fewer replicas, even if the engine was reopened meanwhile. */
static void suite_rescale_is_done(void **state)
{
	uint64_t before = suite.world->starts();
	uint64_t job = suite_running(DEED_ELASTIC, 1);

	suite_rescale(job, ++suite.generation, 3);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	suite_has_size(job, 3);
	suite_rescale(job, ++suite.generation, 2);
	suite.world->reopen();
	suite_list();
	suite_wait(CORE_LISTED, 0);
	suite_rescale(job, suite.generation, 2);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	suite_has_size(job, 2);
	suite_rescale(job, suite.generation - 1, 3); /* late */
	suite_silent(CORE_RUNS, job, 1000);
	assert_int_equal(suite.world->requested_size(job), 2);
	assert_int_equal(suite.world->starts(), before + 1);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
}

/* Expects a list: nodes, then ends, then the runs. */
static void suite_check_list(uint64_t runs, uint64_t generation, uint64_t ended)
{
	const struct core_event *event;
	const struct core_node *nodes;
	uint32_t nodes_n = suite_nodes(&nodes);
	uint32_t nodes_seen = 0;
	bool saw_end = false;
	bool saw_run = false;

	suite_list();
	for (;;) {
		event = suite_must_next("end of the list");
		nodes_seen += event->kind == CORE_NODE_REPORTED;
		if (event->kind == CORE_ENDED && event->job == ended) {
			assert_true(nodes_seen >= nodes_n);
			saw_end = true;
		}
		if (event->kind == CORE_LISTED) {
			break;
		}
	}
	for (uint32_t i = 0; i < event->runs_n; i++) {
		assert_true(event->runs[i].job != ended);
		saw_run = saw_run ||
			(event->runs[i].job == runs && event->runs[i].generation == generation);
	}
	assert_true(saw_run && saw_end);
}

static void suite_lists(void **state)
{
	uint64_t ended = suite_job(DEED_GOOD);
	uint64_t before;
	uint64_t job;

	suite_start(ended, ++suite.generation, 1);
	suite_ends(ended, CORE_END_EXITED, 0);
	job = suite_running(DEED_LASTS, 2);
	suite_check_list(job, suite.generation, ended);
	before = suite.world->starts();
	suite.world->reopen();
	suite_check_list(job, suite.generation, ended);
	suite_start(job, suite.generation, 2); /* requested again, as after a crash */
	suite_wait(CORE_RUNS, job);
	assert_int_equal(suite.world->starts(), before);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

static void suite_request_node(const char *pool)
{
	suite.calling = true;
	suite.world->engine->request_nodes(suite.world->self, pool, 1);
	suite.calling = false;
}

static void suite_return_node(const char *name)
{
	const struct core_event *event;

	suite.calling = true;
	suite.world->engine->return_node(suite.world->self, name);
	suite.calling = false;
	do {
		event = suite_wait(CORE_NODE_GONE, 0);
	} while (strcmp(event->node, name) != 0);
}

static void suite_request_and_return_nodes(void **state)
{
	const struct core_event *event;
	const struct core_node *nodes;
	char name[CORE_NAME_MAX];

	if (suite.world->pool) {
		suite_request_node(suite.world->pool);
		event = suite_wait(CORE_NODE_REPORTED, 0);
		assert_string_equal(event->offer->pool, suite.world->pool);
		snprintf(name, sizeof(name), "%s", event->offer->name);
	} else {
		suite_request_node("none");
		event = suite_wait(CORE_POOL_EXHAUSTED, 0);
		assert_string_equal(event->pool, "none");
		assert_true(suite_nodes(&nodes) > 0);
		snprintf(name, sizeof(name), "%s", nodes[0].offer.name);
	}
	suite_return_node(name);
	suite_return_node(name); /* as if the first event had not been stored */
}

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
	suite_start_at(job, ++suite.generation, &place);
	suite_wait(CORE_REFUSED, job);
	suite_start_at(job, suite.generation, &place);
	suite_wait(CORE_REFUSED, job);
	suite_take_node(&(struct core_event){.kind = CORE_NODE_GONE, .node = name});
}

/* ---- what only the scheduler's process asks ---- */

static void suite_hosts_are_those_of_the_run(void **state)
{
	struct sched_engine_host hosts[SUITE_NODES] = {{0}};
	const struct sched_engine *engine = suite.world->engine;
	uint64_t job = suite_running(DEED_LASTS, 2);

	assert_int_equal(engine->hosts(suite.world->self, job, suite.generation, hosts, 1), 2);
	assert_null(hosts[1].address); /* there was room for one */
	assert_int_equal(
		engine->hosts(suite.world->self, job, suite.generation, hosts, SUITE_NODES), 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(hosts[i].address[0] != '\0' && hosts[i].replicas == 1);
	}
	/* The core has decided on a change that has not come about. */
	assert_int_equal(
		engine->hosts(suite.world->self, job, suite.generation + 1, hosts, SUITE_NODES), 0);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
	assert_int_equal(
		engine->hosts(suite.world->self, job, suite.generation, hosts, SUITE_NODES), 0);
}

/* A run that each_run is to find. */
struct suite_run {
	uint64_t job;
	uint32_t n; /* runs of the job that were found */
	struct sched_engine_run run;
};

static void suite_visit(void *user, const struct sched_engine_run *run)
{
	struct suite_run *wanted = user;

	if (run->job == wanted->job) {
		wanted->n++;
		wanted->run = *run;
		assert_int_equal(access(run->dir, F_OK), 0);
	}
}

static struct suite_run suite_find_run(uint64_t job)
{
	struct suite_run wanted = {.job = job};

	suite.world->engine->each_run(suite.world->self, suite_visit, &wanted);
	return wanted;
}

/* A run is found until its end was stored, even by an engine that was opened meanwhile. */
static void suite_runs_are_found_until_forgotten(void **state)
{
	uint64_t job = suite_running(DEED_LASTS, 1);
	struct suite_run found;

	suite.world->reopen();
	found = suite_find_run(job);
	assert_int_equal(found.n, 1);
	assert_int_equal(found.run.start_generation, suite.generation);
	assert_int_equal(found.run.generation, suite.generation);
	assert_false(found.run.over);
	suite.world->engine->forget(suite.world->self, job,
		suite.generation); /* a live one stays */
	assert_int_equal(suite_find_run(job).n, 1);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
	found = suite_find_run(job);
	assert_true(found.n == 1 && found.run.over);
	suite.world->engine->forget(suite.world->self, job, suite.generation);
	assert_int_equal(suite_find_run(job).n, 0);
}

static void suite_nodes_are_the_engines(void **state)
{
	const struct core_node *nodes;
	uint32_t n = suite_nodes(&nodes);

	for (uint32_t i = 0; i < n; i++) {
		assert_true(suite.world->engine->has_node(suite.world->self, nodes[i].offer.name));
	}
	assert_false(suite.world->engine->has_node(suite.world->self, "none"));
}

/* A remark ends within its room, however small. */
static void suite_remarks_end(void **state)
{
	uint64_t job = suite_running(DEED_LASTS, 1);
	char text[64];

	for (size_t cap_bytes = 1; cap_bytes <= sizeof(text); cap_bytes++) {
		for (uint32_t i = 0; i < 2; i++) {
			memset(text, 'x', sizeof(text));
			suite.world->engine->remark(suite.world->self, i == 0 ? 0 : job, text,
				cap_bytes);
			assert_true(memchr(text, 0, cap_bytes) != NULL);
			assert_true(cap_bytes == sizeof(text) || text[cap_bytes] == 'x');
		}
	}
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

static void suite_nothing_is_closed_or_reaped(void **state)
{
	if (suite.world->engine->close) {
		suite.world->engine->close(NULL);
	}
	if (suite.world->engine->reap) {
		suite.world->engine->reap(suite.world->self);
	}
}

/* ---- all cases ---- */

/* What a case needs of an engine. */
static bool suite_always(const struct sched_engine *engine)
{
	return true;
}

static bool suite_loses_nodes(const struct sched_engine *engine)
{
	return engine->loses_nodes;
}

static bool suite_has_hosts(const struct sched_engine *engine)
{
	return engine->hosts != NULL;
}

static bool suite_has_runs(const struct sched_engine *engine)
{
	return engine->each_run != NULL && engine->forget != NULL;
}

static bool suite_names_nodes(const struct sched_engine *engine)
{
	return engine->has_node != NULL;
}

static bool suite_has_remarks(const struct sched_engine *engine)
{
	return engine->remark != NULL;
}

#define SUITE_CASES(X)                                                                             \
	X(suite_start_is_answered_again_and_done_once, suite_always)                               \
	X(suite_stop_is_answered_again, suite_always)                                              \
	X(suite_stop_of_nothing_is_an_end, suite_always)                                           \
	X(suite_stop_blocks_starts, suite_always)                                                  \
	X(suite_stop_overtakes, suite_always)                                                      \
	X(suite_stop_of_an_old_one_ends_nothing, suite_always)                                     \
	X(suite_ends_by_itself, suite_always)                                                      \
	X(suite_jobs_ignoring_stop_are_killed, suite_always)                                       \
	X(suite_rescale_is_answered, suite_always)                                                 \
	X(suite_rescale_is_done, suite_always)                                                     \
	X(suite_stop_blocks_rescales, suite_always)                                                \
	X(suite_lists, suite_always)                                                               \
	X(suite_request_and_return_nodes, suite_always)                                            \
	X(suite_node_is_lost, suite_loses_nodes)                                                   \
	X(suite_hosts_are_those_of_the_run, suite_has_hosts)                                       \
	X(suite_runs_are_found_until_forgotten, suite_has_runs)                                    \
	X(suite_nodes_are_the_engines, suite_names_nodes)                                          \
	X(suite_remarks_end, suite_has_remarks)                                                    \
	X(suite_nothing_is_closed_or_reaped, suite_always)

#define SUITE_TESTS_MAX 64u

/* Runs the suite on the world's engine, then the engine's own tests. Returns the number of failed
 * tests. */
static int suite_run(const struct sched_engine *engine, const struct CMUnitTest *own, size_t own_n,
	CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
	static const struct {
		struct CMUnitTest test;
		bool (*applies)(const struct sched_engine *engine);
	} cases[] = {
#define X(name, needs) {cmocka_unit_test(name), needs},
		SUITE_CASES(X)
#undef X
	};
	struct CMUnitTest tests[SUITE_TESTS_MAX];
	size_t n = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (cases[i].applies(engine)) {
			tests[n++] = cases[i].test;
		} else {
			printf("not of %s: %s\n", engine->name, cases[i].test.name);
		}
	}
	if (n + own_n > SUITE_TESTS_MAX) {
		printf("more than %u tests\n", SUITE_TESTS_MAX);
		return 1;
	}
	for (size_t i = 0; i < own_n; i++) {
		tests[n++] = own[i];
	}
	return _cmocka_run_group_tests(engine->name, tests, n, set_up, tear_down);
}

#endif
