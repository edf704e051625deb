/* Job files: the values of each key, and what is refused. */
#include "test_sched_jobfile.h"

/* ---- what is read ---- */

static void a_file_of_every_key(void **state)
{
	accept("name: gpt-2.x_y\n"
	       "workdir: ~/gpt\n"
	       "replicas: 2..8\n"
	       "spot: 0..6\n"
	       "queue: research\n"
	       "priority: -5\n"
	       "preemptible: no\n"
	       "retries: 3\n"
	       "time_limit: 1d12h\n"
	       "resources:\n"
	       "  accelerators: [A100, 'H100:1']\n"
	       "  cpus: 4+\n"
	       "  memory: 32+\n"
	       "  disk_size: 1.5TB\n"
	       "  disk_tier: best\n"
	       "envs: {SIZE: 13b, RATE: 3e-4, N: 0010, EMPTY: ''}\n"
	       "secrets: {TOKEN: abc}\n"
	       "file_mounts:\n"
	       "  /data/${SIZE}: ~/data/$SIZE\n"
	       "  ~/more: nfs://nas/export\n"
	       "  /third: nas:/export/x\n"
	       "setup: pip install -e .\n"
	       "run: |\n"
	       "  python train.py\n"
	       "  echo done\n");
	assert_string_equal(spec.name, "gpt-2.x_y");
	assert_string_equal(spec.workdir, "~/gpt");
	assert_string_equal(spec.queue, "research");
	assert_string_equal(spec.setup, "pip install -e .");
	assert_string_equal(spec.run, "python train.py\necho done\n");
	assert_true(spec.elastic && !spec.preemptible);
	assert_true(spec.size.least == 2 && spec.size.most == 8);
	assert_true(spec.spot.least == 0 && spec.spot.most == 6);
	assert_int_equal(spec.priority, -5);
	assert_int_equal(spec.retries, 3);
	assert_int_equal(spec.time_limit_s, 36 * 3600);
	assert_int_equal(spec.choices_n, 2);
	for (uint32_t i = 0; i < 2; i++) {
		const struct sched_choice *choice = &spec.choices[i];

		assert_string_equal(choice->accelerator, i == 0 ? "A100" : "H100");
		assert_int_equal(choice->accelerators, 1);
		assert_int_equal(choice->cpus_milli, 4000);
		assert_int_equal(choice->memory_bytes, 32ull << 30);
		assert_int_equal(choice->disk_bytes, 3ull << 39);
		assert_true(choice->disk_best && choice->spot);
	}
}

static void paths_and_variables_of_that_file(void **state)
{
	static const char *const vars[][2] = {{"SIZE", "13b"}, {"RATE", "3e-4"}, {"N", "0010"},
		{"EMPTY", ""}, {"TOKEN", "abc"}};
	static const char *const mounts[][2] = {{"/data/13b", "~/data/13b"},
		{"~/more", "nas:/export"}, {"/third", "nas:/export/x"}};

	a_file_of_every_key(state);
	assert_int_equal(spec.vars_n, COUNT(vars));
	for (size_t i = 0; i < COUNT(vars); i++) {
		assert_string_equal(spec.vars[i].name, vars[i][0]);
		assert_string_equal(spec.vars[i].value, vars[i][1]); /* unchanged */
		assert_int_equal(spec.vars[i].secret, i == 4);
	}
	assert_int_equal(spec.mounts_n, COUNT(mounts));
	for (size_t i = 0; i < COUNT(mounts); i++) {
		assert_string_equal(spec.mounts[i].at, mounts[i][0]);
		assert_string_equal(spec.mounts[i].from, mounts[i][1]);
		assert_int_equal(spec.mounts[i].kind, i > 0 ? SCHED_MOUNT_NFS : SCHED_MOUNT_LINK);
	}
}

static void null_values_are_as_left_out(void **state)
{
	accept("run: x\nname:\nworkdir: ~\nnum_nodes:\nresources:\nenvs:\nsecrets:\nfile_mounts:\n"
	       "setup:\nreplicas:\nspot:\nqueue:\npriority:\npreemptible:\nretries:\n"
	       "time_limit: null\n");
	assert_null(spec.name);
	assert_null(spec.workdir);
	assert_null(spec.setup);
	assert_string_equal(spec.queue, "default");
	assert_true(!spec.elastic && spec.preemptible);
	assert_true(spec.size.least == 1 && spec.size.most == 1 && spec.spot.most == 0);
	assert_int_equal(spec.choices_n, 1);
	assert_null(spec.choices[0].accelerator);
	assert_int_equal(spec.choices[0].accelerators + spec.choices[0].cpus_milli, 0);
	assert_int_equal(spec.vars_n + spec.mounts_n + spec.retries + spec.time_limit_s, 0);
}

