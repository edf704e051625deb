/* pawl cp: copies files of a job. The job's owner may have planted links and the like that harm the
 * user who copies them (tree_copy.h). */
#include "cli/sched/jobs.h"

#include "base/err.h"
#include "cli/interrupt.h"
#include "cli/sched/tree_copy.h"
#include "engine/submission.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum option { JSON, ROOT };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	[ROOT] = JOBS_ROOT_OPTION,
	{NULL},
};

static int find_path(const struct sched_msg_shown *shown, const char *path, char full[PATH_MAX],
	struct pawl_err *err)
{
	if (shown->cwd[0] == '\0' && path[0] != '/' && path[0] != '~') {
		return pawl_err_set(err, PAWL_ENOENT,
			"the working directory of job %llu is not known any more: give an absolute "
			"PATH",
			(unsigned long long)shown->job.id);
	}
	return submission_path(shown->home, shown->cwd, path, full, err);
}

/* Files that are not copied. */
struct refused {
	const struct cli_command *command;
	json_t *left_out; /* rows of the document; owned */
	unsigned failed;  /* number of files whose copy failed */
};

static void on_left_out(void *user, const char *path, const char *why, bool failed)
{
	struct refused *refused = user;

	refused->failed += failed;
	if (failed) { /* why names the path */
		cli_print(stderr, "pawl %s: %s\n", refused->command->name, why);
	} else {
		cli_print(stderr, "pawl %s: %s is left out: it is %s\n", refused->command->name,
			path, why);
	}
	json_array_append_new(refused->left_out,
		json_pack("{s:o, s:o}", "path", cli_json_text(path), "why", cli_json_text(why)));
}

static int copy(struct refused *refused, const struct sched_msg_shown *shown, uint32_t runner,
	const char *from, const char *to, struct pawl_err *err)
{
	static struct tree_copy copy;
	struct as_user as;
	int rv = as_user_init(&as, runner, err);

	if (rv != 0) {
		return rv;
	}
	copy = (struct tree_copy){.as = &as,
		.uid = runner,
		.left_out = on_left_out,
		.user = refused};
	interrupt_catch();
	rv = tree_copy(&copy, from, to, err);
	as_user_deinit(&as);
	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv, "job %llu", (unsigned long long)shown->job.id);
}

/* Prints the document, with what was copied and what was not. Returns an exit code. */
static int print_result(const struct refused *refused, const char *from, const char *to, bool json)
{
	int rv = CLI_OK;

	if (json) {
		rv = cli_json(json_pack("{s:o, s:o, s:O}", "from", cli_json_text(from), "to",
			cli_json_text(to), "left_out", refused->left_out));
	}
	return rv == CLI_OK && refused->failed > 0 ? CLI_FAILURE : rv;
}

static int copy_from(const struct cli_command *command, const char *root, const char *from,
	const char *to, bool json)
{
	static struct sched_msg_shown shown;
	struct refused refused = {.command = command};
	size_t len = strcspn(from, ":");
	struct sched_client *client = NULL;
	char job[CORE_NAME_MAX];
	char path[PATH_MAX];
	struct pawl_err err;
	uint32_t runner = 0;
	int rv;

	if (from[len] != ':' || len == 0 || len >= sizeof(job) || from[len + 1] == '\0') {
		return cli_usage(command, "%s: JOB:PATH is needed, such as 7:out/model.pt", from);
	}
	snprintf(job, sizeof(job), "%.*s", (int)len, from);
	rv = jobs_open(&client, root, &err);
	rv = rv == 0 ? jobs_show(client, job, &shown, &err) : rv;
	rv = rv == 0 ? jobs_runner(client, &shown, &runner, &err) : rv;
	sched_client_close(client);
	rv = rv == 0 ? find_path(&shown, from + len + 1, path, &err) : rv;
	if (rv != 0) {
		return cli_fail(command, &err);
	}
	refused.left_out = json_array();
	rv = copy(&refused, &shown, runner, path, to, &err);
	rv = rv == 0 ? print_result(&refused, path, to, json) : cli_fail(command, &err);
	json_decref(refused.left_out);
	return rv;
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
		return cli_read_exit_code(what);
	}
	return n == 2 ? copy_from(command, root, paths[0], paths[1], json)
		      : cli_usage(command, "JOB:PATH and DEST are needed");
}

const struct cli_command cli_cp = {
	.name = "cp",
	.args = "JOB:PATH DEST",
	.summary = "Copy a file or directory of a job",
	.details =
		"PATH is relative to the job's working directory, unless it begins with / or ~\n"
		"(the job's home). You own the copy. Its modes are what your umask leaves, and\n"
		"it is never set-user-ID. FIFOs, sockets and devices are left out and named, and\n"
		"so are links of another user that lead out of PATH.\n",
	.options = options,
	.main = main_cp,
};
