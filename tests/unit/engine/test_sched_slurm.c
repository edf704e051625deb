/* The engine slurm on a real Slurm: the contract of engine.h, and what Slurm does to pilots.
 *
 * Arguments: the program pawl, and the root of the sources. PAWL_LONG also runs the longer
 * tests. */
#include "test_sched_slurm_world.h"
#include "within.h"

#define PILOTS 3u

/* Sets name to that of the suite's n-th node that is up. */
static void node_name(uint32_t n, char name[CORE_NAME_MAX])
{
	const struct core_node *nodes;

	assert_true(suite_nodes(&nodes) > n);
	snprintf(name, CORE_NAME_MAX, "%s", nodes[n].offer.name);
}

static void wait_node(enum core_event_kind kind, const char *name)
{
	const struct core_event *event;

	do {
		event = suite_wait(kind, 0);
	} while (strcmp(event->node, name) != 0);
}

/* Requests pilots until there are PILOTS. Slurm may be too busy to accept one: then requests
 * again. */
static void fill_up(void)
{
	const struct core_event *event;
	const struct core_node *nodes;
	uint32_t n = suite_nodes(&nodes);
	bool missing = n < PILOTS;

	for (int tries = 0; n < PILOTS; n = suite_nodes(&nodes)) {
		if (missing) {
			assert_true(tries++ < WORLD_TRIES);
			sched_slurm_engine.request_nodes(sw.engine, "pool", PILOTS - n);
		}
		event = suite_next(suite.world->wait_ms);
		assert_non_null(event);
		missing = event->kind == CORE_POOL_EXHAUSTED;
	}
}

static int set_up(void **state)
{
	fill_up();
	return 0;
}

static char *host_of(const char *node)
{
	static char host[CORE_NAME_MAX];

	snprintf(host, sizeof(host), "%.*s", (int)strcspn(node, "."), node);
	return host;
}

/* The pilot's jobs are stopped, and get time to save. */
static void test_scancel_of_a_pilot(void **state)
{
	uint64_t job;
	char name[CORE_NAME_MAX];
	char mark[64];
	const char *argv[] = {"scancel", NULL, NULL};

	fill_up();
	job = suite_running(DEED_LASTS, 2);
	node_name(0, name);
	argv[1] = world_slurm_job(name);
	world_do(argv);
	suite_lost(name, job);
	snprintf(mark, sizeof(mark), "saved %llu.%llu.0", (unsigned long long)job,
		(unsigned long long)suite.generation);
	assert_true(world_marks(mark) >= 1);
	suite_take_node(&(struct core_event){.kind = CORE_NODE_GONE, .node = name});
}

static void test_slurms_notice(void **state)
{
	char name[CORE_NAME_MAX];
	const char *argv[] = {"scancel", "--signal=USR1", "--batch", NULL, NULL};
	const struct core_event *event;
	int64_t before_ns;

	fill_up();
	node_name(0, name);
	argv[3] = world_slurm_job(name);
	before_ns = clock_mono_ns();
	world_do(argv);
	event = suite_wait(CORE_NODE_NOTICE, 0);
	assert_string_equal(event->node, name);
	assert_true(event->deadline_ns >= before_ns + 60 * NS_PER_S);
	assert_true(event->deadline_ns <= clock_mono_ns() + 60 * NS_PER_S);
	sched_slurm_engine.return_node(sw.engine, name);
	wait_node(CORE_NODE_GONE, name);
}

static void drain(const char *node, const char *state)
{
	char name[CORE_NAME_MAX + 16];
	const char *const argv[] = {"scontrol", "update", name, state, "Reason=maintenance", NULL};

	snprintf(name, sizeof(name), "NodeName=%s", host_of(node));
	world_do(argv);
}

/* A job on a drained node stays. Once no job is left, the pilot ends, and Slurm gets the node
 * back. */
