/* Parts of the scheduler's process: encoded submissions, orders and messages; hints; devices; logs;
 * Python commands. test_daemon_strays.c has the processes of a run. */
#include "daemon/hints.h"
#include "daemon/sched_msg.h"
#include "engine/local/devices.h"
#include "engine/local/order.h"
#include "engine/local/plain.h"
#include "engine/submission.h"
#include "ipc/proto.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/rng.h"
#include "engine/job_log.h"
#include "seed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static char dir[] = "/tmp/pawl-daemon-XXXXXX";
static uint64_t first_seed;

/* ---- bytes ---- */

static const char job_file[] = "name: x\nrun: exec \"$@\"\n";
static struct sched_var vars[] = {{"A", "1", false}, {"B", "hush", true}};
static const char *args[] = {"python", "train.py", ""};
static const char *env[] = {"PATH=/bin", "EMPTY="};

static struct submission usual(void)
{
	return (struct submission){.wall_ns = 123,
		.cwd = "/home/a b",
		.file = job_file,
		.len_bytes = sizeof(job_file) - 1,
		.vars = vars,
		.vars_n = 2,
		.args = args,
		.args_n = 3,
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
	assert_string_equal(two.args[1], "train.py");
	assert_string_equal(two.args[2], "");
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
		.owner = 0x0b0a0b0a,
		.least = 2,
		.most = 5,
		.priority = -3,
		.boot = "of-yesterday",
		.grace_ns = 5,
		.nodes_n = 2,
		.nodes = {{"a", 2}, {"b", 1}},
		.submission = (const uint8_t *)"bytes",
		.submission_bytes = 5};
	static struct order two;
	static const uint8_t owner[] = {0x0a, 0x0b, 0x0a, 0x0b};
	const size_t boot = 4 + strlen(one.boot); /* bytes */
	const size_t bounds = 12;                 /* and the priority */
	struct wire_out out = {NULL};
	uint8_t *at;

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
	assert_true(two.least == 2 && two.most == 5 && two.priority == -3);
	assert_string_equal(two.boot, "of-yesterday");
	for (size_t len = 0; len < out.len_bytes; len++) {
		assert_int_equal(order_decode(&two, out.bytes, len, NULL), PAWL_ECORRUPT);
	}
	/* As version 6 wrote it: without the boot, behind bounds and priority. */
	at = memmem(out.bytes, out.len_bytes, owner, sizeof(owner));
	assert_non_null(at);
	out.bytes[0] = 6;
	at += sizeof(owner) + bounds;
	memmove(at, at + boot, (size_t)(out.bytes + out.len_bytes - (at + boot)));
	assert_int_equal(order_decode(&two, out.bytes, out.len_bytes - boot, NULL), 0);
	assert_true(two.priority == -3 && two.grace_ns == 5);
	assert_string_equal(two.boot, "");
	/* As version 5 wrote it: without bounds and priority, behind the owner. */
	out.bytes[0] = 5;
	at -= bounds;
	memmove(at, at + bounds, (size_t)(out.bytes + out.len_bytes - (at + boot + bounds)));
	assert_int_equal(order_decode(&two, out.bytes, out.len_bytes - boot - bounds, NULL), 0);
	assert_int_equal(two.owner, 0x0b0a0b0a);
	assert_true(two.least == 0 && two.most == 0 && two.priority == 0);
	assert_int_equal(two.grace_ns, 5);
	wire_out_deinit(&out);
}

