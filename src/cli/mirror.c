/* pawl mirror: keeps the checkpoints of a program that knows nothing of Pawl in a bucket; and asks
 * a running mirror what it has done. */
#include "mirror/mirror.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "cli/cli.h"
#include "mirror/msg.h"
#include "store/store.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define SECONDS_MAX (7 * 86400.0)
#define KEEP_MAX    1000000u
#define BYTES_MAX   1e18

/* ---- pawl mirror ---- */

enum option { UNIT, QUIET, GRACE, MAX_LOCAL, KEEP_REMOTE, FETCH, FETCH_ONLY, JOB };

static const struct cli_option options[] = {
	[UNIT] = {"--unit", 0, "GLOB", "directories of this name are checkpoints, too; repeatable"},
	[QUIET] = {"--quiet", 0, "S",
		"seconds without a change until other files count as whole (10)"},
	[GRACE] = {"--grace", 0, "S", "seconds from a signal to end until it ends (25)"},
	[MAX_LOCAL] = {"--max-local", 0, "BYTES",
		"bytes of checkpoints that may be kept from removal until they are shipped"},
	[KEEP_REMOTE] = {"--keep-remote", 0, "N",
		"keep the newest N, and the best, in the bucket (those that DIR has)"},
	[FETCH] = {"--fetch", 0, "N", "fetch the newest N, and the best, at start (all)"},
	[FETCH_ONLY] = {"--fetch-only", 0, NULL,
		"fetch the newest and all other files, then become the program: mirror nothing"},
	[JOB] = {"--job", 0, "NAME", "name of the job in the bucket (that of DIR)"},
	{NULL},
};

static bool take_number(const struct cli_reader *reader, const char *what, uint64_t most,
	uint32_t *number)
{
	uint64_t value;

	if (!cli_number(reader->command, what, reader->value, 1, most, &value)) {
		return false;
	}
	*number = (uint32_t)value;
	return true;
}

static bool take_option(const struct cli_reader *reader, int what, struct mirror_options *with)
{
	const struct cli_command *command = reader->command;
	double bytes;

	switch ((enum option)what) {
	case UNIT:
		if (with->globs.n == UNIT_GLOBS_MAX) {
			cli_usage(command, "at most %u times --unit", UNIT_GLOBS_MAX);
			return false;
		}
		with->globs.at[with->globs.n++] = reader->value;
		return true;
	case QUIET:
		return cli_seconds(command, "--quiet", reader->value, SECONDS_MAX, &with->quiet_ns);
	case GRACE:
		return cli_seconds(command, "--grace", reader->value, SECONDS_MAX, &with->grace_ns);
	case MAX_LOCAL:
		if (!cli_scaled(command, "--max-local", reader->value, BYTES_MAX, &bytes)) {
			return false;
		}
		with->local_max_bytes = (uint64_t)bytes;
		return true;
	case KEEP_REMOTE:
		return take_number(reader, "--keep-remote", KEEP_MAX, &with->keep_remote);
	case FETCH:
		return take_number(reader, "--fetch", KEEP_MAX, &with->fetch_max);
	case FETCH_ONLY:
		with->fetch_only = true;
		return true;
	case JOB:
		if (reader->value[0] == '\0' || strlen(reader->value) >= CKPT_JOB_MAX) {
			cli_usage(command, "--job: 1 to %u bytes", CKPT_JOB_MAX - 1);
			return false;
		}
		with->job = reader->value;
		return true;
	}
	return false;
}

/* Reads the command line. Returns CLI_END, or what cli_read_exit_code takes. */
static int read_line(struct cli_reader *reader, struct mirror_options *with)
{
	int what;

	while ((what = cli_read(reader)) >= 0 || what == CLI_ARG) {
		if (what >= 0) {
			if (!take_option(reader, what, with)) {
				return CLI_BAD;
			}
		} else if (with->dir == NULL) {
			with->dir = reader->value;
		} else if (with->bucket == NULL) {
			with->bucket = reader->value;
		} else if (!reader->only_args) {
			cli_usage(reader->command,
				"unexpected argument %s (a program stands behind --)",
				reader->value);
			return CLI_BAD;
		} else {
			with->program = reader->argv + reader->at;
			what = CLI_END;
			break;
		}
	}
	if (what == CLI_END && with->bucket == NULL) {
		cli_usage(reader->command, "DIR and BUCKET are needed");
		return CLI_BAD;
	}
	if (what == CLI_END && !store_is_bucket(with->bucket)) {
		cli_usage(reader->command,
			"%s is no address of a bucket, such as s3://BUCKET/PREFIX", with->bucket);
		return CLI_BAD;
	}
	return what;
}

