/* Parts of the scheduler's process: what is submitted, ordered and told as bytes; hints; logs; and
 * the processes of a run.
 */
#include "agent/proto.h"
#include "daemon/devices.h"
#include "daemon/hints.h"
#include "daemon/order.h"
#include "daemon/plain.h"
#include "daemon/run_place.h"
#include "daemon/strays.h"
#include "daemon/submission.h"
#include "daemon/talk.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/rng.h"
#include "sched/job_log.h"
#include "seed.h"
#include "within.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static char dir[] = "/tmp/pawl-daemon-XXXXXX";
static uint64_t first_seed;

/* ---- bytes ---- */

static const char job_file[] = "name: x\nrun: exec \"$@\"\n";
static struct sched_var vars[] = {{"A", "1", false}, {"B", "hush", true}};
static const char *words[] = {"python", "train.py", ""};
static const char *env[] = {"PATH=/bin", "EMPTY="};

static struct submission usual(void)
{
	return (struct submission){.wall_ns = 123,
		.cwd = "/home/a b",
		.file = job_file,
		.len_bytes = sizeof(job_file) - 1,
		.vars = vars,
		.vars_n = 2,
		.words = words,
		.words_n = 3,
		.env = env,
		.env_n = 2};
}

static void a_submission_is_what_was_submitted(void **state)
{
	struct submission one = usual();
	struct submission two;
	struct sched_spec spec;
	struct remarks remarks = {0};
	struct wire_out out = {NULL};

	submission_encode(&out, &one);
	assert_int_equal(submission_decode(&two, out.bytes, out.len_bytes, NULL), 0);
	assert_int_equal(two.wall_ns, 123);
	assert_string_equal(two.cwd, "/home/a b");
	assert_string_equal(two.file, job_file);
	assert_null(two.name);
	assert_string_equal(two.vars[1].value, "hush");
	assert_true(two.vars[1].secret && !two.vars[0].secret);
	assert_string_equal(two.words[1], "train.py");
	assert_string_equal(two.words[2], "");
	assert_string_equal(two.env[1], "EMPTY=");
	assert_int_equal(submission_spec(&two, &spec, &remarks, NULL), 0);
	assert_string_equal(spec.name, "x");
	assert_int_equal(spec.vars_n, 2);
	sched_spec_deinit(&spec);
	submission_deinit(&two);
	wire_out_deinit(&out);
}

static void bytes_that_are_cut_or_flipped_are_no_submission_or_another_one(void **state)
{
	struct rng rng = {first_seed};
	struct submission one = usual();
	struct submission two;
	struct wire_out out = {NULL};

	submission_encode(&out, &one);
	for (size_t len = 0; len < out.len_bytes; len++) {
		assert_int_equal(submission_decode(&two, out.bytes, len, NULL), PAWL_EINVAL);
	}
	for (uint32_t i = 0; i < 20000; i++) {
		size_t at = (size_t)rng_below(&rng, out.len_bytes);
		uint8_t was = out.bytes[at];

		out.bytes[at] = (uint8_t)rng_below(&rng, 256);
		if (submission_decode(&two, out.bytes, out.len_bytes, NULL) == 0) {
			assert_true(two.cwd[0] == '/' && two.file[two.len_bytes] == '\0');
			submission_deinit(&two);
		}
		out.bytes[at] = was;
	}
	wire_out_deinit(&out);
}