static void accelerators_in_all_their_forms(void **state)
{
	static const struct {
		const char *text;
		const char *types[3];
		uint32_t n[3];
	} all[] = {{"A100", {"A100"}, {1}}, {"A100:4", {"A100"}, {4}},
		{"'A100-80GB:8'", {"A100-80GB"}, {8}}, {"{A100: 4}", {"A100"}, {4}},
		{"{A100:4}", {"A100"}, {4}}, {"{A100: }", {"A100"}, {1}},
		{"A100:4.0", {"A100"}, {4}}, {"{A100: 4.0}", {"A100"}, {4}},
		{"{A100:1, A100-80GB:2, H100: 8}", {"A100", "A100-80GB", "H100"}, {1, 2, 8}},
		{"[L4, 'H100:2', A100:3]", {"L4", "H100", "A100"}, {1, 2, 3}},
		{"\n    A100:1\n    A100-80GB:1\n    H100:1", {"A100", "A100-80GB", "H100"},
			{1, 1, 1}}}; /* one string to YAML; SkyPilot's guide writes it so */
	char line[256];

	for (size_t i = 0; i < COUNT(all); i++) {
		snprintf(line, sizeof(line), "resources:\n  accelerators: %s", all[i].text);
		accept_line(line);
		assert_int_equal(spec.choices_n,
			all[i].types[1] == NULL           ? 1
				: all[i].types[2] == NULL ? 2
							  : 3);
		for (uint32_t j = 0; j < spec.choices_n; j++) {
			assert_string_equal(spec.choices[j].accelerator, all[i].types[j]);
			assert_int_equal(spec.choices[j].accelerators, all[i].n[j]);
		}
	}
}

static void any_of_inherits_and_overrides(void **state)
{
	accept_line("resources:\n"
		    "  accelerators: [A100, H100]\n"
		    "  memory: 10\n"
		    "  use_spot: true\n"
		    "  any_of:\n"
		    "    - disk_size: 5\n"
		    "    - {accelerators: V100:8, memory: 20, cpus: 1}\n");
	assert_int_equal(spec.choices_n, 3);
	assert_string_equal(spec.choices[1].accelerator, "H100");
	assert_true(spec.choices[1].spot && spec.choices[2].spot);
	assert_true(spec.choices[1].disk_bytes == 5ull << 30 && spec.choices[2].disk_bytes == 0);
	assert_int_equal(spec.choices[1].memory_bytes, 10ull << 30);
	assert_string_equal(spec.choices[2].accelerator, "V100");
	assert_int_equal(spec.choices[2].accelerators, 8);
	assert_int_equal(spec.choices[2].memory_bytes, 20ull << 30);
	assert_int_equal(spec.choices[2].cpus_milli, 1000);
	assert_true(spec.spot.least == 0 && spec.spot.most == 1);
}

/* Only some choices ask for spot nodes: the scheduler cannot express that. It can express a spot
 * node that will do as well as another. */
static void use_spot_of_only_some_choices(void **state)
{
	static const char *const both[] = {"[{use_spot: true}, {use_spot: false}]",
		"[{use_spot: false}, {use_spot: true}]",
		"[{accelerators: A}, {accelerators: A, use_spot: yes}]"};
	static const char *const some[] = {
		"[{accelerators: A, use_spot: true}, {accelerators: B, use_spot: false}]",
		"[{accelerators: A, use_spot: true}, {}]",
		"[{use_spot: true}, {memory: 2, use_spot: false}]",
		"[{use_spot: true}, {accelerators: A}]"};
	char text[256];

	for (size_t i = 0; i < COUNT(both); i++) {
		snprintf(text, sizeof(text), "resources: {any_of: %s}", both[i]);
		accept_line(text);
		assert_true(spec.spot.least == 0 && spec.spot.most == 1);
	}
	for (size_t i = 0; i < COUNT(some); i++) {
		snprintf(text, sizeof(text), "run: x\nresources: {any_of: %s}", some[i]);
		assert_int_equal(decode(text), PAWL_EINVAL);
		assert_int_equal(remarks.n, 1);
		assert_non_null(strstr(remarks.at[0].text, "use_spot: only some choices have it"));
		assert_int_equal(remarks.at[0].line, 2);
	}
	accept_line("resources: {any_of: [{cpus: 1}, {memory: 2}]}\nspot: 0..1");
	assert_true(spec.choices[0].spot && spec.choices[1].spot);
}

