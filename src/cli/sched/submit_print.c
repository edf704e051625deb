/* Prints the meaning of a job file, in words and in JSON: see submit.h. */
#include "cli/sched/submit.h"

#include "cli/cli.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400u

/* What a mount is, in words and in JSON. */
static const struct {
	const char *shown, *word;
} mount_words[] = {
	[SCHED_MOUNT_LINK] = {"mount", "link"},
	[SCHED_MOUNT_NFS] = {"NFS mount", "nfs"},
	[SCHED_MOUNT_MIRROR] = {"mirror", "mirror"},
	[SCHED_MOUNT_FETCH] = {"copy", "copy"},
};

/* ---- in words ---- */

/* Prints len bytes of a user's text; tabs are not escaped. */
static void print_clean(const char *text, size_t len)
{
	const char *end = text + len;

	while (text < end) {
		size_t n = strcspn(text, "\t");

		n = n < (size_t)(end - text) ? n : (size_t)(end - text);
		cli_print(stdout, "%.*s", (int)n, text);
		text += n;
		if (text < end) {
			putchar(*text++);
		}
	}
}

static void print_pair(const char *what, const char *left, const char *between, const char *right)
{
	cli_print(stdout, "%-14s ", what);
	print_clean(left, strlen(left));
	cli_print(stdout, "%s", between);
	print_clean(right, strlen(right));
	cli_print(stdout, "\n");
}

static void print_range(const char *what, const struct sched_range *range)
{
	if (range->least == range->most) {
		cli_print(stdout, "%-14s %u\n", what, range->least);
	} else {
		cli_print(stdout, "%-14s %u to %u\n", what, range->least, range->most);
	}
}

static void print_choice(const char *what, const struct sched_choice *choice)
{
	char size[CLI_TEXT_MAX];
	const char *comma = "";

	cli_print(stdout, "%-14s ", what);
	if (choice->accelerator) {
		cli_print(stdout, "%u %s", choice->accelerators, choice->accelerator);
		comma = ", ";
	}
	if (choice->cpus_milli > 0) {
		cli_print(stdout, "%s%g CPUs or more", comma, choice->cpus_milli / 1000.0);
		comma = ", ";
	}
	if (choice->memory_bytes > 0) {
		cli_print(stdout, "%s%s of memory or more", comma,
			cli_size(size, choice->memory_bytes));
		comma = ", ";
	}
	if (choice->disk_bytes > 0) {
		cli_print(stdout, "%s%s of free disk or more", comma,
			cli_size(size, choice->disk_bytes));
		comma = ", ";
	}
	if (choice->disk_best) {
		cli_print(stdout, "%sthe fastest measured disk", comma);
		comma = ", ";
	}
	if (choice->spot) {
		cli_print(stdout, "%sa spot node will do", comma);
		comma = ", ";
	}
	cli_print(stdout, "%s\n", *comma == '\0' ? "nothing in particular" : "");
}

static void print_vars(const struct sched_spec *spec)
{
	for (uint32_t i = 0; i < spec->vars_n; i++) {
		const struct sched_var *var = &spec->vars[i];

		if (var->secret) {
			cli_print(stdout, "%-14s %s\n", "secret", var->name);
		} else {
			print_pair("env", var->name, "=", var->value);
		}
	}
}

static void print_script(const char *what, const char *script)
{
	const char *at = script;

	for (size_t len; at && *at != '\0'; at += len + (at[len] == '\n')) {
		len = strcspn(at, "\n");
		cli_print(stdout, "%-*s", len > 0 ? 15 : 0, at == script ? what : "");
		print_clean(at, len);
		cli_print(stdout, "\n");
	}
}

static void print_limits(const struct sched_spec *spec)
{
	cli_print(stdout, "%-14s %s, priority %d, %s\n", "queue", spec->queue, spec->priority,
		spec->preemptible ? "preemptible" : "not preemptible");
	cli_print(stdout, "%-14s %u\n", "retries", spec->retries);
	if (spec->time_limit_s > 0) {
		uint32_t s = spec->time_limit_s % DAY_S;

		cli_print(stdout, "%-14s %ud %02u:%02u:%02u\n", "time limit",
			spec->time_limit_s / DAY_S, s / 3600, s / 60 % 60, s % 60);
	}
}