static void test_drained_node(void **state)
{
	uint64_t job;
	char name[CORE_NAME_MAX];

	fill_up();
	job = suite_running(DEED_LASTS, 1);
	node_name(0, name);
	drain(name, "State=DRAIN");
	wait_node(CORE_NODE_DRAIN, name);
	suite_silent(CORE_ENDED, job, 1000);
	drain(name, "State=RESUME");
	wait_node(CORE_NODE_RESUME, name);
	drain(name, "State=DRAIN");
	wait_node(CORE_NODE_DRAIN, name);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
	wait_node(CORE_NODE_GONE, name);
	drain(name, "State=RESUME");
}

/* A requeued pilot comes back without a request, as another node. */
static void test_requeued_pilot(void **state)
{
	uint64_t job;
	char name[CORE_NAME_MAX];
	const char *argv[] = {"scontrol", "requeue", NULL, NULL};
	char again[32];
	const struct core_event *event;

	fill_up();
	job = suite_running(DEED_LASTS, 1);
	node_name(0, name);
	argv[2] = world_slurm_job(name);
	world_do(argv);
	suite_lost(name, job);
	suite_take_node(&(struct core_event){.kind = CORE_NODE_GONE, .node = name});
	snprintf(again, sizeof(again), ".%s.1", world_slurm_job(name));
	do {
		event = suite_wait(CORE_NODE_REPORTED, 0);
	} while (!strstr(event->offer->name, again));
}

/* Slurm gives the node up while the pilot lives: the pilot learns it from the spool, and ends. */
static void test_killed_slurmd(void **state)
{
	uint64_t job;
	char name[CORE_NAME_MAX];

	fill_up();
	job = suite_running(DEED_IGNORES_STOP, 2);
	node_name(0, name);
	world_slurmd("kill", host_of(name));
	suite_lost(name, job);
	suite_take_node(&(struct core_event){.kind = CORE_NODE_GONE, .node = name});
	world_slurmd("start", host_of(name));
	fill_up();
}

/* The program refuses a rescale and goes on unchanged. A rescale to another node is refused without
 * running the scale command. */
static void test_rescales_that_are_refused(void **state)
{
	uint64_t job;
	const struct core_node *nodes;
	struct core_placement_entry entry = {.replicas = 1};
	struct core_placement place = {.entries = &entry, .n = 1, .replicas = 1};

	fill_up();
	job = suite_running(DEED_LASTS, 1);
	world_scales("exit 2");
	suite_rescale(job, ++suite.generation, 2);
	assert_int_equal(suite_answer(job), CORE_REFUSED);
	suite_rescale(job, suite.generation, 2);
	assert_int_equal(suite_answer(job), CORE_REFUSED);
	world_scales("");
	suite_rescale(job, ++suite.generation, 4);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	assert_int_equal(world_requested_size(job), 4);
	assert_true(suite_nodes(&nodes) >= 2);
	entry.node = nodes[1].id;
	suite.calling = true;
	sched_slurm_engine.rescale(sw.engine, suite.core, job, ++suite.generation, &place);
	suite.calling = false;
	assert_int_equal(suite_answer(job), CORE_REFUSED);
	assert_int_equal(world_requested_size(job), 4);
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

static void put_file(const char *path)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	fclose(file);
}

/* A newer rescale replaces one that takes long; one that fails is tried again. */
static void test_rescales_that_take_long(void **state)
{
	uint64_t job;
	char go[96];

	fill_up();
	job = suite_running(DEED_LASTS, 1);
	snprintf(go, sizeof(go), "%s.go", sw.marks);
	world_scales("echo holds >>$0; until [ -e $0.go ]; do sleep 0.1; done");
	suite_rescale(job, ++suite.generation, 2);
	for (int i = 0; i < 600 && world_marks("holds") == 0; i++) {
		suite_silent(CORE_RUNS, job, 200);
	}
	assert_true(world_marks("holds") > 0);
	world_scales("[ -e $0.again ] || { touch $0.again; exit 1; }");
	suite_rescale(job, ++suite.generation, 3);
	suite_silent(CORE_RUNS, job, 1000);
	put_file(go);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	assert_int_equal(world_requested_size(job), 3);
	world_scales("");
	suite_stop(job, suite.generation, 0);
	suite_ends(job, CORE_END_STOPPED, 0);
}