static void sizes_and_times(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = {{"64", 64ull << 30}, {"64+", 64ull << 30}, {"\"64\"", 64ull << 30},
		{"64GB", 64ull << 30}, {"64gb+", 64ull << 30}, {"1024MiB", 1ull << 30},
		{"0.5", 1ull << 29}, {"1.125TB", 9ull << 37}, {"1PB", 1ull << 50},
		{"1048576", 1ull << 50}, {"8KB", 8192}};
	static const struct {
		const char *text;
		uint32_t seconds;
	} times[] = {{"90s", 90}, {"30m", 1800}, {"12h", 43200}, {"1d", 86400}, {"366d", 31622400},
		{"1d2h3m4s", 93784}, {"36:00:00", 129600}, {"0:00:01", 1}, {"'01:02:03'", 3723}};
	char line[128];

	for (size_t i = 0; i < COUNT(sizes); i++) {
		snprintf(line, sizeof(line), "resources: {memory: %s, disk_size: %s}",
			sizes[i].text, sizes[i].text);
		accept_line(line);
		assert_int_equal(spec.choices[0].memory_bytes, sizes[i].bytes);
		assert_int_equal(spec.choices[0].disk_bytes, sizes[i].bytes);
	}
	for (size_t i = 0; i < COUNT(times); i++) {
		snprintf(line, sizeof(line), "time_limit: %s", times[i].text);
		accept_line(line);
		assert_int_equal(spec.time_limit_s, times[i].seconds);
	}
	accept_line("resources: {cpus: 0.25}");
	assert_int_equal(spec.choices[0].cpus_milli, 250);
	accept_line("replicas: 4");
	assert_true(spec.elastic && spec.size.least == 4 && spec.size.most == 4);
	accept_line("num_nodes: 4096");
	assert_true(!spec.elastic && spec.size.least == 4096);
}

/* ---- what is refused ---- */

static void values_of_the_wrong_kind(void **state)
{
	static const char *const all[][3] = {
		{"name", "yes", "name: yes is a boolean; a string (\"yes\", in quotes) is needed"},
		{"name", "12", "name: 12 is a number; a string (\"12\", in quotes) is needed"},
		{"name", "[a]", "name: a list is given; a string is needed"},
		{"name", "a b", "name: \"a b\" is a string; a name of letters, digits"},
		{"name", "-a", "letters, digits"},
		{"name", "''", "name: \"\" is a string; one of 1 to"},
		{"name", "\"a\\0b\"", "none of them zero"},
		{"queue", "{a: b}", "queue: a mapping is given; a string is needed"},
		{"queue", "a/b", "letters, digits"},
		{"setup", "true", "setup: true is a boolean; a string (\"true\", in quotes)"},
		{"setup", "[a, b]", "setup: a list is given"},
		{"workdir", "5", "workdir: 5 is a number"},
		{"workdir", "{url: x, ref: y}", "a repository (url, ref) is not supported yet"},
		{"num_nodes", "four",
			"num_nodes: \"four\" is a string; a whole number from 1 to 4096"},
		{"num_nodes", "\"4\"", "num_nodes: \"4\" is a string"},
		{"num_nodes", "0", "num_nodes: 0 is a number; a whole number from 1 to 4096"},
		{"num_nodes", "-1", "num_nodes: -1"},
		{"num_nodes", "4097", "num_nodes: 4097"},
		{"num_nodes", "1.5", "num_nodes: 1.5"},
		{"num_nodes", "010", "num_nodes: 010"},
		{"num_nodes", "0x4", "num_nodes: 0x4"},
		{"num_nodes", "1_0", "num_nodes: 1_0"},
		{"num_nodes", "1:30", "num_nodes: 1:30"},
		{"num_nodes", "yes", "num_nodes: yes is a boolean"},
		{"num_nodes", "18446744073709551617", "num_nodes: 18446744073709551617"},
		{"num_nodes", "4294967297", "num_nodes: 4294967297"},
		{"priority", "-1001", "a whole number from -1000 to 1000"},
		{"priority", "99999999999999999999999", "a whole number from -1000 to 1000"},
		{"priority", "high", "priority: \"high\" is a string"},
		{"retries", "1001", "from 0 to 1000"},
		{"preemptible", "\"yes\"", "preemptible: \"yes\" is a string; true or false"},
		{"preemptible", "1", "preemptible: 1 is a number; true or false"},
		{"replicas", "8..2", "replicas: \"8..2\" is a string; MIN..MAX, or one number"},
		{"replicas", "0..2", "from 1 to 4096"},
		{"replicas", "1:8", "replicas: 1:8 is a number; MIN..MAX"},
		{"replicas", "1..", "MIN..MAX"},
		{"replicas", "1..4294967298", "MIN..MAX"},
		{"replicas", "[1, 8]", "replicas: a list is given; MIN..MAX"},
		{"spot", "2..9999", "from 0 to 4096"},
		{"spot", "yes", "spot: yes is a boolean; MIN..MAX"},
		{"time_limit", "60", "time_limit: 60 is a number; a time up to 366d with its unit"},
		{"time_limit", "0s", "with its unit"},
		{"time_limit", "367d", "with its unit"},
		{"time_limit", "1h1d", "with its unit"},
		{"time_limit", "1h 5m", "with its unit"},
		{"time_limit", "99999999999999999999s", "with its unit"},
		{"time_limit", "1:60:00", "with its unit"},
		{"time_limit", "yes", "with its unit"},
		{"resources", "[a]", "resources: a list is given; a mapping is needed"},
		{"resources", "a", "resources: \"a\" is a string; a mapping is needed"},
		{"envs", "[A]", "envs: a list is given; a mapping"},
		{"secrets", "A", "secrets: it is a string; a mapping"},
		{"file_mounts", "/data", "file_mounts: \"/data\" is a string; a mapping"},
	};

	for (size_t i = 0; i < COUNT(all); i++) {
		refuse_value(all[i][0], all[i][1], all[i][2]);
	}
	refuse("run: true\n", 1, 6, "run: true is a boolean; a string (\"true\", in quotes)");
	refuse("run: ''\n", 1, 6, "one of 1 to");
}

