/* pawl sim: a cluster in virtual time, under one policy or several. */
#include "cli/sched/sim.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "cli/cli.h"
#include "sched/sim/models.h"
#include "sched/sim/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES_MAX  100000u
#define SLOTS_MAX  1024u
#define JOBS_MAX   1000000u
#define SECONDS_M  86400.0 /* seconds of a round or of a restart, at most */
#define NAMES_MAX  256u    /* bytes of --policy */
#define FACTOR_MAX 100.0   /* factor of wrong noise, at most */
#define SHORT_PART 2       /* number of last parts of a path that name a workload */

enum option {
	POLICY,
	PROFILES,
	NODES,
	GPUS,
	INTERVAL,
	RESTART,
	INTERFERENCE,
	JOBS,
	SEED,
	FAIRNESS,
	HINT_ERROR,
	POOL,
	GOOD_USE,
	COMPARE,
	REPORT,
	PYTHON,
	JSON
};

static const struct cli_option options[] = {
	[POLICY] = {"--policy", 0, "NAMES", "policies to simulate, e.g. fifo,optimus (all)"},
	[PROFILES] = {"--profiles", 0, "DIR",
		"directory of measured applications (built-in models)"},
	[NODES] = {"--nodes", 0, "N", "nodes of the cluster (16)"},
	[GPUS] = {"--gpus", 0, "N", "GPUs of each node, one per replica (4)"},
	[INTERVAL] = {"--interval", 0, "S", "seconds between decisions (60)"},
	[RESTART] = {"--restart", 0, "S", "seconds a job stands still to change its replicas (30)"},
	[INTERFERENCE] = {"--interference", 0, "X",
		"speed share a multi-node job loses on a shared node (0)"},
	[JOBS] = {"--jobs", 0, "N", "jobs of the built-in trace (160)"},
	[SEED] = {"--seed", 0, "N", "random seed of the built-in trace and policies (1)"},
	[FAIRNESS] = {"--fairness", 0, "X", "weight of fairness in the policy pawl, up to 16 (1)"},
	[HINT_ERROR] = {"--hint-error", 0, "T,F",
		"hint error: throughput by share T, noise by factor F"},
	[POOL] = {"--pool", 0, "NAME,…", "pool of rented nodes; --nodes limits all; repeatable"},
	[GOOD_USE] = {"--good-use", 0, "X",
		"rent while a replica does X of a lone one's work (0.5)"},
	[COMPARE] = {"--compare", 0, NULL, "compare each policy with the first, side by side"},
	[REPORT] = {"--report", 0, "DIR", "plot jobs on nodes over time; keep the data in DIR"},
	[PYTHON] = {"--python", 0, "PATH", "Python interpreter that has pawl and matplotlib"},
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

/* The command line, without the table's policies and the setting. */
struct sim_args {
	const char *profiles;                 /* NULL: built-in models */
	const char *paths[SIM_WORKLOADS_MAX]; /* paths of workloads */
	uint32_t paths_n;                     /* 0: the built-in trace */
	uint64_t jobs;                        /* jobs of the built-in trace */
	struct sim_pools pools;               /* pools of nodes that are rented */
	bool compare, json;                   /* --compare, --json */
	const char *report;                   /* directory; NULL: none */
	const char *python; /* interpreter for the report; NULL: as pawl run finds it */
};

/* The progress of a run, for messages to the user, and its history. */
struct sim_progress {
	struct sim_history *history; /* NULL: none */
	const char *workload, *policy;
	uint32_t jobs;   /* jobs of the workload */
	int64_t last_ns; /* time of the last message, or of the start */
};

/* ---- the command line ---- */

static bool add_policy(const struct cli_command *command, struct sim_table *table, const char *name)
{
	const struct sched_policy_entry *policy = sched_policy_find(name);
	char all[NAMES_MAX] = "";
	size_t len = 0;

	if (policy != NULL && table->policies_n < SIM_POLICIES_MAX) {
		table->policies[table->policies_n++] = policy;
		return true;
	}
	if (policy != NULL) {
		cli_usage(command, "--policy: more than %u", SIM_POLICIES_MAX);
		return false;
	}
	for (uint32_t i = 0; (policy = sched_policy_row(i)) != NULL && len < sizeof(all); i++) {
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", i > 0 ? ", " : "",
			policy->policy->name);
	}
	cli_usage(command, "--policy %s: the policies are %s", name, all);
	return false;
}

