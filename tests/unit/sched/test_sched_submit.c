/* Whole job files: the guide's, values given beside a file, the environment of a job, memory that
 * runs out, and damaged files. */
#include "test_sched_jobfile.h"

#include "base/fault.h"
#include "base/rng.h"
#include "sched/jobfile/tree.h"
#include "sched/jobfile/vars.h"
#include "seed.h"

#include <errno.h>

#define MUTATIONS 20000 /* damaged files */

/* ---- the guide's file ---- */

/* The job of SkyPilot's training guide, key for key and flag for flag. */
#define GUIDE_HEAD                                                                                 \
	"name: bert-qa\n"                                                                          \
	"\n"                                                                                       \
	"resources:\n"                                                                             \
	"  accelerators: V100:1\n"                                                                 \
	"  use_spot: true  # it is cheaper\n"                                                      \
	"  disk_tier: best # the fastest\n"                                                        \
	"\n"                                                                                       \
	"file_mounts:\n"                                                                           \
	"  /checkpoint:\n"
#define GUIDE_BUCKET                                                                               \
	"    name: # of a bucket\n"                                                                \
	"    mode: MOUNT_CACHED\n"
#define GUIDE_TAIL                                                                                 \
	"\n"                                                                                       \
	"envs:\n"                                                                                  \
	"  # of Weights & Biases\n"                                                                \
	"  WANDB_API_KEY:\n"                                                                       \
	"\n"                                                                                       \
	"workdir: ~/transformers\n"                                                                \
	"\n"                                                                                       \
	"setup: |\n"                                                                               \
	"  pip install -e .\n"                                                                     \
	"  pip install wandb\n"                                                                    \
	"\n"                                                                                       \
	"run: |\n"                                                                                 \
	"  cd examples/pytorch/question-answering/\n"                                              \
	"  python run_qa.py \\\n"                                                                  \
	"    --model_name_or_path bert-base-uncased --dataset_name squad \\\n"                     \
	"    --do_train --do_eval --per_device_train_batch_size 12 \\\n"                           \
	"    --learning_rate 3e-5 --num_train_epochs 50 --max_seq_length 384 \\\n"                 \
	"    --doc_stride 128 --report_to wandb --output_dir /checkpoint/bert_qa/ \\\n"            \
	"    --run_name $SKYPILOT_TASK_ID --save_total_limit 10 --save_steps 1000\n"

static const struct sched_var wandb = {"WANDB_API_KEY", "key", false};
static const struct jobfile_given with_wandb = {.vars = &wandb, .vars_n = 1};

/* Only the bucket's name is filled in. */
static void the_guides_file_runs_as_it_is(void **state)
{
	assert_int_equal(decode(GUIDE_HEAD GUIDE_BUCKET GUIDE_TAIL), PAWL_EINVAL);
	assert_int_equal(remarks.n, 2);
	refused(0, 9, 3, "file_mounts: /checkpoint names no bucket: give name: BUCKET");
	refused(1, 15, 3, "WANDB_API_KEY has no value: give --env WANDB_API_KEY=VALUE");
	assert_int_equal(decode_given(GUIDE_HEAD "    name: my-bucket\n"
						 "    mode: MOUNT_CACHED\n" GUIDE_TAIL,
				 &with_wandb),
		0);
	assert_int_equal(spec.mounts_n, 1);
	assert_string_equal(spec.mounts[0].at, "/checkpoint");
	assert_string_equal(spec.mounts[0].from, "s3://my-bucket");
	assert_int_equal(spec.mounts[0].kind, SCHED_MOUNT_MIRROR);
}

