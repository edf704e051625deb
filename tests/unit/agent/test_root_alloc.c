/* A root is opened while memory runs out: it is refused, or its storage is opened. No root waits
 * for storage that nobody opens. */
#define ALLOC_FAILS
#include "count_alloc.h"

#ifndef SANITIZED

#include "agent/root.h"
#include "folder.h"
#include "within.h"

#include <sys/stat.h>

static _Thread_local unsigned left; /* allocations until one fails, which counts; 0: none does */

static void count_call(void)
{
}

static int fail_call(const void *old)
{
	return left > 0 && --left == 0;
}

static void check_opened(struct agent_root *root)
{
	struct persist_job *job = NULL;

	WITHIN(WITHIN_LONG_S, (job = persist_reap(root->storage.thread)) != NULL);
	assert_int_equal(job->kind, PERSIST_OPEN);
	assert_int_equal(job->result.rv, 0);
	free(job);
	root_close(root);
}

static void each_root_is_refused_or_has_its_storage_opened(void **state)
{
	struct agent agent = {0};
	char path[] = "/tmp/pawl-root-XXXXXX";
	const struct persist_options options = {.root = path, .job = "test", .ranks = 2};
	unsigned refused = 0;
	bool failed = true;

	assert_non_null(mkdtemp(path));
	assert_int_equal(loop_open(&agent.loop, NULL), 0);
	for (unsigned nth = 1; failed; nth++) {
		struct agent_root *root = NULL;
		struct pawl_err err;
		int rv;

		left = nth;
		rv = root_open(&agent, path, &options, 0, &root, &err);
		failed = left == 0;
		left = 0;
		if (rv == 0) {
			check_opened(root);
		}
		assert_true(rv == 0 || failed);
		refused += rv != 0;
	}
	assert_true(refused > 4);
	loop_close(agent.loop);
	folder_remove_tree(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_root_is_refused_or_has_its_storage_opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
