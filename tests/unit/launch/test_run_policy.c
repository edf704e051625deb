/* The decisions of `pawl run` when to restart, wait, stop and give up: by example, then over random
 * histories. */
#include "base/rng.h"
#include "launch/nodes/run_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define S         1000000000LL
#define HISTORIES 20000u
#define EVENTS    200u

static const struct run_times times = {.fast_ns = 5 * S,
	.backoff_ns = S,
	.backoff_max_ns = 4 * S,
	.reserve_ns = 3 * S,
	.drain_ns = 1800 * S};
static struct run_policy policy;
static int64_t now_ns;

static unsigned step(struct run_event event)
{
	event.now_ns = now_ns;
	return run_policy_step(&policy, &event);
}

static unsigned begin(uint32_t workers, uint32_t max_restarts)
{
	now_ns = 100 * S;
	policy = (struct run_policy){.times = times,
		.workers = workers,
		.max_restarts = max_restarts,
		.grace_ns = 25 * S};
	return step((struct run_event){.kind = RUN_BEGIN});
}

static unsigned exited(int status)
{
	return step((struct run_event){.kind = RUN_EXITED, .exit = {.status = status}});
}

static unsigned exited_after(int64_t after_ns, int status, uint64_t commits)
{
	now_ns += after_ns;
	return step((struct run_event){.kind = RUN_EXITED,
		.exit = {.status = status},
		.commits = commits});
}

static unsigned signaled(int number)
{
	return step((struct run_event){.kind = RUN_SIGNALED, .signal = number});
}

/* A machine goes away, so long from now. */
static unsigned noticed(int64_t left_ns)
{
	return step((struct run_event){.kind = RUN_NOTICED,
		.signal = 15,
		.deadline_ns = now_ns + left_ns});
}

static unsigned timeout(void)
{
	assert_true(policy.timer_ns != 0);
	now_ns = policy.timer_ns;
	return step((struct run_event){.kind = RUN_TIMEOUT});
}

static unsigned drained(bool ok)
{
	return step((struct run_event){.kind = RUN_DRAINED, .ok = ok});
}

static void all_succeed(void **state)
{
	assert_int_equal(begin(2, 3), RUN_DO_START);
	assert_int_equal(exited(0), 0);
	assert_int_equal(exited(0), RUN_DO_DRAIN);
	assert_int_equal(drained(true), RUN_DO_EXIT);
	assert_int_equal(policy.status, 0);
	assert_int_equal(exited(0) | signaled(15) | drained(true), 0); /* nothing follows the end */
}

static void a_failure_restarts_the_group_at_once(void **state)
{
	begin(3, 1);
	assert_int_equal(exited_after(60 * S, 137, 0), RUN_DO_KILL);
	assert_int_equal(exited(137), 0);
	assert_int_equal(exited(137), RUN_DO_START);
	assert_int_equal(policy.restarts, 1);
	exited(0);
	exited(0);
	assert_int_equal(exited(0), RUN_DO_DRAIN);
	drained(true);
	assert_int_equal(policy.status, 0); /* the failure was made good */
}

static void the_first_failure_gives_the_status(void **state)
{
	begin(2, 1);
	exited_after(60 * S, 3, 0);
	exited(137);
	assert_int_equal(exited_after(60 * S, 9, 0), RUN_DO_KILL);
	assert_int_equal(exited(137), RUN_DO_DRAIN); /* restarts are used up */
	assert_int_equal(drained(true), RUN_DO_EXIT);
	assert_int_equal(policy.status, 9);
}

static void a_user_error_is_not_restarted(void **state)
{
	begin(2, 3);
	assert_int_equal(exited_after(60 * S, RUN_EXIT_USER, 0), RUN_DO_KILL);
	assert_int_equal(exited(137), RUN_DO_DRAIN);
	drained(true);
	assert_int_equal(policy.status, RUN_EXIT_USER);
}

/* An exit code that is one of ours is the job's here, whatever it means elsewhere: only workers of
 * a joint group leave each other. */