static bool add_policies(const struct cli_command *command, struct sim_table *table,
	const char *names)
{
	char copy[NAMES_MAX];
	char *at = copy;
	bool all = true;

	if (snprintf(copy, sizeof(copy), "%s", names) >= (int)sizeof(copy)) {
		cli_usage(command, "--policy: too long");
		return false;
	}
	while (all && at != NULL) {
		all = add_policy(command, table, strsep(&at, ","));
	}
	return all;
}

static bool read_count(const struct cli_command *command, const char *what, const char *text,
	uint32_t most, uint32_t *count)
{
	uint64_t number;

	if (!cli_number(command, what, text, 1, most, &number)) {
		return false;
	}
	*count = (uint32_t)number;
	return true;
}

/* Reads seconds. least: fewest ns; 1 means more than 0. */
static bool read_seconds(const struct cli_command *command, const char *what, const char *text,
	int64_t least, double *seconds)
{
	int64_t ns;

	if (!cli_seconds(command, what, text, SECONDS_M, &ns)) {
		return false;
	}
	if (ns < least) {
		cli_usage(command, "%s %s: more than 0 seconds are needed", what, text);
		return false;
	}
	*seconds = (double)ns / NS_PER_S;
	return true;
}

static bool read_share(const struct cli_command *command, const char *what, const char *text,
	double *share)
{
	char *end;

	*share = strtod(text, &end);
	if (end == text || *end != '\0' || !(*share >= 0 && *share < 1)) {
		cli_usage(command, "%s %s: a number from 0 to below 1 is needed", what, text);
		return false;
	}
	return true;
}

/* Reads the errors of hints: a share, a comma, a factor. */
static bool read_errors(const struct cli_command *command, const char *text,
	struct sched_setting *setting)
{
	char *end;

	setting->speed_error = strtod(text, &end);
	setting->noise_error = *end == ',' ? strtod(end + 1, &end) : NAN;
	if (*end != '\0' || !(setting->speed_error >= 0 && setting->speed_error < 1) ||
		!(setting->noise_error >= 1 && setting->noise_error <= FACTOR_MAX)) {
		cli_usage(command,
			"--hint-error %s: a share below 1 and a factor from 1 to %g are needed, "
			"such as 0.3,3",
			text, FACTOR_MAX);
		return false;
	}
	return true;
}

static bool read_over_0(const struct cli_command *command, const char *what, const char *text,
	double most, double *number)
{
	char *end;

	*number = strtod(text, &end);
	if (end == text || *end != '\0' || !(*number > 0 && *number <= most)) {
		cli_usage(command, "%s %s: a number over 0, and at most %g, is needed", what, text,
			most);
		return false;
	}
	return true;
}

static bool read_path(const struct cli_command *command, struct sim_args *args, const char *path)
{
	if (args->paths_n == SIM_WORKLOADS_MAX) {
		cli_usage(command, "more than %u workloads", SIM_WORKLOADS_MAX);
		return false;
	}
	args->paths[args->paths_n++] = path;
	return true;
}

static bool read_option(const struct cli_command *command, int what, const char *value,
	struct sim_args *args, struct sim_table *table, struct sched_setting *setting)
{
	switch (what) {
	case CLI_ARG:
		return read_path(command, args, value);
	case POLICY:
		return add_policies(command, table, value);
	case PROFILES:
		args->profiles = value;
		return true;
	case NODES:
		return read_count(command, "--nodes", value, NODES_MAX, &setting->nodes);
	case GPUS:
		return read_count(command, "--gpus", value, SLOTS_MAX, &setting->slots);
	case INTERVAL:
		return read_seconds(command, "--interval", value, 1, &setting->interval_s);
	case RESTART:
		return read_seconds(command, "--restart", value, 0, &setting->restart_s);
	case INTERFERENCE:
		return read_share(command, "--interference", value, &setting->interference);
	case JOBS:
		return cli_number(command, "--jobs", value, 1, JOBS_MAX, &args->jobs);
	case SEED:
		return cli_number(command, "--seed", value, 0, UINT64_MAX, &setting->seed);
	case FAIRNESS:
		return read_over_0(command, "--fairness", value, SCHED_FAIRNESS_MAX,
			&setting->fairness);
	case HINT_ERROR:
		return read_errors(command, value, setting);
	case POOL:
		return sim_pool_read(command, value, &args->pools);
	case GOOD_USE:
		return read_over_0(command, "--good-use", value, 1, &setting->good_use);
	case COMPARE:
		args->compare = true;
		return true;
	case REPORT:
		args->report = value;
		return true;
	case PYTHON:
		args->python = value;
		return true;
	default:
		args->json = true;
		return true;
	}
}

