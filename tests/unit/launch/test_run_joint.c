/* `pawl run --elastic --door`: what the end of a rank means where others have launchers of their
 * own, and what is done about it; by example, then over random histories. */
#include "base/rng.h"
#include "base/times.h"
#include "launch/run_joint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define S           1000000000LL
#define HISTORIES   20000u
#define EVENTS      200u
#define WORKERS_MAX 6u

static const struct run_times times = {.fast_ns = 5 * S,
	.backoff_ns = S,
	.backoff_max_ns = 4 * S,
	.reserve_ns = 3 * S,
	.drain_ns = 1800 * S,
	.look_ns = S};
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
		.joint = true,
		.max_restarts = max_restarts,
		.grace_ns = 25 * S};
	return step((struct run_event){.kind = RUN_BEGIN});
}

static unsigned failed(int status, bool survivable, int64_t lasted_ns)
{
	return step((struct run_event){.kind = RUN_EXITED,
		.exit = {.status = status,
			.verdict = survivable ? RUN_VERDICT_GO_ON : RUN_VERDICT_NONE_LEFT,
			.lasted_ns = lasted_ns}});
}

static unsigned ended(void)
{
	return step((struct run_event){.kind = RUN_EXITED, .exit = {.verdict = RUN_VERDICT_GO_ON}});
}

static unsigned left(void)
{
	return step((struct run_event){.kind = RUN_EXITED,
		.exit = {.status = RUN_EXIT_LEFT, .retired = true, .verdict = RUN_VERDICT_GO_ON}});
}

static unsigned stopped(void)
{
	return step((struct run_event){.kind = RUN_EXITED,
		.exit = {.status = RUN_EXIT_STOPPED, .verdict = RUN_VERDICT_STOPPING}});
}

static unsigned signaled(void)
{
	return step((struct run_event){.kind = RUN_SIGNALED, .signal = 15});
}

static unsigned quit(void)
{
	return step((struct run_event){.kind = RUN_QUIT});
}

static unsigned scaled(uint32_t workers)
{
	return step((struct run_event){.kind = RUN_SCALED, .workers = workers, .survivable = true});
}

static unsigned timeout(void)
{
	assert_true(policy.timer_ns != 0);
	now_ns = policy.timer_ns;
	return step((struct run_event){.kind = RUN_TIMEOUT});
}

static void check_end(int status)
{
	assert_int_equal(policy.phase, RUN_DRAINING);
	assert_int_equal(step((struct run_event){.kind = RUN_DRAINED, .ok = true}), RUN_DO_EXIT);
	assert_int_equal(policy.status, status);
}

/* ---- the policy ---- */

static void the_only_one_is_replaced_if_others_go_on_elsewhere(void **state)
{
	assert_int_equal(begin(1, 1, 3), RUN_DO_START);
	assert_int_equal(failed(137, true, 60 * S), RUN_DO_ADD);
	assert_int_equal(policy.alive, 1);
	assert_int_equal(policy.restarts, 0);
	assert_int_equal(ended(), RUN_DO_DRAIN);
	check_end(0);
}

static void it_is_never_started_again(void **state)
{
	begin(2, 1, 3);
	assert_int_equal(failed(9, false, 60 * S), RUN_DO_KILL);
	assert_int_equal(failed(137, false, 60 * S), RUN_DO_DRAIN);
	check_end(9);
	begin(1, 1, 3);
	assert_int_equal(failed(9, false, 60 * S), RUN_DO_DRAIN);
	check_end(9);
	begin(2, 1, 3); /* a rank that fails alike is replaced by nobody */
	assert_int_equal(failed(RUN_EXIT_USER, true, 60 * S), RUN_DO_KILL);
}

/* A rank that comes while those that train let nobody in is no reason to end them. */
static void who_is_not_let_in_ends_no_other(void **state)
{
	begin(2, 1, 3);
	assert_int_equal(failed(RUN_EXIT_NODES, true, 600 * S), RUN_DO_ADD);
	begin(2, 1, 3);
	assert_int_equal(failed(RUN_EXIT_NODES, false, 600 * S), RUN_DO_KILL);
	failed(137, false, S);
	check_end(RUN_EXIT_NODES);
}

