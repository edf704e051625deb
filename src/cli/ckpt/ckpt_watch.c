/*
 * pawl ckpt watch: follows a root while a job writes to it.
 *
 * Every interval, the command checks the directory, the history, the lock file and the agent. It
 * reads the tags only if one of these has changed, or a tag's state is not final. On a terminal, it
 * draws a table over itself; elsewhere each change is a line, or with --json an object.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "cli/ckpt/watch_look.h"
#include "cli/interrupt.h"

#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define INTERVAL_MAX_S 3600.0
#define LINE_BYTES     (2 * ROOT_HOLDER_MAX + CKPT_TAG_MAX) /* bytes of a line about a job */
#define ROWS_PLAIN     20u /* rows of the table, if the terminal's height is not known */
#define ROWS_OTHER     5u  /* rows of the screen that the table leaves free */

enum option { JSON, ONCE, INTERVAL };

static const struct cli_option options[] = {
	[JSON] = {"--json", 0, NULL, "print one JSON object per event, each on one line"},
	[ONCE] = {"--once", 0, NULL, "print what is there, and exit"},
	[INTERVAL] = {"--interval", 0, "S", "seconds between checks (0.5)"},
	{NULL},
};

/* State of one watch. */
struct watch {
	const char *path;    /* ROOT */
	bool json;           /* --json */
	bool once;           /* --once */
	bool table;          /* draw a table instead of events: stdout is a terminal, or --once */
	int64_t interval_ns; /* --interval */
	struct look look;    /* the last look */
	bool looked;         /* true: look is filled */
	uint64_t stamp;      /* look_stamp of the last look */
	unsigned drawn;      /* lines of the table on the screen */
};

static const char *const state_words[] =
	{[LOOK_WRITING] = "writing", [LOOK_COMPLETE] = "durable", [LOOK_BROKEN] = "broken"};

/* ---- events ---- */

