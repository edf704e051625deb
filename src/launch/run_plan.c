/* Makes the plan of a `pawl run`: see run_plan.h. */
#include "launch/run_plan.h"

#include "base/assert.h"
#include "base/err.h"
#include "ipc/socket_path.h"
#include "launch/membership/membership.h"
#include "launch/run_relay.h"
#include "pawl/env.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMBERSHIP_PATH_MAX 1024u /* bytes of a membership file's path: it goes into variables */
#define STEM_MAX            32u   /* characters of a script's name in a derived job id */
#define FNV_START           0xcbf29ce484222325ull /* FNV-1a, 64 bits */
#define FNV_PRIME           0x100000001b3ull

_Static_assert(STEM_MAX + sizeof("-0123456789abcdef") <= CKPT_JOB_MAX, "a derived job id fits");

static bool is_module(const struct run_options *options)
{
	return strcmp(options->worker[0], "-m") == 0;
}

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Looks for name in PATH as a shell does. */
static bool search_path(const char *name, char *path, size_t cap_bytes)
{
	const char *dirs = getenv("PATH");

	while (dirs != NULL && *dirs != '\0') {
		int len = (int)strcspn(dirs, ":");

		snprintf(path, cap_bytes, "%.*s/%s", len > 0 ? len : 1, len > 0 ? dirs : ".", name);
		if (is_program(path)) {
			return true;
		}
		dirs += len + (dirs[len] == ':');
	}
	return false;
}

/* Finds <venv>/bin/python, if this program is <venv>/bin/pawl. */
static bool find_venv_python(char *path, size_t cap_bytes)
{
	char dir[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	char *slash;

	if (len < 0) {
		return false;
	}
	dir[len] = '\0';
	slash = strrchr(dir, '/');
	if (slash == NULL) {
		return false;
	}
	*slash = '\0';
	if ((size_t)snprintf(path, cap_bytes, "%s/../pyvenv.cfg", dir) >= cap_bytes ||
		access(path, R_OK) != 0) {
		return false;
	}
	return (size_t)snprintf(path, cap_bytes, "%s/python", dir) < cap_bytes && is_program(path);
}

int run_program_find(char *path, size_t cap_bytes, const char *asked, struct pawl_err *err)
{
	if (strchr(asked, '/') != NULL) {
		snprintf(path, cap_bytes, "%s", asked);
		return is_program(path)
			? 0
			: pawl_err_set(err, PAWL_ENOENT, "%s is not an executable program", asked);
	}
	return search_path(asked, path, cap_bytes)
		? 0
		: pawl_err_set(err, PAWL_ENOENT, "%s is not in PATH", asked);
}

int run_python_find(char *path, size_t cap_bytes, const char *asked, struct pawl_err *err)
{
	int rv;

	if (asked != NULL) {
		rv = run_program_find(path, cap_bytes, asked, err);
		return rv == 0 ? 0 : pawl_err_prefix(err, rv, "python");
	}
	if (find_venv_python(path, cap_bytes) || search_path("python3", path, cap_bytes) ||
		search_path("python", path, cap_bytes)) {
		return 0;
	}
	return pawl_err_set(err, PAWL_ENOENT, "no python3 in PATH: name one with --python");
}

void run_job_derive(char *job, size_t cap_bytes, const char *script, const char *cwd, uint32_t uid)
{
	const char *slash = strrchr(script, '/');
	const char *name = slash != NULL ? slash + 1 : script;
	const char *parts[] = {script, cwd};
	uint64_t hash = FNV_START;
	char stem[STEM_MAX + 1];
	size_t len = 0;

	for (size_t i = 0; i < 2; i++) {
		/* with the NUL, so that different pairs never hash the same bytes */
		for (size_t at = 0; at <= strlen(parts[i]); at++) {
			hash = (hash ^ (uint8_t)parts[i][at]) * FNV_PRIME;
		}
	}
	for (unsigned shift = 0; shift < 32; shift += 8) {
		hash = (hash ^ (uint8_t)(uid >> shift)) * FNV_PRIME;
	}
	while (len < STEM_MAX && name[len] != '\0' && strcmp(name + len, ".py") != 0) {
		stem[len] = isalnum((unsigned char)name[len]) ? name[len] : '-';
		len++;
	}
	stem[len] = '\0';
	snprintf(job, cap_bytes, "%s-%016llx", stem, (unsigned long long)hash);
}

static int find_job(struct run_plan *plan, const struct run_options *options, const char *from_env,
	struct pawl_err *err)
{
	const char *named = options->job != NULL ? options->job : from_env;
	const char *script =
		options->no_python ? plan->python : options->worker[is_module(options) ? 1 : 0];
	char path[PATH_MAX];
	char cwd[PATH_MAX];

	if (named[0] != '\0') {
		if (strlen(named) >= sizeof(plan->job)) {
			return pawl_err_set(err, PAWL_EINVAL, "job id %s is longer than %zu bytes",
				named, sizeof(plan->job) - 1);
		}
		snprintf(plan->job, sizeof(plan->job), "%s", named);
		return 0;
	}
	if (getcwd(cwd, sizeof(cwd)) == NULL) {
		return pawl_err_sys(err, "get the working directory");
	}
	if (!is_module(options)) {
		if (realpath(script, path) == NULL) {
			return pawl_err_sys(err, "script %s", script);
		}
		script = path;
	}
	run_job_derive(plan->job, sizeof(plan->job), script, cwd, getuid());
	return 0;
}

/* Reads the variables of the launcher above us, if there is one. It must have started one process
 * per node, because we start the ranks. */
static int read_env(struct pawl_env *env, struct pawl_err *err)
{
	int rv = pawl_env_resolve(NULL, NULL, env, err);

	if (rv != 0) {
		return pawl_err_prefix(err, rv, "environment");
	}
	if (env->world != env->nodes) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"this is rank %u of %u already (%s): pawl run starts the ranks of a node "
			"itself, so start it once per node (srun --ntasks-per-node=1), or unset "
			"those variables",
			env->rank, env->world, env->source);
	}
	return 0;
}

