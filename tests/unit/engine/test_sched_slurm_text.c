/* The parsers of Slurm's output and of the files of engine and pilots are strict. Also the programs
 * and the slots of a job's parts. */
#include "engine/slurm/pilot/slurm_slots.h"
#include "engine/slurm/slurm_program.h"
#include "engine/slurm/slurm_text.h"

#include "pawl/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* ---- commands ---- */

static void test_squeue(void **state)
{
	const char *at = "7|RUNNING|0|pawl-ab-gpu|n1|None|\n"
			 "8|PENDING|2|pawl-ab-gpu||(Nodes required for job are DOWN|odd)|\n"
			 "9|NODE_FAIL|1|pawl-ab-gpu|n2|NodeDown|\n"
			 "10|TIMEOUT|0|pawl-ab-gpu|n2|TimeLimit|\n"
			 "11|COMPLETING|1|pawl-ab-gpu|n2|None|\n";
	struct slurm_row row;
	struct pawl_err err;

	assert_int_equal(slurm_queue_next(&at, &row, &err), 1);
	assert_true(row.slurm_job == 7 && row.state == SLURM_ACTIVE && row.restart == 0);
	assert_string_equal(row.name, "pawl-ab-gpu");
	assert_string_equal(row.node, "n1");
	assert_int_equal(slurm_queue_next(&at, &row, &err), 1);
	assert_true(row.slurm_job == 8 && row.state == SLURM_PENDING && row.restart == 2);
	assert_string_equal(row.node, "");
	assert_string_equal(row.reason, "(Nodes required for job are DOWN|odd)");
	assert_int_equal(slurm_queue_next(&at, &row, &err), 1);
	assert_int_equal(row.state, SLURM_CUT_OFF);
	assert_int_equal(slurm_queue_next(&at, &row, &err), 1);
	assert_int_equal(row.state, SLURM_CUT_OFF); /* the node may not know of the end */
	assert_int_equal(slurm_queue_next(&at, &row, &err), 1);
	assert_int_equal(row.state, SLURM_ENDING);
	assert_int_equal(slurm_queue_next(&at, &row, &err), 0);
}

static void test_squeue_as_it_should_not_be(void **state)
{
	static const char *const lines[] = {"\n", "7\n", "7|RUNNING|0|a\n", "7|RUNNING|0|a|n1",
		"|RUNNING|0|a|n1|None|\n", "-7|RUNNING|0|a|n1|None|\n",
		"7_1|RUNNING|0|a|n1|None|\n", "7|SLEEPING|0|a|n1|None|\n",
		"7|RUNNING|4294967296|a|n1|None|\n", "7|RUNNING||a|n1|None|\n",
		"77777777777777777777|RUNNING|0|a|n1|None|\n", "7|RUNNING|0|a|n1|None|",
		"7|RUNNING|0|a|n1|None\n",
		"slurm_load_jobs error: Unable to contact slurm controller\n"};
	struct slurm_row row;
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		const char *at = lines[i];

		assert_int_equal(slurm_queue_next(&at, &row, &err), PAWL_ECORRUPT);
		assert_non_null(strstr(err.msg, "squeue"));
	}
}

static void test_long_fields_are_refused_or_cut(void **state)
{
	char line[4096] = "7|RUNNING|0|";
	const char *at = line;
	struct slurm_row row;
	struct pawl_err err;

	memset(line + 12, 'x', 3000);
	memcpy(line + 3012, "|n1|None|\n", 11);
	assert_int_equal(slurm_queue_next(&at, &row, &err), PAWL_ECORRUPT);
	memcpy(line, "7|RUNNING|0|a|n1|", 17);
	at = line;
	assert_int_equal(slurm_queue_next(&at, &row, &err), 1); /* a reason is cut */
	assert_int_equal(strlen(row.reason), sizeof(row.reason) - 1);
}

