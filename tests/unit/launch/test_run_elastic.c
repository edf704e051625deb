/* How `pawl run --elastic` adds workers, does without them and sends them away: by example, then
 * over random histories. */
#include "base/rng.h"
#include "launch/nodes/run_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define S           1000000000LL
#define HISTORIES   20000u
#define EVENTS      200u
#define WORKERS_MAX 6u

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

static unsigned begin(uint32_t workers, uint32_t min_workers, uint32_t max_restarts)
{
	now_ns = 100 * S;
	policy = (struct run_policy){.times = times,
		.workers = workers,
		.min_workers = min_workers,
		.max_restarts = max_restarts,
		.grace_ns = 25 * S};
	return step((struct run_event){.kind = RUN_BEGIN});
}

/* Ends a worker that the others do not need. */
static unsigned missed(int status, int64_t lasted_ns)
{
	return step((struct run_event){.kind = RUN_EXITED,
		.exit = {.status = status, .verdict = RUN_VERDICT_GO_ON, .lasted_ns = lasted_ns}});
}

/* Ends a worker that was asked to leave. survivable: workers that train go on; false: none of these
 * lives. */
static unsigned retired_exited(int status, bool survivable)
{
	return step((struct run_event){.kind = RUN_EXITED,
		.exit = {.status = status,
			.retired = true,
			.verdict = survivable ? RUN_VERDICT_GO_ON : RUN_VERDICT_NONE_LEFT}});
}

/* Fails a worker that the others went on without; the membership has no live one. */
static unsigned outside(int status)
{
	return step((
		struct run_event){.kind = RUN_EXITED, .exit = {.status = status, .outside = true}});
}

static unsigned left(void)
{
	return retired_exited(RUN_EXIT_LEFT, true);
}

static unsigned scaled(uint32_t workers, bool survivable)
{
	return step((struct run_event){.kind = RUN_SCALED,
		.workers = workers,
		.survivable = survivable});
}

static unsigned timeout(void)
{
	assert_true(policy.timer_ns != 0);
	now_ns = policy.timer_ns;
	return step((struct run_event){.kind = RUN_TIMEOUT});
}

static void a_worker_that_fails_is_replaced(void **state)
{
	begin(3, 1, 3);
	assert_int_equal(missed(137, 60 * S), RUN_DO_ADD);
	assert_int_equal(policy.change, 1);
	assert_int_equal(policy.alive, 3);
	assert_int_equal(policy.restarts, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(missed(0, 60 * S), 0);
	}
	assert_int_equal(missed(0, 60 * S), RUN_DO_DRAIN);
	step((struct run_event){.kind = RUN_DRAINED, .ok = true});
	assert_int_equal(policy.status, 0); /* the job did not need the failed worker */
}

static void the_last_one_is_the_group(void **state)
{
	begin(1, 1, 3);
	assert_int_equal(missed(137, 60 * S), RUN_DO_START);
	begin(2, 1, 3); /* nor are two, one of which leaves */
	scaled(1, true);
	assert_int_equal(missed(137, 60 * S), RUN_DO_KILL);
	assert_int_equal(left(), RUN_DO_START);
	assert_int_equal(policy.alive, 1);
}

static void where_others_need_it_all_start_again(void **state)
{
	begin(2, 1, 3);
	now_ns += 60 * S;
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED, .exit = {.status = 1}}),
		RUN_DO_KILL);
	begin(2, 1, 3); /* the others would fail alike */
	assert_int_equal(missed(RUN_EXIT_USER, 60 * S), RUN_DO_KILL);
}

static void those_that_fail_at_once_come_slower_then_no_more(void **state)
{
	begin(4, 2, 3);
	assert_int_equal(missed(1, S), RUN_DO_ADD);
	assert_int_equal(missed(1, S), RUN_DO_ADD);
	assert_int_equal(missed(1, S), 0);
	assert_int_equal(policy.timer_ns - now_ns, S);
	assert_int_equal(missed(1, S), RUN_DO_SHRINK);
	assert_int_equal(policy.workers, 2);
	assert_int_equal(policy.timer_ns, 0);
	assert_int_equal(scaled(4, true), RUN_DO_ADD); /* people may try again */
	assert_int_equal(policy.change, 2);
	begin(4, 4, 1); /* fewer than the least make no job */
	missed(1, S);
	assert_int_equal(missed(1, S), RUN_DO_KILL);
}

static void a_late_one_is_added_when_its_time_has_come(void **state)
{
	begin(4, 1, 9);
	for (int i = 0; i < 3; i++) {
		missed(1, S);
	}
	assert_int_equal(timeout(), RUN_DO_ADD);
	assert_int_equal(policy.change, 1);
	assert_int_equal(policy.timer_ns, 0);
}