static void an_order_is_what_was_ordered(void **state)
{
	static struct order one = {.job = 7,
		.generation = 3,
		.starts = 2,
		.uid = 1001,
		.gid = 1002,
		.user = "ann",
		.home = "/home/ann",
		.shell = "/bin/sh",
		.run_dir = "/r/runs/7.3",
		.job_dir = "/r/jobs/7",
		.task = "pawl-x_7-0",
		.cluster = "pawl",
		.supervisor = "http://127.0.0.1:1/job/x",
		.space = "ann",
		.grace_ns = 5,
		.nodes_n = 2,
		.nodes = {{"a", 2}, {"b", 1}},
		.submission = (const uint8_t *)"bytes",
		.submission_bytes = 5};
	static struct order two;
	struct wire_out out = {NULL};

	order_encode(&out, &one);
	assert_int_equal(order_decode(&two, out.bytes, out.len_bytes, NULL), 0);
	assert_int_equal(two.generation, 3);
	assert_string_equal(two.nodes[1].name, "b");
	assert_string_equal(two.supervisor, "http://127.0.0.1:1/job/x");
	assert_string_equal(two.space, "ann");
	assert_int_equal(two.gid, 1002);
	assert_string_equal(two.home, "/home/ann");
	assert_int_equal(order_replicas(&two), 3);
	assert_memory_equal(two.submission, "bytes", 5);
	for (size_t len = 0; len < out.len_bytes; len++) {
		assert_int_equal(order_decode(&two, out.bytes, len, NULL), PAWL_ECORRUPT);
	}
	wire_out_deinit(&out);
}

