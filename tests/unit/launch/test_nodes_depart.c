/* Nodes whose machines go away, and that the others go on without. */
#include "test_nodes_world.h"

#include "seed.h"

/* Starts hosts as start_all does; a node whose machine goes away departs. */
static void start_leaving(uint32_t nodes, uint32_t places)
{
	begin_world(first_seed, nodes, places);
	w.leaves = true;
	for (uint32_t h = 0; h < nodes; h++) {
		start_host(h);
		w.hosts[h].nodes.policy.preempted_status = 33;
	}
	run_for(10 * S_NS);
	check_group();
}

static void a_member_departs_and_another_takes_its_place(void **state)
{
	uint32_t node;

	start_leaving(3, 1);
	node = w.hosts[1].start.node;
	machine_goes(1, MS_NS, 100 * S_NS);
	run_for(S_NS);
	check_group(); /* the workers may finish */
	assert_true(has_logged(2, "this machine goes away"));
	/* SIGTERM follows, as a machine shuts down: it stops nobody. */
	happen(1, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
	start_host(3); /* comes before there is a place for it */
	run_for(S_NS);
	assert_true(has_logged(3, "cannot take this node yet: a node is about to leave"));
	end_all_workers(0);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[1].status, 33);
	assert_true(has_logged(0, " (host1) has left"));
	check_group();
	assert_true(w.hosts[3].alive[0]);
	assert_int_equal(w.hosts[3].start.node, node);
	assert_int_equal(w.hosts[0].generation, 2);
	assert_int_equal(w.hosts[0].start.ledger.restarts, 0);
	end_all_workers(0);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[3].status, 0);
}

/* --on-term leave: SIGTERM alone says that a node must go. It may come twice at once, from a batch
 * system and from a supervisor. */
static void a_terminated_member_departs(void **state)
{
	struct nodes_event event = {.kind = NODES_TERMINATED,
		.signal = 15,
		.text = "SIGTERM: this node leaves the job"};

	start_leaving(3, 1);
	event.deadline_ns = w.now_ns + 20 * S_NS;
	happen(1, MS_NS, event, NULL);
	happen(1, S_NS / 5, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
	run_for(S_NS);
	check_group(); /* the workers may finish */
	assert_true(has_logged(0, "SIGTERM: this node leaves the job"));
	end_all_workers(0);
	start_host(3);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[1].status, 33);
	check_group();
	assert_true(w.hosts[3].alive[0]);
}

/* The others seek the next coordinator. If there is no other place, they wait for a node there. */
static void the_coordinator_departs(void **state)
{
	for (uint32_t places = 1; places <= 2; places++) {
		start_leaving(3, places);
		machine_goes(0, MS_NS, 100 * S_NS);
		run_for(S_NS);
		happen(0, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
		end_all_workers(0);
		run_for(5 * S_NS);
		assert_int_equal(w.hosts[0].status, 33);
		w.place_of[0] = places == 1 ? 3 : NOBODY;
		start_host(3);
		run_for(10 * S_NS);
		check_group();
		assert_int_equal(w.hosts[places == 1 ? 3 : 1].nodes.role, NODES_LEADING);
		end_all_workers(0);
		run_for(5 * S_NS);
		assert_int_equal(w.hosts[1].status, 0);
	}
}

static void the_last_machine_takes_the_job_along(void **state)
{
	start_leaving(2, 1);
	machine_goes(0, MS_NS, 100 * S_NS);
	machine_goes(1, 2 * S_NS, 100 * S_NS);
	run_for(3 * S_NS);
	end_all_workers(0);
	run_for(5 * S_NS);
	all_left_with(33);
	/* One that waits for others. */
	begin_world(first_seed, 2, 1);
	w.leaves = true;
	start_host(0);
	machine_goes(0, S_NS, 100 * S_NS);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[0].status, 143);
}

/* Two of three depart, at once or one after the other, while the third one waits. */
static void several_nodes_depart(void **state)
{
	for (uint32_t later = 0; later < 2; later++) {
		start_leaving(3, 1);
		machine_goes(1, MS_NS, 100 * S_NS);
		machine_goes(2, later ? 8 * S_NS : S_NS, 50 * S_NS);
		run_for(3 * S_NS);
		end_all_workers(0);
		run_for(10 * S_NS);
		assert_int_equal(w.hosts[1].status, 33);
		assert_int_equal(w.hosts[2].status, 33);
		assert_true(has_logged(0, "1 of 3 nodes are here"));
		start_host(3);
		start_host(4);
		run_for(5 * S_NS);
		check_group();
	}
}

static void a_job_is_stopped_while_a_node_departs(void **state)
{
	start_leaving(2, 1);
	machine_goes(1, MS_NS, 100 * S_NS);
	run_for(S_NS);
	happen(0, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
	run_for(S_NS);
	end_all_workers(0);
	run_for(5 * S_NS);
	all_left_with(33);
}

/* The coordinator is lost while a node departs: that node ends by itself, and the other one goes
 * on with the next coordinator. */
static void a_node_departs_without_coordinator(void **state)
{
	start_leaving(3, 2);
	machine_goes(2, MS_NS, 100 * S_NS);
	run_for(S_NS);
	end_host(0, true);
	run_for(5 * S_NS);
	end_all_workers(0);
	run_for(S_NS);
	assert_int_equal(w.hosts[2].status, 33);
	start_host(3);
	start_host(4);
	run_for(10 * S_NS);
	check_group();
}

/* Storage hangs at one node: the node that departs waits for it in vain, and not for ever. */
static void who_departs_does_not_wait_beyond_its_time(void **state)
{
	struct node_frame answer = {.kind = NODE_DRAINED, .ok = true};

	start_leaving(3, 1);
	w.hosts[2].hangs = true;
	machine_goes(1, MS_NS, 20 * S_NS);
	run_for(S_NS);
	end_all_workers(0);
	run_for(5 * S_NS);
	assert_true(w.hosts[1].on);
	/* The answer to a drain of an earlier start, which was given up, does not count. */
	happen(0, MS_NS, (struct nodes_event){.kind = NODES_FRAME, .conn = w.hosts[2].nodes.conn},
		&answer);
	run_for(5 * S_NS);
	assert_true(w.hosts[1].on);
	run_for(10 * S_NS);
	assert_int_equal(w.hosts[1].status, 33);
	start_host(3);
	run_for(5 * S_NS);
	check_group();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_member_departs_and_another_takes_its_place),
		cmocka_unit_test(a_terminated_member_departs),
		cmocka_unit_test(the_coordinator_departs),
		cmocka_unit_test(the_last_machine_takes_the_job_along),
		cmocka_unit_test(several_nodes_depart),
		cmocka_unit_test(a_job_is_stopped_while_a_node_departs),
		cmocka_unit_test(a_node_departs_without_coordinator),
		cmocka_unit_test(who_departs_does_not_wait_beyond_its_time),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