static unsigned crashed(bool survivable)
{
	return step((struct run_event){.kind = RUN_EXITED,
		.exit = {.status = 9,
			.retired = true,
			.verdict = survivable ? RUN_VERDICT_GO_ON : RUN_VERDICT_NONE_LEFT}});
}

/* The only rank is asked to leave, and fails instead. */
static void who_crashes_has_not_left(void **state)
{
	begin(1, 1, 3);
	quit();
	assert_int_equal(crashed(false), RUN_DO_DRAIN);
	check_end(9);
	begin(1, 1, 3);
	quit();
	assert_int_equal(crashed(true), RUN_DO_DRAIN);
	check_end(RUN_EXIT_LEFT);
}

static void at_the_jobs_end_nobody_is_added_and_nobody_killed(void **state)
{
	begin(3, 1, 3);
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED,
				 .exit = {.status = 139, .verdict = RUN_VERDICT_FINISHING}}),
		0);
	assert_false(run_policy_can_scale(&policy));
	ended();
	assert_int_equal(ended(), RUN_DO_DRAIN);
	check_end(0);
}

static void a_launcher_that_waits_may_leave_or_change(void **state)
{
	begin(1, 1, 9);
	for (int i = 0; i < 3; i++) {
		step((struct run_event){.kind = RUN_EXITED,
			.exit = {.status = 1, .verdict = RUN_VERDICT_SOLE_LAUNCHER}});
	}
	assert_int_equal(policy.phase, RUN_WAITING);
	assert_int_equal(quit(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_LEFT);
	begin(1, 1, 9);
	for (int i = 0; i < 3; i++) {
		failed(1, true, S); /* the next one waits */
	}
	assert_int_equal(
		step((struct run_event){.kind = RUN_SCALED, .workers = 2, .survivable = false}), 0);
	assert_int_equal(policy.phase, RUN_WORKING);
	assert_int_equal(timeout(), RUN_DO_ADD);
	assert_int_equal(policy.change, 2);
}

static void those_that_fail_at_once_come_slower_then_no_more(void **state)
{
	begin(1, 1, 3);
	assert_int_equal(failed(1, true, S), RUN_DO_ADD);
	assert_int_equal(failed(1, true, S), RUN_DO_ADD);
	assert_int_equal(failed(1, true, S), 0);
	assert_int_equal(policy.alive, 0); /* while it waits */
	assert_int_equal(timeout(), RUN_DO_ADD);
	assert_int_equal(failed(1, true, S), RUN_DO_DRAIN);
	check_end(1);
	begin(3, 2, 1);
	assert_int_equal(failed(1, true, S), RUN_DO_ADD);
	assert_int_equal(failed(1, true, S), RUN_DO_SHRINK);
	assert_int_equal(policy.workers, 2);
}

static void an_unasked_stop_was_asked_elsewhere(void **state)
{
	begin(2, 1, 3);
	assert_int_equal(stopped(), RUN_DO_NOTICE);
	assert_int_equal(policy.timer_ns - now_ns, 22 * S);
	assert_false(run_policy_can_scale(&policy));
	assert_int_equal(stopped(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_STOPPED);
	begin(1, 1, 3);
	assert_int_equal(stopped(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_STOPPED);
	begin(2, 1, 3); /* one rank does not end with it */
	stopped();
	assert_int_equal(timeout(), RUN_DO_KILL);
	assert_int_equal(failed(137, true, S), RUN_DO_DRAIN);
	check_end(RUN_EXIT_STOPPED);
	begin(2, 1, 3); /* a signal that reaches us later is the first one */
	stopped();
	assert_int_equal(signaled(), 0);
	assert_int_equal(stopped(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_STOPPED);
}

static void it_leaves_and_the_others_go_on(void **state)
{
	begin(2, 1, 3);
	assert_int_equal(quit(), RUN_DO_RETIRE);
	assert_int_equal(policy.change, 2);
	assert_int_equal(quit(), 0);
	assert_false(run_policy_can_scale(&policy));
	assert_int_equal(left(), 0);
	assert_int_equal(left(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_LEFT);
	begin(3, 1, 3); /* some ranks had got the signal themselves before */
	scaled(2);
	assert_int_equal(quit(), RUN_DO_RETIRE);
	assert_int_equal(policy.change, 2);
	left();
	left();
	assert_int_equal(left(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_LEFT);
	begin(2, 1, 3); /* one rank dies on the way */
	quit();
	assert_int_equal(failed(137, true, 60 * S), 0);
	assert_int_equal(left(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_LEFT);
	begin(1, 1, 3); /* the rank dies before it is replaced */
	for (int i = 0; i < 3; i++) {
		failed(1, true, S);
	}
	assert_int_equal(quit(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_LEFT);
}

static void who_is_to_leave_may_come_to_the_end(void **state)
{
	begin(2, 1, 3);
	quit();
	assert_int_equal(ended(), 0);
	assert_int_equal(left(), RUN_DO_DRAIN);
	check_end(0);
	begin(2, 1, 3); /* a job that is to stop meanwhile */
	quit();
	assert_int_equal(stopped(), RUN_DO_NOTICE);
	assert_int_equal(left(), RUN_DO_DRAIN);
	check_end(RUN_EXIT_STOPPED);
	begin(2, 1, 3); /* a job that fails */
	quit();
	assert_int_equal(failed(9, false, S), RUN_DO_KILL);
	assert_int_equal(left(), RUN_DO_DRAIN);
	check_end(9);
	begin(2, 1, 3); /* a job that is signalled here */
	quit();
	assert_int_equal(signaled(), RUN_DO_NOTICE);
	left();
	assert_int_equal(failed(143, true, S), RUN_DO_DRAIN);
	check_end(143);
}

/* The machine goes away, so long from now. */
static unsigned quits_by(int64_t left_ns)
{
	return step((struct run_event){.kind = RUN_QUIT_BY,
		.signal = 15,
		.deadline_ns = now_ns + left_ns});
}

static void it_leaves_as_its_machine_goes_away(void **state)
{
	for (uint32_t i = 0; i < 2; i++) {
		begin(2, 1, 3);
		policy.preempted_status = i == 0 ? 0 : 33;
		assert_int_equal(quits_by(20 * S), RUN_DO_RETIRE);
		assert_int_equal(policy.change, 2);
		assert_int_equal(policy.timer_ns, now_ns + 10 * S);
		left();
		now_ns += S;
		assert_int_equal(left(), RUN_DO_DRAIN);
		assert_int_equal(policy.timer_ns, now_ns + 19 * S);
		assert_int_equal(step((struct run_event){.kind = RUN_DRAINED, .ok = true}),
			RUN_DO_EXIT);
		assert_int_equal(policy.status, i == 0 ? RUN_EXIT_LEFT : 33);
	}
}

static unsigned others_stay(void)
{
	now_ns = policy.timer_ns;
	return step((struct run_event){.kind = RUN_TIMEOUT, .survivable = true});
}

/* The step is long, and others stay: the workers have all of the time but for the reserve, and then
 * the others go on as if the machine were lost. If the others leave, too, the job stops. */
static void who_cannot_leave_in_time_is_killed_if_others_stay(void **state)
{
	for (uint32_t i = 0; i < 3; i++) {
		int64_t end_ns;

		begin(2, 1, 3);
		policy.preempted_status = i == 1 ? 33 : 0;
		assert_int_equal(quits_by(20 * S), RUN_DO_RETIRE);
		end_ns = policy.deadline_ns;
		while (policy.timer_ns < end_ns - 3 * S) {
			assert_int_equal(others_stay(), 0);
			assert_int_equal(policy.phase, RUN_WORKING);
		}
		if (i == 2) { /* the others leave now */
			assert_int_equal(timeout(), RUN_DO_NOTICE);
			assert_int_equal(policy.phase, RUN_LEAVING);
			continue;
		}
		assert_int_equal(policy.timer_ns, end_ns - 3 * S);
		assert_int_equal(others_stay(), RUN_DO_KILL);
		assert_int_equal(failed(137, true, S), 0);
		assert_int_equal(failed(137, true, S), RUN_DO_DRAIN);
		check_end(i == 1 ? 33 : 143);
	}
}

/* One signal more than those that a cloud sends beside its notice: the workers are killed. */
static void a_further_signal_kills_who_leaves(void **state)
{
	begin(1, 1, 3);
	assert_int_equal(quits_by(20 * S), RUN_DO_RETIRE);
	assert_int_equal(signaled(), RUN_DO_KILL);
	assert_int_equal(failed(137, true, S), RUN_DO_DRAIN);
	/* And one while that is made durable ends it. */
	assert_int_equal(signaled(), RUN_DO_EXIT);
	assert_int_equal(policy.status, 143);
	/* Another signal is the user's, who stops the job. */
	begin(1, 1, 3);
	quits_by(20 * S);
	assert_int_equal(step((struct run_event){.kind = RUN_SIGNALED, .signal = 2}),
		RUN_DO_NOTICE);
	/* Without a time to leave by, a signal stops the job. */
	begin(1, 1, 3);
	quit();
	assert_int_equal(signaled(), RUN_DO_NOTICE);
}

/* The last one of a job does not leave, or all leave: the job stops in what time is left. */
static void who_cannot_leave_in_time_stops_the_job(void **state)
{
	begin(1, 1, 3);
	assert_int_equal(quits_by(20 * S), RUN_DO_RETIRE);
	assert_int_equal(quits_by(30 * S), 0); /* no later notice gives more time */
	assert_int_equal(policy.deadline_ns, now_ns + 20 * S);
	assert_int_equal(timeout(), RUN_DO_NOTICE);
	assert_int_equal(policy.phase, RUN_LEAVING);
	assert_int_equal(policy.deadline_ns, now_ns + 10 * S);
	assert_int_equal(stopped(), RUN_DO_DRAIN);
	assert_int_equal(step((struct run_event){.kind = RUN_DRAINED, .ok = true}), RUN_DO_EXIT);
	assert_int_equal(policy.status, 143);
	/* A job that ends has nobody to leave. */
	begin(1, 1, 3);
	signaled();
	assert_int_equal(quits_by(20 * S), 0);
	assert_int_equal(stopped(), RUN_DO_DRAIN);
	/* None lives: the next one waits to be started. */
	begin(1, 1, 3);
	for (uint32_t i = 0; i < RUN_FAST_MAX - 1; i++) {
		failed(1, true, S);
	}
	failed(1, true, S);
	assert_true(policy.timer_ns != 0);
	assert_int_equal(quits_by(20 * S), RUN_DO_DRAIN);
}

static void a_signal_while_none_lives_ends_it(void **state)
{
	begin(1, 1, 9);
	for (int i = 0; i < 3; i++) {
		failed(1, true, S);
	}
	assert_int_equal(signaled(), RUN_DO_DRAIN);
	check_end(143);
}

/* No other rank takes the place of the last one, which has not come to the end. */
static void the_last_one_that_fails_at_the_end_failed(void **state)
{
	begin(3, 1, 3);
	assert_int_equal(ended(), 0);
	assert_int_equal(failed(9, true, 60 * S), 0);
	assert_int_equal(failed(8, true, 60 * S), RUN_DO_DRAIN);
	check_end(8);
}

/* All ranks that are left were asked to leave: others are to follow. */
static void the_last_that_leaves_is_no_end(void **state)
{
	begin(2, 1, 9);
	scaled(1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(failed(1, true, S), RUN_DO_ADD);
	}
	failed(1, true, S); /* the next one waits */
	assert_int_equal(left(), 0);
	assert_int_equal(policy.alive, 0);
	assert_int_equal(timeout(), RUN_DO_ADD);
	assert_int_equal(ended(), RUN_DO_DRAIN);
	check_end(0);
}

/* A worker had ended before it was told to leave, which is judged only once the job is ending. */
static void who_was_told_too_late_does_not_stay_counted(void **state)
{
	begin(2, 1, 9);
	assert_int_equal(quit(), RUN_DO_RETIRE);
	assert_int_equal(policy.retiring, 2);
	assert_int_equal(signaled(), RUN_DO_NOTICE);
	failed(1, true, S);
	assert_int_equal(policy.alive, 1);
	assert_int_equal(policy.retiring, 1);
}

/* The workers, as known to whoever starts them. */
struct seen {
	uint32_t alive, leaving;
	bool quiet; /* nobody asks for anything any more, and nothing fails */
	bool over;
};

static unsigned random_end(struct rng *rng, struct seen *seen)
{
	static const int statuses[] = {0, 0, 1, 1, RUN_EXIT_USER, 137, RUN_EXIT_STOPPED};
	struct run_exit exit = {.retired = seen->leaving == seen->alive ||
			(seen->leaving > 0 && rng_below(rng, 2) == 0),
		.verdict = rng_below(rng, 8) != 0 ? RUN_VERDICT_GO_ON : RUN_VERDICT_NONE_LEFT,
		.lasted_ns = (int64_t)rng_below(rng, 9 * S)};

	if (exit.verdict == RUN_VERDICT_GO_ON && rng_below(rng, 16) == 0) {
		exit.verdict = RUN_VERDICT_FINISHING;
	}
	exit.status = exit.retired && rng_below(rng, 4) != 0
		? RUN_EXIT_LEFT
		: statuses[seen->quiet ? 0 : rng_below(rng, 7)];
	if (exit.status == RUN_EXIT_STOPPED) {
		exit.verdict = RUN_VERDICT_STOPPING;
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
		return step((struct run_event){.kind = RUN_TIMEOUT,
			.survivable = rng_below(rng, 2) == 0});
	}
	if (policy.phase == RUN_DRAINING) {
		return step((struct run_event){.kind = RUN_DRAINED, .ok = true});
	}
	if (draw < 4 && !seen->quiet && run_policy_can_scale(&policy)) {
		return scaled(1 + (uint32_t)rng_below(rng, WORKERS_MAX));
	}
	if (draw < 6 && !seen->quiet) {
		return draw == 5                 ? signaled()
			: rng_below(rng, 2) == 0 ? quit()
						 : quits_by((int64_t)rng_below(rng, 60 * S));
	}
	return seen->alive > 0 ? random_end(rng, seen) : 0;
}

static void check_actions(unsigned actions, struct seen *seen)
{
	assert_int_equal(actions & (RUN_DO_START | RUN_DO_GATHER), 0);
	if (actions & RUN_DO_ADD) {
		assert_false(policy.quits || policy.finishing);
		seen->alive += policy.change;
	}
	if (actions & RUN_DO_RETIRE) {
		seen->leaving += policy.change;
		assert_true(seen->leaving <= seen->alive);
	}
	assert_int_equal(seen->alive, policy.alive);
	assert_true(policy.retiring <= policy.alive);
	assert_true(!(actions & RUN_DO_DRAIN) || seen->alive == 0);
	assert_true(seen->alive > 0 || policy.timer_ns != 0 || policy.phase == RUN_OVER);
	seen->over = (actions & RUN_DO_EXIT) != 0;
}

/* Whatever comes: the workers that live are those that were started, and the history ends. */
static void every_history_ends_well(void **state)
{
	const char *given = getenv("PAWL_TEST_SEED");
	uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20261125;

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

/* ---- the membership ---- */

static const struct run_joint_liveness just_now = {.silent_ns = 0};

static enum run_verdict judge(uint64_t alive, uint32_t number, uint32_t n, const uint32_t *listed)
{
	const struct run_joint_ranks ours = {.first = 64, .alive = alive, .joins = true};
	const struct run_end end = {.number = number, .exit = {.status = 1}};
	struct membership membership = {.state = MEMBERSHIP_OPEN, .n = n};

	memcpy(membership.numbers, listed, n * sizeof(*listed));
	return run_joint_judge(&ours, &membership, &end, &just_now);
}

static void others_go_on_once_membership_shows_it(void **state)
{
	assert_int_equal(judge(0, 64, 2, (uint32_t[]){0, 64}), RUN_VERDICT_UNKNOWN);
	assert_int_equal(judge(0, 64, 1, (uint32_t[]){0}), RUN_VERDICT_GO_ON);
	assert_int_equal(judge(0, 64, 1, (uint32_t[]){128}), RUN_VERDICT_GO_ON);
	/* One of our ranks lives. */
	assert_int_equal(judge(2, 64, 3, (uint32_t[]){0, 64, 65}), RUN_VERDICT_GO_ON);
	assert_int_equal(judge(1ull << 63, 64, 2, (uint32_t[]){64, 127}), RUN_VERDICT_GO_ON);
	/* The rank that lives is only to join. */
	assert_int_equal(judge(4, 64, 2, (uint32_t[]){64, 65}), RUN_VERDICT_UNKNOWN);
	/* The ranks of ours that are listed are as dead as this one. */
	assert_int_equal(judge(0, 64, 1, (uint32_t[]){65}), RUN_VERDICT_UNKNOWN);
	assert_int_equal(judge(0, 64, 0, (uint32_t[]){0}), RUN_VERDICT_UNKNOWN);
}

static void a_joiner_may_come_before_the_membership(void **state)
{
	struct run_joint_ranks ours = {.first = 64, .joins = true};
	const struct membership none = {.state = MEMBERSHIP_NONE};
	const struct membership closed = {.state = MEMBERSHIP_CLOSED};
	const struct membership unreadable = {.state = MEMBERSHIP_UNREADABLE};
	const struct membership open = {.state = MEMBERSHIP_OPEN, .n = 2, .numbers = {0, 65}};
	struct run_end end = {.number = 64, .exit = {.status = 1}};

	assert_int_equal(run_joint_judge(&ours, &none, &end, &just_now), RUN_VERDICT_GO_ON);
	assert_int_equal(run_joint_judge(&ours, &unreadable, &end, &just_now), RUN_VERDICT_UNKNOWN);
	assert_int_equal(run_joint_judge(&ours, &closed, &end, &just_now), RUN_VERDICT_NONE_LEFT);
	end.exit.status = RUN_EXIT_NODES; /* nobody has let it in */
	assert_int_equal(run_joint_judge(&ours, &none, &end, &just_now), RUN_VERDICT_REJECTED);
	assert_int_equal(run_joint_judge(&ours, &open, &end, &just_now), RUN_VERDICT_REJECTED);
	ours.alive = 2; /* one of ours trains, the others have no time for it */
	assert_int_equal(run_joint_judge(&ours, &open, &end, &just_now), RUN_VERDICT_GO_ON);
	ours = (struct run_joint_ranks){.first = 0, .alive = 1};
	assert_int_equal(run_joint_judge(&ours, &closed, &end, &just_now), RUN_VERDICT_FINISHING);
	assert_int_equal(run_joint_judge(&ours, &unreadable, &end, &just_now), RUN_VERDICT_UNKNOWN);
}

/* Only the launcher that began may begin anew, as long as no rank of another one trains, or has. */
static void the_first_alone_may_begin_anew(void **state)
{
	struct run_joint_ranks ours = {.first = 0, .alive = 1};
	const struct membership none = {.state = MEMBERSHIP_NONE};
	struct membership membership = {.state = MEMBERSHIP_OPEN, .n = 2, .numbers = {0, 1}};
	const struct run_end end = {.number = 1, .exit = {.status = 1}};

	assert_int_equal(run_joint_judge(&ours, &none, &end, &just_now), RUN_VERDICT_SOLE_LAUNCHER);
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &just_now), RUN_VERDICT_GO_ON);
	ours.alive = 0;
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &just_now),
		RUN_VERDICT_SOLE_LAUNCHER);
	ours.seen_others = true;
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &just_now), RUN_VERDICT_UNKNOWN);
	ours.seen_others = false;
	membership.numbers[0] = 64;
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &just_now), RUN_VERDICT_UNKNOWN);
	begin(2, 1, 1);
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED,
				 .exit = {.status = 1,
					 .verdict = RUN_VERDICT_SOLE_LAUNCHER,
					 .lasted_ns = 20 * S}}),
		RUN_DO_KILL);
	assert_int_equal(step((struct run_event){.kind = RUN_EXITED, .exit = {.status = 137}}),
		RUN_DO_START);
	assert_int_equal(policy.phase, RUN_WORKING);
	assert_int_equal(policy.restarts, 1);
}

