/*
 * Starts the processes of a run: see shepherd_impl.h.
 *
 * The shepherd becomes the job's user before it touches anything of the job's. A shell gets each
 * script unchanged; the command of `pawl submit -- COMMAND` runs without a shell.
 */
#include "engine/local/shepherd.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/times.h"
#include "engine/local/plain.h"
#include "engine/local/shepherd_impl.h"
#include "engine/mirrors.h"
#include "engine/mounts.h"
#include "engine/scratch.h"
#include "launch/env/adaptdl.h"
#include "launch/env/run_vars.h"
#include "launch/run_devices.h"
#include "launch/run_port.h"
#include "launch/run_spawn.h"
#include "sched/jobfile/vars.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROGRAM      "/proc/self/exe" /* this program, even if a new version is installed */
#define ARGS_MAX     32u              /* arguments of a command line but the user's */
#define NUMBER_BYTES 64u              /* bytes of a number or a range as text */

/* On SIGTERM, the shell waits for its child, which gets the signal as well, and then exits. It
 * ignores SIGUSR1, which makes ranks leave. */
#define PREAMBLE "trap 'exit 143' TERM; trap : USR1\n"

/* ---- user and directory ---- */

static int read_order(struct shepherd *s, struct pawl_err *err)
{
	uint8_t bytes[4096];
	ssize_t n;

	while ((n = read(ORDER_FD_ORDER, bytes, sizeof(bytes))) > 0 &&
		s->order_bytes.len_bytes < ORDER_BYTES_MAX) {
		wire_put_raw(&s->order_bytes, bytes, (size_t)n);
	}
	close(ORDER_FD_ORDER);
	if (n != 0 || s->order_bytes.failed) {
		return pawl_err_set(err, PAWL_EIO, "read the order of a run: %s",
			n < 0 ? strerror(errno) : "the order is too long");
	}
	return order_decode(&s->order, s->order_bytes.bytes, s->order_bytes.len_bytes, err);
}

/* Restores the limit of open files, which the scheduler has raised for itself. */
static void restore_nofile_limit(const struct shepherd *s)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && s->order.nofile_limit < limit.rlim_cur) {
		limit.rlim_cur = s->order.nofile_limit;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Returns whether the job runs as the scheduler's user. Valid until become_user. */
static bool runs_as_scheduler(const struct shepherd *s)
{
	return s->order.uid == geteuid();
}

/* Replaces root's session keyring by an empty one. This must precede the loss of root's rights,
 * because root has no keyring quota to exceed. In a sandbox without keyrings there is nothing to
 * replace. */
static int leave_keyring(struct pawl_err *err)
{
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS &&
		errno != EPERM && errno != EACCES) {
		return pawl_err_sys(err, "leave root's session keyring");
	}
	return 0;
}

/* Becomes the job's user permanently, with all groups of that user. */
static int become_user(struct shepherd *s, struct pawl_err *err)
{
	gid_t gid = (gid_t)s->order.gid;
	int rv;

	if (runs_as_scheduler(s)) {
		return 0;
	}
	rv = leave_keyring(err);
	if (rv != 0) {
		return rv;
	}
	if (initgroups(s->order.user, gid) != 0 || setgid(gid) != 0 || setuid(s->order.uid) != 0) {
		return pawl_err_sys(err, "become user %u", s->order.uid);
	}
	return 0;
}

/* Makes the job's directory, which only the job's user can access. If the job runs as the
 * scheduler's user, the group can read it, and the scheduler's own directory decides who gets
 * there. */
static int make_job_dir(struct shepherd *s, struct pawl_err *err)
{
	struct stat st;

	if (mkdir(s->order.job_dir, runs_as_scheduler(s) ? 0750 : 0700) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "directory %s", s->order.job_dir);
	}
	if (lstat(s->order.job_dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
		return pawl_err_set(err, PAWL_EIO, "%s is not a directory", s->order.job_dir);
	}
	if (!runs_as_scheduler(s) &&
		lchown(s->order.job_dir, s->order.uid, (gid_t)s->order.gid) != 0) {
		return pawl_err_sys(err, "give %s to user %u", s->order.job_dir, s->order.uid);
	}
	return 0;
}