static void every_code_of_a_script_is_the_jobs(void **state)
{
	for (int status = 1; status < 256; status++) {
		begin(2, 0);
		assert_int_equal(exited_after(60 * S, status, 0), RUN_DO_KILL);
		assert_int_equal(exited(137), RUN_DO_DRAIN);
		drained(true);
		assert_int_equal(policy.status, status);
	}
}

static void fast_failures_wait_1_2_4_4_seconds(void **state)
{
	static const int64_t waits_s[] = {0, 0, 1, 2, 4, 4};

	begin(1, 100);
	for (size_t i = 0; i < 6; i++) {
		if (waits_s[i] == 0) {
			assert_int_equal(exited_after(S, 1, 0), RUN_DO_START);
			continue;
		}
		assert_int_equal(exited_after(S, 1, 0), 0);
		assert_int_equal(policy.timer_ns - now_ns, waits_s[i] * S);
		assert_int_equal(timeout(), RUN_DO_START);
	}
	assert_int_equal(exited_after(S, 1, 1), RUN_DO_START); /* a step was committed */
	exited_after(S, 1, 1);
	assert_int_equal(exited_after(S, 1, 1), RUN_DO_START);
	assert_int_equal(exited_after(5 * S, 1, 1), RUN_DO_START); /* the attempt lasted */
	assert_int_equal(exited_after(S, 1, 1), RUN_DO_START);
}

static void a_signal_lets_workers_leave(void **state)
{
	begin(2, 3);
	assert_int_equal(signaled(15), RUN_DO_NOTICE);
	assert_int_equal(policy.timer_ns - now_ns, 22 * S);
	assert_int_equal(exited_after(S, 143, 0), 0); /* no failure now */
	assert_int_equal(exited(0), RUN_DO_DRAIN);
	assert_int_equal(policy.timer_ns - now_ns, 24 * S);
	assert_int_equal(drained(true), RUN_DO_EXIT);
	assert_int_equal(policy.status, 143);
}

static void patience_ends_before_the_deadline(void **state)
{
	begin(2, 3);
	signaled(2);
	assert_int_equal(timeout(), RUN_DO_KILL);
	assert_int_equal(policy.timer_ns - now_ns, 3 * S);
	exited(137);
	assert_int_equal(exited(137), RUN_DO_DRAIN);
	assert_int_equal(timeout(), RUN_DO_EXIT);
	assert_int_equal(policy.status, 130);
	/* A short grace is halved; without any, workers are killed at once. */
	begin(1, 0);
	policy.grace_ns = 4 * S;
	signaled(15);
	assert_int_equal(policy.timer_ns - now_ns, 2 * S);
	begin(1, 0);
	policy.grace_ns = 0;
	signaled(15);
	assert_int_equal(timeout(), RUN_DO_KILL);
	assert_int_equal(timeout(), RUN_DO_EXIT); /* a worker that SIGKILL does not reach */
}

static void a_second_signal_means_now(void **state)
{
	begin(1, 3);
	signaled(15);
	assert_int_equal(signaled(15), RUN_DO_KILL);
	assert_int_equal(exited(137), RUN_DO_DRAIN);
	assert_int_equal(signaled(2), RUN_DO_EXIT);
	assert_int_equal(policy.status, 130);
}

static void a_signal_at_other_times(void **state)
{
	begin(2, 3); /* while the group is being ended */
	exited_after(60 * S, 1, 0);
	assert_int_equal(signaled(15), 0);
	assert_int_equal(exited(137), RUN_DO_DRAIN);
	drained(true);
	assert_int_equal(policy.status, 143);

	begin(1, 9); /* while a restart waits */
	exited(1);
	exited(1);
	exited(1);
	assert_int_equal(policy.phase, RUN_WAITING);
	assert_int_equal(signaled(1), RUN_DO_DRAIN);
	drained(true);
	assert_int_equal(policy.status, 129);

	begin(1, 0); /* while draining after success: in time, it is a success */
	exited(0);
	assert_int_equal(signaled(15), 0);
	drained(true);
	assert_int_equal(policy.status, 0);

	begin(1, 0); /* not in time: no success */
	exited(0);
	signaled(15);
	assert_int_equal(timeout(), RUN_DO_EXIT);
	assert_int_equal(policy.status, 143);
}

