/* A queue of commands, the first of which runs: see slurm_command.h. */
#include "engine/slurm/slurm_command.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "io/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES 65536u

extern char **environ;

struct command {
	char **argv; /* owned; one allocation with its strings */
	slurm_done_fn *done;
	void *user;
	uint64_t tag;
	struct command *next;
};

/* The output of a command. */
struct stream {
	struct loop_source source; /* fd -1: closed */
	char *text;                /* owned, NUL-terminated; NULL: nothing yet */
	size_t len_bytes;
	bool overflowed; /* the command printed too much, or out of memory */
};

struct slurm_commands {
	struct loop *loop;
	char **env; /* owned; the strings are not */
	struct command *first;
	uint32_t n;
	pid_t pid;               /* process of the first command; 0: not started */
	bool late;               /* the process took too long, and was killed */
	struct loop_source exit; /* a pidfd */
	struct stream out, err;
	struct loop_timer turn; /* start of the next command, or time limit of the running one */
};

/* Returns whether a variable would change the output of Slurm's commands, or their defaults. */
static bool is_foreign(const char *var)
{
	static const char *const prefixes[] = {"SQUEUE_", "SINFO_", "SBATCH_", "SCANCEL_",
		"SCONTROL_", "SLURM_TIME_FORMAT=", "SLURM_BITSTR_LEN=",
		"SLURM_RESTART_COUNT="}; /* sbatch passes it on; Slurm sets it only above 0 */

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		if (strncmp(var, prefixes[i], strlen(prefixes[i])) == 0) {
			return true;
		}
	}
	return false;
}

static char **make_env(void)
{
	size_t n = 0;
	char **env;

	while (environ[n]) {
		n++;
	}
	env = calloc(n + 1, sizeof(*env));
	n = 0;
	for (size_t i = 0; env && environ[i]; i++) {
		if (!is_foreign(environ[i])) {
			env[n++] = environ[i];
		}
	}
	return env;
}

/* ---- the running command ---- */

static void close_stream(struct slurm_commands *c, struct stream *stream)
{
	if (stream->source.fd >= 0) {
		loop_remove(c->loop, &stream->source);
		close(stream->source.fd);
		stream->source.fd = -1;
	}
}

static void drop_stream(struct slurm_commands *c, struct stream *stream)
{
	close_stream(c, stream);
	free(stream->text);
	stream->text = NULL;
	stream->len_bytes = 0;
	stream->overflowed = false;
}

/* Reads what the command has printed so far. */
static void read_stream(struct slurm_commands *c, struct stream *stream)
{
	char bytes[READ_BYTES];
	ssize_t n;

	while (stream->source.fd >= 0 && (n = read(stream->source.fd, bytes, sizeof(bytes))) != 0) {
		char *text;

		if (n < 0) {
			return; /* no more for now */
		}
		text = stream->len_bytes + (size_t)n <= SLURM_OUTPUT_MAX
			? realloc(stream->text, stream->len_bytes + (size_t)n + 1)
			: NULL;
		if (!text) {
			stream->overflowed = true;
			break;
		}
		memcpy(text + stream->len_bytes, bytes, (size_t)n);
		stream->text = text;
		stream->len_bytes += (size_t)n;
		text[stream->len_bytes] = '\0';
	}
	close_stream(c, stream);
}

static void on_stream(struct loop_source *source, uint32_t events)
{
	struct slurm_commands *c = source->user;

	read_stream(c, source == &c->out.source ? &c->out : &c->err);
}

static void free_command(struct command *command)
{
	free(command->argv);
	free(command);
}

/* Removes the first command from the queue, and reports its outcome. error_text: why it failed or
 * was not run; NULL: use the last line on stderr. */