/* ---- several nodes ---- */

/* Takes the token out of the text of a file or a variable. */
static int take_token(char *token, const char *text, size_t len, const char *source,
	struct pawl_err *err)
{
	while (len > 0 && isspace((unsigned char)text[len - 1])) {
		len--;
	}
	if (len < TLS_TOKEN_MIN || len > TLS_TOKEN_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: a token has %u to %u bytes, this one has %zu; `openssl rand -hex 32` "
			"makes one",
			source, TLS_TOKEN_MIN, TLS_TOKEN_MAX, len);
	}
	memcpy(token, text, len);
	token[len] = '\0';
	return 0;
}

int run_token_read(char *token, const char *path, struct pawl_err *err)
{
	const char *text = getenv("PAWL_TOKEN");
	char bytes[TLS_TOKEN_MAX + 2];
	FILE *file;
	size_t len;

	token[0] = '\0';
	if (path == NULL) {
		return text == NULL || text[0] == '\0'
			? 0
			: take_token(token, text, strlen(text), "PAWL_TOKEN", err);
	}
	file = fopen(path, "re");
	if (file == NULL) {
		return pawl_err_sys(err, "token %s", path);
	}
	len = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	return take_token(token, bytes, len, path, err);
}

/* Reads the name of this node's failure domain. */
static int read_domain(char *domain, struct pawl_err *err)
{
	const char *text = getenv("PAWL_DOMAIN");
	size_t len = 0;

	text = text != NULL ? text : "";
	while (len < PEER_DOMAIN_MAX && isprint((unsigned char)text[len])) {
		len++;
	}
	if (len == PEER_DOMAIN_MAX || text[len] != '\0') {
		return pawl_err_set(err, PAWL_EINVAL,
			"PAWL_DOMAIN, this node's failure domain: at most %u printable ASCII "
			"characters, such as rack-7",
			PEER_DOMAIN_MAX - 1);
	}
	memcpy(domain, text, len + 1);
	return 0;
}

