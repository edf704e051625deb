/* Runs a part's programs, and kills all their descendants: see slurm_keeper.h. */
#include "engine/slurm/pilot/slurm_keeper.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/times.h"
#include "engine/job_log.h"
#include "engine/mounts.h"
#include "engine/scratch.h"
#include "engine/slurm/slurm_form.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_NOT_EXECUTABLE 126 /* as in shells */
#define EXIT_NOT_FOUND      127
#define EXIT_KILLED         (128 + SIGKILL)
#define COPY_BYTES          65536u

/* Logs an error with errno's text to stderr, which by then leads to the part's log. */
static void log_errno(const char *what, const char *name)
{
	int sys = errno;

	log_line(LOG_ERROR, "%s %s: %s", what, name, strerror(sys));
	errno = sys;
}

/* ---- strays ---- */

bool slurm_keeper_kill_strays(const pid_t *kept, uint32_t kept_n)
{
	DIR *all = opendir("/proc");
	struct dirent *entry;
	bool any = false;

	while (all && (entry = readdir(all)) != NULL) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		bool is_kept = pid <= 0 || !proc_is_child((uint32_t)pid);

		for (uint32_t i = 0; i < kept_n && !is_kept; i++) {
			is_kept = kept[i] == pid;
		}
		if (!is_kept) {
			any = true;
			kill(pid, SIGKILL);
		}
	}
	if (all) {
		closedir(all);
	}
	return any;
}

/* Kills all descendants. A process that loses its parent becomes a child of this one, and is killed
 * next. */
static void sweep(void)
{
	for (;;) {
		slurm_keeper_kill_strays(NULL, 0);
		while (waitpid(-1, NULL, WNOHANG) > 0) {
		}
		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) {
			return;
		}
		times_sleep(TIME_KEEP_SWEEP);
	}
}

/* ---- the program ---- */

static _Noreturn void exec_program(char *const *argv, char *const *env, pid_t parent)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};
	sigset_t none;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGPIPE, &plain, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (getppid() != parent) {
		_exit(EXIT_KILLED);
	}
	close_range(3, ~0u, 0);
	execvpe(argv[0], argv, env);
	log_errno("run", argv[0]);
	_exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static int status_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Reaps all children that have ended. Returns whether the program is one of them. */
static bool reap(pid_t program, int *code)
{
	bool over = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == program) {
			over = true;
			*code = status_of(status);
		}
	}
	return over;
}

/* Runs a program to its end, and returns its exit status. On SIGUSR1, kills all descendants. */
static int run(char *const *argv, char *const *env, const sigset_t *watched)
{
	pid_t self = getpid();
	pid_t program = fork();
	int code = EXIT_KILLED;

	if (program == 0) {
		exec_program(argv, env, self);
	}
	if (program < 0) {
		log_errno("fork", argv[0]);
		return EXIT_NOT_EXECUTABLE;
	}
	setpgid(program, program); /* parent and child both set it, in either order */
	while (!reap(program, &code)) {
		int got = sigwaitinfo(watched, NULL);

		if (got == SIGTERM) {
			kill(-program, SIGTERM);
		} else if (got == SIGUSR2) {
			kill(program, SIGUSR1);
		} else if (got == SIGUSR1) {
			sweep();
			return EXIT_KILLED;
		}
	}
	return code;
}

/* ---- the keeper ---- */

static bool in_list(char *const *list, const char *text, size_t len)
{
	for (uint32_t i = 0; list[i]; i++) {
		if (strncmp(list[i], text, len) == 0 && list[i][len] == '=') {
			return true;
		}
	}
	return false;
}

/* Merges set over base, without base's SLURM variables, which describe the pilot and not the job.
 * If set has a name twice, the last one counts: the job's variables follow the submitter's. */
static char **merge_env(char *const *base, char *const *set)
{
	size_t n = 0;
	size_t room;
	char **env;

	while (base[n]) {
		n++;
	}
	room = n + SLURM_ARGS_MAX;
	env = calloc(room + 1, sizeof(*env));
	n = 0;
	for (uint32_t i = 0; env && base[i]; i++) {
		bool slurm = strncmp(base[i], "SLURM", 5) == 0 &&
			strncmp(base[i], "SLURM_CONF=", 11) != 0;

		if (!slurm && !in_list(set, base[i], strcspn(base[i], "="))) {
			env[n++] = base[i];
		}
	}
	for (uint32_t i = 0; env && set[i]; i++) {
		if (!in_list(set + i + 1, set[i], strcspn(set[i], "="))) {
			env[n++] = set[i];
		}
	}
	ASSERT(n <= room);
	return env;
}

/* ---- the log ---- */

/* All programs write to one pipe, which a thread copies to the log. So if a write hangs on a dead
 * file server, this process can still kill the others. */
struct output {
	struct job_log *log;
	int from;    /* read end of the pipe */
	int over[2]; /* pipe whose write end the thread closes when it ends */
	pthread_t thread;
};