static int find_path(const struct shepherd *s, const char *path, char full[PATH_MAX],
	struct pawl_err *err)
{
	return submission_path(s->order.home, s->submission.cwd, path, full, err);
}

/* ---- mounts and devices ---- */

static int link_mount(const struct shepherd *s, const struct sched_mount *mount,
	struct pawl_err *err)
{
	char at[PATH_MAX];
	char from[PATH_MAX];
	int rv = submission_mount(s->order.home, s->submission.cwd, mount, at, from, err);

	return rv == 0 ? mounts_link(at, from, err) : rv;
}

/* Writes the file from which `pawl run` reads the device of each rank that it starts. */
static int write_devices(struct shepherd *s, struct pawl_err *err)
{
	char path[PATH_MAX + 16];
	char text[DEVICES_TEXT];

	devices_load(ORDER_FD_DEVICES, &s->devices);
	if (s->devices.n == 0 || !s->spec.elastic) {
		return 0;
	}
	devices_format(&s->devices, 0,
		s->devices.shrink_generation != 0 ? s->devices.keep : s->devices.n, text);
	snprintf(path, sizeof(path), "%s/devices", s->order.job_dir);
	return file_put(path, text, strlen(text), 0644, false, err);
}

int shepherd_prepare(struct shepherd *s, struct pawl_err *err)
{
	struct remarks remarks = {0};
	char path[PATH_MAX + 16];
	char dir[PATH_MAX];
	mode_t log_mode = 0600;
	int rv = read_order(s, err);

	if (rv == 0) {
		log_mode = runs_as_scheduler(s) ? 0640 : 0600;
		restore_nofile_limit(s);
		rv = make_job_dir(s, err);
	}
	rv = rv == 0 ? become_user(s, err) : rv;
	snprintf(path, sizeof(path), "%s/%s", s->order.job_dir, JOB_LOG_NAME);
	rv = rv == 0 ? job_log_open(&s->log, path, log_mode, err) : rv;
	rv = rv == 0 ? submission_decode(&s->submission, s->order.submission,
			       s->order.submission_bytes, err)
		     : rv;
	rv = rv == 0 ? submission_spec(&s->submission, &s->spec, &remarks, err) : rv;
	rv = rv == 0 ? find_path(s, s->spec.workdir ? s->spec.workdir : s->submission.cwd, dir, err)
		     : rv;
	if (rv == 0 && chdir(dir) != 0) {
		rv = pawl_err_sys(err, "workdir %s", dir);
	}
	rv = rv == 0 ? write_devices(s, err) : rv;
	if (rv == 0 && submission_wants_scratch(&s->spec)) {
		rv = scratch_make_new(s->order.scratch, s->scratch, err);
	}
	for (uint32_t i = 0; i < s->spec.mounts_n && rv == 0; i++) {
		if (mirrors_is_bucket(&s->spec.mounts[i])) {
			continue;
		}
		rv = link_mount(s, &s->spec.mounts[i], err);
		rv = rv == 0 ? 0 : pawl_err_prefix(err, rv, "file_mounts");
	}
	return rv;
}

/* ---- environment ---- */

__attribute__((format(printf, 2, 3))) static void put(struct wire_out *set, const char *fmt, ...)
{
	char text[PATH_MAX + 64];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	set->failed = set->failed || len < 0 || (size_t)len >= sizeof(text);
	wire_put_raw(set, text, set->failed ? 0 : (size_t)len + 1);
}

