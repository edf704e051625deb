/* Going on without ranks that are gone: processes that are killed and stopped at any time, one
 * after another, also while the others agree. */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "seed.h"
#include "test_coll_beat.h"
#include "test_coll_procs.h"

#include <stdio.h>

#define RANKS     5
#define HISTORIES 12
#define POINTS    20 /* that a rank surely passes as it joins four others */

static uint64_t first_seed;

/* What becomes of rank 1 where it passes its n-th point on the way to the next group. */
static struct {
	uint64_t nth; /* 0: nothing */
	int sys;      /* as fault_arm has it */
} fault;

/* Steps, and goes on without who is gone, until all that are left want to end. */
static void run_rank(struct shared *shared, uint32_t rank)
{
	struct pawl_group *groups[RANKS] = {join_by_cards(&shared->cards, rank, RANKS)};
	uint32_t at = 0;
	uint32_t ranks[RANKS];
	uint32_t n;
	struct pawl_err err;
	bool over = false;

	while (!over) {
		int rv = sum(shared, groups[at], &over, &err);

		if (rv == 0) {
			continue;
		}
		if (at + 1 == RANKS) {
			_exit(5);
		}
		if (rank == 1 && fault.nth > 0) {
			fault_arm("coll.", fault.nth, fault.sys, false);
		}
		rv = pawl_group_shrink(&groups[at + 1], groups[at], shared->least, ranks, &n,
			LONG_NS, &err);
		fault_disarm();
		if (rv != 0) {
			fprintf(stderr, "rank %u: %s\n", rank, err.msg);
			_exit(rv == PAWL_EPEER ? LEFT_OUT : 6);
		}
		at++;
	}
	for (at++; at-- > 0;) {
		pawl_group_close(groups[at]);
	}
	_exit(0);
}

static void survivors_of_kills_go_on(void **state)
{
	for (uint32_t h = 0; h < HISTORIES; h++) {
		struct rng rng = {first_seed + h};
		bool dead[RANKS] = {false};
		uint32_t kills = 1 + (uint32_t)rng_below(&rng, RANKS - 1);
		pid_t pids[RANKS];
		struct shared *shared = start(pids, RANKS, 1, run_rank);

		await_steps(shared, 20);
		for (uint32_t k = 0; k < kills; k++) {
			uint32_t victim = (uint32_t)rng_below(&rng, RANKS);

			while (dead[victim]) {
				victim = (victim + 1) % RANKS;
			}
			usleep((useconds_t)rng_below(&rng, rng_below(&rng, 2) == 1 ? 500 : 30000));
			kill(pids[victim], SIGKILL);
			dead[victim] = true;
		}
		await_steps(shared, 50);
		__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
		for (uint32_t r = 0; r < RANKS; r++) {
			assert_int_equal(status_of(pids[r]), dead[r] ? 128 + SIGKILL : 0);
		}
		munmap(shared, sizeof(*shared));
	}
}

/* The victims stand still, of ranks that can do without them, and hear of it when they wake up. */
static void leave_out(const uint32_t *victims, uint32_t n)
{
	bool out[RANKS] = {false};
	pid_t pids[RANKS];
	struct shared *shared;

	shared = start(pids, RANKS, 3, run_rank);
	await_steps(shared, 20);
	for (uint32_t i = 0; i < n; i++) {
		kill(pids[victims[i]], SIGSTOP);
		out[victims[i]] = true;
	}
	await_steps(shared, 50); /* there are few that they had begun */
	for (uint32_t i = 0; i < n; i++) {
		kill(pids[victims[i]], SIGCONT);
		assert_int_equal(status_of(pids[victims[i]]), LEFT_OUT);
	}
	await_steps(shared, 50);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(out[r] ? 0 : status_of(pids[r]), 0);
	}
	munmap(shared, sizeof(*shared));
}

static void who_stood_still_is_left_out(void **state)
{
	const uint32_t victims[] = {2};

	leave_out(victims, 1);
}

/* As the ranks of a host whose link is lost: one of them is named, and all must be left out. */
static void several_who_stood_still_are_left_out(void **state)
{
	const uint32_t victims[] = {3, 1};

	leave_out(victims, 2);
}

