/* A core without an engine: the test reports what happened, and checks the updates. */
#ifndef TEST_SCHED_ONE_H
#define TEST_SCHED_ONE_H

#include "equal.h"
#include "sched/core/core.h"

#include "pawl/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define S_NS 1000000000LL

#define KEPT_MAX   64u
#define KEPT_BYTES 2048u

/* A record, as a database would have it. */
struct kept {
	enum core_row_kind kind;
	uint64_t id;
	size_t len_bytes;
	uint8_t bytes[KEPT_BYTES];
};

/* The core, and the clock of its caller. */
static struct {
	struct sched_core *core;
	struct core_options options;
	int64_t now_ns;
	struct pawl_err err;
	struct kept kept[KEPT_MAX]; /* records that are stored */
	uint32_t kept_n;
} t;

static const struct core_queue queues[] = {{.name = "main", .weight = 1},
	{.name = "small", .weight = 1, .slots_max = 3}};
static const struct core_pool pools[] = {{.name = "firm", .slots = 2, .price = 1, .most = 4},
	{.name = "spot", .slots = 2, .price = 0.3, .spot = true, .most = 2}};

static void begin_by(const struct sched_policy *policy, uint32_t pools_n, uint32_t owner_slots_max)
{
	core_close(t.core);
	memset(&t, 0, sizeof(t));
	t.now_ns = 1000 * S_NS;
	t.options = (struct core_options){.queues = queues,
		.queues_n = 2,
		.pools = pools,
		.pools_n = pools_n,
		.owner_slots_max = owner_slots_max,
		.round_ns = 60 * S_NS,
		.start_timeout_ns = 100 * S_NS,
		.kill_interval_ns = 5 * S_NS,
		.backoff_ns = S_NS,
		.backoff_max_ns = 60 * S_NS,
		.policy = policy};
	equal_wrong = EQUAL_RIGHT;
	assert_int_equal(core_open(&t.core, &t.options, &t.err), 0);
}

static void begin(uint32_t pools_n, uint32_t owner_slots_max)
{
	begin_by(&equal_policy, pools_n, owner_slots_max);
}

static void store(void)
{
	struct core_row row;

	while (core_row_next(t.core, &row, NULL) == 1) {
		bool over = row.gone || (row.job && row.job->state >= CORE_DONE);
		uint32_t i = 0;

		while (i < t.kept_n && (t.kept[i].kind != row.kind || t.kept[i].id != row.id)) {
			i++;
		}
		if (over) {
			t.kept[i] = i < t.kept_n ? t.kept[--t.kept_n] : t.kept[i];
			continue;
		}
		assert_true(i < KEPT_MAX && row.len_bytes <= KEPT_BYTES);
		t.kept_n += i == t.kept_n;
		t.kept[i].kind = row.kind;
		t.kept[i].id = row.id;
		t.kept[i].len_bytes = row.len_bytes;
		memcpy(t.kept[i].bytes, row.bytes, row.len_bytes);
	}
	core_rows_done(t.core);
}

static int step(struct core_event event)
{
	int rv;

	event.now_ns = t.now_ns;
	rv = core_step(t.core, &event, &event.job, &t.err);
	store();
	return rv;
}

static void pass(int64_t ns)
{
	t.now_ns += ns;
	assert_int_equal(step((struct core_event){.kind = CORE_TIMER}), 0);
}

static void add_node_of(const char *name, uint32_t slots, uint32_t type, const char *pool,
	bool spot)
{
	struct core_offer offer = {.slots = slots, .type = type, .price = 1, .spot = spot};

	snprintf(offer.name, sizeof(offer.name), "%s", name);
	snprintf(offer.pool, sizeof(offer.pool), "%s", pool);
	t.now_ns += S_NS; /* the core decides on each */
	assert_int_equal(step((struct core_event){.kind = CORE_NODE_REPORTED, .offer = &offer}), 0);
}

static void add_node(const char *name, uint32_t slots)
{
	add_node_of(name, slots, 0, "", false);
}

static uint64_t submit(struct core_request request)
{
	struct core_event event = {.kind = CORE_SUBMIT, .now_ns = t.now_ns, .request = &request};
	uint64_t id = 0;

	snprintf(request.name, sizeof(request.name), "job");
	request.grace_ns = 10 * S_NS;
	assert_int_equal(core_step(t.core, &event, &id, &t.err), 0);
	store();
	return id;
}

static const struct core_job *job(uint64_t id)
{
	const struct core_job *found = core_job_find(t.core, id);

	assert_non_null(found);
	return found;
}

static void is(uint64_t id, enum core_state state, uint32_t replicas)
{
	assert_string_equal(core_state_name(job(id)->state), core_state_name(state));
	assert_int_equal(job(id)->current.replicas, replicas);
}

static inline int job_event(enum core_event_kind kind, uint64_t id)
{
	return step(
		(struct core_event){.kind = kind, .job = id, .generation = job(id)->generation});
}

static inline void runs(uint64_t id)
{
	assert_int_equal(job_event(CORE_RUNS, id), 0);
}

static inline void ends(uint64_t id, enum core_end_cause cause, int exit_code)
{
	assert_int_equal(step((struct core_event){.kind = CORE_ENDED,
				 .job = id,
				 .generation = job(id)->generation,
				 .end_cause = cause,
				 .exit_code = exit_code}),
		0);
}

static inline int node_event(enum core_event_kind kind, const char *name, int64_t in_ns)
{
	return step(
		(struct core_event){.kind = kind, .node = name, .deadline_ns = t.now_ns + in_ns});
}

/* Returns the last step's update of a kind and, if id is not 0, of that job. */
static inline const struct core_update *update(enum core_update_kind kind, uint64_t id)
{
	uint32_t n;
	const struct core_update *u = core_updates(t.core, &n);

	for (uint32_t i = 0; i < n; i++) {
		if (u[i].kind == kind && (id == 0 || u[i].job == id)) {
			return &u[i];
		}
	}
	return NULL;
}

static inline bool explains(uint64_t id, const char *what)
{
	char text[CORE_TEXT_MAX];

	assert_int_equal(core_explain(t.core, id, t.now_ns, text, &t.err), 0);
	if (!strstr(text, what)) {
		print_error("no \"%s\" in: %s", what, text);
	}
	return strstr(text, what) != NULL;
}

/* Makes a cluster of one node, of two slots, on which the core has decided. */
static inline void begin_with_one_node(void)
{
	begin(0, 0);
	add_node("a", 2);
	pass(S_NS);
}

#endif