static void the_guides_file_with_a_directory(void **state)
{
	assert_int_equal(
		decode_given(GUIDE_HEAD "    /shared/checkpoint\n" GUIDE_TAIL, &with_wandb), 0);
	assert_string_equal(spec.name, "bert-qa");
	assert_true(!spec.elastic && spec.size.least == 1 && spec.size.most == 1);
	assert_int_equal(spec.choices_n, 1);
	assert_string_equal(spec.choices[0].accelerator, "V100");
	assert_int_equal(spec.choices[0].accelerators, 1);
	assert_true(spec.choices[0].disk_best && spec.choices[0].spot);
	assert_true(spec.spot.least == 0 && spec.spot.most == 1);
	assert_string_equal(spec.workdir, "~/transformers");
	assert_string_equal(spec.mounts[0].at, "/checkpoint");
	assert_string_equal(spec.mounts[0].from, "/shared/checkpoint");
	assert_string_equal(spec.vars[0].value, "key");
	assert_string_equal(spec.setup, "pip install -e .\npip install wandb\n");
	assert_non_null(strstr(spec.run, "--run_name $SKYPILOT_TASK_ID --save_total"));
}

/* ---- beside the file ---- */

static void what_is_given_goes_before_the_file(void **state)
{
	static const struct sched_var vars[] = {{"A", "first", false}, {"A", "last", false},
		{"T", "t", false}, {"E", "now secret", true}, {"NEW", "", false}};
	const struct jobfile_given given = {"mine", vars, COUNT(vars)};

	assert_int_equal(decode_given("name: theirs\nrun: x\nenvs: {A: , E: 5, K: k}\n"
				      "secrets: {T: }\nworkdir: /$A\n",
				 &given),
		0);
	assert_string_equal(spec.name, "mine");
	assert_string_equal(spec.workdir, "/last");
	assert_int_equal(spec.vars_n, 5);
	assert_string_equal(spec.vars[0].value, "last");
	assert_true(spec.vars[1].secret);
	assert_string_equal(spec.vars[1].value, "now secret");
	assert_string_equal(spec.vars[2].value, "k");
	assert_true(spec.vars[3].secret); /* stays a secret */
	assert_string_equal(spec.vars[3].value, "t");
	assert_string_equal(spec.vars[4].name, "NEW");
	assert_string_equal(spec.vars[4].value, "");
}

static void names(void **state)
{
	char name[SPEC_NAME_MAX + 1];

	assert_true(jobfile_is_name("a") && jobfile_is_name("0-b_c.D"));
	assert_false(jobfile_is_name("") || jobfile_is_name(".a") || jobfile_is_name("a/b"));
	assert_false(jobfile_is_name("a b") || jobfile_is_name("\xc3\xa4"));
	memset(name, 'a', SPEC_NAME_MAX);
	name[SPEC_NAME_MAX] = '\0';
	assert_false(jobfile_is_name(name));
	assert_true(jobfile_is_name(name + 1));
	assert_true(jobfile_is_var("A_1") && jobfile_is_var("_"));
	assert_false(jobfile_is_var("") || jobfile_is_var("1") || jobfile_is_var("A=B"));
	assert_false(jobfile_is_var("SKYPILOT_TASK_ID"));
}

/* ---- the environment of a job ---- */

static const char *find(const struct wire_out *set, const char *name)
{
	size_t len = strlen(name);
	const char *found = NULL;

	for (size_t off = 0; off < set->len_bytes;) {
		const char *var = (const char *)set->bytes + off;

		if (strncmp(var, name, len) == 0 && var[len] == '=') {
			assert_null(found);
			found = var + len + 1;
		}
		off += strlen(var) + 1;
	}
	return found;
}

