/* pawl sched: its command line. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/parallel.h"
#include "base/times.h"
#include "daemon/daemon.h"
#include "daemon/sched_client.h"
#include "engine/scratch.h"
#include "pawl/err.h"
#include "sched/baseline/policies.h"
#include "sched/jobfile/jobfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define GRACE_MAX_S 86400.0
#define ROUND_MAX_S 86400.0
#define PRICE_MAX   1e9

enum option {
	ROOT,
	NODES,
	SLOTS,
	NODE,
	DEVICES,
	SCRATCH,
	QUEUE,
	USER_SLOTS,
	USER_JOBS,
	POLICY,
	GROUP,
	GRACE,
	ROUND,
	ENGINE,
	POOL,
	SBATCH,
	POLL,
	SPOOL,
	HTTP,
	HTTP_NAME,
	HTTP_TOKEN,
	HTTP_CERT,
	HTTP_KEY,
	REBUILD
};

static const struct cli_option options[] = {
	[ROOT] = {"--root", 0, "DIR", "directory for the scheduler's state; see below"},
	[NODES] = {"--nodes", 0, "N", "split this machine into N nodes: node0, node1 … (1)"},
	[SLOTS] = {"--slots", 0, "S", "replicas that each node holds (its share of the CPUs)"},
	[NODE] = {"--node", 0, "SPEC", "NAME=SLOTS[:TYPE[:PRICE]], not --nodes; repeatable"},
	[DEVICES] = {"--devices", 0, "NODE=IDS",
		"ids of a node's devices (GPUs), one a slot; repeatable"},
	[SCRATCH] = {"--scratch", 0, "DIR",
		"disk for disk_tier: best; Slurm: NAME=DIR; repeatable"},
	[QUEUE] = {"--queue", 0, "SPEC", "queue NAME[=WEIGHT[:SLOTS]]; repeatable (default=1)"},
	[USER_SLOTS] = {"--user-slots", 0, "S",
		"slots that all jobs of one user may hold (no limit)"},
	[USER_JOBS] = {"--user-jobs", 0, "N", "unfinished jobs that one user may have (50000)"},
	[POLICY] = {"--policy", 0, "NAME", "policy: pawl, pollux, tiresias or fifo (pawl)"},
	[GROUP] = {"--group", 0, "NAME", "let members of this group submit jobs, too"},
	[GRACE] = {"--grace", 0, "S", "seconds a job has to save when it is told to stop (30)"},
	[ROUND] = {"--round", 0, "S", "seconds between decisions that are not urgent (30)"},
	[ENGINE] = {"--engine", 0, "NAME", "engine that runs the jobs: local or slurm (local)"},
	[POOL] = {"--pool", 0, "SPEC",
		"Slurm: NAME=SLOTS:MIN..MAX[:TYPE[:PRICE[:spot]]]; repeatable"},
	[SBATCH] = {"--sbatch", 0, "NAME=OPT",
		"sbatch option of a pool, see docs/slurm.md; repeatable"},
	[POLL] = {"--poll", 0, "S", "seconds between checks of Slurm's queue (10)"},
	[SPOOL] = {"--spool", 0, "DIR", "job directory that all Slurm nodes see (--root)"},
	[HTTP] = {"--http", 0, "ADDR:PORT",
		"serve REST, metrics and a page; port 0: any free; at most twice"},
	[HTTP_NAME] = {"--http-name", 0, "HOST",
		"host name by which Slurm nodes and others reach --http"},
	[HTTP_TOKEN] = {"--http-token", 0, "FILE",
		"file of mode 0600; its first line is the control token"},
	[HTTP_CERT] = {"--http-cert", 0, "FILE",
		"TLS certificate (PEM) for addresses others can reach"},
	[HTTP_KEY] = {"--http-key", 0, "FILE", "private key (PEM) of that certificate"},
	[REBUILD] = {"--rebuild", 0, NULL, "take over running jobs if the database is lost or old"},
	{NULL},
};

/* The command line, with the arrays that options points to. */
struct sched_args {
	const char *root;
	const char *spool;
	uint64_t count; /* --nodes */
	uint64_t slots; /* slots of each node; 0: not given */
	struct core_offer nodes[DAEMON_NODES_MAX];
	char types[SCHED_TYPES_MAX][CORE_NAME_MAX];
	struct devices devices;
	const char *scratch[SCRATCH_DIRS_MAX];
	struct core_queue queues[CORE_QUEUES_MAX];
	bool slurm; /* --engine */
	struct slurm_pool pools[CORE_POOLS_MAX];
	/* Options of each pool; NULL-terminated. */
	const char *sbatch[CORE_POOLS_MAX][SLURM_POOL_ARGS_MAX + 1];
	/* Directories of each pool; NULL-terminated. */
	const char *pool_scratch[CORE_POOLS_MAX][SCRATCH_DIRS_MAX + 1];
	struct daemon_options options;
};

