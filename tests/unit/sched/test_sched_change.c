/* The scheduler's core: nodes that come with fewer slots than before, and jobs whose bounds and
 * priority change, by example. The test acts as the engine. */
#include "test_sched_one.h"

#include "base/fault.h"

/* ---- nodes with fewer slots ---- */

static void report(const char *name, uint32_t slots)
{
	struct core_offer offer = {.slots = slots, .price = 1};

	snprintf(offer.name, sizeof(offer.name), "%s", name);
	assert_int_equal(step((struct core_event){.kind = CORE_NODE_REPORTED, .offer = &offer}), 0);
}

/* Starts a job and lets it run. */
static uint64_t run(struct core_request request)
{
	uint64_t id = submit(request);

	runs(id);
	pass(S_NS);
	is(id, CORE_RUNNING, request.most);
	return id;
}

static void a_smaller_node_keeps_what_fits(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node("a", 8);
	pass(S_NS);
	a = run((struct core_request){.least = 2, .most = 2});
	b = run((struct core_request){.least = 2, .most = 2});
	report("a", 4);
	is(a, CORE_RUNNING, 2);
	is(b, CORE_RUNNING, 2);
	report("a", 8);
	assert_int_equal(job(a)->generation, 1);
	assert_int_equal(job(b)->generation, 1);
}

/* First the lower priority, then the one that was started last, and no more than needed. */
static void a_smaller_node_loses_the_least_and_the_last(void **state)
{
	uint64_t first;
	uint64_t low;
	uint64_t last;

	begin(0, 0);
	add_node("a", 6);
	pass(S_NS);
	first = run((struct core_request){.least = 2, .most = 2});
	low = run((struct core_request){.least = 2, .most = 2, .priority = -1});
	last = run((struct core_request){.least = 2, .most = 2});
	report("a", 5);
	is(low, CORE_STOPPING, 1); /* has one of two slots until it has ended */
	assert_int_equal(update(CORE_DO_STOP, low)->grace_ns, 10 * S_NS);
	assert_int_equal(job(low)->reason, CORE_WHY_FEWER_SLOTS);
	is(first, CORE_RUNNING, 2);
	is(last, CORE_RUNNING, 2);
	report("a", 3); /* what stops anyway comes first */
	is(low, CORE_STOPPING, 0);
	is(last, CORE_STOPPING, 1);
	is(first, CORE_RUNNING, 2);
	ends(low, CORE_END_STOPPED, 143);
	ends(last, CORE_END_STOPPED, 143);
	pass(S_NS);
	is(last, CORE_QUEUED, 0);
	assert_int_equal(job(last)->failures, 0);
	report("a", 4);
	pass(S_NS);
	is(last, CORE_STARTING, 2);
}

/* An elastic job gives up what it has above its least, before another one is stopped; a pinned job
 * is the last to lose. */
static void a_smaller_node_shrinks_before_it_stops(void **state)
{
	uint64_t script;
	uint64_t elastic;
	uint64_t pinned;

	begin(0, 0);
	add_node("a", 7);
	pass(S_NS);
	script = run((struct core_request){.least = 2, .most = 2, .priority = -5});
	elastic =
		run((struct core_request){.least = 1, .most = 3, .priority = 5, .in_place = true});
	pinned = run((struct core_request){.least = 2, .most = 2, .priority = -9, .pinned = true});
	report("a", 5);
	is(elastic, CORE_RESCALING, 1);
	assert_int_equal(update(CORE_DO_RESCALE, elastic)->place->replicas, 1);
	is(script, CORE_RUNNING, 2);
	runs(elastic);
	report("a", 3);
	is(script, CORE_STOPPING, 0);
	report("a", 2);
	is(elastic, CORE_STOPPING, 0);
	is(pinned, CORE_RUNNING, 2);
	report("a", 1);
	is(pinned, CORE_STOPPING, 1);
}

/* Slots that a rescale is about to free are the first to go. */
static void a_smaller_node_waits_for_what_leaves_it(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	a = run((struct core_request){.least = 1, .most = 4, .in_place = true});
	b = submit((struct core_request){.least = 2, .most = 2});
	is(a, CORE_RESCALING, 2);
	report("a", 2);
	is(a, CORE_RESCALING, 2);
	assert_int_equal(job(a)->old.replicas, 2);
	assert_null(update(CORE_DO_STOP, a));
	runs(a);
	pass(S_NS);
	is(b, CORE_QUEUED, 0); /* least 1 of a, and 2: one too many */
}

static void a_start_on_a_smaller_node_is_stopped(void **state)
{
	uint64_t a;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 4, .in_place = true});
	is(a, CORE_STARTING, 4);
	report("a", 1);
	is(a, CORE_STOPPING, 1);
	ends(a, CORE_END_STOPPED, 143);
	pass(S_NS);
	is(a, CORE_STARTING, 1);
	report("a", 1); /* a repetition changes nothing */
	is(a, CORE_STARTING, 1);
}

