/* The storage thread of a root: when the agent leaves, and among many damaged tags. */
#include "agent/persist/alerts.h"
#include "agent/persist/persist.h"
#include "base/clock.h"
#include "base/fault.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "folder.h"
#include "io/loop.h"
#include "sample.h"
#include "store/dirs.h"
#include "within.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define WAIT_MS 60000

static void take_opened(struct persist *persist)
{
	WITHIN(WITHIN_LONG_S, persist_reap(persist) != NULL);
}

static struct persist *start(const char *root, struct loop *loop, struct persist_job *job)
{
	struct persist_options options = {.root = root, .job = "test", .ranks = 1};
	struct persist *persist;

	*job = (struct persist_job){.kind = PERSIST_OPEN};
	assert_int_equal(persist_start(&persist, loop, &options, NULL), 0);
	persist_submit(persist, job);
	return persist;
}

static bool opens(const char *root, struct loop *loop)
{
	struct persist_job job;
	struct persist *persist = start(root, loop, &job);

	take_opened(persist);
	assert_true(persist_stop(persist, WAIT_MS));
	return job.result.rv == 0;
}

static void stop_loop(struct loop_timer *timer)
{
	loop_stop(timer->user);
}

static void note_wake(void *user)
{
	*(bool *)user = true;
}

/* Returns whether a loop has been woken. */
static bool was_woken(struct loop *loop)
{
	struct loop_timer timer = {.fired = stop_loop, .user = loop};
	bool woken = false;

	loop_on_wake(loop, note_wake, &woken);
	loop_timer_start(loop, &timer, clock_mono_ns() + 50 * NS_PER_MS);
	assert_int_equal(loop_run(loop, NULL), 0);
	return woken;
}

/* The second thread waits for the root that the first one has, and is left to itself meanwhile.
 * When it has the root at last, it releases it. It wakes no loop, since an agent's is freed. */
static void who_was_left_to_itself_keeps_no_root(void **state)
{
	static struct persist *left; /* left to itself; its memory stays */
	static struct persist_job waits;
	char root[] = "/tmp/pawl-persist-XXXXXX";
	struct loop *loop;
	struct loop *other; /* loop of the second thread */
	struct persist_job job;
	struct persist *persist;

	assert_non_null(mkdtemp(root));
	assert_int_equal(loop_open(&loop, NULL), 0);
	persist = start(root, loop, &job);
	take_opened(persist);
	assert_int_equal(loop_open(&other, NULL), 0);
	left = start(root, other, &waits);
	within_pace(0.3);
	if (persist_stop(left, 100)) {
		left = NULL; /* this process stood still for so long that the thread had given up */
	}
	assert_true(persist_stop(persist, WAIT_MS));
	WITHIN_DOING(WITHIN_LONG_S, opens(root, loop), within_pace(0.2));
	assert_true(!left || !was_woken(other));
	loop_close(other);
	loop_close(loop);
	folder_remove_tree(root);
}

/* The agent leaves before the thread has come to the jobs submitted: under ASan, nothing leaks. */
static void what_is_not_begun_is_freed(void **state)
{
	char root[] = "/tmp/pawl-persist-XXXXXX";
	struct persist_job job;
	struct persist *persist;
	struct loop *loop;

	assert_non_null(mkdtemp(root));
	assert_int_equal(loop_open(&loop, NULL), 0);
	persist = start(root, loop, &job);
	take_opened(persist);
	for (uint32_t i = 0; i < 1000; i++) {
		struct persist_job *room = calloc(1, sizeof(*room));

		assert_non_null(room);
		room->kind = PERSIST_CHECK_SPACE;
		room->allocated = true;
		persist_submit(persist, room);
	}
	assert_true(persist_stop(persist, WAIT_MS));
	loop_close(loop);
	folder_remove_tree(root);
}

/* ---- many damaged tags ---- */

