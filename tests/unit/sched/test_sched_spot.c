/* Nodes that can be taken away: which jobs may, and must, be on them, and what follows for
 * others. */
#include "test_sched_one.h"

static void types_and_spot_are_kept(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node_of("a", 2, 0, "", true);
	add_node_of("b", 2, 1, "", false);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 2, .types = 1u << 1});
	is(a, CORE_STARTING, 2);
	assert_int_equal(job(a)->current.entries[0].node, 2);
	runs(a);
	pass(S_NS);
	b = submit((struct core_request){.least = 2, .most = 2, .types = 1u << 0});
	is(b, CORE_QUEUED, 0); /* spot_most is 0 */
	assert_true(explains(b, "all nodes that it may be on have fewer"));
	b = submit((struct core_request){.least = 2, .most = 2, .spot_most = 2});
	pass(S_NS);
	is(b, CORE_STARTING, 2);
	assert_int_equal(job(b)->current.entries[0].node, 1);
}

/* Returns how many replicas the job has on spot nodes now. */
static uint32_t count_spot(uint64_t id)
{
	uint32_t spot = 0;

	for (uint32_t i = 0; i < job(id)->current.n; i++) {
		const struct core_node *node =
			core_node_find(t.core, job(id)->current.entries[i].node);

		spot += node->offer.spot ? job(id)->current.entries[i].replicas : 0;
	}
	return spot;
}

/* Grants each job in turn as much as it may have of the types that it may be on, and leaves the
 * others their least. */
static int decide_in_turn(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	uint32_t room[8];
	uint32_t left = 0;

	assert_true(view->nodes_n <= 8);
	for (uint32_t n = 0; n < view->nodes_n; n++) {
		room[n] = view->nodes[n].slots;
		left += room[n];
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		left -= view->jobs[j].least;
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		const struct sched_job *job = &view->jobs[j];
		uint32_t most = job->least + left < job->most ? job->least + left : job->most;

		for (uint32_t n = 0; n < view->nodes_n; n++) {
			bool fits = job->types == 0 || job->types >> view->nodes[n].type & 1;

			for (; fits && room[n] > 0 && grants[j].replicas < most; room[n]--) {
				grants[j].nodes[grants[j].replicas++] = n;
			}
		}
		left -= grants[j].replicas > job->least ? grants[j].replicas - job->least : 0;
	}
	return 0;
}

static const struct sched_policy in_turn = {.name = "in turn",
	.decide = decide_in_turn,
	.chooses_sizes = true};

/* A policy knows nothing of spot nodes. */
static void who_may_be_on_spot_nodes_makes_room_for_who_may_not(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node_of("a", 4, 0, "", false);
	add_node_of("b", 4, 0, "", true);
	a = submit((struct core_request){.least = 1, .most = 4, .spot_most = 4});
	b = submit((struct core_request){.least = 1, .most = 4});
	pass(61 * S_NS);
	is(a, CORE_STARTING, 4);
	is(b, CORE_STARTING, 4);
	assert_int_equal(count_spot(a), 4);
	assert_int_equal(count_spot(b), 0);
}

static void slots_that_one_may_not_have_are_another_s(void **state)
{
	uint64_t a;
	uint64_t b;

	begin_by(&in_turn, 0, 0);
	add_node_of("a", 4, 0, "", false);
	add_node_of("b", 4, 0, "", true);
	add_node_of("c", 3, 1, "", false);
	a = submit((struct core_request){.least = 1, .most = 8, .types = 1});
	b = submit((struct core_request){.least = 1, .most = 12, .spot_most = 12, .types = 3});
	pass(61 * S_NS);
	is(a, CORE_STARTING, 4);
	is(b, CORE_STARTING, 7);
	assert_int_equal(count_spot(b), 4);
}

