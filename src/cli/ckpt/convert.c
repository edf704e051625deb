/* The Python process that converts formats: see convert.h. */
#include "cli/ckpt/convert.h"

#include "base/err.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "launch/run_plan.h"
#include "launch/run_spawn.h"
#include "launch/run_warm.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_BYTES (1 << 20) /* the most that a process without privileges may ask for */

static const char *const fixed[] = {"-u", "-m", "pawl._convert"};

#define FIXED_N (sizeof(fixed) / sizeof(fixed[0]))

static int spawn(struct convert *convert, const char *const *args, int null_fd, int their_fd,
	struct pawl_err *err)
{
	const char *argv[1 + FIXED_N + CONVERT_ARGS_MAX] = {convert->python};
	struct run_program program = {
		.path = convert->python,
		.argv = (char *const *)(uintptr_t)argv,
		.env = environ,
		.fds = {null_fd, STDERR_FILENO, STDERR_FILENO, their_fd},
		.fds_n = 4,
	};
	size_t n = 1;

	for (size_t i = 0; i < FIXED_N; i++) {
		argv[n++] = fixed[i];
	}
	for (size_t i = 0; args[i] != NULL && i < CONVERT_ARGS_MAX - 1; i++) {
		argv[n++] = args[i];
	}
	return run_spawn(&program, &convert->pid, err);
}

int convert_start(struct convert *convert, const char *python, const char *const *args,
	struct pawl_err *err)
{
	int null_fd;
	int ends[2];
	int rv;

	run_warm_take();
	rv = run_python_find(convert->python, sizeof(convert->python), python, err);
	if (rv != 0) {
		return rv;
	}
	null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null_fd < 0 || pipe2(ends, O_CLOEXEC) != 0) {
		rv = pawl_err_sys(err, "start %s", convert->python);
		goto close_null;
	}
	fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES); /* a smaller pipe works as well */
	rv = spawn(convert, args, null_fd, ends[1], err);
	close(ends[1]);
	convert->from = rv == 0 ? fdopen(ends[0], "r") : NULL;
	if (convert->from == NULL) {
		close(ends[0]);
		rv = rv != 0 ? rv : pawl_err_sys(err, "start %s", convert->python);
	}
close_null:
	if (null_fd >= 0) {
		close(null_fd);
	}
	return rv;
}

/* Sets the error of a process that ended before it was done. Returns PAWL_EIO, or PAWL_ECANCELED
 * after a signal to this process. */
static int describe_exit(struct convert *convert, struct pawl_err *err)
{
	int rv = interrupt_check(err);
	int status = 0;

	if (rv != 0) {
		return rv;
	}
	kill(-convert->pid, SIGKILL); /* a process that is still alive sent a malformed message */
	waitpid(convert->pid, &status, 0);
	convert->pid = 0;
	return pawl_err_set(err, PAWL_EIO,
		"%s -m pawl._convert ended with %s %d: is pawl installed there? --python names "
		"another interpreter",
		convert->python, WIFSIGNALED(status) ? "signal" : "code",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static int code_of(const char *name)
{
#define X(code, value, text)                                                                       \
	if (strcmp(name, #code) == 0) {                                                            \
		return value;                                                                      \
	}
	PAWL_ERRORS(X)
#undef X
	return PAWL_EIO;
}

/* Handles a message if it is progress or a note, which any command may get. Returns whether it
 * was. */
static bool handle(struct convert *convert, json_t *message)
{
	json_t *progress = json_object_get(message, "progress");
	const char *note = json_string_value(json_object_get(message, "note"));
	const char *name = json_string_value(json_object_get(message, "name"));

	if (progress != NULL) {
		uint64_t done = (uint64_t)json_integer_value(json_array_get(progress, 0));

		convert->progress->total_bytes =
			(uint64_t)json_integer_value(json_array_get(progress, 1));
		progress_name(convert->progress, "", name != NULL ? name : "");
		progress_add(convert->progress, done - convert->progress->done_bytes);
	} else if (note != NULL) {
		progress_wipe(convert->progress);
		cli_print(stderr, "pawl %s: %s\n", convert->command, note);
	}
	return progress != NULL || note != NULL;
}

/* Returns the text under a key, or otherwise if there is none. */
static const char *text_of(const json_t *json, const char *key, const char *otherwise)
{
	const char *text = json_string_value(json_object_get(json, key));

	return text != NULL ? text : otherwise;
}

int convert_next(struct convert *convert, json_t **message, struct pawl_err *err)
{
	for (;;) {
		ssize_t len = getline(&convert->line, &convert->line_cap, convert->from);
		json_t *json = len > 0 ? json_loadb(convert->line, (size_t)len, 0, NULL) : NULL;
		const char *error = json_string_value(json_object_get(json, "error"));

		if (json == NULL) {
			return describe_exit(convert, err);
		}
		if (error != NULL) {
			int rv = code_of(error);

			pawl_err_set(err, rv, "%s", text_of(json, "message", error));
			json_decref(json);
			return rv;
		}
		if (handle(convert, json)) {
			json_decref(json);
			continue;
		}
		*message = json;
		if (json_is_true(json_object_get(json, "done"))) {
			json_decref(json);
			*message = NULL;
		}
		return 0;
	}
}

int convert_read(struct convert *convert, void *buf, size_t len_bytes, struct pawl_err *err)
{
	return fread(buf, 1, len_bytes, convert->from) == len_bytes ? 0
								    : describe_exit(convert, err);
}

void convert_stop(struct convert *convert)
{
	if (convert->from != NULL) {
		fclose(convert->from);
	}
	if (convert->pid != 0) {
		kill(-convert->pid, SIGKILL);
		waitpid(convert->pid, NULL, 0);
	}
	free(convert->line);
	*convert = (struct convert){.pid = 0};
}