/* Takes the rendezvous from a launcher that names its nodes' addresses. Under Slurm the port
 * differs between jobs on the same nodes. */
static bool find_rendezvous(char *text, size_t cap_bytes)
{
	const char *slurm = getenv("SLURM_JOB_NODELIST");
	const char *id = getenv("SLURM_JOB_ID");
	const char *ips = getenv("SKYPILOT_NODE_IPS");
	char host[RUN_HOST_MAX];

	if (ips != NULL && ips[0] != '\0') {
		snprintf(text, cap_bytes, "%.*s", (int)strcspn(ips, "\n"), ips);
		return true;
	}
	if (slurm == NULL || !run_places_first(slurm, host)) {
		return false;
	}
	snprintf(text, cap_bytes, "%s:%lu", host,
		29400 + (id != NULL ? strtoul(id, NULL, 10) : 0) % 1000);
	return true;
}

static int find_places(struct run_plan *plan, const char *asked, struct pawl_err *err)
{
	char text[RUN_HOST_MAX + 8];

	if (asked != NULL) {
		return run_places_parse(&plan->places, asked, err);
	}
	if (!find_rendezvous(text, sizeof(text))) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%u nodes: --rendezvous HOST:PORT is needed, an address of one of them",
			plan->nodes);
	}
	return run_places_parse(&plan->places, text, err);
}

/* Plans for a shared membership file. Each launcher runs as a job of one node: launchers need not
 * know each other. */
static int share_membership(struct run_plan *plan, const struct run_options *options,
	struct pawl_err *err)
{
	if (options->max_workers == 0 || options->nodes > 1 || options->rendezvous != NULL ||
		options->servers > 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"--door goes with --elastic, but not with --nnodes, --rendezvous or "
			"--servers");
	}
	if (run_relay_is_url(options->membership_path)) {
		plan->membership_url = options->membership_path;
	} else if (options->membership_path[0] != '/' ||
		strlen(options->membership_path) > MEMBERSHIP_PATH_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"--door %.100s: a URL, or an absolute path of at most %u bytes",
			options->membership_path, MEMBERSHIP_PATH_MAX);
	}
	if (options->node_rank == NODE_NONE || options->node_rank >= RUN_LAUNCHERS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"--door needs --node-rank, from 0 to %u, different for each of the job's "
			"launchers",
			RUN_LAUNCHERS_MAX - 1);
	}
	if (!options->joins && options->node_rank != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"--node-rank %u: the launcher that starts the job has 0; the others need "
			"--join",
			options->node_rank);
	}
	plan->nodes = 1;
	plan->node_rank = NODE_NONE;
	plan->shared = true;
	plan->joins = options->joins;
	_Static_assert(RUN_WORKERS_MAX == MEMBERSHIP_LAUNCHER_RANKS, "each rank has a number");
	plan->first = options->node_rank * MEMBERSHIP_LAUNCHER_RANKS;
	if (plan->membership_url != NULL) {
		return run_token_read(plan->token, options->token_file, err);
	}
	snprintf(plan->membership_path, sizeof(plan->membership_path), "%s",
		options->membership_path);
	return 0;
}