static void spot_nodes_that_it_must_have(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node_of("f", 4, 0, "", false);
	add_node_of("s", 2, 0, "", true);
	pass(S_NS);
	a = submit((struct core_request){.least = 3, .most = 4, .spot_most = 4, .spot_least = 3});
	pass(61 * S_NS);
	is(a, CORE_QUEUED, 0);
	assert_true(explains(a, "it needs 3 slots together, 3 of them on spot nodes"));
	b = submit((struct core_request){.least = 2, .most = 2, .spot_most = 2});
	pass(61 * S_NS);
	is(b, CORE_STARTING, 2);
	runs(b);
	add_node_of("t", 1, 0, "", true);
	pass(61 * S_NS);
	if (job(b)->state == CORE_STOPPING) { /* The job releases its slots. */
		ends(b, CORE_END_STOPPED, 143);
		pass(S_NS);
	}
	is(a, CORE_STARTING, 4);
	assert_int_equal(count_spot(a), 3);
	assert_int_equal(count_spot(b), 0);
	runs(a);
	assert_int_equal(node_event(CORE_NODE_GONE, "t", 0), 0);
	pass(61 * S_NS);
	assert_true(job(a)->state != CORE_RUNNING);
	assert_int_equal(
		step((struct core_event){.kind = CORE_SUBMIT,
			.request = &(struct core_request){.least = 1, .most = 2, .spot_least = 1}}),
		PAWL_EINVAL);
}

/* Grants the first job its most, where it keeps the replicas that it has, and the others
 * nothing. */
static int decide_for_the_first(void *self, const struct sched_view *view,
	struct sched_grant *grants, struct sched_verdict *verdict, struct pawl_err *err)
{
	const struct sched_job *first = &view->jobs[0];
	uint32_t n = 0;

	for (uint32_t r = 0; r < first->most; r++) {
		grants[0].nodes[r] = first->replicas > r ? first->nodes[r] : n++;
	}
	grants[0].replicas = first->most;
	return 0;
}

static const struct sched_policy for_the_first = {.name = "first", .decide = decide_for_the_first};

/* A job with a replica on a spot node and one on another node can do without only the second
 * one. */
static void who_has_more_gives_what_it_can_do_without(void **state)
{
	uint64_t a;
	uint64_t b;

	begin_by(&for_the_first, 0, 0);
	add_node_of("s", 1, 0, "", true);
	add_node_of("f", 1, 0, "", false);
	a = submit((struct core_request){.least = 1,
		.most = 2,
		.spot_most = 1,
		.spot_least = 1,
		.in_place = true});
	pass(61 * S_NS);
	is(a, CORE_STARTING, 2);
	runs(a);
	b = submit((struct core_request){.least = 1, .most = 1, .spot_most = 1});
	pass(61 * S_NS);
	runs(a);
	pass(S_NS);
	assert_int_equal(job(a)->current.replicas, 1);
	assert_int_equal(count_spot(a), 1);
	is(b, CORE_STARTING, 1);
}

/* While slots are free, no running job releases any. */
static void free_slots_come_before_others(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node_of("f", 2, 0, "", false);
	add_node_of("s", 3, 0, "", true);
	add_node_of("g", 3, 0, "", false);
	a = submit((struct core_request){.least = 2, .most = 2, .spot_most = 2});
	pass(61 * S_NS);
	runs(a);
	b = submit((struct core_request){.least = 3, .most = 3});
	pass(61 * S_NS);
	is(a, CORE_RUNNING, 2);
	is(b, CORE_STARTING, 3);
	assert_int_equal(count_spot(b), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types_and_spot_are_kept),
		cmocka_unit_test(who_may_be_on_spot_nodes_makes_room_for_who_may_not),
		cmocka_unit_test(slots_that_one_may_not_have_are_another_s),
		cmocka_unit_test(spot_nodes_that_it_must_have),
		cmocka_unit_test(who_has_more_gives_what_it_can_do_without),
		cmocka_unit_test(free_slots_come_before_others),
	};
	int rv = cmocka_run_group_tests(tests, NULL, NULL);

	core_close(t.core);
	return rv;
}