/* Sets XDG_RUNTIME_DIR. A job has one agent per node, and all nodes are this machine. */
static void put_runtime_dir(const struct shepherd *s, struct wire_out *set, uint32_t rank)
{
	char dir[PATH_MAX];

	if (s->spec.elastic || rank == 0) {
		return;
	}
	if ((size_t)snprintf(dir, sizeof(dir), "%s/node%u", s->order.job_dir, rank) < sizeof(dir) &&
		(mkdir(dir, 0700) == 0 || errno == EEXIST)) {
		put(set, "XDG_RUNTIME_DIR=%s", dir);
	}
}

/* Sets the devices. Each process of a job with num_nodes sees its own device only. `pawl run` and
 * setup see all; as with torchrun, a rank picks its device by LOCAL_RANK. */
static void put_devices(const struct shepherd *s, struct wire_out *set, uint32_t rank,
	enum vars_phase phase)
{
	char text[DEVICES_TEXT];
	bool all = s->spec.elastic || phase == VARS_SETUP;

	if (s->devices.n == 0) {
		return;
	}
	devices_format(&s->devices, all ? 0 : rank, all ? s->devices.n : 1, text);
	put(set, "CUDA_VISIBLE_DEVICES=%s", text);
	if (s->spec.elastic && phase == VARS_RUN) {
		put(set, RUN_DEVICES_VAR "=%s/devices", s->order.job_dir);
	}
}

/* Sets the variables that AdaptDL's controller sets for replicas. Under `pawl run`, each rank gets
 * its own; in a job with num_nodes, each node is a replica. Each start has another port. */
static void put_adaptdl(const struct shepherd *s, struct wire_out *set, uint32_t rank)
{
	const struct order *o = &s->order;
	const struct adaptdl_job job = {o->supervisor, o->space, o->job};

	if (o->supervisor[0] == '\0') {
		return;
	}
	adaptdl_put_job(set, &job);
	if (!s->spec.elastic) {
		const struct adaptdl_replica replica = {.rank = rank,
			.replicas = order_replicas(o),
			.nodes = o->nodes_n,
			.restarts = o->starts,
			.port = s->port};

		adaptdl_put_replica(set, &replica);
	}
}

static void put_pawl_vars(const struct shepherd *s, struct wire_out *set, uint32_t rank)
{
	put(set, "%s=%s", RUN_VAR, s->order.run_dir);
	put(set, "%s=%s", RUN_KEY_VAR, s->order.key);
	put(set, "PAWL_SCHED_JOB=%llu", (unsigned long long)s->order.job);
	put(set, "PAWL_JOB_ID=%s", s->order.task);
	put(set, "PAWL_ATTEMPT=%u", s->order.starts);
	put(set, "PAWL_HINTS=%s/hints.json", s->order.job_dir);
	put(set, "HOME=%s", s->order.home);
	put(set, "USER=%s", s->order.user);
	put(set, "LOGNAME=%s", s->order.user);
	put(set, "SHELL=%s", s->order.shell);
	if (s->scratch[0] != '\0') {
		put(set, SCRATCH_VAR "=%s", s->scratch);
	}
	put_adaptdl(s, set, rank);
	put_runtime_dir(s, set, rank);
}

/* Makes an environment that points into set. The caller frees the array. NULL: out of memory. */
static char **make_env(const struct shepherd *s, struct wire_out *set, uint32_t rank,
	enum vars_phase phase)
{
	uint32_t nodes = s->spec.elastic && phase == VARS_RUN ? 1 : order_replicas(&s->order);
	const char **addresses = malloc(nodes * sizeof(*addresses));
	const struct vars_place place = {.node = rank,
		.nodes = nodes,
		.addresses = addresses,
		.gpus = s->spec.choices[0].accelerators,
		.job = s->order.job,
		.task = s->order.task,
		.cluster = s->order.cluster,
		.engine = "local"};
	char **env = NULL;

	if (addresses) {
		for (uint32_t i = 0; i < nodes; i++) {
			addresses[i] = "127.0.0.1";
		}
		put_pawl_vars(s, set, rank);
		put_devices(s, set, rank, phase);
		vars_put(set, &s->spec, &place, phase);
		env = run_vars_merge((char *const *)s->submission.env, set);
	}
	free(addresses);
	return env;
}