/* Takes "NAME" from "NAME=…". Returns the rest, "" if there is none; NULL: the name is not
 * valid. */
static const char *take_name(const char *text, char name[CORE_NAME_MAX])
{
	size_t len = strcspn(text, "=");

	snprintf(name, CORE_NAME_MAX, "%.*s", (int)(len < CORE_NAME_MAX ? len : 0), text);
	return jobfile_is_name(name) ? text + len : NULL;
}

/* Returns the index of a type, and adds a new one; SCHED_TYPES_MAX: there is no room. */
static uint32_t find_type(struct sched_args *args, const char *name)
{
	uint32_t i = 0;

	while (i < args->options.types_n && strcasecmp(args->types[i], name) != 0) {
		i++;
	}
	if (i == args->options.types_n && i < SCHED_TYPES_MAX) {
		snprintf(args->types[i], CORE_NAME_MAX, "%s", name);
		args->options.types_n++;
	}
	return i;
}

static bool take_node(const struct cli_command *command, const char *text, struct sched_args *args)
{
	struct core_offer *node = &args->nodes[args->options.nodes_n];
	char type[CORE_NAME_MAX] = "";
	char rest[CORE_NAME_MAX];
	const char *at;
	char *end;

	if (args->options.nodes_n == DAEMON_NODES_MAX) {
		cli_usage(command, "--node: %u at most", DAEMON_NODES_MAX);
		return false;
	}
	*node = (struct core_offer){0};
	at = take_name(text, node->name);
	if (!at || *at != '=') {
		cli_usage(command,
			"--node %s: NAME=SLOTS[:TYPE[:PRICE]] is needed, such as a=8:A100", text);
		return false;
	}
	node->slots = (uint32_t)strtoul(at + 1, &end, 10);
	if (at[1] < '0' || at[1] > '9' || node->slots < 1 || node->slots > CORE_SLOTS_MAX) {
		cli_usage(command, "--node %s: 1 to %u slots are needed", text, CORE_SLOTS_MAX);
		return false;
	}
	if (*end == ':') {
		size_t len = strcspn(end + 1, ":");

		snprintf(type, sizeof(type), "%.*s", (int)(len < sizeof(type) ? len : 0), end + 1);
		snprintf(rest, sizeof(rest), "%s", end + 1 + len);
		end = rest;
		if (*end == ':') {
			node->price = strtod(end + 1, &end);
		}
	}
	if (*end != '\0' || (type[0] != '\0' && !jobfile_is_name(type)) ||
		!(node->price >= 0 && node->price <= PRICE_MAX)) {
		cli_usage(command,
			"--node %s: NAME=SLOTS[:TYPE[:PRICE]] is needed, such as a=8:A100:2.5",
			text);
		return false;
	}
	node->type = find_type(args, type);
	if (node->type >= SCHED_TYPES_MAX) {
		cli_usage(command, "--node %s: at most %u types of nodes", text, SCHED_TYPES_MAX);
		return false;
	}
	args->options.nodes_n++;
	return true;
}

static bool take_device(const char *text, size_t len, const char *node, struct devices *devices)
{
	struct device *device = &devices->at[devices->n];

	if (len == 0 || len >= DEVICE_NAME || devices->n == DEVICES_MAX ||
		strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/") <
			len) {
		return false;
	}
	snprintf(device->name, sizeof(device->name), "%.*s", (int)len, text);
	snprintf(device->node, sizeof(device->node), "%s", node);
	if (devices_has_name(devices, device->name)) {
		return false;
	}
	devices->n++;
	return true;
}

/* Takes "node0=0,1,GPU-8f…". */
static bool take_devices(const struct cli_command *command, const char *text,
	struct devices *devices)
{
	char node[CORE_NAME_MAX];
	const char *at = take_name(text, node);
	bool good = at && *at == '=';

