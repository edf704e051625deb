/* Ranks and job as launchers set them: every source by itself, beside others, and with variables
 * that contradict each other. */
#include "pawl/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Looks a name up in a NULL-terminated list of "NAME=value". */
static const char *get_listed(void *user, const char *name)
{
	const char *const *vars = user;
	size_t len = strlen(name);

	for (; *vars != NULL; vars++) {
		if (strncmp(*vars, name, len) == 0 && (*vars)[len] == '=') {
			return *vars + len + 1;
		}
	}
	return NULL;
}

#define VARS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct pawl_env resolve(const char *const *vars)
{
	struct pawl_env env;
	struct pawl_err err;

	if (pawl_env_resolve(get_listed, (void *)(uintptr_t)vars, &env, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	return env;
}

/* Expects the environment to be refused, with what in the message. */
static void refuse(const char *const *vars, const char *what)
{
	struct pawl_env env = {.rank = 77};
	struct pawl_err err;

	assert_int_equal(PAWL_EINVAL,
		pawl_env_resolve(get_listed, (void *)(uintptr_t)vars, &env, &err));
	assert_int_equal(err.code, PAWL_EINVAL);
	if (strstr(err.msg, what) == NULL) {
		fail_msg("\"%s\" does not say \"%s\"", err.msg, what);
	}
	assert_int_equal(env.rank, 77); /* untouched */
}

/* Expects "rank/world local_rank/local_world node_rank/nodes source". */
static void expect_ranks(const char *const *vars, const char *expected)
{
	struct pawl_env env = resolve(vars);
	char got[128];

	snprintf(got, sizeof(got), "%u/%u %u/%u %u/%u %s", env.rank, env.world, env.local_rank,
		env.local_world, env.node_rank, env.nodes, env.source);
	assert_string_equal(got, expected);
}

static void expect_job(const char *const *vars, const char *job, const char *source)
{
	struct pawl_env env = resolve(vars);

	assert_string_equal(env.job, job);
	assert_string_equal(env.job_source, source);
}

static void nothing_set_is_rank_0_of_1(void **state)
{
	expect_ranks(VARS("HOME=/root"), "0/1 0/1 0/1 none");
	expect_ranks(VARS("RANK=", "SLURM_PROCID="), "0/1 0/1 0/1 none"); /* empty is unset */
	expect_job(VARS("HOME=/root"), "", "");
	assert_int_equal(resolve(VARS("HOME=/root")).attempt, 0);
}

static void each_source_by_itself(void **state)
{
	expect_ranks(VARS("PAWL_RANK=3", "PAWL_WORLD_SIZE=8", "PAWL_LOCAL_RANK=1",
			     "PAWL_LOCAL_WORLD_SIZE=2", "PAWL_NODE_RANK=1", "PAWL_NNODES=4"),
		"3/8 1/2 1/4 pawl");
	expect_ranks(VARS("RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",
			     "GROUP_RANK=1", "GROUP_WORLD_SIZE=2"),
		"5/8 1/4 1/2 torchrun");
	expect_ranks(VARS("SKYPILOT_NODE_RANK=2", "SKYPILOT_NUM_NODES=3"), "2/3 0/1 2/3 skypilot");
	expect_ranks(VARS("SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_LOCALID=1", "SLURM_NODEID=1",
			     "SLURM_JOB_NUM_NODES=2"),
		"3/4 1/2 1/2 slurm");
	expect_ranks(VARS("JOB_COMPLETION_INDEX=1", "PAWL_NNODES=2"), "1/2 0/1 1/2 kubernetes");
	expect_ranks(VARS("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
			     "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2"),
		"3/4 1/2 1/2 openmpi");
	expect_ranks(VARS("PMIX_RANK=1", "OMPI_COMM_WORLD_SIZE=2"), "1/2 1/2 0/1 openmpi");
	/* Open MPI 4.1 leaves these in a process that nobody launched. */
	expect_ranks(VARS("PMIX_RANK=0", "OMPI_MCA_ess=singleton", "OMPI_APP_CTX_NUM_PROCS=1"),
		"0/1 0/1 0/1 none");
}

static void what_is_not_given_follows(void **state)
{
	expect_ranks(VARS("RANK=1", "WORLD_SIZE=2"), "1/2 1/2 0/1 torchrun");
	expect_ranks(VARS("RANK=5", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4"), "5/8 1/4 1/2 torchrun");
	expect_ranks(VARS("RANK=5", "WORLD_SIZE=8", "GROUP_WORLD_SIZE=2"), "5/8 1/4 1/2 torchrun");
	expect_ranks(VARS("RANK=4", "WORLD_SIZE=5", "LOCAL_WORLD_SIZE=2"), "4/5 0/2 2/3 torchrun");
}

/* Environments recorded from Slurm 22.05: sbatch -N2 -n3, the batch script itself and its steps. */
static void slurm_as_it_is(void **state)
{
#define BATCH                                                                                      \
	"ENVIRONMENT=BATCH", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0",                \
		"SLURM_JOB_NUM_NODES=2", "SLURM_JOB_ID=1"
	expect_ranks(VARS(BATCH, "SLURM_NTASKS=3", "SLURM_TASKS_PER_NODE=2,1"), "0/1 0/1 0/1 none");
	expect_ranks(VARS(BATCH, "SLURM_NTASKS=1", "SLURM_TASKS_PER_NODE=1", "SLURM_STEP_ID=1",
			     "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NUM_TASKS=1"),
		"0/1 0/1 0/1 slurm");
#undef BATCH
#define STEP                                                                                       \
	"ENVIRONMENT=BATCH", "SLURM_STEP_ID=0", "SLURM_JOB_NUM_NODES=2", "SLURM_NTASKS=3",         \
		"SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_TASKS=3",                                \
		"SLURM_STEP_TASKS_PER_NODE=2,1"
	expect_ranks(VARS(STEP, "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NODEID=0"),
		"1/3 1/2 0/2 slurm");
	expect_ranks(VARS(STEP, "SLURM_PROCID=2", "SLURM_LOCALID=0", "SLURM_NODEID=1"),
		"2/3 0/1 1/2 slurm");
#undef STEP
	expect_ranks(VARS("SLURM_PROCID=6", "SLURM_NTASKS=7", "SLURM_LOCALID=0", "SLURM_NODEID=3",
			     "SLURM_JOB_NUM_NODES=4", "SLURM_TASKS_PER_NODE=2(x3),1"),
		"6/7 0/1 3/4 slurm");
}

/* The first source that is set counts: one is taken away after the other. */
static void precedence(void **state)
{
	static const char *const all[] = {"PAWL_RANK=0", "PAWL_WORLD_SIZE=11", "RANK=0",
		"WORLD_SIZE=12", "SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES=13", "SLURM_PROCID=0",
		"SLURM_NTASKS=14", "JOB_COMPLETION_INDEX=0", "PAWL_NNODES=1", "PMIX_RANK=0",
		"OMPI_COMM_WORLD_SIZE=16", NULL};
	static const char *const sources[] = {"pawl", "torchrun", "skypilot", "slurm", "kubernetes",
		"openmpi", "none"};

	for (size_t i = 0; i < 7; i++) {
		assert_string_equal(resolve(all + 2 * i).source, sources[i]);
	}
	/* A broken source behind the one that counts does not matter. */
	expect_ranks(VARS("RANK=0", "WORLD_SIZE=1", "SLURM_PROCID=x"), "0/1 0/1 0/1 torchrun");
	/* mpirun inside a Slurm step: the daemon is the task, not its children */
	expect_ranks(VARS("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0",
			     "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8",
			     "OMPI_COMM_WORLD_LOCAL_SIZE=4"),
		"5/8 1/4 1/2 openmpi");
	/* One of many independent pods. */
	expect_ranks(VARS("JOB_COMPLETION_INDEX=3"), "0/1 0/1 0/1 none");
}

static void contradictions_are_named(void **state)
{
	refuse(VARS("RANK=2", "WORLD_SIZE=2"), "RANK=2 contradicts WORLD_SIZE=2");
	refuse(VARS("RANK=0", "WORLD_SIZE=0"), "RANK=0 contradicts WORLD_SIZE=0");
	refuse(VARS("RANK=two", "WORLD_SIZE=2"), "RANK=two is not a number");
	refuse(VARS("RANK=-1", "WORLD_SIZE=2"), "RANK=-1 is not a number");
	refuse(VARS("RANK= 1", "WORLD_SIZE=2"), "RANK= 1 is not a number");
	refuse(VARS("RANK=1", "WORLD_SIZE=99999999999999999999"), "WORLD_SIZE=9999");
	refuse(VARS("RANK=1", "WORLD_SIZE=4000000000"), "WORLD_SIZE=4000000000 is more than");
	refuse(VARS("RANK=1"), "RANK=1 is set, but WORLD_SIZE is not");
	refuse(VARS("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"),
		"LOCAL_RANK=2 contradicts LOCAL_WORLD_SIZE=2");
	refuse(VARS("RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=3"),
		"LOCAL_WORLD_SIZE=3 contradicts WORLD_SIZE=2");
	refuse(VARS("RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=1"),
		"LOCAL_WORLD_SIZE=2 contradicts WORLD_SIZE=4 on 1 node");
	refuse(VARS("RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=0", "GROUP_WORLD_SIZE=2"),
		"LOCAL_WORLD_SIZE=0 contradicts WORLD_SIZE=2 on 2 nodes");
	refuse(VARS("RANK=1", "WORLD_SIZE=2", "GROUP_WORLD_SIZE=3"), "GROUP_WORLD_SIZE=3");
	refuse(VARS("RANK=1", "WORLD_SIZE=2", "GROUP_RANK=2", "GROUP_WORLD_SIZE=2"),
		"GROUP_RANK=2 contradicts GROUP_WORLD_SIZE=2");
	refuse(VARS("PAWL_RANK=1", "RANK=0", "WORLD_SIZE=2"), "PAWL_WORLD_SIZE is not");
	refuse(VARS("SKYPILOT_NODE_RANK=1"), "SKYPILOT_NUM_NODES is not");
	refuse(VARS("SKYPILOT_NODE_RANK=2", "SKYPILOT_NUM_NODES=2"), "SKYPILOT_NODE_RANK=2");
	refuse(VARS("SLURM_PROCID=4", "SLURM_NTASKS=4"), "SLURM_PROCID=4 contradicts SLURM_NTASKS");
	refuse(VARS("SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_NNODES=1", "SLURM_TASKS_PER_NODE=3"),
		"SLURM_TASKS_PER_NODE=3 contradicts SLURM_NTASKS=4");
	refuse(VARS("JOB_COMPLETION_INDEX=2", "PAWL_NNODES=2"), "JOB_COMPLETION_INDEX=2");
	refuse(VARS("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2"), "OMPI_COMM_WORLD_RANK=2");
	refuse(VARS("PMIX_RANK=0"), "OMPI_COMM_WORLD_SIZE is not");
	refuse(VARS("SLURM_RESTART_COUNT=x"), "SLURM_RESTART_COUNT=x");
}

static void job_has_its_own_order(void **state)
{
	static const char uuid[] = "TORCHELASTIC_RUN_ID=c7bebac7-0b8b-4d42-8a0c-743aad686c68";
	static const char *const all[] = {"PAWL_JOB_ID=p", "TORCHELASTIC_RUN_ID=t",
		"SKYPILOT_TASK_ID=sky", "SLURM_JOB_ID=7", NULL};
	char name[PAWL_JOB_MAX + 32];

	expect_job(all, "p", "PAWL_JOB_ID");
	expect_job(all + 1, "t", "TORCHELASTIC_RUN_ID");
	expect_job(all + 2, "sky", "SKYPILOT_TASK_ID");
	expect_job(all + 3, "7", "SLURM_JOB_ID");
	expect_job(VARS("TORCHELASTIC_RUN_ID=none", "SLURM_JOB_ID=7"), "7", "SLURM_JOB_ID");
	expect_job(VARS("TORCHELASTIC_RUN_ID=none"), "", "");
	expect_job(VARS(uuid, "SLURM_JOB_ID=7"), "7", "SLURM_JOB_ID");
	expect_job(VARS(uuid), strchr(uuid, '=') + 1, "TORCHELASTIC_RUN_ID");
	expect_job(VARS("SLURM_JOB_ID=9", "SLURM_ARRAY_JOB_ID=8", "SLURM_ARRAY_TASK_ID=2"), "8_2",
		"SLURM_ARRAY_JOB_ID");
	/* The job's name does not depend on the source of the rank. */
	expect_job(VARS("RANK=0", "WORLD_SIZE=1", "SLURM_JOB_ID=7"), "7", "SLURM_JOB_ID");
	/* 127 bytes are a name, 128 are refused */
	snprintf(name, sizeof(name), "PAWL_JOB_ID=%0*d", PAWL_JOB_MAX - 1, 0);
	assert_int_equal(strlen(resolve(VARS(name)).job), PAWL_JOB_MAX - 1);
	snprintf(name, sizeof(name), "PAWL_JOB_ID=%0*d", PAWL_JOB_MAX, 0);
	refuse(VARS(name), "PAWL_JOB_ID=0");
}

static void attempt_has_its_own_order(void **state)
{
	static const char *const all[] = {"PAWL_ATTEMPT=3", "TORCHELASTIC_RESTART_COUNT=2",
		"SLURM_RESTART_COUNT=1", NULL};

	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(resolve(all + i).attempt, 3 - i);
	}
}

static void reads_the_process_environment(void **state)
{
	struct pawl_env env;

	setenv("PAWL_RANK", "1", 1);
	setenv("PAWL_WORLD_SIZE", "2", 1);
	assert_int_equal(pawl_env_resolve(NULL, NULL, &env, NULL), 0);
	assert_int_equal(env.rank, 1);
	setenv("PAWL_RANK", "2", 1);
	assert_int_equal(pawl_env_resolve(NULL, NULL, &env, NULL), PAWL_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_set_is_rank_0_of_1),
		cmocka_unit_test(each_source_by_itself),
		cmocka_unit_test(what_is_not_given_follows),
		cmocka_unit_test(slurm_as_it_is),
		cmocka_unit_test(precedence),
		cmocka_unit_test(contradictions_are_named),
		cmocka_unit_test(job_has_its_own_order),
		cmocka_unit_test(attempt_has_its_own_order),
		cmocka_unit_test(reads_the_process_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
