/* Going on without ranks that are gone: processes are killed and stopped at any time, one after
 * another, also while the others agree. */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "seed.h"
#include "test_coll_heartbeat.h"
#include "test_coll_procs.h"

#include <stdio.h>

#define RANKS     5
#define HISTORIES 12
#define POINTS    20 /* points that a rank surely passes as it joins four others */
#define TOGETHER  4  /* jobs at a time */

static uint64_t first_seed;

/* The fault of rank 1 at its n-th point on the way to the next group. */
static struct {
	uint64_t nth; /* 0: no fault */
	int sys;      /* as in fault_arm */
} fault;

/* Does steps, and goes on without ranks that are gone, until all that are left want to end. */
static void run_rank(struct shared *shared, uint32_t rank)
{
	struct pawl_group *groups[RANKS] = {join_by_endpoints(&shared->endpoints, rank, RANKS)};
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
			within_pace((double)rng_below(&rng, rng_below(&rng, 2) == 1 ? 500 : 30000) /
				1e6);
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

/* ---- ranks that stand still: several jobs at a time, as each waits for a silence ---- */

struct job {
	pid_t pids[RANKS];
	struct shared *shared;
	bool out[RANKS]; /* ranks that are stopped */
};

static void begin_job(struct job *job, uint32_t least)
{
	memset(job, 0, sizeof(*job));
	job->shared = start(job->pids, RANKS, least, run_rank);
	await_steps(job->shared, 20);
}

static void stop_rank(struct job *job, uint32_t rank)
{
	kill(job->pids[rank], SIGSTOP);
	job->out[rank] = true;
}

static void end_others(struct job *job)
{
	__atomic_store_n(&job->shared->stop, 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(job->out[r] ? 0 : status_of(job->pids[r]), 0);
	}
}

static void wake_those_left_out(struct job *job)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		if (job->out[r]) {
			kill(job->pids[r], SIGCONT);
			assert_int_equal(status_of(job->pids[r]), LEFT_OUT);
		}
	}
}

static bool is_stopped_or_over(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT) == 0 &&
		info.si_pid == pid;
}

/* Kills rank 3, and loses rank 1 on the way to the group of the remaining ranks. */
static void begin_losing(struct job *job, uint64_t nth, int sys)
{
	fault.nth = nth;
	fault.sys = sys;
	begin_job(job, 1);
	kill(job->pids[3], SIGKILL);
	fault.nth = 0;
}

/* Returns whether rank 1 had so many points on its way, and so was lost. */
static bool lose_another(struct job *job, int ends)
{
	bool lost;

	await_steps(job->shared, 50);
	lost = is_stopped_or_over(job->pids[1]);
	kill(job->pids[1], SIGCONT);
	assert_int_equal(lost ? status_of(job->pids[1]) : ends, ends);
	__atomic_store_n(&job->shared->stop, 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < RANKS; r++) {
		if (r != 1 || !lost) {
			assert_int_equal(status_of(job->pids[r]), r == 3 ? 128 + SIGKILL : 0);
		}
	}
	munmap(job->shared, sizeof(*job->shared));
	return lost;
}

/* One rank is stopped in one job. In another several are, as the ranks of a host whose link is
 * lost: one of them is named, and all must be left out. They learn of it when they go on, even if
 * no rank is left to notify them. In two more jobs a rank is killed, and rank 1 stops on the way to
 * the group of the remaining ranks, where it is taken for lost later than others may think. */
static void who_stood_still_is_left_out(void **state)
{
	struct rng rng = {first_seed};
	struct job one;
	struct job several;
	struct job last;
	struct job any_point;
	struct job last_point;

	begin_job(&one, 3);
	stop_rank(&one, 2);
	begin_job(&several, 3);
	stop_rank(&several, 3);
	stop_rank(&several, 1);
	begin_job(&last, 1);
	stop_rank(&last, 2);
	begin_losing(&any_point, 1 + rng_below(&rng, POINTS), FAULT_STOPS);
	begin_losing(&last_point, POINTS, FAULT_STOPS);
	await_steps(one.shared, 50); /* more than the sums that were under way */
	wake_those_left_out(&one);
	await_steps(one.shared, 50);
	end_others(&one);
	await_steps(several.shared, 50);
	wake_those_left_out(&several);
	await_steps(several.shared, 50);
	end_others(&several);
	await_steps(last.shared, 50);
	end_others(&last);
	wake_those_left_out(&last);
	assert_true(lose_another(&any_point, LEFT_OUT));
	assert_true(lose_another(&last_point, LEFT_OUT));
	munmap(one.shared, sizeof(*one.shared));
	munmap(several.shared, sizeof(*several.shared));
	munmap(last.shared, sizeof(*last.shared));
}

/* Runs several jobs at a time: they wait for timers more than they compute. */
static void who_dies_on_the_way_is_left_behind(void **state)
{
	struct job jobs[TOGETHER];
	uint64_t through = 0; /* the first point that was not passed */

	for (uint64_t nth = 1; through == 0; nth += TOGETHER) {
		for (uint32_t i = 0; i < TOGETHER; i++) {
			begin_losing(&jobs[i], nth + i, FAULT_DIES);
		}
		for (uint32_t i = 0; i < TOGETHER; i++) {
			bool lost = lose_another(&jobs[i], FAULT_EXIT);

			through = lost || through > 0 ? through : nth + i;
		}
	}
	assert_true(through > POINTS);
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
	char endpoint[PAWL_ENDPOINT_MAX];
	const char *endpoints[] = {endpoint};
	struct pawl_group *group;
	struct pawl_group *next;
	uint32_t ranks[1];
	uint32_t n;

	assert_int_equal(pawl_group_open(&group, 0, 1, NULL, endpoint, NULL), 0);
	assert_int_equal(pawl_group_shrink(&next, group, 1, ranks, &n, LONG_NS, NULL), PAWL_EINVAL);
	assert_int_equal(pawl_group_join(group, endpoints, LONG_NS, NULL), 0);
	assert_int_equal(pawl_group_shrink(&next, group, 1, ranks, &n, LONG_NS, NULL), PAWL_EINVAL);
	pawl_group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survivors_of_kills_go_on),
		cmocka_unit_test(who_stood_still_is_left_out),
		cmocka_unit_test(who_dies_on_the_way_is_left_behind),
		cmocka_unit_test(too_few_do_not_go_on),
		cmocka_unit_test(what_cannot_be_shrunk_is_refused),
	};

	first_seed = test_seed();
	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