static void numbers_that_begin_with_zero(void **state)
{
	refuse_value("replicas", "010", "replicas: 010 is a number; MIN..MAX");
	refuse_value("replicas", "1..08", "MIN..MAX");
	refuse_value("replicas", "'01..8'", "MIN..MAX");
	refuse_value("spot", "00", "MIN..MAX");
}

static void spot_nodes_that_it_must_have(void **state)
{
	accept_line("num_nodes: 4\nspot: 2..3");
	assert_true(spec.spot.least == 2 && spec.spot.most == 3 && spec.choices[0].spot);
	accept_line("spot: 1");
	assert_true(spec.spot.least == 1 && spec.spot.most == 1);
}

static void resources_of_the_wrong_kind(void **state)
{
	static const char *const all[][3] = {
		{"accelerators", "5",
			"accelerators: 5 is a number; a type and how many, as A100:4"},
		{"accelerators", "A100:0", "accelerators: \"A100:0\" is a string"},
		{"accelerators", "A100:0.5",
			"A100:0.5: parts of an accelerator are not supported yet"},
		{"accelerators", "A100:1.", "as A100:4"},
		{"accelerators", "A100:0.0", "as A100:4"},
		{"accelerators", "80GB", "80GB: requests by memory are not supported yet"},
		{"accelerators", "nvidia:80GB+:2", "requests by memory are not supported yet"},
		{"accelerators", "'A100:'", "as A100:4"},
		{"accelerators", "A100:1025", "as A100:4"},
		{"accelerators", "A100:99999999999999999999", "as A100:4"},
		{"accelerators", "'A100 :4'", "as A100:4"},
		{"accelerators", "'A100;x'", "as A100:4"},
		{"accelerators", "''", "as A100:4"},
		{"accelerators", "[]", "a list is given"},
		{"accelerators", "{}", "a mapping is given"},
		{"accelerators", "yes", "accelerators: yes is a boolean"},
		{"accelerators", "A100:04", "as A100:4"},
		{"cpus", "010", "cpus: 010 is a number; a number up to 4096"},
		{"cpus", "00.5", "a number up to 4096"},
		{"memory", "010", "a size up to 1 PB"},
		{"memory", "01GB", "a size up to 1 PB"},
		{"cpus", "many", "cpus: \"many\" is a string; a number up to 4096"},
		{"cpus", "0", "cpus: 0 is a number"},
		{"cpus", "4096.5", "cpus: 4096.5"},
		{"cpus", "-4", "cpus: -4"},
		{"cpus", "4++", "cpus: \"4++\""},
		{"cpus", "99999999999999999999999999", "cpus: 999"},
		{"memory", "32XB", "memory: \"32XB\" is a string; a size up to 1 PB"},
		{"memory", "0", "memory: 0"},
		{"memory", "1.001PB", "memory: \"1.001PB\""},
		{"memory", "2048TB", "memory: \"2048TB\""},
		{"memory", "999999999999999999999PB", "a size up to 1 PB"},
		{"memory", "lots", "a size up to 1 PB"},
		{"disk_size", "[1]", "disk_size: a list is given; a size"},
		{"disk_size", "1048577", "disk_size: 1048577"},
		{"disk_tier", "fast", "disk_tier: \"fast\" is a string; best is needed"},
		{"disk_tier", "7", "disk_tier: 7 is a number"},
		{"use_spot", "'true'", "use_spot: \"true\" is a string; true or false"},
		{"any_of", "{cpus: 1}", "any_of: a mapping is given; a list of mappings"},
		{"any_of", "[]", "any_of: a list is given; a list of mappings"},
	};
	char text[256];

	for (size_t i = 0; i < COUNT(all); i++) {
		snprintf(text, sizeof(text), "run: x\nresources:\n  %s: %s\n", all[i][0],
			all[i][1]);
		refuse(text, 3, (uint32_t)strlen(all[i][0]) + 5, all[i][2]);
	}
	refuse("run: x\nresources: {accelerators: {A100: 0}}\n", 2, 34, "from 1 to 1024");
	refuse("run: x\nresources: {accelerators: {A100: x}}\n", 2, 34, "from 1 to 1024");
	refuse("run: x\nresources: {accelerators: {A100:2: 3}}\n", 2, 28, "as A100:4");
	refuse("run: x\nresources: {accelerators: {4090: 3}}\n", 2, 28, "4090 is a number");
	refuse("run: x\nresources: {accelerators: [[A]]}\n", 2, 28, "a list is given");
	refuse("run: x\nresources: {any_of: [1]}\n", 2, 22, "any_of: 1 is a number; a mapping");
	refuse("run: x\nresources: {any_of: [{any_of: [{}]}]}\n", 2, 31, "write one list");
	refuse("run: x\nresources: {any_of: [{}], ordered: [{}]}\n", 2, 36, "keep one");
	refuse("run: x\nresources: {accelerators: [H100, '16gb+']}\n", 2, 34,
		"16gb+: requests by memory are not supported yet");
	refuse("run: x\nresources: {accelerators: {A100: 0.5}}\n", 2, 34,
		"0.5: parts of an accelerator are not supported yet");
}