static void a_job_finds_what_skypilot_sets(void **state)
{
	static const char *const addresses[] = {"10.0.0.1", "10.0.0.2", "fd00::3"};
	static const char *const both[][2] = {{"A", "b"}, {"T", "hush"},
		{"SKYPILOT_NUM_NODES", "3"}, {"SKYPILOT_TASK_ID", "pawl-1_x_7"},
		{"SKYPILOT_INTERNAL_JOB_ID", "7"},
		{"SKYPILOT_CLUSTER_INFO",
			"{\"cluster_name\": \"my \\u0022lab\\u005c\", \"cloud\": \"local\", "
			"\"region\": null, \"zone\": null}"}};
	static const char *const each[][3] = {{"NODE_RANK", "1"},
		{"NODE_IPS", "10.0.0.1\n10.0.0.2\nfd00::3"}, {"NUM_GPUS_PER_NODE", "4"}};
	const struct vars_place place = {.node = 1,
		.nodes = 3,
		.addresses = addresses,
		.gpus = 4,
		.job = 7,
		.task = "pawl-1_x_7",
		.cluster = "my \"lab\\",
		.engine = "local"};
	char name[64];

	accept("run: x\nenvs: {A: b}\nsecrets: {T: hush}\n");
	for (enum vars_phase phase = VARS_SETUP; phase <= VARS_RUN; phase++) {
		struct wire_out set = {NULL};

		vars_put(&set, &spec, &place, phase);
		assert_false(set.failed);
		for (size_t i = 0; i < COUNT(both); i++) {
			assert_string_equal(find(&set, both[i][0]), both[i][1]);
		}
		for (size_t i = 0; i < COUNT(each); i++) {
			snprintf(name, sizeof(name), "SKYPILOT_SETUP_%s", each[i][0]);
			assert_int_equal(find(&set, name) != NULL, phase == VARS_SETUP);
			assert_false(jobfile_is_var(name)); /* nobody can set it */
			if (phase == VARS_RUN) {
				snprintf(name, sizeof(name), "SKYPILOT_%s", each[i][0]);
				assert_false(jobfile_is_var(name));
			}
			assert_string_equal(find(&set, name), each[i][1]);
		}
		wire_out_deinit(&set);
	}
}

/* Returns the value of WANDB_RUN_ID in a job with these envs; NULL: there is none. */
static const char *run_id(const char *envs)
{
	static const char *const addresses[] = {"10.0.0.1"};
	static char id[32];
	const struct vars_place place = {.nodes = 1,
		.addresses = addresses,
		.task = "pawl-1_x_7",
		.cluster = "pawl",
		.engine = "local"};
	struct wire_out set = {NULL};
	char text[128];
	const char *found;

	snprintf(text, sizeof(text), "run: x\nenvs: %s\n", envs);
	accept(text);
	vars_put(&set, &spec, &place, VARS_RUN);
	found = find(&set, "WANDB_RUN_ID");
	snprintf(id, sizeof(id), "%s", found ? found : "");
	wire_out_deinit(&set);
	return found ? id : NULL;
}

static void a_job_that_resumes_its_run_of_wandb_has_its_id(void **state)
{
	assert_null(run_id("{WANDB_API_KEY: k}"));
	assert_string_equal(run_id("{WANDB_RESUME: allow}"), "pawl-1_x_7");
	assert_string_equal(run_id("{WANDB_RESUME: allow, WANDB_RUN_ID: mine}"), "mine");
}

/* ---- memory that runs out ---- */

#define ANY                                                                                        \
	"name: x\nrun: x\nworkdir: /$A\nenvs: {A: &a b, B: *a}\nsecrets: {T: t}\n"                 \
	"resources: {accelerators: [A100, H100], any_of: [{cpus: 1}, {memory: 2}]}\n"              \
	"file_mounts: {/a: /b, /c: nfs://d/e}\n"

static void each_allocation_can_fail(void **state)
{
	static const struct sched_var vars[] = {{"N", "new", false}};
	const struct jobfile_given given = {"mine", vars, COUNT(vars)};
	uint64_t points;

	fault_arm("sched.", UINT64_MAX, ENOMEM, false);
	assert_int_equal(decode_given(ANY, &given), 0);
	points = fault_count();
	assert_true(points > 50); /* points of the parser, and blocks */
	for (int forever = 0; forever < 2; forever++) {
		for (uint64_t n = 1; n <= points; n++) {
			fault_arm("sched.", n, ENOMEM, forever);
			assert_int_equal(decode_given(ANY, &given), PAWL_ENOMEM);
			assert_non_null(strstr(err.msg, "no memory"));
			assert_null(spec.arena.blocks);
		}
	}
	fault_disarm();
}

/* One block holds a small file: here each piece can fail, wherever a block would have ended. */
static void each_piece_can_fail(void **state)
{
	static char text[64 << 10];
	struct jobfile_given given = {NULL};
	int failed = 0;
	int rv;

	for (size_t fill = 0; fill < 16500; fill += 16) {
		memcpy(text, "qqq: ", 5);
		memset(text + 5, 'q', fill);
		snprintf(text + 5 + fill, sizeof(text) - 5 - fill, "\n%s", ANY);
		fault_arm("sched.pool", 2, ENOMEM, true);
		rv = decode_given(text, &given);
		assert_true(rv == PAWL_ENOMEM || rv == PAWL_EINVAL); /* qqq is no key */
		failed += rv == PAWL_ENOMEM;
	}
	fault_disarm();
	assert_true(failed > 300 && failed < 1000);
}

