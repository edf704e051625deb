/* The engine local keeps the contract of engine.h, with real shepherds and processes.
 *
 * A shepherd is started as this program (local_start.c), which then executes the program `pawl`. */
#include "test_sched_events.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/times.h"
#include "engine/local/devices.h"
#include "engine/local/local.h"
#include "engine/local/order.h"
#include "engine/local/run_placement.h"
#include "engine/local/strays.h"
#include "engine/submission.h"
#include "folder.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#define NODES     3u
#define JOBS_MAX  64u
#define ELASTIC_N 2u /* replicas that the elastic job is rescaled to */
#define LOOKS     7u /* looks for processes that stay */

static struct local_world {
	char root[64];
	char marks[80];
	char fault[80]; /* file with the faults of shepherds: see be_shepherd */
	struct core_offer nodes[NODES];
	struct devices devices;
	struct local *local;
	enum deed deeds[JOBS_MAX];
	uint64_t tiered; /* a job with a scratch directory; 0: none */
	int64_t wall_ns; /* time of all submissions, which makes their ids unique to this test */
} lw;

static void prepare(uint64_t job, enum deed deed)
{
	assert_true(job < JOBS_MAX);
	lw.deeds[job] = deed;
}

static void await_mark_of(const char *mark, const char *end)
{
	WITHIN_DOING(WITHIN_LONG_S, marks_count(lw.marks, mark, end) > 0, within_pace(0.01));
}

static void await_mark(const char *mark)
{
	await_mark_of(mark, "");
}

/* Waits for the mark of the first rank, by which starts are counted. For the engine, a job runs as
 * soon as its processes exist; and other ranks may write their marks first. */
static void await_first(uint64_t job)
{
	char mark[64];

	snprintf(mark, sizeof(mark), "start %llu.", (unsigned long long)job);
	await_mark_of(mark, ".0");
}

/* Reaps first, as the daemon does for each event. */
static const struct core_event *next(int64_t wait_ms)
{
	engine_local.reap(lw.local);
	return events_next(wait_ms);
}

static uint64_t starts(void)
{
	return marks_starts(lw.marks);
}

static int submission(void *user, uint64_t job, uint8_t **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	static const char file[] = "num_nodes: 1\nrun: exec \"$@\"\n";
	static const char elastic[] = "replicas: 1..4\nrun: exec \"$@\"\n";
	static const char tiered[] =
		"resources: {disk_tier: best}\nnum_nodes: 1\nrun: exec \"$@\"\n";
	const char *text = lw.deeds[job] == DEED_ELASTIC ? elastic
		: job == lw.tiered                       ? tiered
							 : file;
	char script[512];
	const char *env[] = {"PATH=/usr/bin:/bin",
		TIMES_ENV "=run_settle=0.3"}; /* no membership files here */
	const char *args[] = {"sh", "-c", script, lw.marks};
	struct submission one = {.wall_ns = lw.wall_ns,
		.cwd = "/",
		.file = text,
		.len_bytes = strlen(text),
		.args = args,
		.args_n = 4,
		.env = env,
		.env_n = 2};
	struct wire_out out = {NULL};

	snprintf(script, sizeof(script),
		"set -- ${PAWL_SCHED_RUN##*/}.${RANK:-$SKYPILOT_NODE_RANK}\n"
		"echo sees $1 $CUDA_VISIBLE_DEVICES >>$0; echo files $1 $(ulimit -n) >>$0\n%s",
		deed_scripts[lw.deeds[job]]);
	submission_encode(&out, &one);
	assert_false(out.failed);
	*bytes = out.bytes;
	*len_bytes = out.len_bytes;
	return 0;
}

static void no_supervisor(void *user, const struct core_job *job, struct order *order)
{
}

static int try_engine(struct pawl_err *err)
{
	const struct local_options options = {.root = lw.root,
		.nodes = lw.nodes,
		.nodes_n = NODES,
		.devices = &lw.devices,
		.grace_ns = SUITE_GRACE_NS,
		.loop = events.loop,
		.post = events_take,
		.get_submission = submission,
		.set_supervisor = no_supervisor};

	return local_open(&lw.local, &options, err);
}

static void open_engine(void)
{
	struct pawl_err err = {0};

	if (try_engine(&err) != 0) {
		fail_msg("%s", err.msg);
	}
	suite.world->self = lw.local;
}

static void reopen(void)
{
	local_close(lw.local);
	events.n = 0;
	open_engine();
}

static uint32_t requested_size(uint64_t job)
{
	return marks_size(lw.marks, job);
}