static void finish(struct slurm_commands *c, bool ok, const char *error_text)
{
	struct command *command = c->first;
	struct slurm_done done = {.ok = ok, .late = c->late, .out = "", .error_text = error_text};
	char *line = c->err.text;

	ASSERT(c->n > 0 && c->exit.fd < 0);
	done.tag = command->tag;
	while (!error_text && line) { /* the last line that is not empty */
		char *end = strrchr(line, '\n');

		if (!end || end[1] != '\0') {
			done.error_text = end ? end + 1 : line;
			break;
		}
		*end = '\0';
	}
	done.error_text = done.error_text ? done.error_text : "";
	done.out = c->out.text ? c->out.text : "";
	c->first = command->next;
	c->n--;
	ASSERT((c->n > 0) == (c->first != NULL));
	c->pid = 0;
	c->late = false;
	command->done(command->user, &done);
	free_command(command);
	drop_stream(c, &c->out);
	drop_stream(c, &c->err);
	if (c->first) {
		loop_timer_start(c->loop, &c->turn, clock_mono_ns());
	} else {
		loop_timer_cancel(c->loop, &c->turn);
	}
}

/* Returns why a command failed, if its stderr does not tell; else NULL. */
static const char *describe_exit(const struct slurm_commands *c, bool ok, int status, char text[64])
{
	if (c->out.overflowed) {
		return "its output is too long";
	}
	if (c->late) {
		snprintf(text, 64, "killed after %d s", (int)times_s(TIME_SLURM_COMMAND));
	} else if (!ok && WIFSIGNALED(status)) {
		snprintf(text, 64, "killed by signal %d", WTERMSIG(status));
	} else if (!ok && c->err.len_bytes == 0) {
		snprintf(text, 64, "exit code %d without a message", WEXITSTATUS(status));
	} else {
		return NULL;
	}
	return text;
}

static void on_exit_of(struct loop_source *source, uint32_t events)
{
	struct slurm_commands *c = source->user;
	int status = -1;
	char text[64];
	bool ok;

	ASSERT(c->pid > 0 && c->first != NULL);
	ok = waitpid(c->pid, &status, 0) == c->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	loop_remove(c->loop, &c->exit);
	close(c->exit.fd);
	c->exit.fd = -1;
	read_stream(c, &c->out);
	read_stream(c, &c->err);
	finish(c, ok && !c->out.overflowed, describe_exit(c, ok, status, text));
}

/* Makes a pipe whose read end the loop watches; *write_fd is the caller's. */
static int open_stream(struct slurm_commands *c, struct stream *stream, int *write_fd,
	struct pawl_err *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0) {
		return pawl_err_sys(err, "make a pipe");
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	*write_fd = ends[1];
	stream->source = (struct loop_source){.fd = ends[0], .ready = on_stream, .user = c};
	if (loop_add(c->loop, &stream->source, EPOLLIN, err) != 0) {
		close(ends[0]);
		stream->source.fd = -1;
		return PAWL_EIO;
	}
	return 0;
}

static int spawn(struct slurm_commands *c, int out, int err_fd, struct pawl_err *err)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int rv;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setpgroup(&attr, 0); /* a site may wrap a command in a script */
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&files, err_fd, STDERR_FILENO);
	posix_spawn_file_actions_addclosefrom_np(&files, 3);
	rv = posix_spawnp(&c->pid, c->first->argv[0], &files, &attr, c->first->argv, c->env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	if (rv != 0) {
		c->pid = 0;
		errno = rv;
		return pawl_err_sys(err, "%s (is Slurm installed here?)", c->first->argv[0]);
	}
	return 0;
}