static void test_sinfo_of_sizes(void **state)
{
	static const char *const bad[] = {"n1|main*|4|1000|2000|", "n1|main*|4|1000\n", "n1\n",
		"n1|main*|4|-1|2000|\n", "n1|main*|4+|1000|2000|\n",
		"n1|main*|4|1000|99999999999999|\n"};
	const char *at = "n1|main*|4|1000|2000|\nn2|gpu|96|515000|0|\n";
	struct slurm_node_row row;
	struct pawl_err err;

	assert_int_equal(slurm_sizes_next(&at, &row, &err), 1);
	assert_string_equal(row.node, "n1");
	assert_string_equal(row.partition, "main");
	assert_true(
		row.is_default && row.cpus == 4 && row.memory_mib == 1000 && row.disk_mib == 2000);
	assert_int_equal(slurm_sizes_next(&at, &row, &err), 1);
	assert_string_equal(row.partition, "gpu");
	assert_true(!row.is_default && row.cpus == 96 && row.disk_mib == 0);
	assert_int_equal(slurm_sizes_next(&at, &row, &err), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		at = bad[i];
		assert_int_equal(slurm_sizes_next(&at, &row, &err), PAWL_ECORRUPT);
	}
}

static void test_sinfo(void **state)
{
	const char *at = "n1|mixed+drain|draining|\nn2|idle|idle|\nn3||drained*|\nn4|drained||\n"
			 "n5||idle|\nn6|||\n";
	char node[CORE_NAME_MAX];
	bool drained;
	struct pawl_err err;

	for (uint32_t i = 1; i <= 5; i++) {
		assert_int_equal(slurm_nodes_next(&at, node, &drained, &err), 1);
		assert_int_equal(node[1], '0' + (int)i);
		assert_int_equal(drained, i != 2 && i != 5);
	}
	assert_int_equal(slurm_nodes_next(&at, node, &drained, &err), PAWL_ECORRUPT);
}

static void test_sbatch_and_scontrol(void **state)
{
	uint64_t job;
	int64_t ns;
	struct pawl_err err;

	assert_int_equal(slurm_submitted("123\n", &job, &err), 0);
	assert_int_equal(job, 123);
	assert_int_equal(slurm_submitted("124;cluster\n", &job, &err), 0);
	assert_int_equal(job, 124);
	assert_int_equal(slurm_submitted("Submitted batch job 5\n", &job, &err), PAWL_ECORRUPT);
	assert_int_equal(slurm_submitted("", &job, &err), PAWL_ECORRUPT);
	assert_int_equal(slurm_submitted("0\n", &job, &err), PAWL_ECORRUPT);
	assert_int_equal(
		slurm_kill_wait("A = 1\nKillWait                = 30 sec\nB = 2\n", &ns, &err), 0);
	assert_int_equal(ns, 30000000000);
	assert_int_equal(slurm_kill_wait("KillWait = soon\n", &ns, &err), PAWL_ENOENT);
	assert_int_equal(slurm_kill_wait("", &ns, &err), PAWL_ENOENT);
}

/* ---- files ---- */

static void put_args(struct wire_out *list, const char *args)
{
	for (; *args != '\0'; args++) {
		wire_put_raw(list, args, 1);
		wire_put_u8(list, '\0');
	}
}

static void make_record(struct wire_out *out)
{
	struct slurm_program program = {.cwd = "/", .log = "/log"};
	struct wire_out bytes = {0};
	struct slurm_job_node nodes[2] = {{.node = "n1.1", .replicas = 2, .sizing = 10},
		{.node = "n2.2", .number = 5, .joins = true, .leaves = true}};
	struct slurm_record record = {.job = 7,
		.generation = 9,
		.rescale = 10,
		.rescaled = 9,
		.dynamic_nodes = true,
		.runs = true,
		.stopped = 8,
		.stop_requested = true,
		.end_cause = CORE_END_STOPPED,
		.exit_code = -1,
		.grace_ns = 5,
		.nodes = nodes,
		.nodes_n = 2};

	put_args(&program.run, "abc");
	put_args(&program.env, "x");
	slurm_program_encode(&program, &bytes);
	for (uint32_t i = 0; i < 2; i++) {
		nodes[i].program = bytes.bytes;
		nodes[i].len_bytes = (uint32_t)bytes.len_bytes;
	}
	slurm_record_encode(&record, out);
	assert_false(out->failed);
	wire_out_deinit(&bytes);
	wire_out_deinit(&program.run);
	wire_out_deinit(&program.env);
}

