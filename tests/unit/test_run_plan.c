/* What a worker finds in its environment, and what a job that nobody named is called. */
#include "agent/run_plan.h"
#include "agent/run_vars.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct run_place place = {
	.workers = 4,
	.max_restarts = 3,
	.restarts = 1,
	.attempt = 6,
	.port = 12345,
	.job = "gpt",
	.agent = "/run/a b.sock",
	.one_thread = true,
};

static const char *find(char *const *env, const char *name)
{
	const char *found = NULL;
	size_t len = strlen(name);

	for (; *env != NULL; env++) {
		if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
			assert_null(found); /* once */
			found = *env + len + 1;
		}
	}
	return found;
}

static void workers_find_what_torchrun_sets(void **state)
{
	char *base[] = {(char[]){"HOME=/root"}, (char[]){"RANK=9"}, (char[]){"WORLD_SIZE=9"},
		(char[]){"PAWL_RANK=9"}, (char[]){"RANKING=1"}, (char[]){"EMPTY="}, NULL};
	static const char *const expected[][2] = {{"HOME", "/root"}, {"RANKING", "1"},
		{"EMPTY", ""}, {"RANK", "2"}, {"LOCAL_RANK", "2"}, {"ROLE_RANK", "2"},
		{"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}, {"ROLE_WORLD_SIZE", "4"},
		{"ROLE_NAME", "default"}, {"GROUP_RANK", "0"}, {"GROUP_WORLD_SIZE", "1"},
		{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "12345"},
		{"TORCHELASTIC_RESTART_COUNT", "1"}, {"TORCHELASTIC_MAX_RESTARTS", "3"},
		{"TORCHELASTIC_RUN_ID", "gpt"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"},
		{"OMP_NUM_THREADS", "1"}, {"PAWL_JOB_ID", "gpt"}, {"PAWL_ATTEMPT", "6"},
		{"PAWL_AGENT", "/run/a b.sock"}};
	struct wire_out set = {NULL};
	char **env;

	run_vars_put_common(&set, &place);
	run_vars_put_varying(&set, &place, 2);
	env = run_vars_merge(base, &set);
	assert_non_null(env);
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		assert_non_null(find(env, expected[i][0]));
		assert_string_equal(find(env, expected[i][0]), expected[i][1]);
	}
	assert_null(find(env, "PAWL_RANK"));
	assert_null(find(env, "TORCH_NCCL_ASYNC_ERROR_HANDLING"));
	free(env);
	wire_out_deinit(&set);
}

/* The template must not see a rank, not even one that we were given. */
static void the_template_finds_nothing_that_varies(void **state)
{
	char *base[] = {(char[]){"RANK=9"}, (char[]){"LOCAL_RANK=9"}, (char[]){"PAWL_ATTEMPT=9"},
		NULL};
	struct wire_out set = {NULL};
	struct wire_out varying = {NULL};
	size_t n = 0;
	char **env;

	run_vars_put_common(&set, &place);
	env = run_vars_merge(base, &set);
	for (const char *const *name = run_vars_varying; *name != NULL; name++) {
		assert_null(find(env, *name));
		n++;
	}
	/* and the list of names is that of what is put */
	run_vars_put_varying(&varying, &place, 0);
	for (size_t off = 0; off < varying.len_bytes; n--) {
		const char *var = (const char *)varying.bytes + off;
		const char *const *name = run_vars_varying;

		while (*name != NULL && strncmp(var, *name, strcspn(var, "=")) != 0) {
			name++;
		}
		assert_non_null(*name);
		off += strlen(var) + 1;
	}
	assert_int_equal(n, 0);
	free(env);
	wire_out_deinit(&set);
	wire_out_deinit(&varying);
}

static void a_derived_job_is_the_same_for_the_same_start(void **state)
{
	char job[6][CKPT_JOB_MAX];

	run_job_derive(job[0], CKPT_JOB_MAX, "/home/x/train.py", "/home/x", 1000);
	run_job_derive(job[1], CKPT_JOB_MAX, "/home/x/train.py", "/home/x", 1000);
	run_job_derive(job[2], CKPT_JOB_MAX, "/home/y/train.py", "/home/x", 1000);
	run_job_derive(job[3], CKPT_JOB_MAX, "/home/x/train.py", "/home", 1000);
	run_job_derive(job[4], CKPT_JOB_MAX, "/home/x/train.py", "/home/x", 1001);
	assert_string_equal(job[0], job[1]);
	for (int i = 2; i < 5; i++) {
		assert_string_not_equal(job[0], job[i]);
	}
	assert_int_equal(strlen(job[0]), strlen("train-0123456789abcdef"));
	assert_int_equal(strncmp(job[0], "train-", 6), 0);
	run_job_derive(job[5], CKPT_JOB_MAX, "/a/b \n\xc3\xa4.x.py", "/", 0);
	assert_int_equal(strncmp(job[5], "b-----x-", 8), 0); /* only letters, digits and dashes */
	assert_null(strpbrk(job[5], " \n/"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workers_find_what_torchrun_sets),
		cmocka_unit_test(the_template_finds_nothing_that_varies),
		cmocka_unit_test(a_derived_job_is_the_same_for_the_same_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