/* Others are waited for as long as they show that they live, however long their step takes. */
static void others_are_waited_for_while_they_live(void **state)
{
	struct run_joint_ranks ours = {.first = 64, .joins = true};
	struct membership membership = {.state = MEMBERSHIP_OPEN, .n = 2, .numbers = {0, 64}};
	const struct run_end end = {.number = 64, .exit = {.status = 137}};
	struct run_joint_liveness liveness = {.silent_ns = times_ns(TIME_JOINT_WAIT) - 1};

	assert_int_equal(run_joint_judge(&ours, &membership, &end, &liveness), RUN_VERDICT_UNKNOWN);
	liveness.silent_ns++;
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &liveness),
		RUN_VERDICT_NONE_LEFT);
	membership.state = MEMBERSHIP_UNREADABLE;
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &liveness),
		RUN_VERDICT_NONE_LEFT);
	membership.state = MEMBERSHIP_OPEN;
	/* A launcher that quits need not wait to learn that it is not replaced. */
	ours.quits = true;
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &liveness),
		RUN_VERDICT_NONE_LEFT);
	liveness = (struct run_joint_liveness){.seen_alive = true};
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &liveness), RUN_VERDICT_GO_ON);
	ours.quits = false;
	assert_int_equal(run_joint_judge(&ours, &membership, &end, &liveness), RUN_VERDICT_UNKNOWN);
}