static struct engine_world world = {.engine = &engine_local,
	.bad_code = 3,
	.wait_ms = 60000,
	.prepare = prepare,
	.next = next,
	.starts = starts,
	.await = await_first,
	.requested_size = requested_size,
	.reopen = reopen};

/* ---- tests of this engine only ---- */

static void rescale(uint64_t job, uint64_t generation, uint32_t replicas)
{
	const struct core_node *nodes;
	struct core_placement_entry entry = {.replicas = replicas};
	const struct core_placement place = {.entries = &entry, .n = 1, .replicas = replicas};

	assert_true(suite_nodes(&nodes) > 0);
	entry.node = nodes[0].id;
	suite.calling = true;
	engine_local.rescale(lw.local, suite.core, job, generation, &place);
	suite.calling = false;
}

static void start_on(uint64_t job, const char *node, uint32_t replicas)
{
	const struct core_node *nodes;
	uint32_t n = suite_nodes(&nodes);
	struct core_placement_entry entry = {.replicas = replicas};
	const struct core_placement place = {.entries = &entry, .n = 1, .replicas = replicas};

	for (uint32_t i = 0; i < n; i++) {
		entry.node = strcmp(nodes[i].offer.name, node) == 0 ? nodes[i].id : entry.node;
	}
	suite.calling = true;
	engine_local.start(lw.local, suite.core, job, ++suite.generation, &place);
	suite.calling = false;
}

/* Waits until a rank of a start of the job has seen these devices. */
static void await_seen(uint64_t job, uint64_t start_generation, uint32_t rank, const char *devices)
{
	char mark[128];

	snprintf(mark, sizeof(mark), "sees %llu.%llu.%u %s\n", (unsigned long long)job,
		(unsigned long long)start_generation, rank, devices);
	await_mark(mark);
}

/* Waits for the newest rescale; a reopened engine posts the one before as well. */
static void await_rescaled(uint64_t job)
{
	while (suite_wait(CORE_RUNS, job)->generation != suite.generation) {
	}
}

/* No two jobs share a device, whatever the rescales and restarts of the scheduler. */
static void test_devices_go_with_slots(void **state)
{
	const struct core_node *nodes;
	uint64_t a;
	uint64_t b;
	uint64_t c;
	uint64_t start_generation;

	assert_true(suite_nodes(&nodes) > 0);
	for (uint32_t i = 0; i < 4; i++) {
		snprintf(lw.devices.at[i].name, DEVICE_NAME, "%u", i);
		snprintf(lw.devices.at[i].node, CORE_NAME_MAX, "%s", nodes[0].offer.name);
	}
	lw.devices.n = 4;
	a = suite_running(DEED_ELASTIC, 1);
	start_generation = suite.generation;
	await_seen(a, start_generation, 0, "0");
	rescale(a, ++suite.generation, 2);
	await_rescaled(a);
	await_seen(a, start_generation, 1, "0,1");
	b = suite_job(DEED_LASTS);
	start_on(b, lw.devices.at[0].node, 2);
	suite_runs(b);
	await_seen(b, suite.generation, 0, "2");
	await_seen(b, suite.generation, 1, "3");
	c = suite_job(DEED_LASTS);
	start_on(c, lw.devices.at[0].node, 1);
	suite_wait(CORE_REFUSED, c); /* none is free */
	reopen();
	rescale(a, ++suite.generation, 1);
	await_rescaled(a);
	start_on(c, lw.devices.at[0].node, 1);
	suite_runs(c);
	await_seen(c, suite.generation, 0, "1");
	rescale(a, ++suite.generation, 2);
	suite_wait(CORE_REFUSED, a);
	suite_stop(b, suite.generation, 0);
	suite_ends(b, CORE_END_STOPPED, 0);
	rescale(a, ++suite.generation, 2);
	await_rescaled(a);
	await_seen(a, start_generation, 1, "0,2");
	lw.devices.n = 0;
	suite_stop(a, suite.generation, 0);
	suite_ends(a, CORE_END_STOPPED, 0);
	suite_stop(c, suite.generation, 0);
	suite_ends(c, CORE_END_STOPPED, 0);
}

/* The second rank joins the existing run; a repeated rescale is answered again. */
static void test_an_elastic_job_is_rescaled_while_it_runs(void **state)
{
	uint64_t job = suite_running(DEED_ELASTIC, 1);
	static struct run_placement_entry place;
	const struct core_event *event;
	char second[64];
	char dir[128];

	snprintf(second, sizeof(second), "start %llu.%llu.1", (unsigned long long)job,
		(unsigned long long)suite.generation);
	for (int i = 0; i < 2; i++) {
		suite.generation += i == 0;
		rescale(job, suite.generation, ELASTIC_N);
		event = suite_wait(CORE_RUNS, job);
		assert_int_equal(event->generation, suite.generation);
	}
	await_mark(second);
	snprintf(dir, sizeof(dir), "%s/runs/%llu.%llu", lw.root, (unsigned long long)job,
		(unsigned long long)suite.generation - 1);
	assert_int_equal(run_placement_load(dir, suite.generation, &place, NULL), 0);
	assert_int_equal(place.nodes[0].replicas, ELASTIC_N);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
}

