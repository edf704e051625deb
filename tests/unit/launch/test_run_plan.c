/* The environment of a worker, and the name of a job that nobody named. */
#include "launch/env/run_vars.h"
#include "launch/run_plan.h"
#include "pawl/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct run_place place = {
	.servers = "10.0.0.9:7:5,10.0.0.10:7:6",
	.workers = 4,
	.first = 8,
	.world = 12,
	.node = 2,
	.nodes = 3,
	.master = "10.79.0.1",
	.max_restarts = 3,
	.restarts = 1,
	.attempt = 6,
	.port = 12345,
	.adaptdl_port = 12346,
	.job = "gpt",
	.agent = "/run/a b.sock",
	.membership_path = "/run/a b.door",
	.min_workers = 2,
	.joins = true,
	.number = 65,
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
		(char[]){"PAWL_RANK=9"}, (char[]){"PAWL_TOKEN=x"}, (char[]){"RANKING=1"},
		(char[]){"EMPTY="}, (char[]){"ADAPTDL_REPLICA_RANK=9"}, NULL};
	static const char *const expected[][2] = {{"HOME", "/root"}, {"RANKING", "1"},
		{"EMPTY", ""}, {"RANK", "10"}, {"LOCAL_RANK", "2"}, {"ROLE_RANK", "10"},
		{"WORLD_SIZE", "12"}, {"LOCAL_WORLD_SIZE", "4"}, {"ROLE_WORLD_SIZE", "12"},
		{"ROLE_NAME", "default"}, {"GROUP_RANK", "2"}, {"GROUP_WORLD_SIZE", "3"},
		{"MASTER_ADDR", "10.79.0.1"}, {"MASTER_PORT", "12345"},
		{"TORCHELASTIC_RESTART_COUNT", "1"}, {"TORCHELASTIC_MAX_RESTARTS", "3"},
		{"TORCHELASTIC_RUN_ID", "gpt"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"},
		{"OMP_NUM_THREADS", "1"}, {"PAWL_JOB_ID", "gpt"}, {"PAWL_ATTEMPT", "6"},
		{"PAWL_AGENT", "/run/a b.sock"}, {"PAWL_SERVERS", "10.0.0.9:7:5,10.0.0.10:7:6"},
		{"PAWL_ELASTIC_DOOR", "/run/a b.door"}, {"PAWL_ELASTIC_MIN", "2"},
		{"PAWL_ELASTIC_JOIN", "65"}, {"ADAPTDL_REPLICA_RANK", "10"},
		{"ADAPTDL_NUM_REPLICAS", "12"}, {"ADAPTDL_NUM_NODES", "3"},
		{"ADAPTDL_NUM_RESTARTS", "6"}, {"ADAPTDL_MASTER_PORT", "12346"}};
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
	assert_null(find(env, "PAWL_TOKEN")); /* workers do not get the token */
	assert_null(find(env, "TORCH_NCCL_ASYNC_ERROR_HANDLING"));
	free(env);
	wire_out_deinit(&set);
}