/* Makes a root with a whole tag, and n damaged tags of the steps from first on. */
static void make_root(char *root, uint64_t whole, uint64_t first, uint64_t n)
{
	struct tags_root *made;
	struct store *store;

	assert_non_null(mkdtemp(root));
	assert_int_equal(tags_root_open(root, NULL, true, &made, NULL), 0);
	assert_int_equal(sample_save(sample_get(whole, 0), made, NULL), 0);
	store = tags_root_store(made);
	for (uint64_t step = first; step < first + n; step++) {
		char path[64];

		snprintf(path, sizeof(path), "global_step%llu", (unsigned long long)step);
		assert_int_equal(store_mkdir(store, path, NULL), 0);
		snprintf(path, sizeof(path), "global_step%llu/.pawl", (unsigned long long)step);
		assert_int_equal(store_mkdir(store, path, NULL), 0);
	}
	tags_root_close(made);
}

/* Opens a root and looks for its newest whole tag. *alerts: number of single alerts. */
static uint64_t find_newest(const char *root, unsigned *alerts)
{
	struct alert alert;
	struct persist_job find = {.kind = PERSIST_RESOLVE};
	struct persist_job job;
	struct persist *persist;
	struct loop *loop;

	assert_int_equal(loop_open(&loop, NULL), 0);
	persist = start(root, loop, &job);
	persist_submit(persist, &find);
	take_opened(persist);
	take_opened(persist);
	for (*alerts = 0; alerts_take(persist_alerts(persist), &alert);) {
		*alerts += alert.kind == ALERT_ONCE;
	}
	assert_true(persist_stop(persist, WAIT_MS));
	loop_close(loop);
	assert_int_equal(job.result.rv, 0);
	assert_int_equal(find.result.rv, 0);
	assert_true(find.result.resolve.found);
	return find.result.resolve.step;
}

/* Returns how often a search passes a point of the store. */
static uint64_t count_calls(const char *point, uint64_t damaged)
{
	char root[] = "/tmp/pawl-persist-XXXXXX";
	uint64_t calls;
	unsigned alerts;

	make_root(root, 5000, 1000, damaged);
	fault_arm(point, UINT64_MAX, 1, false);
	assert_int_equal(find_newest(root, &alerts), 5000);
	calls = fault_count();
	fault_disarm();
	folder_remove_tree(root);
	return calls;
}

static void older_damage_costs_nothing(void **state)
{
	assert_int_equal(count_calls("store.open", 20), count_calls("store.open", 400));
	assert_int_equal(count_calls("store.stat", 20), count_calls("store.stat", 400));
}

/* Only as many tags as .bad keeps are put aside, the newest. The others stay, and are one more
 * alert. */
static void a_mass_of_damage_stays_where_it_is(void **state)
{
	char root[] = "/tmp/pawl-persist-XXXXXX";
	struct store *store;
	uint64_t left = 0;
	unsigned alerts;

	make_root(root, 1, 1000, 50);
	assert_int_equal(find_newest(root, &alerts), 1);
	assert_int_equal(alerts, TAGS_BAD_MAX + 1);
	assert_int_equal(store_posix_open(root, false, &store, NULL), 0);
	for (uint64_t step = 1000; step < 1050; step++) {
		char path[64];

		snprintf(path, sizeof(path), "global_step%llu", (unsigned long long)step);
		left += store_stat(store, path, NULL, NULL, NULL) == 0;
	}
	assert_int_equal(left, 50 - TAGS_BAD_MAX);
	assert_int_equal(store_stat(store, ".bad/global_step1049.1", NULL, NULL, NULL), 0);
	assert_int_equal(store_stat(store, ".bad/global_step1047.3", NULL, NULL, NULL), 0);
	store_close(store);
	folder_remove_tree(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(older_damage_costs_nothing),
		cmocka_unit_test(a_mass_of_damage_stays_where_it_is),
		cmocka_unit_test(who_was_left_to_itself_keeps_no_root),
		cmocka_unit_test(what_is_not_begun_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
