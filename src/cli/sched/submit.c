/* pawl submit: prints what a job file means, or all errors in it; or submits the job. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/wire.h"
#include "cli/sched/jobs.h"
#include "cli/sched/submit.h"
#include "sched/jobfile/jobfile.h"
#include "sched/jobfile/tree.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIVEN_MAX 256u /* variables of --env and --secret, together */

enum option {
	CHECK,
	STRICT,
	NAME,
	ENV,
	SECRET,
	REPLICAS,
	NODES,
	QUEUE,
	PRIORITY,
	RETRIES,
	TIME,
	ROOT,
	JSON
};

static const struct cli_option options[] = {
	[CHECK] = {"--check", 0, NULL, "print what the file means, and submit nothing"},
	[STRICT] = {"--strict", 0, NULL, "refuse keys that have no effect here"},
	[NAME] = {"--name", 'n', "NAME", "name of the job, in place of the file's"},
	[ENV] = {"--env", 0, "K[=V]", "set a variable; without =V, from your environment"},
	[SECRET] = {"--secret", 0, "K[=V]", "the same, but the value is never shown"},
	[REPLICAS] = {"--replicas", 0, "MIN:MAX", "for COMMAND: replicas, as many as pay off"},
	[NODES] = {"--num-nodes", 0, "N", "for COMMAND: nodes; it runs on each (1)"},
	[QUEUE] = {"--queue", 0, "NAME", "for COMMAND: queue"},
	[PRIORITY] = {"--priority", 0, "P", "for COMMAND: priority; higher runs sooner (0)"},
	[RETRIES] = {"--retries", 0, "N", "for COMMAND: restarts after failures, at most (0)"},
	[TIME] = {"--time-limit", 0, "T", "for COMMAND: time limit, e.g. 90s, 30m or 12h"},
	[ROOT] = JOBS_ROOT_OPTION,
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

/* The command line. */
struct submit_args {
	const char *path;                 /* path of the file; "-": standard input */
	struct sched_var vars[GIVEN_MAX]; /* names are owned */
	struct jobfile_given given;       /* settings of the command line; points to vars */
	struct wire_out made;             /* a job file for the command; empty: there is none */
	char *const *words;               /* the command; NULL: there is none */
	const char *root;                 /* --root */
	bool check;                       /* --check */
	bool json;
};

/* ---- the command line ---- */

static bool read_var(const struct cli_command *command, const char *option, const char *text,
	struct submit_args *args)
{
	size_t len = strcspn(text, "=");
	struct sched_var *var = &args->vars[args->given.vars_n];
	char *name;

	if (args->given.vars_n == GIVEN_MAX) {
		cli_usage(command, "more than %u variables", GIVEN_MAX);
		return false;
	}
	name = strndup(text, len);
	if (!name) {
		cli_usage(command, "out of memory");
		return false;
	}
	args->given.vars_n++;
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

/* Adds a line to the job file that is made for a command. */
__attribute__((format(printf, 2, 3))) static void add_line(struct submit_args *args,
	const char *fmt, ...)
{
	char text[256];
	va_list list;
	int len;

	va_start(list, fmt);
	len = vsnprintf(text, sizeof(text), fmt, list);
	va_end(list);
	args->made.failed = args->made.failed || len < 0 || (size_t)len >= sizeof(text);
	wire_put_raw(&args->made, text, args->made.failed ? 0 : (size_t)len);
}

/* Adds "1:8" as "1..8" to the job file, whose decoder reports other errors. */
static bool add_replicas(const struct cli_command *command, const char *value,
	struct submit_args *args)
{
	unsigned least = 0;
	unsigned most = 0;
	int used = 0;

	if (sscanf(value, "%4u:%4u%n", &least, &most, &used) != 2 || value[used] != '\0' ||
		least < 1 || least > most || most > SPEC_NODES_MAX) {
		cli_usage(command, "--replicas %s: MIN:MAX is needed, such as 1:8", value);
		return false;
	}
	add_line(args, "replicas: %u..%u\n", least, most);
	return true;
}

/* Adds an option of a command: a line of its job file. */
static bool add_option(const struct cli_command *command, int what, const char *value,
	struct submit_args *args)
{
	static const struct {
		const char *key;
		const char *allowed; /* characters of a value */
	} keys[] = {[NODES] = {"num_nodes", "0123456789"},
		[PRIORITY] = {"priority", "-0123456789"},
		[RETRIES] = {"retries", "0123456789"},
		[TIME] = {"time_limit", "0123456789dhms:"}};

	if (what == REPLICAS) {
		return add_replicas(command, value, args);
	}
	if (what == QUEUE ? !jobfile_is_name(value)
			  : value[0] == '\0' || value[strspn(value, keys[what].allowed)] != '\0') {
		cli_usage(command, "%s %s: the value is not valid", options[what].name, value);
		return false;
	}
	if (what == QUEUE) {
		add_line(args, "queue: \"%s\"\n", value);
	} else {
		add_line(args, "%s: %s\n", keys[what].key, value);
	}
	return true;
}

static bool read_option(const struct cli_command *command, int what, const char *value,
	struct submit_args *args)
{
	switch (what) {
	case REPLICAS:
	case NODES:
	case QUEUE:
	case PRIORITY:
	case RETRIES:
	case TIME:
		return add_option(command, what, value, args);
	case ROOT:
		args->root = value;
		return true;
	case CLI_ARG:
		if (args->path) {
			cli_usage(command, "unexpected argument %s", value);
			return false;
		}
		args->path = value;
		return true;
	case CHECK:
		args->check = true;
		return true;
	case STRICT:
		args->given.strict = true;
		return true;
	case NAME:
		if (!jobfile_is_name(value)) {
			cli_usage(command,
				"-n %s: a name is letters, digits, '.', '_' and '-', at most %u",
				value, SPEC_NAME_MAX - 1);
			return false;
		}
		args->given.name = value;
		return true;
	case ENV:
	case SECRET:
		return read_var(command, options[what].name, value, args);
	default: /* JSON */
		args->json = true;
		return true;
	}
}

/* ---- the file ---- */

/* Reads the whole file, or one byte more than is allowed. The caller frees *bytes. */
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

/* Names the job after its command or file, if neither the file nor --name names it. */
static void name_job(const struct submit_args *args, const struct sched_spec *spec,
	struct submit_job *job)
{
	const char *from = args->path;

	for (uint32_t i = 0; args->words && args->words[i]; i++) {
		size_t len = strlen(args->words[i]);

		if (i == 0 || (len > 3 && strcmp(args->words[i] + len - 3, ".py") == 0)) {
			from = args->words[i];
		}
	}
	submit_name(job->name_buf, !from || strcmp(from, "-") == 0 ? "job" : from);
	job->name = spec->name ? NULL : job->name_buf;
}

static int send_job(const struct cli_command *command, const struct submit_args *args,
	const struct sched_spec *spec, const char *bytes, size_t len_bytes)
{
	struct submit_job job = {.file = bytes,
		.len_bytes = (uint32_t)len_bytes,
		.given = &args->given,
		.words = args->words,
		.root = args->root};
	struct pawl_err err;
	uint64_t id = 0;

	name_job(args, spec, &job);
	if (submit_send(&job, &id, &err) != 0) {
		return cli_fail(command, &err);
	}
	if (args->json) {
		return cli_json(json_pack("{s:I, s:s}", "id", (json_int_t)id, "name",
			job.name ? job.name : spec->name));
	}
	cli_print(stdout, "job %llu %s\n", (unsigned long long)id,
		job.name ? job.name : spec->name);
	return fflush(stdout) == 0 ? CLI_OK : CLI_FAILURE;
}

/* Prints what the file means, or sends it; or prints all that is wrong with it. */
static int take_file(const struct cli_command *command, const struct submit_args *args,
	const char *bytes, size_t len_bytes)
{
	const char *path = args->path ? args->path : "command line";
	struct remarks remarks = {0};
	struct remarks notes = {0};
	struct sched_spec spec;
	struct pawl_err err;
	int rv = jobfile_decode(&spec, bytes, len_bytes, &args->given, &remarks, &notes, &err);

	submit_remarks(path, &notes);
	if (rv == 0) {
		rv = !args->check    ? send_job(command, args, &spec, bytes, len_bytes)
			: args->json ? submit_print_json(path, &spec, &notes)
				     : submit_print(path, &spec);
		sched_spec_deinit(&spec);
		return rv;
	}
	if (rv != PAWL_EINVAL) {
		return cli_fail(command, &err);
	}
	rv = args->json ? submit_remarks_json(path, &remarks, &notes) : CLI_OK;
	submit_remarks(path, &remarks);
	return rv == CLI_OK ? CLI_USAGE : rv;
}

static int submit(const struct cli_command *command, struct submit_args *args)
{
	size_t len_bytes = 0;
	struct pawl_err err;
	char *bytes = NULL;
	int rv;

	if (args->words) {
		add_line(args, "run: 'exec \"$@\"'\n");
		if (args->made.failed) {
			return cli_usage(command, "the command line is too long");
		}
		return take_file(command, args, (const char *)args->made.bytes,
			args->made.len_bytes);
	}
	if (!args->path) {
		return cli_usage(command, "FILE or -- COMMAND is needed");
	}
	if (args->made.len_bytes > 0) {
		return cli_usage(command,
			"options for COMMAND cannot be used with a job file: set these values in "
			"%s",
			args->path);
	}
	if (read_file(args->path, &bytes, &len_bytes, &err) != 0) {
		return cli_fail(command, &err);
	}
	rv = take_file(command, args, bytes, len_bytes);
	free(bytes);
	return rv;
}

static int main_submit(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	static struct submit_args args;
	bool good = true;
	int what = CLI_END;
	int rv;

	args.given.vars = args.vars;
	while (good && !args.words && (what = cli_read(&reader)) >= CLI_ARG) {
		if (what == CLI_ARG && reader.only_args) {
			args.words = argv + reader.at;
			what = CLI_END;
		} else {
			good = read_option(command, what, reader.value, &args);
		}
	}
	if (good && args.words && args.path) {
		good = false;
		cli_usage(command, "%s: give a job file, or -- and a command, but not both",
			args.path);
	}
	if (!good) {
		rv = CLI_USAGE;
	} else if (what != CLI_END) {
		rv = cli_read_exit_code(what);
	} else {
		rv = submit(command, &args);
	}
	for (uint32_t i = 0; i < args.given.vars_n; i++) {
		free((char *)args.vars[i].name);
	}
	wire_out_deinit(&args.made);
	return rv;
}

const struct cli_command cli_submit = {
	.name = "submit",
	.args = "FILE | -- COMMAND …",
	.summary = "Submit a job to the scheduler, or check a job file",
	.details =
		"FILE is YAML with the keys of SkyPilot and some of Pawl's own: see\n"
		"docs/jobs.md. Use - for standard input. Errors are reported as\n"
		"FILE:LINE:COLUMN. So is, once, each key that has no effect here, such as where\n"
		"SkyPilot is to rent a machine; with --strict, these are errors, too. --check\n"
		"prints what the job would get, and does not look at paths. The options describe\n"
		"the job that is made for a COMMAND after --.\n"
		"\n"
		"If FILE leaves a variable without a value, --env or --secret must give it.\n"
		"Other variables are added. From your environment, a job gets only PATH,\n"
		"PYTHONPATH and the like; docs/sched.md lists them.\n",
	.options = options,
	.main = main_submit,
};
