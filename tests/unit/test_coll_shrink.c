/* Going on without ranks that are gone: processes that are killed and stopped at any time, one
 * after another, also while the others agree. */
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "seed.h"

#include "pawl/coll.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS     5
#define LONG_NS   (60 * NS_PER_S)
#define NUMBERS   100000
#define LEFT_OUT  7 /* exit status of one that the others go on without */
#define HISTORIES 12

/* Between the processes of a history. */
struct shared {
	char cards[RANKS][PAWL_CARD_MAX];
	uint32_t ready[RANKS]; /* atomic: the card is there */
	uint32_t steps;        /* atomic: sums that rank 0 of a group has done */
	uint32_t least;        /* that must be left */
	uint32_t stop;         /* atomic: ranks are to end once all know */
};

static uint64_t first_seed;
static float numbers[NUMBERS];

static struct pawl_group *join_all(struct shared *shared, uint32_t rank)
{
	const char *all[RANKS];
	struct pawl_group *group;

	if (pawl_group_open(&group, rank, RANKS, NULL, shared->cards[rank], NULL) != 0) {
		_exit(2);
	}
	__atomic_store_n(&shared->ready[rank], 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < RANKS; r++) {
		all[r] = shared->cards[r];
		while (__atomic_load_n(&shared->ready[r], __ATOMIC_ACQUIRE) == 0) {
			sched_yield();
		}
	}
	if (pawl_group_join(group, all, LONG_NS, NULL) != 0) {
		_exit(3);
	}
	return group;
}

/* The first number says how many ranks, the last how many want to end. */
static int sum(struct pawl_group *group, bool stop, struct pawl_err *err)
{
	const struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.len_bytes = sizeof(numbers),
		.in = numbers,
		.out = numbers,
		.timeout_ns = LONG_NS};
	struct pawl_work work;
	int rv;

	for (uint32_t i = 0; i < NUMBERS; i++) {
		numbers[i] = 1;
	}
	numbers[NUMBERS - 1] = stop;
	rv = pawl_group_submit(group, &work, &call, err);
	return rv == 0 ? pawl_group_wait(group, &work, -1, err) : rv;
}

static void check_sum(uint32_t n)
{
	for (uint32_t i = 0; i < NUMBERS - 1; i++) {
		if (numbers[i] != (float)n) {
			_exit(4);
		}
	}
}

/* Steps, and goes on without who is gone, until all that are left want to end. */
static void run_rank(struct shared *shared, uint32_t rank)
{
	struct pawl_group *groups[RANKS] = {join_all(shared, rank)};
	uint32_t at = 0;
	uint32_t n = RANKS;
	uint32_t ranks[RANKS];
	struct pawl_err err;
	bool over = false;

	while (!over) {
		bool stop = __atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE);
		int rv = sum(groups[at], stop, &err);

		if (rv == 0) {
			check_sum(n);
			over = numbers[NUMBERS - 1] == (float)n;
			__atomic_add_fetch(&shared->steps, 1, __ATOMIC_RELAXED);
			continue;
		}
		if (at + 1 == RANKS) {
			_exit(5);
		}
		rv = pawl_group_shrink(&groups[at + 1], groups[at], shared->least, ranks, &n,
			LONG_NS, &err);
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

static struct shared *start(pid_t *pids, uint32_t least)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(shared != MAP_FAILED);
	shared->least = least;
	for (uint32_t r = 0; r < RANKS; r++) {
		pids[r] = fork();
		assert_true(pids[r] >= 0);
		if (pids[r] == 0) {
			run_rank(shared, r);
		}
	}
	return shared;
}

/* Waits for so many more sums, of all ranks together. */
static void await_steps(const struct shared *shared, uint32_t more)
{
	uint32_t want = __atomic_load_n(&shared->steps, __ATOMIC_RELAXED) + more;
	int64_t end_ns = clock_mono_ns() + 60 * NS_PER_S;

	while ((int32_t)(__atomic_load_n(&shared->steps, __ATOMIC_RELAXED) - want) < 0) {
		assert_true(clock_mono_ns() < end_ns);
		usleep(200);
	}
}

static int status_of(pid_t pid)
{
	int64_t end_ns = clock_mono_ns() + 60 * NS_PER_S;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_mono_ns() >= end_ns) {
			kill(pid, SIGKILL);
		}
		usleep(1000);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void survivors_of_kills_go_on(void **state)
{
	for (uint32_t h = 0; h < HISTORIES; h++) {
		struct rng rng = {first_seed + h};
		bool dead[RANKS] = {false};
		uint32_t kills = 1 + (uint32_t)rng_below(&rng, RANKS - 1);
		pid_t pids[RANKS];
		struct shared *shared = start(pids, 1);

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

static void who_stood_still_is_left_out(void **state)
{
	pid_t pids[RANKS];
	struct shared *shared;

	setenv("PAWL_HEARTBEAT", "0.25", 1);
	shared = start(pids, 3);
	await_steps(shared, 20);
	kill(pids[2], SIGSTOP);
	await_steps(shared, 50); /* there are few that it had begun */
	kill(pids[2], SIGCONT);
	assert_int_equal(status_of(pids[2]), LEFT_OUT);
	await_steps(shared, 50);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(r == 2 ? 0 : status_of(pids[r]), 0);
	}
	unsetenv("PAWL_HEARTBEAT");
	munmap(shared, sizeof(*shared));
}

static void too_few_do_not_go_on(void **state)
{
	pid_t pids[RANKS];
	struct shared *shared = start(pids, 3);

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
		cmocka_unit_test(too_few_do_not_go_on),
		cmocka_unit_test(what_cannot_be_shrunk_is_refused),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