/* Prints an event and releases it. */
static void print_event(json_t *event)
{
	json_dumpf(event, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	putchar('\n');
	fflush(stdout);
	json_decref(event);
}

static json_t *make_number(double value)
{
	return value >= 0 ? json_real(value) : json_null();
}

static json_t *make_text(const char *text)
{
	return text[0] != '\0' ? cli_json_text(text) : json_null();
}

static void report_tag(const struct watch *watch, const struct look_tag *tag)
{
	const struct tag_info *info = &tag->info;
	bool complete = tag->state == LOOK_COMPLETE;
	char when[CLI_TEXT_MAX];
	char size[CLI_TEXT_MAX];

	if (watch->json) {
		print_event(json_pack("{s:s, s:o, s:I, s:s, s:I, s:s?, s:o, s:o, s:o, s:o}",
			"event", "tag", "tag", cli_json_text(info->tag), "step",
			(json_int_t)info->step, "state", state_words[tag->state], "bytes",
			(json_int_t)info->size_bytes, "created",
			complete ? cli_time(when, info->created_ns) : NULL, "stall_ms",
			make_number(tag->stall_ms), "persist_ms", make_number(tag->persist_ms),
			"mib_per_s", make_number(tag->mib_per_s), "why",
			tag->state == LOOK_BROKEN ? cli_json_text(info->why) : json_null()));
		return;
	}
	cli_print(stdout, "%s %s, %s", info->tag, state_words[tag->state],
		cli_size(size, info->size_bytes));
	if (tag->stall_ms >= 0) {
		cli_print(stdout, ", stall %.1f ms", tag->stall_ms);
	}
	if (tag->persist_ms >= 0) {
		cli_print(stdout, ", durable after %.0f ms", tag->persist_ms);
	}
	cli_print(stdout, "%s%s\n", tag->state == LOOK_BROKEN ? ": " : "",
		tag->state == LOOK_BROKEN ? info->why : "");
	fflush(stdout);
}

static void report_gone(const struct watch *watch, const struct look_tag *tag)
{
	if (watch->json) {
		print_event(json_pack("{s:s, s:o, s:I}", "event", "gone", "tag",
			cli_json_text(tag->info.tag), "step", (json_int_t)tag->info.step));
	} else {
		cli_print(stdout, "%s gone\n", tag->info.tag);
		fflush(stdout);
	}
}

/* Describes what the agent of an ended job still has to write. Returns buf; "": nothing. */
static const char *describe_rest(const struct look *look, char *buf, size_t cap_bytes)
{
	buf[0] = '\0';
	if (look->locked && !look->running && look->agent.undurable[0] != '\0') {
		snprintf(buf, cap_bytes, "; its agent has %s in memory only, and tries to write it",
			look->agent.undurable);
	} else if (look->locked && !look->running) {
		snprintf(buf, cap_bytes, "; its agent still runs");
	}
	return buf;
}

/* Describes the job: "runs/gpt does not exist yet", or "runs/gpt: job gpt (pid 1 on host) is
 * running". Returns buf. */
static const char *describe_job(const struct watch *watch, const struct look *look, char *buf,
	size_t cap_bytes)
{
	if (!look->exists) {
		snprintf(buf, cap_bytes, "%s does not exist yet", watch->path);
	} else if (look->holder[0] == '\0') {
		snprintf(buf, cap_bytes, "%s: no job has used it yet", watch->path);
	} else {
		char rest[CKPT_TAG_MAX + 64];

		snprintf(buf, cap_bytes, "%s: %s %s%s", watch->path, look->holder,
			look->running ? "is running" : "has ended",
			describe_rest(look, rest, sizeof(rest)));
	}
	return buf;
}

static void report_job(const struct watch *watch, const struct look *look)
{
	char text[LINE_BYTES];

	if (watch->json) {
		print_event(json_pack("{s:s, s:o, s:b, s:o, s:b, s:o, s:o}", "event", "job", "root",
			cli_json_text(watch->path), "there", (int)look->exists, "holder",
			make_text(look->holder), "running", (int)look->running, "undurable",
			make_text(look->agent.undurable), "trouble",
			make_text(look->agent.trouble)));
		return;
	}
	cli_print(stdout, "%s\n", describe_job(watch, look, text, sizeof(text)));
	if (look->agent.trouble[0] != '\0') {
		cli_print(stdout, "%s: trouble: %s\n", watch->path, look->agent.trouble);
	}
	fflush(stdout);
}

/* ---- what has changed ---- */

static int compare_names(const void *a, const void *b)
{
	const struct look_tag *x = *(struct look_tag *const *)a;
	const struct look_tag *y = *(struct look_tag *const *)b;
	int order = strcmp(x->info.tag, y->info.tag);

	/* A tag that is being replaced is listed twice. */
	return order != 0 ? order : (x->state == LOOK_WRITING) - (y->state == LOOK_WRITING);
}

/* Sorts the tags of a look by name; the caller frees the array. NULL: no memory. */
static struct look_tag **sort_tags(const struct look *look)
{
	struct look_tag **sorted = calloc(look->tags_n + 1, sizeof(struct look_tag *));

	for (size_t i = 0; sorted != NULL && i < look->tags_n; i++) {
		sorted[i] = &look->tags[i];
	}
	if (sorted != NULL && look->tags_n > 0) {
		qsort(sorted, look->tags_n, sizeof(struct look_tag *), compare_names);
	}
	return sorted;
}

static struct look_tag *find_tag(struct look_tag **sorted, size_t n, const struct look_tag *tag)
{
	struct look_tag **found =
		n > 0 ? bsearch(&tag, sorted, n, sizeof(struct look_tag *), compare_names) : NULL;

	return found != NULL ? *found : NULL;
}

/* Returns whether a and b are the same checkpoint in the same state. */
static bool is_same(const struct look_tag *a, const struct look_tag *b)
{
	return a->state == b->state && a->info.created_ns == b->info.created_ns;
}

/* Returns whether another look may show more of a tag: its row follows the tag, and a tag that
 * seems broken may be in removal. */
static bool may_change(const struct look *now, const struct look_tag *tag)
{
	return now->running &&
		((tag->state == LOOK_COMPLETE && !tag->has_row) || tag->state == LOOK_BROKEN);
}

/* Reports what is new. A tag that may change is reported once it has stayed unchanged for
 * TIME_WATCH_PATIENCE. */
static void report_changes(struct watch *watch, struct look *now, struct look_tag **before,
	struct look_tag **after)
{
	const struct look *old = &watch->look;
	int64_t now_ns = clock_mono_ns();

	for (size_t i = 0; i < old->tags_n; i++) {
		if (old->tags[i].reported && old->tags[i].state != LOOK_WRITING &&
			find_tag(after, now->tags_n, &old->tags[i]) == NULL) {
			report_gone(watch, &old->tags[i]);
		}
	}
	for (size_t i = 0; i < now->tags_n; i++) {
		struct look_tag *tag = &now->tags[i];
		const struct look_tag *was = find_tag(before, old->tags_n, tag);
		bool known = was != NULL && is_same(was, tag);

		tag->reported = known && was->reported;
		tag->since_ns = known ? was->since_ns : now_ns;
		if (!tag->reported &&
			(watch->once || !may_change(now, tag) ||
				now_ns - tag->since_ns >= times_ns(TIME_WATCH_PATIENCE))) {
			report_tag(watch, tag);
			tag->reported = true;
		}
	}
}

static void compare(struct watch *watch, struct look *now)
{
	struct look_tag **before = sort_tags(&watch->look);
	struct look_tag **after = sort_tags(now);
	const struct look *old = &watch->look;

	if (!watch->looked || old->exists != now->exists || old->running != now->running ||
		old->locked != now->locked || !watch_agent_same(&old->agent, &now->agent) ||
		strcmp(old->holder, now->holder) != 0) {
		report_job(watch, now);
	}
	if (before != NULL && after != NULL) {
		report_changes(watch, now, before, after);
	}
	free(before);
	free(after);
}

/* ---- the table ---- */

/* Formats a number as "12.3" in buf; returns "-" for a negative one, which means unknown. */
static const char *format_number(char *buf, double value)
{
	if (value < 0) {
		return "-";
	}
	snprintf(buf, CLI_TEXT_MAX, "%.1f", value);
	return buf;
}

static void draw(struct watch *watch, const struct look *look)
{
	char text[LINE_BYTES];
	char size[CLI_TEXT_MAX], stall[CLI_TEXT_MAX], persist[CLI_TEXT_MAX], rate[CLI_TEXT_MAX];
	char when[CLI_TEXT_MAX];
	struct winsize screen;
	size_t rows = ROWS_PLAIN;
	size_t first = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &screen) == 0 && screen.ws_row > ROWS_OTHER) {
		rows = screen.ws_row - ROWS_OTHER;
	}
	if (!watch->once && look->tags_n > rows) {
		first = look->tags_n - rows;
	}
	if (watch->drawn > 0) {
		printf("\033[%uA\r\033[J", watch->drawn);
	}
	cli_print(stdout, "%s\n", describe_job(watch, look, text, sizeof(text)));
	if (look->agent.trouble[0] != '\0') {
		cli_print(stdout, "trouble: %s\n", look->agent.trouble);
	}
	cli_print(stdout, "%zu checkpoints, %s\n", look->tags_n, cli_size(size, look->bytes));
	cli_print(stdout, "%12s  %-8s  %10s  %9s  %10s  %7s  %-20s  %s\n", "STEP", "STATE", "SIZE",
		"STALL ms", "PERSIST ms", "MiB/s", "WHEN", "TAG");
	for (size_t i = first; i < look->tags_n; i++) {
		const struct look_tag *tag = &look->tags[i];

		cli_print(stdout, "%12llu  %-8s  %10s  %9s  %10s  %7s  %-20s  %s\n",
			(unsigned long long)tag->info.step, state_words[tag->state],
			cli_size(size, tag->info.size_bytes), format_number(stall, tag->stall_ms),
			format_number(persist, tag->persist_ms),
			format_number(rate, tag->mib_per_s),
			tag->info.created_ns != 0 ? cli_time(when, tag->info.created_ns) : "-",
			tag->info.tag);
	}
	fflush(stdout);
	watch->drawn = 3 + (look->agent.trouble[0] != '\0') + (unsigned)(look->tags_n - first);
}