static void name_dir(char dir[128], uint64_t job, uint64_t start_generation)
{
	snprintf(dir, 128, "%s/runs/%llu.%llu", lw.root, (unsigned long long)job,
		(unsigned long long)start_generation);
}

/* Signals the processes of the run in that directory, as strays_signal does. */
static int signal_run(const char *dir, int signal)
{
	struct strays_mark mark;

	assert_int_equal(strays_mark_load(&mark, dir, NULL), 0);
	return strays_signal(&mark, signal);
}

/* Without descriptors, the engine cannot find out which runs live. It then does not open, rather
 * than start running jobs again. */
static void test_who_cannot_look_takes_nobody_for_dead(void **state)
{
	uint64_t job = suite_running(DEED_LASTS, 1);
	uint64_t before = starts();
	const struct core_event *event;
	struct pawl_err err = {0};
	uint32_t at = 0;
	char dir[128];

	name_dir(dir, job, suite.generation);
	local_close(lw.local);
	fault_arm("local.socket", 1, EMFILE, false);
	assert_int_equal(try_engine(&err), PAWL_EIO);
	fault_arm("local.run_file", 1, ENFILE, false);
	assert_int_equal(try_engine(&err), PAWL_EIO);
	fault_arm("run.load", 1, EIO, false);
	assert_int_equal(try_engine(&err), PAWL_EIO);
	fault_arm("local.list", 1, EIO, false);
	assert_int_equal(try_engine(&err), PAWL_EIO);
	fault_arm("strays.open", 1, EMFILE, true);
	assert_int_equal(signal_run(dir, 0), -1);
	fault_disarm();
	assert_true(signal_run(dir, 0) > 0);
	open_engine();
	suite_list();
	event = suite_wait(CORE_LISTED, 0);
	while (at < event->runs_n && event->runs[at].job != job) {
		at++; /* the run of an earlier test may still be ending */
	}
	assert_true(at < event->runs_n);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
	assert_int_equal(starts(), before);
}

/* A stopped shepherd accepts no connections, and reopened engines fill its backlog. Once it
 * continues, it handles the requests sent meanwhile. */
static void test_a_shepherd_that_is_stopped_is_alive(void **state)
{
	uint64_t job = suite_running(DEED_LASTS, 1);
	char dir[128];

	name_dir(dir, job, suite.generation);
	assert_true(signal_run(dir, SIGSTOP) >= 2);
	for (int i = 0; i < 8; i++) {
		reopen();
	}
	suite_silent(CORE_ENDED, job, 200);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_silent(CORE_ENDED, job, 200);
	assert_true(signal_run(dir, SIGCONT) >= 2);
	suite_ends(job, CORE_END_STOPPED, 0);
}

/* A run whose connection cannot be watched is not started: otherwise it would run beside its second
 * start. */
static void test_a_start_that_cannot_be_watched_starts_nothing(void **state)
{
	uint64_t job = suite_job(DEED_LASTS);
	char dir[128];

	name_dir(dir, job, ++suite.generation);
	fault_arm("loop.control", 1, ENOSPC, false);
	suite_start(job, suite.generation, 1);
	fault_disarm();
	suite_wait(CORE_REFUSED, job);
	assert_int_equal(signal_run(dir, 0), 0);
	assert_int_equal(access(dir, F_OK), -1);
}

/* The end of a connection is not the end of the run. */
static void test_a_connection_that_ends_ends_no_job(void **state)
{
	uint64_t job = suite_running(DEED_LASTS, 1);
	char path[160];
	char dir[128];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	name_dir(dir, job, suite.generation);
	snprintf(path, sizeof(path), "%s/sock", dir);
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	suite_silent(CORE_ENDED, job, 200); /* the shepherd closed the engine's connection */
	close(fd);
	suite_stop(job, suite.generation, SUITE_GRACE_NS);
	suite_ends(job, CORE_END_STOPPED, 0);
}

/* A shepherd is killed while the engine is closed: the job has ended with unknown cause, and
 * nothing of it is left. */
