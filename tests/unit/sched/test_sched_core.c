/* The scheduler's core: which job gets what, by example. The test acts as the engine, and reports
 * what happened. */
#include "each_fault.h"
#include "test_sched_one.h"

#include "base/fault.h"
#include "sched/baseline/policies.h"

#include <math.h>

/* ---- the happy path ---- */

static void a_job_starts_runs_and_is_done(void **state)
{
	uint64_t id;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	id = submit((struct core_request){.least = 2, .most = 2});
	is(id, CORE_STARTING, 2);
	assert_int_equal(update(CORE_DO_START, id)->generation, 1);
	assert_int_equal(update(CORE_DO_START, id)->place->replicas, 2);
	runs(id);
	is(id, CORE_RUNNING, 2);
	ends(id, CORE_END_EXITED, 0);
	is(id, CORE_DONE, 0);
	pass(S_NS);
	assert_null(core_job_find(t.core, id));
	assert_int_equal(core_wake_ns(t.core), 0);
}

static void submission_starts_at_once_and_rounds_are_apart(void **state)
{
	uint32_t decided;

	begin(0, 0);
	add_node("a", 8);
	pass(S_NS);
	runs(submit((struct core_request){.least = 1, .most = 1}));
	pass(S_NS);
	decided = equal_decisions;
	for (uint32_t i = 0; i < 50; i++) {
		pass(S_NS);
	}
	assert_int_equal(equal_decisions, decided);
	pass(10 * S_NS);
	assert_int_equal(equal_decisions, decided + 1);
	t.now_ns += CORE_ROUND_MIN_NS / 2;
	submit((struct core_request){.least = 1,
		.most = 1}); /* urgent, but not before CORE_ROUND_MIN_NS */
	assert_int_equal(equal_decisions, decided + 1);
	assert_true(core_wake_ns(t.core) - t.now_ns <= CORE_ROUND_MIN_NS);
	pass(CORE_ROUND_MIN_NS);
	assert_int_equal(equal_decisions, decided + 2);
}

static void what_makes_no_sense_is_refused(void **state)
{
	uint64_t id = 7;
	struct core_request bad = {.least = 2, .most = 1};
	struct core_event event = {.kind = CORE_SUBMIT, .request = &bad};

	begin(0, 0);
	assert_int_equal(core_step(t.core, &event, &id, &t.err), PAWL_EINVAL);
	bad = (struct core_request){.least = 4, .most = 4, .queue = "small"};
	assert_int_equal(core_step(t.core, &event, &id, &t.err), PAWL_EINVAL);
	assert_non_null(strstr(t.err.msg, "queue small has only 3"));
	bad = (struct core_request){.least = 1, .most = 4, .queue = "none"};
	assert_int_equal(core_step(t.core, &event, &id, &t.err), PAWL_ENOENT);
	assert_int_equal(step((struct core_event){.kind = CORE_CANCEL, .job = 9}), PAWL_ENOENT);
	assert_int_equal(node_event(CORE_NODE_GONE, "x", 0), PAWL_ENOENT);
	assert_int_equal(step((struct core_event){.kind = CORE_ENDED, .job = 9}), 0);
	assert_int_equal(id, 7);
}

/* ---- who gets what ---- */

static void others_shrink_for_a_newcomer(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 4, .in_place = true});
	runs(a);
	is(a, CORE_RUNNING, 4);
	pass(S_NS);
	b = submit((struct core_request){.least = 2, .most = 4});
	is(a, CORE_RESCALING, 2); /* in place; b waits until it is done */
	is(b, CORE_QUEUED, 0);
	assert_int_equal(update(CORE_DO_RESCALE, a)->generation, 2);
	assert_true(explains(b, "until other jobs release their slots"));
	runs(a);
	is(b, CORE_STARTING, 2);
	is(a, CORE_RUNNING, 2);
}

static void a_script_is_rescaled_by_restarting(void **state)
{
	uint64_t a;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 4});
	runs(a);
	pass(S_NS);
	submit((struct core_request){.least = 2, .most = 2});
	is(a, CORE_STOPPING, 4);
	assert_int_equal(update(CORE_DO_STOP, a)->grace_ns, 10 * S_NS);
	ends(a, CORE_END_STOPPED, 143);
	is(a, CORE_STARTING, 2);
	assert_int_equal(job(a)->generation, 2);
	assert_int_equal(job(a)->restarts, 1);
}