static int watch(struct slurm_commands *c, struct pawl_err *err)
{
	c->exit = (struct loop_source){.fd = pidfd_open(c->pid, 0), .ready = on_exit_of, .user = c};
	if (c->exit.fd < 0 || loop_add(c->loop, &c->exit, EPOLLIN, err) != 0) {
		kill(-c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
		if (c->exit.fd >= 0) {
			close(c->exit.fd);
			c->exit.fd = -1;
		}
		return pawl_err_set(err, PAWL_EIO, "watch %s", c->first->argv[0]);
	}
	return 0;
}

static void start(struct slurm_commands *c)
{
	struct pawl_err err = {0};
	int out = -1;
	int err_fd = -1;
	int rv;

	/* Nothing is left of the command before. */
	ASSERT(c->pid == 0 && c->exit.fd < 0 && c->out.source.fd < 0 && c->err.source.fd < 0);
	rv = open_stream(c, &c->out, &out, &err);
	rv = rv == 0 ? open_stream(c, &c->err, &err_fd, &err) : rv;
	rv = rv == 0 ? spawn(c, out, err_fd, &err) : rv;
	if (out >= 0) {
		close(out);
	}
	if (err_fd >= 0) {
		close(err_fd);
	}
	rv = rv == 0 ? watch(c, &err) : rv;
	if (rv != 0) {
		finish(c, false, err.msg);
		return;
	}
	loop_timer_start(c->loop, &c->turn, clock_mono_ns() + times_ns(TIME_SLURM_COMMAND));
}

static void on_turn(struct loop_timer *timer)
{
	struct slurm_commands *c = timer->user;

	if (c->pid > 0) {
		c->late = true;
		kill(-c->pid, SIGKILL); /* on_exit_of follows */
	} else if (c->first) {
		start(c);
	}
}

/* ---- the queue ---- */

int slurm_commands_open(struct slurm_commands **commands, struct loop *loop, struct pawl_err *err)
{
	struct slurm_commands *c = calloc(1, sizeof(*c));

	if (!c) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	c->loop = loop;
	c->out.source.fd = c->err.source.fd = c->exit.fd = -1;
	c->turn = (struct loop_timer){.fired = on_turn, .user = c};
	c->env = make_env();
	if (!c->env) {
		free(c);
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	*commands = c;
	return 0;
}

void slurm_commands_close(struct slurm_commands *c)
{
	if (!c) {
		return;
	}
	if (c->pid > 0) {
		kill(-c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
	}
	if (c->exit.fd >= 0) {
		loop_remove(c->loop, &c->exit);
		close(c->exit.fd);
	}
	drop_stream(c, &c->out);
	drop_stream(c, &c->err);
	loop_timer_cancel(c->loop, &c->turn);
	while (c->first) {
		struct command *next = c->first->next;

		free_command(c->first);
		c->first = next;
	}
	free(c->env);
	free(c);
}

/* Copies the array and its strings into one allocation. */
static char **copy_argv(const char *const *argv)
{
	size_t bytes = 0;
	size_t n = 0;
	char **copy;
	char *at;

	for (; argv[n]; n++) {
		bytes += strlen(argv[n]) + 1;
	}
	copy = calloc(1, (n + 1) * sizeof(*copy) + bytes);
	at = copy ? (char *)(copy + n + 1) : NULL;
	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = at;
		memcpy(at, argv[i], strlen(argv[i]) + 1);
		at += strlen(argv[i]) + 1;
	}
	return copy;
}

int slurm_commands_add(struct slurm_commands *c, const char *const *argv, slurm_done_fn *done,
	void *user, uint64_t tag, struct pawl_err *err)
{
	struct command **last = &c->first;
	struct command *command;

	if (c->n == SLURM_COMMANDS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"%s: %u of Slurm's commands are queued already", argv[0],
			SLURM_COMMANDS_MAX);
	}
	command = calloc(1, sizeof(*command));
	if (command) {
		command->argv = copy_argv(argv);
	}
	if (!command || !command->argv) {
		free(command);
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	command->done = done;
	command->user = user;
	command->tag = tag;
	while (*last) {
		last = &(*last)->next;
	}
	*last = command;
	if (c->n++ == 0) {
		loop_timer_start(c->loop, &c->turn, clock_mono_ns());
	}
	return 0;
}
