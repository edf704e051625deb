/*
 * Finds which rank this process is, of how many, and of which job: see pawl/env.h.
 *
 * Each launcher is a row of names. The first row whose key variable is set is read whole; facts it
 * does not state follow from those it does, and facts it states twice must agree.
 */
#include "pawl/env.h"

#include "base/err.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 3u  /* variables that may state the same fact; the first that is set counts */
#define UUID_LEN  36u /* characters of "c7bebac7-0b8b-4d42-8a0c-743aad686c68" */
#define RANKS_MAX 1000000u /* ranks of a job, at most; a larger number is a mistake */

/* Facts that a launcher can state. */
enum fact_kind { RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, NODE_RANK, NODES, FACTS_N };

/* One statement as found in the environment. */
struct fact {
	const char *name; /* variable that states the fact; NULL: none does */
	uint32_t value;   /* as stated, or as it follows from the other facts */
};

/* Source of variables. */
struct source {
	pawl_getenv_fn *get; /* never NULL */
	void *user;          /* passed to get */
};

/* The names under which one launcher states the facts. */
struct launcher {
	const char *name;   /* as in pawl_env.source */
	enum fact_kind key; /* fact that shows that this launcher started the process */
	const char *names[FACTS_N][NAMES_MAX]; /* NULL-terminated where shorter */
};

static const struct launcher launchers[] = {
	{"pawl", RANK,
		{[RANK] = {"PAWL_RANK"},
			[WORLD] = {"PAWL_WORLD_SIZE"},
			[LOCAL_RANK] = {"PAWL_LOCAL_RANK"},
			[LOCAL_WORLD] = {"PAWL_LOCAL_WORLD_SIZE"},
			[NODE_RANK] = {"PAWL_NODE_RANK"},
			[NODES] = {"PAWL_NNODES"}}},
	{"torchrun", RANK,
		{[RANK] = {"RANK"},
			[WORLD] = {"WORLD_SIZE"},
			[LOCAL_RANK] = {"LOCAL_RANK"},
			[LOCAL_WORLD] = {"LOCAL_WORLD_SIZE"},
			[NODE_RANK] = {"GROUP_RANK"},
			[NODES] = {"GROUP_WORLD_SIZE"}}},
	{"skypilot", NODE_RANK,
		{[NODE_RANK] = {"SKYPILOT_NODE_RANK"}, [NODES] = {"SKYPILOT_NUM_NODES"}}},
	{"slurm", RANK,
		{[RANK] = {"SLURM_PROCID"},
			[WORLD] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
			[LOCAL_RANK] = {"SLURM_LOCALID"},
			[NODE_RANK] = {"SLURM_NODEID"},
			[NODES] = {"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"}}},
	{"kubernetes", NODE_RANK,
		{[NODE_RANK] = {"JOB_COMPLETION_INDEX"}, [NODES] = {"PAWL_NNODES"}}},
	{"openmpi", RANK,
		{[RANK] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"},
			[WORLD] = {"OMPI_COMM_WORLD_SIZE"},
			[LOCAL_RANK] = {"OMPI_COMM_WORLD_LOCAL_RANK"},
			[LOCAL_WORLD] = {"OMPI_COMM_WORLD_LOCAL_SIZE"}}},
};

#define LAUNCHERS_N (sizeof(launchers) / sizeof(launchers[0]))

static const char *get_process_env(void *user, const char *name)
{
	return getenv(name);
}

/* Looks up a variable. An empty one counts as unset, because shells hardly distinguish the two. */
static const char *lookup(const struct source *from, const char *name)
{
	const char *text = from->get(from->user, name);

	return text != NULL && text[0] != '\0' ? text : NULL;
}

static int parse_number(const char *name, const char *text, uint32_t *value, struct pawl_err *err)
{
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0) {
		return pawl_err_set(err, PAWL_EINVAL, "%s=%s is not a number", name, text);
	}
	if (number > RANKS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "%s=%s is more than %u", name, text,
			RANKS_MAX);
	}
	*value = (uint32_t)number;
	return 0;
}