static void a_refused_rescale_becomes_a_restart(void **state)
{
	uint64_t a;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 4, .in_place = true});
	runs(a);
	pass(S_NS);
	submit((struct core_request){.least = 2, .most = 2});
	is(a, CORE_RESCALING, 2);
	job_event(CORE_REFUSED, a);
	is(a, CORE_STOPPING, 2);
	assert_int_equal(job(a)->old.replicas, 4); /* the job may still have them */
	ends(a, CORE_END_STOPPED, 143);
	is(a, CORE_STARTING, 2);
}

/* The scripted decision for two jobs: their replicas on a node. */
static struct {
	uint32_t node, replicas;
} script[2];

static int decide_by_script(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		grants[j].replicas = script[j].replicas;
		for (uint32_t r = 0; r < script[j].replicas; r++) {
			grants[j].nodes[r] = script[j].node;
		}
	}
	return 0;
}

static const struct sched_policy scripted = {.name = "scripted", .decide = decide_by_script};

/* Two jobs exchange places on two nodes of 4 slots. Returns how many were stopped for it. */
static uint32_t change_places(uint32_t before, uint32_t after, bool here)
{
	uint32_t stopped = 0;
	uint64_t ids[2];

	begin_by(&scripted, 0, 0);
	add_node("a", 4);
	add_node("b", 4);
	for (uint32_t j = 0; j < 2; j++) {
		script[j].node = j;
		script[j].replicas = before;
		pass(S_NS);
		ids[j] = submit((struct core_request){.least = 1, .most = 4, .in_place = here});
		runs(ids[j]);
	}
	for (uint32_t j = 0; j < 2; j++) {
		script[j].node = 1 - j;
		script[j].replicas = after + j;
	}
	pass(60 * S_NS);
	for (uint32_t turn = 0; turn < 20; turn++) {
		for (uint32_t j = 0; j < 2; j++) {
			if (job(ids[j])->state == CORE_STOPPING) {
				stopped++;
				ends(ids[j], CORE_END_STOPPED, 143);
			} else if (job(ids[j])->state != CORE_RUNNING) {
				runs(ids[j]);
			}
		}
		pass(S_NS);
	}
	for (uint32_t j = 0; j < 2; j++) {
		is(ids[j], CORE_RUNNING, after + j);
		assert_int_equal(job(ids[j])->current.n, 1);
		assert_string_equal(
			core_node_find(t.core, job(ids[j])->current.entries[0].node)->offer.name,
			j == 0 ? "b" : "a");
	}
	return stopped;
}

static void jobs_that_wait_for_each_other_go_step_by_step_or_one_stops(void **state)
{
	for (uint32_t before = 1; before <= 4; before++) {
		for (uint32_t after = 1; after <= 3; after++) {
			assert_int_equal(change_places(before, after, true), 0);
		}
	}
	assert_true(change_places(4, 3, false) > 0);
}

static void priority_pauses_who_has_less(void **state)
{
	uint64_t a;
	uint64_t b;

	begin_with_one_node();
	a = submit((struct core_request){.least = 2, .most = 2});
	runs(a);
	pass(S_NS);
	b = submit((struct core_request){.least = 1, .most = 1, .priority = 5});
	is(a, CORE_STOPPING, 2);
	ends(a, CORE_END_STOPPED, 143);
	is(b, CORE_STARTING, 1);
	is(a, CORE_QUEUED, 0);
	pass(S_NS);
	assert_true(explains(a, "priority of job 2 job, 5 against 0"));
}

static void equals_wait_their_turn(void **state)
{
	uint64_t a;
	uint64_t b;

	begin_with_one_node();
	a = submit((struct core_request){.least = 2, .most = 2});
	runs(a);
	pass(S_NS);
	b = submit((struct core_request){.least = 2, .most = 2});
	is(b, CORE_QUEUED, 0);
	is(a, CORE_RUNNING, 2);
	assert_true(explains(b, "no slots are free"));
	pass(CORE_TURN_NS); /* a turn ends */
	is(a, CORE_STOPPING, 2);
	ends(a, CORE_END_STOPPED, 143);
	is(b, CORE_STARTING, 2);
}

