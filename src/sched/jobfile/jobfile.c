/* The keys of a job file, and what holds between them: see jobfile.h. */
#include "sched/jobfile/jobfile.h"

#include "base/assert.h"
#include "base/err.h"
#include "sched/jobfile/jobfile_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define NAME_NEEDED                                                                                \
	"a name of letters, digits, '.', '_' and '-', a letter or digit first, at most 63,"
#define QUEUE "default" /* queue of a job that names none */

/* Sections that are decoded once all keys are known. */
struct sections {
	/* Values of the sections; NULL: the section is not there. */
	const struct tree_node *resources;
	const struct tree_node *envs;
	const struct tree_node *secrets;
	const struct tree_node *mounts;
	const struct tree_node *workdir;
	const char *workdir_text; /* text of workdir, as written */
};

/* The destination of the readers of keys. */
struct reading {
	struct sched_spec *spec;
	struct sections sections;
};

void sched_spec_deinit(struct sched_spec *spec)
{
	sched_arena_deinit(&spec->arena);
	*spec = (struct sched_spec){NULL};
}

bool jobfile_is_name(const char *text)
{
	size_t len = strspn(text, NAME_CHARS);

	return len > 0 && len < SPEC_NAME_MAX && text[len] == '\0' && !strchr("._-", text[0]);
}

/* ---- readers ---- */

static void read_name_into(struct jobfile *f, const char *key, const struct tree_node *value,
	const char **into)
{
	const char *name;

	if (!jobfile_text(f, key, value, SPEC_PATH_MAX, &name)) {
		return;
	}
	if (jobfile_is_name(name)) {
		*into = name;
	} else {
		jobfile_bad_value(f, key, value, NAME_NEEDED);
	}
}

static void read_name(struct jobfile *f, const char *key, const struct tree_node *value, void *into)
{
	read_name_into(f, key, value, &((struct reading *)into)->spec->name);
}

static void read_queue(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	read_name_into(f, key, value, &((struct reading *)into)->spec->queue);
}

static void read_workdir(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct reading *reading = into;

	if (value->kind == TREE_MAP) {
		jobfile_add_error(f, value,
			"workdir: a repository (url, ref) is not supported yet: clone it in setup, "
			"and give a directory or none");
	} else if (jobfile_text(f, key, value, SPEC_PATH_MAX, &reading->sections.workdir_text)) {
		reading->sections.workdir = value;
	}
}

static void read_num_nodes(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct sched_spec *spec = ((struct reading *)into)->spec;
	int64_t nodes;

	f->num_nodes = value;
	if (jobfile_int(f, key, value, 1, SPEC_NODES_MAX, &nodes)) {
		spec->size = (struct sched_range){(uint32_t)nodes, (uint32_t)nodes};
	} else {
		f->unsized = true;
	}
}

static void read_replicas(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct sched_spec *spec = ((struct reading *)into)->spec;

	f->replicas = value;
	spec->elastic = jobfile_range(f, key, value, 1, SPEC_NODES_MAX, &spec->size);
	f->unsized = f->unsized || !spec->elastic;
}

static void read_spot(struct jobfile *f, const char *key, const struct tree_node *value, void *into)
{
	f->spot = value;
	jobfile_range(f, key, value, 0, SPEC_NODES_MAX, &((struct reading *)into)->spec->spot);
}

/* Reads a number that two keys can give. at: where it was given before; NULL: nowhere. */
static bool read_once(struct jobfile *f, const char *key, const struct tree_node *value,
	int64_t least, int64_t most, int64_t now, const struct tree_node **at, int64_t *into)
{
	if (!jobfile_int(f, key, value, least, most, into)) {
		return false;
	}
	if (*at && *into != now) {
		jobfile_add_error(f, value, "%s: line %u says %" PRId64 ": keep one of them", key,
			(*at)->line, now);
		return false;
	}
	*at = value;
	return true;
}

void jobfile_read_priority(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	int64_t priority;

	(void)into;
	if (read_once(f, key, value, -SPEC_PRIORITY_MAX, SPEC_PRIORITY_MAX, f->spec->priority,
		    &f->priority, &priority)) {
		f->spec->priority = (int32_t)priority;
	}
}

static void read_preemptible(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_bool(f, key, value, &((struct reading *)into)->spec->preemptible);
}

void jobfile_read_retries(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	int64_t retries;

	(void)into;
	if (read_once(f, key, value, 0, SPEC_RETRIES_MAX, f->spec->retries, &f->retries,
		    &retries)) {
		f->spec->retries = (uint32_t)retries;
	}
}

static void read_time_limit(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_duration(f, key, value, &((struct reading *)into)->spec->time_limit_s);
}

