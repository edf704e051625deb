/* Job files that were written for SkyPilot: keys about renting are accepted and noted once, keys
 * that the job would miss at run time are refused. Each key of its task schema alone, in pairs, and
 * with values of every kind; then files as people write them. */
#include "test_sched_jobfile.h"

#include <ctype.h>

enum fate {
	OURS,    /* read */
	IGNORED, /* accepted, whatever its value, and noted once */
	NOT_YET, /* refused, whatever its value */
};

struct key {
	const char *name;
	enum fate fate;
	const char *good;  /* a valid value; any value if all are valid */
	const char *wrong; /* an invalid value; NULL: none */
};

static const struct key top[] = {
	{"name", OURS, "a-b", "[a]"},
	{"workdir", OURS, "~/work", "7"},
	{"num_nodes", OURS, "2", "two"},
	{"envs", OURS, "{A: 5, B: b}", "[A]"},
	{"secrets", OURS, "{T: t}", "a"},
	{"file_mounts", OURS, "{/x: ./x, ~/y: ~/y}", "[x]"},
	{"setup", OURS, "pip list", "[a]"},
	{"config", IGNORED, "{kubernetes: {pod_config: {spec: {}}}}", NULL},
	{"experimental", IGNORED, "{config_overrides: {}}", NULL},
	{"service", IGNORED, "{readiness_probe: /health, replicas: 2}", NULL},
	{"pool", IGNORED, "{workers: 3}", NULL},
	{"inputs", IGNORED, "{s3://a: 3}", NULL},
	{"outputs", IGNORED, "{s3://a: 3}", NULL},
	{"api_server_access", IGNORED, "true", NULL},
	{"file_mounts_mapping", IGNORED, "{a: b}", NULL},
	{"volumes", NOT_YET, "{/data: disk}", NULL},
	{"volume_mounts", NOT_YET, "[{path: /data}]", NULL},
	{"managed_secrets", NOT_YET, "[TOKEN]", NULL},
	{"event_callback", NOT_YET, "echo done", NULL},
	{"execution", NOT_YET, "parallel", NULL},
	{"primary_tasks", NOT_YET, "[a]", NULL},
	{"termination_delay", NOT_YET, "30s", NULL},
};

static const struct key resources[] = {
	{"accelerators", OURS, "A100:8", "8"},
	{"cpus", OURS, "8+", "many"},
	{"memory", OURS, "32+", "lots"},
	{"use_spot", OURS, "true", "maybe"},
	{"disk_size", OURS, "1024GB", "big"},
	{"disk_tier", OURS, "best", "fast"},
	{"priority", OURS, "-7", "high"},
	{"any_of", OURS, "[{cpus: 2}]", "a"},
	{"job_recovery", OURS, "{max_restarts_on_errors: 3}", "{max_restarts_on_errors: x}"},
	{"infra", IGNORED, "gcp/us-central1", NULL},
	{"cloud", IGNORED, "aws", NULL},
	{"region", IGNORED, "us-east-1", NULL},
	{"zone", IGNORED, "us-east-1a", NULL},
	{"instance_type", IGNORED, "p4d.24xlarge", NULL},
	{"max_hourly_cost", IGNORED, "3.5", NULL},
	{"image_id", IGNORED, "docker:ubuntu:22.04", NULL},
	{"accelerator_args", IGNORED, "{tpu_vm: true}", NULL},
	{"ports", IGNORED, "[8888, 9000-9100]", NULL},
	{"labels", IGNORED, "{team: a}", NULL},
	{"autostop", IGNORED, "{idle_minutes: 10, down: true}", NULL},
	{"network_tier", IGNORED, "best", NULL},
	{"local_disk", IGNORED, "nvme:1000", NULL},
	{"ephemeral_storage", IGNORED, "100", NULL},
	{"priority_class", IGNORED, "high", NULL},
	{"volumes", NOT_YET, "[{path: /data}]", NULL},
};

static const char *const values[] = {"~", "true", "no", "0", "-3", "2.5", "1:30", "word", "'8+'",
	"''", "[]", "[a, {b: c}]", "{}", "{a: [b]}"};

/* Writes a file of these keys, in their sections. */
static const char *write_file(const struct key *const *keys, const char *const *given, uint32_t n)
{
	static char text[2048];
	size_t len = (size_t)snprintf(text, sizeof(text), "run: x\n");
	bool begun = false;

	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < n; i++) {
			bool inner = keys[i] >= resources && keys[i] < resources + COUNT(resources);

			if (inner == (pass == 1)) {
				len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%s%s%s: %s\n", inner && !begun ? "resources:\n" : "",
					inner ? "  " : "", keys[i]->name, given[i]);
				begun = begun || inner;
			}
		}
	}
	return text;
}