static void who_is_pinned_stays(void **state)
{
	uint64_t a;
	uint64_t b;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2, .pinned = true});
	runs(a);
	pass(S_NS);
	b = submit((struct core_request){.least = 1, .most = 2, .priority = 9});
	pass(2 * CORE_TURN_NS);
	is(a, CORE_RUNNING, 2);
	is(b, CORE_QUEUED, 0);
	assert_int_equal(node_event(CORE_NODE_DRAIN, "a", 0), 0);
	pass(CORE_ROUND_MIN_NS);
	is(a, CORE_RUNNING, 2); /* the job may end there */
	assert_int_equal(node_event(CORE_NODE_NOTICE, "a", 5 * S_NS), 0);
	pass(CORE_ROUND_MIN_NS);
	is(a, CORE_STOPPING, 2);
	assert_int_equal(update(CORE_DO_STOP, a)->grace_ns, 5 * S_NS - CORE_ROUND_MIN_NS);
}

static void quotas_hold(void **state)
{
	uint64_t a;
	uint64_t b;
	uint64_t c;

	begin(0, 5);
	add_node("a", 16);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 8, .queue = "small", .owner = 1});
	is(a, CORE_STARTING, 3);
	runs(a);
	assert_true(explains(a, "quota of queue small, 3 slots"));
	pass(S_NS);
	b = submit((struct core_request){.least = 2, .most = 8, .owner = 1});
	is(b, CORE_STARTING, 2); /* two of the user's five slots are left */
	runs(b);
	assert_true(explains(b, "quota of user 1, 5 slots"));
	pass(S_NS);
	c = submit((struct core_request){.least = 3, .most = 8, .queue = "small", .owner = 2});
	is(c, CORE_QUEUED, 0);
	assert_true(explains(c, "quota of queue small"));
	assert_int_equal(job_event(CORE_CANCEL, a), 0);
	pass(61 * S_NS);
	is(c, CORE_QUEUED, 0); /* a still has them */
	ends(a, CORE_END_STOPPED, 143);
	pass(S_NS);
	is(c, CORE_STARTING, 3);
}

/* ---- a policy that is wrong ---- */

static void a_wrong_answer_is_never_carried_out(void **state)
{
	static const char *const expected[] = {"", "slots that do not exist",
		"fewer replicas than its least", "more replicas than its most",
		"a node that does not exist", "though it is pinned", "", "no memory"};
	uint64_t refused;

	for (uint32_t wrong = EQUAL_TOO_MANY; wrong <= EQUAL_NO_MEMORY; wrong++) {
		uint64_t a;
		uint64_t b;

		begin(0, 0);
		add_node("a", 2);
		add_node("b", 2);
		pass(S_NS);
		a = submit((struct core_request){.least = 1, .most = 1, .pinned = true});
		runs(a);
		pass(S_NS);
		equal_wrong = wrong;
		b = submit((struct core_request){.least = 2, .most = 3});
		core_decisions(t.core, &refused);
		if (wrong == EQUAL_FORGETS) {
			is(b, CORE_STARTING, 2); /* the core gives it its least */
			assert_int_equal(refused, 0);
			continue;
		}
		is(b, CORE_QUEUED, 0);
		is(a, CORE_RUNNING, 1);
		assert_int_equal(refused, 1);
		assert_non_null(strstr(update(CORE_DO_LOG, 0)->text, expected[wrong]));
		equal_wrong = EQUAL_RIGHT;
		pass(61 * S_NS);
		is(b, CORE_STARTING, 3);
	}
}

/* ---- pools ---- */