/* ---- the command ---- */

/* Returns whether another look may show more although the root has not changed. */
static bool is_pending(const struct look *look)
{
	for (size_t i = 0; i < look->tags_n; i++) {
		if (!look->tags[i].reported || look->tags[i].state == LOOK_WRITING) {
			return true;
		}
	}
	return false;
}

/* Returns whether the agent reports the same as at the last look. */
static bool is_agent_same(const struct watch *watch)
{
	struct look now = watch->look;

	look_ask(&now, watch->path);
	return watch_agent_same(&now.agent, &watch->look.agent);
}

static int look_once(struct watch *watch, struct pawl_err *err)
{
	uint64_t stamp = look_stamp(watch->path);
	struct look now;
	int rv;

	if (watch->looked && stamp == watch->stamp && !is_pending(&watch->look) &&
		is_agent_same(watch)) {
		return 0;
	}
	rv = look_take(&now, watch->path, err);
	if (rv != 0) {
		look_deinit(&now);
		return rv;
	}
	if (watch->table) {
		for (size_t i = 0; i < now.tags_n; i++) {
			now.tags[i].reported = true;
		}
		draw(watch, &now);
	} else {
		compare(watch, &now);
	}
	look_deinit(&watch->look);
	watch->look = now;
	watch->looked = true;
	watch->stamp = stamp;
	return 0;
}