static void a_sign_of_life_is_one_that_changed(void **state)
{
	struct membership_alive alive = {.heartbeat = 7, .ranks = 1};
	uint64_t heartbeat = 0;

	assert_false(run_joint_check_heartbeat(&heartbeat, &alive,
		3)); /* may be that of a rank that was killed */
	assert_false(run_joint_check_heartbeat(&heartbeat, &alive, 3));
	alive.heartbeat = 5; /* a smaller one counts: its clock starts anew when a host is booted */
	assert_true(run_joint_check_heartbeat(&heartbeat, &alive, 3));
	assert_false(run_joint_check_heartbeat(&heartbeat, &alive, 3));
	alive.heartbeat = 6;
	assert_false(run_joint_check_heartbeat(&heartbeat, &alive,
		2));                          /* only one rank, which is to join */
	alive = (struct membership_alive){0}; /* no file, or one that cannot be read */
	assert_false(run_joint_check_heartbeat(&heartbeat, &alive, 3));
	alive = (struct membership_alive){.heartbeat = 6, .ranks = 3};
	assert_false(run_joint_check_heartbeat(&heartbeat, &alive, 3));
	alive.heartbeat = 8;
	assert_true(run_joint_check_heartbeat(&heartbeat, &alive, 2));
}

/* Reads a membership file with these bytes. */
static struct membership read_membership(const char *text)
{
	char path[] = "/tmp/pawl-door-XXXXXX";
	int fd = mkstemp(path);
	struct membership membership;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	membership_read(&membership, path);
	unlink(path);
	return membership;
}