static void test_a_dead_shepherd_is_an_end(void **state)
{
	uint64_t job = suite_running(DEED_IGNORES_STOP, 2);
	char dir[128];

	name_dir(dir, job, suite.generation);
	/* The job's second process starts. */
	WITHIN_DOING(WITHIN_LONG_S, signal_run(dir, 0) >= 3, within_pace(0.01));
	/* Once the shepherd is dead, the others may die before they are signalled. */
	signal_run(dir, SIGKILL);
	reopen();
	suite_list();
	suite_ends(job, CORE_END_UNKNOWN, 0);
	assert_int_equal(signal_run(dir, 0), 0);
	engine_local.forget(lw.local, job, suite.generation);
	assert_int_equal(access(dir, F_OK), -1);
}

/* Replaces the boot in the order of a run. */
static void put_boot(const char *dir, const char *boot)
{
	static struct order order;
	char path[160];
	struct pawl_err err = {0};
	struct wire_out was = {NULL};
	struct wire_out out = {NULL};

	assert_int_equal(order_load(&order, &was, dir, &err), 0);
	assert_string_not_equal(order.boot, "");
	snprintf(order.boot, sizeof(order.boot), "%s", boot);
	order_encode(&out, &order);
	snprintf(path, sizeof(path), "%s/order", dir);
	assert_int_equal(file_put(path, out.bytes, out.len_bytes, 0600, false, &err), 0);
	wire_out_deinit(&was);
	wire_out_deinit(&out);
}

/* The machine went down with the job, and was booted again: the job has lost its node. */
static void test_what_ran_before_the_boot_has_lost_its_node(void **state)
{
	uint64_t job = suite_running(DEED_LASTS, 1);
	char dir[128];

	name_dir(dir, job, suite.generation);
	local_close(lw.local);
	signal_run(dir, SIGKILL);
	put_boot(dir, "another");
	events.n = 0;
	open_engine();
	suite_list();
	suite_ends(job, CORE_END_NODE_LOST, 0);
}

/* While it is not known whether a process is left, looks become rarer: after 0, 50, 100, 200, 400
 * and 800 ms, behind the look of the kill. */
static void test_looks_for_what_stays_become_seldom(void **state)
{
	uint64_t job = suite_running(DEED_IGNORES_STOP, 1);
	int64_t begun_ns = clock_mono_ns();
	char dir[128];

	name_dir(dir, job, suite.generation);
	fault_arm("strays.look", 2, EMFILE, true);
	assert_true(signal_run(dir, SIGKILL) > 0);
	for (int i = 0; i < 1200 && fault_count() < LOOKS; i++) {
		suite_silent(CORE_ENDED, job, 50);
	}
	assert_true(fault_count() >= LOOKS);
	assert_true(clock_mono_ns() - begun_ns >= 1500 * NS_PER_MS);
	fault_disarm();
	suite_ends(job, CORE_END_UNKNOWN, 0);
}

/* The shepherd fails once to record the job's end: the job is not taken for killed. */
static void test_an_end_that_cannot_be_written_is_tried_again(void **state)
{
	uint64_t job = suite_job(DEED_GOOD);
	FILE *file = fopen(lw.fault, "we");

	assert_non_null(file);
	fputs("run.state:2:28", file); /* ENOSPC at the second write, which records the end */
	fclose(file);
	suite_start(job, ++suite.generation, 1);
	suite_ends(job, CORE_END_EXITED, 0);
	assert_int_equal(unlink(lw.fault), 0);
}

/* While the recorded end of a run cannot be read, the run is not taken for killed. */
static void test_an_end_that_cannot_be_read_is_read_again(void **state)
{
	uint64_t job = suite_job(DEED_GOOD);
	uint64_t before = starts();
	uint64_t reads;
	char dir[128];

	name_dir(dir, job, ++suite.generation);
	fault_arm("run.load", 1, EIO, true);
	suite_start(job, suite.generation, 1);
	WITHIN_DOING(WITHIN_LONG_S, starts() > before && signal_run(dir, 0) == 0,
		suite_silent(CORE_ENDED, job, 10));
	reads = fault_count();
	WITHIN_DOING(WITHIN_LONG_S, fault_count() >= reads + 2, suite_silent(CORE_ENDED, job, 10));
	fault_disarm();
	suite_ends(job, CORE_END_EXITED, 0);
}