static void spot_comes_first_and_others_stand_in(void **state)
{
	uint64_t a;

	begin(2, 0);
	pass(S_NS);
	a = submit((struct core_request){.least = 4, .most = 4, .spot_most = 4});
	pass(S_NS);
	is(a, CORE_QUEUED, 0);
	assert_int_equal(core_pool_requested(t.core, 1), 2);
	assert_int_equal(core_pool_requested(t.core, 0), 0);
	add_node_of("s1", 2, 0, "spot", true);
	assert_int_equal(core_pool_requested(t.core, 1), 1);
	assert_int_equal(step((struct core_event){.kind = CORE_POOL_EXHAUSTED, .pool = "spot"}), 0);
	pass(S_NS);
	assert_int_equal(core_pool_requested(t.core, 0), 1);
	add_node_of("f1", 2, 0, "firm", false);
	pass(S_NS);
	is(a, CORE_STARTING, 4);
	runs(a);
	pass(CORE_POOL_RETRY_NS);
	assert_int_equal(core_pool_requested(t.core, 1), 1); /* the pool spot is tried again */
	assert_int_equal(update(CORE_DO_REQUEST_NODES, 0)->pool, 1);
	for (uint32_t i = 0; i < 8; i++) {
		pass(61 * S_NS); /* the replacement stays until the spot node has come */
	}
	assert_int_equal(core_node_find(t.core, 2)->state, CORE_NODE_UP);
	add_node_of("s2", 2, 0, "spot", true);
	for (uint32_t i = 0; i < 8; i++) {
		pass(61 * S_NS);
	}
	is(a, CORE_STOPPING, 4); /* the replacement is returned */
	ends(a, CORE_END_STOPPED, 143);
	is(a, CORE_STARTING, 4);
	runs(a);
	pass(61 * S_NS);
	assert_int_equal(update(CORE_DO_RETURN_NODE, 0)->node, 2);
	assert_int_equal(node_event(CORE_NODE_GONE, "f1", 0), 0);
	assert_null(core_node_find(t.core, 2));
	is(a, CORE_RUNNING, 4);
}

static void idle_nodes_are_given_back(void **state)
{
	uint64_t a;

	begin(1, 0);
	pass(S_NS);
	a = submit((struct core_request){.least = 2, .most = 2});
	pass(S_NS);
	add_node_of("f1", 2, 0, "firm", false);
	pass(S_NS);
	runs(a);
	ends(a, CORE_END_EXITED, 0);
	pass(61 * S_NS);
	assert_null(update(CORE_DO_RETURN_NODE, 0));
	pass(CORE_IDLE_NS);
	pass(61 * S_NS);
	assert_int_equal(update(CORE_DO_RETURN_NODE, 0)->node, 1);
	assert_int_equal(node_event(CORE_NODE_DRAIN, "f1", 0), 0);
	assert_int_equal(node_event(CORE_NODE_RESUME, "f1", 0), 0);
	pass(61 * S_NS);
	/* No event says that the node is gone. */
	assert_int_equal(update(CORE_DO_RETURN_NODE, 0)->node, 1);
	add_node_of("f1", 1, 0, "firm", false); /* another node of that name */
	assert_int_equal(core_node_find(t.core, 1)->state, CORE_NODE_UP);
	assert_int_equal(node_event(CORE_NODE_NOTICE, "f1", t.now_ns + S_NS), 0);
	assert_int_equal(core_node_find(t.core, 1)->state, CORE_NODE_GOING);
}

static void begin_with_pools(const struct core_pool *own, uint32_t n)
{
	begin(1, 0);
	core_close(t.core);
	t.options.pools = own;
	t.options.pools_n = n;
	assert_int_equal(core_open(&t.core, &t.options, &t.err), 0);
	pass(S_NS);
}

/* Surplus nodes of a pool are of no use for a job that may not be on them. */
static void each_type_of_nodes_is_asked_for(void **state)
{
	static const struct core_pool two[] = {
		{.name = "big", .type = 1, .slots = 8, .price = 1, .least = 1, .most = 4},
		{.name = "other", .type = 2, .slots = 2, .price = 9, .most = 4}};

	begin_with_pools(two, 2);
	assert_int_equal(core_pool_requested(t.core, 0), 1);
	submit((struct core_request){.least = 9, .most = 9, .types = 1u << 1});
	submit((struct core_request){.least = 3, .most = 3, .types = 1u << 2});
	pass(S_NS);
	assert_int_equal(core_pool_requested(t.core, 0), 2);
	assert_int_equal(core_pool_requested(t.core, 1), 2);
}

/* However long a node and its replacement are awaited, jobs that wait keep no nodes of a third pool
 * on which they may not be. */
