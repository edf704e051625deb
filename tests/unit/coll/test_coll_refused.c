/* A newcomer is admitted where memory is short or calls are refused: no process hangs, and both
 * sides agree whether it is in. */
#include "base/fault.h"
#include "test_coll_heartbeat.h"
#include "times.h"
#include "within.h"

#include "pawl/coll.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LONG_NS    (60 * NS_PER_S)
#define MOST       6u /* ranks */
#define FAULTS_MAX 1000u

struct newcomer {
	const char *name;
	struct pawl_group *group;
	int rv;
};

static void *request_join(void *user)
{
	struct newcomer *n = user;

	n->rv = pawl_group_request_join(&n->group, n->name, LONG_NS, NULL);
	return NULL;
}

static struct pawl_group *join_alone(void)
{
	char endpoint[PAWL_ENDPOINT_MAX];
	const char *endpoints[] = {endpoint};
	struct pawl_group *group;

	assert_int_equal(pawl_group_open(&group, 0, 1, NULL, endpoint, NULL), 0);
	assert_int_equal(pawl_group_join(group, endpoints, LONG_NS, NULL), 0);
	return group;
}

/* Admits a newcomer, with the n-th allocation or call refused. Returns whether there was one, or
 * the newcomer was not admitted all the same, as the machine was stopped. */
static bool admit_with_fault(uint64_t nth)
{
	char name[PAWL_JOIN_LISTENER_NAME];
	struct newcomer n = {.name = name};
	struct pawl_group *group = join_alone();
	struct pawl_group *next = NULL;
	struct pawl_join_listener *listener;
	pthread_t thread;
	uint64_t passed;
	int rv;

	assert_int_equal(pawl_join_listener_open(&listener, NULL, name, NULL), 0);
	pthread_create(&thread, NULL, request_join, &n);
	WITHIN(WITHIN_LONG_S, pawl_join_listener_waiting(listener) == 1);
	fault_arm("coll.", nth, ENOMEM, false);
	rv = pawl_group_admit(&next, group, listener, MOST, LONG_NS, NULL);
	passed = fault_count();
	fault_disarm();
	pawl_join_listener_close(listener);
	pthread_join(thread, NULL);
	assert_true((rv == 0 && next != NULL) == (n.rv == 0));
	if (next) {
		assert_int_equal(pawl_group_ranks(next), 2);
		assert_int_equal(pawl_group_rank(n.group), 1);
		pawl_group_close(n.group);
		pawl_group_close(next);
	}
	pawl_group_close(group);
	return passed >= nth || !next;
}

static void what_is_refused_hangs_nobody(void **state)
{
	uint64_t nth = 1;

	while (nth <= FAULTS_MAX && admit_with_fault(nth)) {
		nth++;
	}
	assert_in_range(nth, 6, FAULTS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_refused_hangs_nobody),
	};

	test_times("join_step=0.3"); /* the listener waits for one that gave up */
	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