static void a_state_is_whole_or_none(void **state)
{
	struct run_state one = {.phase = RUN_IS_OVER,
		.generation = 9,
		.refused = 8,
		.by_itself = true,
		.exit_code = 137,
		.why = "why"};
	struct run_state two = {.generation = 77};
	char path[64];
	uint8_t byte;
	int fd;

	snprintf(path, sizeof(path), "%s/state", dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(run_state_load(fd, &two, NULL), PAWL_ECORRUPT);
	assert_int_equal(run_state_save(fd, &one, NULL), 0);
	assert_int_equal(run_state_load(fd, &two, NULL), 0);
	assert_int_equal(two.exit_code, 137);
	assert_true(two.by_itself && two.phase == RUN_IS_OVER && two.refused == 8);
	assert_string_equal(two.why, "why");
	for (off_t at = 0; at < 40; at++) {
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 1;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		assert_int_equal(run_state_load(fd, &two, NULL), PAWL_ECORRUPT);
		byte ^= 1;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	assert_int_equal(two.generation, 9);
	close(fd);
	unlink(path);
}

static void rows_of_jobs_and_nodes_are_read_as_written(void **state)
{
	static struct talk_job job = {.id = 5,
		.name = "gpt",
		.queue = "default",
		.owner = 1000,
		.state = "running",
		.reason = "so it was decided",
		.priority = -3,
		.replicas = 2,
		.least = 1,
		.most = 8,
		.place = "a:2",
		.submitted_ns = 1,
		.since_ns = 2,
		.ran_s = 1.5,
		.restarts = 4,
		.failures = 1,
		.exit_code = -1,
		.goodput = 12.5,
		.left_s = -1,
		.over = true};
	static struct talk_job job_read;
	struct talk_node node = {"a", "A100", 8, 3, CORE_NODE_DRAINED, true, 2.5};
	struct talk_node node_read;
	struct wire_out out = {NULL};
	struct wire_in in;

	talk_job_put(&out, &job);
	talk_node_put(&out, &node);
	wire_in_init(&in, out.bytes, out.len_bytes);
	talk_job_get(&in, &job_read);
	talk_node_get(&in, &node_read);
	assert_true(wire_in_done(&in));
	assert_memory_equal(&job, &job_read, sizeof(job));
	assert_string_equal(node_read.type, "A100");
	assert_true(node_read.spot && node_read.price == 2.5 && node_read.used == 3);
	wire_out_deinit(&out);
}

static void who_takes_no_descriptors_keeps_none(void **state)
{
	const int sent[2] = {STDIN_FILENO, STDOUT_FILENO};
	struct proto_conn conn = {.fd = -1, .bare = true};
	struct proto_frame frame;
	struct wire_out out = {NULL};
	int ends[2];
	int before;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	conn.fd = ends[0];
	before = dup(ends[0]);
	close(before);
	proto_end(&out, proto_start(&out, (enum proto_type)TALK_NODES, 1));
	assert_int_equal(proto_send(ends[1], &out, NULL, 0, NULL), 0);
	assert_int_equal(proto_send(ends[1], &out, sent, 2, NULL), 0);
	assert_int_equal(proto_fill(&conn, NULL), 1);
	assert_int_equal(proto_next(&conn, &frame, NULL), 1);
	assert_int_equal(frame.fds_n, 0);
	while (conn.in.len_bytes - conn.in_off < out.len_bytes) {
		assert_int_equal(proto_fill(&conn, NULL), 1);
	}
	assert_int_equal(proto_next(&conn, &frame, NULL), PAWL_ECORRUPT);
	assert_int_equal(dup(ends[0]), before); /* the same is free as before */
	close(before);
	proto_conn_close(&conn);
	wire_out_deinit(&out);
	close(ends[1]);
}

/* ---- hints ---- */

static int decode(const char *text, struct sched_hints *hints)
{
	return hints_decode(hints, text, strlen(text), NULL);
}

static void hints_are_pawls_words_or_adaptdls(void **state)
{
	static const char ours[] =
		"{\"stepParams\": {\"alpha_c\": 0.1, \"beta_c\": 0.01, \"delta_n\": 0.5, "
		"\"gamma\": 2},"
		"\"perfParams\": {\"alpha_c\": 9}, \"initBatchSize\": 32, \"maxBatchSize\": 512,"
		"\"localBszBounds\": [8, 64], \"gradientAccumulation\": true, \"unknown\": [1],"
		"\"gradParams\": {\"norm\": 3, \"var\": 4}, \"maxProfiledReplicas\": 2,"
		"\"progress\": 10, \"remaining\": 5.5}";
	static const char adaptdls[] =
		"{\"perfParams\": {\"alpha_c\": 9, \"beta_c\": 1, \"gamma\": 1.5},"
		"\"initBatchSize\": 32, \"maxBatchSize\": null, \"localBszBounds\": null}";
	struct sched_hints h;

	assert_int_equal(decode(ours, &h), 0);
	assert_true(h.fitted && h.perf.alpha_c == 0.1 && h.perf.delta_n == 0.5);
	assert_true(h.noise.sqr == 3 && h.noise.var == 4 && h.replicas_profiled == 2);
	assert_true(h.bounds.init == 32 && h.bounds.max == 512 && h.bounds.accumulate);
	assert_true(h.bounds.least == 8 && h.bounds.most == 64);
	assert_true(h.progress == 10 && h.progress_end == 15.5);
	assert_int_equal(decode(adaptdls, &h), 0);
	assert_true(h.perf.alpha_c == 9 && h.bounds.max == 32 && h.progress_end == 0);
}

static void hints_that_are_wrong_are_refused(void **state)
{
	static const char *const wrong[] = {"", "x", "[]", "{}", "{\"perfParams\": 1}",
		"{\"perfParams\": {\"gamma\": \"2\"}, \"initBatchSize\": 1}",
		"{\"perfParams\": {}, \"initBatchSize\": -1}",
		"{\"perfParams\": {}, \"initBatchSize\": 1e300}",
		"{\"perfParams\": {}, \"initBatchSize\": 1, \"localBszBounds\": [1]}",
		"{\"perfParams\": {}, \"initBatchSize\": 1, \"progress\": NaN}",
		"{\"perfParams\": {}, \"initBatchSize\": 1, \"progress\": []}",
		"{\"perfParams\": {}, \"perfParams\": {}, \"initBatchSize\": 1}"};
	struct sched_hints h = {.progress = 77};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		if (decode(wrong[i], &h) != PAWL_EINVAL) {
			fail_msg("%s", wrong[i]);
		}
	}
	assert_true(h.progress == 77);
}

/* ---- devices ---- */

static void ranks_keep_their_devices_or_cannot_be_changed(void **state)
{
	static const struct devices all = {.n = 5,
		.at = {{"0", "a"}, {"1", "a"}, {"2", "b"}, {"3", "b"}, {"4", "b"}}};
	const struct devices none = {0};
	const struct devices taken = {.n = 1, .at = {{"2", "b"}}};
	struct order_node two[] = {{"a", 1}, {"b", 1}};
	struct order_node none_of[] = {{"c", 3}, {"a", 1}};
	struct devices have = {0};
	char text[DEVICES_TEXT];

	assert_true(devices_change(&have, &taken, &all, two, 2, 1));
	devices_say(&have, 0, 9, text);
	assert_string_equal(text, "0,3");
	two[1].replicas = 3; /* there are three, but one is taken */
	assert_false(devices_change(&have, &taken, &all, two, 2, 2));
	assert_true(devices_change(&have, &none, &all, two, 2, 2));
	devices_say(&have, 0, 9, text);
	assert_string_equal(text, "0,3,2,4");
	two[0].replicas = 0; /* not the last one */
	assert_false(devices_change(&have, &none, &all, two, 2, 3));
	two[0].replicas = two[1].replicas = 1;
	assert_true(devices_change(&have, &none, &all, two, 2, 3));
	assert_true(have.n == 4 && !devices_settle(&have, 2)); /* until it has given them up */
	assert_false(devices_change(&have, &none, &all, two, 2, 4));
	assert_true(devices_settle(&have, 3) && !devices_settle(&have, 3));
	devices_say(&have, 1, 1, text);
	assert_string_equal(text, "3");
	have = none;
	assert_true(devices_change(&have, &none, &all, none_of, 2, 1));
	assert_true(have.n == 1 && !devices_has(&all, "c"));
}

static void of_records_of_devices_the_last_whole_one_counts(void **state)
{
	struct devices one = {.n = 1, .at = {{"0", "a"}}};
	struct devices read;
	char path[64];
	off_t len;
	int fd;

	snprintf(path, sizeof(path), "%s/devices", dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	devices_load(fd, &read);
	assert_int_equal(read.n, 0);
	assert_int_equal(devices_save(fd, &one, NULL), 0);
	len = lseek(fd, 0, SEEK_END);
	one.n = 2;
	one.at[1] = (struct device){"1", "a"};
	assert_int_equal(devices_save(fd, &one, NULL), 0);
	devices_load(fd, &read);
	assert_memory_equal(&read, &one, sizeof(one));
	for (off_t end = lseek(fd, 0, SEEK_END) - 1; end >= len; end--) {
		assert_int_equal(ftruncate(fd, end), 0);
		devices_load(fd, &read);
		assert_int_equal(read.n, 1);
		assert_int_equal(devices_save(fd, &one, NULL), 0); /* and is found behind that */
		devices_load(fd, &read);
		assert_memory_equal(&read, &one, sizeof(one));
	}
	fault_arm("run.devices", 1, ENOSPC, false);
	assert_int_equal(devices_save(fd, &one, NULL), PAWL_ENOSPC);
	fault_disarm();
	close(fd);
	unlink(path);
}

/* ---- logs ---- */

static void a_log_has_bounds_and_its_newest_lines(void **state)
{
	static char block[1 << 20];
	struct job_log *log;
	struct stat st;
	char path[80];

	memset(block, 'x', sizeof(block));
	snprintf(path, sizeof(path), "%s/log", dir);
	assert_int_equal(job_log_open(&log, path, 0600, NULL), 0);
	for (uint32_t i = 0; i < 100; i++) {
		job_log_write(log, block, sizeof(block));
	}
	job_log_say(log, "the %s", "end");
	job_log_close(log);
	assert_int_equal(job_log_open(&log, path, 0600, NULL), 0); /* it goes on where it was */
	job_log_say(log, "again");
	job_log_close(log);
	for (unsigned i = 0; i <= JOB_LOG_FILES; i++) {
		snprintf(path, sizeof(path), i > 0 ? "%s/log.%u" : "%s/log", dir, i);
		assert_int_equal(stat(path, &st) == 0, i < JOB_LOG_FILES);
		if (i < JOB_LOG_FILES) {
			assert_true(st.st_size <= (off_t)(JOB_LOG_BYTES + sizeof(block)));
			assert_true(i == 0 || st.st_size >= (off_t)JOB_LOG_BYTES);
		}
		if (i == 0) {
			FILE *file = fopen(path, "re");
			char tail[32] = "";

			fseek(file, -26, SEEK_END);
			assert_int_equal(fread(tail, 1, 26, file), 26);
			assert_string_equal(tail, "pawl: the end\npawl: again\n");
			fclose(file);
		}
		unlink(path);
	}
}

/* It would wait for a reader, and the job with it. */
static void a_log_that_is_no_file_is_refused(void **state)
{
	struct job_log *log;
	struct pawl_err err;
	char path[80];
	int reader;

	snprintf(path, sizeof(path), "%s/log", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_not_equal(job_log_open(&log, path, 0600, &err), 0);
	reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_int_not_equal(job_log_open(&log, path, 0600, &err), 0);
	close(reader);
	unlink(path);
	assert_int_equal(symlink("elsewhere", path), 0);
	assert_int_not_equal(job_log_open(&log, path, 0600, &err), 0);
	unlink(path);
}

/* Lines that find no room are lost, counted, and told once there is some. */
static void a_full_disk_costs_lines_and_says_how_many(void **state)
{
	char text[128] = "";
	struct job_log *log;
	char path[80];
	FILE *file;

	snprintf(path, sizeof(path), "%s/log", dir);
	assert_int_equal(job_log_open(&log, path, 0600, NULL), 0);
	job_log_write(log, "one\n", 4);
	fault_arm("job_log.write", 1, ENOSPC, true);
	for (uint32_t i = 0; i < 100; i++) {
		job_log_write(log, "lost\n", 5);
	}
	fault_disarm();
	job_log_write(log, "two\n", 4);
	job_log_close(log);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	assert_string_equal(text, "one\npawl: 500 bytes could not be written here\ntwo\n");
	unlink(path);
}

/* ---- processes ---- */

#define NOBODY   65534u
#define STRANGER 64321u /* no user's id here */

/* Sleeps, as a user, with one variable in its environment ("": with none). */
static pid_t start_as(uint32_t uid, const char *var)
{
	char text[160];
	char *const argv[] = {(char[]){"sleep"}, (char[]){"98762"}, NULL};
	char *const with[] = {text, NULL};
	char *const without[] = {NULL};
	pid_t pid = fork();

	snprintf(text, sizeof(text), "%s", var);
	if (pid == 0) {
		if (uid == geteuid() || setresuid(uid, uid, uid) == 0) {
			execve("/bin/sleep", argv, var[0] != '\0' ? with : without);
		}
		_exit(1);
	}
	return pid;
}

static pid_t start(const char *var)
{
	return start_as(geteuid(), var);
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct strays_mark mark_of(const char *text, uint32_t uid)
{
	struct strays_mark mark = {.uid = uid};

	snprintf(mark.text, sizeof(mark.text), "%s", text);
	return mark;
}

static void await_count(const char *text, uint32_t uid, int wanted)
{
	const struct strays_mark mark = mark_of(text, uid);

	WITHIN_DOING(WITHIN_LONG_S, strays_signal(&mark, 0) == wanted, within_pace(0.01));
}

static void processes_of_a_run_are_found_and_no_others(void **state)
{
	const struct strays_mark seven = mark_of(RUN_KEY_VAR "=71", geteuid());
	const struct strays_mark none = mark_of("", geteuid());
	pid_t ours = start(RUN_KEY_VAR "=71");
	pid_t others = start(RUN_KEY_VAR "=712");
	pid_t hidden = start("");

	await_count(RUN_KEY_VAR "=71", geteuid(), 1);
	await_count(RUN_KEY_VAR "=712", geteuid(), 1);
	await_count(RUN_KEY_VAR "=7", geteuid(), 0);
	assert_int_equal(strays_signal(&none, SIGKILL), 0);
	assert_int_equal(strays_signal(&seven, SIGKILL), 1);
	assert_int_equal(waitpid(ours, NULL, 0), ours);
	assert_int_equal(strays_signal(&seven, SIGKILL), 0);
	end(others);
	end(hidden);
}

/* Whatever it has in its environment. Of a run of another user, too, root's own count: it may not
 * have become that user yet. */
static void a_process_of_another_user_is_no_runs(void **state)
{
	pid_t ours;
	pid_t theirs;

	if (geteuid() != 0) {
		print_message("skipped: only root can be another user\n");
		skip();
	}
	theirs = start_as(NOBODY, RUN_KEY_VAR "=72");
	await_count(RUN_KEY_VAR "=72", NOBODY, 1);
	await_count(RUN_KEY_VAR "=72", 0, 0);
	await_count(RUN_KEY_VAR "=72", STRANGER, 0);
	await_count(RUN_KEY_VAR "=72", STRAYS_ANYBODY, 1);
	ours = start(RUN_KEY_VAR "=72");
	await_count(RUN_KEY_VAR "=72", STRANGER, 1);
	await_count(RUN_KEY_VAR "=72", 0, 1);
	end(ours);
	end(theirs);
}

static void put_order(const char *folder, const void *bytes, size_t len_bytes)
{
	char path[160];
	struct pawl_err err = {0};

	snprintf(path, sizeof(path), "%s/order", folder);
	if (file_put(path, bytes, len_bytes, 0600, false, &err) != 0) {
		fail_msg("%s", err.msg);
	}
}

/* As the version before wrote it, which had neither a key nor the owner: they are cut out. */
static void put_keyless(const char *folder, struct wire_out *out, const struct order *order)
{
	static const uint8_t before[] = {4, 0, 0, 0};
	uint8_t *at = memmem(out->bytes, out->len_bytes, order->scratch, strlen(order->scratch));
	size_t off;

	assert_non_null(at);
	memcpy(out->bytes, before, sizeof(before));
	at += strlen(order->scratch);
	off = (size_t)(at - out->bytes);
	memmove(at, at + 8, out->len_bytes - off - 8);
	put_order(folder, out->bytes, out->len_bytes - 8);
}

/* A directory may have the name of an earlier run's, whose processes may be left. */
static void a_process_of_an_earlier_run_is_not_of_this_one(void **state)
{
	static struct order order = {.job = 7, .generation = 1, .nodes_n = 1, .scratch = "/scr"};
	char folder[] = "/tmp/pawl-parts-XXXXXX";
	char was[96];
	char is[96];
	struct strays_mark mark;
	struct wire_out out = {NULL};
	pid_t earlier;
	pid_t ours;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(strays_mark_load(&mark, folder, NULL), 0); /* nothing was ordered */
	assert_string_equal(mark.text, "");
	order.uid = geteuid();
	snprintf(order.run_dir, sizeof(order.run_dir), "%s", folder);
	assert_int_equal(order_make_key(order.key, NULL), 0);
	snprintf(was, sizeof(was), RUN_KEY_VAR "=%s", order.key);
	earlier = start(was);
	await_count(was, geteuid(), 1);
	assert_int_equal(order_make_key(order.key, NULL), 0);
	snprintf(is, sizeof(is), RUN_KEY_VAR "=%s", order.key);
	order_encode(&out, &order);
	put_order(folder, out.bytes, out.len_bytes);
	assert_int_equal(strays_mark_load(&mark, folder, NULL), 0);
	assert_string_equal(mark.text, is);
	assert_int_equal(mark.uid, geteuid());
	assert_int_equal(strays_signal(&mark, SIGKILL), 0);
	ours = start(is);
	await_count(is, geteuid(), 1);
	end(ours);
	end(earlier);
	order.key[0] = '\0';
	wire_out_reset(&out);
	order_encode(&out, &order);
	put_keyless(folder, &out, &order);
	snprintf(is, sizeof(is), RUN_VAR "=%s", folder);
	assert_int_equal(strays_mark_load(&mark, folder, NULL), 0);
	assert_string_equal(mark.text, is);
	assert_int_equal(mark.uid, geteuid());
	put_order(folder, "damaged", 7);
	assert_int_equal(strays_mark_load(&mark, folder, NULL), 0);
	assert_string_equal(mark.text, is);
	assert_true(mark.uid == STRAYS_ANYBODY);
	wire_out_deinit(&out);
	snprintf(is, sizeof(is), "%s/order", folder);
	assert_int_equal(unlink(is), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* Adopts what loses its parent; 0: all went as it should. */
static int keep_a_run(void)
{
	char *const argv[] = {(char[]){"sh"}, (char[]){"-c"},
		(char[]){"(trap '' HUP; setsid sh -c 'sleep 98762 & sleep 98762; :' &) ; exit"},
		NULL};
	char *const path[] = {(char[]){"PATH=/usr/bin:/bin"}, NULL};
	int64_t due_ns = clock_mono_ns() + 60 * NS_PER_S;
	pid_t pid;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (strays_has_own()) {
		return 2;
	}
	pid = fork();
	if (pid == 0) {
		execve("/bin/sh", argv, path);
		_exit(1);
	}
	if (waitpid(pid, NULL, 0) != pid || !strays_has_own()) {
		return 3;
	}
	while (strays_has_own() && clock_mono_ns() < due_ns) {
		strays_signal_own(SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0) {
		}
		within_pace(0.01);
	}
	return strays_has_own() ? 4 : 0;
}

/* Of another session, without its environment, with parents that have left; and nobody else. */
static void all_that_came_of_a_process_is_its_own(void **state)
{
	pid_t stranger = start(RUN_KEY_VAR "=73");
	pid_t keeper = fork();
	int status;

	if (keeper == 0) {
		_exit(keep_a_run());
	}
	assert_int_equal(waitpid(keeper, &status, 0), keeper);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	await_count(RUN_KEY_VAR "=73", geteuid(), 1);
	end(stranger);
}

/* Of the two newest: one may not be taken yet, or be refused. */
static void a_run_is_where_it_was_changed_to(void **state)
{
	static struct run_place_entry entry;
	static struct run_place_entry found;
	char folder[] = "/tmp/pawl-parts-XXXXXX";
	char file[64];
	FILE *opened;

	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/" RUN_PLACE_FILE, folder);
	assert_int_equal(run_place_load(folder, 1, &found, NULL), PAWL_ENOENT);
	for (uint32_t i = 2; i <= 4; i++) {
		entry = (struct run_place_entry){.generation = i, .nodes_n = i};
		for (uint32_t n = 0; n < i; n++) {
			entry.nodes[n].replicas = 10 * i + n;
			snprintf(entry.nodes[n].name, CORE_NAME_MAX, "node%u", n);
		}
		assert_int_equal(run_place_save(folder, &entry, i - 1, NULL), 0);
	}
	assert_int_equal(run_place_load(folder, 2, &found, NULL), PAWL_ENOENT);
	for (uint32_t i = 3; i <= 4; i++) {
		assert_int_equal(run_place_load(folder, i, &found, NULL), 0);
		assert_int_equal(found.nodes_n, i);
		assert_int_equal(found.nodes[2].replicas, 10 * i + 2);
		assert_string_equal(found.nodes[2].name, "node2");
	}
	opened = fopen(file, "r+e");
	assert_non_null(opened);
	fseek(opened, 20, SEEK_SET);
	fputc(77, opened);
	fclose(opened);
	assert_int_equal(run_place_load(folder, 4, &found, NULL), PAWL_ECORRUPT);
	assert_int_equal(truncate(file, 3), 0);
	assert_int_equal(run_place_load(folder, 4, &found, NULL), PAWL_ECORRUPT);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* ---- commands of Python's ---- */

/* What `pawl run` would be given for a script; "": a shell is. */
static void gives(const char *script, const char *expected)
{
	const char *found[PLAIN_WORDS_MAX];
	char text[512];
	char joined[512] = "";
	uint32_t n;

	snprintf(text, sizeof(text), "%s", script);
	n = plain_cut(text, found);
	if (n == 0) {
		assert_string_equal(text, script);
	}
	n = plain_python(found, n);
	for (uint32_t i = 0; i < n; i++) {
		size_t len = strlen(joined);

		snprintf(joined + len, sizeof(joined) - len, "%s%s", i > 0 ? "|" : "", found[i]);
	}
	assert_string_equal(joined, expected);
}

static void only_a_plain_command_of_pythons_needs_no_shell(void **state)
{
	char many[3 * PLAIN_WORDS_MAX + 32] = "python";

	gives("python train.py --epochs=3 a/b@c,d:e\t+1\n",
		"python|train.py|--epochs=3|a/b@c,d:e|+1");
	gives("  /usr/bin/python3.11   -u  train.py \n\n", "/usr/bin/python3.11|train.py");
	gives("python3 -u -m pkg.train x", "python3|-m|pkg.train|x");
	gives("python -m pkg", "python|-m|pkg");
	gives("", "");
	gives("python", "");
	gives("python -u", "");
	gives("python -m", "");
	gives("python -O train.py", "");
	gives("python -u -u train.py", "");
	gives("exec python train.py", "");
	gives("X=1 python train.py", "");
	gives("python-config --libs", "");
	gives("pythonx train.py", "");
	gives("./train.py", "");
	gives("python train.py\npython eval.py", "");
	gives("python train.py # all of it", "");
	gives("python ~/train.py", "");
	for (const char *at = "$`\"'\\*?[]{}()<>|&;#!~^\r"; *at != '\0'; at++) {
		char text[] = "python train.py .";

		text[strlen(text) - 1] = *at;
		gives(text, *at == '\r' ? "python|train.py" : "");
	}
	for (size_t at = strlen(many); at + 3 < sizeof(many); at += 2) {
		memcpy(many + at, " a", 3);
	}
	gives(many, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_a_plain_command_of_pythons_needs_no_shell),
		cmocka_unit_test(a_submission_is_what_was_submitted),
		cmocka_unit_test(bytes_that_are_cut_or_flipped_are_no_submission_or_another_one),
		cmocka_unit_test(an_order_is_what_was_ordered),
		cmocka_unit_test(a_state_is_whole_or_none),
		cmocka_unit_test(rows_of_jobs_and_nodes_are_read_as_written),
		cmocka_unit_test(who_takes_no_descriptors_keeps_none),
		cmocka_unit_test(hints_are_pawls_words_or_adaptdls),
		cmocka_unit_test(hints_that_are_wrong_are_refused),
		cmocka_unit_test(ranks_keep_their_devices_or_cannot_be_changed),
		cmocka_unit_test(of_records_of_devices_the_last_whole_one_counts),
		cmocka_unit_test(a_log_has_bounds_and_its_newest_lines),
		cmocka_unit_test(a_log_that_is_no_file_is_refused),
		cmocka_unit_test(a_full_disk_costs_lines_and_says_how_many),
		cmocka_unit_test(processes_of_a_run_are_found_and_no_others),
		cmocka_unit_test(a_process_of_another_user_is_no_runs),
		cmocka_unit_test(a_process_of_an_earlier_run_is_not_of_this_one),
		cmocka_unit_test(all_that_came_of_a_process_is_its_own),
		cmocka_unit_test(a_run_is_where_it_was_changed_to),
	};
	int rv;

	first_seed = test_seed();
	if (!mkdtemp(dir)) {
		return 1;
	}
	rv = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	return rv;
}