/* ---- keys that are not ours ---- */

static void unknown_keys_get_the_nearest(void **state)
{
	refuse("run: x\nnum_node: 2\n", 2, 1, "unknown key num_node: did you mean num_nodes?");
	refuse("run: x\nworking_dir: .\n", 2, 1, "unknown key working_dir: did you mean workdir?");
	refuse("run: x\nenv_vars: {}\n", 2, 1, "did you mean envs?");
	refuse("run: x\nresources: {working_dir: .}\n", 2, 13,
		"unknown key working_dir; the known keys");
	refuse("run: x\nReplicas: 2\n", 2, 1, "unknown key Replicas: did you mean replicas?");
	refuse("run: x\nenv: {}\n", 2, 1, "did you mean envs?");
	refuse("run: x\nresources: {accelerator: A100}\n", 2, 13, "did you mean accelerators?");
	refuse("run: x\nfrobnicate: 1\n", 2, 1,
		"unknown key frobnicate; the known keys are name, workdir");
	refuse("run: x\naccelerators: A100\n", 2, 1, "accelerators is a key of resources");
	refuse("run: x\nresources: {num_nodes: 2}\n", 2, 13,
		"num_nodes is a key of the file itself");
	refuse("run: x\nyes: 1\n", 2, 1, "unknown key yes");
	refuse("run: x\n\"run\\0x\": 1\n", 2, 1, "unknown key run?x");
	refuse("run: x\n~: 1\n", 2, 1, "unknown key ~");
	refuse("run: x\n\"a\\e[2Jb\": 1\n", 2, 1, "unknown key a?[2Jb;");
}

static void take_bucket(const char *text)
{
	char file[512];

	snprintf(file, sizeof(file), "run: x\nfile_mounts:\n  /data: %s\n", text);
	accept(file);
	assert_int_equal(spec.mounts_n, 1);
	assert_string_equal(spec.mounts[0].at, "/data");
}

static void buckets_are_mirrored_or_fetched(void **state)
{
	static const struct {
		const char *text, *from;
		enum sched_mount_kind kind;
	} good[] = {
		{"{name: box, store: s3, mode: MOUNT_CACHED}", "s3://box", SCHED_MOUNT_MIRROR},
		{"{name: box, store: gcs, mode: mount_cached}", "gs://box", SCHED_MOUNT_MIRROR},
		{"{source: 's3://box/p', mode: COPY, persistent: true}", "s3://box/p",
			SCHED_MOUNT_FETCH},
		{"{source: 'azure://acct/con/p', mode: MOUNT_CACHED}", "azure://acct/con/p",
			SCHED_MOUNT_MIRROR},
		{"{source: 'https://acct.blob.core.windows.net/con/p', mode: COPY}",
			"azure://acct/con/p", SCHED_MOUNT_FETCH},
		{"{name: box, store: s3, mode: MOUNT_CACHED, config: {mount_cached: {read_only: "
		 "true}}}",
			"s3://box", SCHED_MOUNT_FETCH},
		{"s3://box/p", "s3://box/p", SCHED_MOUNT_FETCH},
		{"https://acct.blob.core.windows.net/con", "azure://acct/con", SCHED_MOUNT_FETCH},
		{"'s3://box?endpoint=http://h:9'", "s3://box?endpoint=http://h:9",
			SCHED_MOUNT_FETCH},
	};

	for (size_t i = 0; i < COUNT(good); i++) {
		take_bucket(good[i].text);
		assert_string_equal(spec.mounts[0].from, good[i].from);
		assert_int_equal(spec.mounts[0].kind, good[i].kind);
		assert_int_equal(notes.n, 0);
		assert_int_equal(spec.mounts[0].local_max_bytes, 0);
	}
	take_bucket("{name: box, mode: MOUNT_CACHED}");
	assert_string_equal(spec.mounts[0].from, "s3://box");
	expect_note(0, 3, 17, "no store is given: /data is taken for a bucket of S3");
	take_bucket("{source: 's3://box', mode: MOUNT_CACHED, config: {mount_cached: "
		    "{vfs_cache_max_size: 20G, transfers: 4, vfs_write_back: 1s}}}");
	assert_int_equal(spec.mounts[0].local_max_bytes, 20ull << 30);
	assert_int_equal(notes.n, 2);
	take_bucket("{source: 's3://box', mode: MOUNT_CACHED, config: {mount_cached: "
		    "{vfs_cache_max_size: 512M}}}");
	assert_int_equal(spec.mounts[0].local_max_bytes, 512ull << 20);
}