/* Adds all policies; adapts: only those whose jobs adapt. */
static void add_all(struct sim_table *table, bool adapts)
{
	const struct sched_policy_entry *policy;

	for (uint32_t i = 0; (policy = sched_policy_row(i)) != NULL; i++) {
		if (policy->adapts || !adapts) {
			table->policies[table->policies_n++] = policy;
		}
	}
}

/* ---- simulating ---- */

/* Names a workload by its folder and file, without .csv. */
static void name_workload(struct sched_workload *workload, const char *path)
{
	const char *from = path + strlen(path);
	int parts = 0;
	size_t len;

	while (from > path && parts < SHORT_PART) {
		from--;
		parts += *from == '/';
	}
	from += *from == '/';
	len = strlen(from);
	len -= len > 4 && strcmp(from + len - 4, ".csv") == 0 ? 4 : 0;
	snprintf(workload->name, sizeof(workload->name), "%.*s", (int)len, from);
}

static int load(struct sim_table *table, struct sched_apps *apps, const struct sim_args *args,
	uint64_t seed, struct pawl_err *err)
{
	int rv = args->profiles ? sched_profiles_load(apps, args->profiles, err)
				: sched_models_load(apps, err);

	if (rv == 0 && args->paths_n == 0) {
		return sched_models_trace(&table->workloads[table->workloads_n++], apps,
			(uint32_t)args->jobs, seed, err);
	}
	for (uint32_t i = 0; i < args->paths_n && rv == 0; i++) {
		struct sched_workload *workload = &table->workloads[table->workloads_n++];

		rv = sched_workload_load(workload, apps, args->paths[i], err);
		name_workload(workload, args->paths[i]);
	}
	return rv;
}

static void print_progress(void *user, double now_s, uint32_t done)
{
	struct sim_progress *progress = user;
	int64_t now_ns = clock_mono_ns();

	if (now_ns - progress->last_ns >= times_ns(TIME_SIM_PROGRESS)) {
		progress->last_ns = now_ns;
		cli_print(stderr, "pawl sim: %s, %s: after %.0f h %u of %u jobs are done\n",
			progress->workload, progress->policy, now_s / 3600, done, progress->jobs);
	}
}

static void record_change(void *user, const struct sched_sim_change *change)
{
	struct sim_progress *progress = user;

	sim_history_add(progress->history, change);
}

static int simulate_one(struct sim_table *table, uint32_t i, struct sched_setting *setting,
	struct pawl_err *err)
{
	const struct sched_workload *workload = &table->workloads[i / table->policies_n];
	const struct sched_policy_entry *policy = table->policies[i % table->policies_n];
	struct sim_progress *progress = setting->user;
	struct sched_outcome outcome = {0};
	int rv;

	progress->workload = workload->name;
	progress->policy = policy->policy->name;
	progress->jobs = workload->n;
	rv = sched_sim_run(&outcome, policy, workload, setting, err);
	table->metrics[i] = outcome.metrics;
	sched_outcome_deinit(&outcome);
	return rv ? pawl_err_prefix(err, rv, "%s", workload->name) : 0;
}

/* Simulates as simulate_one does, and keeps the changes in a file in dir. path: set to that file's
 * path. */
static int simulate_kept(struct sim_table *table, uint32_t i, struct sched_setting *setting,
	const char *dir, char path[PATH_MAX], struct pawl_err *err)
{
	struct sim_progress *progress = setting->user;
	struct pawl_err of_close;
	int rv = sim_history_open(&progress->history, path, PATH_MAX, dir,
		table->workloads[i / table->policies_n].name,
		table->policies[i % table->policies_n]->policy->name, err);
	int closed;

	if (rv != 0) {
		return rv;
	}
	setting->on_change = record_change;
	rv = simulate_one(table, i, setting, err);
	closed = sim_history_close(progress->history, path, &of_close);
	if (rv == 0 && closed != 0) {
		*err = of_close;
		rv = closed;
	}
	return rv;
}