/* ---- starting ---- */

static int start(struct shepherd *s, struct run_child *child, const char *path, char *const *argv,
	enum vars_phase phase, struct pawl_err *err)
{
	struct wire_out set = {NULL};
	struct run_program program = {.path = path, .argv = argv, .fds_n = 3};
	char **env = make_env(s, &set, child->rank, phase);
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int ends[2] = {-1, -1};
	int rv = 0;

	if (!env) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for an environment");
	} else if (null_fd < 0 || pipe2(ends, O_CLOEXEC) != 0) {
		rv = pawl_err_sys(err, "start %s", path);
	}
	if (rv == 0) {
		program.env = env;
		program.fds[0] = null_fd;
		program.fds[1] = program.fds[2] = ends[1];
		rv = shepherd_output_open(s, child, ends[0], err);
		ends[0] = -1;
	}
	if (rv == 0) {
		rv = run_spawn(&program, &child->pid, err);
	}
	for (int i = 0; i < 2; i++) {
		if (ends[i] >= 0) {
			close(ends[i]);
		}
	}
	if (null_fd >= 0) {
		close(null_fd);
	}
	free(env);
	wire_out_deinit(&set);
	s->alive += rv == 0;
	return rv;
}

static int make_children(struct shepherd *s, uint32_t n, struct pawl_err *err)
{
	ASSERT(s->alive == 0); /* no child of the last phase is left */
	free(s->children);
	s->children = calloc(n, sizeof(*s->children));
	s->children_n = s->children ? n : 0;
	if (!s->children) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u processes", n);
	}
	for (uint32_t i = 0; i < n; i++) {
		s->children[i] = (struct run_child){.shepherd = s,
			.rank = i,
			.prefixed = n > 1,
			.output = {.fd = -1}};
	}
	return 0;
}

/* A command line: leading arguments, then a shell with the script, or the user's command. */
struct command_line {
	char **argv;  /* owned, the array alone */
	char *script; /* owned */
	struct wire_out
		leader; /* text of the leading arguments, where argv does not point elsewhere */
};

static void free_command_line(struct command_line *command)
{
	free(command->argv);
	free(command->script);
	wire_out_deinit(&command->leader);
}

/* Makes "FIRST… bash -c SCRIPT", or "FIRST… ARGS…" if the user submitted a command. */
static int make_command_line(const struct shepherd *s, const char *script, char *const *first,
	uint32_t first_n, struct command_line *command, struct pawl_err *err)
{
	const struct submission *sub = &s->submission;
	bool plain = script == s->spec.run && sub->args_n > 0;
	const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
	size_t len = strlen(script) + sizeof(PREAMBLE);
	uint32_t n = first_n;

	*command = (struct command_line){
		.argv = calloc(first_n + sub->args_n + ARGS_MAX, sizeof(char *)),
		.script = malloc(len)};
	if (!command->argv || !command->script) {
		free_command_line(command);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a command line");
	}
	for (uint32_t i = 0; i < first_n; i++) {
		command->argv[i] = first[i];
	}
	if (!plain) {
		snprintf(command->script, len, "%s%s", PREAMBLE, script);
		command->argv[n++] = (char *)(uintptr_t)shell;
		command->argv[n++] = (char *)(uintptr_t) "-c";
		command->argv[n++] = command->script;
	}
	for (uint32_t i = 0; i < sub->args_n && plain; i++) {
		command->argv[n++] = (char *)(uintptr_t)sub->args[i];
	}
	ASSERT(n < first_n + sub->args_n + ARGS_MAX); /* a NULL follows */
	return 0;
}

/* Makes the command line of the job's setup, or of its run on a node, behind those that bring its
 * buckets. */