/* Counts the remarks that begin with the name, as "cloud: ". */
static uint32_t count(const struct remarks *all, const char *name)
{
	uint32_t n = 0;
	size_t len = strlen(name);

	for (uint32_t i = 0; i < all->n; i++) {
		n += strncmp(all->at[i].text, name, len) == 0 && all->at[i].text[len] == ':';
	}
	return n;
}

static bool is_null(const char *value)
{
	return strcmp(value, "~") == 0;
}

/* Checks that decoding the file gives what its keys demand: values, errors and notes; also
 * strictly. */
static void check(const struct key *const *keys, const char *const *given, uint32_t n)
{
	const char *text = write_file(keys, given, n);
	int rv = decode(text);
	uint32_t both;

	for (uint32_t i = 0; i < n; i++) {
		bool there = !is_null(given[i]);
		bool good = given[i] == keys[i]->good;

		if (keys[i]->fate == IGNORED &&
			(count(&remarks, keys[i]->name) != 0 ||
				count(&notes, keys[i]->name) != there)) {
			fail_msg("%s is not noted once, and taken, in: %s", keys[i]->name, text);
		}
		if (keys[i]->fate == NOT_YET && count(&remarks, keys[i]->name) != there) {
			fail_msg("%s is not refused once in: %s", keys[i]->name, text);
		}
		if (keys[i]->fate == OURS && good && count(&remarks, keys[i]->name) != 0) {
			fail_msg("%s is refused in: %s", keys[i]->name, text);
		}
	}
	assert_int_equal(rv == 0, remarks.n == 0);
	both = remarks.n + notes.n;
	assert_int_equal(decode_strict(text) == 0, both == 0);
	if (remarks.n != both || notes.n != 0) {
		fail_msg("strictly %u are wrong, and %u should be, in: %s", remarks.n, both, text);
	}
}

static void each_key_with_each_kind_of_value(void **state)
{
	uint32_t files = 0;

	for (size_t k = 0; k < COUNT(top) + COUNT(resources); k++) {
		const struct key *key = k < COUNT(top) ? &top[k] : &resources[k - COUNT(top)];

		check(&key, &key->good, 1);
		/* The strict decode came last. */
		assert_int_equal(remarks.n > 0, key->fate != OURS);
		for (size_t v = 0; v < COUNT(values); v++) {
			check(&key, &values[v], 1);
			files++;
		}
		if (key->wrong) {
			assert_int_equal(decode(write_file(&key, &key->wrong, 1)), PAWL_EINVAL);
			assert_int_equal(remarks.n, 1);
		}
	}
	printf("%u files\n", files);
}

/* No key hides another, or is reported twice because of it. */
static void each_pair_of_keys(void **state)
{
	const size_t all = COUNT(top) + COUNT(resources);
	uint32_t files = 0;

	for (size_t a = 0; a < all; a++) {
		for (size_t b = 0; b < all; b++) {
			const struct key *keys[] = {a < COUNT(top) ? &top[a]
								   : &resources[a - COUNT(top)],
				b < COUNT(top) ? &top[b] : &resources[b - COUNT(top)]};
			const char *const given[] = {keys[0]->good, keys[1]->good};
			const char *const wrong[] = {keys[0]->good, keys[1]->wrong};

			if (a == b || strcmp(keys[0]->name, keys[1]->name) == 0) {
				continue;
			}
			check(keys, given, 2);
			if (keys[1]->wrong) {
				check(keys, wrong, 2);
				assert_true(remarks.n >= 1);
			}
			files += 1 + (keys[1]->wrong != NULL);
		}
	}
	printf("%u files\n", files);
}

enum slip { LEFT_OUT, TWICE, OTHER_CASE, SLIPS };

/* Writes the name with a typing error at letter at. Returns false if that is the name itself, as _
 * has no case. */
static bool misspell(const char *name, size_t at, enum slip slip, char word[64])
{
	snprintf(word, 64, "%.*s%.*s%s", (int)at, name, slip == TWICE ? 1 : 0, name + at,
		name + at + (slip == LEFT_OUT));
	if (slip == OTHER_CASE) {
		word[at] = (char)toupper((unsigned char)word[at]);
	}
	return strcmp(word, name) != 0;
}

static uint32_t check_slips(const char *name, bool inner)
{
	char word[64];
	char text[128];
	char what[160];
	uint32_t files = 0;

	for (size_t i = SLIPS; i < SLIPS * strlen(name) && strlen(name) > 4; i++) {
		if (misspell(name, i / SLIPS, (enum slip)(i % SLIPS), word)) {
			snprintf(text, sizeof(text),
				inner ? "run: x\nresources: {%s: a}\n" : "run: x\n%s: a\n", word);
			snprintf(what, sizeof(what), "unknown key %s: did you mean ", word);
			refuse(text, 2, inner ? 13 : 1, what);
			assert_non_null(strchr(remarks.at[0].text, '?'));
			files++;
		}
	}
	return files;
}

