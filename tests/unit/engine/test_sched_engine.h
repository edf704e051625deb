/*
 * Tests of the contract of sched/core/engine.h. The same tests run on the simulated engine and on
 * the engines of real processes. A world sets how a job behaves, and how a node is lost.
 */
#ifndef TEST_SCHED_ENGINE_H
#define TEST_SCHED_ENGINE_H

#include "equal.h"
#include "sched/core/engine.h"
#include "within.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* The behaviour of a job. */
enum deed {
	DEED_LASTS,        /* runs until it is stopped, then ends */
	DEED_GOOD,         /* exits with 0 */
	DEED_BAD,          /* exits with bad_code */
	DEED_IGNORES_STOP, /* runs and ignores stops */
	DEEDS_N,
};

#define SUITE_GRACE_NS 1000000000LL
#define SUITE_NODES    64u

struct engine_world {
	const struct sched_engine *engine;
	void *self;
	int bad_code;
	int64_t wait_ms; /* longest wait for an answer, in ms */
	/* Sets the deed of a job before its start. */
	void (*prepare)(uint64_t job, enum deed deed);
	/* Returns the next event, valid until the next call; NULL: none within wait_ms. */
	const struct core_event *(*next)(int64_t wait_ms);
	/* Returns the number of starts that had an effect so far. */
	uint64_t (*starts)(void);
	void (*lose)(const char *node); /* loses a node; for test_sched_lost.h */
	/* Returns once a job that runs for the engine does its deed; NULL: it does so at once. */
	void (*await)(uint64_t job);
	/* Returns the number of replicas last requested of a running job on one node; 0: none yet.
	 * NULL: jobs cannot be rescaled. */
	uint32_t (*requested_size)(uint64_t job);
	/* Closes the engine and opens it again; NULL: the engine has no stored state. */
	void (*reopen)(void);
	const char *pool; /* pool whose nodes can be requested; NULL: none */
};

/* The core only knows the nodes and jobs; its decisions are not carried out. */
static struct suite {
	struct engine_world *world;
	struct sched_core *core;
	uint64_t job;        /* the newest job */
	uint64_t generation; /* the newest generation */
	int64_t now_ns;
	bool calling; /* a call of the engine is under way */
} suite;

/* ---- events ---- */

/* Makes a step of the core, and treats all of its rows as stored. */
static int suite_step(const struct core_event *event, uint64_t *job)
{
	struct core_event copy = *event;
	struct core_row row;
	int rv;

	copy.now_ns = ++suite.now_ns;
	rv = core_step(suite.core, &copy, job, NULL);
	while (rv == 0 && core_row_next(suite.core, &row, NULL) == 1) {
	}
	if (rv == 0) {
		core_rows_done(suite.core);
	}
	return rv;
}

static void suite_take_node(const struct core_event *event)
{
	int rv = suite_step(event, NULL);

	assert_true(rv == 0 || rv == PAWL_ENOENT); /* PAWL_ENOENT: the core has no such node */
}

static bool suite_is_of_node(enum core_event_kind kind)
{
	return kind == CORE_NODE_REPORTED || kind == CORE_NODE_NOTICE || kind == CORE_NODE_DRAIN ||
		kind == CORE_NODE_RESUME || kind == CORE_NODE_GONE;
}

/* Returns the next event; the core knows of its node when this returns. */
static const struct core_event *suite_next(int64_t wait_ms)
{
	const struct core_event *event = suite.world->next(wait_ms);

	assert_false(suite.calling); /* no event from within a call */
	if (event && suite_is_of_node(event->kind)) {
		suite_take_node(event);
	}
	return event;
}

/* Returns the next event. Fails if there is none; a world that did not wait the full time knows
 * that none will come. */
static const struct core_event *suite_must_next(const char *what)
{
	double wait_s = (double)suite.world->wait_ms / 1000;
	int64_t begun_ns = clock_mono_ns();
	const struct core_event *event = suite_next(suite.world->wait_ms);

	if (!event && clock_mono_ns() - begun_ns >= within_ns(wait_s)) {
		within_late(what, wait_s, __FILE__, __LINE__);
	}
	if (!event) {
		fail_msg("there is no %s", what);
	}
	return event;
}

/* Returns the next event of a kind and, if job is not 0, of that job. */
static const struct core_event *suite_wait(enum core_event_kind kind, uint64_t job)
{
	const struct core_event *event;
	char what[64];

	snprintf(what, sizeof(what), "event of kind %d, of job %llu", kind,
		(unsigned long long)job);
	do {
		event = suite_must_next(what);
	} while (event->kind != kind || (job != 0 && event->job != job));
	return event;
}

/* Waits until the job runs and does its deed. */
static void suite_runs(uint64_t job)
{
	suite_wait(CORE_RUNS, job);
	if (suite.world->await) {
		suite.world->await(job);
	}
}

static void suite_ends(uint64_t job, enum core_end_cause cause, int exit_code)
{
	const struct core_event *event = suite_wait(CORE_ENDED, job);

	assert_int_equal(event->end_cause, cause);
	if (cause == CORE_END_EXITED) {
		assert_int_equal(event->exit_code, exit_code);
	}
}

/* Expects no event of that kind for the job for a while. */
static void suite_silent(enum core_event_kind kind, uint64_t job, int64_t wait_ms)
{
	const struct core_event *event;

	while ((event = suite_next(wait_ms)) != NULL) {
		assert_false(event->kind == kind && event->job == job);
	}
}