static void test_records_come_back(void **state)
{
	struct wire_out out = {0};
	struct slurm_record record;
	struct slurm_program_view view;
	struct pawl_err err;

	make_record(&out);
	assert_int_equal(slurm_record_decode(out.bytes, out.len_bytes, &record, &err), 0);
	assert_true(record.job == 7 && record.generation == 9 && record.stopped == 8);
	assert_true(record.stop_requested && !record.over && record.end_cause == CORE_END_STOPPED);
	assert_true(record.exit_code == -1 && record.grace_ns == 5 && record.nodes_n == 2);
	assert_true(record.rescale == 10 && record.rescaled == 9 && record.nodes[0].sizing == 10);
	assert_true(record.dynamic_nodes && !record.elastic && record.runs &&
		record.nodes[1].number == 5);
	assert_true(record.nodes[1].joins && record.nodes[1].leaves && !record.nodes[0].leaves);
	assert_string_equal(record.nodes[0].node, "n1.1");
	assert_int_equal(slurm_program_decode(record.nodes[1].program, record.nodes[1].len_bytes,
				 &view, &err),
		0);
	assert_string_equal(view.run[2], "c");
	assert_null(view.run[3]);
	assert_null(view.setup[0]);
	assert_string_equal(view.env[0], "x");
	slurm_program_view_deinit(&view);
	slurm_record_deinit(&record);
	wire_out_deinit(&out);
}

static void test_wants_come_back(void **state)
{
	static const uint8_t program[] = {1, 2, 3};
	struct slurm_want_part part = {.job = 7,
		.generation = 9,
		.sizing = 11,
		.slots = 3,
		.leave = true,
		.stop = true,
		.grace_ns = 5,
		.program = program,
		.len_bytes = sizeof(program)};
	struct slurm_want want = {.slots = 4, .parts = &part, .parts_n = 1};
	struct wire_out out = {0};
	struct slurm_want back;
	struct pawl_err err;

	slurm_want_encode(&want, &out);
	assert_int_equal(slurm_want_decode(out.bytes, out.len_bytes, &back, &err), 0);
	assert_true(!back.leave && back.slots == 4 && back.parts_n == 1);
	assert_true(back.parts[0].job == 7 && back.parts[0].generation == 9);
	assert_true(back.parts[0].sizing == 11 && back.parts[0].slots == 3);
	assert_true(back.parts[0].leave && back.parts[0].stop && back.parts[0].grace_ns == 5);
	assert_int_equal(back.parts[0].len_bytes, sizeof(program));
	assert_memory_equal(back.parts[0].program, program, sizeof(program));
	free(back.parts);
	wire_out_deinit(&out);
}

static void test_haves_come_back(void **state)
{
	struct slurm_have_part part = {.job = 7,
		.generation = 9,
		.sized = 11,
		.refused_sizing = 12,
		.state = SLURM_ENDED,
		.end_cause = SLURM_END_NODE_LOST,
		.exit_code = 143};
	struct slurm_have have = {.slurm_job = 3,
		.restart = 1,
		.host = "n1",
		.address = "10.0.0.1",
		.scratch_bytes = 1ull << 40,
		.state = SLURM_PILOT_GOING,
		.remaining_ns = 6,
		.parts = &part,
		.parts_n = 1};
	struct wire_out out = {0};
	struct slurm_have back;
	struct pawl_err err;

	slurm_have_encode(&have, &out);
	assert_int_equal(slurm_have_decode(out.bytes, out.len_bytes, &back, &err), 0);
	assert_true(back.slurm_job == 3 && back.restart == 1 && back.remaining_ns == 6);
	assert_string_equal(back.host, "n1");
	assert_true(back.scratch_bytes == 1ull << 40);
	assert_int_equal(back.parts_n, 1);
	assert_true(back.parts[0].sized == 11 && back.parts[0].refused_sizing == 12);
	assert_true(
		back.parts[0].end_cause == SLURM_END_NODE_LOST && back.parts[0].exit_code == 143);
	free(back.parts);
	wire_out_deinit(&out);
}

