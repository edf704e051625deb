/* Ranks that are processes, which may be killed, and what they share with the test. */
#ifndef TEST_COLL_PROCS_H
#define TEST_COLL_PROCS_H

#include "base/clock.h"
#include "test_coll_endpoints.h"
#include "within.h"

#include "pawl/coll.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define LONG_NS  within_ns(WITHIN_LONG_S)
#define NUMBERS  100000
#define LEFT_OUT 7 /* exit status of a rank that the others go on without */

/* Memory that the processes of a history share. */
struct shared {
	struct test_endpoints endpoints;
	uint32_t steps;                              /* atomic: sums that ranks have done */
	uint32_t least;                              /* ranks that must be left to go on */
	uint32_t stop;                               /* atomic: ranks are to end once all know */
	uint32_t ranks;                              /* atomic: ranks in the last sum */
	uint32_t listeners_opened;                   /* atomic: number of join listeners opened */
	char listener_name[PAWL_JOIN_LISTENER_NAME]; /* name of the last join listener */
};

static float numbers[NUMBERS];

/* Copies blocks: one by one takes the thread sanitizer longer than the collective. */
static inline void fill_numbers(float value)
{
	numbers[0] = value;
	for (size_t n = 1; n < NUMBERS; n *= 2) {
		memcpy(numbers + n, numbers, (n < NUMBERS - n ? n : NUMBERS - n) * sizeof(float));
	}
}

/* Compares all numbers but the last; each must have the bytes of the one before. */
static inline bool are_numbers(float value)
{
	const uint8_t *bytes = (const uint8_t *)numbers;

	return numbers[0] == value &&
		memcmp(bytes, bytes + sizeof(float), (NUMBERS - 2) * sizeof(float)) == 0;
}

/* Does a sum. The first number counts the ranks, the last one those that want to end; *over is set
 * if all do. */
static inline int sum(struct shared *shared, struct pawl_group *group, bool *over,
	struct pawl_err *err)
{
	const struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.len_bytes = sizeof(numbers),
		.in = numbers,
		.out = numbers,
		.timeout_ns = LONG_NS};
	float n = (float)pawl_group_ranks(group);
	struct pawl_work work;
	int rv;

	fill_numbers(1);
	numbers[NUMBERS - 1] = __atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE) != 0 ? 1 : 0;
	rv = pawl_group_submit(group, &work, &call, err);
	rv = rv == 0 ? IN_TIME(pawl_group_wait(group, &work, -1, err)) : rv;
	if (rv == 0 && !are_numbers(n)) {
		_exit(4);
	}
	if (rv == 0) {
		*over = numbers[NUMBERS - 1] == n;
		__atomic_store_n(&shared->ranks, (uint32_t)n, __ATOMIC_RELAXED);
		__atomic_add_fetch(&shared->steps, 1, __ATOMIC_RELAXED);
	}
	return rv;
}

/* Starts a process for each rank, which never returns from run. */
static inline struct shared *start(pid_t *pids, uint32_t ranks, uint32_t least,
	void (*run)(struct shared *shared, uint32_t rank))
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(shared != MAP_FAILED);
	shared->least = least;
	for (uint32_t r = 0; r < ranks; r++) {
		pids[r] = fork();
		assert_true(pids[r] >= 0);
		if (pids[r] == 0) {
			/* A failed test leaves no process behind. */
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run(shared, r);
		}
	}
	return shared;
}

/* Waits for so many more sums, counted over all ranks. */
static inline void await_steps(const struct shared *shared, uint32_t more)
{
	uint32_t want = __atomic_load_n(&shared->steps, __ATOMIC_RELAXED) + more;

	WITHIN_DOING(WITHIN_LONG_S,
		(int32_t)(__atomic_load_n(&shared->steps, __ATOMIC_RELAXED) - want) >= 0,
		within_pace(0.0002));
}

/* Returns the exit status of a process; one that does not end is late. */
static inline int status_of(pid_t pid)
{
	int status = WITHIN_CHILD(pid);

	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