static void a_state_is_whole_or_none(void **state)
{
	struct run_state one = {.phase = RUN_ENDED,
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
	assert_true(two.by_itself && two.phase == RUN_ENDED && two.refused == 8);
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
	static struct sched_msg_job job = {.id = 5,
		.name = "gpt",
		.queue = "default",
		.owner = 1000,
		.state = "running",
		.reason = "scheduling decision",
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
	static struct sched_msg_job job_read;
	struct sched_msg_node node = {"a", "A100", 8, 3, CORE_NODE_DRAINED, true, 2.5};
	struct sched_msg_node node_read;
	struct wire_out out = {NULL};
	struct wire_in in;

	frame_layout_encode(&out, &sched_msg_job_layout, &job);
	wire_in_init(&in, out.bytes, out.len_bytes);
	assert_true(frame_layout_decode(&in, &sched_msg_job_layout, &job_read, sizeof(job_read)));
	assert_memory_equal(&job, &job_read, sizeof(job));
	wire_out_reset(&out);
	frame_layout_encode(&out, &sched_msg_node_layout, &node);
	wire_in_init(&in, out.bytes, out.len_bytes);
	assert_true(
		frame_layout_decode(&in, &sched_msg_node_layout, &node_read, sizeof(node_read)));
	assert_string_equal(node_read.type, "A100");
	assert_true(node_read.spot && node_read.price == 2.5 && node_read.used == 3);
	wire_out_deinit(&out);
}

static void who_takes_no_descriptors_keeps_none(void **state)
{
	const int sent[2] = {STDIN_FILENO, STDOUT_FILENO};
	struct proto_conn conn = {.fd = -1, .refuse_fds = true};
	struct proto_frame frame;
	struct wire_out out = {NULL};
	int ends[2];
	int before;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	conn.fd = ends[0];
	before = dup(ends[0]);
	close(before);
	proto_end(&out, proto_start(&out, (enum proto_type)SCHED_MSG_NODES, 1));
	assert_int_equal(proto_send(ends[1], &out, NULL, 0, NULL), 0);
	assert_int_equal(proto_send(ends[1], &out, sent, 2, NULL), 0);
	assert_int_equal(proto_fill(&conn, NULL), 1);
	assert_int_equal(proto_next(&conn, &frame, NULL), 1);
	assert_int_equal(frame.fds_n, 0);
	while (conn.in.len_bytes - conn.in_off < out.len_bytes) {
		assert_int_equal(proto_fill(&conn, NULL), 1);
	}
	assert_int_equal(proto_next(&conn, &frame, NULL), PAWL_ECORRUPT);
	/* The lowest free descriptor is the one from before: none leaked. */
	assert_int_equal(dup(ends[0]), before);
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
	assert_true(h.bounds.atomic_min == 8 && h.bounds.atomic_max == 64);
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
	devices_format(&have, 0, 9, text);
	assert_string_equal(text, "0,3");
	two[1].replicas = 3; /* there are three, but one is taken */
	assert_false(devices_change(&have, &taken, &all, two, 2, 2));
	assert_true(devices_change(&have, &none, &all, two, 2, 2));
	devices_format(&have, 0, 9, text);
	assert_string_equal(text, "0,3,2,4");
	two[0].replicas = 0; /* device 0 is not the last rank's */
	assert_false(devices_change(&have, &none, &all, two, 2, 3));
	two[0].replicas = two[1].replicas = 1;
	assert_true(devices_change(&have, &none, &all, two, 2, 3));
	/* Devices are kept until ranks have given them up. */
	assert_true(have.n == 4 && !devices_release(&have, 2));
	assert_false(devices_change(&have, &none, &all, two, 2, 4));
	assert_true(devices_release(&have, 3) && !devices_release(&have, 3));
	devices_format(&have, 1, 1, text);
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
		/* The next record is found after the broken one. */
		assert_int_equal(devices_save(fd, &one, NULL), 0);
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
	job_log_printf(log, "the %s", "end");
	job_log_close(log);
	/* The log goes on where it ended. */
	assert_int_equal(job_log_open(&log, path, 0600, NULL), 0);
	job_log_printf(log, "again");
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

/* Pawl's lines do not continue a progress bar, neither of this start nor of the last one. */
static void a_line_of_a_log_begins_behind_what_the_job_has_not_ended(void **state)
{
	char text[128] = "";
	struct job_log *log;
	char path[80];
	FILE *file;

	snprintf(path, sizeof(path), "%s/log", dir);
	assert_int_equal(job_log_open(&log, path, 0600, NULL), 0);
	job_log_printf(log, "one");
	job_log_write(log, "\r12 %", 5);
	job_log_printf(log, "two");
	job_log_write(log, "\r34 %", 5);
	job_log_close(log);
	assert_int_equal(job_log_open(&log, path, 0600, NULL), 0);
	job_log_printf(log, "three");
	job_log_close(log);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	assert_string_equal(text, "pawl: one\n\r12 %\npawl: two\n\r34 %\npawl: three\n");
	unlink(path);
}

/* A FIFO would make the log wait for a reader, and the job with it. */
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

/* Lines that find no space are dropped and counted, and the count is logged once there is space. */
static void a_full_disk_costs_lines_and_logs_how_many(void **state)
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

/* ---- Python commands ---- */

/* Expects the command that `pawl run` gets for a script; "": a shell runs the script. */
static void gives(const char *script, const char *expected)
{
	const char *found[PLAIN_WORDS_MAX];
	char text[512];
	char joined[512] = "";
	uint32_t n;

	snprintf(text, sizeof(text), "%s", script);
	n = plain_split(text, found);
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
		cmocka_unit_test(a_line_of_a_log_begins_behind_what_the_job_has_not_ended),
		cmocka_unit_test(a_log_that_is_no_file_is_refused),
		cmocka_unit_test(a_full_disk_costs_lines_and_logs_how_many),
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