/* Reads the first of names that is set; leaves *fact as it is when none is. */
static int read_fact(const struct source *from, const char *const names[NAMES_MAX],
	struct fact *fact, struct pawl_err *err)
{
	for (unsigned i = 0; i < NAMES_MAX && names[i] != NULL; i++) {
		const char *text = lookup(from, names[i]);

		if (text != NULL) {
			fact->name = names[i];
			return parse_number(names[i], text, &fact->value, err);
		}
	}
	return 0;
}

/* Whether srun started this process itself: other processes have Slurm's variables, too. */
static bool is_slurm_task(const struct source *from)
{
	const char *environment = lookup(from, "ENVIRONMENT");
	bool batch = environment != NULL && strcmp(environment, "BATCH") == 0;

	if (lookup(from, "OMPI_COMM_WORLD_RANK") != NULL) {
		return false; /* mpirun's daemon is the task */
	}
	/* The batch script itself looks like task 0 of --ntasks, but is alone. */
	return !batch || lookup(from, "SLURM_STEP_ID") != NULL;
}

/* Whether the process called MPI_Init without a launcher: Open MPI calls it rank 0 of a world of
 * its own. Lightning calls MPI_Init where mpi4py is installed. */
static bool is_mpi_singleton(const struct source *from)
{
	const char *how = lookup(from, "OMPI_MCA_ess");

	return lookup(from, "OMPI_COMM_WORLD_RANK") == NULL && how != NULL &&
		strcmp(how, "singleton") == 0;
}

static bool was_launched_by(const struct source *from, const struct launcher *launcher)
{
	const char *const *names = launcher->names[launcher->key];
	bool keyed = false;

	for (unsigned i = 0; i < NAMES_MAX && names[i] != NULL; i++) {
		keyed = keyed || lookup(from, names[i]) != NULL;
	}
	if (strcmp(launcher->name, "slurm") == 0) {
		return keyed && is_slurm_task(from);
	}
	if (strcmp(launcher->name, "kubernetes") == 0) {
		/* An index alone may belong to one of many independent jobs. */
		return keyed && lookup(from, "PAWL_NNODES") != NULL;
	}
	if (strcmp(launcher->name, "openmpi") == 0) {
		return keyed && !is_mpi_singleton(from);
	}
	return keyed;
}

/* Reads Slurm's "2(x3),1": two tasks on each of three nodes, one on the fourth. Returns 0 if the
 * text does not list the node. */
static uint32_t slurm_tasks_of_node(const char *text, uint32_t node)
{
	while (text != NULL && *text != '\0') {
		unsigned tasks;
		unsigned times = 1;
		int used = 0;

		if (sscanf(text, "%u%n", &tasks, &used) != 1) {
			return 0;
		}
		text += used;
		if (sscanf(text, "(x%u)%n", &times, &used) == 1) {
			text += used;
		}
		if (node < times) {
			return tasks;
		}
		node -= times;
		text += *text == ',';
	}
	return 0;
}

static void amend_slurm(const struct source *from, struct fact *facts)
{
	const char *tasks = lookup(from, "SLURM_STEP_TASKS_PER_NODE");

	if (tasks == NULL) {
		tasks = lookup(from, "SLURM_TASKS_PER_NODE");
	}
	if (facts[NODES].value > facts[WORLD].value) {
		/* NODES counted the job's nodes, not the step's. */
		facts[NODES].value = facts[WORLD].value;
	}
	facts[LOCAL_WORLD].value = slurm_tasks_of_node(tasks, facts[NODE_RANK].value);
	if (facts[LOCAL_WORLD].value != 0) {
		facts[LOCAL_WORLD].name = "SLURM_TASKS_PER_NODE";
	}
}

