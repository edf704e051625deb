/* The engine slurm and its spool, without Slurm: scripts that list no job replace Slurm's
 * commands. */
#include "base/clock.h"
#include "base/err.h"
#include "engine/slurm/slurm_impl.h"
#include "folder.h"
#include "io/loop.h"
#include "times.h"
#include "within.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define JOB       7u
#define NODE      "n1.11"
#define FENCE_NS  (30 * NS_PER_S)
#define COMMAND_S "8" /* seconds that a command may take */
#define STILL_S   1.0 /* seconds that suffice for several looks */

static struct world {
	char folder[64];
	char spool[96];
	struct loop *loop;
	struct sched_slurm *engine;
	struct slurm_pool pool;
	uint32_t listed, ended, refused, runs, exhausted; /* events */
	bool late;
} w;

/* ---- files ---- */

static const char *in_folder(const char *name)
{
	static char path[192];

	snprintf(path, sizeof(path), "%s/%s", w.folder, name);
	return path;
}

static const char *in_spool(const char *name)
{
	static char path[192];

	snprintf(path, sizeof(path), "%s/%s", w.spool, name);
	return path;
}

static void put_command(const char *name, const char *script)
{
	FILE *file = fopen(in_folder(name), "we");

	assert_non_null(file);
	fprintf(file, "#!/bin/sh\n%s\n", script);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(in_folder(name), 0755), 0);
}

/* Writes the record of a job that was started on a node. rescale: generation of a rescale that is
 * under way; 0: none. */
static void put_job(uint64_t rescale)
{
	struct slurm_job_node job_node = {.node = NODE, .replicas = 1, .sizing = 3};
	struct slurm_record record = {.job = JOB,
		.generation = 3,
		.rescale = rescale,
		.end_cause = CORE_END_UNKNOWN,
		.over_wall_ns = clock_wall_ns(),
		.nodes = &job_node,
		.nodes_n = 1};
	struct wire_out out = {0};
	char name[16];

	slurm_record_encode(&record, &out);
	snprintf(name, sizeof(name), "%u", JOB);
	assert_int_equal(slurm_spool_put(in_spool("jobs"), name, &out, NULL), 0);
	wire_out_deinit(&out);
}

static struct slurm_have_part a_part(enum slurm_part_state state)
{
	return (struct slurm_have_part){.job = JOB, .generation = 3, .sized = 3, .state = state};
}

/* Makes the job's pilot, which has this part. */
static void put_pilot(struct slurm_have_part part)
{
	struct slurm_have have = {.slurm_job = 11, .parts = &part, .parts_n = 1};
	struct wire_out out = {0};

	snprintf(have.host, sizeof(have.host), "n1");
	snprintf(have.address, sizeof(have.address), "n1");
	assert_int_equal(mkdir(in_spool("pilots/" NODE), 0700), 0);
	slurm_have_encode(&have, &out);
	assert_int_equal(slurm_spool_put_newer(in_spool("pilots/" NODE), "have", 1, &out, NULL), 0);
	wire_out_deinit(&out);
}

/* ---- the engine ---- */

static int64_t now(void *user)
{
	return clock_mono_ns();
}

static void take(void *user, const struct core_event *event)
{
	w.listed += event->kind == CORE_LISTED;
	w.ended += event->kind == CORE_ENDED;
	w.refused += event->kind == CORE_REFUSED;
	w.exhausted += event->kind == CORE_POOL_EXHAUSTED;
	w.runs = event->kind == CORE_LISTED ? (uint32_t)event->runs_n : w.runs;
	loop_stop(w.loop);
}

static int describe(void *user, const struct slurm_start *start, struct slurm_program *program,
	struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL, "nothing is started here");
}

static void on_late(struct loop_timer *timer)
{
	w.late = true;
	loop_stop(w.loop);
}

/* Runs the loop until that many lists were posted, or the time is over. */
static void run(uint32_t listed, double seconds)
{
	struct loop_timer timer = {.fired = on_late};

	w.late = false;
	loop_timer_start(w.loop, &timer, clock_mono_ns() + within_ns(seconds));
	while (w.listed < listed && !w.late) {
		assert_int_equal(loop_run(w.loop, NULL), 0);
	}
	loop_timer_cancel(w.loop, &timer);
}

static void await_list(uint32_t listed)
{
	run(listed, WITHIN_LONG_S);
	if (w.late) {
		within_late("a list", WITHIN_LONG_S, __FILE__, __LINE__);
	}
}