static void read_setup(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_text(f, key, value, TREE_BYTES_MAX, &((struct reading *)into)->spec->setup);
}

static void read_run(struct jobfile *f, const char *key, const struct tree_node *value, void *into)
{
	struct sched_spec *spec = ((struct reading *)into)->spec;

	if (!jobfile_text(f, key, value, TREE_BYTES_MAX, &spec->run)) {
		spec->run = ""; /* given, but wrong, which was reported */
	}
}

static void read_resources(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	((struct reading *)into)->sections.resources = value;
}

static void read_envs(struct jobfile *f, const char *key, const struct tree_node *value, void *into)
{
	((struct reading *)into)->sections.envs = value;
}

static void read_secrets(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	((struct reading *)into)->sections.secrets = value;
}

static void read_mounts(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	((struct reading *)into)->sections.mounts = value;
}

/* ---- the keys ---- */

#define GROUPS                                                                                     \
	"pipelines and groups of jobs are not supported yet: a file is one job: submit each by "   \
	"itself, and leave this key out"
#define VOLUMES                                                                                    \
	"not supported yet: Pawl makes no volumes; mount a directory that the nodes share by "     \
	"file_mounts, as /data: /shared/DIR"
#define SIZES    "it helps to choose a cloud, and Pawl rents none"
#define SKYPILOT "it concerns SkyPilot's own server"

const struct jobfile_key jobfile_top_keys[] = {
	{"name", read_name, NULL, false},
	{"workdir", read_workdir, NULL, false},
	{"num_nodes", read_num_nodes, NULL, false},
	{"resources", read_resources, NULL, false},
	{"envs", read_envs, NULL, false},
	{"secrets", read_secrets, NULL, false},
	{"file_mounts", read_mounts, NULL, false},
	{"setup", read_setup, NULL, false},
	{"run", read_run, NULL, false},
	{"replicas", read_replicas, NULL, false},
	{"spot", read_spot, NULL, false},
	{"queue", read_queue, NULL, false},
	{"priority", jobfile_read_priority, NULL, false},
	{"preemptible", read_preemptible, NULL, false},
	{"retries", jobfile_read_retries, NULL, false},
	{"time_limit", read_time_limit, NULL, false},
	{"config", NULL,
		"Pawl has no settings of clouds, Kubernetes or containers; pawl run receives "
		"notices of nodes that go away without hooks",
		true},
	{"experimental", NULL, "Pawl has no settings of clouds", true},
	{"service", NULL, "Pawl serves nothing: run is a job, which is over when it ends", true},
	{"pool", NULL,
		"Pawl has one set of nodes, and no pools: queue says which jobs share a quota",
		true},
	{"inputs", NULL, SIZES, true},
	{"outputs", NULL, SIZES, true},
	{"api_server_access", NULL, SKYPILOT, true},
	{"file_mounts_mapping", NULL, SKYPILOT, true},
	{"volumes", NULL, VOLUMES, false},
	{"volume_mounts", NULL, VOLUMES, false},
	{"managed_secrets", NULL,
		"not supported yet: Pawl keeps no secrets: give each by --secret NAME", false},
	{"event_callback", NULL, "not supported yet: call it at the end of run", false},
	{"execution", NULL, GROUPS, false},
	{"primary_tasks", NULL, GROUPS, false},
	{"termination_delay", NULL, GROUPS, false},
	{NULL},
};

/* ---- checks across keys ---- */

static void check_accelerators(struct jobfile *f)
{
	for (uint32_t i = 0; i < f->spec->choices_n; i++) {
		const struct sched_choice *choice = &f->spec->choices[i];

		if (choice->accelerators > 1) {
			jobfile_add_error(f, f->replicas,
				"replicas: each takes one accelerator, but resources has %s:%u: "
				"write %s there, and more replicas",
				choice->accelerator, choice->accelerators, choice->accelerator);
			return;
		}
	}
}

/* A choice that may be on spot nodes may be on others as well. So of two equal choices the spot one
 * covers both. */
static void check_use_spot(struct jobfile *f)
{
	const struct sched_choice *choices = f->choices;
	bool spot = false;
	bool firm = false;

	for (uint32_t i = 0; i < f->spec->choices_n; i++) {
		bool covered = false;

		for (uint32_t j = 0; j < f->spec->choices_n; j++) {
			covered = covered ||
				(choices[j].spot && jobfile_same_choice(&choices[i], &choices[j]));
		}
		spot = spot || choices[i].spot;
		firm = firm || !covered;
	}
	if (spot && firm) {
		jobfile_add_error(f, f->use_spot,
			"use_spot: only some choices have it, which is not supported yet: write it "
			"once, outside of any_of");
	}
}