	while (good && at && *at != '\0') {
		size_t len = strcspn(at + 1, ",");

		good = take_device(at + 1, len, node, devices);
		at += 1 + len;
	}
	if (!good) {
		cli_usage(command,
			"--devices %s: NODE=ID,ID… is needed, such as node0=0,1: each id once, at "
			"most %u in all",
			text, DEVICES_MAX);
	}
	return good;
}

/* Checks that each node has no device or one for each slot, and that no other node has any. */
static bool check_devices(const struct cli_command *command, const struct sched_args *args)
{
	uint32_t found = 0;

	for (uint32_t n = 0; n < args->options.nodes_n; n++) {
		const struct core_offer *node = &args->nodes[n];
		uint32_t has = devices_count(&args->devices, node->name);

		if (has > 0 && has != node->slots) {
			cli_usage(command,
				"--devices: node %s has %u slots, and %u devices: give one for "
				"each slot",
				node->name, node->slots, has);
			return false;
		}
		found += has;
	}
	if (found < args->devices.n) {
		cli_usage(command, "--devices: a node has another name: see --node");
		return false;
	}
	return true;
}

static bool take_queue(const struct cli_command *command, const char *text, struct sched_args *args)
{
	struct core_options *core = &args->options.core;
	struct core_queue *queue = &args->queues[core->queues_n];
	const char *at;
	char *end;

	if (core->queues_n == CORE_QUEUES_MAX) {
		cli_usage(command, "--queue: %u at most", CORE_QUEUES_MAX);
		return false;
	}
	*queue = (struct core_queue){.weight = 1};
	at = take_name(text, queue->name);
	if (at && *at == '=') {
		queue->weight = strtod(at + 1, &end);
		if (*end == ':') {
			queue->slots_max = (uint32_t)strtoul(end + 1, &end, 10);
		}
		at = end;
	}
	if (!at || *at != '\0' || !(queue->weight > 0 && queue->weight <= PRICE_MAX)) {
		cli_usage(command,
			"--queue %s: NAME[=WEIGHT[:SLOTS]] is needed, such as research=2:16", text);
		return false;
	}
	core->queues_n++;
	return true;
}

/* Reads the part after the name in "gpu=8:0..16:A100:2.5:spot". */
static bool read_pool(struct sched_args *args, const char *text, struct core_pool *pool)
{
	char type[CORE_NAME_MAX] = "";
	char spot[8] = "";
	int end = 0;
	size_t len;

	pool->price = 1;
	if (sscanf(text, "=%4u:%5u..%5u%n", &pool->slots, &pool->least, &pool->most, &end) != 3) {
		return false;
	}
	text += end;
	len = *text == ':' ? strcspn(text + 1, ":") : 0;
	snprintf(type, sizeof(type), "%.*s", (int)(len < sizeof(type) ? len : 0), text + 1);
	text += *text == ':' ? len + 1 : 0;
	if (*text == ':') {
		char *rest;

		pool->price = strtod(text + 1, &rest);
		text = rest;
	}
	if (*text == ':') {
		snprintf(spot, sizeof(spot), "%s", text + 1);
		text += strlen(text);
	}
	pool->spot = strcmp(spot, "spot") == 0;
	pool->type = find_type(args, type);
	return *text == '\0' && (spot[0] == '\0' || pool->spot) && pool->slots > 0 &&
		pool->slots <= CORE_SLOTS_MAX && pool->least <= pool->most && pool->most > 0 &&
		pool->most <= CORE_NODES_MAX && (type[0] == '\0' || jobfile_is_name(type)) &&
		pool->type < SCHED_TYPES_MAX && pool->price > 0 && pool->price <= PRICE_MAX;
}

static bool take_pool(const struct cli_command *command, const char *text, struct sched_args *args)
{
	uint32_t n = args->options.pools_n;
	struct core_pool pool = {0};
	const char *at = take_name(text, pool.name);

	if (n == CORE_POOLS_MAX) {
		cli_usage(command, "--pool: %u at most", CORE_POOLS_MAX);
		return false;
	}
	if (!at || !read_pool(args, at, &pool)) {
		cli_usage(command,
			"--pool %s: NAME=SLOTS:MIN..MAX[:TYPE[:PRICE[:spot]]] is needed, such as "
			"gpu=8:0..16:A100:2.5",
			text);
		return false;
	}
	args->pools[n].pool = pool;
	args->options.pools_n++;
	return true;
}

