/* The keys of a job file, and what holds between them: see jobfile.h. */
#include "sched/jobfile.h"

#include "base/err.h"
#include "sched/jobfile_impl.h"

#include <stdio.h>
#include <string.h>

#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define NAME_NEEDED                                                                                \
	"letters, digits, '.', '_' and '-', of which the first is a letter or digit, at most 63,"
#define QUEUE "default" /* where nothing is said */

/* Sections that are read once all keys are known. */
struct sections {
	const struct tree_node *resources; /* NULL: not there; likewise the others */
	const struct tree_node *envs;
	const struct tree_node *secrets;
	const struct tree_node *mounts;
	const struct tree_node *workdir;
	const char *workdir_text; /* of it, as it is written */
};

/* A key's reader, and what it reads into. */
struct reading {
	struct sched_spec *spec;
	struct sections sections;
};

void sched_spec_deinit(struct sched_spec *spec)
{
	pool_deinit(&spec->pool);
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
		jobfile_want(f, key, value, NAME_NEEDED);
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
		jobfile_say(f, value,
			"workdir: a repository (url, ref) is not yet: clone it in setup, and give "
			"a "
			"directory or none");
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

static void read_priority(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct sched_spec *spec = ((struct reading *)into)->spec;
	int64_t priority;

	if (jobfile_int(f, key, value, -SPEC_PRIORITY_MAX, SPEC_PRIORITY_MAX, &priority)) {
		spec->priority = (int32_t)priority;
	}
}

static void read_preemptible(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_bool(f, key, value, &((struct reading *)into)->spec->preemptible);
}

static void read_retries(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct sched_spec *spec = ((struct reading *)into)->spec;
	int64_t retries;

	if (jobfile_int(f, key, value, 0, SPEC_RETRIES_MAX, &retries)) {
		spec->retries = (uint32_t)retries;
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
		spec->run = ""; /* what is wrong with it was said */
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

#define GROUPS "a file is one job: submit each by itself, and leave it out"

const struct jobfile_key jobfile_top_keys[] = {
	{"name", read_name, NULL},
	{"workdir", read_workdir, NULL},
	{"num_nodes", read_num_nodes, NULL},
	{"resources", read_resources, NULL},
	{"envs", read_envs, NULL},
	{"secrets", read_secrets, NULL},
	{"file_mounts", read_mounts, NULL},
	{"setup", read_setup, NULL},
	{"run", read_run, NULL},
	{"replicas", read_replicas, NULL},
	{"spot", read_spot, NULL},
	{"queue", read_queue, NULL},
	{"priority", read_priority, NULL},
	{"preemptible", read_preemptible, NULL},
	{"retries", read_retries, NULL},
	{"time_limit", read_time_limit, NULL},
	{"config", NULL,
		"settings of clouds, Kubernetes and containers are not Pawl's: leave it out; pawl "
		"run "
		"hears of notices by itself, without hooks"},
	{"experimental", NULL, "settings of clouds are not Pawl's: leave it out"},
	{"service", NULL, "Pawl runs jobs that end, and serves nothing: leave it out"},
	{"pool", NULL, "Pawl has one set of nodes, and no pools: leave it out, or name a queue"},
	{"volumes", NULL,
		"Pawl makes no volumes: mount a directory that the nodes share by file_mounts"},
	{"inputs", NULL, "it is for choosing a cloud, and Pawl rents none: leave it out"},
	{"outputs", NULL, "it is for choosing a cloud, and Pawl rents none: leave it out"},
	{"event_callback", NULL, "not yet: have run end with what is to be called"},
	{"execution", NULL, GROUPS},
	{"primary_tasks", NULL, GROUPS},
	{"termination_delay", NULL, GROUPS},
	{NULL},
};

/* ---- what holds between keys ---- */

static void check_accelerators(struct jobfile *f)
{
	for (uint32_t i = 0; i < f->spec->choices_n; i++) {
		const struct sched_choice *choice = &f->spec->choices[i];

		if (choice->accelerators > 1) {
			jobfile_say(f, f->replicas,
				"replicas: each takes one accelerator, and resources asks for "
				"%s:%u: "
				"write %s there, and as many replicas",
				choice->accelerator, choice->accelerators, choice->accelerator);
			return;
		}
	}
}

static bool is_alike(const struct sched_choice *a, const struct sched_choice *b)
{
	return a->accelerators == b->accelerators &&
		(a->accelerators == 0 || strcmp(a->accelerator, b->accelerator) == 0) &&
		a->cpus_milli == b->cpus_milli && a->memory_bytes == b->memory_bytes &&
		a->disk_bytes == b->disk_bytes && a->disk_best == b->disk_best;
}

/* What may be on spot nodes may be on others as well, so one of two that are alike says all. */
static void check_use_spot(struct jobfile *f)
{
	const struct sched_choice *choices = f->choices;
	bool spot = false;
	bool firm = false;

	for (uint32_t i = 0; i < f->spec->choices_n; i++) {
		bool covered = false;

		for (uint32_t j = 0; j < f->spec->choices_n; j++) {
			covered =
				covered || (choices[j].spot && is_alike(&choices[i], &choices[j]));
		}
		spot = spot || choices[i].spot;
		firm = firm || !covered;
	}
	if (spot && firm) {
		jobfile_say(f, f->use_spot,
			"use_spot: of only some choices is not yet: say it once, outside of "
			"any_of");
	}
}

static void set_spot(struct jobfile *f)
{
	struct sched_spec *spec = f->spec;

	if (f->spot && f->use_spot) {
		jobfile_say(f, f->spot,
			"spot and use_spot (line %u) say the same thing: keep one of them",
			f->use_spot->line);
	} else if (f->spot && !f->unsized && spec->spot.most > spec->size.most) {
		jobfile_say(f, f->spot, "spot: up to %u of the job's %u %s", spec->spot.most,
			spec->size.most, spec->elastic ? "replicas" : "nodes");
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
		jobfile_say(f, f->replicas,
			"replicas and num_nodes (line %u) contradict each other: replicas is for a "
			"job "
			"whose size may change, num_nodes for one that has all its nodes",
			f->num_nodes->line);
	} else if (f->replicas) {
		check_accelerators(f);
	}
	set_spot(f);
	if (!f->spec->run) {
		jobfile_say(f, root, "run is missing: what is the job to do?");
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
	if (f->pool->failed) {
		return;
	}
	if (sections->workdir) {
		f->spec->workdir =
			jobfile_expand(f, "workdir", sections->workdir, sections->workdir_text);
	}
	if (sections->mounts) {
		jobfile_mounts(f, sections->mounts);
	}
	if (!f->pool->failed) {
		check(f, root);
	}
	if (f->given->name) {
		f->spec->name = pool_text(f->pool, f->given->name, strlen(f->given->name));
	}
}

static int decode(struct jobfile *f, const void *bytes, size_t len_bytes, struct pawl_err *err)
{
	static const struct tree_node nowhere = {.line = 1, .column = 1};
	const struct tree_node *root = NULL;
	int rv = tree_parse(&root, bytes, len_bytes, f->pool, f->remarks, err);

	if (rv == 0 && root && root->kind == TREE_MAP) {
		read_root(f, root);
	} else if (rv == 0) {
		jobfile_say(f, root ? root : &nowhere,
			"a job file is a mapping of keys, as run: python train.py");
	}
	remarks_sort(f->remarks);
	if (rv == PAWL_ENOMEM || f->pool->failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "job file: no memory for what it says");
	}
	if (f->remarks->n > 0) {
		return pawl_err_set(err, PAWL_EINVAL, "job file: line %u, column %u: %s",
			f->remarks->at[0].line, f->remarks->at[0].column, f->remarks->at[0].text);
	}
	return 0;
}

int jobfile_decode(struct sched_spec *spec, const void *bytes, size_t len_bytes,
	const struct jobfile_given *given, struct remarks *remarks, struct pawl_err *err)
{
	struct jobfile f = {.spec = spec, .given = given, .remarks = remarks, .pool = &spec->pool};
	int rv;

	*spec = (struct sched_spec){.queue = QUEUE, .size = {1, 1}, .preemptible = true};
	rv = decode(&f, bytes, len_bytes, err);
	if (rv != 0) {
		sched_spec_deinit(spec);
	}
	return rv;
}