static int make_node_command(const struct shepherd *s, bool setup, struct command_line *command,
	struct pawl_err *err)
{
	const struct mirrors_node node = {.pawl = PROGRAM,
		.home = s->order.home,
		.grace_ns = s->order.grace_ns};
	struct wire_out leader = {NULL};
	char **first = NULL;
	uint32_t n = 0;
	int rv = mirrors_put(&leader, &node, &s->spec, setup, err);

	for (size_t i = 0; i < leader.len_bytes; i++) {
		n += leader.bytes[i] == '\0';
	}
	first = calloc(n + 1u, sizeof(char *));
	if (rv == 0 && first == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for a command line");
	}
	for (size_t i = 0, at = 0; rv == 0 && i < n; i++) {
		first[i] = (char *)leader.bytes + at;
		at += strlen(first[i]) + 1;
	}
	rv = rv == 0
		? make_command_line(s, setup ? s->spec.setup : s->spec.run, first, n, command, err)
		: rv;
	free(first);
	if (rv != 0) {
		wire_out_deinit(&leader);
		return rv;
	}
	command->leader = leader;
	return 0;
}

/* Finds the program of a command in the PATH of the submitter. */
static int find_command(const struct shepherd *s, const char *name, char path[PATH_MAX],
	struct pawl_err *err)
{
	const char *dirs = "/usr/local/bin:/usr/bin:/bin";

	for (uint32_t i = 0; i < s->submission.env_n; i++) {
		if (strncmp(s->submission.env[i], "PATH=", 5) == 0) {
			dirs = s->submission.env[i] + 5;
		}
	}
	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return 0;
	}
	while (*dirs != '\0') {
		int len = (int)strcspn(dirs, ":");
		struct stat st;

		snprintf(path, PATH_MAX, "%.*s/%s", len, dirs, name);
		if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0) {
			return 0;
		}
		dirs += len + (dirs[len] == ':');
	}
	return pawl_err_set(err, PAWL_ENOENT,
		"%s is not in the PATH with which the job was submitted", name);
}

int shepherd_setup(struct shepherd *s, struct pawl_err *err)
{
	struct command_line command;
	int rv = make_node_command(s, true, &command, err);

	ASSERT(s->setups < s->order.nodes_n);
	if (rv != 0) {
		return rv;
	}
	rv = make_children(s, 1, err);
	if (rv == 0) {
		s->children[0].rank = s->setups;
		rv = start(s, &s->children[0], command.argv[0], command.argv, VARS_SETUP, err);
	}
	free_command_line(&command);
	return rv;
}

/* Finds the arguments of a job that is a Python command, which `pawl run` starts itself. Returns
 * their number; 0: the job needs a shell, or runs another program. found may point into *text,
 * which the caller frees. */
static uint32_t find_python(const struct shepherd *s, const char *found[PLAIN_WORDS_MAX],
	char **text)
{
	const struct submission *sub = &s->submission;
	uint32_t n = 0;

	*text = sub->args_n == 0 ? strdup(s->spec.run) : NULL;
	if (*text) {
		n = plain_split(*text, found);
	} else if (sub->args_n <= PLAIN_WORDS_MAX) {
		n = sub->args_n;
		memcpy(found, sub->args, n * sizeof(*found));
	}
	return plain_python(found, n);
}

/* Makes the command line of `pawl run`: its options, then the job's command. */
static int make_worker(const struct shepherd *s, char *const *options, uint32_t options_n,
	struct command_line *command, struct pawl_err *err)
{
	const char *found[PLAIN_WORDS_MAX];
	const char *first[ARGS_MAX];
	char *text;
	uint32_t n = find_python(s, found, &text);

	ASSERT(options_n < ARGS_MAX && n <= PLAIN_WORDS_MAX);
	memcpy(first, options, options_n * sizeof(*first));
	if (n == 0) {
		first[options_n] = "--no-python";
		free(text);
		return make_command_line(s, s->spec.run, (char *const *)first, options_n + 1,
			command, err);
	}
	*command = (struct command_line){.argv = calloc(options_n + n + 2, sizeof(char *)),
		.script = text};
	if (!command->argv) {
		free_command_line(command);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a command line");
	}
	memcpy(command->argv, options, options_n * sizeof(*options));
	command->argv[options_n] = (char *)(uintptr_t) "--python";
	memcpy(command->argv + options_n + 1, found, n * sizeof(*found));
	return 0;
}

