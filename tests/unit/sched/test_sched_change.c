/* The scheduler's core: nodes that come with fewer slots than before, by example. The test acts as
 * the engine. */
#include "test_sched_one.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_smaller_node_keeps_what_fits),
		cmocka_unit_test(a_smaller_node_loses_the_least_and_the_last),
		cmocka_unit_test(a_smaller_node_shrinks_before_it_stops),
		cmocka_unit_test(a_smaller_node_waits_for_what_leaves_it),
		cmocka_unit_test(a_start_on_a_smaller_node_is_stopped),
	};
	int rv = cmocka_run_group_tests(tests, NULL, NULL);

	core_close(t.core);
	return rv;
}