/* ---- notices ---- */

/* The grace is the machine's time, not that of the options, which is 25 s. */
static void a_notice_has_a_grace_of_its_own(void **state)
{
	static const int64_t lefts_ns[] = {117 * S, 27 * S, 4 * S, 0};
	static const int64_t kept_ns[] = {3 * S, 3 * S, 2 * S, 0};

	for (size_t i = 0; i < 4; i++) {
		begin(1, 3);
		assert_int_equal(noticed(lefts_ns[i]), RUN_DO_NOTICE);
		assert_int_equal(policy.timer_ns, now_ns + lefts_ns[i] - kept_ns[i]);
		assert_int_equal(policy.deadline_ns, now_ns + lefts_ns[i]);
		assert_int_equal(timeout(), RUN_DO_KILL);
		assert_int_equal(policy.timer_ns, policy.deadline_ns);
		assert_int_equal(exited(137), RUN_DO_DRAIN);
		assert_int_equal(policy.timer_ns, policy.deadline_ns);
		assert_int_equal(timeout(), RUN_DO_EXIT);
		assert_int_equal(policy.status, 143);
	}
}

static void a_notice_may_have_a_code_of_its_own(void **state)
{
	begin(1, 3);
	policy.preempted_status = 33;
	noticed(60 * S);
	assert_int_equal(exited(0), RUN_DO_DRAIN);
	drained(true);
	assert_int_equal(policy.status, 33);
	/* The job is done: it needs no other machine. */
	begin(1, 3);
	policy.preempted_status = 33;
	exited(0);
	assert_int_equal(noticed(60 * S), 0);
	drained(true);
	assert_int_equal(policy.status, 0);
	/* All is done but the last save, which comes too late. */
	begin(1, 3);
	policy.preempted_status = 33;
	exited(0);
	noticed(60 * S);
	assert_int_equal(policy.timer_ns, now_ns + 60 * S);
	assert_int_equal(timeout(), RUN_DO_EXIT);
	assert_int_equal(policy.status, 33);
	/* A signal is none. */
	begin(1, 3);
	policy.preempted_status = 33;
	signaled(15);
	exited(0);
	drained(true);
	assert_int_equal(policy.status, 143);
	/* A failure that a notice meets is not restarted here. */
	begin(2, 3);
	policy.preempted_status = 33;
	exited(1);
	assert_int_equal(noticed(60 * S), 0);
	assert_int_equal(exited(137), RUN_DO_DRAIN);
	drained(true);
	assert_int_equal(policy.status, 33);
}

/* The cloud sends SIGTERM before its notice: the notice is no second signal, but ends the job in
 * time, and tells the code. */
static void a_notice_after_a_signal(void **state)
{
	begin(1, 3);
	policy.preempted_status = 33;
	assert_int_equal(signaled(15), RUN_DO_NOTICE);
	now_ns += S;
	assert_int_equal(noticed(10 * S), 0);
	assert_int_equal(policy.phase, RUN_LEAVING);
	assert_int_equal(policy.deadline_ns, now_ns + 10 * S);
	assert_int_equal(policy.timer_ns, now_ns + 7 * S);
	assert_int_equal(noticed(60 * S), 0); /* no later one gives more time */
	assert_int_equal(policy.timer_ns, now_ns + 7 * S);
	assert_int_equal(exited(0), RUN_DO_DRAIN);
	assert_int_equal(noticed(5 * S), 0);
	assert_int_equal(policy.timer_ns, now_ns + 5 * S);
	drained(true);
	assert_int_equal(policy.status, 33);
}

static void what_is_not_durable_is_a_failure(void **state)
{
	begin(1, 0);
	exited(0);
	drained(false);
	assert_int_equal(policy.status, RUN_EXIT_UNSAVED);
	begin(1, 0);
	exited(0);
	assert_int_equal(timeout(), RUN_DO_EXIT); /* draining is bounded */
	assert_int_equal(policy.status, RUN_EXIT_UNSAVED);
	begin(1, 0);
	exited(7);
	drained(false);
	assert_int_equal(policy.status, 7);
}

