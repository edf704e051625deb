/*
 * What the cases of test_sched_engine.h are written with: an engine's world, a core that knows the
 * nodes and jobs and decides nothing, the calls of the engine, and its events.
 */
#ifndef TEST_SCHED_SUITE_H
#define TEST_SCHED_SUITE_H

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
	DEED_ELASTIC,      /* as DEED_LASTS, and its replicas can change */
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
	void (*lose)(const char *node); /* loses a node; NULL: the engine loses none */
	/* Returns once a job that runs for the engine does its deed; NULL: it does so at once. */
	void (*await)(uint64_t job);
	/* Returns the replicas that a job on one node was last told to have; 0: none yet. */
	uint32_t (*requested_size)(uint64_t job);
	void (*reopen)(void); /* closes the engine and opens it again: the scheduler was killed */
	const char *pool;     /* pool whose nodes can be requested; NULL: none */
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

static void suite_start_at(uint64_t job, uint64_t generation, const struct core_placement *place)
{
	suite.calling = true;
	suite.world->engine->start(suite.world->self, suite.core, job, generation, place);
	suite.calling = false;
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
	suite_start_at(job, generation, &place);
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

#endif