static int watch_root(struct watch *watch, struct pawl_err *err)
{
	const struct timespec wait = {watch->interval_ns / NS_PER_S, watch->interval_ns % NS_PER_S};
	int rv = look_once(watch, err);

	while (rv == 0 && !watch->once && interrupt_signal() == 0) {
		ppoll(NULL, 0, &wait, NULL);
		rv = interrupt_signal() == 0 ? look_once(watch, err) : 0;
	}
	return rv == PAWL_ECANCELED ? 0 : rv; /* interrupted in the middle of a look */
}

static int read_line(struct cli_reader *reader, struct watch *watch)
{
	int what;

	while ((what = cli_read(reader)) >= CLI_ARG) {
		if (what == CLI_ARG && watch->path != NULL) {
			cli_usage(reader->command, "unexpected argument %s", reader->value);
			return CLI_BAD;
		}
		if (what == CLI_ARG) {
			watch->path = reader->value;
		} else if (what != INTERVAL) {
			*(what == ONCE ? &watch->once : &watch->json) = true;
		} else if (!cli_seconds(reader->command, "--interval", reader->value,
				   INTERVAL_MAX_S, &watch->interval_ns)) {
			return CLI_BAD;
		}
	}
	if (what == CLI_END && watch->path == NULL) {
		cli_usage(reader->command, "ROOT is needed");
		return CLI_BAD;
	}
	return what;
}

static int main_watch(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct watch watch = {.interval_ns = times_ns(TIME_WATCH_EVERY)};
	struct pawl_err err;
	int rv = read_line(&reader, &watch);

	if (rv != CLI_END) {
		return cli_read_exit_code(rv);
	}
	interrupt_catch();
	watch.table = !watch.json && (watch.once || isatty(STDOUT_FILENO) == 1);
	rv = watch_root(&watch, &err) == 0 ? CLI_OK : cli_fail(command, &err);
	if (rv == CLI_OK && watch.once && !watch.look.exists) {
		rv = CLI_NOTHING;
	} else if (rv == CLI_OK && interrupt_signal() > SIGINT) {
		rv = 128 + interrupt_signal();
	}
	look_deinit(&watch.look);
	return rv;
}

const struct cli_command cli_ckpt_watch = {
	.name = "ckpt watch",
	.args = "ROOT",
	.summary = "Follow the checkpoints in ROOT while a job writes them",
	.details =
		"On a terminal, the command shows a table. Elsewhere, it prints a line for each\n"
		"checkpoint that is being written, durable or gone. ROOT need not exist yet.\n"
		"Ctrl-C ends the command, with exit code 0.\n",
	.options = options,
	.main = main_watch,
};
