/* The command line of `pawl pipe`: see args.h. */
#include "cli/pipe/args.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_MAX  1e15
#define SPEED_MAX 1e6
#define TEXT_MAX  4096u /* bytes of a list of numbers */
#define CAP_MAX   1e18  /* bytes of memory of a stage */

/* ---- numbers ---- */

static bool read_number(const struct cli_command *command, const char *what, const char *text,
	double least, double most, double *number)
{
	char *end;

	*number = strtod(text, &end);
	if (end == text || *end != '\0' || !(*number >= least && *number <= most)) {
		cli_usage(command, "%s %s: a number from %g to %g is needed", what, text, least,
			most);
		return false;
	}
	return true;
}

static bool read_u32(const struct cli_command *command, const char *what, const char *text,
	uint32_t least, uint32_t most, uint32_t *number)
{
	uint64_t read;

	if (!cli_number(command, what, text, least, most, &read)) {
		return false;
	}
	*number = (uint32_t)read;
	return true;
}

/* Reads the next entry of a list that commas separate, into entry i of the caller's. */
typedef bool (*read_entry)(const struct cli_command *command, const char *text, uint32_t i,
	struct pipe_args *args);

/* Reads a list of at most most entries. n: set to their number. */
static bool read_list(const struct cli_command *command, const char *what, const char *text,
	uint32_t most, read_entry read, uint32_t *n, struct pipe_args *args)
{
	char copy[TEXT_MAX];
	char *at = copy;

	if (strlen(text) >= sizeof(copy)) {
		cli_usage(command, "%s: too long", what);
		return false;
	}
	memcpy(copy, text, strlen(text) + 1);
	for (*n = 0; at; (*n)++) {
		const char *entry = strsep(&at, ",");

		if (*n == most) {
			cli_usage(command, "%s: more than %u entries", what, most);
			return false;
		}
		if (!read(command, entry, *n, args)) {
			return false;
		}
	}
	return true;
}

static bool read_stages(const struct cli_command *command, const char *text, uint32_t i,
	struct pipe_args *args)
{
	return read_u32(command, "--stages", text, 1, PAWL_PIPE_STAGES_MAX, &args->stages[i]);
}

static bool read_microbatches(const struct cli_command *command, const char *text, uint32_t i,
	struct pipe_args *args)
{
	return read_u32(command, "--microbatches", text, 1, PAWL_PIPE_MICROBATCHES_MAX,
		&args->microbatches[i]);
}

static bool read_cap(const struct cli_command *command, const char *text, uint32_t i,
	struct pipe_args *args)
{
	double bytes;

	if (!cli_scaled(command, "--memory", text, CAP_MAX, &bytes)) {
		return false;
	}
	args->caps[i] = (uint64_t)bytes;
	return true;
}

static bool read_speed(const struct cli_command *command, const char *text, uint32_t i,
	struct pipe_args *args)
{
	return read_number(command, "--speeds", text, 1 / SPEED_MAX, SPEED_MAX, &args->speeds[i]);
}

/* ---- choices ---- */

static bool read_schedule(const struct cli_command *command, const char *text, uint32_t i,
	struct pipe_args *args)
{
	(void)i;
	for (unsigned s = 0; s < PAWL_PIPE_SCHEDULES; s++) {
		if (strcmp(text, pawl_pipe_schedule_name((enum pawl_pipe_schedule)s)) == 0) {
			args->schedules[s] = true;
			return true;
		}
	}
	cli_usage(command,
		"--schedule %s: auto, simple, 1f1b, interleaved, zero-bubble, zbv or listed is "
		"needed",
		text);
	return false;
}

static bool read_tied(const struct cli_command *command, const char *text, struct pipe_args *args)
{
	if (strcmp(text, "replicate") == 0) {
		args->setting.tied = PAWL_PIPE_REPLICATE;
	} else if (strcmp(text, "visit") == 0) {
		args->setting.tied = PAWL_PIPE_VISIT;
	} else {
		cli_usage(command, "--tied %s: replicate or visit is needed", text);
		return false;
	}
	return true;
}

/* Reads "RATE" or "RATE,LATENCY". */
static bool read_link(const struct cli_command *command, const char *text, struct pipe_args *args)
{
	size_t rate_bytes = strcspn(text, ",");
	struct pawl_pipe_link *link = &args->setting.link;
	char rate[64];

	if (rate_bytes >= sizeof(rate)) {
		cli_usage(command, "--link %s: too long", text);
		return false;
	}
	memcpy(rate, text, rate_bytes);
	rate[rate_bytes] = '\0';
	args->has_link = true;
	return cli_scaled(command, "--link", rate, RATE_MAX, &link->bytes_per_s) &&
		(text[rate_bytes] == '\0' ||
			read_number(command, "--link", text + rate_bytes + 1, 0,
				PAWL_PIPE_SECONDS_MAX, &link->latency_s));
}

static bool read_pin(const struct cli_command *command, const char *text, struct pipe_args *args)
{
	if (!strrchr(text, '=') || strrchr(text, '=') == text) {
		cli_usage(command, "--pin %s: UNIT=STAGE is needed", text);
		return false;
	}
	if (args->pins_n == ARGS_PINS_MAX) {
		cli_usage(command, "--pin: more than %u", ARGS_PINS_MAX);
		return false;
	}
	args->pins[args->pins_n++] = text;
	return true;
}