/* The scheduler raises its own limit of open files; its jobs keep the limit from before. */
static void test_more_descriptors_are_the_schedulers_alone(void **state)
{
	uint64_t job = suite_job(DEED_GOOD);
	struct rlimit before;
	struct rlimit limit;
	char mark[64];

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){96, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	reopen();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_true(limit.rlim_cur > 96 || limit.rlim_cur == before.rlim_max);
	fault_arm("local.aside", 1, EMFILE, false);
	suite_start(job, ++suite.generation, 1);
	fault_disarm();
	suite_wait(CORE_REFUSED, job); /* refused, not started without a descriptor */
	suite_start(job, ++suite.generation, 1);
	suite_ends(job, CORE_END_EXITED, 0);
	snprintf(mark, sizeof(mark), "files %llu.%llu.0 96\n", (unsigned long long)job,
		(unsigned long long)suite.generation);
	await_mark(mark);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* The shepherd removes the scratch directory after it has recorded the end. Here it stops forever
 * during the removal; killed there, it leaves the directory. */
static void test_what_a_job_wrote_is_removed_after_its_end(void **state)
{
	uint64_t job = suite_job(DEED_GOOD);
	uint64_t before = starts();
	FILE *file = fopen(lw.fault, "we");
	char dir[128];

	assert_non_null(file);
	fputs("scratch.remove:1:-2", file);
	fclose(file);
	lw.tiered = job;
	name_dir(dir, job, ++suite.generation);
	suite_start(job, suite.generation, 1);
	suite_ends(job, CORE_END_EXITED, 0);
	assert_int_equal(unlink(lw.fault), 0);
	assert_int_equal(starts(), before + 1);
	assert_int_equal(signal_run(dir, SIGKILL), 1);
}

/* ---- begin and end ---- */

static int set_up(void **state)
{
	struct pawl_err err;

	snprintf(lw.root, sizeof(lw.root), "/tmp/pawl-local-XXXXXX");
	if (!mkdtemp(lw.root) || loop_open(&events.loop, &err) != 0) {
		return -1;
	}
	snprintf(lw.marks, sizeof(lw.marks), "%s/marks", lw.root);
	snprintf(lw.fault, sizeof(lw.fault), "%s/fault", lw.root);
	for (uint32_t i = 0; i < NODES; i++) {
		lw.nodes[i] = (struct core_offer){.slots = 4};
		snprintf(lw.nodes[i].name, sizeof(lw.nodes[i].name), "node%u", i);
	}
	lw.wall_ns = clock_wall_ns();
	suite_open(&world);
	open_engine();
	suite_list();
	suite_wait(CORE_LISTED, 0);
	return 0;
}

/* Kills the runs that failed tests have left. */
static void kill_left(void)
{
	char dir[128];

	for (uint64_t job = 1; job <= suite.job; job++) {
		for (uint64_t start_generation = 1; start_generation <= suite.generation;
			start_generation++) {
			name_dir(dir, job, start_generation);
			while (access(dir, F_OK) == 0 && signal_run(dir, SIGKILL) > 0) {
				within_pace(0.01);
			}
		}
	}
}

static int tear_down(void **state)
{
	kill_left();
	local_close(lw.local);
	suite_close();
	loop_close(events.loop);
	folder_remove_tree(lw.root);
	return 0;
}

/* Executes "pawl shepherd" for a run below the root, with the faults of the file "fault". */
static int be_shepherd(char **argv)
{
	char path[256];
	char text[64];
	FILE *file;

	snprintf(path, sizeof(path), "%.200s/../../fault", getenv(RUN_VAR));
	file = fopen(path, "re");
	if (file && fgets(text, sizeof(text), file)) {
		setenv("PAWL_FAULT", text, 1);
	}
	if (file) {
		fclose(file);
	}
	execv(PROGRAM, argv);
	return 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_elastic_job_is_rescaled_while_it_runs),
		cmocka_unit_test(test_devices_go_with_slots),
		cmocka_unit_test(test_who_cannot_look_takes_nobody_for_dead),
		cmocka_unit_test(test_a_shepherd_that_is_stopped_is_alive),
		cmocka_unit_test(test_a_start_that_cannot_be_watched_starts_nothing),
		cmocka_unit_test(test_a_connection_that_ends_ends_no_job),
		cmocka_unit_test(test_a_dead_shepherd_is_an_end),
		cmocka_unit_test(test_what_ran_before_the_boot_has_lost_its_node),
		cmocka_unit_test(test_looks_for_what_stays_become_seldom),
		cmocka_unit_test(test_more_descriptors_are_the_schedulers_alone),
		cmocka_unit_test(test_what_a_job_wrote_is_removed_after_its_end),
		cmocka_unit_test(test_an_end_that_cannot_be_written_is_tried_again),
		cmocka_unit_test(test_an_end_that_cannot_be_read_is_read_again)};

	if (argc > 1) {
		return be_shepherd(argv);
	}
	return suite_run(&engine_local, tests, sizeof(tests) / sizeof(tests[0]), set_up, tear_down);
}