/* Each byte is changed, and each shorter length tried: all are refused. */
static void test_damaged_ones_do_not(void **state)
{
	struct wire_out out = {0};
	struct slurm_record record;
	struct slurm_have have;
	struct slurm_want want;
	struct pawl_err err;

	make_record(&out);
	for (size_t i = 0; i < out.len_bytes; i++) {
		out.bytes[i] ^= 0x10;
		assert_int_equal(slurm_record_decode(out.bytes, out.len_bytes, &record, &err),
			PAWL_ECORRUPT);
		out.bytes[i] ^= 0x10;
		assert_int_equal(slurm_record_decode(out.bytes, i, &record, &err), PAWL_ECORRUPT);
	}
	assert_int_equal(slurm_have_decode(out.bytes, out.len_bytes, &have, &err), PAWL_ECORRUPT);
	assert_int_equal(slurm_want_decode(out.bytes, out.len_bytes, &want, &err), PAWL_ECORRUPT);
	out.bytes[4]++;
	assert_int_equal(slurm_record_decode(out.bytes, out.len_bytes, &record, &err),
		PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, "version 4"));
	wire_out_deinit(&out);
}

static void test_pilots_have_names_of_their_own(void **state)
{
	struct slurm_have have = {.slurm_job = 17, .host = "n1"};
	char name[CORE_NAME_MAX];

	slurm_pilot_name(name, &have);
	assert_string_equal(name, "n1.17");
	have.restart = 2;
	slurm_pilot_name(name, &have);
	assert_string_equal(name, "n1.17.2");
	memset(have.host, 'h', CORE_NAME_MAX - 1);
	slurm_pilot_name(name, &have);
	assert_string_equal(name + strlen(name) - 5, ".17.2");
}

/* ---- programs ---- */

static const char *nth(const struct wire_out *list, uint32_t n)
{
	const char *at = list->bytes ? (const char *)list->bytes : "";
	const char *end = at + list->len_bytes;

	for (; n > 0 && at < end; n--) {
		at += strlen(at) + 1;
	}
	return at < end ? at : "";
}

static bool has(const struct wire_out *list, const char *arg)
{
	for (uint32_t i = 0; *nth(list, i) != '\0'; i++) {
		if (strcmp(nth(list, i), arg) == 0) {
			return true;
		}
	}
	return false;
}

/* Makes the program for the last of that many nodes. */
static void fill(struct slurm_program *program, struct sched_spec *spec, const char *const *args,
	uint32_t nodes, bool joins)
{
	static const char *const addresses[] = {"10.0.0.1", "10.0.0.2", "10.0.0.3"};
	static const char *const env[] = {"HOME=/home/u", NULL};
	const struct vars_place place = {.node = nodes - 1,
		.nodes = nodes,
		.addresses = addresses,
		.gpus = 4,
		.job = 7};
	const struct slurm_start start = {.generation = 9,
		.joins = joins,
		.number = joins ? 12 : nodes - 1,
		.token = "00000000000000000000000000000001",
		.place = &place};
	const struct slurm_launch launch = {.spec = spec,
		.args = args,
		.env = env,
		.pawl = "/bin/pawl",
		.cwd = "/srv",
		.log_directory = "/logs",
		.task = "task-7",
		.cluster = "c",
		.supervisor = "https://a:1/job/x",
		.space = "u",
		.attempt = 3,
		.retries = 2,
		.grace_ns = 10000000000};
	struct pawl_err err;

	*program = (struct slurm_program){0};
	assert_int_equal(slurm_program_fill(program, &launch, &start, &err), 0);
}

static void drop(struct slurm_program *program)
{
	free((char *)(uintptr_t)program->log);
	free((char *)(uintptr_t)program->membership_path);
	wire_out_deinit(&program->setup);
	wire_out_deinit(&program->run);
	wire_out_deinit(&program->scale);
	wire_out_deinit(&program->setup_env);
	wire_out_deinit(&program->env);
}