/* Takes "gpu=--partition=gpu" or "gpu=/local": appends the text after =, which must start with
 * begins, to that pool's NULL-terminated list of at most cap words. Returns the list; NULL: there
 * is no such pool, or no room. */
static const char *const *take_of_pool(struct sched_args *args, const char *text, char begins,
	const char **lists, uint32_t cap, uint32_t *pool)
{
	char name[CORE_NAME_MAX];
	const char *at = take_name(text, name);

	for (uint32_t p = 0; at && at[0] == '=' && at[1] == begins && p < args->options.pools_n;
		p++) {
		const char **list = lists + (size_t)p * (cap + 1);
		uint32_t n = 0;

		if (strcmp(args->pools[p].pool.name, name) != 0) {
			continue;
		}
		while (list[n]) {
			n++;
		}
		if (n < cap) {
			list[n] = at + 1;
			*pool = p;
			return list;
		}
	}
	return NULL;
}

static bool take_sbatch(const struct cli_command *command, const char *text,
	struct sched_args *args)
{
	uint32_t p;
	const char *const *taken =
		take_of_pool(args, text, '-', args->sbatch[0], SLURM_POOL_ARGS_MAX, &p);

	if (!taken) {
		cli_usage(command,
			"--sbatch %s: NAME=OPTION is needed, of a --pool before it, at most %u, "
			"such as gpu=--partition=gpu",
			text, SLURM_POOL_ARGS_MAX);
		return false;
	}
	args->pools[p].args = taken;
	return true;
}

static bool take_engine(const struct cli_command *command, const char *text,
	struct sched_args *args)
{
	args->slurm = strcmp(text, "slurm") == 0;
	if (!args->slurm && strcmp(text, "local") != 0) {
		cli_usage(command, "--engine %s: local or slurm is needed", text);
		return false;
	}
	return true;
}

static bool take_http(const struct cli_command *command, const char *text, struct sched_args *args)
{
	struct http_options *http = &args->options.http;

	if (http->n == HTTP_LISTENERS_MAX) {
		cli_usage(command, "--http: %u at most", HTTP_LISTENERS_MAX);
		return false;
	}
	http->addresses[http->n++] = text;
	return true;
}

static bool take_policy(const struct cli_command *command, const char *text,
	struct sched_args *args)
{
	const struct sched_policy_entry *entry = sched_policy_find(text);

	if (!entry || entry->needs_oracle) {
		cli_usage(command, "--policy %s: pawl, pollux, tiresias or fifo is needed%s", text,
			entry ? ": that policy needs data that only a simulator has" : "");
		return false;
	}
	args->options.core.policy = entry->policy;
	return true;
}

static bool take_pool_scratch(const struct cli_command *command, const char *text,
	struct sched_args *args)
{
	uint32_t p;
	const char *const *dirs =
		take_of_pool(args, text, '/', args->pool_scratch[0], SCRATCH_DIRS_MAX, &p);

	if (!dirs) {
		cli_usage(command,
			"--scratch %s: an absolute directory is needed, or NAME=DIR of a --pool "
			"before it; at most %u",
			text, SCRATCH_DIRS_MAX);
		return false;
	}
	args->pools[p].scratch = dirs;
	return true;
}

static bool take_scratch(const struct cli_command *command, const char *dir,
	struct sched_args *args)
{
	if (dir[0] != '/') {
		return take_pool_scratch(command, dir, args);
	}
	if (args->options.scratch_n == SCRATCH_DIRS_MAX) {
		cli_usage(command, "--scratch %s: at most %u", dir, SCRATCH_DIRS_MAX);
		return false;
	}
	args->scratch[args->options.scratch_n++] = dir;
	return true;
}

static bool take_option(const struct cli_command *command, int what, const char *value,
	struct sched_args *args)
{
	uint64_t number;