/* Simulates every policy on every workload. paths: set to the files of the histories, with
 * --report. */
static int simulate(struct sim_table *table, const struct sched_setting *of,
	const struct sim_args *args, char paths[][PATH_MAX], struct pawl_err *err)
{
	struct sim_progress progress = {.last_ns = clock_mono_ns()};
	struct sched_setting setting = *of;
	uint32_t n = table->workloads_n * table->policies_n;
	int rv = 0;

	if (args->report && n > SIM_HISTORIES_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"--report: one picture cannot show %u runs, but at most %u", n,
			SIM_HISTORIES_MAX);
	}
	table->metrics = calloc(n, sizeof(*table->metrics));
	if (table->metrics == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	setting.clock_ns = clock_mono_ns;
	setting.on_progress = print_progress;
	setting.user = &progress;
	for (uint32_t i = 0; i < n && rv == 0; i++) {
		rv = args->report ? simulate_kept(table, i, &setting, args->report, paths[i], err)
				  : simulate_one(table, i, &setting, err);
	}
	return rv;
}

static int print(const struct sim_table *table, const struct sched_setting *setting,
	const struct sim_args *args)
{
	if (args->json) {
		return sim_print_json(table, setting);
	}
	(args->compare ? sim_print_compared : sim_print)(table);
	return CLI_OK;
}

static int main_sim(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct sched_setting setting = {.nodes = 16,
		.slots = 4,
		.interval_s = 60,
		.restart_s = 30,
		.seed = 1};
	static struct sim_table table;
	static struct sim_args args = {.jobs = MODEL_JOBS};
	static char paths[SIM_HISTORIES_MAX][PATH_MAX];
	struct sched_apps apps = {0};
	struct pawl_err err;
	int what;
	int rv;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_HELP || what == CLI_BAD) {
			return cli_read_exit_code(what);
		}
		if (!read_option(command, what, reader.value, &args, &table, &setting)) {
			return CLI_USAGE;
		}
	}
	if (args.pools.n > 0 && setting.interference > 0) {
		return cli_usage(command,
			"--interference has no effect with --pool: give only one of them");
	}
	setting.pools = args.pools.pools;
	setting.pools_n = args.pools.n;
	if (table.policies_n == 0) {
		add_all(&table, setting.pools_n > 0);
	}
	rv = load(&table, &apps, &args, setting.seed, &err);
	rv = rv ? rv : simulate(&table, &setting, &args, paths, &err);
	rv = rv ? cli_fail(command, &err) : print(&table, &setting, &args);
	if (rv == CLI_OK && args.report) {
		fflush(stdout);
		if (args.json) {
			dup2(STDERR_FILENO, STDOUT_FILENO); /* messages about the picture */
		}
		sim_history_draw(paths, table.workloads_n * table.policies_n, args.report,
			args.python, &err);
		rv = cli_fail(command, &err);
	}
	free(table.metrics);
	for (uint32_t w = 0; w < table.workloads_n; w++) {
		sched_workload_deinit(&table.workloads[w]);
	}
	sched_apps_deinit(&apps);
	return rv;
}

const struct cli_command cli_sim = {
	.name = "sim",
	.args = "[WORKLOAD.csv …]",
	.summary = "Simulate how policies share a cluster among jobs",
	.details = "WORKLOAD.csv has one job per line, sorted by time, with the columns\n"
		   "name,time,application,num_replicas,batch_size. Without a workload, a trace of\n"
		   "8 hours is made from --seed. --profiles names published step times and\n"
		   "gradients of applications. docs/sim.md describes their layout, what is\n"
		   "simulated, and the columns of the output.\n"
		   "\n"
		   "  pawl      the most goodput, shared fairly; the default of pawl sched\n"
		   "  pollux    the same objective, by the genetic algorithm of Pollux's paper\n"
		   "  fifo      in order of submission, each job until it ends\n"
		   "  tiresias  least attained service first, in two queues\n"
		   "  optimus   shortest remaining time first, from exact remaining times\n",
	.options = options,
	.main = main_sim,
};