/* A letter is left out, doubled, or in the wrong case: the report suggests the right key, and no
 * value is read. */
static void near_spellings_get_a_hint(void **state)
{
	uint32_t files = 0;

	for (size_t k = 0; k < COUNT(top); k++) {
		files += check_slips(top[k].name, false);
	}
	for (size_t k = 0; k < COUNT(resources); k++) {
		files += check_slips(resources[k].name, true);
	}
	printf("%u files\n", files);
}

/* ---- files as people write them ---- */

static void a_key_is_named_once_however_often_it_stands(void **state)
{
	accept("resources:\n"
	       "  infra: aws\n"
	       "  any_of:\n"
	       "  - {infra: gcp/us-central1, accelerators: H100:8, image_id: docker:a}\n"
	       "  - {infra: k8s, accelerators: H100:8}\n"
	       "  - {accelerators: A100:8, disk_tier: high, image_id: docker:b}\n"
	       "  - {accelerators: L4:8, disk_tier: low}\n"
	       "run: x\n");
	assert_int_equal(notes.n, 3);
	expect_note(0, 2, 3, "infra: without effect here: Pawl finds and rents no machines");
	expect_note(1, 4, 52,
		"image_id: without effect here: Pawl starts no machines or containers");
	expect_note(2, 6, 39, "disk_tier: without effect here: a class of cloud disks");
	assert_int_equal(spec.choices_n, 3); /* choices that differ in clouds alone are one */
	assert_false(spec.choices[1].disk_best);
	assert_int_equal(decode_strict("run: x\nresources: {cloud: aws, zone: a}\n"), PAWL_EINVAL);
	refused(0, 2, 13, "cloud: without effect here");
	refused(1, 2, 25, "zone: without effect here");
}

static void an_order_of_choices_is_any_of_them(void **state)
{
	accept_line("resources:\n"
		    "  ordered:\n"
		    "  - {cloud: aws, accelerators: A100:8}\n"
		    "  - {cloud: gcp, accelerators: {H100: 8}}");
	assert_int_equal(spec.choices_n, 2);
	assert_string_equal(spec.choices[1].accelerator, "H100");
	assert_int_equal(notes.n, 2);
	expect_note(0, 4, 3, "ordered: treated as any_of");
}

static void recovery_is_retries(void **state)
{
	static const char *const ignored[] = {"FAILOVER", "none", "{strategy: EAGER_NEXT_REGION}",
		"{recover_on_exit_codes: [33, 34]}"};
	char line[128];

	accept_line("resources: {job_recovery: {max_restarts_on_errors: 3, strategy: ~}}");
	assert_int_equal(spec.retries, 3);
	assert_int_equal(notes.n, 0);
	accept_line("retries: 3\nresources: {job_recovery: {max_restarts_on_errors: 3}}");
	for (size_t i = 0; i < COUNT(ignored); i++) {
		snprintf(line, sizeof(line), "resources: {job_recovery: %s}", ignored[i]);
		accept_line(line);
		assert_int_equal(spec.retries, 0);
		assert_int_equal(notes.n, 1);
	}
	accept_line("resources: {spot_recovery: none, priority: 7, gpus: L4:2}");
	assert_int_equal(spec.priority, 7);
	assert_string_equal(spec.choices[0].accelerator, "L4");
	refuse("run: x\nresources: {job_recovery: {restarts: 3}}\n", 2, 28, "unknown key restarts");
}

/* YAML's booleans become Python's words for them, as SkyPilot does it. */
static void booleans_of_envs_are_those_of_python(void **state)
{
	static const char *const words[][2] = {{"true", "True"}, {"True", "True"}, {"yes", "True"},
		{"on", "True"}, {"false", "False"}, {"No", "False"}, {"OFF", "False"}};
	char text[128];
	char what[64];

	for (size_t i = 0; i < COUNT(words); i++) {
		snprintf(text, sizeof(text), "run: x\nenvs: {A: %s, B: '%s'}\n", words[i][0],
			words[i][0]);
		accept(text);
		assert_string_equal(spec.vars[0].value, words[i][1]);
		assert_string_equal(spec.vars[1].value, words[i][0]);
		assert_int_equal(notes.n, 1);
		snprintf(what, sizeof(what), "A: %s is a boolean: the job gets \"%s\"", words[i][0],
			words[i][1]);
		expect_note(0, 2, 11, what);
		assert_int_equal(decode_strict(text), PAWL_EINVAL);
	}
}

