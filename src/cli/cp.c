/* pawl cp: files of a job.
 */
#include "cli/jobs.h"

#include "base/err.h"
#include "daemon/submission.h"

#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum option { JSON, ROOT };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "one JSON document"},
	[ROOT] = JOBS_ROOT_OPTION,
	{NULL},
};

static int find_path(const struct talk_shown *shown, const char *path, char full[PATH_MAX],
	struct pawl_err *err)
{
	if (shown->cwd[0] == '\0' && path[0] != '/' && path[0] != '~') {
		return pawl_err_set(err, PAWL_ENOENT,
			"where job %llu ran is not known any more: give a path from / on",
			(unsigned long long)shown->job.id);
	}
	return submission_path(shown->home, shown->cwd, path, full, err);
}

/* cp(1) has had all the years that copying trees needs. What is named is copied, where a link leads
 * (file_mounts are links); links within are copied as such. */
static int copy(const char *from, const char *to, struct pawl_err *err)
{
	char *const argv[] = {(char *)(uintptr_t) "cp", (char *)(uintptr_t) "-RH",
		(char *)(uintptr_t) "--preserve=mode,timestamps", (char *)(uintptr_t) "--",
		(char *)(uintptr_t)from, (char *)(uintptr_t)to, NULL};
	int status = 0;
	pid_t pid;
	int rc = posix_spawnp(&pid, "cp", NULL, NULL, argv, environ);

	if (rc != 0) {
		errno = rc;
		return pawl_err_sys(err, "run cp");
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		return pawl_err_set(err, PAWL_EIO, "%s was not copied to %s", from, to);
	}
	return 0;
}

static int copy_from(const struct cli_command *command, const char *root, const char *from,
	const char *to, bool json)
{
	static struct talk_shown shown;
	size_t len = strcspn(from, ":");
	struct talk *talk = NULL;
	char job[CORE_NAME_MAX];
	char path[PATH_MAX];
	struct pawl_err err;
	int rv;

	if (from[len] != ':' || len == 0 || len >= sizeof(job) || from[len + 1] == '\0') {
		return cli_usage(command, "%s: JOB:PATH, as in 7:out/model.pt", from);
	}
	snprintf(job, sizeof(job), "%.*s", (int)len, from);
	rv = jobs_open(&talk, root, &err);
	rv = rv == 0 ? jobs_show(talk, job, &shown, &err) : rv;
	talk_close(talk);
	rv = rv == 0 ? find_path(&shown, from + len + 1, path, &err) : rv;
	if (rv == 0 && access(path, F_OK) != 0) {
		rv = pawl_err_sys(&err, "job %llu: %s", (unsigned long long)shown.job.id, path);
	}
	rv = rv == 0 ? copy(path, to, &err) : rv;
	if (rv != 0) {
		return cli_fail(command, &err);
	}
	return json ? cli_json(json_pack("{s:o, s:o}", "from", cli_json_text(path), "to",
			      cli_json_text(to)))
		    : CLI_OK;
}

static int main_cp(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	const char *paths[2] = {NULL, NULL};
	const char *root = NULL;
	bool json = false;
	int n = 0;
	int what;

	while ((what = cli_read(&reader)) >= CLI_ARG) {
		if (what == CLI_ARG && n == 2) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		if (what == CLI_ARG) {
			paths[n++] = reader.value;
		}
		json = json || what == JSON;
		root = what == ROOT ? reader.value : root;
	}
	if (what != CLI_END) {
		return cli_leave(what);
	}
	return n == 2 ? copy_from(command, root, paths[0], paths[1], json)
		      : cli_usage(command, "JOB:PATH and DEST are needed");
}

const struct cli_command cli_cp = {
	.name = "cp",
	.args = "JOB:PATH DEST",
	.summary = "Copy a job's file, or directory",
	.details =
		"PATH is from where the job runs on, if it does not begin with / or ~ (the job's\n"
		"home).\n",
	.options = options,
	.main = main_cp,
};