static void *write_log(void *user)
{
	struct output *output = user;
	char bytes[COPY_BYTES];
	ssize_t n;

	while ((n = read(output->from, bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR)) {
		if (n > 0) {
			job_log_write(output->log, bytes, (size_t)n);
		}
	}
	close(output->over[1]);
	return NULL;
}

/* Opens the log and its thread, and redirects the standard streams: input from /dev/null, output to
 * the pipe. */
static bool open_output(struct output *output, const char *log)
{
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct pawl_err err;
	int ends[2];

	if (job_log_open(&output->log, log, 0600, &err) != 0) {
		log_line(LOG_ERROR, "%s", err.msg);
		return false;
	}
	if (in < 0 || pipe2(ends, O_CLOEXEC) != 0 || pipe2(output->over, O_CLOEXEC) != 0) {
		log_errno("log", log);
		return false;
	}
	output->from = ends[0];
	errno = pthread_create(&output->thread, NULL, write_log, output);
	if (errno != 0) {
		log_errno("log", log);
		return false;
	}
	return dup2(in, STDIN_FILENO) >= 0 && dup2(ends[1], STDOUT_FILENO) >= 0 &&
		dup2(ends[1], STDERR_FILENO) >= 0 && close(ends[1]) == 0;
}

/* Closes this process's end of the pipe, and waits until all output is written, for a limited time.
 * No other process has the pipe any more. */
static void close_output(struct output *output)
{
	struct pollfd over = {.fd = output->over[0]}; /* readable once the thread closes its end */
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (nowhere >= 0) {
		dup2(nowhere, STDOUT_FILENO);
		dup2(nowhere, STDERR_FILENO);
	}
	if (poll(&over, 1, times_ms(TIME_KEEP_LAST)) == 1) {
		pthread_join(output->thread, NULL);
	}
}

/* Enters the working directory, and makes the links of file_mounts. */
static bool prepare(const struct slurm_program_view *view)
{
	struct pawl_err err;

	if (chdir(view->cwd) != 0) {
		log_errno("enter", view->cwd);
		return false;
	}
	for (uint32_t i = 0; view->mounts[i] && view->mounts[i + 1]; i += 2) {
		if (mounts_link(view->mounts[i], view->mounts[i + 1], &err) != 0) {
			log_line(LOG_ERROR, "file_mounts: %s", err.msg);
			return false;
		}
	}
	return true;
}

static bool make_scratch(const char *path)
{
	struct pawl_err err;

	if (path[0] != '\0' && scratch_make(path, &err) != 0) {
		log_line(LOG_ERROR, "%s", err.msg);
		return false;
	}
	return true;
}

/* Runs setup, then run. Returns the exit status. */
static int run_both(const struct slurm_program_view *view, char *const *setup_env, char *const *env,
	const sigset_t *watched)
{
	int code = 0;

	if (view->setup[0]) {
		code = run(view->setup, setup_env, watched);
		sweep();
	}
	if (code == 0 && write(3, "", 1) == 1) {
		code = run(view->run, env, watched);
		sweep();
	}
	return code;
}

static _Noreturn void keeper_main(const struct slurm_program_view *view, const char *scratch,
	char *const *base_env, int started, pid_t parent)
{
	char **setup_env = merge_env(base_env, view->setup_env);
	char **env = merge_env(base_env, view->env);
	struct output output;
	sigset_t watched;
	int code = SLURM_EXIT_NOT_BEGUN;

	sigemptyset(&watched);
	sigaddset(&watched, SIGCHLD);
	sigaddset(&watched, SIGTERM);
	sigaddset(&watched, SIGUSR1);
	sigaddset(&watched, SIGUSR2);
	sigprocmask(SIG_BLOCK, &watched, NULL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	dup2(started, 3);
	close_range(4, ~0u, 0);
	fcntl(3, F_SETFD, FD_CLOEXEC);
	if (getppid() != parent || !env || !setup_env || !open_output(&output, view->log)) {
		_exit(SLURM_EXIT_NOT_BEGUN);
	}
	if (prepare(view) && make_scratch(scratch)) {
		code = run_both(view, setup_env, env, &watched);
	}
	close_output(&output);
	_exit(code);
}

int slurm_keeper_start(const struct slurm_program_view *view, const char *scratch,
	char *const *base_env, pid_t *pid, int *started, struct pawl_err *err)
{
	pid_t parent = getpid();
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
		return pawl_err_sys(err, "make a pipe");
	}
	child = fork();
	if (child == 0) {
		keeper_main(view, scratch, base_env, ends[1], parent);
	}
	close(ends[1]);
	if (child < 0) {
		close(ends[0]);
		return pawl_err_sys(err, "fork");
	}
	*pid = child;
	*started = ends[0];
	return 0;
}

/* ---- resizing ---- */

/* Returns scale's arguments, with n appended. The caller frees the array, but not its strings. */
static char **scale_argv(const struct slurm_program_view *view, char *n)
{
	size_t count = 0;
	char **argv;

	while (view->scale[count]) {
		count++;
	}
	argv = calloc(count + 2, sizeof(*argv));
	if (argv) {
		memcpy(argv, view->scale, count * sizeof(*argv));
		argv[count] = n;
	}
	return argv;
}

int slurm_keeper_scale(const struct slurm_program_view *view, char *const *base_env, uint32_t n,
	pid_t *pid, struct pawl_err *err)
{
	char number[16];
	char **argv = scale_argv(view, number);
	char **env = merge_env(base_env, view->env);
	pid_t self = getpid();
	pid_t child = 0;
	int rv = argv && env ? 0 : pawl_err_set(err, PAWL_ENOMEM, "out of memory");

	snprintf(number, sizeof(number), "%u", n);
	if (rv == 0) {
		child = fork();
		if (child == 0) {
			exec_program(argv, env, self);
		}
		rv = child < 0 ? pawl_err_sys(err, "fork") : 0;
	}
	if (rv == 0) {
		*pid = child;
	}
	free(argv);
	free(env);
	return rv;
}