static int main_mirror(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct mirror_options with = {.quiet_ns = times_ns(TIME_MIRROR_QUIET),
		.grace_ns = times_ns(TIME_MIRROR_GRACE)};
	struct pawl_err err;
	int code = CLI_FAILURE;
	int what = read_line(&reader, &with);

	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	log_set_name("mirror");
	return mirror_run(&with, &code, &err) == 0 ? code : cli_fail(command, &err);
}

const struct cli_command cli_mirror = {
	.name = "mirror",
	.args = "DIR BUCKET [-- PROGRAM ARG…]",
	.summary = "Keep the checkpoints that a program writes to DIR in a bucket",
	.details =
		"The program needs no change, and writes to DIR, a plain local directory. Each\n"
		"checkpoint in it (a directory such as checkpoint-500) is put into the bucket as\n"
		"soon as it is whole; a reader of the bucket never sees a part of one. On a new\n"
		"node the newest checkpoints are fetched before the program starts.\n"
		"\n"
		"Ends when the program has ended and all is in the bucket, with the program's\n"
		"exit code. Without a program it runs until SIGTERM. See docs/mirror.md.\n",
	.options = options,
	.main = main_mirror,
};

/* ---- status and flush ---- */

static const char *const states[CORE_STATES_N] = {
	[CORE_OPEN] = "open",
	[CORE_PINNED] = "waiting",
	[CORE_SHIPPING] = "uploading",
	[CORE_COMMITTED] = "committed",
};

/* Returns the state of a unit as users see it: "committed" is that of the files of now. */
static const char *state_of(const struct msg_unit *unit)
{
	return unit->state == CORE_COMMITTED && !unit->in_bucket ? "removed" : states[unit->state];
}

static json_t *unit_json(const struct msg_unit *unit)
{
	json_t *json = json_object();

	json_object_set_new(json, "unit", cli_json_text(unit->path));
	json_object_set_new(json, "tag", cli_json_text(unit->tag));
	json_object_set_new(json, "state", json_string(state_of(unit)));
	json_object_set_new(json, "kind", json_string(unit_kind_name(unit->kind)));
	json_object_set_new(json, "step", json_integer((json_int_t)unit->step));
	json_object_set_new(json, "present", json_boolean(unit->present));
	json_object_set_new(json, "in_bucket", json_boolean(unit->in_bucket));
	json_object_set_new(json, "size_bytes", json_integer((json_int_t)unit->size_bytes));
	json_object_set_new(json, "sent_bytes", json_integer((json_int_t)unit->sent_bytes));
	json_object_set_new(json, "why", cli_json_text(unit->why));
	return json;
}

static json_t *status_json(const struct msg_status *status)
{
	json_t *json = json_object();
	json_t *units = json_array();

	for (uint32_t i = 0; i < status->units_n; i++) {
		json_array_append_new(units, unit_json(&status->units[i]));
	}
	json_object_set_new(json, "dir", cli_json_text(status->dir));
	json_object_set_new(json, "bucket", cli_json_text(status->bucket));
	json_object_set_new(json, "program", json_integer(status->program));
	json_object_set_new(json, "flushed", json_boolean(status->flushed));
	json_object_set_new(json, "lost", json_boolean(status->lost));
	json_object_set_new(json, "full", json_boolean(status->full));
	json_object_set_new(json, "fetching", json_boolean(status->fetching != 0));
	json_object_set_new(json, "dirty_units", json_integer(status->dirty_units));
	json_object_set_new(json, "dirty_files", json_integer(status->dirty_loose));
	json_object_set_new(json, "dirty_bytes", json_integer((json_int_t)status->dirty_bytes));
	json_object_set_new(json, "oldest_s", json_real((double)status->oldest_ns / NS_PER_S));
	json_object_set_new(json, "pinned_bytes", json_integer((json_int_t)status->pinned_bytes));
	json_object_set_new(json, "last_error", cli_json_text(status->last_error));
	json_object_set_new(json, "units", units);
	return json;
}