static void what_no_bucket_can_be_is_named(void **state)
{
	static const char *const wrong[][2] = {
		{"r2://a", "r2:// is not known: give an address such as s3://BUCKET/PATH"},
		{"hf://a/b", "hf:// is not known"},
		{"s3://", "no bucket"},
		{"s3://box/../b", ".."},
		{"{name: box, store: s3, mode: MOUNT}",
			"mode MOUNT streams each file to and from the bucket, which is not "
			"supported; write mode: MOUNT_CACHED for what the job writes to /data, or "
			"COPY"},
		{"{name: box, store: s3}", "no mode means MOUNT, and that streams"},
		{"{name: box, mode: cached}", "mode: \"cached\" is a string; MOUNT_CACHED or COPY"},
		{"{mode: MOUNT_CACHED}", "/data names no bucket: give name: BUCKET, or source:"},
		{"{name: box, store: r2, mode: COPY}",
			"store: r2: the name of a bucket is not enough there: give source:"},
		{"{name: box, store: azure, mode: COPY}", "azure://ACCOUNT/CONTAINER/PATH"},
		{"{name: box, store: s3, mode: COPY, persistent: false}",
			"persistent: false is not supported: Pawl removes no buckets"},
		{"{source: ./local, mode: COPY}",
			"/data: a bucket that is filled from a directory is not supported yet: put "
			"the files there first"},
		{"{name: v, store: Volume}", "/data is a volume: not supported yet"},
		{"{source: 's3://box', mode: COPY, config: {mount_cached: {transfer: 1}}}",
			"unknown key transfer"},
		{"{source: 's3://box', mode: COPY, config: 5}", "config: 5 is"},
		{"{source: 's3://box', mode: COPY, config: {mount_cached: {vfs_cache_max_size: "
		 "99999999999999999999T}}}",
			"a size up to 1 PB"},
		{"{nme: box, mode: COPY}", "unknown key nme: did you mean name?"},
	};
	char text[512];

	for (size_t i = 0; i < COUNT(wrong); i++) {
		snprintf(text, sizeof(text), "run: x\nfile_mounts:\n  /data: %s\n", wrong[i][0]);
		assert_int_equal(decode(text), PAWL_EINVAL);
		assert_in_range(remarks.n, 1, 2);
		if (!strstr(remarks.at[0].text, wrong[i][1]) &&
			!strstr(remarks.at[remarks.n - 1].text, wrong[i][1])) {
			fail_msg("%s: %s", wrong[i][0], remarks.at[0].text);
		}
	}
	refuse("run: x\nnum_nodes: 2\nfile_mounts: {/a: s3://box}\n", 3, 15,
		"a bucket is supported for jobs of one node only");
	refuse("run: x\nreplicas: 2\nfile_mounts: {/a: s3://box}\n", 3, 15, "of one node only");
}

static void mounts_that_cannot_be_are_named(void **state)
{
	refuse("run: x\nfile_mounts: {/data: 'https://a.org/b'}\n", 2, 22,
		"https:// is not supported yet: fetch it in setup");
	refuse("run: x\nfile_mounts: {data: /x}\n", 2, 15, "begins with / or ~/");
	refuse("run: x\nfile_mounts: {/data: [x]}\n", 2, 22, "/data: a list is given; a string");
	refuse("run: x\nfile_mounts: {/data: yes}\n", 2, 22, "/data: yes is a boolean");
	refuse("run: x\nfile_mounts: {/data: }\n", 2, 22, "/data: nothing is given; a string");
	refuse("run: x\nfile_mounts: {/data: ''}\n", 2, 22, "one of 1 to");
	refuse("run: x\nenvs: {A: b}\nfile_mounts:\n  /a/b: /x\n  /a/$A: /y\n", 5, 3,
		"is given twice");
	accept("run: x\nfile_mounts: {/a: '/x/y://z', /b: ./c}\n");
	assert_int_equal(spec.mounts_n, 2);
}

static void variables_in_paths(void **state)
{
	char text[8192];
	char long_value[3000];

	refuse("run: x\nworkdir: /a/$B\n", 2, 10, "workdir: ${B} is not in envs");
	refuse("run: x\nworkdir: /a/${B\nenvs: {B: c}\n", 2, 10, "${ without a name and }");
	refuse("run: x\nworkdir: /a/${}\n", 2, 10, "${ without a name");
	refuse("run: x\nworkdir: /a/$B\nsecrets: {B: c}\n", 2, 10, "${B} is a secret");
	accept("run: x\nenvs: {B: c}\nworkdir: $B/${B}x$/$.\n");
	assert_string_equal(spec.workdir, "c/cx$/$.");
	memset(long_value, 'v', sizeof(long_value) - 1);
	long_value[sizeof(long_value) - 1] = '\0';
	snprintf(text, sizeof(text), "run: x\nworkdir: $B$B\nenvs: {B: %s}\n", long_value);
	refuse(text, 2, 10, "a path of more than 4095 bytes");
}