static bool read_path(const struct cli_command *command, const char *path, struct pipe_args *args)
{
	if (args->path) {
		cli_usage(command, "unexpected argument %s", path);
		return false;
	}
	args->path = path;
	return true;
}

bool pipe_args_read(const struct cli_command *command, int what, const char *value,
	struct pipe_args *args)
{
	struct pawl_pipe_setting *setting = &args->setting;
	uint32_t n;

	switch (what) {
	case CLI_ARG:
		return read_path(command, value, args);
	case PIPE_STAGES:
		return read_list(command, "--stages", value, ARGS_LIST_MAX, read_stages,
			&args->stages_n, args);
	case PIPE_MICROBATCHES:
		return read_list(command, "--microbatches", value, ARGS_LIST_MAX, read_microbatches,
			&args->microbatches_n, args);
	case PIPE_SCHEDULE:
		return read_list(command, "--schedule", value, PAWL_PIPE_SCHEDULES, read_schedule,
			&n, args);
	case PIPE_EACH:
		return read_u32(command, "--chunks", value, 2, PAWL_PIPE_EACH_MAX, &setting->each);
	case PIPE_INFLIGHT:
		return read_u32(command, "--in-flight", value, 1, PAWL_PIPE_MICROBATCHES_MAX,
			&setting->inflight);
	case PIPE_TIED:
		return read_tied(command, value, args);
	case PIPE_MEMORY:
		return read_list(command, "--memory", value, PAWL_PIPE_STAGES_MAX, read_cap,
			&args->caps_n, args);
	case PIPE_SPEEDS:
		return read_list(command, "--speeds", value, PAWL_PIPE_STAGES_MAX, read_speed,
			&args->speeds_n, args);
	case PIPE_LINK:
		return read_link(command, value, args);
	case PIPE_STATE:
		args->has_state = true;
		return read_number(command, "--state-factor", value, 1, PAWL_PIPE_STATE_MAX,
			&setting->state_factor);
	case PIPE_WEIGHT:
		return read_number(command, "--memory-weight", value, 0, 1,
			&setting->memory_weight);
	case PIPE_PIN:
		return read_pin(command, value, args);
	default:
		args->json = true;
		return true;
	}
}

/* ---- the model ---- */

/* Puts the units of a name on a stage. */
static bool pin(const struct cli_command *command, struct pipe_args *args, const char *text)
{
	const char *equals = strrchr(text, '=');
	size_t len = (size_t)(equals - text);
	bool found = false;
	uint32_t stage;

	if (!read_u32(command, "--pin", equals + 1, 0, PAWL_PIPE_STAGES_MAX - 1, &stage)) {
		return false;
	}
	for (uint32_t u = 0; u < args->model.n; u++) {
		const char *name = args->model.units[u].name;

		if (strncmp(name, text, len) == 0 && name[len] == '\0') {
			args->model.units[u].stage = stage;
			found = true;
		}
	}
	if (!found) {
		cli_usage(command, "--pin %s: the model has no unit of that name", text);
	}
	return found;
}

static int load(struct pipe_args *args, struct pawl_err *err)
{
	char *text = NULL;
	size_t len_bytes = 0;
	int rv = pipe_file_read(args->path, &text, &len_bytes, err);

	if (rv != 0) {
		return rv;
	}
	rv = pipe_model_decode(&args->model, text, len_bytes, err);
	free(text);
	return rv ? pawl_err_prefix(err, rv, "%s", args->path) : 0;
}

int pipe_args_load(const struct cli_command *command, struct pipe_args *args)
{
	struct pawl_err err;

	if (!args->path) {
		return cli_usage(command, "MODEL.json is missing");
	}
	if (args->stages_n == 0) {
		return cli_usage(command, "--stages N is needed");
	}
	if (load(args, &err) != 0) {
		return cli_fail(command, &err);
	}
	for (uint32_t i = 0; i < args->pins_n; i++) {
		if (!pin(command, args, args->pins[i])) {
			return CLI_USAGE;
		}
	}
	args->setting.state_factor =
		args->has_state ? args->setting.state_factor : args->model.state_factor;
	if (!args->has_link) {
		args->setting.link = args->model.link;
	}
	args->setting.link.busy = args->model.link.busy;
	return CLI_OK;
}

/* Checks that a list has an entry for each stage, or one for all; then that is repeated. */
static bool check_list(const struct cli_command *command, const char *what, uint32_t n,
	uint32_t stages)
{
	if (n > 1 && n != stages) {
		cli_usage(command, "%s: %u entries for %u stages", what, n, stages);
		return false;
	}
	return true;
}

bool pipe_args_set(const struct cli_command *command, struct pipe_args *args, uint32_t stages,
	uint32_t microbatches, enum pawl_pipe_schedule schedule)
{
	struct pawl_pipe_setting *setting = &args->setting;

	if (!check_list(command, "--memory", args->caps_n, stages) ||
		!check_list(command, "--speeds", args->speeds_n, stages)) {
		return false;
	}
	for (uint32_t s = 1; s < stages; s++) {
		args->caps[s] = args->caps_n == 1 ? args->caps[0] : args->caps[s];
		args->speeds[s] = args->speeds_n == 1 ? args->speeds[0] : args->speeds[s];
	}
	setting->stages = stages;
	setting->microbatches = microbatches;
	setting->schedule = schedule;
	setting->caps_bytes = args->caps_n > 0 ? args->caps : NULL;
	setting->speeds = args->speeds_n > 0 ? args->speeds : NULL;
	return true;
}