static void set_spot(struct jobfile *f)
{
	struct sched_spec *spec = f->spec;

	if (f->spot && f->use_spot) {
		jobfile_add_error(f, f->spot,
			"spot and use_spot (line %u) mean the same: keep one of them",
			f->use_spot->line);
	} else if (f->spot && !f->unsized && spec->spot.most > spec->size.most) {
		jobfile_add_error(f, f->spot, "spot: up to %u, but the job has at most %u %s",
			spec->spot.most, spec->size.most, spec->elastic ? "replicas" : "nodes");
	} else if (!f->spot) {
		check_use_spot(f);
	}
	for (uint32_t i = 0; i < spec->choices_n; i++) {
		struct sched_choice *choice = &f->choices[i];

		choice->spot = f->spot ? spec->spot.most > 0 : choice->spot;
		if (!f->spot && choice->spot) {
			spec->spot.most = spec->size.most;
		}
	}
}

static void check(struct jobfile *f, const struct tree_node *root)
{
	if (f->replicas && f->num_nodes) {
		jobfile_add_error(f, f->replicas,
			"replicas and num_nodes (line %u) contradict each other: replicas is for a "
			"job whose size may change, num_nodes for one with a fixed size",
			f->num_nodes->line);
	} else if (f->replicas) {
		check_accelerators(f);
	}
	set_spot(f);
	if (!f->spec->run && f->spec->setup) {
		jobfile_add_error(f, root,
			"run is missing: give the command that the job runs; Pawl has no clusters "
			"that stay when setup is done");
	} else if (!f->spec->run) {
		jobfile_add_error(f, root, "run is missing: give the command that the job runs");
	}
}

/* ---- decoding ---- */

static void read_root(struct jobfile *f, const struct tree_node *root)
{
	struct reading reading = {.spec = f->spec};
	struct sections *sections = &reading.sections;

	jobfile_walk(f, root, jobfile_top_keys, jobfile_resource_keys, "resources", &reading);
	jobfile_resources(f, sections->resources);
	jobfile_vars(f, sections->envs, sections->secrets);
	if (f->arena->failed) {
		return;
	}
	if (sections->workdir) {
		f->spec->workdir =
			jobfile_expand(f, "workdir", sections->workdir, sections->workdir_text);
	}
	if (sections->mounts) {
		jobfile_mounts(f, sections->mounts);
	}
	if (!f->arena->failed) {
		check(f, root);
	}
	if (f->given->name) {
		f->spec->name =
			sched_arena_copy_text(f->arena, f->given->name, strlen(f->given->name));
	}
}

static int decode(struct jobfile *f, const void *bytes, size_t len_bytes, struct pawl_err *err)
{
	static const struct tree_node nowhere = {.line = 1, .column = 1};
	const struct tree_node *root = NULL;
	int rv = tree_parse(&root, bytes, len_bytes, f->arena, f->remarks, err);

	if (rv == 0 && root && root->kind == TREE_MAP) {
		read_root(f, root);
	} else if (rv == 0) {
		jobfile_add_error(f, root ? root : &nowhere,
			"a job file is a mapping of keys, such as run: python train.py");
	}
	remarks_sort(f->remarks);
	if (f->notes) {
		remarks_sort(f->notes);
	}
	if (rv == PAWL_ENOMEM || f->arena->failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "job file: no memory for its contents");
	}
	if (f->remarks->n > 0) {
		return pawl_err_set(err, PAWL_EINVAL, "job file: line %u, column %u: %s",
			f->remarks->at[0].line, f->remarks->at[0].column, f->remarks->at[0].text);
	}
	return 0;
}

/* What holds for a spec of which no error was reported. */
static void check_complete(const struct sched_spec *spec)
{
	ASSERT(spec->run && spec->queue);
	ASSERT(spec->choices_n >= 1 && spec->choices_n <= SPEC_CHOICES_MAX);
	ASSERT(spec->size.least >= 1 && spec->size.least <= spec->size.most);
	ASSERT(spec->size.most <= SPEC_NODES_MAX);
	ASSERT(spec->spot.least <= spec->spot.most && spec->spot.most <= spec->size.most);
}

int jobfile_decode(struct sched_spec *spec, const void *bytes, size_t len_bytes,
	const struct jobfile_given *given, struct remarks *remarks, struct remarks *notes,
	struct pawl_err *err)
{
	struct jobfile f = {.spec = spec,
		.given = given,
		.remarks = remarks,
		.notes = notes,
		.arena = &spec->arena};
	int rv;

	*spec = (struct sched_spec){.queue = QUEUE, .size = {1, 1}, .preemptible = true};
	rv = decode(&f, bytes, len_bytes, err);
	if (rv != 0) {
		sched_spec_deinit(spec);
		return rv;
	}
	check_complete(spec);
	return 0;
}