/* No link can be made at a path that ends in a slash, and no server names its directories so. */
static void slashes_at_the_end_of_mounts(void **state)
{
	static const char *const mounts[][2] = {{"/a", "/b"}, {"~/c", "h:/d"}, {"~/", "h:/"},
		{"/", "/"}};

	accept_line("file_mounts: {/a/: /b/, ~/c//: nfs://h/d/, ~/: 'h:/', /: /}");
	assert_int_equal(spec.mounts_n, COUNT(mounts));
	for (size_t i = 0; i < COUNT(mounts); i++) {
		assert_string_equal(spec.mounts[i].at, mounts[i][0]);
		assert_string_equal(spec.mounts[i].from, mounts[i][1]);
	}
	refuse("run: x\nfile_mounts: {/a: /b, /a/: /c}\n", 2, 23, "/a/ is given twice");
}

static void variables_that_cannot_be(void **state)
{
	refuse("run: x\nenvs: {1A: b}\n", 2, 8, "envs: \"1A\" cannot be set");
	refuse("run: x\nenvs: {A-B: b}\n", 2, 8, "cannot be set");
	refuse("run: x\nenvs: {'': b}\n", 2, 8, "cannot be set");
	refuse("run: x\nenvs: {yes: b}\n", 2, 8, "cannot be set");
	refuse("run: x\nenvs: {SKYPILOT_NODE_RANK: 0}\n", 2, 8, "none that Pawl sets itself");
	refuse("run: x\nenvs: {PAWL_SCHED_RUN: x}\n", 2, 8, "none that Pawl sets itself");
	refuse("run: x\nenvs: {PAWL_RUN_DEVICES: x}\n", 2, 8, "none that Pawl sets itself");
	refuse("run: x\nenvs: {A: [b]}\n", 2, 11, "A: a list is given");
	refuse("run: x\nenvs: {A: \"b\\0c\"}\n", 2, 11, "a string without zero bytes");
	refuse("run: x\nenvs: {A: b}\nsecrets: {A: c}\n", 3, 11, "A is in envs, too");
	refuse("run: x\nenvs: {A: }\n", 2, 8,
		"A has no value: give --env A=VALUE, or --env A to take that of your environment");
	refuse("run: x\nsecrets: {A: ~}\n", 2, 11, "A has no value: give --secret A=VALUE");
	refuse("run: x\nsecrets: [A]\n", 2, 10, "give each by --secret NAME");
	/* No message shows a secret. */
	accept("run: x\nsecrets: {A: yes}\n");
	expect_note(0, 2, 14, "A: it is a boolean: the job gets True or False");
	assert_null(strstr(notes.at[0].text, "yes"));
	refuse("run: x\nsecrets: {A: \"hush\\0hush\"}\n", 2, 14, "A: it is a string");
	assert_null(strstr(remarks.at[0].text, "hush"));
}

static void long_values_are_refused(void **state)
{
	size_t len_bytes = SPEC_VALUE_MAX + 64;
	char *text = malloc(len_bytes);
	size_t len = (size_t)snprintf(text, len_bytes, "run: x\nenvs: {A: ");

	memset(text + len, 'v', SPEC_VALUE_MAX);
	memcpy(text + len + SPEC_VALUE_MAX, "}\n", 3);
	refuse(text, 2, 11, "A: a value of 65536 bytes; at most 65535");
	memcpy(text + len + SPEC_VALUE_MAX - 1, "}\n", 3);
	accept(text);
	assert_int_equal(strlen(spec.vars[0].value), SPEC_VALUE_MAX - 1);
	free(text);
}