/* A script is one argument, whatever it contains. */
static void test_program_of_a_job_with_nodes(void **state)
{
	struct sched_spec spec = {.run = "echo '$(id)'; \"x\"", .setup = "pip install ."};
	struct slurm_program program;

	fill(&program, &spec, NULL, 2, false);
	assert_string_equal(program.log, "/logs/log.node1");
	assert_string_equal(nth(&program.run, 1), "-c");
	assert_string_equal(strchr(nth(&program.run, 2), '\n') + 1, spec.run);
	assert_string_equal(nth(&program.run, 3), "");
	assert_string_equal(strchr(nth(&program.setup, 2), '\n') + 1, spec.setup);
	assert_true(has(&program.env, "SKYPILOT_NODE_RANK=1"));
	assert_true(has(&program.env, "SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2"));
	assert_true(has(&program.env, "HOME=/home/u"));
	assert_true(has(&program.env, "PAWL_JOB_ID=task-7"));
	assert_true(has(&program.env, "PAWL_ATTEMPT=3"));
	assert_true(has(&program.setup_env, "SKYPILOT_SETUP_NODE_RANK=1"));
	assert_true(has(&program.env, "ADAPTDL_SUPERVISOR_URL=https://a:1/job/x"));
	assert_true(has(&program.env, "ADAPTDL_JOB_ID=u/7"));
	assert_true(has(&program.env, "ADAPTDL_REPLICA_RANK=1"));
	/* One per node, whatever its slots. */
	assert_true(has(&program.env, "ADAPTDL_NUM_REPLICAS=2"));
	assert_true(has(&program.env, "ADAPTDL_NUM_NODES=2"));
	assert_true(has(&program.env, "ADAPTDL_NUM_RESTARTS=3"));
	assert_true(has(&program.env, "ADAPTDL_MASTER_PORT=20001"));
	drop(&program);
}

static void test_program_of_a_job_with_replicas(void **state)
{
	static const char *const args[] = {"python", "train.py", NULL};
	struct sched_spec spec = {.run = "true", .elastic = true};
	struct slurm_program program;

	fill(&program, &spec, args, 2, false);
	assert_string_equal(nth(&program.run, 0), "/bin/pawl");
	assert_string_equal(nth(&program.run, 3), "4");
	assert_string_equal(nth(&program.scale, 0), ""); /* the number of ranks is fixed */
	assert_string_equal(program.membership_path,
		"/logs/door.9"); /* no node joins, but the engine reads it */
	assert_true(has(&program.env, "PAWL_ELASTIC_DOOR=/logs/door.9"));
	assert_true(has(&program.run, "--nnodes"));
	assert_true(has(&program.run, "10.0.0.1:20001"));
	assert_true(has(&program.run, "train.py"));
	assert_true(has(&program.env, "PAWL_TOKEN=00000000000000000000000000000001"));
	assert_true(has(&program.env, "ADAPTDL_JOB_ID=u/7"));
	assert_false(has(&program.env, "ADAPTDL_REPLICA_RANK=1")); /* pawl run sets it */
	drop(&program);
}

/* On one node, the job can be rescaled. */
static void test_program_of_a_job_with_replicas_on_one_node(void **state)
{
	static const char *const args[] = {"python", "train.py", NULL};
	struct sched_spec spec = {.run = "true",
		.elastic = true,
		.size = {.least = 2, .most = 100}};
	struct slurm_program program;

	fill(&program, &spec, args, 1, false);
	assert_string_equal(nth(&program.run, 2), "--elastic");
	assert_string_equal(nth(&program.run, 3), "1:64");
	assert_string_equal(nth(&program.run, 5), "/logs/door.9");
	assert_string_equal(nth(&program.run, 7), "0");
	assert_string_equal(nth(&program.run, 9), "4");
	assert_false(has(&program.run, "--nnodes") || has(&program.run, "--join"));
	assert_false(has(&program.env, "PAWL_ELASTIC_DOOR=/logs/door.9")); /* pawl run sets it */
	assert_string_equal(program.membership_path, "/logs/door.9");
	assert_string_equal(program.log, "/logs/log");
	assert_true(has(&program.env, "PAWL_ELASTIC_MIN=2"));
	assert_string_equal(nth(&program.scale, 0), "/bin/pawl");
	assert_string_equal(nth(&program.scale, 1), "scale");
	assert_string_equal(nth(&program.scale, 4), "task-7");
	assert_string_equal(nth(&program.scale, 5), "");
	drop(&program);
}