/* ---- damaged files ---- */

/* Checks that a spec is valid. */
static void check_spec(void)
{
	assert_true(spec.run && spec.run[0] != '\0' && spec.queue);
	assert_true(spec.size.least >= 1 && spec.size.least <= spec.size.most);
	assert_true(spec.size.most <= SPEC_NODES_MAX && spec.spot.most <= spec.size.most);
	assert_true(spec.choices_n >= 1 && spec.choices_n <= SPEC_CHOICES_MAX);
	assert_true(!spec.name || jobfile_is_name(spec.name));
	for (uint32_t i = 0; i < spec.vars_n; i++) {
		assert_true(jobfile_is_var(spec.vars[i].name) && spec.vars[i].value);
	}
	for (uint32_t i = 0; i < spec.mounts_n; i++) {
		assert_true(spec.mounts[i].at[0] == '/' || spec.mounts[i].at[0] == '~');
		assert_true(spec.mounts[i].from[0] != '\0');
	}
}

static size_t mutate(char *text, size_t len, struct rng *rng)
{
	static const char *const words[] = {": ", "\n", "- ", "[", "]", "{", "}", "&a ", "*a",
		"!!str ", "|\n", "'", "\"", "\\0", "..", "99999999999999999999", "yes", "~", "$A",
		"${", "://", "\t", "#", "---\n", "<<: *a\n", "\xc3\xa4"};
	const char *word = words[rng_below(rng, COUNT(words))];
	size_t at = rng_below(rng, len + 1);
	size_t cut = rng_below(rng, len - at + 1);

	if (rng_below(rng, 4) == 0) { /* Cuts a piece out. */
		cut = cut < 20 ? cut : 20;
		memmove(text + at, text + at + cut, len - at - cut);
		return len - cut;
	}
	memmove(text + at + strlen(word), text + at, len - at);
	memcpy(text + at, word, strlen(word));
	return len + strlen(word);
}

static void damaged_files_are_refused_or_mean_something(void **state)
{
	const struct jobfile_given given = {NULL};
	struct rng rng = {test_seed()};
	unsigned accepted = 0;

	for (int i = 0; i < MUTATIONS; i++) {
		char text[1024] = ANY "replicas: 2..8\nspot: 0..1\ntime_limit: 1d\nretries: 3\n";
		size_t len = strlen(text);
		uint64_t n = 1 + rng_below(&rng, 6);
		char *exact;
		int rv;

		for (uint64_t m = 0; m < n; m++) {
			len = mutate(text, len, &rng);
		}
		exact = malloc(len + 1); /* exact, so that ASan sees a byte beyond */
		assert_non_null(exact);
		memcpy(exact, text, len);
		sched_spec_deinit(&spec);
		remarks = (struct remarks){0};
		rv = jobfile_decode(&spec, exact, len, &given, &remarks, &notes, &err);
		assert_true(rv == 0 || rv == PAWL_EINVAL);
		assert_int_equal(rv == 0, remarks.n == 0);
		if (rv == 0) {
			check_spec();
			accepted++;
		}
		free(exact);
	}
	printf("%u of %u accepted\n", accepted, MUTATIONS);
	assert_true(accepted > MUTATIONS / 100 && accepted < MUTATIONS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_guides_file_runs_as_it_is),
		cmocka_unit_test(the_guides_file_with_a_directory),
		cmocka_unit_test(what_is_given_goes_before_the_file),
		cmocka_unit_test(names),
		cmocka_unit_test(a_job_finds_what_skypilot_sets),
		cmocka_unit_test(a_job_that_resumes_its_run_of_wandb_has_its_id),
		cmocka_unit_test(each_allocation_can_fail),
		cmocka_unit_test(each_piece_can_fail),
		cmocka_unit_test(damaged_files_are_refused_or_mean_something),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