/* ---- bounds and priority that change ---- */

static int change(uint64_t id, uint32_t least, uint32_t most, int32_t priority)
{
	return step((struct core_event){.kind = CORE_CHANGE,
		.job = id,
		.change = {least, most, priority}});
}

static void a_running_job_takes_its_new_most(void **state)
{
	uint64_t a;

	begin(0, 0);
	add_node("a", 8);
	pass(S_NS);
	a = run((struct core_request){.least = 1, .most = 4, .in_place = true});
	assert_int_equal(change(a, 1, 8, 0), 0);
	is(a, CORE_RESCALING, 8); /* at once, and with room for more than it was submitted with */
	runs(a);
	pass(S_NS);
	assert_int_equal(change(a, 2, 3, 0), 0);
	is(a, CORE_RESCALING, 3);
	assert_int_equal(update(CORE_DO_RESCALE, a)->generation, 3);
	runs(a);
	pass(S_NS);
	assert_true(explains(a, "its own maximum, 3 replicas"));
	assert_int_equal(change(a, 2, 3, 0), 0); /* a repetition changes nothing */
	is(a, CORE_RUNNING, 3);
	assert_int_equal(job(a)->generation, 3);
}

/* A script restarts; so does a pinned one, whose user asks for it. */
static void a_script_restarts_with_its_new_bounds(void **state)
{
	for (uint32_t pinned = 0; pinned < 2; pinned++) {
		uint64_t a;

		begin(0, 0);
		add_node("a", 8);
		pass(S_NS);
		a = run((struct core_request){.least = 2, .most = 4, .pinned = pinned == 1});
		assert_int_equal(change(a, 1, 2, 0), 0);
		is(a, CORE_STOPPING, 4);
		assert_int_equal(update(CORE_DO_STOP, a)->grace_ns, 10 * S_NS);
		ends(a, CORE_END_STOPPED, 143);
		pass(S_NS);
		is(a, CORE_STARTING, 2);
		runs(a);
		pass(S_NS);
		assert_int_equal(change(a, 5, 6, 0), 0);
		is(a, CORE_STOPPING, 2);
		ends(a, CORE_END_STOPPED, 143);
		pass(S_NS);
		is(a, CORE_STARTING, 6);
	}
}

/* A job with fewer than its new least waits for what others give up, or is queued. */
static void a_job_below_its_new_least_gets_more_or_waits(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	a = run((struct core_request){.least = 1, .most = 2, .in_place = true});
	b = run((struct core_request){.least = 1, .most = 2, .in_place = true});
	assert_int_equal(change(a, 3, 3, 0), 0);
	is(a, CORE_RUNNING, 2); /* goes on until b has given a replica up */
	is(b, CORE_RESCALING, 1);
	runs(b);
	is(a, CORE_RESCALING, 3);
	runs(a);
	pass(S_NS);
	assert_int_equal(change(a, 5, 5, 0), 0);
	is(a, CORE_STOPPING, 3);
	ends(a, CORE_END_STOPPED, 143);
	pass(S_NS);
	is(a, CORE_QUEUED, 0);
	assert_true(explains(a, "it needs 5 slots together"));
	assert_int_equal(change(a, 1, 5, 0), 0);
	pass(S_NS);
	is(a, CORE_STARTING, 2);
}

static void a_queued_or_paused_job_changes(void **state)
{
	uint64_t a;
	uint64_t b;

	begin_with_one_node();
	a = run((struct core_request){.least = 2, .most = 2});
	b = submit((struct core_request){.least = 2, .most = 2});
	pass(S_NS);
	is(b, CORE_QUEUED, 0);
	assert_int_equal(change(b, 2, 2, 5), 0);
	is(a, CORE_STOPPING, 2); /* the other one has a higher priority now */
	ends(a, CORE_END_STOPPED, 143);
	is(b, CORE_STARTING, 2);
	assert_int_equal(job_event(CORE_PAUSE, a), 0);
	is(a, CORE_PAUSED, 0);
	assert_int_equal(change(a, 1, 1, 9), 0);
	is(a, CORE_PAUSED, 0);
	assert_int_equal(job_event(CORE_RESUME, a), 0);
	pass(S_NS);
	is(b, CORE_STOPPING, 2);
	ends(b, CORE_END_STOPPED, 143);
	is(a, CORE_STARTING, 1);
}