/* State of one random history. */
struct seen {
	uint32_t starts, drains, exits;
	bool failed; /* a worker of the present attempt failed */
	bool signaled;
};

static unsigned random_event(struct rng *rng, struct seen *seen)
{
	static const int statuses[] = {0, 0, 0, 1, 65, 137};
	int status = statuses[rng_below(rng, 6)];

	now_ns += (int64_t)rng_below(rng, 8 * S);
	if (policy.timer_ns != 0 && now_ns >= policy.timer_ns) {
		return timeout();
	}
	if (rng_below(rng, 40) == 0) {
		seen->signaled = true;
		return rng_below(rng, 2) == 0 ? signaled(15)
					      : noticed((int64_t)rng_below(rng, 60 * S));
	}
	if (policy.alive > 0 && policy.phase != RUN_WAITING) {
		seen->failed = seen->failed || status != 0;
		return exited_after(0, status, rng_below(rng, 2));
	}
	if (policy.phase == RUN_DRAINING && rng_below(rng, 4) == 0) {
		return drained(rng_below(rng, 4) != 0);
	}
	return 0;
}

static void check_actions(unsigned actions, struct seen *seen, bool was_signaled)
{
	if (actions & RUN_DO_START) {
		assert_false(was_signaled);
		assert_int_equal(policy.alive, policy.workers);
		seen->starts++;
		seen->failed = false;
	}
	if (actions & RUN_DO_DRAIN) {
		assert_int_equal(policy.alive, 0);
		assert_true(policy.timer_ns != 0);
		seen->drains++;
	}
	if (actions & RUN_DO_EXIT) {
		seen->exits++;
		assert_true(policy.status != 0 || !seen->failed);
	}
	assert_true(seen->starts <= 1 + policy.max_restarts);
	assert_true(seen->drains <= 1 && seen->exits <= 1);
}

/* Whatever happens, in any order: restarts are bounded, there is one drain and one exit, and the
 * exit status is right. */
static void every_history_ends_well(void **state)
{
	const char *given = getenv("PAWL_TEST_SEED");
	uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20261121;

	print_message("seed %llu\n", (unsigned long long)seed);
	for (uint64_t i = 0; i < HISTORIES; i++) {
		struct rng rng = {seed + i};
		struct seen seen = {.starts = 1};

		begin(1 + (uint32_t)rng_below(&rng, 4), (uint32_t)rng_below(&rng, 4));
		for (uint32_t n = 0; n < EVENTS && seen.exits == 0; n++) {
			bool was_signaled = seen.signaled;
			unsigned actions = random_event(&rng, &seen);

			check_actions(actions, &seen, was_signaled || seen.signaled);
		}
		/* Left alone, deaths and timers bring the run to its end. */
		for (uint32_t n = 0; n < EVENTS && seen.exits == 0; n++) {
			check_actions(policy.phase == RUN_WAITING || policy.alive == 0 ? timeout()
										       : exited(0),
				&seen, seen.signaled);
		}
		if (seen.exits != 1) {
			fail_msg("history of seed %llu does not end",
				(unsigned long long)(seed + i));
		}
	}
}

static unsigned begin_nodes(void)
{
	unsigned actions;

	now_ns = 100 * S;
	policy = (struct run_policy){.times = times,
		.max_restarts = 1,
		.grace_ns = 25 * S,
		.gathers = true,
		.gather_max_ns = 600 * S};
	actions = step((struct run_event){.kind = RUN_BEGIN});
	assert_int_equal(policy.phase, RUN_GATHERING);
	assert_int_equal(policy.timer_ns, now_ns + 600 * S);
	return actions;
}

static unsigned gathered(uint32_t workers)
{
	return step((struct run_event){.kind = RUN_GATHERED, .workers = workers});
}