/* A launcher that states facts about nodes alone starts one process on each. */
static void amend_node_launcher(struct fact *facts)
{
	facts[RANK] = facts[NODE_RANK];
	facts[WORLD] = facts[NODES];
	facts[LOCAL_WORLD].value = 1;
	facts[LOCAL_WORLD].name = facts[NODES].name;
	facts[LOCAL_RANK].name = facts[NODES].name;
}

/* Fills in facts that no variable states: one node unless the sizes imply more, ranks in blocks. */
static void complete_facts(struct fact *f)
{
	if (f[LOCAL_WORLD].name == NULL) {
		f[LOCAL_WORLD].value = f[WORLD].value;
		if (f[NODES].name != NULL && f[NODES].value != 0) {
			f[LOCAL_WORLD].value = f[WORLD].value / f[NODES].value;
		}
	}
	if (f[NODES].name == NULL && f[LOCAL_WORLD].value != 0) {
		f[NODES].value = (f[WORLD].value - 1) / f[LOCAL_WORLD].value + 1;
	}
	if (f[LOCAL_RANK].name == NULL && f[LOCAL_WORLD].value != 0) {
		f[LOCAL_RANK].value = f[RANK].value % f[LOCAL_WORLD].value;
	}
	if (f[NODE_RANK].name == NULL && f[LOCAL_WORLD].value != 0) {
		f[NODE_RANK].value = f[RANK].value / f[LOCAL_WORLD].value;
		if (f[NODE_RANK].value >= f[NODES].value) {
			f[NODE_RANK].value = f[NODES].value - 1; /* uneven nodes: a guess */
		}
	}
}

static int check_below(const struct fact *rank, const struct fact *size, struct pawl_err *err)
{
	if (rank->value < size->value || rank->name == NULL) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL, "%s=%u contradicts %s=%u: ranks count from 0",
		rank->name, rank->value, size->name != NULL ? size->name : "its size", size->value);
}

static int check_facts(const struct fact *f, struct pawl_err *err)
{
	int rv = check_below(&f[RANK], &f[WORLD], err);

	if (rv == 0) {
		rv = check_below(&f[LOCAL_RANK], &f[LOCAL_WORLD], err);
	}
	if (rv == 0) {
		rv = check_below(&f[NODE_RANK], &f[NODES], err);
	}
	if (rv != 0) {
		return rv;
	}
	if (f[NODES].value < 1 || f[NODES].value > f[WORLD].value) {
		return pawl_err_set(err, PAWL_EINVAL, "%s=%u contradicts %s=%u", f[NODES].name,
			f[NODES].value, f[WORLD].name, f[WORLD].value);
	}
	if (f[LOCAL_WORLD].value < 1 ||
		f[LOCAL_WORLD].value > f[WORLD].value - (f[NODES].value - 1) ||
		(f[NODES].value == 1 && f[LOCAL_WORLD].value != f[WORLD].value)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s=%u contradicts %s=%u on %u node%s",
			f[LOCAL_WORLD].name != NULL ? f[LOCAL_WORLD].name : "local size",
			f[LOCAL_WORLD].value, f[WORLD].name, f[WORLD].value, f[NODES].value,
			f[NODES].value == 1 ? "" : "s");
	}
	return 0;
}

static int resolve_rank(const struct source *from, const struct launcher *launcher,
	struct pawl_env *env, struct pawl_err *err)
{
	struct fact f[FACTS_N] = {{NULL, 0}};
	enum fact_kind size = launcher->key == RANK ? WORLD : NODES;
	int rv;

	for (unsigned kind = 0; kind < FACTS_N; kind++) {
		rv = read_fact(from, launcher->names[kind], &f[kind], err);
		if (rv != 0) {
			return rv;
		}
	}
	if (f[size].name == NULL) {
		return pawl_err_set(err, PAWL_EINVAL, "%s=%u is set, but %s is not",
			f[launcher->key].name, f[launcher->key].value, launcher->names[size][0]);
	}
	if (launcher->key == NODE_RANK) {
		amend_node_launcher(f);
	} else if (strcmp(launcher->name, "slurm") == 0) {
		amend_slurm(from, f);
	}
	complete_facts(f);
	rv = check_facts(f, err);
	if (rv != 0) {
		return rv;
	}
	env->rank = f[RANK].value;
	env->world = f[WORLD].value;
	env->local_rank = f[LOCAL_RANK].value;
	env->local_world = f[LOCAL_WORLD].value;
	env->node_rank = f[NODE_RANK].value;
	env->nodes = f[NODES].value;
	return 0;
}