static void more_are_added_and_fewer_leave(void **state)
{
	begin(2, 1, 3);
	assert_int_equal(scaled(4, true), RUN_DO_ADD);
	assert_int_equal(policy.change, 2);
	assert_int_equal(scaled(1, true), RUN_DO_RETIRE);
	assert_int_equal(policy.change, 3);
	assert_int_equal(scaled(2, true), RUN_DO_ADD); /* the three retired ones still leave */
	assert_int_equal(policy.change, 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(left(), 0);
	}
	assert_int_equal(policy.alive, 2);
	assert_int_equal(scaled(2, true), 0);
	assert_int_equal(missed(0, S), 0);
	assert_false(run_policy_can_scale(&policy)); /* the job comes to its end */
	assert_int_equal(missed(0, S), RUN_DO_DRAIN);
}

/* The workers that are left have nothing to go on with: they wait for others. */
static void who_would_join_is_no_group(void **state)
{
	begin(2, 1, 1);
	scaled(1, true);
	assert_int_equal(scaled(2, true), RUN_DO_ADD);
	assert_int_equal(missed(137, 60 * S), RUN_DO_ADD); /* the one that leaves still lives */
	assert_int_equal(retired_exited(RUN_EXIT_LEFT, false), RUN_DO_KILL);
	assert_int_equal(missed(137, 0), 0);
	assert_int_equal(missed(137, 0), RUN_DO_START);
	assert_int_equal(policy.restarts, 1);
	scaled(1, true);
	assert_int_equal(retired_exited(RUN_EXIT_LEFT, false), RUN_DO_KILL);
	assert_int_equal(missed(137, 0), RUN_DO_DRAIN);
	assert_int_equal(policy.status,
		RUN_EXIT_FAILURE); /* the worker left as asked, but the job failed */
}

/* The worker that is asked to leave is the last one, and has no others to leave. */
static void a_retired_worker_may_come_to_the_end(void **state)
{
	begin(2, 1, 1);
	scaled(1, true);
	scaled(2, true);
	missed(137, 60 * S);
	assert_int_equal(retired_exited(0, true), 0);
	assert_true(policy.finishing);
	assert_int_equal(retired_exited(RUN_EXIT_LEFT, false), 0);
	assert_int_equal(missed(0, S), RUN_DO_DRAIN);
	assert_int_equal(policy.status, 0);
}

/* A worker was stopped, the others went on without it, and it wakes as they end. */
static void who_is_left_behind_is_not_missed_at_the_end(void **state)
{
	begin(3, 1, 1);
	assert_int_equal(missed(0, 60 * S), 0);
	assert_int_equal(outside(1), 0);
	assert_int_equal(missed(0, 60 * S), RUN_DO_DRAIN); /* one of those that train, as before */
	begin(2, 1, 1);
	missed(0, 60 * S);
	assert_int_equal(outside(RUN_EXIT_USER), RUN_DO_DRAIN);
	step((struct run_event){.kind = RUN_DRAINED, .ok = true});
	assert_int_equal(policy.status, 0);
	assert_int_equal(policy.restarts, 0);
}

static void who_trains_is_missed_at_the_end(void **state)
{
	begin(3, 1, 1);
	missed(0, 60 * S);
	assert_int_equal(outside(1), 0);
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED, .exit = {.status = 1}}),
		RUN_DO_START);
	assert_int_equal(policy.restarts, 1);
	assert_int_equal(outside(1), RUN_DO_KILL); /* no worker has come to its end */
}

static void others_leave_all_and_start_again(void **state)
{
	begin(2, 1, 0);
	assert_int_equal(scaled(2, false), 0);
	assert_int_equal(scaled(3, false), RUN_DO_NOTICE);
	assert_int_equal(scaled(4, false), 0); /* asked again meanwhile */
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED, .exit = {.status = 143}}), 0);
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED}), RUN_DO_START);
	assert_int_equal(policy.alive, 4);
	assert_int_equal(policy.restarts, 0);
	scaled(2, false); /* some do not leave */
	assert_int_equal(timeout(), RUN_DO_KILL);
	for (int i = 0; i < 3; i++) {
		step((struct run_event){.kind = RUN_EXITED, .exit = {.status = 137}});
	}
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED, .exit = {.status = 137}}),
		RUN_DO_START);
	scaled(3, false); /* a signal is more urgent */
	assert_int_equal(step((struct run_event){.kind = RUN_SIGNALED, .signal = 15}), 0);
	assert_false(run_policy_can_scale(&policy));
	step((struct run_event){.kind = RUN_EXITED, .exit = {.status = 143}});
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED, .exit = {.status = 143}}),
		RUN_DO_DRAIN);
	assert_int_equal(policy.status, 143);
}