static void open_engine(void)
{
	struct slurm_options options = {.loop = w.loop,
		.spool = w.spool,
		.program = "/bin/false",
		.pools = &w.pool,
		.pools_n = 1,
		.poll_ns = 3600 * NS_PER_S,
		.fence_ns = FENCE_NS,
		.now_ns = now,
		.post = take,
		.describe = describe};
	struct pawl_err err = {0};

	if (sched_slurm_open(&w.engine, &options, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	sched_slurm_engine.list(w.engine);
}

static int set_up(void **state)
{
	static const char *const commands[] = {"squeue", "sinfo", "sbatch", "scancel", "scontrol"};
	char id[SLURM_ID_CHARS + 1];

	memset(&w, 0, sizeof(w));
	snprintf(w.folder, sizeof(w.folder), "/tmp/pawl-spool-XXXXXX");
	assert_non_null(mkdtemp(w.folder));
	snprintf(w.spool, sizeof(w.spool), "%s/spool", w.folder);
	w.pool.pool = (struct core_pool){.name = "pool", .slots = 4, .price = 1, .most = 4};
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		put_command(commands[i], ":");
	}
	setenv("PATH", w.folder, 1);
	assert_int_equal(loop_open(&w.loop, NULL), 0);
	return slurm_spool_open(w.spool, id, NULL);
}

static int tear_down(void **state)
{
	sched_slurm_close(w.engine);
	loop_close(w.loop);
	return folder_remove_tree(w.folder);
}

/* ---- the tests ---- */

/* A file in place of a directory cannot be listed, not even by root: no part of the job is reported
 * lost before all pilots were seen. */
static void look_fails(const char *name)
{
	char path[192];

	put_job(0);
	put_pilot(a_part(SLURM_RUNNING));
	snprintf(path, sizeof(path), "%s", in_spool(name));
	assert_int_equal(rename(path, in_folder("aside")), 0);
	assert_int_equal(symlink(path, path), 0);
	open_engine();
	run(1, STILL_S);
	assert_int_equal(w.ended, 0);
	assert_int_equal(w.listed, 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rename(in_folder("aside"), path), 0);
	await_list(1);
	assert_int_equal(w.listed, 1);
	assert_int_equal(w.runs, 1);
	assert_int_equal(w.ended, 0);
}

static void pilots_cannot_be_listed(void **state)
{
	look_fails("pilots");
}

static void a_pilot_cannot_be_listed(void **state)
{
	look_fails("pilots/" NODE);
}

static void list(void)
{
	uint32_t listed = w.listed;

	sched_slurm_engine.list(w.engine);
	await_list(listed + 1);
	assert_int_equal(w.listed, listed + 1);
}

/* A pilot that never wrote have is lost after a while, and is removed once that is long ago. */
static void a_pilot_that_died_as_it_began_is_forgotten(void **state)
{
	struct stat st;

	put_pilot(a_part(SLURM_RUNNING));
	assert_int_equal(mkdir(in_spool("pilots/n2.12"), 0700), 0);
	open_engine();
	await_list(1);
	assert_int_equal(w.engine->looked_n, 2);
	for (uint32_t i = 0; i < w.engine->pilots_n; i++) {
		assert_true(w.engine->pilots[i].life < PILOT_EMPTY);
		w.engine->pilots[i].first_seen_ns -= 5 * FENCE_NS;
	}
	list();
	list();
	assert_int_equal(w.engine->looked_n, 1);
	assert_int_equal(w.engine->pilots_n, 2);
	for (uint32_t i = 0; i < w.engine->pilots_n; i++) {
		w.engine->pilots[i].empty_ns -= 4000 * NS_PER_S;
	}
	list();
	assert_int_equal(w.engine->pilots_n, 1);
	assert_int_equal(stat(in_spool("pilots/n2.12"), &st), -1);
	assert_int_equal(stat(in_spool("pilots/" NODE), &st), 0);
}

/* A job has ended as it was to be resized: its end is posted, and nothing else of it. */
static void a_job_that_is_over_is_not_rescaled(void **state)
{
	struct slurm_have_part part = a_part(SLURM_ENDED);

	put_job(4);
	part.refused_sizing = 4;
	put_pilot(part);
	open_engine();
	await_list(1);
	run(2, STILL_S);
	assert_true(w.ended > 0);
	assert_int_equal(w.refused, 0);
}

static void put_log(const char *name, int64_t age_s)
{
	const struct timespec times[] = {{.tv_nsec = UTIME_OMIT},
		{.tv_sec = (time_t)(clock_wall_ns() / NS_PER_S - age_s)}};
	int fd = open(in_spool(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

static void old_logs_of_pilots_that_are_gone_are_removed(void **state)
{
	struct stat st;

	put_pilot(a_part(SLURM_RUNNING));
	put_log("log/pilot-11.log", 90000); /* the pilot is there */
	put_log("log/pilot-12.log", 90000);
	put_log("log/pilot-13.log", 80000);
	put_log("log/notes", 90000);
	open_engine();
	await_list(1);
	list();
	assert_int_equal(stat(in_spool("log/pilot-11.log"), &st), 0);
	assert_int_equal(stat(in_spool("log/pilot-12.log"), &st), -1);
	assert_int_equal(stat(in_spool("log/pilot-13.log"), &st), 0);
	assert_int_equal(stat(in_spool("log/notes"), &st), 0);
}

/* Requests one pilot, and waits until sbatch has ended. */
static void request_once(const char *sbatch)
{
	put_command("sbatch", sbatch);
	sched_slurm_engine.request_nodes(w.engine, "pool", 1);
	assert_true(w.engine->requests[0].queued);
	WITHIN_DOING(WITHIN_LONG_S, !w.engine->requests[0].queued, run(w.listed + 1, 0.02));
}

/* Polls, and waits until squeue has ended, and sbatch for missing pilots. */
static void poll_once(void)
{
	slurm_queue_poll(w.engine);
	WITHIN_DOING(WITHIN_LONG_S, !w.engine->polling && !w.engine->requests[0].queued,
		run(w.listed + 1, 0.02));
}

static void request_unanswered(const char *sbatch, const char *error_text)
{
	char text[512];

	open_engine();
	await_list(1);
	request_once(sbatch);
	sched_slurm_engine.remark(w.engine, 0, text, sizeof(text));
	assert_non_null(strstr(text, "slurm: no answer for "));
	assert_non_null(strstr(text, error_text));
	put_command("sbatch", "echo 11");
	put_command("squeue", "exit 1");
	poll_once();
	assert_int_equal(w.engine->queue_n, 0);
	put_command("squeue", ":");
	poll_once();
	assert_int_equal(w.engine->queue_n, 1);
	assert_int_equal(w.engine->queue[0].row.slurm_job, 11);
	assert_int_equal(w.exhausted, 0);
}

/* slurmctld is down, too busy, or does not answer, with the messages of Slurm 22.05's sbatch. The
 * pool does not count as exhausted, and the pilot is requested again once Slurm answers. */
static void what_was_not_answered_is_asked_for_again(void **state)
{
	request_unanswered(
		"echo 'sbatch: error: Batch job submission failed: Unable to contact slurm "
		"controller (connect failure)' >&2; exit 1",
		"Unable to contact slurm controller (connect failure)");
	tear_down(state);
	set_up(state);
	request_unanswered("echo 'sbatch: error: Batch job submission failed: Socket timed out on "
			   "send/recv operation' >&2; exit 1",
		"Socket timed out on send/recv operation");
	tear_down(state);
	set_up(state);
	request_unanswered("exec /bin/sleep 1000", "killed after " COMMAND_S " s");
}

/* A pilot that Slurm refuses is not requested again before the core requests nodes. */
static void what_is_refused_is_not(void **state)
{
	open_engine();
	await_list(1);
	request_once(
		"echo 'sbatch: error: invalid partition specified: nowhere\n"
		"sbatch: error: Batch job submission failed: Invalid partition name specified' "
		">&2; exit 1");
	WITHIN_DOING(WITHIN_LONG_S, w.exhausted > 0, run(w.listed + 1, 0.02));
	put_command("sbatch", "echo 11");
	poll_once();
	assert_int_equal(w.engine->queue_n, 0);
	assert_int_equal(w.exhausted, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pilots_cannot_be_listed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_pilot_cannot_be_listed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_pilot_that_died_as_it_began_is_forgotten, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(a_job_that_is_over_is_not_rescaled, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(old_logs_of_pilots_that_are_gone_are_removed,
			set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_was_not_answered_is_asked_for_again, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(what_is_refused_is_not, set_up, tear_down)};

	test_times("slurm_command=" COMMAND_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
