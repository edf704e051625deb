/* The core's explanations of a job: see test_sched_one.h. */
#include "test_sched_one.h"

static void run_time_is_explained_while_it_runs(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2, .time_limit_ns = 1000 * S_NS});
	runs(a);
	pass(77 * S_NS);
	assert_true(explains(a, "time limit: 1000 s, of which it has run 77 s"));
}

/* Explanations are up to date between two steps of the core, which may be minutes apart. */
static void times_go_on_between_two_steps(void **state)
{
	uint64_t a;
	uint64_t b;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 1, .time_limit_ns = 1000 * S_NS});
	b = submit((struct core_request){.least = 1, .most = 1, .retries = 3});
	pass(S_NS); /* the core decides on b */
	runs(a);
	runs(b);
	t.now_ns += 7 * S_NS;
	assert_true(explains(a, "running for 7 s"));
	assert_true(explains(a, "of which it has run 7 s"));
	ends(b, CORE_END_EXITED, 3);
	assert_true(explains(b, "queued for 0 s"));
	assert_true(explains(b, "back-off after 1 failures, for 1.0 s more"));
	t.now_ns += S_NS / 2;
	assert_true(explains(a, "running for 8 s")); /* 7.5 */
	assert_true(explains(b, "for 0.5 s more"));
	t.now_ns += 9 * S_NS; /* without a step of the core */
	assert_true(explains(b, "for 0.0 s more"));
	t.now_ns -= 100 * S_NS; /* an earlier time counts as that of the last step */
	assert_true(explains(a, "running for 7 s"));
	t.now_ns += 100 * S_NS;
	assert_int_equal(job_event(CORE_CANCEL, a), 0);
	t.now_ns += 2 * S_NS;
	assert_true(explains(a, "stopping for 2 s"));
}

/* Both queues and users have a quota. */
static void the_quota_that_binds_is_explained(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 2);
	add_node("a", 8);
	a = submit((struct core_request){.least = 1, .most = 8, .queue = "small", .owner = 1});
	pass(S_NS);
	runs(a);
	assert_true(explains(a, "quota of user 1, 2 slots"));
	b = submit((struct core_request){.least = 1, .most = 8, .queue = "small", .owner = 2});
	pass(S_NS);
	runs(b);
	is(b, CORE_RUNNING, 1);
	assert_true(explains(b, "quota of queue small, 3 slots"));
	pass(60 * S_NS); /* both quotas bind now */
	assert_true(explains(a, "quota of queue small, 3 slots"));
}

static void slots_that_are_about_to_be_free_are_no_lack_of_nodes(void **state)
{
	uint64_t a;
	uint64_t b;

	begin_with_one_node();
	a = submit((struct core_request){.least = 2, .most = 2});
	runs(a);
	assert_int_equal(job_event(CORE_CANCEL, a), 0);
	b = submit((struct core_request){.least = 2, .most = 2});
	pass(S_NS);
	is(b, CORE_QUEUED, 0);
	assert_true(explains(b, "binds: no slots are free"));
	ends(a, CORE_END_STOPPED, 143);
	b = submit((struct core_request){.least = 3, .most = 3});
	pass(S_NS);
	assert_true(explains(b, "all nodes that it may be on have fewer"));
}

static void free_slots_of_no_use_are_explained(void **state)
{
	uint64_t id;

	begin(0, 0);
	add_node("a", 4);
	runs(submit((struct core_request){.least = 2, .most = 2}));
	id = submit((struct core_request){.least = 3, .most = 3});
	pass(S_NS);
	assert_true(explains(id, "binds: it needs 3 slots together; 2 are free\n"));
	begin(0, 0);
	add_node_of("f", 4, 0, "", false);
	add_node_of("s", 2, 0, "", true);
	runs(submit((struct core_request){.least = 2, .most = 2, .spot_most = 2, .spot_least = 2}));
	id = submit((struct core_request){.least = 3, .most = 4, .spot_most = 4, .spot_least = 1});
	pass(S_NS);
	assert_true(explains(id,
		"binds: it needs 3 slots together, 1 of them on spot nodes;"
		" 4 are free, 0 of them on spot nodes\n"));
}

static void what_binds_is_explained_on_many_nodes_too(void **state)
{
	char name[CORE_NAME_MAX];
	uint64_t a;

	for (uint32_t longs = 0; longs < 2; longs++) {
		begin(0, 0);
		for (uint32_t n = 0; n < 60; n++) {
			snprintf(name, sizeof(name), longs ? "node%059u" : "node%u", n);
			add_node(name, 1);
		}
		a = submit((struct core_request){.least = 60,
			.most = 60,
			.time_limit_ns = 1000 * S_NS});
		pass(S_NS);
		runs(a);
		assert_true(explains(a, longs ? " more\n" : " node15 (1) and 44 more\n"));
		assert_true(explains(a, "binds: its own maximum, 60 replicas\n"));
		assert_true(explains(a, "time limit: 1000 s, of which it has run 0 s\n"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_time_is_explained_while_it_runs),
		cmocka_unit_test(times_go_on_between_two_steps),
		cmocka_unit_test(the_quota_that_binds_is_explained),
		cmocka_unit_test(slots_that_are_about_to_be_free_are_no_lack_of_nodes),
		cmocka_unit_test(free_slots_of_no_use_are_explained),
		cmocka_unit_test(what_binds_is_explained_on_many_nodes_too),
	};
	int rv = cmocka_run_group_tests(tests, NULL, NULL);

	core_close(t.core);
	return rv;
}