/* It hears that they went on without it, though nobody is left who says so. */
static void who_wakes_up_last_does_not_go_on_alone(void **state)
{
	pid_t pids[RANKS];
	struct shared *shared = start(pids, RANKS, 1, run_rank);

	await_steps(shared, 20);
	kill(pids[2], SIGSTOP);
	await_steps(shared, 50);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(r == 2 ? 0 : status_of(pids[r]), 0);
	}
	kill(pids[2], SIGCONT);
	assert_int_equal(status_of(pids[2]), LEFT_OUT);
	munmap(shared, sizeof(*shared));
}

static bool is_stopped_or_over(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT) == 0 &&
		info.si_pid == pid;
}

/* Rank 3 is killed, and rank 1 is lost on the way to the group of those that are left. Whether it
 * has so many points there. */
static bool lose_another(uint64_t nth, int sys)
{
	const int ends = sys == FAULT_STOPS ? LEFT_OUT : FAULT_EXIT;
	struct shared *shared;
	pid_t pids[RANKS];
	bool lost;

	fault.nth = nth;
	fault.sys = sys;
	shared = start(pids, RANKS, 1, run_rank);
	await_steps(shared, 20);
	kill(pids[3], SIGKILL);
	await_steps(shared, 50);
	lost = is_stopped_or_over(pids[1]);
	kill(pids[1], SIGCONT);
	assert_int_equal(lost ? status_of(pids[1]) : ends, ends);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < RANKS; r++) {
		if (r != 1 || !lost) {
			assert_int_equal(status_of(pids[r]), r == 3 ? 128 + SIGKILL : 0);
		}
	}
	fault.nth = 0;
	munmap(shared, sizeof(*shared));
	return lost;
}

static void who_dies_on_the_way_is_left_behind(void **state)
{
	uint64_t nth = 1;

	while (lose_another(nth, FAULT_DIES)) {
		nth++;
	}
	assert_true(nth > POINTS);
}

/* Where it is taken for lost later than others may think. */
static void who_stops_on_the_way_is_left_behind(void **state)
{
	struct rng rng = {first_seed};

	assert_true(lose_another(1 + rng_below(&rng, POINTS), FAULT_STOPS));
	assert_true(lose_another(POINTS, FAULT_STOPS));
}

static void too_few_do_not_go_on(void **state)
{
	pid_t pids[RANKS];
	struct shared *shared = start(pids, RANKS, 3, run_rank);

	await_steps(shared, 20);
	for (uint32_t r = 1; r < 4; r++) {
		kill(pids[r], SIGKILL);
	}
	assert_int_equal(status_of(pids[0]), LEFT_OUT);
	assert_int_equal(status_of(pids[4]), LEFT_OUT);
	for (uint32_t r = 1; r < 4; r++) {
		assert_int_equal(status_of(pids[r]), 128 + SIGKILL);
	}
	munmap(shared, sizeof(*shared));
}

static void what_cannot_be_shrunk_is_refused(void **state)
{
	char card[PAWL_CARD_MAX];
	const char *cards[] = {card};
	struct pawl_group *group;
	struct pawl_group *next;
	uint32_t ranks[1];
	uint32_t n;

	assert_int_equal(pawl_group_open(&group, 0, 1, NULL, card, NULL), 0);
	assert_int_equal(pawl_group_shrink(&next, group, 1, ranks, &n, LONG_NS, NULL), PAWL_EINVAL);
	assert_int_equal(pawl_group_join(group, cards, LONG_NS, NULL), 0);
	assert_int_equal(pawl_group_shrink(&next, group, 1, ranks, &n, LONG_NS, NULL), PAWL_EINVAL);
	pawl_group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survivors_of_kills_go_on),
		cmocka_unit_test(who_stood_still_is_left_out),
		cmocka_unit_test(several_who_stood_still_are_left_out),
		cmocka_unit_test(who_wakes_up_last_does_not_go_on_alone),
		cmocka_unit_test(who_dies_on_the_way_is_left_behind),
		cmocka_unit_test(who_stops_on_the_way_is_left_behind),
		cmocka_unit_test(too_few_do_not_go_on),
		cmocka_unit_test(what_cannot_be_shrunk_is_refused),
	};

	first_seed = test_seed();
	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