static unsigned lost_after(int64_t after_ns, uint32_t workers)
{
	now_ns += after_ns;
	return step((struct run_event){.kind = RUN_LOST, .workers = workers});
}

static void a_lost_node_is_waited_for_and_not_counted(void **state)
{
	assert_int_equal(begin_nodes(), RUN_DO_GATHER);
	assert_int_equal(gathered(4), RUN_DO_START);
	assert_int_equal(lost_after(60 * S, 2), RUN_DO_KILL);
	exited(137);
	assert_int_equal(exited(137), RUN_DO_GATHER);
	assert_int_equal(policy.restarts, 0);
	assert_int_equal(gathered(3), RUN_DO_START);            /* the new node has fewer workers */
	assert_int_equal(lost_after(60 * S, 3), RUN_DO_GATHER); /* nobody is left */
	assert_int_equal(gathered(4), RUN_DO_START);
	exited_after(60 * S, 9, 0);
	lost_after(0, 2);
	assert_int_equal(exited(137), RUN_DO_GATHER);
	assert_int_equal(policy.restarts, 1);
	timeout();
	assert_int_equal(policy.status, RUN_EXIT_NODES);
	assert_int_equal(drained(true), RUN_DO_EXIT);
}

/* Otherwise nodes that lose each other at once would start for ever, as fast as they can. */
static void nodes_lost_fast_wait_too(void **state)
{
	begin_nodes();
	for (uint32_t i = 1; i < RUN_FAST_MAX; i++) {
		gathered(1);
		assert_int_equal(lost_after(S, 1), RUN_DO_GATHER);
	}
	gathered(1);
	assert_int_equal(lost_after(S, 1), 0);
	assert_int_equal(policy.phase, RUN_WAITING);
	assert_int_equal(timeout(), RUN_DO_GATHER);
}

static void a_lost_node_does_not_hold_up_leaving(void **state)
{
	begin_nodes();
	gathered(4);
	assert_int_equal(signaled(15), RUN_DO_NOTICE);
	exited(0);
	exited(0);
	assert_int_equal(lost_after(S, 2), RUN_DO_DRAIN);
	drained(false);
	assert_int_equal(policy.status, 128 + 15);
	begin_nodes();
	assert_int_equal(signaled(15), RUN_DO_DRAIN); /* nothing runs */
	begin_nodes();
	assert_int_equal(step((struct run_event){.kind = RUN_REFUSED, .status = 2}), RUN_DO_DRAIN);
	drained(true);
	assert_int_equal(policy.status, 2);
}

/* A machine goes away, so long from now, and the others go on. */
static unsigned departs(int64_t left_ns)
{
	return step((struct run_event){.kind = RUN_DEPARTS,
		.signal = 15,
		.deadline_ns = now_ns + left_ns});
}

static void a_node_departs_once_all_is_durable(void **state)
{
	begin_nodes();
	policy.preempted_status = 33;
	gathered(2);
	assert_int_equal(departs(100 * S), RUN_DO_NOTICE);
	assert_int_equal(policy.timer_ns, now_ns + 97 * S);
	exited(0);
	assert_int_equal(departs(50 * S), 0); /* another one, sooner */
	assert_int_equal(policy.timer_ns, now_ns + 47 * S);
	assert_int_equal(departs(70 * S), 0);
	assert_int_equal(policy.deadline_ns, now_ns + 50 * S);
	assert_int_equal(exited(0), RUN_DO_DRAIN);
	assert_int_equal(policy.timer_ns, policy.deadline_ns);
	assert_int_equal(policy.status, 33); /* the code of those that depart */
	assert_int_equal(drained(true), RUN_DO_GATHER);
	assert_int_equal(policy.timer_ns, now_ns + 600 * S);
	assert_int_equal(policy.restarts, 0);
	assert_int_equal(gathered(2), RUN_DO_START);
	exited(0);
	exited(0);
	drained(true);
	assert_int_equal(policy.status, 0);
}