/* Moves the job to n nodes from index first on, with one replica on each; index PILOTS is a node
 * that does not exist. */
static void move(uint64_t job, uint32_t first, uint32_t n)
{
	struct core_placement_entry entries[PILOTS + 1];
	struct core_placement place = {.entries = entries, .n = n, .replicas = n};
	const struct core_node *nodes;

	assert_true(suite_nodes(&nodes) >= PILOTS && first + n <= PILOTS + 1);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t id = first + i < PILOTS ? nodes[first + i].id : UINT32_MAX;

		entries[i] = (struct core_placement_entry){.node = id, .replicas = 1};
	}
	suite.calling = true;
	sched_slurm_engine.rescale(sw.engine, suite.core, job, suite.generation, &place);
	suite.calling = false;
}

static uint64_t part_marks(const char *what, uint64_t job, uint64_t generation, uint32_t number)
{
	char mark[64];

	snprintf(mark, sizeof(mark), "%s %llu.%llu.%u", what, (unsigned long long)job,
		(unsigned long long)generation, number);
	return world_marks(mark);
}

/* Nodes join and leave, including the job's first node, and across a restart of the engine. */
static void test_nodes_join_and_leave(void **state)
{
	uint64_t job;
	uint64_t start_generation;

	fill_up();
	sw.dynamic = true;
	job = suite_running(DEED_LASTS, 1);
	start_generation = suite.generation++;
	move(job, 0, 2);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	assert_int_equal(part_marks("start", job, start_generation, 1), 1);
	suite.generation++;
	move(job, 1, 1);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	assert_int_equal(part_marks("left", job, start_generation, 0), 1);
	suite.generation++;
	move(job, 1, 2);
	world_reopen();
	suite_list();
	suite_wait(CORE_LISTED, 0);
	move(job, 1, 2);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	assert_int_equal(part_marks("start", job, start_generation, 2), 1);
	suite.generation++;
	move(job, 0, 1); /* all nodes change: those that join train before the others leave */
	assert_int_equal(suite_answer(job), CORE_RUNS);
	assert_int_equal(part_marks("start", job, start_generation, 3), 1);
	assert_int_equal(part_marks("left", job, start_generation, 1), 1);
	assert_int_equal(part_marks("left", job, start_generation, 2), 1);
	assert_int_equal(part_marks("saved", job, start_generation, 0), 0);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
	sw.dynamic = false;
}

static void wait_cancelled(const char *slurm_job)
{
	const char *const argv[] = {"squeue", "--noheader", "--states=all", "--format=%T", "--jobs",
		slurm_job, NULL};
	char text[64] = "";

	/* Slurm may be too busy to answer in time. */
	WITHIN_DOING(WITHIN_LONG_S,
		world_run(argv, text, sizeof(text)) == 0 && strcmp(text, "CANCELLED\n") == 0,
		within_pace(0.1));
}