static void print_status(const struct msg_status *status)
{
	char size[CLI_TEXT_MAX];

	for (uint32_t i = 0; i < status->units_n; i++) {
		const struct msg_unit *unit = &status->units[i];

		cli_print(stdout, "%-10s %-10s %s%s%s%s\n", state_of(unit),
			cli_size(size, unit->size_bytes), unit->path,
			unit->present ? "" : " (no longer in the directory)",
			unit->why[0] != '\0' ? ": " : "", unit->why);
	}
	cli_print(stdout, "%s mirrors to %s: %u checkpoints and %u files (%s) are not shipped%s\n",
		status->dir, status->bucket, status->dirty_units, status->dirty_loose,
		cli_size(size, status->dirty_bytes),
		status->fetching != 0 ? "; older ones are being fetched" : "");
	if (status->lost) {
		cli_print(stdout,
			"another process has taken the bucket's prefix: nothing is shipped\n");
	}
	if (status->last_error[0] != '\0') {
		cli_print(stdout, "last error: %s\n", status->last_error);
	}
}

/* Asks the mirror of a directory, and prints its answer. */
static int ask(const struct cli_command *command, const char *dir, bool json,
	const struct msg_request *request, bool *flushed)
{
	struct msg_status status;
	struct pawl_err err;
	int code = CLI_OK;

	if (mirror_ask(dir, request, &status, &err) != 0) {
		return cli_fail(command, &err);
	}
	*flushed = status.flushed && !status.lost && status.dirty_units == 0;
	if (json) {
		code = cli_json(status_json(&status));
	} else {
		print_status(&status);
	}
	msg_status_deinit(&status);
	return code;
}

enum ask_option { ASK_JSON, ASK_DEADLINE };

static const struct cli_option status_options[] = {
	[ASK_JSON] = {"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

static const struct cli_option flush_options[] = {
	[ASK_JSON] = {"--json", 0, NULL, "print one JSON document"},
	[ASK_DEADLINE] = {"--deadline", 0, "S", "seconds to wait at most (no limit)"},
	{NULL},
};

static int main_ask(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct msg_request request = {command == &cli_mirror_flush ? MSG_FLUSH : MSG_STATUS,
		INT64_MAX};
	const char *dir = NULL;
	bool json = false;
	bool flushed = false;
	int code, what;

	while ((what = cli_read(&reader)) >= 0 || (what == CLI_ARG && dir == NULL)) {
		if (what == CLI_ARG) {
			dir = reader.value;
		} else if (what == ASK_JSON) {
			json = true;
		} else if (!cli_seconds(command, "--deadline", reader.value, SECONDS_MAX,
				   &request.deadline_ns)) {
			return CLI_USAGE;
		}
	}
	if (what == CLI_ARG) {
		return cli_usage(command, "unexpected argument %s", reader.value);
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	if (dir == NULL) {
		return cli_usage(command, "DIR is needed");
	}
	code = ask(command, dir, json, &request, &flushed);
	return code == CLI_OK && request.kind == MSG_FLUSH && !flushed ? CLI_FAILURE : code;
}

const struct cli_command cli_mirror_status = {
	.name = "mirror status",
	.args = "DIR",
	.summary = "Show what a mirror has committed, and what it has not",
	.options = status_options,
	.main = main_ask,
};

const struct cli_command cli_mirror_flush = {
	.name = "mirror flush",
	.args = "DIR",
	.summary = "Wait until a mirror has shipped all that is in its directory",
	.details = "Exits with 1 if the deadline came first, or if a checkpoint is not whole.\n",
	.options = flush_options,
	.main = main_ask,
};