	switch (what) {
	case ROOT:
		args->root = value;
		return true;
	case NODES:
		return cli_number(command, "--nodes", value, 1, DAEMON_NODES_MAX, &args->count);
	case SLOTS:
		return cli_number(command, "--slots", value, 1, CORE_SLOTS_MAX, &args->slots);
	case NODE:
		return take_node(command, value, args);
	case DEVICES:
		return take_devices(command, value, &args->devices);
	case SCRATCH:
		return take_scratch(command, value, args);
	case QUEUE:
		return take_queue(command, value, args);
	case USER_SLOTS:
		if (!cli_number(command, "--user-slots", value, 1, UINT32_MAX, &number)) {
			return false;
		}
		args->options.core.owner_slots_max = (uint32_t)number;
		return true;
	case USER_JOBS:
		return cli_number(command, "--user-jobs", value, 1, CORE_JOBS_MAX,
			&args->options.user_jobs_max);
	case POLICY:
		return take_policy(command, value, args);
	case GROUP:
		args->options.group = value;
		return true;
	case GRACE:
		return cli_seconds(command, "--grace", value, GRACE_MAX_S, &args->options.grace_ns);
	case ROUND:
		return cli_seconds(command, "--round", value, ROUND_MAX_S,
			&args->options.core.round_ns);
	case ENGINE:
		return take_engine(command, value, args);
	case POOL:
		return take_pool(command, value, args);
	case SBATCH:
		return take_sbatch(command, value, args);
	case SPOOL:
		args->spool = value;
		return true;
	case HTTP:
		return take_http(command, value, args);
	case HTTP_NAME:
		args->options.http.name = value;
		return true;
	case HTTP_TOKEN:
		args->options.http.token_file = value;
		return true;
	case HTTP_CERT:
		args->options.http.cert_file = value;
		return true;
	case HTTP_KEY:
		args->options.http.key_file = value;
		return true;
	case REBUILD:
		return args->options.rebuild = true;
	default:
		return cli_seconds(command, "--poll", value, ROUND_MAX_S, &args->options.poll_ns);
	}
}

/* Divides this machine into nodes, if --node named none. */
static void make_nodes(struct sched_args *args)
{
	uint32_t n = parallel_cores();

	if (args->options.nodes_n > 0) {
		return;
	}
	args->count = args->count > 0 ? args->count : 1;
	if (args->slots == 0) {
		args->slots = n / args->count > 0 ? n / args->count : 1;
	}
	for (uint32_t i = 0; i < args->count; i++) {
		struct core_offer *node = &args->nodes[i];

		*node = (struct core_offer){.slots = (uint32_t)args->slots,
			.type = find_type(args, "")};
		snprintf(node->name, sizeof(node->name), "node%u", i);
	}
	args->options.nodes_n = (uint32_t)args->count;
}

/* Makes a path absolute, from the working directory. */
static void complete_path(const char *path, char full[PATH_MAX])
{
	char own[PATH_MAX];

	if (path[0] == '/' || !getcwd(own, sizeof(own))) {
		own[0] = '\0';
	}
	snprintf(full, PATH_MAX, "%.2000s%s%.2000s", own, path[0] == '/' ? "" : "/", path);
}

static int run(const struct cli_command *command, struct sched_args *args)
{
	struct daemon_options *o = &args->options;
	static char root[PATH_MAX]; /* options point to it */
	static char spool[PATH_MAX];
	struct pawl_err err;
	int rv = 0;

	if (args->spool) {
		complete_path(args->spool, spool);
		o->spool = spool;
	}
	if (args->root && args->root[0] != '/') {
		complete_path(args->root, root);
	} else if (args->root || getenv(SCHED_ROOT_VAR)) {
		rv = sched_find_root(args->root, root, &err);
	} else {
		rv = sched_user_root(root, &err);
	}
	if (args->slurm) {
		o->pools = args->pools;
	} else {
		make_nodes(args);
	}
	if (o->core.queues_n == 0) {
		args->queues[o->core.queues_n++] =
			(struct core_queue){.name = "default", .weight = 1};
	}
	o->root = root;
	if (!check_devices(command, args)) {
		return CLI_USAGE;
	}
	o->nodes = args->nodes;
	o->devices = &args->devices;
	o->scratch = args->scratch;
	o->types = args->types;
	o->core.queues = args->queues;
	rv = rv == 0 ? daemon_main(o, &err) : rv;
	return rv == 0 ? CLI_OK : cli_fail(command, &err);
}