static void a_node_departs_in_time(void **state)
{
	begin_nodes();
	gathered(2);
	departs(100 * S);
	assert_int_equal(timeout(), RUN_DO_KILL);
	assert_int_equal(policy.timer_ns, 0); /* nodes that stay wait for their dead */
	exited(137);
	assert_int_equal(exited(137), RUN_DO_DRAIN);
	assert_int_equal(timeout(), RUN_DO_GATHER);
	/* While nodes are missing, and after a failure that is one of the restarts. */
	assert_int_equal(departs(9 * S), RUN_DO_DRAIN);
	assert_int_equal(drained(false), RUN_DO_GATHER);
	gathered(2);
	exited_after(60 * S, 9, 0);
	assert_int_equal(departs(9 * S), 0);
	assert_int_equal(exited(137), RUN_DO_DRAIN);
	assert_int_equal(policy.restarts, 1);
	assert_int_equal(departs(5 * S), 0);
	assert_int_equal(policy.timer_ns, now_ns + 5 * S);
	assert_int_equal(timeout(), RUN_DO_GATHER);
	/* The node is lost before it departs. */
	gathered(4);
	departs(100 * S);
	exited(0);
	exited(0);
	assert_int_equal(lost_after(S, 2), RUN_DO_DRAIN);
	assert_int_equal(drained(false), RUN_DO_GATHER);
}

/* While a node departs, the job is told to stop, or loses its last machines. */
static void who_departs_can_be_stopped(void **state)
{
	for (uint32_t i = 0; i < 4; i++) {
		bool by_signal = i % 2 == 0;
		bool draining = i >= 2;

		begin_nodes();
		gathered(1);
		departs(10 * S);
		if (draining) {
			exited(0);
		}
		assert_int_equal(by_signal ? signaled(2) : noticed(60 * S), 0);
		assert_int_equal(policy.deadline_ns, now_ns + 10 * S); /* no later than that */
		assert_int_equal(policy.phase, draining ? RUN_DRAINING : RUN_LEAVING);
		if (!draining) {
			assert_int_equal(policy.timer_ns, now_ns + 7 * S);
			assert_int_equal(exited(0), RUN_DO_DRAIN);
		}
		assert_int_equal(drained(true), RUN_DO_EXIT);
		assert_int_equal(policy.status, by_signal ? 130 : 143);
	}
	/* A job that ends does not wait for other nodes. */
	begin_nodes();
	gathered(1);
	exited(0);
	assert_int_equal(departs(10 * S), 0);
	assert_int_equal(drained(true), RUN_DO_EXIT);
	assert_int_equal(policy.status, 0);
	begin_nodes();
	gathered(1);
	signaled(15);
	assert_int_equal(departs(10 * S), 0);
	assert_int_equal(exited(0), RUN_DO_DRAIN);
	assert_int_equal(drained(true), RUN_DO_EXIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_succeed),
		cmocka_unit_test(a_failure_restarts_the_group_at_once),
		cmocka_unit_test(the_first_failure_gives_the_status),
		cmocka_unit_test(a_user_error_is_not_restarted),
		cmocka_unit_test(every_code_of_a_script_is_the_jobs),
		cmocka_unit_test(fast_failures_wait_1_2_4_4_seconds),
		cmocka_unit_test(a_signal_lets_workers_leave),
		cmocka_unit_test(patience_ends_before_the_deadline),
		cmocka_unit_test(a_second_signal_means_now),
		cmocka_unit_test(a_signal_at_other_times),
		cmocka_unit_test(a_notice_has_a_grace_of_its_own),
		cmocka_unit_test(a_notice_may_have_a_code_of_its_own),
		cmocka_unit_test(a_notice_after_a_signal),
		cmocka_unit_test(what_is_not_durable_is_a_failure),
		cmocka_unit_test(every_history_ends_well),
		cmocka_unit_test(a_lost_node_is_waited_for_and_not_counted),
		cmocka_unit_test(nodes_lost_fast_wait_too),
		cmocka_unit_test(a_lost_node_does_not_hold_up_leaving),
		cmocka_unit_test(a_node_departs_once_all_is_durable),
		cmocka_unit_test(a_node_departs_in_time),
		cmocka_unit_test(who_departs_can_be_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