static void a_membership_is_read(void **state)
{
	struct membership membership = read_membership("10.0.0.1:4567:99 0 64 65535\n");

	assert_int_equal(membership.state, MEMBERSHIP_OPEN);
	assert_int_equal(membership.n, 3);
	assert_true(membership_has(&membership, 0) && membership_has(&membership, 65535));
	assert_false(membership_has(&membership, 4567));
	assert_int_equal(membership_count_ranks(&membership, 0), 1);
	assert_int_equal(membership_count_ranks(&membership, 1), 1);
	assert_int_equal(membership_count_ranks(&membership, 2), 0);
	membership = read_membership("10.0.0.1:4567:99 63 64 127 oops 65");
	assert_int_equal(membership_count_ranks(&membership, 1), 2);
	assert_int_equal(read_membership("10.0.0.1:4567:99").n, 0);
	membership = read_membership("over\n");
	assert_true(membership.state == MEMBERSHIP_CLOSED && membership.status == 0);
	membership = read_membership("over 143");
	assert_true(membership.state == MEMBERSHIP_CLOSED && membership.status == 143);
	assert_int_equal(read_membership("").state,
		MEMBERSHIP_UNREADABLE); /* as where a file server lost it */
	membership = read_membership("overt 1 x 2");
	assert_true(membership.state == MEMBERSHIP_OPEN && membership.n == 1);
	membership_read(&membership, "/nowhere/at/all");
	assert_int_equal(membership.state, MEMBERSHIP_NONE);
	membership_read(&membership, "");
	assert_int_equal(membership.state, MEMBERSHIP_NONE);
}