static void set_times(struct daemon_options *o)
{
	o->grace_ns = times_ns(TIME_SCHED_GRACE);
	o->poll_ns = times_ns(TIME_SCHED_POLL);
	o->core.round_ns = times_ns(TIME_SCHED_ROUND);
	o->core.start_timeout_ns = times_ns(TIME_SCHED_START);
	o->core.kill_interval_ns = times_ns(TIME_SCHED_AGAIN);
	o->core.backoff_ns = times_ns(TIME_SCHED_BACKOFF);
	o->core.backoff_max_ns = times_ns(TIME_SCHED_BACKOFF_MAX);
}

/* Refuses options that describe this machine: they have no meaning for Slurm's nodes. */
static bool check_slurm(const struct cli_command *command, const struct sched_args *args)
{
	if (args->options.nodes_n > 0 || args->count > 0 || args->slots > 0) {
		cli_usage(command,
			"--node, --nodes and --slots describe this machine: give --pool for Slurm");
		return false;
	}
	if (args->options.group && geteuid() == 0) {
		cli_usage(command,
			"--group %s: on Slurm, jobs run as the scheduler's user, which is root: "
			"run pawl sched as another user",
			args->options.group);
		return false;
	}
	if (args->options.rebuild) {
		cli_usage(command,
			"--rebuild is for jobs on this machine: for Slurm, see docs/slurm.md");
		return false;
	}
	if (args->devices.n > 0) {
		cli_usage(command,
			"--devices describes this machine: Slurm assigns its nodes' devices");
		return false;
	}
	if (args->options.scratch_n > 0) {
		cli_usage(command, "--scratch %s describes this machine: for Slurm, give NAME=DIR",
			args->scratch[0]);
		return false;
	}
	return true;
}

static int main_sched(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	static struct sched_args args = {.options = {.http = {.name = ""},
						 .user_jobs_max = CORE_JOBS_MAX / 2,
						 .core = {.policy = &sched_pawl}}};
	int what;

	set_times(&args.options);
	while ((what = cli_read(&reader)) >= 0) {
		if (!take_option(command, what, reader.value, &args)) {
			return CLI_USAGE;
		}
	}
	if (what == CLI_ARG) {
		return cli_usage(command, "unexpected argument %s", reader.value);
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	if (args.slurm != (args.options.pools_n > 0)) {
		return cli_usage(command,
			"--engine slurm needs at least one --pool, and --pool needs --engine "
			"slurm");
	}
	if (args.spool && !args.slurm) {
		return cli_usage(command, "--spool is for --engine slurm");
	}
	if (args.slurm && !check_slurm(command, &args)) {
		return CLI_USAGE;
	}
	if (args.options.http.n == 0 &&
		(args.options.http.name[0] != '\0' || args.options.http.token_file ||
			args.options.http.cert_file || args.options.http.key_file)) {
		return cli_usage(command,
			"--http-name, --http-token, --http-cert and --http-key need --http");
	}
	if (args.options.nodes_n > 0 && (args.count > 0 || args.slots > 0)) {
		return cli_usage(command,
			"--node names each node: it cannot be used with --nodes or --slots");
	}
	return run(command, &args);
}

const struct cli_command cli_sched = {
	.name = "sched",
	.args = "",
	.summary = "Run the job scheduler of this machine",
	.details =
		"The scheduler runs in the foreground until a signal. Its jobs outlive it, and\n"
		"the next scheduler finds them. The scheduler decides which job has which slots,\n"
		"and resizes jobs while they run: see docs/sched.md.\n"
		"\n"
		"DIR is --root, else PAWL_SCHED_ROOT, else /var/lib/pawl for root, and for\n"
		"others $XDG_STATE_HOME/pawl or ~/.local/state/pawl. It holds a database, a\n"
		"socket, and the jobs' logs. Only one scheduler can use it at a time.\n"
		"\n"
		"If the database is lost, empty or older than the running jobs, the scheduler\n"
		"does not start, and jobs go on. Put a copy back, or take over the running jobs\n"
		"with --rebuild. The log then names the waiting jobs that the history knows;\n"
		"submit these again.\n"
		"\n"
		"With --engine slurm, jobs run in pilots, which are Slurm jobs that the\n"
		"scheduler submits. All nodes must see --spool; DIR may then be on a local disk.\n"
		"All jobs run as this user: see docs/slurm.md.\n"
		"\n"
		"docs/sched.md says who may use --http, and how to reach it from other machines.\n"
		"\n"
		"If root runs the scheduler, each job runs as the user who submitted it.\n"
		"Otherwise, all jobs run as this user.\n",
	.options = options,
	.main = main_sched,
};