/* Starts `pawl run` for all replicas. */
static int run_elastic(struct shepherd *s, struct pawl_err *err)
{
	char range[NUMBER_BYTES];
	char number[NUMBER_BYTES];
	char restarts[NUMBER_BYTES];
	char grace[NUMBER_BYTES];
	const char *options[] = {"pawl", "run", "--elastic", range, "-n", number, "--max-restarts",
		restarts, "--grace", grace, "--job", s->order.task};
	struct command_line command;
	int rv;

	snprintf(range, sizeof(range), "%u:%u", s->order.least, s->order.most);
	snprintf(number, sizeof(number), "%u", order_replicas(&s->order));
	snprintf(restarts, sizeof(restarts), "%u", s->spec.retries);
	snprintf(grace, sizeof(grace), "%.3f", (double)s->order.grace_ns / NS_PER_S * 0.85);
	rv = make_worker(s, (char *const *)options, sizeof(options) / sizeof(*options), &command,
		err);
	if (rv != 0) {
		return rv;
	}
	rv = make_children(s, 1, err);
	rv = rv == 0 ? start(s, &s->children[0], PROGRAM, command.argv, VARS_RUN, err) : rv;
	free_command_line(&command);
	return rv;
}

/* Starts `run` once per node. */
static int run_nodes(struct shepherd *s, struct pawl_err *err)
{
	uint32_t nodes = order_replicas(&s->order);
	char path[PATH_MAX];
	struct command_line command;
	int rv = make_node_command(s, false, &command, err);

	if (rv != 0) {
		return rv;
	}
	rv = find_command(s, command.argv[0], path, err);
	if (rv == 0 && s->order.supervisor[0] != '\0') {
		rv = run_port_find(&s->port, err);
	}
	rv = rv == 0 ? make_children(s, nodes, err) : rv;
	for (uint32_t i = 0; i < nodes && rv == 0; i++) {
		rv = start(s, &s->children[i], path, command.argv, VARS_RUN, err);
	}
	free_command_line(&command);
	return rv;
}

int shepherd_run(struct shepherd *s, struct pawl_err *err)
{
	return s->spec.elastic ? run_elastic(s, err) : run_nodes(s, err);
}

int shepherd_scale(struct shepherd *s, struct pawl_err *err)
{
	char number[NUMBER_BYTES];
	char wait[NUMBER_BYTES];
	char *const argv[] = {(char *)(uintptr_t) "pawl", (char *)(uintptr_t) "scale",
		s->order.task, number, (char *)(uintptr_t) "--wait", wait, NULL};
	char var[PATH_MAX + 32];
	char key[ORDER_KEY_CHARS + 32u];
	char *const env[] = {var, key, NULL};
	struct run_program program = {.path = PROGRAM, .argv = argv, .env = env, .fds_n = 3};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int rv = write_devices(s, err);

	if (rv != 0) {
		close(null_fd);
		return rv;
	}
	if (null_fd < 0) {
		return pawl_err_sys(err, "start pawl scale");
	}
	snprintf(number, sizeof(number), "%u", s->resize_n);
	snprintf(wait, sizeof(wait), "%u", times_s(TIME_SCALE_WAIT));
	snprintf(var, sizeof(var), "%s=%s", RUN_VAR, s->order.run_dir);
	snprintf(key, sizeof(key), "%s=%s", RUN_KEY_VAR, s->order.key);
	program.fds[0] = program.fds[1] = program.fds[2] = null_fd;
	rv = run_spawn(&program, &s->scaler, err);
	close(null_fd);
	return rv;
}