static int find_nodes(struct run_plan *plan, const struct run_options *options,
	const struct pawl_env *env, struct pawl_err *err)
{
	int rv;

	plan->nodes = options->nodes != 0 ? options->nodes : env->nodes;
	plan->node_rank = options->node_rank;
	if (plan->node_rank == NODE_NONE && env->nodes == plan->nodes) {
		plan->node_rank = env->nodes > 1 ? env->node_rank : NODE_NONE;
	}
	if (options->joins && options->membership_path == NULL) {
		return pawl_err_set(err, PAWL_EINVAL, "--join goes with --door");
	}
	if (options->membership_path != NULL) {
		return share_membership(plan, options, err);
	}
	if (plan->nodes > NODES_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "%u nodes: %u at most", plan->nodes,
			NODES_MAX);
	}
	if (plan->nodes > 1 && options->max_workers != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"--elastic is for one node: with %u, the job waits for lost nodes; use "
			"--door for an elastic job on several nodes",
			plan->nodes);
	}
	if (plan->nodes == 1) {
		plan->node_rank = NODE_NONE;
		return options->rendezvous == NULL && options->node_rank == NODE_NONE &&
				options->servers == 0
			? 0
			: pawl_err_set(err, PAWL_EINVAL,
				  "--rendezvous, --node-rank and --servers go with --nnodes");
	}
	if (plan->node_rank != NODE_NONE && plan->node_rank >= plan->nodes) {
		return pawl_err_set(err, PAWL_EINVAL, "--node-rank %u of %u nodes: from 0 to %u",
			plan->node_rank, plan->nodes, plan->nodes - 1);
	}
	rv = find_places(plan, options->rendezvous, err);
	if (rv == 0) {
		rv = read_domain(plan->domain, err);
	}
	return rv == 0 ? run_token_read(plan->token, options->token_file, err) : rv;
}

/* Puts the membership file beside the agent's socket, where only our user has access. */
static void set_membership_path(struct run_plan *plan)
{
	int stem = (int)(strlen(plan->socket) - strlen(".sock"));

	ASSERT(stem > 0);
	snprintf(plan->membership_path, sizeof(plan->membership_path), "%.*s.door", stem,
		plan->socket);
}

/* Whether a file is an ELF program, which Python would try to read as a script. */
static bool is_binary(const char *path)
{
	static const char elf[4] = "\177ELF";
	char magic[sizeof(elf)];
	FILE *file = fopen(path, "re");
	bool binary = file != NULL && fread(magic, sizeof(magic), 1, file) == 1 &&
		memcmp(magic, elf, sizeof(elf)) == 0;

	if (file != NULL) {
		fclose(file);
	}
	return binary;
}

/* Refuses a program given as a script. A name that is no file here, but that is in PATH, was meant
 * as a program, too. */
static int check_script(const char *script, struct pawl_err *err)
{
	bool there = access(script, R_OK) == 0;
	int missing = errno;
	char path[PATH_MAX];

	if (there ? is_binary(script)
		  : strchr(script, '/') == NULL && search_path(script, path, sizeof(path))) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s is a program, not a Python script: leave it out if it is Python "
			"itself (--python chooses one), or give --no-python to run it as it is",
			script);
	}
	errno = missing;
	return there ? 0 : pawl_err_sys(err, "script %s", script);
}

/* Finds the program that is executed for each worker. */
static int find_program(struct run_plan *plan, const struct run_options *options,
	struct pawl_err *err)
{
	int rv;

	if (options->no_python) {
		return run_program_find(plan->python, sizeof(plan->python), options->worker[0],
			err);
	}
	rv = is_module(options) ? 0 : check_script(options->worker[0], err);
	return rv == 0 ? run_python_find(plan->python, sizeof(plan->python), options->python, err)
		       : rv;
}

int run_plan_make(struct run_plan *plan, const struct run_options *options, struct pawl_err *err)
{
	struct pawl_env env;
	int rv;

	rv = find_program(plan, options, err);
	if (rv == 0) {
		rv = read_env(&env, err);
	}
	if (rv == 0) {
		rv = find_nodes(plan, options, &env, err);
	}
	if (rv == 0) {
		rv = find_job(plan, options, env.job, err);
	}
	if (rv == 0) {
		rv = agent_socket_path(plan->job, plan->socket, sizeof(plan->socket), err);
	}
	if (rv != 0) {
		return rv;
	}
	ASSERT(plan->nodes >= 1 && (plan->nodes == 1 || plan->places.n > 0));
	ASSERT(plan->node_rank == NODE_NONE || plan->node_rank < plan->nodes);
	plan->attempt = env.attempt;
	if (options->max_workers != 0 && plan->membership_path[0] == '\0') {
		set_membership_path(plan);
	}
	if (options->log_dir != NULL && mkdir(options->log_dir, 0777) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "log directory %s", options->log_dir);
	}
	return 0;
}