static void keys_that_contradict_each_other(void **state)
{
	refuse("run: x\nnum_nodes: 2\nreplicas: 1..2\n", 3, 11,
		"replicas and num_nodes (line 2) contradict each other");
	refuse("run: x\nreplicas: 1..2\nresources: {accelerators: A100:4}\n", 2, 11,
		"each takes one accelerator, but resources has A100:4");
	refuse("run: x\nspot: 1\nresources: {use_spot: true}\n", 2, 7,
		"spot and use_spot (line 3) mean the same");
	refuse("run: x\nspot: 0..3\nnum_nodes: 2\n", 2, 7,
		"spot: up to 3, but the job has at most 2 nodes");
	refuse("run: x\nspot: 1..3\nreplicas: 1..2\n", 2, 7, "the job has at most 2 replicas");
	refuse("run: x\npriority: 3\nresources: {priority: 4}\n", 3, 23,
		"priority: line 2 says 3: keep one of them");
	refuse("run: x\nretries: 3\nresources: {job_recovery: {max_restarts_on_errors: 4}}\n", 3,
		52, "max_restarts_on_errors: line 2 says 3");
	refuse("name: x\n", 1, 1, "run is missing");
	refuse("setup: x\n", 1, 1, "no clusters that stay when setup is done");
	refuse("", 1, 1, "a job file is a mapping of keys");
	refuse("- run: x\n", 1, 1, "a job file is a mapping of keys");
	refuse("# only\n\npython train.py\n", 3, 1, "a job file is a mapping of keys");
	accept("run: x\nspot: 0..2\nnum_nodes: 2\n");
	assert_true(spec.choices[0].spot && spec.spot.most == 2);
	accept("run: x\nreplicas: 1..9\nresources: {use_spot: true}\n");
	assert_true(spec.spot.least == 0 && spec.spot.most == 9);
}

static void too_many_of_something(void **state)
{
	char text[4096] = "run: x\nresources:\n  accelerators: [";
	size_t len = strlen(text);

	for (int i = 0; i < 17; i++) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "A%d,", i);
	}
	snprintf(text + len, sizeof(text) - len, "]\n");
	assert_int_equal(decode(text), PAWL_EINVAL);
	assert_non_null(strstr(remarks.at[0].text, "more than 16 types"));
	len = (size_t)snprintf(text, sizeof(text), "run: x\nresources:\n  any_of: [");
	for (int i = 0; i < 65; i++) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "{cpus: %d},", i + 1);
	}
	snprintf(text + len, sizeof(text) - len, "]\n");
	assert_int_equal(decode(text), PAWL_EINVAL);
	assert_non_null(strstr(remarks.at[0].text, "more than 64 choices"));
}

static void all_errors_are_reported_at_once(void **state)
{
	char text[4096] = "";
	size_t len = 0;

	assert_int_equal(decode("nam: x\n"
				"num_nodes: many\n"
				"num_nodes: 2\n"
				"resources:\n"
				"  disk_size: x\n"
				"  cpus: x\n"
				"envs: {A: }\n"),
		PAWL_EINVAL);
	assert_int_equal(remarks.n, 7);
	refused(0, 1, 1, "did you mean name?");
	refused(1, 1, 1, "run is missing");
	refused(2, 2, 12, "num_nodes: \"many\"");
	refused(3, 3, 1, "num_nodes is given twice, first in line 2");
	refused(4, 5, 14, "disk_size: \"x\"");
	refused(5, 6, 9, "cpus: \"x\"");
	refused(6, 7, 8, "A has no value");
	assert_non_null(strstr(err.msg, "job file: line 1, column 1: "));
	for (int i = 0; i < 25; i++) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "unknown%d: 1\n", i);
	}
	snprintf(text + len, sizeof(text) - len, "run: x\n");
	assert_int_equal(decode(text), PAWL_EINVAL);
	assert_int_equal(remarks.n, REMARKS_MAX);
	assert_int_equal(remarks.dropped, 5);
}

static void anchors_work_in_job_files(void **state)
{
	accept("run: x\nenvs: {A: &a one, B: *a}\nresources:\n  any_of:\n  - &r {cpus: 2}\n"
	       "  - *r\n");
	assert_string_equal(spec.vars[1].value, "one");
	assert_int_equal(spec.choices_n, 1); /* both choices are alike */
	assert_int_equal(spec.choices[0].cpus_milli, 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_of_every_key),
		cmocka_unit_test(paths_and_variables_of_that_file),
		cmocka_unit_test(null_values_are_as_left_out),
		cmocka_unit_test(accelerators_in_all_their_forms),
		cmocka_unit_test(any_of_inherits_and_overrides),
		cmocka_unit_test(use_spot_of_only_some_choices),
		cmocka_unit_test(sizes_and_times),
		cmocka_unit_test(values_of_the_wrong_kind),
		cmocka_unit_test(numbers_that_begin_with_zero),
		cmocka_unit_test(spot_nodes_that_it_must_have),
		cmocka_unit_test(resources_of_the_wrong_kind),
		cmocka_unit_test(unknown_keys_get_the_nearest),
		cmocka_unit_test(buckets_are_mirrored_or_fetched),
		cmocka_unit_test(what_no_bucket_can_be_is_named),
		cmocka_unit_test(mounts_that_cannot_be_are_named),
		cmocka_unit_test(variables_in_paths),
		cmocka_unit_test(slashes_at_the_end_of_mounts),
		cmocka_unit_test(variables_that_cannot_be),
		cmocka_unit_test(long_values_are_refused),
		cmocka_unit_test(keys_that_contradict_each_other),
		cmocka_unit_test(too_many_of_something),
		cmocka_unit_test(all_errors_are_reported_at_once),
		cmocka_unit_test(anchors_work_in_job_files),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
