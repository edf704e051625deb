/* pawl submit: says what a job file means, or all that is wrong with it.
 */
#include "cli/cli.h"

#include "base/err.h"
#include "cli/submit.h"
#include "sched/jobfile.h"
#include "sched/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIVEN_MAX 256u /* --env and --secret, together */

enum option { CHECK, NAME, ENV, SECRET, JSON };

static const struct cli_option options[] = {
	[CHECK] = {"--check", 0, NULL, "say what the file means, and submit nothing"},
	[NAME] = {"--name", 'n', "NAME", "of the job, whatever the file says"},
	[ENV] = {"--env", 0, "K[=V]", "a variable; without =V that of your environment"},
	[SECRET] = {"--secret", 0, "K[=V]", "the same, never shown"},
	[JSON] = {"--json", 0, NULL, "one JSON document"},
	{NULL},
};

/* What was asked for. */
struct asked {
	const char *path;                 /* of the file; "-": standard input */
	struct sched_var vars[GIVEN_MAX]; /* names are owned */
	struct jobfile_given given;       /* its vars are those above */
	bool check;                       /* see options */
	bool json;
};

/* ---- the command line ---- */

static bool read_var(const struct cli_command *command, const char *option, const char *text,
	struct asked *asked)
{
	size_t len = strcspn(text, "=");
	struct sched_var *var = &asked->vars[asked->given.vars_n];
	char *name;

	if (asked->given.vars_n == GIVEN_MAX) {
		cli_usage(command, "more than %u variables", GIVEN_MAX);
		return false;
	}
	name = strndup(text, len);
	if (!name) {
		cli_usage(command, "out of memory");
		return false;
	}
	asked->given.vars_n++;
	*var = (struct sched_var){.name = name,
		.value = text[len] == '=' ? text + len + 1 : getenv(name),
		.secret = strcmp(option, "--secret") == 0};
	if (!jobfile_is_var(name)) {
		cli_usage(command,
			"%s %s: a name is letters, digits and _, and none that Pawl sets itself",
			option, name);
		return false;
	}
	if (!var->value) {
		cli_usage(command, "%s %s: your environment has no %s; give %s=VALUE", option, name,
			name, name);
		return false;
	}
	if (strlen(var->value) >= SPEC_VALUE_MAX) {
		cli_usage(command, "%s %s: a value has at most %u bytes", option, name,
			SPEC_VALUE_MAX - 1);
		return false;
	}
	return true;
}

static bool read_option(const struct cli_command *command, int what, const char *value,
	struct asked *asked)
{
	switch (what) {
	case CLI_ARG:
		if (asked->path) {
			cli_usage(command, "unexpected argument %s", value);
			return false;
		}
		asked->path = value;
		return true;
	case CHECK:
		asked->check = true;
		return true;
	case NAME:
		if (!jobfile_is_name(value)) {
			cli_usage(command,
				"-n %s: a name is letters, digits, '.', '_' and '-', at most %u",
				value, SPEC_NAME_MAX - 1);
			return false;
		}
		asked->given.name = value;
		return true;
	case ENV:
	case SECRET:
		return read_var(command, options[what].name, value, asked);
	default:
		asked->json = true;
		return true;
	}
}

/* ---- the file ---- */

/* All of it, or one byte more than is allowed. The caller frees it. */
static int read_file(const char *path, char **bytes, size_t *len_bytes, struct pawl_err *err)
{
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char *all = malloc(TREE_BYTES_MAX + 1);
	int rv = 0;

	if (!file) {
		rv = pawl_err_sys(err, "%s", path);
		goto out;
	}
	if (!all) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "%s: no memory to read it", path);
		goto out;
	}
	*len_bytes = fread(all, 1, TREE_BYTES_MAX + 1, file);
	if (ferror(file)) {
		rv = pawl_err_sys(err, "%s", path);
		goto out;
	}
	*bytes = all;
	all = NULL;
out:
	free(all);
	if (file && file != stdin) {
		fclose(file);
	}
	return rv;
}

static int check_file(const struct cli_command *command, const struct asked *asked,
	const char *bytes, size_t len_bytes)
{
	struct remarks remarks = {0};
	struct sched_spec spec;
	struct pawl_err err;
	int rv = jobfile_decode(&spec, bytes, len_bytes, &asked->given, &remarks, &err);

	if (rv == 0) {
		rv = asked->json ? submit_print_json(asked->path, &spec)
				 : submit_print(asked->path, &spec);
		sched_spec_deinit(&spec);
		return rv;
	}
	if (rv != PAWL_EINVAL) {
		return cli_fail(command, &err);
	}
	rv = asked->json ? submit_remarks_json(asked->path, &remarks) : CLI_OK;
	submit_remarks(asked->path, &remarks);
	return rv == CLI_OK ? CLI_USAGE : rv;
}

static int submit(const struct cli_command *command, const struct asked *asked)
{
	size_t len_bytes = 0;
	struct pawl_err err;
	char *bytes = NULL;
	int rv;

	if (!asked->path) {
		return cli_usage(command, "which FILE?");
	}
	if (!asked->check) {
		fprintf(stderr,
			"pawl submit: there is no scheduler yet to submit %s to; --check says what "
			"it means\n",
			asked->path);
		return CLI_FAILURE;
	}
	if (read_file(asked->path, &bytes, &len_bytes, &err) != 0) {
		return cli_fail(command, &err);
	}
	rv = check_file(command, asked, bytes, len_bytes);
	free(bytes);
	return rv;
}

static int main_submit(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	static struct asked asked;
	bool good = true;
	int what;
	int rv;

	asked.given.vars = asked.vars;
	while (good && (what = cli_read(&reader)) >= CLI_ARG) {
		good = read_option(command, what, reader.value, &asked);
	}
	if (!good) {
		rv = CLI_USAGE;
	} else if (what != CLI_END) {
		rv = cli_leave(what);
	} else {
		rv = submit(command, &asked);
	}
	for (uint32_t i = 0; i < asked.given.vars_n; i++) {
		free((char *)asked.vars[i].name);
	}
	return rv;
}

const struct cli_command cli_submit = {
	.name = "submit",
	.args = "FILE",
	.summary = "Check a job file (there is no scheduler yet to submit it to)",
	.details =
		"FILE is YAML with the keys that users of SkyPilot know, and some of Pawl's; see\n"
		"docs/jobs.md. - is standard input. With --check it says what the job is to have,\n"
		"or, as FILE:LINE:COLUMN, all that is wrong with it. Paths are not looked at.\n"
		"\n"
		"A variable that the file leaves without a value must be given by --env or\n"
		"--secret. Those of other names are added.\n",
	.options = options,
	.main = main_submit,
};