/* The workers, as known to whoever starts them. */
struct seen {
	uint32_t alive, leaving;
	bool quiet; /* nobody asks for anything any more, and nothing fails */
	bool over;
};

static unsigned random_end(struct rng *rng, struct seen *seen)
{
	struct run_exit exit = {.retired = seen->leaving == seen->alive ||
			(seen->leaving > 0 && rng_below(rng, 2) == 0),
		.verdict = rng_below(rng, 8) != 0 ? RUN_VERDICT_GO_ON : RUN_VERDICT_NONE_LEFT,
		.outside = rng_below(rng, 4) == 0,
		.lasted_ns = (int64_t)rng_below(rng, 9 * S)};

	exit.status = exit.retired ? RUN_EXIT_LEFT : !seen->quiet && rng_below(rng, 2) == 0;
	if (exit.retired && seen->quiet) {
		exit.verdict = RUN_VERDICT_GO_ON;
	}
	seen->leaving -= exit.retired;
	seen->alive--;
	return step((struct run_event){.kind = RUN_EXITED, .exit = exit});
}

static unsigned random_event(struct rng *rng, struct seen *seen)
{
	uint64_t draw = rng_below(rng, 16);

	now_ns += (int64_t)rng_below(rng, 6 * S);
	if (policy.timer_ns != 0 && now_ns >= policy.timer_ns) {
		return timeout();
	}
	if (policy.phase == RUN_DRAINING) {
		return step((struct run_event){.kind = RUN_DRAINED, .ok = true});
	}
	if (draw < 4 && !seen->quiet && run_policy_can_scale(&policy)) {
		return scaled(1 + (uint32_t)rng_below(rng, WORKERS_MAX), rng_below(rng, 8) != 0);
	}
	if (draw == 4 && !seen->quiet) {
		return step((struct run_event){.kind = RUN_SIGNALED, .signal = 15});
	}
	return seen->alive > 0 ? random_end(rng, seen) : 0;
}

static void check_actions(unsigned actions, struct seen *seen)
{
	if (actions & RUN_DO_ADD) {
		seen->alive += policy.change;
	}
	if (actions & RUN_DO_RETIRE) {
		seen->leaving += policy.change;
		assert_true(seen->leaving < seen->alive);
	}
	if (actions & RUN_DO_START) {
		assert_int_equal(seen->alive, 0);
		*seen = (struct seen){.alive = policy.workers, .quiet = seen->quiet};
	}
	assert_int_equal(seen->alive, policy.alive);
	assert_true(!(actions & RUN_DO_DRAIN) || seen->alive == 0);
	seen->over = (actions & RUN_DO_EXIT) != 0;
}

/* Whatever comes: the workers that live are those that were started, and the history ends. */
static void every_history_ends_well(void **state)
{
	const char *given = getenv("PAWL_TEST_SEED");
	uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20261124;

	print_message("seed %llu\n", (unsigned long long)seed);
	for (uint64_t i = 0; i < HISTORIES; i++) {
		struct rng rng = {seed + i};
		struct seen seen = {.alive = 1 + (uint32_t)rng_below(&rng, WORKERS_MAX)};

		begin(seen.alive, 1 + (uint32_t)rng_below(&rng, seen.alive),
			(uint32_t)rng_below(&rng, 4));
		for (uint32_t n = 0; n < 2 * EVENTS && !seen.over; n++) {
			seen.quiet = n >= EVENTS;
			check_actions(random_event(&rng, &seen), &seen);
		}
		if (!seen.over) {
			fail_msg("history of seed %llu does not end",
				(unsigned long long)(seed + i));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_worker_that_fails_is_replaced),
		cmocka_unit_test(the_last_one_is_the_group),
		cmocka_unit_test(where_others_need_it_all_start_again),
		cmocka_unit_test(those_that_fail_at_once_come_slower_then_no_more),
		cmocka_unit_test(a_late_one_is_added_when_its_time_has_come),
		cmocka_unit_test(more_are_added_and_fewer_leave),
		cmocka_unit_test(who_would_join_is_no_group),
		cmocka_unit_test(a_retired_worker_may_come_to_the_end),
		cmocka_unit_test(who_is_left_behind_is_not_missed_at_the_end),
		cmocka_unit_test(who_trains_is_missed_at_the_end),
		cmocka_unit_test(others_leave_all_and_start_again),
		cmocka_unit_test(every_history_ends_well),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