static void a_membership_is_closed_with_a_code(void **state)
{
	char path[] = "/tmp/pawl-door-XXXXXX";
	struct membership membership;

	close(mkstemp(path));
	membership_close(path, 7);
	membership_read(&membership, path);
	assert_true(membership.state == MEMBERSHIP_CLOSED && membership.status == 7);
	membership_close(path, 0);
	membership_read(&membership, path);
	assert_true(membership.state == MEMBERSHIP_CLOSED && membership.status == 0);
	membership_close(path, 9); /* the job has come to its end already */
	membership_read(&membership, path);
	assert_true(membership.state == MEMBERSHIP_CLOSED && membership.status == 0);
	membership_remove(path);
	membership_read(&membership, path);
	assert_int_equal(membership.state, MEMBERSHIP_NONE);
}

static void the_membership_counts_whatever_the_code(void **state)
{
	static struct run_plan plan;
	struct run_joint joint = {.options.plan = &plan};
	const struct run_end stopped = {.exit = {.status = RUN_EXIT_STOPPED}};
	const struct run_end failed = {.exit = {.status = 1}};
	const struct run_end well = {.exit = {.status = 0}};

	snprintf(plan.membership_path, sizeof(plan.membership_path), "/tmp/pawl-door-XXXXXX");
	close(mkstemp(plan.membership_path));
	membership_close(plan.membership_path, RUN_EXIT_STOPPED);
	assert_true(run_joint_is_stop(&joint, &stopped) && run_joint_is_stop(&joint, &failed));
	assert_false(run_joint_is_stop(&joint, &well));
	membership_remove(plan.membership_path);
	assert_false(run_joint_is_stop(&joint, &stopped));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_only_one_is_replaced_if_others_go_on_elsewhere),
		cmocka_unit_test(it_is_never_started_again),
		cmocka_unit_test(who_is_not_let_in_ends_no_other),
		cmocka_unit_test(who_crashes_has_not_left),
		cmocka_unit_test(at_the_jobs_end_nobody_is_added_and_nobody_killed),
		cmocka_unit_test(a_launcher_that_waits_may_leave_or_change),
		cmocka_unit_test(those_that_fail_at_once_come_slower_then_no_more),
		cmocka_unit_test(an_unasked_stop_was_asked_elsewhere),
		cmocka_unit_test(it_leaves_and_the_others_go_on),
		cmocka_unit_test(who_is_to_leave_may_come_to_the_end),
		cmocka_unit_test(it_leaves_as_its_machine_goes_away),
		cmocka_unit_test(who_cannot_leave_in_time_is_killed_if_others_stay),
		cmocka_unit_test(a_further_signal_kills_who_leaves),
		cmocka_unit_test(who_cannot_leave_in_time_stops_the_job),
		cmocka_unit_test(a_signal_while_none_lives_ends_it),
		cmocka_unit_test(the_last_one_that_fails_at_the_end_failed),
		cmocka_unit_test(the_last_that_leaves_is_no_end),
		cmocka_unit_test(who_was_told_too_late_does_not_stay_counted),
		cmocka_unit_test(every_history_ends_well),
		cmocka_unit_test(others_go_on_once_membership_shows_it),
		cmocka_unit_test(a_joiner_may_come_before_the_membership),
		cmocka_unit_test(the_first_alone_may_begin_anew),
		cmocka_unit_test(others_are_waited_for_while_they_live),
		cmocka_unit_test(a_sign_of_life_is_one_that_changed),
		cmocka_unit_test(a_membership_is_read),
		cmocka_unit_test(a_membership_is_closed_with_a_code),
		cmocka_unit_test(the_membership_counts_whatever_the_code),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