/* A node is lost with its processes while no scheduler runs: the other nodes go on. */
static void test_node_goes_meanwhile(void **state)
{
	uint64_t job;
	uint64_t start_generation;
	char name[CORE_NAME_MAX];
	const char *argv[] = {"scancel", NULL, NULL};

	fill_up();
	sw.dynamic = true;
	job = suite_running(DEED_LASTS, 2);
	node_name(1, name);
	argv[1] = world_slurm_job(name);
	world_do(argv);
	wait_cancelled(argv[1]);
	start_generation = suite.generation;
	/* Signalled by Slurm and by the pilot. */
	assert_true(part_marks("saved", job, start_generation, 1) >= 1);
	world_reopen();
	suite_list();
	suite_wait(CORE_LISTED, 0);
	suite_silent(CORE_ENDED, job, 2000);
	fill_up();
	suite.generation++;
	move(job, 0, 1);
	assert_int_equal(suite_answer(job), CORE_RUNS);
	suite_stop(job, suite.generation, 30 * SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
	assert_int_equal(part_marks("saved", job, start_generation, 0), 1);
	sw.dynamic = false;
}

/* A lost pilot is not reported again, though its directory exists and Slurm still lists its job. */
static void test_lost_ones_do_not_come_again(void **state)
{
	char name[CORE_NAME_MAX];
	const struct core_event *event;

	fill_up();
	node_name(0, name);
	world_lose(name);
	wait_node(CORE_NODE_GONE, name);
	world_reopen();
	suite_list();
	while ((event = suite_next(1000)) != NULL) {
		assert_false(
			event->kind == CORE_NODE_REPORTED && strcmp(event->offer->name, name) == 0);
	}
}

/* A job goes on without a node that cannot join. */
static void test_who_cannot_join(void **state)
{
	char path[96];
	uint64_t job;

	fill_up();
	snprintf(path, sizeof(path), "%s.vain", sw.marks);
	put_file(path);
	sw.dynamic = true;
	job = suite_running(DEED_LASTS, 1);
	suite.generation++;
	move(job, 0, 2);
	assert_int_equal(suite_answer(job), CORE_REFUSED);
	suite_silent(CORE_ENDED, job, 2000);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
	unlink(path);
	sw.dynamic = false;
}

/* The membership file stays closed: nothing starts on the other node, also after another rescale
 * that is impossible. */
static void test_nobody_is_let_in(void **state)
{
	uint64_t job;
	uint64_t start_generation;

	fill_up();
	sw.closed = sw.dynamic = true;
	job = suite_running(DEED_LASTS, 1);
	start_generation = suite.generation++;
	move(job, 0, 2);
	suite_silent(CORE_REFUSED, job, 2000);
	suite.generation++;
	move(job, 0, PILOTS + 1);
	assert_int_equal(suite_answer(job), CORE_REFUSED);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
	assert_int_equal(part_marks("start", job, start_generation, 0), 1);
	assert_int_equal(part_marks("start", job, start_generation, 1), 0);
	sw.closed = sw.dynamic = false;
}

static void test_spool_is_anothers(void **state)
{
	struct slurm_options options = {.loop = events.loop,
		.spool = sw.spool,
		.program = sw.program,
		.poll_ns = NS_PER_S,
		.fence_ns = NS_PER_S * 10};
	struct sched_slurm *other;
	struct pawl_err err = {0};
	char path[128];

	assert_int_equal(sched_slurm_open(&other, &options, &err), PAWL_EBUSY);
	snprintf(path, sizeof(path), "%s/open", sw.folder);
	assert_int_equal(mkdir(path, 0755), 0);
	options.spool = path;
	assert_int_equal(sched_slurm_open(&other, &options, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "chmod 700"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_scancel_of_a_pilot),
		cmocka_unit_test(test_slurms_notice), cmocka_unit_test(test_drained_node),
		cmocka_unit_test(test_rescales_that_are_refused),
		cmocka_unit_test(test_rescales_that_take_long),
		cmocka_unit_test(test_nodes_join_and_leave),
		cmocka_unit_test(test_node_goes_meanwhile),
		cmocka_unit_test(test_lost_ones_do_not_come_again),
		cmocka_unit_test(test_who_cannot_join), cmocka_unit_test(test_nobody_is_let_in),
		cmocka_unit_test(test_spool_is_anothers)};
	const struct CMUnitTest longer[] = {cmocka_unit_test(test_requeued_pilot),
		cmocka_unit_test(test_killed_slurmd)};
	char *program = argc == 3 ? realpath(argv[1], NULL) : NULL; /* pilots start elsewhere */
	int failed;

	assert_non_null(program);
	world_open(program, argv[2]);
	failed = suite_run(&sched_slurm_engine, tests, sizeof(tests) / sizeof(tests[0]), set_up,
		NULL);
	if (getenv("PAWL_LONG")) {
		failed += cmocka_run_group_tests_name("slurm, longer", longer, set_up, NULL);
	}
	world_close();
	free(program);
	return failed;
}