/* The template must not see a rank, not even one that this process was given. */
static void the_template_finds_nothing_that_varies(void **state)
{
	char *base[] = {(char[]){"RANK=9"}, (char[]){"LOCAL_RANK=9"}, (char[]){"PAWL_ATTEMPT=9"},
		(char[]){"ADAPTDL_REPLICA_RANK=9"}, NULL};
	struct run_place other = place;
	struct wire_out set = {NULL};
	struct wire_out varying = {NULL};
	size_t n = 0;
	char **env;

	other.adaptdl_port = 0;
	run_vars_put_common(&set, &other);
	env = run_vars_merge(base, &set);
	for (const char *const *name = run_vars_varying; *name != NULL; name++) {
		assert_null(find(env, *name));
		n++;
	}
	assert_string_equal(find(env, "ADAPTDL_REPLICA_RANK"), "9"); /* another program's */
	/* The list of names is that of the variables that are put. */
	run_vars_put_varying(&varying, &other, 0);
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

static void a_place_is_a_host_and_a_port(void **state)
{
	static const char *const good[][3] = {{"gpu1", "gpu1", "29400"}, {"gpu1:7", "gpu1", "7"},
		{"10.0.0.1:65535", "10.0.0.1", "65535"}, {"[fd00::1]:80", "fd00::1", "80"},
		{"[fd00::1]", "fd00::1", "29400"}, {"fd00::1", "fd00::1", "29400"}};
	static const char *const bad[] = {"", ",", ":80", "gpu1:", "gpu1:0", "gpu1:65536", "gpu1:x",
		"[fd00::1", "[fd00::1]80", "[]", "0.0.0.0:80", "[::]:80", "gpu1,", "gpu1:123456",
		"a,b,c,d,e,f,g,h,i"};
	struct run_places places;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(run_places_parse(&places, good[i][0], NULL), 0);
		assert_int_equal(places.n, 1);
		assert_string_equal(places.at[0].host, good[i][1]);
		assert_string_equal(places.at[0].port, good[i][2]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(run_places_parse(&places, bad[i], NULL), PAWL_EINVAL);
	}
	assert_int_equal(run_places_parse(&places, "a:1,[fd00::1]:2", NULL), 0);
	assert_int_equal(places.n, 2);
	assert_string_equal(places.text[1], "[fd00::1]:2");
}

/* Makes the plan of one of two nodes whose PAWL_DOMAIN is this; NULL: it has none. */
static int plan_in_domain(const char *domain, struct run_plan *plan, struct pawl_err *err)
{
	char *const worker[] = {(char[]){"/bin/true"}, NULL};
	const struct run_options options = {.workers = 1,
		.nodes = 2,
		.node_rank = NODE_NONE,
		.rendezvous = "127.0.0.1:29400",
		.job = "gpt",
		.no_python = true,
		.worker = worker};

	if (domain != NULL) {
		assert_int_equal(setenv("PAWL_DOMAIN", domain, 1), 0);
	} else {
		unsetenv("PAWL_DOMAIN");
	}
	memset(plan, 0, sizeof(*plan));
	return run_plan_make(plan, &options, err);
}

static void a_failure_domain_is_a_short_name(void **state)
{
	static const char *const bad[] = {"rack\n7", "\x7f", "r\xc3\xa4"};
	char name[PEER_DOMAIN_MAX + 1] = {0};
	struct run_plan plan;
	struct pawl_err err;

	assert_int_equal(plan_in_domain(NULL, &plan, &err), 0);
	assert_string_equal(plan.domain, "");
	assert_int_equal(plan_in_domain("", &plan, &err), 0);
	assert_int_equal(plan_in_domain("row 3/rack-7", &plan, &err), 0);
	assert_string_equal(plan.domain, "row 3/rack-7");
	memset(name, 'r', PEER_DOMAIN_MAX - 1);
	assert_int_equal(plan_in_domain(name, &plan, &err), 0);
	assert_string_equal(plan.domain, name);
	name[PEER_DOMAIN_MAX - 1] = 'r';
	assert_int_equal(plan_in_domain(name, &plan, &err), PAWL_EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(plan_in_domain(bad[i], &plan, &err), PAWL_EINVAL);
		assert_non_null(strstr(err.msg, "PAWL_DOMAIN"));
	}
	unsetenv("PAWL_DOMAIN");
}

static void the_first_of_slurms_nodes(void **state)
{
	static const char *const lists[][2] = {{"login1", "login1"}, {"a,b", "a"},
		{"gpu[03-05,9],x", "gpu03"}, {"gpu[7]", "gpu7"}, {"r[1-2]n", "r1n"},
		{"r[1-2]-gpu,x", "r1-gpu"}, {"r[1-2]n[3-4]", NULL}, {"gpu[", NULL},
		{"gpu[x]", NULL}, {"", NULL}};
	char host[RUN_HOST_MAX];

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		assert_int_equal(run_places_first(lists[i][0], host), lists[i][1] != NULL);
		if (lists[i][1] != NULL) {
			assert_string_equal(host, lists[i][1]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workers_find_what_torchrun_sets),
		cmocka_unit_test(the_template_finds_nothing_that_varies),
		cmocka_unit_test(a_place_is_a_host_and_a_port),
		cmocka_unit_test(a_failure_domain_is_a_short_name),
		cmocka_unit_test(the_first_of_slurms_nodes),
		cmocka_unit_test(a_derived_job_is_the_same_for_the_same_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