static void one_who_waits_keeps_nobody_elses_nodes(void **state)
{
	static const struct core_pool three[] = {
		{.name = "spot", .type = 1, .slots = 2, .price = 1, .spot = true, .most = 4},
		{.name = "firm", .type = 1, .slots = 2, .price = 3, .most = 4},
		{.name = "other", .type = 2, .slots = 2, .price = 9, .most = 4}};
	uint64_t a;

	begin_with_pools(three, 3);
	a = submit((struct core_request){.least = 2, .most = 2, .types = 1u << 2});
	submit((struct core_request){.least = 2, .most = 2, .spot_most = 2, .types = 1u << 1});
	pass(S_NS);
	add_node_of("o1", 2, 2, "other", false);
	assert_int_equal(step((struct core_event){.kind = CORE_POOL_EXHAUSTED, .pool = "firm"}), 0);
	pass(S_NS); /* from now on nodes of both pools are awaited in turn */
	runs(a);
	for (uint32_t i = 0; i < 30; i++) {
		pass(61 * S_NS);
	}
	is(a, CORE_RUNNING, 2);
	ends(a, CORE_END_EXITED, 0);
	for (uint32_t i = 0; i < 7; i++) {
		pass(61 * S_NS);
	}
	assert_non_null(update(CORE_DO_RETURN_NODE, 0));
	assert_int_equal(update(CORE_DO_RETURN_NODE, 0)->node, 1);
}

/* The scheduler may die after a request is stored and before the engine carries it out. */
static void what_was_asked_for_is_asked_for_again(void **state)
{
	const struct core_event submitted = {.kind = CORE_SUBMIT,
		.now_ns = 2000 * S_NS,
		.request = &(const struct core_request){.name = "job", .least = 3, .most = 3}};
	struct core_row rows[8];
	uint32_t n = 0;
	uint64_t id;

	begin(1, 0);
	assert_int_equal(core_step(t.core, &submitted, &id, &t.err), 0);
	while (core_row_next(t.core, &rows[n], NULL) == 1) {
		uint8_t *bytes = malloc(rows[n].len_bytes + 1);

		assert_non_null(bytes);
		memcpy(bytes, rows[n].bytes, rows[n].len_bytes);
		rows[n++].bytes = bytes;
	}
	core_rows_done(t.core);
	assert_int_equal(core_pool_requested(t.core, 0), 2);
	core_close(t.core);
	assert_int_equal(core_restore(&t.core, &t.options, rows, n, t.now_ns, &t.err), 0);
	while (n > 0) {
		free((uint8_t *)(uintptr_t)rows[--n].bytes);
	}
	store();
	t.now_ns = 2000 * S_NS;
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED}), 0);
	assert_int_equal(update(CORE_DO_REQUEST_NODES, 0)->count, 2);
	t.now_ns += CORE_LIST_NS;
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED}), 0);
	assert_null(update(CORE_DO_REQUEST_NODES, 0)); /* the engine received it this time */
}

/* ---- hints and explanations ---- */

static struct sched_hints good_hints(void)
{
	return (struct sched_hints){.fitted = true,
		.perf = {.alpha_c = 0.05,
			.beta_c = 0.002,
			.alpha_r = 0.01,
			.beta_r = 0.001,
			.alpha_n = 0.05,
			.beta_n = 0.002,
			.gamma = 2},
		.noise = {.sqr = 1, .var = 20},
		.bounds = {.init = 64,
			.max = 1024,
			.atomic_min = 8,
			.atomic_max = 256,
			.accumulate = true},
		.progress = 1000,
		.progress_end = 5000};
}

static void goodput_is_explained_as_it_is(void **state)
{
	struct sched_hints hints = good_hints();
	struct pawl_placement place = {.nodes = 1, .replicas = 3};
	struct pawl_batch batch;
	double goodput;
	char line[64];
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 4});
	runs(a);
	assert_true(explains(a, "goodput: not known: it has reported no hints"));
	assert_int_equal(step((struct core_event){.kind = CORE_HINTS, .job = a, .hints = &hints}),
		0);
	assert_true(explains(a, "no slots are free; other jobs make better use of theirs"));
	for (place.replicas = 1; place.replicas <= 3; place.replicas++) {
		static const char *const what[] = {"", "with one fewer",
			"samples/s with 2 replicas", "with one more"};

		assert_true(pawl_batch_choose(&hints.perf, &hints.noise, &hints.bounds, &place,
			&batch, &goodput));
		snprintf(line, sizeof(line), "goodput: %.6g %s", goodput, what[place.replicas]);
		assert_true(explains(a, line));
		if (place.replicas == 2) {
			snprintf(line, sizeof(line), "ends: in %.0f s", 4000 * 64 / goodput);
			assert_true(explains(a, line));
		}
	}
}

/* The work left of a job follows its newest hints, even if earlier ones are for nodes of another
 * type. */