static void test_program_of_a_node_that_joins(void **state)
{
	struct sched_spec spec = {.run = "true",
		.elastic = true,
		.size = {.least = 2, .most = 100}};
	struct slurm_program program;

	fill(&program, &spec, NULL, 3, true);
	assert_true(has(&program.run, "/logs/door.9") && has(&program.run, "--join"));
	assert_string_equal(nth(&program.run, 7), "12");
	assert_false(has(&program.run, "--nnodes"));
	assert_string_equal(program.log, "/logs/log.node12");
	assert_true(has(&program.env, "SKYPILOT_NODE_RANK=2"));
	drop(&program);
}

/* ---- slots ---- */

static void read_devices(const struct slurm_parts *parts, uint64_t job, char text[64])
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/devices.%llu.0", parts->runtime, (unsigned long long)job);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(text, 64, file));
	fclose(file);
}

/* Ranks keep their devices; a new rank gets a free one. */
static void test_slots_are_devices(void **state)
{
	static struct slurm_part one = {.have.job = 1};
	static struct slurm_part two = {.have.job = 2};
	struct slurm_part *all[] = {&one, &two};
	char folder[] = "/tmp/pawl-slots-XXXXXX";
	struct slurm_parts parts = {.all = all, .n = 2, .slots = 4, .runtime = folder};
	struct wire_out set = {0};
	struct pawl_err err;
	char home[] = "HOME=/";
	char devices[] = "CUDA_VISIBLE_DEVICES=4,5,6,7";
	char *base[] = {home, devices, NULL};
	char text[64];
	char **env;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7", 1), 0);
	slurm_slots_take(&parts, &one, 1);
	slurm_slots_take(&parts, &two, 1);
	slurm_slots_take(&parts, &one, 3);
	assert_int_equal(slurm_slots_write(&parts, &one, 3, &err), 0);
	read_devices(&parts, 1, text);
	assert_string_equal(text, "4,6,7");
	/* Two of the three slots stay. */
	assert_int_equal(slurm_slots_write(&parts, &one, 2, &err), 0);
	read_devices(&parts, 1, text);
	assert_string_equal(text, "4,6");
	slurm_slots_take(&parts, &two, 2);
	assert_int_equal(two.slots_n, 1); /* none is free yet */
	one.slots_n = 2;
	slurm_slots_take(&parts, &two, 2);
	slurm_slots_put(&parts, &two, &set);
	env = slurm_slots_env(&set, base);
	assert_string_equal(env[0], "HOME=/");
	assert_string_equal(env[1], "CUDA_VISIBLE_DEVICES=5,7");
	assert_non_null(strstr(env[2], "PAWL_RUN_DEVICES=/tmp/pawl-slots-"));
	assert_null(env[3]);
	free(env);
	slurm_slots_forget(&parts, &one);
	assert_int_equal(rmdir(folder), 0);
	wire_out_reset(&set);
	unsetenv("CUDA_VISIBLE_DEVICES");
	slurm_slots_put(&parts, &two, &set);
	assert_int_equal(set.len_bytes, 0);
	wire_out_deinit(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_squeue),
		cmocka_unit_test(test_squeue_as_it_should_not_be),
		cmocka_unit_test(test_long_fields_are_refused_or_cut),
		cmocka_unit_test(test_sinfo),
		cmocka_unit_test(test_sinfo_of_sizes),
		cmocka_unit_test(test_sbatch_and_scontrol),
		cmocka_unit_test(test_records_come_back),
		cmocka_unit_test(test_wants_come_back),
		cmocka_unit_test(test_haves_come_back),
		cmocka_unit_test(test_damaged_ones_do_not),
		cmocka_unit_test(test_pilots_have_names_of_their_own),
		cmocka_unit_test(test_program_of_a_job_with_nodes),
		cmocka_unit_test(test_program_of_a_job_with_replicas),
		cmocka_unit_test(test_program_of_a_job_with_replicas_on_one_node),
		cmocka_unit_test(test_program_of_a_node_that_joins),
		cmocka_unit_test(test_slots_are_devices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
