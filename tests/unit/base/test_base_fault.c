/* A fault point fails exactly when it is armed to fail: the n-th time, once or for good, by prefix,
 * from any thread, and from the environment. */
#include "base/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static int answer(void)
{
	return 42;
}

static void fails_the_nth_once_or_for_good(void **state)
{
	assert_int_equal(FAULT_SYS("a.x", answer()), 42);
	for (int forever = 0; forever <= 1; forever++) {
		fault_arm("a.x", 3, ENOSPC, forever);
		for (int i = 1; i <= 5; i++) {
			int rc = FAULT_SYS("a.x", answer());
			bool hit = i == 3 || (i > 3 && forever);

			assert_int_equal(rc, hit ? -1 : 42);
			assert_int_equal(hit ? errno : 0, hit ? ENOSPC : 0);
		}
		assert_int_equal(fault_count(), 5);
		fault_disarm();
		assert_int_equal(FAULT_SYS("a.x", answer()), 42);
	}
}

static void matches_by_prefix(void **state)
{
	char *p = (char *)"p";

	fault_arm("store.", 2, EIO, false);
	assert_int_equal(FAULT_SYS("stor", answer()), 42);
	assert_int_equal(FAULT_SYS("base.store.", answer()), 42);
	assert_int_equal(FAULT_SYS("store.sync", answer()), 42);
	assert_null(FAULT_MEM("store.alloc", p));
	assert_ptr_equal(FAULT_MEM("store.alloc", p), p);
	fault_disarm();
	fault_arm("", 1, EIO, false);
	assert_int_equal(FAULT_SYS("anything", answer()), -1);
	fault_disarm();
}

static void *pass_point(void *user)
{
	unsigned *failed = user;

	for (int i = 0; i < 10000; i++) {
		*failed += FAULT_SYS("t.x", answer()) == -1;
	}
	return NULL;
}

static void exactly_one_of_many_threads_fails(void **state)
{
	pthread_t threads[4];
	unsigned failed[4] = {0};

	fault_arm("t.", 20000, EIO, false);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, pass_point, &failed[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
	}
	assert_int_equal(failed[0] + failed[1] + failed[2] + failed[3], 1);
	assert_int_equal(fault_count(), 40000);
	fault_disarm();
}

/* Runs this program anew with PAWL_FAULT, in which it passes "env.x" three times. Returns its exit
 * status. */
static int run_child(const char *fault)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		setenv("PAWL_FAULT", fault, 1);
		execl("/proc/self/exe", "child", "child", NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Returns the exit status: bit i is set if pass i failed; 64 is added for ENOSPC. */
static int be_child(void)
{
	int bits = 0;

	for (int i = 0; i < 3; i++) {
		if (FAULT_SYS("env.x", answer()) == -1) {
			bits |= (1 << i) | (errno == ENOSPC ? 64 : 0);
		}
	}
	FAULT_CRASH("env.crash");
	return bits;
}

static void armed_from_environment(void **state)
{
	assert_int_equal(run_child("env.x:2"), 2);
	assert_int_equal(run_child("env.x:2:28"), 2 | 64);
	assert_int_equal(run_child("env.x:2:28:1"), 6 | 64);
	assert_int_equal(run_child("env.crash:1:-1"), 99);
	assert_int_equal(run_child("other:1"), 0);
	assert_int_equal(run_child("nonsense"), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fails_the_nth_once_or_for_good),
		cmocka_unit_test(matches_by_prefix),
		cmocka_unit_test(exactly_one_of_many_threads_fails),
		cmocka_unit_test(armed_from_environment),
	};

	if (argc > 1 && strcmp(argv[1], "child") == 0) {
		return be_child();
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