/* Training on several nodes, with all that a team's file has gathered over the years. */
#define TEAM                                                                                       \
	"---\n"                                                                                    \
	"name: pretrain\n"                                                                         \
	"workdir: .\n"                                                                             \
	"num_nodes: 2\n"                                                                           \
	"resources:\n"                                                                             \
	"  infra: k8s/team\n"                                                                      \
	"  accelerators: {H100:8, H200:8}\n"                                                       \
	"  cpus: 96+\n"                                                                            \
	"  memory: 512Gi\n"                                                                        \
	"  image_id: docker:registry/train:1.2\n"                                                  \
	"  network_tier: best\n"                                                                   \
	"  disk_tier: high\n"                                                                      \
	"  disk_size: 1024\n"                                                                      \
	"  ports:\n"                                                                               \
	"    - 6006\n"                                                                             \
	"  autostop: {idle_minutes: 30}\n"                                                         \
	"  job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 5}\n"                        \
	"config:\n"                                                                                \
	"  kubernetes: {pod_config: {spec: {containers: [{volumeMounts: []}]}}}\n"                 \
	"envs:\n"                                                                                  \
	"  TOKENIZERS_PARALLELISM: false\n"                                                        \
	"  LR: 3e-4\n"                                                                             \
	"  DATA: corpus\n"                                                                         \
	"  HF_TOKEN:\n"                                                                            \
	"file_mounts:\n"                                                                           \
	"  /data/${DATA}: ~/shared/${DATA}\n"                                                      \
	"  ~/.netrc: ~/.netrc\n"                                                                   \
	"setup: |\n"                                                                               \
	"  pip install -r requirements.txt\n"                                                      \
	"run: |\n"                                                                                 \
	"  torchrun --nnodes=$SKYPILOT_NUM_NODES --node_rank=$SKYPILOT_NODE_RANK train.py\n"

static void a_teams_file_runs_as_it_is(void **state)
{
	static const struct sched_var token = {"HF_TOKEN", "t", true};
	static const char *const ignored[] = {"infra", "image_id", "network_tier", "disk_tier",
		"ports", "autostop", "strategy", "config"};

	assert_int_equal(decode(TEAM), PAWL_EINVAL);
	assert_int_equal(remarks.n, 1);
	refused(0, 24, 3, "HF_TOKEN has no value: give --env HF_TOKEN=VALUE, or --env HF_TOKEN");
	assert_int_equal(decode_given(TEAM, &(struct jobfile_given){.vars = &token, .vars_n = 1}),
		0);
	assert_int_equal(notes.n, COUNT(ignored) + 1); /* and TOKENIZERS_PARALLELISM */
	for (size_t i = 0; i < COUNT(ignored); i++) {
		assert_int_equal(count(&notes, ignored[i]), 1);
	}
	assert_int_equal(spec.choices_n, 2);
	assert_int_equal(spec.choices[0].accelerators, 8);
	assert_int_equal(spec.choices[0].memory_bytes, 512ull << 30);
	assert_int_equal(spec.choices[0].disk_bytes, 1ull << 40);
	assert_int_equal(spec.retries, 5);
	assert_int_equal(spec.mounts_n, 2);
	assert_int_equal(spec.size.most, 2);
}

/* A file for a bucket: what Pawl does not have is refused by name, and the rest is accepted. */
static void what_would_be_missing_is_refused(void **state)
{
	assert_int_equal(decode("run: x\n"
				"resources: {cloud: aws, accelerators: T4:0.5}\n"
				"workdir: {url: 'https://example.org/a.git', ref: main}\n"
				"file_mounts:\n"
				"  /out: {name: b, mode: MOUNT}\n"
				"  /in: r2://b\n"
				"volumes: {/v: v}\n"),
		PAWL_EINVAL);
	assert_int_equal(remarks.n, 5);
	refused(0, 2, 39, "T4:0.5: parts of an accelerator are not supported yet");
	refused(1, 3, 10, "clone it in setup");
	refused(2, 5, 25, "mode MOUNT streams");
	refused(3, 6, 8, "r2:// is not known");
	refused(4, 7, 1, "volumes: not supported yet");
	expect_note(0, 2, 13, "cloud: without effect here");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_key_with_each_kind_of_value),
		cmocka_unit_test(each_pair_of_keys),
		cmocka_unit_test(near_spellings_get_a_hint),
		cmocka_unit_test(a_key_is_named_once_however_often_it_stands),
		cmocka_unit_test(an_order_of_choices_is_any_of_them),
		cmocka_unit_test(recovery_is_retries),
		cmocka_unit_test(booleans_of_envs_are_those_of_python),
		cmocka_unit_test(a_teams_file_runs_as_it_is),
		cmocka_unit_test(what_would_be_missing_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