/* What was decided by the old bounds is not started by them, even before the next decision. */
static void what_was_decided_before_is_not_started(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = run((struct core_request){.least = 2, .most = 2});
	assert_int_equal(job_event(CORE_PAUSE, a), 0);
	assert_int_equal(job_event(CORE_RESUME, a), 0); /* stops, and is queued then */
	pass(61 * S_NS);
	assert_int_equal(job(a)->want.replicas, 2);
	t.now_ns += CORE_ROUND_MIN_NS / 2;
	assert_int_equal(change(a, 1, 1, 0), 0);
	ends(a, CORE_END_STOPPED, 143);
	is(a, CORE_QUEUED, 0);
	pass(S_NS);
	is(a, CORE_STARTING, 1);
	t.now_ns += CORE_ROUND_MIN_NS / 2;
	assert_int_equal(change(a, 2, 2, 0), 0); /* while it starts with one */
	job_event(CORE_REFUSED, a);
	is(a, CORE_QUEUED, 0);
	pass(2 * S_NS);
	is(a, CORE_STARTING, 2);
}

static void a_change_that_cannot_be_is_refused(void **state)
{
	uint64_t a;
	uint64_t small;

	begin(0, 5);
	add_node("a", 8);
	pass(S_NS);
	a = run((struct core_request){.least = 1, .most = 2});
	small = run((struct core_request){.least = 1, .most = 2, .queue = "small"});
	assert_int_equal(change(a, 0, 1, 0), PAWL_EINVAL);
	assert_int_equal(change(a, 3, 2, 0), PAWL_EINVAL);
	assert_int_equal(change(a, 1, CORE_MOST_MAX + 1, 0), PAWL_EINVAL);
	assert_int_equal(change(a, 6, 6, 0), PAWL_EINVAL);
	assert_non_null(strstr(t.err.msg, "a user may have only 5"));
	assert_int_equal(change(small, 4, 4, 0), PAWL_EINVAL);
	assert_non_null(strstr(t.err.msg, "queue small has only 3"));
	assert_int_equal(change(99, 1, 1, 0), PAWL_ENOENT);
	fault_arm("sched.core", 1, ENOMEM, false);
	assert_int_equal(change(a, 1, 40, 7), PAWL_ENOMEM);
	fault_disarm();
	assert_int_equal(job(a)->request.most, 2);
	assert_int_equal(job(a)->request.priority, 0);
	assert_int_equal(job_event(CORE_CANCEL, a), 0);
	assert_int_equal(change(a, 1, 1, 0), PAWL_EINVAL);
	assert_non_null(strstr(t.err.msg, "is stopping: it cannot be changed"));
	ends(a, CORE_END_STOPPED, 143);
	assert_int_equal(change(a, 1, 1, 0), PAWL_ENOENT);
}

/* A job that has more than its new most is restored with what it has. */
static void a_change_is_stored(void **state)
{
	struct core_row rows[KEPT_MAX];
	struct core_run list = {.running = true};
	uint64_t a;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	a = run((struct core_request){.least = 2, .most = 4, .wanted = 4});
	t.now_ns += CORE_ROUND_MIN_NS / 2;
	assert_int_equal(change(a, 1, 2, -3), 0);
	for (uint32_t i = 0; i < t.kept_n; i++) {
		rows[i] = (struct core_row){.kind = t.kept[i].kind,
			.id = t.kept[i].id,
			.bytes = t.kept[i].bytes,
			.len_bytes = t.kept[i].len_bytes};
	}
	core_close(t.core);
	t.core = NULL;
	assert_int_equal(core_restore(&t.core, &t.options, rows, t.kept_n, t.now_ns, &t.err), 0);
	assert_int_equal(job(a)->request.least, 1);
	assert_int_equal(job(a)->request.most, 2);
	assert_int_equal(job(a)->request.wanted, 2);
	assert_int_equal(job(a)->request.priority, -3);
	list.job = a;
	list.generation = job(a)->generation;
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED, .runs = &list, .runs_n = 1}),
		0);
	is(a, CORE_STOPPING, 4);
	ends(a, CORE_END_STOPPED, 143);
	pass(S_NS);
	is(a, CORE_STARTING, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_smaller_node_keeps_what_fits),
		cmocka_unit_test(a_smaller_node_loses_the_least_and_the_last),
		cmocka_unit_test(a_smaller_node_shrinks_before_it_stops),
		cmocka_unit_test(a_smaller_node_waits_for_what_leaves_it),
		cmocka_unit_test(a_start_on_a_smaller_node_is_stopped),
		cmocka_unit_test(a_running_job_takes_its_new_most),
		cmocka_unit_test(a_script_restarts_with_its_new_bounds),
		cmocka_unit_test(a_job_below_its_new_least_gets_more_or_waits),
		cmocka_unit_test(a_queued_or_paused_job_changes),
		cmocka_unit_test(what_was_decided_before_is_not_started),
		cmocka_unit_test(a_change_that_cannot_be_is_refused),
		cmocka_unit_test(a_change_is_stored),
	};
	int rv = cmocka_run_group_tests(tests, NULL, NULL);

	core_close(t.core);
	return rv;
}