/* Whether text is a UUID: torchrun without --rdzv-id makes one up for each start, so it does not
 * name the job. */
static bool is_uuid(const char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len && len == UUID_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i])) {
			return false;
		}
	}
	return len == UUID_LEN;
}

static int set_job(struct pawl_env *env, const char *source, const char *prefix, const char *id,
	struct pawl_err *err)
{
	const char *dash = prefix[0] != '\0' ? "_" : "";
	int len = snprintf(env->job, sizeof(env->job), "%s%s%s", prefix, dash, id);

	if (len < 0 || (size_t)len >= sizeof(env->job)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s=%s%s%s is longer than %u bytes", source,
			prefix, dash, id, PAWL_JOB_MAX - 1);
	}
	snprintf(env->job_source, sizeof(env->job_source), "%s", source);
	return 0;
}

static int resolve_job(const struct source *from, struct pawl_env *env, struct pawl_err *err)
{
	const char *run_id = lookup(from, "TORCHELASTIC_RUN_ID");
	const char *array = lookup(from, "SLURM_ARRAY_JOB_ID");
	const char *task = lookup(from, "SLURM_ARRAY_TASK_ID");
	const char *id = lookup(from, "PAWL_JOB_ID");

	if (run_id != NULL && strcmp(run_id, "none") == 0) {
		run_id = NULL;
	}
	if (id != NULL) {
		return set_job(env, "PAWL_JOB_ID", "", id, err);
	}
	if (run_id != NULL && !is_uuid(run_id)) {
		return set_job(env, "TORCHELASTIC_RUN_ID", "", run_id, err);
	}
	id = lookup(from, "SKYPILOT_TASK_ID");
	if (id != NULL) {
		return set_job(env, "SKYPILOT_TASK_ID", "", id, err);
	}
	if (array != NULL && task != NULL) {
		return set_job(env, "SLURM_ARRAY_JOB_ID", array, task, err);
	}
	id = lookup(from, "SLURM_JOB_ID");
	if (id != NULL) {
		return set_job(env, "SLURM_JOB_ID", "", id, err);
	}
	return run_id != NULL ? set_job(env, "TORCHELASTIC_RUN_ID", "", run_id, err) : 0;
}

static int resolve_attempt(const struct source *from, struct pawl_env *env, struct pawl_err *err)
{
	static const char *const names[NAMES_MAX] = {"PAWL_ATTEMPT", "TORCHELASTIC_RESTART_COUNT",
		"SLURM_RESTART_COUNT"};
	struct fact attempt = {NULL, 0};
	int rv = read_fact(from, names, &attempt, err);

	env->attempt = attempt.value;
	return rv;
}

int pawl_env_resolve(pawl_getenv_fn *get, void *user, struct pawl_env *env, struct pawl_err *err)
{
	const struct source from = {get != NULL ? get : get_process_env, user};
	struct pawl_env found = {.world = 1, .local_world = 1, .nodes = 1, .source = "none"};
	int rv = 0;

	for (size_t i = 0; i < LAUNCHERS_N; i++) {
		if (was_launched_by(&from, &launchers[i])) {
			snprintf(found.source, sizeof(found.source), "%s", launchers[i].name);
			rv = resolve_rank(&from, &launchers[i], &found, err);
			break;
		}
	}
	if (rv == 0) {
		rv = resolve_job(&from, &found, err);
	}
	if (rv == 0) {
		rv = resolve_attempt(&from, &found, err);
	}
	if (rv == 0) {
		*env = found;
	}
	return rv;
}