static void work_left_is_by_the_newest_hints(void **state)
{
	struct sched_hints then = good_hints();
	struct sched_hints now = good_hints();
	struct core_job job = {.hints = {&then, NULL, &now}};
	struct pawl_placement place = {.nodes = 1, .replicas = 1};

	now.progress = 4000;
	assert_true(core_left_s(&job, 64) == 1000);
	now.fitted = false;
	assert_true(core_left_s(&job, 64) == 1000);
	assert_true(core_goodput(&job, 2, &place) == core_goodput(&job, 0, &place));
	job.hints[0] = NULL;
	now.fitted = true;
	assert_true(core_goodput(&job, 0, &place) > 0);
	assert_true(core_goodput(&job, 0, &place) == core_goodput(&job, 2, &place));
}

/* Nodes are requested by a job's hints about the nodes that it may be on. */
static void hints_of_another_type_get_nodes_of_it(void **state)
{
	static const struct core_pool two[] = {{.name = "a", .slots = 8, .price = 1, .most = 4},
		{.name = "h", .type = 1, .slots = 8, .price = 1, .most = 4}};
	struct sched_hints hints = good_hints();
	uint64_t job;

	begin_with_pools(two, 2);
	job = submit((struct core_request){.least = 1, .most = 32, .types = 1u << 1});
	pass(S_NS);
	assert_int_equal(core_pool_requested(t.core, 1), 1);
	add_node_of("h1", 8, 1, "h", false);
	pass(S_NS);
	runs(job);
	hints.perf.alpha_r = hints.perf.beta_r = hints.perf.alpha_n = hints.perf.beta_n = 1e-4;
	hints.noise.var = 1e6;
	hints.bounds.max = 65536;
	assert_int_equal(step((struct core_event){.kind = CORE_HINTS,
				 .job = job,
				 .type = 1,
				 .hints = &hints}),
		0);
	pass(61 * S_NS);
	assert_int_equal(core_pool_requested(t.core, 0), 0);
	assert_int_equal(core_pool_requested(t.core, 1), 3);
}

/* Otherwise a short job would be over before its first hints are used. */
static void what_hints_have_for_the_first_time_is_decided_on_at_once(void **state)
{
	struct sched_hints hints = good_hints();
	struct core_event event = {.kind = CORE_HINTS, .hints = &hints};
	uint64_t before;
	uint64_t refused;

	begin_with_one_node();
	event.job = submit((struct core_request){.least = 1, .most = 4});
	runs(event.job);
	for (uint32_t turn = 0; turn < 3; turn++) {
		static const uint32_t profiled[] = {1, 1, 3};

		pass(CORE_ROUND_MIN_NS);
		before = core_decisions(t.core, &refused);
		hints.replicas_profiled = profiled[turn];
		assert_int_equal(step(event), 0);
		assert_int_equal(core_decisions(t.core, &refused), before + (turn != 1));
	}
}

static void hints_that_are_none_are_refused(void **state)
{
	static const double bad[] = {-1, 1e300};
	uint64_t a;

	begin(0, 0);
	a = submit((struct core_request){.least = 1, .most = 4});
	for (uint32_t i = 0; i < 13; i++) {
		struct sched_hints hints = good_hints();
		double *const figures[] = {&hints.perf.alpha_c, &hints.perf.beta_c,
			&hints.perf.alpha_r, &hints.perf.beta_r, &hints.perf.alpha_n,
			&hints.perf.beta_n, &hints.perf.delta_n, &hints.perf.gamma,
			&hints.noise.sqr, &hints.noise.var, &hints.progress, &hints.progress_end};

		for (uint32_t b = 0; b < 3; b++) {
			if (i < 12) {
				*figures[i] = b < 2 ? bad[b] : NAN;
			} else {
				hints.bounds.max = 1;
			}
			assert_int_equal(step((struct core_event){.kind = CORE_HINTS,
						 .job = a,
						 .hints = &hints}),
				PAWL_EINVAL);
		}
	}
	assert_null(job(a)->hints[0]);
	assert_true(explains(a, "all nodes that it may be on have fewer"));
}