/* ---- calls ---- */

static uint32_t suite_nodes(const struct core_node **nodes)
{
	static struct core_node up[SUITE_NODES];
	const struct core_node *all;
	uint32_t all_n = core_nodes(suite.core, &all);
	uint32_t n = 0;

	for (uint32_t i = 0; i < all_n && n < SUITE_NODES; i++) {
		if (all[i].state == CORE_NODE_UP) {
			up[n++] = all[i];
		}
	}
	*nodes = up;
	return n;
}

/* Starts the job with a replica on each of the first n nodes that are up. */
static void suite_start(uint64_t job, uint64_t generation, uint32_t n)
{
	struct core_placement_entry entries[SUITE_NODES];
	struct core_placement place = {.entries = entries, .n = n, .replicas = n};
	const struct core_node *nodes;

	assert_true(suite_nodes(&nodes) >= n);
	for (uint32_t i = 0; i < n; i++) {
		entries[i] = (struct core_placement_entry){.node = nodes[i].id, .replicas = 1};
	}
	suite.calling = true;
	suite.world->engine->start(suite.world->self, suite.core, job, generation, &place);
	suite.calling = false;
}

static void suite_stop(uint64_t job, uint64_t generation, int64_t grace_ns)
{
	suite.calling = true;
	suite.world->engine->stop(suite.world->self, job, generation, grace_ns);
	suite.calling = false;
}

/* Makes a new job with that deed, and does not start it. Returns its id. */
static uint64_t suite_job(enum deed deed)
{
	const struct core_request request = {.name = "job",
		.owner = (uint32_t)geteuid(),
		.least = 1,
		.most = SUITE_NODES,
		.grace_ns = SUITE_GRACE_NS};

	assert_int_equal(suite_step(&(struct core_event){.kind = CORE_SUBMIT, .request = &request},
				 &suite.job),
		0);
	suite.world->prepare(suite.job, deed);
	return suite.job;
}

/* Makes a new job with that deed, and runs it on n nodes. Returns its id. */
static uint64_t suite_running(enum deed deed, uint32_t n)
{
	uint64_t job = suite_job(deed);

	suite_start(job, ++suite.generation, n);
	suite_runs(job);
	return job;
}

static void suite_list(void)
{
	suite.calling = true;
	suite.world->engine->list(suite.world->self);
	suite.calling = false;
}

static void suite_open(struct engine_world *world)
{
	static const struct core_queue queue = {.name = "default", .weight = 1};
	static struct core_options options;
	struct pawl_err err = {0};

	suite = (struct suite){.world = world, .now_ns = 1000000000};
	options = (struct core_options){.queues = &queue,
		.queues_n = 1,
		.round_ns = 1000000000,
		.start_timeout_ns = 1000000000,
		.kill_interval_ns = 1000000000,
		.backoff_ns = 1000000000,
		.backoff_max_ns = 1000000000,
		.policy = &equal_policy};
	if (core_open(&suite.core, &options, &err) != 0) {
		fail_msg("%s", err.msg);
	}
}

static void suite_close(void)
{
	core_close(suite.core);
	suite.core = NULL;
}

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

/* A rescaled job goes on with more or fewer replicas, even if the engine was reopened meanwhile. */
static void suite_rescale_is_done_where_it_can_be(void **state)
{
	uint64_t before = suite.world->starts();
	uint64_t job;

	if (!suite.world->requested_size) {
		return;
	}
	job = suite_running(DEED_LASTS, 1);
	suite_rescale(job, ++suite.generation, 3);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	assert_int_equal(suite.world->requested_size(job), 3);
	suite_rescale(job, ++suite.generation, 2);
	if (suite.world->reopen) {
		suite.world->reopen();
		suite_list();
		suite_wait(CORE_LISTED, 0);
		suite_rescale(job, suite.generation, 2);
	}
	assert_int_equal(suite_answer(job), CORE_RUNS);
	assert_int_equal(suite.world->requested_size(job), 2);
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
	uint64_t job;

	suite_start(ended, ++suite.generation, 1);
	suite_ends(ended, CORE_END_EXITED, 0);
	job = suite_running(DEED_LASTS, 2);
	suite_check_list(job, suite.generation, ended);
	if (suite.world->reopen) {
		uint64_t before = suite.world->starts();

		suite.world->reopen();
		suite_check_list(job, suite.generation, ended);
		suite_start(job, suite.generation, 2); /* requested again, as after a crash */
		suite_wait(CORE_RUNS, job);
		assert_int_equal(suite.world->starts(), before);
	}
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

#define SUITE_TESTS                                                                                \
	cmocka_unit_test(suite_start_is_answered_again_and_done_once),                             \
		cmocka_unit_test(suite_stop_is_answered_again),                                    \
		cmocka_unit_test(suite_stop_of_nothing_is_an_end),                                 \
		cmocka_unit_test(suite_stop_blocks_starts),                                        \
		cmocka_unit_test(suite_stop_overtakes),                                            \
		cmocka_unit_test(suite_stop_of_an_old_one_ends_nothing),                           \
		cmocka_unit_test(suite_ends_by_itself),                                            \
		cmocka_unit_test(suite_jobs_ignoring_stop_are_killed),                             \
		cmocka_unit_test(suite_rescale_is_answered),                                       \
		cmocka_unit_test(suite_rescale_is_done_where_it_can_be),                           \
		cmocka_unit_test(suite_lists), cmocka_unit_test(suite_request_and_return_nodes)

#endif
