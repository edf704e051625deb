/* What credentials need from outside: see cred_io.h. */
#include "store/object/cred_io.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMAND_TEXT_MAX (64u << 10)     /* bytes that a command may print */
#define COMMAND_NS       (10 * NS_PER_S) /* how long it may take */
#define ANSWER_TEXT_MAX  (64u << 10)

extern char **environ;

static const char *get_env(void *user, const char *name)
{
	return getenv(name);
}

/* Reads from fd until its end, at most max_bytes, into memory with a NUL behind it. end_ns: on the
 * monotonic clock; INT64_MAX: never. */
static int read_all(int fd, size_t max_bytes, int64_t end_ns, char **out, struct pawl_err *err)
{
	char *text = FAULT_MEM("cred.text", malloc(max_bytes + 2));
	size_t n = 0;
	int rv = 0;

	if (text == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu bytes", max_bytes);
	}
	while (rv == 0 && n <= max_bytes) {
		struct pollfd poller = {fd, POLLIN, 0};
		int64_t left_ns = end_ns - clock_mono_ns();
		ssize_t got;

		if (end_ns != INT64_MAX &&
			(left_ns <= 0 || poll(&poller, 1, (int)(left_ns / NS_PER_MS) + 1) == 0)) {
			rv = pawl_err_set(err, PAWL_ETIMEDOUT, "it did not end in time");
			continue;
		}
		got = FAULT_SYS("cred.read", read(fd, text + n, max_bytes + 1 - n));
		if (got < 0 && errno != EINTR) {
			rv = pawl_err_sys(err, "read");
		} else if (got == 0) {
			break;
		}
		n += got > 0 ? (size_t)got : 0;
	}
	if (rv == 0 && n > max_bytes) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "more than %zu bytes", max_bytes);
	}
	if (rv != 0) {
		explicit_bzero(text, n);
		free(text);
		return rv;
	}
	text[n] = '\0';
	*out = text;
	return 0;
}

static int read_file(void *user, const char *path, size_t max_bytes, char **text,
	struct pawl_err *err)
{
	struct cred_net *net = user;
	int fd = FAULT_SYS("cred.open", open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	struct stat st;
	int rv;

	if (fd < 0) {
		return pawl_err_sys(err, "open %s", path);
	}
	if (!net->warned && fstat(fd, &st) == 0 && (st.st_mode & S_IROTH) != 0) {
		net->warned = true;
		log_line(LOG_WARNING, "%s can be read by every user of this machine: chmod 600 it",
			path);
	}
	rv = read_all(fd, max_bytes, INT64_MAX, text, err);
	close(fd);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", path);
}

/* Starts a command in a process group of its own, with its standard output in fd. */
static int start(const char *command, int fd, pid_t *pid)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int sys;

	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	sys = posix_spawn(pid, "/bin/sh", &actions, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return sys;
}

/* Waits until a command has ended, and kills it and its children at end_ns. Returns its status. */
static int await(pid_t pid, int64_t end_ns)
{
	const struct timespec pause = {0, 10 * NS_PER_MS};
	int status = 0;
	pid_t got;

	while ((got = waitpid(pid, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
		if (clock_mono_ns() >= end_ns) {
			kill(-pid, SIGKILL);
		}
		nanosleep(&pause, NULL);
	}
	return status;
}

static int run(void *user, const char *command, char **text, struct pawl_err *err)
{
	int64_t end_ns = clock_mono_ns() + COMMAND_NS;
	int fds[2];
	int status;
	pid_t pid;
	int rv;

	if (FAULT_SYS("cred.pipe", pipe2(fds, O_CLOEXEC)) != 0) {
		return pawl_err_sys(err, "credential_process");
	}
	errno = start(command, fds[1], &pid);
	close(fds[1]);
	if (errno != 0) {
		close(fds[0]);
		return pawl_err_sys(err, "credential_process");
	}
	rv = read_all(fds[0], COMMAND_TEXT_MAX, end_ns, text, err);
	close(fds[0]);
	status = await(pid, rv == 0 ? end_ns : 0);
	if (rv == 0 && status != 0) {
		explicit_bzero(*text, strlen(*text));
		free(*text);
		rv = pawl_err_set(err, PAWL_EIO, "it failed with %s %d",
			WIFSIGNALED(status) ? "signal" : "status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "credential_process");
}

/* The body of a request. */
static size_t read_body(void *user, uint64_t off, void *bytes, size_t size)
{
	const char *body = user;

	memcpy(bytes, body + off, size);
	return size;
}

static int fetch(void *user, const struct object_request *request, const char *body, int timeout_ms,
	int *status, char **text, struct pawl_err *err)
{
	struct cred_net *net = user;
	struct http_call call = {.request = request, .text_max = ANSWER_TEXT_MAX, .patient = true};
	int rv;

	if (body != NULL && body[0] != '\0') {
		call.body_bytes = strlen(body);
		call.read = read_body;
		call.user = (void *)body;
	}
	rv = http_begin(net->http, &call, err);
	if (rv != 0) {
		return rv;
	}
	if (http_reap(net->http, timeout_ms) == NULL) {
		http_cancel(net->http, &call);
		return pawl_err_set(err, PAWL_ETIMEDOUT, "no answer within %d ms", timeout_ms);
	}
	if (call.rv != 0) {
		if (call.text != NULL) {
			explicit_bzero(call.text, call.text_bytes);
		}
		free(call.text);
		return pawl_err_set(err, call.rv == PAWL_ETIMEDOUT ? call.rv : PAWL_EIO, "%s",
			call.why);
	}
	*status = call.status;
	*text = call.text != NULL ? call.text : FAULT_MEM("cred.text", calloc(1, 1));
	return *text != NULL ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for an answer");
}

int cred_net_open(struct cred_net *net, const struct http_options *options, struct cred_io *io,
	struct pawl_err *err)
{
	*io = (struct cred_io){net, get_env, read_file, run, fetch};
	return http_pool_open(options, &net->http, err);
}

void cred_net_close(struct cred_net *net)
{
	http_pool_close(net->http);
	net->http = NULL;
}