/* Each policy decides here, also those without memory. */
static void each_policy_decides_here_as_well(void **state)
{
	const struct sched_policy_entry *entry;
	uint64_t refused;

	for (uint32_t i = 0; (entry = sched_policy_row(i)); i++) {
		uint64_t a;
		uint64_t b;

		if (entry->needs_oracle) {
			continue;
		}
		begin(0, 0);
		core_close(t.core);
		t.options.policy = entry->policy;
		assert_int_equal(core_open(&t.core, &t.options, &t.err), 0);
		add_node("a", 4);
		pass(S_NS);
		a = submit((struct core_request){.least = 1, .most = 4, .in_place = true});
		b = submit((struct core_request){.least = 2, .most = 2});
		pass(S_NS);
		assert_true(job(a)->current.replicas >= 1);
		pass(60 * S_NS);
		assert_true(job(b)->want.replicas == 2);
		core_decisions(t.core, &refused);
		assert_int_equal(refused, 0);
		if (entry->policy == &sched_pawl) { /* small clusters are solved exactly */
			assert_true(core_gap(t.core) == 0);
			assert_true(explains(a, "decision: at most 0 % over the least cost"));
		} else {
			assert_true(isnan(core_gap(t.core)));
			assert_false(explains(a, "decision:"));
		}
	}
}

/* ---- memory ---- */

static void no_memory_means_that_nothing_has_happened(void **state)
{
	struct core_request request = {.least = 1, .most = 3};
	struct core_event event = {.kind = CORE_SUBMIT, .request = &request};
	struct core_offer offer = {.name = "b", .slots = 100};
	struct core_event comes = {.kind = CORE_NODE_REPORTED, .offer = &offer};
	const struct core_job *const *jobs;
	const struct core_node *nodes;
	uint64_t id = 0;
	int rv;

	for (uint64_t n = 1; each_fault(n); n++) {
		struct core_options options;

		begin(0, 0);
		options = t.options;
		core_close(t.core);
		t.core = NULL;
		fault_arm("sched.core", n, ENOMEM, false);
		rv = core_open(&t.core, &options, &t.err);
		if (rv == 0) {
			rv = core_step(t.core, &comes, NULL, &t.err);
			assert_int_equal(core_nodes(t.core, &nodes), rv == 0 ? 1 : 0);
		}
		if (rv == 0) {
			core_rows_done(t.core);
			rv = core_step(t.core, &event, &id, &t.err);
			assert_int_equal(core_jobs(t.core, &jobs), rv == 0 ? 1 : 0);
		}
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(n)));
		if (rv != 0 && t.core) { /* The core keeps working. */
			core_rows_done(t.core);
			assert_int_equal(core_step(t.core, &comes, NULL, &t.err), 0);
			core_rows_done(t.core);
			assert_int_equal(core_step(t.core, &event, &id, &t.err), 0);
			core_rows_done(t.core);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_starts_runs_and_is_done),
		cmocka_unit_test(each_policy_decides_here_as_well),
		cmocka_unit_test(submission_starts_at_once_and_rounds_are_apart),
		cmocka_unit_test(what_makes_no_sense_is_refused),
		cmocka_unit_test(others_shrink_for_a_newcomer),
		cmocka_unit_test(a_script_is_rescaled_by_restarting),
		cmocka_unit_test(a_refused_rescale_becomes_a_restart),
		cmocka_unit_test(jobs_that_wait_for_each_other_go_step_by_step_or_one_stops),
		cmocka_unit_test(priority_pauses_who_has_less),
		cmocka_unit_test(equals_wait_their_turn),
		cmocka_unit_test(who_is_pinned_stays),
		cmocka_unit_test(quotas_hold),
		cmocka_unit_test(a_wrong_answer_is_never_carried_out),
		cmocka_unit_test(spot_comes_first_and_others_stand_in),
		cmocka_unit_test(idle_nodes_are_given_back),
		cmocka_unit_test(each_type_of_nodes_is_asked_for),
		cmocka_unit_test(one_who_waits_keeps_nobody_elses_nodes),
		cmocka_unit_test(what_was_asked_for_is_asked_for_again),
		cmocka_unit_test(goodput_is_explained_as_it_is),
		cmocka_unit_test(work_left_is_by_the_newest_hints),
		cmocka_unit_test(hints_of_another_type_get_nodes_of_it),
		cmocka_unit_test(what_hints_have_for_the_first_time_is_decided_on_at_once),
		cmocka_unit_test(hints_that_are_none_are_refused),
		cmocka_unit_test(no_memory_means_that_nothing_has_happened),
	};
	int rv = cmocka_run_group_tests(tests, NULL, NULL);

	core_close(t.core);
	return rv;
}