int submit_print(const char *path, const struct sched_spec *spec)
{
	cli_print(stdout, "%-14s %s\n", "job", spec->name ? spec->name : "(without a name)");
	print_range(spec->elastic ? "replicas" : "nodes", &spec->size);
	for (uint32_t i = 0; i < spec->choices_n; i++) {
		print_choice(i > 0              ? "or"
				: spec->elastic ? "each replica"
						: "each node",
			&spec->choices[i]);
	}
	if (spec->spot.most > 0) {
		print_range("on spot nodes", &spec->spot);
	}
	if (spec->workdir) {
		print_pair("workdir", spec->workdir, "", "");
	}
	for (uint32_t i = 0; i < spec->mounts_n; i++) {
		print_pair(mount_words[spec->mounts[i].kind].shown, spec->mounts[i].at, " is ",
			spec->mounts[i].from);
	}
	print_vars(spec);
	print_limits(spec);
	print_script("setup", spec->setup);
	print_script("run", spec->run);
	return fflush(stdout) == 0 && !ferror(stdout) ? CLI_OK : CLI_FAILURE;
}

void submit_remarks(const char *path, const struct remarks *remarks)
{
	for (uint32_t i = 0; i < remarks->n; i++) {
		cli_print(stderr, "%s:%u:%u: %s\n", path, remarks->at[i].line,
			remarks->at[i].column, remarks->at[i].text);
	}
	if (remarks->dropped > 0) {
		cli_print(stderr, "%s: and %u more\n", path, remarks->dropped);
	}
}

/* ---- in JSON ---- */

/* Returns a number, or null for "not given". */
static json_t *json_optional(double number)
{
	return number > 0 ? json_real(number) : json_null();
}

static json_t *json_bytes(uint64_t bytes)
{
	return bytes > 0 ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *json_range(const struct sched_range *range)
{
	return json_pack("[i, i]", (int)range->least, (int)range->most);
}

static json_t *json_choices(const struct sched_spec *spec)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < spec->choices_n; i++) {
		const struct sched_choice *choice = &spec->choices[i];

		json_array_append_new(list,
			json_pack("{s:s?, s:i, s:o, s:o, s:o, s:s?, s:b}", "accelerator",
				choice->accelerator, "count", (int)choice->accelerators, "cpus",
				json_optional(choice->cpus_milli / 1000.0), "memory_bytes",
				json_bytes(choice->memory_bytes), "disk_bytes",
				json_bytes(choice->disk_bytes), "disk_tier",
				choice->disk_best ? "best" : NULL, "spot", (int)choice->spot));
	}
	return list;
}

/* Returns names and values of envs, or names of secrets, each with null. */
static json_t *json_vars(const struct sched_spec *spec, bool secret)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < spec->vars_n; i++) {
		const struct sched_var *var = &spec->vars[i];

		if (var->secret == secret) {
			json_object_set_new(object, var->name,
				secret ? json_null() : cli_json_text(var->value));
		}
	}
	return object;
}

static json_t *json_mounts(const struct sched_spec *spec)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < spec->mounts_n; i++) {
		const struct sched_mount *mount = &spec->mounts[i];

		json_array_append_new(list,
			json_pack("{s:o, s:o, s:s}", "at", cli_json_text(mount->at), "from",
				cli_json_text(mount->from), "kind", mount_words[mount->kind].word));
	}
	return list;
}

static json_t *json_text(const char *text)
{
	return text ? cli_json_text(text) : json_null();
}

static json_t *json_remarks(const struct remarks *remarks)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < remarks->n; i++) {
		const struct remark *remark = &remarks->at[i];

		json_array_append_new(list,
			json_pack("{s:i, s:i, s:o}", "line", (int)remark->line, "column",
				(int)remark->column, "message", cli_json_text(remark->text)));
	}
	return list;
}

int submit_print_json(const char *path, const struct sched_spec *spec, const struct remarks *notes)
{
	json_t *time_limit = json_bytes(spec->time_limit_s);
	json_t *spot = spec->spot.most > 0 ? json_range(&spec->spot) : json_null();

	return cli_json(json_pack("{s:o, s:s?, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, "
				  "s:b, s:i, s:o, s:o, s:o, s:o}",
		"file", cli_json_text(path), "name", spec->name, "queue", spec->queue, "workdir",
		json_text(spec->workdir), spec->elastic ? "replicas" : "nodes",
		spec->elastic ? json_range(&spec->size) : json_integer(spec->size.most), "choices",
		json_choices(spec), "spot", spot, "envs", json_vars(spec, false), "secrets",
		json_vars(spec, true), "file_mounts", json_mounts(spec), "priority",
		(int)spec->priority, "preemptible", (int)spec->preemptible, "retries",
		(int)spec->retries, "time_limit_s", time_limit, "setup", json_text(spec->setup),
		"run", json_text(spec->run), "notes", json_remarks(notes)));
}

int submit_remarks_json(const char *path, const struct remarks *remarks,
	const struct remarks *notes)
{
	return cli_json(json_pack("{s:o, s:o, s:i, s:o}", "file", cli_json_text(path), "errors",
		json_remarks(remarks), "more", (int)remarks->dropped, "notes",
		json_remarks(notes)));
}
