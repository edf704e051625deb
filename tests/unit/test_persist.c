/* The storage thread of a root, as the agent leaves. */
#include "agent/persist.h"
#include "base/loop.h"
#include "within.h"

#include <errno.h>
#include <ftw.h>
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

static int remove_it(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	return remove(path);
}

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
	return job.rv == 0;
}

/* The second one waits for the root that the first one has, and is left to itself meanwhile. When
 * it has it at last, it lets it go. */
static void who_was_left_to_itself_keeps_no_root(void **state)
{
	static struct persist *left; /* its memory stays */
	static struct persist_job waits;
	static struct loop *loop; /* which it wakes */
	char root[] = "/tmp/pawl-persist-XXXXXX";
	struct persist_job job;
	struct persist *persist;

	assert_non_null(mkdtemp(root));
	assert_int_equal(loop_open(&loop, NULL), 0);
	persist = start(root, loop, &job);
	take_opened(persist);
	left = start(root, loop, &waits);
	within_pace(0.3);
	if (persist_stop(left, 100)) {
		left = NULL; /* this process stood still for so long that it had given up */
	}
	assert_true(persist_stop(persist, WAIT_MS));
	WITHIN_DOING(WITHIN_LONG_S, opens(root, loop), within_pace(0.2));
	nftw(root, remove_it, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_was_left_to_itself_keeps_no_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
